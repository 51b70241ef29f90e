"""What releases under test keys and plans come to, in short: one line each, to be compared with those of before.

`python tests/golden/recorder.py` (with tests/ on the path) prints the record; tests/golden/recorded.json keeps it. A
line may change only when the algorithm was meant to change.
"""

import hashlib
import itertools
import json
import math
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import dpunion
from dpunion.algorithms import ALGORITHMS, algorithm_named
from dpunion.calibration import funnel
from dpunion.randomness import RunKey
from dpunion.requests import Words
from dpunion.samples import debian_depends
from dpunion_lab.generators import AskRedditLike
from spark_in_process import by_rounds, by_shares, database_of

RECORD = Path(__file__).with_name("recorded.json")
KEYS = (1, 2, 3)
SHARDS = (1, 3)
SHARED_OUT = {"count-laplace", "count-gaussian", "weighted-laplace", "weighted-gaussian", "optimal-single-item"}
BUDGET = {"epsilon": 3.0, "delta": math.exp(-10)}
BUDGETS = ((0.1, 1e-9), (0.5, 1e-7), (1.0, 1e-5), (1.0, 1e-6), (3.0, math.exp(-10)), (8.0, 1e-4))
# Variants beside the defaults: other numbers of passes, orders, rounds, constants.
VARIANTS = {
    "policy-gaussian, 2 passes": ("policy-gaussian", {"passes": 2}),
    "policy-gaussian, smallest first": ("policy-gaussian", {"user_order": "smallest-first", "cutoff_margin": 5.0}),
    "policy-gaussian, reserve": ("policy-gaussian", {"reserve": 0.1, "passes": 2}),
    "policy-laplace, 3 passes": ("policy-laplace", {"passes": 3, "max_items_per_user": 20}),
    "weighted-gaussian, published": ("weighted-gaussian", {"calibration": "published"}),
    "funnel, 6 rounds": ("funnel", {"rounds": 6, "first_share": 0.2, "max_items_per_user": 50}),
    "funnel, 1 round": ("funnel", {"rounds": 1, "first_share": 1.0, "max_items_per_user": 30}),
    "funnel, random order": ("funnel", {"user_order": "random", "keep_margin": 0.5}),
    "dp-sips, 5 rounds": ("dp-sips", {"rounds": 5, "share_ratio": 0.5, "max_items_per_user": 10}),
}
PUBLISHED = dpunion.WeightedGaussian(calibration="published")
NGRAMS = {
    "default": dpunion.Ngrams(),
    "published": dpunion.Ngrams(first=PUBLISHED, later=(PUBLISHED,)),
    "policy": dpunion.Ngrams(longest=2, first=dpunion.PolicyGaussian(), later=(dpunion.PolicyGaussian(passes=2),)),
    "mixed": dpunion.Ngrams(longest=4, later=(dpunion.Funnel(), dpunion.WeightedGaussian(), dpunion.PolicyGaussian())),
}


def tables() -> dict[str, pa.Table]:
    """Return three sets of (user, item): real, generated, and people with very many items."""
    heavy = AskRedditLike(users=900, seed=8, items=3_000, knee=200)
    collected = range(28_000)
    owners = pa.table(
        {"user": [f"collector{n % 40}" for n in collected], "item": [f"word{n // 40 % 700}" for n in collected]}
    )
    return {
        "depends": pq.read_table(debian_depends()).slice(0, 60_000).select(["user", "item"]).cast(TEXTS),
        "generated": pa.Table.from_batches(AskRedditLike(users=4_000, seed=5).batches()),
        "collectors": pa.concat_tables([pa.Table.from_batches(heavy.batches()), owners]),
    }


TEXTS = pa.schema({"user": pa.string(), "item": pa.string()})


def digest_of(items) -> str:
    """Return how many items there are and the start of their SHA-256."""
    texts = sorted(map(str, items))
    return f"{len(texts)} {hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]}"


def algorithms() -> dict[str, object]:
    """Return every algorithm by its defaults, and the variants."""
    plain = {name: kind() for name, kind in ALGORITHMS.items()}
    return plain | {name: algorithm_named(kind, **parameters) for name, (kind, parameters) in VARIANTS.items()}


