"""Plans: the numbers people see, and what is refused."""

import json
import math
import pickle
import re

import pytest

import dpunion
from dpunion.algorithms import ALGORITHMS, algorithm_named
from dpunion.budget import Budget
from dpunion.calibration import rounding
from dpunion.chances import Company, find_needed, holders_between, release_curve
from dpunion.plans import Plan, plan_release
from dpunion_lab.study import RESEARCH_POLICIES

E10 = math.exp(-10)


@pytest.mark.parametrize(
    ("epsilon", "delta", "calibration", "stddev", "threshold"),
    [
        (3, E10, "exact", (1.2824, 1.2840), (6.397, 6.405)),
        (3, E10, "published", (1.3327, 1.3342), (6.823, 6.831)),
        (1, 1e-5, "exact", (3.730, 3.735), (19.49, 19.52)),
        (1, 1e-5, "published", (3.884, 3.888), (20.789, 20.82)),
    ],
)
def test_policy_gaussian_golden(epsilon, delta, calibration, stddev, threshold):
    plan = dpunion.plan(dpunion.PolicyGaussian(calibration=calibration), epsilon=epsilon, delta=delta)
    assert stddev[0] <= plan.scale <= stddev[1]
    assert threshold[0] <= plan.threshold <= threshold[1]
    assert plan.cutoff == pytest.approx(plan.threshold + 3 * plan.scale)


@pytest.mark.parametrize(
    ("epsilon", "delta", "stddev", "threshold"), [(3, E10, 1.2833, 7.1509), (1, 1e-5, 3.7334, 20.813)]
)
def test_funnel_golden(epsilon, delta, stddev, threshold):
    plan = dpunion.plan(dpunion.Funnel(), epsilon=epsilon, delta=delta)
    assert plan.scale == pytest.approx(stddev, rel=5e-4)
    assert plan.threshold == pytest.approx(threshold, rel=5e-4)
    assert 0.95 <= plan.to_dict()["delta_used_share"] <= 1.0


def test_funnel_shapes_beyond_float64_are_refused():
    with pytest.raises(dpunion.BadParameter, match="too small for float64"):
        dpunion.plan(dpunion.Funnel(rounds=8, first_share=0.99), epsilon=1, delta=1e-6)
    with pytest.raises(dpunion.BadParameter, match="too coarse"):
        dpunion.plan(epsilon=30, delta=1e-9, weak_budget=True)


@pytest.mark.parametrize(("epsilon", "refused", "taken"), [(20.0, 3.28e-12, 3.3e-12), (30.0, 7.23e-8, 7.25e-8)])
def test_extreme_normals_are_paid_for_or_the_budget_is_refused(epsilon, refused, taken):
    """docs/guarantees-funnel.md 8.4: (1 + e^eps) 2^-68 is taken off, unless it is more than half of delta."""
    with pytest.raises(dpunion.BadParameter, match="too coarse"):
        rounding.funnel_target(epsilon, refused)
    assert rounding.funnel_target(epsilon, taken) == pytest.approx(taken - (1.0 + math.exp(epsilon)) * 2.0**-68)
    assert rounding.funnel_target(10.0, 1e-15) > 0.5e-15


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_a_plan_survives_json(name):
    plan = plan_release(name, Budget(1.0, 1e-6))
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    assert 0 < plan.delta_used <= 1e-6


@pytest.mark.parametrize("epsilon", [0.001, 0.05, 1.0, 20.0, 30.0])
@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_all_permitted_budgets_can_be_planned_or_are_refused_with_a_remedy(name, epsilon):
    try:
        limit = 1 if name == "optimal-single-item" else 10
        plan = plan_release(algorithm_named(name, max_items_per_user=limit), Budget(epsilon, 1e-9))
    except dpunion.BadParameter as error:
        rounding_or_range = "rounding" in error.what.lower() or "random numbers" in error.what
        assert rounding_or_range
        assert epsilon < 0.05 or epsilon > 20.0
    else:
        assert plan.scale > 0
        assert plan.rounding_slack <= rounding.LARGEST_L1_SLACK


