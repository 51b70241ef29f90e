"""Errors of other libraries and of the system become ours: their messages quote rows, paths and addresses."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from dpunion.errors import DpunionError, NotEnoughMemory, ledger_note

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
        shortage = NotEnoughMemory("The system allows no further thread.", MORE_THREADS)
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
