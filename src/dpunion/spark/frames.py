"""What is known of Spark's frames without importing Spark."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable
from typing import Any, TypeVar

from dpunion import errors
from dpunion.errors import BadParameter

T = TypeVar("T")

DEFAULT_SHARDS = 8
MOST_SHARDS = 1024
MARK = "dpunion-error:"


def is_spark_frame(source: object) -> bool:
    """Say whether a source is a DataFrame of Spark, classic or Connect, without importing it."""
    return type(source).__module__.startswith("pyspark.sql.") and hasattr(source, "mapInArrow")


def checked_shards(shards: int | None) -> int:
    """Return the number of shards; refuse what makes no sense."""
    chosen = DEFAULT_SHARDS if shards is None else shards
    if isinstance(chosen, bool) or not isinstance(chosen, int) or not 1 <= chosen <= MOST_SHARDS:
        raise BadParameter(
            f"The 'shards' parameter must be a whole number from 1 to {MOST_SHARDS}. Got {shards!r} instead.",
            "Leave it out, or take about one for every ten million pairs.",
        )
    return chosen


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
    cause and context.
    """
    problem: errors.DpunionError
    try:
        return call()
    except errors.DpunionError:
        raise
    except Exception as error:  # noqa: BLE001 - Spark's messages can quote values
        problem = _told(error)
    # subtle: raised outside the handler, and not by a context manager, whose errors have a context always.
    raise problem


def _told(error: Exception) -> errors.DpunionError:
    text = str(error)
    found = re.search(re.escape(MARK) + r"([A-Za-z0-9+/=]+)", text)
    if found:
        kind, what, remedy = json.loads(base64.b64decode(found[1]))
        raised: Any = getattr(errors, kind, errors.BadSource)
        return raised(what, remedy) if issubclass(raised, errors.DpunionError) else errors.BadSource(what, remedy)
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
