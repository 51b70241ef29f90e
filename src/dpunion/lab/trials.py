"""One trial of a study: an algorithm, private or not, run once on data for study; and its identity."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import time
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np

from dpunion.algorithms import Algorithm, Calibration, PolicyGaussian, PolicyLaplace
from dpunion.budget import Budget
from dpunion.coins import coins_for
from dpunion.contributions import Contributions, Int64s
from dpunion.engines.local.rounds import run_rounds
from dpunion.errors import BadParameter, InternalError
from dpunion.lab.data import COVERAGE, LabData
from dpunion.lab.study import (
    RESEARCH_POLICIES,
    Greedy,
    GreedyByOwnCounts,
    L1DescentL2Budget,
    ResearchPolicy,
    study_weights,
)
from dpunion.mechanisms import mechanism_for
from dpunion.plans import Plan, plan_release
from dpunion.randomness import RunKey
from dpunion.sets.narrowing import held_items

IDENTITY = "dpunion-lab-trial/1"


@dataclass(frozen=True, slots=True)
class Setting:
    """What is tried: an algorithm or a research policy, and a budget."""

    algorithm: Algorithm | ResearchPolicy
    budget: Budget

    @property
    def has_proof(self) -> bool:
        """Say whether the algorithm is private; research policies are not, whatever the budget says."""
        return not isinstance(self.algorithm, tuple(RESEARCH_POLICIES.values()))

    @property
    def parameters(self) -> dict[str, Any]:
        """Return the algorithm's parameters as plain values."""
        fields = dataclasses.fields(self.algorithm)
        values = {field.name: getattr(self.algorithm, field.name) for field in fields}
        return {name: value.value if isinstance(value, enum.Enum) else value for name, value in values.items()}

    @property
    def name(self) -> str:
        """Return the algorithm's name, with a word of warning when it is not private."""
        return self.algorithm.name if self.has_proof else f"{self.algorithm.name} (NOT PRIVATE)"

    def to_dict(self) -> dict[str, Any]:
        """Return the setting as plain values."""
        return {
            "algorithm": self.algorithm.name,
            "parameters": self.parameters,
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
        }


@dataclass(frozen=True, slots=True)
class Trial:
    """What one run released. covered[i]: how many of it at least COVERAGE[i] users hold. seconds: of selecting."""

    setting: Setting
    number: int
    size: int
    covered: tuple[int, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the trial as plain values."""
        return self.setting.to_dict() | {
            "private_algorithm": self.setting.has_proof,
            "trial": self.number,
            "released": self.size,
            **{f"released_of_{k}_holders": count for k, count in zip(COVERAGE, self.covered, strict=True)},
            "seconds": self.seconds,
        }


def identity(data: LabData, setting: Setting, number: int) -> str:
    """Return what tells this trial from all others: the data, the algorithm, its parameters, the budget, the number."""
    from dpunion import __version__

    facts = setting.to_dict() | {"data": data.fingerprint, "trial": number, "version": __version__}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(f"{IDENTITY}\n{text}".encode()).hexdigest()


def plan_setting(setting: Setting) -> Plan:
    """Return the numbers to run with; a research policy gets those of its private relative, without the proof."""
    algorithm = setting.algorithm
    if not isinstance(algorithm, (Greedy, L1DescentL2Budget, GreedyByOwnCounts)):
        return plan_release(algorithm, setting.budget)
    shape: dict[str, Any] = {
        "max_items_per_user": algorithm.max_items_per_user,
        "cutoff_margin": algorithm.cutoff_margin,
        "calibration": Calibration.PUBLISHED,
    }
    match algorithm:
        case Greedy():
            return plan_release(PolicyLaplace(**shape), setting.budget)
        case L1DescentL2Budget():
            return plan_release(PolicyGaussian(**shape), setting.budget)
        case GreedyByOwnCounts():
            raise BadParameter(
                "gw fills items in the order of how often a user holds each, which sets do not tell.",
                "Leave gw out; greedy is its relative on sets.",
            )
        case _:
            assert_never(algorithm)


def trial_key(number: int) -> RunKey:
    """Return the key of a trial: the same for all algorithms, so that they are compared on the same draws."""
    return RunKey.for_tests(number + 1)


def run_trial(data: LabData, setting: Setting, plan: Plan, contributions: Contributions, number: int) -> Trial:
    """Run once; `contributions` are the data bounded by the trial's key as the setting asks."""
    begun = time.perf_counter()
    chosen = select(setting, plan, contributions, trial_key(number))
    seconds = time.perf_counter() - begun
    held = data.holders[chosen]
    covered = tuple(int(np.count_nonzero(held >= k)) for k in COVERAGE)
    return Trial(setting, number, len(chosen), covered, round(seconds, 4))


def select(setting: Setting, plan: Plan, contributions: Contributions, key: RunKey) -> Int64s:
    """Return the numbers of the items that come out: int64[released]."""
    policy = setting.algorithm
    if not isinstance(policy, (Greedy, L1DescentL2Budget, GreedyByOwnCounts)):
        return run_rounds(mechanism_for(plan), contributions, key)
    if plan.cutoff is None:
        raise InternalError("a policy without a cutoff")
    table = contributions.table
    weights = study_weights(policy, contributions.offsets, contributions.items, len(table), plan.cutoff)
    passed = coins_for(plan).toss(0, table.digests, weights, key)
    return np.flatnonzero(passed & held_items(contributions))
