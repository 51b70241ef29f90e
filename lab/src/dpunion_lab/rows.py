"""The papers' evaluation as settings: the algorithms and parameters of each table and figure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, slots=True)
class Row:
    """An algorithm of the evaluation. printed: its row in our copy of the papers' tables, if they have one.

    published: whether it runs with the noise of the papers. margin: its own cutoff margin, or None if it uses that of
    the papers' policies.
    """

    name: str
    kind: type[Algorithm | ResearchPolicy]
    printed: str = ""
    published: bool = False
    margin: float | None = None

    @property
    def has_margin(self) -> bool:
        """Say whether the algorithm has a cutoff."""
        return "cutoff_margin" in {field.name for field in dataclasses.fields(self.kind)}

    def setting(self, items: int, margin: float = ICML_MARGIN, epsilon: float = EPSILON) -> Setting:
        """Return the setting with these parameters."""
        return self._setting(items, margin if self.margin is None else self.margin, epsilon)

    def with_margin(self, margin: float) -> Setting:
        """Return the setting with this margin, for the study of margins."""
        return self._setting(FUNNEL_ITEMS if self is FUNNEL else ITEMS, margin, EPSILON)

    def with_epsilon(self, epsilon: float) -> Setting:
        """Return the setting with this epsilon, for the study of epsilon; Funnel keeps its own number of items."""
        return self.setting(FUNNEL_ITEMS if self is FUNNEL else ITEMS, ICML_MARGIN, epsilon)

    def _setting(self, items: int, margin: float, epsilon: float) -> Setting:
        given: dict[str, Any] = {"calibration": PUBLISHED} if self.published else {}
        if self.has_margin:
            given["cutoff_margin"] = margin
        return Setting(self.kind(max_items_per_user=items, **given), Budget(epsilon, DELTA))


L1 = "l1-descent-l2-budget (NOT PRIVATE)"
ROWS = (
    Row("count-laplace", CountLaplace, "count-laplace"),
    Row("count-gaussian", CountGaussian, "count-gaussian", published=True),
    Row("weighted-laplace", WeightedLaplace, "weighted-laplace"),
    Row("weighted-gaussian", WeightedGaussian, "weighted-gaussian", published=True),
    Row("policy-laplace", PolicyLaplace, "policy-laplace"),
    Row("policy-gaussian", PolicyGaussian, "policy-gaussian", published=True),
    Row(L1, L1DescentL2Budget),
    Row("policy-gaussian, exact", PolicyGaussian),
    Row("dp-sips", DpSips),
    Row("funnel", Funnel, margin=Funnel().cutoff_margin),
    Row("greedy (NOT PRIVATE)", Greedy),
)
BY_NAME = {row.name: row for row in ROWS}
FUNNEL = BY_NAME["funnel"]
FUNNEL_ITEMS = Funnel().max_items_per_user
LAPLACE, GAUSSIAN, POLICY_L1 = BY_NAME["policy-laplace"], BY_NAME["policy-gaussian"], BY_NAME[L1]
WEIGHTED = (BY_NAME["weighted-laplace"], BY_NAME["weighted-gaussian"])
COUNTS = (BY_NAME["count-laplace"], BY_NAME["count-gaussian"])


@dataclass(frozen=True, slots=True)
class Reading:
    """A possible meaning of a row of JPC Table 2. printed: the row's name. counted: whether we compare this reading."""

    policy: str
    row: Row
    margin: float
    printed: str
    counted: bool = False

    @property
    def name(self) -> str:
        """Return the policy and the margin of this reading."""
        return f"{self.policy}, α = {self.margin:g}"

    def setting(self, items: int) -> Setting:
        """Return the setting with this many items per user."""
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
