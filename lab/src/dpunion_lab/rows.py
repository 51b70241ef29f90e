"""The papers' evaluation as settings: which algorithm runs with which numbers for which table and figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dpunion.algorithms import (
    Algorithm,
    Calibration,
    CountGaussian,
    CountLaplace,
    DpSips,
    Funnel,
    PolicyGaussian,
    PolicyLaplace,
    WeightedGaussian,
    WeightedLaplace,
)
from dpunion.budget import Budget
from dpunion_lab.study import Greedy, L1DescentL2Budget, ResearchPolicy
from dpunion_lab.trials import Setting

EPSILON, DELTA = 3.0, math.exp(-10.0)
ITEMS = 100
ICML_MARGIN, JPC_MARGIN, PASSES_MARGIN = 5.0, 3.0, 2.0
PUBLISHED = Calibration.PUBLISHED

Make = Callable[[int, float], Algorithm | ResearchPolicy]
"""From items per user and cutoff margin to an algorithm; one without a cutoff ignores the margin."""


@dataclass(frozen=True, slots=True)
class Row:
    """An algorithm of the evaluation. printed: what the papers' tables call it here, if they have it.

    margin: the cutoff margin it keeps where the papers' policies vary theirs; None where it follows them.
    """

    name: str
    make: Make
    printed: str = ""
    has_margin: bool = False
    margin: float | None = None

    def setting(self, items: int, margin: float = ICML_MARGIN, epsilon: float = EPSILON) -> Setting:
        """Return the setting with these parameters."""
        return Setting(self.make(items, margin if self.margin is None else self.margin), Budget(epsilon, DELTA))

    def with_margin(self, margin: float) -> Setting:
        """Return the setting with this very margin, for the study of it."""
        return Setting(self.make(FUNNEL_ITEMS if self is FUNNEL else ITEMS, margin), Budget(EPSILON, DELTA))

    def with_epsilon(self, epsilon: float) -> Setting:
        """Return the setting of the study of epsilon; Funnel keeps its own number of items."""
        return self.setting(FUNNEL_ITEMS if self is FUNNEL else ITEMS, ICML_MARGIN, epsilon)


def _count_gaussian(items: int, _margin: float) -> CountGaussian:
    return CountGaussian(max_items_per_user=items, calibration=PUBLISHED)


def _weighted_gaussian(items: int, _margin: float) -> WeightedGaussian:
    return WeightedGaussian(max_items_per_user=items, calibration=PUBLISHED)


def _policy_laplace(items: int, margin: float) -> PolicyLaplace:
    return PolicyLaplace(max_items_per_user=items, cutoff_margin=margin)


def _policy_gaussian(items: int, margin: float) -> PolicyGaussian:
    return PolicyGaussian(max_items_per_user=items, cutoff_margin=margin, calibration=PUBLISHED)


def _l1_descent(items: int, margin: float) -> L1DescentL2Budget:
    return L1DescentL2Budget(max_items_per_user=items, cutoff_margin=margin)


L1 = "l1-descent-l2-budget (NOT PRIVATE)"
ROWS = (
    Row("count-laplace", lambda n, _: CountLaplace(max_items_per_user=n), "count-laplace"),
    Row("count-gaussian", _count_gaussian, "count-gaussian"),
    Row("weighted-laplace", lambda n, _: WeightedLaplace(max_items_per_user=n), "weighted-laplace"),
    Row("weighted-gaussian", _weighted_gaussian, "weighted-gaussian"),
    Row("policy-laplace", _policy_laplace, "policy-laplace", has_margin=True),
    Row("policy-gaussian", _policy_gaussian, "policy-gaussian", has_margin=True),
    Row(L1, _l1_descent, has_margin=True),
    Row(
        "policy-gaussian, exact",
        lambda n, margin: PolicyGaussian(max_items_per_user=n, cutoff_margin=margin),
        has_margin=True,
    ),
    Row("dp-sips", lambda n, _: DpSips(max_items_per_user=n)),
    Row(
        "funnel",
        lambda n, margin: Funnel(max_items_per_user=n, cutoff_margin=margin),
        has_margin=True,
        margin=Funnel().cutoff_margin,
    ),
    Row("greedy (NOT PRIVATE)", lambda n, margin: Greedy(max_items_per_user=n, cutoff_margin=margin), has_margin=True),
)
BY_NAME = {row.name: row for row in ROWS}
FUNNEL = BY_NAME["funnel"]
FUNNEL_ITEMS = Funnel().max_items_per_user
LAPLACE, GAUSSIAN, POLICY_L1 = BY_NAME["policy-laplace"], BY_NAME["policy-gaussian"], BY_NAME[L1]
WEIGHTED = (BY_NAME["weighted-laplace"], BY_NAME["weighted-gaussian"])
COUNTS = (BY_NAME["count-laplace"], BY_NAME["count-gaussian"])


@dataclass(frozen=True, slots=True)
class Reading:
    """A row of JPC Table 2 and what it may be. printed: the row's name there; counted: the reading that we compare."""

    policy: str
    row: Row
    margin: float
    printed: str
    counted: bool = False

    @property
    def name(self) -> str:
        """Return what it is read as."""
        return f"{self.policy}, α = {self.margin:g}"

    def setting(self, items: int) -> Setting:
        """Return the setting with so many items per user."""
        return self.row.setting(items, self.margin)


READINGS = (
    Reading("Laplace", LAPLACE, 3.0, "policy-laplace", counted=True),
    Reading("l2", GAUSSIAN, 5.0, "l1-descent-l2-budget"),
    Reading("l1 (NOT PRIVATE)", POLICY_L1, 5.0, "l1-descent-l2-budget"),
    Reading("l1 (NOT PRIVATE)", POLICY_L1, 3.0, "policy-gaussian", counted=True),
    Reading("l2", GAUSSIAN, 3.0, "policy-gaussian"),
    Reading("l1 (NOT PRIVATE)", POLICY_L1, 5.0, "policy-gaussian"),
)
PASSES = {
    f"{kind.name}, {passes} pass{'es' if passes > 1 else ''}": (kind, passes)
    for kind in (PolicyLaplace, PolicyGaussian)
    for passes in (1, 2)
}


def passes_setting(name: str, items: int) -> Setting:
    """Return a setting of the table of one and two passes."""
    kind, passes = PASSES[name]
    algorithm = kind(max_items_per_user=items, cutoff_margin=PASSES_MARGIN, passes=passes, calibration=PUBLISHED)
    return Setting(algorithm, Budget(EPSILON, DELTA))


def all_settings(limits: Sequence[int], epsilons: Sequence[float], margins: Sequence[float]) -> list[Setting]:
    """Return every setting of the evaluation of words, each once."""
    found = [row.setting(limit) for limit in limits for row in ROWS]
    found += [reading.setting(limit) for limit in limits for reading in READINGS]
    found += [passes_setting(name, limit) for limit in limits for name in PASSES]
    found += [row.setting(ITEMS) for row in ROWS] + [FUNNEL.setting(FUNNEL_ITEMS)]
    found += [row.with_epsilon(epsilon) for epsilon in epsilons for row in ROWS]
    found += [row.with_margin(margin) for margin in margins for row in ROWS if row.has_margin]
    return list(dict.fromkeys(found))
