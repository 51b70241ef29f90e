"""Policies from the papers that are NOT private, for study and comparison only.

They are of another type than the algorithms: every release path refuses them, with the reason that
`dpunion.algorithms.REFUSED_POLICIES` gives. The kernels know arrays only, as those of `dpunion.kernels` do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, assert_never

import numpy as np

from dpunion.algorithms import Bounding, check_real, check_whole
from dpunion.contributions import Float64s, Int32s, Int64s
from dpunion.kernels.compiler import kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class _ResearchPolicy:
    """A policy without a privacy proof."""

    name: ClassVar[str]

    max_items_per_user: int = 100
    cutoff_margin: float = 3.0

    def __post_init__(self) -> None:
        check_whole(self.name, "max_items_per_user", self.max_items_per_user, 1, 10_000)
        check_real(self.name, "cutoff_margin", self.cutoff_margin, 0.0, 20.0)

    @property
    def bounding(self) -> Bounding:
        """Return how users' sets are bounded and ordered."""
        return Bounding(self.max_items_per_user)


@dataclass(frozen=True, slots=True, kw_only=True)
class Greedy(_ResearchPolicy):
    """Fill the items with the smallest gap first."""

    name: ClassVar[str] = "greedy"


@dataclass(frozen=True, slots=True, kw_only=True)
class L1DescentL2Budget(_ResearchPolicy):
    """The "Policy Gaussian l1" of arXiv 2002.09745, Alg. 8."""

    name: ClassVar[str] = "l1-descent-l2-budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyByOwnCounts(_ResearchPolicy):
    """The "GW" of Carvalho et al. 2022: fill the user's own most frequent items first, without a limit on items."""

    name: ClassVar[str] = "gw"


ResearchPolicy = Greedy | GreedyByOwnCounts | L1DescentL2Budget

RESEARCH_POLICIES: dict[str, type[ResearchPolicy]] = {
    kind.name: kind for kind in (Greedy, GreedyByOwnCounts, L1DescentL2Budget)
}


def study_weights(policy: ResearchPolicy, offsets: Int64s, items: Int32s, item_count: int, cutoff: float) -> Float64s:
    """Return the weights the policy gives, for study: float64[item_count]. NOT private, noised or not.

    offsets: int64[users+1]; items: int32[pairs], user u holds items[offsets[u]:offsets[u+1]], for GW in the order in
    which they are to be filled.
    """
    weights = np.zeros(item_count)
    match policy:
        case Greedy():
            fill_greedily(offsets, items, weights, cutoff, 1.0)
        case GreedyByOwnCounts():
            fill_in_order(offsets, items, weights, cutoff, 1.0)
        case L1DescentL2Budget():
            descend_l1_with_l2_budget(offsets, items, weights, cutoff, 1.0)
        case _:
            assert_never(policy)
    return weights


@kernel
def descend_l1_with_l2_budget(offsets: Int64s, items: Int32s, weights: Float64s, cutoff: float, budget: float) -> None:
    """Raise each user's weights by a common amount with l2 norm at most `budget` (arXiv 2002.09745, Alg. 8).

    Guarantees: none. Two histograms can move apart, like sqrt(items per user): docs/guarantees.md, "Errata".
    """
    for user in range(len(offsets) - 1):
        start = offsets[user]
        size = offsets[user + 1] - start
        gaps = np.empty(size)
        squares = 0.0
        for i in range(size):
            gaps[i] = cutoff - weights[items[start + i]]
            squares += gaps[i] * gaps[i]
        if squares <= budget * budget:
            for i in range(size):
                weights[items[start + i]] = cutoff
            continue
        ordered = np.sort(gaps)
        filled = 0.0
        raise_by = 0.0
        for i in range(size):
            raise_by = math.sqrt(max(0.0, budget * budget - filled) / (size - i))
            if ordered[i] >= raise_by:
                break
            filled += ordered[i] * ordered[i]
        for i in range(size):
            weights[items[start + i]] += min(gaps[i], raise_by)


@kernel
def fill_greedily(offsets: Int64s, items: Int32s, weights: Float64s, cutoff: float, budget: float) -> None:
    """Fill each user's items to the cutoff in order of rising gap until the l1 budget is spent (ICML 2020, suppl. E).

    Guarantees: none. The sensitivity is unbounded: docs/guarantees.md, "Errata".
    """
    for user in range(len(offsets) - 1):
        start = offsets[user]
        size = offsets[user + 1] - start
        gaps = np.empty(size)
        for i in range(size):
            gaps[i] = cutoff - weights[items[start + i]]
        left = budget
        for i in np.argsort(gaps, kind="mergesort"):
            given = min(gaps[i], left)
            weights[items[start + i]] += given
            left -= given
            if left <= 0.0:
                break


@kernel
def fill_in_order(offsets: Int64s, items: Int32s, weights: Float64s, cutoff: float, budget: float) -> None:
    """Fill each user's items to the cutoff in the order in which they stand until the l1 budget is spent (GW).

    Carvalho et al. 2022: the order is that of the user's own item counts, most frequent first.
    Guarantees: none. Items the user does not own can become exposed: docs/guarantees.md, "Errata".
    """
    for user in range(len(offsets) - 1):
        left = budget
        for i in range(offsets[user], offsets[user + 1]):
            given = min(max(0.0, cutoff - weights[items[i]]), left)
            weights[items[i]] += given
            left -= given
            if left <= 0.0:
                break
