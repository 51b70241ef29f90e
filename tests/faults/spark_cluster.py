"""A real Spark cluster on loopback, and the drivers that the fault tests run: a master, workers that can be killed.

    python spark_cluster.py killed MASTER FOLDER PHASE    a release that waits in a phase for FOLDER/go
    python spark_cluster.py watched FOLDER                releases whose first attempts fail, with event log, full logs
    python spark_cluster.py own MASTER FOLDER             releases in a session that the user made, with nothing set
    python spark_cluster.py lines MASTER FOLDER           a release of FOLDER/lines.jsonl, cut into many parts
    python spark_cluster.py strangers FOLDER              releases with other Pythons in the workers, and a ledger

Each driver is a process of its own and writes what it found to FOLDER/found.json.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import dpunion
from dpunion.counting.steps import LookStep, MarksStep
from dpunion.engines.spark import counting, engine, files, rounds, sessions, texts
from dpunion.engines.spark.counting import AddUp
from dpunion.engines.spark.tasks import CutIntoPieces, RunRounds, Weigh
from dpunion.randomness import RunKey
from dpunion.requests import Folder, Run, SparkSource
from dpunion_lab.generators import AskRedditLike

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest does; this file is also run alone

from running import PATIENCE, wait_until

KEY, SHARDS = 7, 4
BUDGET = {"epsilon": 3.0, "delta": 1e-4, "user": "user", "item": "item"}
WEIGHTED, FUNNEL = {"algorithm": "weighted-gaussian"}, {"algorithm": dpunion.Funnel(), "run": Run(shards=SHARDS)}
GRAMS = BUDGET | {
    "item": dpunion.Words("body"),
    "algorithm": dpunion.Ngrams(longest=2, first="weighted-gaussian", later="weighted-gaussian", spurious_rate=0.25),
}
COUNTED = {"counts": True, "run": Run(shards=1)}
RARE, OWNER = "RareCanary", "UserCanary"
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "512m"}
# Executors that are all there before the first task runs.
TOGETHER = {
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "180s",
}
# Long enough for a closure above a megabyte, which Spark would write to a file by default.
KNOWN = ["word1", "word2", *(f"known item {number}" for number in range(70_000))]


def rows():
    """Users whose names are canaries, common items, and rare items that are canaries: an Arrow table."""
    table = AskRedditLike(users=500).reader().read_all()
    users = [user.replace("user", OWNER) for user in table["user"].to_pylist()]
    rare = [f"{RARE}{number:03}" for number in range(60)]
    held = {"user": users + users[: len(rare)], "item": table["item"].to_pylist() + rare}
    return pa.table(held)


def bodies():
    """The rows as texts, one of each user: an Arrow table."""
    held = {}
    for row in rows().to_pylist():
        held.setdefault(row["user"], []).append(row["item"])
    return pa.table({"user": list(held), "body": list(map(" ".join, held.values()))})


def write_rows(folder):
    """Write the rows as several files, as a cluster would have them."""
    data = Path(folder) / "data"
    data.mkdir()
    table = rows()
    for part in range(4):
        pq.write_table(table.take(list(range(part, table.num_rows, 4))), data / f"{part}.parquet")
    pq.write_table(bodies(), Path(folder) / "bodies.parquet")
    return data


# --- the cluster --------------------------------------------------------------------------------------------
def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def kill_group(process):
    """Kill a process and what it started, at once: a machine that loses power."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE)