@pytest.mark.parametrize(
    ("epsilon", "delta", "name"),
    [
        (0.0, 1e-6, "epsilon"), (-1.0, 1e-6, "epsilon"), (math.nan, 1e-6, "epsilon"), (math.inf, 1e-6, "epsilon"),
        (1e308, 1e-6, "epsilon"), (1e-9, 1e-6, "epsilon"), ("1", 1e-6, "epsilon"), (True, 1e-6, "epsilon"),
        (1.0, 0.0, "delta"), (1.0, 1.0, "delta"), (1.0, 0.999999, "delta"), (10**400, 1e-6, "epsilon"),
        (1.0, 10**400, "delta"), (1.0, -1e-9, "delta"), (1.0, 2.0, "delta"), (1.0, math.nan, "delta"),
        (1.0, 1e-300, "delta"), (1.0, None, "delta"),
    ],
)  # fmt: skip
def test_bad_budgets_are_refused(epsilon, delta, name):
    with pytest.raises(dpunion.BadParameter, match=f"'{name}'"):
        Budget(epsilon, delta)


@pytest.mark.parametrize(
    "parameters",
    [
        {"max_items_per_user": 0}, {"max_items_per_user": 2.0}, {"max_items_per_user": True},
        {"cutoff_margin": math.nan}, {"cutoff_margin": -1}, {"passes": 0}, {"reserve": -0.1}, {"reserve": 0.6},
        {"user_order": "alphabetical"}, {"calibration": "hopeful"}, {"colour": "blue"},
    ],
)  # fmt: skip
def test_bad_parameters_name_themselves(parameters):
    with pytest.raises(dpunion.BadParameter, match=next(iter(parameters))):
        algorithm_named("policy-gaussian", **parameters)


def test_laplace_has_no_exact_calibration():
    with pytest.raises(dpunion.BadParameter, match="already exact"):
        dpunion.PolicyLaplace(calibration="exact")


@pytest.mark.parametrize("kind", list(RESEARCH_POLICIES.values()), ids=list(RESEARCH_POLICIES))
def test_no_public_entry_takes_a_research_policy(kind, tmp_path):
    for policy in (kind(), kind, kind.name):
        with pytest.raises(dpunion.NotPrivate, match="cannot be released"):
            plan_release(policy, Budget(1.0, 1e-6))
        with pytest.raises(dpunion.NotPrivate, match="cannot be released"):
            dpunion.plan(policy, epsilon=1.0, delta=1e-6)
        with pytest.raises(dpunion.NotPrivate, match="cannot be released"):
            dpunion.release([("u", "i")], epsilon=1.0, delta=1e-6, algorithm=policy)


@pytest.mark.parametrize("thing", [None, 3, object(), dpunion.PolicyGaussian, "no-such-algorithm"])
def test_what_is_no_algorithm_is_refused(thing):
    with pytest.raises(dpunion.BadParameter, match="algorithm"):
        plan_release(thing, Budget(1.0, 1e-6))


def test_more_items_cost_more_threshold():
    thresholds = [
        plan_release(dpunion.PolicyGaussian(max_items_per_user=k), Budget(1, 1e-6)).threshold for k in (1, 10, 100)
    ]
    assert thresholds == sorted(thresholds)
    assert thresholds[0] < thresholds[2]


def test_the_range_of_delta_that_is_said_is_the_range():
    with pytest.raises(dpunion.BadParameter, match=r"a number from 1e-15 to 0\.5\. Got 0\.999999 instead"):
        dpunion.plan(epsilon=1.0, delta=0.999999)
    assert dpunion.plan(epsilon=1.0, delta=0.5, weak_budget=True).budget.delta == 0.5


