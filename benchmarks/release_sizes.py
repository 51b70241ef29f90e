"""How much each algorithm releases from every data set there is; `dpunion lab reproduce` has the papers' tables.

    python benchmarks/release_sizes.py
    python benchmarks/release_sizes.py --trials 5 --json sizes.json

The AskReddit-like set is generated; the bundled sample is in the package; the larger real sets are read from the
folder that DPUNION_DATA names, and left out when it is unset. Everything printed here is about public data: none of
it would be private to print about people's.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import dpunion
from dpunion.budget import Budget
from dpunion.plans.look import plan_look
from dpunion.samples import debian_depends
from dpunion_lab.comparison import Comparison, ceilings_of
from dpunion_lab.data import NOT_PRIVATE, load
from dpunion_lab.generators import AskRedditLike
from dpunion_lab.trials import Setting, plan_all, run_all, run_look

BUDGETS = (Budget(3.0, math.exp(-10)), Budget(1.0, 1e-5))
REFERENCE = "policy-gaussian (published)"
DEFAULT = "funnel, items per person by a look"
COMPARED = {
    "count-gaussian": dpunion.CountGaussian(),
    "weighted-laplace": dpunion.WeightedLaplace(),
    "weighted-gaussian": dpunion.WeightedGaussian(),
    "policy-laplace": dpunion.PolicyLaplace(),
    REFERENCE: dpunion.PolicyGaussian(calibration="published"),
    "policy-gaussian": dpunion.PolicyGaussian(),
    "dp-sips": dpunion.DpSips(),
    "funnel": dpunion.Funnel(),
}


def data_sets() -> Iterator[tuple[str, Any, dict[str, str]]]:
    """Yield name, source and columns of the generated set, the bundled sample and what DPUNION_DATA holds."""
    yield "askreddit-like", AskRedditLike(), {}
    yield "debian_depends", debian_depends(), {"user": "user", "item": "item"}
    for path in sorted(Path(os.environ.get("DPUNION_DATA", "/nonexistent")).glob("*.parquet")):
        if path.stem != "debian_depends":
            column = "text" if "text" in pq.read_schema(path).names else "item"
            yield path.stem, path, {"user": "user", column: column}


def rows_of(name: str, result: Comparison, autos: dict[Budget, float]) -> Iterator[dict[str, Any]]:
    """Print the sizes with their ratios to the published Policy Gaussian, to DP-SIPS and to the ceiling; yield them."""
    for budget in BUDGETS:
        most = result.ceilings[budget.epsilon, budget.delta]
        print(f"\n{name}, epsilon {budget.epsilon:g}, delta {budget.delta:.3g}; no algorithm can exceed {most:,.0f}")
        sizes = {
            label: statistics.fmean(trial.size for trial in result.of(Setting(algorithm, budget)))
            for label, algorithm in COMPARED.items()
        }
        sizes[DEFAULT] = autos[budget]
        for label, size in sizes.items():
            ratios = f"{size / sizes[REFERENCE]:>8.2f}x{size / sizes['dp-sips']:>8.2f}x{size / most:>8.1%}"
            print(f"  {label:36}{size:>9,.0f}{ratios}", flush=True)
            row = {"set": name, "epsilon": budget.epsilon, "delta": budget.delta, "algorithm": label}
            yield row | {"size": size, "ceiling": most}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=3, help="runs to average")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    plans = plan_all([Setting(algorithm, budget) for budget in BUDGETS for algorithm in COMPARED.values()])
    looks = {budget: plan_look(budget, None, {}) for budget in BUDGETS}
    print(f"{NOT_PRIVATE}\n\nItems released, mean of {arguments.trials} trials; against published Policy Gaussian,")
    print("against DP-SIPS, and the part of the ceiling")
    rows: list[dict[str, Any]] = []
    for name, source, columns in data_sets():
        data = load(source, **columns)
        trials = run_all(data, plans, trials=arguments.trials, jobs=2)
        autos = {
            budget: statistics.fmean(run_look(data, plan, number).size for number in range(arguments.trials))
            for budget, plan in looks.items()
        }
        rows += rows_of(name, Comparison(data.facts, tuple(trials), ceilings_of(data, list(plans))), autos)
    if "DPUNION_DATA" not in os.environ:
        print("\nDPUNION_DATA is not set: the larger real sets were left out.", file=sys.stderr)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"warning": NOT_PRIVATE, "sets": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
