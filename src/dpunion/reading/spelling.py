"""The one canonical text of every value, whatever column type it came from.

    column type                     as item         as user id        as text
    text, categories of text        as it is        byte for byte     as it is
    integers of any width           decimal: -7     decimal: 42       refused
    dates                           2024-02-29      refused           refused
    timestamps, coarser dates       see below       refused           refused
    booleans                        true, false     refused           refused
    floats, times, decimals,        refused         refused           refused
      binary, structs
    lists of the above              each element    refused           each element (text)

A part of a key of several columns is spelled like an item, but lists are refused.
Refused types have several spellings for one value (1, 1.0, 1e0; time zones; trailing zeros), or none: the owner of the
data chooses one by casting to text. A column that contains only nulls fits every type.

With a granularity, dates and timestamps are rounded down:

    year   2024         month  2024-02       week  2024-W09 (ISO 8601, Monday first)
    day    2024-02-29   hour   2024-02-29T13, or 2024-02-29T13Z for timestamps with a time zone

Timestamps with a time zone become UTC, others stay. A value's text depends on that value and the granularity alone.
"""

from __future__ import annotations

import copy
import datetime as dt
import enum
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from dpunion.buffers import INT32_MAX, as_int32, has_ascii_only, pc, string_buffers
from dpunion.errors import BadParameter, InternalError, UnsupportedType, attempt
from dpunion.releases.formats import KEY_ESCAPES, SEPARATOR
from dpunion.sets.strings import DictionaryCache

LONGEST_PART = 4096
"""A part of a key with more UTF-8 bytes counts as missing: no item is that long."""

EPOCH = dt.date(1970, 1, 1).toordinal()
FIRST_DAY, LAST_DAY = dt.date.min.toordinal() - EPOCH, dt.date.max.toordinal() - EPOCH
HOURS_PER_DAY = 24
PER_HOUR = {"s": 3_600, "ms": 3_600_000, "us": 3_600_000_000, "ns": 3_600_000_000_000}


class Role(enum.Enum):
    """What a column is read as."""

    USER = "user"
    ITEM = "item"
    TEXT = "text"
    KEY = "part of a key"


class Granularity(enum.Enum):
    """The precision to which dates and timestamps are rounded down."""

    YEAR = "year"
    MONTH = "month"
    WEEK = "week"
    DAY = "day"
    HOUR = "hour"


class TextKind(enum.Enum):
    """The families of types that have a canonical text. All values of a column belong to one family."""

    TEXT = "text"
    INTEGER = "integer"
    DATE = "date"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    ZONED = "timestamp with time zone"


MOMENTS = (TextKind.DATE, TextKind.TIMESTAMP, TextKind.ZONED)
KINDS_FOR_ROLE = {
    Role.USER: (TextKind.TEXT, TextKind.INTEGER),
    Role.ITEM: (TextKind.TEXT, TextKind.INTEGER, TextKind.DATE, TextKind.BOOLEAN),
    Role.TEXT: (TextKind.TEXT,),
    Role.KEY: (TextKind.TEXT, TextKind.INTEGER, TextKind.DATE, TextKind.BOOLEAN),
}


