"""The shape of the papers' data: how many items people hold, how common items are, and how the two go together.

Set sizes follow the printed shares of users exactly. What is fitted (`dpunion_lab.fitting`) is how the frequency of
items falls from rank to rank, and how much more often people with few items name a rare one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from dpunion.contributions import Float64s, Int64s
from dpunion_lab.published import published_fact, published_tables

RANKS = 1_000_000
KNOTS = (1, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000)
"""Ranks between which the probability of an item falls by a fixed power of the rank, and so beyond the last."""
BANDS = 16
"""Users are sorted into so many bands by the size of their sets; those of a band draw from the same items alike."""
USUAL_SIZE = 20.0
"""Users with about so many items draw by the powers as they stand."""
GRID = 600


@dataclass(frozen=True, slots=True)
class Shape:
    """How items are drawn: powers[i], by which the probability falls from KNOTS[i] to the next knot, or on to the end.

    tilt: a user with s items draws an item of probability p with odds p^(1 + tilt ln(s / USUAL_SIZE)).
    """

    powers: tuple[float, ...]
    tilt: float

    def log_odds(self, ranks: Float64s) -> Float64s:
        """Return the logarithm of the odds at ranks, 0 at rank 1."""
        knots = np.log([*KNOTS, RANKS])
        heights = np.concatenate([[0.0], -np.cumsum(np.array(self.powers) * np.diff(knots))])
        return np.asarray(np.interp(np.log(ranks), knots, heights))

    def band_odds(self, ranks: Float64s) -> Float64s:
        """Return the odds of each band: float64[BANDS, ranks], 1 at rank 1."""
        powers = 1.0 + self.tilt * np.log(band_middles() / USUAL_SIZE)
        return np.asarray(np.exp(powers[:, None] * self.log_odds(ranks)[None, :]))

    def draws(self, sizes: Float64s) -> Float64s:
        """Return how many draws are expected to give sets of these sizes."""
        places, counts = rank_grid()
        odds = self.band_odds(places)
        chances = (odds / (odds @ counts)[:, None])[band_of(sizes)]
        return draws_for(sizes, chances, counts)


SHAPES = {
    "a chat": Shape((1.0357, 1.1864, 1.1563, 1.2555, 1.318, 1.5393, 1.8591, 1.5772, 1.3488), 0.047),
    "film reviews": Shape((1.0514, 1.1865, 1.1545, 1.26, 1.3101, 1.5687, 1.7165, 2.2511, 2.2434), 0.0467),
}
"""What `dpunion_lab.fitting.fit_shape` finds from the printed numbers, with the tail of rare items as in other data."""
FITTED = SHAPES["a chat"]


def band_of(sizes: Float64s | Int64s) -> Int64s:
    """Return the bands in which set sizes lie."""
    return np.asarray(np.clip(np.searchsorted(_band_edges(), sizes, side="right") - 1, 0, BANDS - 1), dtype=np.int64)


def band_middles() -> Float64s:
    """Return the set size in the middle of each band."""
    edges = _band_edges()
    return np.asarray(np.sqrt(edges[:-1] * edges[1:]))


def _band_edges() -> Float64s:
    return np.asarray(np.geomspace(1.0, largest_size() + 1.0, BANDS + 1))


@functools.cache
def rank_grid() -> tuple[Float64s, Float64s]:
    """Return places among the ranks, close together at the head, and how many ranks each stands for."""
    places = np.unique(np.rint(np.geomspace(1, RANKS, GRID))).astype(np.float64)
    borders = np.concatenate([[0.5], (places[:-1] + places[1:]) / 2.0, [RANKS + 0.5]])
    return places, np.diff(borders)


def draws_for(sizes: Float64s, chances: Float64s, counts: Float64s) -> Float64s:
    """Return the draws t with sum of 1 - exp(-chance t) = size, by Newton's method: chances float64[sizes, ranks]."""
    draws = sizes.copy()
    for _ in range(60):  # convex and rising from below: every step stays below the answer
        missed = np.exp(-chances * draws[:, None])
        step = (sizes - (1.0 - missed) @ counts) / ((missed * chances) @ counts)
        draws += step
        if np.all(np.abs(step) <= 1e-9 * draws):
            break
    return draws


# --- set sizes ----------------------------------------------------------------------------------------------


def largest_size() -> int:
    """Return the printed upper end for the ten largest users."""
    return int(_size_points()[0][-1])


@functools.cache
def _size_points() -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return set sizes and the parts of the users that hold at most so many items, as printed.

    The ten largest users hold 850 to 2,000 items by the papers: read here as the tenth and the first.
    """
    printed = published_tables()["icml-supplement-1"].rows["share"].values
    users = published_fact("users after filtering and preprocessing")
    tenth, first = published_fact("distinct unigrams of the ten users with the most")
    sizes = (*map(int, printed), int(tenth), int(first))
    return sizes, (*[value / 100.0 for value in printed.values()], 1.0 - 10.0 / users, 1.0 - 0.5 / users)


@functools.cache
def _size_limits() -> Float64s:
    """Return for each size the part of the users that hold at most so many items; a log-normal between the points."""
    sizes, parts = _size_points()
    normal = NormalDist()
    places = np.interp(np.log(np.arange(1, sizes[-1] + 1)), np.log(sizes), [normal.inv_cdf(part) for part in parts])
    limits = np.array([normal.cdf(place) for place in places])
    limits[-1] = 1.0
    return limits


def size_chances() -> Float64s:
    """Return how likely each set size is: float64[largest], of size 1 first."""
    return np.diff(_size_limits(), prepend=0.0)


def sizes_of(users: int, order: Sequence[int] | Int64s) -> Int64s:
    """Return set sizes of users by their place in the order of sizes: exact quantiles, so nothing is left to chance."""
    places = (np.asarray(order, dtype=np.float64) + 0.5) / users
    return np.asarray(np.searchsorted(_size_limits(), places) + 1, dtype=np.int64)
