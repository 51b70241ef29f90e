"""What every reader gets and offers: a request to read, the parts of a source, and the columns found in them.

A reader is a module with `parts_of`. It returns the parts of a source that it knows: files, frames, queries. A part
checks the wanted columns and yields them as Arrow arrays.
"""

from __future__ import annotations

import enum
import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn, Protocol

import pyarrow as pa

from dpunion.checks import nearest
from dpunion.errors import BadParameter, DamagedSource, UnknownColumn, UnsupportedType, attempt
from dpunion.reading.spelling import Column, Granularity, Role, is_text

MOST_NAMES_SHOWN = 20

OnFraction = Callable[[float], None]
"""Called with the fraction of one part that was read, from 0.0 to 1.0."""

Piece = Callable[[], Iterable[tuple[Any, ...]]]
"""Some rows that are not read or parsed yet: called once, in any thread, it yields what `SourcePart.batches` yields."""


class ValueKind(enum.Enum):
    """What the value column contains: items, or texts that are split into items."""

    ITEM = "item"
    TEXT = "text"

    @property
    def role(self) -> Role:
        """The role that decides which types the value column may have."""
        return Role.ITEM if self is ValueKind.ITEM else Role.TEXT


class NullUserPolicy(enum.Enum):
    """What to do with rows whose user is null or empty."""

    REFUSE = "refuse"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """Which rows to read, and how.

    user, value: columns by name, or by position from 0; None for Python objects. A tuple of values makes a key.
    query: what to read from a database. input_format: the format of standard input, "csv", "tsv", "jsonl" or "arrow".
    granularity: how to round dates and timestamps.

    Guarantees: the source, which may be people's rows, does not show in the repr.
    """

    source: Any = field(repr=False)
    user: str | int | None
    kind: ValueKind
    value: str | int | Sequence[str | int] | None
    query: str | None = None
    input_format: str | None = None
    null_users: NullUserPolicy = NullUserPolicy.REFUSE
    granularity: Granularity | None = None

    @property
    def paths(self) -> list[str | os.PathLike[str]] | None:
        """The paths and addresses, if the source is one or a list of them."""
        paths = self.source if isinstance(self.source, list | tuple) else [self.source]
        return list(paths) if paths and all(isinstance(path, str | os.PathLike) for path in paths) else None

    @property
    def values(self) -> tuple[str | int | None, ...]:
        """The value columns, of which there is at least one; a key has several."""
        value = self.value
        values = (value,) if value is None or isinstance(value, str | int) else tuple(value)
        if not values or (len(values) > 1 and self.kind is ValueKind.TEXT):
            raise BadParameter(f"There are {len(values)} columns of {self.kind.value}s.", "Name one.")
        return values

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple("value" if value is None else str(value) for value in self.values)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The user column and the value columns, by name or by position from 0, and the role of the values (public)."""

    user: str | int
    values: tuple[str | int, ...]
    role: Role

    @classmethod
    def of(cls, request: SourceRequest, *, has_columns: bool = True) -> Wanted:
        """Return the wanted columns; Python objects have no columns, only positions."""
        role = request.kind.role if len(request.values) == 1 else Role.KEY
        if not has_columns:
            return cls(0, tuple(range(1, len(request.values) + 1)), role)
        named = [name for name in (request.user, *request.values) if isinstance(name, str | int)]
        if len(named) <= len(request.values) or any(isinstance(name, bool) for name in named):
            raise BadParameter(
                "Files, databases and frames need a user column and a value column.",
                "Name both: the column with the user ids, and the column with the values.",
            )
        wanted = cls(named[0], tuple(named[1:]), role)
        check_distinct(wanted, wanted.columns)
        return wanted

    @property
    def columns(self) -> tuple[str | int, ...]:
        return self.user, *self.values


class SourcePart:
    """One file, frame, query or iterable of a source. A subclass has `check`, and `batches` or `pieces`.

    where: what errors call the part. size: its share of the progress, bytes for files and 1 for everything else.
    needs_rows: whether `check` must read rows. knows_types: whether the types are known before rows are read.
    has_columns: False for Python objects, which have no column names and are turned into text by their reader.

    Guarantees:
    - nothing but `where` shows in the repr;
    - `batches` and `pieces` yield the same rows in the same order.
    """

    needs_rows: ClassVar[bool] = False
    knows_types: ClassVar[bool] = True
    has_columns: ClassVar[bool] = True

    def __init__(self, where: str, size: int = 1) -> None:
        self.where = where
        self.size = size

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.where})"

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        """Refuse unknown columns and unsupported types, as far as they are known before all rows are read."""

    def batches(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[tuple[Any, ...]]:
        """Yield pa.Arrays of the wanted columns in their order. The arrays of a batch have equal lengths."""
        for piece in self.pieces(wanted, on_fraction, 1):
            yield from piece()

    def pieces(self, wanted: Wanted, on_fraction: OnFraction, size: int) -> Iterator[Piece]:
        """Yield the rows in pieces for any thread; size: the most rows of one, for parts that only have `batches`."""
        for columns in self.batches(wanted, on_fraction):
            for start in range(0, len(columns[0]), size):
                yield functools.partial(iter, [tuple(column.slice(start, size) for column in columns)])


class SourceReader(Protocol):
    """A module that reads one kind of source."""

    def parts_of(self, request: SourceRequest) -> Sequence[SourcePart] | None:
        """Return the parts of the source, or None when another reader must read it."""


@dataclass(frozen=True, slots=True)
class FileTypes:
    """The columns of one file, with the types that they have in this file (public).

    This is the rule for every source with typed columns: each file is read by its own types, whatever other files
    have. `Column` then refuses files of different kinds.

    schema: the pa.Schema of the file itself. folders: a pa.Schema of the columns that are named by its folders.
    """

    where: str
    schema: Any
    folders: Any = field(default_factory=lambda: pa.schema([]))

    @property
    def names(self) -> list[str]:
        """The names of the columns, those of the folders last. Names that are not UTF-8 are damage."""
        return attempt(lambda: [*self.schema.names, *self.folders.names], self.where)

    def find(self, wanted: Wanted) -> tuple[int, ...]:
        """Return the positions of the wanted columns; refuse a column that is missing or exists twice."""
        return find_columns(self.names, wanted, self.where)

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        """Refuse wanted columns that are missing, without a canonical text, or of another kind than in other files.

        Guarantees: the value of a folder is read as text, because any other type was guessed from all folders.
        """
        for position, column in zip(self.find(wanted), columns, strict=True):
            if position < len(self.schema):
                column.expect(self.schema.field(position).type, self.where)
                continue
            folder = self.folders.field(position - len(self.schema))
            if not is_text(folder.type):
                raise UnsupportedType(
                    f"The folder names of {self.where} contain column {folder.name!r}, and its type was guessed from "
                    "all folders.",
                    "Name the folder itself as the source, or declare the partitions as text, for example with"
                    f" ds.partitioning(pa.schema([({folder.name!r}, pa.string())]), flavor='hive').",
                )
            column.expect(folder.type, self.where)


def check_distinct(wanted: Wanted, places: Sequence[str | int]) -> None:
    """Refuse a column that is wanted twice; places: where the wanted columns were found."""
    user, *values = places
    if user in values:
        value = wanted.values[values.index(user)]
        raise BadParameter(
            f"The user column {wanted.user!r} and the value column {value!r} are the same.",
            "Name the column with the user ids, and another one with the values.",
        )
    if len(set(values)) < len(values):
        raise BadParameter("A key names the same column twice.", "Name each column of the key once.")


def find_columns(names: Sequence[str], wanted: Wanted, where: str, query: str | None = None) -> tuple[int, ...]:
    """Return the positions of the wanted columns; query: see refuse_column."""
    positions = tuple(find_column(names, column, where, query) for column in wanted.columns)
    check_distinct(wanted, positions)
    return positions


def find_column(names: Sequence[str], column: str | int, where: str, query: str | None = None) -> int:
    """Return the position of a column; refuse one that is missing or exists twice."""
    positions = [i for i, name in enumerate(names) if (i if isinstance(column, int) else name) == column]
    if not positions:
        refuse_column(names, column, where, query)
    if len(positions) > 1:
        raise DamagedSource(
            f"There are {len(positions)} columns named {column!r} in {where}.",
            f"Rename or remove all but one of them; a folder named '{column}=…' counts as a column.",
        )
    return positions[0]


def refuse_column(names: Sequence[str], column: str | int, where: str, query: str | None = None) -> NoReturn:
    """Raise UnknownColumn with the nearest name and the names that exist.

    query: what the user wrote, when names do not come from a schema but may come from rows.

    Guarantees: with a query, the error repeats only names that are words of it.
    """
    label = f"column {column!r}" if isinstance(column, str) else f"column number {column} (counted from 0)"
    known = [n for n in names if query is None or re.search(rf"(?<!\w){re.escape(n)}(?!\w)", query, re.IGNORECASE)]
    near = nearest(column, known) if isinstance(column, str) else None
    hint = f"Did you mean {near!r}?" if near is not None else "Name one of these columns."
    if query is not None:
        hint = hint if near is not None else "Check the spelling; names that may come from rows are not listed."
        raise UnknownColumn(f"There is no {label} in {where}.", hint)
    if isinstance(column, str) and len(parts := column.split(",")) > 1 and set(map(str.strip, parts)) <= set(names):
        hint = "Name several columns one by one: --item a --item b on the command line, item=['a', 'b'] in Python."
    # A pattern names the files of a folder with partitions one by one, as in "file 'logs/week=…/part.parquet'".
    if partition := re.search(rf"'((?:[^'=]*/)?)(?:[^'/=]+=…/)*{re.escape(str(column))}=…/.*parquet'", where):
        hint = f"Name the folder {partition[1].rstrip('/') or '.'!r} to have its partitions as columns."
    shown = ", ".join(repr(name) for name in names[:MOST_NAMES_SHOWN])
    more = f" and {len(names) - MOST_NAMES_SHOWN} more" if len(names) > MOST_NAMES_SHOWN else ""
    raise UnknownColumn(f"There is no {label} in {where}. Its columns are: {shown or 'none'}{more}.", hint)
