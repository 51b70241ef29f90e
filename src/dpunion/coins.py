"""How a weight becomes a decision: one exact coin for each item, with the probability that noise would give it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from dpunion.algorithms import Norm
from dpunion.budget import Budget
from dpunion.calibration import bounds
from dpunion.contributions import Bools, Float64s, Uint64s
from dpunion.plans import Noise, Plan
from dpunion.randomness import RunKey


class Coins(Protocol):
    """One coin per item.

    norm: the norm in which one user may move the weights by at most 1 for the noise to hide it.

    Guarantees: a decision depends on the run key, the draw's number, the item's digest and its weight alone.
    """

    norm: ClassVar[Norm]

    def toss(self, draw: int, digests: Uint64s, weights: Float64s, key: RunKey) -> Bools:
        """Return which items are released: bool[items]."""


@dataclass(frozen=True, slots=True)
class GaussianCoins:
    """Release with probability Pr[weight + N(0, stddev^2) > threshold]."""

    norm: ClassVar[Norm] = Norm.L2

    threshold: float
    stddev: float

    def toss(self, draw: int, digests: Uint64s, weights: Float64s, key: RunKey) -> Bools:
        return key.decide_gaussian(draw, digests, weights, threshold=self.threshold, stddev=self.stddev)


@dataclass(frozen=True, slots=True)
class LaplaceCoins:
    """Release with probability Pr[weight + Laplace(scale) > threshold]."""

    norm: ClassVar[Norm] = Norm.L1

    threshold: float
    scale: float

    def toss(self, draw: int, digests: Uint64s, weights: Float64s, key: RunKey) -> Bools:
        return key.decide_laplace(draw, digests, weights, threshold=self.threshold, scale=self.scale)


@dataclass(frozen=True, slots=True)
class OptimalCoins:
    """Release with the largest private probability at each count (Desfontaines et al. 2022, Thm 1)."""

    norm: ClassVar[Norm] = Norm.L1

    budget: Budget

    def toss(self, draw: int, digests: Uint64s, weights: Float64s, key: RunKey) -> Bools:
        """Return which items are released: bool[items]; the rarer outcome is the one that is drawn."""
        small, is_likely = optimal_odds(self.budget)
        at = np.minimum(weights, len(small) - 1).astype(np.int64)
        return key.coins(draw, digests, small[at], ~is_likely[at])


def optimal_odds(budget: Budget) -> tuple[Float64s, Bools]:
    """Return for each count the probability of the rarer outcome, and whether "released" is the likelier one."""
    odds = bounds.release_odds_for(budget)
    return np.array([chance for chance, _ in odds]), np.array([side for _, side in odds])


def coins_for(plan: Plan) -> Coins:
    """Return the coins of a plan of one round."""
    if plan.noise is Noise.TRUNCATED_GEOMETRIC:
        return OptimalCoins(plan.budget)
    kinds: dict[Noise, Callable[[float, float], Coins]] = {Noise.GAUSSIAN: GaussianCoins, Noise.LAPLACE: LaplaceCoins}
    return kinds[plan.noise](plan.threshold, plan.scale)
