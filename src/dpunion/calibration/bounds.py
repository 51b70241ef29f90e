"""Laplace thresholds, and the largest probability with which any private algorithm may release an item."""

from __future__ import annotations

import functools
import math

import numpy as np

from dpunion.budget import Budget
from dpunion.calibration.gaussian import GUARD, Calibrated, novel_tail
from dpunion.calibration.rounding import calibration_target
from dpunion.contributions import Float64s
from dpunion.errors import InternalError

LONGEST = 10_000_000


def laplace_chances(weights: Float64s, threshold: float, scale: float) -> Float64s:
    """Return Pr[weight + Laplace(scale) > threshold] for each weight, in the same shape."""
    tails = 0.5 * np.exp(-np.abs(weights - threshold) / scale)
    return np.where(weights > threshold, 1.0 - tails, tails)


def laplace_quantile_above(tail: float, scale: float) -> float:
    """Return x with Pr[Laplace(scale) > x] = tail; negative when tail exceeds one half."""
    if tail <= 0.5:
        return scale * math.log(0.5 / tail)
    return -scale * math.log(0.5 / (1.0 - tail))


def published_spread(epsilon: float, delta: float, max_items: int) -> Calibrated:
    """Return scale 1/epsilon and rho_Lap: t novel items of weight 1/t each (arXiv 2002.09745, Alg. 5)."""
    scale = 1.0 / epsilon
    allowed = delta * (1.0 - GUARD)
    thresholds = [(1.0 / t + laplace_quantile_above(novel_tail(allowed, t), scale), t) for t in range(1, max_items + 1)]
    threshold, worst = max(thresholds)
    return Calibrated(scale, threshold, allowed, worst)


def published_count_laplace(epsilon: float, delta: float, max_items: int) -> Calibrated:
    """Return scale max_items/epsilon and the threshold for max_items novel items of weight 1 each."""
    scale = max_items / epsilon
    allowed = delta * (1.0 - GUARD)
    threshold = 1.0 + laplace_quantile_above(novel_tail(allowed, max_items), scale)
    return Calibrated(scale, threshold, allowed, max_items)


@functools.lru_cache(maxsize=8)
def release_odds_for(budget: Budget) -> list[tuple[float, bool]]:
    """Return the odds for a release under `budget`; they leave a little of it for rounding."""
    epsilon, delta = calibration_target(budget.epsilon, budget.delta)
    return release_odds(epsilon, delta * (1.0 - GUARD))


def released_with(odds: list[tuple[float, bool]]) -> Float64s:
    """Return for each count the probability that the item is released: float64[counts]."""
    return np.array([1.0 - small if likely else small for small, likely in odds])


def release_odds(epsilon: float, delta: float) -> list[tuple[float, bool]]:
    """Return for each count the probability of the rarer outcome, and whether "released" is the likelier one.

    The probabilities of release are pi(0), pi(1), ... up to and including the first 1 (Desfontaines et al. 2022, Thm
    1): pi(n) = min(e^eps pi(n-1) + delta, 1 - e^-eps (1 - pi(n-1) - delta), 1).
    subtle: near 1 the complement 1 - pi(n) must have a small relative error, and pi(n) itself would lose it.
    """
    grow, shrink = math.exp(epsilon), math.exp(-epsilon)
    odds = [(0.0, False)]
    while True:
        small, likely = odds[-1]
        if likely:
            quiet = shrink * (small - delta)
        else:
            quiet = max(1.0 - (grow * small + delta), shrink * (1.0 - small - delta))
        if quiet <= 0.0:
            odds.append((0.0, True))
            return odds
        # Below one half only the first rule binds, and the table has its value; above, it has the complement.
        odds.append((quiet, True) if quiet < 0.5 else (grow * small + delta, False))
        if len(odds) > LONGEST:
            raise InternalError("the release probabilities do not reach 1")
