"""All errors that dpunion raises on purpose, and how errors of other libraries become errors of dpunion.

    DpunionError                 the user can fix it: the message says how
    ├── BadParameter             a parameter of the call (also a ValueError)           exit code 2
    │   └── NotPrivate           a research policy was given to a release path
    ├── BadSource                the data cannot be read as asked                      exit code 3
    │   ├── SourceNotFound       no such file, no match for a pattern
    │   ├── UnknownColumn        there is no such column; the message has similar names
    │   ├── UnsupportedType      a column whose values have no canonical text form
    │   ├── NullUsers            rows without a user
    │   ├── DamagedSource        truncated, ragged, not UTF-8, failing its checksum
    │   └── NotEnoughMemory      no more memory or threads (also a MemoryError)
    ├── CannotWrite              the output cannot be written                          exit code 4
    └── LedgerError              the budget's ledger cannot be used as asked           exit code 5
        ├── BudgetExhausted      the dataset's budget does not cover the release
        ├── AlreadyReleased      the same release was made before; nothing was charged
        ├── UnfinishedRelease    the same release is running, or died; nothing was charged
        ├── NotDue               a schedule has no release on this day             exit code 7
        ├── ReplacedLedger       another ledger has taken the place of the release's own
        └── DamagedLedger        the ledger was altered or is not a ledger
    InternalError                a bug of dpunion (an AssertionError)                  exit code 1
    └── SensitivityMismatch      weights of another sensitivity than the noise assumes

Guarantees:
- no message has a value of the data: only names, positions, types and public parameters;
- every message of a DpunionError ends with a remedy;
- messages of other libraries and the system, which may quote rows, paths and addresses, are dropped (`ForeignErrors`).
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar


class LedgerNote(str):
    """A sentence about a charge, and the same as plain values; public.

    A release's statement has one, and an error that ends a run after its charge has one in its `__notes__`.
    """

    __slots__ = ("facts",)
    facts: dict[str, Any]

    def __new__(cls, sentence: str, facts: dict[str, Any]) -> Self:
        """Return the sentence with its values."""
        note = super().__new__(cls, sentence)
        note.facts = facts
        return note

    def __reduce__(self) -> tuple[type, tuple[str, dict[str, Any]]]:
        return type(self), (str(self), self.facts)


def ledger_note(error: BaseException) -> LedgerNote | None:
    """Return an error's note about the charge; other notes are ignored, as they may have values of the data."""
    notes = [note for note in getattr(error, "__notes__", ()) if isinstance(note, LedgerNote)]
    return notes[-1] if notes else None


class DpunionError(Exception):
    """An error with a remedy; both texts have public values only."""

    exit_code = 2

    def __init__(self, what: str, remedy: str) -> None:
        if not remedy:
            raise InternalError("an error without a remedy")
        self.what = what
        self.remedy = remedy
        super().__init__(f"{what} {remedy}")

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.what, self.remedy)


class BadParameter(DpunionError, ValueError):
    """A parameter of the call has no valid meaning."""


class NotPrivate(BadParameter):
    """A policy without a privacy proof was given to a release path."""


class BadSource(DpunionError):
    """The data cannot be read as asked."""

    exit_code = 3


class SourceNotFound(BadSource):
    """There is nothing at the given path or pattern."""


class UnknownColumn(BadSource):
    """The column is not in the data."""


class UnsupportedType(BadSource):
    """The column's values have no canonical text form."""


class NullUsers(BadSource):
    """Some rows have no user."""


class DamagedSource(BadSource):
    """The file is truncated, ragged, not UTF-8 or otherwise broken; dpunion used none of it."""


class NotEnoughMemory(BadSource, MemoryError):
    """The system has no more memory or threads."""


class CannotWrite(DpunionError):
    """The output cannot be written."""

    exit_code = 4


class LedgerError(DpunionError):
    """The ledger cannot be used as asked; nothing was granted."""

    exit_code = 5


class BudgetExhausted(LedgerError):
    """The dataset's budget does not cover the release."""


class AlreadyReleased(LedgerError):
    """The same release was made before.

    entry: the ledger entry's public name. outputs: (path, sha256) of the files that it wrote. source_changed: whether
    the sources have another size or time now; None if that is unknown.
    """

    entry: str = ""
    outputs: tuple[tuple[str, str], ...] = ()
    source_changed: bool | None = None


class UnfinishedRelease(LedgerError):
    """An earlier run of the same release has reserved its budget and has not settled."""


class NotDue(LedgerError):
    """The schedule has no release on this day; nothing was charged.

    next_day: from which day the next one is due, like 2027-01-04. complete: whether all its releases are made.
    """

    exit_code = 7
    next_day: str | None = None
    complete: bool = False


class ReplacedLedger(LedgerError):
    """The ledger does not have the release's entry: a copy or another ledger was put in its place."""


class DamagedLedger(LedgerError):
    """The ledger was altered, or is not a ledger."""


class InternalError(AssertionError):
    """A bug of dpunion itself."""

    exit_code = 1

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}. This is a bug in dpunion: please report it. No release was made.")


class SensitivityMismatch(InternalError):
    """The weights' sensitivity is not the one that the noise was calibrated for."""


