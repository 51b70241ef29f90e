"""Keep what other libraries say about bad data out of our errors: their messages quote rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from dpunion.errors import BadSource, DamagedSource
from dpunion.foreign import ForeignErrors

T = TypeVar("T")

WRITE_AGAIN = "Write or copy the data again from its origin; nothing of it was used."


def attempt(call: Callable[[], T], where: str) -> T:
    """Return what `call` returns; whatever it raises becomes a DamagedSource, or NotEnoughMemory.

    Guarantees:
    - the error names `where` only: the original message, cause, context and traceback are dropped.
    """
    with ForeignErrors(lambda failure: explain_damage(where, failure), where=where):
        return call()


def attempt_each(batches: Callable[[], Iterable[T]], where: str) -> Iterator[T]:
    """Yield what an iterable yields; whatever it raises becomes a DamagedSource, as in `attempt`."""
    iterator = iter(attempt(batches, where))
    end = object()
    while (batch := attempt(lambda: next(iterator, end), where)) is not end:
        yield batch  # type: ignore[misc]


def explain_damage(where: str, failure: Exception) -> BadSource:
    """Return the error for a reader's failure, of which only the class is looked at."""
    if isinstance(failure, PermissionError):
        return BadSource(f"No permission to read {where}.", "Ask for read permission, or read a copy.")
    return DamagedSource(f"Could not read {where}: it is damaged, truncated or not what its name says.", WRITE_AGAIN)
