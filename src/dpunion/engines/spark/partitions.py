"""A partition of whole users in Spark's Python workers: read, then weighed as it is or cut into pieces for shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from dpunion.algorithms import Bounding
from dpunion.contributions import Contributions, ItemTable
from dpunion.counting.holdings import bound_to_counted
from dpunion.engines.spark.tasks import Batches, Secret, sensitivity_number, slices
from dpunion.engines.spark.wire import Piece, cut, digests_to_arrow, joined, names_of, pruned
from dpunion.mechanisms import Mechanism, State
from dpunion.randomness import RunKey
from dpunion.releases.formats import split_key
from dpunion.sets.narrowing import Sets

ROWS_PER_READ = 1 << 20
ROWS_PER_PART = 1 << 23
PARTS_AT_ONCE = 8

Tighten = Callable[[Contributions, RunKey], Contributions]
"""Bounds sets that were read for counting as selecting wants them."""


class Reader(Protocol):
    """Reads Arrow batches of (user, values) rows into bounded contributions, in a worker."""

    def __call__(self, source: pa.RecordBatchReader, key: RunKey) -> Contributions:
        """Read all rows."""


@dataclass(frozen=True)
class Renamed:
    """Reads rows whose columns were numbered for the journey: `mapInArrow` does not take every name."""

    read: Reader
    names: tuple[str, ...]

    def __call__(self, source: pa.RecordBatchReader, key: RunKey) -> Contributions:
        """Read all rows.

        Guarantees: those of the reader; columns keep their order, and their values as they are.
        """
        return self.read(renamed(source, source.schema, self.names), key)


def renamed(batches: Iterable[pa.RecordBatch], schema: pa.Schema, names: tuple[str, ...]) -> pa.RecordBatchReader:
    """Return the batches with these names of columns in place of their own."""
    named = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
    return pa.RecordBatchReader.from_batches(
        named, (pa.RecordBatch.from_arrays(batch.columns, schema=named) for batch in batches)
    )


def read_partition(batches: Batches, read: Reader, key: RunKey, bounding: Bounding) -> Contributions | None:
    """Read a partition, whole users each, in parts of about eight million rows; None when it has no rows.

    Guarantees:
    - a user's rows may be many: of what was read before, at most the limit of them are in memory;
    - the result is that of reading all rows at once.
    """
    parts: list[Contributions] = []
    while (source := _some_rows(batches)) is not None:
        parts.append(pruned(read(source, key)))
        if len(parts) == PARTS_AT_ONCE:
            parts = [joined(parts, key, bounding.limit)]
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else joined(parts, key, bounding.limit)


def _some_rows(batches: Batches) -> pa.RecordBatchReader | None:
    """Take about ROWS_PER_PART rows, in batches large enough for the kernels; None when there are no more."""
    first = next(batches, None)
    if first is None:
        return None

    def larger() -> Iterator[pa.RecordBatch]:
        waiting, rows, taken = [first], first.num_rows, first.num_rows
        for batch in batches:
            waiting.append(batch)
            rows += batch.num_rows
            taken += batch.num_rows
            if rows >= ROWS_PER_READ:
                yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()
                waiting, rows = [], 0
            if taken >= ROWS_PER_PART:
                break
        if waiting:
            yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()

    return pa.RecordBatchReader.from_batches(first.schema, larger())


@dataclass(frozen=True)
class WeighRows:
    """Rows of whole users -> (item, units, sensitivity): what the users of this partition give each item together.

    For mechanisms of one round whose users give by their own sets alone.
    """

    read: Reader
    mechanism: Mechanism
    secret: Secret

    def __call__(self, batches: Batches) -> Batches:
        """Run the task.

        Guarantees: those of the mechanism's `weigh`; a user's rows are in one partition.
        """
        key = self.secret.key
        contributions = read_partition(batches, self.read, key, self.mechanism.bounding)
        if contributions is None:
            return
        table = contributions.table
        weights = self.mechanism.weigh(Sets(contributions), State.start(len(table)), 0, key)
        number = sensitivity_number(weights.sensitivity)
        for some in slices(len(table)):
            units = pa.array(weights.units[some])
            sensitivity = pa.array(np.full(len(units), number))
            yield pa.record_batch({"item": names_of(table, some), "units": units, "sensitivity": sensitivity})


@dataclass(frozen=True)
class CutIntoPieces:
    """Rows of whole users -> pieces by shard (shard, payload), and the items' names (payload: digest, name).

    tighten: with counts, what makes the sets of these pieces; the whole ones come out too, as pieces of no shard
    (payload).
    """

    read: Reader
    bounding: Bounding
    secret: Secret
    shards: int
    tighten: Tighten | None = None

    def __call__(self, batches: Batches) -> Batches:
        """Run the task.

        Guarantees: every user of the partition is in one piece, bounded, in the shard that the key says; and with
        counts in one of those of no shard, with at most MOST_COUNTED items.
        """
        key = self.secret.key
        whole = read_partition(batches, self.read, key, self.bounding)
        if whole is None:
            return
        if self.tighten is None:
            yield from pieces_and_names(whole, self.shards, key)
            return
        yield from pieces_and_names(pruned(self.tighten(whole, key)), self.shards, key)
        yield from whole_pieces(whole, key)


@dataclass(frozen=True)
class KeepWhole:
    """Rows of whole users -> their sets as pieces of no shard (payload), and the items' names, as CutIntoPieces has."""

    read: Reader
    bounding: Bounding
    secret: Secret

    def __call__(self, batches: Batches) -> Batches:
        """Run the task.

        Guarantees: every user of the partition is in one piece, with at most MOST_COUNTED items.
        """
        key = self.secret.key
        whole = read_partition(batches, self.read, key, self.bounding)
        if whole is not None:
            yield from whole_pieces(whole, key)
            yield from names_apart(pruned(whole).table)


