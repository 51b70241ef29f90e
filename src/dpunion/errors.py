"""Everything that dpunion raises on purpose, and how errors of other libraries become ours.

    DpunionError                 the user can put it right: the message says how
    ├── BadParameter             a parameter of the call (also a ValueError)           exit code 2
    │   └── NotPrivate           a research policy was given to a release path
    ├── BadSource                the data cannot be read as asked                      exit code 3
    │   ├── SourceNotFound       no such file, no match for a pattern
    │   ├── UnknownColumn        the column is not there; the nearest names are
    │   ├── UnsupportedType      a column whose values have no canonical text form
    │   ├── NullUsers            rows without a user
    │   ├── DamagedSource        truncated, ragged, not UTF-8, failing its checksum
    │   └── NotEnoughMemory      no more memory, or no further thread (also a MemoryError)
    ├── CannotWrite              the output cannot be written                          exit code 4
    └── LedgerError              the budget's ledger cannot be used as asked           exit code 5
        ├── BudgetExhausted      the dataset's budget does not cover the release
        ├── AlreadyReleased      this very release was made before; nothing was charged
        ├── UnfinishedRelease    this very release is under way, or died; nothing was charged
        ├── ReplacedLedger       another ledger is now where the release was entered
        └── DamagedLedger        the ledger was altered or is not a ledger
    InternalError                our mistake, never the user's (an AssertionError)     exit code 1
    └── SensitivityMismatch      weights bounded otherwise than the noise assumes

Guarantees:
- no message holds a value from the data: only names, positions, types and public parameters;
- every message of a DpunionError ends with what to do about it;
- what other libraries and the system say, which may quote rows, paths and addresses, is left out (`ForeignErrors`).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar


class LedgerNote(str):
    """A sentence about a charge, with the same as plain values; public.

    A release's statement has one, and whatever ends a run after its charge carries one as a note (`__notes__`).
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
    """Return what an error's notes say about the charge; notes of others are left alone, as they may hold anything."""
    notes = [note for note in getattr(error, "__notes__", ()) if isinstance(note, LedgerNote)]
    return notes[-1] if notes else None


class DpunionError(Exception):
    """What went wrong, and the remedy; both are public values only."""

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
    """Some rows do not say whose they are."""


class DamagedSource(BadSource):
    """The file is truncated, ragged, not UTF-8 or otherwise broken; nothing of it was used."""


class NotEnoughMemory(BadSource, MemoryError):
    """The system gave no more memory, or no further thread."""


class CannotWrite(DpunionError):
    """The output cannot be written."""

    exit_code = 4


class LedgerError(DpunionError):
    """The ledger cannot be used as asked; nothing was granted."""

    exit_code = 5


class BudgetExhausted(LedgerError):
    """The dataset's budget does not cover the release."""


class AlreadyReleased(LedgerError):
    """This very release was made before.

    entry: the ledger entry's public name. outputs: (path, sha256) of what was written then. source_changed: whether the
    files that were read have another size or time now; None when that is unknown.
    """

    entry: str = ""
    outputs: tuple[tuple[str, str], ...] = ()
    source_changed: bool | None = None


class UnfinishedRelease(LedgerError):
    """An earlier run of this very release has reserved its budget and has not settled."""


class ReplacedLedger(LedgerError):
    """The ledger does not hold the entry that was made in it: a copy or another one was put in its place."""


class DamagedLedger(LedgerError):
    """The ledger was altered, or is no ledger."""


class InternalError(AssertionError):
    """A mistake of dpunion itself."""

    exit_code = 1

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}. This is a bug in dpunion: please report it. No release was made.")


class SensitivityMismatch(InternalError):
    """The weights promise another sensitivity than the noise was calibrated to."""


NO_THREAD = "can't start new thread"
# What the loader of shared libraries says, in an ImportError or an OSError without a number.
NOT_LOADED = ("Cannot allocate memory", "failed to map segment", "cannot map zero-fill pages")
MORE_MEMORY = (
    "Free some memory or use a machine with more; a smaller --memory-limit, fewer --threads, and smaller row groups or "
    "batches in the source also help."
)
MORE_THREADS = "Raise the limit on processes (ulimit -u, or the container's), or use fewer 'threads' (--threads)."

Explain = Callable[[Any], Exception | None]
"""Returns the error of ours for a foreign one, of which it may look at everything; None to let it pass."""


class ForeignErrors(contextlib.ContextDecorator):
    """What is raised inside `with ForeignErrors(explain, *kinds)` is raised as `explain` says.

    kinds: which errors are meant; any Exception when left out. Errors of dpunion pass as they are, unless `ours_too`.
    where: what is being read, for the error about too little memory.

    Guarantees:
    - too little memory is called that, and `explain` is not asked;
    - of the foreign error only what `explain` took over is left: the new one has neither cause nor context, and none of
      its own frames holds the other;
    - interrupts and other errors pass untouched.
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
        del kind, error, trace  # a traceback of the new error shows this frame
        try:
            raise problem
        finally:
            # subtle: Python has just set it to the error that is being left by; raising on does not set it again.
            problem.__context__ = None


def name_shortages() -> ForeignErrors:
    """Return a context, or decorator, that turns a lack of memory or threads into our error; other errors pass."""
    return ForeignErrors(lambda _: None)


def find_shortage(error: BaseException, where: str = "") -> NotEnoughMemory | None:
    """Return our error if a foreign one, or what caused it, is a lack of memory or threads; else None.

    Guarantees: only the note about the ledger is kept of the foreign error.
    """
    if not isinstance(error, Exception) or isinstance(error, DpunionError):
        return None
    if not any(map(_is_shortage, _causes(error))):
        return None
    if isinstance(error, RuntimeError) and str(error) == NO_THREAD:
        shortage = NotEnoughMemory("The system refused to start another thread.", MORE_THREADS)
    else:
        shortage = NotEnoughMemory(f"There is not enough memory{where and f' to read {where}'}.", MORE_MEMORY)
    note = next((note for note in map(ledger_note, _causes(error)) if note is not None), None)
    if note is not None:
        shortage.add_note(note)
    return shortage


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, what it was raised from or while handling, and so on."""
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


def system_reason(error: OSError) -> str:
    """Say why the system refused, without the path that its own message quotes."""
    return os.strerror(error.errno) if error.errno else type(error).__name__


T = TypeVar("T")

WRITE_AGAIN = "Write or copy the data again from its origin; dpunion used nothing of it."


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
    return DamagedSource(
        f"Could not read {where}: it is damaged, truncated or of another format than its name says.", WRITE_AGAIN
    )
