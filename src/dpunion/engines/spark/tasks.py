"""What runs in Spark's Python workers: read a partition, cut it into pieces for shards, weigh, decide.

A task is a function of its rows and the run key: it gives the same rows when it runs again after a failure, on another
machine, or twice at once. `mapInArrow` gets every task through `guard_task`, so that no error has a value of the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpunion.algorithms import MAX_ITEMS, Bounding, Funnel, Norm, Sensitivity
from dpunion.calibration.rounding import LARGEST_SCORE_SPREAD, score_spread
from dpunion.contributions import Bools, Contributions, Float64s, Int64s, ItemTable, Uint64s
from dpunion.counting.holdings import bound_to_counted
from dpunion.engines.spark.sessions import Batches
from dpunion.engines.spark.wire import (
    MAX_ITEMS_PER_SHARD,
    Piece,
    arrow_names,
    binary_buffers,
    cut_by_shard,
    digests_from_arrow,
    digests_to_arrow,
    drop_unused_items,
    join_parts,
    match_digests,
    unite_pieces,
)
from dpunion.errors import BadParameter, BadSource, SensitivityMismatch
from dpunion.mechanisms import SHARE_UNIT, Mechanism, State, Weights
from dpunion.randomness import ClosureKey, Purpose, RunKey
from dpunion.releases.formats import split_key
from dpunion.sets.narrowing import Sets

ROWS_PER_BATCH = 1 << 17
ROWS_PER_READ = 1 << 20
ROWS_PER_PART = 1 << 23
PARTS_AT_ONCE = 8
SHARDS_PER_MASK = 62
# A shard fills more than its equal part of an item's need, as the item's users are spread unevenly over the shards.
# This factor was chosen on public data.
UNEVEN = 0.55

Reader = Callable[[pa.RecordBatchReader, RunKey], Contributions]
"""Reads Arrow batches of (user, values) rows into bounded contributions, in a worker."""

Tighten = Callable[[Contributions, RunKey], Contributions]
"""Bounds sets that were read for counting as selecting needs them."""

Naming = Callable[[pa.RecordBatch, RunKey], tuple[pa.Array, Uint64s]]
"""Finds the items of rows of sums: the column that names them, and their digests, uint64[rows, 2]."""


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


# --- read a partition -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadRenamed:
    """Reads rows whose columns have numbers instead of names: `mapInArrow` does not accept every name.

    Guarantees: those of the reader; the order and the values of the columns do not change.
    """

    read: Reader
    names: tuple[str, ...]

    def __call__(self, source: pa.RecordBatchReader, key: RunKey) -> Contributions:
        return self.read(rename_columns(source, source.schema, self.names), key)


def rename_columns(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, names: tuple[str, ...]
) -> pa.RecordBatchReader:
    """Return the batches with new column names."""
    named = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
    return pa.RecordBatchReader.from_batches(
        named, (pa.RecordBatch.from_arrays(batch.columns, schema=named) for batch in batches)
    )


def read_partition(batches: Batches, read: Reader, key: RunKey, bounding: Bounding) -> Contributions | None:
    """Read a partition of whole users in parts of about eight million rows; return None if it has no rows.

    Guarantees:
    - a user may have many rows: of the earlier parts, memory has at most the limit of each user's items;
    - the result is that of reading all rows at once.
    """
    parts: list[Contributions] = []
    while (source := _take_rows(batches)) is not None:
        parts.append(drop_unused_items(read(source, key)))
        if len(parts) == PARTS_AT_ONCE:
            parts = [join_parts(parts, key, bounding.limit)]
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else join_parts(parts, key, bounding.limit)


def _take_rows(batches: Batches) -> pa.RecordBatchReader | None:
    """Take about ROWS_PER_PART rows, in batches large enough for the kernels; None when there are no more."""
    first = next(batches, None)
    if first is None:
        return None

    def merge_batches() -> Iterator[pa.RecordBatch]:
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

    return pa.RecordBatchReader.from_batches(first.schema, merge_batches())


# --- tasks on whole users ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WeighRows:
    """Rows of whole users -> (item, units, sensitivity): what the users of this partition give each item together.

    For mechanisms of one round in which a user's weights depend on that user's set alone.

    Guarantees: those of the mechanism's `weigh`; a user's rows are in one partition.
    """

    read: Reader
    mechanism: Mechanism
    secret: Secret

    def __call__(self, batches: Batches) -> Batches:
        key = self.secret.key
        contributions = read_partition(batches, self.read, key, self.mechanism.bounding)
        if contributions is None:
            return
        table = contributions.table
        weights = self.mechanism.weigh(Sets(contributions), State.start(len(table)), 0, key)
        number = sensitivity_number(weights.sensitivity)
        for some in slice_rows(len(table)):
            units = pa.array(weights.units[some])
            sensitivity = pa.array(np.full(len(units), number))
            yield pa.record_batch({"item": arrow_names(table, some), "units": units, "sensitivity": sensitivity})


@dataclass(frozen=True)
class CutIntoPieces:
    """Rows of whole users -> pieces by shard (shard, payload), and item names (payload: digest, name).

    tighten: with counts, it bounds the sets of these pieces; the whole sets follow as pieces without a shard (payload).

    Guarantees: every user of the partition is in one piece, bounded, in the shard that the key decides; with counts
    also in one piece without a shard, with at most MOST_COUNTED items.
    """

    read: Reader
    bounding: Bounding
    secret: Secret
    shards: int
    tighten: Tighten | None = None

    def __call__(self, batches: Batches) -> Batches:
        key = self.secret.key
        whole = read_partition(batches, self.read, key, self.bounding)
        if whole is None:
            return
        selected = whole if self.tighten is None else drop_unused_items(self.tighten(whole, key))
        yield from pack_pieces(selected, self.shards, key)
        yield from pack_names(selected.table)
        if self.tighten is not None:
            yield from pack_whole_sets(whole, key)


@dataclass(frozen=True)
class KeepWhole:
    """Rows of whole users -> their sets as pieces without a shard (payload), and item names, as CutIntoPieces has.

    Guarantees: every user of the partition is in one piece, with at most MOST_COUNTED items.
    """

    read: Reader
    bounding: Bounding
    secret: Secret

    def __call__(self, batches: Batches) -> Batches:
        key = self.secret.key
        whole = read_partition(batches, self.read, key, self.bounding)
        if whole is not None:
            yield from pack_whole_sets(whole, key)
            yield from pack_names(drop_unused_items(whole).table)


@dataclass(frozen=True)
class CutWhole:
    """Whole pieces (payload), of at most `limit` items, -> (shard, payload). Guarantees: those of CutIntoPieces."""

    tighten: Tighten
    limit: int
    secret: Secret
    shards: int

    def __call__(self, batches: Batches) -> Batches:
        key = self.secret.key
        for batch in batches:
            for payload in batch.column("payload"):
                whole = Piece.from_bytes(payload.as_py()).sets(self.limit)
                yield from pack_pieces(drop_unused_items(self.tighten(whole, key)), self.shards, key)


def pack_pieces(contributions: Contributions, shards: int, key: RunKey) -> Batches:
    """Yield the pieces of all shards, without names, as rows (shard, payload). Guarantees: those of `cut_by_shard`."""
    for shard, piece in cut_by_shard(contributions, shards, key):
        yield _rows(shard=pa.array([shard], pa.int32()), payload=pa.array([piece.to_bytes()], pa.binary()))


def pack_whole_sets(whole: Contributions, key: RunKey) -> Batches:
    """Yield sets to count as pieces without a shard. Guarantees: those of `cut_by_shard` and `bound_to_counted`."""
    for _, piece in cut_by_shard(bound_to_counted(whole, key), 1, key):
        yield _rows(payload=pa.array([piece.to_bytes()], pa.binary()))


def pack_names(table: ItemTable) -> Batches:
    """Yield the names of all items with their digests, as rows (shard, payload, name).

    Guarantees: nothing says which users have the items.
    """
    for some in slice_rows(len(table)):
        yield _rows(payload=digests_to_arrow(table.digests[some]), name=arrow_names(table, some))


def _rows(**columns: pa.Array) -> pa.RecordBatch:
    """Return a batch of (shard, payload, name) with nulls in the columns that are not given."""
    count = len(next(iter(columns.values())))
    kinds = {"shard": pa.int32(), "payload": pa.binary(), "name": pa.binary()}
    return pa.record_batch({name: columns.get(name, pa.nulls(count, kind)) for name, kind in kinds.items()})


@dataclass(frozen=True)
class SplitKeys:
    """(item,) of keys of several columns -> these columns.

    Guarantees: the rows are the parts of released items and nothing else.
    """

    columns: tuple[str, ...]

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            rows = [split_key(name.decode()) for name in batch.column("item").to_pylist()]
            parts = [pa.array([key[place] for key in rows], pa.string()) for place in range(len(self.columns))]
            yield pa.RecordBatch.from_arrays(parts, list(self.columns))


# --- tasks of a round -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Weigh:
    """A shard's users and the replies to it -> (digest, shard, units, score, sensitivity) of the items they give to.

    Guarantees: those of the mechanism's `weigh`; a user is in one shard, so moves the sums by no more.
    """

    mechanism: Mechanism
    secret: Secret
    number: int
    shards: int

    def __call__(self, batches: Batches) -> Batches:
        share = shard_share(self.shards, self.mechanism.cutoff)
        unit = round_unit(self.mechanism, self.number, self.shards)
        for shard, message in sort_messages(batches, self.mechanism.bounding):
            sets, state = Sets(message.contributions), State.start(len(message.scores))
            if self.number:
                state.scores = message.scores
                state.alive = ~message.replied if self.mechanism.tells_released else message.replied
                sets.narrow(state.alive)
            weights = self.mechanism.weigh(sets, state, self.number, self.secret.key, share=share)
            units, held = to_units(weights, unit)[weights.held], weights.held
            digests, scores = sets.digests[held], state.scores[held]
            number = sensitivity_number(weights.sensitivity)
            for some in slice_rows(len(digests)):
                count = len(units[some])
                columns = {
                    "digest": digests_to_arrow(digests[some]),
                    "shard": pa.array(np.full(count, shard, np.int32)),
                    "units": pa.array(units[some]),
                    "score": pa.array(scores[some]),
                    "sensitivity": pa.array(np.full(count, number)),
                }
                yield pa.record_batch(columns)


def by_digest(batch: pa.RecordBatch, _key: RunKey) -> tuple[pa.Array, Uint64s]:
    """Find the items of sums over shards, which know items by their digests.

    Guarantees: no item's text is looked up.
    """
    return batch.column("digest"), digests_from_arrow(batch.column("digest"))


def by_name(batch: pa.RecordBatch, key: RunKey) -> tuple[pa.Array, Uint64s]:
    """Find the items of sums over partitions, which know items by their names.

    Guarantees: a digest is a function of the run key and of the name alone.
    """
    names = batch.column("item").cast(pa.binary())
    return names, key.digests(Purpose.ITEM, *binary_buffers(names))


@dataclass(frozen=True)
class Decide:
    """Sums over all shards or partitions -> replies to the shards, or the released items (payload: digest or name).

    A reply is (shard, payload: digest, score) for every item that stays. marked: a sum of 0 is a mark on an item that
    nobody keeps, and that item is released.

    Guarantees: those of the mechanism's `decide`, which refuses sums of another sensitivity than the noise is for.
    """

    mechanism: Mechanism
    secret: Secret
    number: int
    shards: int
    naming: Naming = by_digest
    replies: bool = False
    marked: bool = False

    def __call__(self, batches: Batches) -> Batches:
        key, unit = self.secret.key, round_unit(self.mechanism, self.number, self.shards)
        for batch in batches:
            if not batch.num_rows:
                continue
            names, digests = self.naming(batch, key)
            units, state = read_units(batch), State.start(batch.num_rows)
            if "score" in batch.schema.names:
                state.scores = np.array(batch.column("score"), np.float64)
            held = units > 0 if self.marked else np.ones(len(units), np.bool_)
            if held.any():
                weights = Weights(units, unit, held, read_sensitivity(batch))
                state = self.mechanism.decide(weights, state, self.number, digests, key)
            if self.replies:
                yield from self._replies(batch, digests, state)
            else:
                chosen = state.released | ~held if self.marked else state.released
                yield pa.record_batch({"payload": names.filter(pa.array(chosen))})

    def _replies(self, batch: pa.RecordBatch, digests: Uint64s, state: State) -> Batches:
        """Yield a reply for every item that stays, to every shard that has it."""
        for block, first in enumerate(range(0, self.shards, SHARDS_PER_MASK)):
            masks = np.asarray(batch.column(f"shards{block}"), np.int64)
            for shard in range(first, min(first + SHARDS_PER_MASK, self.shards)):
                there = state.alive & ((masks >> (shard - first)) & 1 == 1)
                shards = pa.array(np.full(int(there.sum()), shard, np.int32))
                payload, scores = digests_to_arrow(digests[there]), pa.array(state.scores[there])
                yield pa.record_batch({"shard": shards, "payload": payload, "score": scores})


@dataclass(frozen=True)
class Message:
    """The input of a shard in a round: its users' sets; for each item, whether a reply names it, and its score."""

    contributions: Contributions
    replied: Bools
    scores: Float64s

    def __repr__(self) -> str:
        return "Message(<sensitive>)"


