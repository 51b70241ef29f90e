"""Python objects: an iterable of (user, value) pairs, or a mapping from users to their values.

A value may be a tuple, when the parts of such keys have names.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dpunion.errors import BadParameter, UnsupportedType, attempt
from dpunion.reading.columns import OnFraction, Wanted
from dpunion.reading.moments import MomentColumn, object_kind, refuse_without_moments
from dpunion.reading.spelling import KINDS_FOR_ROLE, Column, Role, TextKind

PAIRS_PER_BATCH = 1 << 17
NAME_PARTS = ' A tuple can be a key whose parts have names: item=["country", "device"].'
DATED = ' Or set the precision of datetimes, with names for the parts: Dated(["country", "at"], "day").'
PAIRS = "Give (user, value) pairs, a mapping from users to lists of values, or files or frames with columns."


class PairsPart:
    """Pairs or a mapping, turned into text a batch at a time.

    Guarantees:
    - only str, int, date and bool have a text, as in `spelling`; they do not mix, bool and int neither;
    - a bare string is never taken for an iterable of items, nor for a pair;
    - errors name types and positions, never values.
    """

    def __init__(self, source: Iterable[Any], values: Sequence[Column]) -> None:
        self.source = source
        self.users = Column("user", Role.USER)
        self.values = tuple(values)
        self.where = "the mapping" if isinstance(source, Mapping) else "the pairs"
        self.size = 1

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        """Nothing is known before the pairs are read."""

    def batches(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[tuple[Any, ...]]:
        """Yield users and values, or the parts of keys, as text arrays: utf8[rows] each, null for None."""
        del wanted, on_fraction
        pairs = spread_mapping(self.source) if isinstance(self.source, Mapping) else iter(self.source)
        first = 0
        while batch := list(itertools.islice(pairs, PAIRS_PER_BATCH)):
            check_pairs(batch, first)
            users, values = zip(*batch, strict=True)
            parts = [values] if len(self.values) == 1 else split_keys(values, len(self.values), first)
            first += len(batch)
            texts = [self._texts(part, column) for part, column in zip(parts, self.values, strict=True)]
            if isinstance(self.values[0], MomentColumn) and all(column.kind is not None for column in self.values):
                refuse_without_moments(self.values)
            yield self._texts(users, self.users), *texts

    def _texts(self, values: tuple[Any, ...], column: Column) -> Any:
        moments = isinstance(column, MomentColumn)
        classes = {type(value) for value in values if not (moments and isinstance(value, dt.date))}
        kinds = {kind_of_class(kind, column.role, self.where) for kind in classes}
        if isinstance(column, MomentColumn):
            kinds |= {object_kind(value) for value in values if isinstance(value, dt.date)}
            dated = column.object_text
            values = attempt(lambda: tuple(dated(v) if isinstance(v, dt.date) else v for v in values), self.where)
        for kind in sorted(kinds, key=str):
            column.see(kind, self.where)
        texts = [None if value is None else spelled(value) for value in values]
        return attempt(lambda: pa.array(texts, pa.string()), self.where)


def spread_mapping(mapping: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the pairs of a mapping; None stands for no values."""
    for user, values in mapping.items():
        if values is None:
            continue
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
            raise UnsupportedType(
                f"A user of the mapping has a {type(values).__name__} instead of an iterable of values.",
                "Map each user to a list or set of values, also when there is only one.",
            )
        # subtle: a user without values still is checked, so that a null key is refused in every case.
        yield from ((user, value) for value in itertools.chain(values, (None,)))


def check_pairs(batch: list[Any], first: int) -> None:
    """Refuse what is not a pair; strings of two letters are not."""
    if all(issubclass(kind, tuple | list) for kind in set(map(type, batch))) and set(map(len, batch)) == {2}:
        return
    for i, pair in enumerate(batch):
        if isinstance(pair, str | bytes | Mapping) or not hasattr(pair, "__len__") or len(pair) != 2:
            raise BadParameter(
                f"Element number {first + i} of the source (counted from 0) is not a pair but a {type(pair).__name__}.",
                PAIRS,
            )


def split_keys(keys: tuple[Any, ...], width: int, first: int) -> list[tuple[Any, ...]]:
    """Return the columns of keys that are tuples of `width` parts, or None; refuse all else."""
    for i, key in enumerate(keys):
        if key is not None and not (isinstance(key, tuple | list) and len(key) == width):
            raise BadParameter(
                f"The value number {first + i} of the source (counted from 0) is not a tuple of {width} parts.",
                f"Give each value as a tuple of the {width} parts that are named, or name no parts.",
            )
    none = (None,) * width
    return list(zip(*(none if key is None else key for key in keys), strict=True))


def kind_of_class(kind: type, role: Role, where: str) -> TextKind | None:
    """Return the kind of values of a Python class, or refuse it."""
    found: TextKind | None = None
    if kind is type(None):
        return None
    if issubclass(kind, str):
        found = TextKind.TEXT
    elif issubclass(kind, bool | np.bool_):
        found = TextKind.BOOLEAN
    elif issubclass(kind, int | np.integer):
        found = TextKind.INTEGER
    elif issubclass(kind, dt.date) and not issubclass(kind, dt.datetime):
        found = TextKind.DATE
    if found is None or found not in KINDS_FOR_ROLE[role]:
        choices = ", ".join(k.value for k in KINDS_FOR_ROLE[role])
        raise UnsupportedType(
            f"A value of {where} has type {kind.__name__}, which cannot be read as {role.value}.",
            f"Turn it into one of: {choices}.{NAME_PARTS if issubclass(kind, tuple) else ''}"
            f"{DATED if issubclass(kind, dt.datetime) else ''}",
        )
    return found


def spelled(value: Any) -> str:
    """Return the canonical text of a value whose class was checked."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, dt.date) else str(int(value))
