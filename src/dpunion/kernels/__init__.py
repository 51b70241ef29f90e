"""Compiled loops: arrays in, arrays out. What weighs, bounds or draws has a slow, readable twin in the tests."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

HIDDEN_FROM_NUMBA = ["scipy"]
"""Modules that numba does not find while it is imported: scipy is for linear algebra that no kernel of ours uses, and
takes a quarter of a second. The command adds yaml, without which no settings are read from the current folder."""


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
