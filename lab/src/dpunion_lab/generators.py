"""Generated data: everybody has a set of words, few words are common, and most are rare.

AskRedditFitted is fitted to the papers' data: set sizes follow the printed shares of users exactly. Fitted
(`dpunion_lab.fitting`) are how the frequency of items falls from rank to rank, and how much more often users with few
items name a rare one. All data is seeded and public; nothing but such data may use numpy's generator.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpunion.contributions import Float64s, Int64s
from dpunion_lab.published import published_fact, published_tables

RANKS = 1_000_000
KNOTS = (1, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000)
"""Between two knots, and after the last one, the probability of an item falls by a fixed power of its rank."""
BANDS = 16
"""The number of bands of users by set size. All users of a band draw items with the same odds."""
USUAL_SIZE = 20.0
"""Users with about this many items draw by the powers unchanged."""
GRID = 600


@dataclass(frozen=True, slots=True)
class Shape:
    """How items are drawn. powers[i]: the power by which the probability falls from KNOTS[i] to the next knot.

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
        """Return how many draws give sets of these sizes in expectation."""
        places, counts = rank_grid()
        odds = self.band_odds(places)
        chances = (odds / (odds @ counts)[:, None])[band_of(sizes)]
        return draws_for(sizes, chances, counts)


SHAPES = {
    "a chat": Shape((1.0357, 1.1864, 1.1563, 1.2555, 1.318, 1.5393, 1.8591, 1.5772, 1.3488), 0.047),
    "film reviews": Shape((1.0514, 1.1865, 1.1545, 1.26, 1.3101, 1.5687, 1.7165, 2.2511, 2.2434), 0.0467),
}
"""The shapes that `dpunion_lab.fitting.fit_shape` finds, with the tail of rare items of two other data sets."""
FITTED = SHAPES["a chat"]


def band_of(sizes: Float64s | Int64s) -> Int64s:
    """Return the band of each set size."""
    return np.asarray(np.clip(np.searchsorted(_band_edges(), sizes, side="right") - 1, 0, BANDS - 1), dtype=np.int64)


def band_middles() -> Float64s:
    """Return the set size in the middle of each band."""
    edges = _band_edges()
    return np.asarray(np.sqrt(edges[:-1] * edges[1:]))


def _band_edges() -> Float64s:
    return np.asarray(np.geomspace(1.0, largest_size() + 1.0, BANDS + 1))


@functools.cache
def rank_grid() -> tuple[Float64s, Float64s]:
    """Return a sample of the ranks, dense among the first ones, and how many ranks each one represents."""
    places = np.unique(np.rint(np.geomspace(1, RANKS, GRID))).astype(np.float64)
    borders = np.concatenate([[0.5], (places[:-1] + places[1:]) / 2.0, [RANKS + 0.5]])
    return places, np.diff(borders)


def draws_for(sizes: Float64s, chances: Float64s, counts: Float64s) -> Float64s:
    """Solve sum of 1 - exp(-chance t) = size for the draws t, by Newton's method. chances: float64[sizes, ranks]."""
    draws = sizes.copy()
    for _ in range(60):  # the function is concave, so every step stays below the solution
        missed = np.exp(-chances * draws[:, None])
        step = (sizes - (1.0 - missed) @ counts) / ((missed * chances) @ counts)
        draws += step
        if np.all(np.abs(step) <= 1e-9 * draws):
            break
    return draws


# --- set sizes ----------------------------------------------------------------------------------------------


def largest_size() -> int:
    """Return the largest set size: the printed upper end for the ten largest users."""
    return int(_size_points()[0][-1])


