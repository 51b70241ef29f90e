"""The papers' tables and figures, run again: printed numbers, measured ones and how far they differ.

The papers do not print the points of their figures, so the lines are ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpunion.calibration.bounds import release_odds, released_with
from dpunion.report.tables import Cell, Table
from dpunion_lab.agreement import describe_data
from dpunion_lab.data import COVERAGE, LabData
from dpunion_lab.fitting import FITTED_ROWS
from dpunion_lab.measuring import Figure, Line, Measured, share
from dpunion_lab.published import PublishedRow, contradictions, published_tables
from dpunion_lab.rows import (
    BY_NAME,
    DELTA,
    EPSILON,
    FUNNEL,
    FUNNEL_ITEMS,
    ITEMS,
    PASSES,
    READINGS,
    ROWS,
    passes_setting,
)
from dpunion_lab.trials import Setting

HERE, PRINTED, PRINTED_FITTED, OFF = "here", "published", "published, fitted", "deviation"
NOT_MEANT = "*"
MARKS = "± is the standard deviation over trials, with divisor n as in the papers. Fitted: the data was fitted to it."

Rows = list[tuple[Cell, ...]]


def statistics_table(measured: Measured) -> Table:
    """Compare the data with the papers' (ICML supplement Table 1 = JPC Table 1, ICML Table 2 = JPC Table 3)."""
    data = measured.data
    rows: Rows = [
        ("distinct items", None, len(data.holders), None, ""),
        ("pairs of user and item", None, len(data.everything.items), None, ""),
        ("items held by one user", None, int(np.count_nonzero(data.holders == 1)), None, ""),
    ]
    rows += [
        (one.what, one.write(one.printed), one.write(one.here), measured.deviation(one.here, one.printed), one.citation)
        for one in describe_data(data)
    ]
    note = (
        "A dash for a published number: the papers do not print it. The data was fitted to all numbers with a source: "
        "set sizes are the printed shares, and the ten largest users are read as 850 for the tenth and 2,000 for the "
        "first. How many items have fewer than five holders was taken over from a chat."
    )
    title = "Data [ICML supplement, Table 1; JPC Table 1; ICML Table 2; JPC Table 3]"
    return Table(title, ("", PRINTED, HERE, OFF, "source"), tuple(rows), note)


def sizes_table(measured: Measured, limits: Sequence[int]) -> Table:
    """Return how much each algorithm releases by the number of items per user, with alpha 5 (ICML Table 1)."""
    table = published_tables()["icml-main-1"]
    rows: Rows = []
    for row in ROWS:
        settings = [row.setting(limit) for limit in limits]
        rows += _compare_row(measured, row.name, settings, limits, table.rows.get(row.printed), row.printed)
    rows.append(("ceiling", HERE, *[_mean(measured.ceiling(EPSILON))] * len(limits)))
    note = (
        f"ε = 3, δ = e⁻¹⁰, α = 5 (funnel 2.2). {MARKS} "
        'Rows with "exact", dp-sips, funnel, greedy and the ceiling are not in this table of the papers.'
    )
    title = "Items released by items per user Δ0 [ICML Table 1]"
    return Table(title, ("algorithm", "", *[f"Δ0={limit}" for limit in limits]), tuple(rows), note)


def journal_table(measured: Measured, limits: Sequence[int]) -> Table:
    """Return the rows of JPC Table 2 that ICML Table 1 does not have, with every possible meaning of their labels."""
    table = published_tables()["jpc-2"]
    rows: Rows = []
    for reading in READINGS:
        printed = table.rows[reading.printed]
        settings = [reading.setting(limit) for limit in limits]
        name = f"{printed.label.removeprefix('Policy ')} as {reading.name}"
        rows += _compare_row(measured, name, settings, limits, printed, reading.printed)
    note = (
        f"ε = 3, δ = e⁻¹⁰. {MARKS} The Count and Weighted rows are those of ICML Table 1, digit for digit. "
        f"{contradictions()['labels']} We compare the second row as l2-descent with α = 5 (repeated, so counted under "
        "ICML Table 1) and the third as l1-descent with α = 3; the other readings are shown."
    )
    title = "Policies of the journal version by Δ0 [JPC Table 2]"
    return Table(title, ("row, and as what it is read", "", *[f"Δ0={limit}" for limit in limits]), tuple(rows), note)


