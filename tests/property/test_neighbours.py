"""The deterministic heart of privacy: take one user away, and look how far the weights move.

For random databases and every user, with the same key: the histograms of the two worlds differ by at most the
declared sensitivity, nobody else's kept items or order change, and items only that user holds get at most the weight
the threshold was computed for.
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import by_name, contributions, databases, names

from dpunion.algorithms import ALGORITHMS, Norm, UserOrder, algorithm_named
from dpunion.budget import Budget
from dpunion.plans import plan_release
from dpunion.randomness import RunKey
from weighing import weigh

ORDERED = {"policy-laplace", "policy-gaussian"}
SEVERAL_ROUNDS = {"funnel", "dp-sips"}


def kept_sets(data):
    label = names(data.table)
    return [frozenset(label[i] for i in data.items[data.offsets[u] : data.offsets[u + 1]]) for u in range(data.users)]


def variants():
    for name in ALGORITHMS:
        if name in SEVERAL_ROUNDS:
            continue
        yield pytest.param(name, {}, id=name)
        if name in ORDERED:
            yield pytest.param(name, {"passes": 3}, id=f"{name}-3-passes")
            yield pytest.param(name, {"reserve": 0.3}, id=f"{name}-reserve")
            yield pytest.param(name, {"reserve": 0.5, "passes": 2}, id=f"{name}-2-passes-and-reserve")
            yield pytest.param(name, {"user_order": "smallest-first"}, id=f"{name}-smallest-first")


@pytest.mark.parametrize(("name", "parameters"), list(variants()))
@given(
    database=databases,
    limit=st.sampled_from([1, 3, 12]),
    budget=st.sampled_from([(3.0, 1e-2), (0.5, 1e-6), (8.0, 0.3)]),
)
def test_one_user_moves_the_weights_by_at_most_the_sensitivity(name, parameters, database, limit, budget):
    limit = 1 if name == "optimal-single-item" else limit
    plan = plan_release(algorithm_named(name, max_items_per_user=limit, **parameters), Budget(*budget))
    order = plan.algorithm.bounding.order
    full = contributions(database, limit=limit, order=order)
    full_weights = by_name(full.table, weigh(plan, full).values)
    for user in database:
        rest = {other: items for other, items in database.items() if other != user}
        if not rest:
            rest_sets, rest_weights, held = [], {}, set()
        else:
            without = contributions(rest, limit=limit, order=order)
            weights = weigh(plan, without)
            rest_weights = by_name(without.table, weights.values)
            rest_sets = kept_sets(without)
            held = set().union(*rest_sets)
        shift = [full_weights[item] - rest_weights.get(item, 0.0) for item in full_weights]
        power = 1 if plan.sensitivity.norm is Norm.L1 else 2
        distance = sum(abs(x) ** power for x in shift) ** (1 / power)
        assert weigh(plan, full).sensitivity == plan.sensitivity
        assert distance <= plan.sensitivity.bound * (1 + 1e-12)
        full_sets = kept_sets(full)
        at = next(i for i in range(len(full_sets)) if full_sets[:i] + full_sets[i + 1 :] == rest_sets)
        novel = full_sets[at] - held
        for item in novel:
            assert full_weights[item] <= novel_weight_bound(name, len(novel)) * (1 + 1e-12)


def novel_weight_bound(name, novel):
    """Return the weight per item that the threshold assumes for this many novel items."""
    match name.split("-"):
        case ["count", _] | ["optimal", *_]:
            return 1.0
        case [_, "laplace"]:
            return 1.0 / novel
        case _:
            return 1.0 / math.sqrt(novel)


@given(database=databases, limit=st.sampled_from([1, 2, 5]), seed=st.integers(0, 5))
def test_at_most_the_limit_is_kept_and_the_choice_is_the_users_own(database, limit, seed):
    key = RunKey.for_tests(seed)
    full = kept_sets(contributions(database, key, limit))
    assert all(len(items) <= limit for items in full)
    for user in database:
        alone = kept_sets(contributions({user: database[user]}, key, limit))
        assert alone[0] in full
        assert len(alone[0]) == min(limit, len(database[user]))


def test_smallest_first_visits_small_sets_first():
    database = {"a": {"1", "2", "3"}, "b": {"1"}, "c": {"1", "2"}}
    data = contributions(database, order=UserOrder.SMALLEST_FIRST)
    assert [len(items) for items in kept_sets(data)] == [1, 2, 3]
