"""One machine: arrays and kernels.

The sentence every mechanism is: bound -> (weigh -> decide -> narrow)* -> publish. Bounding is done where the
contributions are made; this module weighs and decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import assert_never

import numpy as np
import numpy.typing as npt

from dpunion.algorithms import (
    CountGaussian,
    CountLaplace,
    DpSips,
    Funnel,
    Norm,
    OptimalSingleItem,
    PolicyGaussian,
    PolicyLaplace,
    Sensitivity,
    WeightedGaussian,
    WeightedLaplace,
)
from dpunion.calibration import optimal
from dpunion.calibration.rounding import MAX_USERS
from dpunion.contributions import Contributions, Float64s, Int64s
from dpunion.engines import rounds
from dpunion.engines.rounds import select_by_funnel, select_by_sips
from dpunion.engines.shares import count_shares, in_weight, l1_shares, l2_shares
from dpunion.errors import BadSource, InternalError, SensitivityMismatch
from dpunion.kernels.descent import descend_l1, descend_l2
from dpunion.kernels.shares import add_shares
from dpunion.plans import Noise, Plan
from dpunion.randomness import RunKey

Bools = npt.NDArray[np.bool_]

held_items = rounds.held_items


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Weights:
    """The weighted histogram and the sensitivity it was built to.

    values: float64[items]; held: bool[items], whether any user kept the item.

    Guarantees:
    - adding or removing one user changes `values` by at most `sensitivity`;
    - nothing about the values shows in the repr.
    """

    values: Float64s
    held: Bools
    sensitivity: Sensitivity

    def __repr__(self) -> str:
        return f"Weights(<sensitive>, {self.sensitivity})"


def select(plan: Plan, contributions: Contributions, key: RunKey) -> Int64s:
    """Run the plan: return the numbers of the items to release.

    Guarantees:
    - refuses contributions bounded otherwise than planned, and more users than the rounding slack covers;
    - the numbers depend on the contributions and the key only.
    """
    if plan.algorithm.bounds_once and contributions.max_items_per_user > plan.algorithm.max_items_per_user:
        raise InternalError("the contributions are bounded more loosely than the plan assumes")
    if contributions.users > MAX_USERS:
        raise BadSource(
            f"There are more than {MAX_USERS} users, more than one run supports.",
            "Split the people into disjoint groups and release each group on its own.",
        )
    match plan.algorithm:
        case Funnel() as funnel:
            return select_by_funnel(plan, funnel, contributions, key)
        case DpSips() as sips:
            return select_by_sips(plan, sips, contributions, key)
        case _:
            weights = weigh(plan, contributions)
            return np.flatnonzero(decide(plan, weights, contributions.table.digests, key))


def weigh(plan: Plan, contributions: Contributions) -> Weights:
    """Build the weighted histogram of the plan's algorithm of one round.

    Guarantees:
    - a user adds weight to the user's own kept items only;
    - the histogram of two neighbouring inputs differs by at most the declared sensitivity.
    """
    algorithm = plan.algorithm
    limit = algorithm.max_items_per_user
    match algorithm:
        case CountLaplace():
            return _shared_out(contributions, count_shares(limit), Sensitivity(Norm.L1, float(limit)))
        case CountGaussian():
            return _shared_out(contributions, count_shares(limit), Sensitivity(Norm.L2, math.sqrt(limit)))
        case WeightedLaplace():
            return _shared_out(contributions, l1_shares(limit), Sensitivity(Norm.L1, 1.0))
        case WeightedGaussian():
            return _shared_out(contributions, l2_shares(limit), Sensitivity(Norm.L2, 1.0))
        case PolicyLaplace() | PolicyGaussian():
            return _descended(algorithm, contributions, plan.cutoff)
        case OptimalSingleItem():
            return _shared_out(contributions, count_shares(limit), Sensitivity(Norm.L1, 1.0))
        case Funnel() | DpSips():
            raise InternalError("an algorithm of several rounds has no single histogram")
        case _:
            assert_never(algorithm)


def _shared_out(contributions: Contributions, share_of_size: Int64s, sensitivity: Sensitivity) -> Weights:
    units = np.zeros(len(contributions.table), np.int64)
    add_shares(contributions.offsets, contributions.items, share_of_size, units)
    return Weights(in_weight(units), units > 0, sensitivity)


def _descended(
    algorithm: PolicyLaplace | PolicyGaussian, contributions: Contributions, cutoff: float | None
) -> Weights:
    if cutoff is None:
        raise InternalError("a policy without a cutoff")
    weights = np.zeros(len(contributions.table))
    budget = 1.0 / algorithm.passes
    scratch = np.empty(algorithm.max_items_per_user)
    for _ in range(algorithm.passes):
        if isinstance(algorithm, PolicyLaplace):
            descend_l1(contributions.offsets, contributions.items, weights, cutoff, budget, scratch)
        else:
            descend_l2(contributions.offsets, contributions.items, weights, cutoff, budget)
    norm = Norm.L1 if isinstance(algorithm, PolicyLaplace) else Norm.L2
    return Weights(weights, held_items(contributions), Sensitivity(norm, 1.0))


def decide(plan: Plan, weights: Weights, digests: npt.NDArray[np.uint64], key: RunKey) -> Bools:
    """Flip one coin per held item: bool[items].

    Guarantees:
    - refuses weights whose sensitivity is not what the noise was calibrated to;
    - an item's coin is a function of the run key and the item's bytes, not of where it stands;
    - an item kept by nobody is never released.
    """
    if weights.sensitivity != plan.sensitivity:
        raise SensitivityMismatch("the weights and the noise assume different sensitivities")
    match plan.noise:
        case Noise.GAUSSIAN:
            passed = key.decide_gaussian(0, digests, weights.values, threshold=plan.threshold, stddev=plan.scale)
        case Noise.LAPLACE:
            passed = key.decide_laplace(0, digests, weights.values, threshold=plan.threshold, scale=plan.scale)
        case Noise.TRUNCATED_GEOMETRIC:
            passed = _decide_optimally(plan, weights.values, digests, key)
        case _:
            assert_never(plan.noise)
    released: Bools = passed & weights.held
    return released


def _decide_optimally(plan: Plan, counts: Float64s, digests: npt.NDArray[np.uint64], key: RunKey) -> Bools:
    """Flip the coins of the optimal single-item release; the rarer outcome is the one that is drawn."""
    odds = optimal.release_odds_for(plan.budget)
    small = np.array([chance for chance, _ in odds])
    likely = np.array([side for _, side in odds])
    at = np.minimum(counts, len(odds) - 1).astype(np.int64)
    return key.coins(0, digests, small[at], ~likely[at])
