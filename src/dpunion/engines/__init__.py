"""Where the work is done: on one machine or on Spark, with the same verbs and the same results.

An engine only moves arrays: what is weighed and decided in a round is written in `mechanisms`, and what is done with
each length of n-grams in `ngrams.lengths`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from dpunion.ngrams.plans import LengthResult, NgramPlan
from dpunion.plans import Plan
from dpunion.randomness import RunKey
from dpunion.requests import Folder, Request, Run, is_on_spark


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was selected: texts, n-grams with their lengths and what is known about each, or a frame of Spark's."""

    items: tuple[str, ...] = ()
    ngrams: tuple[tuple[str, int], ...] = ()
    results: tuple[LengthResult, ...] = ()
    frame: Any = None


class Engine(Protocol):
    """A place where releases are made. Held: everybody's sets or texts there, as the engine's own `select` takes them.

    shards: among how many the users are spread, None on one machine. notes: what the statement says of the engine.
    """

    @property
    def shards(self) -> int | None: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    def check(self, request: Request, plan: Plan | NgramPlan) -> None:
        """Refuse what the engine cannot do.

        Guarantees: nothing is read, started or charged.
        """

    def name_sources(self, request: Request) -> list[str]:
        """Return what the source is called, without anything secret."""

    def read(
        self, request: Request, plan: Plan | NgramPlan, key: RunKey, start_reading: Callable[[], None]
    ) -> AbstractContextManager[Any]:
        """Read everybody's sets, bounded as planned, or everybody's texts.

        Guarantees: before start_reading is called no row is looked at; what is refused by then depends on names, header
        lines and schemas alone.
        """

    def select(self, held: Any, plan: Plan | NgramPlan, key: RunKey) -> Chosen:
        """Run the planned rounds.

        Guarantees: nothing but what is to be released comes out.
        """

    def store(self, chosen: Chosen, columns: tuple[str, ...]) -> str:
        """Write what was selected into the folder that was asked for; return where."""


def choose_ngrams(plan: NgramPlan, texts: Any, key: RunKey, run: Run) -> Chosen:
    """Select n-grams length by length from texts wherever they are, and tell which length.

    Guarantees: those of select_ngrams.
    """
    from dpunion.ngrams.lengths import select_ngrams

    found, results = select_ngrams(plan, texts, key, lambda length: run.tell(f"selecting length {length}"))
    return Chosen(ngrams=found, results=results)


def engine_for(request: Request, run: Run, folder: Folder | None) -> Engine:
    """Return the engine that reads the source."""
    if is_on_spark(request.source):
        from dpunion.engines.spark.engine import SparkEngine

        return SparkEngine.for_run(run, folder)
    from dpunion.engines.local.engine import LocalEngine

    return LocalEngine.for_run(run, folder)
