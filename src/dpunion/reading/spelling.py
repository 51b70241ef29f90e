"""The one canonical text of every value, whatever column type it came from.

    column type                     as item         as user id        as text
    text, categories of text        as it is        byte for byte     as it is
    integers of any width           decimal: -7     decimal: 42       refused
    dates                           2024-02-29      refused           refused
    timestamps, dates coarser       see `moments`   refused           refused
    booleans                        true, false     refused           refused
    floats, times, decimals,        refused         refused           refused
      binary, structs
    lists of the above              each element    refused           each element (text)

A part of a key of several columns is spelled as an item, but lists are refused.
Refused types have several spellings for one value (1, 1.0, 1e0; time zones; trailing zeros), or none: whoever
makes the file chooses one by casting to text there. A column of nulls only has any type.
"""

from __future__ import annotations

import copy
import datetime as dt
import enum
from typing import Any, Self, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from dpunion.buffers import INT32_MAX, as_int32, has_ascii_only, pc, string_buffers
from dpunion.errors import InternalError, UnsupportedType, attempt
from dpunion.sets.strings import DictionaryCache

FIRST_DAY, LAST_DAY = ((day - dt.date(1970, 1, 1)).days for day in (dt.date.min, dt.date.max))


class Role(enum.Enum):
    """What a column is read for."""

    USER = "user"
    ITEM = "item"
    TEXT = "text"
    KEY = "part of a key"


class TextKind(enum.Enum):
    """The families of types that have a canonical text; a column stays in one family."""

    TEXT = "text"
    INTEGER = "integer"
    DATE = "date"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    ZONED = "timestamp with time zone"


KINDS_FOR_ROLE = {
    Role.USER: (TextKind.TEXT, TextKind.INTEGER),
    Role.ITEM: (TextKind.TEXT, TextKind.INTEGER, TextKind.DATE, TextKind.BOOLEAN),
    Role.TEXT: (TextKind.TEXT,),
    Role.KEY: (TextKind.TEXT, TextKind.INTEGER, TextKind.DATE, TextKind.BOOLEAN),
}


class Column:
    """One column of a source over all its batches: validates, keeps its kind, and writes canonical text.

    Guarantees:
    - texts pass byte for byte; different values of one kind get different texts;
    - what is not valid UTF-8, or an index outside its dictionary, is refused as damage;
    - a column whose kind changes between batches or files is refused.
    """

    def __init__(self, name: str, role: Role) -> None:
        self.name = name
        self.role = role
        self.kind: TextKind | None = None
        self.columns: tuple[Column, ...] = ()
        self._spelled: DictionaryCache[Any] = DictionaryCache()

    @property
    def parts(self) -> tuple[Column, ...]:
        """The columns that it is read from: itself."""
        return (self,)

    def apart(self) -> Self:
        """Return the column for another thread: it knows the kind that is known here, and learns on its own."""
        other = copy.copy(self)
        other.columns = tuple(part.apart() for part in self.columns)
        return other

    def join(self, other: Column, where: str) -> None:
        """Note the kinds that were seen apart."""
        self.see(other.kind, where)
        for mine, theirs in zip(self.columns, other.columns, strict=True):
            mine.join(theirs, where)

    def expect(self, type_: Any, where: str) -> None:
        """Check that a column type known ahead has a canonical text and the kind of the other files."""
        if is_list(type_) and self.role in (Role.ITEM, Role.TEXT):
            type_ = type_.value_type
        self.see(kind_of(type_, self.role, self.name, where), where)

    def see(self, kind: TextKind | None, where: str) -> None:
        """Note the kind of some values; None stands for nulls only, which fit every kind."""
        if kind is None:
            return
        if self.kind is not None and kind is not self.kind:
            raise UnsupportedType(
                f"Mixed types: column {self.name!r} has values of kind {kind.value!r} in {where}, but of kind "
                f"{self.kind.value!r} before.",
                "Cast the column to one type (text is always possible) in everything that is read together.",
            )
        self.kind = kind

    def lists(self, array: Any, where: str) -> Any:
        """Return a batch of lists that was validated and can be flattened."""
        self.expect(array.type, where)
        attempt(lambda: array.validate(full=True), where)
        if not pt.is_string_view(array.type.value_type):
            return array
        # subtle: Arrow has no filter for lists of string views.
        wide = pt.is_large_list(array.type)
        return attempt(lambda: array.cast(pa.large_list(pa.large_string()) if wide else pa.list_(pa.string())), where)

    def text(self, array: Any, where: str) -> Any:
        """Return the canonical text of one batch of this column."""
        array = plain_layout(array, where)
        kind = kind_of(array.type, self.role, self.name, where)
        self.see(kind, where)
        if kind is None:
            return pa.nulls(len(array), pa.string())
        if not pt.is_dictionary(array.type):
            attempt(lambda: validate_all(array), where)
            return attempt(lambda: spell(array, kind), where)
        return self._dictionary_array(array, kind, where)

    def _dictionary_array(self, array: Any, kind: TextKind, where: str) -> Any:
        """Keep a dictionary; its entries are validated and spelled once while batches share it."""

        def spell_all(dictionary: Any) -> Any:
            attempt(lambda: validate_all(dictionary), where)
            return attempt(lambda: spell(dictionary, kind), where)

        texts = self._spelled.get(array.dictionary, spell_all)
        indices = array.indices
        attempt(lambda: indices.validate(full=True), where)
        if texts.null_count or len(texts) > INT32_MAX:
            return attempt(lambda: texts.take(indices), where)
        # subtle: from_arrays, like take, refuses indices outside of the dictionary.
        return attempt(lambda: pa.DictionaryArray.from_arrays(as_int32(indices), texts), where)


