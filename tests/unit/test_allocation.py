"""What an all-knowing allocation reaches, and what Funnel does round by round."""

import contextlib
import json
import math
import sys

import pyarrow as pa
import pytest

from dpunion.algorithms import Funnel
from dpunion.budget import Budget
from dpunion.cli.commands import run
from dpunion.engines.local import run_rounds
from dpunion.mechanisms import mechanism_for
from dpunion.plans import plan_release
from dpunion_lab.data import load
from dpunion_lab.funnel import all_knowing_size, find_reachable, measure_reach, watch_plan, weigh
from dpunion_lab.generators import AskRedditLike
from dpunion_lab.trials import bound_again, trial_key


def data_of(sets):
    rows = [(f"user{n}", item) for n, items in enumerate(sets) for item in items]
    users, items = zip(*rows, strict=True)
    return load(pa.table({"user": users, "item": items}), user="user", item="item")


def test_single_items_are_reached_where_there_are_enough_holders():
    data = data_of([["a"]] * 9 + [["b"]] * 3)
    assert [all_knowing_size(data, threshold) for threshold in (2.5, 3.0, 3.5, 9.0, 9.5)] == [2, 2, 1, 1, 0]


def test_people_with_several_items_share_out_one_unit_in_l2_norm():
    # Ten people with the same four items bring each of them to 10 / sqrt(4) = 5, or two to 10 / sqrt(2).
    data = data_of([["a", "b", "c", "d"]] * 10)
    assert all_knowing_size(data, 5.0) == 4
    assert all_knowing_size(data, 5.1) == 3
    assert all_knowing_size(data, 10 / math.sqrt(2.0) - 1e-6) == 2


def test_hopeless_items_are_given_up_for_the_sake_of_others():
    data = data_of([["a", "b", f"own{n}"] for n in range(10)])
    assert all_knowing_size(data, 7.0) == 2


def test_the_items_found_can_be_brought_to_the_threshold():
    data = load(AskRedditLike(users=2_000, seed=3))
    found = find_reachable(data, 6.0)
    assert 50 < found.sum() < (data.holders >= 6).sum()
    prices = found.astype(float)
    kept = found[data.everything.items]
    owners = [
        user
        for user, size in enumerate(data.everything.offsets[1:] - data.everything.offsets[:-1])
        for _ in range(size)
    ]
    equal = weigh(pa.array(owners).to_numpy()[kept], data.everything.items[kept], prices, data.everything.users)
    assert (equal >= 6.0).sum() <= found.sum()


def test_funnel_reaches_a_part_of_it_and_says_that_this_is_not_private():
    found = measure_reach(AskRedditLike(users=3_000, seed=3), Funnel(), Budget(3.0, 1e-5), trials=1)
    assert 0.5 < found.share < 1.0
    assert found.to_dict()["all_knowing"] == found.reachable
    assert "NOT PRIVATE" in json.dumps(found.to_dict())
    assert f"{found.share:.2f}" in found.table().text()


def test_items_below_the_threshold_have_no_reach():
    assert all_knowing_size(data_of([["a"], ["b"]]), 5.0) == 0
    assert measure_reach(AskRedditLike(users=20, seed=1), Funnel(), Budget(1.0, 1e-6), trials=1).share == pytest.approx(
        0.0
    )


def test_rounds_account_for_every_item_and_for_what_is_released():
    data, plan = load(AskRedditLike(users=3_000, seed=3)), plan_release(Funnel(), Budget(3.0, 1e-5))
    seen = watch_plan(data, plan)
    key = trial_key(0)
    chosen = run_rounds(mechanism_for(plan), bound_again(data.everything, Funnel().bounding, key), key)
    assert sum(one.passed for one in seen) == len(chosen) > 100
    assert [one.number for one in seen] == list(range(1, 9))
    assert [one.items for one in seen[1:]] == [one.going_on for one in seen[:-1]]
    assert seen[-1].going_on == 0
    assert all(0.0 <= one.to_released <= 1.0 for one in seen)
    # Later rounds waste less on what is dropped in the end than the first one, which knows nothing.
    assert seen[0].to_released < max(one.to_released for one in seen[1:4])


@pytest.mark.parametrize("command", ["reach", "rounds"])
def test_the_commands_print_a_table_and_plain_values(command, capsys, monkeypatch):
    arguments = ["dpunion", "lab", command, "--generate", "2000", "-e", "3", "-d", "1e-4"]
    for extra in ([], ["--json"]):
        monkeypatch.setattr(sys, "argv", [*arguments, *extra])
        with contextlib.suppress(SystemExit):
            run()
        printed = capsys.readouterr().out
        assert "NOT PRIVATE" in printed
        if extra:
            assert json.loads(printed)["released"] > 0
