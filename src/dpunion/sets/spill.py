"""Stores of numbered rows and texts until they are grouped: in memory, and beyond a limit in nameless private files.

A spill file has no name: nobody, this process included, can open it a second time, and the system frees it however the
process ends. A crash leaves nothing to clean up, and the file contains numbers of users and items, not their names.
"""

from __future__ import annotations

import abc
import contextlib
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Generic, Self, TypeVar

import numpy as np

from dpunion.contributions import Int32s, Int64s
from dpunion.errors import BadParameter, CannotWrite, ForeignErrors, system_reason
from dpunion.kernels.grouping import find_runs, split_rows

PARTS = 64
ROWS_PER_CHUNK = 1 << 18
ROWS_SHARE = 0.25  # of the memory limit, for rows in the store; the rest is for tables of names, sorting and reading
DEFAULT_SHARE = 0.6
SMALLEST_LIMIT = 100_000_000
NUMBER_BYTES = 4
MOST_ROOM = 2  # memory is reused if it is at most this many times as large as needed
NO_NUMBERS = np.zeros(0, np.int32)
# In rows of texts, 0 ends a document and t + 1 is token t, because rows are packed as numbers without a sign.
END_OF_DOCUMENT = 0
SHORTEST_RUNS = 4  # rows are stored in runs if a run has at least this many on average

Rows = tuple[Int32s, Int32s]
"""users int32[rows], items int32[rows]."""
Chunk = tuple[Int32s, Int32s, Int32s]
"""users int32[runs], lengths int32[runs], items int32[rows]; lengths is empty if every run is one row."""
Documents = tuple[Int64s, Int32s, Int32s]
"""counts int64[documents], tokens of each; writers int32[documents]; tokens int32[sum of counts]."""
C = TypeVar("C", bound=tuple[Int32s | Int64s, ...])


