"""A Spark session and the Java it needs; errors of Spark, on both sides, without a value of the data."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dpunion import errors
from dpunion.errors import BadParameter, BadSource, ForeignErrors, name_shortages

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

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
MARK = "dpunion-error:"
# Spark's names for files whose columns have different types, when it merges their schemas or reads them.
DIFFERENT_TYPES = re.compile(r"\[CANNOT_MERGE_(SCHEMAS|INCOMPATIBLE_DATA_TYPE)\]|COLUMN_DATA_TYPE_MISMATCH\]")
WITHOUT_DPUNION = re.compile(r"ModuleNotFoundError: No module named 'dpunion['.]")
LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def open_session(master: str | None = None, settings: dict[str, str] | None = None) -> SparkSession:
    """Return the active session, or start one with defaults that suit one machine.

    master: where to run, for example local[4], spark://host:7077 or yarn; by default local[*].
    settings: further settings of Spark, as for `spark-submit --conf`.
    """
    find_pyspark()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None and master is None and not settings:
        return active
    java = find_java()
    # Workers must run the same Python as the driver, or Spark stops with PYTHON_VERSION_MISMATCH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("dpunion")
    chosen = master or os.environ.get("MASTER")
    is_submitted = "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ
    # spark-submit has already said where to run.
    if chosen or not is_submitted:
        builder = builder.master(chosen or "local[*]")
    for name, value in {**_defaults(chosen or "local[*]"), **(settings or {})}.items():
        builder = builder.config(name, value)

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
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    candidates += [found] if (found := shutil.which("java")) else []
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
    raise BadParameter(what, f"Install Java {SMALLEST_JAVA} or newer: {install_command()}")


def install_command() -> str:
    """Return the one command that installs Java here."""
    for tool, command in INSTALL_JAVA.items():
        if shutil.which(tool):
            return command
    return "see your system's packages (openjdk), then set JAVA_HOME"


def java_version(java: str) -> int:
    """Return the major version of a java, 0 if it does not run."""
    try:
        command = [java, "-version"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603
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
        # A progress bar is for people: in a file, each of its steps would be a line.
        "spark.ui.showConsoleProgress": "true" if sys.stderr is not None and sys.stderr.isatty() else "false",
    }
    if master.startswith("local"):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        values |= {
            # The JVM gets a third; the Python workers, which have the shards in memory, share the rest.
            "spark.driver.memory": f"{max(1024, memory // 3 // 2**20)}m",
            "spark.ui.enabled": "false",
            # Spark's default is 200 tasks for each stage, which take longer to start than a laptop's data to read.
            "spark.sql.shuffle.partitions": "16",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
        }
    return values


@contextlib.contextmanager
def change_setting(settings: Any, name: str, value: str, *default: str) -> Iterator[None]:
    """Change a setting of a session, or of its context, inside the context; default: its value if it is not set."""
    before = settings.get(name, *default)
    settings.set(name, value)
    try:
        yield
    finally:
        settings.set(name, before)


@contextlib.contextmanager
def closures_in_memory(session: SparkSession) -> Iterator[None]:
    """Let Spark send closures of every size from memory; by default it writes those above a megabyte to a file.

    Spark Connect, and platforms that protect their context, keep their own setting.
    """
    settings: Any = None
    with contextlib.suppress(Exception):
        settings = session.sparkContext._jsc.sc().conf()  # noqa: SLF001 - a running context has no other way in
    missing = contextlib.nullcontext()
    with missing if settings is None else change_setting(settings, LARGEST_CLOSURE, "1g", "1m"):
        yield


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
        return BadSource(
            "dpunion is not installed in the workers' Python.",
            f"Set PYSPARK_PYTHON to a Python that has dpunion, here {sys.executable}, before the session starts.",
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


@contextlib.contextmanager
def _mute_pyspark() -> Iterator[None]:
    """Keep PySpark from printing errors of queries to standard error: their messages quote values."""
    loaded: Any = sys.modules.get("pyspark.logger")
    loggers = [] if loaded is None else [loaded.PySparkLogger.getLogger(name) for name in LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was
