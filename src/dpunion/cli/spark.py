"""The options of Spark, for the commands that release."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dpunion.cli.answers import progress_bar, step
from dpunion.errors import BadParameter

if TYPE_CHECKING:
    from dpunion.pipeline import Progress

CREDENTIALS = re.compile(r"secret|password|token|credential|access\W?key|account\.key", re.IGNORECASE)
"""Names of settings whose values are secret: Spark's own list, and what its connectors use."""


@contextlib.contextmanager
def opened_source(
    engine: str,
    sources: Sequence[str],
    *,
    master: str | None,
    shards: int | None,
    settings: Sequence[str] | None,
    out_folder: str | None,
    options: dict[str, Any],
) -> Iterator[tuple[Any, Progress, dict[str, Any]]]:
    """Give what a release reads, progress and its options; what Spark reads is only named here."""
    if engine == "local":
        if master or shards is not None or settings or out_folder:
            raise BadParameter(
                "--master, --shards, --conf and --out-folder are for Spark.", "Add --engine spark, or leave them out."
            )
        with progress_bar() as progress:
            # A single source that is no file is a database or standard input, which are not listed.
            yield sources[0] if len(sources) == 1 else list(sources), progress, options
        return
    if engine != "spark":
        raise BadParameter(f"There is no engine {engine!r}.", "Choose local or spark.")
    from dpunion.engines.spark.frames import SparkSource

    source = SparkSource(tuple(sources), master, _settings(settings or []))
    # Spark draws its own progress; the stage is remembered for an interrupt.
    yield source, step, options | {"shards": shards}


def spark_options(
    engine: str, master: str | None, shards: int | None, settings: Sequence[str] | None
) -> dict[str, Any]:
    """Return the options of Spark as they are recorded beside an output: none where it was not used.

    Guarantees: settings that hold a password, key or token are left out.
    """
    if engine == "local":
        return {}
    kept = [setting for setting in settings or [] if not CREDENTIALS.search(setting.partition("=")[0])]
    return {"engine": engine, "master": master, "shards": shards, "conf": kept or None}


def _settings(given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    pairs = [setting.partition("=") for setting in given]
    if not all(name and equals for name, equals, _ in pairs):
        raise BadParameter("A setting of Spark is not NAME=VALUE.", "Write --conf spark.executor.memory=8g.")
    return tuple((name, value) for name, _, value in pairs)