class WaitingStore(abc.ABC, Generic[C]):
    """Collects chunks of numbers and gives them back in parts that fit into memory; subclasses say what a chunk is.

    Guarantees:
    - stored chunks take at most a quarter of the memory limit; beyond that they go to nameless files, mode 0600;
    - nothing stays behind on any exit, even of a killed process;
    - the repr shows no value.
    """

    def __init__(self, memory_limit: int | None = None) -> None:
        self.most_bytes = int((memory_limit or default_memory_limit()) * ROWS_SHARE)
        self.chunks: list[C] = []
        self.waiting = 0
        self.files: list[IO[bytes]] = []
        self._turn = threading.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<sensitive>)"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.chunks.clear()
        while self.files:
            # Closing flushes, which may fail on a full disk; nobody needs the content any more.
            with contextlib.suppress(OSError):
                self.files.pop().close()

    @abc.abstractmethod
    def append(self, users: Int32s, items: Int32s, lengths: Int64s | None = None) -> None:
        """Add rows, from any thread. lengths: the number of rows of each entry of users, 1 by default."""

    def make_place(self, size: int) -> Int32s:
        """Return memory for the items of this many rows, from any thread."""
        return np.empty(size, np.int32)

    @abc.abstractmethod
    def rows_of(self, chunk: C) -> Rows:
        """Return a chunk as rows, for a file."""

    @abc.abstractmethod
    def chunks_of(self, rows: Rows) -> list[C]:
        """Return chunks of the rows of some users; the rows of one `rows_of` are together and in order."""

    def add(self, chunk: C) -> None:
        """Add a chunk, from any thread. Once memory was full, each thread writes what it adds to the files."""
        with self._turn:
            self.chunks.append(chunk)
            self.waiting += sum(array.nbytes for array in chunk)
            is_too_much = self.waiting > self.most_bytes
        if is_too_much:
            self._spill()

    def give_back(self) -> Iterator[tuple[int, int, list[C]]]:
        """Yield (phase, stride, chunks); the store drops each part as it yields it.

        The chunks have the users phase, phase + stride, phase + 2 stride, ..., renumbered 0, 1, 2, ...
        """
        if not self.files:
            chunks, self.chunks = self.chunks, []
            yield 0, 1, chunks
            return
        self._spill()
        for phase, file in enumerate(self.files):
            file.seek(0)
            packed = np.fromfile(file, np.uint64)
            file.truncate(0)
            users = ((packed >> np.uint64(32)) // np.uint64(PARTS)).astype(np.int32)
            items = (packed & np.uint64(0xFFFFFFFF)).astype(np.int32)
            del packed
            yield phase, PARTS, self.chunks_of((users, items))

    def _spill(self) -> None:
        """Write all stored chunks to the files; other threads write what they add meanwhile."""

        def explain(error: OSError) -> CannotWrite:
            return CannotWrite(
                f"Writing temporary files to {tempfile.gettempdir()} failed: {system_reason(error)}.",
                "Set TMPDIR to a folder with more space, or raise the memory limit; nothing was released.",
            )

        with ForeignErrors(explain, OSError):
            with self._turn:
                chunks, self.chunks = self.chunks, []
                self.most_bytes = 0
                if not self.files:
                    self.files = [nameless_file() for _ in range(PARTS)]
            while chunks:
                users, items = self.rows_of(chunks.pop())
                packed = np.empty(len(users), np.uint64)
                ends = split_rows(users, items, PARTS, packed)
                with self._turn:
                    for phase, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
                        self.files[phase].write(packed[start:end].tobytes())
                        self.files[phase].flush()


class RowStore(WaitingStore[Chunk]):
    """Rows (user, item) until they are grouped; consecutive rows of one user store the user once."""

    def __init__(self, memory_limit: int | None = None) -> None:
        super().__init__(memory_limit)
        self._room: Int32s | None = None
        self._used = 0

    def append(self, users: Int32s, items: Int32s, lengths: Int64s | None = None) -> None:
        """Add rows as one chunk, in runs if these are long enough."""
        if lengths is None:
            self.add((*runs_of(users), items))
        elif len(users) * SHORTEST_RUNS > len(items):
            self.add((np.repeat(users, lengths), NO_NUMBERS, items))
        else:
            self.add((users, lengths.astype(np.int32), items))

    def make_place(self, size: int) -> Int32s:
        """Return memory for items, from any thread: a part of one block for `take_room`; new memory once rows spilled.

        subtle: the system clears memory before it gives it to a process, which takes longer than copying.
        """
        with self._turn:
            if self._room is None:
                self._room = NO_NUMBERS
                # Some systems do not promise memory that may stay unused.
                with contextlib.suppress(MemoryError):
                    self._room = np.empty(self.most_bytes // NUMBER_BYTES, np.int32)
            if self.files:
                self._room, self._used = NO_NUMBERS, 0  # freed when its rows are written
            start, stop = self._used, self._used + size
            if stop > len(self._room):
                return np.empty(size, np.int32)
            self._used = stop
            return self._room[start:stop]

    def take_room(self, size: int) -> Int32s:
        """Return memory for int32[size]: that of the items, once the rows are gone, if its size fits."""
        room, self._room = self._room, None
        if room is None or not size <= self._used <= MOST_ROOM * size:
            return np.empty(size, np.int32)
        return room[:size]

    def rows_of(self, chunk: Chunk) -> Rows:
        users, lengths, items = chunk
        return (np.repeat(users, lengths) if len(lengths) else users), items

    def chunks_of(self, rows: Rows) -> list[Chunk]:
        users, items = rows
        cuts = [slice(at, at + ROWS_PER_CHUNK) for at in range(0, len(users), ROWS_PER_CHUNK)]  # for threads to share
        return [(*runs_of(users[cut]), items[cut]) for cut in cuts]


def runs_of(users: Int32s) -> tuple[Int32s, Int32s]:
    """Return the users of rows as in a chunk: (users, lengths)."""
    most = len(users) // SHORTEST_RUNS
    owners, lengths = np.empty(most, np.int32), np.empty(most, np.int32)
    runs = find_runs(users, owners, lengths)
    # A copy frees the memory that is not used.
    return (owners[:runs].copy(), lengths[:runs].copy()) if runs > 0 else (users, NO_NUMBERS)


class TextStore(WaitingStore[Documents]):
    """Documents of numbered tokens: four bytes for each token in memory, eight on disk.

    size: the number of tokens and documents that were added.

    Guarantees: a document stays whole and in order.
    """

    def __init__(self, memory_limit: int | None = None) -> None:
        super().__init__(memory_limit)
        self.size = 0

    def append(self, users: Int32s, items: Int32s, lengths: Int64s | None = None) -> None:
        """Add one document for each entry of users, of this length."""
        counts = np.ones(len(users), np.int64) if lengths is None else lengths
        with self._turn:
            self.size += len(counts) + len(items)
        self.add((counts, users, items))

    def rows_of(self, chunk: Documents) -> Rows:
        """Return each document as rows; the last row ends it."""
        counts, writers, tokens = chunk
        items = np.insert(tokens + np.int32(1), np.cumsum(counts), END_OF_DOCUMENT)
        return np.repeat(writers, counts + 1), items

    def chunks_of(self, rows: Rows) -> list[Documents]:
        users, items = rows
        ends = np.flatnonzero(items == END_OF_DOCUMENT)
        return [(np.diff(ends, prepend=-1) - 1, users[ends], items[items != END_OF_DOCUMENT] - np.int32(1))]


def as_bytes(limit: int | str | None) -> int | None:
    """Return a memory limit in bytes: a number, or text like "500MB" or "2GB" (powers of 1000; GiB for 1024)."""
    if limit is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", str(limit), re.IGNORECASE)
    amount = 0
    if found and not isinstance(limit, bool):
        base = 1024 if found[3] else 1000
        amount = int(float(found[1]) * base ** " kmgt".index(found[2].lower() or " "))
    if amount < SMALLEST_LIMIT:
        raise BadParameter(
            f"The 'memory_limit' parameter must be at least 100MB. Got {limit!r} instead.",
            "Write it as a number of bytes or like 2GB.",
        )
    return amount


def nameless_file() -> IO[bytes]:
    """Return a private file without a name, in the folder for temporary files."""
    return tempfile.TemporaryFile(prefix="dpunion-")


def default_memory_limit() -> int:
    """Return 60 % of the memory that this process may use, in bytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(Path(limit).read_text()))
    return int(total * DEFAULT_SHARE)
