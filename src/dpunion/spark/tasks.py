"""What runs in Spark's Python workers: from Arrow batches to Arrow batches, by the kernels of one machine.

A task is a function of its rows and the run key: run again after a failure, on another machine or twice at once, it
gives the same rows. Tasks are handed to `mapInArrow` through `guarded`, so that no value of the data gets into an
error.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from dpunion import errors
from dpunion.contributions import Contributions, Int64s
from dpunion.engines import local
from dpunion.engines.shares import in_weight
from dpunion.kernels.shares import add_shares
from dpunion.plans import Plan
from dpunion.randomness import ClosureKey, Purpose, RunKey
from dpunion.sources import composite
from dpunion.spark.frames import MARK
from dpunion.spark.wire import (
    buffers_of,
    cut,
    digests_to_arrow,
    joined,
    names_of,
    pruned,
)

Batches = Iterator[pa.RecordBatch]
Task = Callable[[Batches], Batches]

ROWS_PER_READ = 1 << 20
ROWS_PER_PART = 1 << 23
PARTS_AT_ONCE = 8
ROWS_PER_BATCH = 1 << 17


class Reader(Protocol):
    """Reads Arrow batches of (user, values) rows into bounded contributions, in a worker."""

    def __call__(self, source: pa.RecordBatchReader, key: RunKey) -> Contributions:
        """Read all rows."""


def guarded(task: Task) -> Task:
    """Return the task with its errors made fit for logs.

    Guarantees: what leaves a worker as an error is an error of dpunion, which holds no value of the data, or the bare
    type of another one.
    """

    def run(batches: Batches) -> Batches:
        problem = ""
        try:
            yield from task(batches)
        except errors.DpunionError as error:
            told = json.dumps([type(error).__name__, error.what, error.remedy])
            problem = MARK + base64.b64encode(told.encode()).decode()
        except Exception as error:  # noqa: BLE001 - its message could quote values
            problem = f"a task of dpunion failed with {type(error).__name__}"
        if problem:
            raise RuntimeError(problem)

    return run


@dataclass(frozen=True)
class Secret:
    """The run key as it travels in a task's closure."""

    exported: ClosureKey

    @classmethod
    def of(cls, key: RunKey) -> Secret:
        """Wrap a key for a closure of the same run."""
        return cls(key.export_for_closure())

    @property
    def key(self) -> RunKey:
        """Return the key."""
        return RunKey.from_closure(self.exported)

    def __repr__(self) -> str:
        return "Secret()"


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


def read_partition(batches: Batches, read: Reader, key: RunKey, max_items: int) -> Contributions | None:
    """Read a partition, whole users each, in parts of about eight million rows; None when it has no rows.

    Guarantees:
    - a user's rows may be many: of what was read before, at most `max_items` of them are in memory;
    - the result is that of reading all rows at once.
    """
    parts: list[Contributions] = []
    while (source := _some_rows(batches)) is not None:
        parts.append(pruned(read(source, key)))
        if len(parts) == PARTS_AT_ONCE:
            parts = [joined(parts, key, max_items)]
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else joined(parts, key, max_items)


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
class AddShares:
    """Rows of whole users -> (item, units): what the users of this partition give each item together."""

    read: Reader
    secret: Secret
    max_items: int
    share_of_size: Int64s

    def __call__(self, batches: Batches) -> Batches:
        """Run the task.

        Guarantees: a user's rows count in one partition, and add whole units to the items that user keeps only.
        """
        contributions = read_partition(batches, self.read, self.secret.key, self.max_items)
        if contributions is None:
            return
        units = np.zeros(len(contributions.table), np.int64)
        add_shares(contributions.offsets, contributions.items, self.share_of_size, units)
        for some in slices(len(units)):
            yield pa.record_batch({"item": names_of(contributions.table, some), "units": pa.array(units[some])})


@dataclass(frozen=True)
class DecideShares:
    """(item, units) of all partitions together -> (item,): the items to release."""

    plan: Plan
    secret: Secret

    def __call__(self, batches: Batches) -> Batches:
        """Run the task.

        Guarantees: those of `decide`, on the sums of all partitions.
        """
        key = self.secret.key
        for batch in batches:
            names = batch.column("item").cast(pa.binary())
            units = summed_units(batch)
            digests = key.digests(Purpose.ITEM, *buffers_of(names))
            weights = local.Weights(in_weight(units), units > 0, self.plan.sensitivity)
            passed = local.decide(self.plan, weights, digests, key)
            yield pa.record_batch({"item": names.filter(pa.array(passed))})


@dataclass(frozen=True)
class SplitKeys:
    """(item,) of keys of several columns -> these columns."""

    columns: tuple[str, ...]

    def __call__(self, batches: Batches) -> Batches:
        """Run the task.

        Guarantees: nothing but what was released is looked at.
        """
        for batch in batches:
            keys = [composite.split(name.decode()) for name in batch.column("item").to_pylist()]
            parts = [pa.array([key[place] for key in keys], pa.string()) for place in range(len(self.columns))]
            yield pa.RecordBatch.from_arrays(parts, list(self.columns))


@dataclass(frozen=True)
class CutIntoPieces:
    """Rows of whole users -> pieces by shard (shard, payload), and the items' names (payload: digest, name)."""

    read: Reader
    secret: Secret
    max_items: int
    shards: int

    def __call__(self, batches: Batches) -> Batches:
        """Run the task.

        Guarantees: those of `pieces_and_names`.
        """
        key = self.secret.key
        contributions = read_partition(batches, self.read, key, self.max_items)
        if contributions is not None:
            yield from pieces_and_names(contributions, self.shards, key)


def pieces_and_names(contributions: Contributions, shards: int, key: RunKey) -> Batches:
    """Yield the pieces of all shards and the names of all items, as rows (shard, payload, name).

    Guarantees: those of `cut`; names stand apart from the pieces, and nothing says who holds them.
    """
    for shard, piece in cut(contributions, shards, key):
        yield _rows(shard=pa.array([shard], pa.int32()), payload=pa.array([piece.to_bytes()], pa.binary()))
    table = contributions.table
    for some in slices(len(table)):
        yield _rows(payload=digests_to_arrow(table.digests[some]), name=names_of(table, some))


def summed_units(batch: pa.RecordBatch) -> Int64s:
    """Return the sums of all partitions or shards: int64[rows].

    Guarantees: sums are exact; one beyond 63 bits, which takes 2^31 people with the same item, ends the run.
    """
    column = batch.column("units")
    if column.null_count:
        raise errors.BadSource(
            "More than 2^31 people hold the same item, more than one run supports.",
            "Split the people into disjoint groups and release each group on its own.",
        )
    return np.asarray(column, np.int64)


def _rows(**columns: pa.Array) -> pa.RecordBatch:
    """Return a batch of (shard, payload, name) with nulls in the columns that are not given."""
    count = len(next(iter(columns.values())))
    kinds = {"shard": pa.int32(), "payload": pa.binary(), "name": pa.binary()}
    return pa.record_batch({name: columns.get(name, pa.nulls(count, kind)) for name, kind in kinds.items()})


def slices(rows: int) -> Iterator[slice]:
    """Yield slices of so many rows that a batch of them stays below Arrow's two gigabytes, however long items are."""
    for first in range(0, rows, ROWS_PER_BATCH):
        yield slice(first, min(first + ROWS_PER_BATCH, rows))
