"""What the tail of rare items does: the papers do not print it, fitted numbers do not depend on it, policies do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpunion.lab.figures import deviation
from dpunion.lab.measuring import Measured
from dpunion.lab.published import published_tables
from dpunion.lab.rows import COUNTS, GAUSSIAN, ITEMS, LAPLACE, WEIGHTED
from dpunion.lab.trials import Setting
from dpunion.report.tables import Cell, Table

TAIL_ROWS = (*COUNTS, *WEIGHTED, LAPLACE, GAUSSIAN)


def tail_settings() -> list[Setting]:
    """Return what is run on data with another tail."""
    return [row.setting(ITEMS) for row in TAIL_ROWS]


def tail_table(found: Sequence[tuple[str, Measured]]) -> Table:
    """Return sizes on sets that differ in the tail of rare items only: (as in what, measured) each."""
    table = published_tables()["icml-main-1"].rows
    rows: list[tuple[Cell, ...]] = [
        ("printed", None, None, *[int(table[row.printed].values[str(ITEMS)]) for row in TAIL_ROWS])
    ]
    for name, measured in found:
        sizes = [measured.size(row.setting(ITEMS)) for row in TAIL_ROWS]
        held = [int(np.count_nonzero(measured.data.holders >= k)) for k in (1, 5)]
        rows.append((f"tail as in {name}", *held, *map(round, sizes)))
        printed = [table[row.printed].values[str(ITEMS)] for row in TAIL_ROWS]
        cells = [deviation(*pair) if measured.comparable else None for pair in zip(sizes, printed, strict=True)]
        rows.append(("· deviation", None, None, *cells))
    columns = ("rare items", "items", "of 5 users or more", *[row.name for row in TAIL_ROWS])
    note = (
        "ε = 3, δ = e⁻¹⁰, Δ0 = 100, α = 5. How many items have fewer than five holders is not printed. Count and "
        "Weighted algorithms do not depend on it; policies spend a part of everybody's budget there. The tail of the "
        "chat was chosen with these rows in view, so the policies' sizes test everything but this one choice; the "
        "printed numbers of items with at least 5 and 10 holders suit the tail of the reviews better."
    )
    return Table("The tail of rare items, which is not printed", columns, tuple(rows), note)
