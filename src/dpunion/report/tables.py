"""Tables as values and as text, sections of pages, and numbers written for people."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dpunion.errors import BadParameter
from dpunion.report.charts import Chart

Cell = str | int | float | None
SHORTEST_LINE = 80
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns; the first column names the row. None is written as a dash.

    Pages write numbers with `number`, terminals with `write_cell`. stacked: on a phone, each row is a card.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    stacked: bool = False

    def text(self) -> str:
        """Return the table for a terminal: words to the left, numbers to the right."""
        left = [any(_is_word(row[at]) for row in self.rows) for at in range(len(self.columns))]
        head, *rest = lay_out([self.columns, *[tuple(map(write_cell, row)) for row in self.rows]], left)
        rule = "-" * len(head)
        note = textwrap.fill(self.note, max(len(rule), SHORTEST_LINE))
        return "\n".join(part for part in (self.title, rule, head, rule, *rest, rule, note) if part)


class Fact(NamedTuple):
    """One of the numbers that a page shows first; note: a line in small letters below it."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Gauge:
    """A bar that stands for the whole, filled from the left by named parts; rest: the name of the remainder."""

    title: str
    parts: tuple[tuple[str, float], ...]
    rest: str

    def __post_init__(self) -> None:
        shares = [share for _, share in self.parts]
        if not all(0.0 <= share <= 1.0 for share in shares) or sum(shares) > 1.0 + 1e-9:
            raise BadParameter("The parts of a bar are more than the whole.", "Give parts of 1.")

    def filled(self) -> list[tuple[str, str, float, float]]:
        """Return each part's name, its share in per cent, and its start and length in thousandths."""
        rows, place = [], 0.0
        for name, share in (*self.parts, (self.rest, max(0.0, 1.0 - sum(share for _, share in self.parts)))):
            rows.append((name, percent(share), round(1000.0 * place, 1), round(1000.0 * share, 1)))
            place += share
        return rows


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page: a heading, paragraphs and points of plain text, and charts, tables and gauges.

    choice: the label of the choice between charts, if the page shows one at a time; first: the chart that it shows
    first. folded: the reader has to open it.
    """

    title: str
    text: tuple[str, ...] = ()
    parts: tuple[Chart | Table | Gauge, ...] = ()
    choice: str = ""
    first: int = 0
    points: tuple[str, ...] = ()
    folded: bool = False


def number(value: Cell) -> str:
    """Write a value for people: with commas, four significant digits, and powers of ten."""
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
    """Write a probability in per cent; a value near 0 or 100 % is never written as 0 or 100 %."""
    if 0.0 < value < 0.0005:
        return "< 0.1 %"
    if 0.9995 < value < 1.0:
        return "> 99.9 %"
    return f"{100.0 * value:.1f}".removesuffix(".0") + " %"


def write_cell(cell: Cell) -> str:
    """Write a cell for a terminal: with commas, and without powers of ten."""
    if cell is None:
        return "–"
    if isinstance(cell, str):
        return cell
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:,.0f}" if abs(cell) >= 100.0 else f"{cell:,.4g}"


def lay_out(rows: Sequence[Sequence[str]], left: Sequence[bool]) -> list[str]:
    """Return the rows as lines with aligned cells; left: which columns are aligned to the left."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if words else cell.rjust(width)
            for cell, width, words in zip(row, widths, left, strict=True)
        )
        for row in rows
    ]


def _is_word(cell: Cell) -> bool:
    """Say whether a cell is text other than a number."""
    if not isinstance(cell, str):
        return False
    try:
        return not math.isfinite(float(cell.removesuffix(" %").replace(",", "")))
    except ValueError:
        return True
