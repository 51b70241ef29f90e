"""What Spark's workers run, without Spark: one shard is one machine, and many shards move no further than one."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import ITEMS, contributions, databases, names

from dpunion.algorithms import ALGORITHMS
from dpunion.budget import Budget
from dpunion.engines.local import run_rounds
from dpunion.engines.spark import tasks
from dpunion.engines.spark.tasks import shard_share
from dpunion.mechanisms import mechanism_for
from dpunion.plans import plan_release
from dpunion.randomness import RunKey
from spark_in_process import by_rounds, by_shares, cut_up, each, in_one_task, partitions, reader, to_shards

LOOSE = Budget(2.0, 0.05)
SHARED_OUT = ["count-laplace", "count-gaussian", "weighted-laplace", "weighted-gaussian", "optimal-single-item"]
KEYS = st.integers(1, 5).map(RunKey.for_tests)
MANY = st.integers(2, 70)


def planned(name, **options):
    if name != "optimal-single-item":
        options = {"max_items_per_user": 5, **options}
    return plan_release(ALGORITHMS[name](**options), LOOSE)


PLANS = {
    "funnel": planned("funnel"),
    "funnel, three rounds": planned("funnel", rounds=3),
    "funnel, random order": planned("funnel", user_order="random", rounds=2, first_share=0.5),
    "policy-gaussian": planned("policy-gaussian"),
    "policy-laplace": planned("policy-laplace"),
    "dp-sips": planned("dp-sips"),
}
FUNNELS = [name for name in PLANS if name.startswith("funnel")]
POLICIES = ["policy-gaussian", "policy-laplace"]


def on_one_machine(plan, database, key):
    bounding = plan.algorithm.bounding
    data = contributions(database, key, bounding.limit, bounding.order)
    return {names(data.table)[item] for item in run_rounds(mechanism_for(plan), data, key)}


# --- one machine and many give the same ---------------------------------------------------------------------
@pytest.mark.parametrize("name", PLANS)
@settings(max_examples=25)
@given(database=databases, key=KEYS)
def test_one_shard_is_one_machine(name, database, key):
    assert by_rounds(PLANS[name], database, key, shards=1) == on_one_machine(PLANS[name], database, key)


@pytest.mark.parametrize("name", PLANS)
@settings(max_examples=25)
@given(database=databases, key=KEYS, shards=st.integers(1, 70))
def test_one_task_releases_what_rounds_on_spark_do(name, database, key, shards):
    assert in_one_task(PLANS[name], database, key, shards) == by_rounds(PLANS[name], database, key, shards)


@settings(max_examples=25)
@given(database=databases, key=KEYS, shards=MANY)
def test_sips_is_the_same_with_any_number_of_shards(database, key, shards):
    assert by_rounds(PLANS["dp-sips"], database, key, shards) == on_one_machine(PLANS["dp-sips"], database, key)


@pytest.mark.parametrize("name", SHARED_OUT)
@settings(max_examples=25)
@given(database=databases, key=KEYS, count=st.integers(1, 5))
def test_shares_add_up_the_same_over_any_partitions(name, database, key, count):
    assert by_shares(planned(name), database, key, count) == on_one_machine(planned(name), database, key)


@pytest.mark.parametrize("name", PLANS)
def test_something_is_released_and_something_is_not(name):
    """Equal sets above mean something: over a few keys, some items come out and some do not."""
    database = {f"user{i}": {ITEMS[j] for j in range(i % 4, 12 - i % 3, 1 + i % 3)} for i in range(10)}
    found = [len(by_rounds(PLANS[name], database, RunKey.for_tests(seed), 1)) for seed in range(1, 12)]
    assert 0 < sum(found) < 12 * len(found)


@pytest.mark.parametrize("name", [*FUNNELS, *POLICIES])
@settings(max_examples=15)
@given(database=databases, key=KEYS, shards=MANY)
def test_partitions_do_not_matter_to_shards(name, database, key, shards):
    found = [by_rounds(PLANS[name], database, key, shards, count) for count in (1, 4)]
    assert found[0] == found[1]


# --- neighbours ---------------------------------------------------------------------------------------------
def public_score(digest, number, plan):
    """Return what is said of an item before round `number`, or None when it is dropped: the same in both worlds."""
    lowest = max([0.0, *(one.threshold for one in plan.rounds[:number])])
    draw = digest[0] % 7
    return None if number and draw == 0 else (lowest + 0.3 * draw if number else 0.0)


def funnel_weights(plan, database, key, shards, number):
    """Return {name: summed weight} of one round, given public scores."""
    mechanism = mechanism_for(plan)
    pieces, labels = cut_up(plan, partitions(database, 2), key, shards)
    scores = {digest: public_score(digest, number, plan) for digest in labels}
    alive = [(digest, score) for digest, score in scores.items() if score is not None and number]
    replies = [{"shard": s, "payload": digest, "score": score} for digest, score in alive for s in range(shards)]
    # Nothing is said to shards that nobody is in.
    there = {piece["shard"] for piece in pieces}
    replies = [reply for reply in replies if reply["shard"] in there]
    found = dict.fromkeys(labels.values(), 0.0)
    for row in each(tasks.Weigh(mechanism, tasks.Secret.of(key), number, shards), to_shards(pieces, replies)):
        assert row["units"] >= 0
        assert row["sensitivity"] == plan.rounds[number].budget
        found[labels[row["digest"]]] += row["units"] * tasks.round_unit(mechanism, number, shards)
    return found


def policy_weights(plan, database, key, shards):
    pieces, labels = cut_up(plan, partitions(database, 2), key, shards)
    found = dict.fromkeys(labels.values(), 0.0)
    mechanism = mechanism_for(plan)
    for row in each(tasks.Weigh(mechanism, tasks.Secret.of(key), 0, shards), to_shards(pieces)):
        found[labels[row["digest"]]] += row["units"] * tasks.round_unit(mechanism, 0, shards)
    return found


def without(database, user):
    return {other: items for other, items in database.items() if other != user}


def moved(full, rest):
    return {item: weight - rest.get(item, 0.0) for item, weight in full.items()}


@pytest.mark.parametrize("name", FUNNELS)
@settings(max_examples=15)
@given(database=databases, key=KEYS, shards=st.integers(1, 5), number=st.integers(0, 1))
def test_one_user_moves_a_rounds_summed_weights_by_at_most_its_budget(name, database, key, shards, number):
    plan = PLANS[name]
    full = funnel_weights(plan, database, key, shards, number)
    for user in database:
        shift = moved(full, funnel_weights(plan, without(database, user), key, shards, number))
        assert math.hypot(*shift.values()) <= plan.rounds[number].budget * (1.0 + plan.rounding_slack)


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=15)
@given(database=databases, key=KEYS, shards=st.integers(1, 5))
def test_one_user_moves_a_policys_summed_weights_by_at_most_one(name, database, key, shards):
    plan = PLANS[name]
    full = policy_weights(plan, database, key, shards)
    for user in database:
        shift = moved(full, policy_weights(plan, without(database, user), key, shards))
        far = math.hypot(*shift.values()) if name == "policy-gaussian" else math.fsum(map(abs, shift.values()))
        assert far <= 1.0 + plan.rounding_slack


@pytest.mark.parametrize("name", [*FUNNELS, *POLICIES])
@settings(max_examples=15)
@given(database=databases, key=KEYS, shards=st.integers(1, 9), size=st.integers(1, 8))
def test_items_of_one_user_only_get_no_more_in_shards_than_on_one_machine(name, database, key, shards, size):
    """t novel items get at most budget/sqrt(t) each (budget/t for l1); a lone user gives no more than locally."""
    plan = PLANS[name]
    weigh = (lambda data, count: funnel_weights(plan, data, key, count, 0)) if name in FUNNELS else None
    weigh = weigh or (lambda data, count: policy_weights(plan, data, key, count))
    budget = plan.rounds[0].budget if name in FUNNELS else 1.0
    lone = {"lone": {f"novel{number}" for number in range(size)}}
    alone, locally = weigh(lone, shards), weigh(lone, 1)
    assert all(alone[item] <= locally[item] * (1.0 + plan.rounding_slack) for item in alone)
    # And beside others, with some of their items.
    mixed = {**database, "lone": {*lone["lone"], *ITEMS[:2]}}
    given_to = [weight for item, weight in weigh(mixed, shards).items() if item.startswith("novel")]
    each_at_most = budget / (len(given_to) if name == "policy-laplace" else math.sqrt(max(len(given_to), 1)))
    assert all(weight <= each_at_most * (1.0 + plan.rounding_slack) for weight in given_to)


@settings(max_examples=200)
@given(shards=st.integers(1, 1024), cutoff=st.floats(0.01, 1e6))
def test_a_shards_share_is_between_its_plain_part_and_all(shards, cutoff):
    assert 1.0 / shards * (1 - 1e-12) <= shard_share(shards, cutoff) <= 1.0
    assert shard_share(1, cutoff) == 1.0


# --- a partition is read in parts ---------------------------------------------------------------------------
@pytest.mark.parametrize("at_once", [2, 3, 8])
@settings(max_examples=20)
@given(database=databases, key=KEYS, rows=st.integers(1, 20), limit=st.integers(1, 12))
def test_a_partition_read_in_parts_is_that_read_at_once(at_once, database, key, rows, limit):
    plan = planned("funnel", max_items_per_user=limit)
    batches = [batch.slice(row, 1) for batch in partitions(database, 1)[0] for row in range(batch.num_rows)]
    whole = tasks.read_partition(iter(batches), reader(plan), key, plan.algorithm.bounding)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tasks, "ROWS_PER_PART", rows)
        patched.setattr(tasks, "ROWS_PER_READ", 3)
        patched.setattr(tasks, "PARTS_AT_ONCE", at_once)
        parts = tasks.read_partition(iter(batches), reader(plan), key, plan.algorithm.bounding)
    ours = [{tuple(user): set() for user in data.user_digests.tolist()} for data in (whole, parts)]
    for found, data in zip(ours, (whole, parts), strict=True):
        for user, start, stop in zip(found, data.offsets[:-1], data.offsets[1:], strict=True):
            found[user] |= {names(data.table)[item] for item in data.items[start:stop]}
    assert ours[0] == ours[1]
    assert names(whole.table) == names(parts.table)
    assert np.array_equal(whole.table.digests, parts.table.digests)


def test_a_partition_without_rows_gives_nothing():
    plan, key = PLANS["funnel"], RunKey.for_tests(1)
    assert tasks.read_partition(iter([]), reader(plan), key, plan.algorithm.bounding) is None
    assert cut_up(plan, [[]], key, 3) == ([], {})


def test_a_task_that_runs_again_on_rows_in_another_order_gives_the_same():
    database = {f"u{n}": {f"i{(n + 4 * i) % 15}" for i in range(1 + n % 6)} for n in range(40)}
    key, plan = RunKey.for_tests(3), PLANS["funnel"]
    pieces, _ = cut_up(plan, partitions(database, 2), key, 3)
    task = tasks.Weigh(mechanism_for(plan), tasks.Secret.of(key), 0, 3)
    first, again = (each(task, to_shards(rows)) for rows in (pieces, pieces[::-1]))
    assert len(first) > 10
    assert first == again
