"""Keys with counts by dpunion and by PipelineDP, at the same total budget on the same data, in the same run.

    DPUNION_DATA=... python benchmarks/counts_peer.py
    DPUNION_DATA=... python benchmarks/counts_peer.py --set debian_depends --both --json counts-peer.json

PipelineDP is no dependency: it is looked for in an environment of its own (--peer), and how to make one is printed when
it is not there. It is given Gaussian noise and, one after the other, limits for the partitions that a person
contributes to: choosing the best of them afterwards, as is done here, is not private and a gift to it. It keeps the
keys whose noisy counts exceed its threshold; --both also lets it select with half of the budget and count with half. A
person's items beyond the limit are dropped at random before it gets them, as it would do, which spares it time. Its
counts are rounded and at least 1, as dpunion's are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from counts import NOT_PRIVATE, SETS, Source, open_sources, save
from release_sizes import BUDGETS

from dpunion.algorithms import Bounding
from dpunion.budget import Budget
from dpunion.contributions import Float64s, Int64s
from dpunion.plans.counts import Counts
from dpunion.randomness import RunKey
from dpunion.sets.grouping import bound_again

TEST_KEY = 1
# The usual part of the budget for counts, and one for people who want fewer keys and better counts, as the peer has it.
SHARES = (0.1, 0.5)
LIMITS = {"debian_depends": (3, 5, 10, 30, 100), "imdb_reviews_50k": (10, 30, 100, 300)}
USUAL_LIMITS = (5, 10, 30, 100, 300)


def find_peer(python: Path) -> None:
    """Say how to install the peer, when it is not there, and end."""
    command = [str(python), "-c", "import pipeline_dp"]
    if not python.exists() or subprocess.run(command, check=False, capture_output=True).returncode:
        folder = python.parent.parent
        print(f"PipelineDP is not in {folder}. To install it there:", file=sys.stderr)
        sys.exit(f"    {sys.executable} -m venv {folder} && {folder}/bin/pip install pipeline-dp")


def write_pairs(source: Source, limit: int, path: Path) -> None:
    """Write the pairs of people and items, at most so many random ones of each person."""
    sets = bound_again(source.data.everything, Bounding(limit), RunKey.for_tests(TEST_KEY))
    people = np.repeat(np.arange(sets.users), np.diff(sets.offsets))
    np.save(path, np.stack([people, sets.items], axis=1).astype(np.int32))


def run_peer(python: Path, source: Source, budget: Budget, limit: int, way: str) -> tuple[Int64s, Float64s, float]:
    """Return the items that the peer releases, its counts, and its seconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.npy"
        write_pairs(source, limit, path)
        script = [str(python), str(Path(__file__).with_name("peer.py")), str(path)]
        words = [*script, repr(budget.epsilon), repr(budget.delta), str(limit), way]
        made = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)
    people = np.maximum(1.0, np.rint(np.array(made["people"], np.float64)))
    return np.array(made["items"], np.int64), people, made["seconds"]


def median_error(people: Float64s, true: Int64s) -> float | None:
    """Return the median relative error, None of nothing."""
    return float(np.median(np.abs(people / true - 1.0))) if len(true) else None


def release_ours(source: Source, budget: Budget, share: float) -> Float64s:
    """Return dpunion's counts of all items, 0 of those that are not released."""
    made = source.release(budget, TEST_KEY, counts=Counts(share=share))
    ours = np.zeros(len(source.data.holders))
    ours[[source.places[text] for text in made.items]] = list(made.people.values())
    return ours


def set_beside(ours: Float64s, items: Int64s, people: Float64s, holders: Int64s) -> dict[str, Any]:
    """Return how many of the peer's keys dpunion has too, and both median errors on these."""
    both = ours[items] > 0.0
    shared, true = items[both], holders[items[both]]
    return {"both": len(shared), "peer": median_error(people[both], true), "dpunion": median_error(ours[shared], true)}


def compare(python: Path, source: Source, budget: Budget, ways: list[str]) -> dict[str, Any]:
    """Print both side by side, for each limit of the peer; return the figures."""
    holders, counts = source.data.holders, {share: release_ours(source, budget, share) for share in SHARES}
    print(f"\n{source.name}, epsilon {budget.epsilon:g}, delta {budget.delta:.3g}")
    released = []
    for share, ours in counts.items():
        listed = ours > 0.0
        released.append({"share": share, "keys": int(listed.sum())})
        released[-1]["median_relative"] = median_error(ours[listed], holders[listed])
        print("  dpunion, {share:.0%} for counts: {keys:,} keys, median {median_relative:.3f}".format(**released[-1]))
    heads = "".join(f"{'in both':>12}{'PipelineDP':>12}{f'dpunion {share:.0%}':>14}" for share in SHARES)
    print(f"  {'PipelineDP':24}{'keys':>8}{heads}{'seconds':>9}")
    rows = []
    for limit in LIMITS.get(source.name, USUAL_LIMITS):
        for way in ways:
            items, people, seconds = run_peer(python, source, budget, limit, way)
            beside = [set_beside(ours, items, people, holders) for ours in counts.values()]
            known = {"limit": limit, "way": way, "keys": len(items), "seconds": seconds}
            rows.append(known | {"beside": [{"share": s} | one for s, one in zip(SHARES, beside, strict=True)]})
            name = f"{way}, limit {limit}"
            shown = "".join(f"{b['both']:>12,}{written(b['peer']):>12}{written(b['dpunion']):>14}" for b in beside)
            print(f"  {name:24}{len(items):>8,}{shown}{seconds:>9.0f}", flush=True)
    best = max(rows, key=lambda row: row["keys"])
    times = released[0]["keys"] / max(best["keys"], 1)
    print(f"  most keys at limit {best['limit']}: dpunion releases {times:.2f} times as many")
    asked = {"set": source.name, "epsilon": budget.epsilon, "delta": budget.delta}
    return asked | {"dpunion": released, "peer": rows}


def written(error: float | None) -> str:
    """Return an error as it is printed."""
    return "-" if error is None else f"{error:.3f}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    folder = Path(tempfile.gettempdir()) / "dpunion-benchmark"
    parser.add_argument("--set", action="append", choices=SETS, help="these sets, not debian_depends and imdb")
    parser.add_argument("--epsilon", type=float, help="only the budget with this epsilon")
    parser.add_argument("--both", action="store_true", help="let the peer select first, too")
    parser.add_argument("--peer", type=Path, default=folder / "peer" / "bin" / "python", help="its interpreter")
    parser.add_argument("--folder", type=Path, default=folder)
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    find_peer(arguments.peer)
    print(f"{NOT_PRIVATE}\n\nKeys with counts at the same total budget; median relative errors on the keys in both")
    ways = ["threshold", "select"] if arguments.both else ["threshold"]
    rows: list[dict[str, Any]] = []
    for source in open_sources(arguments.set or LIMITS, arguments.folder):
        for budget in BUDGETS:
            if arguments.epsilon in {None, budget.epsilon}:
                rows.append(compare(arguments.peer, source, budget, ways))
                save(arguments.json, rows)


if __name__ == "__main__":
    main()
