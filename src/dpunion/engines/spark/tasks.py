"""What runs in Spark's Python workers: read a partition, cut it into pieces for shards, weigh, decide.

A task is a function of its rows and the run key: it gives the same rows when it runs again after a failure, on another
machine, or twice at once. `mapInArrow` gets every task through `guard_task`, so that no error has a value of the data.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpunion.algorithms import MAX_ITEMS, Bounding, Funnel
from dpunion.calibration.rounding import LARGEST_SCORE_SPREAD, score_spread
from dpunion.contributions import Bools, Contributions, Float64s, Int64s, Uint64s
from dpunion.counting.holdings import bound_to_counted, find_listed
from dpunion.engines.spark import wire
from dpunion.engines.spark.sessions import Batches
from dpunion.engines.spark.wire import MAX_ITEMS_PER_SHARD, Piece, digests_from_arrow, digests_to_arrow, match_digests
from dpunion.errors import BadParameter
from dpunion.mechanisms import SHARE_UNIT, Mechanism, State, Weights
from dpunion.plans.candidates import LARGEST_LISTED_SPREAD
from dpunion.randomness import ClosureKey, RunKey
from dpunion.releases.formats import split_key
from dpunion.sets.encoding import digests_of_list
from dpunion.sets.narrowing import Sets

ROWS_PER_READ = 1 << 20
ROWS_PER_PART = 1 << 23
PARTS_AT_ONCE = 8
SHARDS_PER_MASK = 62
MARKS_SHARD = -1  # rows of this shard are marks: public candidates, released if nobody keeps them
# A shard fills more than its equal part of an item's need, as the item's users are spread unevenly over the shards.
# This factor was chosen on public data.
UNEVEN = 0.55

Reader = Callable[[pa.RecordBatchReader, RunKey], Contributions]
"""Reads Arrow batches of (user, values) rows into bounded contributions, in a worker."""

Tighten = Callable[..., Contributions]
"""Bounds sets that were read for counting as selecting needs them: (sets, key=run key)."""

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
        return RunKey.from_closure(self.exported)

    def __repr__(self) -> str:
        return "Secret()"


@dataclass(frozen=True, eq=False)
class PublicDigests:
    """The digests of a public list, in a task's closure: uint64[n, 2], rising by their first words."""

    digests: Uint64s

    @classmethod
    def of(cls, digests: Uint64s) -> PublicDigests:
        return cls(digests[np.argsort(digests[:, 0])])

    def find(self, digests: Uint64s) -> Bools:
        """Say which digests are on the list: bool[n]."""
        places, is_listed = find_listed(self.digests, digests), np.zeros(len(digests), np.bool_)
        is_listed[places[places >= 0]] = True
        return is_listed

    def __repr__(self) -> str:
        return f"PublicDigests({len(self.digests)})"


def start_state(digests: Uint64s, listed: PublicDigests | None) -> State:
    """Return the state of these items before the first round."""
    return State.start(len(digests), None if listed is None else listed.find(digests))


# --- read a partition -------------------------------------------------------------------------------------------


