"""What does a private release cost on Spark? Against Spark's own count of distinct users, in the same application.

    python benchmarks/spark_speed.py                       8.6 and 77 million pairs, in a default session with nothing
                                                           set and on a standalone cluster with two workers of one core
    python benchmarks/spark_speed.py --on default          one of the sessions; also cluster:3g, with 3 GB for the Java
                                                           of each executor, not Spark's 1 GB; local[2], a session that
                                                           dpunion opens; and spark://..., which must read --folder too
    python benchmarks/spark_speed.py --sets small          8.6 million pairs only (large: 77 million)
    python benchmarks/spark_speed.py --shards 1 8 64       with each of these numbers of shards
    python benchmarks/spark_speed.py --who count funnel    some of the contenders
    python benchmarks/spark_speed.py --json results.json   write each time as it is measured, and measure none again
                                                           that the file has; --minutes 6: begin none after 6 minutes
    python benchmarks/spark_speed.py --first               6,000 rows: the first release and the second, and their tasks
    python benchmarks/spark_speed.py --lines 2000          2,000 MB of JSON Lines on the cluster: what each worker reads
                                                           of them, and the time; cut into parts, and as one part

Contenders take turns in one session, after one small release and one small query that are not timed, so that Java and
the Python workers are warm; the best of the repeats counts, one with 77 million pairs. Each reads the Parquet file and
writes Parquet. The plain query is groupBy(item).agg(count_distinct(user)); it has no shards. Memory is the peak of the
resident sets while a contender runs: of Java (on the cluster the driver, the master, the workers and their executors
together), and of all Python workers together (pages that workers share are counted in each). "others" says how many
cores were busy with anything else: a time is worth something if that is about 0.
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
from dpunion.requests import Folder, Run, SparkSource

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "faults"))  # its module spark_cluster starts a cluster

PAGE, TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
QUIET = {"spark.ui.showConsoleProgress": "false"}
BUDGET: dict[str, Any] = {"user": "user", "item": "item", "epsilon": float(EPSILON), "delta": float(DELTA)}
COUNT = "count"
CONTENDERS = (COUNT, "funnel", "funnel with counts", "weighted-gaussian", "weighted-gaussian with counts")
SETS = {"small": "8.6M pairs", "large": "77M pairs"}
# Times as long as the count, at most; with counts at most 1.6 times as long as without.
GOALS = {("small", "funnel"): 2.0, ("large", "funnel"): 1.0}
WITH_COUNTS = 1.6


class Watch:
    """Watches the processes that this one started: the time, their memory, and how busy the machine is with others."""

    def __init__(self) -> None:
        self.wall = self.cpu = self.others = 0.0
        self.java = self.python = 0
        self._done = threading.Event()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Keep the peaks and the time while the body runs."""
        self.java = self.python = 0
        self._done.clear()
        thread = threading.Thread(target=self._watch)
        thread.start()
        began, (ours, others) = time.perf_counter(), used_time()
        try:
            yield
        finally:
            self.wall, (ours_now, others_now) = time.perf_counter() - began, used_time()
            self.cpu, self.others = ours_now - ours, (others_now - others) / self.wall
            self._done.set()
            thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.2):
            java = python = 0
            for name, size, _ in family()[1:]:
                java, python = (java + size, python) if name == "java" else (java, python + size)
            self.java, self.python = max(self.java, java), max(self.python, python)


def family() -> list[tuple[str, int, int]]:
    """Return name, resident bytes and ticks of CPU of this process, and of every process below it (Linux)."""
    parents, found = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            fields = rest.split()
            parents[int(folder.name)] = int(fields[1])
            found[int(folder.name)] = (name, int(fields[21]) * PAGE, sum(map(int, fields[11:15])))
    ours = [os.getpid()]
    for process in ours:
        ours += [child for child, parent in parents.items() if parent == process]
    return [found[process] for process in ours]


def used_time() -> tuple[float, float]:
    """Return how many seconds of CPU these processes have used so far, and how many all others."""
    ours = sum(ticks for _, _, ticks in family())
    everybody = sum(map(int, Path("/proc/stat").read_text().split()[1:4]))
    return ours / TICKS, (everybody - ours) / TICKS


