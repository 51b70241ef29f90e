"""Generated data that looks like people's: sets of words with a long tail.

Everything here is seeded and public; numpy's generator is fine for that and is used nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpunion.contributions import Int64s

USERS_PER_CHUNK = 16_384


@dataclass(frozen=True, slots=True)
class AskRedditLike:
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

    def chunks(self) -> Iterator[tuple[Int64s, Int64s]]:
        """Yield (user numbers, item ranks) of whole users, distinct within a user: int64[pairs] each."""
        generator = np.random.default_rng(self.seed)
        ranks = np.arange(1, self.items + 1)
        head, tail = 1.0 / ranks**self.exponent, (ranks / self.knee) ** -1.75 / self.knee**self.exponent
        density = np.where(ranks < self.knee, head, tail)
        cumulative = np.cumsum(density)
        cumulative /= cumulative[-1]
        for first in range(0, self.users, USERS_PER_CHUNK):
            count = min(USERS_PER_CHUNK, self.users - first)
            sizes = np.clip(np.rint(np.exp(generator.normal(2.94, 1.2, count))), 1, 2000).astype(np.int64)
            # Drawing 2.2 size + 5 tokens and keeping the first `size` distinct ones is close enough to drawing on.
            draws = (2.2 * sizes + 5).astype(np.int64)
            owner = np.repeat(np.arange(count), draws)
            token = np.searchsorted(cumulative, generator.random(len(owner)), side="right") + 1
            _, place = np.unique(owner * (self.items + 1) + token, return_index=True)
            place.sort()
            owner, token = owner[place], token[place]
            starts = np.searchsorted(owner, np.arange(count))
            nth = np.arange(len(owner)) - starts[owner]
            kept = nth < sizes[owner]
            yield owner[kept] + first, token[kept]

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
