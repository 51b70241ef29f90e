"""Weigh and decide of every algorithm: what each promises about private data, on both engines."""

import dataclasses
import math

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dpunion import algorithms
from dpunion.budget import Budget
from dpunion.calibration.rounding import MAX_USERS
from dpunion.engines.local import run_rounds
from dpunion.engines.spark.tasks import Decide, Secret, Weigh
from dpunion.errors import InternalError, SensitivityMismatch
from dpunion.mechanisms import ShareRule, State, mechanism_for
from dpunion.plans import plan_release
from dpunion.randomness import RunKey
from dpunion.sets import narrowing
from dpunion.sets.narrowing import Part, Sets, count_keepers, draw_items
from making import encode_items
from spark_in_process import by_rounds, by_shares, cut_up, each, partitions, summed, to_shards
from weighing import weigh

KEY = RunKey.for_tests(7)
BUDGET = Budget(1.0, 0.01)
# 30 users with 1 to 12 of 15 items, every one of them different.
PEOPLE = {f"user{n}": [f"item{(n + 4 * i) % 15}" for i in range(1 + n % 12)] for n in range(30)}


def contributions(people, limit=100, order=algorithms.UserOrder.RANDOM):
    users = pa.array([user for user, items in people.items() for _ in items])
    items = pa.array([item for held in people.values() for item in held])
    return encode_items([(users, items)], KEY, limit, order)


def plan_of(kind):
    return plan_release(kind() if kind is algorithms.OptimalSingleItem else kind(max_items_per_user=3), BUDGET)


def data_for(plan, people=PEOPLE):
    return contributions(people, plan.algorithm.bounding.limit, plan.algorithm.bounding.order)


def wrong_ones(right):
    """Return sensitivities that the noise is not for."""
    other = algorithms.Norm.L1 if right.norm is algorithms.Norm.L2 else algorithms.Norm.L2
    return [
        algorithms.Sensitivity(right.norm, 0.5 * right.bound),
        algorithms.Sensitivity(right.norm, 2.0 * right.bound),
        algorithms.Sensitivity(other, right.bound),
    ]


@pytest.mark.parametrize("kind", algorithms.ALGORITHMS.values(), ids=lambda kind: kind.__name__)
def test_weights_of_another_sensitivity_are_refused(kind):
    plan = plan_of(kind)
    data, mechanism = data_for(plan), mechanism_for(plan)
    for number in range(mechanism.rounds):
        weights = weigh(plan, data, KEY, number)
        state = State.start(len(data.table))
        assert mechanism.decide(weights, state, number, data.table.digests, KEY).alive.shape == (len(data.table),)
        for wrong in wrong_ones(weights.sensitivity):
            with pytest.raises(SensitivityMismatch):
                changed = dataclasses.replace(weights, sensitivity=wrong)
                mechanism.decide(changed, State.start(len(data.table)), number, data.table.digests, KEY)


@pytest.mark.parametrize("kind", algorithms.ALGORITHMS.values(), ids=lambda kind: kind.__name__)
def test_noise_for_another_sensitivity_is_refused(kind):
    plan = plan_of(kind)
    data = data_for(plan)
    assert run_rounds(mechanism_for(plan), data, KEY).dtype == np.int64
    for wrong in wrong_ones(plan.sensitivity):
        with pytest.raises(SensitivityMismatch):
            run_rounds(mechanism_for(dataclasses.replace(plan, sensitivity=wrong)), data, KEY)


@pytest.mark.parametrize("kind", algorithms.ALGORITHMS.values(), ids=lambda kind: kind.__name__)
def test_noise_for_another_sensitivity_is_refused_by_the_tasks_of_spark(kind):
    """What weigh said travels beside the weights, through sums, to decide."""
    plan = plan_of(kind)
    database = {user: set(items) for user, items in PEOPLE.items()}
    run = by_shares if mechanism_for(plan).cutoff is None and not plan.rounds else by_rounds
    assert isinstance(run(plan, database, KEY, 3), set)
    for wrong in wrong_ones(plan.sensitivity):
        with pytest.raises((RuntimeError, SensitivityMismatch)) as refused:
            run(dataclasses.replace(plan, sensitivity=wrong), database, KEY, 3)
        assert "SensitivityMismatch" in f"{refused.type.__name__}: {refused.value}"


