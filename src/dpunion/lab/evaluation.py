"""The papers' evaluation as settings, and what was measured as tables and figures beside the printed numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpunion.algorithms import (
    Algorithm,
    Calibration,
    CountGaussian,
    CountLaplace,
    DpSips,
    Funnel,
    PolicyGaussian,
    PolicyLaplace,
    WeightedGaussian,
    WeightedLaplace,
)
from dpunion.budget import Budget
from dpunion.calibration.optimal import ceiling, release_odds, released_with
from dpunion.lab.data import COVERAGE, LabData
from dpunion.lab.figures import Figure, Line, deviation, share
from dpunion.lab.published import PublishedTable, published_tables
from dpunion.lab.study import Greedy, L1DescentL2Budget, ResearchPolicy
from dpunion.lab.trials import Setting, Trial
from dpunion.report.tables import Cell, Table

EPSILON, DELTA = 3.0, math.exp(-10.0)
ITEMS = 100
PASSES_MARGIN = 2.0
EPSILONS_MARGIN = 5.0
PUBLISHED = Calibration.PUBLISHED
LARGE_DEVIATION = 0.06
UNKNOWN = "A dash for a published number means: not available to us."

Make = Callable[[int, float], Algorithm | ResearchPolicy]
"""From items per user and cutoff margin to an algorithm; one without a cutoff ignores the margin."""


@dataclass(frozen=True, slots=True)
class Row:
    """An algorithm of the evaluation. printed: what the papers' tables call it here, if they have it."""

    name: str
    make: Make
    printed: str = ""
    has_margin: bool = False

    def setting(self, items: int, margin: float = 3.0, epsilon: float = EPSILON) -> Setting:
        """Return the setting with these parameters."""
        return Setting(self.make(items, margin), Budget(epsilon, DELTA))


ROWS = (
    Row("count-laplace", lambda n, _: CountLaplace(max_items_per_user=n), "count-laplace"),
    Row("count-gaussian", lambda n, _: CountGaussian(max_items_per_user=n, calibration=PUBLISHED), "count-gaussian"),
    Row("weighted-laplace", lambda n, _: WeightedLaplace(max_items_per_user=n), "weighted-laplace"),
    Row(
        "weighted-gaussian",
        lambda n, _: WeightedGaussian(max_items_per_user=n, calibration=PUBLISHED),
        "weighted-gaussian",
    ),
    Row(
        "policy-laplace",
        lambda n, margin: PolicyLaplace(max_items_per_user=n, cutoff_margin=margin),
        "policy-laplace",
        has_margin=True,
    ),
    Row(
        "policy-gaussian",
        lambda n, margin: PolicyGaussian(max_items_per_user=n, cutoff_margin=margin, calibration=PUBLISHED),
        "policy-gaussian",
        has_margin=True,
    ),
    Row(
        "policy-gaussian, exact",
        lambda n, margin: PolicyGaussian(max_items_per_user=n, cutoff_margin=margin),
        has_margin=True,
    ),
    Row("dp-sips", lambda n, _: DpSips(max_items_per_user=n)),
    Row("funnel", lambda n, margin: Funnel(max_items_per_user=n, cutoff_margin=margin), has_margin=True),
    Row(
        "greedy (NOT PRIVATE)",
        lambda n, margin: Greedy(max_items_per_user=n, cutoff_margin=margin),
        has_margin=True,
    ),
    Row(
        "l1-descent-l2-budget (NOT PRIVATE)",
        lambda n, margin: L1DescentL2Budget(max_items_per_user=n, cutoff_margin=margin),
        has_margin=True,
    ),
)
BY_NAME = {row.name: row for row in ROWS}
FUNNEL = BY_NAME["funnel"]
FUNNEL_ITEMS = Funnel().max_items_per_user
PASSES = {
    f"{kind.name}, {passes} pass{'es' if passes > 1 else ''}": (kind, passes)
    for kind in (PolicyLaplace, PolicyGaussian)
    for passes in (1, 2)
}


