"""Spark Connect gives what one machine gives. It has a process of its own: ours has a session of the other kind."""

import datetime as dt
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpunion
from dpunion.engines.spark import sessions
from dpunion.errors import BadParameter
from running import PATIENCE

pytestmark = pytest.mark.full

BUDGET = {"user": "who", "epsilon": 3.0, "delta": 1e-4, "unsafe_test_key": 7}
GRAMS = dpunion.Ngrams(longest=2, first="weighted-gaussian", later="weighted-gaussian")
CASES = {
    "weighted": {"item": "what", "algorithm": dpunion.WeightedGaussian()},
    "funnel": {"item": "what"},
    "counts": {"item": "what", "algorithm": dpunion.WeightedGaussian(), "counts": True, "sort": "item"},
    "days": {"item": dpunion.Dated(["what", "at"], "day"), "algorithm": dpunion.WeightedGaussian()},
    "n-grams": {"text": "body", "algorithm": GRAMS},
}


def make_rows():
    """Return rows of 300 people, whose items are held by few or by many."""
    numbers = range(3_000)
    start = dt.datetime.fromisoformat("2024-02-28T22:00:00+00:00")
    times = [start + dt.timedelta(minutes=number % 240) for number in numbers]
    return pa.table(
        {
            "who": [f"person {number % 300}" for number in numbers],
            "what": [f"item {number * number % 97 % (1 + number % 60)}" for number in numbers],
            "at": pa.array(times, pa.timestamp("us", "UTC")),
            "body": [f"a{number % 5} b{number % 7} a{number % 5}" for number in numbers],
        }
    )


def summary(made):
    """Return all that a release says of its items, as plain values."""
    return [list(map(str, made.items)), json.loads(made.table().to_pandas().to_json(orient="values"))]


SCRIPT = """
import json, os, sys
sys.path[:0] = sys.argv[1].split(os.pathsep)
from test_spark_connect import run_there
run_there(sys.argv[2])
"""


def run_there(folder):
    """Make the releases on Spark Connect; print them as JSON."""
    import os

    os.environ["PYSPARK_PYTHON"] = sys.executable
    sessions.find_java()
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "4").getOrCreate()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    assert type(session).__module__.startswith("pyspark.sql.connect")
    frame = session.read.parquet(f"{folder}/rows.parquet")
    found = {}
    for name, options in CASES.items():
        found[name] = summary(dpunion.release(frame, **options, **BUDGET, run=dpunion.Run(shards=1)))
    out = dpunion.Folder(f"{folder}/out")
    dpunion.release(frame, **CASES["weighted"], **BUDGET, out=out, run=dpunion.Run(shards=1))
    dpunion.release(frame, **CASES["n-grams"], **BUDGET, out=dpunion.Folder(f"{folder}/grams"))
    for source in (frame, dpunion.SparkSource(f"{folder}/rows.parquet")):
        try:
            dpunion.release(source, **CASES["weighted"], **BUDGET, out=out)
        except dpunion.DpunionError as error:
            found[type(source).__name__] = [type(error).__name__, str(error)]
    joined = frame.join(frame.select("who", "at").withColumnRenamed("at", "other"), "who")
    found["partitions"] = [sessions.Spread.of(one).rows for one in (frame, joined)]
    found["expected"] = sessions.estimate_size(sessions.explain_costs(frame))
    nobody = session.createDataFrame(pa.table({"who": ["a", None], "what": ["x", "CANARYvalue"]}))
    try:
        dpunion.release(nobody, **CASES["weighted"], **BUDGET)
    except dpunion.DpunionError as error:
        found["refusal"] = [type(error).__name__, str(error)]
    sys.stdout.write(f"\n{json.dumps(found)}\n")
    session.stop()


@pytest.fixture(scope="module")
def rows():
    return make_rows()


@pytest.fixture(scope="module")
def folder(rows, tmp_path_factory):
    place = tmp_path_factory.mktemp("connect")
    pq.write_table(rows, place / "rows.parquet", row_group_size=700)
    return place


@pytest.fixture(scope="module")
def found(folder):
    """What Spark Connect released; or a skip that says why."""
    for module in ("pyspark", "grpc", "grpc_status", "zstandard"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed: pip install 'dpunion[spark-connect]'")
    try:
        sessions.find_java()
    except BadParameter as missing:
        pytest.skip(str(missing))
    homes = os.pathsep.join(map(str, Path(__file__).parents[:2]))
    command = [sys.executable, "-c", SCRIPT, homes, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3 * PATIENCE, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "CANARYvalue" not in done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CASES)
def test_connect_gives_what_one_machine_gives(rows, found, name):
    expected = summary(dpunion.release(rows, **CASES[name], **BUDGET))
    assert found[name] == expected
    assert len(expected[0]) > 3


def test_connect_writes_a_folder(folder, found):
    assert pq.read_table(folder / "out")["item"].to_pylist() == found["weighted"][0]
    assert pq.read_table(folder / "grams")["item"].to_pylist() == found["n-grams"][0]
    assert found["DataFrame"][0] == "CannotWrite"


def test_connect_tells_how_large_a_frame_is(folder, found):
    """Small frames take one partition, also a join, whose size Spark takes for the product of its sides."""
    assert found["partitions"] == [1, 1]
    size, is_known = found["expected"]
    assert is_known
    assert size == pytest.approx((folder / "rows.parquet").stat().st_size, rel=0.01)


def test_connect_takes_frames_and_opens_no_files(found):
    assert found["SparkSource"][0] == "BadParameter"
    assert "pass the DataFrame" in found["SparkSource"][1]


def test_an_error_of_a_worker_comes_out_as_it_was_raised(found):
    kind, text = found["refusal"]
    assert kind == "NullUsers"
    assert "null or empty" in text
