"""Arrow's functions on arrays, `pyarrow.compute`, which is imported by the first who calls one.

Making a Python function of each takes a thirtieth of a second, and a release of texts in Parquet files needs none.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from dpunion.threads import uninterrupted


def __getattr__(name: str) -> Any:
    """Return the function with this name."""
    return getattr(_functions(), name)


@functools.cache
def _functions() -> Any:
    return uninterrupted(importlib.import_module, "pyarrow.compute")
