"""Python objects: an iterable of (user, value) pairs, or a mapping from users to their values.

A value may be a tuple, if the parts of such keys have names.
"""

from __future__ import annotations

import datetime as dt
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from dpunion.errors import BadParameter, UnsupportedType, attempt
from dpunion.reading import spelling
from dpunion.reading.frames import family_of
from dpunion.reading.parts import OnFraction, SourcePart, SourceRequest, Wanted
from dpunion.reading.spelling import KINDS_FOR_ROLE, Column, Role, TextKind

PAIRS_PER_BATCH = 1 << 17
NAME_PARTS = ' A tuple can be a key whose parts have names: item=["country", "device"].'
DATED = ' Or set the precision of datetimes, with names for the parts: Dated(["country", "at"], "day").'
PAIRS = "Give (user, value) pairs, a mapping from users to lists of values, or files or frames with columns."


def parts_of(request: SourceRequest) -> list[SourcePart] | None:
    """Return the part for a mapping or another iterable."""
    if isinstance(request.source, bytes) or not isinstance(request.source, Iterable):
        return None
    if request.user is not None or (request.values[0] is not None and len(request.values) == 1):
        raise BadParameter(
            f"A {type(request.source).__name__} has no columns to name.", f"Leave out the names. {PAIRS}"
        )
    return [PairsPart(request)]


class PairsPart(SourcePart):
    """Pairs or a mapping, converted to text a batch at a time.

    Guarantees:
    - only str, int, date and bool have a text, as in `spelling`; they do not mix, not even bool and int;
    - a string is never read as an iterable of items, nor as a pair;
    - errors name types and positions, never values.
    """

    knows_types = False
    has_columns = False

    def __init__(self, request: SourceRequest) -> None:
        super().__init__("the mapping" if isinstance(request.source, Mapping) else "the pairs")
        self.source = request.source
        self.users = Column("user", Role.USER)
        self.values = spelling.value_column(request.labels, request.kind.role, request.granularity).parts

    def batches(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[tuple[Any, ...]]:
        """Yield users and values, or the parts of keys, as text arrays: utf8[rows] each, null for None."""
        del wanted, on_fraction
        pairs = flatten_mapping(self.source) if isinstance(self.source, Mapping) else iter(self.source)
        first = 0
        while batch := list(itertools.islice(pairs, PAIRS_PER_BATCH)):
            check_pairs(batch, first)
            users, values = zip(*batch, strict=True)
            parts = [values] if len(self.values) == 1 else split_keys(values, len(self.values), first)
            first += len(batch)
            texts = [self._texts(part, column) for part, column in zip(parts, self.values, strict=True)]
            if self.values[0].granularity is not None and all(column.kind is not None for column in self.values):
                spelling.refuse_without_moments(self.values)
            yield self._texts(users, self.users), *texts

    def _texts(self, values: tuple[Any, ...], column: Column) -> Any:
        granularity = column.granularity
        classes = {type(value) for value in values if granularity is None or not isinstance(value, dt.date)}
        kinds = {kind_of_class(one, column.role, self.where) for one in classes}
        if granularity is not None:
            kinds |= {spelling.kind_of_date(value) for value in values if isinstance(value, dt.date)}
            spell = functools.partial(spelling.spell_date, granularity=granularity)
            values = attempt(lambda: tuple(spell(v) if isinstance(v, dt.date) else v for v in values), self.where)
        for kind in sorted(kinds, key=str):
            column.see(kind, self.where)
        texts = [None if value is None else spell_object(value) for value in values]
        return attempt(lambda: pa.array(texts, pa.string()), self.where)


def flatten_mapping(mapping: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the pairs of a mapping; None means no values."""
    for user, values in mapping.items():
        if values is None:
            continue
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
            raise UnsupportedType(
                f"A user of the mapping has a {type(values).__name__} instead of an iterable of values.",
                "Map each user to a list or set of values, even if there is only one.",
            )
        # subtle: a user without values is checked too, so that a null user is refused in every case.
        yield from ((user, value) for value in itertools.chain(values, (None,)))


def check_pairs(batch: list[Any], first: int) -> None:
    """Refuse elements that are not pairs; strings of two letters are not."""
    if all(issubclass(kind, tuple | list) for kind in set(map(type, batch))) and set(map(len, batch)) == {2}:
        return
    for i, pair in enumerate(batch):
        if isinstance(pair, str | bytes | Mapping) or not hasattr(pair, "__len__") or len(pair) != 2:
            raise BadParameter(
                f"Element number {first + i} of the source (counted from 0) is not a pair but a {type(pair).__name__}.",
                PAIRS,
            )


def split_keys(keys: tuple[Any, ...], width: int, first: int) -> list[tuple[Any, ...]]:
    """Return the columns of keys, each a tuple of `width` parts or None; refuse everything else."""
    for i, key in enumerate(keys):
        if key is not None and not (isinstance(key, tuple | list) and len(key) == width):
            raise BadParameter(
                f"The value number {first + i} of the source (counted from 0) is not a tuple of {width} parts.",
                f"Give each value as a tuple of the {width} parts that are named, or name no parts.",
            )
    none = (None,) * width
    return list(zip(*(none if key is None else key for key in keys), strict=True))


def kind_of_class(kind: type, role: Role, where: str) -> TextKind | None:
    """Return the kind of a Python class, None for NoneType; refuse other classes."""
    if kind is type(None):
        return None
    name = family_of(kind)
    found = next((one for one in KINDS_FOR_ROLE[role] if one.value == name), None)
    if found is None:
        choices = ", ".join(k.value for k in KINDS_FOR_ROLE[role])
        raise UnsupportedType(
            f"A value of {where} has type {kind.__name__}, which cannot be read as {role.value}.",
            f"Turn it into one of: {choices}.{NAME_PARTS if issubclass(kind, tuple) else ''}"
            f"{DATED if issubclass(kind, dt.datetime) else ''}",
        )
    return found


def spell_object(value: Any) -> str:
    """Return the canonical text of a value whose class was checked."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, dt.date) else str(int(value))
