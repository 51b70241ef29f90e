"""Weigh and decide in Spark's Python workers: the rounds of one machine, on the users of a partition or a shard.

A task is a function of its rows and the run key: run again after a failure, on another machine or twice at once, it
gives the same rows. Tasks are handed to `mapInArrow` through `guarded`, so that no value of the data gets into an
error.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpunion import errors
from dpunion.algorithms import Bounding, Norm, Sensitivity
from dpunion.contributions import Bools, Contributions, Float64s, Int64s, Uint64s
from dpunion.engines.spark.failures import MARK
from dpunion.engines.spark.targets import shard_share, unit_for
from dpunion.engines.spark.wire import Piece, buffers_of, digests_from_arrow, digests_to_arrow, match, united
from dpunion.errors import ForeignErrors, name_shortages
from dpunion.mechanisms import SHARE_UNIT, Mechanism, State, Weights
from dpunion.randomness import ClosureKey, Purpose, RunKey
from dpunion.sets.narrowing import Sets

Batches = Iterator[pa.RecordBatch]
Task = Callable[[Batches], Batches]

ROWS_PER_BATCH = 1 << 17
SHARDS_PER_MASK = 62

Naming = Callable[[pa.RecordBatch, RunKey], tuple[pa.Array, Uint64s]]
"""How rows of sums say which items they are about: the column that names them, and their digests, uint64[rows, 2]."""


def guarded(task: Task) -> Task:
    """Return the task with its errors made fit for logs.

    Guarantees: what leaves a worker as an error is an error of dpunion, which holds no value of the data, or the bare
    type of another one.
    """

    def run(batches: Batches) -> Batches:
        with ForeignErrors(_fit_for_logs, ours_too=True), name_shortages():
            yield from task(batches)

    return run


def _fit_for_logs(error: Exception) -> RuntimeError:
    if isinstance(error, errors.DpunionError):
        told = json.dumps([type(error).__name__, error.what, error.remedy])
        return RuntimeError(MARK + base64.b64encode(told.encode()).decode())
    return RuntimeError(f"a task of dpunion failed with {type(error).__name__}")


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
class Weigh:
    """A shard's users and what was replied to it -> (digest, shard, units, score, sensitivity) of what they gave to."""

    mechanism: Mechanism
    secret: Secret
    number: int
    shards: int

    def __call__(self, batches: Batches) -> Batches:
        """Run the task.

        Guarantees: those of the mechanism's `weigh`; a user is in one shard, so moves the sums by no more.
        """
        share, unit = (
            shard_share(self.shards, self.mechanism.cutoff),
            round_unit(self.mechanism, self.number, self.shards),
        )
        for shard, message in messages(batches, self.mechanism.bounding):
            sets, state = Sets(message.contributions), State.start(len(message.scores))
            if self.number:
                state.scores = message.scores
                state.alive = ~message.replied if self.mechanism.tells_released else message.replied
                sets.narrow(state.alive)
            weights = self.mechanism.weigh(sets, state, self.number, self.secret.key, share=share)
            units, held = in_units(weights, unit), weights.held
            yield from shard_sums(shard, sets.digests[held], units[held], state.scores[held], weights.sensitivity)


def by_digest(batch: pa.RecordBatch, _key: RunKey) -> tuple[pa.Array, Uint64s]:
    """Read sums of shards, which know items by their digests.

    Guarantees: no item's text is needed or looked up.
    """
    return batch.column("digest"), digests_from_arrow(batch.column("digest"))


def by_name(batch: pa.RecordBatch, key: RunKey) -> tuple[pa.Array, Uint64s]:
    """Read sums of partitions, which know items by their names.

    Guarantees: a digest is a function of the run key and of the name alone.
    """
    names = batch.column("item").cast(pa.binary())
    return names, key.digests(Purpose.ITEM, *buffers_of(names))


