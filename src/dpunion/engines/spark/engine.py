"""The verbs on Apache Spark: rows stay on the executors; only released items and noisy sums come to the driver."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dpunion.addresses import Address, public_address
from dpunion.algorithms import Bounding, DescentPolicy
from dpunion.checks import check_whole
from dpunion.contributions import Contributions
from dpunion.counting.steps import LookStep, people_in_classes
from dpunion.engines import Chosen, Listed, choose_ngrams, count_listed
from dpunion.engines.local.engine import choose_reading, read_sets, tighten_sets
from dpunion.engines.spark import rounds
from dpunion.engines.spark.counting import FOUND, FindItems, FindSizes, keep_holdings, measure_on, read_holdings
from dpunion.engines.spark.rounds import PIECES, Pieces, Selecting, drop_afterwards, group_by_user, is_order_free
from dpunion.engines.spark.sessions import Spread, check_workers, guard_task, prepare_session
from dpunion.engines.spark.sources import check_names, input_files, open_frame, protect_input, session_of
from dpunion.engines.spark.tasks import CutIntoPieces, PublicDigests, Secret, check_scores, cut_whole, read_renamed
from dpunion.engines.spark.texts import read_texts
from dpunion.engines.spark.wire import digests_to_arrow
from dpunion.errors import BadParameter, InternalError
from dpunion.mechanisms import Mechanism, mechanism_for
from dpunion.plans import Plan, Planned
from dpunion.plans.counts import Counted, CountsPlan
from dpunion.plans.look import SizeLook
from dpunion.plans.ngrams import NgramPlan
from dpunion.randomness import RunKey
from dpunion.reading import open_source
from dpunion.reading.known import KnownItems
from dpunion.releases.release import Release
from dpunion.requests import Folder, Request, Run, SparkSource
from dpunion.sets.encoding import digests_of, digests_of_list

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEFAULT_SHARDS = 8
MOST_SHARDS = 1024
MOST_CANDIDATES = 1_000_000


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Spark; shards: the number of groups into which users are split; folder: where Spark writes the items, or None."""

    run: Run
    shards: int
    folder: str | None

    @classmethod
    def for_run(cls, run: Run, folder: Folder | None) -> SparkEngine:
        return cls(run, check_shards(run.shards), None if folder is None else check_path(folder))

    @property
    def notes(self) -> tuple[str, ...]:
        return (f"It was computed on Apache Spark, with the users split into {self.shards} shards.",)

    def check(self, request: Request, plan: Planned) -> None:
        """Refuse what Spark cannot do, bad names of sources, and too many shards."""
        if self.run.memory_limit is not None:
            raise BadParameter(
                "dpunion cannot enforce a memory limit on Spark: the cluster manages memory.",
                "Leave 'memory_limit' (--memory-limit) out.",
            )
        if isinstance(request.source, SparkSource):
            check_names(request.source, request.query)
        if request.candidates is not None:
            check_candidates(plan, len(request.candidates.texts))
        for stddev, threshold, funnel in plan.funnels():
            check_scores(stddev, threshold, funnel, self.shards, listed=request.candidates is not None)

    def name_sources(self, request: Request) -> list[str]:
        """Return the names in a SparkSource, or the files that a DataFrame reads."""
        if isinstance(request.source, SparkSource):
            return [public_address(name) for name in request.source.names]
        return input_files(request.source) or ["in memory"]

    @contextmanager
    def read(self, request: Request, plan: Planned, key: RunKey, start_reading: Callable[[], None]) -> Iterator[Any]:
        """Open the source as a DataFrame; for n-grams make token streams of it, for counts or a look sets.

        Without counts or a look, `select` reads the sets, in its one action.

        Guarantees: columns, types, shards, the folder and the workers are checked before start_reading is called.
        """
        with ExitStack() as until_left:
            session = session_of(request.source)
            until_left.enter_context(prepare_session(session))
            frame, check_rows = open_frame(request, session)
            if self.folder is not None:
                (protect_input if self.run.overwrite else rounds.check_folder)(frame, self.folder)
            self.run.tell("asking Spark's workers")
            check_workers(session)
            spread = Spread.of(frame)
            reads_first = plan.opening is not plan or plan.counts is not None or request.candidates is not None
            self.run.tell("reading on Spark" if reads_first else "reading and selecting on Spark")
            start_reading()
            check_rows()

            def select(mechanism: Mechanism) -> Selecting:
                return Selecting(mechanism, Secret.of(key), self.shards, spread, self.run.tell)

            if isinstance(plan, NgramPlan):
                yield until_left.enter_context(read_texts(frame, request, key, spread, select))
            elif reads_first:
                yield self._read_pieces(frame, request, plan, key, spread, until_left)
            else:
                yield SparkSets(frame, request.of_rows(None), until_left, spread)

    def _read_pieces(
        self, frame: DataFrame, request: Request, plan: Planned, key: RunKey, spread: Spread, until_left: ExitStack
    ) -> SparkPieces:
        """Read a DataFrame's rows once, before a look or for counts. Guarantees: as for CutIntoPieces."""
        rows, shards = request.of_rows(None), self.shards
        asked, bounding = choose_reading(rows, plan)
        read_here, secret = partial(read_in_worker, asked, bounding), Secret.of(key)
        read = partial(read_renamed, read_here, tuple(frame.columns))
        if plan.look is not None:
            task = CutIntoPieces(read, bounding, secret, 0)
        else:
            # If shards make no difference, there is one, and users stay where they are.
            shards = 1 if is_order_free(mechanism_for(plan.opening)) else shards
            tighten = None if plan.counts is None else partial(tighten_sets, request=rows, plan=plan.opening)
            task = CutIntoPieces(read, bounding, secret, shards, tighten)
        pieces = until_left.enter_context(rounds.cut_into_pieces(group_by_user(frame, spread), task, spread))
        return SparkPieces(pieces, rows, shards, until_left, bounding.limit, spread, request.candidates)

    def look(self, held: Any, look: SizeLook, key: RunKey) -> list[float]:
        """Look at the sizes of people's sets on the executors. Guarantees: as for `measure_on`."""
        self.run.tell("looking on Spark")
        known = held.request.known
        find = FindSizes(digests_of(() if known is None else known.items, key))
        people = held.pieces.frame.filter("name is null").select("payload")
        return people_in_classes(measure_on(people, find, key, held.spread)(LookStep(), look.stddev))

    def select(self, held: Any, plan: Plan | NgramPlan, key: RunKey) -> Chosen:
        """Run the rounds, or those of each length; collect what was selected, or leave it to `store`.

        Guarantees:
        - one action computes the released items, so that they are never computed again from other data;
        - nothing but released items comes to the driver; with a folder, items come only if counts, a known list or
          candidates need them.
        """
        if isinstance(plan, NgramPlan):
            return dataclasses.replace(choose_ngrams(plan, held, key, self.run), frame=held.streams)
        selecting = Selecting(mechanism_for(plan), Secret.of(key), self.shards, held.spread, self.run.tell)
        if isinstance(held, SparkSets):
            read = partial(read_in_worker, held.request, plan.algorithm.bounding)
            choosing = rounds.select_items(held.frame, selecting, read)
        else:
            pieces = held.pieces if plan.look is None else held.cut_for(plan, key)
            selecting = dataclasses.replace(selecting, shards=held.shards)
            if held.candidates is not None:
                texts, digests = held.candidates.texts, digests_of_list(held.candidates.texts, key)
                on = pa.array(selecting.mechanism.mark(digests, key))
                marks = {"payload": digests_to_arrow(digests).filter(on), "name": texts.filter(on).cast(pa.binary())}
                listed = PublicDigests.of(digests)
                selecting = dataclasses.replace(selecting, listed=listed, marks=pa.record_batch(marks))
            choosing = rounds.select_from_pieces(pieces, selecting)
        chosen = held.until_left.enter_context(choosing)
        needs_items = plan.counts is not None or held.request.include_known or selecting.marks is not None
        if self.folder is not None and not needs_items:
            return Chosen(frame=chosen, is_remote=True)
        return Chosen(items=tuple(name.decode() for name in rounds.collect_items(chosen)), frame=chosen)

    def count(self, held: Any, listed: Listed, plan: CountsPlan, key: RunKey) -> Counted:
        """Count on the executors. Guarantees: as for `measure_on`."""
        self.run.tell("counting on Spark")
        people, find = held.to_count(listed, key)
        found = people.mapInArrow(guard_task(partial(keep_holdings, find, Secret.of(key))), FOUND).persist()
        with drop_afterwards(found):
            return count_listed(listed, plan, measure_on(found, read_holdings, key, held.spread))

    def store(self, chosen: Chosen, made: Release) -> str:
        """Write the items that are on the executors, or the rows of the release, into the folder with Spark."""
        if self.folder is None:
            raise InternalError("a release without a folder was to be stored in one")
        if chosen.is_remote:
            rows = rounds.sort_items(chosen.frame, made.columns)
        else:
            rows = rounds.send_rows(chosen.frame.sparkSession, made.table())
        rounds.write_folder(rows, self.folder, overwrite=self.run.overwrite)
        return self.folder


