"""What Spark's workers do to count, without Spark: the numbers of one machine, whatever the partitions."""

import dataclasses
import functools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import ITEMS, contributions, databases, names

import dpunion
from dpunion.algorithms import Norm, Sensitivity
from dpunion.counting.steps import ONE, FineStep, MarksStep, RoughStep
from dpunion.engines import Chosen, Listed, count_listed
from dpunion.engines.local.engine import LocalEngine
from dpunion.engines.local.texts import LocalTexts
from dpunion.engines.publishing import list_chosen
from dpunion.engines.spark.counting import AddNoise, AddUp, FindItems, order_by_place
from dpunion.engines.spark.tasks import Secret
from dpunion.engines.spark.texts import find_ngrams, level_of_tokens, read_streams
from dpunion.engines.spark.wire import Piece
from dpunion.errors import InternalError, SensitivityMismatch
from dpunion.ngrams.lengths import select_ngrams
from dpunion.plans.ngrams import Ngrams
from dpunion.randomness import RunKey
from dpunion.reading import ValueKind
from dpunion.reading.known import read_known
from dpunion.requests import Run
from dpunion.sets.encoding import Normalization, digests_of
from dpunion.sets.streams import read_tokens
from dpunion.text.splitting import Splitting
from opening import make_request
from spark_in_process import READING, cut_for_counts, each, measure_here, partitions, spread_out

KEYS = st.integers(1, 5).map(RunKey.for_tests)
KEY = RunKey.for_tests(3)
PLAN = dpunion.plan(dpunion.Funnel(max_items_per_user=3), epsilon=2.0, delta=0.001, counts=True)
SIPS = dpunion.plan("dp-sips", epsilon=2.0, delta=0.001, counts=True)
LISTED = ["item1", "item4", "item7", "nobody has it"]
KNOWN = ["item2", "item4", "item9"]


def known_list(items):
    return read_known(items, ("item",), ValueKind.ITEM, Normalization.NFC)


def here(plan, database, listed, key, known=None):
    """Count on one machine."""
    request = dataclasses.replace(READING, source=database, user=None, value=None, known=known)
    engine = LocalEngine.for_run(Run(), None)
    with engine.read(request, plan, key, lambda: None) as held:
        return engine.count(held, listed, plan.counts, key)


def there(plan, database, listed, key, count, known=None):
    """Count task by task, in so many partitions of rows."""
    *_, whole = cut_for_counts(plan, partitions(database, count), key, 3, known=known)
    find = FindItems(digests_of(listed.texts, key), digests_of(listed.known, key))
    return count_listed(listed, plan.counts, measure_here(spread_out(whole, count), find, key))


@pytest.mark.parametrize("plan", [PLAN, SIPS], ids=["funnel", "dp-sips"])
@settings(max_examples=15)
@given(database=databases, key=KEYS, count=st.integers(1, 4))
def test_counts_are_those_of_one_machine(plan, database, key, count):
    listed = Listed(tuple(LISTED), (), (True,) * 3 + (False,))
    assert there(plan, database, listed, key, count) == here(plan, database, listed, key)


@pytest.mark.parametrize("include", [True, False])
@settings(max_examples=15)
@given(database=databases, key=KEYS, count=st.integers(1, 4))
def test_known_lists_are_counted_or_set_aside_as_on_one_machine(include, database, key, count):
    known = known_list(KNOWN)
    request = dataclasses.replace(READING, known=known, include_known=include)
    listed = list_chosen(Chosen(items=("item1", "item7")), request)
    assert (listed.texts, listed.known) == (
        (("item1", "item2", "item4", "item7", "item9"), ()) if include else (("item1", "item7"), known.items)
    )
    assert there(PLAN, database, listed, key, count, known) == here(PLAN, database, listed, key, known)


def test_numbers_are_about_the_people():
    """Equal numbers above mean something: with little noise they are nearly the true ones."""
    database = {f"u{n}": {"item1"} if n < 400 else {"item4", "item5"} for n in range(600)}
    listed = Listed(tuple(LISTED), (), (True,) * 3 + (False,))
    precise = dataclasses.replace(PLAN, counts=dataclasses.replace(PLAN.counts, rough=0.01, marks=0.01, fine=0.01))
    found = there(precise, database, listed, KEY, 3)
    assert found.people == pytest.approx((400, 200, 1, 0), rel=0.03)
    assert found.totals.everybody.people == 600
    assert found.totals.others.people == 200


