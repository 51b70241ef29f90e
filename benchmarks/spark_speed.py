"""What does a private release cost on Spark? Against Spark's own count of distinct users, in the same application.

    python benchmarks/spark_speed.py                       8.6 million pairs in a default session, with nothing set
    python benchmarks/spark_speed.py --cluster             on a standalone cluster here, with two workers of one core
    python benchmarks/spark_speed.py --master local[2]     in a session that dpunion opens
    python benchmarks/spark_speed.py --large               also 77 million pairs, and how the time grows
    python benchmarks/spark_speed.py --master spark://...  on a cluster that reads --folder at the same place
    python benchmarks/spark_speed.py --shards 1 8 64       with each of these numbers of shards
    python benchmarks/spark_speed.py --first               6,000 rows: the first release and the second, and their tasks
    python benchmarks/spark_speed.py --json results.json   also write the numbers

Contenders take turns in one session, after one small release and one small query that are not timed, so that Java and
the Python workers are warm; the best of the repeats counts. Each reads the Parquet file and writes Parquet. The plain
query is groupBy(item).agg(count_distinct(user)). Memory is the peak of the resident sets while a contender runs: of
Java, and of all Python workers together (pages that workers share are counted in each).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from speed import DELTA, EPSILON
from speed_data import ready

import dpunion
from dpunion.engines.spark.sessions import find_java, open_session
from dpunion.requests import Folder, Run

PAGE = os.sysconf("SC_PAGE_SIZE")
GOALS = {"weighted-gaussian": 2.5, "funnel": 5.0}
LARGEST_GROWTH = 12.0


class Memory:
    """Watches the resident memory of the processes that this one started."""

    def __init__(self) -> None:
        self.java = self.python = 0
        self._done = threading.Event()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Keep the peaks while the body runs."""
        self.java = self.python = 0
        self._done.clear()
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.2):
            java = python = 0
            for name, size in children():
                java, python = (java + size, python) if name == "java" else (java, python + size)
            self.java, self.python = max(self.java, java), max(self.python, python)


def children() -> list[tuple[str, int]]:
    """Return name and resident bytes of every process below this one (Linux)."""
    parents, found = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            fields = rest.split()
            parents[int(folder.name)] = int(fields[1])
            found[int(folder.name)] = (name, int(fields[21]) * PAGE)
    ours = {os.getpid()}
    for _ in range(6):
        ours |= {process for process, parent in parents.items() if parent in ours}
    return [found[process] for process in ours if process != os.getpid()]


def contenders(session: Any, path: Path, out: Path, shards: int) -> dict[str, Callable[[], None]]:
    """Return what takes turns."""
    from pyspark.sql import functions as F  # noqa: N812

    frame = session.read.parquet(str(path))

    def count() -> None:
        counted = frame.groupBy("item").agg(F.count_distinct("user").alias("users"))
        counted.write.mode("overwrite").parquet(str(out))

    def release(algorithm: str, *, counts: bool = False) -> None:
        dpunion.release(
            frame,
            user="user",
            item="item",
            epsilon=float(EPSILON),
            delta=float(DELTA),
            algorithm=algorithm,
            counts=counts,
            out=Folder(out),
            run=Run(shards=shards, overwrite=True),
        )

    return {
        "count distinct": count,
        "weighted-gaussian": lambda: release("weighted-gaussian"),
        "funnel": lambda: release("funnel"),
        "weighted, counts": lambda: release("weighted-gaussian", counts=True),
        "funnel, counts": lambda: release("funnel", counts=True),
    }


def compare(session: Any, name: str, path: Path, repeats: int, shards: int) -> dict[str, Any]:
    """Let the contenders take turns and print the best of each beside the plain count."""
    memory = Memory()
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeats):
            for who, call in contenders(session, path, Path(folder) / "out", shards).items():
                began = time.perf_counter()
                with memory.watched():
                    call()
                wall = time.perf_counter() - began
                row = rows.setdefault(who, {"wall": wall, "java": 0.0, "python": 0.0})
                row["wall"] = min(row["wall"], wall)
                row["java"], row["python"] = (
                    max(row["java"], memory.java / 1e9),
                    max(row["python"], memory.python / 1e9),
                )
    print(f"\n{name}: {path.stat().st_size / 1e6:,.0f} MB")
    print(f"  {'':20}{'wall s':>9}{'x count':>9}{'goal':>7}{'Java GB':>9}{'Python GB':>11}")
    for who, row in rows.items():
        row["ratio"] = row["wall"] / rows["count distinct"]["wall"]
        goal = f"{GOALS[who]:>7.1f}" if who in GOALS else f"{'':7}"
        told = f"{row['wall']:>9.2f}{row['ratio']:>9.2f}{goal}{row['java']:>9.2f}{row['python']:>11.2f}"
        print(f"  {who:20}{told}", flush=True)
    return {"name": name, "contenders": rows}


