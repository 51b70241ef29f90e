"""What trials add up to: means, spreads, coverage, distances between means, and figures as plain values."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpunion.calibration.bounds import release_odds, released_with
from dpunion.contributions import Float64s
from dpunion.report.tables import Cell, Table
from dpunion_lab.data import COVERAGE, LabData
from dpunion_lab.rows import DELTA
from dpunion_lab.trials import Setting, Trial

FEW_LINES = 3


def ceiling(epsilon: float, delta: float, holders: Float64s) -> float:
    """Return Pi(D): no (epsilon, delta)-private algorithm releases more items in expectation.

    holders: the number of users of each item, any shape. For study only: the result is not private.
    """
    odds = released_with(release_odds(epsilon, delta))
    return float(odds[np.minimum(holders, len(odds) - 1).astype(np.int64)].sum())


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a figure: ys[i] at xs[i]."""

    name: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """Lines over a common axis. log_x, log_y: whether an axis is logarithmic. percent: whether the values are shares.

    repeats: whether a table has the same numbers, so that a terminal need not show the figure.
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
    """Write a share in per cent."""
    return None if value is None else f"{100.0 * value:.1f} %"


def deviation(measured: float | None, published: float | None) -> str | None:
    """Write the relative difference of a measured number from a published one, in per cent."""
    return None if measured is None or not published else f"{100.0 * (measured / published - 1.0):+.1f} %"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10_000.0 or float(value).is_integer() else f"{value:g}"


@dataclass(frozen=True, slots=True)
class Measured:
    """Trials by setting, on one set of data. comparable: whether the data has as many users as the papers'."""

    data: LabData
    trials: Mapping[Setting, Sequence[Trial]]
    comparable: bool

    def size(self, setting: Setting) -> float:
        """Return the mean number of items released."""
        return statistics.fmean(trial.size for trial in self.trials[setting])

    def spread(self, setting: Setting) -> float:
        """Return the standard deviation over the trials, with divisor n as in the papers."""
        return statistics.pstdev(trial.size for trial in self.trials[setting])

    def coverage(self, setting: Setting) -> list[float]:
        """Return, for each k, the mean share of the items with at least k holders that is released."""
        counts = zip(*(trial.covered for trial in self.trials[setting]), strict=True)
        return [statistics.fmean(found) / total for found, total in zip(counts, self._held(), strict=True)]

    def quotients(self, setting: Setting) -> list[float]:
        """Return, for each k, the size of the release over the number of items with at least k holders."""
        return [self.size(setting) / total for total in self._held()]

    def ceiling(self, epsilon: float) -> float:
        """Return the most items that a private algorithm can release in expectation."""
        return ceiling(epsilon, DELTA, self.data.holders.astype(np.float64))

    def deviation(self, here: float | None, printed: float | None) -> str | None:
        """Write the relative difference if the data is comparable with the papers'."""
        return deviation(here, printed) if self.comparable else None

    def p_value(self, first: Setting, second: Setting) -> float | None:
        """Return how likely two means differ this much by chance, or None for a single trial."""
        count = len(self.trials[first])
        if count < 2:
            return None
        return student_test(
            (self.size(first), self.spread(first)), (self.size(second), self.spread(second)), trials=count
        )

    def _held(self) -> list[int]:
        return [max(1, int(np.count_nonzero(self.data.holders >= k))) for k in COVERAGE]


def sort_by_setting(trials: Sequence[Trial]) -> dict[Setting, list[Trial]]:
    """Group trials by setting."""
    found: dict[Setting, list[Trial]] = {}
    for trial in trials:
        found.setdefault(trial.setting, []).append(trial)
    return found


def student_test(first: tuple[float, float], second: tuple[float, float], *, trials: int) -> float:
    """Return the two-sided p-value of Student's t-test for two means, each of `trials` trials.

    first, second: a mean and its standard deviation in the population form.
    """
    from scipy.special import stdtr

    difference = abs(first[0] - second[0])
    error = math.sqrt((first[1] ** 2 + second[1] ** 2) / (trials - 1))
    if error == 0.0:
        return 1.0 if difference == 0.0 else 0.0
    return float(2.0 * stdtr(2 * trials - 2, -difference / error))
