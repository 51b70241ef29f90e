"""What pages say about numbers of people: those beside the items, by rank, and of all people together."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence

import numpy as np

from dpunion.plans.counts import LEVEL, PLANNED_RATIOS, PLANNED_SIZES, CountsPlan, Estimate, Totals
from dpunion.releases.release import COUNTED, LENGTH, PEOPLE, Release
from dpunion.releases.statements import how_precise, who_was_cut
from dpunion.report.charts import Axis, AxisScale, Chart, Series
from dpunion.report.tables import Cell, Fact, Section, Table, number, percent

RANKS_PER_DECADE = 12
TOKENS = "tokens"
MEANING = (
    "Each number is an estimate of how many people have the item: the true number plus random noise that protects "
    "everybody in the data. It is never shown below the number of people from which items begin to be released. "
    f"At least {round(100 * LEVEL)} of 100 intervals, from low to high, contain the true number; the upper part "
    "of an interval is the wider one."
)
ORDER = (
    "Each point shows the items around its rank: the median of their estimates, and for the band the medians of "
    "their intervals. Both axes are logarithmic. Where the band is wide, the order of neighbouring items is "
    "mostly chance."
)


def count_facts(totals: Totals | None) -> tuple[Fact, ...]:
    """Return the numbers of all people together, which come first on a page."""
    if totals is None:
        return ()
    return (
        Fact("people in all, about", number(totals.everybody.people), _between(totals.everybody)),
        Fact("with an item not listed", number(totals.others.people), _between(totals.others)),
    )


def number_columns(release: Release) -> tuple[str, ...]:
    """Return the names of the columns of numbers on a page; none without counts."""
    if release.totals is None:
        return ()
    return tuple(TOKENS if one.name == LENGTH else one.name for one in release.numbers)


def popular_first(release: Release) -> list[list[str | int]]:
    """Return the rows of a release with counts, those with most people first, else in the order of the release."""
    at = len(release.columns) + [one.name for one in release.numbers].index(PEOPLE)
    return [list(row) for row in sorted(release.rows(), key=lambda row: -row[at])]


def popularity_section(release: Release) -> tuple[Section, ...]:
    """Draw numbers of people by rank and say what they are; nothing for a release without counts."""
    totals = release.totals
    if totals is None:
        return ()
    charts = (rank_chart(release),) if len(release) > 1 else ()
    return (Section("How many people", (MEANING, *who_was_cut(totals)), (totals_table(totals), *charts)),)


def totals_table(totals: Totals) -> Table:
    """Return the numbers of all people together."""
    rows = {"any item": totals.everybody, "an item that is not listed": totals.others}
    table = tuple((what, one.people, one.low, one.high) for what, one in rows.items())
    return Table("All people together", ("people who have", *COUNTED), table)


def rank_chart(release: Release) -> Chart:
    """Draw people by rank, with the band of the intervals; n-grams by their length."""
    return Chart(
        f"People by rank of the {release.plan.nouns.item}",
        Axis("rank", AxisScale.LOG),
        Axis("people", AxisScale.LOG),
        tuple(_ranked(name, rows) for name, rows in _groups(release)),
        note=ORDER,
    )


def _groups(release: Release) -> Iterator[tuple[str, list[Estimate]]]:
    """Yield the estimates that are ranked together, the largest first: n-grams of one length, or all items."""
    numbers = {one.name: one.values for one in release.numbers}
    estimates = [Estimate(*one) for one in zip(*(numbers[name] for name in COUNTED), strict=True)]
    lengths = numbers.get(LENGTH, (0,) * len(estimates))
    for length in sorted(set(lengths)):
        mine = [one for one, size in zip(estimates, lengths, strict=True) if size == length]
        name = PEOPLE if length == 0 else "1 token" if length == 1 else f"{length} tokens"
        yield name, sorted(mine, key=lambda one: -one.people)


def _ranked(name: str, rows: Sequence[Estimate]) -> Series:
    """Return the line of estimates that are sorted, at ranks that grow about evenly in ratio."""
    count = len(rows)
    steps = np.geomspace(1, count, max(2, round(RANKS_PER_DECADE * np.log10(max(count, 2)))))
    ranks = sorted({round(step) for step in steps.tolist()})
    ends = [round((one * other) ** 0.5) for one, other in itertools.pairwise(ranks)]
    around = [rows[first:last] for first, last in zip([0, *ends], [*ends, count], strict=True)]
    middles = [[statistics.median(getattr(one, part) for one in near) for part in COUNTED] for near in around]
    people, lows, highs = (tuple(max(1.0, one) for one in column) for column in zip(*middles, strict=True))
    return Series(name, tuple(map(float, ranks)), people, lows, highs)


def precision_section(plan: CountsPlan) -> Section:
    """Tabulate how precise numbers of people are to be expected, from the plan alone."""
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (people, *(f"± {number(round(plan.half_width(people, ratio)))}" for ratio in PLANNED_RATIOS))
        for people in PLANNED_SIZES
    )
    columns = ("people with the item", *(f"{ratio} people per item" for ratio in PLANNED_RATIOS))
    text = (
        f"Counts take {percent(plan.share)} of the budget. How precise they are depends on how many people there are "
        "for each listed item: a person's influence is bounded, and divided among all the items of the person."
    )
    parts = (Table("Intervals to expect", columns, rows),)
    return Section("How precise the counts will be", (text, how_precise(plan)), parts)


def counting_table(plan: CountsPlan) -> Table:
    """List every number of counting."""
    rows = (
        ("part of the budget", percent(plan.share)),
        ("noise of the rough estimate of every item: standard deviation", number(plan.rough)),
        ("noise of how many items people have: standard deviation", number(plan.marks)),
        ("noise of the counts: standard deviation", number(plan.fine)),
    )
    return Table("Counting", ("what", "value"), rows)


def _between(one: Estimate) -> str:
    return f"{number(one.low)} to {number(one.high)}"
