"""Compare every printed number that can be measured with the one measured here, and count how many agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dpunion.report.tables import Cell, Table
from dpunion_lab.data import COVERAGE, LabData
from dpunion_lab.fitting import FITTED_ROWS, ZIPF_RANKS
from dpunion_lab.measuring import Measured, deviation, share
from dpunion_lab.published import published_fact, published_facts, published_tables
from dpunion_lab.rows import COUNTS, GAUSSIAN, ITEMS, LAPLACE, PASSES, READINGS, ROWS, WEIGHTED, passes_setting
from dpunion_lab.trials import Setting

NEAR, LARGE_DEVIATION = 0.03, 0.06

SHARES, LARGEST, HELD = "users by set size", "the largest users", "items with at least k holders"
COUNT_SIZES, WEIGHTED_SIZES = "sizes of Count algorithms", "sizes of Weighted algorithms"
POLICY_SIZES, PASS_SIZES, COVERED = "sizes of policies", "sizes of policies, one and two passes", "coverage"
OTHER = "users, Zipf's exponent"
SIZES = (HELD, COUNT_SIZES, WEIGHTED_SIZES, POLICY_SIZES, PASS_SIZES)
"""The kinds of numbers that are sizes of sets of items."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A printed number and ours. fitted: whether the data was fitted to it. write: how to write both for people."""

    kind: str
    what: str
    citation: str
    printed: float
    here: float
    write: Callable[[float], Cell] = round
    fitted: bool = False

    @property
    def off(self) -> float:
        """Return the relative difference."""
        return self.here / self.printed - 1.0


def describe_data(data: LabData) -> Iterator[Compared]:
    """Yield the numbers of the data, each with the papers' number."""
    sizes = np.diff(data.everything.offsets)
    users = published_fact("users after filtering and preprocessing")
    yield Compared(OTHER, "users", _where("users after filtering and preprocessing"), users, len(sizes), int, True)
    table = published_tables()["icml-supplement-1"]
    for most, printed in table.rows["share"].values.items():
        here = float(np.mean(sizes <= int(most)))
        what = f"users with at most {most} items"
        yield Compared(SHARES, what, table.citation, printed / 100.0, here, _exact_share, True)
    name = "distinct unigrams of the ten users with the most"
    largest = np.sort(sizes)[::-1][:10].tolist()
    for what, printed, here in zip(
        ("items of the tenth user by items", "most items of a user"),
        published_fact(name),
        (largest[-1], largest[0]),
        strict=True,
    ):
        yield Compared(LARGEST, what, _where(name), printed, here, int, True)
    table = published_tables()["icml-main-2"]
    for k in COVERAGE:
        here = int(np.count_nonzero(data.holders >= k))
        printed = table.rows["held"].values[str(k)]
        yield Compared(HELD, f"items held by at least {k} users", table.citation, printed, here, int, True)
    name = "exponent of the Zipf law of unigrams across users, about"
    what = f"Zipf exponent, ranks {ZIPF_RANKS[0]} to {ZIPF_RANKS[1]:,}"
    yield Compared(OTHER, what, _where(name), published_fact(name), zipf_exponent(data), "{:.2f}".format, True)


def zipf_exponent(data: LabData) -> float:
    """Return minus the slope of log holders over log rank, by least squares over ZIPF_RANKS."""
    low, high = ZIPF_RANKS
    holders = np.sort(data.holders)[::-1][low - 1 : high]
    ranks = np.arange(low, low + len(holders))
    return -float(np.polyfit(np.log(ranks), np.log(holders), 1)[0])


def compare_all(measured: Measured, limits: Sequence[int]) -> list[Compared]:
    """Return every printed number that can be measured, once each: a later paper's repetitions do not count."""
    found = [*describe_data(measured.data), *_sizes(measured, limits), *_passes(measured, limits)]
    return [*found, *_coverage(measured)]


def _sizes(measured: Measured, limits: Sequence[int]) -> Iterator[Compared]:
    table = published_tables()["icml-main-1"]
    for row in ROWS:
        for limit in limits:
            printed = table.rows[row.printed].usable(limit) if row.printed else None
            if printed is not None:
                kinds = {"count": COUNT_SIZES, "weighted": WEIGHTED_SIZES, "policy": POLICY_SIZES}
                kind = kinds[row.name.partition("-")[0]]
                margin = ", α=5" if row.has_margin else ""
                here = measured.size(row.setting(limit))
                what = f"{row.name}, Δ0={limit}{margin}"
                yield Compared(kind, what, table.citation, printed, here, round, row.printed in FITTED_ROWS)
    table = published_tables()["jpc-2"]
    for reading in READINGS:
        for limit in limits:
            printed = table.rows[reading.printed].usable(limit)
            if reading.counted and printed is not None:
                what = f'row "{table.rows[reading.printed].label}" as {reading.name}, Δ0={limit}'
                yield Compared(POLICY_SIZES, what, table.citation, printed, measured.size(reading.setting(limit)))


def _passes(measured: Measured, limits: Sequence[int]) -> Iterator[Compared]:
    table = published_tables()["icml-supplement-2"]
    for name in PASSES:
        for limit in limits:
            printed = table.rows[name].usable(limit)
            if printed is not None:
                here = measured.size(passes_setting(name, limit))
                yield Compared(PASS_SIZES, f"{name}, Δ0={limit}, α=2", table.citation, printed, here)