def test_shards_that_weigh_differently_are_refused():
    plan = plan_of(algorithms.Funnel)
    mechanism, secret = mechanism_for(plan), Secret.of(KEY)
    pieces, _ = cut_up(plan, partitions({user: set(items) for user, items in PEOPLE.items()}, 2), KEY, 3)
    rows = each(Weigh(mechanism, secret, 0, 3), to_shards(pieces))
    rows[0]["sensitivity"] *= 2.0
    with pytest.raises(SensitivityMismatch):
        list(Decide(mechanism, secret, 0, 3, replies=True)(iter(summed(rows, shards=3)[0])))


def test_sets_that_are_bounded_more_loosely_are_refused():
    plan = plan_of(algorithms.Funnel)
    with pytest.raises(InternalError, match="loosely"):
        run_rounds(mechanism_for(plan), contributions(PEOPLE, 4), KEY)


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
@pytest.mark.parametrize("norm", algorithms.Norm)
@pytest.mark.parametrize("rule", ShareRule)
def test_the_sensitivity_of_a_rule_is_the_norm_of_its_shares(rule, norm, limit):
    shares = rule.of_sizes(limit) * 2.0**-32
    power = 1 if norm is algorithms.Norm.L1 else 2
    most = max((size * share**power) ** (1 / power) for size, share in enumerate(shares.tolist()))
    said = rule.sensitivity(norm, limit)
    assert said.norm is norm
    assert said.bound * (1 - 1e-6) <= most <= said.bound * (1 + 1e-15)


def test_an_item_that_nobody_kept_is_not_held_and_never_released():
    data = contributions({"one": [f"item{n}" for n in range(50)], "two": ["item1", "item2"]}, 3)
    held = count_keepers(data) > 0
    assert np.flatnonzero(held).tolist() == np.unique(data.items).tolist()
    assert held.sum() < len(data.table)
    for kind in algorithms.ALGORITHMS.values():
        plan = plan_of(kind)
        rounds = tuple(dataclasses.replace(one, threshold=-100.0) for one in plan.rounds)
        loose = dataclasses.replace(plan, threshold=-100.0, rounds=rounds)
        kept = data_for(loose, {"one": [f"item{n}" for n in range(50)], "two": ["item1", "item2"]})
        chosen = run_rounds(mechanism_for(loose), kept, KEY)
        if kind is not algorithms.OptimalSingleItem:
            assert len(chosen) > 0
        assert (count_keepers(kept)[chosen] > 0).all()


@pytest.mark.parametrize("name", ["policy-gaussian", "policy-laplace"])
def test_a_reserve_fills_what_very_many_hold_up_to_the_higher_cutoff(name):
    planned = plan_release(algorithms.algorithm_named(name, max_items_per_user=3, reserve=0.1), Budget(3.0, 1e-3))
    safe = planned.threshold + planned.algorithm.safe_margin * planned.scale
    weights = []
    for people in (math.ceil(planned.cutoff / 0.9), math.ceil(planned.cutoff / 0.9) + 5, 20 * math.ceil(safe)):
        data = contributions({f"user{n}": ["item"] for n in range(people)}, 3)
        weights.append(float(weigh(planned, data).values[0]))
    assert weights[0] == pytest.approx(planned.cutoff + 0.1 * math.ceil(planned.cutoff / 0.9))
    assert weights[1] == pytest.approx(weights[0] + 0.5)
    assert weights[2] == pytest.approx(safe)
    chance = stats.norm.sf if name == "policy-gaussian" else stats.laplace.sf
    assert chance(planned.algorithm.safe_margin) < 1e-6


@pytest.mark.parametrize("kind", [algorithms.Funnel, algorithms.DpSips])
def test_released_items_that_stay_in_the_sets_change_nothing(monkeypatch, kind):
    database = {f"user{n}": [f"item{m}" for m in range(40) if (n * m) % 7 < 3] for n in range(60)}
    plan = plan_release(kind(max_items_per_user=3), Budget(3.0, 0.01))
    data = data_for(plan, database)
    chosen = []
    for most_staying in (-1.0, 1.0):
        monkeypatch.setattr(narrowing, "MOST_STAYING", most_staying)
        chosen.append(run_rounds(mechanism_for(plan), data, KEY).tolist())
    assert chosen[0] == chosen[1]
    assert 0 < len(chosen[0]) < 40


