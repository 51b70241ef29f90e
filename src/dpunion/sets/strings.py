"""Distinct strings as numbers, straight from Arrow's buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dpunion.algorithms import MAX_ITEMS
from dpunion.contributions import Int32s, Int64s, Uint8s, Uint64s
from dpunion.errors import BadSource
from dpunion.kernels.interning import FULL, intern_rows, refill_slots


class StringTable:
    """Distinct strings numbered in order of first appearance; exact, growing, seeded by the run key.

    Guarantees: two strings have the same number when they have the same bytes, and only then; none shows in the repr.
    """

    def __init__(self, seed: np.uint64, capacity: int = 1 << 15) -> None:
        self.seed = seed
        self.count = 0
        self.slots: Uint64s = np.zeros(2 * capacity, np.uint64)
        self.offsets: Int64s = np.zeros(capacity + 1, np.int64)
        self.data: Uint8s = np.empty(capacity * 16, np.uint8)
        self._last: tuple[pa.Array, Int32s] | None = None

    def __repr__(self) -> str:
        return "StringTable(<sensitive>)"

    def number(self, strings: pa.Array) -> Int32s:
        """Return the numbers of the strings: int32[rows]. Dictionary arrays are looked up entry by entry."""
        if isinstance(strings, pa.DictionaryArray):
            dictionary = strings.dictionary
            if self._last is None or not _same_memory(dictionary, self._last[0]):
                self._last = (dictionary, self.number_buffers(*string_buffers(dictionary)))
            numbers: Int32s = self._last[1][index_values(strings.indices)]
            return numbers
        return self.number_buffers(*string_buffers(strings))

    def number_buffers(self, offsets: Int64s, data: Uint8s) -> Int32s:
        """Return the numbers of the strings data[offsets[i]:offsets[i+1]]: int32[rows]."""
        rows = len(offsets) - 1
        codes = np.empty(rows, np.int32)
        done = 0
        while True:
            done, self.count = intern_rows(
                offsets, data, done, codes, self.slots, self.offsets, self.data, self.count, self.seed
            )
            if done == rows:
                return codes
            self._grow(int(offsets[done + 1] - offsets[done]))

    def _grow(self, length: int) -> None:
        """Make room for at least one more string of this length.

        subtle: what stays in its order is resized in place: large arrays then are moved by pages, so there are never
        two copies, and growing by half is cheap.
        """
        if self.count >= MAX_ITEMS - 1:
            raise BadSource(
                f"There are more than {MAX_ITEMS} distinct values, more than one run supports.",
                "Split the people into disjoint groups and release each group on its own.",
            )
        used = int(self.offsets[self.count])
        if used + length > len(self.data):
            self.data.resize(len(self.data) * 3 // 2 + length, refcheck=False)
        if self.count + 2 > len(self.offsets):
            self.offsets.resize(len(self.offsets) * 3 // 2 + 1, refcheck=False)
        if 2 * FULL[1] * (self.count + 1) > FULL[0] * len(self.slots):
            old, self.slots = self.slots, np.zeros(2 * len(self.slots), np.uint64)
            refill_slots(old, self.slots, self.seed)

    def close(self) -> None:
        """Free what only numbering needs; the strings themselves stay."""
        self.slots = np.zeros(0, np.uint64)
        self._last = None

    def buffers(self) -> tuple[Int64s, Uint8s]:
        """Return the offsets and bytes of the distinct strings, not copied."""
        offsets = self.offsets[: self.count + 1]
        return offsets, self.data[: int(offsets[-1])]


def _same_memory(a: pa.Array, b: pa.Array) -> bool:
    """Say whether two arrays are views of the same memory; both are alive, so equal addresses mean equal content."""
    places = [[None if buffer is None else buffer.address for buffer in array.buffers()] for array in (a, b)]
    return places[0] == places[1] and len(a) == len(b) and a.offset == b.offset and a.type == b.type


def string_buffers(strings: pa.Array) -> tuple[Int64s, Uint8s]:
    """Return Arrow's own offsets (int64, or int32 for short arrays) and bytes of a string array without nulls."""
    wide = pa.types.is_large_string(strings.type)
    _, offsets, data = strings.buffers()
    dtype: Any = np.int64 if wide else np.int32
    if offsets is None or len(strings) == 0:
        return np.zeros(len(strings) + 1, dtype), np.empty(0, np.uint8)
    view = np.frombuffer(offsets, dtype)[strings.offset : strings.offset + len(strings) + 1]
    return view, np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)


def index_values(indices: pa.Array) -> Int64s:
    """Return the values of an integer array without nulls, not copied.

    subtle: np.asarray and pa.array import an installed pandas at their first use, which costs half a second.
    """
    dtype = np.dtype(indices.type.to_pandas_dtype())
    data = indices.buffers()[1]
    if data is None or len(indices) == 0:
        return np.empty(0, np.int64)
    return np.frombuffer(data, dtype)[indices.offset : indices.offset + len(indices)]


def as_arrow(numbers: Int64s) -> pa.Array:
    """Return int64 numbers as an Arrow array, not copied."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])
