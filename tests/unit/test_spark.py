"""The Spark engine's small parts, without Spark: errors, options, Java, what shards get."""

import base64
import json
import math
import os
import pickle
import re
import sys
import traceback
import types
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpunion
from dpunion import errors
from dpunion.algorithms import Norm, Sensitivity
from dpunion.cli import options
from dpunion.cli.release import run_with_progress
from dpunion.engines.spark import sessions, sources, tasks, wire
from dpunion.engines.spark.engine import DEFAULT_SHARDS, MOST_SHARDS, SparkEngine, check_shards
from dpunion.engines.spark.sessions import LARGEST_CLOSURE, MARK, call_spark, prepare_session
from dpunion.mechanisms import Weights, mechanism_for
from dpunion.randomness import Purpose, RunKey
from dpunion.reading import ValueKind
from dpunion.reading.databases import QueryMixesPeople
from dpunion.requests import Candidates, Folder, Request, Run, SparkSource, is_on_spark

SECRET = "CanarySecret"
PEOPLE = {f"u{u}": ["x", "y"] for u in range(50)}


# --- errors -------------------------------------------------------------------------------------------------
def failing(error):
    def task(_batches):
        yield pa.record_batch({"a": [1]})
        raise error

    return task


def caught_in_worker(error):
    """Return what leaves a worker when its task raises, after a first batch."""
    run = sessions.guard_task(failing(error))(iter([]))
    assert next(run).num_rows == 1
    with pytest.raises(RuntimeError) as caught:
        list(run)
    return caught.value


@pytest.mark.parametrize("error", [ValueError(SECRET), KeyError(SECRET), OSError(2, SECRET)])
def test_a_worker_tells_only_the_type_of_an_error(error):
    failure = caught_in_worker(error)
    assert str(failure) == f"a task of dpunion failed with {type(error).__name__}"
    assert failure.__context__ is failure.__cause__ is None
    assert SECRET not in "".join(traceback.format_exception(failure))


def test_an_error_of_ours_comes_back_as_it_was():
    failure = caught_in_worker(errors.NullUsers("Some rows have no user.", "Drop them."))
    assert failure.__context__ is None
    with pytest.raises(errors.NullUsers) as caught:
        call_spark(lambda: raise_(RuntimeError(f"Job aborted ... {failure} at org.apache.spark")))
    assert (caught.value.what, caught.value.remedy) == ("Some rows have no user.", "Drop them.")
    assert caught.value.__context__ is caught.value.__cause__ is None


def raise_(error):
    raise error


def marked(*given):
    return RuntimeError(MARK + base64.b64encode(json.dumps(given).encode()).decode())


@pytest.mark.parametrize("kind", ["RunKey", "Any", "base64", "nothing", "DpunionError"])
def test_only_errors_of_ours_are_made_of_what_workers_say(kind):
    with pytest.raises(errors.DpunionError) as caught:
        call_spark(lambda: raise_(marked(kind, "What.", "Remedy.")))
    assert caught.value.what == "What."


def test_what_spark_says_is_dropped_with_its_causes():
    class SparkError(Exception):
        def getCondition(self):
            return "CAST_INVALID_INPUT"

    def convert():
        try:
            int(SECRET)
        except ValueError as inner:
            raise SparkError(f"[CAST_INVALID_INPUT] the value '{SECRET}'") from inner

    with pytest.raises(errors.BadSource) as caught:
        call_spark(convert)
    assert "CAST_INVALID_INPUT" in caught.value.what
    assert caught.value.__context__ is caught.value.__cause__ is None
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_other_failures_are_told_by_their_kind():
    with pytest.raises(errors.CannotWrite, match="exists already"):
        call_spark(lambda: raise_(RuntimeError(f"[PATH_ALREADY_EXISTS] {SECRET}")))
    with pytest.raises(errors.UnsupportedType, match="different types") as caught:
        call_spark(lambda: raise_(RuntimeError(f"[CANNOT_MERGE_SCHEMAS] Failed merging schemas: {SECRET}")))
    assert SECRET not in str(caught.value)
    with pytest.raises(errors.BadSource, match="failed with ZeroDivisionError"):
        call_spark(lambda: raise_(RuntimeError(str(caught_in_worker(ZeroDivisionError())))))
    with pytest.raises(errors.BadSource, match="stopped with OSError"):
        call_spark(lambda: raise_(OSError(SECRET)))
    assert call_spark(lambda: 3) == 3


