"""Generated data that looks like people's: sets of words with a long tail.

Everything here is seeded and public; numpy's generator is fine for that and is used nowhere else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpunion.contributions import Float64s, Int64s
from dpunion_lab.shapes import BANDS, FITTED, RANKS, SHAPES, Shape, band_of, sizes_of

USERS_PER_CHUNK = 16_384


class Generated(ABC):
    """Data that is generated: users are numbers, items are ranks."""

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
        """Return what the data is called."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield record batches with string columns `user` and `item`."""
        words = pa.array([f"word{rank}" for rank in range(self.items + 1)])
        for owner, token in self.chunks():
            first = int(owner[0])
            names = pa.array([f"user{number}" for number in range(first, int(owner[-1]) + 1)])
            yield pa.record_batch({"user": names.take(pa.array(owner - first)), "item": words.take(pa.array(token))})

    def reader(self) -> pa.RecordBatchReader:
        """Return the batches as an Arrow stream, as `dpunion.release` reads."""
        schema = pa.schema({"user": pa.string(), "item": pa.string()})
        return pa.RecordBatchReader.from_batches(schema, self.batches())

    def write_parquet(self, path: Path) -> None:
        """Write the set as Parquet with string columns, rows grouped by user."""
        reader = self.reader()
        with pq.ParquetWriter(path, reader.schema, compression="zstd") as writer:
            for batch in reader:
                writer.write_batch(batch)


@dataclass(frozen=True, slots=True)
class AskRedditLike(Generated):
    """A set like the one of the papers (users of r/AskReddit), on which their algorithms release what they report.

    Set sizes are log-normal (log mean 2.94, log sd 1.2, clipped to 1..2000). Items are ranks 1..400,000 drawn with
    probability 1/r up to 3000 and falling as r^-1.75 beyond.

    knee: where the tail begins. exponent: how fast the head falls; a larger one makes common words more common.
    """

    users: int = 223_388
    seed: int = 0
    items: int = 400_000
    knee: int = 3_000
    exponent: float = 1.0

    @property
    def name(self) -> str:
        """Return what the data is called."""
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
            # Drawing 2.2 size + 5 tokens and keeping the first `size` distinct ones is close enough to drawing on.
            draws = (2.2 * sizes + 5).astype(np.int64)
            owner = np.repeat(np.arange(count), draws)
            token = ranks_at(cumulative, generator.random(len(owner)))
            owner, token = _first_distinct(owner, token, sizes)
            yield owner + first, token


@dataclass(frozen=True, slots=True)
class AskRedditFitted(Generated):
    """A set fitted to what the papers print about theirs: shares of users by set size, items with at least k holders.

    How it was fitted, and to which numbers, says `dpunion_lab.fitting`; the shape itself `dpunion_lab.shapes`.
    """

    users: int = 223_388
    seed: int = 0
    shape: Shape = FITTED

    @property
    def items(self) -> int:  # type: ignore[override]
        """Return the number of ranks there are."""
        return RANKS

    @property
    def name(self) -> str:
        """Return what the data is called."""
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
        # Some more than are expected to be needed: that somebody's set stays smaller is very rare.
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
    """Return the chance of each rank or a lower one: float64[ranks], ending at 1."""
    cumulative = np.cumsum(odds)
    return np.asarray(cumulative / cumulative[-1])


def ranks_at(cumulative: Float64s, chances: Float64s) -> Int64s:
    """Return the ranks on which chances fall."""
    return np.asarray(np.searchsorted(cumulative, chances, side="right") + 1, dtype=np.int64)


def _first_distinct(owner: Int64s, token: Int64s, sizes: Int64s) -> tuple[Int64s, Int64s]:
    """Keep the first sizes[user] different tokens of each user, in the order in which they were drawn."""
    _, place = np.unique(owner * (np.int64(token.max()) + 1) + token, return_index=True)
    place.sort()
    owner, token = owner[place], token[place]
    nth = np.arange(len(owner)) - np.searchsorted(owner, np.arange(len(sizes)))[owner]
    kept = nth < sizes[owner]
    return owner[kept], token[kept]
