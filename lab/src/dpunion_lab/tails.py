"""What the tail of rare items does: the papers do not print it, fitted numbers do not depend on it, policies do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpunion.report.tables import Cell, Table
from dpunion_lab.agreement import LARGE_DEVIATION, SIZES, compare_all
from dpunion_lab.figures import deviation
from dpunion_lab.measuring import Measured
from dpunion_lab.published import published_tables
from dpunion_lab.rows import COUNTS, GAUSSIAN, ITEMS, LAPLACE, PASSES, READINGS, WEIGHTED, passes_setting
from dpunion_lab.trials import Setting

TAIL_ROWS = (*COUNTS, *WEIGHTED, LAPLACE, GAUSSIAN)


def tail_settings(limits: Sequence[int]) -> list[Setting]:
    """Return what is run on data with another tail: all that can be compared with a printed number."""
    found = [row.setting(limit) for row in TAIL_ROWS for limit in (*limits, ITEMS)]
    found += [reading.setting(limit) for reading in READINGS if reading.counted for limit in limits]
    found += [passes_setting(name, limit) for name in PASSES for limit in limits]
    return list(dict.fromkeys(found))


def tail_table(found: Sequence[tuple[str, Measured]], limits: Sequence[int]) -> Table:
    """Return sizes on sets that differ in the tail of rare items only: (as in what, measured) each."""
    table = published_tables()["icml-main-1"].rows
    rows: list[tuple[Cell, ...]] = [
        ("printed", None, None, None, *[int(table[row.printed].values[str(ITEMS)]) for row in TAIL_ROWS])
    ]
    for name, measured in found:
        sizes = [measured.size(row.setting(ITEMS)) for row in TAIL_ROWS]
        held = [int(np.count_nonzero(measured.data.holders >= k)) for k in (1, 5)]
        rows.append((f"tail as in {name}", *held, _within(measured, limits), *map(round, sizes)))
        printed = [table[row.printed].values[str(ITEMS)] for row in TAIL_ROWS]
        cells = [deviation(*pair) if measured.comparable else None for pair in zip(sizes, printed, strict=True)]
        rows.append(("· deviation", None, None, None, *cells))
    columns = ("rare items", "items", "of 5 users or more", "sizes within 6 %", *[row.name for row in TAIL_ROWS])
    note = (
        "ε = 3, δ = e⁻¹⁰; single sizes with Δ0 = 100, α = 5. How many items have fewer than five holders is not "
        "printed. Count and Weighted sizes do not depend on it; policies spend a part of everybody's budget on it. "
        "The tail of the chat was chosen with these rows in view, so the policies' sizes test everything but this one "
        "choice; the printed numbers of items with at least 5 and 10 holders suit the tail of the reviews better."
    )
    return Table("The tail of rare items, which is not printed", columns, tuple(rows), note)


def _within(measured: Measured, limits: Sequence[int]) -> str | None:
    """Return how many of all sizes that can be compared lie near the printed ones."""
    if not measured.comparable:
        return None
    sizes = [one for one in compare_all(measured, limits) if one.kind in SIZES]
    return f"{sum(abs(one.off) <= LARGE_DEVIATION for one in sizes)} of {len(sizes)}"
