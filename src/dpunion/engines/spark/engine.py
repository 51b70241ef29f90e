"""Apache Spark: rows stay on the executors; nothing but released items and noisy sums comes to the driver."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpunion.addresses import Address, public_address
from dpunion.algorithms import Bounding
from dpunion.checks import check_whole
from dpunion.contributions import Contributions
from dpunion.engines import Chosen, Listed, choose_ngrams, count_listed
from dpunion.engines.local.engine import asked_for_counts, bounded_sets, open_request, read_sets
from dpunion.errors import BadParameter, InternalError
from dpunion.mechanisms import mechanism_for
from dpunion.plans import Plan, Planned
from dpunion.plans.counts import MOST_COUNTED, Counted, CountsPlan
from dpunion.plans.look import SizeLook
from dpunion.plans.ngrams import NgramPlan
from dpunion.randomness import RunKey
from dpunion.releases.release import Release
from dpunion.requests import Folder, Request, Run, SparkSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dpunion.engines.spark.counting import FindItems

DEFAULT_SHARDS = 8
MOST_SHARDS = 1024


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Spark; shards: among how many the users of a policy are spread; folder: where it writes the items, if it does."""

    run: Run
    shards: int
    folder: str | None

    @classmethod
    def for_run(cls, run: Run, folder: Folder | None) -> SparkEngine:
        """Return the engine for a run."""
        return cls(run, check_shards(run.shards), None if folder is None else check_path(folder))

    @property
    def notes(self) -> tuple[str, ...]:
        """Say where the release was computed."""
        return (f"It was computed on Apache Spark, with the users split into {self.shards} shards.",)

    def check(self, request: Request, plan: Planned) -> None:
        """Refuse what Spark cannot do, what its sources' names tell, and too many shards."""
        from dpunion.engines.spark.sources import check_names

        if self.run.memory_limit is not None:
            raise BadParameter(
                "dpunion cannot enforce a memory limit on Spark: the cluster manages memory.",
                "Leave 'memory_limit' (--memory-limit) out.",
            )
        if isinstance(request.source, SparkSource):
            check_names(request.source, request.query)
        check_scores_of(plan, self.shards)

    def name_sources(self, request: Request) -> list[str]:
        """Return the names that Spark is given, or those of the files that a DataFrame reads."""
        from dpunion.engines.spark.frames import input_files

        if isinstance(request.source, SparkSource):
            return [public_address(name) for name in request.source.names]
        return input_files(request.source) or ["in memory"]

    @contextlib.contextmanager
    def read(self, request: Request, plan: Planned, key: RunKey, start_reading: Callable[[], None]) -> Iterator[Any]:
        """Open the source as a DataFrame, and split texts into streams; with counts or a look, make sets of it.

        Other sets are read by `select`, in its one action.

        Guarantees: columns, types, shards and the folder are checked before start_reading is called.
        """
        from dpunion.engines.spark.frames import check_folder
        from dpunion.engines.spark.sources import open_frame
        from dpunion.engines.spark.texts import read_texts

        frame, check_rows = open_frame(request)
        if self.folder is not None and not self.run.overwrite:
            check_folder(frame, self.folder)
        reads_first = plan.opening is not plan or plan.counts is not None
        self.run.tell("reading on Spark" if reads_first else "reading and selecting on Spark")
        start_reading()
        check_rows()
        with contextlib.ExitStack() as until_left:
            if isinstance(plan, NgramPlan):
                leaves = plan.settings.longest if self._leaves_what_is_selected(plan, request) else None
                yield until_left.enter_context(read_texts(frame, request, key, self.shards, leaves))
                return
            asked = dataclasses.replace(request, source=None)
            if plan.look is not None:
                yield until_left.enter_context(read_for_look(frame, asked, plan, key, self.shards))
            elif plan.counts is None:
                yield SparkSets(frame, asked, until_left)
            else:
                yield until_left.enter_context(read_for_counts(frame, asked, plan.opening, key, self.shards))

    def look(self, held: Any, look: SizeLook, key: RunKey) -> list[float]:
        """Look at the sizes of people's sets where they are.

        Guarantees: those of measure_on.
        """
        from dpunion.counting.holdings import digests_of
        from dpunion.counting.steps import LookStep, people_in_classes
        from dpunion.engines.spark.counting import FindSizes, measure_on

        self.run.tell("looking on Spark")
        known = held.request.known
        find = FindSizes(digests_of(() if known is None else known.items, key))
        people = held.pieces.filter("name is null").select("payload")
        return people_in_classes(measure_on(people, find, key)(LookStep(), look.stddev))

    def select(self, held: Any, plan: Plan | NgramPlan, key: RunKey) -> Chosen:
        """Run the rounds, or those of each length; bring here what was selected, or leave it for `store`.

        Guarantees:
        - one action makes the released items, so that they are never computed a second time from other data;
        - nothing but released items comes to the driver, and these only when there is no folder to store them in,
          something is to stand beside them there, or longer n-grams are made of them.
        """
        from dpunion.engines.spark.frames import collected
        from dpunion.engines.spark.rounds import selected, selected_from
        from dpunion.engines.spark.texts import spell_ngrams

        if isinstance(plan, NgramPlan):
            grams = choose_ngrams(plan, held, key, self.run)
            if held.left is None:
                return dataclasses.replace(grams, frame=held.streams)
            return dataclasses.replace(grams, frame=spell_ngrams(held.left, grams.levels, grams.ngrams), is_left=True)
        if plan.look is None and plan.counts is None:
            reader = ReadSets(held.request, plan.algorithm.bounding)
            selecting = selected(held.frame, mechanism_for(plan), reader, key, self.shards)
        else:
            self.run.tell("selecting on Spark")
            pieces = held.pieces if plan.look is None else held.cut_for(plan, key)
            selecting = selected_from(pieces, mechanism_for(plan), key, held.shards)
        chosen = held.until_left.enter_context(selecting)
        if self._leaves_what_is_selected(plan, held.request):
            return Chosen(frame=chosen, is_left=True)
        return Chosen(items=tuple(name.decode() for name in collected(chosen)), frame=chosen)

    def _leaves_what_is_selected(self, plan: Planned, request: Request) -> bool:
        """Say whether Spark writes what it selects, and nothing that the driver has stands beside it."""
        return self.folder is not None and plan.counts is None and not request.include_known

    def count(self, held: Any, listed: Listed, plan: CountsPlan, key: RunKey) -> Counted:
        """Count where people's sets and texts are.

        Guarantees: those of measure_on.
        """
        from dpunion.engines.spark.counting import measure_on

        self.run.tell("counting on Spark")
        people, find = held.to_count(listed, key)
        return count_listed(listed, plan, measure_on(people, find, key))

    def store(self, chosen: Chosen, made: Release) -> str:
        """Have Spark write what was selected into the folder: where it is, or as it came out at last.

        Of n-grams the longest may be there, and the shorter ones in the release.
        """
        from dpunion.engines.spark.frames import as_columns, as_frame, by_item, rows_in_order, written

        if self.folder is None:
            raise InternalError("a release without a folder was to be stored in one")
        session = chosen.frame.sparkSession
        if not chosen.is_left:
            rows = rows_in_order(session, made.table())
        elif made.results:
            rows = by_item(as_frame(session, made.table()).unionByName(chosen.frame))
        else:
            rows = by_item(as_columns(chosen.frame, made.columns))
        written(rows, self.folder, overwrite=self.run.overwrite)
        return self.folder


