"""Distinct strings as numbers, straight from Arrow's buffers."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpunion.algorithms import MAX_ITEMS
from dpunion.checks import refuse_more_than
from dpunion.contributions import Int32s, Int64s, Uint8s, Uint64s, offsets_of
from dpunion.errors import InternalError
from dpunion.kernels.interning import (
    COUNT,
    FULL,
    FULL_UP,
    STATE_WORDS,
    intern_rows,
    refill_slots,
    take_numbers,
    take_strings,
)
from dpunion.sets.grouping import even_ranges
from dpunion.threads import share_count, work_in_threads

T = TypeVar("T")
D = TypeVar("D", bound=np.generic)

FIRST_BEYOND_ASCII = 128
PATIENCE = 20e-6  # seconds
# From this many words on, several threads move what is in them to twice as many.
MANY_SLOTS = 1 << 20


class Remembered(Generic[T]):
    """What was made of the dictionary that the batches of a thread share, while they do (sensitive).

    Guarantees: nothing shows in the repr; threads do not see each other's.
    """

    def __init__(self) -> None:
        self._last = threading.local()

    def __repr__(self) -> str:
        return "Remembered(<sensitive>)"

    def made_of(self, dictionary: pa.Array, make: Callable[[pa.Array], T]) -> T:
        """Return make(dictionary), made once for neighbouring calls with the same memory."""
        last: tuple[pa.Array, T] | None = getattr(self._last, "pair", None)
        if last is None or not same_memory(dictionary, last[0]):
            # subtle: keeping the dictionary keeps its memory alive, so that its address stays taken.
            last = self._last.pair = (dictionary, make(dictionary))
        return last[1]

    def forget(self) -> None:
        """Forget what all threads remember."""
        self._last = threading.local()


class StringTable:
    """Distinct strings numbered in order of first appearance; exact, growing, seeded by the run key.

    Any number of threads may number strings at once; then the order is that in which they come to the table.

    Guarantees: two strings have the same number when they have the same bytes, and only then; none shows in the repr.
    """

    def __init__(self, seed: np.uint64, capacity: int = 1 << 17, threads: int = 1) -> None:
        self.seed = seed
        self.slots: Uint64s = np.zeros(2 * capacity, np.uint64)
        self.offsets: Int64s = np.zeros(capacity + 1, np.int64)
        self.data: Uint8s = np.empty(capacity * 16, np.uint8)
        self._state: Uint64s = np.zeros(STATE_WORDS, np.uint64)
        self._dictionaries: Remembered[Int32s] = Remembered()
        # A thread takes a token while it is inside; to grow, one takes them all.
        self._tokens: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._token_count = threads
        self._growing = threading.Lock()
        for _ in range(threads):
            self._tokens.put(None)

    def __repr__(self) -> str:
        return "StringTable(<sensitive>)"

    @property
    def count(self) -> int:
        """How many strings there are."""
        return int(self._state[int(COUNT)])

    def number(self, strings: pa.Array, codes: Int32s | None = None) -> Int32s:
        """Return the numbers of the strings: int32[rows]. Dictionary arrays are looked up entry by entry.

        codes: int32[rows], where they are written, if not into memory of their own.
        """
        if isinstance(strings, pa.DictionaryArray):
            numbers = self._dictionaries.made_of(
                strings.dictionary, lambda dictionary: self.number_buffers(*string_buffers(dictionary))
            )
            places = index_values(strings.indices)
            taken = np.empty(len(places), np.int32) if codes is None else codes
            if not take_numbers(numbers, places, taken):
                raise InternalError("a row without an entry in its dictionary")
            return taken
        return self.number_buffers(*string_buffers(strings), codes)

    def number_buffers(self, offsets: Int64s, data: Uint8s, codes: Int32s | None = None) -> Int32s:
        """Return the numbers of the strings data[offsets[i]:offsets[i+1]]: int32[rows]; codes: as for `number`."""
        rows = len(offsets) - 1
        offsets, data = read_only(offsets), read_only(data)
        if codes is None:
            codes = np.empty(rows, np.int32)
        done = 0
        while True:
            self._tokens.get()
            try:
                done = intern_rows(
                    offsets, data, done, codes, self.slots, self.offsets, self.data, self._state, self.seed
                )
            finally:
                self._tokens.put(None)
            if done == rows:
                return codes
            if self._state[int(FULL_UP)]:
                with self._growing:
                    self._grow(int(offsets[done + 1] - offsets[done]))
            else:
                time.sleep(PATIENCE)  # another thread was stopped while it entered a string: let it go on

    def _grow(self, length: int) -> None:
        """Make room for at least one more string of this length, unless another thread did meanwhile.

        subtle: what stays in its order is resized in place: large arrays then are moved by pages, so there are never
        two copies, and growing by half is cheap.
        """
        if not self._state[int(FULL_UP)]:
            return
        if self.count >= MAX_ITEMS:
            refuse_more_than(MAX_ITEMS, "distinct values")
        for _ in range(self._token_count):
            self._tokens.get()
        try:
            used = int(self.offsets[self.count])
            if used + length > len(self.data):
                self.data.resize(len(self.data) * 3 // 2 + length, refcheck=False)
            if self.count + 2 > len(self.offsets):
                # subtle: with no room beyond MAX_ITEMS, the kernel asks here before it numbers one string too many.
                self.offsets.resize(min(len(self.offsets) * 3 // 2, MAX_ITEMS) + 1, refcheck=False)
            if 2 * FULL[1] * (self.count + 1) > FULL[0] * len(self.slots):
                self._add_slots()
            self._state[int(FULL_UP)] = 0
        finally:
            # Without memory, the others find the table full as well, and none waits for ever.
            for _ in range(self._token_count):
                self._tokens.put(None)

    def _add_slots(self) -> None:
        """Make room for twice as many strings, in as many threads as there are: they would wait otherwise."""
        old, new = self.slots, np.zeros(2 * len(self.slots), np.uint64)
        threads = self._token_count if len(old) >= MANY_SLOTS else 1

        def refill(some: range) -> None:
            refill_slots(old[2 * some.start : 2 * some.stop], new, self.seed)

        work_in_threads(refill, even_ranges(len(old) // 2, share_count(threads)), threads)
        self.slots = new

    def close(self) -> None:
        """Free what only numbering needs; the strings themselves stay."""
        self.slots = np.zeros(0, np.uint64)
        self._dictionaries.forget()

    def buffers(self) -> tuple[Int64s, Uint8s]:
        """Return the offsets and bytes of the distinct strings, not copied."""
        offsets = self.offsets[: self.count + 1]
        return offsets, self.data[: int(offsets[-1])]


def same_memory(a: pa.Array, b: pa.Array) -> bool:
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


def read_only(array: npt.NDArray[D]) -> npt.NDArray[D]:
    """Return a view that cannot be written to.

    subtle: numba makes one kernel for arrays that can be and one for those that cannot, and Arrow has both.
    """
    view = array.view()
    view.flags.writeable = False
    return view


def has_ascii_only(data: Uint8s) -> bool:
    """Say whether all bytes are ASCII."""
    return int(data.max(initial=0)) < FIRST_BEYOND_ASCII


def index_values(indices: pa.Array) -> Int32s:
    """Return the values of an integer array without nulls as int32; not copied where they are.

    subtle: np.asarray and pa.array import an installed pandas at their first use, which costs half a second.
    """
    places = as_int32(indices)
    data = places.buffers()[1]
    if data is None or len(places) == 0:
        return np.empty(0, np.int32)
    return read_only(np.frombuffer(data, np.int32)[places.offset : places.offset + len(places)])


def as_int32(indices: pa.Array) -> pa.Array:
    """Return an integer array as int32; not copied where it is that."""
    return indices if indices.type == pa.int32() else indices.cast(pa.int32())


def taken_strings(offsets: Int64s, data: Uint8s, places: Int64s) -> tuple[Int64s, Uint8s]:
    """Return the strings at some places, in that order: (offsets, data), int64[places+1] and uint8[].

    Guarantees: nothing else of the strings is looked at.
    """
    taken = offsets_of(offsets[places + 1] - offsets[places])
    copied = np.empty(int(taken[-1]), np.uint8)
    take_strings(read_only(offsets), read_only(data), places, taken, copied)
    return taken, copied


def as_texts(offsets: Int64s, data: Uint8s) -> Iterator[str]:
    """Yield the strings data[offsets[i]:offsets[i+1]] as texts of Python."""
    raw, places = data.tobytes(), itertools.pairwise(offsets.tolist())
    if not raw.isascii():
        return (raw[start:stop].decode() for start, stop in places)
    # In ASCII the places of bytes are those of characters, and one text is quickly cut into many.
    whole = raw.decode()
    return (whole[start:stop] for start, stop in places)
