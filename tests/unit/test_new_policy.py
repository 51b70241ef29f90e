"""A new policy takes a kernel and four entries: description, planner, mechanism, chances. Everything else finds it."""

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import dpunion
from dpunion import algorithms, mechanisms, plans
from dpunion.algorithms import Algorithm, Norm, PolicyGaussian, Sensitivity
from dpunion.budget import Budget
from dpunion.calibration import gaussian, rounding
from dpunion.chances import CHANCES, Company, by_keepers, find_needed, passing
from dpunion.cli import app
from dpunion.coins import coins_for
from dpunion.engines.local import run_rounds
from dpunion.errors import SensitivityMismatch
from dpunion.kernels.compiler import kernel
from dpunion.ledger import Ledger
from dpunion.ledger.accounts import charge_for, charge_for_budget
from dpunion.mechanisms import DescentMechanism, mechanism_for
from dpunion.plans import Planner, certified_novelty, finish_plan, refuse_counts
from dpunion.randomness import RunKey
from dpunion.report import plan_page, release_page
from dpunion_lab.audit.empirical import audit_release
from dpunion_lab.audit.policies import Subject, descent
from dpunion_lab.audit.runs import encode_for
from dpunion_lab.audit.search import search_policy
from spark_in_process import by_rounds

BUDGET = Budget(2.0, 1e-3)
PEOPLE = {f"user{n}": {f"item{(n * k) % 30}" for k in range(1, 6)} for n in range(400)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CarefulPolicy(Algorithm):
    """l2-descent that closes at most half of a gap at once: G * min(1/2, 1/|G|), nonexpansive by its radial slopes."""

    name: ClassVar[str] = "careful-policy"
    noise: ClassVar[str] = "gaussian"

    cutoff_margin: float = 3.0

    @property
    def sensitivity(self):
        return Sensitivity(Norm.L2, 1.0)


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


def plan_careful(algorithm, budget, epsilon, delta, counts):
    if counts is not None:
        refuse_counts(algorithm.name)
    limit = algorithm.max_items_per_user
    found = gaussian.exact_unit_norm(epsilon, delta, limit)
    cutoff = found.threshold + algorithm.cutoff_margin * found.scale
    slack = rounding.l2_descent_slack(1.05 * cutoff, limit, 1, found.scale)
    return finish_plan(algorithm, budget, found, slack)


def run_careful(plan):
    return HalfwayMechanism(Norm.L2, ((plan.cutoff, 1.0),), plan.bounding, coins_for(plan), plan.sensitivity)


def careful_chances(plan, size, company, most):
    path = [0.0]
    while len(path) <= most and plan.cutoff - path[-1] > 1e-9:
        gap = plan.cutoff - path[-1]
        other = {Company.RARE: plan.cutoff, Company.EQUAL: gap, Company.POPULAR: 0.0}[company]
        path.append(path[-1] + gap * min(0.5, 1.0 / math.hypot(gap, other * math.sqrt(size - 1))))
    weights = np.array(path)
    return lambda keepers: passing(plan, weights[np.minimum(keepers, len(path) - 1).astype(int)])


ENTRIES = (
    (algorithms.ALGORITHMS, CarefulPolicy.name, CarefulPolicy),
    (plans.PLANNERS, CarefulPolicy, Planner(plan_careful, novelty=certified_novelty)),
    (mechanisms.MECHANISMS, CarefulPolicy, run_careful),
    (CHANCES, CarefulPolicy, by_keepers(careful_chances)),
)
"""All that a new policy takes besides its kernel."""


@pytest.fixture
def careful(monkeypatch):
    """The policy, registered by its entries and nothing else."""
    for registry, key, value in ENTRIES:
        monkeypatch.setitem(registry, key, value)
    return CarefulPolicy(max_items_per_user=5)


def rows():
    users = [user for user, items in PEOPLE.items() for _ in items]
    return pa.table({"user": users, "item": [item for items in PEOPLE.values() for item in sorted(items)]})


def test_the_policy_is_planned_by_name_and_released_on_both_engines(careful):
    plan = dpunion.plan(careful, epsilon=BUDGET.epsilon, delta=BUDGET.delta)
    assert plan.threshold == dpunion.plan(PolicyGaussian(max_items_per_user=5), epsilon=2.0, delta=1e-3).threshold
    released = dpunion.release(
        rows(), user="user", item="item", algorithm=careful, epsilon=2.0, delta=1e-3, unsafe_test_key=1
    )
    assert 5 < len(released.items) <= 30
    assert by_rounds(plan, PEOPLE, RunKey.for_tests(1), 1) == set(released.items)
    assert 5 < len(by_rounds(plan, PEOPLE, RunKey.for_tests(1), 3)) <= 30
    assert dpunion.plan("careful-policy", epsilon=1.0, delta=1e-6).algorithm == CarefulPolicy()


def test_no_shipped_algorithm_is_behind_it():
    assert CarefulPolicy.__mro__[1:] == (Algorithm, object)
    shipped = [tuple(registry) for registry, _, _ in ENTRIES]
    assert len({len(keys) for keys in shipped}) == 1, "every algorithm has an entry in each of these"


def test_the_command_line_plans_it(careful):
    done = CliRunner().invoke(app, ["plan", "-a", careful.name, "-e", "1", "-d", "1e-6", "--json"])
    assert done.exit_code == 0
    values = json.loads(done.output)
    assert values["algorithm"] == careful.name
    needed = [one["chance_50"] for one in values["holders_needed"]]
    assert needed == sorted(needed)
    assert careful.name in CliRunner().invoke(app, ["plan", "-a", careful.name, "-e", "1", "-d", "1e-6"]).output


def test_the_chances_are_those_of_releases(careful):
    (needed,) = find_needed(dpunion.plan(careful, epsilon=2.0, delta=1e-3), (1,))
    people = {f"user{n}": {"item"} for n in range(needed.even)}
    runs = [
        dpunion.release(people, algorithm=careful, epsilon=2.0, delta=1e-3, unsafe_test_key=key) for key in range(200)
    ]
    assert 60 < sum(len(one) for one in runs) < 160


def test_statement_charge_and_pages_are_made_for_it(careful, tmp_path):
    Ledger.open(tmp_path / "budget.db", create=True).create_dataset("posts", 10.0, 1e-2, "tight")
    charge = dpunion.Charge(tmp_path / "budget.db", "posts")
    made = dpunion.release(PEOPLE, algorithm=careful, epsilon=2.0, delta=1e-3, charge=charge)
    assert "It was made by careful-policy from at most 5 items per person" in made.statement
    assert made.about.charged.epsilon == 2.0
    assert charge_for(made.plan).mu_squared < charge_for_budget(made.plan.budget).mu_squared
    assert dpunion.Release.from_json(made.to_json()).plan == made.plan
    assert careful.name in release_page(made)
    assert careful.name in plan_page(made.plan, epsilons=(), algorithms=())


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
