"""Distinct strings as numbers, straight from Arrow's buffers."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from dpunion.algorithms import MAX_ITEMS
from dpunion.buffers import index_values, read_only, same_memory, string_buffers
from dpunion.checks import refuse_more_than
from dpunion.contributions import Int32s, Int64s, Uint8s, Uint64s, offsets_of
from dpunion.errors import InternalError
from dpunion.kernels import interning
from dpunion.kernels.interning import COUNT, FULL, FULL_UP, STATE_WORDS
from dpunion.sets.grouping import even_ranges
from dpunion.threads import share_count, work_in_threads

T = TypeVar("T")

PATIENCE = 20e-6  # seconds
MANY_SLOTS = 1 << 20  # from this many words on, several threads fill the larger table


class DictionaryCache(Generic[T]):
    """One cached result per thread, for the dictionary that the batches of a thread share (sensitive).

    Guarantees: nothing shows in the repr; a thread does not see what another has cached.
    """

    def __init__(self) -> None:
        self._last = threading.local()

    def __repr__(self) -> str:
        return "DictionaryCache(<sensitive>)"

    def get(self, dictionary: pa.Array, make: Callable[[pa.Array], T]) -> T:
        """Return make(dictionary), or the cached result if the last call was with the same memory."""
        last: tuple[pa.Array, T] | None = getattr(self._last, "pair", None)
        if last is None or not same_memory(dictionary, last[0]):
            # subtle: keeping the dictionary keeps its memory alive, so that nothing else gets its address.
            last = self._last.pair = (dictionary, make(dictionary))
        return last[1]


class StringTable:
    """Distinct strings, numbered in the order in which they come to the table; exact, growing, seeded by the run key.

    Any number of threads may number strings at once.

    Guarantees: two strings have the same number if and only if they have the same bytes; none shows in the repr.
    """

    def __init__(self, seed: np.uint64, capacity: int = 1 << 17, threads: int = 1) -> None:
        self.seed = seed
        self.slots: Uint64s = np.zeros(2 * capacity, np.uint64)
        self.offsets: Int64s = np.zeros(capacity + 1, np.int64)
        self.data: Uint8s = np.empty(capacity * 16, np.uint8)
        self._state: Uint64s = np.zeros(STATE_WORDS, np.uint64)
        self._dictionaries: DictionaryCache[Int32s] = DictionaryCache()
        # A thread takes one token while it numbers strings; a thread that grows the table takes them all.
        self._tokens: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._token_count = threads
        self._growing = threading.Lock()
        for _ in range(threads):
            self._tokens.put(None)

    def __repr__(self) -> str:
        return "StringTable(<sensitive>)"

    @property
    def count(self) -> int:
        return int(self._state[int(COUNT)])

    def number(self, strings: pa.Array, codes: Int32s | None = None) -> Int32s:
        """Return the number of each string: int32[rows]. The entries of a dictionary array are looked up once.

        codes: int32[rows], where to write them, instead of new memory.
        """
        if isinstance(strings, pa.DictionaryArray):
            numbers = self._dictionaries.get(strings.dictionary, self.number)
            places = index_values(strings.indices)
            taken = np.empty(len(places), np.int32) if codes is None else codes
            if not interning.take_numbers(numbers, places, taken):
                raise InternalError("a row without an entry in its dictionary")
            return taken
        return self.number_buffers(*string_buffers(strings), codes)

    def number_buffers(self, offsets: Int64s, data: Uint8s, codes: Int32s | None = None) -> Int32s:
        """Return the number of each string data[offsets[i]:offsets[i+1]]: int32[rows]; codes: as for `number`."""
        rows = len(offsets) - 1
        offsets, data = read_only(offsets), read_only(data)
        if codes is None:
            codes = np.empty(rows, np.int32)
        done = 0
        while True:
            self._tokens.get()
            try:
                done = interning.intern_rows(
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
                time.sleep(PATIENCE)  # another thread was suspended while it entered a string: let it continue

    def _grow(self, length: int) -> None:
        """Make room for at least one more string of this length, unless another thread did meanwhile.

        subtle: arrays that keep their order are resized in place. The system then moves large arrays by pages, so there
        are never two copies, and growing by half is cheap.
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
            # If memory ran out, the other threads find the table full too, and none waits for ever.
            for _ in range(self._token_count):
                self._tokens.put(None)

    def _add_slots(self) -> None:
        """Make room for twice as many strings, in all the threads that would otherwise wait."""
        old, new = self.slots, np.zeros(2 * len(self.slots), np.uint64)
        threads = self._token_count if len(old) >= MANY_SLOTS else 1

        def refill(some: range) -> None:
            interning.refill_slots(old[2 * some.start : 2 * some.stop], new, self.seed)

        work_in_threads(refill, even_ranges(len(old) // 2, share_count(threads)), threads)
        self.slots = new

    def close(self) -> None:
        """Free the memory that only numbering needs; the strings stay."""
        self.slots = np.zeros(0, np.uint64)
        self._dictionaries = DictionaryCache()

    def buffers(self) -> tuple[Int64s, Uint8s]:
        """Return the offsets and bytes of the distinct strings, without a copy."""
        offsets = self.offsets[: self.count + 1]
        return offsets, self.data[: int(offsets[-1])]


def select_strings(offsets: Int64s, data: Uint8s, places: Int64s) -> tuple[Int64s, Uint8s]:
    """Copy the strings at these places, in this order: (offsets, data), int64[places+1] and uint8[].

    Guarantees: no byte of another string is read.
    """
    taken = offsets_of(offsets[places + 1] - offsets[places])
    copied = np.empty(int(taken[-1]), np.uint8)
    interning.take_strings(read_only(offsets), read_only(data), places, taken, copied)
    return taken, copied
