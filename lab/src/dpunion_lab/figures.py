"""What a study shows besides tables: figures as plain values, and the warning on all of it."""

from __future__ import annotations

from dataclasses import dataclass

from dpunion.report.tables import Cell, Table

NOT_PRIVATE = (
    "NOT PRIVATE: a study, not a release. How much an algorithm releases from data says something about the people in "
    "it. Study public or generated data only."
)

FEW_LINES = 3


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a figure: ys[i] at xs[i]."""

    name: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """Lines over a common axis. log_x, log_y: whether an axis is logarithmic; percent: the values are shares.

    repeats: the numbers stand in a table already, so that a terminal need not show them again.
    """

    title: str
    x: str
    y: str
    lines: tuple[Line, ...]
    note: str = ""
    log_x: bool = False
    log_y: bool = False
    percent: bool = False
    repeats: bool = False

    def table(self) -> Table:
        """Return the numbers behind the figure."""
        places = sorted({x for line in self.lines for x in line.xs})
        known = [dict(zip(line.xs, line.ys, strict=True)) for line in self.lines]
        if len(self.lines) <= FEW_LINES:
            rows = tuple((_short(x), *[self._cell(one.get(x)) for one in known]) for x in places)
            return Table(self.title, (self.x, *[line.name for line in self.lines]), rows, self.note)
        named = zip(self.lines, known, strict=True)
        rows = tuple((line.name, *[self._cell(one.get(x)) for x in places]) for line, one in named)
        return Table(self.title, (self.x, *map(_short, places)), rows, self.note)

    def _cell(self, value: float | None) -> Cell:
        return share(value) if self.percent else value


def share(value: float | None) -> str | None:
    """Write a part of a whole in per cent."""
    return None if value is None else f"{100.0 * value:.1f} %"


def deviation(measured: float | None, published: float | None) -> str | None:
    """Write how far a measured number lies from a published one."""
    return None if measured is None or not published else f"{100.0 * (measured / published - 1.0):+.1f} %"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10_000.0 or float(value).is_integer() else f"{value:g}"
