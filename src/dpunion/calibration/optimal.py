"""The largest probability with which an item may be released, by the number of users who hold it."""

from __future__ import annotations

import functools
import math

import numpy as np

from dpunion.budget import Budget
from dpunion.calibration.gaussian import GUARD
from dpunion.calibration.rounding import calibration_target
from dpunion.contributions import Float64s
from dpunion.errors import InternalError

LONGEST = 10_000_000


@functools.lru_cache(maxsize=8)
def release_odds_for(budget: Budget) -> list[tuple[float, bool]]:
    """Return the odds with which a release under `budget` decides: those of a little less, which rounding may use."""
    epsilon, delta = calibration_target(budget.epsilon, budget.delta)
    return release_odds(epsilon, delta * (1.0 - GUARD))


def released_with(odds: list[tuple[float, bool]]) -> Float64s:
    """Return for each count the probability that the item is released: float64[counts]."""
    return np.array([1.0 - small if likely else small for small, likely in odds])


def release_odds(epsilon: float, delta: float) -> list[tuple[float, bool]]:
    """Return for each count the probability of the rarer outcome, and whether "released" is the likelier one.

    The probabilities of release are pi(0), pi(1), ... up to and including the first 1 (Desfontaines et al. 2022, Thm
    1): pi(n) = min(e^eps pi(n-1) + delta, 1 - e^-eps (1 - pi(n-1) - delta), 1).
    subtle: near 1 the complement 1 - pi(n) is what must be right, to a relative error: 1 - pi(n) >=
    e^-eps (1 - pi(n-1) - delta) would be lost in pi(n) itself.
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
        # Below one half only the first rule binds, and it is kept as it is; above, its complement.
        odds.append((quiet, True) if quiet < 0.5 else (grow * small + delta, False))
        if len(odds) > LONGEST:
            raise InternalError("the release probabilities do not reach 1")


def ceiling(epsilon: float, delta: float, holders: Float64s) -> float:
    """Return Pi(D): no (epsilon, delta) algorithm releases more items in expectation.

    holders: the number of users of each item, any shape. For study only: the result is not private.
    """
    odds = released_with(release_odds(epsilon, delta))
    return float(odds[np.minimum(holders, len(odds) - 1).astype(np.int64)].sum())