# --- sessions ---------------------------------------------------------------------------------------------------


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
def opened(where: str, more: dict[str, str] | None = None) -> Iterator[Any]:
    """Give the session that was asked for; stop it, and its cluster, on leaving. more: further settings."""
    settings = QUIET | (more or {})
    with contextlib.ExitStack() as until_left:
        if where.startswith("cluster"):
            from spark_cluster import LOOPBACK, running_cluster

            folder = until_left.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
            cluster = until_left.enter_context(running_cluster(folder, memory="4g"))
            memory = where.partition(":")[2] or "1g"
            session = open_default(cluster.master, LOOPBACK | settings | {"spark.executor.memory": memory})
        elif where == "default":
            session = open_default(None, settings)
        else:
            session = open_session(where, settings)
        until_left.callback(session.stop)
        yield session


# --- against the count ------------------------------------------------------------------------------------------


def contender(session: Any, who: str, path: Path, out: Path, shards: int) -> Callable[[], Any]:
    """Return what is timed."""
    from pyspark.sql import functions as F  # noqa: N812

    frame = session.read.parquet(str(path))

    def count() -> None:
        counted = frame.groupBy("item").agg(F.count_distinct("user").alias("users"))
        counted.write.mode("overwrite").parquet(str(out))

    def release() -> None:
        algorithm, _, counts = who.partition(" with ")
        options: Any = {"algorithm": algorithm, "counts": bool(counts), **BUDGET}
        dpunion.release(frame, out=Folder(out), run=Run(shards=shards, overwrite=True), **options)

    return count if who == COUNT else release


