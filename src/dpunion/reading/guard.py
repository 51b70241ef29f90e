"""Keep what other libraries say about bad data out of our errors: their messages quote rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

from dpunion.errors import BadSource, DamagedSource, DpunionError

T = TypeVar("T")

WRITE_AGAIN = "Write or copy the data again from its origin; nothing of it was used."


def attempt(call: Callable[[], T], where: str) -> T:
    """Return what `call` returns; whatever it raises becomes a DamagedSource.

    Guarantees:
    - the error names `where` only: the original message, cause, context and traceback are dropped.
    """
    done, result = _try(call)
    if done:
        return cast("T", result)
    # subtle: raised outside the handler, so that the error has no __context__ that would quote the row.
    raise result if isinstance(result, DpunionError) else damaged(where, result)


def attempt_each(batches: Callable[[], Iterable[T]], where: str) -> Iterator[T]:
    """Yield what an iterable yields; whatever it raises becomes a DamagedSource, as in `attempt`."""
    iterator = iter(attempt(batches, where))
    end = object()
    while (batch := attempt(lambda: next(iterator, end), where)) is not end:
        yield batch  # type: ignore[misc]


def _try(call: Callable[[], Any]) -> tuple[bool, Any]:
    try:
        return True, call()
    except DpunionError as error:
        return False, error
    except PermissionError:
        return False, PermissionError()
    except MemoryError:
        return False, MemoryError()
    except Exception:  # noqa: BLE001 - any failure of a reader means that the data cannot be trusted
        return False, None


def damaged(where: str, failure: Any) -> BadSource:
    """Return the error for a reader's failure, of which only the class is looked at."""
    if isinstance(failure, PermissionError):
        return BadSource(f"No permission to read {where}.", "Ask for read permission, or read a copy.")
    if isinstance(failure, MemoryError):
        return DamagedSource(
            f"There was not enough memory to read {where}: it is damaged, or its batches are too large.",
            "Write the data again, with smaller row groups or batches.",
        )
    return DamagedSource(f"Could not read {where}: it is damaged, truncated or not what its name says.", WRITE_AGAIN)