class Cluster:
    """A master and workers of one core each."""

    def __init__(self, folder, memory):
        self.folder = Path(folder)
        self.memory = memory
        self.processes = []
        self.master = f"spark://127.0.0.1:{free_port()}"
        self.workers = []

    def start(self, name, *arguments, largest_file="unlimited"):
        """Start a process; largest_file: the most bytes that it can write to a file, as if its disk were full."""
        import pyspark

        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        environment = {
            **os.environ,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(self.folder / f"local-{name}"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                ["prlimit", f"--fsize={largest_file}", str(program), *arguments],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def open(self, workers):
        port = int(self.master.rpartition(":")[2])
        where = ("--host", "127.0.0.1", "--webui-port", "0")
        self.start("master", "org.apache.spark.deploy.master.Master", *where, "--port", str(port))
        wait_until(lambda: is_open(port), "the master")
        for _ in range(workers):
            self.add_worker()

    def add_worker(self, **limits):
        """Start one more worker of one core."""
        number = len(self.workers)
        options = ("--cores", "1", "--memory", self.memory, "--work-dir", str(self.folder / f"work-{number}"))
        where = ("--host", "127.0.0.1", "--webui-port", "0")
        worker = "org.apache.spark.deploy.worker.Worker"
        self.workers.append(self.start(f"worker-{number}", worker, *where, *options, self.master, **limits))

    def close(self):
        for process in self.processes:
            kill_group(process)


@contextlib.contextmanager
def running_cluster(folder, workers=2, memory="700m"):
    """A cluster that is gone, with everything it started, on leaving."""
    sessions.find_java()
    cluster = Cluster(folder, memory)
    try:
        cluster.open(workers)
        yield cluster
    finally:
        cluster.close()


def driver(*arguments, log):
    """Start a driver of this file as a process of its own; all that it says goes to a file."""
    with Path(log).open("wb") as file:
        return subprocess.Popen(
            [sys.executable, __file__, *map(str, arguments)], stdout=file, stderr=file, start_new_session=True
        )


# --- the event log ------------------------------------------------------------------------------------------


def log_events(folder):
    """Return the settings with which Spark writes what it does into files in FOLDER/events, as plain text."""
    events = Path(folder) / "events"
    events.mkdir()
    log = {"enabled": "true", "compress": "false", "dir": f"file://{events}"}
    return {f"spark.eventLog.{name}": value for name, value in log.items()}


def read_events(folder):
    """Return what is in the event log, as bytes; not the checksums, whose files begin with a dot."""
    return b"".join(path.read_bytes() for path in sorted(Path(folder, "events").rglob("[!.]*")) if path.is_file())


def find_scans(folder):
    """Return of each stage that scans text files, by executor: how many tasks ended, and how many bytes they read."""
    scans = {}
    for event in map(json.loads, read_events(folder).splitlines()):
        if event["Event"] == "SparkListenerStageSubmitted":
            stage = event["Stage Info"]
            if any("Scan text" in one.get("Scope", "") for one in stage["RDD Info"]):
                scans[stage["Stage ID"]] = {}
        elif event["Event"] == "SparkListenerTaskEnd" and event["Stage ID"] in scans and "Task Metrics" in event:
            tasks, read = scans[event["Stage ID"]].get(executor := event["Task Info"]["Executor ID"], (0, 0))
            read += event["Task Metrics"]["Input Metrics"]["Bytes Read"]
            scans[event["Stage ID"]][executor] = (tasks + 1, read)
    return list(scans.values())


# --- drivers ------------------------------------------------------------------------------------------------
def guarded_by(wrapper):
    """Put a wrapper around every task that the engine hands to Spark."""
    real = sessions.guard_task
    modules = (rounds, engine, files, counting, texts)
    for module in modules:
        module.guard_task = lambda task: real(wrapper(task))

    def undo():
        for module in modules:
            module.guard_task = real

    return undo


# In which task a phase is, and what is released.
PHASES = {
    "read": (lambda task: isinstance(task, CutIntoPieces), FUNNEL),
    "round": (lambda task: isinstance(task, Weigh) and task.number == 1, FUNNEL),
    "one task": (lambda task: isinstance(task, RunRounds), FUNNEL),
    "look": (lambda task: isinstance(task, AddUp) and isinstance(task.step, LookStep), COUNTED),
    "count": (lambda task: isinstance(task, AddUp) and isinstance(task.step, MarksStep), COUNTED),
    "store": (lambda _: False, FUNNEL),
}


def groups_above():
    """Return the process groups of this process and of those that started it."""
    groups, process = [], os.getpid()
    while process > 1:
        groups.append(os.getpgid(process))
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return groups


def waiting(folder, is_meant):
    """Return a wrapper: the meant tasks write where they have begun, and wait for the file `go`."""

    def wrapper(task):
        if not is_meant(task):
            return task

        def run(batches):
            told = Path(folder) / f"telling-{os.getpid()}"
            told.write_text(" ".join(map(str, groups_above())))
            told.rename(Path(folder) / f"begun-{os.getpid()}")
            # Executors end with the test, and cannot import what tests share.
            while not (Path(folder) / "go").exists():
                time.sleep(0.1)
            yield from task(batches)

        return run

    return wrapper


def flaky(task):
    """Let a task fail in its first attempt, after the first rows are out."""

    def run(batches):
        from pyspark import TaskContext

        first = TaskContext.get().attemptNumber() == 0
        for batch in task(batches):
            yield batch
            if first:
                raise ConnectionError(f"{RARE} {OWNER}")
        if first:
            raise ConnectionError(f"{RARE} {OWNER}")

    return run


def killed(master, folder, phase):
    """Release while a worker is killed; tell how many executors there were before and after."""
    settings = {
        **LOOPBACK,
        **TOGETHER,
        **log_events(folder),
        "spark.shuffle.io.maxRetries": "1",
        "spark.shuffle.io.retryWait": "1s",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.log.level": "INFO",
    }
    session = sessions.open_session(master, settings)
    is_meant, options = PHASES[phase]
    guarded_by(waiting(folder, is_meant))
    if phase == "round":
        rounds.measure_load = lambda *_: 4
    frame = session.read.parquet(str(Path(folder) / "data"))
    executors = session.sparkContext._jsc.sc().getExecutorMemoryStatus
    before = executors().size()
    if phase == "store":
        store, wait = rounds.write_folder, waiting(folder, lambda _: True)

        def write_later(*given, **more):
            list(wait(lambda _: iter(()))(None))
            store(*given, **more)

        rounds.write_folder = write_later
        dpunion.release(frame, unsafe_test_key=KEY, out=Folder(f"{folder}/out"), **options, **BUDGET)
        found = [[item] for item in pq.read_table(f"{folder}/out")["item"].to_pylist()]
    else:
        found = list(dpunion.release(frame, unsafe_test_key=KEY, **options, **BUDGET).rows())
    tell(folder, {"rows": found, "executors": [before - 1, executors().size() - 1]})
    session.stop()


def own(master, folder):
    """Release, count and find n-grams in a session that has only what it takes to reach the cluster."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master)
    for name, value in LOOPBACK.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    frame, written = session.read.parquet(f"{folder}/data"), session.read.parquet(f"{folder}/bodies.parquet")
    found = {
        "funnel": dpunion.release(frame, unsafe_test_key=KEY, **FUNNEL, **BUDGET),
        "counted": dpunion.release(frame, unsafe_test_key=KEY, **COUNTED, **BUDGET),
        "grams": dpunion.release(written, unsafe_test_key=KEY, **GRAMS),
    }
    tell(folder, {name: list(made.rows()) for name, made in found.items()})
    session.stop()


def lines(master, folder):
    """Release a JSON Lines file that counts as large, on executors that are all there."""
    parts = {"spark.sql.files.maxPartitionBytes": "50000", "spark.sql.files.openCostInBytes": "1000"}
    session = sessions.open_session(master, LOOPBACK | TOGETHER | parts | log_events(folder))
    files.LARGEST_WHOLE = 1_000
    made = dpunion.release(SparkSource((f"{folder}/lines.jsonl",)), unsafe_test_key=KEY, **WEIGHTED, **BUDGET)
    session.stop()
    tell(folder, list(made.items))


def strangers(folder):
    """Release with a ledger while workers run Pythons that lack something, or have another version of it."""
    session = sessions.open_session("local[1]", {"spark.driver.memory": "512m"})
    frame = session.read.parquet(f"{folder}/data")
    found = {}
    for name, path in stranger_paths(Path(folder)).items():
        python = Path(folder) / f"python-{name}"
        # The interpreter below this environment, which does not know where dpunion is.
        base = Path(sys.base_prefix) / "bin" / "python3"
        python.write_text(f'#!/bin/sh\nPYTHONPATH="{path}:$PYTHONPATH" exec {base} "$@"\n')
        python.chmod(0o755)
        session.sparkContext.pythonExec = str(python)
        os.environ["PYSPARK_PYTHON"] = str(python)
        charge = dpunion.Charge(f"{folder}/budget.db", "people")
        try:
            dpunion.release(frame, charge=charge, **WEIGHTED, **BUDGET)
            found[name] = list(dpunion.release(frame, unsafe_test_key=KEY, **WEIGHTED, **BUDGET).items)
        except dpunion.DpunionError as error:
            found[name] = str(error)
    tell(folder, found)
    session.stop()


def java_ended(folder):
    """Kill Spark's Java in the middle of a release; then release again from its frame, and by name."""
    session = sessions.open_session("local[1]", {"spark.driver.memory": "512m"})
    frame = session.read.parquet(f"{folder}/data")

    def kill_java(stage, _done):
        if stage.startswith("selecting"):
            session.sparkContext._gateway.proc.kill()
            session.sparkContext._gateway.proc.wait()

    found = {}
    tries = {"during": frame, "after": frame, "by name": dpunion.SparkSource((f"{folder}/data",))}
    for name, source in tries.items():
        charge = dpunion.Charge(f"{folder}/budget.db", "people")
        budget = BUDGET | {"epsilon": BUDGET["epsilon"] / (1 + len(found))}  # another one: not the same release again
        try:
            options = FUNNEL | {"charge": charge, "run": Run(shards=SHARDS, progress=kill_java)}
            dpunion.release(source, **options, **budget)
        except dpunion.DpunionError as error:
            found[name] = str(error)
    tell(folder, found)
    os._exit(0)  # Spark's own farewell would wait for Java


def stranger_paths(folder):
    """Return where each strange Python looks for libraries first."""
    libraries = Path(pa.__file__).parents[1]
    for name in ("dpunion", "numpy"):
        (folder / f"old-{name}" / name).mkdir(parents=True)
        (folder / f"old-{name}" / name / "__init__.py").write_text("__version__ = '0.0.1'")
    return {
        "nothing": folder,
        "old dpunion": f"{folder}/old-dpunion:{libraries}",
        "old numpy": f"{folder}/old-numpy:{Path(dpunion.__file__).parents[1]}:{libraries}",
        "no dpunion": libraries,
    }


def watched(folder):
    """Release with tasks that fail at first, and provoke errors, while Spark writes down all that it can."""
    settings = {
        **log_events(folder),
        "spark.local.dir": f"{folder}/local",
        "spark.driver.memory": "1g",
        # Spark's own default: a session that dpunion did not open.
        "spark.broadcast.UDFCompressionThreshold": "1m",
    }
    session = sessions.open_session("local[2,4]", settings)
    session.sparkContext.setLogLevel("INFO")
    frame = session.read.parquet(str(Path(folder) / "data"))
    options = {"unsafe_test_key": KEY, **BUDGET}
    found = {"errors": []}
    with explained(Path(folder) / "plans.txt"):
        undo = guarded_by(flaky)
        found["weighted"] = dpunion.release(frame, known=KNOWN, **WEIGHTED, **options).items
        found["funnel"] = dpunion.release(frame, **FUNNEL, **options).items
        found["counted"] = list(dpunion.release(frame, known=KNOWN, counts=True, **WEIGHTED, **options).rows())
        written = session.read.parquet(f"{folder}/bodies.parquet")
        made = dpunion.release(written, out=Folder(f"{folder}/grams"), unsafe_test_key=KEY, **GRAMS)
        found["grams"] = [list(row.values()) for row in pq.read_table(f"{folder}/grams").to_pylist()]
        found["grams of lengths"] = [one.released for one in made.results]
        undo()
        dpunion.release(frame, out=Folder(f"{folder}/out"), **FUNNEL, **options)
        found["written"] = pq.read_table(f"{folder}/out")["item"].to_pylist()
    holes = frame.selectExpr(f"case when item like '{RARE[:4]}%7' then null else user end as user", "item")
    for source, changed in ((holes, {}), (frame, {"read_in_worker": quote_rows})):
        before = {name: getattr(engine, name) for name in changed}
        vars(engine).update(changed)
        try:
            dpunion.release(source, **WEIGHTED, **options)
        except Exception as error:  # noqa: BLE001 - what it says is what is tested
            found["errors"].append([type(error).__name__, "".join(traceback.format_exception(error))])
        vars(engine).update(before)
    session.sparkContext.setLogLevel("WARN")
    files = [path for path in Path(folder, "local").rglob("*") if path.is_file()]
    secret = RunKey.for_tests(KEY)._secret
    found["files"] = [len(files), sum(secret in path.read_bytes() for path in files)]
    session.stop()
    tell(folder, found)


def quote_rows(_request, _bounding, source, _key):
    """Read rows, and quote what was read."""
    raise ValueError(f"{RARE} {OWNER} {source.read_all().to_pylist()[:3]}")


@contextlib.contextmanager
def explained(path):
    """Write down every plan whose rows are collected or stored."""
    actions = [(rounds, "collect_items"), (rounds, "write_folder"), (rounds, "materialize")]
    before = [getattr(module, name) for module, name in actions]

    def told(real):
        def call(items, *given, **options):
            done = real(items, *given, **options)
            with path.open("a") as file:
                file.write(items._jdf.queryExecution().toString() + "\n")
            return done

        return call

    for (module, name), real in zip(actions, before, strict=True):
        setattr(module, name, told(real))
    yield
    for (module, name), real in zip(actions, before, strict=True):
        setattr(module, name, real)


def tell(folder, found):
    (Path(folder) / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    {"killed": killed, "watched": watched, "own": own, "lines": lines, "strangers": strangers, "ended": java_ended}[
        sys.argv[1]
    ](*sys.argv[2:])