def record_releases() -> dict[str, str]:
    """Release every set by every algorithm on one machine and by the tasks of Spark, run here."""
    found = {}
    for (place, table), (name, algorithm) in itertools.product(tables().items(), algorithms().items()):
        plan = dpunion.plan(algorithm, **BUDGET)
        database = database_of(table)
        for number in KEYS:
            made = dpunion.release(
                table, user="user", item="item", algorithm=algorithm, unsafe_test_key=number, **BUDGET
            )
            found[f"{place}, {name}, key {number}, local"] = digest_of(made.items)
        key = RunKey.for_tests(KEYS[0])
        for shards in SHARDS:
            chosen = (
                by_shares(plan, database, key, shards)
                if algorithm.name in SHARED_OUT
                else by_rounds(plan, database, key, shards)
            )
            found[f"{place}, {name}, key {KEYS[0]}, {shards} shards"] = digest_of(chosen)
    return found


def texts() -> pa.Table:
    """Return texts in which words follow each other by a fixed rule, most of them often."""
    rows = []
    for batch in AskRedditLike(users=1_500, seed=21, items=400, knee=60).batches():
        for user, held in database_of(pa.Table.from_batches([batch])).items():
            words = sorted(held, key=lambda word: hashlib.sha256(word.encode()).digest()[:1] + word.encode())
            rows.append({"user": user, "text": " ".join(words) + ". " + " ".join(words[:7])})
    return pa.Table.from_pylist(rows)


def record_ngrams() -> dict[str, str]:
    """Release n-grams by every setting, length by length and as one set."""
    table, found = texts(), {}
    for name, settings in NGRAMS.items():
        for number in KEYS:
            made = dpunion.release(
                table,
                user="user",
                text="text",
                unsafe_test_key=number,
                algorithm=settings,
                normalize="nfc-lower",
                **BUDGET,
            )
            found[f"n-grams, {name}, key {number}"] = digest_of(tuple(made.rows()))
    for number in KEYS:
        made = dpunion.release(table, user="user", unsafe_test_key=number, item=Words("text", lengths="1-3"), **BUDGET)
        found[f"n-grams, one set, key {number}"] = digest_of(made.items)
    return found


def record_plans() -> dict[str, object]:
    """Plan every algorithm and setting of n-grams over a grid of budgets; every number counts."""
    found: dict[str, object] = {}
    for (name, algorithm), (epsilon, delta) in itertools.product(algorithms().items(), BUDGETS):
        found[f"plan, {name}, ({epsilon:g}, {delta:g})"] = planned(
            lambda: dpunion.plan(algorithm, epsilon=epsilon, delta=delta)  # noqa: B023 - called at once
        )
    for (name, settings), (epsilon, delta) in itertools.product(NGRAMS.items(), BUDGETS):
        found[f"n-gram plan, {name}, ({epsilon:g}, {delta:g})"] = planned(
            lambda: dpunion.plan(settings, epsilon=epsilon, delta=delta, weak_budget=True)  # noqa: B023
        )
    return found


def planned(make) -> object:
    """Return every number of a plan in hexadecimal, or how it was refused."""
    try:
        values = make().to_dict()
    except dpunion.BadParameter:
        return "refused"
    return hashlib.sha256(json.dumps(exact(values), sort_keys=True).encode()).hexdigest()[:16]


def exact(value: object) -> object:
    """Return plain values with floats in hexadecimal; item_cap was always 1 and is left out."""
    if isinstance(value, dict):
        return {name: exact(one) for name, one in value.items() if name != "item_cap"}
    if isinstance(value, list):
        return [exact(one) for one in value]
    return value.hex() if isinstance(value, float) else value


def record() -> dict[str, object]:
    """Return the whole record; calibrations start afresh, not from what an earlier run remembered."""
    place = funnel._hint_path
    funnel._hint_path = lambda *_: None
    try:
        return {**record_releases(), **record_ngrams(), **record_plans()}
    finally:
        funnel._hint_path = place


if __name__ == "__main__":
    sys.stdout.write(json.dumps(record(), indent=1) + "\n")
