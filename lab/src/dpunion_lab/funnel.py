"""Study Funnel: one run round by round, and how far an all-knowing allocation of weight would get.

The allocation sees the true sets, distributes each person's unit of weight (in l2 norm) freely, and adds no noise: an
item counts when its weights add up to the threshold. No private algorithm can reach that many, and the search for the
best allocation is heuristic. NOT PRIVATE: for study on public or generated data.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dpunion.algorithms import Algorithm, Funnel
from dpunion.budget import Budget
from dpunion.contributions import Bools, Float64s
from dpunion.mechanisms import State, mechanism_for
from dpunion.plans import Plan, plan_release
from dpunion.report.tables import Cell, Table
from dpunion.requests import Progress
from dpunion.sets.narrowing import Sets
from dpunion_lab.data import NOT_PRIVATE, LabData, load
from dpunion_lab.trials import Setting, bound_again, plan_setting, run_all, trial_key

WIDTH = 30


@dataclass(frozen=True, slots=True)
class RoundSeen:
    """One round: its items, how many passed and were dropped, and the share of weight that went to released items."""

    number: int
    items: int
    passed: int
    dropped: int
    to_released: float

    @property
    def going_on(self) -> int:
        """Return how many items continue."""
        return self.items - self.passed - self.dropped


@dataclass(frozen=True, slots=True)
class RoundsSeen:
    """All rounds of one run."""

    data: dict[str, Any]
    plan: Plan
    rounds: tuple[RoundSeen, ...]

    @property
    def released(self) -> int:
        """Return how many items were released."""
        return sum(one.passed for one in self.rounds)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain values."""
        rounds = [asdict(one) | {"going_on": one.going_on} for one in self.rounds]
        values = {"warning": NOT_PRIVATE, "data": self.data, "plan": self.plan.to_dict()}
        return values | {"rounds": rounds, "released": self.released}

    def table(self) -> Table:
        """Return the rounds as a table, with a bar for the weight that went to released items."""
        rows = tuple(
            (
                str(one.number),
                one.items,
                one.passed,
                one.dropped,
                one.going_on,
                f"{one.to_released:.0%}",
                weight_bar(one),
            )
            for one in self.rounds
        )
        note = (
            f"{self.released:,} items came out. Weight: the part of what people gave in the round that went to items "
            "which came out in it or later; the rest went to items that were dropped."
        )
        columns = ("round", "items", "passed", "dropped", "go on", "weight", "")
        return Table(f"One run of Funnel on {self.data['name']}", columns, rows, note)


def weight_bar(one: RoundSeen) -> str:
    """Draw the share of the weight that went to released items as a bar."""
    filled = round(WIDTH * one.to_released)
    return "#" * filled + "." * (WIDTH - filled)


def watch_rounds(
    source: Any, algorithm: Funnel, budget: Budget, *, progress: Progress | None = None, **reading: Any
) -> RoundsSeen:
    """Run Funnel once on data for study, with the key of the first trial, and record what each round does."""
    data, plan = load(source, progress=progress, **reading), plan_release(algorithm, budget)
    return RoundsSeen(data.facts, plan, watch_plan(data, plan))


def watch_plan(data: LabData, plan: Plan) -> tuple[RoundSeen, ...]:
    """Run the rounds of a plan as a release does, and record each one."""
    mechanism, key = mechanism_for(plan), trial_key(0)
    sets = Sets(bound_again(data.everything, mechanism.bounding, key))
    state = State.start(len(sets))
    counts: list[tuple[int, int, int]] = []
    gifts: list[Float64s] = []
    for number in range(mechanism.rounds):
        part = sets.held if number == 0 else state.alive & ~state.released
        if number:
            sets.narrow(part)
        before = int(state.released.sum())
        weights = mechanism.weigh(sets, state, number, key)
        state = mechanism.decide(weights, state, number, sets.digests, key)
        gifts.append(np.where(part, weights.values, 0.0))
        passed = int(state.released.sum()) - before
        counts.append((int(part.sum()), passed, int(part.sum()) - passed - int((state.alive & ~state.released).sum())))
    parts = [float(given[state.released].sum() / max(given.sum(), 1e-300)) for given in gifts]
    return tuple(RoundSeen(at + 1, *count, part) for at, (count, part) in enumerate(zip(counts, parts, strict=True)))


