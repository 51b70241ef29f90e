"""What `max_items_per_user="auto"` chooses and releases, against every fixed limit it can choose, on every data set.

    python benchmarks/look.py
    python benchmarks/look.py --trials 5 --json look.json

The fixed numbers pay for no look. The last but one column is the default's size over that of the best of them, which
nobody can know beforehand. The last is what running all of them under one budget and keeping the largest would give,
over the same: each has a seventh of the squared budget, and novel items are not even paid for seven times.

Everything printed here is about public data: none of it would be private to print about people's.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from pathlib import Path
from typing import Any

from release_sizes import BUDGETS, data_sets

from dpunion.algorithms import Funnel
from dpunion.budget import Budget
from dpunion.plans import Plan, compose, plan_composed, plan_release
from dpunion.plans.look import LIMITS, plan_look
from dpunion_lab.data import NOT_PRIVATE, load
from dpunion_lab.trials import run_fixed, run_look


def share_out(shape: Funnel, budget: Budget) -> Plan:
    """Plan one of as many releases as there are limits, all under one budget."""
    shares = (1.0 / len(LIMITS),) * len(LIMITS)
    return plan_composed(shape, budget, compose(shape, budget.epsilon, budget.delta, shares))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=3, help="runs to average")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    trials = range(arguments.trials)
    looks = {budget: plan_look(budget, None, {}) for budget in BUDGETS}
    fixed = {
        (budget, bound): plan_release(Funnel(max_items_per_user=bound), budget)
        for budget in BUDGETS
        for bound in LIMITS
    }
    divided = {
        (budget, bound): share_out(Funnel(max_items_per_user=bound), budget) for budget in BUDGETS for bound in LIMITS
    }
    print(f"{NOT_PRIVATE}\n\nItems released, mean of {arguments.trials} trials")
    bounds = "".join(f"{bound:>8}" for bound in LIMITS)
    print(f"{'':22}{'epsilon':>8}{bounds}{'auto':>9}{'chose':>14}{'/ best':>8}{'all':>8}")
    rows: list[dict[str, Any]] = []
    for name, source, columns in data_sets():
        data = load(source, **columns)
        for budget in BUDGETS:
            sizes = {
                bound: statistics.fmean(run_fixed(data, fixed[budget, bound], number) for number in trials)
                for bound in LIMITS
            }
            looked = [run_look(data, looks[budget], number) for number in trials]
            auto, chose = statistics.fmean(one.size for one in looked), sorted({one.bound for one in looked})
            best = max(sizes.values())
            shared = max(run_fixed(data, divided[budget, bound], 0) for bound in LIMITS)
            ratio, all_of_them = auto / best, shared / best
            cells = "".join(f"{size:>8,.0f}" for size in sizes.values())
            picked = "/".join(map(str, chose))
            print(
                f"{name:22}{budget.epsilon:>8g}{cells}{auto:>9,.0f}{picked:>14}{ratio:>8.3f}{all_of_them:>8.3f}",
                flush=True,
            )
            row = {"set": name, "epsilon": budget.epsilon, "delta": budget.delta, "fixed": sizes}
            rows.append(row | {"auto": auto, "chose": chose, "ratio": ratio, "all": all_of_them})
    print(
        f"\nGeometric mean of auto over best: {math.exp(statistics.fmean(math.log(row['ratio']) for row in rows)):.4f}"
    )
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"warning": NOT_PRIVATE, "sets": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
