"""The verbs on one machine: read rows into arrays, and run the rounds on them."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from dpunion.addresses import public_address
from dpunion.algorithms import Bounding, UserOrder
from dpunion.buffers import as_texts, string_buffers
from dpunion.contributions import Bools, Contributions, Int64s, ItemTable
from dpunion.engines import Chosen, Listed, choose_ngrams, count_listed
from dpunion.engines.local import find_listed, run_rounds
from dpunion.engines.warming import preload_kernels
from dpunion.errors import BadParameter, InternalError
from dpunion.mechanisms import mechanism_for
from dpunion.plans import Plan, Planned
from dpunion.plans.counts import MOST_COUNTED, Counted, CountsPlan
from dpunion.plans.look import SizeLook
from dpunion.plans.ngrams import NgramPlan
from dpunion.randomness import RunKey
from dpunion.reading import Rows, ValueKind, check_addresses, open_source
from dpunion.releases.release import Release
from dpunion.requests import Folder, Request, Run
from dpunion.sets.encoding import digests_of, digests_of_list, encode, mark_known
from dpunion.sets.grouping import bound_further, copy_heavy_users
from dpunion.sets.spill import as_bytes
from dpunion.sets.strings import select_strings
from dpunion.threads import usable_cores, work_in_order

if TYPE_CHECKING:
    from dpunion.engines.local.texts import LocalTexts


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """One machine; memory_limit: the bytes beyond which rows and texts go to disk.

    Guarantees: as for the Protocol; rows stay in this process, or in its nameless files.
    """

    run: Run
    memory_limit: int | None
    shards: None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def for_run(cls, run: Run, folder: Folder | None) -> LocalEngine:
        """Return the engine for a run; refuse options of Spark."""
        if run.shards is not None or folder is not None:
            raise BadParameter("'shards' and Folder are for Spark.", "Pass a DataFrame of Spark, or leave them out.")
        return cls(run, as_bytes(run.memory_limit))

    def check(self, request: Request, plan: Planned) -> None:  # noqa: ARG002 - as in the Protocol
        """Refuse addresses with a password, and those of no known form."""
        if request.is_named:
            check_addresses(request)

    def name_sources(self, request: Request) -> list[str]:
        """Return the names of files and databases, without passwords; objects in memory have none."""
        if not request.is_named:
            return ["in memory"]
        names = request.source if isinstance(request.source, (list, tuple)) else [request.source]
        return [public_address(name) for name in names]

    @contextlib.contextmanager
    def read(
        self, request: Request, plan: Planned, key: RunKey, start_reading: Callable[[], None]
    ) -> Iterator[LocalSets | LocalTexts]:
        if isinstance(plan, NgramPlan):
            from dpunion.engines.local.texts import read_texts

            with open_request(request, self.run, start_reading) as rows:
                counted = plan.counts is not None
                texts = read_texts(request, rows, key, self.memory_limit, self.run.threads, counted=counted)
            yield texts
        else:
            with open_request(request, self.run, start_reading) as rows, preload_kernels(plan, self.run.threads):
                asked, bounding = choose_reading(request, plan)
                whole = read_sets(asked, rows, bounding, key, self.memory_limit, self.run.threads)
            yield LocalSets(whole, request, (whole,))

    def look(self, held: Any, look: SizeLook, key: RunKey) -> list[float]:
        from dpunion.counting.steps import look_at_sizes, set_sizes

        sizes = set_sizes(held.whole, unwanted_items(held.whole, held.request, key))
        return look_at_sizes(sizes, look, key)

    def select(self, held: Any, plan: Plan | NgramPlan, key: RunKey) -> Chosen:
        if isinstance(plan, NgramPlan):
            return choose_ngrams(plan, held, key, self.run)
        used_up = plan.counts is None or held.copy_heavy(plan.algorithm.bounding)
        bounded = tighten_sets(held.whole, held.request, plan, key, self.run.threads, in_place=used_up)
        self.run.tell("selecting")
        mechanism, candidates, table = mechanism_for(plan), held.request.candidates, bounded.table
        if candidates is None:
            return Chosen(items=texts_of(table, run_rounds(mechanism, bounded, key, self.run.threads)))
        listed = digests_of_list(candidates.texts, key, self.run.threads or usable_cores())
        chosen = run_rounds(mechanism, bounded, key, self.run.threads, listed)
        kept, others = chosen[chosen < len(table)], chosen[chosen >= len(table)] - len(table)
        items, unkept = texts_of(table, kept), [*as_texts(*select_strings(*string_buffers(candidates.texts), others))]
        found = itertools.compress(items, find_listed(table.digests[kept], listed) >= 0)
        return Chosen(items=(*items, *unkept), candidates=frozenset({*found, *unkept}))

    def count(self, held: Any, listed: Listed, plan: CountsPlan, key: RunKey) -> Counted:
        from dpunion.counting.holdings import holdings_in_shares, number_items
        from dpunion.counting.steps import Step, add_noise

        self.run.tell("counting")
        threads = min(self.run.threads or usable_cores(), usable_cores())
        if listed.levels:
            shares = held.holdings(listed.levels).divide(threads)
        else:
            table = held.whole.table
            numbers = number_items(table.digests, digests_of(listed.texts, key), digests_of(listed.known, key))
            shares = [one for sets in held.counted for one in holdings_in_shares(sets, numbers, key, threads)]

        def measure(step: Step, stddev: float) -> Int64s:
            sums = np.zeros(step.length, np.int64)
            for some in work_in_order(step.add_up, shares, threads):
                sums += some
            return add_noise(sums, step.sensitivity, stddev, step.number, key)

        return count_listed(listed, plan, measure)

    def store(self, chosen: Chosen, made: Release) -> NoReturn:  # noqa: ARG002 - as in the Protocol
        """Fail: `for_run` refuses folders, which are for Spark."""
        raise InternalError("one machine was asked to store a release in a folder of Spark's")


@dataclass(slots=True, repr=False)
class LocalSets:
    """Everybody's sets as they were read: bounded as planned or, for counts and before a look, more loosely.

    counted: the same sets for counting, which uses them up.

    Guarantees: the repr shows nothing about them.
    """

    whole: Contributions
    request: Request
    counted: tuple[Contributions, ...]

    def copy_heavy(self, bounding: Bounding) -> bool:
        """Copy the sets that bounding will change, and return whether bounding may then overwrite `whole`."""
        if self.request.known is not None or bounding.order is not UserOrder.SMALLEST_FIRST:
            return False
        self.counted = copy_heavy_users(self.whole, bounding.limit)
        return True


def choose_reading(request: Request, plan: Planned) -> tuple[Request, Bounding]:
    """Return the request and the bounding to read sets with: for counts, known and more items are kept."""
    bounding = plan.bounding
    if plan.counts is None:
        return request, bounding
    return dataclasses.replace(request, known=None), Bounding(max(bounding.limit, MOST_COUNTED), bounding.order)


def tighten_sets(
    whole: Contributions,
    request: Request,
    plan: Plan,
    key: RunKey,
    threads: int | None = None,
    *,
    in_place: bool = False,
) -> Contributions:
    """Bound sets as planned, without known items; in_place: overwrite them. Guarantees: as for `bound_further`."""
    if plan.counts is None and plan.look is None:
        return whole
    unwanted = None if plan.counts is None else unwanted_items(whole, request, key)
    limit = plan.algorithm.bounding.limit
    if unwanted is None and int(np.diff(whole.offsets).max(initial=0)) <= limit:
        return dataclasses.replace(whole, max_items_per_user=limit)
    return bound_further(whole, plan.algorithm.bounding, key, unwanted, threads, in_place=in_place)


def unwanted_items(whole: Contributions, request: Request, key: RunKey) -> Bools | None:
    """Say which items are known: bool[items], None without a known list. Guarantees: as for `mark_known`."""
    return None if request.known is None else mark_known(whole.table, request.known.items, key)


def open_request(request: Request, run: Run, start_reading: Callable[[], None] = lambda: None) -> Rows:
    """Open the source of a request, and report progress to the run."""
    run.tell("reading", 0.0)
    return open_source(
        request, start_reading, lambda done: run.tell("reading", done) if done < 1.0 else run.tell("grouping")
    )


def read_sets(
    request: Request,
    rows: Rows,
    bounding: Bounding,
    key: RunKey,
    memory_limit: int | None = None,
    threads: int | None = None,
) -> Contributions:
    """Read rows into everybody's bounded sets. Guarantees: as for `encode` and `encode_ngrams`."""
    options: dict[str, Any] = {
        "max_items_per_user": bounding.limit,
        "user_order": bounding.order,
        "splitting": request.splitting,
        "normalization": request.normalization,
        "memory_limit": memory_limit,
        "threads": threads,
    }
    if request.lengths != (1, 1):
        from dpunion.sets.streams import encode_ngrams

        return encode_ngrams(rows, key, shortest=request.lengths[0], longest=request.lengths[1], **options)
    known = () if request.known is None else request.known.items
    return encode(rows, key, split_words=request.kind is ValueKind.TEXT, known=known, **options)


def texts_of(table: ItemTable, chosen: Int64s) -> tuple[str, ...]:
    """Return the texts of the chosen items. Guarantees: only the bytes of the chosen items are copied and decoded."""
    return tuple(as_texts(*select_strings(table.offsets, table.data, chosen)))