@settings(max_examples=25)
@given(database=databases, key=KEYS, shards=st.integers(1, 4), with_known=st.booleans())
def test_one_reading_gives_bounded_sets_to_select_from_and_whole_ones_to_count(database, key, shards, with_known):
    known = known_list(KNOWN) if with_known else None
    selecting, named, whole = cut_for_counts(PLAN, partitions(database, 2), key, shards, known=known)
    kept = {user: items - set(KNOWN) if with_known else items for user, items in database.items()}
    bounding = PLAN.algorithm.bounding
    planned = sets_of(contributions(kept, key, bounding.limit, bounding.order))
    # People who hold nothing but known items stay, with nothing.
    assert {user: held for user, held in pieces_of(selecting, named).items() if held} == planned
    assert all(len(held) <= bounding.limit for held in pieces_of(selecting, named).values())
    assert {row["name"].decode() for row in named} == set().union(*planned.values())
    everything = contributions(database, key)
    labels = [{"payload": label, "name": name} for label, name in labelled(everything)]
    assert pieces_of(whole, labels) == sets_of(everything)


def labelled(data):
    digests = np.ascontiguousarray(data.table.digests, "<u8")
    return [(row.tobytes(), name.encode()) for row, name in zip(digests, names(data.table), strict=True)]


def sets_of(data):
    """Return the items of each user, by the user's digest."""
    labels = names(data.table)
    ends = zip(data.user_digests.tolist(), data.offsets[:-1], data.offsets[1:], strict=True)
    return {tuple(user): {labels[item] for item in data.items[start:stop]} for user, start, stop in ends}


def pieces_of(rows, named):
    """Return the items of each user in these rows of pieces, every user once."""
    labels = {row["payload"]: row["name"].decode() for row in named}
    found = {}
    for row in rows:
        data = Piece.from_bytes(row["payload"]).sets(100)
        texts = [labels[digest.tobytes()] for digest in np.ascontiguousarray(data.table.digests, "<u8")]
        for user, start, stop in zip(data.user_digests.tolist(), data.offsets[:-1], data.offsets[1:], strict=True):
            assert tuple(user) not in found
            found[tuple(user)] = {texts[item] for item in data.items[start:stop]}
    return found


@pytest.mark.parametrize("plan", [PLAN, SIPS], ids=["funnel", "dp-sips"])
def test_of_very_many_items_as_many_are_looked_at_as_on_one_machine(monkeypatch, plan):
    """Dp-sips keeps all items, Funnel as many as are counted: in both, the same few of them are counted."""
    for module in ("counting.holdings", "engines.local.engine"):
        monkeypatch.setattr(f"dpunion.{module}.MOST_COUNTED", 4)
    database = {f"u{n}": set(ITEMS) for n in range(30)}
    listed = Listed(tuple(ITEMS), (), (True,) * len(ITEMS))
    *_, whole = cut_for_counts(plan, partitions(database, 2), KEY, 2)
    assert {int(size) for row in whole for size in Piece.from_bytes(row["payload"]).sizes} == {4}
    assert there(plan, database, listed, KEY, 3) == here(plan, database, listed, KEY)


# --- neighbours, and tasks that run again ---------------------------------------------------------------------
def steps():
    draw = np.random.default_rng(5)
    burdens = draw.integers(1, 2**40, len(ITEMS))
    return [RoughStep(len(ITEMS)), MarksStep(burdens), FineStep(draw.integers(1, ONE + 1, len(ITEMS)))]


def sums_of(step, database, key, count=2):
    find = FindItems(digests_of(ITEMS, key), digests_of((), key))
    *_, whole = cut_for_counts(PLAN, partitions(database, count), key, 2)
    sums = np.zeros(step.length, np.int64)
    for row in each(AddUp(find, step, Secret.of(key)), spread_out(whole, count)):
        assert row["sensitivity"] == 1.0
        sums[row["place"]] += row["units"]
    return sums


@pytest.mark.parametrize("step", steps(), ids=["rough", "spread", "fine"])
@settings(max_examples=15)
@given(database=databases, key=KEYS)
def test_one_user_moves_the_sums_of_a_step_by_at_most_one(step, database, key):
    full = sums_of(step, database, key)
    assert full.any()
    for user in database:
        rest = sums_of(step, {other: items for other, items in database.items() if other != user}, key)
        moved = (full - rest).tolist()
        assert 0 < sum(units * units for units in moved) <= ONE * ONE


def test_a_task_that_runs_again_on_pieces_in_another_order_gives_the_same():
    database = {f"u{n}": {ITEMS[(n * i) % 12] for i in range(1, 2 + n % 6)} for n in range(40)}
    *_, whole = cut_for_counts(PLAN, partitions(database, 5), KEY, 3)
    find = FindItems(digests_of(ITEMS, KEY), digests_of((), KEY))
    for step in steps():
        task = AddUp(find, step, Secret.of(KEY))
        first, again = (each(task, spread_out(rows, 1)) for rows in (whole, whole[::-1]))
        assert len(first) > 2
        assert first == again


