"""Releases with a known mistake in them are all caught, each by the checks that are there for it."""

import dataclasses

import numpy as np
import pytest

from dpunion.algorithms import WeightedGaussian
from dpunion.budget import Budget
from dpunion.plans import plan_release
from dpunion.randomness import RunKey
from dpunion_lab.audit.mutants import mutants, mutants_text, plain_encode, run_mutants
from dpunion_lab.audit.runs import System, copies, encode_for, repeatable_keys
from weighing import weigh

MUTANTS = mutants()
WANTED = {
    "noise x 0.7", "threshold - 10 %", "no deduplication", "wrong tail formula", "no bound on items",
    "noise reused across items", "seeded randomness", "insertion-order output", "leftover dictionary",
    "charge after release", "budget not charged", "charge given back", "any sensitivity", "odds of another delta",
    "larger ball", "known list after bounding", "redrawn noise", "noise of counts x 0.7", "noise of counts reused",
    "no cap", "no room for totals", "weights from the true counts", "counts not charged", "rough step not composed",
    "noise of a look x 0.7", "a look counts items", "a look for free", "candidates only if kept",
    "candidates kept by reading", "marks in the last round", "candidates without the minimum", "candidates aim higher",
}  # fmt: skip
# A mistake that shows at once does not need many trials.
TRIALS = {"no bound on items": 10_000, "noise x 0.7": 160_000}


def test_every_wanted_mutant_exists():
    assert {mutant.name.split(",")[0] for mutant in MUTANTS} == WANTED


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_mutant_is_caught(mutant):
    if mutant.system.new_key is RunKey.fresh:
        repeatable = dataclasses.replace(mutant.system, new_key=repeatable_keys(5))
        mutant = dataclasses.replace(mutant, system=repeatable)
    (result,) = run_mutants(TRIALS.get(mutant.name, 40_000), [mutant])
    assert result.caught, result.evidence
    text = mutants_text([result])
    assert mutant.name in text
    assert "caught" in text


# A check that a mistake inside the shipped code must fail, each once.
PATCHED = {mutant.checks: mutant for mutant in MUTANTS if mutant.system.patches}


@pytest.mark.parametrize("mutant", [MUTANTS[0], *PATCHED.values()], ids=lambda mutant: mutant.name)
def test_a_release_without_a_mistake_survives_as_a_mutant(mutant):
    honest = dataclasses.replace(mutant, system=System(new_key=repeatable_keys(6)))
    (result,) = run_mutants(4_000, [honest])
    assert not result.caught
    assert result.evidence == {}
    assert "SURVIVED" in mutants_text([result])


def test_the_plain_encoding_is_right_when_nothing_is_forgotten():
    """So that what the two encoding mutants forget is all that is wrong with them."""
    plan = plan_release(WeightedGaussian(max_items_per_user=3), Budget(1.0, 0.01))
    rows = [copies(((0, 1), (1, 1, 2), (0,)), 50)]
    key = RunKey.for_tests(1)
    weights = []
    for data in (plain_encode(plan, rows, key, distinct=True), encode_for(plan, rows, key)):
        order = np.lexsort((data.table.digests[:, 1], data.table.digests[:, 0]))
        weights.append(weigh(plan, data).values[order])
    assert np.array_equal(*weights)
