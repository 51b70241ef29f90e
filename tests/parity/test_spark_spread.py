"""How far work is spread in a session as Spark makes it: few tasks for small data, whatever the session's settings."""

import contextlib
import itertools

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpunion
from dpunion.engines.spark import rounds, sessions
from dpunion.engines.spark.sessions import Spread
from dpunion.engines.spark.sources import open_frame, session_of
from dpunion.requests import Run, SparkSource
from opening import make_request
from spark_in_process import in_many_tasks

BUDGET = {"user": "user", "item": "item", "epsilon": 2.0, "delta": 1e-3, "unsafe_test_key": 3}
ROWS = [(f"user{number % 900}", f"item{number * number % 97}") for number in range(6_000)]
jobs = itertools.count()


@pytest.fixture(params=["true", "false"], ids=["adaptive", "not adaptive"])
def usual(spark, request):
    """The session with the number of partitions that Spark has by default."""
    with (
        sessions.change_setting(spark.conf, "spark.sql.shuffle.partitions", "200"),
        sessions.change_setting(spark.conf, "spark.sql.adaptive.enabled", request.param),
    ):
        yield spark


@contextlib.contextmanager
def counted(session):
    """Give a dictionary that has, afterwards, how many stages and tasks ran."""
    group, found, context = f"group {next(jobs)}", {}, session.sparkContext
    before = context.getLocalProperty("spark.jobGroup.id") or ""
    context.setJobGroup(group, group)
    yield found
    context.setJobGroup(before, before)
    tracker = context.statusTracker()
    stages = {stage for job in tracker.getJobIdsForGroup(group) for stage in tracker.getJobInfo(job).stageIds}
    done = [info.numCompletedTasks for info in map(tracker.getStageInfo, stages) if info and info.numCompletedTasks]
    found |= {"stages": len(done), "tasks": sum(done), "widest": max(done)}


def write_rows(folder, name, *columns):
    table = pa.table({column: [f"{column}{number}" for number in range(3_000)] for column in columns})
    pq.write_table(table, folder / f"{name}.parquet")


# --- numbers of partitions --------------------------------------------------------------------------------------
def test_a_join_of_small_files_is_small(spark, tmp_path):
    """Spark takes the size of a join for the product of its sides."""
    write_rows(tmp_path, "a", "user", "place")
    write_rows(tmp_path, "b", "place", "item")
    one, other = (spark.read.parquet(f"{tmp_path}/{name}.parquet") for name in "ab")
    joined = one.join(other, "place").select("user", "item")
    plan = sessions.explain_costs(joined)
    assert "Join" in plan
    assert "MiB" in plan.splitlines()[1], "the product"
    size, is_known = sessions.estimate_size(plan)
    assert is_known
    assert size < 1 << 20
    assert Spread.of(joined).rows == 1


def test_a_frame_of_an_rdd_keeps_at_least_its_number_of_partitions(spark):
    with counted(spark) as ran:
        few, many = (
            spark.createDataFrame(spark.sparkContext.parallelize(ROWS, n), "u string, i string") for n in (2, 31)
        )
        assert not sessions.estimate_size(sessions.explain_costs(few.select("u")))[1]
        both = few.select("u").union(many.select("u")).filter("u is not null")
        found = [Spread.of(frame).rows for frame in (few, many, both)]
        spark.range(1).count()
    assert found == [4, 32, 34]
    assert ran["stages"] <= 2, "only the last count ran"


# --- few stages and tasks ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "stages", "tasks"),
    [
        ({}, 9, 30),
        ({"counts": True}, 16, 55),
        ({"algorithm": "weighted-gaussian"}, 5, 16),
        ({"algorithm": "weighted-gaussian", "counts": True}, 16, 55),
    ],
    ids=["funnel", "funnel with counts", "weighted", "weighted with counts"],
)
def test_small_data_takes_few_stages_and_tasks(usual, options, stages, tasks):
    frame = usual.createDataFrame(ROWS, "user string, item string")
    with counted(usual) as ran:
        made = dpunion.release(frame, **BUDGET, **options)
    assert len(made) > 5
    assert ran["stages"] <= stages, ran
    assert ran["tasks"] <= tasks, ran


def test_files_named_by_the_user_take_few_tasks(usual, tmp_path):
    """Also to see that they are complete, and of one kind."""
    for number in range(3):
        write_rows(tmp_path, number, "user", "item")
        lines = (f'{{"user": "u{one}", "item": "x"}}\n' for one in range(50))
        (tmp_path / f"{number}.jsonl").write_text("".join(lines))
    for suffix in ("parquet", "jsonl"):
        source = SparkSource((f"{tmp_path}/*.{suffix}",))
        with counted(usual) as ran:
            _, check_rows = open_frame(make_request(source, "user", "item"), session_of(source))
            check_rows()
        assert ran["tasks"] <= 12, (suffix, ran)
    assert usual.conf.get("spark.sql.shuffle.partitions") == "200"


@pytest.mark.parametrize("algorithm", ["funnel", "policy-gaussian"])
def test_a_round_shuffles_twice(usual, monkeypatch, algorithm):
    """Three stages, of which each but the last ends in a shuffle, and one or two that read what is cached."""
    in_many_tasks(monkeypatch)
    ran_in_rounds, real = [], rounds.materialize

    def materialize(frame):
        with counted(usual) as ran:
            real(frame)
        ran_in_rounds.append(ran)

    monkeypatch.setattr(rounds, "materialize", materialize)
    frame = usual.createDataFrame(ROWS, "user string, item string")
    with counted(usual) as ran:
        made = dpunion.release(frame, algorithm=algorithm, run=Run(shards=3), **BUDGET)
    assert len(made) > 5
    assert len(ran_in_rounds) == {"funnel": 8, "policy-gaussian": 1}[algorithm]
    for one in [*ran_in_rounds, ran]:
        assert one["widest"] <= 12, "no stage has the 200 tasks of the session"
    for one in ran_in_rounds:
        assert one["stages"] <= 5, one
