"""Arrow's functions on arrays, `pyarrow.compute`, which is imported by the first who calls one.

Making a Python function of each takes a thirtieth of a second; most releases of Parquet files do without any.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Return the function with this name."""
    import pyarrow.compute

    return getattr(pyarrow.compute, name)