def passes_table(measured: Measured, limits: Sequence[int]) -> Table:
    """Return one and two passes with the t-test between them (ICML supplement, Table 2; JPC Table 4)."""
    table = published_tables()["icml-supplement-2"]
    rows: Rows = []
    for policy in ("policy-laplace", "policy-gaussian"):
        names = [name for name in PASSES if name.startswith(policy)]
        for name in names:
            settings = [passes_setting(name, limit) for limit in limits]
            rows += _compare_row(measured, name, settings, limits, table.rows[name], name)
        values = [measured.p_value(*[passes_setting(name, limit) for name in names]) for limit in limits]
        rows.append((f"{policy}, p-value", HERE, *map(_chance, values)))
        printed = table.rows[f"{policy}, p-value"]
        rows.append(("", PRINTED, *[_mark(_chance(printed.value(limit)), printed, limit) for limit in limits]))
    for name, label in (("dp-sips", "dp-sips, 3 rounds"), ("funnel", "funnel, 8 rounds")):
        settings = [BY_NAME[name].setting(limit) for limit in limits]
        rows += _compare_row(measured, label, settings, limits, None, "")
    note = (
        f"ε = 3, δ = e⁻¹⁰; policies with α = 2. {MARKS} p-values: two-sided t-test between one and two passes. "
        f"{NOT_MEANT} Cannot be meant, and is not compared: {contradictions()['passes']}"
    )
    title = "One and two passes [ICML supplement, Table 2; JPC Table 4]"
    return Table(title, ("algorithm", "", *[f"Δ0={limit}" for limit in limits]), tuple(rows), note)


def coverage_table(measured: Measured) -> Table:
    """Return sizes over the numbers of items with at least k holders, and which share of these is released."""
    table = published_tables()["icml-main-2"]
    rows: Rows = []
    for row in ROWS:
        setting = row.setting(ITEMS)
        quotients = measured.quotients(setting)
        rows.append((row.name, "|S| / |S_k|", *map(share, quotients)))
        printed = table.rows.get(row.printed)
        if printed is not None:
            values = [printed.value(k) for k in COVERAGE]
            cells = [None if value is None else share(value / 100.0) for value in values]
            rows.append(("", PRINTED, *[_mark(cell, printed, k) for cell, k in zip(cells, COVERAGE, strict=True)]))
            usable = [printed.usable(k) for k in COVERAGE]
            pairs = zip(quotients, usable, strict=True)
            off = [None if value is None else measured.deviation(here, value / 100.0) for here, value in pairs]
            rows.append(("", OFF, *off))
        rows.append(("", "released of S_k", *map(share, measured.coverage(setting))))
    best = FUNNEL.setting(FUNNEL_ITEMS)
    rows.append((f"{FUNNEL.name}, Δ0={FUNNEL_ITEMS}", "|S| / |S_k|", *map(share, measured.quotients(best))))
    rows.append(("", "released of S_k", *map(share, measured.coverage(best))))
    chances = released_with(release_odds(EPSILON, DELTA))
    holders = measured.data.holders
    most = [chances[np.minimum(holders[holders >= k], len(chances) - 1)] for k in COVERAGE]
    ceilings = [share(float(part.mean())) if len(part) else None for part in most]
    rows.append(("ceiling", "released of S_k", *ceilings))
    note = (
        "ε = 3, δ = e⁻¹⁰, Δ0 = 100, α = 5 (funnel 2.2). The papers print |S| / |S_k|, which may exceed 100 %: the "
        f'released items need not be in S_k. "Released of S_k" counts those that are. {NOT_MEANT} '
        f"{contradictions()['coverage']} {contradictions()['table-3']}"
    )
    title = "Coverage of the items with at least k holders [ICML Table 2; JPC Table 3]"
    return Table(title, ("algorithm", "", *[f"k={k}" for k in COVERAGE]), tuple(rows), note)


def _compare_row(
    measured: Measured,
    name: str,
    settings: Sequence[Setting],
    limits: Sequence[int],
    printed: PublishedRow | None,
    printed_name: str,
) -> Rows:
    """Return a row of measured means, and below it the printed ones and the differences, if there are any."""
    sizes = [measured.size(setting) for setting in settings]
    rows: Rows = [(name, HERE, *[_mean(measured.size(one), measured.spread(one)) for one in settings])]
    if printed is None or not any(printed.value(limit) is not None for limit in limits):
        return rows
    means = [_mean(printed.value(limit), printed.sd.get(str(limit))) for limit in limits]
    cells = [_mark(mean, printed, limit) for mean, limit in zip(means, limits, strict=True)]
    rows.append(("", PRINTED_FITTED if printed_name in FITTED_ROWS else PRINTED, *cells))
    offs = [measured.deviation(here, printed.usable(limit)) for here, limit in zip(sizes, limits, strict=True)]
    rows.append(("", OFF, *[None if off is None else f"{off:>6}" for off in offs]))
    return rows