# --- what a plan shows of itself ----------------------------------------------------------------------------
SHOWN = {
    "look": {},
    "counts": {"algorithm": "weighted-gaussian", "counts": True},
    "funnel": {"algorithm": dpunion.Funnel()},
    "ngrams": {"algorithm": dpunion.Ngrams(longest=2)},
    "candidates": {"algorithm": "policy-gaussian", "candidates": ["alpha", "beta"]},
}
HEADS = {
    "look": "LookPlan(funnel, epsilon=2, delta=0.0001, at most 3 to 600 items per person)",
    "counts": "Plan(weighted-gaussian, epsilon=2, delta=0.0001, at most 100 items per person, with counts)",
    "funnel": "Plan(funnel, epsilon=2, delta=0.0001, at most 300 items per person)",
    "ngrams": "NgramPlan(ngrams (funnel, funnel), epsilon=2, delta=0.0001, at most 300 items per person)",
    "candidates": "Plan(policy-gaussian, epsilon=2, delta=0.0001, at most 100 items per person, with candidates)",
}


@pytest.fixture(params=SHOWN)
def shown(request):
    return request.param, dpunion.plan(epsilon=2.0, delta=1e-4, **SHOWN[request.param])


def test_a_plan_has_a_short_repr(shown):
    name, plan = shown
    head, sentence = repr(plan).split("\n")
    assert head == HEADS[name]
    alone, ten, hundred = plan.needed()
    first = "a single word" if name == "ngrams" else "an item"
    assert sentence == (
        f"At this budget {first} has an even chance of being released if about {alone.even} people have it who have no "
        f"other item, or {ten.even} who have ten items each, or {hundred.even} who have a hundred."
    )


def test_needed_is_what_the_command_line_prints(shown):
    _, plan = shown
    rows = plan.needed()
    assert rows == find_needed(plan)
    assert [row.items_each for row in rows] == [1, 10, 100]
    assert all(row.even < row.likely for row in rows)
    assert rows[0].even < rows[1].even < rows[2].even
    assert plan.needed([10]) == rows[1:2]
    assert all(
        listed.even <= row.even and (listed == row) == (plan.candidates is None)
        for row, listed in zip(rows, plan.needed(listed=True), strict=True)
    )


@pytest.mark.parametrize("set_size", [1, 10, 100])
@pytest.mark.parametrize("algorithm", ["funnel", "policy-gaussian", "dp-sips"])
def test_the_search_finds_where_the_whole_curve_crosses(algorithm, set_size):
    plan = dpunion.plan(algorithm, epsilon=2.0, delta=1e-4, max_items_per_user=20)
    (found,) = plan.needed([set_size])
    curve = release_curve(plan, set_size=set_size, company=Company.RARE, holders=holders_between(1, 3_000))
    assert (found.even, found.likely) == (curve.holders_for(0.5), curve.holders_for(0.9))


def test_a_number_that_is_never_reached_is_none():
    row = dpunion.plan("weighted-gaussian", epsilon=1.0, delta=1e-6, max_items_per_user=1).needed([1, 10_000])[1]
    assert row.even is None
    assert "more than 100,000" in dpunion.plan("count-laplace", epsilon=0.01, delta=1e-6)._repr_html_()


def test_a_notebook_shows_the_card_of_a_plan(shown):
    name, plan = shown
    card = plan._repr_html_()
    assert f"<strong>{HEADS[name]}</strong>" in card
    assert "A list made by this plan is (2, 0.0001)-differentially private" in card
    assert f"(all {'texts' if name == 'ngrams' else 'rows'} of one person)" in card
    kinds = [plan.needed(), plan.needed(listed=True)] if name == "candidates" else [plan.needed()]
    rows = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in card.split("<tr>")[2:]]
    assert rows == [
        [
            f"{number:,}"
            for number in (ones[0].items_each, *(people for one in ones for people in (one.even, one.likely)))
        ]
        for ones in zip(*kinds, strict=True)
    ]
    assert ("for a candidate" in card) == (name == "candidates")


def test_plans_stay_values_without_a_dictionary(shown):
    _, plan = shown
    assert not hasattr(plan, "__dict__")
    assert plan == dpunion.plan(epsilon=2.0, delta=1e-4, **SHOWN[shown[0]])
    assert pickle.loads(pickle.dumps(plan)) == plan
