"""Sums up what was judged on many worlds, as plain values and as tables for a terminal. NOT PRIVATE."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpunion.report.tables import Cell, Table
from dpunion_lab.figures import share

BANDS = (1, 15, 50, 200, 1_000, 10_000)
"""Intervals are judged by the true number of people who have the item, from each of these to the next."""
BAD, VERY_BAD = 2.0, 3.0
"""Errors of counts this many times the best one in hindsight are counted."""
HOPELESS = 0.9
"""Counts with a larger median relative error than this say nothing."""
GROSS = (0.8, 1.25)
"""Sums outside of this part of the true ones are gross errors."""
COVERED, FEWEST_INTERVALS = 0.93, 30
"""At least this part of the intervals should be right, up to two standard errors, where there are this many."""
SHORT = 20
"""Shorter lists than this are left out of ratios of sizes, which are mostly noise there."""
TWENTIETH = 0.05

Judged = dict[str, Any]


def summarize_worlds(worlds: Sequence[Judged]) -> dict[str, Any]:
    """Return the figures of all worlds together; what was not judged is left out."""
    found: dict[str, Any] = {"worlds": len(worlds), "redrawn": sum(one["world"]["attempt"] for one in worlds)}
    for name, summarize in (("counts", summarize_counts), ("bound", summarize_bound), ("funnel", summarize_funnel)):
        judged = [one for one in worlds if name in one]
        if judged:
            found[name] = summarize(judged)
    return found


def spread_of(ratios: dict[int, float], *, high_is_bad: bool) -> dict[str, Any]:
    """Return the median, what nine of ten worlds reach, the mean of the worst twentieth, and the worst.

    ratios: by the number of the world.
    """
    if not ratios:
        return {"worlds": 0}
    side = 1.0 if high_is_bad else -1.0
    ranked = sorted(ratios, key=lambda number: (-side * ratios[number], number))
    worst = ranked[: math.ceil(TWENTIETH * len(ranked))]
    values = list(ratios.values())
    return {
        "worlds": len(ratios),
        "median": float(np.median(values)),
        "nine_of_ten": float(np.quantile(values, 0.9 if high_is_bad else 0.1)),
        "worst_twentieth": float(np.mean([ratios[number] for number in worst])),
        "worst": ratios[worst[0]],
        "worst_worlds": worst,
    }


def summarize_counts(worlds: Sequence[Judged]) -> dict[str, Any]:
    """Return the figures of counts."""
    counts = [one["counts"] for one in worlds]
    intervals = np.array([one["intervals"] for one in counts])
    covered = np.array([one["covered"] for one in counts])
    judged = intervals >= FEWEST_INTERVALS
    sums = [one["sum_ratio"] for one in counts if one["sum_ratio"] is not None]
    low, high = (sum(ratio < GROSS[0] for ratio in sums), sum(ratio > GROSS[1] for ratio in sums))
    below = judged & covers_too_few(covered, intervals)
    return {
        "ratio": spread_of(ratios_of(worlds, "counts"), high_is_bad=True),
        "worlds_above_2": sum(one["ratio"] > BAD for one in counts),
        "worlds_above_3": sum(one["ratio"] > VERY_BAD for one in counts),
        "worlds_without_meaning": sum(one["median_error"] > HOPELESS for one in counts),
        "bands": list(BANDS),
        "intervals": intervals.sum(axis=0).tolist(),
        "covered": [
            inside / count if count else None
            for inside, count in zip(covered.sum(axis=0).tolist(), intervals.sum(axis=0).tolist(), strict=True)
        ],
        "bands_judged": int(judged.sum()),
        "bands_below": int(below.sum()),
        "worlds_with_bands_below": [
            one["world"]["number"] for one, bad in zip(worlds, below.any(axis=1).tolist(), strict=True) if bad
        ],
        "sums_judged": len(sums),
        "sums_too_low": low,
        "sums_too_high": high,
        "gross": (low + high) / len(sums) if sums else None,
        "worlds_with_gross_sums": [
            one["world"]["number"]
            for one in worlds
            if one["counts"]["sum_ratio"] is not None and not GROSS[0] <= one["counts"]["sum_ratio"] <= GROSS[1]
        ],
    }


def covers_too_few(covered: Any, intervals: Any) -> Any:
    """Say where fewer than COVERED of the intervals are right, by more than two standard errors: bool[...]."""
    count = np.maximum(intervals, 1)
    return covered / count < COVERED - 2.0 * np.sqrt(COVERED * (1.0 - COVERED) / count)


def summarize_bound(worlds: Sequence[Judged]) -> dict[str, Any]:
    """Return the figures of the numbers of items per person that the look chose."""
    long = [one for one in worlds if one["bound"]["best"] >= SHORT]
    return {
        "ratio": spread_of(ratios_of(long, "bound"), high_is_bad=False),
        "too_short": len(worlds) - len(long),
        "chosen": count_values(long, "bound", "chosen"),
        "best": count_values(long, "bound", "best_bound"),
    }


def summarize_funnel(worlds: Sequence[Judged]) -> dict[str, Any]:
    """Return the figures of Funnel next to other algorithms."""
    long = [one for one in worlds if one["funnel"]["best"] >= SHORT]
    return {
        "ratio": spread_of(ratios_of(long, "funnel"), high_is_bad=False),
        "too_short": len(worlds) - len(long),
        "best_other": count_values(long, "funnel", "best_algorithm"),
    }


def ratios_of(worlds: Sequence[Judged], name: str) -> dict[int, float]:
    """Return the ratio to the best in hindsight, by the number of the world."""
    return {one["world"]["number"]: one[name]["ratio"] for one in worlds}


def count_values(worlds: Sequence[Judged], name: str, field: str) -> dict[str, int]:
    """Return how often each value of a field occurs, in rising order of the values."""
    times = Counter(one[name][field] for one in worlds)
    return {str(value): times[value] for value in sorted(times)}


# --- tables ---------------------------------------------------------------------------------------------------------

HEADINGS = {
    "counts": "counts: error / best error",
    "bound": "bound: items with the look / best bound",
    "funnel": "funnel: items / best other algorithm",
}


def tables_of(result: dict[str, Any]) -> list[Table]:
    """Return the summary of a result as tables."""
    summary = result["summary"]
    tables = [ratio_table(result)]
    if "counts" in summary:
        tables += [count_table(summary["counts"]), interval_table(summary["counts"])]
    if summary.get("bound", {}).get("ratio", {}).get("worlds"):
        tables.append(bound_table(summary["bound"]))
    return tables


def ratio_table(result: dict[str, Any]) -> Table:
    """Return how far each judged thing is from the best in hindsight."""
    summary = result["summary"]
    rows: list[tuple[Cell, ...]] = []
    for name, heading in HEADINGS.items():
        if name in summary:
            ratio = summary[name]["ratio"]
            figures = [ratio.get(field) for field in ("median", "nine_of_ten", "worst_twentieth", "worst")]
            worst = ", ".join(map(str, ratio.get("worst_worlds", [])[:3])) or None
            rows.append((heading, ratio["worlds"], *(None if one is None else f"{one:.2f}" for one in figures), worst))
    columns = ("judged", "worlds", "median", "9 of 10", "worst 20th", "worst", "worst worlds")
    note = (
        f"{summary['redrawn']} worlds with fewer than 5 released items were drawn again. Small ratios of errors are "
        "good, and large ratios of items. 9 of 10: nine of ten worlds are at least this good. Worst 20th: the mean of "
        f"the worst twentieth. Worlds where the best list has fewer than {SHORT} items are left out of the ratios of "
        "items. The best error is that of the best weights in hindsight, neither corrected nor shrunk, so a ratio "
        "below 1 is possible. Judge one world again with --only NUMBER."
    )
    return Table(f"Random worlds of seed {result['seed']}: ratio to the best in hindsight", columns, tuple(rows), note)


def count_table(counts: dict[str, Any]) -> Table:
    """Return how often counts were bad."""
    rows: list[tuple[Cell, ...]] = [
        (f"worlds with more than {BAD:g} times the best error", counts["worlds_above_2"], counts["ratio"]["worlds"]),
        (
            f"worlds with more than {VERY_BAD:g} times the best error",
            counts["worlds_above_3"],
            counts["ratio"]["worlds"],
        ),
        (f"worlds with a median error above {HOPELESS:g}", counts["worlds_without_meaning"], counts["ratio"]["worlds"]),
        (f"bands of intervals below {COVERED:.0%} by 2 s.e.", counts["bands_below"], counts["bands_judged"]),
        (f"sums below {GROSS[0]:g} of the true ones", counts["sums_too_low"], counts["sums_judged"]),
        (f"sums above {GROSS[1]:g} of the true ones", counts["sums_too_high"], counts["sums_judged"]),
    ]
    note = (
        "Sums: of the items that at least 100 people have, where there are 5 such items. A band: the intervals of one "
        f"world's items with about as many people, where there are {FEWEST_INTERVALS}."
    )
    return Table("Counts that went wrong", ("what", "how many", "of"), tuple(rows), note)


def interval_table(counts: dict[str, Any]) -> Table:
    """Return how many intervals hold the true number, by that number."""
    columns = ("people with the item", *(f"{least:,}+" for least in counts["bands"]))
    rows = (
        ("intervals", *counts["intervals"]),
        ("hold the true number", *map(share, counts["covered"])),
    )
    return Table("Intervals of counts", columns, rows)


def bound_table(bound: dict[str, Any]) -> Table:
    """Return how often each number of items per person was chosen, and was the best."""
    bounds = sorted({*bound["chosen"], *bound["best"]}, key=int)
    rows = tuple(
        (name, *(times.get(one, 0) for one in bounds))
        for name, times in (("chosen by the look", bound["chosen"]), ("best in hindsight", bound["best"]))
    )
    return Table("Items per person", ("worlds", *bounds), rows)
