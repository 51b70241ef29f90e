"""One person moves the sums of each step of counting by at most 1, whatever the public numbers; in whole numbers.

Every mistake that is put in must be found by the same search that finds nothing in the shipped steps.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpunion.algorithms import WeightedGaussian
from dpunion.budget import Budget
from dpunion.counting import holdings, steps
from dpunion.counting.estimates import Popularity, choose_allowance, people_at_marks
from dpunion.counting.steps import BURDEN, ONE, FineStep, MarksStep, RoughStep
from dpunion.errors import InternalError
from dpunion.plans import plan_release
from dpunion.plans.counts import MOST_COUNTED, CountsPlan
from dpunion.randomness import RunKey
from dpunion_lab.audit.counting import BEYOND, holdings_in, nobody, worst_steps
from dpunion_lab.audit.reach import STEPS, Person, Reach, hold, moved_sums, search_reach, squared_norm

TRIES = 400
PLAN = plan_release(WeightedGaussian(max_items_per_user=1), Budget(1.0, 0.01))


def test_the_search_finds_nobody_who_moves_a_step_too_far():
    report = search_reach(seconds=600.0, tries=TRIES, seed=1)
    assert report.violations == []
    assert set(report.furthest) == set(STEPS.values())
    for reach in report.furthest.values():
        assert reach.squared <= ONE * ONE
        # It came close: less than a millionth of the room is left.
        assert reach.squared > (1 - 1e-6) * ONE * ONE
    assert "holds" in report.text()
    assert "VIOLATED" not in report.text()


def capped_too_high(offsets, items, weights, room, most, sums):
    """As the shipped kernel, with a cap one unit above the largest that fits."""
    for first, last in itertools.pairwise(offsets):
        held = items[first:last]
        cap = ONE
        while sum(min(int(w), cap) ** 2 for w in weights[held]) > room:
            fits = sorted(int(w) for w in weights[held])
            cap = next(
                math.isqrt((room - sum(w * w for w in fits[:i])) // (len(fits) - i)) + 1
                for i, w in enumerate(fits)
                if w * w * (len(fits) - i) > room - sum(v * v for v in fits[:i])
            )
            break
        np.add.at(sums, held, np.minimum(weights[held], cap))


def uncapped(offsets, items, weights, room, most, sums):
    np.add.at(sums, items, weights[items])


def mark_twice(offsets, items, burdens, marks, unit, sums):
    """Put one unit more than a whole person at the first mark."""
    sums[0] += (unit + 1) * int(np.count_nonzero(np.diff(offsets)))


def mark_both(offsets, items, burdens, marks, unit, sums):
    """Put a whole person at each of two marks."""
    sums[:2] += unit * int(np.count_nonzero(np.diff(offsets)))


def shares_rounded_up(offsets, items, shares, sums):
    """As the shipped kernel, with shares that are one unit too large."""
    for first, last in itertools.pairwise(offsets):
        sums[items[first:last]] += shares[last - first] + 1


@pytest.mark.parametrize(
    ("place", "name", "mistake", "step"),
    [
        (steps, "add_capped", uncapped, "fine"), (steps, "add_capped", capped_too_high, "fine"),
        (FineStep, "room", ONE * ONE, "fine"), (steps, "add_marks", mark_twice, "marks"),
        (steps, "add_marks", mark_both, "marks"), (steps, "add_shares", shares_rounded_up, "rough"),
    ],
    ids=["uncapped", "cap-too-high", "no-room-for-totals", "one-unit-more", "both-marks", "rounded-up"],
)  # fmt: skip
def test_the_search_finds_each_mistake(monkeypatch, place, name, mistake, step):
    """Even one unit, a sixteen-millionth of a person, is too much."""
    monkeypatch.setattr(place, name, mistake)
    report = search_reach(seconds=600.0, tries=60, seed=2)
    assert report.violations == [step]
    assert "VIOLATED" in report.text()


def test_the_same_seed_searches_the_same():
    one, other = (search_reach(seconds=600.0, tries=21, seed=5) for _ in range(2))
    assert {name: reach.squared for name, reach in one.furthest.items()} == {
        name: reach.squared for name, reach in other.furthest.items()
    }
    assert one.seed == 5
    assert search_reach(seconds=0.01).tried["fine"] > 0


sizes = st.integers(1, 30)


@st.composite
def people(draw, size):
    items = st.sets(st.integers(0, size - 1)).map(lambda held: np.array(sorted(held), np.int32))
    return [Person(draw(items), draw(st.booleans()), draw(st.booleans())) for _ in range(draw(st.integers(1, 5)))]


@st.composite
def all_steps(draw, size):
    """Draw the three steps with any numbers that they take."""
    weights, burdens = (
        np.array(draw(st.lists(st.integers(1, most), min_size=size, max_size=size)), np.int64) for most in (ONE, BURDEN)
    )
    return RoughStep(size), MarksStep(burdens), FineStep(weights)


@given(st.data())
def test_nobody_moves_a_step_by_more_than_one(data):
    size = data.draw(sizes)
    everybody = data.draw(people(size))
    place = data.draw(st.integers(0, len(everybody) - 1))
    for step in data.draw(all_steps(size)):
        reach = Reach.of(step, everybody, place)
        assert reach.squared <= ONE * ONE
        assert not reach.is_too_far


@given(st.data())
def test_what_one_person_adds_does_not_depend_on_the_others(data):
    """With and without others the difference is the same vector: so neighbours who swap places change nothing."""
    size = data.draw(sizes)
    everybody = data.draw(people(size))
    for step in data.draw(all_steps(size)):
        moved = moved_sums(step, hold(everybody), hold(everybody[1:]))
        assert np.array_equal(moved, step.add_up(hold(everybody[:1])))


@given(st.data())
def test_the_weights_that_are_really_chosen_are_within_reach(data):
    """From noisy sums of any kind, however strange, to the steps that are made of them."""
    size = data.draw(sizes)
    big = st.integers(-(2**40), 2**40)
    plan = CountsPlan(0.1, 20.0, 40.0, 7.0)
    popularity = Popularity.of(np.array(data.draw(st.lists(big, min_size=size, max_size=size)), np.int64), plan)
    some = np.zeros(MarksStep(popularity.units).length, np.int64)
    for place, value in data.draw(st.dictionaries(st.integers(0, len(some) - 1), big, max_size=8)).items():
        some[place] = value
    allowance = choose_allowance(popularity, MarksStep(popularity.units), people_at_marks(some, plan), plan)
    everybody = data.draw(people(size))
    for step in (RoughStep(size), MarksStep(popularity.units), FineStep(allowance.weights)):
        assert Reach.of(step, everybody, 0).squared <= ONE * ONE


def test_weights_outside_their_bounds_are_refused():
    for weight in (0, ONE + 1):
        with pytest.raises(InternalError):
            FineStep(np.array([weight], np.int64)).add_up(nobody())


@pytest.mark.parametrize("listed", [1, 100, BEYOND])
def test_somebody_with_more_than_is_counted_moves_no_step_too_far(listed):
    """Read, numbered and bounded as in a release: of 12,000 items 10,000 are looked at."""
    held = holdings_in((tuple(range(BEYOND)),), range(listed), PLAN, RunKey.for_tests(3))
    assert len(held.items) <= min(listed, MOST_COUNTED)
    assert len(held.items) > 0.7 * min(listed, MOST_COUNTED) or listed == 1
    for step in worst_steps(listed):
        squared = squared_norm(moved_sums(step, held, nobody()))
        assert squared <= ONE * ONE
        if step.number == FineStep.number and listed > 1:
            assert squared > 0.98 * ONE * ONE


def test_sets_that_were_read_less_bounded_are_bounded_before_they_are_counted(monkeypatch):
    """As for an algorithm that looks at more items of each person than counting does."""
    monkeypatch.setattr("dpunion_lab.audit.counting.MOST_COUNTED", BEYOND)
    held = holdings_in((tuple(range(BEYOND)), (0, 1)), range(BEYOND), PLAN, RunKey.for_tests(3))
    assert sorted(np.diff(held.offsets).tolist()) == [2, MOST_COUNTED]


def test_without_the_bound_more_would_be_looked_at(monkeypatch):
    """The test above sees the bound: without it all 12,000 are there."""
    monkeypatch.setattr(holdings, "bound_to_counted", lambda contributions, _key: contributions)
    monkeypatch.setattr("dpunion_lab.audit.counting.MOST_COUNTED", BEYOND)
    held = holdings_in((tuple(range(BEYOND)),), range(BEYOND), PLAN, RunKey.for_tests(3))
    assert len(held.items) == BEYOND
