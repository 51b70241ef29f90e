"""The audit of counts, its own parts: lines between worlds, exact laws beside numbers, noise seen in a release."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from dpunion import counting as people_counting
from dpunion.algorithms import CountGaussian, CountLaplace, DpSips, Funnel, PolicyGaussian, WeightedGaussian
from dpunion.budget import Budget
from dpunion.calibration.gaussian import gaussian_stddev
from dpunion.counting.steps import FineStep, RoughStep
from dpunion.errors import BadParameter, InternalError
from dpunion.plans import plan_release
from dpunion.plans.counts import Counts
from dpunion.randomness import RunKey
from dpunion_lab.audit import counting, exact, invariants, mutants, noise
from dpunion_lab.audit.counting import Contrast, counted_pairs, lines_between, whole_pairs, with_counts
from dpunion_lab.audit.reach import STEPS
from dpunion_lab.audit.runs import System, repeatable_keys

BUDGET = Budget(1.0, 0.02)
PLAN = plan_release(WeightedGaussian(max_items_per_user=1), BUDGET)
SMALL = [kind(max_items_per_user=2) for kind in (WeightedGaussian, PolicyGaussian, CountGaussian, DpSips)]


# --- exact laws beside a normal number ------------------------------------------------------------------------
@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
def test_a_hockey_stick_beside_a_normal_number_is_an_integral(mu):
    one, other, epsilon = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.1, 0.6, 0.0, 0.3]), 0.7
    points = np.linspace(-12.0, 12.0 + mu, 400_001)
    densities = [stats.norm.pdf(points - shift) for shift in (mu, 0.0)]
    excess = [
        np.maximum(0.0, p * densities[0] - math.exp(epsilon) * q * densities[1])
        for p, q in zip(one, other, strict=True)
    ]
    expected = sum(float(np.trapezoid(part, points)) for part in excess)
    assert exact.hockey_stick(one, other, epsilon, mu) == pytest.approx(expected, rel=1e-6)
    # A number that hardly tells anything leaves what the outcomes tell.
    assert exact.hockey_stick(one, other, epsilon, 1e-9) == pytest.approx(exact.hockey_stick(one, other, epsilon))


@pytest.mark.parametrize("algorithm", SMALL, ids=lambda algorithm: algorithm.name)
@pytest.mark.parametrize("delta", [0.02, 1e-6])
def test_exact_divergences_with_counts_stay_within_delta(algorithm, delta):
    plan = with_counts()(algorithm, Budget(1.0, delta))
    worst, tried = exact.largest_divergence(plan, 2)
    assert tried > 80
    assert worst <= delta
    assert exact.gaussian_parts_delta(plan) <= delta
    # One of the two nearly uses it; DP-SIPS never uses the half it sets aside.
    assert max(worst, exact.gaussian_parts_delta(plan)) > (0.45 if isinstance(algorithm, DpSips) else 0.8) * delta
    # Without counts in the selection's noise the same databases go beyond.
    wrong = dataclasses.replace(plan_release(algorithm, Budget(1.0, delta)), counts=plan.counts)
    if not isinstance(algorithm, DpSips):
        assert exact.largest_divergence(wrong, 2)[0] > delta


@pytest.mark.parametrize("kind", [WeightedGaussian, PolicyGaussian, CountGaussian])
def test_a_lone_user_is_within_delta_with_counts_too(kind):
    plan = with_counts()(kind(max_items_per_user=30), Budget(1.0, 1e-6))
    exposed = [exact.lone_user_delta(plan, novel) for novel in range(1, 31)]
    alone = [exact.lone_user_delta(dataclasses.replace(plan, counts=None), novel) for novel in range(1, 31)]
    assert max(exposed) <= 1e-6
    assert all(more >= less for more, less in zip(exposed, alone, strict=True))


@pytest.mark.full
def test_exact_texts_with_counts_say_so():
    text = exact.audit_exactly(1.0, (0.02,), Counts(share=0.5)).text()
    assert text.count("\n") > 5
    assert "VIOLATED" not in text
    assert "weighted-gaussian" in text
    assert "laplace" not in text


# --- lines between worlds --------------------------------------------------------------------------------------
def pair_named(name):
    return next(one for one in counted_pairs() if one.pair.name == name)


@pytest.mark.parametrize("counted_pair", list(counted_pairs()), ids=lambda one: one.pair.name)
def test_the_lines_of_every_pair_are_as_long_as_one_person_can_make_them(counted_pair):
    lines = lines_between(counted_pair.pair, range(counted_pair.listed), PLAN, RunKey.for_tests(1))
    by_step = {line.step.number: line.length for line in lines}
    assert max(by_step.values()) <= 1.0
    if counted_pair.pair.name == "novel items only":
        # Only the two totals move, by a tenth each.
        assert set(by_step) == {FineStep.number}
        assert by_step[FineStep.number] == pytest.approx(math.sqrt(0.02), rel=1e-5)
    else:
        assert set(by_step) == set(STEPS)
        assert min(by_step.values()) > 0.98


def test_draws_on_a_line_are_normal_around_each_world():
    line = lines_between(pair_named("many listed items").pair, range(12), PLAN, RunKey.for_tests(1))[-1]
    stddev, trials = 1.7, 40_000
    without, within = (line.draw(stddev, RunKey.for_tests(2), trials, is_with=is_with) for is_with in (False, True))
    assert stats.kstest(without, stats.norm().cdf).pvalue > 1e-6
    assert stats.kstest(within, stats.norm(line.length / stddev).cdf).pvalue > 1e-6
    assert stats.kstest(within, stats.norm(0.9 * line.length / stddev).cdf).pvalue < 1e-6


def test_the_middle_between_the_worlds_is_an_edge():
    cells = counting.cells_of(np.array([0.499, 0.501, -99.0, 99.0]), 0.5)
    assert cells.tolist() == [counting.CELLS - 1, counting.CELLS, 0, 2 * counting.CELLS - 1]


def test_a_step_that_uses_its_budget_is_seen_to_and_one_with_less_noise_is_found_out():
    """The noise of each step alone for the whole budget: bounds come near the claim; with 0.7 of it they exceed it."""
    tail, trials = 1e-8, 100_000
    line = Contrast.between(
        RoughStep(1), counting.holdings_in(((0,),), [0], PLAN, RunKey.for_tests(1)), counting.nobody()
    )
    stddev = gaussian_stddev(BUDGET.epsilon, BUDGET.delta, 1.0)
    for factor, low, high in ((1.0, 0.7, 1.0), (0.7, 1.05, 2.5)):
        system = System(new_key=repeatable_keys(3))
        one, other = (
            counting.step_cells(line, factor * stddev, system, trials, is_with=is_with) for is_with in (True, False)
        )
        found = counting.bound_pair(pair_named("alone on a listed item").pair, one, other, BUDGET, tail)
        assert low < found.epsilon_bound <= high


@pytest.mark.parametrize("algorithm", [*SMALL, Funnel(max_items_per_user=3)], ids=lambda algorithm: algorithm.name)
def test_whole_pairs_are_looked_at_item_by_item(algorithm):
    pairs = list(whole_pairs(with_counts()(algorithm, BUDGET)))
    assert len({pair.name for pair in pairs}) == len(pairs)
    assert all(max(pair.extra) < counting.TRACKED for pair in pairs)


def test_audits_of_counts_refuse_what_cannot_be_counted():
    with pytest.raises(BadParameter, match="cannot estimate counts"):
        counting.audit_counts([CountLaplace()], trials=100)
    with pytest.raises(BadParameter):
        counting.audit_counts(trials=10)
    with pytest.raises(InternalError):
        counting.log_ratios([], PLAN, RunKey.for_tests(1), 5, is_with=True)


# --- noise in a whole release ------------------------------------------------------------------------------------
def test_a_release_takes_each_step_once_with_its_own_noise():
    seen = noise.see_steps(Budget(1.0, 1e-6), test_key=4)
    assert [number for number, _ in seen.drawn] == sorted(STEPS)
    assert [len(draws) for _, draws in seen.drawn][::2] == [noise.LISTED, noise.LISTED]
    assert 10 < len(seen.drawn[1][1]) < 30
    assert noise.wrong_noise(seen.drawn) is None


@pytest.mark.parametrize(
    ("change", "evidence"),
    [
        (lambda rows: rows[:2], "2 times"),
        (lambda rows: [*rows, rows[0]], "4 times"),
        (lambda rows: [(number, 0.93 * draws) for number, draws in rows], "0.93"),
        (lambda rows: [*rows[:2], (2, np.full(len(rows[2][1]), 1.0))], "go together"),
        (lambda rows: [*rows[:2], (2, rows[0][1])], "two steps"),
    ],
)
def test_wrong_noise_is_found(change, evidence):
    rows = noise.see_steps(Budget(1.0, 1e-6), test_key=5).drawn
    assert evidence in noise.wrong_noise(change(rows))


def test_true_counts_asked_for_besides_are_seen(monkeypatch):
    """A rough step as planned for show, and the true sums behind it."""

    def besides(plan, least, measure, parts=None):
        measure(RoughStep(len(least)), 1e-6)
        return mutants.COUNT_PEOPLE(plan, least, measure, parts)

    monkeypatch.setattr(people_counting, "count_people", besides)
    assert "4 times" in invariants.CHECKS["counts take noise"](System(), WeightedGaussian(), BUDGET, 0)


@pytest.mark.parametrize("mutant", mutants.count_mutants(), ids=lambda mutant: mutant.name)
def test_mutants_of_counts_are_caught_where_it_takes_no_trials(mutant):
    """By the check that needs none; tests/statistical/test_mutants.py has the others."""
    quick = dataclasses.replace(mutant, checks=mutant.checks[:1])
    assert quick.checks[0] != "odds of counts hold"
    (result,) = mutants.run_mutants(100, [quick])
    assert result.caught, result.evidence
    honest = dataclasses.replace(quick, system=System(plan=with_counts()))
    (result,) = mutants.run_mutants(100, [honest])
    assert result.evidence == {}
