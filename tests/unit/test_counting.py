"""Counts of items: what is planned, counted, estimated, written and said."""

import dataclasses
import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpunion
from dpunion.algorithms import Norm, Sensitivity
from dpunion.chances import least_holders
from dpunion.counting import estimates
from dpunion.counting.holdings import bound_to_counted
from dpunion.counting.steps import BURDEN, FINENESS, ONE, UNIT_NORM, FineStep, MarksStep, RoughStep, add_noise
from dpunion.engines.local.engine import tighten_sets
from dpunion.errors import BadParameter, SensitivityMismatch
from dpunion.plans import Plan, plan_release
from dpunion.plans.counts import LEVEL, MOST_COUNTED, PARTS, TOTALS, Counts, CountsPlan, Z
from dpunion.randomness import RunKey
from dpunion.releases.release import Release
from dpunion.releases.statements import expected_precision, statement
from dpunion.requests import Request
from dpunion.samples import debian_depends

GAUSSIANS = [
    dpunion.Funnel(), dpunion.PolicyGaussian(), dpunion.WeightedGaussian(),
    dpunion.WeightedGaussian(calibration="published"), dpunion.CountGaussian(),
    dpunion.CountGaussian(calibration="published"), dpunion.DpSips(),
]  # fmt: skip
BUDGET = dpunion.Budget(3.0, math.exp(-10))


def released(**options):
    asked = {"user": "user", "item": "item", "epsilon": 3.0, "delta": 1e-5, "unsafe_test_key": 5, "counts": True}
    return dpunion.release(debian_depends(), **(asked | options))


def true_holders(column=1):
    table = pq.read_table(debian_depends())
    held = set(zip(*(one.to_pylist() for one in table.select(["user", "item"]).columns), strict=True))
    holders = {}
    for pair in held:
        holders[pair[column]] = holders.get(pair[column], 0) + 1
    return holders


# --- the plan ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("algorithm", GAUSSIANS, ids=lambda one: f"{one.name} {getattr(one, 'calibration', '')}")
def test_selecting_and_counting_share_one_budget(algorithm):
    """The squared mus of selecting and of the three steps add up to those of one release with the same noise part."""
    plan, alone = plan_release(algorithm, BUDGET, Counts()), plan_release(algorithm, BUDGET)
    steps = plan.counts.stddevs
    selecting = (algorithm.sensitivity.bound / plan.scale) ** 2
    counting = sum(1.0 / stddev**2 for stddev in steps)
    assert counting / (selecting + counting) == pytest.approx(0.1, rel=1e-3)
    assert [counting * stddev**2 for stddev in steps] == pytest.approx([1.0 / part for part in PARTS], rel=1e-6)
    assert plan.scale > alone.scale
    assert plan.threshold > alone.threshold
    assert plan.delta_used <= BUDGET.delta
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


def test_a_larger_share_is_more_precise_and_costs_items():
    small, large = (plan_release(dpunion.Funnel(), BUDGET, Counts(share=share)) for share in (0.05, 0.3))
    assert large.counts.fine < small.counts.fine
    assert large.threshold > small.threshold


def test_parts_and_totals_leave_nothing_over():
    assert sum(PARTS) == pytest.approx(1.0)
    assert 0.0 < TOTALS < 0.1
    assert pytest.approx(math.sqrt(2) * _inverse_erf(LEVEL)) == Z


def _inverse_erf(value):
    low, high = 0.0, 5.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if math.erf(middle) < value else (low, middle)
    return low


@pytest.mark.parametrize("share", [0.0, -0.1, 0.95, math.nan, "a", None, True])
def test_a_share_out_of_range_is_refused(share):
    with pytest.raises(BadParameter, match="share"):
        Counts(share=share)


@pytest.mark.parametrize("counts", [1, 0.1, "yes", [Counts()]])
def test_what_is_no_counts_is_refused(counts):
    with pytest.raises(BadParameter, match="counts"):
        dpunion.plan(epsilon=1.0, delta=1e-6, counts=counts)


