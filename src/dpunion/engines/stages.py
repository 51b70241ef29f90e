"""What a run is told to be doing while it compiles: kernels are compiled when they are first needed."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar, cast

from dpunion.kernels import LISTENERS, listening
from dpunion.requests import Progress, Run

P = ParamSpec("P")
R = TypeVar("R")

PLANNING, COMPILING = "planning", "compiling"
FIRST_TIME = (
    "dpunion compiles code that it uses for the first time on this machine, which takes up to half a minute. "
    "Later runs reuse it; 'dpunion warm-up' compiles in advance."
)


class Stages:
    """Tells the stage, and while kernels are compiled that; then the stage once more."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._last: tuple[str, float | None] = (PLANNING, None)

    def __call__(self, stage: str, done: float | None = None) -> None:
        """Pass the stage on, and remember it."""
        self._last = (stage, done)
        self._progress(stage, done)

    def compile(self, begins: bool) -> None:  # noqa: FBT001 - what `kernels` tells a listener
        """Tell that compiling begins, or what is done now that it has ended."""
        self._progress(*((COMPILING, None) if begins else self._last))


def tell_compiling(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function, whose run is told when kernels are compiled; without progress a log record says so, once.

    Where somebody listens already, as the command line does, nothing is logged.
    """

    @functools.wraps(function)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        run = cast("Run", kwargs.get("run", Run()))
        if not isinstance(run, Run) or run.progress is None:
            if LISTENERS:
                return function(*args, **kwargs)
            with listening(_log_once()):
                return function(*args, **kwargs)
        stages = Stages(run.progress)
        more: dict[str, Any] = {**kwargs, "run": replace(run, progress=stages)}
        with listening(stages.compile):
            return function(*args, **more)

    return told


@functools.cache
def _log_once() -> Callable[[bool], None]:
    """Return what logs that compiling begins: one for the process, so that it is said once."""
    told: list[bool] = []

    def log(begins: bool) -> None:  # noqa: FBT001 - what `kernels` tells a listener
        if begins and not told:
            told.append(True)
            logging.getLogger("dpunion").warning(FIRST_TIME)

    return log