@dataclass(frozen=True, slots=True)
class Measured:
    """Means over trials, by setting. comparable: whether the data is of the papers' size."""

    data: LabData
    trials: Mapping[Setting, Sequence[Trial]]
    comparable: bool

    def size(self, setting: Setting) -> float:
        """Return the mean number of items released."""
        return statistics.fmean(trial.size for trial in self.trials[setting])

    def coverage(self, setting: Setting) -> list[float]:
        """Return the mean part of the items with at least k holders that is released, for each k."""
        there = [max(1, int(np.count_nonzero(self.data.holders >= k))) for k in COVERAGE]
        counts = zip(*(trial.covered for trial in self.trials[setting]), strict=True)
        return [statistics.fmean(found) / total for found, total in zip(counts, there, strict=True)]

    def ceiling(self, epsilon: float) -> float:
        """Return what no private algorithm exceeds in expectation."""
        return ceiling(epsilon, DELTA, self.data.holders.astype(np.float64))

    def deviation(self, here: float | None, printed: float | None) -> str | None:
        """Write the deviation, where the two are about data of one size."""
        return deviation(here, printed) if self.comparable else None


def passes_setting(name: str, items: int) -> Setting:
    """Return a setting of the table of one and two passes."""
    kind, passes = PASSES[name]
    algorithm = kind(max_items_per_user=items, cutoff_margin=PASSES_MARGIN, passes=passes, calibration=PUBLISHED)
    return Setting(algorithm, Budget(EPSILON, DELTA))


def all_settings(limits: Sequence[int], epsilons: Sequence[float], margins: Sequence[float]) -> list[Setting]:
    """Return every setting of the evaluation, each once."""
    found = [row.setting(limit) for limit in limits for row in ROWS]
    found += [passes_setting(name, limit) for limit in limits for name in PASSES]
    found += [row.setting(ITEMS) for row in ROWS]
    found.append(FUNNEL.setting(FUNNEL_ITEMS))
    found += [by_epsilon(row, epsilon) for epsilon in epsilons for row in ROWS]
    found += [by_margin(row, margin) for margin in margins for row in ROWS if row.has_margin]
    return list(dict.fromkeys(found))


def by_epsilon(row: Row, epsilon: float) -> Setting:
    """Return a setting of the figure over epsilon (ICML supplement, Fig. 6); Funnel keeps its own defaults."""
    if row is FUNNEL:
        return row.setting(FUNNEL_ITEMS, 3.0, epsilon)
    return row.setting(ITEMS, EPSILONS_MARGIN, epsilon)


def by_margin(row: Row, margin: float) -> Setting:
    """Return a setting of the figure over the cutoff margin alpha (ICML supplement, Fig. 5)."""
    return row.setting(FUNNEL_ITEMS if row is FUNNEL else ITEMS, margin)


# --- tables -------------------------------------------------------------------------------------------------


Fact = tuple[str, str, float | None, float, Callable[[float], Cell]]
"""What it is, where it is printed, the printed number, the one here, and how to write both."""


def _facts(data: LabData) -> Iterator[Fact]:
    """Yield the numbers of the data set beside the papers'."""
    sizes = np.diff(data.everything.offsets)
    tables = published_tables()
    users = tables["jpc-users"]
    yield "users", users.citation, users.value("data", "users"), len(sizes), int
    yield "distinct items", "", None, len(data.holders), int
    yield "pairs of user and item", "", None, len(data.everything.items), int
    table = tables["icml-1"]
    for most in table.rows["share"]:
        here = float(np.mean(sizes <= int(most)))
        yield f"users with at most {most} items", table.citation, table.value("share", most), here, share
    table = tables["icml-largest"]
    largest = np.sort(sizes)[::-1][:10].tolist()
    for what, here in (("most items of a user", largest[0]), ("items of the tenth user by items", largest[-1])):
        yield what, table.citation, table.value("data", what), here, int
    table = tables["jpc-holders"]
    for k in COVERAGE:
        here = int(np.count_nonzero(data.holders >= k))
        yield f"items held by at least {k} users", table.citation, table.value("held", k), here, int
    table = tables["icml-f4"]
    slope = zipf_exponent(data)
    yield "Zipf exponent, ranks 10 to 1,000", table.citation, table.value("data", "exponent"), slope, "{:.2f}".format


def statistics_table(measured: Measured) -> Table:
    """Return the data set beside the papers' (JPC Table 1 and ICML supplement, Table 1)."""
    rows = tuple(
        (
            what,
            None if printed is None else write(printed),
            write(here),
            measured.deviation(here, printed),
            citation,
        )
        for what, citation, printed, here, write in _facts(measured.data)
    )
    columns = ("", "published", "here", "deviation", "source")
    return Table("Data [JPC Table 1; ICML supplement, Table 1]", columns, rows, UNKNOWN)


