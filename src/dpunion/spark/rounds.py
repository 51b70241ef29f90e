"""Rounds over shards: what runs in Spark's Python workers for policies and for algorithms of several rounds.

A shard's task gets the pieces of its users and what was replied to it, and reports what its users give each item; a
second kind of task decides about sums over all shards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dpunion.algorithms import PolicyGaussian, PolicyLaplace, UserOrder
from dpunion.contributions import Bools, Contributions, Float64s, Int64s, Uint64s
from dpunion.engines import local
from dpunion.engines.rounds import draw_items, narrow
from dpunion.engines.shares import in_weight, l2_shares
from dpunion.kernels.descent import descend_ball, descend_l1, descend_l2
from dpunion.kernels.shares import add_shares
from dpunion.plans import Plan, Round
from dpunion.spark.targets import shard_share, unit_for
from dpunion.spark.tasks import Batches, Secret, slices, summed_units
from dpunion.spark.wire import Piece, digests_from_arrow, digests_to_arrow, match, united

SHARDS_PER_MASK = 62


@dataclass(frozen=True)
class Message:
    """What a shard has in a round: its users' sets, and of each item that was replied about the digest and score."""

    contributions: Contributions
    replied: Bools
    scores: Float64s


def messages(batches: Batches, user_order: UserOrder, max_items: int) -> Iterator[tuple[int, Message]]:
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
        contributions = united(pieces.pop(shard), user_order, max_items)
        mine = replies.pop(shard, [])
        replied, scores = np.zeros(len(contributions.table), np.bool_), np.zeros(len(contributions.table))
        if mine:
            places, found = match(contributions.table.digests, np.concatenate([one for one, _ in mine]))
            replied[places] = True
            scores[places] = np.concatenate([score for _, score in mine])[found]
        yield shard, Message(contributions, replied, scores)


@dataclass(frozen=True)
class DescendInShard:
    """A policy of one round over a shard's users -> (digest, units)."""

    algorithm: PolicyLaplace | PolicyGaussian
    cutoff: float
    shards: int

    def __call__(self, batches: Batches) -> Batches:
        """Run the task.

        Guarantees: one user moves the weights of that user's shard by at most 1 in the policy's norm, and no other's.
        """
        algorithm = self.algorithm
        for shard, message in messages(batches, algorithm.user_order, algorithm.max_items_per_user):
            sets = message.contributions
            weights = np.zeros(len(sets.table))
            budget = 1.0 / algorithm.passes
            cutoff = self.cutoff * shard_share(self.shards, self.cutoff)
            for _ in range(algorithm.passes):
                if isinstance(algorithm, PolicyLaplace):
                    scratch = np.empty(algorithm.max_items_per_user)
                    descend_l1(sets.offsets, sets.items, weights, cutoff, budget, scratch)
                else:
                    descend_l2(sets.offsets, sets.items, weights, cutoff, budget)
            units = floored(weights, policy_unit(self.cutoff, self.shards))
            yield from shard_sums(shard, sets.table.digests, units, np.zeros(len(weights)))


@dataclass(frozen=True)
class FunnelRounds:
    """Funnel's rounds in numbers, on any set of items.

    cutoff: what items are filled up to; left: what share of the need is the first round's, and so on; noise_round: the
    number of the first round's noise.
    """

    rounds: tuple[Round, ...]
    left: tuple[float, ...]
    cutoff: float
    user_order: UserOrder
    max_items: int
    noise_round: int = 0

    def needs(self, number: int, scores: Float64s) -> Float64s:
        """Return what each item should get in a round from all shards together: float64[items]."""
        needs: Float64s = np.maximum(0.0, self.cutoff - scores) * (self.rounds[number].budget / self.left[number])
        return needs

    def unit(self, number: int, shards: int) -> float:
        """Return the unit in which the shards report in a round: no need is above that of the lowest living score."""
        one = self.rounds[number]
        lowest = min([0.0, *(earlier.threshold for earlier in self.rounds[:number])])
        return unit_for((self.cutoff - lowest) * one.budget / self.left[number], shards)


@dataclass(frozen=True)
class FunnelInShard:
    """One round of Funnel over a shard's users -> (digest, shard, units, score) of every item still alive."""

    funnel: FunnelRounds
    number: int
    shards: int

    def __call__(self, batches: Batches) -> Batches:
        """Run the task.

        Guarantees: given the public scores, one user moves the weights of one shard by at most the round's budget.
        """
        funnel = self.funnel
        for shard, message in messages(batches, funnel.user_order, funnel.max_items):
            sets = message.contributions
            # subtle: in the first round nothing was replied yet and everything is alive.
            alive = message.replied if self.number else np.ones(len(sets.table), np.bool_)
            offsets, items = narrow(sets.offsets, sets.items, alive) if self.number else (sets.offsets, sets.items)
            targets = funnel.needs(self.number, message.scores) * shard_share(self.shards, funnel.cutoff)
            gaps = targets.copy()
            descend_ball(offsets, items, gaps, funnel.rounds[self.number].budget)
            units = floored(targets - gaps, funnel.unit(self.number, self.shards))
            yield from shard_sums(shard, sets.table.digests[alive], units[alive], message.scores[alive])