@pytest.mark.parametrize("name", ["policy-laplace", "weighted-laplace", "count-laplace", "optimal-single-item"])
def test_other_noise_has_no_counts_and_nothing_is_read(name):
    with pytest.raises(BadParameter, match=r"not Gaussian.*funnel"):
        dpunion.release("no-such-file.csv", user="u", item="i", epsilon=1.0, delta=1e-6, algorithm=name, counts=True)


def test_the_plan_says_what_precision_to_expect():
    plan = plan_release(dpunion.Funnel(), BUDGET, Counts())
    values = plan.to_dict()["counts"]
    assert {one["people"] for one in values["expected"]} == {20, 100, 1_000, 100_000}
    widths = [plan.counts.half_width(people, 10) for people in (20, 100, 1_000, 100_000)]
    assert widths == sorted(widths)
    # For an item that ten times as many people have, the interval is sqrt(10) times as wide.
    assert widths[2] == pytest.approx(widths[1] * math.sqrt(10))
    assert f"± {widths[0]:,.0f}" in "\n".join(expected_precision(plan.counts))


# --- noise ------------------------------------------------------------------------------------------------------
def test_noise_is_for_sums_that_one_person_moves_by_one():
    with pytest.raises(SensitivityMismatch):
        add_noise(np.zeros(3, np.int64), Sensitivity(Norm.L2, 2.0), 1.0, 0, RunKey.for_tests(1))
    for step in (RoughStep(1), MarksStep(np.ones(1, np.int64)), FineStep(np.ones(1, np.int64))):
        assert step.sensitivity == UNIT_NORM


def test_the_noise_of_a_place_is_its_own_and_that_of_its_step():
    key, sums = RunKey.for_tests(3), np.arange(10, dtype=np.int64) * ONE
    whole = add_noise(sums, UNIT_NORM, 2.0, 0, key)
    some = np.array([7, 2])
    assert (add_noise(sums[some], UNIT_NORM, 2.0, 0, key, some) == whole[some]).all()
    assert (add_noise(sums, UNIT_NORM, 2.0, 1, key) != whole).all()
    assert (add_noise(sums, UNIT_NORM, 2.0, 0, RunKey.for_tests(4)) != whole).all()


def test_noisy_sums_lie_on_the_grid():
    noisy = add_noise(np.zeros(1000, np.int64), UNIT_NORM, 2.5, 0, RunKey.for_tests(3))
    assert (noisy % math.floor(2.5 * ONE / FINENESS) == 0).all()
    assert 2.2 * ONE < noisy.std() < 2.8 * ONE


# --- whose items count ------------------------------------------------------------------------------------------
def test_counting_looks_at_more_items_than_selecting():
    """Everybody has 400 items: selecting keeps 300 of them, and counting sees them all."""
    pairs = [(f"u{user}", f"i{item}") for user in range(300) for item in range(400)]
    made = dpunion.release(pairs, epsilon=10.0, delta=1e-3, counts=dpunion.Counts(share=0.5), unsafe_test_key=1)
    people = np.array(list(made.people.values()))
    assert len(made) > 350
    assert abs(people.mean() - 300) < 12


def test_selecting_keeps_what_it_would_without_counts():
    table = pq.read_table(debian_depends())
    request = Request.of(table, user="user", item="item")
    from dpunion.engines.local.engine import choose_reading, open_request, read_sets
    from dpunion.requests import Run

    plan, key = plan_release(dpunion.Funnel(max_items_per_user=5), BUDGET, Counts()), RunKey.for_tests(2)
    sets = []
    for asked, bounding in ((request, plan.algorithm.bounding), choose_reading(request, plan)):
        with open_request(asked, Run()) as rows:
            sets.append(read_sets(asked, rows, bounding, key))
    again = tighten_sets(sets[1], request, plan, key)
    for name in ("offsets", "items", "user_digests"):
        assert (getattr(again, name) == getattr(sets[0], name)).all()
    assert len(sets[1].items) > len(again.items)


