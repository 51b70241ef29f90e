"""A second window of rows in which some items are gone: what becomes of the list of the first one.

    DPUNION_DATA=... python benchmarks/windows.py
    python benchmarks/windows.py --only depends --trials 5 --json windows.json

People are split into two windows at random, and 15 of 100 items are taken out of the second one. Both windows are
released with Funnel's defaults. The second release uses the first list in one of three ways: not at all; as candidates,
as `--current` does; or as known items that are set aside, as a schedule on all rows does.

current     items on the second list that somebody in the second window has; unknown if the first list is set aside
confirmed   those of them that were on the first list, of the items of that list that are still there
new         items that are on the second list only
again       items of the first list that are gone and on the list again; if they are set aside, all of them

Everything printed here is about public data: none of it would be private to print about people's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from release_sizes import BUDGETS, data_sets

import dpunion
from dpunion.budget import Budget
from dpunion.charging import STAYING
from dpunion_lab.data import NOT_PRIVATE, LabData, load

GONE = 0.15
FIRST, SECOND = 0, 1


def split_people(data: LabData, number: int) -> tuple[pa.Table, pa.Table, set[str]]:
    """Return the rows of both windows, with numbers for items, and the items that are gone in the second one."""
    chance, sets = np.random.default_rng(number), data.everything
    users = np.repeat(np.arange(sets.users), np.diff(sets.offsets))
    window = chance.integers(0, 2, sets.users)[users]
    gone = chance.random(len(data.holders)) < GONE
    windows = [window == FIRST, (window == SECOND) & ~gone[sets.items]]
    first, second = (
        pa.table({"user": users[rows], "item": pa.array(sets.items[rows]).cast(pa.string())}) for rows in windows
    )
    return first, second, set(map(str, np.flatnonzero(gone)))


def compare(windows: tuple[pa.Table, pa.Table, set[str]], budget: Budget, number: int) -> dict[str, dict[str, int]]:
    """Release both windows; return the numbers of each way to use the first list."""
    rows, later, gone = windows
    held = set(later["item"].unique().to_pylist())

    def release(table: pa.Table, key: int, **lists: Any) -> set[str]:
        budgets = {"epsilon": budget.epsilon, "delta": budget.delta, "unsafe_test_key": 2 * number + key}
        return set(dpunion.release(table, user="user", item="item", **budgets, **lists).items)

    first = release(rows, FIRST)
    there, left = first & held, first & gone
    found: dict[str, dict[str, int]] = {}
    ways = {"neither": {}, "candidates": {"candidates": dpunion.Candidates(list(first), error=STAYING)}}
    for way, lists in ways.items():
        second = release(later, SECOND, **lists)
        found[way] = {"current": len(second & held), "confirmed": len(second & there), "again": len(second & left)}
        found[way]["new"] = len((second & held) - first)
    aside = release(later, SECOND, known=list(first))
    found["set aside"] = {"current": 0, "confirmed": 0, "again": len(left), "new": len(aside)}
    return {way: numbers | {"there": len(there), "left": len(left)} for way, numbers in found.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1, help="runs to average")
    parser.add_argument("--only", action="append", help="only sets whose names contain this; may be repeated")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    wanted = arguments.only or ["ubuntu_irc", "debian_descriptions"]
    print(f"{NOT_PRIVATE}\n\nThe second window, mean of {arguments.trials} trials")
    print(f"{'set':22}{'epsilon':>8} {'first list':12}{'current':>9}{'confirmed':>17}{'new':>8}{'again':>14}")
    rows: list[dict[str, Any]] = []
    for name, source, columns in data_sets():
        if not any(part in name for part in wanted):
            continue
        data = load(source, **columns)
        splits = [split_people(data, number) for number in range(arguments.trials)]
        for budget in BUDGETS:
            runs = [compare(split, budget, number) for number, split in enumerate(splits)]
            for way in runs[0]:
                mean = {one: statistics.fmean(run[way][one] for run in runs) for one in runs[0][way]}
                shown = {one: f"{value:,.0f}" for one, value in mean.items()}
                if way == "set aside":
                    shown |= {"current": "unknown", "confirmed": "none"}
                confirmed, again = (f"{shown[a]} of {shown[b]}" for a, b in (("confirmed", "there"), ("again", "left")))
                print(f"{name:22}{budget.epsilon:>8g} {way:12}{shown['current']:>9}{confirmed:>17}", end="")
                print(f"{shown['new']:>8}{again:>14}", flush=True)
                rows.append({"set": name, "epsilon": budget.epsilon, "delta": budget.delta, "first_list": way} | mean)
    if not rows:
        print("No such set is here: DPUNION_DATA names the folder of the larger ones.", file=sys.stderr)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"warning": NOT_PRIVATE, "sets": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
