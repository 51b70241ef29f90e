"""What Spark raises becomes an error of dpunion, without a value of the data."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from dpunion import errors
from dpunion.errors import ForeignErrors

T = TypeVar("T")

MARK = "dpunion-error:"
# What Spark calls files whose columns have different types, when it merges their schemas or reads them.
DIFFERENT_TYPES = re.compile(r"\[CANNOT_MERGE_(SCHEMAS|INCOMPATIBLE_DATA_TYPE)\]|COLUMN_DATA_TYPE_MISMATCH\]")
WITHOUT_DPUNION = re.compile(r"ModuleNotFoundError: No module named 'dpunion['.]")
LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def cleanly(call: Callable[[], T]) -> T:
    """Return what `call` returns; what Spark raises in it becomes an error of dpunion.

    Guarantees: an error of a worker comes out as it was raised there; of others only the kind is told, without message,
    cause and context; PySpark does not print them either.
    """
    with ForeignErrors(_told), _unprinted():
        return call()


@contextlib.contextmanager
def _unprinted() -> Iterator[None]:
    """Keep PySpark from printing errors of queries, whose messages quote values, to standard error."""
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


def _told(error: Exception) -> errors.DpunionError:
    text = str(error)
    found = re.search(re.escape(MARK) + r"([A-Za-z0-9+/=]+)", text)
    if found:
        kind, what, remedy = json.loads(base64.b64decode(found[1]))
        raised: Any = getattr(errors, kind, errors.BadSource)
        return raised(what, remedy) if issubclass(raised, errors.DpunionError) else errors.BadSource(what, remedy)
    if WITHOUT_DPUNION.search(text):
        return errors.BadSource(
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
    what = f"A task on Spark failed with {worker[1]}" if worker else f"Spark stopped with {_condition(error)}"
    return errors.BadSource(
        f"{what}; no release was made.",
        "Check the executors' logs; common causes are too little memory, and workers without dpunion.",
    )


def _condition(error: Exception) -> str:
    """Return the name Spark gives an error, without its text."""
    condition = getattr(error, "getCondition", lambda: None)()
    return str(condition or type(error).__name__)