def read_renamed(read: Reader, names: tuple[str, ...], source: pa.RecordBatchReader, key: RunKey) -> Contributions:
    """Read rows whose columns have numbers instead of names: `mapInArrow` does not accept every name.

    Guarantees: as for the reader; the order and the values of the columns do not change.
    """
    return read(rename_columns(source, source.schema, names), key)


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
    - a user may have many rows: memory has at most the limit of each user's items from the earlier parts;
    - the result is that of reading all rows at once.
    """
    parts: list[Contributions] = []
    while (source := _take_rows(batches)) is not None:
        parts.append(wire.drop_unused_items(read(source, key)))
        if len(parts) == PARTS_AT_ONCE:
            parts = [wire.join_parts(parts, key, bounding.limit)]
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else wire.join_parts(parts, key, bounding.limit)


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

    Guarantees: as for the mechanism's `weigh`; a user's rows are in one partition.
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
        number = wire.sensitivity_number(weights.sensitivity)
        for some in wire.slice_rows(len(table)):
            units = pa.array(weights.units[some])
            sensitivity = pa.array(np.full(len(units), number))
            yield pa.record_batch({"item": wire.arrow_names(table, some), "units": units, "sensitivity": sensitivity})


@dataclass(frozen=True)
class CutIntoPieces:
    """Rows of whole users -> pieces by shard (shard, payload), and item names (payload: digest, name).

    tighten: with counts, it bounds the sets of these pieces; the whole sets follow as pieces without a shard (payload).
    shards: 0 before a look, when nothing is selected yet: then only whole sets and item names follow.

    Guarantees: every user of the partition is in one piece, bounded, in the shard that the key decides; with counts or
    before a look also in one piece without a shard, with at most MOST_COUNTED items. No name says whose item it is.
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
        selected = whole if self.tighten is None else wire.drop_unused_items(self.tighten(whole, key=key))
        if self.shards:
            yield from pack_pieces(selected, self.shards, key)
        table = selected.table
        for some in wire.slice_rows(len(table)):
            yield _rows(payload=digests_to_arrow(table.digests[some]), name=wire.arrow_names(table, some))
        if self.tighten is not None or not self.shards:
            for _, piece in wire.cut_by_shard(bound_to_counted(whole, key), 1, key):
                yield _rows(payload=pa.array([piece.to_bytes()], pa.binary()))


def cut_whole(tighten: Tighten, limit: int, secret: Secret, shards: int, batches: Batches) -> Batches:
    """Whole pieces (payload), of at most `limit` items, -> (shard, payload). Guarantees: as for CutIntoPieces."""
    key = secret.key
    for piece in wire.pieces_in(batches):
        yield from pack_pieces(wire.drop_unused_items(tighten(piece.sets(limit), key=key)), shards, key)


def pack_pieces(contributions: Contributions, shards: int, key: RunKey) -> Batches:
    """Yield the pieces of all shards, without names, as rows (shard, payload). Guarantees: as for `cut_by_shard`."""
    for shard, piece in wire.cut_by_shard(contributions, shards, key):
        yield _rows(shard=pa.array([shard], pa.int32()), payload=pa.array([piece.to_bytes()], pa.binary()))


def _rows(**columns: pa.Array) -> pa.RecordBatch:
    """Return a batch of (shard, payload, name) with nulls in the columns that are not given."""
    count = len(next(iter(columns.values())))
    kinds = {"shard": pa.int32(), "payload": pa.binary(), "name": pa.binary()}
    return pa.record_batch({name: columns.get(name, pa.nulls(count, kind)) for name, kind in kinds.items()})


def split_items(columns: tuple[str, ...], batches: Batches) -> Batches:
    """(item,) of keys of several columns -> these columns: the parts of released items and nothing else."""
    for batch in batches:
        rows = [split_key(name.decode()) for name in batch.column("item").to_pylist()]
        parts = [pa.array([key[place] for key in rows], pa.string()) for place in range(len(columns))]
        yield pa.RecordBatch.from_arrays(parts, list(columns))


# --- tasks of a round -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Weigh:
    """A shard's users and the replies to it -> (digest, shard, units, score, sensitivity) of the items they give to.

    Guarantees: as for the mechanism's `weigh`; a user is in one shard, so moves the sums by no more.
    """

    mechanism: Mechanism
    secret: Secret
    number: int
    shards: int
    listed: PublicDigests | None = None

    def __call__(self, batches: Batches) -> Batches:
        for shard, contributions, replied, scores in sort_messages(batches, self.mechanism.bounding):
            sets = Sets(contributions)
            state = start_state(sets.digests, self.listed)
            if self.number:
                state.scores = scores
                state.alive = ~replied if self.mechanism.tells_released else replied
            weights = weigh_shard(self.mechanism, sets, state, self.number, self.shards, self.secret.key)
            units, held = weights.units[weights.held], weights.held
            digests, before = sets.digests[held], state.scores[held]
            number = wire.sensitivity_number(weights.sensitivity)
            for some in wire.slice_rows(len(digests)):
                count = len(units[some])
                columns = {
                    "digest": digests_to_arrow(digests[some]),
                    "shard": pa.array(np.full(count, shard, np.int32)),
                    "units": pa.array(units[some]),
                    "score": pa.array(before[some]),
                    "sensitivity": pa.array(np.full(count, number)),
                }
                yield pa.record_batch(columns)


