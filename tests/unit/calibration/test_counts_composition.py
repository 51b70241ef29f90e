"""What selecting and counting spend together, by an independent accountant: privacy loss distributions.

Without novel items a release with counts is a row of Gaussian mechanisms. The accountant composes them numerically,
with rounding that errs on the cautious side; what it finds must be within delta, and near it.
"""

import dataclasses
import math

import pytest
from dp_accounting.pld import privacy_loss_distribution

from dpunion.algorithms import CountGaussian, DpSips, Funnel, PolicyGaussian, WeightedGaussian
from dpunion.budget import Budget
from dpunion.plans import plan_release
from dpunion.plans.counts import PARTS, Counts
from dpunion.plans.ngrams import Ngrams, plan_ngrams
from dpunion_lab.audit.exact import counts_mu, gaussian_parts_delta

ALGORITHMS = [Funnel(), WeightedGaussian(), PolicyGaussian(), CountGaussian(max_items_per_user=10), DpSips()]
BUDGETS = [Budget(3.0, math.exp(-10)), Budget(1.0, 1e-5), Budget(0.5, 1e-7)]
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.name)
every_budget = pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: f"{budget.epsilon:g}")


def selecting(plan):
    """Return (sensitivity, stddev) of each Gaussian mechanism of the selection."""
    if plan.rounds:
        return [(one.budget, one.stddev) for one in plan.rounds]
    return [(plan.sensitivity.bound, plan.scale)]


def counting(plan):
    """Return those of the three steps: one person moves each by at most 1."""
    return [(1.0, stddev) for stddev in plan.stddevs]


def spent(mechanisms, epsilon):
    """Return the delta of the mechanisms together."""
    whole = None
    for sensitivity, stddev in mechanisms:
        one = privacy_loss_distribution.from_gaussian_mechanism(
            stddev, sensitivity=sensitivity, value_discretization_interval=2e-4, log_mass_truncation_bound=-60
        )
        whole = one if whole is None else whole.compose(one)
    return whole.get_delta_for_epsilon(epsilon)


@every_budget
@every_algorithm
def test_selecting_and_counting_spend_at_most_delta(algorithm, budget):
    plan = plan_release(algorithm, budget, Counts())
    together = spent([*selecting(plan), *counting(plan.counts)], budget.epsilon)
    assert together <= budget.delta
    # DP-SIPS keeps half of delta for novel items, the others a little of it.
    assert together >= (0.49 if isinstance(algorithm, DpSips) else 0.8) * budget.delta
    assert together == pytest.approx(gaussian_parts_delta(plan), rel=1e-2)


@every_algorithm
def test_a_selection_that_knows_nothing_of_counts_spends_more(algorithm):
    """The power of the test above: the same steps beside a selection that kept the whole budget."""
    budget = BUDGETS[1]
    plan = plan_release(algorithm, budget, Counts())
    alone = plan_release(algorithm, budget)
    spent_before = spent(selecting(alone), budget.epsilon)
    # Where a part of delta is kept for novel items, going beyond it does not yet go beyond delta.
    own = spent([*selecting(plan), *counting(plan.counts)], budget.epsilon)
    assert spent([*selecting(alone), *counting(plan.counts)], budget.epsilon) > max(1.2 * spent_before, 1.2 * own)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 0.9])
def test_each_part_of_the_budget_is_as_asked_for(share):
    """Squared mus add up to that of the whole; each step has its share of it."""
    plan = plan_release(WeightedGaussian(), BUDGETS[1], Counts(share=share))
    selection, steps = 1.0 / plan.scale**2, [1.0 / stddev**2 for _, stddev in counting(plan.counts)]
    whole = selection + sum(steps)
    assert math.hypot(*(math.sqrt(one) for one in steps)) == pytest.approx(counts_mu(plan))
    # The selection's noise is raised for rounding a little.
    assert sum(steps) / whole == pytest.approx(share, rel=1e-5)
    for one, part in zip(steps, PARTS, strict=True):
        assert one / whole == pytest.approx(share * part, rel=1e-5)


@every_budget
@pytest.mark.parametrize("first", [Funnel(), WeightedGaussian(), PolicyGaussian()], ids=lambda first: first.name)
def test_ngrams_of_all_lengths_and_counting_spend_at_most_delta(first, budget):
    plan = plan_ngrams(Ngrams(longest=3, first=first), budget, Counts())
    lengths = [(1.0, one.stddev) for one in plan.lengths]
    together = spent([*lengths, *counting(plan.counts)], budget.epsilon)
    assert 0.8 * budget.delta <= together <= budget.delta
    # And not without what counting took from each length.
    before = [(1.0, one.stddev) for one in plan_ngrams(Ngrams(longest=3, first=first), budget).lengths]
    assert spent([*before, *counting(plan.counts)], budget.epsilon) > budget.delta


@every_algorithm
def test_a_rough_step_that_is_not_composed_would_be_seen(algorithm):
    """Its part given to the fine step as well: the exact delta of the Gaussian parts grows accordingly."""
    plan = plan_release(algorithm, BUDGETS[1], Counts(share=0.5))
    fine = plan.counts.fine * math.sqrt(PARTS[2] / (PARTS[2] + PARTS[0]))
    wrong = dataclasses.replace(plan, counts=dataclasses.replace(plan.counts, fine=fine))
    assert gaussian_parts_delta(wrong) > 1.2 * gaussian_parts_delta(plan)
    assert gaussian_parts_delta(wrong) == pytest.approx(
        spent([*selecting(wrong), *counting(wrong.counts)], BUDGETS[1].epsilon), rel=1e-2
    )
