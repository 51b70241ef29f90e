"""A Spark session: the Java and the workers' Python it needs, how far work is spread over it, and Spark's errors."""

from __future__ import annotations

import atexit
import base64
import contextlib
import functools
import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from dpunion import __version__, errors
from dpunion.errors import BadParameter, BadSource, ForeignErrors, name_shortages

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
Batches = Iterator["pa.RecordBatch"]
Task = Callable[[Batches], Batches]

SMALLEST_JAVA = 17
JAVA_FOLDERS = ("/usr/lib/jvm", "/opt/homebrew/opt", "/usr/local/opt", "/Library/Java/JavaVirtualMachines")
INSTALL_JAVA = {
    "apt-get": "sudo apt-get install default-jre-headless",
    "dnf": "sudo dnf install java-21-openjdk-headless",
    "brew": "brew install openjdk@21",
    "conda": "conda install openjdk=21",
}
LARGEST_CLOSURE = "spark.broadcast.UDFCompressionThreshold"
WORKERS_PYTHON = "spark.pyspark.python"
MARK = "dpunion-error:"
# Spark's names for files whose columns have different types, when it merges their schemas or reads them.
DIFFERENT_TYPES = re.compile(r"\[CANNOT_MERGE_(SCHEMAS|INCOMPATIBLE_DATA_TYPE)\]|COLUMN_DATA_TYPE_MISMATCH\]")
WITHOUT_DPUNION = re.compile(r"ModuleNotFoundError: No module named 'dpunion['.]")
LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
# A partition of rows has at most this many bytes of the input, and no fewer than this if cores would idle otherwise.
# With more than MOST_PARTITIONS partitions, Spark's driver could not keep track of all their pieces.
MOST_BYTES, FEWEST_BYTES, MOST_PARTITIONS = 32 << 20, 4 << 20, 20_000
# Spark's estimate for files is their size on disk; in these, rows take several times as many bytes when they are read.
COMPRESSED, UNPACKED = (".parquet", ".pq", ".orc", ".avro", ".gz", ".zst"), 4
UNKNOWN_SIZE = 1 << 60  # Spark reports a larger size if it has no estimate
EXPECTED = re.compile(r"^([ :+-]*)\S.*, Statistics\(sizeInBytes=([\d.E+]+) ([BKMGTPE])[^()]*\)$", re.MULTILINE)
# Pieces take a task four times their size. This is for Spark's smallest memory outside Java, 384 MiB.
LEAST_ROOM, MOST_ROOM = 96 << 20, 1 << 30
MOST_ASKED = 32
# What is changed in Spark now: how many calls need it, and what undoes it.
CHANGED: dict[object, tuple[int, Callable[[], object]]] = {}
LOCK = threading.RLock()  # changing a setting calls Spark, which mutes PySpark


def open_session(master: str | None = None, settings: dict[str, str] | None = None) -> SparkSession:
    """Return the session of this process, or start one with defaults that suit one machine.

    master: where to run, for example local[4], spark://host:7077 or yarn; by default local[*].
    settings: further settings of Spark, as for `spark-submit --conf`.
    """
    find_pyspark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    builder, others = SparkSession.builder, SparkContext._active_spark_context  # noqa: SLF001
    # A session is active only in the thread that opened it.
    running = call_spark(SparkSession.getActiveSession) or (others and SparkSession._instantiatedSession)  # noqa: SLF001
    if running is not None:
        if master and master != (where := call_spark(lambda: running.conf.get("spark.master", master))):
            raise BadParameter(f"A session of Spark runs on {where}.", "Stop it, or leave 'master' (--master) out.")
        return call_spark(builder.config(map=dict(settings)).getOrCreate) if settings else running
    java = find_java()
    # Workers must run the driver's version of Python, and PySpark looks for their Python in the environment alone.
    named = (settings or {}).get(WORKERS_PYTHON) or os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = named or sys.executable
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = builder.appName("dpunion")
    chosen = master or os.environ.get("MASTER")
    is_submitted = "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ
    # spark-submit has already chosen where to run.
    if chosen or not is_submitted:
        builder = builder.master(chosen or "local[*]")
    builder = builder.config(map={**_defaults(chosen or "local[*]"), **(settings or {})})

    def explain(error: Exception) -> BadParameter:
        # The type is enough; Spark has printed the rest.
        return BadParameter(
            f"Spark could not be started ({type(error).__name__}) with {java}.",
            "See what it printed above; check --master and JAVA_HOME.",
        )

    with ForeignErrors(explain, ours_too=True):
        return builder.getOrCreate()


