"""Which columns are wanted, and finding them among those there are."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol, runtime_checkable

import pyarrow as pa

from dpunion.checks import nearest
from dpunion.errors import BadParameter, DamagedSource, UnknownColumn, UnsupportedType, attempt
from dpunion.reading.spelling import Column, Role, is_text

MOST_NAMES_SHOWN = 20

OnFraction = Callable[[float], None]
"""Called with the fraction of one part that was read, from 0.0 to 1.0."""

Piece = Callable[[], Iterable[tuple[Any, ...]]]
"""Some rows, not read or parsed yet: called once, in any thread, it yields what `SourcePart.batches` yields."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The user and the value columns, by name or by position from 0, and the values' role (public).

    values: one column, or those of a key of several.
    """

    user: str | int
    values: tuple[str | int, ...]
    role: Role

    @property
    def columns(self) -> tuple[str | int, ...]:
        """All columns, the user's first."""
        return self.user, *self.values

    def listed(self) -> str:
        """All columns for errors."""
        shown = [repr(column) for column in self.columns]
        return f"{', '.join(shown[:-1])} and {shown[-1]}"


class SourcePart(Protocol):
    """One file, frame or iterable of a source."""

    @property
    def where(self) -> str:
        """The part as errors call it."""
        ...

    @property
    def size(self) -> int:
        """Its share of the progress: bytes of files, 1 for all else."""
        ...

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        """Refuse unknown columns and unsupported types, as far as is known before all rows are read."""
        ...

    def batches(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[tuple[Any, ...]]:
        """Yield pa.Arrays of the wanted columns in their order, of equal length per batch."""
        ...


@runtime_checkable
class DividedPart(SourcePart, Protocol):
    """A part whose rows can be read or parsed by several threads."""

    def pieces(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[Piece]:
        """Yield the rows in pieces, which are the same whoever reads them."""
        ...


def pieces_of(part: SourcePart, wanted: Wanted, on_fraction: OnFraction, size: int) -> Iterator[Piece]:
    """Yield the rows of any part in pieces: its own, or the batches that it yields, cut into at most `size` rows."""
    if isinstance(part, DividedPart):
        yield from part.pieces(wanted, on_fraction)
        return
    for columns in part.batches(wanted, on_fraction):
        for start in range(0, len(columns[0]), size):
            yield functools.partial(iter, [tuple(column.slice(start, size) for column in columns)])


def join_pieces(pieces: Iterable[Piece]) -> Iterator[tuple[Any, ...]]:
    """Read the pieces one after the other, here.

    Guarantees: nothing of a piece is left out, and the next one is begun when it ended.
    """
    for piece in pieces:
        yield from piece()


def find_columns(names: Sequence[str], wanted: Wanted, where: str, said: str | None = None) -> tuple[int, ...]:
    """Return the positions of the wanted columns; said: as in refuse_column."""
    positions = tuple(find_column(names, column, where, said) for column in wanted.columns)
    check_distinct(wanted, positions)
    return positions


@dataclass(frozen=True, slots=True)
class FileTypes:
    """The columns of one file, with the types that they have in this file (public).

    This is the rule for every source with typed columns: each file is read by its own types, whatever other files
    have. `Column` then refuses files of different kinds.

    schema: the pa.Schema of the file itself. told: a pa.Schema of the columns that the names of its folders tell.
    """

    where: str
    schema: Any
    told: Any = field(default_factory=lambda: pa.schema([]))

    @property
    def names(self) -> list[str]:
        """The names of the columns, those of the folders last; names that are not UTF-8 are damage."""
        return attempt(lambda: [*self.schema.names, *self.told.names], self.where)

    def find(self, wanted: Wanted) -> tuple[int, ...]:
        """Return the positions of the wanted columns; refuse a column that is missing, or that is there twice."""
        return find_columns(self.names, wanted, self.where)

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        """Refuse wanted columns that are missing, without a canonical text, or of another kind than in other files.

        Guarantees: the value of a folder is read as text, because any other type was guessed from all folders.
        """
        for position, column in zip(self.find(wanted), columns, strict=True):
            if position < len(self.schema):
                column.expect(self.schema.field(position).type, self.where)
            else:
                self._check_told(self.told.field(position - len(self.schema)), column)

    def _check_told(self, folder: Any, column: Column) -> None:
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


def find_column(names: Sequence[str], column: str | int, where: str, said: str | None = None) -> int:
    """Return the position of a column, or refuse as refuse_column does."""
    if isinstance(column, int):
        if 0 <= column < len(names):
            return column
        refuse_column(names, column, where, said)
    positions = [i for i, name in enumerate(names) if name == column]
    if not positions:
        refuse_column(names, column, where, said)
    if len(positions) > 1:
        raise DamagedSource(
            f"There are {len(positions)} columns named {column!r} in {where}.",
            f"Rename or remove all but one of them; a folder named '{column}=…' counts as a column.",
        )
    return positions[0]


def refuse_column(names: Sequence[str], column: str | int, where: str, said: str | None = None) -> NoReturn:
    """Raise UnknownColumn with the nearest name and the names there are.

    said: what the user wrote, where names are not of a schema but may come from rows.

    Guarantees: with `said`, no name is reported that is not a word of it.
    """
    label = f"column {column!r}" if isinstance(column, str) else f"column number {column} (counted from 0)"
    named = names if said is None else [name for name in names if _is_word(name, said)]
    near = nearest(column, named) if isinstance(column, str) else None
    hint = f"Did you mean {near!r}?" if near is not None else "Name one of these columns."
    if said is not None:
        hint = hint if near is not None else "Check the spelling; names that may come from rows are not listed."
        raise UnknownColumn(f"There is no {label} in {where}.", hint)
    if isinstance(column, str) and len(parts := column.split(",")) > 1 and set(map(str.strip, parts)) <= set(names):
        hint = "Name several columns one by one: --item a --item b on the command line, item=['a', 'b'] in Python."
    shown = ", ".join(repr(name) for name in names[:MOST_NAMES_SHOWN])
    more = f" and {len(names) - MOST_NAMES_SHOWN} more" if len(names) > MOST_NAMES_SHOWN else ""
    raise UnknownColumn(f"There is no {label} in {where}. Its columns are: {shown or 'none'}{more}.", hint)


def _is_word(name: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None
