"""Where the work is done: on one machine or on Spark, with the same verbs and the same results.

An engine only moves arrays: what is weighed and decided in a round is written in `mechanisms`, and what is done with
each length of n-grams in `ngrams.lengths`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from dpunion.ngrams.candidates import Level
from dpunion.plans import Plan, Planned
from dpunion.plans.counts import Counted, CountsPlan
from dpunion.plans.look import SizeLook
from dpunion.plans.ngrams import LengthResult, NgramPlan
from dpunion.randomness import RunKey
from dpunion.releases.release import Release
from dpunion.requests import Folder, Request, Run, is_on_spark

if TYPE_CHECKING:
    from dpunion.counting import Measure


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was selected: texts, or n-grams with their lengths and what is known about each.

    levels: the n-grams as numbers, length by length in the order of `ngrams`. frame: on Spark, one of the session that
    selected; is_left: it holds what was selected, which is left there, or of n-grams the longest.
    """

    items: tuple[str, ...] = ()
    ngrams: tuple[tuple[str, int], ...] = ()
    results: tuple[LengthResult, ...] = ()
    levels: tuple[Level, ...] = ()
    frame: Any = None
    is_left: bool = False


@dataclass(frozen=True, slots=True)
class Listed:
    """The public list whose people are counted: texts, or the levels of n-grams in order.

    known: a public list that is not part of it. sure: for each of the list, whether somebody is sure to have it.
    least: the least number of people to show for these.
    """

    texts: tuple[str, ...]
    known: tuple[str, ...]
    sure: tuple[bool, ...]
    levels: tuple[Level, ...] = ()
    least: int = 1


class Engine(Protocol):
    """A place where releases are made. Held: everybody's sets or texts there, as the engine's own `select` takes them.

    shards: among how many the users are spread, None on one machine. notes: what the statement says of the engine.
    """

    @property
    def shards(self) -> int | None: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    def check(self, request: Request, plan: Planned) -> None:
        """Refuse what the engine cannot do.

        Guarantees: nothing is read, started or charged.
        """

    def name_sources(self, request: Request) -> list[str]:
        """Return what the source is called, without anything secret."""

    def read(
        self, request: Request, plan: Planned, key: RunKey, start_reading: Callable[[], None]
    ) -> AbstractContextManager[Any]:
        """Read everybody's sets, bounded as planned, or everybody's texts.

        Guarantees: before start_reading is called no row is looked at; what is refused by then depends on names, header
        lines and schemas alone.
        """

    def look(self, held: Any, look: SizeLook, key: RunKey) -> list[float]:
        """Return the noisy numbers of people in the classes of a look.

        Guarantees: each person counts once, in the class of that person's own set; nothing but noisy sums comes out.
        """

    def select(self, held: Any, plan: Plan | NgramPlan, key: RunKey) -> Chosen:
        """Run the planned rounds.

        Guarantees: nothing but what is to be released comes out.
        """

    def count(self, held: Any, listed: Listed, plan: CountsPlan, key: RunKey) -> Counted:
        """Count the people who hold each item of a public list, in its order.

        Guarantees: those of count_people; nothing but noisy sums comes out of people's sets.
        """

    def store(self, chosen: Chosen, made: Release) -> str:
        """Write what was selected, or with counts the release made of it, into the folder asked for; return where."""


def choose_ngrams(plan: NgramPlan, texts: Any, key: RunKey, run: Run) -> Chosen:
    """Select n-grams length by length from texts wherever they are, and tell which length.

    Guarantees: those of select_ngrams.
    """
    from dpunion.ngrams.lengths import select_ngrams

    levels, found, results = select_ngrams(plan, texts, key, lambda length: run.tell(f"selecting length {length}"))
    return Chosen(ngrams=found, results=results, levels=levels)


def count_listed(listed: Listed, plan: CountsPlan, measure: Measure) -> Counted:
    """Count the people who hold each of a list, wherever they are.

    Guarantees: those of count_people.
    """
    import numpy as np

    from dpunion import counting
    from dpunion.ngrams.holdings import ngram_parts

    parts = ngram_parts(listed.levels) if len(listed.levels) > 1 else None
    least = np.where(np.array(listed.sure, np.bool_), listed.least, 0)
    return counting.count_people(plan, least, measure, parts)


def engine_for(request: Request, run: Run, folder: Folder | None) -> Engine:
    """Return the engine that reads the source."""
    if is_on_spark(request.source):
        from dpunion.engines.spark.engine import SparkEngine

        return SparkEngine.for_run(run, folder)
    from dpunion.engines.local.engine import LocalEngine

    return LocalEngine.for_run(run, folder)
