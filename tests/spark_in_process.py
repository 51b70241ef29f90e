"""The Spark engine's tasks, run here one after the other: shuffles and sums are done in plain Python."""

import dataclasses
import functools
import itertools

import pyarrow as pa
import pyarrow.parquet as pq

from dpunion.engines.local.engine import choose_reading, tighten_sets
from dpunion.engines.spark import rounds
from dpunion.engines.spark.counting import AddNoise, AddUp, order_by_place
from dpunion.engines.spark.engine import read_in_worker
from dpunion.engines.spark.sessions import guard_task
from dpunion.engines.spark.tasks import (
    SHARDS_PER_MASK,
    CutIntoPieces,
    Decide,
    RunRounds,
    Secret,
    Weigh,
    WeighRows,
    by_name,
)
from dpunion.mechanisms import mechanism_for
from opening import make_request

INPUT = pa.schema({"shard": pa.int32(), "payload": pa.binary(), "score": pa.float64()})
READING = make_request(None, "user", "item")


def reader(plan, **changes):
    """Return what reads a partition, as the pipeline makes it."""
    return functools.partial(read_in_worker, dataclasses.replace(READING, **changes), plan.algorithm.bounding)


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


def watch_driver(frame, monkeypatch):
    """Return the list to which every table goes that comes to the driver; no other way there is left."""
    kind, brought = type(frame), []
    to_arrow = kind.toArrow

    def watched(self):
        brought.append(to_arrow(self))
        return brought[-1]

    monkeypatch.setattr(kind, "toArrow", watched)
    for other in ("collect", "toPandas", "take", "first", "head", "toLocalIterator"):
        monkeypatch.setattr(kind, other, None)
    return brought


def read_folder(folder):
    """Return what Spark wrote to a folder, in the order in which it stands there."""
    files = sorted(path for path in folder.iterdir() if path.name.startswith("part-"))
    return pa.concat_tables([pq.read_table(path) for path in files])


def about_people(tables):
    """Return the tables that came to the driver, but what workers say of their Python, and how large the sets are."""
    public = [table for table in tables if table.column_names in (["answer"], ["load"])]
    assert all(table.num_rows == 1 for table in public)
    return [table for table in tables if table.column_names not in (["answer"], ["load"])]


def in_many_tasks(monkeypatch):
    """Let sets seem too large for one task, so that Spark runs the rounds."""
    real = rounds.measure_load
    monkeypatch.setattr(rounds, "measure_load", lambda *given: max(3, real(*given)))


def each(task, lists):
    """Run a task on every partition and return all rows."""
    return [row for batches in lists for batch in guard_task(task)(iter(batches)) for row in batch.to_pylist()]


def batch_of(rows, schema=None):
    return pa.RecordBatch.from_pylist(rows, schema)


def cut_up(plan, lists, key, shards):
    """Return (pieces by shard, names by digest)."""
    rows = each(CutIntoPieces(reader(plan), plan.algorithm.bounding, Secret.of(key), shards), lists)
    names = {row["payload"]: row["name"].decode() for row in rows if row["name"] is not None}
    pieces = [{"shard": row["shard"], "payload": row["payload"], "score": None} for row in rows]
    return [piece for piece in pieces if piece["shard"] is not None], names


def cut_for_counts(plan, lists, key, shards, **changes):
    """Return the rows of pieces to select from, of names and of pieces to count, as the pipeline has them made."""
    request = dataclasses.replace(READING, **changes)
    asked, bounding = choose_reading(request, plan)
    tighten = functools.partial(tighten_sets, request=request, plan=plan)
    read = functools.partial(read_in_worker, asked, bounding)
    task = CutIntoPieces(read, bounding, Secret.of(key), shards, tighten)
    rows = each(task, lists)
    whole = [row for row in rows if row["shard"] is None and row["name"] is None]
    return [row for row in rows if row["shard"] is not None], [row for row in rows if row["name"] is not None], whole