def find_pyspark() -> None:
    """Refuse to go on without PySpark, with the command that installs it."""
    if importlib.util.find_spec("pyspark") is None:
        raise BadParameter("Spark is not installed.", "Install it with: pip install 'dpunion[spark]'")


def find_java() -> str:
    """Return the java that Spark will run: from JAVA_HOME, the PATH, or a usual folder (which sets JAVA_HOME)."""
    home, found = os.environ.get("JAVA_HOME"), shutil.which("java")
    candidates = [java for java in (home and str(Path(home) / "bin" / "java"), found) if java]
    for java in candidates:
        if java_version(java) >= SMALLEST_JAVA:
            if java == found:
                # Spark would prefer the java of JAVA_HOME, which is too old.
                os.environ.pop("JAVA_HOME", None)
            return java
    for folder in JAVA_FOLDERS:
        for place in sorted(Path(folder).glob("*/bin/java"), reverse=True):
            if java_version(str(place)) >= SMALLEST_JAVA:
                os.environ["JAVA_HOME"] = str(place.parents[1])
                return str(place)
    what = "The Java found is too old for Spark 4." if candidates else "Spark needs Java, and none was found."
    known = (command for tool, command in INSTALL_JAVA.items() if shutil.which(tool))
    command = next(known, "see your system's packages (openjdk), then set JAVA_HOME")
    raise BadParameter(what, f"Install Java {SMALLEST_JAVA} or newer: {command}")


def java_version(java: str) -> int:
    """Return the major version of a java, 0 if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=60)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'"(?:1\.)?(\d+)', done.stderr)
    return int(found[1]) if found else 0


def _defaults(master: str) -> dict[str, str]:
    values = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        # Spark would write larger closures, and the key with them, to a file of the driver.
        LARGEST_CLOSURE: "1g",
        # Spark's log of a failed task can quote a row; dpunion says itself what went wrong.
        "spark.log.level": "OFF",
        # dpunion shows its own progress, in rounds instead of stages.
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        values |= {
            # The JVM gets a third; the Python workers, which have the shards in memory, share the rest.
            "spark.driver.memory": f"{max(1024, memory // 3 // 2**20)}m",
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
        }
    return values


@contextlib.contextmanager
def share_change(what: object, change: Callable[[], Callable[[], object]]) -> Iterator[None]:
    """Make a change, which returns what undoes it; of several threads the first makes it, and the last undoes it."""
    with LOCK:
        users, undo = CHANGED.get(what) or (0, change())
        CHANGED[what] = (users + 1, undo)
    try:
        yield
    finally:
        with LOCK:
            users, undo = CHANGED.pop(what)
            if users > 1:
                CHANGED[what] = (users - 1, undo)
            else:
                undo()


def change_setting(
    settings: Any, name: str, value: str, *default: str, owner: Any = None
) -> contextlib.AbstractContextManager[None]:
    """Change a setting of a session, or of its context, inside the context; default: its value if it is not set.

    owner: what releases at once have in common; on Spark Connect, `session.conf` is another object each time.
    """

    def change() -> Callable[[], object]:
        before = call_spark(lambda: settings.get(name, *default))
        call_spark(lambda: settings.set(name, value))

        def undo() -> None:
            # That Java has ended explains other errors, but must not hide an interrupt.
            with contextlib.suppress(*[errors.DpunionError] * isinstance(sys.exception(), KeyboardInterrupt)):
                call_spark(lambda: settings.set(name, before))

        return undo

    return share_change((name, value, id(owner or settings)), change)


@contextlib.contextmanager
def prepare_session(session: SparkSession) -> Iterator[None]:
    """Prepare a session for a release, and put it back as it was on leaving.

    Closures of every size go from memory: by default Spark writes those above a megabyte to a file. If PYSPARK_PYTHON
    is not set, workers run the Python that the session's settings name, or else the driver's if they are on this
    machine. Spark Connect, and platforms that protect their context, keep their own settings.
    """
    context: Any = None
    settings: Any = None
    with contextlib.suppress(Exception):
        context = session.sparkContext
        settings = context._jsc.sc().conf()  # noqa: SLF001 - a running context has no other way in
    with contextlib.ExitStack() as changes:
        if getattr(context, "pythonExec", None) is not None and "PYSPARK_PYTHON" not in os.environ:
            usual = sys.executable if is_local(context.master) else context.pythonExec
            python = call_spark(lambda: session.conf.get(WORKERS_PYTHON, usual)) or usual
            own = SimpleNamespace(get=functools.partial(getattr, context), set=functools.partial(setattr, context))
            changes.enter_context(change_setting(own, "pythonExec", python, owner=context))
        if settings is not None:
            changes.enter_context(change_setting(settings, LARGEST_CLOSURE, "1g", "1m", owner=context))
        yield


def is_local(master: str) -> bool:
    """Say whether all workers are on this machine, in the driver's own Java."""
    return re.match(r"local(\[|$)", master) is not None


