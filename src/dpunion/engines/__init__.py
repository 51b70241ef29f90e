"""Where a release is computed: on one machine or on Spark, with the same verbs and the same results.

An engine only moves arrays: `mechanisms` weighs and decides in each round, and `ngrams.lengths` runs each length of
n-grams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """The selected items: texts, or n-grams with their lengths and the results of each length.

    levels: the n-grams as numbers, length by length in the order of `ngrams`. frame: on Spark, a frame of the session.
    is_remote: the items are not here, but on the executors, as this frame. candidates: those of the items, if known.
    """

    items: tuple[str, ...] = ()
    ngrams: tuple[tuple[str, int], ...] = ()
    results: tuple[LengthResult, ...] = ()
    levels: tuple[Level, ...] = ()
    frame: Any = None
    is_remote: bool = False
    candidates: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Listed:
    """The public list of which people are counted: texts, or the levels of n-grams in order.

    known: a public list that is not part of it. sure: for each text, whether somebody has it for sure; least: the least
    number of people to show for these. candidates: for each text, whether it is on the list of candidates.
    """

    texts: tuple[str, ...]
    known: tuple[str, ...]
    sure: tuple[bool, ...]
    levels: tuple[Level, ...] = ()
    least: int = 1
    candidates: Sequence[bool] = ()


class Engine(Protocol):
    """A place to compute releases. held: everybody's sets or texts there, as the engine's `read` gives them.

    shards: the number of groups into which users are split, None on one machine. notes: sentences of the statement.
    """

    @property
    def shards(self) -> int | None: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    def check(self, request: Request, plan: Planned) -> None:
        """Refuse what the engine cannot do. Guarantees: this reads, starts and charges nothing."""

    def name_sources(self, request: Request) -> list[str]:
        """Return the names of the source, without secrets."""

    def read(
        self, request: Request, plan: Planned, key: RunKey, start_reading: Callable[[], None]
    ) -> AbstractContextManager[Any]:
        """Read everybody's sets, bounded as planned, or everybody's texts.

        Guarantees: no row is read before start_reading is called; until then, a refusal depends on names, header lines
        and schemas alone.
        """

    def look(self, held: Any, look: SizeLook, key: RunKey) -> list[float]:
        """Return the noisy numbers of people in the classes of a look.

        Guarantees: each person counts once, in the class of that person's set; only noisy sums are returned.
        """

    def select(self, held: Any, plan: Plan | NgramPlan, key: RunKey) -> Chosen:
        """Run the planned rounds. Guarantees: only what is to be released is returned."""

    def count(self, held: Any, listed: Listed, plan: CountsPlan, key: RunKey) -> Counted:
        """Count the people who have each item of a public list, in its order.

        Guarantees: as for `count_people`; people's sets are seen through noisy sums only.
        """

    def store(self, chosen: Chosen, made: Release) -> str:
        """Write the selected items, or the rows of the release, into the folder; return its path."""


def choose_ngrams(plan: NgramPlan, texts: Any, key: RunKey, run: Run) -> Chosen:
    """Select n-grams length by length, and report progress. Guarantees: as for `select_ngrams`."""
    from dpunion.ngrams.lengths import select_ngrams

    levels, found, results = select_ngrams(plan, texts, key, lambda length: run.tell(f"selecting length {length}"))
    return Chosen(ngrams=found, results=results, levels=levels)


def count_listed(listed: Listed, plan: CountsPlan, measure: Measure) -> Counted:
    """Count the people who have each item of a list, on any engine."""
    import numpy as np

    from dpunion import counting
    from dpunion.ngrams.lengths import ngram_parts

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
