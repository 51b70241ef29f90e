"""How far Funnel could go: what an allocation that knows everything brings to the threshold, by heuristic search.

It sees the true sets, spends each person's unit of weight (in l2 norm) as it likes, and has no noise to fear: an item
counts when its weights add up to the threshold. What it finds is reachable by no private algorithm; the search may
miss more. NOT PRIVATE: for study on public or generated data.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpunion.algorithms import Algorithm
from dpunion.budget import Budget
from dpunion.contributions import Bools, Float64s
from dpunion.plans import Plan
from dpunion.report.tables import Cell, Table
from dpunion.requests import Progress
from dpunion_lab.data import LabData, load
from dpunion_lab.figures import NOT_PRIVATE
from dpunion_lab.trials import Setting, plan_setting, run_all

MOST_STEPS = 1000
# Prices follow shortage, carefully; of the items that are short, so many are given up in each step.
EAGERNESS = 0.5
LARGEST_CHANGE = 1.5
GIVEN_UP = 0.02


@dataclass(frozen=True, slots=True)
class ReachOfFunnel:
    """What an algorithm released of what an all-knowing allocation reaches, on one set of data."""

    data: dict[str, Any]
    plan: Plan
    released: float
    reachable: int

    @property
    def share(self) -> float:
        """Return the part that was reached."""
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
        """Lay the numbers out."""
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
    **asked: Any,
) -> ReachOfFunnel:
    """Run an algorithm on data for study, and search for what knowing everything would bring to its threshold."""
    data, setting = load(source, progress=progress, **asked), Setting(algorithm, budget)
    plan = plan_setting(setting)
    sizes = [trial.size for trial in run_all(data, {setting: plan}, trials=trials, jobs=1)]
    return ReachOfFunnel(data.facts, plan, statistics.fmean(sizes), all_knowing_size(data, plan.threshold))


def all_knowing_size(data: LabData, threshold: float) -> int:
    """Return how many items can be brought to the threshold together; the most that the search found."""
    return int(find_reachable(data, threshold).sum())


def find_reachable(data: LabData, threshold: float) -> Bools:
    """Search for items that everybody's units of weight bring to the threshold together: bool[items].

    Every person gives in proportion to prices; prices rise where weight is short, and of the items that are short those
    are given up first that get least for their price.
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
    """Return what each item gets when people share out a unit in proportion to prices: float64[items]."""
    offered = prices[items]
    norms = np.sqrt(np.bincount(owners, offered * offered, minlength=people))
    return np.asarray(np.bincount(items, offered / norms[owners], minlength=len(prices)), np.float64)
