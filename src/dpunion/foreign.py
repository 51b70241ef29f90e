"""Errors of other libraries and of the system become ours: their messages quote rows, paths and addresses."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any

from dpunion.errors import DpunionError

Explain = Callable[[Any], Exception | None]
"""Returns the error of ours for a foreign one, of which it may look at everything; None to let it pass."""


class ForeignErrors:
    """What is raised inside `with ForeignErrors(explain, *kinds)` is raised as `explain` says.

    kinds: which errors are meant; any Exception when left out. Errors of dpunion pass as they are, unless `ours_too`.

    Guarantees:
    - of the foreign error only what `explain` took over is left: the new one has neither cause nor context, and none of
      its own frames holds the other;
    - interrupts and other errors pass untouched.
    """

    __slots__ = ("_explain", "_kinds", "_ours_too")

    def __init__(self, explain: Explain, *kinds: type[Exception], ours_too: bool = False) -> None:
        self._explain = explain
        self._kinds = kinds or (Exception,)
        self._ours_too = ours_too

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, self._kinds) or (isinstance(error, DpunionError) and not self._ours_too):
            return
        problem = self._explain(error)
        if problem is None or problem is error:
            return
        del kind, error, trace  # a traceback of the new error shows this frame
        try:
            raise problem
        finally:
            # subtle: Python has just set it to the error that is being left by; raising on does not set it again.
            problem.__context__ = None


def system_reason(error: OSError) -> str:
    """Say why the system refused, without the path that its own message quotes."""
    return os.strerror(error.errno) if error.errno else type(error).__name__