# --- how far work is spread -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spread:
    """Over how many tasks work is spread: all numbers of partitions are chosen here, whatever the session's are.

    cores: how many tasks run at once. rows: into how many partitions rows are grouped by user. room: how many bytes of
    pieces a Python task may have.
    """

    cores: int
    rows: int
    room: int

    @classmethod
    def of(cls, frame: DataFrame) -> Spread:
        """Choose for the rows of a frame, by Spark's estimate of their size; this reads no row."""
        session, (size, is_known) = frame.sparkSession, estimate_size(explain_costs(frame))
        with contextlib.suppress(Exception):
            size *= UNPACKED if any(name.endswith(COMPRESSED) for name in frame.inputFiles()) else 1
        cores = count_cores(session)
        fewest = 1 if is_known else max(2 * cores, count_parts(frame))
        rows = max(fewest, -(-size // MOST_BYTES), min(cores, -(-size // FEWEST_BYTES)))
        rows = rows if rows <= cores else -(-rows // cores) * cores  # no core idles while the last ones finish
        return cls(cores, min(rows, MOST_PARTITIONS), python_room(session))

    def width(self, load: int) -> int:
        """Return the number of tasks for data that fills the room of `load` tasks."""
        return max(load, min(self.cores, 4 * load), 1)


def explain_costs(frame: DataFrame) -> str:
    """Return Spark's plan of a frame, with the sizes it expects, if it tells. Guarantees: Spark reads no row for it."""
    with contextlib.suppress(Exception):
        if (explain := getattr(frame, "_explain_string", None)) is not None:  # on Spark Connect
            return str(call_spark(lambda: explain(mode="cost")))
        java: Any = frame.sparkSession._jvm  # noqa: SLF001 - as DataFrame.explain, which prints the plan
        return str(java.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "cost"))  # noqa: SLF001
    return ""


def estimate_size(plan: str) -> tuple[int, bool]:
    """Return how many bytes of the input Spark expects by an explained plan, and whether it knows the size of all.

    subtle: for a join Spark expects the product of its sides, so the sum of what the plan reads is a limit.
    """
    nodes = [(len(at), int(float(size) * 1024.0 ** "BKMGTPE".index(unit))) for at, size, unit in EXPECTED.findall(plan)]
    leaves = [size for (depth, size), (below, _) in itertools.pairwise([*nodes, (0, 0)]) if below <= depth]
    known = sum(size for size in leaves if size < UNKNOWN_SIZE)
    is_known = bool(leaves) and max(leaves) < UNKNOWN_SIZE
    return (min(nodes[0][1], known) if is_known else known), is_known


def count_parts(frame: DataFrame) -> int:
    """Return in how many partitions the RDDs are that a frame is made of. Guarantees: Spark computes nothing for it."""
    found = 0
    with contextlib.suppress(Exception):  # Spark Connect does not tell
        leaves = frame._jdf.queryExecution().optimizedPlan().collectLeaves()  # noqa: SLF001
        for place in range(leaves.size()):
            with contextlib.suppress(Exception):  # files have no RDD
                found += leaves.apply(place).rdd().getNumPartitions()
    return found


def count_cores(session: SparkSession) -> int:
    """Return how many tasks the session runs at once."""
    with contextlib.suppress(Exception):
        return int(session.sparkContext.defaultParallelism)
    # Spark Connect has no context, but cuts a range into as many partitions.
    numbers = session.range(1 << 12).selectExpr("spark_partition_id() as number")
    return int(call_spark(numbers.selectExpr("max(number) + 1 as cores").toArrow).column(0)[0].as_py())


def python_room(session: SparkSession) -> int:
    """Return how many bytes of pieces a Python task may have, by the memory that Spark's settings leave to Python."""
    if is_local(session.conf.get("spark.master", "") or ""):
        return min(max(LEAST_ROOM, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 16), MOST_ROOM)
    tasks = int(session.conf.get("spark.executor.cores", "1") or 1)
    names = ("spark.executor.pyspark.memory", "spark.executor.memoryOverhead")
    given = next((value for name in names if (value := session.conf.get(name, ""))), "")
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", given.lower())
    if found is None:
        return LEAST_ROOM
    memory = int(found[1]) << 10 * (1 + "kmgt".index(found[2] or "m"))
    return min(max(LEAST_ROOM // 4, memory // 4 // tasks), MOST_ROOM)


# --- the workers' Python ----------------------------------------------------------------------------------------


def check_workers(session: SparkSession) -> None:
    """Refuse workers that cannot run this dpunion; send it to those that lack it. Guarantees: this reads no data."""
    answers = ask_workers(session)
    if any(one.get("lacks") == "dpunion" for one in answers):
        with contextlib.suppress(errors.DpunionError):  # not every session may add files
            send_package(session)
            answers = ask_workers(session)
    for one in answers:
        if "lacks" in one:
            raise without_package(one["lacks"], one["python"], one.get("why"))
    import numpy as np

    for name, ours in (("dpunion", __version__), ("numpy", np.__version__)):
        for theirs in sorted({one[name] for one in answers} - {ours}):
            raise BadSource(
                f"A worker of Spark has {name} {theirs}, and the driver has {name} {ours}.",
                f"Install one version everywhere, or {NAME_PYTHON}",
            )
    processors = sorted({one["processor"] for one in answers})
    if len(processors) > 1:
        raise BadSource(
            f"The workers of Spark have different processors ({', '.join(processors)}).",
            "Use machines of one kind: on others, an item's decision could change when Spark computes a part again.",
        )


def ask_workers(session: SparkSession) -> list[dict[str, str]]:
    """Return the Python and versions of workers: of one if all are on this machine, or else of one for each core."""
    from pyspark.sql import functions as F  # noqa: N812

    def answer(_number: int) -> str:
        # subtle: workers without dpunion run this function, so it travels by value and uses no name of this module.
        import importlib.util
        import json
        import platform
        import sys

        facts = {"processor": platform.machine(), "python": sys.executable}
        for name in ("numpy", "pyarrow", "numba", "dpunion"):
            if importlib.util.find_spec(name) is None:
                return json.dumps(facts | {"lacks": name})
        for name in ("numpy", "dpunion"):
            try:
                facts[name] = importlib.import_module(name).__version__
            except Exception as error:  # noqa: BLE001 - a broken library can raise anything
                return json.dumps(facts | {"lacks": name, "why": type(error).__name__})
        return json.dumps(facts)

    tasks = 1 if is_local(session.conf.get("spark.master", "") or "") else min(count_cores(session), MOST_ASKED)
    answers = session.range(0, tasks, 1, tasks).select(F.udf(answer, "string", useArrow=False)("id").alias("answer"))
    return [json.loads(one) for one in call_spark(answers.toArrow).column(0).to_pylist()]


def send_package(session: SparkSession) -> None:
    """Send dpunion's own code to the workers, as a zip; for the rest of the session they can import it."""
    package = Path(__file__).parents[2]
    folder = tempfile.mkdtemp(prefix="dpunion-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # Spark serves the file until the session ends
    archive = shutil.make_archive(f"{folder}/dpunion-{__version__}", "zip", package.parent, package.name)
    try:
        context = session.sparkContext
    except Exception:  # noqa: BLE001 - Spark Connect has none
        call_spark(lambda: session.addArtifacts(archive, pyfile=True))
    else:
        call_spark(lambda: context.addPyFile(archive))


NAME_PYTHON = (
    f"name one Python that has it before the session starts: PYSPARK_PYTHON={sys.executable} on this machine; on a "
    "cluster that of an image, or of an archive: set spark.archives=FILE#environment and spark.pyspark.python="
    "./environment/bin/python (by --conf, or in the settings of your session; docs/spark.md)."
)


def without_package(name: str, python: str, why: str | None = None) -> BadSource:
    """Return the error for workers whose Python lacks dpunion, or a library that dpunion needs; why: a broken one."""
    needed = "" if name == "dpunion" else ", which dpunion needs"
    problem = "is not installed in" if why is None else f"cannot be imported ({why}) by"
    return BadSource(
        f"{name} {problem} the workers' Python{python and f' ({python})'}{needed}.",
        f"Install it there, or {NAME_PYTHON}",
    )


# --- errors -----------------------------------------------------------------------------------------------------


def call_spark(call: Callable[[], T]) -> T:
    """Return what `call` returns; an error that Spark raises becomes an error of dpunion.

    Guarantees: an error that a worker raised arrives unchanged; of any other error, only its kind is named, without
    message, cause or context; PySpark does not print it either.
    """
    with ForeignErrors(_translate_error), _mute_pyspark():
        return call()


def guard_task(task: Task) -> Task:
    """Return the task; an error that it raises in a worker has no value of the data in it, as executors log it.

    Guarantees: an error of dpunion leaves the worker whole; of any other error, only its type does.
    """

    def run(batches: Batches) -> Batches:
        with ForeignErrors(_encode_error, ours_too=True), name_shortages():
            yield from task(batches)

    return run


def _encode_error(error: Exception) -> RuntimeError:
    if isinstance(error, errors.DpunionError):
        fields = json.dumps([type(error).__name__, error.what, error.remedy])
        return RuntimeError(MARK + base64.b64encode(fields.encode()).decode())
    return RuntimeError(f"a task of dpunion failed with {type(error).__name__}")


def _translate_error(error: Exception) -> errors.DpunionError:
    text = str(error)
    found = re.search(re.escape(MARK) + r"([A-Za-z0-9+/=]+)", text)
    if found:
        kind, what, remedy = json.loads(base64.b64decode(found[1]))
        raised: Any = getattr(errors, kind, BadSource)
        return raised(what, remedy) if issubclass(raised, errors.DpunionError) else BadSource(what, remedy)
    if WITHOUT_DPUNION.search(text):
        return without_package("dpunion", "")
    if "PYTHON_VERSION_MISMATCH" in text or "Cannot run program" in text:
        return BadSource(
            f"The workers do not run Python {sys.version_info[0]}.{sys.version_info[1]}, as the driver does.",
            f"For all of them, {NAME_PYTHON}",
        )
    if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
        return BadSource(
            "Spark does not answer: its Java process has ended.", "Start a new session, or run the command again."
        )
    if "PATH_NOT_FOUND" in text:
        return errors.SourceNotFound("Spark found no file for a source.", "Check the paths and patterns.")
    if DIFFERENT_TYPES.search(text):
        return errors.UnsupportedType(
            "Mixed types: a column has different types in the files that are read together.",
            "Cast it to one type (text is always possible) in all of them.",
        )
    if "PATH_ALREADY_EXISTS" in text:
        return errors.CannotWrite(
            "The output folder exists already.", "Choose another, or allow overwriting (--force)."
        )
    worker = re.search(r"a task of dpunion failed with (\w+)", text)
    condition = getattr(error, "getCondition", lambda: None)() or type(error).__name__
    what = f"A task on Spark failed with {worker[1]}" if worker else f"Spark stopped with {condition}"
    return BadSource(
        f"{what}; no release was made.",
        "Check the executors' logs; common causes are too little memory, and workers without dpunion.",
    )


def _mute_pyspark() -> contextlib.AbstractContextManager[None]:
    """Keep PySpark from printing errors of queries to standard error, in any thread: their messages quote values."""
    loaded: Any = sys.modules.get("pyspark.logger")
    loggers = [] if loaded is None else [loaded.PySparkLogger.getLogger(name) for name in LOGGERS]

    def switch(states: list[bool]) -> None:
        for logger, state in zip(loggers, states, strict=True):
            logger.disabled = state

    def change() -> Callable[[], object]:
        before = [logger.disabled for logger in loggers]
        switch([True] * len(loggers))
        return functools.partial(switch, before)

    return share_change(len(loggers), change)
