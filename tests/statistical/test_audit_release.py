"""The empirical audit of every algorithm: it runs, refutes no claim, and would refute three times the claim.

Few trials: a flaw that costs less than three times the budget can hide here. `make audit` is the audit in earnest.
Keys are fixed, so verdicts repeat; a fresh key would pass with probability above 1 - 1e-6. `make audit` runs
DPUNION_AUDIT_SCALE times as many trials.
"""

import dataclasses
import os

import pytest

from dpunion.algorithms import Funnel, OptimalSingleItem, PolicyGaussian, UserOrder, WeightedGaussian, WeightedLaplace
from dpunion.budget import Budget
from dpunion.calibration import bounds
from dpunion.calibration.bounds import release_odds_for
from dpunion.plans import plan_release
from dpunion_lab.audit import audit_release, invariants
from dpunion_lab.audit.empirical import audited_algorithms, detectable
from dpunion_lab.audit.runs import Patch, System, repeatable_keys

SCALE = int(os.environ.get("DPUNION_AUDIT_SCALE", "1"))
ALGORITHMS = [
    *audited_algorithms(2),
    PolicyGaussian(max_items_per_user=2, passes=2, user_order=UserOrder.SMALLEST_FIRST),
    PolicyGaussian(max_items_per_user=2, reserve=0.3),
    Funnel(max_items_per_user=2, rounds=3),
]
CLAIM, SPENT = Budget(1.0, 0.02), Budget(3.0, 0.06)
TRIALS = 4_000 * SCALE
every_algorithm = pytest.mark.parametrize(
    "algorithm", ALGORITHMS, ids=[f"{i}-{one.name}" for i, one in enumerate(ALGORITHMS)]
)


def audited(algorithm, **broken):
    system = System(new_key=repeatable_keys(1), **broken)
    return audit_release([algorithm], epsilon=CLAIM.epsilon, delta=CLAIM.delta, trials=TRIALS, system=system)


@every_algorithm
def test_no_claim_is_refuted(algorithm):
    """A smoke test: the audit of a right algorithm runs to its end and accuses nobody. The next test has the power."""
    report = audited(algorithm)
    assert report.violations == []
    # Not nothing was measured: some pair surely tells the worlds apart. How far depends on the trials (`could show`).
    assert report.results[0].worst_epsilon.epsilon_bound > 0.0


@every_algorithm
def test_three_times_the_claim_is_refuted_by_as_many_trials(algorithm):
    """The numbers of a plan for three times the budget, under the claim of the smaller one."""
    odds = release_odds_for(SPENT)
    report = audited(
        algorithm,
        plan=lambda algorithm, claim: dataclasses.replace(plan_release(algorithm, SPENT), budget=claim),
        patches=(Patch(bounds, "release_odds_for", lambda _: odds),),
    )
    assert len(report.violations) == 1
    assert "VIOLATED" in report.text()


def test_the_bounds_come_near_the_claim_where_it_is_used_up():
    """Weighted Laplace spends all of epsilon on an item at the threshold and all of delta on a lone user."""
    algorithm = WeightedLaplace(max_items_per_user=1)
    report = audit_release(
        [algorithm], epsilon=1.0, delta=0.02, trials=60_000 * SCALE, system=System(new_key=repeatable_keys(2))
    )
    result = report.results[0]
    assert 0.75 <= result.worst_epsilon.epsilon_bound <= 1.0
    assert 0.013 <= result.worst_delta.delta_bound <= 0.02
    assert result.worst_delta.pair.rest == ()
    text = report.text()
    assert "weighted-laplace" in text
    assert "holds" in text
    assert f"{result.worst_delta.delta_bound:.5f}" in text
    assert "could show" in text


@pytest.mark.parametrize(("trials", "least"), [(10_000, 0.84), (100_000, 0.945), (1_000_000, 0.98)])
def test_what_could_be_shown_grows_with_the_trials(trials, least):
    epsilon, delta = detectable(Budget(1.0, 1e-2), trials, 1e-6)
    assert least <= epsilon <= 1.0
    assert 0.01 < delta <= 0.01 * (1.0 + 100.0 / trials**0.5)


@pytest.mark.parametrize(
    "algorithm", [WeightedGaussian(max_items_per_user=3), OptimalSingleItem(), Funnel(max_items_per_user=3)]
)
def test_an_honest_release_passes_every_other_check(algorithm):
    names = [name for name in invariants.CHECKS if name not in ("odds hold", "odds of counts hold")]
    assert invariants.failed_checks(System(), algorithm, Budget(1.0, 0.01), 0, names) == {}