def _coverage(measured: Measured) -> Iterator[Compared]:
    table = published_tables()["icml-main-2"]
    for row in (LAPLACE, GAUSSIAN):
        for k, here in zip(COVERAGE, measured.quotients(row.setting(ITEMS)), strict=True):
            printed = table.rows[row.printed].usable(k)
            if printed is not None:
                yield Compared(COVERED, f"{row.name}, k={k}", table.citation, printed / 100.0, here, share)


def agreement_table(compared: Sequence[Compared]) -> Table:
    """Return how many numbers of each kind agree; numbers that the data was fitted to have their own rows."""
    rows: list[tuple[Cell, ...]] = []
    for kind in dict.fromkeys(one.kind for one in compared):
        chosen = [one for one in compared if one.kind == kind]
        used = "fitted" if chosen[0].fitted else "held out" if kind == WEIGHTED_SIZES else "held out, tail chosen"
        rows.append(_agreement(kind, used, chosen))
    sizes = [one for one in compared if one.kind in SIZES]
    rows.append(_agreement("all sizes", "held out", [one for one in sizes if not one.fitted]))
    rows.append(_agreement("all sizes", "both", sizes))
    rows.append(_agreement("all numbers", "both", compared))
    columns = (
        "kind of number",
        "in the fit",
        "numbers",
        "within 3 %",
        "within 6 %",
        "part",
        "root mean square",
        "largest",
    )
    note = (
        "Each printed number counts once; what a later paper repeats, and what cannot be meant, does not count. "
        '"Fitted": the generated data was fitted to these numbers; "held out": they had no part in the fit; "tail '
        'chosen": but of two tails of rare items the one was chosen that suits policies, see the table of tails.'
    )
    return Table("Agreement with the printed numbers", columns, tuple(rows), note)


def _agreement(kind: str, fitted: str, chosen: Sequence[Compared]) -> tuple[Cell, ...]:
    offs = [abs(one.off) for one in chosen]
    near, within = (sum(off <= limit for off in offs) for limit in (NEAR, LARGE_DEVIATION))
    square = math.sqrt(sum(off * off for off in offs) / len(offs))
    worst = max(chosen, key=lambda one: abs(one.off))
    largest = deviation(worst.here, worst.printed)
    return kind, fitted, len(offs), near, within, share(within / len(offs)), share(square), largest


def deviations_table(compared: Sequence[Compared]) -> Table:
    """Return every number that differs much from the printed one, with the reason as far as we know it."""
    far = [one for one in compared if abs(one.off) > NEAR]
    rows = tuple(
        (
            one.what,
            one.write(one.printed),
            one.write(one.here),
            deviation(one.here, one.printed),
            one.citation,
            _why(one),
        )
        for one in far
    )
    columns = ("number", "published", "here", "deviation", "source", "why")
    title = f"Deviations above {NEAR:.0%}".replace("%", " %")
    return Table(title, columns, rows, f"{len(compared) - len(far)} of {len(compared)} compared numbers lie within it.")


SHAPE = "ten numbers of the shape cannot follow all nineteen printed ones"
TAIL = "depends on the tail of rare items, which is not printed"
AT_TEN = "all policies come out high at Δ0 = 10, with either tail: not explained"
EXPLANATIONS = {
    SHARES: "shares of few users are not exact",
    LARGEST: "the papers give a rounded range for ten users; sizes here are quantiles of a smooth distribution",
    HELD: SHAPE,
    COUNT_SIZES: SHAPE,
    WEIGHTED_SIZES: "no number of these rows had a part in the fit",
    POLICY_SIZES: TAIL,
    PASS_SIZES: TAIL,
    COVERED: "a quotient of two numbers above",
    OTHER: "printed as about 1, and fitted a third as strictly",
}
"""Why a number differs from the printed one, as far as we know, by kind of number."""


def _why(one: Compared) -> str:
    at_ten = one.kind in (POLICY_SIZES, PASS_SIZES) and "Δ0=10" in one.what.split(", ")
    return AT_TEN if at_ten else EXPLANATIONS[one.kind]


def _exact_share(value: float) -> str:
    return f"{100.0 * value:.2f} %"


def _where(what: str) -> str:
    return next(fact.citation for fact in published_facts() if fact.what == what)


TAIL_ROWS = (*COUNTS, *WEIGHTED, LAPLACE, GAUSSIAN)


def tail_settings(limits: Sequence[int]) -> list[Setting]:
    """Return the settings to run on data with another tail: all that have a printed number."""
    found = [row.setting(limit) for row in TAIL_ROWS for limit in (*limits, ITEMS)]
    found += [reading.setting(limit) for reading in READINGS if reading.counted for limit in limits]
    found += [passes_setting(name, limit) for name in PASSES for limit in limits]
    return list(dict.fromkeys(found))


def tail_table(found: Sequence[tuple[str, Measured]], limits: Sequence[int]) -> Table:
    """Return sizes on data sets that differ only in the tail of rare items. found: (name of the tail, measurements)."""
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
    """Return how many of the comparable sizes are near the printed ones."""
    if not measured.comparable:
        return None
    sizes = [one for one in compare_all(measured, limits) if one.kind in SIZES]
    return f"{sum(abs(one.off) <= LARGE_DEVIATION for one in sizes)} of {len(sizes)}"