def sort_messages(batches: Batches, bounding: Bounding) -> Iterator[tuple[int, Message]]:
    """Sort a partition's rows (shard, payload, score) by shard; a row with a score is a reply."""
    pieces: dict[int, list[Piece]] = {}
    replies: dict[int, list[tuple[Uint64s, Float64s]]] = {}
    for batch in batches:
        shards = np.asarray(batch.column("shard"))
        is_reply = np.asarray(batch.column("score").is_valid())
        payload = batch.column("payload")
        for place in np.flatnonzero(~is_reply).tolist():
            pieces.setdefault(int(shards[place]), []).append(Piece.from_bytes(payload[place].as_py()))
        for shard in np.unique(shards[is_reply]).tolist():
            mine = pa.array(is_reply & (shards == shard))
            scores = np.asarray(batch.column("score").filter(mine), np.float64)
            replies.setdefault(shard, []).append((digests_from_arrow(payload.filter(mine)), scores))
    for shard in sorted(pieces):
        contributions = unite_pieces(pieces.pop(shard), bounding.order, bounding.limit)
        mine = replies.pop(shard, [])
        replied, scores = np.zeros(len(contributions.table), np.bool_), np.zeros(len(contributions.table))
        if mine:
            places, found = match_digests(contributions.table.digests, np.concatenate([one for one, _ in mine]))
            replied[places] = True
            scores[places] = np.concatenate([score for _, score in mine])[found]
        yield shard, Message(contributions, replied, scores)


