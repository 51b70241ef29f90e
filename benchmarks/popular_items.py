"""How often Funnel misses an item that many people hold, measured over releases under test keys; and the bound on it.

    DPUNION_DATA=... python benchmarks/popular_items.py
    DPUNION_DATA=... python benchmarks/popular_items.py --runs 60 --json popular.json

A chance is one item in one release: an item that more than a hundredth of the people hold, at (3, e^-10). Everything
printed here is about public and generated data: none of it would be private to print about people's.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dpunion.algorithms import Funnel
from dpunion.budget import Budget
from dpunion.calibration.missing import missing_chance
from dpunion.engines.local.rounds import run_rounds
from dpunion.lab.data import LabData, load
from dpunion.lab.figures import NOT_PRIVATE
from dpunion.lab.generators import AskRedditLike
from dpunion.mechanisms import mechanism_for
from dpunion.plans import Plan, plan_release
from dpunion.randomness import RunKey
from dpunion.sets.grouping import bound_again

BUDGETS = (Budget(3.0, math.exp(-10)), Budget(1.0, 1e-5))
PART = 0.01
KEEPERS = (500, 1_000, 2_000, 5_000, 100_000)


def data_sets() -> Iterator[LabData]:
    """Yield the generated set and, where DPUNION_DATA has them, the film reviews: sets of many people."""
    yield load(AskRedditLike())
    reviews = Path(os.environ.get("DPUNION_DATA", "/nonexistent")) / "imdb_reviews_50k.parquet"
    if reviews.exists():
        yield load(reviews, user="user", text="text")


def count_missing(data: LabData, plan: Plan, runs: int) -> tuple[int, int]:
    """Return how many chances there were, and in how many of them a popular item was missing."""
    popular = np.flatnonzero(data.holders > PART * data.everything.users)
    missing = 0
    for number in range(1, runs + 1):
        key = RunKey.for_tests(number)
        released = run_rounds(mechanism_for(plan), bound_again(data.everything, plan.algorithm.bounding, key), key)
        missing += len(np.setdiff1d(popular, released))
    return runs * len(popular), missing


def main() -> None:
    """Print the bounds and what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=60, help="releases of each set")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    shape, rows = Funnel(), list[dict[str, Any]]()
    print(f"{NOT_PRIVATE}\n\nAn item that so many people keep is missing with a chance of at most")
    for budget in BUDGETS:
        plan = plan_release(shape, budget)
        bounds = {keepers: missing_chance(plan.scale, plan.threshold, shape, keepers) for keepers in KEEPERS}
        print(f"  epsilon {budget.epsilon:g}: " + ", ".join(f"{k:,}: {bound:.1e}" for k, bound in bounds.items()))
    total = lost = 0
    for data in data_sets():
        chances, missing = count_missing(data, plan_release(shape, BUDGETS[0]), arguments.runs)
        total, lost = total + chances, lost + missing
        print(f"{data.name}: {missing} missing in {chances:,} chances", flush=True)
        rows.append({"set": data.name, "chances": chances, "missing": missing})
    print(f"together: {lost} missing in {total:,} chances")
    if arguments.json:
        arguments.json.write_text(json.dumps({"warning": NOT_PRIVATE, "sets": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
