"""One machine: reads rows into arrays, and runs the rounds on them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from dpunion.algorithms import Bounding
from dpunion.contributions import Contributions, Int64s, ItemTable
from dpunion.engines import Chosen, choose_ngrams
from dpunion.engines.local.rounds import run_rounds
from dpunion.errors import BadParameter, InternalError
from dpunion.mechanisms import mechanism_for
from dpunion.ngrams.plans import NgramPlan
from dpunion.plans import Plan
from dpunion.randomness import RunKey
from dpunion.reading import Rows, ValueKind, open_rows
from dpunion.reading.databases import name_database
from dpunion.requests import Folder, Request, Run
from dpunion.sets.encoding import encode
from dpunion.sets.spill import as_bytes

if TYPE_CHECKING:
    from dpunion.engines.local.texts import LocalTexts


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """One machine; memory_limit: the bytes beyond which rows wait on disk.

    Guarantees: those of the Protocol; what is read stays in this process, or in its nameless files.
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

    def check(self, request: Request, plan: Plan | NgramPlan) -> None:
        """Refuse a memory limit where it is not kept."""
        if self.memory_limit is not None and (isinstance(plan, NgramPlan) or not request.plain_words):
            refuse_memory_limit()

    def name_sources(self, request: Request) -> list[str]:
        """Return the names of files and databases, without passwords; objects in memory have none."""
        if not request.is_named:
            return ["in memory"]
        names = request.source if isinstance(request.source, (list, tuple)) else [request.source]
        return [_public(str(name)) for name in names]

    @contextlib.contextmanager
    def read(
        self, request: Request, plan: Plan | NgramPlan, key: RunKey, start_reading: Callable[[], None]
    ) -> Iterator[Contributions | LocalTexts]:
        """Read the rows into arrays."""
        if isinstance(plan, NgramPlan):
            from dpunion.engines.local.texts import read_texts

            with open_request(request, self.run, start_reading) as rows:
                texts = read_texts(request, rows, key)
            yield texts
        else:
            with open_request(request, self.run, start_reading) as rows:
                sets = read_sets(request, rows, plan.algorithm.bounding, key, self.memory_limit, self.run.threads)
            yield sets

    def select(self, held: Any, plan: Plan | NgramPlan, key: RunKey) -> Chosen:
        """Run the rounds, or those of each length."""
        if isinstance(plan, NgramPlan):
            return choose_ngrams(plan, held, key, self.run)
        self.run.tell("selecting")
        return Chosen(items=texts_of(held.table, run_rounds(mechanism_for(plan), held, key)))

    def store(self, chosen: Chosen, columns: tuple[str, ...]) -> NoReturn:  # noqa: ARG002 - as in the Protocol
        """Folders are Spark's: `for_run` refuses them."""
        raise InternalError("one machine was asked to store a release in a folder of Spark's")


def refuse_memory_limit() -> NoReturn:
    """Refuse a limit that would not be kept."""
    raise BadParameter(
        "A memory limit cannot be kept on Spark, with n-grams or with another tokenizer yet.",
        "Leave 'memory_limit' (--memory-limit) out.",
    )


def open_request(request: Request, run: Run, start_reading: Callable[[], None] | None) -> Rows:
    """Open the source that is asked for.

    Guarantees: those of open_rows.
    """
    run.tell("reading", 0.0)
    return open_rows(
        request.source,
        user=request.user,
        value=request.value,
        kind=request.kind,
        query=request.query,
        input_format=request.input_format,
        null_users=request.null_users,
        on_progress=lambda done: run.tell("reading", done),
        on_reading=start_reading,
    )


def read_sets(
    request: Request,
    rows: Rows,
    bounding: Bounding,
    key: RunKey,
    memory_limit: int | None = None,
    threads: int | None = None,
) -> Contributions:
    """Read rows into everybody's bounded sets.

    Guarantees: those of `encode` and `encode_ngrams`.
    """
    if not request.plain_words:
        from dpunion.sets.streams import encode_ngrams

        return encode_ngrams(
            rows,
            key,
            shortest=request.lengths[0],
            longest=request.lengths[1],
            max_items_per_user=bounding.limit,
            user_order=bounding.order,
            splitting=request.splitting,
            normalization=request.normalization,
            threads=threads,
        )
    return encode(
        rows,
        key,
        max_items_per_user=bounding.limit,
        user_order=bounding.order,
        normalization=request.normalization,
        split_words=request.kind is ValueKind.TEXT,
        known=() if request.known is None else request.known.items,
        memory_limit=memory_limit,
        threads=threads,
        read_ahead=request.is_named and request.query is None,
    )


def texts_of(table: ItemTable, chosen: Int64s) -> tuple[str, ...]:
    """Return the texts of the chosen items.

    Guarantees: they are copied out one by one; nothing else of the table is looked at.
    """
    starts, stops = table.offsets[chosen].tolist(), table.offsets[chosen + 1].tolist()
    data = np.ascontiguousarray(table.data)
    return tuple(data[start:stop].tobytes().decode() for start, stop in zip(starts, stops, strict=True))


def _public(source: str) -> str:
    """Return a source's name without anything secret."""
    return name_database(source) if source.startswith(("postgresql://", "postgres://")) else source