@dataclass(frozen=True)
class Decide:
    """Sums over all shards or partitions -> replies to the shards, or what is released (payload: digest or name).

    A reply is (shard, payload: digest, score) for every item that stays. marked: a sum of 0 is a mark that nobody
    keeps, and comes out.
    """

    mechanism: Mechanism
    secret: Secret
    number: int
    shards: int
    naming: Naming = by_digest
    replies: bool = False
    marked: bool = False

    def __call__(self, batches: Batches) -> Batches:
        """Run the task.

        Guarantees: those of the mechanism's `decide`, which refuses sums of another sensitivity than the noise is for.
        """
        key, unit = self.secret.key, round_unit(self.mechanism, self.number, self.shards)
        for batch in batches:
            if not batch.num_rows:
                continue
            names, digests = self.naming(batch, key)
            units, state = summed_units(batch), State.start(batch.num_rows)
            if "score" in batch.schema.names:
                state.scores = np.array(batch.column("score"), np.float64)
            held = units > 0 if self.marked else np.ones(len(units), np.bool_)
            if held.any():
                weights = Weights(units, unit, held, summed_sensitivity(batch))
                state = self.mechanism.decide(weights, state, self.number, digests, key)
            if self.replies:
                yield from self._replies(batch, digests, state)
            else:
                chosen = state.released | ~held if self.marked else state.released
                yield pa.record_batch({"payload": names.filter(pa.array(chosen))})

    def _replies(self, batch: pa.RecordBatch, digests: Uint64s, state: State) -> Batches:
        """Tell every shard that has an item about it, if it stays."""
        for block, first in enumerate(range(0, self.shards, SHARDS_PER_MASK)):
            masks = np.asarray(batch.column(f"shards{block}"), np.int64)
            for shard in range(first, min(first + SHARDS_PER_MASK, self.shards)):
                there = state.alive & ((masks >> (shard - first)) & 1 == 1)
                shards = pa.array(np.full(int(there.sum()), shard, np.int32))
                payload, scores = digests_to_arrow(digests[there]), pa.array(state.scores[there])
                yield pa.record_batch({"shard": shards, "payload": payload, "score": scores})


@dataclass(frozen=True)
class Message:
    """What a shard has in a round: its users' sets, and of each item that was replied about the digest and score."""

    contributions: Contributions
    replied: Bools
    scores: Float64s

    def __repr__(self) -> str:
        return "Message(<sensitive>)"


def messages(batches: Batches, bounding: Bounding) -> Iterator[tuple[int, Message]]:
    """Sort a partition's rows (shard, payload, score) into what each shard has; a row with a score is a reply."""
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
        contributions = united(pieces.pop(shard), bounding.order, bounding.limit)
        mine = replies.pop(shard, [])
        replied, scores = np.zeros(len(contributions.table), np.bool_), np.zeros(len(contributions.table))
        if mine:
            places, found = match(contributions.table.digests, np.concatenate([one for one, _ in mine]))
            replied[places] = True
            scores[places] = np.concatenate([score for _, score in mine])[found]
        yield shard, Message(contributions, replied, scores)


def round_unit(mechanism: Mechanism, number: int, shards: int) -> float:
    """Return the unit in which shards report in a round: shares have their own."""
    if mechanism.cutoff is None:
        return SHARE_UNIT
    return unit_for(mechanism.highest(number, shard_share(shards, mechanism.cutoff)), shards)


def in_units(weights: Weights, unit: float) -> Int64s:
    """Return weights in whole units, rounded down: int64[items].

    Guarantees: two histograms come further apart by at most one unit in each item (docs/guarantees.md, "Shards").
    """
    if weights.unit == unit:
        return weights.units
    return np.floor(weights.values / unit).astype(np.int64)


def shard_sums(shard: int, digests: Uint64s, units: Int64s, scores: Float64s, sensitivity: Sensitivity) -> Batches:
    """Yield rows (digest, shard, units, score, sensitivity)."""
    for some in slices(len(digests)):
        count = len(units[some])
        columns = {
            "digest": digests_to_arrow(digests[some]),
            "shard": pa.array(np.full(count, shard, np.int32)),
            "units": pa.array(units[some]),
            "score": pa.array(scores[some]),
            "sensitivity": pa.array(np.full(count, sensitivity_number(sensitivity))),
        }
        yield pa.record_batch(columns)


def summed_units(batch: pa.RecordBatch) -> Int64s:
    """Return the sums of all partitions or shards: int64[rows].

    Guarantees: sums are exact; one beyond 63 bits, which takes 2^31 people with the same item, ends the run.
    """
    column = batch.column("units")
    if column.null_count:
        raise errors.BadSource(
            "More than 2^31 people have the same item, more than one run supports.",
            "Split the people into disjoint groups and release each group on its own.",
        )
    return np.asarray(column, np.int64)


def sensitivity_number(sensitivity: Sensitivity) -> float:
    """Return a sensitivity as one number, to travel beside the weights: that of l1 is negative."""
    return -sensitivity.bound if sensitivity.norm is Norm.L1 else sensitivity.bound


def summed_sensitivity(batch: pa.RecordBatch) -> Sensitivity:
    """Return the sensitivity that all summed weights were built to; marks weigh nothing and have none.

    Guarantees: weights of different sensitivities are refused.
    """
    low = pc.min(batch.column("least_sensitivity")).as_py()
    high = pc.max(batch.column("most_sensitivity")).as_py()
    if low is None or low != high:
        raise errors.SensitivityMismatch("weights of different sensitivities were added up")
    return Sensitivity(Norm.L1 if low < 0.0 else Norm.L2, abs(low))


def slices(rows: int) -> Iterator[slice]:
    """Yield slices of so many rows that a batch of them stays below Arrow's two gigabytes, however long items are."""
    for first in range(0, rows, ROWS_PER_BATCH):
        yield slice(first, min(first + ROWS_PER_BATCH, rows))