class Column:
    """One column of a source over all its batches: it validates values and turns them into canonical text.

    granularity: how to round dates and timestamps; None to read dates as they are and refuse timestamps.

    Guarantees:
    - texts pass byte for byte; different values of one kind get different texts;
    - invalid UTF-8, or an index outside its dictionary, is refused as damage;
    - a column whose kind changes between batches or files is refused;
    - with a granularity, an item that is neither a date nor a timestamp is refused.
    """

    def __init__(self, name: str, role: Role, granularity: Granularity | None = None) -> None:
        self.name = name
        self.role = role
        self.granularity = granularity
        self.kind: TextKind | None = None
        self.columns: tuple[Column, ...] = ()
        self._spelled: DictionaryCache[Any] = DictionaryCache()

    @property
    def parts(self) -> tuple[Column, ...]:
        """The columns of the source that this one is read from: itself."""
        return (self,)

    def fork(self) -> Self:
        """Return a copy for another thread. It starts with the kind known so far."""
        other = copy.copy(self)
        other.columns = tuple(part.fork() for part in self.columns)
        return other

    def merge(self, other: Column, where: str) -> None:
        self.see(other.kind, where)
        for mine, theirs in zip(self.columns, other.columns, strict=True):
            mine.merge(theirs, where)

    def expect(self, type_: Any, where: str) -> None:
        """Check a column type before rows are read: it must have a canonical text, and the kind of the other files."""
        if is_list(type_) and self.role in (Role.ITEM, Role.TEXT):
            type_ = type_.value_type
        self.see(self._kind_of(type_, where), where)

    def see(self, kind: TextKind | None, where: str) -> None:
        """Note the kind of some values; None means only nulls, which fit every kind."""
        if kind is None:
            return
        if self.kind is not None and kind is not self.kind:
            raise UnsupportedType(
                f"Mixed types: column {self.name!r} has values of kind {kind.value!r} in {where}, but of kind "
                f"{self.kind.value!r} before.",
                "Cast the column to one type (text is always possible) in everything that is read together.",
            )
        self.kind = kind
        if kind is TextKind.DATE and self.granularity is Granularity.HOUR:
            raise UnsupportedType(
                f"Column {self.name!r} of {where} contains dates, which have no hours.", "Choose day or coarser."
            )
        if self.granularity is not None and self.role is Role.ITEM:
            refuse_without_moments([self])

    def lists(self, array: Any, where: str) -> Any:
        """Validate a batch of lists, and return it in a layout that can be flattened."""
        self.expect(array.type, where)
        attempt(lambda: array.validate(full=True), where)
        if not pt.is_string_view(array.type.value_type):
            return array
        # subtle: Arrow has no filter for lists of string views.
        wide = pt.is_large_list(array.type)
        return attempt(lambda: array.cast(pa.large_list(pa.large_string()) if wide else pa.list_(pa.string())), where)

    def text(self, array: Any, where: str) -> Any:
        """Return the canonical text of one batch of this column."""
        if pt.is_run_end_encoded(array.type):
            # The functions below do not all accept this layout.
            array = attempt(functools.partial(pc.run_end_decode, array), where)
        kind = self._kind_of(array.type, where)
        self.see(kind, where)
        if kind is None:
            return pa.nulls(len(array), pa.string())
        granularity = self.granularity
        if granularity is not None and kind in MOMENTS:
            return attempt(lambda: spell_moments(array, kind, granularity), where)

        def spell_all(values: Any) -> Any:
            attempt(lambda: validate_all(values), where)
            return attempt(lambda: spell(values, kind), where)

        if not pt.is_dictionary(array.type):
            return spell_all(array)
        # Keep the dictionary; validate and spell its entries once for all batches that share it.
        texts = self._spelled.get(array.dictionary, spell_all)
        indices = array.indices
        attempt(lambda: indices.validate(full=True), where)
        if texts.null_count or len(texts) > INT32_MAX:
            return attempt(lambda: texts.take(indices), where)
        # subtle: from_arrays, like take, refuses indices outside of the dictionary.
        return attempt(lambda: pa.DictionaryArray.from_arrays(as_int32(indices), texts), where)

    def _kind_of(self, type_: Any, where: str) -> TextKind | None:
        """Return the kind of a column type (None: only nulls), or refuse the type with a remedy."""
        plain = type_.value_type if pt.is_dictionary(type_) or pt.is_run_end_encoded(type_) else type_
        kind = next((kind for is_kind, kind in KINDS if is_kind(plain)), None)
        allowed = KINDS_FOR_ROLE[self.role] + (() if self.granularity is None else MOMENTS)
        if kind not in allowed and not pt.is_null(plain):
            # The name of a type may also contain nested names or values.
            name = re.split(r"[<(\[]", str(plain), maxsplit=1)[0]
            raise UnsupportedType(
                f"Column {self.name!r} of {where} has type {name}, which cannot be read as {self.role.value}.",
                remedy_for(plain, self.role),
            )
        return kind


class KeyColumn(Column):
    """Several columns that form one key, read as one column of structs.

    Guarantees:
    - each part is spelled by the rules for its own column, and keeps its kind;
    - a row with a null or empty part has no key: null;
    - different keys get different texts.
    """

    def __init__(self, names: Sequence[str], granularity: Granularity | None = None) -> None:
        super().__init__(", ".join(names), Role.KEY, granularity)
        self.columns = tuple(Column(name, Role.KEY, granularity) for name in names)

    @property
    def parts(self) -> tuple[Column, ...]:
        """The columns of the key, in order."""
        return self.columns

    def text(self, array: Any, where: str) -> Any:
        """Return the keys of one batch of structs: large_utf8[rows], null where a part is missing."""
        parts = [column.text(array.field(i), where) for i, column in enumerate(self.columns)]
        if self.granularity is not None and all(column.kind is not None for column in self.columns):
            refuse_without_moments(self.columns)
        return attempt(lambda: join_columns(parts), where)


