"""Compiled kernels are ready when they are needed: loaded while rows are read, and compiling is shown as a stage."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from dpunion.kernels import on_compiling
from dpunion.plans import Planned
from dpunion.requests import Progress, Run
from dpunion.threads import Threads, usable_cores

P = ParamSpec("P")
R = TypeVar("R")

PLANNING, COMPILING = "planning", "compiling"
MOST_ITEMS = 1000
REHEARSED: set[tuple[str, bool, bool]] = set()
"""The plans that were rehearsed in this process: the algorithm, whether with a look, and whether with a list."""


class Stages:
    """Passes stages on to a run's progress; while a kernel compiles, the stage is "compiling"."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._last: tuple[str, float | None] = (PLANNING, None)

    def __call__(self, stage: str, done: float | None = None) -> None:
        self._last = (stage, done)
        self._progress(stage, done)

    def compile(self, begins: bool) -> None:  # noqa: FBT001 - a hook of `kernels.on_compiling`
        """Show that compiling begins, or, when it ends, the stage before."""
        self._progress(*((COMPILING, None) if begins else self._last))


def show_compiling(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with compiling as a stage of the progress of its `run`."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        run = kwargs.get("run")
        if not isinstance(run, Run) or run.progress is None:
            return function(*args, **kwargs)
        stages = Stages(run.progress)
        more: dict[str, Any] = {**kwargs, "run": replace(run, progress=stages)}
        with on_compiling(stages.compile):
            return function(*args, **more)

    return wrapped


@contextlib.contextmanager
def preload_kernels(plan: Planned, threads: int | None) -> Iterator[None]:
    """Rehearse the plan in another thread, so that its kernels are loaded when the code inside is done.

    Each kind of plan is rehearsed once per process. With one core there is nothing to gain.

    Guarantees: the rehearsal uses made-up rows, and its result is thrown away.
    """
    kind = (plan.name, plan.look is not None, plan.candidates is not None)
    if (threads or usable_cores()) == 1 or kind in REHEARSED:
        yield
        return
    with Threads(1) as worker:
        worker.submit(rehearse, plan)
        yield
    REHEARSED.add(kind)


def rehearse(plan: Planned) -> None:
    """Select from the items of one made-up user, who has one item more than the bound, so that bounding runs too.

    Guarantees: the rows are made up, and the result is thrown away.
    """
    import numpy as np
    import pyarrow as pa

    from dpunion.buffers import number_array, text_array
    from dpunion.engines.local import run_rounds
    from dpunion.mechanisms import mechanism_for
    from dpunion.randomness import RunKey
    from dpunion.sets.encoding import encode
    from dpunion.text.words import Normalization

    decided, bounding = plan.opening, plan.opening.bounding
    items = text_array([f"item {number}" for number in range(min(bounding.limit + 1, MOST_ITEMS))])
    made = encode(
        [(pa.DictionaryArray.from_arrays(number_array([0] * len(items), 32), items.slice(0, 1)), items)],
        key := RunKey.for_tests(0),
        max_items_per_user=bounding.limit,
        user_order=bounding.order,
        normalization=Normalization.EXACT,
        split_words=False,
        threads=1,
    )
    run_rounds(mechanism_for(decided), made, key, 1, None if plan.candidates is None else made.table.digests)
    if plan.look is not None:
        from dpunion.counting.steps import look_at_sizes

        look_at_sizes(np.diff(made.offsets), plan.look, key)
