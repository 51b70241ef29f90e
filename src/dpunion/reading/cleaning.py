"""Rows as every source yields them: batches of (user, value) text columns, cleaned alike for all formats."""

from __future__ import annotations

import copy
import enum
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import pyarrow as pa

from dpunion.buffers import pc
from dpunion.errors import BadSource, NullUsers, attempt
from dpunion.reading.columns import Piece
from dpunion.reading.key_columns import LONGEST_PART, KeyColumn, key_struct
from dpunion.reading.moments import Granularity, MomentColumn
from dpunion.reading.spelling import Column, Role, is_list, is_missing_possible, lengths
from dpunion.threads import work_in_order

T = TypeVar("T")

MAX_ITEM_BYTES = LONGEST_PART
"""Items longer than this many UTF-8 bytes are dropped, row by row; texts may be longer.

For a key of several columns it is the one text of `formats.join_key` that counts.
"""

MAX_USER_BYTES = 4096
"""A user id longer than this many UTF-8 bytes is refused: a column of texts was taken for the ids."""

ROWS_PER_BATCH = 1 << 19
TEXTS_PER_BATCH = 1 << 16


class ValueKind(enum.Enum):
    """What the value column holds: items as they are, or texts that items are to be made of."""

    ITEM = "item"
    TEXT = "text"

    @property
    def role(self) -> Role:
        """The role that decides which types the value column may have."""
        return Role.ITEM if self is ValueKind.ITEM else Role.TEXT

    @property
    def rows_per_batch(self) -> int:
        """How many rows a batch holds at most."""
        return ROWS_PER_BATCH if self is ValueKind.ITEM else TEXTS_PER_BATCH


class NullUserPolicy(enum.Enum):
    """What happens to rows whose user is null or the empty string."""

    REFUSE = "refuse"
    DROP = "drop"


class RowBatch(NamedTuple):
    """Users and values of some rows: two arrays of equal length, without nulls (sensitive).

    users, values: pa.Array of utf8 or large_utf8, or pa.DictionaryArray of int32 indices into such an array;
    values of ValueKind.TEXT are never dictionaries.
    subtle: a dictionary may hold entries that no row uses (nobody holds these!) and the same entry twice.
    """

    users: Any
    values: Any

    def __repr__(self) -> str:
        return f"RowBatch(users: {self.users.type}, values: {self.values.type})"


class Cleaner:
    """Turn the arrays of a reader into RowBatches: canonical text, lists flattened, nothing missing.

    Guarantees:
    - a row is kept or dropped by its own content only, so dropping does not depend on other users' rows;
    - a null or empty user is refused, or its rows are dropped, as the policy says; it is never made a user;
    - null and empty items are dropped, and so are items longer than MAX_ITEM_BYTES (texts have any length);
    - a key of several columns is dropped when one of its parts is null or empty;
    - every text is valid UTF-8, and each column keeps one kind over all batches and files.
    """

    def __init__(
        self,
        user: str,
        value: str | Sequence[str],
        kind: ValueKind,
        null_users: NullUserPolicy,
        granularity: Granularity | None = None,
    ) -> None:
        self.user = user
        self.kind = kind
        self.null_users = null_users
        self.users = Column(user, Role.USER)
        self.values = value_column(value, kind.role, granularity)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns to read: the user's, then that of the values or those of the key."""
        return self.users, *self.values.parts

    def expect_texts(self) -> None:
        """Take values as texts from now on: Python objects are spelled before they are cleaned."""
        names = [part.name for part in self.values.parts]
        self.values = value_column(names if isinstance(self.values, KeyColumn) else names[0], self.kind.role, None)

    def apart(self) -> Cleaner:
        """Return a cleaner for another thread, with columns that are apart; see `Column`."""
        other = copy.copy(self)
        other.users, other.values = self.users.apart(), self.values.apart()
        return other

    def clean_all(self, piece: Piece, where: str) -> Iterator[RowBatch]:
        """Yield the rows of a piece."""
        for users, *columns in piece():
            values = columns[0] if len(columns) == 1 else attempt(functools.partial(key_struct, columns), where)
            yield from self.clean(users, values, where)

    def join(self, other: Cleaner, where: str) -> None:
        """Note what a cleaner that was apart has seen: refuse a column that changed its kind."""
        self.users.join(other.users, where)
        self.values.join(other.values, where)

    def clean(self, users: Any, values: Any, where: str) -> Iterator[RowBatch]:
        """Yield the rows of two raw arrays of equal length, in batches of bounded length.

        values: for a key of several columns, the structs that `key_columns.key_struct` makes of them.
        """
        size = self.kind.rows_per_batch
        lists = self.values.lists(values, where) if is_list(values.type) else None
        for start in range(0, len(users), size):
            people = self.users.text(users.slice(start, size), where)
            missing = self._missing_users(people, where)
            if lists is None:
                yield from self._finish(people, self.values.text(values.slice(start, size), where), missing)
                continue
            for flat_users, elements, flat_missing in flattened(people, lists.slice(start, size), missing, size, where):
                yield from self._finish(flat_users, self.values.text(elements, where), flat_missing)

    def _missing_users(self, people: Any, where: str) -> Any:
        """Return a mask of the rows without a user, None when there are none; refuse as the policy says."""
        if not is_missing_possible(people, MAX_USER_BYTES):
            return None
        sizes = lengths(people)
        longest = pc.max(sizes).as_py()
        if longest is not None and longest > MAX_USER_BYTES:
            raise BadSource(
                f"A user id in column {self.user!r} of {where} is longer than {MAX_USER_BYTES} bytes.",
                "Check that the user column is the right one, or shorten the ids (for example to a digest).",
            )
        missing = pc.equal(pc.fill_null(sizes, 0), 0)
        if not pc.any(missing, min_count=0).as_py():
            return None
        if self.null_users is NullUserPolicy.REFUSE:
            raise NullUsers(
                f"Column {self.user!r} of {where} has rows with a null or empty user.",
                'Give every row a user, or drop such rows with null_users="drop" (--null-users drop).',
            )
        return missing

    def _finish(self, users: Any, texts: Any, missing: Any) -> Iterator[RowBatch]:
        """Yield the rows that have a user and an item."""
        limit = MAX_ITEM_BYTES if self.kind is ValueKind.ITEM else None
        keep = None if missing is None else pc.invert(missing)
        if is_missing_possible(texts, limit):
            sizes = pc.fill_null(lengths(texts), 0)
            present = pc.greater(sizes, 0)
            if limit is not None:
                present = pc.and_(present, pc.less_equal(sizes, limit))
            keep = present if keep is None else pc.and_(keep, present)
        if keep is not None:
            users, texts = users.filter(keep), texts.filter(keep)
        if self.kind is ValueKind.TEXT and pa.types.is_dictionary(texts.type):
            texts = texts.dictionary_decode()
        if len(texts):
            yield RowBatch(users, texts)


