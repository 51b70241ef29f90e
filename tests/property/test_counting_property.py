"""Counting: the kernels are their twins, one person moves no step by more than 1, and estimates keep their promises."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpunion.contributions import offsets_of
from dpunion.counting.holdings import Holdings, find_listed, number_items
from dpunion.counting.steps import ONE, FineStep, MarksStep, RoughStep
from dpunion.kernels import counting
from twins import counting as twin

ITEMS = 30
sets = st.lists(st.sets(st.integers(0, ITEMS - 1), max_size=ITEMS).map(sorted), max_size=8)
weights = st.lists(st.integers(1, ONE), min_size=ITEMS, max_size=ITEMS)
burdens = st.lists(st.integers(1, 2**40), min_size=ITEMS, max_size=ITEMS)


def holdings(users, others=False):
    sizes = np.array([len(user) for user in users], np.int64)
    items = np.array([item for user in users for item in user], np.int32)
    return Holdings(offsets_of(sizes), items, sizes >= 0, np.full(len(users), others))


def added(gifts, length):
    sums = np.zeros(length, np.int64)
    for gift in gifts:
        for place, given_ in gift.items():
            sums[place] += given_
    return sums


@given(sets)
def test_the_rough_step_is_its_twin_and_moves_by_at_most_one(users):
    gifts = [twin.rough_gift(user, ONE) for user in users if user]
    assert (RoughStep(ITEMS).add_up(holdings(users)) == added(gifts, ITEMS)).all()
    assert all(twin.squared_norm(gift, ONE) <= 1 for gift in gifts)


@given(sets, burdens)
def test_the_marks_step_is_its_twin_and_moves_by_at_most_one(users, heavy):
    step = MarksStep(np.array(heavy, np.int64))
    marks = step.marks.tolist()
    gifts = [twin.marks_gift(user, heavy, marks, ONE, counting.WHOLE) for user in users if user]
    assert (step.add_up(holdings(users)) == added(gifts, step.length)).all()
    assert all(sum(gift.values()) == ONE and min(gift.values()) >= 0 for gift in gifts)
    assert all(twin.squared_norm(gift, ONE) <= 1 for gift in gifts)


@given(burdens.map(lambda values: values[:7]))
def test_marks_double_from_the_least_burden_until_nobody_can_have_more(heavy):
    marks = MarksStep(np.array(heavy, np.int64)).marks.tolist()
    assert marks == [min(heavy) << octave for octave in range(len(marks))]
    assert marks[-1] >= sum(heavy)
    assert len(marks) == 1 or marks[-2] < sum(heavy)


def test_marks_of_the_heaviest_lists_do_not_overflow():
    for count in (0, 1, 10_000, 50_000):
        marks = MarksStep(np.full(count, 2**40, np.int64)).marks
        assert (marks > 0).all()
        assert marks[-1] >= 2**40 * min(count, 10_000)
    assert MarksStep(np.array([1, *[2**40] * 10_000])).marks[-1] >= 2**40 * 10_000


@given(sets, weights, st.booleans())
def test_the_fine_step_is_its_twin_and_moves_by_at_most_one(users, weight, others):
    step = FineStep(np.array(weight, np.int64))
    sums = step.add_up(holdings(users, others))
    gifts = [twin.fine_gift(user, weight, step.room) for user in users]
    assert (sums[:-2] == added(gifts, ITEMS)).all()
    assert sums[-2] == step.total_weight * len(users)
    assert sums[-1] == step.total_weight * len(users) * others
    totals = {"everybody": step.total_weight, "others": step.total_weight}
    assert all(twin.squared_norm({**gift, **totals}, ONE) <= 1 for gift in gifts)


@given(sets, weights, st.sets(st.integers(0, ITEMS - 1), min_size=1).map(sorted))
def test_somebody_more_adds_the_own_gift_whatever_others_hold(users, weight, more):
    step = FineStep(np.array(weight, np.int64))
    moved = step.add_up(holdings([*users, more])) - step.add_up(holdings(users))
    assert (moved[:-2] == added([twin.fine_gift(more, weight, step.room)], ITEMS)).all()


def test_somebody_who_holds_very_much_is_capped_in_whole_numbers():
    rng = np.random.default_rng(5)
    weight = rng.integers(1, ONE, 10_000)
    items = np.arange(10_000, dtype=np.int32)
    step = FineStep(weight)
    held = Holdings(np.array([0, 10_000]), items, np.array([True]), np.array([True]))
    gift = step.add_up(held)
    assert sum(int(one) ** 2 for one in gift) <= ONE * ONE
    assert sum(int(one) ** 2 for one in gift) > 0.97 * ONE * ONE
    cap = gift[:-2].max()
    assert (gift[:-2] == np.minimum(weight, cap)).all()


@pytest.mark.parametrize("value", [0, 1, 2, 3, 4, 8, 9, 2**48 - 1, 2**48, 2**52 + 1, 2**61 - 1])
def test_whole_roots(value):
    root = counting.whole_root(value)
    assert root * root <= value < (root + 1) ** 2


@given(st.lists(st.integers(0, 2**24).map(lambda w: w * w), min_size=1, max_size=40), st.integers(1, 2**48))
def test_a_cap_is_the_largest_that_fits(squares, room):
    cap = counting.cap_of(np.array(squares, np.int64), room)
    assert sum(min(square, cap * cap) for square in squares) <= room
    if cap * cap < max(squares):
        assert sum(min(square, (cap + 1) ** 2) for square in squares) > room


@given(sets, st.lists(st.integers(-2, 5), min_size=ITEMS, max_size=ITEMS))
def test_listed_items_are_copied_and_others_noticed(users, numbers):
    held = holdings(users)
    listed, sizes = np.empty(len(held.items), np.int32), np.empty(len(users), np.int64)
    anything, others = np.empty(len(users), np.bool_), np.empty(len(users), np.bool_)
    places = np.array(numbers, np.int32)
    total = counting.copy_listed(held.offsets, held.items, places, listed, sizes, anything, others)
    wanted = [[numbers[item] for item in user if numbers[item] >= 0] for user in users]
    assert listed[:total].tolist() == [place for user in wanted for place in user]
    assert sizes.tolist() == [len(user) for user in wanted]
    assert anything.tolist() == [bool(user) for user in users]
    assert others.tolist() == [any(numbers[item] == -1 for item in user) for user in users]


digests = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), unique=True, max_size=16).map(sorted)


@given(digests, digests, st.sampled_from([1, 1 << 62]))
def test_digests_are_found_by_both_words(there, wanted, step):
    arrays = [np.array([(first * step, second) for first, second in one], np.uint64) for one in (there, wanted)]
    places = find_listed(*(one.reshape(-1, 2) for one in arrays))
    assert places.tolist() == [wanted.index(one) if one in wanted else -1 for one in there]


@given(digests, digests, digests)
def test_items_are_numbered_by_the_list_and_known_ones_set_apart(there, listed, known):
    arrays = [np.array(one, np.uint64).reshape(-1, 2) for one in (there, listed, known)]
    expected = [listed.index(one) if one in listed else -2 if one in known else -1 for one in there]
    assert number_items(*arrays).tolist() == expected


parts = st.integers(2, 12).flatmap(
    lambda count: st.tuples(
        *[
            st.tuples(st.just(-1), st.just(-1)) if i < 2 else st.tuples(st.integers(0, i - 1), st.integers(0, i - 1))
            for i in range(count)
        ]
    )
)


@given(parts, st.data())
def test_what_is_lowered_to_its_parts_comes_no_further_from_the_truth(tree, data):
    """The projection theorem, for true numbers that obey the inequalities."""
    count = len(tree)
    numbers = st.floats(-50, 500, allow_nan=False)
    values = np.array(data.draw(st.lists(numbers, min_size=count, max_size=count)))
    variances = np.array(data.draw(st.lists(st.floats(0.5, 50), min_size=count, max_size=count)))
    truth = np.array(data.draw(st.lists(st.floats(0, 500), min_size=count, max_size=count)))
    for child, (left, right) in enumerate(tree):
        if left >= 0:
            truth[child] = min(truth[child], truth[left], truth[right])
    lowered = values.copy()
    counting.lower_to_parts(lowered, variances, np.array(tree, np.int32), 20_000, 1e-9)
    for child, (left, right) in enumerate(tree):
        if left >= 0:
            assert lowered[child] <= min(lowered[left], lowered[right]) + 1e-3
    before, after = ((values - truth) ** 2 / variances).sum(), ((lowered - truth) ** 2 / variances).sum()
    assert after <= before + 1e-3 * (1.0 + before)