def value_column(names: Sequence[str], role: Role, granularity: Granularity | None) -> Column:
    """Return the column of the values, or of the keys when there are several names."""
    return Column(names[0], role, granularity) if len(names) == 1 else KeyColumn(names, granularity)


def refuse_without_moments(columns: Iterable[Column]) -> None:
    """Refuse a granularity when no item column contains dates or timestamps."""
    if not any(column.kind in MOMENTS for column in columns):
        raise BadParameter(
            "A granularity was given, but no item column has a date or timestamp type: text, as in CSV and JSON "
            "Lines, is released unchanged.",
            "Leave 'granularity' (--granularity) out, or store the column as a date or timestamp, as in Parquet.",
        )


def is_text(type_: Any) -> bool:
    """Return whether a column type is one of Arrow's text types, or a dictionary of texts."""
    plain = type_.value_type if pt.is_dictionary(type_) else type_
    return bool(pt.is_string(plain) or pt.is_large_string(plain) or pt.is_string_view(plain))


KINDS: tuple[tuple[Callable[[Any], bool], TextKind], ...] = (
    (is_text, TextKind.TEXT),
    (pt.is_integer, TextKind.INTEGER),
    (pt.is_date, TextKind.DATE),
    (pt.is_boolean, TextKind.BOOLEAN),
    (lambda type_: pt.is_timestamp(type_) and type_.tz is None, TextKind.TIMESTAMP),
    (pt.is_timestamp, TextKind.ZONED),
)


def is_list(type_: Any) -> bool:
    """Return whether a column type is one of Arrow's list types."""
    tests = (pt.is_list, pt.is_large_list, pt.is_fixed_size_list, pt.is_list_view, pt.is_large_list_view)
    return any(is_kind(type_) for is_kind in tests)


def remedy_for(type_: Any, role: Role) -> str:
    """Return how to convert a refused column to a type with one spelling per value."""
    if role is Role.USER and pt.is_floating(type_):
        return (
            "Cast it to integer or text in the source: as floats, ids like 1 and 1.0 would merge, and long ids "
            "would be rounded (a float column often is an integer column with nulls)."
        )
    if role is Role.USER and is_list(type_):
        return "Name a column with one user per row; only the value column may contain lists."
    if role is Role.USER:
        return "Cast it to text or integer in the query that makes the data."
    if role is Role.TEXT:
        return "Name a column of text, or cast it to text in the query that makes the data."
    if role is Role.KEY and is_list(type_):
        return "Unnest the list in the source: in a key of several columns, each column has one value per row."
    if pt.is_timestamp(type_):
        return "Set its precision: Dated(column, 'day') (--granularity day), or hour, week, month, year."
    return "Cast it to text, integer, date or boolean in the query that makes the data."


def validate_all(array: Any) -> None:
    """Validate an array as Arrow's full validation does, but several times faster when all texts are ASCII.

    Guarantees: offsets are in order and within the array's memory; texts are valid UTF-8.
    """
    wide = pt.is_large_string(array.type)
    if wide or pt.is_string(array.type):
        array.view(pa.large_binary() if wide else pa.binary()).validate(full=True)
        offsets, data = string_buffers(array)
        if has_ascii_only(data[offsets[0] : offsets[-1]]):
            return
    array.validate(full=True)


def spell(array: Any, kind: TextKind) -> Any:
    """Return utf8 or large_utf8 of a validated array without dictionary."""
    if kind is TextKind.TEXT and not pt.is_string_view(array.type):
        return array
    if kind in (TextKind.TIMESTAMP, TextKind.ZONED):
        raise InternalError("a timestamp without a granularity")
    if kind is TextKind.DATE:
        array = array.cast(pa.date32())
        check_days(np.asarray(array.cast(pa.int32()).drop_null()))
    return array.cast(pa.string() if array.nbytes <= INT32_MAX else pa.large_string())


def check_days(days: Any) -> None:
    """Refuse days since 1970 outside of the years 1 to 9999: databases have 'infinity' and 4713 BC."""
    if len(days) and (days.min() < FIRST_DAY or days.max() > LAST_DAY):
        raise UnsupportedType(
            "A date is outside of the years 1 to 9999.", "Leave such dates out, or cast the column to text."
        )


