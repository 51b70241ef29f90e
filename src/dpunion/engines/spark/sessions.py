"""A Spark session for the command line, and the Java it needs."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dpunion.errors import BadParameter, ForeignErrors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALLEST_JAVA = 17
JAVA_FOLDERS = ("/usr/lib/jvm", "/opt/homebrew/opt", "/usr/local/opt", "/Library/Java/JavaVirtualMachines")
INSTALL_JAVA = {
    "apt-get": "sudo apt-get install default-jre-headless",
    "dnf": "sudo dnf install java-21-openjdk-headless",
    "brew": "brew install openjdk@21",
    "conda": "conda install openjdk=21",
}


def open_session(master: str | None = None, settings: dict[str, str] | None = None) -> SparkSession:
    """Return the active session, or start one with defaults that suit one machine.

    master: where to run, for example local[4], spark://host:7077 or yarn; local[*] when nothing says otherwise.
    settings: further settings of Spark, as on `spark-submit --conf`.
    """
    find_pyspark()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None and master is None and not settings:
        return active
    java = find_java()
    # Workers must run the Python that runs here, or Spark stops with PYTHON_VERSION_MISMATCH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("dpunion")
    chosen = master or os.environ.get("MASTER")
    if chosen or not _submitted():
        builder = builder.master(chosen or "local[*]")
    for name, value in {**_defaults(chosen or "local[*]"), **(settings or {})}.items():
        builder = builder.config(name, value)

    def explain(error: Exception) -> BadParameter:
        # The kind tells enough; Spark has printed the rest.
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
    """Return the java that Spark will run, setting JAVA_HOME when it had to be looked for.

    Looked for in JAVA_HOME, on the PATH, and where systems put Java without saying so.
    """
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    candidates += [found] if (found := shutil.which("java")) else []
    for java in candidates:
        if java_version(java) >= SMALLEST_JAVA:
            if java == found:
                # Spark would prefer the one in JAVA_HOME, which will not do.
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


def _submitted() -> bool:
    """Say whether spark-submit started this process and has said where to run."""
    return "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ


def _defaults(master: str) -> dict[str, str]:
    values = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        # Larger closures would be written to a file of the driver, and the key with them.
        "spark.broadcast.UDFCompressionThreshold": "1g",
        # What Spark logs of a failed task can quote a row; dpunion tells what went wrong itself.
        "spark.log.level": "OFF",
        # A bar is for people; in a file it is a line for each of its steps.
        "spark.ui.showConsoleProgress": "true" if sys.stderr is not None and sys.stderr.isatty() else "false",
    }
    if master.startswith("local"):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        values |= {
            # The JVM gets a third; workers written in Python, which hold the shards, share the rest.
            "spark.driver.memory": f"{max(1024, memory // 3 // 2**20)}m",
            "spark.ui.enabled": "false",
            # 200 tasks a stage, Spark's default, take longer to start than a laptop's data takes to read.
            "spark.sql.shuffle.partitions": "16",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
        }
    return values
