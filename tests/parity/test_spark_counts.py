"""Counts on Apache Spark: the numbers of one machine under one key, and nothing but noisy sums at the driver."""

import dataclasses
import functools
import os
import traceback

import numpy as np
import pyarrow as pa
import pytest

import dpunion
from dpunion.engines import Chosen
from dpunion.engines.local import engine as local_engine
from dpunion.engines.local.engine import LocalEngine
from dpunion.engines.publishing import count_holders
from dpunion.engines.spark import counting
from dpunion.plans.ngrams import Ngrams
from dpunion.randomness import RunKey
from dpunion.requests import Folder, Known, Request, Run
from spark_in_process import about_people, read_folder, watch_driver

KEY = 11
OPTIONS = {"user": "user", "item": "item", "epsilon": 3.0, "delta": 1e-3, "counts": True, "unsafe_test_key": KEY}
WEIGHTED = dpunion.WeightedGaussian(max_items_per_user=4)
CANARY = "CanarySecret"


@functools.cache
def rows():
    """Rows of some hundred people, with duplicates, in no order; some of them hold far more than others."""
    draw = np.random.default_rng(4)
    owners, items = np.minimum(draw.zipf(1.3, 6_000), 700), np.minimum(draw.zipf(1.4, 6_000), 400)
    owners[:4_000] = draw.integers(0, 700, 4_000)
    return pa.table({"user": [f"u{owner}" for owner in owners], "item": [f"word{item}" for item in items]})


@pytest.fixture(scope="module")
def frame(spark):
    return spark.createDataFrame(rows())


def same(there, here, least=15):
    """Say whether two releases agree in all that is counted, and are worth comparing."""
    assert len(here) > least
    assert len({people for *_, people, _low, _high in here.rows()}) > least // 2
    return tuple(there.rows()) == tuple(here.rows()) and (there.totals, there.header) == (here.totals, here.header)


# --- the same on both engines -----------------------------------------------------------------------------------
@pytest.mark.usefixtures("tasks_of_spark")
@pytest.mark.parametrize("algorithm", ["funnel", "policy-gaussian"])
def test_one_shard_counts_as_one_machine(frame, algorithm):
    here = dpunion.release(rows(), algorithm=algorithm, **OPTIONS)
    assert same(dpunion.release(frame, algorithm=algorithm, run=Run(shards=1), **OPTIONS), here)


@pytest.mark.usefixtures("tasks_of_spark")
@pytest.mark.parametrize("algorithm", [WEIGHTED, "dp-sips"], ids=["weighted-gaussian", "dp-sips"])
def test_neither_shards_nor_partitions_change_counts(frame, algorithm):
    here = dpunion.release(rows(), algorithm=algorithm, **OPTIONS)
    assert same(dpunion.release(frame.repartition(5), algorithm=algorithm, run=Run(shards=3), **OPTIONS), here)


@pytest.mark.usefixtures("tasks_of_spark")
def test_what_several_shards_release_is_counted_as_one_machine_would(frame):
    """In several shards Funnel releases another list; its numbers are those that one machine gives for that list."""
    there = dpunion.release(frame, run=Run(shards=3), sort="item", **OPTIONS)
    request = Request.of(rows(), user="user", item="item")
    plan, key, engine = there.plan, RunKey.for_tests(KEY), LocalEngine.for_run(Run(), None)
    with engine.read(request, plan, key, lambda: None) as held:
        counted = count_holders(engine, held, Chosen(items=there.items), request, plan, key)
    assert len(there) > 15
    assert [one.values for one in there.numbers] == [counted.people, counted.low, counted.high]
    assert there.totals == counted.totals


@pytest.mark.usefixtures("tasks_of_spark")
@pytest.mark.parametrize("include", [True, False])
def test_known_lists_are_counted_as_on_one_machine(frame, include):
    known = Known(["word1", "word3", "word399", "nobody"], include=include)
    here = dpunion.release(rows(), known=known, **OPTIONS)
    assert {"word1", "nobody"} <= set(here.items) or not include
    assert same(dpunion.release(frame, known=known, run=Run(shards=1), **OPTIONS), here)


def test_keys_of_several_columns(spark):
    draw = np.random.default_rng(8)
    places = [["north", "so/uth", None, "a=b", "x\\y"][place] for place in draw.integers(0, 5, 2_000)]
    users, years = [f"u{user}" for user in draw.integers(0, 300, 2_000)], pa.array(draw.integers(2020, 2024, 2_000))
    table = pa.table({"user": users, "a.place": places, "year": years})
    options = OPTIONS | {"item": ["a.place", "year"], "algorithm": WEIGHTED}
    assert same(dpunion.release(spark.createDataFrame(table), **options), dpunion.release(table, **options), least=10)


def texts():
    """Some texts of each of a few hundred people."""
    draw = np.random.default_rng(2)
    bodies = [" ".join(f"w{min(word, 60)}" for word in draw.zipf(1.5, 9)) for _ in range(1_200)]
    return pa.table({"user": [f"u{user}" for user in draw.integers(0, 400, 1_200)], "body": bodies})


def test_words_of_texts_are_counted_as_on_one_machine(spark):
    options = OPTIONS | {"item": None, "text": "body", "run": Run()}
    here = dpunion.release(texts(), **options)
    assert same(dpunion.release(spark.createDataFrame(texts()), **options | {"run": Run(shards=1)}), here)