def test_a_known_list_is_left_out_of_selecting_and_counted_when_included():
    holders = true_holders()
    known = ["libc6", "no-such-package"]
    included = released(known=dpunion.Known(known, include=True))
    assert abs(included.people["libc6"] - holders["libc6"]) < 600
    assert included.people["no-such-package"] < 60
    left_out = released(known=known)
    assert "libc6" not in left_out.people
    # A person with known and listed items alone has nothing else.
    assert left_out.totals.others.people <= included.totals.others.high + 100


def test_at_most_so_many_items_of_a_person_are_counted():
    from dpunion.contributions import Contributions, ItemTable

    count = MOST_COUNTED + 50
    digests = np.arange(2 * count, dtype=np.uint64).reshape(-1, 2)
    table = ItemTable(np.zeros(count + 1, np.int64), np.zeros(0, np.uint8), digests)
    items = np.concatenate([np.arange(count), np.arange(3)]).astype(np.int32)
    users = np.array([[1, 1], [2, 2]], np.uint64)
    whole = Contributions(np.array([0, count, count + 3]), items, table, users, count)
    bounded = bound_to_counted(whole, RunKey.for_tests(1))
    assert np.diff(bounded.offsets).tolist() == [MOST_COUNTED, 3]
    kept = bounded.items[:MOST_COUNTED].tolist()
    assert sorted(set(kept)) == kept


# --- estimates --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("algorithm", GAUSSIANS[:5:2], ids=lambda one: one.name)
def test_counts_are_right(algorithm):
    made, holders = released(algorithm=algorithm, counts=dpunion.Counts(share=0.3)), true_holders()
    table = made.table().to_pydict()
    truth = np.array([holders[item] for item in table["item"]])
    low, high = np.array(table["low"]), np.array(table["high"])
    assert 0.93 < ((low <= truth) & (truth <= high)).mean() <= 1.0
    assert np.median(np.abs(np.array(table["people"]) - truth) / truth) < 0.3
    everybody = len(true_holders(0))
    assert made.totals.everybody.low <= everybody <= made.totals.everybody.high
    listed = set(table["item"])
    others = pq.read_table(debian_depends()).to_pylist()
    with_others = len({row["user"] for row in others if row["item"] not in listed})
    assert made.totals.others.low <= with_others <= made.totals.others.high


def test_no_listed_item_is_shown_with_fewer_people_than_come_out():
    made = released(epsilon=0.3)
    least = least_holders(made.plan)
    assert least > 10
    shown = made.table().to_pydict()
    assert min(shown["people"]) == least
    # The lower end assumes nothing but that somebody has the item.
    assert min(shown["low"]) == 1
    for row in made.rows():
        assert 1 <= row[2] <= row[1] <= row[3] <= made.totals.everybody.high


def test_intervals_hold_where_only_lucky_rare_items_come_out():
    """20,000 items of 12 people each: those that come out are all below the least number that is shown."""
    pairs = [(f"{item} {user}", f"{item}") for item in range(20_000) for user in range(12)]
    made = dpunion.release(pairs, epsilon=1.0, delta=1e-6, counts=True, unsafe_test_key=4)
    assert len(made) > 5
    assert min(made.people.values()) > 12
    assert np.mean([low <= 12 <= high for _, _, low, high in made.rows()]) >= 0.9