@dataclass(frozen=True, slots=True, repr=False)
class SparkSets:
    """A DataFrame whose rows become everybody's sets; until_left: drops what was kept when the reading ends."""

    frame: DataFrame
    request: Request
    until_left: ExitStack
    spread: Spread


@dataclass(frozen=True, slots=True, repr=False)
class SparkPieces:
    """Everybody's sets as pieces, to count and to select from; before a look there are none to select from.

    until_left: drops what was kept when the reading ends. limit: the bound of the sets as they were read. candidates:
    the public list, if there is one.
    """

    pieces: Pieces
    request: Request
    shards: int
    until_left: ExitStack
    limit: int
    spread: Spread
    candidates: KnownItems | None

    def cut_for(self, plan: Plan, key: RunKey) -> Pieces:
        """Return pieces to select from, bounded as the look decided. Guarantees: as for `cut_whole`."""
        tighten = partial(tighten_sets, request=self.request, plan=plan)
        task = partial(cut_whole, tighten, self.limit, Secret.of(key), self.shards)
        whole, names = (self.pieces.frame.filter(f"name is {what}") for what in ("null", "not null"))
        cut = whole.select("payload").mapInArrow(guard_task(task), PIECES)
        if self.pieces.load <= 1:
            return Pieces(cut.unionByName(names), self.pieces.load)  # one action uses it, once
        kept = self.until_left.enter_context(drop_afterwards(cut.persist()))[0]
        return Pieces(kept.unionByName(names), self.pieces.load)

    def to_count(self, listed: Listed, key: RunKey) -> tuple[DataFrame, FindItems]:
        """Return the people to count, and what finds listed items in sets. Guarantees: nothing is computed yet."""
        people = self.pieces.frame.filter("shard is null and name is null").select("payload")
        return people, FindItems(digests_of(listed.texts, key), digests_of(listed.known, key))


