"""Each item is released exactly as often as its weight, the threshold and the noise say.

Thousands of items that are all held by equally many people, each person holding one group of items only: every item has
the same known weight, so the number released is binomial with a known probability. The right probability must be
accepted, and what a slightly wrong scale, threshold or weight would give must be rejected on the same counts.
"""

import functools
import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

import dpunion
from dpunion.algorithms import ALGORITHMS, algorithm_named
from dpunion.plans import Noise

ITEMS, KEYS = 4000, 5
TOTAL = ITEMS * KEYS
EPSILON, DELTA = 1.0, 1e-3
LIMIT = 2
ACCEPT = 1e-6

ONE_ROUND = [name for name in ALGORITHMS if name not in {"funnel", "dp-sips", "optimal-single-item"}]


@functools.cache
def algorithm(name):
    return algorithm_named(name, **({} if name == "optimal-single-item" else {"max_items_per_user": LIMIT}))


@functools.cache
def plan(name):
    return dpunion.plan(algorithm(name), epsilon=EPSILON, delta=DELTA)


def table(people, group):
    """Return rows of `people` people per group of `group` items, each holding the whole group and nothing else."""
    owners = np.repeat(np.arange(ITEMS // group * people), group)
    items = (owners // people) * group + np.tile(np.arange(group), ITEMS // group * people)
    names = pa.array([f"item{i}" for i in range(ITEMS)])
    return pa.table({"user": pa.array(owners), "item": names.take(pa.array(items))})


@functools.cache
def released_sets(name, people, group, budget=(EPSILON, DELTA)):
    asked = {"user": "user", "item": "item", "epsilon": budget[0], "delta": budget[1], "algorithm": algorithm(name)}
    release = functools.partial(dpunion.release, table(people, group), weak_budget=True, **asked)
    return tuple(frozenset(release(unsafe_test_key=key).items) for key in range(KEYS))


def released_count(*given):
    return sum(len(items) for items in released_sets(*given))


def verdict(count, probability):
    """Return the p-value of `count` successes of TOTAL under `probability`."""
    return stats.binomtest(count, TOTAL, min(max(probability, 0.0), 1.0)).pvalue


def tail(noise, distance, scale):
    """Return Pr[noise > distance]."""
    return float((stats.norm if noise is Noise.GAUSSIAN else stats.laplace).sf(distance, scale=scale))


def share(name, group):
    """Return what a person with `group` items gives each of them."""
    if name.startswith("count"):
        return 1.0
    return 1.0 / group if name.endswith("laplace") else 1.0 / math.sqrt(group)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("side", [-1.0, 1.0], ids=["below", "above"])
@pytest.mark.parametrize("name", ONE_ROUND)
def test_items_pass_as_often_as_the_tail_says(name, side, group):
    planned = plan(name)
    each = share(name, group)
    people = round((planned.threshold + side * planned.scale) / each)
    weight = people * each
    assert planned.cutoff is None or weight < planned.cutoff, "a policy must not have filled the item"
    count = released_count(name, people, group)
    distance = planned.threshold - weight
    assert verdict(count, tail(planned.noise, distance, planned.scale)) > ACCEPT
    for scale in (0.8, 1.25):
        assert verdict(count, tail(planned.noise, distance, planned.scale * scale)) < ACCEPT
    for factor in (0.9, 1.1):
        assert verdict(count, tail(planned.noise, planned.threshold * factor - weight, planned.scale)) < ACCEPT
    for wrong in (weight - each, weight + each):
        assert verdict(count, tail(planned.noise, planned.threshold - wrong, planned.scale)) < ACCEPT


@pytest.mark.parametrize("name", ["policy-gaussian", "policy-laplace"])
def test_a_policy_fills_up_to_the_cutoff_and_no_further(name):
    planned = plan(name)
    people = math.ceil(planned.cutoff) + 20
    count = released_count(name, people, 1)
    full = tail(planned.noise, planned.threshold - planned.cutoff, planned.scale)
    assert verdict(count, full) > ACCEPT
    assert verdict(count, tail(planned.noise, planned.threshold - people, planned.scale)) < ACCEPT


@pytest.mark.parametrize("people", [8, 17])
def test_dp_sips_passes_as_often_as_one_of_its_rounds_lets_it(people):
    planned = plan("dp-sips")

    def probability(scale=1.0, factor=1.0):
        chances = (stats.norm.sf((one.threshold * factor - people) / (one.stddev * scale)) for one in planned.rounds)
        return 1.0 - math.prod(1.0 - chance for chance in chances)

    count = released_count("dp-sips", people, 1)
    assert verdict(count, probability()) > ACCEPT
    assert verdict(count, probability(factor=0.9)) < ACCEPT
    assert verdict(count, probability(factor=1.1)) < ACCEPT
    assert verdict(count, probability(scale=0.8)) < ACCEPT


def simulated_funnel(people, *, scale=1.0, factor=1.0, samples=400_000):
    """Return how often Funnel passes an item held by `people` people with nothing else, by its definition.

    In round r each person raises the item by the round's budget c_r until it has its target, need * aim, with an aim of
    min(haste * c_r / rem_r, 1 / c_r). What is above the threshold after a round has passed.
    """
    planned, random = plan("funnel"), np.random.default_rng(7)
    budgets = [one.budget for one in planned.rounds]
    scores, alive = np.zeros(samples), np.ones(samples, bool)
    for number, one in enumerate(planned.rounds):
        remaining = sum(budget**2 for budget in budgets[number:])
        aim = min(planned.algorithm.haste * one.budget / remaining, 1.0 / one.budget)
        cutoff = planned.threshold + planned.algorithm.cutoff_margin * planned.scale * math.sqrt(remaining)
        target = np.maximum(0.0, cutoff - scores) * aim
        gained = np.minimum(people * one.budget, target) + scale * one.stddev * random.standard_normal(samples)
        scores += np.where(scores > planned.threshold * factor, 0.0, one.budget * gained)
        alive &= scores > one.threshold * factor
    return alive.mean()


@pytest.mark.parametrize("people", [7, 13])
def test_funnel_passes_as_often_as_its_definition_says(people):
    count = released_count("funnel", people, 1)
    assert 0.02 * TOTAL < count < 0.98 * TOTAL
    samples = 400_000

    def homogeneous(rate):
        table = [[count, TOTAL - count], [rate * samples, (1.0 - rate) * samples]]
        return stats.chi2_contingency(table).pvalue

    assert homogeneous(simulated_funnel(people)) > ACCEPT
    assert homogeneous(simulated_funnel(people, scale=0.8)) < ACCEPT
    assert homogeneous(simulated_funnel(people, factor=0.9)) < ACCEPT
    assert homogeneous(simulated_funnel(people - 1)) < ACCEPT


def optimal(people, epsilon, delta):
    """Return the largest private probability of releasing an item of `people` people (Desfontaines et al. 2022)."""
    chance = 0.0
    for _ in range(people):
        grown = math.exp(epsilon) * chance + delta
        chance = min(grown, 1.0 - math.exp(-epsilon) * (1.0 - chance - delta), 1.0)
    return chance


@pytest.mark.parametrize("people", [5, 6, 7, 8])
def test_the_optimal_release_is_optimal(people):
    count = released_count("optimal-single-item", people, 1)
    assert verdict(count, optimal(people, EPSILON, DELTA)) > ACCEPT
    assert verdict(count, optimal(people, EPSILON * 1.1, DELTA)) < ACCEPT
    assert verdict(count, optimal(people, EPSILON, DELTA * 1.5)) < ACCEPT
    assert verdict(count, optimal(people - 1, EPSILON, DELTA)) < ACCEPT


@pytest.mark.parametrize("name", ["weighted-gaussian", "weighted-laplace", "count-gaussian", "funnel"])
def test_an_item_of_one_person_passes_about_delta_often(name):
    """At a large delta, so that it can be counted: never more often than delta, by the promise itself."""
    budget = (1.0, 0.05)
    count = released_count(name, 1, 1, budget)
    assert stats.binomtest(count, TOTAL, 0.05, alternative="greater").pvalue > ACCEPT
    assert count > 0


@pytest.mark.parametrize("name", ALGORITHMS)
def test_decisions_of_different_keys_and_items_are_independent(name):
    """Of two keys the joint frequency is the product, and neighbouring items do not share their fate."""
    people = round(plan(name).threshold) if name in ONE_ROUND else {"dp-sips": 7, "funnel": 11}.get(name, 7)
    sets = released_sets(name, people, 1)
    passed = np.array([[f"item{i}" in items for i in range(ITEMS)] for items in sets])
    assert 0.05 < passed.mean() < 0.95
    for one, other in itertools.combinations(passed, 2):
        cells = np.histogram2d(one, other, bins=2)[0]
        assert stats.chi2_contingency(cells).pvalue > ACCEPT
    cells = np.histogram2d(passed[:, :-1].ravel(), passed[:, 1:].ravel(), bins=2)[0]
    assert stats.chi2_contingency(cells).pvalue > ACCEPT


def test_the_independence_test_has_power():
    """A tenth of shared decisions is noticed."""
    random = np.random.default_rng(1)
    one, other = random.random(ITEMS) < 0.5, random.random(ITEMS) < 0.5
    other[: ITEMS // 10] = one[: ITEMS // 10]
    assert stats.chi2_contingency(np.histogram2d(one, other, bins=2)[0]).pvalue < ACCEPT


def test_the_limit_halves_a_group_of_four():
    """A person with four items gives two of them a share of 1/sqrt(2), at random: a mixture over who keeps what."""
    planned = plan("weighted-gaussian")
    people = 12
    count = released_count("weighted-gaussian", people, 4)
    kept = np.arange(people + 1)
    odds = stats.binom.pmf(kept, people, 0.5)
    chances = stats.norm.sf((planned.threshold - kept * share("weighted-gaussian", LIMIT)) / planned.scale)
    # Items of one group share their people, so counts vary less than independent ones: this is the safe side.
    assert verdict(count, float(odds @ chances)) > ACCEPT
    unbounded = stats.norm.sf((planned.threshold - people * share("weighted-gaussian", 4)) / planned.scale)
    assert verdict(count, unbounded) < ACCEPT
