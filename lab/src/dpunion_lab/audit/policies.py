"""The policies that the contraction search tests: one user's update of a histogram, and the claim about it.

A policy is any function (weights float64[n], items int32[k]) -> new weights float64[n], the update of a user with
`items`. The shipped and the research policies call the mechanisms of releases, with one user at a time.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from dpunion.algorithms import Algorithm, Funnel, Norm, PolicyGaussian, PolicyLaplace
from dpunion.budget import Budget
from dpunion.checks import as_choice, check_real, check_whole, refuse_choice
from dpunion.contributions import Float64s, Int32s
from dpunion.errors import BadParameter, InternalError
from dpunion.mechanisms import DescentMechanism, FunnelMechanism, mechanism_for
from dpunion.plans import plan_release
from dpunion.sets.narrowing import Part
from dpunion_lab.study import Greedy, L1DescentL2Budget, ResearchPolicy, plan_study, study_mechanism

Policy = Callable[[Float64s, Int32s], Float64s]
Builder = Callable[[float, int], Policy]
M = TypeVar("M", DescentMechanism, FunnelMechanism)

DEFAULT_CUTOFF = 10.0
# Any budget will do: only the cutoff matters to a policy, and the caller chooses it.
BUDGET = Budget(1.0, 1e-6)
MOST_TARGETS = 20_000
NOBODY = np.zeros((0, 2), np.uint64)
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True, slots=True)
class Subject:
    """A policy and its claim: one user moves a histogram by at most `budget`, and the distance of two never grows.

    cutoff: the highest weight that the search tries; for policies that fill up to a cutoff, that cutoff.
    max_items: the most items of a user in the search.
    """

    name: str
    policy: Policy = field(repr=False)
    norm: Norm
    budget: float = 1.0
    cutoff: float = DEFAULT_CUTOFF
    max_items: int = 100

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", as_choice("norm", self.norm, Norm))
        check_real(self.name, "budget", self.budget, 1e-6, 1e6)
        check_real(self.name, "cutoff", self.cutoff, 1e-3, 1e6)
        check_whole(self.name, "max_items_per_user", self.max_items, 1, 1000)

    def distance(self, one: Float64s, other: Float64s) -> float:
        """Return the distance of two histograms in the norm of the claim."""
        gap = np.abs(one - other)
        return float(gap.sum()) if self.norm is Norm.L1 else math.sqrt(float(gap @ gap))

    def after(self, weights: Float64s, users: list[Int32s]) -> Float64s:
        """Return the histogram after the updates of these users in turn, without changing `weights`."""
        for items in users:
            weights = self.policy(weights, items)
        return weights


def _one_user(items: Int32s) -> Part:
    return Part(np.array([0, len(items)], np.int64), items, NOBODY)


def descent(mechanism: DescentMechanism, cutoff: float) -> Policy:
    """Return the policy of a mechanism of one round with this cutoff, as the engines run it."""

    def policy(weights: Float64s, items: Int32s) -> Float64s:
        moved = weights.copy()
        mechanism.visit(_one_user(items), moved, cutoff, 1.0)
        return moved

    return policy


def plan_mechanism(algorithm: Algorithm, kind: type[M]) -> M:
    """Return the mechanism of an algorithm."""
    mechanism = mechanism_for(plan_release(algorithm, BUDGET))
    if not isinstance(mechanism, kind):
        raise InternalError("a policy of another mechanism")
    return mechanism


def shipped_descent(kind: type[Algorithm], cutoff: float, max_items: int) -> Policy:
    """Return the policy of an algorithm that descends in one round."""
    return descent(plan_mechanism(kind(max_items_per_user=max_items), DescentMechanism), cutoff)


def funnel_round(cutoff: float, max_items: int, *, spread_targets: bool) -> Policy:
    """Return one round of Funnel, with the same target for all items or a different one for each.

    The targets of a later round are arbitrary numbers. Here the target of item i is the cutoff times the fractional
    part of i times the golden section. Every seventh item has target 0, like an item that needs no more weight.
    """
    mechanism = plan_mechanism(Funnel(max_items_per_user=max_items, rounds=1, first_share=1.0), FunnelMechanism)
    numbers = np.arange(MOST_TARGETS)
    targets = np.full(MOST_TARGETS, cutoff)
    if spread_targets:
        targets *= np.where(numbers % 7 == 3, 0.0, (numbers * GOLDEN + 0.5) % 1.0)

    def policy(weights: Float64s, items: Int32s) -> Float64s:
        gaps = np.maximum(0.0, targets[: len(weights)] - weights)
        left = gaps.copy()
        mechanism.visit(_one_user(items), left, 1.0)
        moved: Float64s = weights + (gaps - left)
        return moved

    return policy


def research_descent(kind: type[ResearchPolicy], cutoff: float, max_items: int) -> Policy:
    """Return a research policy, which is NOT a contraction."""
    policy = kind(max_items_per_user=max_items)
    return descent(study_mechanism(policy, plan_study(policy, BUDGET)), cutoff)


SHIPPED: dict[str, tuple[Norm, Builder]] = {
    "l2-descent": (Norm.L2, functools.partial(shipped_descent, PolicyGaussian)),
    "l1-descent": (Norm.L1, functools.partial(shipped_descent, PolicyLaplace)),
    "funnel-first-round": (Norm.L2, functools.partial(funnel_round, spread_targets=False)),
    "funnel-later-round": (Norm.L2, functools.partial(funnel_round, spread_targets=True)),
}
RESEARCH: dict[str, tuple[Norm, Builder]] = {
    "greedy": (Norm.L1, functools.partial(research_descent, Greedy)),
    "l1-descent-l2-budget": (Norm.L2, functools.partial(research_descent, L1DescentL2Budget)),
}


def named_subject(name: str, *, cutoff: float = DEFAULT_CUTOFF, max_items: int = 100) -> Subject:
    """Return the shipped or research policy with this name."""
    known = SHIPPED | RESEARCH
    if name not in known:
        refuse_choice("policy", name, list(known))
    norm, build = known[name]
    return Subject(name, build(cutoff, max_items), norm, 1.0, cutoff, max_items)


def load_policy(place: str) -> Policy:
    """Import the function at "path/to/file.py:name", which runs with your rights."""
    path, _, name = place.rpartition(":")
    file = Path(path)
    if not (path.endswith(".py") and file.is_file()):
        raise BadParameter(f"There is no Python file {path!r}.", "Name a policy as path/to/file.py:function.")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise BadParameter(f"{path!r} cannot be loaded.", "Name a policy as path/to/file.py:function.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if not callable(found):
        raise BadParameter(f"{path!r} has no function {name!r}.", "Name a policy as path/to/file.py:function.")
    loaded: Policy = found
    return loaded


def as_subject(
    policy: str | Subject | Policy, *, norm: str | Norm | None, budget: float, cutoff: float, max_items: int
) -> Subject:
    """Return a subject for a subject, the name of a policy, "file.py:function", or a function on arrays."""
    if isinstance(policy, Subject):
        return policy
    if isinstance(policy, str) and ":" not in policy:
        return named_subject(policy, cutoff=cutoff, max_items=max_items)
    function = load_policy(policy) if isinstance(policy, str) else policy
    if norm is None:
        raise BadParameter("A policy of your own needs the norm it is claimed for.", "Pass norm='l1' or norm='l2'.")
    name = policy if isinstance(policy, str) else getattr(policy, "__name__", "policy")
    return Subject(name, _check_policy(function), as_choice("norm", norm, Norm), budget, cutoff, max_items)


def _check_policy(function: Policy) -> Policy:
    """Wrap a user's function: it gets copies, and must return a histogram."""

    def policy(weights: Float64s, items: Int32s) -> Float64s:
        moved = np.asarray(function(weights.copy(), items.copy()), np.float64)
        if moved.shape != weights.shape or not np.all(np.isfinite(moved)):
            raise BadParameter(
                "The policy did not return one finite weight per item.",
                "Return a new float64 array as long as the first argument.",
            )
        return moved

    return policy
