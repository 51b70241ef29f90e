"""Plans: the numbers people see, and what is refused."""

import json
import math

import pytest

import dpunion
from dpunion.algorithms import ALGORITHMS, algorithm_named
from dpunion.budget import Budget
from dpunion.calibration import rounding
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
        (0.0, 1e-6, "epsilon"),
        (-1.0, 1e-6, "epsilon"),
        (math.nan, 1e-6, "epsilon"),
        (math.inf, 1e-6, "epsilon"),
        (1e308, 1e-6, "epsilon"),
        (1e-9, 1e-6, "epsilon"),
        ("1", 1e-6, "epsilon"),
        (True, 1e-6, "epsilon"),
        (1.0, 0.0, "delta"),
        (1.0, 1.0, "delta"),
        (1.0, 0.999999, "delta"),
        (10**400, 1e-6, "epsilon"),
        (1.0, 10**400, "delta"),
        (1.0, -1e-9, "delta"),
        (1.0, 2.0, "delta"),
        (1.0, math.nan, "delta"),
        (1.0, 1e-300, "delta"),
        (1.0, None, "delta"),
    ],
)
def test_bad_budgets_are_refused(epsilon, delta, name):
    with pytest.raises(dpunion.BadParameter, match=f"'{name}'"):
        Budget(epsilon, delta)


@pytest.mark.parametrize(
    "parameters",
    [
        {"max_items_per_user": 0},
        {"max_items_per_user": 2.0},
        {"max_items_per_user": True},
        {"cutoff_margin": math.nan},
        {"cutoff_margin": -1},
        {"passes": 0},
        {"reserve": -0.1},
        {"reserve": 0.6},
        {"user_order": "alphabetical"},
        {"calibration": "hopeful"},
        {"colour": "blue"},
    ],
)
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
