"""What a public list of candidates adds to a release with Funnel's defaults, on every data set there is.

    python benchmarks/candidates.py
    python benchmarks/candidates.py --trials 5 --only imdb --json candidates.json

Texts get the 50,000 most frequent English words (`pip install 'dpunion[words]'`), generated words the 50,000 most
likely ones of their law, and keys a catalogue: every item that somebody has and twice as many that nobody has. The gain
is items that somebody has, less the error times the length of the list, over the items that come out without a list.

Everything printed here is about public data: none of it would be private to print about people's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
from release_sizes import BUDGETS, data_sets

from dpunion.algorithms import Funnel
from dpunion.contributions import Uint64s
from dpunion.plans import plan_release
from dpunion.plans.look import plan_look
from dpunion.randomness import RunKey
from dpunion.reading.parts import ValueKind
from dpunion.requests import Candidates
from dpunion.samples import FREQUENT_WORDS
from dpunion.sets.encoding import digests_of, digests_of_list
from dpunion.text.splitting import Normalization
from dpunion_lab.data import ENCODING_KEY, NOT_PRIVATE, LabData, load
from dpunion_lab.generators import AskRedditLike
from dpunion_lab.trials import run_candidates

COLUMNS = ("today", "with_list", "gain", "unlisted_today", "unlisted_with_list", "expected", "spurious")


def list_for(source: Any, columns: dict[str, str], data: LabData) -> tuple[str, Uint64s]:
    """Return the name of the list for a data set, and its digests: uint64[n, 2]."""
    key, table = RunKey.for_tests(ENCODING_KEY), data.everything.table
    if "text" in columns:
        words = Candidates("english").read(kind=ValueKind.TEXT, normalization=Normalization.NFC_LOWER)
        return "english", digests_of_list(words.texts, key)
    if isinstance(source, AskRedditLike):
        return "likely words", digests_of([f"word{rank}" for rank in range(1, FREQUENT_WORDS + 1)], key)
    made_up = digests_of([f"nobody has this, {number}" for number in range(2 * len(table))], key)
    return "catalogue", np.concatenate([table.digests, made_up])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20, help="runs to average")
    parser.add_argument("--error", type=float, default=Candidates("english").error, help="of the candidates")
    parser.add_argument("--only", action="append", help="only sets whose names contain this; may be repeated")
    parser.add_argument("--limit", type=int, help="items per person; a look chooses it if this is not given")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    look = arguments.limit is None
    plans = {
        budget: plan_look(budget, None, {})
        if look
        else plan_release(Funnel(max_items_per_user=arguments.limit), budget)
        for budget in BUDGETS
    }
    print(f"{NOT_PRIVATE}\n\nItems released, mean of {arguments.trials} trials, error {arguments.error:g}")
    print(f"{'set':22}{'epsilon':>8} {'list':13}{'length':>9}{'today':>9}{'with':>9}{'gain':>7}", end="")
    print(f"{'unlisted':>10}{'with':>9}{'nobody has':>12}{'found':>8}")
    rows: list[dict[str, Any]] = []
    for name, source, columns in data_sets():
        if arguments.only and not any(part in name for part in arguments.only):
            continue
        data = load(source, **columns)
        label, listed = list_for(source, columns, data)
        for budget, plan in plans.items():
            runs = [run_candidates(data, plan, listed, arguments.error, number) for number in range(arguments.trials)]
            mean = {column: statistics.fmean(run[column] for run in runs) for column in COLUMNS}
            before, after, gain, plain_before, plain_after, expected, spurious = mean.values()
            print(f"{name:22}{budget.epsilon:>8g} {label:13}{len(listed):>9,}{before:>9,.0f}{after:>9,.0f}", end="")
            print(f"{gain:>7.2f}{plain_before:>10,.0f}{plain_after:>9,.0f}", end="")
            print(f"{expected:>12,.1f}{spurious:>8,.1f}", flush=True)
            row = {
                "set": name,
                "epsilon": budget.epsilon,
                "delta": budget.delta,
                "list": label,
                "limit": arguments.limit or "auto",
            }
            rows.append(row | runs[0] | mean | {"trials": arguments.trials})
    if "DPUNION_DATA" not in os.environ:
        print("\nDPUNION_DATA is not set: the larger real sets were left out.", file=sys.stderr)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"warning": NOT_PRIVATE, "sets": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