@contextlib.contextmanager
def read_for_counts(frame: DataFrame, request: Request, plan: Plan, key: RunKey, shards: int) -> Iterator[SparkPieces]:
    """Read a DataFrame's rows once, into sets to select from and sets to count.

    Guarantees: those of CutIntoPieces.
    """
    from dpunion.engines.spark.rounds import is_order_free, read_pieces

    asked, bounding = asked_for_counts(request, plan)
    # Where shards do not matter there is one, and users stay where they are.
    count = 1 if is_order_free(mechanism_for(plan)) else shards
    read, tighten = ReadSets(asked, bounding), TightenSets(request, plan)
    with contextlib.ExitStack() as until_left:
        pieces = until_left.enter_context(read_pieces(frame, bounding, read, tighten, key, count))
        yield SparkPieces(pieces, request, count, until_left)


@contextlib.contextmanager
def read_for_look(frame: DataFrame, request: Request, plan: Planned, key: RunKey, shards: int) -> Iterator[SparkPieces]:
    """Read a DataFrame's rows once, into sets whose sizes are looked at before they are bounded further.

    Guarantees: those of KeepWhole.
    """
    from dpunion.engines.spark.rounds import keep_whole

    asked, bounding = asked_for_counts(request, plan)
    with contextlib.ExitStack() as until_left:
        pieces = until_left.enter_context(keep_whole(frame, bounding, ReadSets(asked, bounding), key))
        yield SparkPieces(pieces, request, shards, until_left, bounding.limit)