def deviations_table(measured: Measured, limits: Sequence[int]) -> Table:
    """Return every compared number that lies more than LARGE_DEVIATION from the printed one."""
    compared: list[Fact] = [fact for fact in _facts(measured.data) if fact[2] is not None]
    table = published_tables()["jpc-2"]
    for row in ROWS:
        for limit in limits:
            here = measured.size(row.setting(limit))
            compared.append((f"{row.name}, Δ0={limit}", table.citation, table.value(row.printed, limit), here, round))
    table = published_tables()["icml-2"]
    for name in PASSES:
        for limit in limits:
            here = measured.size(passes_setting(name, limit))
            compared.append((f"{name}, Δ0={limit}, α=2", table.citation, table.value(name, limit), here, round))
    known = [(what, where, printed, here, write) for what, where, printed, here, write in compared if printed]
    rows = tuple(
        (what, write(printed), write(here), deviation(here, printed), where)
        for what, where, printed, here, write in known
        if abs(here / printed - 1.0) > LARGE_DEVIATION
    )
    columns = ("number", "published", "here", "deviation", "source")
    title = f"Deviations above {LARGE_DEVIATION:.0%}".replace("%", " %")
    return Table(title, columns, rows, f"{len(known) - len(rows)} of {len(known)} compared numbers lie within it.")


def zipf_exponent(data: LabData) -> float:
    """Return minus the slope of log holders over log rank, by least squares over ranks 10 to 1,000."""
    holders = np.sort(data.holders)[::-1][9:1000]
    ranks = np.arange(10, 10 + len(holders))
    return -float(np.polyfit(np.log(ranks), np.log(holders), 1)[0])


def sizes_table(measured: Measured, limits: Sequence[int]) -> Table:
    """Return what each algorithm releases by the number of items per user (JPC Table 2)."""
    found = [(row.name, row.printed, [measured.size(row.setting(limit)) for limit in limits]) for row in ROWS]
    note = (
        f'ε = 3, δ = e⁻¹⁰, cutoff margin α = 3. {UNKNOWN} Rows with "exact", dp-sips and funnel are not in the papers.'
    )
    title = "Items released by items per user Δ0 [JPC Table 2]"
    return _matrix(measured, title, limits, found, published_tables()["jpc-2"], note)


def passes_table(measured: Measured, limits: Sequence[int]) -> Table:
    """Return one and two passes (ICML supplement, Table 2; JPC Table 4), and the several rounds of others."""
    found = [(name, name, [measured.size(passes_setting(name, limit)) for limit in limits]) for name in PASSES]
    for name, label in (("dp-sips", "dp-sips, 3 rounds"), ("funnel", "funnel, 4 rounds")):
        found.append((label, "", [measured.size(BY_NAME[name].setting(limit)) for limit in limits]))
    table = published_tables()["icml-2"]
    note = f"ε = 3, δ = e⁻¹⁰; policies with α = 2. {UNKNOWN} {table.note}"
    title = "One and two passes [ICML supplement, Table 2; JPC Table 4]"
    return _matrix(measured, title, limits, found, table, note)


def _matrix(
    measured: Measured,
    title: str,
    limits: Sequence[int],
    found: Iterable[tuple[str, str, list[float]]],
    table: PublishedTable,
    note: str,
) -> Table:
    """Return a table with the printed numbers and the deviations under the measured ones, the ceiling last."""
    rows: list[tuple[Cell, ...]] = []
    for name, printed_name, sizes in found:
        rows.append((name, "here", *sizes))
        printed = [table.value(printed_name, limit) for limit in limits]
        if printed_name and any(value is not None for value in printed):
            rows.append(("", "published", *[None if value is None else int(value) for value in printed]))
            pairs = zip(sizes, printed, strict=True)
            rows.append(("", "deviation", *[measured.deviation(here, value) for here, value in pairs]))
        elif printed_name:
            rows.append(("", "published", *[None] * len(limits)))
    rows.append(("ceiling", "here", *[measured.ceiling(EPSILON)] * len(limits)))
    return Table(title, ("algorithm", "", *[f"Δ0={limit}" for limit in limits]), tuple(rows), note)


