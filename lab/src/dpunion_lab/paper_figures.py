"""The papers' figures over words, as lines: the papers' own points are not in their texts, so the lines are ours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpunion_lab.data import LabData
from dpunion_lab.figures import Figure, Line
from dpunion_lab.measuring import Measured
from dpunion_lab.published import published_tables
from dpunion_lab.rows import BY_NAME, EPSILON, ITEMS, READINGS, ROWS
from dpunion_lab.trials import Setting

NO_POINTS = "The papers print no points of this figure."


def zipf_figure(data: LabData) -> Figure:
    """Return the holders of an item by its rank (ICML supplement, Figure 4; JPC Figure 4)."""
    holders = np.sort(data.holders)[::-1]
    ranks = np.unique(np.rint(np.geomspace(1, len(holders), 25)).astype(np.int64))
    line = Line("generated", tuple(map(float, ranks)), tuple(float(holders[rank - 1]) for rank in ranks))
    note = f"The papers find a straight line with an exponent of about 1. {NO_POINTS}"
    title = "Holders of an item by its rank [ICML supplement, Figure 4; JPC Figure 4]"
    return Figure(title, "rank", "users who hold the item", (line,), note, log_x=True, log_y=True)


def set_sizes_figure(data: LabData) -> Figure:
    """Return the distribution of the numbers of items that users hold (ICML supplement, Table 1; JPC Table 1)."""
    sizes = np.diff(data.everything.offsets)
    places = (1, 2, 5, 10, 20, 50, 100, 200, 300, 500, 1000, 2000)
    here = Line("generated", tuple(map(float, places)), tuple(float(np.mean(sizes <= most)) for most in places))
    printed = published_tables()["icml-supplement-1"].rows["share"].values
    there = Line("published", tuple(map(float, printed)), tuple(value / 100.0 for value in printed.values()))
    note = "The papers' line joins the five points of the table, to which the data was fitted."
    title = "Users with at most T items [ICML supplement, Table 1; JPC Table 1]"
    return Figure(title, "T", "users", (here, there), note, log_x=True, percent=True)


def limits_figure(measured: Measured, limits: Sequence[int]) -> Figure:
    """Return the sizes by the number of items per user (ICML Figure 3)."""
    lines = _sized(measured, limits, {row.name: [row.setting(limit) for limit in limits] for row in ROWS})
    lines.append(Line("ceiling", tuple(map(float, limits)), (measured.ceiling(EPSILON),) * len(limits)))
    note = "ε = 3, δ = e⁻¹⁰, α = 5 (funnel 2.2). The papers' points are those of ICML Table 1, by the captions."
    return _over_limits("Items released by Δ0 [ICML Figure 3]", lines, note)


def printed_limits_figure(limits: Sequence[int]) -> Figure:
    """Return the printed sizes by the number of items per user, to lay beside ours."""
    table = published_tables()["icml-main-1"]
    lines = []
    for name, row in table.rows.items():
        known = [(float(limit), row.value(limit)) for limit in limits]
        points = [(x, y) for x, y in known if y is not None]
        lines.append(Line(name, tuple(x for x, _ in points), tuple(y for _, y in points)))
    note = "The numbers of ICML Table 1 as printed: ε = 3, δ = e⁻¹⁰, α = 5."
    return _over_limits("Items released by Δ0, as printed [ICML Table 1, Figure 3]", lines, note)


def journal_figure(measured: Measured, limits: Sequence[int]) -> Figure:
    """Return the sizes of the journal version by the number of items per user (JPC Figure 5)."""
    settings = {row.name: [row.setting(limit) for limit in limits] for row in ROWS[:4]}
    for reading in READINGS:
        settings[f"policy {reading.name}"] = [reading.setting(limit) for limit in limits]
    note = (
        "ε = 3, δ = e⁻¹⁰. Both Gaussian policies with α = 3 and 5, as captions contradict each other on which has "
        "which. The papers' points are those of JPC Table 2, by the text."
    )
    return _over_limits(
        "Items released by Δ0, journal version [JPC Figure 5]", _sized(measured, limits, settings), note
    )


def _over_limits(title: str, lines: Sequence[Line], note: str) -> Figure:
    return Figure(
        title,
        "items per user Δ0",
        "items released",
        tuple(lines),
        note,
        log_x=True,
        log_y=_positive(lines),
        repeats=True,
    )


def epsilons_figure(measured: Measured, epsilons: Sequence[float]) -> Figure:
    """Return the sizes by epsilon (ICML Figure 1 and supplement Figure 6; JPC Figure 1)."""
    lines = _sized(measured, epsilons, {row.name: [row.with_epsilon(one) for one in epsilons] for row in ROWS})
    lines.append(Line("ceiling", tuple(epsilons), tuple(map(measured.ceiling, epsilons))))
    note = (
        f"δ = e⁻¹⁰, Δ0 = 100, α = 5; funnel with its defaults. {NO_POINTS} They say that from ε = 1 on the policies "
        "are always ahead."
    )
    title = "Items released by ε [ICML Figure 1; ICML supplement, Figure 6; JPC Figure 1]"
    return Figure(title, "ε", "items released", tuple(lines), note)


def margins_figure(measured: Measured, margins: Sequence[float]) -> Figure:
    """Return the sizes by the cutoff margin alpha (ICML supplement, Figure 5; JPC Figure 12)."""
    rows = [row for row in ROWS if row.has_margin]
    lines = _sized(measured, margins, {row.name: [row.with_margin(one) for one in margins] for row in rows})
    level = measured.size(BY_NAME["dp-sips"].setting(ITEMS))
    lines.append(Line("dp-sips", tuple(margins), (level,) * len(margins)))
    note = (
        f"ε = 3, δ = e⁻¹⁰, Δ0 = 100 (funnel 300). {NO_POINTS} They say: a sharp rise until α = 2, 3 or 4, then nearly "
        "constant, then a decrease. dp-sips has no cutoff."
    )
    title = "Items released by α [ICML supplement, Figure 5; JPC Figure 12]"
    return Figure(title, "cutoff margin α", "items released", tuple(lines), note)


def _sized(measured: Measured, places: Sequence[float], settings: dict[str, list[Setting]]) -> list[Line]:
    xs = tuple(map(float, places))
    return [Line(name, xs, tuple(measured.size(one) for one in chosen)) for name, chosen in settings.items()]


def _positive(lines: Sequence[Line]) -> bool:
    return all(y > 0.0 for line in lines for y in line.ys)