@dataclass(frozen=True, slots=True, repr=False)
class SparkSets:
    """A DataFrame whose rows become everybody's sets; until_left: what is dropped when the reading is left."""

    frame: DataFrame
    request: Request
    until_left: contextlib.ExitStack

    def __repr__(self) -> str:
        return "SparkSets(<sensitive>)"


@dataclass(frozen=True, slots=True, repr=False)
class SparkPieces:
    """Everybody's sets as pieces, to select from and to count; until_left: what is dropped when the reading is left.

    limit: before a look, to how many items the pieces to count are bounded; there are none to select from yet.
    """

    pieces: DataFrame
    request: Request
    shards: int
    until_left: contextlib.ExitStack
    limit: int = MOST_COUNTED

    def __repr__(self) -> str:
        return "SparkPieces(<sensitive>)"

    def cut_for(self, plan: Plan, key: RunKey) -> DataFrame:
        """Return pieces to select from, bounded as the look chose.

        Guarantees: those of CutWhole.
        """
        from dpunion.engines.spark.rounds import cut_whole

        tighten = TightenSets(self.request, plan)
        return self.until_left.enter_context(cut_whole(self.pieces, tighten, self.limit, key, self.shards))

    def to_count(self, listed: Listed, key: RunKey) -> tuple[DataFrame, FindItems]:
        """Return the people whose sets are counted, and what says what of the list they hold.

        Guarantees: nothing is computed yet.
        """
        from dpunion.counting.holdings import digests_of
        from dpunion.engines.spark.counting import FindItems

        people = self.pieces.filter("shard is null and name is null").select("payload")
        return people, FindItems(digests_of(listed.texts, key), digests_of(listed.known, key))


@dataclass(frozen=True, slots=True)
class ReadSets:
    """Reads one partition's rows in a worker of Spark, as one machine does."""

    request: Request
    bounding: Bounding

    def __call__(self, source: Any, key: RunKey) -> Contributions:
        """Read all rows. Guarantees: those of `read_sets`."""
        request = self.request.of_rows(source)
        with open_request(request, Run(), None) as rows:
            return read_sets(request, rows, self.bounding, key)


@dataclass(frozen=True, slots=True)
class TightenSets:
    """Bounds sets that were read for counting as planned, in a worker of Spark, as one machine does."""

    request: Request
    plan: Plan

    def __call__(self, whole: Contributions, key: RunKey) -> Contributions:
        """Bound the sets. Guarantees: those of `bounded_sets`."""
        return bounded_sets(whole, self.request, self.plan, key)


def check_shards(shards: int | None) -> int:
    """Return the number of shards; refuse what makes no sense."""
    chosen = DEFAULT_SHARDS if shards is None else shards
    remedy = "Leave it out, or use about one for every ten million pairs."
    return check_whole("", "shards", chosen, 1, MOST_SHARDS, remedy)


def check_path(folder: Folder) -> str:
    """Return where a folder is; refuse what is no path, which Spark would find out after the charge."""
    if not isinstance(folder.path, (str, os.PathLike)) or not os.fspath(folder.path):
        raise BadParameter("A Folder needs a path.", "Name a folder for Spark to write to: Folder(...).")
    if not Address.of(os.fspath(folder.path)).is_known:
        raise BadParameter(
            "The address of the folder has a user, a password, a key or settings in it, or is not well-formed.",
            "Give keys and passwords by Spark's own settings, and write, for example, s3a://bucket/folder.",
        )
    return os.fspath(folder.path)


def check_scores_of(plan: Planned, shards: int) -> None:
    """Refuse this many shards if rounding in the scores of a Funnel is no longer negligible."""
    from dpunion.engines.spark.targets import check_scores

    for stddev, threshold, funnel in plan.funnels():
        check_scores(stddev, threshold, funnel, shards)