def coverage_table(measured: Measured) -> Table:
    """Return which part of the items with at least k holders comes out (JPC Table 3)."""
    rows: list[tuple[Cell, ...]] = [
        (row.name, str(ITEMS), *map(share, measured.coverage(row.setting(ITEMS)))) for row in ROWS
    ]
    best = measured.coverage(FUNNEL.setting(FUNNEL_ITEMS))
    rows.append((FUNNEL.name, str(FUNNEL_ITEMS), *[share(part) for part in best]))
    chances = released_with(release_odds(EPSILON, DELTA))
    holders = measured.data.holders
    most = [chances[np.minimum(holders[holders >= k], len(chances) - 1)] for k in COVERAGE]
    rows.append(("ceiling", None, *[share(float(part.mean())) if len(part) else None for part in most]))
    return Table(
        "Part of the items with at least k holders that is released [JPC Table 3]",
        ("algorithm", "Δ0", *[f"k={k}" for k in COVERAGE]),
        tuple(rows),
        "ε = 3, δ = e⁻¹⁰. The published coverage is not available to us; the numbers of items behind it are, see Data.",
    )


# --- figures ------------------------------------------------------------------------------------------------


def limits_figure(measured: Measured, limits: Sequence[int]) -> Figure:
    """Return the sizes by the number of items per user."""
    places = tuple(map(float, limits))
    lines = [Line(row.name, places, tuple(measured.size(row.setting(limit)) for limit in limits)) for row in ROWS]
    lines.append(Line("ceiling", places, (measured.ceiling(EPSILON),) * len(limits)))
    note = "ε = 3, δ = e⁻¹⁰, α = 3."
    return Figure(
        "Items released by Δ0", "items per user Δ0", "items released", tuple(lines), note, log_x=True, repeats=True
    )


def epsilons_figure(measured: Measured, epsilons: Sequence[float]) -> Figure:
    """Return the sizes by epsilon (ICML supplement, Fig. 6)."""
    lines = [
        Line(row.name, tuple(epsilons), tuple(measured.size(by_epsilon(row, epsilon)) for epsilon in epsilons))
        for row in ROWS
    ]
    lines.append(Line("ceiling", tuple(epsilons), tuple(map(measured.ceiling, epsilons))))
    note = (
        "δ = e⁻¹⁰, Δ0 = 100, α = 5 as in the figure; funnel with its defaults. The papers' points are not available to "
        "us; they say that from ε = 1 on the policies are always ahead."
    )
    return Figure("Items released by ε [ICML supplement, Figure 6]", "ε", "items released", tuple(lines), note)


def margins_figure(measured: Measured, margins: Sequence[float]) -> Figure:
    """Return the sizes by the cutoff margin alpha (ICML supplement, Fig. 5)."""
    places = tuple(margins)
    lines = [
        Line(row.name, places, tuple(measured.size(by_margin(row, margin)) for margin in margins))
        for row in ROWS
        if row.has_margin
    ]
    lines.append(Line("dp-sips", places, (measured.size(BY_NAME["dp-sips"].setting(ITEMS)),) * len(margins)))
    lines.append(Line("ceiling", places, (measured.ceiling(EPSILON),) * len(margins)))
    note = (
        "ε = 3, δ = e⁻¹⁰, Δ0 = 100 (funnel 300). The papers' points are not available to us; they say: a sharp rise "
        "until about α = 2, then nearly constant, then a decrease. dp-sips has no cutoff."
    )
    return Figure(
        "Items released by α [ICML supplement, Figure 5]", "cutoff margin α", "items released", tuple(lines), note
    )


def zipf_figure(data: LabData) -> Figure:
    """Return the holders of an item by its rank (ICML supplement, Fig. 4)."""
    holders = np.sort(data.holders)[::-1]
    ranks = np.unique(np.rint(np.geomspace(1, len(holders), 25)).astype(np.int64))
    line = Line("generated", tuple(map(float, ranks)), tuple(float(holders[rank - 1]) for rank in ranks))
    note = "The papers find a straight line with an exponent of about 1."
    title = "Holders of an item by its rank [ICML supplement, Figure 4]"
    return Figure(title, "rank", "users who hold the item", (line,), note, log_x=True, log_y=True)


def set_sizes_figure(data: LabData) -> Figure:
    """Return the distribution of the numbers of items that users hold (ICML supplement, Table 1)."""
    sizes = np.diff(data.everything.offsets)
    places = (1, 2, 5, 10, 20, 50, 100, 200, 300, 500, 1000, 2000)
    here = Line("generated", tuple(map(float, places)), tuple(float(np.mean(sizes <= most)) for most in places))
    printed = published_tables()["icml-1"].rows["share"]
    there = Line("published", tuple(map(float, printed)), tuple(printed.values()))
    note = "The papers' line joins the five points of the table."
    title = "Users with at most T items [ICML supplement, Table 1]"
    return Figure(title, "T", "users", (here, there), note, log_x=True, percent=True)
