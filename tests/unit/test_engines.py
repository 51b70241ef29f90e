"""The engine of one machine, function by function: what each promises about private data."""

import dataclasses
import math

import numpy as np
import pyarrow as pa
import pytest

from dpunion.algorithms import ALGORITHMS, DpSips, Funnel, Norm, OptimalSingleItem, Sensitivity, UserOrder
from dpunion.budget import Budget
from dpunion.engines import local, rounds
from dpunion.errors import SensitivityMismatch
from dpunion.plans import plan_release
from dpunion.randomness import RunKey
from dpunion.sources.encoding import Normalization, encode

KEY = RunKey.for_tests(7)
BUDGET = Budget(1.0, 0.01)
ONE_ROUND = [kind for kind in ALGORITHMS.values() if kind not in (Funnel, DpSips)]
# 30 users with 1 to 12 of 15 items, every one of them different.
PEOPLE = {f"user{n}": [f"item{(n + 4 * i) % 15}" for i in range(1 + n % 12)] for n in range(30)}


def contributions(people, limit=100):
    users = pa.array([user for user, items in people.items() for _ in items])
    items = pa.array([item for held in people.values() for item in held])
    options = {"user_order": UserOrder.RANDOM, "normalization": Normalization.NFC, "split_words": False}
    return encode([(users, items)], KEY, max_items_per_user=limit, **options)


def plan_of(kind):
    return plan_release(kind() if kind is OptimalSingleItem else kind(max_items_per_user=3), BUDGET)


def sets_of(data, offsets, items):
    """Return {user's digest: [items' digests]}."""
    digests = data.table.digests.tolist()
    owners = map(tuple, data.user_digests.tolist())
    ends = zip(offsets[:-1], offsets[1:], strict=True)
    return {
        owner: [tuple(digests[item]) for item in items[start:stop]]
        for owner, (start, stop) in zip(owners, ends, strict=True)
    }


@pytest.mark.parametrize("kind", ONE_ROUND, ids=lambda kind: kind.__name__)
def test_noise_for_another_sensitivity_is_refused(kind):
    plan = plan_of(kind)
    data = contributions(PEOPLE, plan.algorithm.max_items_per_user)
    weights = local.weigh(plan, data)
    assert local.decide(plan, weights, data.table.digests, KEY).shape == weights.values.shape
    bound, norm = plan.sensitivity.bound, plan.sensitivity.norm
    other_norm = Norm.L1 if norm is Norm.L2 else Norm.L2
    for wrong in (Sensitivity(norm, 0.5 * bound), Sensitivity(norm, 2.0 * bound), Sensitivity(other_norm, bound)):
        with pytest.raises(SensitivityMismatch):
            local.decide(dataclasses.replace(plan, sensitivity=wrong), weights, data.table.digests, KEY)
        with pytest.raises(SensitivityMismatch):
            local.decide(plan, dataclasses.replace(weights, sensitivity=wrong), data.table.digests, KEY)


def test_an_item_that_nobody_kept_is_not_held_and_never_released():
    data = contributions({"one": [f"item{n}" for n in range(50)], "two": ["item1", "item2"]}, 3)
    held = rounds.held_items(data)
    assert np.flatnonzero(held).tolist() == np.unique(data.items).tolist()
    assert held.sum() < len(data.table)
    plan = plan_of(ALGORITHMS["weighted-gaussian"])
    loose = dataclasses.replace(plan, threshold=-100.0)
    passed = local.decide(loose, local.weigh(loose, data), data.table.digests, KEY)
    assert passed.tolist() == held.tolist()


def test_each_user_draws_from_the_own_items_whoever_else_is_there():
    data = contributions(PEOPLE)
    drawn = sets_of(data, *rounds.draw_items(data.offsets, data.items, data, 3, 1, KEY))
    all_items = sets_of(data, data.offsets, data.items)
    for user, items in drawn.items():
        assert len(items) == min(3, len(all_items[user]))
        assert set(items) <= set(all_items[user])
    for gone in list(PEOPLE)[::5]:
        rest = contributions({user: items for user, items in PEOPLE.items() if user != gone})
        without = sets_of(rest, *rounds.draw_items(rest.offsets, rest.items, rest, 3, 1, KEY))
        assert without == {user: drawn[user] for user in without}
        assert len(without) == len(drawn) - 1


def test_sips_is_the_same_in_plain_python():
    """Each round: draw at most the limit, share out 1/sqrt(k), one coin per item; what is released leaves all sets."""
    plan = plan_release(DpSips(max_items_per_user=3, share_ratio=1.0), Budget(2.0, 0.1))
    data = contributions(PEOPLE)
    digests = data.table.digests
    released = set()
    counts = []
    for number, one in enumerate(plan.rounds):
        left = [
            [item for item in data.items[start:stop].tolist() if item not in released]
            for start, stop in zip(data.offsets[:-1], data.offsets[1:], strict=True)
        ]
        offsets = np.array([0, *np.cumsum([len(items) for items in left])], np.int64)
        flat = np.array([item for items in left for item in items], np.int32)
        ends, drawn = rounds.draw_items(offsets, flat, data, 3, number, KEY)
        weights = np.zeros(len(digests))
        for start, stop in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            weights[drawn[start:stop]] += math.isqrt(2**64 // max(1, stop - start)) * 2.0**-32
        passed = KEY.decide_gaussian(number, digests, weights, threshold=one.threshold, stddev=one.stddev)
        released |= set(np.flatnonzero(passed & (weights > 0.0)).tolist())
        counts.append(len(released))
    assert rounds.select_by_sips(plan, plan.algorithm, data, KEY).tolist() == sorted(released)
    assert 0 < counts[0] < counts[-1] < len(digests)


@pytest.mark.parametrize("number", [0, 1, 3])
def test_one_user_moves_a_rounds_weights_by_at_most_its_budget(number):
    plan = plan_release(Funnel(max_items_per_user=12), BUDGET)
    data = contributions(PEOPLE, 12)
    scores = np.linspace(-1.0, plan.cutoff + 1.0, len(data.table))
    whole = [(data.offsets, data.items)]
    weights, visited = rounds.weigh_round(plan, plan.algorithm, number, scores, whole)
    assert visited == whole
    assert weights.max() > 0.0
    budget = plan.rounds[number].budget
    largest = 0.0
    for user in range(data.users):
        start, stop = data.offsets[user : user + 2]
        offsets = np.delete(data.offsets, user + 1)
        offsets[user + 1 :] -= stop - start
        rest = np.delete(data.items, np.arange(start, stop))
        without, _ = rounds.weigh_round(plan, plan.algorithm, number, scores, [(offsets, rest)])
        largest = max(largest, float(np.linalg.norm(weights - without)))
    assert 0.5 * budget < largest <= budget * (1.0 + plan.rounding_slack)