def print_growth(small: dict[str, Any], large: dict[str, Any]) -> None:
    """Print how many times as long the large set takes as the small one."""
    print(f"\nlarge / small (9.0 times as many pairs; goal: at most {LARGEST_GROWTH:g})")
    for who, row in large["contenders"].items():
        row["growth"] = row["wall"] / small["contenders"][who]["wall"]
        print(f"  {who:20}{row['growth']:>9.2f}", flush=True)


def open_default(master: str | None, settings: dict[str, str]) -> Any:
    """Return a session as people make it: the builder's, with no setting but where to run."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    find_java()
    builder = SparkSession.builder if master is None else SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextlib.contextmanager
def opened(arguments: argparse.Namespace) -> Iterator[Any]:
    """Give the session that was asked for; stop it, and its cluster, on leaving."""
    quiet = {"spark.ui.showConsoleProgress": "false"}
    with contextlib.ExitStack() as until_left:
        if arguments.cluster:
            sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "faults"))
            from spark_cluster import LOOPBACK, running_cluster

            folder = until_left.enter_context(tempfile.TemporaryDirectory())
            cluster = until_left.enter_context(running_cluster(folder, memory="4g"))
            session = open_default(cluster.master, LOOPBACK | quiet | {"spark.executor.memory": "3g"})
        elif arguments.master is None:
            session = open_default(None, quiet)
        else:
            session = open_session(arguments.master, quiet)
        until_left.callback(session.stop)
        yield session


def measure_first(began: float, session: Any) -> None:
    """Print how long the first release of 6,000 rows takes from the start of the session, and the second."""
    rows = [(f"user{number % 900}", f"item{number * number % 997}") for number in range(6_000)]
    frame = session.createDataFrame(rows, "user string, item string")
    for which in ("first", "second"):
        start = time.perf_counter()
        session.sparkContext.setJobGroup(which, which)
        dpunion.release(frame, user="user", item="item", epsilon=float(EPSILON), delta=float(DELTA))
        tracker, tasks, stages = session.sparkContext.statusTracker(), 0, 0
        for job in tracker.getJobIdsForGroup(which):
            for stage in tracker.getJobInfo(job).stageIds:
                done = tracker.getStageInfo(stage)
                tasks, stages = (
                    tasks + (done.numCompletedTasks if done else 0),
                    stages + bool(done and done.numCompletedTasks),
                )
        now = time.perf_counter()
        print(f"  {which}: {now - start:.1f} s, {now - began:.1f} s from the start; {stages} stages, {tasks} tasks")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--shards", type=int, nargs="+", default=[8])
    parser.add_argument("--master")
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "dpunion-benchmark")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    began, results = time.perf_counter(), []
    with opened(arguments) as session:
        print(f"{machine}, Spark {session.version} on {session.conf.get('spark.master')}; {time.strftime('%Y-%m-%d')}")
        if arguments.first:
            measure_first(began, session)
            return
        warm_up(session, arguments.folder, arguments.shards[0])
        for shards in arguments.shards:
            small = ready(arguments.folder, "small")
            found = [compare(session, f"8.6M pairs, {shards} shards", small, arguments.repeats, shards)]
            if arguments.large:
                large, repeats = ready(arguments.folder, "large"), max(1, arguments.repeats - 1)
                found.append(compare(session, f"77M pairs, {shards} shards", large, repeats, shards))
                print_growth(*found)
            results += found
    if arguments.json:
        record = {"machine": machine, "date": time.strftime("%Y-%m-%d"), "results": results}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")


def warm_up(session: Any, folder: Path, shards: int) -> None:
    """Run every contender once on few rows."""
    tiny = ready(folder, "tiny")
    with tempfile.TemporaryDirectory() as out:
        for call in contenders(session, tiny, Path(out) / "out", shards).values():
            call()


if __name__ == "__main__":
    main()
