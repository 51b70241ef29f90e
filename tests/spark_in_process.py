"""The Spark engine's tasks, run here one after the other: shuffles and sums are done in plain Python."""

import dataclasses

import pyarrow as pa

from dpunion.algorithms import CountGaussian, CountLaplace, DpSips, Funnel, OptimalSingleItem, WeightedLaplace
from dpunion.calibration.rounding import MAX_ITEMS
from dpunion.engines.shares import count_shares, l1_shares, l2_shares
from dpunion.pipeline import PartitionReader, Reading
from dpunion.sources import NullUserPolicy, ValueKind
from dpunion.sources.encoding import Normalization
from dpunion.spark.engine import funnel_rounds
from dpunion.spark.rounds import (
    SHARDS_PER_MASK,
    DescendInShard,
    FunnelInShard,
    FunnelScores,
    PolicyDecisions,
    SipsDecisions,
    SipsInShard,
    policy_unit,
)
from dpunion.spark.tasks import AddShares, CutIntoPieces, DecideShares, Secret, guarded

INPUT = pa.schema({"shard": pa.int32(), "payload": pa.binary(), "score": pa.float64()})
READING = Reading(
    source=None,
    user="user",
    kind=ValueKind.ITEM,
    value="item",
    query=None,
    input_format=None,
    null_users=NullUserPolicy.REFUSE,
    normalization=Normalization.NFC,
    known=None,
    memory_limit=None,
)


def reader(plan, **changes):
    """Return what reads a partition, as the pipeline makes it."""
    return PartitionReader(dataclasses.replace(READING, **changes), plan)


def partitions(database, count):
    """Spread whole users over partitions: lists of record batches."""
    found = [[] for _ in range(count)]
    for number, (user, items) in enumerate(sorted(database.items())):
        held = sorted(items)
        users = pa.array([user] * len(held), pa.string())
        found[number % count].append(pa.record_batch({"user": users, "item": pa.array(held, pa.string())}))
    return found


def database_of(table):
    """Return rows of users and items as a mapping user -> items."""
    found = {}
    for row in table.to_pylist():
        found.setdefault(row["user"], set()).add(row["item"])
    return found


def each(task, lists):
    """Run a task on every partition and return all rows."""
    return [row for batches in lists for batch in guarded(task)(iter(batches)) for row in batch.to_pylist()]


def batch_of(rows, schema=None):
    return pa.RecordBatch.from_pylist(rows, schema)


def cut_up(plan, lists, key, shards):
    """Return (pieces by shard, names by digest)."""
    limit = plan.algorithm.max_items_per_user if plan.algorithm.bounds_once else MAX_ITEMS
    rows = each(CutIntoPieces(reader(plan), Secret.of(key), limit, shards), lists)
    names = {row["payload"]: row["name"].decode() for row in rows if row["name"] is not None}
    pieces = [{"shard": row["shard"], "payload": row["payload"], "score": None} for row in rows]
    return [piece for piece in pieces if piece["shard"] is not None], names


def to_shards(pieces, replies=()):
    """Bring what belongs to a shard together; two shards share a partition."""
    rows = [*pieces, *replies]
    places = sorted({row["shard"] // 2 for row in rows})
    return [[batch_of([row for row in rows if row["shard"] // 2 == place], INPUT)] for place in places]


def summed(rows, shards):
    """Add up what the shards report, as the engine has Spark do it."""
    found = {}
    for row in rows:
        one = found.setdefault(row["digest"], {"digest": row["digest"], "units": 0, "score": row["score"]})
        one["units"] += row["units"]
        assert one["score"] == row["score"]
        assert one["units"] < 2**63
        for block in range((shards - 1) // SHARDS_PER_MASK + 1):
            mine = row["shard"] // SHARDS_PER_MASK == block
            bit = 1 << row["shard"] % SHARDS_PER_MASK if mine else 0
            one[f"shards{block}"] = one.get(f"shards{block}", 0) | bit
    return [[batch_of(list(found.values()))]] if found else []


def by_rounds(plan, database, key, shards, count=3):
    """Release by a policy or an algorithm of several rounds: the set of names."""
    secret = Secret.of(key)
    pieces, names = cut_up(plan, partitions(database, count), key, shards)
    chosen = []
    match plan.algorithm:
        case Funnel() as funnel:
            rounds, replies = funnel_rounds(plan, funnel), []
            for number in range(len(plan.rounds)):
                sums = summed(each(FunnelInShard(rounds, number, shards), to_shards(pieces, replies)), shards)
                replies = each(FunnelScores(rounds, secret, number, shards), sums)
            chosen = replies
        case DpSips():
            for number in range(len(plan.rounds)):
                told = [(shard, one["payload"]) for one in chosen for shard in range(shards)]
                replies = [{"shard": shard, "payload": digest, "score": 0.0} for shard, digest in told]
                sums = summed(each(SipsInShard(plan, secret, number), to_shards(pieces, replies)), shards)
                chosen += each(SipsDecisions(plan, secret, number), sums)
        case _:
            sums = summed(each(DescendInShard(plan.algorithm, plan.cutoff, shards), to_shards(pieces)), shards)
            chosen = each(PolicyDecisions(plan, secret, policy_unit(plan.cutoff, shards)), sums)
    return {names[row["payload"]] for row in chosen}


def by_shares(plan, database, key, count):
    """Release by an algorithm whose shares are summed: the set of names."""
    secret, limit = Secret.of(key), plan.algorithm.max_items_per_user
    kinds = {CountLaplace: count_shares, CountGaussian: count_shares, OptimalSingleItem: count_shares}
    shares = {**kinds, WeightedLaplace: l1_shares}.get(type(plan.algorithm), l2_shares)(limit)
    found = {}
    for row in each(AddShares(reader(plan), secret, limit, shares), partitions(database, count)):
        found[row["item"]] = found.get(row["item"], 0) + row["units"]
    sums = pa.record_batch({"item": pa.array(list(found), pa.binary()), "units": pa.array(list(found.values()))})
    return {row["item"].decode() for row in each(DecideShares(plan, secret), [[sums]])}