# --- the noise --------------------------------------------------------------------------------------------------
def sums_batch(units, least=1.0, most=1.0):
    count = len(units)
    columns = {"place": list(range(count)), "units": units}
    return pa.record_batch(columns | {"least_sensitivity": [least] * count, "most_sensitivity": [most] * count})


def test_every_sum_gets_noise_of_the_planned_size():
    rows = each(AddNoise(0, 3.0, Secret.of(KEY)), [[sums_batch([0] * 4_000)]])
    drawn = np.array([row["units"] for row in rows]) / ONE
    assert len(set(drawn.tolist())) > 3_000
    assert abs(drawn.std() - 3.0) < 0.15
    other = each(AddNoise(1, 3.0, Secret.of(KEY)), [[sums_batch([0] * 4_000)]])
    assert sum(one["units"] == two["units"] for one, two in zip(rows, other, strict=True)) < 10


@pytest.mark.parametrize(("least", "most"), [(2.0, 2.0), (1.0, 2.0), (-1.0, -1.0)])
def test_sums_of_another_sensitivity_get_no_noise(least, most):
    task = AddNoise(0, 1.0, Secret.of(KEY))
    with pytest.raises(SensitivityMismatch):
        list(task(iter([sums_batch([5, 6], least, most)])))


def test_a_step_says_its_sensitivity_beside_every_sum():
    @dataclasses.dataclass(frozen=True)
    class Loud(RoughStep):
        sensitivity = Sensitivity(Norm.L2, 2.0)

    rows = sums_rows(Loud(len(ITEMS)))
    assert {row["sensitivity"] for row in rows} == {2.0}


def sums_rows(step):
    *_, whole = cut_for_counts(PLAN, partitions({"u": set(ITEMS)}, 1), KEY, 1)
    find = FindItems(digests_of(ITEMS, KEY), digests_of((), KEY))
    return each(AddUp(find, step, Secret.of(KEY)), spread_out(whole, 1))


def test_there_is_one_noisy_sum_for_each_place():
    table = pa.table({"place": [2, 0, 1], "units": [7, 8, 9]})
    assert order_by_place(table, 3).tolist() == [8, 9, 7]
    for bad, length in ((table, 4), (table.slice(1), 3), (pa.concat_tables([table, table]), 3)):
        with pytest.raises(InternalError, match="noisy sum"):
            order_by_place(bad, length)


def test_digests_do_not_show():
    assert "FindItems object" in repr(FindItems(digests_of(["a"], KEY), digests_of([], KEY)))


# --- n-grams ----------------------------------------------------------------------------------------------------
TEXTS = [(f"u{n}", " ".join(f"w{(n * k) % 7}" for k in range(2 + n % 5))) for n in range(120)]
NGRAMS = dpunion.plan(Ngrams(longest=3), epsilon=6.0, delta=1e-3, counts=True)


def streams(rows, count):
    """Return the token streams of rows in so many partitions, as they are kept on Spark."""
    how = Splitting(), Normalization.NFC_LOWER
    request = make_request(None, "who", "body", kind=ValueKind.TEXT, normalization=how[1])
    task, found = functools.partial(read_streams, request, ("who", "body"), Secret.of(KEY)), []
    for part in range(count):
        users, texts = zip(*rows[part::count], strict=True)
        found.append(list(task(iter([pa.record_batch({"a": list(users), "b": list(texts)})]))))
    whole = read_tokens([tuple(map(pa.array, zip(*rows, strict=True)))], KEY, *how)
    return found, LocalTexts(whole, KEY)


@pytest.mark.parametrize("count", [1, 4])
def test_ngrams_are_counted_as_on_one_machine(count):
    lists, texts = streams(TEXTS, count)
    levels, found, _ = select_ngrams(NGRAMS, texts, KEY, lambda _: None)
    assert len(levels[1]) > 2
    assert len(levels[2]) > 2
    listed = Listed((), (), tuple(length == 1 for _, length in found), levels)
    wanted = LocalEngine.for_run(Run(), None).count(texts, listed, NGRAMS.counts, KEY)
    noisy = []
    find = functools.partial(find_ngrams, levels)
    assert count_listed(listed, NGRAMS.counts, measure_here([*lists, []], find, KEY, noisy)) == wanted
    rough, _, fine = (len(one) for one in noisy)
    assert (rough, fine) == (len(found), len(found) + 2)


def test_people_who_wrote_nothing_listed_are_counted_among_all():
    lists, texts = streams([("u", "a b"), ("v", "x"), ("w", "")], 1)
    levels = (level_of_tokens(("a", "b"), KEY),)
    [held] = find_ngrams(levels, iter(lists[0]), KEY)
    assert (int(held.anything.sum()), int(held.others.sum()), len(held.items)) == (2, 1, 2)
    assert int(texts.holdings(levels).others.sum()) == 1
