"""Plans of releases that are made together under one budget: single tokens with longer n-grams, items with counts."""

from __future__ import annotations

import dataclasses
import math
from typing import NoReturn

from dpunion.algorithms import (
    Algorithm,
    CountGaussian,
    DpSips,
    Funnel,
    PolicyGaussian,
    WeightedGaussian,
)
from dpunion.budget import Budget
from dpunion.calibration import rounding
from dpunion.calibration.composition import (
    FUNNEL_GAUSSIAN_SHARE,
    ComposedNoise,
    compose_count,
    compose_funnel,
    compose_unit_norm,
)
from dpunion.calibration.gaussian import Calibrated, gaussian_stddev
from dpunion.errors import BadParameter
from dpunion.plans import Noise, Plan, Round, as_algorithm, rounds_of_funnel, shares_plan, sips_plan
from dpunion.plans.counts import Counts, CountsPlan

Gaussians = WeightedGaussian | PolicyGaussian | Funnel
SMALL_GAUSSIAN_SHARE = 0.98
STEPS = 3
"""Counting takes so many Gaussian releases."""


def compose(algorithm: Gaussians, epsilon: float, delta: float, shares: tuple[float, ...]) -> ComposedNoise:
    """Return the noise of a set union by this algorithm and of Gaussian releases on what it makes public."""
    if isinstance(algorithm, Funnel):
        # With little beside it, as with counts, novel items need less of delta.
        part = SMALL_GAUSSIAN_SHARE if shares[0] >= 0.5 else FUNNEL_GAUSSIAN_SHARE
        return compose_funnel(epsilon, delta, algorithm, shares, part)
    return compose_unit_norm(epsilon, delta, algorithm.max_items_per_user, shares, algorithm.calibration)


def slack_of(algorithm: Gaussians, stddev: float, threshold: float) -> float:
    """Return how much rounding can add to the sensitivity, for a threshold at most 5 % above this one."""
    limit = algorithm.max_items_per_user
    match algorithm:
        case WeightedGaussian():
            return rounding.l2_coins_slack(stddev, 1.0)
        case PolicyGaussian():
            visits = algorithm.visits(stddev, threshold)
            return rounding.l2_descent_slack(1.05 * visits[-1][0], limit, len(visits), stddev)
        case Funnel():
            return rounding.funnel_slack(stddev, threshold, algorithm)


def plan_first(algorithm: Gaussians, budget: Budget, composed: ComposedNoise) -> Plan:
    """Plan the first release with its part of the noise and the threshold of the whole composition."""
    slack = slack_of(algorithm, composed.stddevs[0], composed.threshold)
    stddev, threshold = composed.stddevs[0] * (1.0 + slack), composed.threshold * (1.0 + slack)
    margin = getattr(algorithm, "cutoff_margin", None)
    rounds: tuple[Round, ...] = ()
    if isinstance(algorithm, Funnel):
        rounds = rounds_of_funnel(algorithm, stddev, threshold)
    cutoff = None if margin is None else threshold + margin * stddev
    if not threshold > 0.0 or not math.isfinite(threshold):
        raise BadParameter(
            "This budget is too large: the threshold would not be positive.",
            "Choose a smaller 'delta', well below one over the number of people.",
        )
    return Plan(
        algorithm=algorithm,
        budget=budget,
        noise=Noise.GAUSSIAN,
        scale=stddev,
        threshold=threshold,
        cutoff=cutoff,
        sensitivity=algorithm.sensitivity,
        delta_used=composed.delta_used,
        rounding_slack=slack,
        rounds=rounds,
    )


def plan_with_counts(algorithm: object, budget: Budget, counts: Counts) -> Plan:
    """Fix every number of a release with counts: selecting gets what counting leaves of the budget."""
    epsilon, delta = rounding.calibration_target(budget.epsilon, budget.delta)
    return plan_both(as_algorithm(algorithm), budget, *steps_target(budget, epsilon, delta, STEPS), counts)


def plan_both(chosen: Algorithm, budget: Budget, epsilon: float, delta: float, counts: Counts) -> Plan:
    """Plan a release with counts, calibrated to this (epsilon, delta)."""
    shares = (1.0 - counts.share, *counts.shares)
    match chosen:
        case WeightedGaussian() | PolicyGaussian() | Funnel():
            if isinstance(chosen, Funnel):
                delta = rounding.funnel_target(budget.epsilon, delta)
            composed = compose(chosen, epsilon, delta, shares)
            plan = plan_first(chosen, budget, composed)
        case CountGaussian():
            composed = compose_count(epsilon, delta, chosen.max_items_per_user, shares, chosen.calibration)
            found = Calibrated(composed.stddevs[0], composed.threshold, composed.delta_used, 0)
            plan = shares_plan(chosen, budget, Noise.GAUSSIAN, found)
        case DpSips():
            base = gaussian_stddev(epsilon, delta / 2.0, 1.0)
            plan = sips_plan(chosen, budget, epsilon, delta, shares[0])
            composed = ComposedNoise(tuple(base / math.sqrt(one) for one in shares), plan.threshold, plan.delta_used)
        case _:
            refuse_counts(chosen.name)
    return dataclasses.replace(plan, counts=plan_steps(counts, composed))


def plan_steps(counts: Counts, composed: ComposedNoise) -> CountsPlan:
    """Return the plan of counting: the noise of the last three of the composed releases."""
    return CountsPlan(counts.share, *composed.stddevs[-STEPS:])


def steps_target(budget: Budget, epsilon: float, delta: float, steps: int) -> tuple[float, float]:
    """Return the (epsilon, delta) to calibrate to, so that the computed normals of these steps keep the promised pair.

    Each step takes what every noisy decision takes (docs/guarantees-counts.md, "Noise and rounding").
    """
    for _ in range(steps):
        epsilon, delta = rounding.calibration_target(epsilon, rounding.funnel_target(budget.epsilon, delta))
    return epsilon, delta


def refuse_counts(name: str) -> NoReturn:
    """Refuse counts for an algorithm whose noise does not add up with theirs."""
    raise BadParameter(
        f"{name} cannot estimate counts: its noise is not Gaussian.",
        "Choose funnel, policy-gaussian, weighted-gaussian, count-gaussian, dp-sips, or leave 'counts' (--counts) out.",
    )
