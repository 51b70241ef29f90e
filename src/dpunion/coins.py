"""How a weight becomes a decision: one exact coin for each item, with the probability that noise would give it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpunion.budget import Budget
from dpunion.calibration.gaussian import GUARD
from dpunion.calibration.optimal import release_odds
from dpunion.calibration.rounding import calibration_target
from dpunion.contributions import Bools, Float64s, Uint64s
from dpunion.kernels.normal import upper_tail
from dpunion.plans import Noise, Plan
from dpunion.randomness import RunKey


class Coins(Protocol):
    """One coin per item: a function of the run key, the draw's number, the item's bytes and its weight."""

    def toss(self, draw: int, digests: Uint64s, weights: Float64s, key: RunKey) -> Bools:
        """Return which items are released: bool[items]."""

    def chances(self, weights: Float64s) -> Float64s:
        """Return the probability of release at each weight, in the same shape."""


@dataclass(frozen=True, slots=True)
class GaussianCoins:
    """Release with probability Pr[weight + N(0, stddev^2) > threshold]."""

    threshold: float
    stddev: float

    def toss(self, draw: int, digests: Uint64s, weights: Float64s, key: RunKey) -> Bools:
        """Return which items are released: bool[items]."""
        return key.decide_gaussian(draw, digests, weights, threshold=self.threshold, stddev=self.stddev)

    def chances(self, weights: Float64s) -> Float64s:
        """Return the probability of release at each weight."""
        tails = [upper_tail((self.threshold - weight) / self.stddev) for weight in weights.ravel().tolist()]
        return np.array(tails).reshape(weights.shape)


@dataclass(frozen=True, slots=True)
class LaplaceCoins:
    """Release with probability Pr[weight + Laplace(scale) > threshold]."""

    threshold: float
    scale: float

    def toss(self, draw: int, digests: Uint64s, weights: Float64s, key: RunKey) -> Bools:
        """Return which items are released: bool[items]."""
        return key.decide_laplace(draw, digests, weights, threshold=self.threshold, scale=self.scale)

    def chances(self, weights: Float64s) -> Float64s:
        """Return the probability of release at each weight."""
        tails = 0.5 * np.exp(-np.abs(weights - self.threshold) / self.scale)
        return np.where(weights > self.threshold, 1.0 - tails, tails)


@dataclass(frozen=True, slots=True)
class OptimalCoins:
    """Release with the largest private probability at each count (Desfontaines et al. 2022, Thm 1)."""

    budget: Budget

    def toss(self, draw: int, digests: Uint64s, weights: Float64s, key: RunKey) -> Bools:
        """Return which items are released: bool[items]; the rarer outcome is the one that is drawn."""
        small, likely = self._odds(weights)
        return key.coins(draw, digests, small, ~likely)

    def chances(self, weights: Float64s) -> Float64s:
        """Return the probability of release at each count."""
        small, likely = self._odds(weights)
        return np.where(likely, 1.0 - small, small)

    def _odds(self, counts: Float64s) -> tuple[Float64s, Bools]:
        """Return of each count the probability of the rarer outcome, and whether "released" is the likelier one."""
        small, likely = optimal_odds(self.budget)
        at = np.minimum(counts, len(small) - 1).astype(np.int64)
        return small[at], likely[at]


@functools.lru_cache(maxsize=8)
def optimal_odds(budget: Budget) -> tuple[Float64s, Bools]:
    """Return the odds at each count: of slightly less than the budget, so that the computed coins keep it."""
    epsilon, delta = calibration_target(budget.epsilon, budget.delta)
    odds = release_odds(epsilon, delta * (1.0 - GUARD))
    return np.array([chance for chance, _ in odds]), np.array([side for _, side in odds])


def coins_for(plan: Plan) -> Coins:
    """Return the coins of a plan of one round."""
    if plan.noise is Noise.GAUSSIAN:
        return GaussianCoins(plan.threshold, plan.scale)
    if plan.noise is Noise.LAPLACE:
        return LaplaceCoins(plan.threshold, plan.scale)
    return OptimalCoins(plan.budget)