@pytest.mark.parametrize("algorithm", GAUSSIANS, ids=lambda one: f"{one.name} {getattr(one, 'calibration', '')}")
def test_the_least_numbers_are_those_that_hardly_ever_come_out(algorithm):
    """By whole selections of 4,000 items that this many people have, each with no other item."""
    from dpunion.engines.local import run_rounds
    from dpunion.mechanisms import mechanism_for
    from dpunion_lab.data import load

    plan = plan_release(algorithm, dpunion.Budget(1.0, 1e-4), Counts())
    holders = least_holders(plan)
    for people, is_rarer in ((holders - 1, True), (holders + 1, False)):
        pairs = [(f"{item} {user}", f"{item}") for item in range(4_000) for user in range(people)]
        sets = dataclasses.replace(load(pairs).everything, max_items_per_user=1)
        found = len(run_rounds(mechanism_for(plan), sets, RunKey.for_tests(3)))
        expected, slack = 4_000 * 0.025, 4.0 * math.sqrt(4_000 * 0.025)
        assert found <= expected + slack if is_rarer else found >= expected - slack


def test_nothing_is_listed_where_nothing_was_released():
    made = dpunion.release([("a", "x"), ("b", "y")], epsilon=1.0, delta=1e-6, counts=True, unsafe_test_key=1)
    assert made.items == ()
    assert made.header == ("item", "people", "low", "high")
    assert Release.from_json(made.to_json()) == made


def held_by(sets):
    """Return the holdings of these sets of places on the list."""
    from dpunion.contributions import offsets_of
    from dpunion.counting.holdings import Holdings

    sizes = np.array([len(one) for one in sets])
    items = np.concatenate([np.sort(one) for one in sets]).astype(np.int32)
    return Holdings(offsets_of(sizes), items, np.ones(len(sets), np.bool_), np.zeros(len(sets), np.bool_))


def test_what_people_lose_is_expected(monkeypatch):
    """Half of all people have ten items of a hundred, half have ninety; hardly any noise hides what they lose."""
    monkeypatch.setattr("dpunion.counting.estimates.SURE", 0.0)
    rng = np.random.default_rng(7)
    held = held_by([rng.choice(100, 10 if user % 2 else 90, replace=False) for user in range(4_000)])
    plan = CountsPlan(0.1, 1e-3, 1e-3, 100.0)
    popularity = estimates.Popularity.of(RoughStep(100).add_up(held), plan)
    step = MarksStep(popularity.units)
    people = estimates.people_at_marks(step.add_up(held), plan)
    assert people.sum() == pytest.approx(4_000, rel=1e-3)
    assert people @ step.marks / BURDEN == pytest.approx(popularity.burdens[held.items].sum(), rel=1e-3)
    allowance = estimates.choose_allowance(popularity, step, people, plan)
    sums = FineStep(allowance.weights).add_up(held)
    holders = np.bincount(held.items, minlength=100)
    lost = 1.0 - sums[:-2] / allowance.weights / holders
    assert lost.mean() > 0.02
    assert allowance.lost.mean() == pytest.approx(lost.mean(), abs=0.04)
    assert allowance.cut == pytest.approx(2_000, abs=800)
    counted = estimates.estimate_people(sums, allowance, dataclasses.replace(plan, fine=1e-3), np.ones(100, np.int64))
    assert sum(counted.people) == pytest.approx(holders.sum(), rel=0.1)
    # The lower end is not corrected: it is what was really counted.
    assert np.array(counted.low) == pytest.approx(np.floor(sums[:-2] / allowance.weights), abs=1.0)


@given(st.integers(0, 2**32), st.integers(1, 6), st.floats(0.01, 0.9))
def test_levels_lose_what_a_search_for_the_cap_says(seed, count, share):
    """Against bisection: the cap at which somebody's squares, in everybody's mix, add up to the room."""
    rng = np.random.default_rng(seed)
    popularity = estimates.Popularity.of(
        (ONE * rng.uniform(50.0, 5_000.0, 40)).astype(np.int64), CountsPlan(0.1, 10.0, 10.0, 3.0)
    )
    levels = estimates.Levels.of_list(popularity)
    marks = popularity.burdens.min() * 2.0 ** np.arange(count)
    people = rng.uniform(1.0, 100.0, count)
    allowance = estimates.ROOM / (share * popularity.burdens.sum())
    squares = np.minimum(1.0, allowance * levels.burdens)
    expected = np.zeros(len(squares))
    for mark, many in zip(marks, people, strict=True):
        items = mark / float(levels.held @ levels.burdens)
        low, high = 0.0, 1.0
        for _ in range(100):
            middle = 0.5 * (low + high)
            fits = items * float(levels.held @ np.minimum(squares, middle)) <= estimates.ROOM
            low, high = (middle, high) if fits else (low, middle)
        expected += many * mark * np.maximum(0.0, 1.0 - np.sqrt(low / squares))
    found = levels.expect_losses(np.array([allowance]), marks, people)[0]
    assert found == pytest.approx(expected / float(people @ marks), abs=1e-6)