@dataclass(frozen=True)
class FunnelScores:
    """(digest, units, score, in which shards) of all shards together -> replies to these shards, or what is released.

    The reply is (shard, payload: digest, score) for every item that stays; after the last round (payload,).
    """

    funnel: FunnelRounds
    secret: Secret
    number: int
    shards: int

    def __call__(self, batches: Batches) -> Batches:
        """Run the task.

        Guarantees: an item's noise is a function of the run key, the round and the item's bytes.
        """
        key, one = self.secret.key, self.funnel.rounds[self.number]
        last = self.number + 1 == len(self.funnel.rounds)
        for batch in batches:
            digests = digests_from_arrow(batch.column("digest"))
            noise = key.normals(self.funnel.noise_round + self.number, digests)
            before = np.asarray(batch.column("score"), np.float64)
            given = summed_units(batch) * self.funnel.unit(self.number, self.shards)
            # Shards may give more than was asked for together; no more counts than lifts the score to the cutoff.
            weights = np.minimum(given, np.maximum(0.0, self.funnel.cutoff - before) / one.budget)
            scores = before + one.budget * (weights + one.stddev * noise)
            stays = scores > one.threshold
            if last:
                yield pa.record_batch({"payload": digests_to_arrow(digests[stays])})
                continue
            for block, first in enumerate(range(0, self.shards, SHARDS_PER_MASK)):
                masks = np.asarray(batch.column(f"shards{block}"), np.int64)
                for shard in range(first, min(first + SHARDS_PER_MASK, self.shards)):
                    there = stays & ((masks >> (shard - first)) & 1 == 1)
                    yield replies(shard, digests[there], scores[there])


def replies(shard: int, digests: Uint64s, scores: Float64s) -> pa.RecordBatch:
    """Return rows (shard, payload, score) that tell one shard about items."""
    shards = pa.array(np.full(len(digests), shard, np.int32))
    return pa.record_batch({"shard": shards, "payload": digests_to_arrow(digests), "score": pa.array(scores)})


@dataclass(frozen=True)
class SipsInShard:
    """One round of DP-SIPS over a shard's users -> (digest, shard, units, score) of every item that was drawn."""

    plan: Plan
    secret: Secret
    number: int

    def __call__(self, batches: Batches) -> Batches:
        """Run the task.

        Guarantees: what a user draws depends on that user's items and the key; one user adds at most 1 in l2 norm.
        """
        limit = self.plan.algorithm.max_items_per_user
        for shard, message in messages(batches, UserOrder.RANDOM, limit):
            sets = message.contributions
            # What was replied about is released and takes no part any more.
            offsets, items = narrow(sets.offsets, sets.items, ~message.replied)
            drawn_offsets, drawn = draw_items(offsets, items, sets, limit, self.number, self.secret.key)
            units = np.zeros(len(sets.table), np.int64)
            add_shares(drawn_offsets, drawn, l2_shares(limit), units)
            some = units > 0
            yield from shard_sums(shard, sets.table.digests[some], units[some], np.zeros(int(some.sum())))


@dataclass(frozen=True)
class SipsDecisions:
    """(digest, units) of all shards together -> (payload: digest) of what this round releases."""

    plan: Plan
    secret: Secret
    number: int

    def __call__(self, batches: Batches) -> Batches:
        """Run the task.

        Guarantees: an item's coin is a function of the run key, the round and the item's bytes.
        """
        key, one = self.secret.key, self.plan.rounds[self.number]
        for batch in batches:
            digests = digests_from_arrow(batch.column("digest"))
            weights = in_weight(summed_units(batch))
            passed = key.decide_gaussian(self.number, digests, weights, threshold=one.threshold, stddev=one.stddev)
            yield pa.record_batch({"payload": digests_to_arrow(digests[passed])})


@dataclass(frozen=True)
class PolicyDecisions:
    """(digest, units) of all shards together -> (payload: digest) of what a policy of one round releases."""

    plan: Plan
    secret: Secret
    unit: float

    def __call__(self, batches: Batches) -> Batches:
        """Run the task.

        Guarantees: those of `decide`, on the sums of all shards.
        """
        key = self.secret.key
        for batch in batches:
            digests = digests_from_arrow(batch.column("digest"))
            values = np.multiply(summed_units(batch), self.unit, dtype=np.float64)
            weights = local.Weights(values, np.ones(len(values), np.bool_), self.plan.sensitivity)
            yield pa.record_batch(
                {"payload": digests_to_arrow(digests[local.decide(self.plan, weights, digests, key)])}
            )


def policy_unit(cutoff: float, shards: int) -> float:
    """Return the unit in which the shards of a policy of one round toward this cutoff report."""
    return unit_for(cutoff * shard_share(shards, cutoff), shards)


def floored(weights: Float64s, unit: float) -> Int64s:
    """Return weights in whole units, rounded down: int64[items] (docs/guarantees.md, "Shards")."""
    return np.floor(weights / unit).astype(np.int64)


def shard_sums(shard: int, digests: Uint64s, units: Int64s, scores: Float64s) -> Batches:
    """Yield rows (digest, shard, units, score)."""
    for some in slices(len(digests)):
        columns = {
            "digest": digests_to_arrow(digests[some]),
            "shard": pa.array(np.full(len(units[some]), shard, np.int32)),
            "units": pa.array(units[some]),
            "score": pa.array(scores[some]),
        }
        yield pa.record_batch(columns)
