"""What does sharding cost? Release sizes of Funnel in 1, 8 and 64 shards, beside algorithms that shards do not change.

    python benchmarks/spark_shards.py                 the AskReddit-like set, and imdb when DPUNION_DATA is set
    python benchmarks/spark_shards.py --runs 3 --json benchmarks/results/spark-shards.json

Spark itself is not used: its tasks run here one after the other, on the same pieces, and their sums are added up by
numpy; the released set is the same. Sizes are means over runs with fresh keys, at (3, e^-10).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import dpunion
from dpunion.contributions import Contributions
from dpunion.engines.local.engine import open_request, read_sets
from dpunion.engines.spark.tasks import SHARDS_PER_MASK, Decide, Secret, Weigh
from dpunion.engines.spark.wire import cut_by_shard, digests_from_arrow, digests_to_arrow, match_digests
from dpunion.mechanisms import mechanism_for
from dpunion.plans import Plan
from dpunion.randomness import RunKey
from dpunion.reading import ValueKind
from dpunion.reading.parts import NullUserPolicy
from dpunion.requests import Request, Run
from dpunion.sets.encoding import Normalization
from dpunion_lab.generators import AskRedditLike

EPSILON, DELTA = 3.0, math.exp(-10)
SHARDS = (1, 8, 64)
READING = Request(
    source=None,
    user="user",
    kind=ValueKind.ITEM,
    value="item",
    query=None,
    input_format=None,
    null_users=NullUserPolicy.REFUSE,
    normalization=Normalization.NFC,
    known=None,
)


def rows_of(shard: int, payloads: pa.Array, scores: pa.Array) -> pa.RecordBatch:
    """Return rows as they come to a shard: pieces without a score, replies with one."""
    shards = pa.array(np.full(len(payloads), shard, np.int32))
    return pa.record_batch({"shard": shards, "payload": payloads, "score": scores})


def size_in_shards(plan: Plan, contributions: Contributions, key: RunKey, shards: int) -> int:
    """Run Funnel's tasks over the shards and return how many items are released."""
    funnel, secret, digests = mechanism_for(plan), Secret.of(key), contributions.table.digests
    inputs: dict[int, list[pa.RecordBatch]] = {shard: [] for shard in range(shards)}
    for shard, piece in cut_by_shard(contributions, shards, key):
        payload = pa.array([piece.to_bytes()], pa.binary())
        inputs[shard].append(rows_of(shard, payload, pa.nulls(1, pa.float64())))
    told: list[pa.RecordBatch] = []
    for number in range(len(plan.rounds)):
        units, scores = np.zeros(len(digests), np.int64), np.zeros(len(digests))
        masks = np.zeros(((shards - 1) // SHARDS_PER_MASK + 1, len(digests)), np.int64)
        for shard in range(shards):
            mine = [batch for batch in told if batch.num_rows and batch.column("shard")[0].as_py() == shard]
            for batch in Weigh(funnel, secret, number, shards)(iter(inputs[shard] + mine)):
                places, which = match_digests(digests, digests_from_arrow(batch.column("digest")))
                units[places] += np.asarray(batch.column("units"))[which]
                scores[places] = np.asarray(batch.column("score"))[which]
                masks[shard // SHARDS_PER_MASK][places] |= 1 << shard % SHARDS_PER_MASK
        there = np.flatnonzero(masks.any(axis=0))
        columns = {"digest": digests_to_arrow(digests[there]), "units": units[there], "score": scores[there]}
        budgets = np.full(len(there), plan.rounds[number].budget)
        columns |= {"least_sensitivity": budgets, "most_sensitivity": budgets}
        columns |= {f"shards{block}": mask[there] for block, mask in enumerate(masks)}
        sums = pa.record_batch({name: pa.array(column) for name, column in columns.items()})
        goes_on = number + 1 < len(plan.rounds)
        told = list(Decide(funnel, secret, number, shards, replies=goes_on)(iter([sums])))
    return sum(batch.num_rows for batch in told)


def sizes(path: Path, column: str, runs: int) -> dict[str, float]:
    """Return the mean sizes of one data set."""
    kind = ValueKind.TEXT if column == "text" else ValueKind.ITEM
    reading = replace(READING, source=path, value=column, kind=kind)
    plan = dpunion.plan(dpunion.Funnel(), epsilon=EPSILON, delta=DELTA)
    found: dict[str, list[int]] = {}
    for _ in range(runs):
        key = RunKey.fresh()
        with open_request(reading, Run()) as rows:
            contributions = read_sets(reading, rows, plan.algorithm.bounding, key)
        for shards in SHARDS:
            size = size_in_shards(plan, contributions, key, shards)
            found.setdefault(f"funnel, {shards} shard{'s' * (shards > 1)}", []).append(size)
        for other in ("dp-sips", "weighted-gaussian"):
            options = {"user": "user", column: column, "epsilon": EPSILON, "delta": DELTA}
            found.setdefault(other, []).append(len(dpunion.release(path, algorithm=other, **options)))
    return {who: statistics.fmean(counts) for who, counts in found.items()}


def data_sets(folder: Path) -> Iterator[tuple[str, Path, str]]:
    """Yield the generated set, and imdb when it is here."""
    generated = folder / "askreddit-like.parquet"
    AskRedditLike().write_parquet(generated)
    yield "askreddit-like", generated, "item"
    imdb = Path(os.environ.get("DPUNION_DATA", "/nonexistent")) / "imdb_reviews_50k.parquet"
    if imdb.exists():
        yield "imdb", imdb, "text"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    record: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "runs": arguments.runs, "sets": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name, path, column in data_sets(Path(folder)):
            found = sizes(path, column, arguments.runs)
            record["sets"][name] = found
            print(f"\n{name}, epsilon 3, delta e^-10, {arguments.runs} run(s)")
            for who, size in found.items():
                print(f"  {who:20}{size:>10,.0f}{size / found['funnel, 1 shard']:>8.3f} of one shard", flush=True)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