def test_noise_at_far_marks_moves_nothing(monkeypatch):
    """Nobody is beyond the sixth mark; 1,000 draws of noise at all marks move the allowance by at most one octave."""
    rng = np.random.default_rng(11)
    sums = (ONE * np.concatenate([rng.uniform(2_000.0, 4_000.0, 20), rng.uniform(60.0, 200.0, 3_000)])).astype(np.int64)
    plan = CountsPlan(0.1, 40.0, 40.0, 15.0)
    popularity = estimates.Popularity.of(sums, plan)
    step = MarksStep(popularity.units)
    there = np.zeros(step.length)
    there[:6] = 30_000.0, 9_000.0, 5_000.0, 2_000.0, 900.0, 600.0
    assert step.length > 12

    def weight(people):
        return float(estimates.choose_allowance(popularity, step, people, plan).weights[-1])

    without = weight(estimates.people_at_marks((ONE * there).astype(np.int64), plan))
    draws = (ONE * (there + rng.normal(0.0, plan.marks, (1_000, len(there))))).astype(np.int64)
    found = [weight(estimates.people_at_marks(noisy, plan)) / without for noisy in draws]
    assert 1.0 / math.sqrt(2.0) <= min(found)
    assert max(found) <= math.sqrt(2.0)
    # So the limits mean something: where noise is read more readily, it moves the allowance by octaves.
    monkeypatch.setattr("dpunion.counting.estimates.SEEN", 2.5)
    assert min(weight(estimates.people_at_marks(noisy, plan)) / without for noisy in draws) < 0.5


def test_marks_above_the_last_that_stands_out_are_assumed_not_read():
    plan = CountsPlan(0.1, 1.0, 10.0, 1.0)
    noisy = (ONE * np.array([500.0, 20.0, 200.0, -40.0, 25.0, -9.0])).astype(np.int64)
    people = estimates.people_at_marks(noisy, plan)
    assert people.sum() == pytest.approx(696.0)
    assert (people >= 0.0).all()
    tails = np.cumsum(people[::-1])[::-1]
    assert tails[2] == pytest.approx(176.0)  # 4.5 stddevs of four marks are 90
    assert tails[3:] == pytest.approx(176.0 * 2.0 ** (-estimates.TAIL * np.arange(1, 4)))
    assert not estimates.people_at_marks((ONE * np.array([-5.0, 12.0, 3.0])).astype(np.int64), plan).any()


def test_estimates_are_shrunk_as_far_as_their_scatter_says():
    rng = np.random.default_rng(4)
    true = rng.normal(100.0, 20.0, 3_000)
    stddevs = np.full(3_000, 40.0)
    noisy = true + rng.normal(0.0, 40.0, 3_000)
    found = estimates.shrink(noisy, stddevs)
    assert np.abs(found - noisy).max() <= estimates.MOVED * 40.0 + 1e-9
    assert np.mean((found - true) ** 2) < 0.55 * np.mean((noisy - true) ** 2)
    assert found.sum() == pytest.approx(noisy.sum(), rel=0.01)
    # Precise ones, and a handful, stay as they are.
    assert (estimates.shrink(noisy + 500.0, np.full(3_000, 1.0)) == noisy + 500.0).all()
    assert (
        estimates.shrink(noisy[: estimates.FEWEST - 1], stddevs[: estimates.FEWEST - 1])
        == noisy[: estimates.FEWEST - 1]
    ).all()


