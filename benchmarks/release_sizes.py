"""How much each algorithm releases: on the papers' kind of data beside their tables, and on every data set there is.

    python benchmarks/release_sizes.py                 both tables
    python benchmarks/release_sizes.py --runs 3 --json benchmarks/results/release-sizes.json

The AskReddit-like set is generated; the bundled sample is in the package; the larger real sets are read from the
folder that DPUNION_DATA names, and left out when it is unset. Sizes are means over runs with fresh keys. Everything
printed here is about public data: none of it would be private to print about people's.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import dpunion
from dpunion.algorithms import UserOrder
from dpunion.calibration.optimal import ceiling
from dpunion.calibration.rounding import MAX_ITEMS
from dpunion.lab.generators import AskRedditLike
from dpunion.randomness import RunKey
from dpunion.samples import debian_depends
from dpunion.sources import NullUserPolicy, ValueKind, open_rows
from dpunion.sources.encoding import Normalization, encode

E10 = math.exp(-10)
BUDGETS = ((3.0, E10), (1.0, 1e-5))

# Gopi et al., arXiv 2002.09745, Table 2 (epsilon = 3, delta = e^-10, alpha = 3).
PUBLISHED = {
    ("count-gaussian", 50): 6_998,
    ("weighted-laplace", 100): 3_875,
    ("weighted-gaussian", 100): 8_904,
    ("policy-laplace", 50): 15_421,
    ("policy-gaussian", 100): 17_024,
}

REFERENCE = ("policy-gaussian", "published")
COMPARED = (
    dpunion.CountGaussian(),
    dpunion.WeightedLaplace(),
    dpunion.WeightedGaussian(),
    dpunion.PolicyLaplace(),
    dpunion.PolicyGaussian(calibration="published"),
    dpunion.PolicyGaussian(),
    dpunion.DpSips(),
    dpunion.Funnel(),
)


@dataclass(frozen=True)
class DataSet:
    """A file with a user column and items or texts."""

    name: str
    path: Path
    column: dict[str, str]


def data_sets(folder: Path) -> Iterator[DataSet]:
    """Yield the generated set, the bundled sample and what DPUNION_DATA holds."""
    generated = folder / "askreddit-like.parquet"
    AskRedditLike().write_parquet(generated)
    yield DataSet("askreddit-like", generated, {"item": "item"})
    yield DataSet("debian_depends", debian_depends(), {"item": "item"})
    for path in sorted(Path(os.environ.get("DPUNION_DATA", "/nonexistent")).glob("*.parquet")):
        if path.stem != "debian_depends":
            column = "text" if "text" in pq.read_schema(path).names else "item"
            yield DataSet(path.stem, path, {column: column})


def mean_size(data: DataSet, algorithm: Any, epsilon: float, delta: float, runs: int) -> float:
    """Return the mean number of items released."""
    return statistics.fmean(
        len(dpunion.release(data.path, user="user", **data.column, epsilon=epsilon, delta=delta, algorithm=algorithm))
        for _ in range(runs)
    )


def largest_possible(data: DataSet, epsilon: float, delta: float) -> float:
    """Return Pi(D), which no private algorithm can exceed in expectation."""
    text = "text" in data.column
    kind = ValueKind.TEXT if text else ValueKind.ITEM
    value = next(iter(data.column.values()))
    with open_rows(data.path, user="user", value=value, kind=kind, null_users=NullUserPolicy.REFUSE) as rows:
        everything = encode(
            ((batch.users, batch.values) for batch in rows),
            RunKey.fresh(),
            max_items_per_user=MAX_ITEMS,
            user_order=UserOrder.RANDOM,
            normalization=Normalization.NFC,
            split_words=text,
        )
    holders = np.bincount(everything.items, minlength=len(everything.table))
    return ceiling(epsilon, delta, holders)


def beside_the_papers(data: DataSet, runs: int) -> list[dict[str, Any]]:
    """Measure what the papers' tables report, with their constants, and what exact calibration adds."""
    rows = []
    for (name, limit), published in PUBLISHED.items():
        algorithm = dpunion.algorithms.algorithm_named(name, max_items_per_user=limit, calibration="published")
        size = mean_size(data, algorithm, 3.0, E10, runs)
        row = {"algorithm": name, "max_items": limit, "papers": published, "here": size, "ratio": size / published}
        if name.endswith("gaussian"):
            exact = dpunion.algorithms.algorithm_named(name, max_items_per_user=limit)
            row["exact"] = mean_size(data, exact, 3.0, E10, runs)
            row["gain"] = row["exact"] / size - 1.0
        rows.append(row)
        print(
            f"{name:20}{limit:>6}{published:>9,}{size:>9,.0f}{row['ratio']:>8.3f}"
            + (f"{row['exact']:>9,.0f}{row['gain']:>+8.1%}" if "exact" in row else ""),
            flush=True,
        )
    return rows


def on_every_set(data: DataSet, runs: int) -> list[dict[str, Any]]:
    """Measure every algorithm on one set, with the ratio to the published Policy Gaussian and to the ceiling."""
    rows = []
    for epsilon, delta in BUDGETS:
        most = largest_possible(data, epsilon, delta)
        sizes = [
            (algorithm.name, getattr(algorithm, "calibration", None), mean_size(data, algorithm, epsilon, delta, runs))
            for algorithm in COMPARED
        ]
        base = next(size for name, how, size in sizes if (name, how and how.value) == REFERENCE)
        sips = next(size for name, _, size in sizes if name == "dp-sips")
        print(f"\n{data.name}, epsilon {epsilon:g}, delta {delta:.3g}; no algorithm can exceed {most:,.0f}")
        for name, how, size in sizes:
            label = f"{name} (published)" if (name, how and how.value) == REFERENCE else name
            print(f"  {label:30}{size:>9,.0f}{size / base:>8.2f}x{size / sips:>8.2f}x{size / most:>8.1%}", flush=True)
            rows.append(
                {
                    "set": data.name,
                    "epsilon": epsilon,
                    "delta": delta,
                    "algorithm": label,
                    "size": size,
                    "ceiling": most,
                }
            )
    return rows


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="runs to average")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sets = list(data_sets(Path(folder)))
        print("AskReddit-like set, epsilon 3, delta e^-10: items released, mean of", arguments.runs, "runs")
        print(f"{'algorithm':20}{'items':>6}{'papers':>9}{'here':>9}{'ratio':>8}{'exact':>9}{'gain':>8}")
        papers = beside_the_papers(sets[0], arguments.runs)
        print("\nEvery set: items released, against published Policy Gaussian, against DP-SIPS, against the ceiling")
        everywhere = [row for data in sets for row in on_every_set(data, arguments.runs)]
    if len(sets) == 2:
        print("\nDPUNION_DATA is not set: the larger real sets were left out.", file=sys.stderr)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"papers": papers, "sets": everywhere}, indent=1) + "\n")


if __name__ == "__main__":
    main()
