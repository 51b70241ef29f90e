"""What a new policy takes: a description, a kernel, a planner and a mechanism; everything else finds it by these."""

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

import dpunion
from dpunion import algorithms, mechanisms, plans
from dpunion.algorithms import Norm, PolicyGaussian, Sensitivity
from dpunion.budget import Budget
from dpunion.coins import coins_for
from dpunion.engines.local.rounds import run_rounds
from dpunion.errors import SensitivityMismatch
from dpunion.kernels.compiler import kernel
from dpunion.mechanisms import DescentMechanism, mechanism_for
from dpunion.randomness import RunKey
from dpunion_lab.audit.empirical import audit_release
from dpunion_lab.audit.policies import Subject, descent
from dpunion_lab.audit.runs import encode_for
from dpunion_lab.audit.search import search_policy
from spark_in_process import by_rounds

BUDGET = Budget(2.0, 1e-3)
PEOPLE = {f"user{n}": {f"item{(n * k) % 30}" for k in range(1, 6)} for n in range(400)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CarefulPolicy(PolicyGaussian):
    """l2-descent that closes at most half of a gap at once: G * min(1/2, 1/|G|), nonexpansive by its radial slopes."""

    name: ClassVar[str] = "careful-policy"


@kernel
def descend_halfway(offsets, items, weights, cutoff, budget):
    for user in range(len(offsets) - 1):
        squares = 0.0
        for i in range(offsets[user], offsets[user + 1]):
            squares += (cutoff - weights[items[i]]) ** 2
        step = min(0.5, budget / max(math.sqrt(squares), 1e-300))
        for i in range(offsets[user], offsets[user + 1]):
            weights[items[i]] += (cutoff - weights[items[i]]) * step


class HalfwayMechanism(DescentMechanism):
    __slots__ = ()

    def visit(self, part, weights, cutoff, budget):
        descend_halfway(part.offsets, part.items, weights, cutoff, budget)


def halfway(plan):
    chosen = plan.algorithm
    visits = chosen.visits(plan.scale, plan.threshold)
    return HalfwayMechanism(Norm.L2, visits, chosen.bounding, coins_for(plan), plan.sensitivity)


@pytest.fixture
def careful(monkeypatch):
    """The four entries that a new policy takes, and nothing else."""
    monkeypatch.setitem(algorithms.ALGORITHMS, CarefulPolicy.name, CarefulPolicy)
    monkeypatch.setitem(plans.PLANNERS, CarefulPolicy, plans.PLANNERS[PolicyGaussian])
    monkeypatch.setitem(mechanisms.MECHANISMS, CarefulPolicy, halfway)
    return CarefulPolicy(max_items_per_user=5)


def rows():
    users = [user for user, items in PEOPLE.items() for _ in items]
    return pa.table({"user": users, "item": [item for items in PEOPLE.values() for item in sorted(items)]})


def test_it_is_planned_by_name_and_released_on_both_engines(careful):
    plan = dpunion.plan(careful, epsilon=BUDGET.epsilon, delta=BUDGET.delta)
    assert plan.threshold == dpunion.plan(PolicyGaussian(max_items_per_user=5), epsilon=2.0, delta=1e-3).threshold
    released = dpunion.release(
        rows(), user="user", item="item", algorithm=careful, epsilon=2.0, delta=1e-3, unsafe_test_key=1
    )
    assert 5 < len(released.items) <= 30
    assert by_rounds(plan, PEOPLE, RunKey.for_tests(1), 1) == set(released.items)
    assert 5 < len(by_rounds(plan, PEOPLE, RunKey.for_tests(1), 3)) <= 30
    assert dpunion.plan("careful-policy", epsilon=1.0, delta=1e-6).algorithm == CarefulPolicy()


def test_the_audit_looks_at_it_as_the_engines_run_it(careful):
    plan = dpunion.plan(careful, epsilon=BUDGET.epsilon, delta=BUDGET.delta)
    subject = Subject("careful", descent(mechanism_for(plan), plan.cutoff), Norm.L2, 1.0, plan.cutoff, 5)
    assert not search_policy(subject, seconds=1.0, seed=1).violations
    report = audit_release([careful], epsilon=1.0, delta=0.01, trials=2_000)
    assert not report.violations


def test_the_audit_would_find_a_wrong_one(careful):
    def too_far(weights, items):
        moved = weights.copy()
        descend_halfway(np.array([0, len(items)]), items, moved, 10.0, 1.3)
        return moved

    assert search_policy(Subject("too far", too_far, Norm.L2, 1.0, 10.0, 5), seconds=2.0, seed=1).violations


def test_a_wrong_sensitivity_is_refused_on_both_engines(careful):
    plan = dpunion.plan(careful, epsilon=BUDGET.epsilon, delta=BUDGET.delta)
    wrong = dataclasses.replace(plan, sensitivity=Sensitivity(Norm.L2, 0.5))
    with pytest.raises(RuntimeError, match="SensitivityMismatch"):
        by_rounds(wrong, PEOPLE, RunKey.for_tests(1), 2)
    with pytest.raises(SensitivityMismatch):
        select_here(wrong)
    assert len(select_here(plan)) > 5


def select_here(plan):
    """Select by a plan from all rows on one machine."""
    key, table = RunKey.for_tests(1), rows()
    columns = [(table["user"].chunk(0), table["item"].chunk(0))]
    return run_rounds(mechanism_for(plan), encode_for(plan, columns, key), key)
