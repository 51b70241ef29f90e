"""Rows in pieces, each of which one thread reads, cleans and numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from dpunion.threads import work_in_order

R = TypeVar("R")

Batches = Iterable[tuple[pa.Array, pa.Array]]
"""Batches of (users, items or texts)."""


@runtime_checkable
class DividedRows(Protocol):
    """Batches that can be had in pieces, by several threads; `reading.Rows` is what does that."""

    def work_off(self, work: Callable[[Batches], R], threads: int) -> Iterator[R]:
        """Yield what `work` makes of each piece, in order."""
        ...


def work_off(batches: Batches, work: Callable[[Batches], R], threads: int) -> Iterator[R]:
    """Yield what `work`, in some threads, makes of the pieces of these batches; each batch is one where none are told.

    Guarantees: the order of the pieces is kept, and so is the error that comes first in it.
    """
    if isinstance(batches, DividedRows):
        return batches.work_off(work, threads)
    return work_in_order(lambda batch: work((batch,)), batches, threads)