@functools.cache
def _size_points() -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return printed set sizes, and for each one the share of users with at most this many items.

    The papers say that the ten largest users have 850 to 2,000 items. We read: the tenth has 850, the first 2,000.
    """
    printed = published_tables()["icml-supplement-1"].rows["share"].values
    users = published_fact("users after filtering and preprocessing")
    tenth, first = published_fact("distinct unigrams of the ten users with the most")
    sizes = (*map(int, printed), int(tenth), int(first))
    return sizes, (*[value / 100.0 for value in printed.values()], 1.0 - 10.0 / users, 1.0 - 0.5 / users)


@functools.cache
def _size_limits() -> Float64s:
    """Return for each size the share of users with at most this many items; log-normal between printed sizes."""
    sizes, parts = _size_points()
    normal = NormalDist()
    places = np.interp(np.log(np.arange(1, sizes[-1] + 1)), np.log(sizes), [normal.inv_cdf(part) for part in parts])
    limits = np.array([normal.cdf(place) for place in places])
    limits[-1] = 1.0
    return limits


def size_chances() -> Float64s:
    """Return the probability of each set size, starting with size 1: float64[largest]."""
    return np.diff(_size_limits(), prepend=0.0)


def sizes_of(users: int, order: Sequence[int] | Int64s) -> Int64s:
    """Return the set sizes of users, given each user's rank by size: exact quantiles, without randomness."""
    places = (np.asarray(order, dtype=np.float64) + 0.5) / users
    return np.asarray(np.searchsorted(_size_limits(), places) + 1, dtype=np.int64)


USERS_PER_CHUNK = 16_384


class Generated(ABC):
    """Generated data: users are numbers, items are ranks."""

    __slots__ = ()

    users: int
    seed: int
    items: int

    @abstractmethod
    def chunks(self) -> Iterator[tuple[Int64s, Int64s]]:
        """Yield (user numbers, item ranks) of whole users, distinct within a user: int64[pairs] each."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Return the name of the data."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield record batches with string columns `user` and `item`."""
        words = pa.array([f"word{rank}" for rank in range(self.items + 1)])
        for owner, token in self.chunks():
            first = int(owner[0])
            names = pa.array([f"user{number}" for number in range(first, int(owner[-1]) + 1)])
            yield pa.record_batch({"user": names.take(pa.array(owner - first)), "item": words.take(pa.array(token))})

    def reader(self) -> pa.RecordBatchReader:
        """Return the batches as an Arrow stream that `dpunion.release` can read."""
        schema = pa.schema({"user": pa.string(), "item": pa.string()})
        return pa.RecordBatchReader.from_batches(schema, self.batches())

    def write_parquet(self, path: Path) -> None:
        """Write the data as Parquet with string columns and rows grouped by user."""
        reader = self.reader()
        with pq.ParquetWriter(path, reader.schema, compression="zstd") as writer:
            for batch in reader:
                writer.write_batch(batch)


@dataclass(frozen=True, slots=True)
class AskRedditLike(Generated):
    """Data like the papers' (users of r/AskReddit): their algorithms release about as much as the papers report.

    Set sizes are log-normal (log mean 2.94, log sd 1.2, clipped to 1..2000). Items are ranks 1..400,000 drawn with
    probability 1/r up to 3000 and falling as r^-1.75 beyond.

    knee: where the tail begins. exponent: how fast the head falls; a larger one gives common words more weight.
    """

    users: int = 223_388
    seed: int = 0
    items: int = 400_000
    knee: int = 3_000
    exponent: float = 1.0

    @property
    def name(self) -> str:
        """Return the name of the data."""
        name = f"AskReddit-like, {self.users:,} users, seed {self.seed}"
        usual = AskRedditLike(self.users, self.seed)
        if self != usual:
            name += f", {self.items:,} ranks, knee at {self.knee:,}, exponent {self.exponent:g}"
        return name

    def chunks(self) -> Iterator[tuple[Int64s, Int64s]]:
        """Yield (user numbers, item ranks) of whole users, distinct within a user: int64[pairs] each."""
        generator = np.random.default_rng(self.seed)
        ranks = np.arange(1, self.items + 1)
        head, tail = 1.0 / ranks**self.exponent, (ranks / self.knee) ** -1.75 / self.knee**self.exponent
        density = np.where(ranks < self.knee, head, tail)
        cumulative = cumulate_odds(density)
        for first in range(0, self.users, USERS_PER_CHUNK):
            count = min(USERS_PER_CHUNK, self.users - first)
            sizes = np.clip(np.rint(np.exp(generator.normal(2.94, 1.2, count))), 1, 2000).astype(np.int64)
            # Keep the first `size` distinct tokens of 2.2 size + 5: nearly the same as drawing until there are enough.
            draws = (2.2 * sizes + 5).astype(np.int64)
            owner = np.repeat(np.arange(count), draws)
            token = ranks_at(cumulative, generator.random(len(owner)))
            owner, token = _first_distinct(owner, token, sizes)
            yield owner + first, token


