"""What is known of Spark's frames without importing Spark."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dpunion import errors
from dpunion.checks import check_whole
from dpunion.errors import BadParameter
from dpunion.foreign import ForeignErrors

if TYPE_CHECKING:
    from dpunion.reading import NullUserPolicy, ValueKind

T = TypeVar("T")

DEFAULT_SHARDS = 8
MOST_SHARDS = 1024
MARK = "dpunion-error:"
LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@dataclass(frozen=True, slots=True)
class SparkSource:
    """Files, folders or tables for Spark to read, named but not opened (public).

    names: paths, folders and patterns as Spark knows them, or tables of its catalog (with input_format "table").
    master, settings: where Spark runs, and its settings; the active session, or one machine, when left out.
    """

    names: tuple[str, ...]
    master: str | None = None
    settings: tuple[tuple[str, str], ...] = ()


class Asked(Protocol):
    """What is to be read and how, of the pipeline's `Reading`."""

    @property
    def source(self) -> Any:
        """A DataFrame, or what Spark is to read."""

    @property
    def user(self) -> str | None:
        """The column of users."""

    @property
    def value(self) -> str | tuple[str, ...] | None:
        """The column of values, or those of a key."""

    @property
    def kind(self) -> ValueKind:
        """What the values are."""

    @property
    def null_users(self) -> NullUserPolicy:
        """What happens to rows without a user."""

    @property
    def input_format(self) -> str | None:
        """The format that was said."""

    @property
    def query(self) -> str | None:
        """The query on the source."""


def check_spark_source(asked: Asked) -> None:
    """Refuse, before anything is charged or started, what the names of Spark's sources tell."""
    if isinstance(asked.source, SparkSource):
        from dpunion.engines.spark.sources import check_names

        check_names(asked.source, asked.input_format, asked.query)


def is_on_spark(source: object) -> bool:
    """Say whether Spark is to do the work: a DataFrame, or what it is to read."""
    return isinstance(source, SparkSource) or is_spark_frame(source)


def is_spark_frame(source: object) -> bool:
    """Say whether a source is a DataFrame of Spark, classic or Connect, without importing it."""
    return type(source).__module__.startswith("pyspark.sql.") and hasattr(source, "mapInArrow")


def checked_shards(shards: int | None) -> int:
    """Return the number of shards; refuse what makes no sense."""
    chosen = DEFAULT_SHARDS if shards is None else shards
    remedy = "Leave it out, or take about one for every ten million pairs."
    return check_whole("", "shards", chosen, 1, MOST_SHARDS, remedy)


def checked_options(shards: int | None, collect: bool, out: Any, *, on_spark: bool) -> int:  # noqa: FBT001
    """Return the number of shards; refuse options of Spark for other sources, and a release that would go nowhere."""
    if not on_spark and (shards is not None or not collect):
        raise BadParameter("'shards' and 'collect' are for Spark.", "Pass a DataFrame of Spark, or leave them out.")
    if not collect and not isinstance(out, (str, os.PathLike)):
        raise BadParameter("Items that are not collected need a place.", "Name one folder for Spark to write: 'out'.")
    return checked_shards(shards)


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
    if "PATH_NOT_FOUND" in text:
        return errors.SourceNotFound("Spark finds no file of a source.", "Check the paths and patterns.")
    if "PATH_ALREADY_EXISTS" in text:
        return errors.CannotWrite(
            "The output folder exists already.", "Choose another, or allow overwriting (--force)."
        )
    worker = re.search(r"a task of dpunion failed with (\w+)", text)
    what = f"A task on Spark failed with {worker[1]}" if worker else f"Spark stopped with {_condition(error)}"
    return errors.BadSource(
        f"{what}; no release was made.",
        "Look into the executors' logs; common causes are too little memory and dpunion missing on the workers.",
    )


def _condition(error: Exception) -> str:
    """Return the name Spark gives an error, without its text."""
    condition = getattr(error, "getCondition", lambda: None)()
    return str(condition or type(error).__name__)