def test_each_user_draws_from_the_own_items_whoever_else_is_there():
    def drawn_by(people):
        data = contributions(people)
        part = Part(data.offsets, data.items, data.user_digests)
        return sets_of(data, draw_items(part, data.table.digests, 3, 1, KEY)), sets_of(data, part)

    drawn, all_items = drawn_by(PEOPLE)
    for user, items in drawn.items():
        assert len(items) == min(3, len(all_items[user]))
        assert set(items) <= set(all_items[user])
    for gone in list(PEOPLE)[::5]:
        without, _ = drawn_by({user: items for user, items in PEOPLE.items() if user != gone})
        assert without == {user: drawn[user] for user in without}
        assert len(without) == len(drawn) - 1


def test_sets_that_were_narrowed_in_part_are_not_visited_again():
    users = {f"u{number}": [f"item{(number + at) % 9}" for at in range(3)] for number in range(40)}
    sets = Sets(contributions(users, 5))
    sets.narrow(np.arange(9) % 2 > 0)
    next(iter(sets))
    with pytest.raises(InternalError, match="left early"):
        list(sets)


def sets_of(data, part):
    """Return {user's digest: [items' digests]}."""
    digests = data.table.digests.tolist()
    owners = map(tuple, part.user_digests.tolist())
    ends = zip(part.offsets[:-1], part.offsets[1:], strict=True)
    return {
        owner: [tuple(digests[item]) for item in part.items[start:stop]]
        for owner, (start, stop) in zip(owners, ends, strict=True)
    }


def test_sips_is_the_same_in_plain_python():
    """Each round: draw at most the limit, share out 1/sqrt(k), one coin per item; what is released leaves all sets."""
    plan = plan_release(algorithms.DpSips(max_items_per_user=3, share_ratio=1.0), Budget(2.0, 0.1))
    data = data_for(plan)
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
        ends, drawn, _ = draw_items(Part(offsets, flat, data.user_digests), digests, 3, number, KEY)
        weights = np.zeros(len(digests))
        for start, stop in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            weights[drawn[start:stop]] += math.isqrt(2**64 // max(1, stop - start)) * 2.0**-32
        passed = KEY.decide_gaussian(number, digests, weights, threshold=one.threshold, stddev=one.stddev)
        released |= set(np.flatnonzero(passed & (weights > 0.0)).tolist())
        counts.append(len(released))
    assert run_rounds(mechanism_for(plan), data, KEY).tolist() == sorted(released)
    assert 0 < counts[0] < counts[-1] < len(digests)


@pytest.mark.parametrize("number", [0, 1, 3])
def test_one_user_moves_a_rounds_weights_by_at_most_its_budget(number):
    plan = plan_release(algorithms.Funnel(max_items_per_user=12), BUDGET)
    data = data_for(plan)
    scores = np.linspace(-1.0, plan.cutoff + 1.0, len(data.table))
    weights = weigh(plan, data, KEY, number, scores.copy()).values
    assert weights.max() > 0.0
    budget = plan.rounds[number].budget
    largest = 0.0
    for user in range(data.users):
        start, stop = data.offsets[user : user + 2]
        offsets = np.delete(data.offsets, user + 1)
        offsets[user + 1 :] -= stop - start
        rest = np.delete(data.items, np.arange(start, stop))
        left = dataclasses.replace(
            data, offsets=offsets, items=rest, user_digests=np.delete(data.user_digests, user, 0)
        )
        without = weigh(plan, left, KEY, number, scores.copy()).values
        largest = max(largest, float(np.linalg.norm(weights - without)))
    assert 0.5 * budget < largest <= budget * (1.0 + plan.rounding_slack)


def test_nothing_about_values_shows():
    plan = plan_of(algorithms.Funnel)
    data = data_for(plan)
    for thing in (Sets(data), State.start(3), weigh(plan, data)):
        assert "<sensitive>" in repr(thing)
        assert "array" not in repr(thing)


def test_the_shares_of_all_users_fit_into_a_sum():
    """Shares are whole numbers of 2^-32, at most 1 for a user and an item."""
    for rule in ShareRule:
        assert rule.of_sizes(100).dtype == np.int64
        assert rule.of_sizes(100).max() <= 2**32
    assert MAX_USERS * 2**32 < 2**63
