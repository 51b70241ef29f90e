"""Rows as every source yields them: batches of (user, value) text columns, cleaned in the same way for all formats."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import pyarrow as pa

from dpunion.buffers import pc
from dpunion.errors import BadSource, NullUsers, attempt
from dpunion.reading.parts import NullUserPolicy, Piece, SourcePart, SourceRequest, ValueKind, Wanted
from dpunion.reading.spelling import LONGEST_PART, Column, Role, is_list, is_missing_possible, lengths, value_column
from dpunion.threads import work_in_order

T = TypeVar("T")

MAX_ITEM_BYTES = LONGEST_PART
"""Items with more UTF-8 bytes are dropped, row by row; texts may be longer. Keys count as written by `join_key`."""

MAX_USER_BYTES = 4096
"""A user id with more UTF-8 bytes is refused: probably the column of users contains texts."""

ROWS_PER_BATCH = 1 << 19
TEXTS_PER_BATCH = 1 << 16


class RowBatch(NamedTuple):
    """Users and values of some rows: two arrays of equal length, without nulls (sensitive).

    users, values: pa.Array of utf8 or large_utf8, or pa.DictionaryArray of int32 indices into such an array;
    values of ValueKind.TEXT are never dictionaries.
    subtle: a dictionary may have entries that no row uses (no user has them!) and the same entry twice.
    """

    users: Any
    values: Any

    def __repr__(self) -> str:
        return f"RowBatch(users: {self.users.type}, values: {self.values.type})"


class Cleaner:
    """Turn the arrays of a reader into RowBatches: canonical text, lists flattened, nothing missing.

    Guarantees:
    - only the content of a row decides whether it is kept, so dropping does not depend on other users' rows;
    - rows with a null or empty user are refused or dropped, as the policy says; they never become a user;
    - null and empty items are dropped, and so are items longer than MAX_ITEM_BYTES (texts have any length);
    - a key of several columns is dropped when one of its parts is null or empty;
    - every text is valid UTF-8, and each column keeps one kind over all batches and files.
    """

    def __init__(self, request: SourceRequest) -> None:
        self.kind = request.kind
        self.null_users = request.null_users
        self.users = Column("user" if request.user is None else str(request.user), Role.USER)
        self.values = value_column(request.labels, request.kind.role, request.granularity)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns to read: the user's, then the value's or those of the key."""
        return self.users, *self.values.parts

    @property
    def rows_per_batch(self) -> int:
        return ROWS_PER_BATCH if self.kind is ValueKind.ITEM else TEXTS_PER_BATCH

    def fork(self) -> Cleaner:
        """Return a cleaner for another thread; see `Column.fork`."""
        other = copy.copy(self)
        other.users, other.values = self.users.fork(), self.values.fork()
        return other

    def merge(self, other: Cleaner, where: str) -> None:
        """Take over what a fork has seen; refuse a column that changed its kind."""
        self.users.merge(other.users, where)
        self.values.merge(other.values, where)

    def clean_piece(self, piece: Piece, where: str) -> Iterator[RowBatch]:
        for users, *columns in piece():
            values = columns[0]
            if len(columns) > 1:  # the columns of a key become structs, without copying them
                names = [str(i) for i in range(len(columns))]
                values = attempt(functools.partial(pa.StructArray.from_arrays, columns, names), where)
            yield from self.clean(users, values, where)

    def clean(self, users: Any, values: Any, where: str) -> Iterator[RowBatch]:
        """Yield the rows of two arrays of equal length, in batches of limited length; values: structs for keys."""
        size = self.rows_per_batch
        lists = self.values.lists(values, where) if is_list(values.type) else None
        for start in range(0, len(users), size):
            people = self.users.text(users.slice(start, size), where)
            missing = self._missing_users(people, where)
            if lists is None:
                yield from self._finish(people, self.values.text(values.slice(start, size), where), missing)
                continue
            for parents, elements, lost in flatten_lists(people, lists.slice(start, size), missing, size, where):
                yield from self._finish(parents, self.values.text(elements, where), lost)

    def _missing_users(self, people: Any, where: str) -> Any:
        """Return a mask of the rows without a user, None when all have one; refuse them if the policy says so."""
        if not is_missing_possible(people, MAX_USER_BYTES):
            return None
        sizes = lengths(people)
        if (pc.max(sizes).as_py() or 0) > MAX_USER_BYTES:
            raise BadSource(
                f"A user id in column {self.users.name!r} of {where} is longer than {MAX_USER_BYTES} bytes.",
                "Check that the user column is the right one, or shorten the ids (for example to a digest).",
            )
        missing = pc.equal(pc.fill_null(sizes, 0), 0)
        if not pc.any(missing, min_count=0).as_py():
            return None
        if self.null_users is NullUserPolicy.REFUSE:
            raise NullUsers(
                f"Column {self.users.name!r} of {where} has rows with a null or empty user.",
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


def flatten_lists(users: Any, lists: Any, missing: Any, size: int, where: str) -> Iterator[tuple[Any, Any, Any]]:
    """Yield (users, elements, mask of missing users), one row per element, at most `size` rows at a time.

    Users are repeated as dictionary entries. A null list has no elements.
    """
    for first, some in split_lists(lists, size):
        rows = len(some)
        parents, elements = attempt(functools.partial(explode, some), where)
        some_users = users.slice(first, rows)
        if pa.types.is_dictionary(users.type) or some_users.null_count:
            repeated = some_users.take(parents)
        else:
            repeated = pa.DictionaryArray.from_arrays(parents, some_users)  # copies no text
        lost = None if missing is None else missing.slice(first, rows).take(parents)
        for start in range(0, len(elements), size):
            mask = None if lost is None else lost.slice(start, size)
            yield repeated.slice(start, size), elements.slice(start, size), mask


def explode(lists: Any) -> tuple[Any, Any]:
    """Return the row number of each element, int32[elements], and the elements."""
    rows = pa.array(np.arange(len(lists), dtype=np.int32)) if lists.null_count else None
    if rows is not None:
        # subtle: a null list may contain elements, and the two functions below treat them differently.
        keep = lists.is_valid()
        rows, lists = rows.filter(keep), lists.filter(keep)
    parents = pc.list_parent_indices(lists)
    return (parents if rows is None else rows.take(parents)).cast(pa.int32()), pc.list_flatten(lists)


def split_lists(lists: Any, limit: int) -> Iterator[tuple[int, Any]]:
    """Yield (first row, slice of rows); a slice of several rows has at most `limit` elements."""
    stack = [(0, lists)]
    while stack:
        first, some = stack.pop()
        if len(some) > 1 and (pc.sum(pc.list_value_length(some)).as_py() or 0) > limit:
            half = len(some) // 2
            stack += [(first + half, some.slice(half)), (first, some.slice(0, half))]
        elif len(some):
            yield first, some


class Rows:
    """An iterable of RowBatches, to be read once, and a context manager that closes the files behind it (sensitive).

    Guarantees:
    - when the block ends, no further piece is read;
    - the batches, and the error that ends them, are the same for any number of threads.
    """

    def __init__(
        self, parts: Sequence[SourcePart], wanted: Wanted, cleaner: Cleaner, on_progress: Callable[[float], None]
    ) -> None:
        self._cleaner = cleaner
        self._pieces = find_pieces(parts, wanted, cleaner.rows_per_batch, on_progress)

    def __iter__(self) -> Iterator[RowBatch]:
        first = self._cleaner.fork()
        for piece, where in self._pieces:
            mine = first.fork()
            yield from mine.clean_piece(piece, where)
            self._cleaner.merge(mine, where)

    def work_off(self, work: Callable[[Iterable[RowBatch]], T], threads: int) -> Iterator[T]:
        """Yield work(batches) of each piece, in the order of the pieces; several threads run it."""
        # subtle: every piece starts with what is known before the first one, so that threads change no error.
        first = self._cleaner.fork()

        def clean(piece: tuple[Piece, str]) -> tuple[T, Cleaner, str]:
            read, where = piece
            mine = first.fork()
            return work(mine.clean_piece(read, where)), mine, where

        for made, seen, where in work_in_order(clean, self._pieces, threads):
            self._cleaner.merge(seen, where)
            yield made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        # When an error ends the run, a thread may still read its piece. Nobody waits for it, and it closes its files.
        self._pieces.close()


def find_pieces(
    parts: Sequence[SourcePart], wanted: Wanted, size: int, on_progress: Callable[[float], None]
) -> Generator[tuple[Piece, str], None, None]:
    """Yield the pieces of all parts, with what errors call the part, and report the progress.

    Guarantees: the pieces are in the order of the rows, and contain each row once.
    """
    total = max(sum(part.size for part in parts), 1)
    before = 0
    for part in parts:

        def on_fraction(fraction: float, before: int = before, size: int = part.size) -> None:
            on_progress(min((before + fraction * size) / total, 1.0))

        for piece in part.pieces(wanted, on_fraction, size):
            yield piece, part.where
        before += part.size
    on_progress(1.0)
