"""Policies from the papers that are NOT private, for study and comparison only.

They are not of the type `Algorithm`, so every release path refuses them, with the reason in
`dpunion.checks.REFUSED_POLICIES`. The lab runs each one with the numbers of a similar private policy.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpunion.algorithms import Bounding, Calibration, PolicyGaussian, PolicyLaplace
from dpunion.budget import Budget
from dpunion.checks import check_real, check_whole
from dpunion.contributions import Float64s, Int32s, Int64s
from dpunion.errors import BadParameter, InternalError
from dpunion.kernels.compiler import kernel
from dpunion.mechanisms import DescentMechanism, mechanism_for
from dpunion.plans import Plan, plan_release
from dpunion.sets.narrowing import Part

Update = Callable[[Int64s, Int32s, Float64s, float, float], None]
"""Users raise weights in place, in turn: (offsets int64[users+1], items int32[pairs], weights, cutoff, budget)."""


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
        """Return how to bound and order users' sets."""
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
    """Fill each user's items to the cutoff, first item first, until the l1 budget is spent (GW).

    Carvalho et al. 2022: the user's most frequent item comes first.
    Guarantees: none. It can expose items that the user does not have: docs/guarantees.md, "Errata".
    """
    for user in range(len(offsets) - 1):
        left = budget
        for i in range(offsets[user], offsets[user + 1]):
            given = min(max(0.0, cutoff - weights[items[i]]), left)
            weights[items[i]] += given
            left -= given
            if left <= 0.0:
                break


UPDATES: dict[type[ResearchPolicy], Update] = {
    Greedy: fill_greedily,
    GreedyByOwnCounts: fill_in_order,
    L1DescentL2Budget: descend_l1_with_l2_budget,
}


def plan_study(policy: ResearchPolicy, budget: Budget) -> Plan:
    """Plan a research policy with the numbers of a similar private one, which prove nothing about it."""
    if isinstance(policy, GreedyByOwnCounts):
        raise BadParameter(
            "gw fills items in the order of how often a user has each, which sets do not show.",
            "Leave gw out; greedy is its relative on sets.",
        )
    relative = PolicyLaplace if isinstance(policy, Greedy) else PolicyGaussian
    limit, margin = policy.max_items_per_user, policy.cutoff_margin
    published = relative(max_items_per_user=limit, cutoff_margin=margin, calibration=Calibration.PUBLISHED)
    return plan_release(published, budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyMechanism(DescentMechanism):
    """The mechanism of a private policy with another update of the weights.

    Guarantees: none.
    """

    update: Update

    def visit(self, part: Part, weights: Float64s, cutoff: float, budget: float) -> None:
        """Let users raise the weights of their items, one after the other; one user may move them by any distance."""
        self.update(part.offsets, part.items, weights, cutoff, budget)


def study_mechanism(policy: ResearchPolicy, plan: Plan) -> StudyMechanism:
    """Return the mechanism of a research policy for the plan of a similar private one."""
    relative = mechanism_for(plan)
    if not isinstance(relative, DescentMechanism):
        raise InternalError("a policy that does not descend")
    fields = {field.name: getattr(relative, field.name) for field in dataclasses.fields(relative)}
    return StudyMechanism(**fields, update=UPDATES[type(policy)])