@dataclass(frozen=True, slots=True)
class AskRedditFitted(Generated):
    """Data fitted to what the papers print about theirs: shares of users by set size, items with at least k holders.

    `dpunion_lab.fitting` says how it was fitted, and to which numbers.
    """

    users: int = 223_388
    seed: int = 0
    shape: Shape = FITTED

    @property
    def items(self) -> int:  # type: ignore[override]
        """Return the number of ranks."""
        return RANKS

    @property
    def name(self) -> str:
        """Return the name of the data."""
        tail = next((name for name, shape in SHAPES.items() if shape == self.shape), "nothing known")
        return f"AskReddit fitted, tail as in {tail}, {self.users:,} users, seed {self.seed}"

    def chunks(self) -> Iterator[tuple[Int64s, Int64s]]:
        """Yield (user numbers, item ranks) of whole users, distinct within a user: int64[pairs] each."""
        generator = np.random.default_rng(self.seed)
        sizes = sizes_of(self.users, generator.permutation(self.users))
        bands = band_of(sizes)
        odds = self.shape.band_odds(np.arange(1.0, RANKS + 1.0))
        cumulative = [cumulate_odds(row) for row in odds]
        del odds
        there = np.unique(sizes)
        # More draws than expected to be needed, so that a set hardly ever stays too small.
        needed = self.shape.draws(there.astype(np.float64))
        draws = np.zeros(there[-1] + 1, dtype=np.int64)
        draws[there] = (1.15 * needed + 5.0 * np.sqrt(needed) + 5.0).astype(np.int64)
        for first in range(0, self.users, USERS_PER_CHUNK):
            mine = sizes[first : first + USERS_PER_CHUNK]
            owner = np.repeat(np.arange(len(mine)), draws[mine])
            token = np.empty(len(owner), dtype=np.int64)
            chance, band = generator.random(len(owner)), bands[first + owner]
            for at in range(BANDS):
                place = np.flatnonzero(band == at)
                token[place] = ranks_at(cumulative[at], chance[place])
            owner, token = _first_distinct(owner, token, mine)
            yield owner + first, token


def cumulate_odds(odds: Float64s) -> Float64s:
    """Return the cumulative probabilities of the ranks: float64[ranks], ending at 1."""
    cumulative = np.cumsum(odds)
    return np.asarray(cumulative / cumulative[-1])


def ranks_at(cumulative: Float64s, chances: Float64s) -> Int64s:
    """Return the ranks for uniform draws from [0, 1), by inverting the cumulative probabilities."""
    return np.asarray(np.searchsorted(cumulative, chances, side="right") + 1, dtype=np.int64)


def _first_distinct(owner: Int64s, token: Int64s, sizes: Int64s) -> tuple[Int64s, Int64s]:
    """Keep the first sizes[user] distinct tokens of each user, in the order of the draws."""
    _, place = np.unique(owner * (np.int64(token.max()) + 1) + token, return_index=True)
    place.sort()
    owner, token = owner[place], token[place]
    nth = np.arange(len(owner)) - np.searchsorted(owner, np.arange(len(sizes)))[owner]
    kept = nth < sizes[owner]
    return owner[kept], token[kept]
