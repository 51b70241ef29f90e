"""Arrow's functions on arrays, `pyarrow.compute`, which is imported by the first who calls one.

Making a Python function of each takes a thirtieth of a second, and a release of texts in Parquet files needs none.
`text_array` and `number_array` make arrays of plain values without them, and without pandas.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

from dpunion.threads import uninterrupted

INT32_MAX = 2**31 - 1


def __getattr__(name: str) -> Any:
    """Return the function with this name."""
    if name.startswith("__"):  # subtle: `from dpunion.arrow_functions import ...` asks for __path__
        raise AttributeError(name)
    return getattr(_functions(), name)


@functools.cache
def _functions() -> Any:
    return uninterrupted(importlib.import_module, "pyarrow.compute")


def text_array(texts: Sequence[str]) -> Any:
    """Return the texts as a new Arrow array: string, or large_string where they take more than two gigabytes.

    subtle: pa.array would import an installed pandas, which takes half a second, and a cast all of Arrow's functions.
    """
    from array import array
    from itertools import accumulate

    import pyarrow as pa

    if all(map(str.isascii, texts)):
        # A text has as many bytes as characters, so that none is encoded on its own.
        data, sizes = "".join(texts).encode(), map(len, texts)
    else:
        encoded = [text.encode() for text in texts]
        data, sizes = b"".join(encoded), map(len, encoded)
    is_short = len(data) <= INT32_MAX
    offsets = array("i" if is_short else "q", accumulate(sizes, initial=0))
    kind = pa.StringArray if is_short else pa.LargeStringArray
    return kind.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer(data))


def number_array(numbers: Sequence[int], bits: int) -> Any:
    """Return the whole numbers as a new Arrow array of 32 or 64 bits each; as `text_array`, without pandas."""
    from array import array

    import pyarrow as pa

    data = array({32: "i", 64: "q"}[bits], numbers)
    return pa.Array.from_buffers(getattr(pa, f"int{bits}")(), len(numbers), [None, pa.py_buffer(data)])