def read_in_worker(request: Request, bounding: Bounding, source: Any, key: RunKey) -> Contributions:
    """Read one partition's rows in a worker of Spark, as one machine does. Guarantees: as for `read_sets`."""
    request = request.of_rows(source)
    with open_source(request) as rows:
        return read_sets(request, rows, bounding, key)


def check_shards(shards: int | None) -> int:
    """Return the number of shards; refuse a number out of range."""
    chosen = DEFAULT_SHARDS if shards is None else shards
    remedy = "Leave it out, or use about one for every ten million pairs."
    return check_whole("", "shards", chosen, 1, MOST_SHARDS, remedy)


def check_candidates(plan: Planned, listed: int) -> None:
    """Refuse a list of candidates that Spark cannot use."""
    if isinstance(plan.opening.algorithm, DescentPolicy):
        raise BadParameter(
            f"{plan.name} cannot use a list of candidates on Spark.",
            "Choose funnel, or a count or weighted algorithm; or run it on one machine.",
        )
    if listed > MOST_CANDIDATES:
        raise BadParameter(
            f"On Spark, a list of candidates has at most {MOST_CANDIDATES:,} items: it travels with every task.",
            "Use a shorter list, or run it on one machine.",
        )


def check_path(folder: Folder) -> str:
    """Return the path of a folder; refuse a bad one now, as Spark would only notice it after the charge."""
    if not isinstance(folder.path, (str, os.PathLike)) or not os.fspath(folder.path):
        raise BadParameter("A Folder needs a path.", "Name a folder for Spark to write to: Folder(...).")
    if not Address.of(os.fspath(folder.path)).is_known:
        raise BadParameter(
            "The address of the folder has a user, a password, a key or settings in it, or is not well-formed.",
            "Give keys and passwords by Spark's own settings, and write, for example, s3a://bucket/folder.",
        )
    return os.fspath(folder.path)