WORKER_LOG = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "serializers.py", line 173, in _read_with_length
    return self.loads(obj)
ModuleNotFoundError: No module named '{}'
"""


@pytest.mark.parametrize(("module", "is_ours"), [("dpunion", True), ("dpunion.engines", True), ("dpunion_x", False)])
def test_workers_without_dpunion_are_told_as_that(module, is_ours):
    with pytest.raises(errors.BadSource) as caught:
        call_spark(lambda: raise_(RuntimeError(WORKER_LOG.format(module))))
    assert caught.value.what.startswith("dpunion is not installed in the workers' Python") == is_ours
    assert (f"PYSPARK_PYTHON={sys.executable}" in caught.value.remedy) == is_ours


# --- the workers' Python and the spread of work -----------------------------------------------------------------
HERE = {"processor": "x86_64", "python": "/usr/bin/python3", "dpunion": dpunion.__version__, "numpy": np.__version__}
LACKING = {"processor": "x86_64", "python": "/other/python3"}


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([HERE, HERE | {"dpunion": "0.0.1"}], "A worker of Spark has dpunion 0.0.1"),
        ([HERE, HERE | {"numpy": "1.0"}], "A worker of Spark has numpy 1.0"),
        ([HERE, LACKING | {"lacks": "numba"}], "numba is not installed in the workers' Python [(]/other/python3[)]"),
        ([HERE, LACKING | {"lacks": "numpy", "why": "ImportError"}], "numpy cannot be imported [(]ImportError[)] by"),
        ([HERE, HERE | {"processor": "arm64"}], "different processors [(]arm64, x86_64[)]"),
    ],
)
def test_workers_that_cannot_run_this_dpunion_are_refused(monkeypatch, answers, words):
    monkeypatch.setattr(sessions, "ask_workers", lambda _: answers)
    with pytest.raises(errors.BadSource, match=words) as caught:
        sessions.check_workers(None)
    assert caught.value.remedy


def test_dpunion_is_sent_to_workers_that_lack_it_alone(monkeypatch):
    sent, answers = [], iter([[HERE | {"lacks": "dpunion"}], [HERE]])
    monkeypatch.setattr(sessions, "ask_workers", lambda _: next(answers))
    monkeypatch.setattr(sessions, "send_package", sent.append)
    sessions.check_workers("session")
    assert sent == ["session"]


def test_a_session_that_takes_no_files_gets_the_remedy(monkeypatch):
    def refuse(_session):
        raise errors.BadSource("Spark stopped with Forbidden; no release was made.", "Ask.")

    monkeypatch.setattr(sessions, "ask_workers", lambda _: [LACKING | {"lacks": "dpunion"}])
    monkeypatch.setattr(sessions, "send_package", refuse)
    with pytest.raises(errors.BadSource, match="dpunion is not installed in the workers' Python") as caught:
        sessions.check_workers("session")
    for words in ("PYSPARK_PYTHON=", "spark.archives=", "spark.pyspark.python=./environment/bin/python", "--conf"):
        assert words in caught.value.remedy


class Builder:
    """As far as open_session builds a session; its result is what was set."""

    def __init__(self):
        self.settings = {}

    def config(self, **given):
        self.settings |= given["map"]
        return self

    appName = master = lambda self, _name: self
    getOrCreate = lambda self: self.settings  # noqa: E731


@pytest.mark.parametrize(
    ("before", "settings", "python"),
    [
        (None, {}, sys.executable),
        ("/a/python", {}, "/a/python"),
        (None, {"spark.pyspark.python": "./environment/bin/python"}, "./environment/bin/python"),
        ("/a/python", {"spark.pyspark.python": "./environment/bin/python"}, "./environment/bin/python"),
    ],
)
def test_workers_run_the_python_that_the_settings_name(monkeypatch, before, settings, python):
    session = pytest.importorskip("pyspark.sql").SparkSession
    monkeypatch.setattr(sessions, "find_java", lambda: "java")
    monkeypatch.setattr(session, "getActiveSession", lambda: None)
    monkeypatch.setattr(session, "_instantiatedSession", None)
    monkeypatch.setattr(session, "builder", Builder())
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "kept")
    monkeypatch.setenv("PYSPARK_PYTHON", before or "")
    if before is None:
        monkeypatch.delenv("PYSPARK_PYTHON")
    assert settings.items() <= sessions.open_session("yarn", settings).items()
    assert os.environ["PYSPARK_PYTHON"] == python


@pytest.mark.parametrize("version", ["3.5.1", "4.0.0", "4.0.1.dev3"])
def test_an_old_spark_is_refused_before_it_does_anything(version):
    frame = types.SimpleNamespace(sparkSession=types.SimpleNamespace(version=version))
    with pytest.raises(errors.BadParameter, match=r"needs Spark 4\.1 or newer, and this session is Spark") as caught:
        sources.session_of(frame)
    assert "Use a cluster" in caught.value.remedy
    for newer in ("4.1.0", "4.10.0-SNAPSHOT", "5.0.0"):
        frame.sparkSession.version = newer
        assert sources.session_of(frame) is frame.sparkSession


@pytest.mark.parametrize(
    ("settings", "room"),
    [
        ({}, 96 << 20),
        ({"spark.executor.memoryOverhead": "12g"}, 1 << 30),
        ({"spark.executor.memoryOverhead": "4096", "spark.executor.cores": "4"}, 256 << 20),
        ({"spark.executor.pyspark.memory": "2g", "spark.executor.cores": "2"}, 256 << 20),
        ({"spark.executor.memoryOverhead": "nonsense"}, 96 << 20),
    ],
)
def test_the_room_of_a_task_is_a_quarter_of_its_memory_outside_java(settings, room):
    session = types.SimpleNamespace(conf={"spark.master": "yarn", **settings})
    assert sessions.python_room(session) == room


def test_small_data_takes_few_tasks_and_large_data_many():
    spread = sessions.Spread(cores=8, rows=1, room=1 << 20)
    assert [spread.width(load) for load in (0, 1, 2, 3, 100)] == [1, 4, 8, 8, 100]


class Estimated:
    """A frame, as far as its size is asked for; plan: what Spark tells of it."""

    def __init__(self, plan, *files, cores=8):
        context = types.SimpleNamespace(defaultParallelism=cores)
        self.sparkSession = types.SimpleNamespace(conf={"spark.master": "yarn"}, sparkContext=context)
        self._explain_string = lambda mode: f"== Optimized Logical Plan ==\n{plan}\n== Physical Plan ==\nScan"
        self.inputFiles = lambda: list(files)


def a_scan(size, *files, **more):
    return Estimated(f"Relation [a#1] parquet, Statistics(sizeInBytes={size}, rowCount=7)\n", *files, **more)


@pytest.mark.parametrize(
    ("frame", "rows"),
    [
        (a_scan("1000.0 B", "a.parquet"), 1),
        (a_scan("20.0 MiB", "a.jsonl"), 5),
        (a_scan("20.0 MiB", "a.snappy.parquet"), 8),
        (a_scan("320.0 MiB", "a.jsonl"), 16),
        (a_scan("320.0 MiB", "a.jsonl", "b.jsonl.gz"), 40),
        (a_scan("1024.0 TiB", "a.parquet"), 20_000),
        (a_scan("1024.0 TiB", "a.parquet", cores=3_000), 20_000),
        (a_scan("8.0 EiB"), 16),
        (Estimated("Something new"), 16),
    ],
)
def test_rows_are_spread_by_their_size_when_read_and_in_whole_turns_of_the_cores(frame, rows):
    assert sessions.Spread.of(frame).rows == rows


# A join of 2 MiB and 1 MiB, whose size Spark takes for the product.
JOIN = """Project [a#1, d#8L], Statistics(sizeInBytes={product})
+- Join Inner, (a#1 = a#4), Statistics(sizeInBytes={product})
   :- Project [a#1], Statistics(sizeInBytes=512.0 KiB)
   :  +- Filter (isnotnull(a#1) AND NOT (a#1 = , Statistics(sizeInBytes=9.9 GiB))), Statistics(sizeInBytes=2.0 MiB)
   :     +- Relation [a#1,b#2,c#3L] parquet, Statistics(sizeInBytes=2.0 MiB)
   +- Project [a#4, c#6L AS d#8L], Statistics(sizeInBytes={other})
      +- {leaf}, Statistics(sizeInBytes={other}){below}
"""
FILE = "Relation [a#4,b#5,c#6L] parquet"
CACHED = {
    "leaf": "InMemoryRelation [a#4, b#5], StorageLevel(disk, memory, deserialized, 1 replicas)",
    "below": "\n            +- *(1) ColumnarToRow\n               +- FileScan parquet [a#4], Format: Parquet",
}


@pytest.mark.parametrize(
    ("changes", "size", "is_known"),
    [
        ({}, 3 << 20, True),
        ({"product": "1.00E+30 B"}, 3 << 20, True),
        ({"product": "1024.0 KiB"}, 1 << 20, True),
        ({"leaf": "LogicalRDD [a#4], false", "other": "8.0 EiB", "product": "7.0 B"}, 2 << 20, False),
        (CACHED, 3 << 20, True),
    ],
)
def test_a_join_counts_as_what_it_reads_and_not_as_the_product(changes, size, is_known):
    plan = JOIN.format(**{"product": "2.0 TiB", "leaf": FILE, "other": "1024.0 KiB", "below": ""} | changes)
    assert sessions.estimate_size(plan) == (size, is_known)


@pytest.mark.parametrize(("master", "is_local"), [("local", True), ("local[2]", True), ("local-cluster[2,1,1]", False)])
def test_only_a_master_in_this_process_is_local(master, is_local):
    assert sessions.is_local(master) == is_local


# --- the key ------------------------------------------------------------------------------------------------
def test_the_key_travels_in_a_closure_and_shows_nowhere():
    key = RunKey.for_tests(1)
    secret = tasks.Secret.of(key)
    task = tasks.WeighRows(None, None, secret)
    assert key._secret in pickle.dumps(secret), "a worker needs it"
    for text in (repr(secret), str(secret), f"{task}", repr(sessions.guard_task(task))):
        assert key._secret.hex() not in text
        assert repr(key._secret)[2:-1] not in text
    digests = np.arange(6, dtype=np.uint64).reshape(-1, 2)
    here, there = (one.words(Purpose.COIN, 0, digests) for one in (key, pickle.loads(pickle.dumps(secret)).key))
    assert np.array_equal(here, there)
    assert tasks.Secret.of(RunKey.fresh()).key.is_test is False
    assert secret.key.is_test is True


class Settings(dict):
    """The settings of a running Spark context, which its Java has."""

    set = dict.__setitem__


@pytest.mark.parametrize("before", [{}, {LARGEST_CLOSURE: "5m"}])
def test_the_limit_above_which_closures_are_written_to_files_is_raised_for_a_while(before):
    settings = Settings(before)
    java = types.SimpleNamespace(sc=lambda: types.SimpleNamespace(conf=lambda: settings))
    session = types.SimpleNamespace(sparkContext=types.SimpleNamespace(_jsc=java))
    with pytest.raises(ZeroDivisionError), prepare_session(session):
        assert settings[LARGEST_CLOSURE] == "1g"
        raise ZeroDivisionError
    assert settings[LARGEST_CLOSURE] == before.get(LARGEST_CLOSURE, "1m")


@pytest.mark.parametrize("first_to_end", [0, 1])
def test_releases_at_once_share_changed_settings_and_the_last_puts_them_back(monkeypatch, first_to_end):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    settings = Settings()
    java = types.SimpleNamespace(sc=lambda: types.SimpleNamespace(conf=lambda: settings))
    context = types.SimpleNamespace(_jsc=java, master="local[2]", pythonExec="python3")
    session = types.SimpleNamespace(sparkContext=context, conf={})
    releases = [prepare_session(session) for _ in range(2)]
    for release in releases:
        release.__enter__()
    releases.pop(first_to_end).__exit__(None, None, None)
    assert (settings[LARGEST_CLOSURE], context.pythonExec) == ("1g", sys.executable)
    releases.pop().__exit__(None, None, None)
    assert (settings[LARGEST_CLOSURE], context.pythonExec) == ("1m", "python3")
    assert not sessions.CHANGED


@pytest.mark.parametrize("first_to_end", [0, 1])
def test_releases_at_once_share_settings_that_are_another_object_each_time(first_to_end):
    """As `session.conf` is on Spark Connect."""
    values, session = {"a": "200"}, object()

    def own():
        return types.SimpleNamespace(get=values.get, set=values.__setitem__)

    changes = [sessions.change_setting(own(), "a", "1", owner=session) for _ in range(2)]
    for change in changes:
        change.__enter__()
    changes.pop(first_to_end).__exit__(None, None, None)
    assert values["a"] == "1"
    changes.pop().__exit__(None, None, None)
    assert values["a"] == "200"


def test_a_setting_that_cannot_be_put_back_hides_no_error():
    """Java has ended, for example by the signal that interrupts this run."""

    def fail(*_):
        raise ConnectionRefusedError

    settings = types.SimpleNamespace(get=lambda _: "a", set=lambda *_: None)
    with pytest.raises(KeyboardInterrupt), sessions.change_setting(settings, "name", "b"):
        settings.set = fail
        raise KeyboardInterrupt
    assert not sessions.CHANGED


def test_pyspark_is_mute_until_the_last_of_several_calls_ends():
    logger = pytest.importorskip("pyspark.logger").PySparkLogger.getLogger(sessions.LOGGERS[0])
    assert not logger.disabled
    one, other = sessions._mute_pyspark(), sessions._mute_pyspark()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert logger.disabled
    other.__exit__(None, None, None)
    assert not logger.disabled


def test_the_folders_of_a_table_are_found_above_its_files():
    files = ["file:///t/delta/day=1/hour=2/0.parquet", "file:///t/ice%20berg/data/a=1/0.parquet", "s3a://b/x/0.parquet"]
    found = sources.table_folders(files)
    assert found == ["file:///t/delta", "file:///t/ice berg", "file:///t/ice berg/data", "s3a://b/x"]


@pytest.mark.parametrize(
    ("master", "settings", "python"),
    [
        ("yarn", {}, "python3"),
        ("yarn", {"spark.pyspark.python": "./environment/bin/python"}, "./environment/bin/python"),
        ("local[2]", {"spark.pyspark.python": "/a/python"}, "/a/python"),
    ],
)
def test_a_session_of_the_users_own_may_name_the_workers_python(monkeypatch, master, settings, python):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    context = types.SimpleNamespace(master=master, pythonExec="python3")
    with prepare_session(types.SimpleNamespace(sparkContext=context, conf=settings)):
        assert context.pythonExec == python
    assert context.pythonExec == "python3"


def test_a_session_without_a_context_is_left_as_it_is():
    with prepare_session(types.SimpleNamespace()) as nothing:
        assert nothing is None


# --- options ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("shards", [0, -1, 1025, 2.0, "8", True, float("nan")])
def test_shards_that_make_no_sense_are_refused(shards):
    with pytest.raises(dpunion.BadParameter, match="shards"):
        check_shards(shards)


def test_a_sum_that_does_not_fit_ends_the_run():
    """Spark makes it null; taken for a number it would be 0, or worse."""
    batch = pa.record_batch({"units": pa.array([1, None], pa.int64())})
    with pytest.raises(errors.BadSource, match="people have the same item"):
        wire.read_units(batch)
    assert wire.read_units(batch.slice(0, 1)).tolist() == [1]


def engine_options(**given):
    """Return the options of the engine as the command line gives them."""
    return options.Given(
        **{one.name: one.initial for one in options.engine} | {"force": False, "out_folder": None} | given
    )


def recorded(**given):
    return options.engine_record(engine_options(**given))


def test_the_record_beside_an_output_says_that_spark_was_used():
    used = recorded(engine="spark", master="local[2]", shards=4, spark_settings=("spark.a=b",))
    assert used == {"engine": "spark", "master": "local[2]", "shards": 4, "conf": ["spark.a=b"]}
    assert recorded() == {}
    assert recorded(threads=3) == {"threads": 3}
    assert recorded(memory_limit="2GB") == {"memory_limit": "2GB"}


def test_threads_are_for_one_machine():
    with run_with_progress(engine_options(threads=3)) as run:
        assert run.threads == 3
    with pytest.raises(dpunion.BadParameter, match="--threads is not for Spark"):
        options.check_engine(engine_options(engine="spark", threads=3))
    with (
        pytest.raises(dpunion.BadParameter, match="'threads' parameter"),
        run_with_progress(engine_options(threads=0)),
    ):
        pass


def test_the_record_holds_no_secret_settings():
    secret = [
        "spark.hadoop.fs.s3a.secret.key=x",
        "spark.hadoop.fs.s3a.access.key=x",
        "spark.hadoop.javax.jdo.Password=x",
    ]
    secret += ["spark.hadoop.fs.azure.account.key.people.dfs.core.windows.net=x", "spark.app.token=x"]
    assert recorded(engine="spark", spark_settings=(*secret, "spark.a=b"))["conf"] == ["spark.a=b"]
    assert recorded(engine="spark", spark_settings=tuple(secret))["conf"] is None


# --- what is read, by its name ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "said", "format_"),
    [
        ("a.csv", None, "csv"), ("hdfs:///x/*.CSV.gz", None, "csv"), ("a.tsv.zst", None, "tsv"),
        ("a.ndjson", None, "jsonl"), ("posts.json/", None, "jsonl"), ("a.pq", None, "parquet"),
        ("a.orc", None, "orc"), ("logs.2024", None, "parquet"), ("logs", "csv", "csv"), ("a.csv", "csv", "csv"),
        ("people.csv", "table", "table"), (".", None, "parquet"),
    ],
)  # fmt: skip
def test_the_format_is_that_of_the_suffix_or_of_the_option(name, said, format_):
    assert sources.format_of(name, said) == format_


@pytest.mark.parametrize("name", ["-", "postgresql://a:CanarySecret@h/d", "x/_hidden.csv", ".hidden", "a.arrow"])
def test_names_that_spark_does_not_read_are_refused(name):
    with pytest.raises(dpunion.DpunionError) as caught:
        sources.format_of(name, None)
    assert SECRET not in str(caught.value)


def named(*names, said=None):
    return SparkSource(names, format=said)


@pytest.mark.parametrize(
    ("names", "said", "query", "words"),
    [
        (["a.csv", "b.parquet"], None, None, "different formats"),
        (["a.orc", "b.parquet"], None, None, "different formats"),
        (["a.jsonl"], "csv", None, "by its name"),
        (["a"], "xlsx", None, "input_format"),
        (["a.csv"], None, "select * from source", "needs typed columns"),
        (["a"], None, "select transform(a) using 'tee x' as b from source", "run a program"),
        (["a"], None, "select transform(a) using /* ( */ 'tee x' from source", "run a program"),
        (["a"], None, "select `reflect`('java.lang.System', 'exit')", "run a program"),
        ([], None, None, "no source"),
    ],
)
def test_bad_names_are_refused_before_spark_starts(monkeypatch, names, said, query, words):
    monkeypatch.setattr(sources, "open_session", lambda *_: pytest.fail("Spark was started"))
    options = {"user": "u", "item": "i", "epsilon": 1.0, "delta": 1e-6, "query": query}
    with pytest.raises(dpunion.BadParameter, match=words):
        dpunion.release(named(*names, said=said), **options)


@pytest.mark.parametrize("given", [{"query": "select 1"}, {"input_format": "csv"}])
def test_a_data_frame_takes_no_query(given):
    with pytest.raises(dpunion.BadParameter, match="takes no query"):
        sources.open_frame(Request(Frame(), "user", ValueKind.ITEM, "item", **given), None)


def test_text_files_may_be_of_several_formats():
    sources.check_names(named("a.csv", "b.jsonl", "c.tsv.gz"), None)
    sources.check_names(named("a", "b.parquet"), "select a, b from source")


def test_columns_after_using_run_no_program():
    with pytest.warns(QueryMixesPeople, match="JOIN"):
        sources.check_names(named("a", "b.parquet"), "select a, b from source join c using (a)")


@pytest.mark.parametrize("bad", [{"epsilon": -1.0}, {"delta": 2.0}, {"run": Run(shards=0)}, {"algorithm": "none"}])
def test_a_bad_budget_or_option_is_refused_before_spark_starts(monkeypatch, bad):
    monkeypatch.setattr(sources, "open_session", lambda *_: pytest.fail("Spark was started"))
    options = {"user": "u", "item": "i", "epsilon": 1.0, "delta": 1e-6, **bad}
    with pytest.raises(dpunion.BadParameter):
        dpunion.release(named("a.csv"), **options)


def test_pyspark_prints_no_errors_of_queries(monkeypatch):
    printed = []
    logger = types.SimpleNamespace(disabled=False)
    logger.error = lambda text: None if logger.disabled else printed.append(text)
    module = types.SimpleNamespace(PySparkLogger=types.SimpleNamespace(getLogger=lambda _: logger))
    monkeypatch.setitem(sys.modules, "pyspark.logger", module)
    call_spark(lambda: logger.error(SECRET))
    assert printed == []
    logger.error("and is heard again")
    assert printed == ["and is heard again"]


def test_shards_have_a_default():
    assert check_shards(None) == DEFAULT_SHARDS
    assert [check_shards(number) for number in (1, 8, 1024)] == [1, 8, 1024]


@pytest.mark.parametrize("options", [{"run": Run(shards=2)}, {"out": Folder("folder")}])
def test_options_of_spark_are_for_spark(options):
    with pytest.raises(dpunion.BadParameter, match="Spark"):
        dpunion.release(PEOPLE, epsilon=1.0, delta=1e-3, **options)


@pytest.mark.parametrize("source", [PEOPLE, [("a", "b")], pa.table({"a": [1]}), "file.parquet", None])
def test_other_sources_are_no_frames_of_spark(source):
    assert not is_on_spark(source)


class Frame:
    columns = ("user", "item")


@pytest.mark.parametrize(("user", "value"), [(None, "item"), ("user", None), (0, "item"), ("user", 1)])
def test_a_frame_needs_names_of_columns(user, value):
    with pytest.raises(dpunion.BadParameter, match="names of its columns"):
        sources.open_frame(types.SimpleNamespace(user=user, value=value), None)


def test_missing_columns_are_left_to_the_check_that_says_which():
    frame = Frame()
    assert sources.select_columns(frame, ("user", "itme")) is frame


# --- shards -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("shards", [1, 2, 8, 64, 1024])
@pytest.mark.parametrize("highest", [0.3, 1.0, 37.2, 1e5])
def test_sums_of_all_shards_fit_and_units_are_fine(shards, highest):
    unit = tasks.unit_for(highest, shards)
    assert math.frexp(unit)[0] == 0.5, "a power of two: dividing by it is exact"
    assert shards * math.ceil(highest / unit) < 2**63
    assert unit <= highest * shards * 2.0**-60


def test_weights_are_rounded_down_to_whole_units():
    values = np.array([0.0, 0.24, 0.25, 0.99, 3.0])
    weights = Weights(values, 1.0, values >= 0.0, Sensitivity(Norm.L2, 1.0))
    assert tasks.to_units(weights, 0.25).tolist() == [0, 0, 1, 3, 12]


def test_units_cover_the_need_of_every_living_item():
    plan = dpunion.plan(dpunion.Funnel(), epsilon=3.0, delta=1e-5)
    funnel = mechanism_for(plan)
    for number in range(len(plan.rounds)):
        lowest = min([0.0, *(one.threshold for one in plan.rounds[:number])])
        need = float(funnel.targets(np.array([lowest]), number)[0])
        for shards in (1, 8, 200):
            assert shards * need / tasks.round_unit(funnel, number, shards) < 2**62


def test_so_many_shards_that_rounding_matters_are_refused(monkeypatch):
    plan = dpunion.plan(dpunion.Funnel(), epsilon=3.0, delta=1e-5)
    tasks.check_scores(plan.scale, plan.threshold, plan.algorithm, 64)
    monkeypatch.setattr(tasks, "LARGEST_SCORE_SPREAD", 0.0)
    with pytest.raises(dpunion.BadParameter, match="64 shards"):
        tasks.check_scores(plan.scale, plan.threshold, plan.algorithm, 64)


@pytest.mark.parametrize(("epsilon", "delta", "most"), [(3.0, math.exp(-10.0), 327), (1.0, 1e-5, 953)])
def test_the_largest_number_of_shards_is_that_of_the_guarantees(epsilon, delta, most):
    """docs/guarantees.md 8.1: (15.2 + 12 k S)/22.2 of what Theorem F5 allows, for 2^28 items in place of 2^31."""
    plan = dpunion.plan(dpunion.Funnel(), epsilon=epsilon, delta=delta)
    tasks.check_scores(plan.scale, plan.threshold, plan.algorithm, most)
    with pytest.raises(dpunion.BadParameter, match=f"{most + 1} shards"):
        tasks.check_scores(plan.scale, plan.threshold, plan.algorithm, most + 1)


def test_a_list_leaves_less_room_for_shards():
    """The tosses of listed items take their part of what Theorem F5 allows (docs/guarantees-funnel.md, section 11)."""
    plan = dpunion.plan(dpunion.Funnel(), epsilon=3.0, delta=math.exp(-10.0), candidates=["a"])
    request = Request.of(SparkSource("rows.parquet"), user="u", item="i", candidates=Candidates(["a"]))
    SparkEngine(Run(), 256, None).check(request, plan)
    with pytest.raises(dpunion.BadParameter, match="257 shards"):
        SparkEngine(Run(), 257, None).check(request, plan)


# --- Java ---------------------------------------------------------------------------------------------------
def fake_java(folder, version):
    """Make a java that only tells its version."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "17.0.9" 2023-10-17', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_391"', 8),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("no version here", 0),
    ],
)
def test_the_version_of_a_java_is_read(tmp_path, says, version):
    assert sessions.java_version(str(fake_java(tmp_path, says))) == version


def test_a_java_that_does_not_run_has_no_version(tmp_path):
    assert sessions.java_version(str(tmp_path / "java")) == 0
    (tmp_path / "java").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "java").chmod(0o755)
    assert sessions.java_version(str(tmp_path / "java")) == 0


@pytest.fixture
def no_java(monkeypatch, tmp_path):
    """A machine without Java and without Spark."""
    # subtle: set first, so that what find_java sets is undone too, and Spark's own tests find the real one.
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(sessions, "JAVA_FOLDERS", (str(tmp_path / "jvm"),))
    found = sessions.importlib.util.find_spec
    monkeypatch.setattr(sessions.importlib.util, "find_spec", lambda name: None if name == "pyspark" else found(name))


@pytest.mark.usefixtures("no_java")
def test_missing_java_and_missing_spark_are_told_with_a_remedy():
    with pytest.raises(dpunion.BadParameter, match="needs Java, and none was found") as caught:
        sessions.find_java()
    assert f"Java {sessions.SMALLEST_JAVA}" in caught.value.remedy
    with pytest.raises(dpunion.BadParameter, match="not installed") as caught:
        sessions.find_pyspark()
    assert "dpunion[spark]" in caught.value.remedy


@pytest.mark.usefixtures("no_java")
def test_an_old_java_is_refused_and_a_newer_one_on_the_path_is_taken(tmp_path, monkeypatch):
    old, new = fake_java(tmp_path / "old", 'version "11.0.1"'), fake_java(tmp_path / "new", 'version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(dpunion.BadParameter, match="too old"):
        sessions.find_java()
    monkeypatch.setenv("PATH", str(new.parent))
    assert sessions.find_java() == str(new)
    assert "JAVA_HOME" not in os.environ, "Spark would have run the old one"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    monkeypatch.setenv("PATH", str(old.parent))
    assert sessions.find_java() == str(new)


@pytest.mark.usefixtures("no_java")
def test_java_is_found_where_systems_put_it(tmp_path, monkeypatch):
    fake_java(tmp_path / "jvm" / "java-8", 'version "1.8.0"')
    new = fake_java(tmp_path / "jvm" / "java-21", 'version "21.0.1"')
    assert sessions.find_java() == str(new)
    assert Path(os.environ["JAVA_HOME"]) == tmp_path / "jvm" / "java-21"


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize("tool", [*sessions.INSTALL_JAVA, None])
def test_the_command_that_installs_java_is_the_systems(tmp_path, monkeypatch, tool):
    monkeypatch.setenv("PATH", str(tmp_path))
    if tool:
        (tmp_path / tool).write_text("")
        (tmp_path / tool).chmod(0o755)
    with pytest.raises(dpunion.BadParameter) as caught:
        sessions.find_java()
    assert sessions.INSTALL_JAVA.get(tool, "openjdk") in caught.value.remedy


def test_the_document_names_the_smallest_java_and_the_default_shards():
    text = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
    assert f"Java {sessions.SMALLEST_JAVA}" in text
    assert re.search(rf"{DEFAULT_SHARDS} shards", text)
    assert f"{MOST_SHARDS:,}" in text