def test_ngrams_of_texts_are_counted_as_on_one_machine(spark, tmp_path):
    options = OPTIONS | {"item": None, "text": "body", "algorithm": Ngrams(longest=3, first=WEIGHTED, later=WEIGHTED)}
    here = dpunion.release(texts(), **options)
    assert all(one.released > 5 for one in here.results)
    frame = spark.createDataFrame(texts()).repartition(3)
    assert same(dpunion.release(frame, **options), here)
    stored = dpunion.release(frame, out=Folder(tmp_path / "a"), **options)
    assert written_rows(tmp_path / "a") == (["item", "length", "people", "low", "high"], list(here.rows()))
    assert (stored.totals, stored.results) == (here.totals, here.results)


def test_no_rows_are_counted_too(frame):
    empty = dpunion.release(frame.filter("false"), **OPTIONS)
    assert empty.items == ()
    assert empty.totals == dpunion.release(rows().slice(0, 0), **OPTIONS).totals


# --- the folder -------------------------------------------------------------------------------------------------
def written_rows(folder):
    table = read_folder(folder)
    return table.column_names, [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize("sort", ["people", "item"])
def test_the_folder_holds_items_and_numbers_in_their_order(frame, tmp_path, monkeypatch, sort):
    monkeypatch.setattr("dpunion.engines.spark.rounds.ROWS_PER_FILE", 7)
    options = OPTIONS | {"known": Known(["word1", "nobody"], include=True), "algorithm": WEIGHTED, "sort": sort}
    here = dpunion.release(rows(), **options)
    stored = dpunion.release(frame, out=Folder(tmp_path / "a"), **options)
    assert written_rows(tmp_path / "a") == (["item", "people", "low", "high"], list(here.rows()))
    assert stored.totals == here.totals
    assert stored.stored == str(tmp_path / "a")
    with pytest.raises(dpunion.BadParameter, match="folder"):
        list(stored.rows())


# --- what is read, and what comes to the driver -----------------------------------------------------------------
@pytest.mark.parametrize("algorithm", [WEIGHTED, "funnel"], ids=["shares", "rounds"])
def test_rows_are_read_once(frame, tmp_path, algorithm):
    path = str(tmp_path / "read")

    def noted(batches):
        with open(path, "ab") as file:
            for batch in batches:
                file.write(b"x" * batch.num_rows)
                yield batch

    dpunion.release(frame.mapInArrow(noted, "user string, item string"), algorithm=algorithm, **OPTIONS)
    assert os.path.getsize(path) == rows().num_rows


def test_only_noisy_sums_come_to_the_driver_and_no_cache_stays(spark, frame, monkeypatch):
    brought, noisy, add_noise = watch_driver(frame, monkeypatch), [], counting.add_noise
    release = dpunion.release(frame, algorithm=WEIGHTED, **OPTIONS)
    monkeypatch.setattr(
        "dpunion.counting.steps.add_noise", lambda *given: noisy.append((given[0], add_noise(*given))) or noisy[-1][1]
    )
    dpunion.release(rows(), algorithm=WEIGHTED, **OPTIONS)
    empty, items, *sums = about_people(brought)
    assert empty.num_rows == 0
    assert sorted(item.decode() for item in items.column(0).to_pylist()) == sorted(release.items)
    assert [table.column_names for table in sums] == [["place", "units"]] * 3
    for table, (exact, with_noise) in zip(sums, noisy, strict=True):
        assert counting.order_by_place(table, len(exact)).tolist() == with_noise.tolist()
        assert np.mean(with_noise == exact) < 0.05, "what came is not what people gave"
    assert not spark.sparkContext._jsc.getPersistentRDDs()


def test_errors_of_counting_tell_nothing(spark, frame, monkeypatch):
    canary = CANARY

    def quoting(batches, _key):
        raise ValueError(f"{canary} {next(batches).to_pylist()}")

    monkeypatch.setattr("dpunion.engines.spark.engine.FindItems", lambda *_: quoting)
    with pytest.raises(dpunion.BadSource, match="failed with ValueError") as caught:
        dpunion.release(frame, algorithm=WEIGHTED, **OPTIONS)
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is caught.value.__cause__ is None
    assert not spark.sparkContext._jsc.getPersistentRDDs()


def test_sums_of_another_sensitivity_end_the_run(frame, monkeypatch):
    add_up = counting.AddUp

    def louder(task):
        def run(batches):
            for batch in task(batches):
                yield batch.set_column(2, "sensitivity", pa.array([2.0] * batch.num_rows))

        return run

    monkeypatch.setattr(counting, "AddUp", lambda *given: louder(add_up(*given)))
    with pytest.raises(dpunion.BadSource, match="SensitivityMismatch"):
        dpunion.release(frame, algorithm=WEIGHTED, **OPTIONS)


def test_one_machine_bounds_as_spark_does():
    """What is selected from is the same: tightened sets are those of a release without counts."""
    key, plan = RunKey.for_tests(KEY), dpunion.plan(WEIGHTED, epsilon=3.0, delta=1e-3, counts=True)
    request = Request.of(rows(), user="user", item="item", known=["word1"])
    engine = LocalEngine.for_run(Run(), None)
    with engine.read(request, plan, key, lambda: None) as held:
        tightened = local_engine.tighten_sets(held.whole, request, plan, key)
    with engine.read(request, dataclasses.replace(plan, counts=None), key, lambda: None) as plain:
        assert np.diff(plain.whole.offsets).tolist() == np.diff(tightened.offsets).tolist()