class Results:
    """The times that were measured, by name; kept in a file if there is one."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.times: dict[str, dict[str, float]] = {}
        if path is not None and path.exists():
            self.times = json.loads(path.read_text())["times"]

    def add(self, name: str, watch: Watch) -> None:
        """Add one time: the best stays, and the highest memory."""
        row = self.times.setdefault(name, {"wall": watch.wall, "java": 0.0, "python": 0.0, "runs": 0})
        if watch.wall <= row["wall"]:
            row |= {"wall": watch.wall, "cpu": watch.cpu, "others": watch.others}
        row["java"], row["python"] = max(row["java"], watch.java / 1e9), max(row["python"], watch.python / 1e9)
        row["runs"] += 1
        if self.path is not None:
            record = {"machine": describe_machine(), "date": time.strftime("%Y-%m-%d"), "times": self.times}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(record, indent=1) + "\n")

    def lacks(self, name: str, repeats: int) -> bool:
        """Say whether this was measured fewer times."""
        return self.times.get(name, {"runs": 0})["runs"] < repeats

    def show(self, arguments: argparse.Namespace) -> None:
        """Print a table for each session, set and number of shards."""
        for where in arguments.on:
            for size in arguments.sets:
                for shards in arguments.shards:
                    self._show_table(where, size, shards, arguments.who)

    def _show_table(self, where: str, size: str, shards: int, asked: list[str]) -> None:
        rows = {who: self.times.get(name_of(where, size, shards, who)) for who in asked}
        print(f"\n{where}, {SETS[size]}, {shards} shards")
        titles = (
            f"{'wall s':>9}{'x count':>9}{'goal':>7}{'CPU s':>8}{'Java GB':>9}{'Python GB':>11}{'runs':>6}{'others':>8}"
        )
        print(f"  {'':30}{titles}")
        count = rows.get(COUNT)
        for who, row in rows.items():
            if row is None:
                print(f"  {who:30}{'not measured':>15}")
                continue
            ratio = f"{row['wall'] / count['wall']:.2f}" if count else ""
            goal = f"{GOALS[size, who]:.1f}" if (size, who) in GOALS else ""
            told = f"{row['wall']:>9.2f}{ratio:>9}{goal:>7}{row['cpu']:>8.0f}{row['java']:>9.2f}{row['python']:>11.2f}"
            print(f"  {who:30}{told}{row['runs']:>6.0f}{row['others']:>8.2f}", flush=True)
        for who in ("funnel", "weighted-gaussian"):
            without, counted = rows.get(who), rows.get(f"{who} with counts")
            if without and counted:
                times = counted["wall"] / without["wall"]
                print(f"  {who}: with counts {times:.2f} times as long as without (goal: at most {WITH_COUNTS})")


def name_of(where: str, size: str, shards: int, who: str) -> str:
    """Return the name of a measurement; the count has no shards."""
    return f"{where}, {size}, {who}" if who == COUNT else f"{where}, {size}, {shards} shards, {who}"


def measure_missing(results: Results, arguments: argparse.Namespace, where: str, began: float) -> None:
    """Measure in one session what the results lack, as long as there is time."""
    missing = []
    for size in arguments.sets:
        repeats = arguments.repeats if size == "small" else max(1, arguments.repeats - 1)
        names = {
            name_of(where, size, shards, who): (size, shards, who)
            for shards in arguments.shards
            for who in arguments.who
        }
        missing += [
            (name, one) for turn in range(1, repeats + 1) for name, one in names.items() if results.lacks(name, turn)
        ]
    if not missing:
        return
    watch = Watch()
    with opened(where) as session, tempfile.TemporaryDirectory() as folder:
        print(f"Spark {session.version} on {session.conf.get('spark.master')}", flush=True)
        out = Path(folder) / "out"
        for who in arguments.who:
            contender(session, who, ready(arguments.folder, "tiny"), out, arguments.shards[0])()
        for name, (size, shards, who) in missing:
            if time.perf_counter() - began > 60 * arguments.minutes:
                print("There is no time for the rest.")
                return
            call = contender(session, who, ready(arguments.folder, size), out, shards)
            with watch.watched():
                call()
            results.add(name, watch)
            print(f"  {name}: {watch.wall:.1f} s, CPU {watch.cpu:.0f} s, others {watch.others:.2f}", flush=True)


# --- the first release, and large text files --------------------------------------------------------------------


def measure_first(where: str) -> None:
    """Print how long the first release of 6,000 rows takes from the start of the session, and the second."""
    began = time.perf_counter()
    rows = [(f"user{number % 900}", f"item{number * number % 997}") for number in range(6_000)]
    with opened(where) as session:
        frame = session.createDataFrame(rows, "user string, item string")
        for which in ("first", "second"):
            start = time.perf_counter()
            session.sparkContext.setJobGroup(which, which)
            dpunion.release(frame, **BUDGET)
            tracker, tasks, stages = session.sparkContext.statusTracker(), 0, 0
            for job in tracker.getJobIdsForGroup(which):
                for stage in tracker.getJobInfo(job).stageIds:
                    done = tracker.getStageInfo(stage)
                    tasks, stages = (
                        tasks + (done.numCompletedTasks if done else 0),
                        stages + bool(done and done.numCompletedTasks),
                    )
            now = time.perf_counter()
            told = f"{now - start:.1f} s, {now - began:.1f} s from the start; {stages} stages, {tasks} tasks"
            print(f"{where}, {which}: {told}", flush=True)


def measure_lines(folder: Path, megabytes: int) -> None:
    """Print what each executor of a cluster reads of a JSON Lines file, and how long a release of it takes."""
    from spark_cluster import TOGETHER, find_scans, log_events

    path, watch = ready(folder, f"lines-{megabytes}.jsonl"), Watch()
    whole = {"spark.sql.files.maxPartitionBytes": "1t", "spark.sql.files.minPartitionNum": "1"}
    for how, settings in (("cut into parts", {}), ("as one part", whole)):
        with tempfile.TemporaryDirectory() as log:
            with opened("cluster", TOGETHER | log_events(log) | settings), watch.watched():
                made = dpunion.release(SparkSource((str(path),)), **BUDGET)
            scans = find_scans(log)
        told = f"{watch.wall:.1f} s, others {watch.others:.2f}; {len(made.items):,} items"
        print(f"{path.stat().st_size / 1e9:.2f} GB of JSON Lines, {how}: {told}")
        for scan in scans:
            parts = [
                f"executor {who}: {tasks} tasks, {read / 1e9:.2f} GB" for who, (tasks, read) in sorted(scan.items())
            ]
            print(f"  one stage: {'; '.join(parts)}", flush=True)


def describe_machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", nargs="+", default=["default", "cluster"])
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--shards", type=int, nargs="+", default=[8])
    parser.add_argument("--who", nargs="+", choices=CONTENDERS, default=list(CONTENDERS[:4]))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--lines", type=int, metavar="MB")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "dpunion-benchmark")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    print(f"{describe_machine()}; {time.strftime('%Y-%m-%d')}", flush=True)
    if arguments.lines:
        measure_lines(arguments.folder, arguments.lines)
        return
    if arguments.first:
        for where in arguments.on:
            measure_first(where)
        return
    results = Results(arguments.json)
    for where in arguments.on:
        measure_missing(results, arguments, where, began)
    results.show(arguments)


if __name__ == "__main__":
    main()
