"""What further ideas for Funnel could bring at most: measured, and not shipped.

    DPUNION_DATA=... python benchmarks/leads.py

The last round releases bits alone, so its noise need not be Gaussian. The first table has no noise there at all, which
is not private, and more than any private rule could do. The second says how many people an item needs by Laplace noise
and by Funnel, where each of them holds so many items that nobody else does.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator
from pathlib import Path

from dpunion.algorithms import Funnel, PolicyLaplace
from dpunion.budget import Budget
from dpunion.engines.local import run_rounds
from dpunion.mechanisms import Mechanism, mechanism_for
from dpunion.plans import Plan, plan_release
from dpunion.randomness import RunKey
from dpunion.samples import debian_depends
from dpunion.sets.grouping import bound_again
from dpunion_lab.data import NOT_PRIVATE, LabData, load

BUDGETS = (Budget(3.0, math.exp(-10)), Budget(1.0, 1e-5))
KEYS = range(1, 4)
NO_NOISE = 1e-9


def data_sets() -> Iterator[LabData]:
    """Yield the bundled set and, where DPUNION_DATA has them, the film reviews."""
    yield load(debian_depends(), user="user", item="item")
    reviews = Path(os.environ.get("DPUNION_DATA", "/nonexistent")) / "imdb_reviews_50k.parquet"
    if reviews.exists():
        yield load(reviews, user="user", text="text")


def mean_size(data: LabData, plan: Plan, mechanism: Mechanism) -> float:
    """Return the mean number of released items."""
    sizes = []
    for key in map(RunKey.for_tests, KEYS):
        bounded = bound_again(data.everything, plan.algorithm.bounding, key)
        sizes.append(len(run_rounds(mechanism, bounded, key)))
    return sum(sizes) / len(sizes)


def without_last_noise(plan: Plan) -> Mechanism:
    """Return Funnel's rounds, the last of them without noise: NOT PRIVATE."""
    *earlier, last = plan.rounds
    quiet = (*earlier, dataclasses.replace(last, stddev=NO_NOISE))
    return mechanism_for(dataclasses.replace(plan, rounds=quiet))


def main() -> None:
    """Print both tables."""
    print(f"{NOT_PRIVATE}\n\nFunnel, and with no noise in its last round")
    for data in data_sets():
        for budget in BUDGETS:
            plan = plan_release(Funnel(), budget)
            usual = mean_size(data, plan, mechanism_for(plan))
            quiet = mean_size(data, plan, without_last_noise(plan))
            ratio = f"{usual:,.0f} -> {quiet:,.0f}, x {quiet / usual:.3f}"
            print(f"  {data.name:28} epsilon {budget.epsilon:g}: {ratio}", flush=True)
    print("\nPeople that an item needs, delta 1e-5\n  epsilon  items each  laplace   funnel  ratio")
    for epsilon in (1.0, 3.0, 8.0):
        for items in (1, 2, 3, 5):
            budget = Budget(epsilon, 1e-5)
            laplace = items * plan_release(PolicyLaplace(max_items_per_user=items), budget).threshold
            funnel = math.sqrt(items) * plan_release(Funnel(max_items_per_user=items), budget).threshold
            print(f"  {epsilon:>7g}{items:>12}{laplace:>9.1f}{funnel:>9.1f}{laplace / funnel:>7.2f}")


if __name__ == "__main__":
    main()