MOST_STEPS = 1000
# How fast prices rise with the shortage of weight, and which share of the short items each step gives up.
EAGERNESS = 0.5
LARGEST_CHANGE = 1.5
GIVEN_UP = 0.02


@dataclass(frozen=True, slots=True)
class ReachOfFunnel:
    """How many items an algorithm released, and how many an all-knowing allocation reaches, on one set of data."""

    data: dict[str, Any]
    plan: Plan
    released: float
    reachable: int

    @property
    def share(self) -> float:
        """Return the share of the reachable items that was released."""
        return self.released / self.reachable if self.reachable else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain values."""
        return {
            "warning": NOT_PRIVATE,
            "data": self.data,
            "plan": self.plan.to_dict(),
            "released": self.released,
            "all_knowing": self.reachable,
            "share": self.share,
        }

    def table(self) -> Table:
        """Return the numbers as a table."""
        cells: list[Cell] = [self.data["name"], self.plan.algorithm.name, self.released, self.reachable]
        heads = ("data", "algorithm", "released", "all-knowing", "share")
        return Table(
            "What an all-knowing allocation brings to the same threshold", heads, ((*cells, f"{self.share:.2f}"),)
        )


def measure_reach(
    source: Any,
    algorithm: Algorithm,
    budget: Budget,
    *,
    trials: int = 3,
    progress: Progress | None = None,
    **reading: Any,
) -> ReachOfFunnel:
    """Run an algorithm on data for study, and search for what an all-knowing allocation brings to its threshold."""
    data, setting = load(source, progress=progress, **reading), Setting(algorithm, budget)
    plan = plan_setting(setting)
    sizes = [trial.size for trial in run_all(data, {setting: plan}, trials=trials, jobs=1)]
    return ReachOfFunnel(data.facts, plan, statistics.fmean(sizes), all_knowing_size(data, plan.threshold))


def all_knowing_size(data: LabData, threshold: float) -> int:
    """Return how many items the search brings to the threshold together."""
    return int(find_reachable(data, threshold).sum())


def find_reachable(data: LabData, threshold: float) -> Bools:
    """Search for items that everybody's units of weight bring to the threshold together: bool[items].

    Every person gives weight in proportion to prices. Prices rise for items that are short of weight. Each step gives
    up the short items that get the least weight for their price.
    """
    wanted = data.holders >= threshold
    prices = np.ones(len(wanted))
    offsets, items = data.everything.offsets, data.everything.items
    owners = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))
    for _ in range(MOST_STEPS):
        kept = wanted[items]
        owners, items = owners[kept], items[kept]
        weights = weigh(owners, items, prices, len(offsets) - 1)
        short = np.flatnonzero(wanted & (weights < threshold))
        if not len(short):
            return wanted
        count = max(1, int(GIVEN_UP * len(short)))
        wanted[short[np.argpartition(weights[short] / prices[short], count - 1)[:count]]] = False
        change = (threshold / np.maximum(weights, 1e-9)) ** EAGERNESS
        prices *= np.clip(change, 1.0 / LARGEST_CHANGE, LARGEST_CHANGE)
    wanted[short] = False
    return wanted


def weigh(owners: Any, items: Any, prices: Float64s, people: int) -> Float64s:
    """Return the weight of each item when everybody distributes a unit in proportion to prices: float64[items]."""
    offered = prices[items]
    norms = np.sqrt(np.bincount(owners, offered * offered, minlength=people))
    return np.asarray(np.bincount(items, offered / norms[owners], minlength=len(prices)), np.float64)
