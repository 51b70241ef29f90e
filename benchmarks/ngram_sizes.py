"""How many n-grams of each length come out: DPNE as published, its parts improved one by one, and plain set union.

    DPUNION_DATA=... python benchmarks/ngram_sizes.py
    DPUNION_DATA=... python benchmarks/ngram_sizes.py --set ubuntu_irc --runs 3 --json results.json

The first block releases lengths 1 to 3 within one budget. The second releases the n-grams of one length as items,
each length with the whole budget to itself: what the first block does with one budget takes three there. Sizes are
means over runs with fresh keys, spurious n-grams included (their expected number is beside). Everything printed here is
about public data: none of it would be private to print about people's.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dpunion.algorithms import Funnel, PolicyGaussian, WeightedGaussian
from dpunion.budget import Budget
from dpunion.engines.local import run_rounds
from dpunion.engines.local.engine import texts_of
from dpunion.engines.local.texts import LocalTexts
from dpunion.mechanisms import mechanism_for
from dpunion.ngrams.lengths import select_ngrams
from dpunion.plans import plan_release
from dpunion.plans.ngrams import LengthResult, NgramPlan, Ngrams, plan_ngrams
from dpunion.randomness import RunKey
from dpunion.sets.encoding import Normalization
from dpunion.sets.streams import TokenStream, encode_ngrams, read_tokens
from dpunion.text.splitting import Splitting

E10 = math.exp(-10)


def compared(longest: int) -> Iterator[tuple[str, Ngrams]]:
    """Yield the settings compared: from the published algorithm to the default, one change at a time."""
    weighted, policy = WeightedGaussian(), PolicyGaussian()
    published = WeightedGaussian(calibration="published")
    yield "DPNE as published", Ngrams(longest=longest, first=published, later=(published,))
    yield "+ exact composition", Ngrams(longest=longest, first=weighted, later=(weighted,))
    yield "+ policy at length 1", Ngrams(longest=longest, first=policy, later=(weighted,))
    yield "+ policy everywhere", Ngrams(longest=longest, first=policy, later=(policy,))
    yield "+ funnel at length 1", Ngrams(longest=longest, later=(policy,))
    yield "funnel everywhere (default)", Ngrams(longest=longest)
    yield "default, shares 1:2:4", Ngrams(longest=longest, share_ratio=2.0)
    yield "default, shares 4:2:1", Ngrams(longest=longest, share_ratio=0.5)


def batches(path: Path) -> Iterator[tuple[Any, Any]]:
    """Yield the users and texts of a data set."""
    for batch in pq.ParquetFile(path).iter_batches(columns=["user", "text"]):
        yield batch["user"], batch["text"]


def together(path: Path, budget: Budget, longest: int, runs: int) -> list[dict[str, Any]]:
    """Release all lengths within one budget, by every setting."""
    rows = []
    keys = [RunKey.fresh() for _ in range(runs)]
    streams = [read_tokens(batches(path), key, Splitting(), Normalization.NFC) for key in keys]
    for name, settings in compared(longest):
        plan = plan_ngrams(settings, budget)
        before = time.perf_counter()
        made = [results_of(plan, stream, key) for stream, key in zip(streams, keys, strict=True)]
        seconds = (time.perf_counter() - before) / runs
        sizes = [statistics.fmean(one[k].released for one in made) for k in range(longest)]
        spurious = [statistics.fmean(one[k].spurious for one in made) for k in range(longest)]
        rows.append({"method": name, "sizes": sizes, "spurious": spurious, "seconds": seconds})
        shown = "".join(f"{size:>10,.0f}" for size in sizes)
        print(
            f"  {name:32}{shown}   spurious{''.join(f'{s:>6.0f}' for s in spurious[1:])}{seconds:>7.1f} s", flush=True
        )
    return rows


def results_of(plan: NgramPlan, stream: TokenStream, key: RunKey) -> tuple[LengthResult, ...]:
    """Release length by length; return what is known about each length."""
    return select_ngrams(plan, LocalTexts(stream, key), key, lambda _: None)[2]


def alone(path: Path, budget: Budget, longest: int, runs: int) -> list[dict[str, Any]]:
    """Release the n-grams of each length as items, each with the whole budget; and all lengths as one set."""
    rows = []
    for algorithm in (PolicyGaussian(), PolicyGaussian(max_items_per_user=300), Funnel()):
        plan = plan_release(algorithm, budget)
        sizes = [
            statistics.fmean(len(union(path, plan, length, length)) for _ in range(runs))
            for length in range(1, longest + 1)
        ]
        name = f"set union, {algorithm.name} {algorithm.max_items_per_user}"
        rows.append({"method": name, "sizes": sizes})
        print(f"  {name:32}{''.join(f'{size:>10,.0f}' for size in sizes)}", flush=True)
    one_set = union(path, plan_release(Funnel(), budget), 1, longest)
    sizes = [float(sum(text.count(" ") == k for text in one_set)) for k in range(longest)]
    rows.append({"method": "one set of all lengths, funnel 300", "sizes": sizes})
    print(f"  {'one set of all lengths, funnel':32}{''.join(f'{size:>10,.0f}' for size in sizes)}", flush=True)
    return rows


def union(path: Path, plan: Any, shortest: int, longest: int) -> tuple[str, ...]:
    """Release the n-grams of these lengths as one set of items."""
    key = RunKey.fresh()
    items = encode_ngrams(
        batches(path),
        key,
        shortest=shortest,
        longest=longest,
        max_items_per_user=plan.algorithm.max_items_per_user,
        user_order=plan.algorithm.user_order,
        splitting=Splitting(),
    )
    return texts_of(items.table, run_rounds(mechanism_for(plan), items, key))


def main() -> None:
    """Print both blocks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="imdb_reviews_50k", help="a data set with users and texts")
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--delta", type=float, default=E10)
    parser.add_argument("--longest", type=int, default=3)
    parser.add_argument("--runs", type=int, default=3, help="runs to average")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    folder = os.environ.get("DPUNION_DATA")
    if not folder:
        sys.exit("DPUNION_DATA is not set: the texts are not here.")
    path = Path(folder) / f"{arguments.set}.parquet"
    budget = Budget(arguments.epsilon, arguments.delta)
    print(f"{arguments.set}, epsilon {budget.epsilon:g}, delta {budget.delta:.3g}, mean of {arguments.runs} runs")
    print(
        f"  {'one budget for all lengths':32}" + "".join(f"{f'length {k + 1}':>10}" for k in range(arguments.longest))
    )
    rows = together(path, budget, arguments.longest, arguments.runs)
    print("  the whole budget for each length, and for all as one set")
    rows += alone(path, budget, arguments.longest, arguments.runs)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"set": arguments.set, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