def spell_moments(array: Any, kind: TextKind, granularity: Granularity) -> Any:
    """Return the texts of dates or timestamps, and nulls for nulls. Each hour is spelled once."""
    array.validate(full=True)
    if pt.is_dictionary(array.type):
        array = array.dictionary_decode()
    if kind is TextKind.DATE:
        hours = np.asarray(array.cast(pa.date32()).cast(pa.int32()).fill_null(0)).astype(np.int64) * HOURS_PER_DAY
    else:
        # The floor, also before 1970.
        hours = np.asarray(array.cast(pa.int64()).fill_null(0)) // PER_HOUR[array.type.unit]
    check_days(hours // HOURS_PER_DAY)
    unique, places = np.unique(hours, return_inverse=True)
    texts = [
        moment_text(dt.date.fromordinal(EPOCH + hour // HOURS_PER_DAY), hour % HOURS_PER_DAY, kind, granularity)
        for hour in unique.tolist()
    ]
    missing = np.asarray(array.is_null())
    return pa.array(texts, pa.string()).take(pa.array(places, pa.int64(), mask=missing))


def kind_of_date(value: dt.date) -> TextKind:
    """Return the kind of a Python date or datetime."""
    if not isinstance(value, dt.datetime):
        return TextKind.DATE
    return TextKind.TIMESTAMP if value.tzinfo is None else TextKind.ZONED


def spell_date(value: dt.date, granularity: Granularity) -> str:
    """Return the text of a Python date or datetime."""
    kind = kind_of_date(value)
    if isinstance(value, dt.datetime):
        value = value if value.tzinfo is None else value.astimezone(dt.UTC)
        return moment_text(value.date(), value.hour, kind, granularity)
    return moment_text(value, 0, kind, granularity)


def moment_text(day: dt.date, hour: int, kind: TextKind, granularity: Granularity) -> str:
    """Return the text of one date or timestamp."""
    if granularity is Granularity.WEEK:
        year, week, _ = day.isocalendar()
        return f"{year:04}-W{week:02}"
    if granularity is Granularity.HOUR:
        return f"{day.isoformat()}T{hour:02}" + ("Z" if kind is TextKind.ZONED else "")
    lengths = {Granularity.YEAR: 4, Granularity.MONTH: 7, Granularity.DAY: 10}
    return day.isoformat()[: lengths[granularity]]


def join_columns(parts: Sequence[Any]) -> Any:
    """Return the keys of columns of canonical text: large_utf8[rows], null where a part is null or empty."""
    # subtle: large, for a few short entries of dictionaries can be more than 2 GiB when each row has its own.
    between = pa.scalar(SEPARATOR, pa.large_string())
    return pc.binary_join_element_wise(*map(escape_texts, parts), between, null_handling="emit_null")


def escape_texts(texts: Any) -> Any:
    """Return the escaped texts of a column, large_utf8[rows]; the entries of a dictionary are escaped once."""
    if pt.is_dictionary(texts.type):
        return escape_texts(texts.dictionary).take(texts.indices)
    texts = texts.cast(pa.large_string())
    if is_missing_possible(texts, LONGEST_PART):
        sizes = pc.binary_length(texts)
        texts = pc.if_else(pc.and_(pc.greater(sizes, 0), pc.less_equal(sizes, LONGEST_PART)), texts, None)
    offsets, data = string_buffers(texts)
    used = data[int(offsets[0]) : int(offsets[-1])]
    if not any(bool(np.any(used == ord(special))) for special, _ in KEY_ESCAPES):
        return texts
    return functools.reduce(
        lambda some, pair: pc.replace_substring(some, pattern=pair[0], replacement=pair[1]), KEY_ESCAPES, texts
    )


def lengths(texts: Any) -> Any:
    """Return the byte length of each row: integer[rows], null where the row is null."""
    if pt.is_dictionary(texts.type):
        return pc.binary_length(texts.dictionary).take(texts.indices)
    return pc.binary_length(texts)


def is_missing_possible(texts: Any, limit: int | None) -> bool:
    """Return whether a row may be null, empty or longer than `limit`. This is cheap, and never False by mistake."""
    plain = texts.dictionary if pt.is_dictionary(texts.type) else texts
    if texts.null_count or plain.null_count:
        return True
    if len(plain) == 0:
        return False
    offsets, _ = string_buffers(plain)
    sizes = np.diff(offsets)
    return bool(sizes.min() == 0 or (limit is not None and sizes.max() > limit))
