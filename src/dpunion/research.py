"""Policies from the papers that are NOT private, for study and comparison only.

They are of another type than the algorithms: every release path refuses them, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NoReturn, assert_never

import numpy as np

from dpunion.algorithms import Bounding
from dpunion.checks import check_real, check_whole
from dpunion.contributions import Float64s, Int32s, Int64s
from dpunion.errors import NotPrivate
from dpunion.kernels.study import descend_l1_with_l2_budget, fill_greedily, fill_in_order


@dataclass(frozen=True, slots=True, kw_only=True)
class _ResearchPolicy:
    """A policy without a privacy proof; `why` says what is wrong with it."""

    name: ClassVar[str]
    why: ClassVar[str]

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
    why: ClassVar[str] = (
        "its sensitivity is unbounded (Gopi et al., ICML 2020, supplement E): one user can redirect every later one"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class L1DescentL2Budget(_ResearchPolicy):
    """The "Policy Gaussian l1" of arXiv 2002.09745, Alg. 8."""

    name: ClassVar[str] = "l1-descent-l2-budget"
    why: ClassVar[str] = (
        "it is not a contraction: the proof of arXiv 2002.09745, Prop. 5.1 is wrong, and with 90 items of one user "
        "two neighbouring histograms end 1.697 apart where 1 is claimed"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyByOwnCounts(_ResearchPolicy):
    """The "GW" of Carvalho et al. 2022: fill the user's own most frequent items first, without a limit on items."""

    name: ClassVar[str] = "gw"
    why: ClassVar[str] = (
        "its threshold (Carvalho et al. 2022) covers one newly exposed item, but several items that the user does not "
        "own can become exposed through one user"
    )


ResearchPolicy = Greedy | GreedyByOwnCounts | L1DescentL2Budget

RESEARCH_POLICIES: dict[str, type[ResearchPolicy]] = {
    kind.name: kind for kind in (Greedy, GreedyByOwnCounts, L1DescentL2Budget)
}


def refuse_research(policy: ResearchPolicy | type[ResearchPolicy]) -> NoReturn:
    """Raise the refusal that every release path gives."""
    raise NotPrivate(
        f"{policy.name} cannot be released: {policy.why}.",
        "Use it for study only, and choose one of dpunion's algorithms, for example PolicyGaussian().",
    )


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