# --- units, sensitivities and the part that one shard fills -----------------------------------------------------


def round_unit(mechanism: Mechanism, number: int, shards: int) -> float:
    """Return the unit in which shards report in a round; mechanisms without a cutoff add shares, in SHARE_UNIT."""
    if mechanism.cutoff is None:
        return SHARE_UNIT
    return unit_for(mechanism.highest(number, shard_share(shards, mechanism.cutoff)), shards)


def unit_for(highest: float, shards: int) -> float:
    """Return the unit in which shards report, a power of two: the finest in which no item's sum reaches 2^62.

    highest: the largest possible need, which no shard exceeds. The unit is at most 2^-61 of `shards` such needs, so
    flooring costs far less than the half of the rounding slack that pays for it (docs/guarantees.md, "Shards").
    """
    return math.ldexp(1.0, math.frexp(highest * shards)[1] - 62)


def to_units(weights: Weights, unit: float) -> Int64s:
    """Return weights in whole units, rounded down: int64[items].

    Guarantees: the distance of two histograms grows by at most one unit in each item (docs/guarantees.md, "Shards").
    """
    if weights.unit == unit:
        return weights.units
    return np.floor(weights.values / unit).astype(np.int64)


def shard_share(shards: int, cutoff: float | None) -> float:
    """Return the part of an item's need that one shard fills: (1/sqrt(shards) + 0.55/sqrt(cutoff))^2, at most 1.

    With the equal part, 1/shards, a shard that has most of an item's few users would cut the item short; filling more
    costs budget only on items that users of all shards have.

    It must be the same for all items: Theorem B of docs/guarantees-funnel.md compares a novel item's gift with those of
    its companions, and holds for every common factor up to 1, but not for a function of the need that bends. Without a
    cutoff there is no need to fill.
    """
    if shards == 1 or cutoff is None:
        return 1.0
    return min(1.0, (1.0 / math.sqrt(shards) + UNEVEN / math.sqrt(cutoff)) ** 2)


