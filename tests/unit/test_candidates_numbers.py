"""The numbers of a list of candidates: what section 11 of docs/guarantees-funnel.md says of plans and marks."""

import dataclasses
import math

import numpy as np
import pytest

import dpunion
from dpunion.calibration.composition import walk_tail
from dpunion.calibration.rounding import score_spread
from dpunion.mechanisms import mechanism_for
from dpunion.plans import candidates
from dpunion.plans.candidates import add_candidates
from dpunion.randomness import RunKey
from dpunion.reading.known import read_known

BUDGETS = [(3.0, math.exp(-10.0)), (1.0, 1e-5)]
LISTED = read_known([f"word{number}" for number in range(1000)])


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_a_list_changes_nothing_for_other_items(epsilon, delta):
    plain = dpunion.plan(epsilon=epsilon, delta=delta)
    listed = add_candidates(plain, LISTED, 1e-3)
    for before, after in zip(plain.alternatives, listed.alternatives, strict=True):
        assert dataclasses.replace(after, candidates=None) == before
        assert after.candidates.threshold / after.scale == pytest.approx(3.114, abs=1e-3)
        assert after.candidates.threshold < before.threshold
        assert after.candidates.chance <= 1e-3


@pytest.mark.parametrize("error", [1e-9, 1e-3, 0.1])
@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_in_the_first_round_no_candidate_has_a_larger_target(epsilon, delta, error):
    for plan in add_candidates(dpunion.plan(epsilon=epsilon, delta=delta), LISTED, error).alternatives:
        mechanism = mechanism_for(plan)
        plain, listed = mechanism.targets(np.zeros(2), 0, np.array([False, True]))
        assert plain == mechanism.cutoffs[0] * mechanism.aims[0]
        assert listed <= plain


def test_without_the_minimum_a_target_would_be_larger():
    mechanism = mechanism_for(
        add_candidates(dpunion.plan(dpunion.Funnel(max_items_per_user=3), epsilon=1.0, delta=1e-5), LISTED, 1e-3)
    )
    assert mechanism.listed.cutoffs[0] * mechanism.listed.aims[0] > mechanism.cutoffs[0] * mechanism.aims[0]


def test_marks_have_the_chance_of_pure_noise():
    plan = add_candidates(dpunion.plan(dpunion.Funnel(), epsilon=1.0, delta=1e-5), LISTED, 1e-3)
    chance = walk_tail(plan.scale, plan.candidates.threshold, plan.algorithm.for_listed)
    assert plan.candidates.chance == pytest.approx(chance, rel=1e-12)
    assert chance == pytest.approx(1e-3, rel=1e-6)
    digests = np.random.default_rng(5).integers(2**64, size=(400_000, 2), dtype=np.uint64)
    marked = np.count_nonzero(mechanism_for(plan).mark(digests, RunKey.for_tests(5)))
    assert abs(marked - 400.0) < 5.0 * math.sqrt(400.0)


def test_scores_that_spread_too_far_for_a_list_are_refused(monkeypatch):
    plan = dpunion.plan(dpunion.Funnel(), epsilon=1.0, delta=1e-5)
    spread = score_spread(plan.scale, plan.threshold, plan.algorithm)
    assert 100.0 < spread < candidates.LARGEST_LISTED_SPREAD == 650.0
    monkeypatch.setattr(candidates, "LARGEST_LISTED_SPREAD", spread - 1.0)
    with pytest.raises(dpunion.BadParameter, match="with a list of candidates"):
        add_candidates(plan, LISTED, 1e-3)