def weigh_shard(mechanism: Mechanism, sets: Sets, state: State, number: int, shards: int, key: RunKey) -> Weights:
    """Narrow and weigh a shard's sets, in whole units. Guarantees: as for `Mechanism.weigh` and `to_units`."""
    if number:
        sets.narrow(state.alive, may_wait=mechanism.skips_gone)
    weights = mechanism.weigh(sets, state, number, key, share=shard_share(shards, mechanism.cutoff))
    unit = round_unit(mechanism, number, shards)
    return dataclasses.replace(weights, units=to_units(weights, unit), unit=unit)


@dataclass(frozen=True)
class RunRounds:
    """All pieces, all names and the marks (shard, payload, name) -> the released names (payload): all rounds, here.

    Guarantees: the released items are those of `Weigh` and `Decide` in rounds on Spark, with as many shards.
    """

    mechanism: Mechanism
    secret: Secret
    shards: int
    listed: PublicDigests | None = None

    def __call__(self, batches: Batches) -> Batches:
        pieces: dict[int, list[Piece]] = {}
        empty = _rows(payload=pa.array([], pa.binary()))
        named, marks = [empty], [empty]
        for sent in batches:
            batch = sent.cast(empty.schema)
            is_name = batch.column("name").is_valid()
            for row in batch.filter(pc.invert(is_name)).to_pylist():
                pieces.setdefault(row["shard"], []).append(Piece.from_bytes(row["payload"]))
            is_mark = pc.equal(batch.column("shard").fill_null(0), MARKS_SHARD)
            named.append(batch.filter(pc.and_not(is_name, is_mark)))
            marks.append(batch.filter(is_mark))
        bounding, key = self.mechanism.bounding, self.secret.key
        united = [wire.unite_pieces(pieces.pop(shard), bounding.order, bounding.limit) for shard in sorted(pieces)]
        names, candidates = (pa.Table.from_batches(some).combine_chunks() for some in (named, marks))
        held, marked = (digests_from_arrow(one.column("payload").combine_chunks()) for one in (names, candidates))
        # subtle: the pieces have what users keep by the plan that runs. The names that were read may have more.
        unkept = np.ones(len(marked), np.bool_)
        for one in united if len(marked) else ():
            unkept[match_digests(marked, one.table.digests)[0]] = False
        released = run_shards(united, self.mechanism, self.shards, key, self.listed)
        for table, places in ((names, match_digests(held, released)[0]), (candidates, np.flatnonzero(unkept))):
            for some in wire.slice_rows(len(places)):
                yield pa.record_batch({"payload": table.column("name").take(pa.array(places[some])).combine_chunks()})


def run_shards(
    united: Sequence[Contributions], mechanism: Mechanism, shards: int, key: RunKey, listed: PublicDigests | None = None
) -> Uint64s:
    """Run all rounds on the sets of all shards that have users; return the released digests: uint64[n, 2].

    Guarantees: the sums of a round are exact and those of `Weigh`, so the decisions are those of `Decide`.
    """
    digests, numbers = wire.number_digests([one.table.digests for one in united])
    state, everybody = start_state(digests, listed), [Sets(one) for one in united]
    for number in range(mechanism.rounds if everybody else 0):
        units, held = np.zeros(len(digests), np.int64), np.zeros(len(digests), np.bool_)
        for sets, mine in zip(everybody, numbers, strict=True):
            flags = None if state.listed is None else state.listed[mine]
            own = State(state.scores[mine], state.alive[mine], state.released[mine], flags)
            weights = weigh_shard(mechanism, sets, own, number, shards, key)
            units[mine] += np.where(weights.held, weights.units, 0)
            held[mine] |= weights.held
        state = mechanism.decide(dataclasses.replace(weights, units=units, held=held), state, number, digests, key)
    return digests[state.released]


def find_kept(marks: PublicDigests, batches: Batches) -> Batches:
    """Pieces (payload) -> the marked digests that somebody keeps by the plan that runs (payload: digest)."""
    for piece in wire.pieces_in(batches):
        yield pa.record_batch({"payload": digests_to_arrow(piece.digests[marks.find(piece.digests)])})