def to_shards(pieces, replies=()):
    """Bring what belongs to a shard together; two shards share a partition."""
    rows = [*pieces, *replies]
    places = sorted({row["shard"] // 2 for row in rows})
    return [[batch_of([row for row in rows if row["shard"] // 2 == place], INPUT)] for place in places]


def summed(rows, by="digest", shards=0):
    """Add up what the shards report, as the engine has Spark do it."""
    found = {}
    for row in rows:
        given = row["sensitivity"]
        one = found.setdefault(
            row[by], {by: row[by], "units": 0, "least_sensitivity": given, "most_sensitivity": given}
        )
        one["units"] += row["units"]
        one["least_sensitivity"] = min(one["least_sensitivity"], given)
        one["most_sensitivity"] = max(one["most_sensitivity"], given)
        assert one["units"] < 2**63
        if by == "digest":
            assert one.setdefault("score", row["score"]) == row["score"]
        for block in range((shards - 1) // SHARDS_PER_MASK + 1 if shards else 0):
            mine = row["shard"] // SHARDS_PER_MASK == block
            bit = 1 << row["shard"] % SHARDS_PER_MASK if mine else 0
            one[f"shards{block}"] = one.get(f"shards{block}", 0) | bit
    return [[batch_of(list(found.values()))]] if found else []


def by_rounds(plan, database, key, shards, count=3):
    """Release by a policy or an algorithm of several rounds: the set of names."""
    secret, mechanism = Secret.of(key), mechanism_for(plan)
    pieces, names = cut_up(plan, partitions(database, count), key, shards)
    chosen, replies = [], []
    for number in range(mechanism.rounds):
        parts = each(Weigh(mechanism, secret, number, shards), to_shards(pieces, replies))
        goes_on = number + 1 < mechanism.rounds and not mechanism.tells_released
        decide = Decide(mechanism, secret, number, shards, replies=goes_on)
        decided = each(decide, summed(parts, shards=shards if goes_on else 0))
        if mechanism.tells_released:
            chosen += decided
            replies = [
                {"shard": shard, "payload": one["payload"], "score": 0.0} for one in chosen for shard in range(shards)
            ]
        else:
            chosen = replies = decided
    return {names[row["payload"]] for row in chosen}


def in_one_task(plan, database, key, shards, count=3):
    """Release in one task that runs all rounds: the set of names."""
    cut = CutIntoPieces(reader(plan), plan.algorithm.bounding, Secret.of(key), shards)
    rows = [batch for batches in partitions(database, count) for batch in cut(iter(batches))]
    released = each(RunRounds(mechanism_for(plan), Secret.of(key), shards), [rows])
    assert len({row["payload"] for row in released}) == len(released)
    return {row["payload"].decode() for row in released}


def by_shares(plan, database, key, count):
    """Release by an algorithm whose shares are summed: the set of names."""
    secret, mechanism = Secret.of(key), mechanism_for(plan)
    rows = each(WeighRows(reader(plan), mechanism, secret), partitions(database, count))
    decide = Decide(mechanism, secret, 0, 1, naming=by_name)
    return {row["payload"].decode() for row in each(decide, summed(rows, by="item"))}


def measure_here(lists, find, key, noisy=None):
    """Return what takes a step of counting, with sums and the places without any done here; noisy: gets what it gave.

    lists: of each partition, the batches that `find` reads.
    """

    def measure(step, stddev):
        given = each(AddUp(find, step, Secret.of(key)), lists)
        zeros = [{"place": place, "units": 0, "sensitivity": 1.0} for place in range(step.length)]
        noise, sums = AddNoise(step.number, stddev, Secret.of(key)), summed(given + zeros, by="place")
        # Each sum by itself and backwards: what is drawn must not depend on what stands beside it.
        rows = [[batch.slice(row, 1)] for [batch] in sums for row in reversed(range(batch.num_rows))]
        table = pa.Table.from_pylist(each(noise, rows), pa.schema({"place": pa.int64(), "units": pa.int64()}))
        found = order_by_place(table, step.length)
        if noisy is not None:
            noisy.append(found)
        return found

    return measure


def spread_out(rows, count):
    """Spread rows over partitions, one to a batch."""
    batches = [batch_of([{"payload": row["payload"]}]) for row in rows]
    return [list(itertools.islice(batches, part, None, count)) for part in range(count)]