@dataclass(frozen=True)
class CutWhole:
    """Pieces of no shard (payload) -> pieces by shard (shard, payload); limit: to how many items sets were bounded."""

    tighten: Tighten
    limit: int
    secret: Secret
    shards: int

    def __call__(self, batches: Batches) -> Batches:
        """Run the task.

        Guarantees: those of CutIntoPieces.
        """
        key = self.secret.key
        for batch in batches:
            for payload in batch.column("payload"):
                whole = Piece.from_bytes(payload.as_py()).sets(self.limit)
                yield from pieces_of_shards(pruned(self.tighten(whole, key)), self.shards, key)


def pieces_and_names(contributions: Contributions, shards: int, key: RunKey) -> Batches:
    """Yield the pieces of all shards and the names of all items, as rows (shard, payload, name).

    Guarantees: those of `cut`; pieces hold digests and numbers, and names stand apart from whoever holds them.
    """
    yield from pieces_of_shards(contributions, shards, key)
    yield from names_apart(contributions.table)


def pieces_of_shards(contributions: Contributions, shards: int, key: RunKey) -> Batches:
    """Yield the pieces of all shards. Guarantees: those of `cut`."""
    for shard, piece in cut(contributions, shards, key):
        yield _rows(shard=pa.array([shard], pa.int32()), payload=pa.array([piece.to_bytes()], pa.binary()))


def whole_pieces(whole: Contributions, key: RunKey) -> Batches:
    """Yield the pieces of no shard. Guarantees: those of `cut` and bound_to_counted."""
    for _, piece in cut(bound_to_counted(whole, key), 1, key):
        yield _rows(payload=pa.array([piece.to_bytes()], pa.binary()))


def names_apart(table: ItemTable) -> Batches:
    """Yield the names of all items beside their digests. Guarantees: nothing says who holds them."""
    for some in slices(len(table)):
        yield _rows(payload=digests_to_arrow(table.digests[some]), name=names_of(table, some))


def _rows(**columns: pa.Array) -> pa.RecordBatch:
    """Return a batch of (shard, payload, name) with nulls in the columns that are not given."""
    count = len(next(iter(columns.values())))
    kinds = {"shard": pa.int32(), "payload": pa.binary(), "name": pa.binary()}
    return pa.record_batch({name: columns.get(name, pa.nulls(count, kind)) for name, kind in kinds.items()})


@dataclass(frozen=True)
class SplitKeys:
    """(item,) of keys of several columns -> these columns."""

    columns: tuple[str, ...]

    def __call__(self, batches: Batches) -> Batches:
        """Run the task.

        Guarantees: what comes out are the parts of released items and nothing else.
        """
        for batch in batches:
            rows = [split_key(name.decode()) for name in batch.column("item").to_pylist()]
            parts = [pa.array([key[place] for key in rows], pa.string()) for place in range(len(self.columns))]
            yield pa.RecordBatch.from_arrays(parts, list(self.columns))
