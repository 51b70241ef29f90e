"""How good are counts? Errors and intervals by number of holders, beside equal weights with the same budget.

    DPUNION_DATA=... python benchmarks/counts.py
    DPUNION_DATA=... python benchmarks/counts.py --set imdb_reviews_50k --keys 10 --json counts.json

Every row is about whole releases with a tenth of the budget for counts, made by `dpunion.release` under test keys; the
weights are chosen by the releases themselves, privately. Equal weights count the same released list with all of that
tenth in one Gaussian release, rounded and at least 1 as dpunion's are: "30 drawn" is at most 30 random listed items of
each person, "30 lowered" all of them, with less weight for people who hold more than 30. An item is uncut when
everybody who holds it counted in full. "5+" is 5 to 14 holders, and so on. The AskReddit-like set is generated; the
larger real sets are read from the folder that DPUNION_DATA names.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from release_sizes import data_sets
from speed_data import ready

import dpunion
from dpunion.algorithms import Bounding
from dpunion.budget import Budget
from dpunion.chances import least_holders
from dpunion.contributions import Bools, Float64s, Int64s
from dpunion.counting import count_people
from dpunion.counting.holdings import UNLISTED, Holdings, holdings_of
from dpunion.counting.steps import FineStep, Step, add_noise
from dpunion.engines.local.engine import texts_of
from dpunion.plans import Plan
from dpunion.plans.counts import Counted, Counts, CountsPlan, Estimate
from dpunion.randomness import RunKey
from dpunion.releases.release import Release
from dpunion.sets.grouping import bound_further
from dpunion_lab.data import LabData, load
from dpunion_lab.generators import AskRedditLike

NOT_PRIVATE = (
    "NOT PRIVATE: a study, not a release. Estimates are compared with the true numbers of people, which say what they "
    "hold. Study public or generated data only."
)
SETS = (
    "askreddit-like",
    "imdb_reviews_50k",
    "ubuntu_irc",
    "debian_depends",
    "debian_descriptions",
    "goodbooks_to_read",
    "online_retail",
)
BUDGETS = (Budget(3.0, math.exp(-10)), Budget(1.0, 1e-6))
BANDS = (5, 15, 50, 200, 1_000, 10_000)
LIMITS = (30, 100, 300)
OURS = "dpunion"
# What the median relative error may be at most, at epsilon 3 and at epsilon 1, but for a twentieth; the part of the
# items that counts must leave at least; how far sums over items of many people may be off, and how many intervals must
# contain the truth.
HIGHEST_MEDIANS = {
    "imdb_reviews_50k": (0.258, 0.226),
    "ubuntu_irc": (0.283, 0.262),
    "debian_depends": (0.257, 0.254),
    "debian_descriptions": (0.194, 0.193),
    "goodbooks_to_read": (0.217, 0.273),
    "online_retail": (0.266, 0.234),
}
SLACK = 1.05
FEWEST_RELEASED = 0.92
COVERED = 0.93
MANY = 100
SUMS = (0.9, 1.1)
# Of fewer items nothing can be said about intervals.
ENOUGH = 30


@dataclass(frozen=True)
class Source:
    """A data set as `dpunion.release` takes it, and the same for study: the place of each text in it."""

    name: str
    given: Path
    columns: dict[str, str]
    data: LabData
    places: dict[str, int]

    def release(self, budget: Budget, key: int, *, counts: bool | Counts) -> Release:
        """Make a release under a test key."""
        order = {"sort": "item"} if counts else {}
        asked = {"epsilon": budget.epsilon, "delta": budget.delta, "counts": counts, "unsafe_test_key": key}
        return dpunion.release(self.given, **self.columns, **asked, **order)


@dataclass(frozen=True)
class Trial:
    """One release: of each item the true number of holders, every contender's, the interval, whether it is uncut.

    without: how many items are released without counts. cut: the part of the people who were cut. totals: the true
    number of all people and of those with something else, each with its estimate.
    """

    true: Int64s
    estimates: dict[str, Float64s]
    low: Int64s
    high: Int64s
    uncut: Bools
    without: int
    cut: float
    totals: tuple[tuple[int, Estimate], ...]


def open_sources(wanted: Iterable[str], folder: Path) -> Iterator[Source]:
    """Yield the data sets that are here; the generated one is written to the folder first."""
    found = {name: (given, columns) for name, given, columns in data_sets() if name in set(wanted)}
    for name in wanted:
        if name not in found:
            print(f"\n{name} is not here: DPUNION_DATA must name its folder.", file=sys.stderr)
            continue
        given, columns = found[name]
        if isinstance(given, AskRedditLike):
            given, columns = ready(folder, "small"), {"user": "user", "item": "item"}
        data = load(given, **columns)
        texts = texts_of(data.everything.table, np.arange(len(data.holders)))
        yield Source(name, given, columns, data, {text: place for place, text in enumerate(texts)})


def count_again(holdings: Holdings, size: int, plan: Plan, key: RunKey) -> tuple[Counted, FineStep, Int64s]:
    """Take the three steps of a release again; return also the last one and its sums without noise."""
    taken: list[tuple[Step, Int64s]] = []

    def measure(step: Step, stddev: float) -> Int64s:
        taken.append((step, step.add_up(holdings)))
        return add_noise(taken[-1][1], step.sensitivity, stddev, step.number, key)

    counted = count_people(plan.counts, np.full(size, least_holders(plan)), measure)
    step, sums = taken[-1]
    if not isinstance(step, FineStep):
        raise SystemExit("the last step of counting is not the one that was expected")
    return counted, step, sums


def cut_people(holdings: Holdings, step: FineStep) -> float:
    """Return the part of the people whose weights were too much."""
    # Sums of all people may overflow; the difference, of one person's squares, is right all the same.
    squares = np.cumsum(np.append(0, step.weights[holdings.items] ** 2))
    return float(np.mean(np.diff(squares[holdings.offsets]) > step.room))


def weigh_equally(
    source: Source, listed: Int64s, holdings: Holdings, plan: CountsPlan, key: int
) -> dict[str, Float64s]:
    """Return counts of the list by equal weights with the same budget, for each limit.

    People with more listed items than the limit give it to that many, drawn at random, as other libraries do; or, what
    is better, less to all of them.
    """
    data, stddev = source.data, 1.0 / math.sqrt(sum(one**-2 for one in plan.stddevs))
    unlisted = np.ones(len(data.holders), np.bool_)
    unlisted[listed] = False
    sizes = np.diff(holdings.offsets)
    found = {}
    for limit in LIMITS:
        kept = bound_further(data.everything, Bounding(limit), RunKey.for_tests(key), unlisted)
        drawn = np.bincount(kept.items, minlength=len(data.holders))[listed]
        parts = np.repeat(np.sqrt(np.minimum(1.0, limit / np.maximum(sizes, 1))), sizes)
        lowered = np.bincount(holdings.items, parts, len(listed))
        noise = np.random.default_rng((key, limit)).normal(0.0, stddev * math.sqrt(limit), len(listed))
        for name, sums in ((f"equal, {limit} drawn", drawn), (f"equal, {limit} lowered", lowered)):
            found[name] = np.maximum(1.0, np.rint(sums + noise))
    return found


def run_trial(source: Source, budget: Budget, key: int) -> Trial:
    """Release with counts and without, and count the list by equal weights."""
    made = source.release(budget, key, counts=True)
    plan, beside = made.plan.counts, {one.name: np.array(one.values) for one in made.numbers}
    if plan is None or made.totals is None:
        raise SystemExit("a release with counts has no counts")
    data, listed = source.data, np.array([source.places[text] for text in made.items])
    numbers = np.full(len(data.holders), UNLISTED, np.int32)
    numbers[listed] = np.arange(len(listed))
    holdings = holdings_of(data.everything, numbers, RunKey.for_tests(key))
    counted, step, sums = count_again(holdings, len(listed), made.plan, RunKey.for_tests(key))
    if counted.people != tuple(beside["people"].tolist()):
        raise SystemExit(f"{source.name}: the steps taken again give other counts than the release")
    true = data.holders[listed]
    people = int(np.count_nonzero(holdings.anything)), int(np.count_nonzero(holdings.others))
    return Trial(
        true=true,
        estimates={
            OURS: beside["people"].astype(np.float64),
            **weigh_equally(source, listed, holdings, plan, key),
        },
        low=beside["low"],
        high=beside["high"],
        uncut=sums[:-2] == step.weights * true,
        without=len(source.release(budget, key, counts=False)),
        cut=cut_people(holdings, step),
        totals=tuple(zip(people, (made.totals.everybody, made.totals.others), strict=True)),
    )


def sum_ratio(trial: Trial) -> float:
    """Return the sum of the estimates over that of the true numbers, of the items that many people have."""
    many = trial.true >= MANY
    return float(trial.estimates[OURS][many].sum() / max(1, trial.true[many].sum()))


def by_band(true: Int64s, values: Float64s | Bools) -> list[float | None]:
    """Return the mean of the values in each band of true numbers of holders, None where there are none."""
    bands = np.searchsorted(BANDS, true, side="right")
    return [float(values[bands == band].mean()) if (bands == band).any() else None for band in range(1, len(BANDS) + 1)]


def sum_up(name: str, budget: Budget, trials: list[Trial]) -> dict[str, Any]:
    """Return the figures of all trials together, as plain values."""
    true = np.concatenate([one.true for one in trials])
    low, high, uncut = (np.concatenate([getattr(one, field) for one in trials]) for field in ("low", "high", "uncut"))
    within = (low <= true) & (true <= high)
    contenders = {}
    for who in trials[0].estimates:
        errors = np.concatenate([one.estimates[who] for one in trials]) - true
        medians = [float(np.median(np.abs(one.estimates[who] / one.true - 1.0))) for one in trials]
        squares = by_band(true, errors**2)
        contenders[who] = {
            "root_mean_square": [None if one is None else math.sqrt(one) for one in squares],
            "bias": by_band(true, errors),
            "median_relative": float(np.mean(medians)),
            "median_relative_by_key": medians,
        }
    sizes, without = [len(one.true) for one in trials], [one.without for one in trials]
    totals = [[(right, estimate) for right, estimate in one.totals] for one in trials]
    return {
        "set": name,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "keys": len(trials),
        "released": float(np.mean(sizes)),
        "released_without_counts": float(np.mean(without)),
        "ratio": sum(sizes) / sum(without),
        "people_cut": float(np.mean([one.cut for one in trials])),
        "sum_ratios": [sum_ratio(one) for one in trials],
        "bands": list(BANDS),
        "items": np.histogram(true, [*BANDS, np.inf])[0].tolist(),
        "items_uncut": np.histogram(true[uncut], [*BANDS, np.inf])[0].tolist(),
        "contenders": contenders,
        "covered": by_band(true, within),
        "covered_uncut": by_band(true[uncut], within[uncut]),
        "totals": [
            [{"people": right, "estimate": estimate.to_dict()} for right, estimate in pairs] for pairs in totals
        ],
    }


def show(row: dict[str, Any]) -> None:
    """Print the figures of one set and budget."""
    print(
        f"\n{row['set']}, epsilon {row['epsilon']:g}, delta {row['delta']:.3g}: {row['released']:,.0f} items,", end=" "
    )
    print(f"{row['ratio']:.1%} of those without counts; {row['people_cut']:.1%} of the people cut")
    print(f"  {'':28}" + "".join(f"{f'{least:,}+':>10}" for least in BANDS) + f"{'median relative':>18}")
    print(line("items of all keys", row["items"], "{:,}"))
    for who, figures in row["contenders"].items():
        print(line(f"error, {who}", figures["root_mean_square"], "{:,.0f}") + f"{figures['median_relative']:>18.3f}")
    for who, figures in row["contenders"].items():
        print(line(f"bias, {who}", figures["bias"], "{:+,.1f}"))
    print(line("in the interval, all", row["covered"], "{:.1%}"))
    print(line("in the interval, uncut", row["covered_uncut"], "{:.1%}"))
    print(line("uncut items of all keys", row["items_uncut"], "{:,}"))
    for place, what in enumerate(("all people", "people with something else")):
        pairs = [one[place] for one in row["totals"]]
        inside = sum(one["estimate"]["low"] <= one["people"] <= one["estimate"]["high"] for one in pairs)
        right, found = (np.mean([one["people"] for one in side]) for side in (pairs, [p["estimate"] for p in pairs]))
        print(f"  {what:28}{right:>10,.0f} estimated {found:,.0f}; in the interval {inside} of {len(pairs)} times")
    sys.stdout.flush()


def line(name: str, values: list[Any], shape: str) -> str:
    """Return one line of the table."""
    return f"  {name:28}" + "".join(f"{'-' if value is None else shape.format(value):>10}" for value in values)


def too_few(covered: float, count: int) -> bool:
    """Say whether fewer intervals than promised contain the truth, by more than two standard errors."""
    return covered < COVERED - 2.0 * math.sqrt(COVERED * (1.0 - COVERED) / count)


def show_covered(rows: list[dict[str, Any]]) -> None:
    """Print how many items of all sets and budgets together lie in their intervals."""
    print("\nall sets and budgets together")
    for name, part, size in (("all", "covered", "items"), ("uncut", "covered_uncut", "items_uncut")):
        counts = np.array([row[size] for row in rows])
        inside = np.array([[value or 0.0 for value in row[part]] for row in rows]) * counts
        whole = counts.sum(axis=0)
        parts = [within / count if count else None for within, count in zip(inside.sum(axis=0), whole, strict=True)]
        print(line(f"{name} items", whole.tolist(), "{:,}"))
        print(line(f"in the interval, {name}", parts, "{:.1%}"))


def judge(rows: list[dict[str, Any]]) -> None:
    """Print whether the figures are what is promised."""
    print()
    for row in rows:
        medians = {who: figures["median_relative"] for who, figures in row["contenders"].items()}
        best = min((value, who) for who, value in medians.items() if who != OURS)
        said = f"median {medians[OURS]:.3f}, best equal weights {best[0]:.3f} ({best[1]})"
        wrong = [] if medians[OURS] < best[0] else ["the median is not the lowest"]
        highest = SLACK * HIGHEST_MEDIANS.get(row["set"], (math.inf, math.inf))[int(row["epsilon"] == 1.0)]
        if medians[OURS] > highest:
            wrong.append(f"the median is above {highest:.3f}")
        least, most = min(row["sum_ratios"]), max(row["sum_ratios"])
        said += f", sums {least:.2f} to {most:.2f} of the true ones"
        if not SUMS[0] <= least <= most <= SUMS[1]:
            wrong.append("a sum is off")
        if row["ratio"] < FEWEST_RELEASED:
            wrong.append(f"fewer than {FEWEST_RELEASED:.0%} of the items")
        wrong += [
            f"{covered:.1%} of {count:,} items of {least:,}+ in the interval"
            for least, covered, count in zip(BANDS, row["covered"], row["items"], strict=True)
            if count >= ENOUGH and too_few(covered, count)
        ]
        print(
            f"{row['set']}, epsilon {row['epsilon']:g}: {said}; {'NOT AS PROMISED: ' if wrong else 'as promised'}",
            end="",
        )
        print("; ".join(wrong))


def save(path: Path | None, rows: list[dict[str, Any]]) -> None:
    """Write the numbers so far, when that is asked for."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"warning": NOT_PRIVATE, "sets": rows}, indent=1) + "\n")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", action="append", choices=SETS, help="only these sets")
    parser.add_argument("--keys", type=int, default=5, help="releases to take together, each under its own test key")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "dpunion-benchmark")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    print(
        f"{NOT_PRIVATE}\n\nA tenth of the budget for counts, {arguments.keys} test keys; root mean square error, bias"
    )
    print(
        "and part of the items in their 95 % intervals, by true number of holders; median relative error of all items"
    )
    rows: list[dict[str, Any]] = []
    for source in open_sources(arguments.set or SETS, arguments.folder):
        for budget in BUDGETS:
            trials = [run_trial(source, budget, key) for key in range(1, arguments.keys + 1)]
            rows.append(sum_up(source.name, budget, trials))
            show(rows[-1])
            save(arguments.json, rows)
    show_covered(rows)
    judge(rows)
    if "DPUNION_DATA" not in os.environ:
        print("\nDPUNION_DATA is not set: the larger real sets were left out.", file=sys.stderr)


if __name__ == "__main__":
    main()
