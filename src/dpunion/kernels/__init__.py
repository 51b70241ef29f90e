"""Compiled loops: arrays in, arrays out. Those that weigh, bound or draw have a slow, readable twin in the tests."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

HIDDEN_FROM_NUMBA: list[str] = []
"""Modules that numba cannot import while it is imported itself. The command adds yaml, so that numba reads no settings
from the current folder, and scipy, which nothing here needs."""

LISTENERS: list[Callable[[bool], None]] = []
"""The last one is called with True when numba starts to compile a kernel that no earlier run saved, then with False."""


@contextlib.contextmanager
def listening(listener: Callable[[bool], None]) -> Iterator[None]:
    """Tell this listener, and no other, about compiling during the block."""
    LISTENERS.append(listener)
    try:
        yield
    finally:
        LISTENERS.remove(listener)


@contextlib.contextmanager
def hidden_from_numba() -> Iterator[None]:
    """Hide the modules above during the block, except those that are imported already."""
    names = [name for name in HIDDEN_FROM_NUMBA if name not in sys.modules]
    sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]  # None hides a module
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)
