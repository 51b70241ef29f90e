"""How often Funnel misses an item that many people hold, measured over releases under test keys; and the bound on it.

    DPUNION_DATA=... python benchmarks/popular_items.py
    DPUNION_DATA=... python benchmarks/popular_items.py --runs 60 --json popular.json

A chance is one item in one release: an item that more than a hundredth of the people hold, at (3, e^-10). Policies are
measured with and without a reserve. A crowded world shows why no bound for all data can be small at few keepers: all
hold as many items as count, and their other items have just so many holders that they stay in the race.
Everything printed here is about public and generated data: none of it would be private to print about people's.
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
from missing import missing_chance

from dpunion.algorithms import Funnel, PolicyGaussian
from dpunion.budget import Budget
from dpunion.contributions import Contributions, ItemTable, offsets_of
from dpunion.engines.local import run_rounds
from dpunion.mechanisms import mechanism_for
from dpunion.plans import Plan, plan_release
from dpunion.randomness import RunKey
from dpunion.sets.grouping import bound_again
from dpunion_lab.data import NOT_PRIVATE, LabData, load
from dpunion_lab.generators import AskRedditLike

BUDGETS = (Budget(3.0, math.exp(-10)), Budget(1.0, 1e-5))
PART = 0.01
KEEPERS = (500, 1_000, 2_000, 5_000, 100_000)
RESERVES = (0.0, 0.05, 0.1)
CROWDED_PEOPLE, CROWDED_KEEPERS, CROWDED_HOLDERS = 20_000, 500, {3.0: 100, 1.0: 250}


def data_sets() -> Iterator[LabData]:
    """Yield the generated set and, where DPUNION_DATA has them, the film reviews: sets of many people."""
    yield load(AskRedditLike())
    reviews = Path(os.environ.get("DPUNION_DATA", "/nonexistent")) / "imdb_reviews_50k.parquet"
    if reviews.exists():
        yield load(reviews, user="user", text="text")


def count_missing(data: LabData, plan: Plan, runs: int) -> tuple[int, int, float]:
    """Return how many chances there were, in how many a popular item was missing, and the mean size of a release."""
    popular = np.flatnonzero(data.holders > PART * data.everything.users)
    missing = size = 0
    for number in range(1, runs + 1):
        key = RunKey.for_tests(number)
        released = run_rounds(mechanism_for(plan), bound_again(data.everything, plan.algorithm.bounding, key), key)
        missing, size = missing + len(np.setdiff1d(popular, released)), size + len(released)
    return runs * len(popular), missing, size / runs


def crowded_world(holders: int, seed: int) -> tuple[Contributions, range]:
    """Return a world in which each item of the range has its 500 keepers, and all other items have about `holders`."""
    random, limit = np.random.default_rng(seed), Funnel().max_items_per_user
    others = CROWDED_PEOPLE * (limit - 1) // holders
    own = others + np.arange(CROWDED_PEOPLE, dtype=np.int32)[:, None] // CROWDED_KEEPERS
    held = np.sort(np.concatenate([own, random.integers(0, others, (CROWDED_PEOPLE, limit - 1), np.int32)], axis=1))
    held = held[random.permutation(CROWDED_PEOPLE)]
    once = np.concatenate([np.ones((CROWDED_PEOPLE, 1), np.bool_), held[:, 1:] != held[:, :-1]], axis=1)
    watched = range(others, others + CROWDED_PEOPLE // CROWDED_KEEPERS)
    digests = random.integers(0, 2**63, (watched.stop, 2), np.uint64)
    table = ItemTable(np.zeros(watched.stop + 1, np.int64), np.empty(0, np.uint8), digests)
    users = np.zeros((CROWDED_PEOPLE, 2), np.uint64)
    return Contributions(offsets_of(once.sum(axis=1)), held[once].astype(np.int32), table, users, limit), watched


def print_crowded(runs: int) -> None:
    """Print how often an item with 500 keepers is missing in the crowded world."""
    for budget in BUDGETS:
        plan, holders = plan_release(Funnel(), budget), CROWDED_HOLDERS[budget.epsilon]
        missing = chances = 0
        for number in range(1, runs + 1):
            world, watched = crowded_world(holders, number)
            released = run_rounds(mechanism_for(plan), world, RunKey.for_tests(number))
            missing, chances = missing + len(np.setdiff1d(watched, released)), chances + len(watched)
        said = f"{missing} missing in {chances:,} chances"
        print(f"crowded world, epsilon {budget.epsilon:g}, {CROWDED_KEEPERS} keepers: {said}", flush=True)


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
        chances, missing, _ = count_missing(data, plan_release(shape, BUDGETS[0]), arguments.runs)
        total, lost = total + chances, lost + missing
        print(f"{data.name}: {missing} missing in {chances:,} chances", flush=True)
        rows.append({"set": data.name, "chances": chances, "missing": missing})
        for reserve in RESERVES:
            plan = plan_release(PolicyGaussian(reserve=reserve), BUDGETS[0])
            chances, missing, size = count_missing(data, plan, arguments.runs // 3 or 1)
            said = f"{missing} missing in {chances:,} chances, {size:,.0f} items"
            print(f"  policy-gaussian, reserve {reserve:g}: {said}", flush=True)
            rows.append({"set": data.name, "reserve": reserve, "chances": chances, "missing": missing, "items": size})
    print(f"together, by funnel: {lost} missing in {total:,} chances")
    print_crowded(arguments.runs // 3 or 1)
    if arguments.json:
        arguments.json.write_text(json.dumps({"warning": NOT_PRIVATE, "sets": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
