"""Dates and timestamps as items and parts of keys, at a stated granularity, each with one text.

    year   2024         month  2024-02       week  2024-W09 (ISO 8601, Monday first)
    day    2024-02-29   hour   2024-02-29T13, of timestamps with a time zone 2024-02-29T13Z

A timestamp with a time zone is taken in UTC, whatever zone it is shown in; one without as it stands. The text of a
value depends on that value and the granularity alone.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from dpunion.errors import BadParameter, UnsupportedType, attempt
from dpunion.reading.spelling import FIRST_DAY, LAST_DAY, Column, Role, TextKind, is_list, plain_layout

MOMENTS = (TextKind.DATE, TextKind.TIMESTAMP, TextKind.ZONED)
HOURS_PER_DAY = 24
PER_HOUR = {"s": 3_600, "ms": 3_600_000, "us": 3_600_000_000, "ns": 3_600_000_000_000}
EPOCH = dt.date(1970, 1, 1).toordinal()


class Granularity(enum.Enum):
    """How finely dates and timestamps are told apart."""

    YEAR = "year"
    MONTH = "month"
    WEEK = "week"
    DAY = "day"
    HOUR = "hour"


class MomentColumn(Column):
    """A column whose dates and timestamps are read at a granularity; other columns of a key are read as ever.

    Guarantees:
    - a column stays in one family: dates, timestamps with and timestamps without a time zone do not mix;
    - an item that is neither date nor timestamp is refused, as the granularity would not hold for it.
    """

    def __init__(self, name: str, role: Role, granularity: Granularity) -> None:
        super().__init__(name, role)
        self.granularity = granularity

    def expect(self, type_: Any, where: str) -> None:
        """Check a column type that is known ahead."""
        kind = moment_kind(type_.value_type if is_list(type_) and self.role is Role.ITEM else type_)
        if kind is None:
            super().expect(type_, where)
        else:
            self.see(kind, where)

    def see(self, kind: TextKind | None, where: str) -> None:
        """Note the kind of some values; refuse dates where hours are asked for."""
        super().see(kind, where)
        if kind is TextKind.DATE and self.granularity is Granularity.HOUR:
            raise UnsupportedType(
                f"Column {self.name!r} of {where} contains dates, which have no hours.", "Choose day or coarser."
            )
        if self.role is Role.ITEM and kind is not None:
            refuse_without_moments([self])

    def text(self, array: Any, where: str) -> Any:
        """Return the texts of one batch."""
        array = plain_layout(array, where)
        if moment_kind(array.type) is not None and pt.is_dictionary(array.type):
            attempt(lambda: array.validate(full=True), where)
            array = attempt(array.dictionary_decode, where)
        kind = moment_kind(array.type)
        if kind is None:
            return super().text(array, where)
        self.see(kind, where)
        attempt(lambda: array.validate(full=True), where)
        return attempt(lambda: spell_moments(array, kind, self.granularity), where)

    def object_text(self, value: dt.date) -> str:
        """Return the text of a date or datetime of Python."""
        kind = object_kind(value)
        if isinstance(value, dt.datetime):
            value = value if value.tzinfo is None else value.astimezone(dt.UTC)
            return moment_text(value.date(), value.hour, kind, self.granularity)
        return moment_text(value, 0, kind, self.granularity)


def moment_kind(type_: Any) -> TextKind | None:
    """Return the kind of a date or timestamp type, None for all others."""
    if pt.is_dictionary(type_) or pt.is_run_end_encoded(type_):
        type_ = type_.value_type
    if pt.is_date(type_):
        return TextKind.DATE
    if pt.is_timestamp(type_):
        return TextKind.TIMESTAMP if type_.tz is None else TextKind.ZONED
    return None


def object_kind(value: dt.date) -> TextKind:
    """Return the kind of a date or datetime of Python."""
    if not isinstance(value, dt.datetime):
        return TextKind.DATE
    return TextKind.TIMESTAMP if value.tzinfo is None else TextKind.ZONED


def refuse_without_moments(columns: Iterable[Column]) -> None:
    """Refuse a granularity where no column of the items holds dates or timestamps."""
    if not any(column.kind in MOMENTS for column in columns):
        raise BadParameter(
            "A granularity was given, but no item column has a date or timestamp type: text, as in CSV and JSON "
            "Lines, is released unchanged.",
            "Leave 'granularity' (--granularity) out, or store the column as a date or timestamp, as in Parquet.",
        )


def spell_moments(array: Any, kind: TextKind, granularity: Granularity) -> Any:
    """Return the texts of dates or timestamps, null where these are null; each hour is spelled once."""
    if kind is TextKind.DATE:
        hours = np.asarray(array.cast(pa.date32()).cast(pa.int32()).fill_null(0)).astype(np.int64) * HOURS_PER_DAY
    else:
        hours = (
            np.asarray(array.cast(pa.int64()).fill_null(0)) // PER_HOUR[array.type.unit]
        )  # the floor, before 1970 too
    days = hours // HOURS_PER_DAY
    if len(days) and (days.min() < FIRST_DAY or days.max() > LAST_DAY):
        raise UnsupportedType(
            "A date is outside of the years 1 to 9999.", "Leave such rows out, or cast the column to text."
        )
    unique, places = np.unique(hours, return_inverse=True)
    texts = [
        moment_text(dt.date.fromordinal(EPOCH + hour // HOURS_PER_DAY), hour % HOURS_PER_DAY, kind, granularity)
        for hour in unique.tolist()
    ]
    missing = np.asarray(array.is_null())
    return pa.array(texts, pa.string()).take(pa.array(places, pa.int64(), mask=missing))


def moment_text(day: dt.date, hour: int, kind: TextKind, granularity: Granularity) -> str:
    """Return the text of one moment."""
    match granularity:
        case Granularity.YEAR:
            return f"{day.year:04}"
        case Granularity.MONTH:
            return f"{day.year:04}-{day.month:02}"
        case Granularity.WEEK:
            year, week, _ = day.isocalendar()
            return f"{year:04}-W{week:02}"
        case Granularity.DAY:
            return day.isoformat()
        case Granularity.HOUR:
            return f"{day.isoformat()}T{hour:02}" + ("Z" if kind is TextKind.ZONED else "")