def validate_all(array: Any) -> None:
    """Look at all of an array as Arrow's full validation does, but several times as fast at texts of ASCII alone.

    Guarantees: places are in order and within the array's memory; texts are valid UTF-8.
    """
    wide = pt.is_large_string(array.type)
    if wide or pt.is_string(array.type):
        array.view(pa.large_binary() if wide else pa.binary()).validate(full=True)
        offsets, data = string_buffers(array)
        if has_ascii_only(data[offsets[0] : offsets[-1]]):
            return
    array.validate(full=True)


def kind_of(type_: Any, role: Role, column: str, where: str) -> TextKind | None:
    """Return the kind of a column type (None: nulls only), or refuse it with a remedy."""
    if pt.is_dictionary(type_) or pt.is_run_end_encoded(type_):
        type_ = type_.value_type
    kind: TextKind | None
    if pt.is_null(type_):
        return None
    if is_text(type_):
        kind = TextKind.TEXT
    elif pt.is_integer(type_):
        kind = TextKind.INTEGER
    elif pt.is_date(type_):
        kind = TextKind.DATE
    elif pt.is_boolean(type_):
        kind = TextKind.BOOLEAN
    else:
        kind = None
    if kind is None or kind not in KINDS_FOR_ROLE[role]:
        raise UnsupportedType(
            f"Column {column!r} of {where} has type {name_type(type_)}, which cannot be read as {role.value}.",
            remedy_for(type_, role),
        )
    return kind


def is_text(type_: Any) -> bool:
    """Say whether a column type is one of Arrow's texts, dictionaries of text included."""
    plain = type_.value_type if pt.is_dictionary(type_) else type_
    return bool(pt.is_string(plain) or pt.is_large_string(plain) or pt.is_string_view(plain))


def name_type(type_: Any) -> str:
    """Name a type without the names or values nested in it (an Arrow type may carry both)."""
    return str(type_).split("<", maxsplit=1)[0].split("(", maxsplit=1)[0].split("[", maxsplit=1)[0]


def remedy_for(type_: Any, role: Role) -> str:
    """Say how to bring a refused column into a type with one spelling per value."""
    if role is Role.USER and pt.is_floating(type_):
        return (
            "Cast it to integer or text in the source: as floats, ids like 1 and 1.0 would merge, and long ids "
            "would be rounded (a float column often is an integer column with nulls)."
        )
    if role is Role.USER and is_list(type_):
        return "Name a column with one user per row; only the value column may contain lists."
    match role:
        case Role.USER:
            return "Cast it to text or integer in the query that makes the data."
        case Role.KEY if is_list(type_):
            return "Unnest the list in the source: in a key of several columns, each column has one value per row."
        case Role.ITEM | Role.KEY if pt.is_timestamp(type_):
            return "Set its precision: Dated(column, 'day') (--granularity day), or hour, week, month, year."
        case Role.ITEM | Role.KEY:
            return "Cast it to text, integer, date or boolean in the query that makes the data."
        case Role.TEXT:
            return "Name a column of text, or cast it to text in the query that makes the data."
        case _:
            assert_never(role)


def is_list(type_: Any) -> bool:
    """Say whether a column type is one of Arrow's lists."""
    return bool(
        pt.is_list(type_)
        or pt.is_large_list(type_)
        or pt.is_fixed_size_list(type_)
        or pt.is_list_view(type_)
        or pt.is_large_list_view(type_)
    )


def plain_layout(array: Any, where: str) -> Any:
    """Undo run-end encoding, the one layout that the functions used here do not all accept."""
    if pt.is_run_end_encoded(array.type):
        return attempt(lambda: pc.run_end_decode(array), where)
    return array


def spell(array: Any, kind: TextKind) -> Any:
    """Return utf8 or large_utf8 of a validated array without dictionary."""
    match kind:
        case TextKind.TEXT if pt.is_string_view(array.type):
            return array.cast(pa.string() if array.nbytes <= INT32_MAX else pa.large_string())
        case TextKind.TEXT:
            return array
        case TextKind.DATE:
            return spell_dates(array.cast(pa.date32()))
        case TextKind.INTEGER | TextKind.BOOLEAN:
            return array.cast(pa.string())
        case TextKind.TIMESTAMP | TextKind.ZONED:
            raise InternalError("a timestamp without a granularity")
        case _:
            assert_never(kind)


def spell_dates(array: Any) -> Any:
    """Return ISO 8601 of date32s, which it has for four-digit years only (databases know 'infinity' and 4713 BC)."""
    bounds = pc.min_max(array.cast(pa.int32()))
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is not None and (low < FIRST_DAY or high > LAST_DAY):
        raise UnsupportedType(
            "A date is outside of the years 1 to 9999.", "Leave such dates out, or cast the column to text."
        )
    return array.cast(pa.string())


def lengths(texts: Any) -> Any:
    """Return the byte length of every row, null where the row is null: integer array of the same length."""
    if pt.is_dictionary(texts.type):
        return pc.binary_length(texts.dictionary).take(texts.indices)
    return pc.binary_length(texts)


def is_missing_possible(texts: Any, limit: int | None) -> bool:
    """Say whether a row may be null, empty or longer than `limit`; cheap, and never wrongly False."""
    plain = texts.dictionary if pt.is_dictionary(texts.type) else texts
    if texts.null_count or plain.null_count:
        return True
    if len(plain) == 0:
        return False
    offsets, _ = string_buffers(plain)
    sizes = np.diff(offsets)
    return bool(sizes.min() == 0 or (limit is not None and sizes.max() > limit))
