"""The look that chooses max_items_per_user: its cost, its noise, its choice, and the same sets as a fixed number."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

import dpunion
from dpunion.algorithms import Bounding, Funnel, UserOrder
from dpunion.budget import Budget
from dpunion.calibration.funnel import certificate
from dpunion.calibration.gaussian import gaussian_stddev
from dpunion.calibration.look import cost_of_look
from dpunion.counting.steps import ONE, LookStep, add_noise, people_in_classes, set_sizes
from dpunion.engines.local.engine import LocalEngine, open_request, read_sets, texts_of
from dpunion.engines.publishing import Outputs
from dpunion.errors import BadParameter
from dpunion.kernels.normal import gaussian_delta
from dpunion.ledger.accounts import charge_for, charge_for_plan
from dpunion.ledger.amounts import DELTA_UNITS
from dpunion.pipeline import fulfil
from dpunion.plans import Plan, plan_release
from dpunion.plans.counts import Counts
from dpunion.plans.look import CLASSES, LIMITS, STRENGTH, USUAL, SizeLook, class_sizes, plan_look
from dpunion.randomness import RunKey
from dpunion.requests import Request, Run
from dpunion.sets.grouping import bound_further, copy_heavy_users
from weighing import novelty_bounds

BUDGETS = [(3.0, math.exp(-10)), (1.0, 1e-6), (0.1, 1e-9), (8.0, 1e-5)]


def tilted(epsilon, mu, ratio):
    """Return x delta_G(epsilon - ln x; mu): the most that a release of this mu can add where the look says x."""
    return ratio * gaussian_delta(epsilon - math.log(ratio), mu)


def mean(function, nu, low=-12.0, high=12.0):
    """Return E[function(X); Z between], X = e^(nu Z - nu^2/2)."""

    def integrand(z):
        return function(math.exp(nu * z - nu * nu / 2)) * stats.norm.pdf(z)

    points = [nu / 2] if low < nu / 2 < high else None
    return integrate.quad(integrand, low, high, epsabs=0.0, epsrel=1e-10, limit=400, points=points)[0]


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_the_cost_is_that_of_the_integrals(epsilon, delta):
    cost = cost_of_look(epsilon, delta, STRENGTH)
    mu = 1.0 / gaussian_stddev(epsilon, delta, 1.0)
    assert cost.ratio == pytest.approx(STRENGTH * mu, rel=1e-6)
    growth = mean(lambda x: max(0.0, x - 1.0), cost.ratio)
    at_one = gaussian_delta(epsilon, mu)
    excess = mean(lambda x: max(0.0, tilted(epsilon, mu, x) - at_one), cost.ratio)
    assert growth <= cost.growth <= growth * 1.001
    assert excess <= cost.excess <= excess * 1.005
    assert cost.whole(cost.room) == pytest.approx(delta, rel=1e-6)
    assert cost.whole(cost.room) <= delta
    assert 0.8 * delta < cost.room < 0.97 * delta


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_choosing_by_a_look_breaks_a_sum_and_keeps_the_lemma(epsilon, delta):
    """Where the look speaks for the person, a plan of pure noise follows; elsewhere one of pure novelty."""
    cost = cost_of_look(epsilon, delta, STRENGTH)

    def exact(room):
        mu = 1.0 / gaussian_stddev(epsilon, room, 1.0)
        return mean(lambda x: tilted(epsilon, mu, x) if x > 1.0 else x * room, cost.ratio)

    assert exact(cost.room) <= delta
    # A sum: noise whose mu together with that of the look uses delta, or novelty of chance delta.
    summed = gaussian_stddev(epsilon, delta, 1.0, cost.ratio**2)
    used = mean(lambda x: tilted(epsilon, 1.0 / summed, x) if x > 1.0 else x * delta, cost.ratio)
    assert used > 1.03 * delta


def test_a_weak_budget_gets_a_look_that_tells_less():
    cost = cost_of_look(0.01, 0.3, STRENGTH)
    assert cost.ratio == pytest.approx(0.01 / 13)
    assert 0.0 < cost.room < 0.3


@given(st.lists(st.integers(0, 5000), max_size=30), st.integers(0, 5000))
def test_one_person_changes_one_class_of_the_look_by_one(sizes, another):
    step = LookStep()
    before = step.add_up(np.array(sizes, np.int64))
    after = step.add_up(np.array([*sizes, another], np.int64))
    assert np.abs(after - before).sum() == (ONE if another else 0)
    assert before.sum() == ONE * sum(size > 0 for size in sizes)
    assert len(before) == step.length == len(CLASSES)


def test_classes_are_told_apart_where_they_begin():
    for place, first in enumerate(CLASSES):
        assert np.flatnonzero(LookStep().add_up(np.array([first], np.int64))).tolist() == [place]
        if place:
            assert np.flatnonzero(LookStep().add_up(np.array([first - 1], np.int64))).tolist() == [place - 1]


def look_plan(stddev=10.0):
    return SizeLook(stddev, 1e-6, LIMITS, tuple(20.0 + 0.8 * math.log(bound) for bound in LIMITS))


@pytest.mark.parametrize(
    ("size", "bounds"), [(1, {3}), (2, {3}), (7, {10}), (20, {25}), (50, {60}), (200, {300}), (600, {600})]
)
def test_the_bound_fits_what_people_hold(size, bounds):
    people = [0.0] * len(CLASSES)
    people[int(np.searchsorted(CLASSES, size, side="right")) - 1] = 50_000.0
    assert look_plan().choose_limit(people) in bounds


def test_a_look_at_nothing_chooses_the_usual_limit():
    assert look_plan().choose_limit([0.0] * len(CLASSES)) == USUAL
    assert look_plan().choose_limit([-30.0, 4.0] * (len(CLASSES) // 2)) == USUAL


def test_noise_alone_does_not_choose_more_than_the_usual_number():
    noise = [0.0] * (len(CLASSES) - 2) + [12.0, 15.0]
    assert look_plan().choose_limit(noise) == USUAL
    assert look_plan().choose_limit([*noise[:-2], 30.0, 40.0]) == 600


def test_typical_sizes_lie_in_their_classes():
    sizes = class_sizes()
    assert all(first <= size for first, size in zip(CLASSES, sizes, strict=True))
    assert all(size < following for size, following in itertools.pairwise(sizes))


@pytest.mark.parametrize("counts", [None, Counts()])
@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS[:2])
def test_every_plan_that_a_look_may_choose_keeps_its_part(epsilon, delta, counts):
    budget = Budget(epsilon, delta)
    planned = plan_look(budget, counts, {})
    assert planned.look.limits == LIMITS
    assert list(planned.look.thresholds) == sorted(planned.look.thresholds)
    for plan in planned.alternatives:
        # Without what was added for rounding the certificate, evaluated anew, keeps to the look's part of delta.
        base = 1.0 + plan.rounding_slack
        extra = math.fsum(stddev**-2.0 for stddev in (plan.counts.stddevs if plan.counts else ()))
        used, _ = certificate(
            epsilon,
            planned.look.delta,
            plan.scale / base,
            plan.threshold / base,
            plan.algorithm,
            extra_mu_squared=extra,
        )
        assert used <= planned.look.delta
        assert used >= 0.95 * planned.look.delta
        assert 0.99 * delta < plan.delta_used <= delta
        assert plan.look == planned.look
        assert plan.budget == budget
        assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


def test_a_plan_with_a_look_is_written_whole():
    planned = dpunion.plan(epsilon=1.0, delta=1e-6)
    values = json.loads(json.dumps(planned.to_dict()))
    assert values["parameters"]["max_items_per_user"] == "auto"
    assert [one["parameters"]["max_items_per_user"] for one in values["menu"]] == list(LIMITS)
    assert values["look"]["menu"] == list(LIMITS)
    assert planned.opening.algorithm.max_items_per_user == USUAL


def test_a_look_raises_the_threshold_by_less_than_a_hundredth():
    planned, alone = dpunion.plan(epsilon=1.0, delta=1e-6), plan_release(Funnel(), Budget(1.0, 1e-6))
    assert 1.0 < planned.opening.threshold / alone.threshold < 1.01


@pytest.mark.parametrize("algorithm", ["policy-gaussian", "count-laplace"])
def test_only_funnel_can_choose_by_a_look(algorithm):
    with pytest.raises(BadParameter, match="Only funnel can choose"):
        dpunion.plan(algorithm, epsilon=1.0, delta=1e-6, max_items_per_user="auto")


def test_a_misspelt_word_is_refused_with_the_word_there_is():
    with pytest.raises(BadParameter, match=r"a whole number, or 'auto' with funnel\. Got 'autp' instead"):
        dpunion.plan(epsilon=1.0, delta=1e-6, max_items_per_user="autp")


def test_a_name_or_auto_asks_for_a_look_and_a_number_does_not():
    assert isinstance(dpunion.plan("funnel", epsilon=1.0, delta=1e-6), dpunion.LookPlan)
    assert isinstance(dpunion.plan(epsilon=1.0, delta=1e-6, max_items_per_user="auto"), dpunion.LookPlan)
    assert isinstance(dpunion.plan(epsilon=1.0, delta=1e-6, max_items_per_user=50), Plan)
    assert isinstance(dpunion.plan(Funnel(), epsilon=1.0, delta=1e-6), Plan)
    assert dpunion.plan(epsilon=1.0, delta=1e-6, rounds=3).alternatives[0].algorithm.rounds == 3


def test_the_noise_of_a_look_is_the_planned_one():
    stddev, draws = 37.0, []
    for number in range(400):
        noisy = add_noise(np.zeros(len(CLASSES), np.int64), LookStep.sensitivity, stddev, 3, RunKey.for_tests(number))
        draws += people_in_classes(noisy)
    # 5,600 draws: a scale that is wrong by 5 % is seen.
    assert np.std(draws) == pytest.approx(stddev, rel=0.04)
    assert abs(np.mean(draws)) < 4 * stddev / math.sqrt(len(draws))


def sets_of(sizes):
    """Return a mapping of people to items: popular ones first, then their own."""
    return {f"u{user}": [f"i{place}" for place in range(size)] for user, size in enumerate(sizes)}


@pytest.mark.parametrize(("size", "counts"), [(2, False), (9, False), (9, True), (40, False), (350, False)])
def test_a_chosen_limit_keeps_what_the_same_fixed_limit_keeps(size, counts):
    source = sets_of([size] * 3000 + [700] * 5)
    options = {"epsilon": 3.0, "delta": 1e-5, "unsafe_test_key": 5, "counts": counts}
    made = dpunion.release(source, **options)
    bound = made.plan.algorithm.max_items_per_user
    assert bound >= size
    assert len(made) > 0
    # The same plan on sets that were read with that number at once.
    planned = dpunion.plan(epsilon=3.0, delta=1e-5, counts=counts)
    plain = dataclasses.replace(planned.plan_for(bound), look=None)
    again = made_by(plain, source, 5)
    assert list(again) == sorted(made)


def made_by(plan, source, number):
    plan = dataclasses.replace(plan, counts=None)
    request = Request.of(source)
    outputs = Outputs.of((), overwrite=False, counts=False)
    engine = LocalEngine.for_run(Run(), None)
    return fulfil(plan, request, engine, outputs, None, Run(), RunKey.for_tests(number))


@given(st.lists(st.integers(1, 12), min_size=1, max_size=40), st.integers(1, 12), st.sampled_from(list(UserOrder)))
def test_bounding_in_place_is_bounding(sizes, limit, order):
    """After a look the sets are used up; what is kept, and where everybody stands, is as in a copy."""
    key = RunKey.for_tests(3)
    source = sets_of(sizes) | {f"v{at}": [f"j{at}", "i0"] for at in range(5)}
    request = Request.of(source)
    with open_request(request, Run()) as rows:
        whole = read_sets(request, rows, Bounding(12, order), key)
    copied = bound_further(whole, Bounding(limit, order), key, threads=1)
    used_up = bound_further(whole, Bounding(limit, order), key, threads=1, in_place=True)
    for name in ("offsets", "items", "user_digests"):
        assert getattr(used_up, name).tolist() == getattr(copied, name).tolist()
    assert used_up.max_items_per_user == limit


@given(st.lists(st.integers(1, 12), min_size=1, max_size=40), st.integers(1, 12))
def test_sets_for_counts_survive_bounding_in_place(sizes, limit):
    key, bounding = RunKey.for_tests(3), Bounding(12, UserOrder.SMALLEST_FIRST)
    request = Request.of(sets_of(sizes))
    with open_request(request, Run()) as rows:
        whole = read_sets(request, rows, bounding, key)
    before = sets_by_user(whole)
    parts = copy_heavy_users(whole, limit)
    bound_further(whole, dataclasses.replace(bounding, limit=limit), key, threads=1, in_place=True)
    assert sets_by_user(parts[0]) | sets_by_user(parts[1]) == before
    assert parts[0].users + parts[1].users == len(before)


def sets_by_user(sets):
    """Return each user's items, by the user's digest."""
    items = np.split(sets.items, sets.offsets[1:-1])
    return (
        {tuple(digest): own.tolist() for digest, own in zip(sets.user_digests.tolist(), items, strict=True)}
        if sets.users
        else {}
    )


def test_known_items_are_not_looked_at():
    """People have thirty items, all but two of them known: a small number is enough."""
    source = sets_of([30] * 4000)
    known = [f"i{place}" for place in range(28)]
    options = {"epsilon": 3.0, "delta": 1e-5, "unsafe_test_key": 1}
    assert dpunion.release(source, **options).plan.algorithm.max_items_per_user >= 25
    for counts in (False, True):
        made = dpunion.release(source, **options, known=known, counts=counts)
        assert made.plan.algorithm.max_items_per_user == 3
        assert sorted(made) == ["i28", "i29"]


def test_sizes_without_unwanted_items():
    sets = whole_sets({"u": ["a", "b", "c"], "v": ["b"], "w": ["a", "c"]})
    sizes = dict(zip(map(tuple, sets.user_digests.tolist()), set_sizes(sets).tolist(), strict=True))
    assert sorted(sizes.values()) == [1, 2, 3]
    unwanted = np.array([text == "b" for text in texts_of(sets.table, np.arange(3))])
    left = dict(zip(map(tuple, sets.user_digests.tolist()), set_sizes(sets, unwanted).tolist(), strict=True))
    assert {whole: left[user] for user, whole in sizes.items()} == {3: 2, 1: 0, 2: 2}


def whole_sets(source):
    request = Request.of(source)
    with open_request(request, Run()) as rows:
        return read_sets(request, rows, Bounding(LIMITS[-1]), RunKey.for_tests(1))


def test_the_statement_names_the_choice():
    made = dpunion.release(sets_of([9] * 20_000), epsilon=3.0, delta=1e-5)
    assert "at most 10 items per person" in made.statement
    assert "chosen from 3, 10, 25, 60, 150, 300 or 600, using a noisy histogram" in made.statement
    assert made.to_dict()["plan"]["look"]["menu"] == list(LIMITS)


def test_a_look_at_few_people_or_none_has_a_result():
    assert len(dpunion.release({}, epsilon=1.0, delta=1e-6)) == 0
    assert len(dpunion.release({"u": ["a"]}, epsilon=1.0, delta=1e-6)) == 0


@pytest.mark.parametrize("counts", [None, Counts(share=0.3)])
def test_a_ledger_is_charged_for_any_plan_that_a_look_may_choose(counts):
    planned = plan_look(Budget(1.0, 1e-6), counts, {})
    price = charge_for(planned)
    alone = charge_for_plan(plan_release(Funnel(), Budget(1.0, 1e-6)))
    for plan in planned.alternatives:
        assert all(whole >= part for whole, part in zip(price.values(), charge_for_plan(plan).values(), strict=True))
        look = plan.look.stddev**-2.0
        noise = ((1.0 + plan.rounding_slack) / plan.scale) ** 2
        steps = math.fsum(stddev**-2.0 for stddev in (plan.counts.stddevs if counts else ()))
        assert price.mu_squared >= (look + noise + steps) * 10**15
    assert price.novelty <= alone.delta
    assert price.mu_squared == pytest.approx(alone.mu_squared, rel=0.05)


def largest_novelty(plan):
    """Return the largest certified chance that an item is released which only one person has, over every number t."""
    raised = 1.0 + plan.rounding_slack
    return float(novelty_bounds(plan.scale / raised, plan.threshold / raised, plan.algorithm).max())


@pytest.mark.parametrize("share", [None, 0.1, 0.3, 0.5])
@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.1, 1e-8), (1.0, 1e-6), (3.0, 1e-5), (8.0, 1e-5), (8.0, 1e-8), (10.0, 1e-6), (10.0, 1e-3)]
)
def test_the_novelty_charged_with_a_look_covers_every_certified_chance(epsilon, delta, share):
    """The look's own part of mu^2 must not be subtracted: the plans are certified without it."""
    planned = plan_look(Budget(epsilon, delta), None if share is None else Counts(share=share), {})
    chances = [largest_novelty(plan) for plan in planned.alternatives]
    for plan, chance in zip(planned.alternatives, chances, strict=True):
        assert charge_for_plan(plan).novelty / DELTA_UNITS >= chance
    assert charge_for(planned).novelty / DELTA_UNITS >= max(chances)


def test_a_weekly_job_with_a_tight_ledger(tmp_path):
    from dpunion.ledger import Ledger

    book = Ledger.open(tmp_path / "budget.db", create=True)
    book.create_dataset("logs", 10, 1e-5, "tight")
    book.close()
    made = dpunion.release(
        sets_of([9] * 2000), epsilon=1.0, delta=1e-7, charge=dpunion.Charge(tmp_path / "budget.db", "logs")
    )
    assert len(made) == 9
