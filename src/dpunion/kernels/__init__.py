"""Compiled loops: arrays in, arrays out. What weighs, bounds or draws has a slow, readable twin in the tests."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

HIDDEN_FROM_NUMBA: list[str] = []
"""Modules that numba does not find while it is imported. The command adds yaml, without which no settings are read from
the current folder, and scipy, which nothing here needs."""

LISTENERS: list[Callable[[bool], None]] = []
"""The last one is told True when a kernel is compiled, because it was not kept by an earlier run, and then False."""


@contextlib.contextmanager
def listening(listener: Callable[[bool], None]) -> Iterator[None]:
    """Tell this listener, and no other, about compiling meanwhile."""
    LISTENERS.append(listener)
    try:
        yield
    finally:
        LISTENERS.remove(listener)


@contextlib.contextmanager
def hidden_from_numba() -> Iterator[None]:
    """Hide the modules above, unless they are there already; afterwards anybody can import them."""
    names = [name for name in HIDDEN_FROM_NUMBA if name not in sys.modules]
    sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]  # None says that there is none
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)