def _mean(value: float | None, spread: float | None = None) -> str | None:
    """Write a mean and its deviation with a fixed width."""
    if value is None:
        return None
    return f"{value:>6,.0f}" if spread is None else f"{value:>6,.0f} ±{spread:>3.0f}"


def _chance(value: float | None) -> str | None:
    return None if value is None else f"{value:>6.3f}"


def _mark(text: str | None, printed: PublishedRow, column: object) -> str | None:
    """Mark a printed number that is a misprint."""
    return None if text is None else text + NOT_MEANT * (str(column) in printed.unusable)


NO_POINTS = "The papers print no points of this figure."


def zipf_figure(data: LabData) -> Figure:
    """Return the holders of an item by its rank (ICML supplement, Figure 4; JPC Figure 4)."""
    holders = np.sort(data.holders)[::-1]
    ranks = np.unique(np.rint(np.geomspace(1, len(holders), 25)).astype(np.int64))
    line = Line("generated", tuple(map(float, ranks)), tuple(float(holders[rank - 1]) for rank in ranks))
    note = f"The papers find a straight line with an exponent of about 1. {NO_POINTS}"
    title = "Holders of an item by its rank [ICML supplement, Figure 4; JPC Figure 4]"
    return Figure(title, "rank", "users who have the item", (line,), note, log_x=True, log_y=True)


def set_sizes_figure(data: LabData) -> Figure:
    """Return the distribution of users' set sizes (ICML supplement, Table 1; JPC Table 1)."""
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
    lines = _lines_of(measured, limits, {row.name: [row.setting(limit) for limit in limits] for row in ROWS})
    lines.append(Line("ceiling", tuple(map(float, limits)), (measured.ceiling(EPSILON),) * len(limits)))
    note = "ε = 3, δ = e⁻¹⁰, α = 5 (funnel 2.2). The papers' points are those of ICML Table 1, by the captions."
    return _over_limits("Items released by Δ0 [ICML Figure 3]", lines, note)


def printed_limits_figure(limits: Sequence[int]) -> Figure:
    """Return the printed sizes by the number of items per user, to compare with ours."""
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
        "Items released by Δ0, journal version [JPC Figure 5]", _lines_of(measured, limits, settings), note
    )


def _over_limits(title: str, lines: Sequence[Line], note: str) -> Figure:
    return Figure(
        title,
        "items per user Δ0",
        "items released",
        tuple(lines),
        note,
        log_x=True,
        log_y=all(y > 0.0 for line in lines for y in line.ys),
        repeats=True,
    )


def epsilons_figure(measured: Measured, epsilons: Sequence[float]) -> Figure:
    """Return the sizes by epsilon (ICML Figure 1 and supplement Figure 6; JPC Figure 1)."""
    lines = _lines_of(measured, epsilons, {row.name: [row.with_epsilon(one) for one in epsilons] for row in ROWS})
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
    lines = _lines_of(measured, margins, {row.name: [row.with_margin(one) for one in margins] for row in rows})
    level = measured.size(BY_NAME["dp-sips"].setting(ITEMS))
    lines.append(Line("dp-sips", tuple(margins), (level,) * len(margins)))
    note = (
        f"ε = 3, δ = e⁻¹⁰, Δ0 = 100 (funnel 300). {NO_POINTS} They say: a sharp rise until α = 2, 3 or 4, then nearly "
        "constant, then a decrease. dp-sips has no cutoff."
    )
    title = "Items released by α [ICML supplement, Figure 5; JPC Figure 12]"
    return Figure(title, "cutoff margin α", "items released", tuple(lines), note)


def _lines_of(measured: Measured, places: Sequence[float], settings: dict[str, list[Setting]]) -> list[Line]:
    xs = tuple(map(float, places))
    return [Line(name, xs, tuple(measured.size(one) for one in chosen)) for name, chosen in settings.items()]