def check_scores(stddev: float, threshold: float, shape: Funnel, shards: int) -> None:
    """Refuse more shards than keep rounding in Funnel's scores negligible (docs/guarantees.md, "Shards").

    In the proof of Theorem F5 the weights are 2-Lipschitz in the targets; summed over shards, 2 k shards-Lipschitz, and
    what counts of the sum is a function of the scores.
    """
    overshoot = shards * shard_share(shards, shape.cutoffs(stddev, threshold)[0])
    counted = 5.0 if shards > 1 else 0.0
    steeper = (10.2 + counted + 12.0 * overshoot) / 22.2 * math.sqrt(MAX_ITEMS_PER_SHARD / MAX_ITEMS)
    if score_spread(stddev, threshold, shape) * steeper > LARGEST_SCORE_SPREAD:
        raise BadParameter(
            f"Rounding does not allow {shards} shards for this funnel.", "Use fewer 'shards' (--shards) or rounds."
        )


def read_units(batch: pa.RecordBatch) -> Int64s:
    """Return the sums of all partitions or shards: int64[rows].

    Guarantees: sums are exact; a sum beyond 63 bits, which takes 2^31 people with the same item, ends the run.
    """
    column = batch.column("units")
    if column.null_count:
        raise BadSource(
            "More than 2^31 people have the same item, more than one run supports.",
            "Split the people into disjoint groups and release each group on its own.",
        )
    return np.asarray(column, np.int64)


def sensitivity_number(sensitivity: Sensitivity) -> float:
    """Return a sensitivity as one number, which travels with the weights: that of l1 is negative."""
    return -sensitivity.bound if sensitivity.norm is Norm.L1 else sensitivity.bound


def read_sensitivity(batch: pa.RecordBatch) -> Sensitivity:
    """Return the common sensitivity of all summed weights; marks weigh nothing and have none.

    Guarantees: weights of different sensitivities are refused.
    """
    low = pc.min(batch.column("least_sensitivity")).as_py()
    high = pc.max(batch.column("most_sensitivity")).as_py()
    if low is None or low != high:
        raise SensitivityMismatch("weights of different sensitivities were added up")
    return Sensitivity(Norm.L1 if low < 0.0 else Norm.L2, abs(low))


def slice_rows(rows: int) -> Iterator[slice]:
    """Yield slices that are small enough for batches below Arrow's two gigabytes, however long the items are."""
    for first in range(0, rows, ROWS_PER_BATCH):
        yield slice(first, min(first + ROWS_PER_BATCH, rows))
