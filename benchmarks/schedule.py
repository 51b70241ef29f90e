"""A job of 12 and of 52 weeks in a generated world: how many items each plan of one budget has released, week by week.

    python benchmarks/schedule.py
    python benchmarks/schedule.py --weeks 12 --json schedule.json

Three plans spend the same total:
    each week alone    every week one release from that week's rows, an even split; the list is the union of all
    even split         every week one release from all rows so far, without what was released before; an even split
    schedule           `dpunion ledger open --schedule`: weeks 1, 2, 4, 8, ... and the last, from all rows so far

The world: 100,000 people, each with an activity of their own (log-normal, as the sets of AskRedditLike), who use words
every week; words are drawn as in AskRedditLike. After twelve weeks people have used about as many words as there.
Each release runs the shipped code under a test key, with the plan of its share of a tight account; the two plans with
an even split use the novelty share of accounts without a schedule. Everything printed is about generated people.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dpunion.budget import Budget
from dpunion.contributions import Int64s
from dpunion.engines import engine_for
from dpunion.engines.publishing import Outputs
from dpunion.ledger import Amounts, Composition, Schedule
from dpunion.ledger.accounts import account_caps
from dpunion.ledger.schedules import NOVELTY_SHARE, share_of
from dpunion.pipeline import fulfil
from dpunion.plans.look import plan_share
from dpunion.randomness import RunKey
from dpunion.requests import Known, Request, Run
from dpunion_lab.generators import cumulate_odds, ranks_at

BUDGETS = (Budget(3.0, math.exp(-10)), Budget(1.0, 1e-5))
PEOPLE, ITEMS, KNEE = 100_000, 400_000, 3_000
DRAWS = 1.4 / 12.0
"""Words that a person draws in a week, relative to the person's activity."""


class World:
    """Rows of people by week, as numbers of pairs: user * (ITEMS + 1) + item."""

    def __init__(self, people: int, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.activity = np.exp(self._random.normal(2.94, 1.2, people)).clip(1.0, 2_000.0)
        ranks = np.arange(1, ITEMS + 1)
        self._cumulative = cumulate_odds(np.where(ranks < KNEE, 1.0 / ranks, (ranks / KNEE) ** -1.75 / KNEE))

    def weeks(self, count: int) -> Iterator[Int64s]:
        """Yield the distinct pairs of each week."""
        for _ in range(count):
            draws = self._random.poisson(self.activity * DRAWS)
            users = np.repeat(np.arange(len(draws)), draws)
            items = ranks_at(self._cumulative, self._random.random(len(users)))
            yield np.unique(users * (ITEMS + 1) + items)


def release(pairs: Int64s, share: Amounts, whole: Budget, known: set[str], number: int) -> set[str]:
    """Make the release of these rows that is charged this share, without what is known."""
    table = pa.table({"user": pairs // (ITEMS + 1), "item": pairs % (ITEMS + 1)})
    planned = plan_share(share_of(share), whole)
    request = Request.of(table, user="user", item="item", known=Known(sorted(known)) if known else None)
    outputs, run = Outputs.of((), overwrite=False, counts=False), Run()
    engine = engine_for(request, run, None)
    return set(fulfil(planned, request, engine, outputs, None, run, RunKey.for_tests(number)).items)


def simulate(budget: Budget, weeks: int, seed: int, people: int) -> dict[str, list[int]]:
    """Return how many items each plan has released by the end of each week."""
    plain = account_caps(budget.epsilon, budget.delta, Composition.TIGHT)
    even = Amounts(mu_squared=plain.mu_squared // weeks, novelty=plain.novelty // weeks)
    caps = account_caps(budget.epsilon, budget.delta, Composition.TIGHT, NOVELTY_SHARE)
    calendar = Schedule(weeks)
    shares = dict(zip(calendar.releases, calendar.shares(caps), strict=True))
    lists: dict[str, set[str]] = {"each week alone": set(), "even split": set(), "schedule": set()}
    sizes: dict[str, list[int]] = {name: [] for name in lists}
    so_far = np.empty(0, np.int64)
    for week, pairs in enumerate(World(people, seed).weeks(weeks), 1):
        so_far = np.union1d(so_far, pairs)
        lists["each week alone"] |= release(pairs, even, budget, set(), 3 * week)
        lists["even split"] |= release(so_far, even, budget, lists["even split"], 3 * week + 1)
        if week in shares:
            lists["schedule"] |= release(so_far, shares[week], budget, lists["schedule"], 3 * week + 2)
        for name, found in lists.items():
            sizes[name].append(len(found))
    return sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weeks", type=int, action="append", help="how long (12 and 52)")
    parser.add_argument("--people", type=int, default=PEOPLE)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the numbers here")
    given = parser.parse_args()
    results: list[dict[str, Any]] = []
    for weeks in given.weeks or (12, 52):
        for budget in BUDGETS:
            began = time.monotonic()
            sizes = simulate(budget, weeks, given.seed, given.people)
            shown = Schedule(weeks).releases
            print(f"\n{weeks} weeks, {given.people:,} people, ({budget.epsilon:g}, {budget.delta:.3g})")
            print(f"{'items after week':<18}" + "".join(f"{week:>8}" for week in shown) + f"{'mean':>9}")
            for name, found in sizes.items():
                cells = "".join(f"{found[week - 1]:>8,}" for week in shown)
                print(f"{name:<18}{cells}{np.mean(found):>9,.0f}")
            ratios = {name: sizes["schedule"][-1] / found[-1] for name, found in sizes.items() if name != "schedule"}
            print("schedule over " + ", over ".join(f"{name}: {ratio:.2f}" for name, ratio in ratios.items()))
            print(f"({time.monotonic() - began:.0f} s)", flush=True)
            results.append({"weeks": weeks, "epsilon": budget.epsilon, "delta": budget.delta, "items": sizes})
    if given.json is not None:
        given.json.write_text(
            json.dumps({"people": given.people, "seed": given.seed, "runs": results}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
