"""Arrow arrays as NumPy buffers, and back: the one module that knows how Arrow lays out memory.

A list of texts is a pair (offsets, data): text i is data[offsets[i]:offsets[i+1]], in UTF-8.

subtle: `pa.array` and `np.asarray` import pandas at their first use where it is installed, which takes half a second,
and a cast imports all of `pyarrow.compute`. The functions here do neither.
"""

from __future__ import annotations

import importlib
import itertools
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpunion.contributions import Int32s, Int64s, Uint8s
from dpunion.threads import uninterrupted

D = TypeVar("D", bound=np.generic)

FIRST_BEYOND_ASCII = 128
INT32_MAX = 2**31 - 1


class _Compute:
    """The functions of `pyarrow.compute`, which is imported when one is used first.

    The import takes a thirtieth of a second, and a release of texts in Parquet files needs none of them.
    """

    def __getattr__(self, name: str) -> Any:
        function = getattr(uninterrupted(importlib.import_module, "pyarrow.compute"), name)
        setattr(self, name, function)  # found there from now on
        return function


pc = _Compute()


def text_array(texts: Sequence[str]) -> Any:
    """Return the texts as a new Arrow array: string, or large_string if they take more than two gigabytes."""
    if all(map(str.isascii, texts)):
        # A text has as many bytes as characters: one call encodes them all.
        data, sizes = "".join(texts).encode(), map(len, texts)
    else:
        encoded = [text.encode() for text in texts]
        data, sizes = b"".join(encoded), map(len, encoded)
    is_short = len(data) <= INT32_MAX
    offsets = array("i" if is_short else "q", itertools.accumulate(sizes, initial=0))
    return array_of(offsets, data, pa.string() if is_short else pa.large_string())


def large_texts(texts: Any) -> Any:
    """Return an array of texts, or of texts in a dictionary, as large_string."""
    return texts if pa.types.is_large_string(texts.type) else pc.cast(texts, pa.large_string())


def number_array(numbers: Sequence[int], bits: int) -> Any:
    """Return the whole numbers as a new Arrow array of 32 or 64 bits each, or truth values as one of 1 bit each."""
    if bits == 1:
        packed = np.packbits(np.fromiter(numbers, np.bool_, len(numbers)), bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), len(numbers), [None, pa.py_buffer(packed)])
    data = array({32: "i", 64: "q"}[bits], numbers)
    return pa.Array.from_buffers(getattr(pa, f"int{bits}")(), len(numbers), [None, pa.py_buffer(data)])


def array_of(offsets: Any, data: Any, kind: Any) -> Any:
    """Return an Arrow array of texts or bytes that shares this memory; kind: its type, whose offsets these must be."""
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def string_buffers(strings: Any) -> tuple[Int64s, Uint8s]:
    """Return Arrow's own offsets (int64, or int32 for short arrays) and bytes of an array of texts or bytes.

    The array has no nulls, or the caller does not mind what is under them.
    """
    is_wide = pa.types.is_large_string(strings.type) or pa.types.is_large_binary(strings.type)
    _, offsets, data = strings.buffers()
    dtype: Any = np.int64 if is_wide else np.int32
    if offsets is None or len(strings) == 0:
        return np.zeros(len(strings) + 1, dtype), np.empty(0, np.uint8)
    view = np.frombuffer(offsets, dtype, strings.offset + len(strings) + 1)[strings.offset :]
    return view, np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)


def index_values(indices: Any) -> Int32s:
    """Return the values of an integer array without nulls as int32, without a copy if they are int32 already."""
    places = as_int32(indices)
    data = places.buffers()[1]
    if data is None or len(places) == 0:
        return np.empty(0, np.int32)
    return read_only(np.frombuffer(data, np.int32)[places.offset : places.offset + len(places)])


def as_int32(indices: Any) -> Any:
    """Return an integer array as int32, without a copy if it is int32 already."""
    return indices if indices.type == pa.int32() else indices.cast(pa.int32())


def same_memory(a: Any, b: Any) -> bool:
    """Say whether two arrays are views of the same memory; both are alive, so equal addresses mean equal content."""
    places = [[None if buffer is None else buffer.address for buffer in one.buffers()] for one in (a, b)]
    return places[0] == places[1] and len(a) == len(b) and a.offset == b.offset and a.type == b.type


def read_only(values: npt.NDArray[D]) -> npt.NDArray[D]:
    """Return a view that cannot be written to.

    subtle: numba compiles a kernel twice, for arrays that can be written and for those that cannot, and Arrow has both.
    """
    view = values.view()
    view.flags.writeable = False
    return view


def has_ascii_only(data: Uint8s) -> bool:
    """Say whether all bytes are ASCII."""
    return int(data.max(initial=0)) < FIRST_BEYOND_ASCII


def as_texts(offsets: Int64s, data: Uint8s) -> Iterator[str]:
    """Yield the texts data[offsets[i]:offsets[i+1]] as Python strings."""
    raw, places = data.tobytes(), itertools.pairwise(offsets.tolist())
    if not raw.isascii():
        return (raw[start:stop].decode() for start, stop in places)
    # In ASCII a character is a byte, and slicing one string is faster than decoding many.
    whole = raw.decode()
    return (whole[start:stop] for start, stop in places)


def join_buffers(texts: Sequence[tuple[Int64s, Uint8s]]) -> tuple[Int64s, Uint8s]:
    """Return several lists of texts as one: int64 offsets and bytes."""
    if len(texts) == 1:
        return texts[0]
    shifts = np.cumsum([0, *(len(data) for _, data in texts)])
    ends = [offsets[1:] + shift for (offsets, _), shift in zip(texts, shifts, strict=False)]
    data = [np.zeros(0, np.uint8), *(data for _, data in texts)]
    return np.concatenate([np.zeros(1, np.int64), *ends]), np.concatenate(data)
