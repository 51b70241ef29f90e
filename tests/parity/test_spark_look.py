"""A look on Apache Spark: the choice and the release of one machine under one key."""

import numpy as np
import pyarrow as pa
import pytest

import dpunion
from dpunion.requests import Folder, Run


def rows(most):
    """Rows of two thousand people with up to so many of a few hundred items."""
    draw = np.random.default_rng(6)
    sizes = draw.integers(1, most + 1, 2_000)
    owners = np.repeat(np.arange(2_000), sizes)
    items = np.minimum(draw.zipf(1.3, len(owners)), 300)
    return pa.table({"user": [f"u{owner}" for owner in owners], "item": [f"word{item}" for item in items]})


@pytest.mark.parametrize(("most", "more"), [(3, {}), (60, {}), (60, {"counts": True, "known": ["word1", "word7"]})])
def test_a_look_on_spark_chooses_as_one_machine(spark, tmp_path, most, more):
    options = {"user": "user", "item": "item", "epsilon": 3.0, "delta": 1e-4, "unsafe_test_key": 7, **more}
    table = rows(most)
    here = dpunion.release(table, **options)
    frame = spark.createDataFrame(table).repartition(3)
    there = dpunion.release(frame, **options, run=Run(shards=1))
    assert len(here) > 10
    assert there.plan == here.plan
    assert tuple(there.rows()) == tuple(here.rows())
    if not more:
        stored = dpunion.release(frame, **options, run=Run(shards=1), out=Folder(tmp_path / "made"))
        assert spark.read.parquet(stored.stored).count() == len(here)
