"""What pages are made of besides charts: tables, sections, and numbers as people write them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpunion.report.charts import Chart

Cell = str | int | float | None
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns; the first column names the row. Numbers are written by `number`, None as a dash."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page: a heading, paragraphs of plain text, and charts and tables.

    choice: what tells the charts apart, when there are several of which one is shown at a time; first: the one that
    is shown at first.
    """

    title: str
    text: tuple[str, ...] = ()
    parts: tuple[Chart | Table, ...] = ()
    choice: str = ""
    first: int = 0


def number(value: Cell) -> str:
    """Write a value for people: thousands apart, four digits of fractions, powers of ten as such."""
    if value is None:
        return "–"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return str(value)
    if value != 0.0 and not 1e-3 <= abs(value) < 1e6:
        digits, _, power = f"{value:.3e}".partition("e")
        digits = digits.rstrip("0").rstrip(".")
        tens = "10" + str(int(power)).translate(SUPERSCRIPTS)
        return tens if digits == "1" else f"{digits} × {tens}"
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def percent(value: float) -> str:
    """Write a probability in per cent, with as many digits as tell it from 0 and from 100 %."""
    if 0.0 < value < 0.0005:
        return "< 0.1 %"
    if 0.9995 < value < 1.0:
        return "> 99.9 %"
    return f"{100.0 * value:.1f}".removesuffix(".0") + " %"
