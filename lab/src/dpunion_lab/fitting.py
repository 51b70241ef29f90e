"""Fit the shape of the generated data to what the papers print about theirs; tools/fit_shape.py prints the result.

The fit uses the numbers of items with at least k holders, the sizes that Count Laplace and Count Gaussian release and,
with a third of the weight, the exponent of Zipf's law and the tail of rare items of other data. Set sizes are the
printed shares. The sizes that Weighted algorithms and policies release are held out, as a test.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpunion.algorithms import Calibration, CountGaussian, CountLaplace
from dpunion.budget import Budget
from dpunion.contributions import Float64s
from dpunion.plans import plan_release
from dpunion_lab.data import COVERAGE
from dpunion_lab.generators import KNOTS, Shape, band_of, draws_for, rank_grid, size_chances
from dpunion_lab.published import published_fact, published_tables

FITTED_ROWS = frozenset({"count-laplace", "count-gaussian", "held", "share"})
"""The rows of the papers' tables that the fit uses."""
BUDGET = Budget(3.0, math.exp(-10.0))
ZIPF_RANKS = (10, 1_000)
TAILS = {
    "a chat": {1: 64_073, 2: 27_636, 3: 18_538, 4: 14_247, 5: 11_724},
    "film reviews": {1: 112_455, 2: 64_500, 3: 51_065, 4: 43_802, 5: 38_906},
}
"""Words with at least k holders in a chat of 17,777 people (Kummerfeld et al. 2019) and in 50,000 film reviews (Maas et
al. 2011). The papers do not print how many words have fewer than five holders, so we use the tail of the chat."""
LENIENT = 1.0 / 3.0
START = Shape((1.0,) * 4 + (1.75,) * (len(KNOTS) - 4), 0.0)
STEPS, NUDGE = 12, 1e-3
DIGITS = 4

Pass = Callable[[Float64s], Float64s]
"""Maps numbers of holders to the probability that an item is counted or released."""


def fit_shape(tail: str = "a chat") -> Shape:
    """Return the shape whose expected numbers have the smallest relative differences from the printed ones."""
    goal = targets(tail)
    at = np.array([*START.powers, START.tilt])
    for _ in range(STEPS):  # Gauss-Newton, with numerical slopes
        off = _deviations(at, goal)
        slopes = np.stack([(_deviations(at + step, goal) - off) / NUDGE for step in NUDGE * np.eye(len(at))], axis=1)
        at = at - np.linalg.lstsq(slopes, off, rcond=None)[0]
    rounded = [round(float(value), DIGITS) for value in at]
    return Shape(tuple(rounded[:-1]), rounded[-1])


def targets(tail: str) -> dict[str, float]:
    """Return the printed numbers of the fit, by name."""
    held, like = published_tables()["icml-main-2"].rows["held"].values, TAILS[tail]
    found = {f"held by {k}": value for k, value in held.items()}
    # The items with at least 1 to 4 holders, scaled from the other data.
    found |= {f"held by {k}": held["5"] * number / like[5] for k, number in like.items() if k < 5}
    rows = published_tables()["icml-main-1"].rows
    for name in ("count-laplace", "count-gaussian"):
        found |= {f"{name} {limit}": value for limit, value in rows[name].values.items()}
    return found | {"zipf": float(published_fact("exponent of the Zipf law of unigrams across users, about"))}


def expected(shape: Shape) -> dict[str, float]:
    """Return the expected value of every target for a shape."""
    table = published_tables()["icml-main-1"]
    users = float(published_fact("users after filtering and preprocessing"))
    ranks, counts = rank_grid()
    sizes, weights, chances = _members(shape)
    whole = users * (weights @ chances)
    found = {}
    for least in (1, 2, 3, 4, *COVERAGE):
        found[f"held by {least}"] = _passing(whole, counts, _at_least(least))
    for limit in table.columns:
        kept = users * ((weights * np.minimum(1.0, limit / sizes)) @ chances)
        laplace = plan_release(CountLaplace(max_items_per_user=limit), BUDGET)
        gaussian = plan_release(CountGaussian(max_items_per_user=limit, calibration=Calibration.PUBLISHED), BUDGET)
        found[f"count-laplace {limit}"] = _passing(kept, counts, _laplace(laplace.threshold, laplace.scale))
        found[f"count-gaussian {limit}"] = _passing(kept, counts, _gaussian(gaussian.threshold, gaussian.scale))
    inside = (ranks >= ZIPF_RANKS[0]) & (ranks <= ZIPF_RANKS[1])
    every = np.sqrt(counts[inside])  # weights as if every rank were a point, as `zipf_exponent` measures it
    found["zipf"] = -float(np.polyfit(np.log(ranks[inside]), np.log(whole[inside]), 1, w=every)[0])
    return found


def _deviations(at: Float64s, goal: dict[str, float]) -> Float64s:
    here = expected(Shape(tuple(at[:-1].tolist()), float(at[-1])))
    strictness = dict.fromkeys(("zipf", *(f"held by {k}" for k in (1, 2, 3, 4))), LENIENT)
    return np.array([strictness.get(name, 1.0) * math.log(here[name] / value) for name, value in goal.items()])


def _members(shape: Shape) -> tuple[Float64s, Float64s, Float64s]:
    """Return groups of users: mean set sizes, shares of users, probabilities of each item float64[groups, ranks]."""
    chances = size_chances()
    edges = np.unique(np.rint(np.geomspace(1, len(chances) + 1, 120)).astype(np.int64))
    groups = list(zip(edges[:-1] - 1, edges[1:] - 1, strict=True))
    weights = np.array([chances[low:high].sum() for low, high in groups])
    sums = np.array([(chances[low:high] * np.arange(low + 1, high + 1)).sum() for low, high in groups])
    sizes = sums / weights
    places, counts = rank_grid()
    odds = shape.band_odds(places)
    drawn = (odds / (odds @ counts)[:, None])[band_of(sizes)]
    return sizes, weights, -np.expm1(-drawn * draws_for(sizes, drawn, counts)[:, None])


MOST_SINGLE = 150.0
"""From this many expected holders on, the number of holders counts as normal instead of Poisson."""


def _passing(means: Float64s, counts: Float64s, chance: Pass) -> float:
    """Return how many items pass in expectation, if the number of holders of each is Poisson with this mean."""
    few = means < MOST_SINGLE
    holders = np.arange(int(3 * MOST_SINGLE), dtype=np.float64)
    logs = np.array([math.lgamma(number + 1.0) for number in holders])
    rare = means[few][:, None]
    spread = np.exp(holders * np.log(rare) - rare - logs)
    found = np.empty_like(means)
    found[few] = spread @ chance(holders)
    steps = np.linspace(-4.0, 4.0, 33)
    normal = np.exp(-steps * steps / 2.0)
    common = means[~few][:, None]
    found[~few] = chance(common + np.sqrt(common) * steps) @ (normal / normal.sum())
    return float(found @ counts)


def _at_least(least: int) -> Pass:
    return lambda holders: np.asarray(holders > least - 0.5, dtype=np.float64)


def _laplace(threshold: float, scale: float) -> Pass:
    def chance(holders: Float64s) -> Float64s:
        tail = np.exp(-np.abs(holders - threshold) / scale) / 2.0
        return np.where(holders < 0.5, 0.0, np.where(holders > threshold, 1.0 - tail, tail))

    return chance


def _gaussian(threshold: float, scale: float) -> Pass:
    tail = np.vectorize(lambda place: 0.5 * math.erfc(-place / math.sqrt(2.0)), otypes=[float])
    return lambda holders: np.where(holders < 0.5, 0.0, tail((holders - threshold) / scale))
