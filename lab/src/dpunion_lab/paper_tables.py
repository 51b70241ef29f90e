"""The papers' tables, run again: printed numbers, measured ones, their deviations over trials, and how far apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpunion.calibration.bounds import release_odds, released_with
from dpunion.report.tables import Cell, Table
from dpunion_lab.agreement import describe_data
from dpunion_lab.data import COVERAGE
from dpunion_lab.figures import share
from dpunion_lab.fitting import FITTED_ROWS
from dpunion_lab.measuring import Measured
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
    """Return the data set beside the papers' (ICML supplement Table 1 = JPC Table 1, ICML Table 2 = JPC Table 3)."""
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
    """Return what each algorithm releases by the number of items per user, with alpha 5 (ICML Table 1)."""
    table = published_tables()["icml-main-1"]
    rows: Rows = []
    for row in ROWS:
        settings = [row.setting(limit) for limit in limits]
        rows += _beside(measured, row.name, settings, limits, table.rows.get(row.printed), row.printed)
    rows.append(("ceiling", HERE, *[_mean(measured.ceiling(EPSILON))] * len(limits)))
    note = (
        f"ε = 3, δ = e⁻¹⁰, α = 5 (funnel 2.2). {MARKS} "
        'Rows with "exact", dp-sips, funnel, greedy and the ceiling are not in this table of the papers.'
    )
    title = "Items released by items per user Δ0 [ICML Table 1]"
    return Table(title, ("algorithm", "", *[f"Δ0={limit}" for limit in limits]), tuple(rows), note)


def journal_table(measured: Measured, limits: Sequence[int]) -> Table:
    """Return the rows of JPC Table 2 that ICML Table 1 does not have, each in every reading of its label."""
    table = published_tables()["jpc-2"]
    rows: Rows = []
    for reading in READINGS:
        printed = table.rows[reading.printed]
        settings = [reading.setting(limit) for limit in limits]
        name = f"{printed.label.removeprefix('Policy ')} as {reading.name}"
        rows += _beside(measured, name, settings, limits, printed, reading.printed)
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
            rows += _beside(measured, name, settings, limits, table.rows[name], name)
        values = [measured.p_value(*[passes_setting(name, limit) for name in names]) for limit in limits]
        rows.append((f"{policy}, p-value", HERE, *map(_chance, values)))
        printed = table.rows[f"{policy}, p-value"]
        rows.append(("", PRINTED, *[_marked(_chance(printed.value(limit)), printed, limit) for limit in limits]))
    for name, label in (("dp-sips", "dp-sips, 3 rounds"), ("funnel", "funnel, 8 rounds")):
        settings = [BY_NAME[name].setting(limit) for limit in limits]
        rows += _beside(measured, label, settings, limits, None, "")
    note = (
        f"ε = 3, δ = e⁻¹⁰; policies with α = 2. {MARKS} p-values: two-sided t-test between one and two passes. "
        f"{NOT_MEANT} Cannot be meant, and is not compared: {contradictions()['passes']}"
    )
    title = "One and two passes [ICML supplement, Table 2; JPC Table 4]"
    return Table(title, ("algorithm", "", *[f"Δ0={limit}" for limit in limits]), tuple(rows), note)


def coverage_table(measured: Measured) -> Table:
    """Return sizes over the numbers of items with at least k holders, and which part of those comes out."""
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
            rows.append(("", PRINTED, *[_marked(cell, printed, k) for cell, k in zip(cells, COVERAGE, strict=True)]))
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


def _beside(
    measured: Measured,
    name: str,
    settings: Sequence[Setting],
    limits: Sequence[int],
    printed: PublishedRow | None,
    printed_name: str,
) -> Rows:
    """Return a row of measured means, and under it the printed ones and the deviations, if there are any."""
    sizes = [measured.size(setting) for setting in settings]
    rows: Rows = [(name, HERE, *[_mean(measured.size(one), measured.spread(one)) for one in settings])]
    if printed is None or not any(printed.value(limit) is not None for limit in limits):
        return rows
    means = [_mean(printed.value(limit), printed.sd.get(str(limit))) for limit in limits]
    cells = [_marked(mean, printed, limit) for mean, limit in zip(means, limits, strict=True)]
    rows.append(("", PRINTED_FITTED if printed_name in FITTED_ROWS else PRINTED, *cells))
    pairs = zip(sizes, limits, strict=True)
    rows.append(("", OFF, *[_padded(measured.deviation(here, printed.usable(limit))) for here, limit in pairs]))
    return rows


def _mean(value: float | None, spread: float | None = None) -> str | None:
    """Write a mean and a deviation so that they stand below each other."""
    if value is None:
        return None
    return f"{value:>6,.0f}" if spread is None else f"{value:>6,.0f} ±{spread:>3.0f}"


def _padded(text: str | None) -> str | None:
    return None if text is None else f"{text:>6}"


def _chance(value: float | None) -> str | None:
    return None if value is None else f"{value:>6.3f}"


def _marked(text: str | None, printed: PublishedRow, column: object) -> str | None:
    """Mark a printed number that cannot be meant."""
    return None if text is None else text + NOT_MEANT * (str(column) in printed.unusable)