def emit_rows(rows: pa.RecordBatch, batches: Batches) -> Batches:
    """One row, ignored -> these rows, which travel in the closure. Guarantees: nothing but these rows."""
    for _ in batches:
        yield rows


def by_digest(batch: pa.RecordBatch, _key: RunKey) -> tuple[pa.Array, Uint64s]:
    """Find the items of sums over shards, which know items by digests. Guarantees: no item's text is looked up."""
    return batch.column("digest"), digests_from_arrow(batch.column("digest"))


def by_name(batch: pa.RecordBatch, key: RunKey) -> tuple[pa.Array, Uint64s]:
    """Find the items of sums over partitions, by name. Guarantees: a digest follows from run key and name alone."""
    names = batch.column("item").cast(pa.binary())
    return names, digests_of_list(names, key)


@dataclass(frozen=True)
class Decide:
    """Sums over all shards or partitions -> replies to the shards, or the released items (payload: digest or name).

    A reply is (shard, payload: digest, score) for every item that stays. marked: a sum of 0 is a mark on an item that
    nobody keeps, and that item is released.

    Guarantees: as for the mechanism's `decide`, which refuses sums of another sensitivity than the noise is for.
    """

    mechanism: Mechanism
    secret: Secret
    number: int
    shards: int
    naming: Naming = by_digest
    replies: bool = False
    marked: bool = False
    listed: PublicDigests | None = None

    def __call__(self, batches: Batches) -> Batches:
        key, unit = self.secret.key, round_unit(self.mechanism, self.number, self.shards)
        for batch in batches:
            if not batch.num_rows:
                continue
            names, digests = self.naming(batch, key)
            units, state = wire.read_units(batch), start_state(digests, self.listed)
            if "score" in batch.schema.names:
                state.scores = np.array(batch.column("score"), np.float64)
            held = units > 0 if self.marked else np.ones(len(units), np.bool_)
            if held.any():
                weights = Weights(units, unit, held, wire.read_sensitivity(batch))
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


def sort_messages(batches: Batches, bounding: Bounding) -> Iterator[tuple[int, Contributions, Bools, Float64s]]:
    """Sort a partition's rows (shard, payload, score) by shard; a row with a score is a reply.

    Yield of each shard: its number, its users' sets, and for each item whether a reply names it, and its score.
    """
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
        contributions = wire.unite_pieces(pieces.pop(shard), bounding.order, bounding.limit)
        mine = replies.pop(shard, [])
        replied, scores = np.zeros(len(contributions.table), np.bool_), np.zeros(len(contributions.table))
        if mine:
            places, found = match_digests(contributions.table.digests, np.concatenate([one for one, _ in mine]))
            replied[places] = True
            scores[places] = np.concatenate([score for _, score in mine])[found]
        yield shard, contributions, replied, scores


# --- units, and the part that one shard fills -------------------------------------------------------------------


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
    its companions, and holds for every common factor up to 1, but not for a nonlinear function of the need. Without a
    cutoff there is no need to fill.
    """
    if shards == 1 or cutoff is None:
        return 1.0
    return min(1.0, (1.0 / math.sqrt(shards) + UNEVEN / math.sqrt(cutoff)) ** 2)


def check_scores(stddev: float, threshold: float, shape: Funnel, shards: int, *, listed: bool = False) -> None:
    """Refuse more shards than keep rounding in Funnel's scores negligible (docs/guarantees.md, "Shards").

    In the proof of Theorem F5 the weights are 2-Lipschitz in the targets. The sum over shards is 2 k shards-Lipschitz
    (k: the return value of `shard_share`), and of this sum only a function of the scores matters.
    """
    overshoot = shards * shard_share(shards, shape.cutoffs(stddev, threshold)[0])
    steeper = (10.2 + 5.0 * (shards > 1) + 12.0 * overshoot) / 22.2 * math.sqrt(MAX_ITEMS_PER_SHARD / MAX_ITEMS)
    if score_spread(stddev, threshold, shape) * steeper > (LARGEST_LISTED_SPREAD if listed else LARGEST_SCORE_SPREAD):
        raise BadParameter(
            f"Rounding does not allow {shards} shards for this funnel.", "Use fewer 'shards' (--shards) or rounds."
        )