NO_THREAD = "can't start new thread"
# Messages of the loader of shared libraries, in an ImportError or an OSError without a number.
NOT_LOADED = ("Cannot allocate memory", "failed to map segment", "cannot map zero-fill pages")
MORE_MEMORY = (
    "Free some memory or use a machine with more; a smaller --memory-limit, fewer --threads, and smaller row groups or "
    "batches in the source also help."
)
MORE_THREADS = "Raise the limit on processes (ulimit -u, or the container's), or use fewer 'threads' (--threads)."

Explain = Callable[[Any], Exception | None]
"""Returns the error of dpunion for a foreign error, which it may inspect; None to let it pass."""


class ForeignErrors(contextlib.ContextDecorator):
    """Inside `with ForeignErrors(explain, *kinds)`, an error is replaced by the one that `explain` returns.

    kinds: which errors to replace, by default every Exception. Errors of dpunion pass unchanged, unless `ours_too`.
    where: the name of what is being read, for the error about too little memory.

    Guarantees:
    - a lack of memory becomes NotEnoughMemory, without a call of `explain`;
    - the new error has only what `explain` took from the foreign one: it has neither cause nor context, and no frame of
      its traceback refers to the foreign error;
    - interrupts and other errors pass unchanged.
    """

    __slots__ = ("_explain", "_kinds", "_ours_too", "_where")

    def __init__(self, explain: Explain, *kinds: type[Exception], ours_too: bool = False, where: str = "") -> None:
        self._explain = explain
        self._kinds = kinds or (Exception,)
        self._ours_too = ours_too
        self._where = where

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, self._kinds) or (isinstance(error, DpunionError) and not self._ours_too):
            return
        problem = find_shortage(error, self._where) or self._explain(error)
        if problem is None or problem is error:
            return
        del kind, error, trace  # the new error's traceback has this frame
        try:
            raise problem
        finally:
            # subtle: `raise` has just set it to the foreign error; later raises do not set it again.
            problem.__context__ = None


def name_shortages() -> ForeignErrors:
    """Return a context, or decorator, that turns a lack of memory or threads into NotEnoughMemory."""
    return ForeignErrors(lambda _: None)


def find_shortage(error: BaseException, where: str = "") -> NotEnoughMemory | None:
    """Return NotEnoughMemory if an error, or one of its causes, is a lack of memory or threads; else None.

    Guarantees: of the foreign error, it keeps only the note about the ledger.
    """
    if not isinstance(error, Exception) or isinstance(error, DpunionError):
        return None
    if not any(map(_is_shortage, _causes(error))):
        return None
    if isinstance(error, RuntimeError) and str(error) == NO_THREAD:
        shortage = NotEnoughMemory("The system refused to start another thread.", MORE_THREADS)
    else:
        shortage = NotEnoughMemory(f"There is not enough memory{where and f' to read {where}'}.", MORE_MEMORY)
    note = find_note(error)
    if note is not None:
        shortage.add_note(note)
    return shortage


def find_note(error: BaseException) -> LedgerNote | None:
    """Return the note about the charge, of an error or of one that it replaced: a second interrupt has none itself."""
    return next((note for note in map(ledger_note, _causes(error)) if note is not None), None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, its cause or context, the cause of that, and so on."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _is_shortage(error: BaseException) -> bool:
    match error:
        case MemoryError():
            return True
        case ImportError() | OSError():
            number = getattr(error, "errno", None)
            return number == errno.ENOMEM or (number is None and any(text in str(error) for text in NOT_LOADED))
        case RuntimeError():
            return str(error) == NO_THREAD
    return False


def import_library(module: str, needs: str, install: str) -> Any:
    """Import a module of an optional library, or refuse what needs it and say what to install."""
    missing = BadParameter(f"{needs}, which is not installed.", f"Install it with: pip install {install}.")
    with ForeignErrors(lambda _: missing, ImportError):
        return importlib.import_module(module)


def system_reason(error: OSError) -> str:
    """Return the system's reason, without the path that its message quotes."""
    return os.strerror(error.errno) if error.errno else type(error).__name__


T = TypeVar("T")

WRITE_AGAIN = "Write or copy the data again from its source; dpunion used none of it."


def attempt(call: Callable[[], T], where: str) -> T:
    """Return what `call` returns; any error becomes a DamagedSource, BadSource or NotEnoughMemory.

    Guarantees: the new error names `where` only; message, cause, context and traceback of the original are dropped.
    """

    def explain(failure: Exception) -> BadSource:
        if isinstance(failure, PermissionError):
            return BadSource(f"No permission to read {where}.", "Ask for read permission, or read a copy.")
        return DamagedSource(
            f"Could not read {where}: it is damaged, truncated, or not in the format that its name says.", WRITE_AGAIN
        )

    with ForeignErrors(explain, where=where):
        return call()


def attempt_each(batches: Callable[[], Iterable[T]], where: str) -> Iterator[T]:
    """Yield what an iterable yields; errors are replaced as in `attempt`."""
    iterator = iter(attempt(batches, where))
    end = object()
    while (batch := attempt(lambda: next(iterator, end), where)) is not end:
        yield batch  # type: ignore[misc]