def test_counts_are_raised_by_a_part_of_the_loss_and_not_without_end():
    plan, step = CountsPlan(0.1, 20.0, 40.0, 0.001), FineStep(np.full(3, ONE))
    noisy = np.array([1_000 * ONE] * 3 + [9_000 * step.total_weight] * 2)
    allowance = estimates.Allowance(step.weights, np.array([0.0, 0.2, 0.9]), 0.5)
    counted = estimates.estimate_people(noisy, allowance, plan, np.full(3, 7))
    assert counted.people == (1_000, round(1_000 / 0.88), round(1_000 * estimates.MOST_RAISED))
    assert counted.low == (1_000, 1_000, 1_000)
    assert counted.high == (1_000, round(1_000 / 0.5), round(1_000 / 0.3))
    assert counted.totals.corrected == estimates.MOST_RAISED


@given(
    st.floats(-100.0, 100.0),
    st.lists(st.tuples(st.floats(-100.0, 100.0), st.floats(0.1, 50.0)), max_size=8),
    st.floats(0.1, 50.0),
)
def test_all_people_are_the_nearest_number_that_no_part_exceeds(whole, parts, spread):
    values, spreads = np.array(parts).reshape(-1, 2).T

    def distance(most):
        return ((most - whole) / spread) ** 2 + float(np.sum((np.maximum(values - most, 0.0) / spreads) ** 2))

    found = estimates.raise_to_parts(whole, spread, values, spreads)
    assert found >= whole - 1e-9
    assert all(distance(found) <= distance(found + step) + 1e-9 for step in (-1.0, -1e-3, 1e-3, 1.0))


def test_what_everybody_holds_is_not_told_apart_from_all_people():
    """1,000 people, whom the noise makes 900; 990 who have an item, known better: the interval contains both."""
    plan = CountsPlan(0.1, 20.0, 40.0, 10.0)
    allowance = estimates.Allowance(np.array([ONE]), np.zeros(1), 0.0)
    total = FineStep(allowance.weights).total_weight
    noisy = np.array([990 * ONE, 900 * total, 950 * total])
    counted = estimates.estimate_people(noisy, allowance, plan, np.ones(1, np.int64))
    assert 985 <= counted.people[0] == counted.totals.everybody.people <= 990
    assert counted.low[0] < counted.people[0] < counted.high[0]
    assert counted.totals.others.people == 950


def test_what_is_lowered_to_its_parts_lowers_what_it_is_part_of():
    """a, b, c; then ab, bc; then abc: b is rare, so ab, bc and abc are."""
    parts = np.array([(-1, -1)] * 3 + [(0, 1), (1, 2), (3, 4)], np.int32)
    people = np.array([50, 7, 40, 9, 30, 8])
    estimates.at_most_parts(people, parts)
    assert people.tolist() == [50, 7, 40, 7, 7, 7]


def test_a_short_list_of_few_people_is_counted_right():
    """Three items, whose holders are the same people: the noise nearly hides who has all three."""
    pairs = [(f"u{user}", item) for item, people in (("a", 900), ("b", 500), ("c", 300)) for user in range(people)]
    right = []
    for key in range(12):
        made = dpunion.release(pairs, epsilon=2.0, delta=1e-4, counts=True, unsafe_test_key=key)
        truth = {"a": 900, "b": 500, "c": 300}
        right += [low <= truth[item] <= high for item, _, low, high in made.rows()]
    assert len(right) == 36
    assert sum(right) >= 31


