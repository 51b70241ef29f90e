"""Candidates on Apache Spark: the items of one machine under one key, also those that nobody has."""

import functools

import numpy as np
import pyarrow as pa
import pytest

import dpunion
from dpunion.errors import BadParameter
from dpunion.requests import Candidates, Folder, Known, Run

pytestmark = pytest.mark.full
OPTIONS = {"user": "user", "item": "item", "epsilon": 3.0, "delta": 1e-3, "unsafe_test_key": 11}
NOBODY_HAS = 3_000
LISTED = [f"word{item}" for item in range(1, 200)] + [f"nobody{item}" for item in range(NOBODY_HAS)]


@functools.cache
def rows():
    draw = np.random.default_rng(4)
    owners, items = draw.integers(0, 700, 6_000), np.minimum(draw.zipf(1.4, 6_000), 400)
    return pa.table({"user": [f"u{owner}" for owner in owners], "item": [f"word{item}" for item in items]})


@pytest.fixture(scope="module")
def frame(spark):
    return spark.createDataFrame(rows())


@pytest.mark.usefixtures("tasks_of_spark")
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"max_items_per_user": 3},
        {"algorithm": "weighted-gaussian"},
        {"algorithm": "count-laplace", "max_items_per_user": 5},
        {"counts": True},
        {"known": Known(["word1", "word2", "nobody1"], include=True)},
    ],
    ids=["look", "three items", "weighted", "count", "counts", "known"],
)
def test_one_shard_releases_what_one_machine_does(frame, more):
    """With a bound of three, people have many listed items that nobody keeps: these are tossed like the others."""
    asked = OPTIONS | {"candidates": Candidates(LISTED, error=0.01)} | more
    here = dpunion.release(rows(), **asked)
    there = dpunion.release(frame, run=Run(shards=1), **asked)
    nobody = sum(item.startswith("nobody") for item in here.items)
    assert NOBODY_HAS * 0.01 / 2 < nobody < NOBODY_HAS * 0.01 * 2
    assert tuple(there.rows()) == tuple(here.rows())
    assert there.header[1] == "listed"


@pytest.mark.usefixtures("tasks_of_spark")
def test_items_that_nobody_has_come_out_whatever_the_shards(frame):
    asked = OPTIONS | {"candidates": Candidates(LISTED, error=0.01)}
    made = [dpunion.release(frame, run=Run(shards=shards), **asked) for shards in (1, 3)]
    one, three = ({item for item in each.items if item.startswith("nobody")} for each in made)
    assert one == three != set()


def test_a_folder_has_the_column_of_candidates(spark, frame, tmp_path):
    made = dpunion.release(frame, out=Folder(tmp_path / "out"), run=Run(shards=1), candidates=LISTED, **OPTIONS)
    stored = spark.read.parquet(made.stored).toArrow()
    assert stored.column_names == ["item", "listed"]
    assert {True, False} >= set(stored.column("listed").to_pylist()) > set()


def test_what_spark_cannot_do_is_refused(frame, monkeypatch):
    with pytest.raises(BadParameter, match="policy-gaussian cannot use a list of candidates on Spark"):
        dpunion.release(frame, algorithm="policy-gaussian", candidates=LISTED, **OPTIONS)
    monkeypatch.setattr("dpunion.engines.spark.engine.MOST_CANDIDATES", 10)
    with pytest.raises(BadParameter, match="at most 10 items"):
        dpunion.release(frame, candidates=LISTED, **OPTIONS)