def value_column(value: str | Sequence[str], role: Role, granularity: Granularity | None) -> Column:
    """Return the column of the values, or that of the keys."""
    if not isinstance(value, str):
        return KeyColumn(value, granularity)
    return Column(value, role) if granularity is None else MomentColumn(value, role, granularity)


def flattened(users: Any, lists: Any, missing: Any, size: int, where: str) -> Iterator[tuple[Any, Any, Any]]:
    """Yield (users, elements, mask of missing users), one row per element, at most `size` rows at a time.

    The users are repeated as dictionary entries; a null list has no elements.
    """
    for first, some in bounded_lists(lists, size):
        rows = len(some)
        parents, elements = attempt(functools.partial(explode, some), where)
        repeated = repeat(users.slice(first, rows), parents)
        lost = None if missing is None else missing.slice(first, rows).take(parents)
        for start in range(0, len(elements), size):
            mask = None if lost is None else lost.slice(start, size)
            yield repeated.slice(start, size), elements.slice(start, size), mask


def explode(lists: Any) -> tuple[Any, Any]:
    """Return the row number of each element, int32[elements], and the elements."""
    rows = pa.array(np.arange(len(lists), dtype=np.int32)) if lists.null_count else None
    if rows is not None:
        # subtle: a null list may hide elements, which the two functions below do not treat alike.
        keep = lists.is_valid()
        rows, lists = rows.filter(keep), lists.filter(keep)
    parents = pc.list_parent_indices(lists)
    return (parents if rows is None else rows.take(parents)).cast(pa.int32()), pc.list_flatten(lists)


def repeat(users: Any, parents: Any) -> Any:
    """Return users[parents] without copying texts."""
    if pa.types.is_dictionary(users.type) or users.null_count:
        return users.take(parents)
    return pa.DictionaryArray.from_arrays(parents, users)


def bounded_lists(lists: Any, limit: int) -> Iterator[tuple[int, Any]]:
    """Yield (first row, slice of rows) such that no slice of several rows has more than `limit` elements."""
    stack = [(0, lists)]
    while stack:
        first, some = stack.pop()
        if len(some) > 1 and (pc.sum(pc.list_value_length(some)).as_py() or 0) > limit:
            half = len(some) // 2
            stack.append((first + half, some.slice(half)))
            stack.append((first, some.slice(0, half)))
        elif len(some):
            yield first, some


class Rows:
    """An iterator of RowBatches, and a context manager that closes the files behind it (sensitive).

    pieces: the rows in pieces, each with where it stands for errors.

    Guarantees:
    - when the block ends, nothing more is begun to be read;
    - the batches, and the error that ends them, are the same whatever the number of threads.
    """

    def __init__(self, pieces: Iterator[tuple[Piece, str]], cleaner: Cleaner) -> None:
        self._pieces = pieces
        self._cleaner = cleaner
        self._batches = self._one_after_the_other()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> RowBatch:
        return next(self._batches)

    def _one_after_the_other(self) -> Iterator[RowBatch]:
        first = self._cleaner.apart()
        for piece, where in self._pieces:
            mine = first.apart()
            yield from mine.clean_all(piece, where)
            self._cleaner.join(mine, where)

    def work_off(self, work: Callable[[Iterable[RowBatch]], T], threads: int) -> Iterator[T]:
        """Yield what `work` makes of the batches of each piece, in the order of the pieces; it runs in some threads."""
        # subtle: every piece starts with what is known before the first one, so that threads change no error.
        first = self._cleaner.apart()

        def clean(piece: tuple[Piece, str]) -> tuple[T, Cleaner, str]:
            read, where = piece
            mine = first.apart()
            return work(mine.clean_all(read, where)), mine, where

        for made, seen, where in work_in_order(clean, self._pieces, threads):
            self._cleaner.join(seen, where)
            yield made

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading and close what is open; more batches cannot be had."""
        # A thread may still be at its piece when an error ends the run; nobody waits for it, and what it has open is
        # closed when it ends.
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()