def test_ngrams_are_never_more_frequent_than_their_parts():
    words = [f"w{i}" for i in range(12)]
    rng = np.random.default_rng(3)
    texts = [(f"u{u}", " ".join(rng.choice(words, 30))) for u in range(400)]
    made = dpunion.release_ngrams(texts, longest=3, epsilon=4.0, delta=1e-4, counts=True, unsafe_test_key=3)
    assert made.header == ("item", "length", "people", "low", "high")
    people = made.people
    for ngram, count in people.items():
        tokens = ngram.split(" ")
        if len(tokens) > 1:
            assert count <= people[" ".join(tokens[:-1])]
            assert count <= people[" ".join(tokens[1:])]
    assert {len(ngram.split(" ")) for ngram in people} >= {1, 2}
    truth = {ngram: sum(f" {ngram} " in f" {text} " for _, text in texts) for ngram in people}
    inside = [low <= truth[item] <= high for item, _, _, low, high in made.rows()]
    assert np.mean(inside) > 0.85
    assert Release.from_json(made.to_json()) == made


# --- order, files, words ----------------------------------------------------------------------------------------
def test_the_most_popular_come_first_unless_asked_otherwise():
    people = [row[1] for row in released().rows()]
    assert people == sorted(people, reverse=True)
    by_item = released(sort="item")
    assert list(by_item.items) == sorted(by_item.items)
    assert by_item.people == released().people


def test_without_counts_there_is_no_order_by_people():
    with pytest.raises(BadParameter, match="counts"):
        released(counts=False, sort="people")
    with pytest.raises(BadParameter, match="sort"):
        released(sort="frequency")
    assert list(released(counts=False).items) == sorted(released(counts=False).items)
    with pytest.raises(BadParameter, match="counts"):
        _ = released(counts=False).people


def test_keys_of_several_columns_have_counts():
    table = pq.read_table(debian_depends())
    both = table.append_column("kind", table["item"])
    made = dpunion.release(
        both, user="user", item=["item", "kind"], epsilon=3.0, delta=1e-5, counts=True, unsafe_test_key=5
    )
    assert made.header == ("item", "kind", "people", "low", "high")
    assert Release.from_json(made.to_json()) == made
    assert all(left == right for left, right in made.people)


def test_the_statement_says_what_the_numbers_are():
    made = released()
    said = statement(made.plan, guaranteed=True, totals=made.totals)
    assert "covers list and estimates together" in said
    assert f"{made.totals.everybody}" in said
    assert "counted with full weight" in said


@pytest.mark.parametrize("damage", ["short", "negative", "text", "missing", "no numbers"])
def test_damaged_counts_are_no_release(damage):
    values = json.loads(released().to_json())
    match damage:
        case "short":
            values["numbers"]["people"].pop()
        case "negative":
            values["numbers"]["low"][0] = -1
        case "text":
            values["totals"]["cut"] = "many"
        case "missing":
            del values["totals"]["everybody"]
        case "no numbers":
            del values["numbers"]
    with pytest.raises(BadParameter, match="not a release"):
        Release.from_json(json.dumps(values))


# --- few people: the noise hides how many items they have, and nobody is cut -------------------------------------
FEW = CountsPlan(0.1, rough=40.0, marks=80.0, fine=15.0)


def choose_for(*sums):
    popularity = estimates.Popularity.of((np.array(sums, np.float64) * ONE).astype(np.int64), FEW)
    step = MarksStep(popularity.units)
    return estimates.choose_allowance(popularity, step, np.zeros(step.length), FEW)


@pytest.mark.parametrize("sums", [[-10.0, 30.0, 500.0], [*[-10.0, 30.0] * 50, 500.0]])
def test_items_get_what_people_with_all_of_them_can_give(sums):
    chosen = choose_for(*sums)
    squares = (chosen.weights / ONE) ** 2
    assert squares.sum() == pytest.approx(estimates.ROOM, rel=1e-4)
    assert squares[-1] == pytest.approx(squares[0] * estimates.LEAST_SUM * FEW.rough / 500.0, rel=1e-3)
    assert chosen.cut == 0.0
    assert not chosen.lost.any()


def test_an_empty_list_has_no_weights():
    assert len(choose_for().weights) == 0
