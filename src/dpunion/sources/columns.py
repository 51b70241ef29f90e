"""Which two columns are wanted, and finding them among those there are."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from dpunion.errors import BadParameter, DamagedSource, UnknownColumn
from dpunion.sources.canonical import Column, Role

MOST_NAMES_SHOWN = 20

OnFraction = Callable[[float], None]
"""Called with the fraction of one part that was read, from 0.0 to 1.0."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The user and the value column, by name or by position from 0, and the value's role (public)."""

    user: str | int
    value: str | int
    role: Role


class Part(Protocol):
    """One file, frame or iterable of a source."""

    @property
    def where(self) -> str:
        """The part as errors call it."""
        ...

    @property
    def size(self) -> int:
        """Its share of the progress: bytes of files, 1 for all else."""
        ...

    def check(self, wanted: Wanted, users: Column, values: Column) -> None:
        """Refuse unknown columns and unsupported types, as far as can be told without reading rows."""
        ...

    def batches(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[tuple[Any, Any]]:
        """Yield pa.Arrays of users and of values, of equal length per batch."""
        ...


def find_columns(names: Sequence[str], wanted: Wanted, where: str) -> tuple[int, int]:
    """Return the positions of the user and of the value column."""
    user, value = find_column(names, wanted.user, where), find_column(names, wanted.value, where)
    if user == value:
        raise BadParameter(
            f"The user column {wanted.user!r} and the value column {wanted.value!r} are the same.",
            "Name the column that says whose a row is, and another one that holds the values.",
        )
    return user, value


def find_column(names: Sequence[str], column: str | int, where: str) -> int:
    """Return the position of a column, or refuse with the names there are."""
    if isinstance(column, int):
        if 0 <= column < len(names):
            return column
        refuse_column(names, column, where)
    positions = [i for i, name in enumerate(names) if name == column]
    if not positions:
        refuse_column(names, column, where)
    if len(positions) > 1:
        raise DamagedSource(
            f"There are {len(positions)} columns named {column!r} in {where}.",
            "Rename them, so that it is clear which one is meant.",
        )
    return positions[0]


def refuse_column(names: Sequence[str], column: str | int, where: str) -> NoReturn:
    """Raise UnknownColumn with the nearest name and the names there are (names are schema, so public)."""
    shown = ", ".join(repr(name) for name in names[:MOST_NAMES_SHOWN])
    more = f" and {len(names) - MOST_NAMES_SHOWN} more" if len(names) > MOST_NAMES_SHOWN else ""
    near = difflib.get_close_matches(str(column), names, n=1) if isinstance(column, str) else []
    hint = f"Did you mean {near[0]!r}?" if near else "Name one of these columns."
    label = f"column {column!r}" if isinstance(column, str) else f"column number {column} (counted from 0)"
    raise UnknownColumn(f"There is no {label} in {where}. Its columns are: {shown or 'none'}{more}.", hint)
