"""Bound what float64 rounding can add to the distance of two neighbouring histograms.

In exact arithmetic the policies never move two histograms apart. In float64 each update adds a little error in
each of the two runs. A public `slack` bounds its sum over MAX_USERS users; the actual number of users does not enter.
Scaling noise and threshold by (1 + slack) makes the guarantee hold for what the machine computes
(docs/guarantees.md, "Rounding").
"""

from __future__ import annotations

import math

from dpunion.algorithms import MAX_ITEMS, Funnel
from dpunion.errors import BadParameter

MAX_USERS = 2**30

# The decision itself evaluates (weight - threshold)/scale and a tail function. Rounding the argument is a shift of
# the weight, in noise scales: below 2^-46 while a Gaussian tail is at least the coin's 2^-128 (13.1 stddevs), below
# 2^-44 for a Laplace one (88 scales); twice that for both worlds. The two worlds are further apart by these sums over
# all MAX_ITEMS items, in l2 norm, and over one user's items, in l1 norm: docs/guarantees.md, "Rounding".
GAUSSIAN_COINS = 2.0**-29
LAPLACE_COIN = 2.0**-43

# erfc and exp are within 8 ulp: each of at most MAX_ITEMS coins has a relative error below 2^-49 in either
# outcome, together 2^-18 of privacy loss in each world. Calibration is done for epsilon minus twice that.
EPSILON_SLACK = 2.0**-17
# The same loss multiplies delta. Each coin is floored at 2^-128, which adds 2^-96 of total variation in each world;
# and two items share a digest with probability 2^-67.
DELTA_SLACK = 2.0**-17
ALL_FLOORS = 2.0**-96
COLLISION = 2.0**-67

# Beyond this the exact certificates (which allow for 0.01) would not hold, or the noise would grow for nothing.
LARGEST_L2_SLACK = 0.01
LARGEST_L1_SLACK = 0.05
# Funnel: what Theorem F5 of docs/guarantees-funnel.md allows, and the total variation of draws beyond 127 bits.
LARGEST_SCORE_SPREAD = 690.0
EXTREME_NORMALS = 2.0**-68
UNIT_ROUNDOFF = 2.0**-53


def calibration_target(epsilon: float, delta: float) -> tuple[float, float]:
    """Return the (epsilon, delta) to calibrate exact coins to, so that the computed ones keep the promised pair."""
    floors = (1.0 + math.exp(epsilon)) * ALL_FLOORS + COLLISION
    return epsilon - EPSILON_SLACK, delta * (1.0 - DELTA_SLACK) - floors


def l2_coins_slack(scale: float, sensitivity: float) -> float:
    """Return what evaluating Gaussian coins adds, relative to the sensitivity."""
    return GAUSSIAN_COINS * scale / sensitivity


def l1_coins_slack(scale: float, sensitivity: float, items: int) -> float:
    """Return what evaluating Laplace coins adds where `items` of them can differ, relative to the sensitivity."""
    return LAPLACE_COIN * items * scale / sensitivity


def l2_descent_slack(cutoff: float, max_items: int, passes: int, scale: float) -> float:
    """Return the slack of l2-descent, 2 n p (ulp(cutoff)/2 sqrt(k) + (k/2 + 5) 2^-53), and that of the coins."""
    per_update = 0.5 * math.ulp(cutoff) * math.sqrt(max_items) + (max_items / 2.0 + 5.0) * UNIT_ROUNDOFF
    return _check_slack(2.0 * MAX_USERS * passes * per_update + l2_coins_slack(scale, 1.0), max_items, LARGEST_L2_SLACK)


def l1_descent_slack(cutoff: float, max_items: int, passes: int, scale: float) -> float:
    """Return the slack of l1-descent, in l1 norm: 2 n p (k ulp(cutoff) + (6k + 4) 2^-53), and that of the coins.

    Per update each of k items is off by half an ulp twice (gap and sum), and the common raise, times the number of
    items that get it, by 6k roundings of numbers below the budget (docs/guarantees.md, "Rounding").
    """
    per_update = math.ulp(cutoff) * max_items + (6.0 * max_items + 4.0) * UNIT_ROUNDOFF
    return _check_slack(
        2.0 * MAX_USERS * passes * per_update + l1_coins_slack(scale, 1.0, MAX_ITEMS), max_items, LARGEST_L1_SLACK
    )


def funnel_slack(stddev: float, threshold: float, shape: Funnel) -> float:
    """Return the slack of Funnel: the largest over its rounds, each relative to the round's own budget.

    As l2_descent_slack, with the highest target an alive item can have in place of the cutoff. A score that is alive
    lies above the keep line, so the need is at most the cutoff minus that line (docs/guarantees-funnel.md,
    "Rounding").
    """
    worst = 0.0
    limit = shape.max_items_per_user
    lines = (0.0, *shape.keep_lines(stddev, threshold))
    cutoffs = shape.cutoffs(stddev, threshold)
    for budget, aim, line, cutoff in zip(shape.shares, shape.aims, lines, cutoffs, strict=True):
        highest = 1.05 * (cutoff - line) * aim
        drift = 0.5 * math.ulp(highest) * math.sqrt(limit) / budget + (limit / 2.0 + 5.0) * UNIT_ROUNDOFF
        worst = max(worst, 2.0 * MAX_USERS * drift + l2_coins_slack(stddev, budget))
    # EPSILON_SLACK does not pay for the float64 scores of other shapes (docs/guarantees-funnel.md, Theorem F5).
    if score_spread(stddev, threshold, shape) > LARGEST_SCORE_SPREAD:
        raise BadParameter(
            "Some rounds of this funnel are too small for float64 scores.",
            "Choose fewer rounds, a first_share nearer to 1/rounds, or smaller margins.",
        )
    return _check_slack(worst, limit, LARGEST_L2_SLACK)


def score_spread(stddev: float, threshold: float, shape: Funnel) -> float:
    """Return (M/stddev) sqrt(sum of 1/c_r^2), where M bounds the scores: their float64 errors grow with it."""
    largest = shape.cutoffs(stddev, threshold)[0] + (13.2 + shape.keep_margin) * stddev
    return largest / stddev * math.sqrt(sum(1.0 / share for share in shape.squared_shares))


def funnel_target(epsilon: float, delta: float) -> float:
    """Return the delta to calibrate Funnel to: the budget's, minus what extreme normals of 127 bits add."""
    target = delta - (1.0 + math.exp(epsilon)) * EXTREME_NORMALS
    if target < 0.5 * delta:
        raise BadParameter(
            "Funnel's random numbers are too coarse for such a small delta with such a large epsilon.",
            "Choose a larger 'delta', a smaller 'epsilon' or PolicyGaussian.",
        )
    return target


def _check_slack(slack: float, max_items: int, largest: float) -> float:
    if slack > largest:
        raise BadParameter(
            f"With max_items_per_user={max_items}, floating-point rounding would use too much of this budget.",
            "Choose a larger 'epsilon', a smaller 'max_items_per_user' or, for a policy, fewer 'passes'.",
        )
    return slack
