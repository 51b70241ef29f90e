"""Rows -> contributions: numbering, normalising, dropping duplicates, bounding, ordering."""

import itertools
import unicodedata
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dpunion
from dpunion.algorithms import UserOrder
from dpunion.buffers import string_buffers
from dpunion.randomness import Purpose, RunKey
from dpunion.sets import encoding, grouping, strings
from dpunion.sets.encoding import Normalization, encode
from dpunion.sets.strings import StringTable

KEY = RunKey.for_tests(1)
SEED = np.uint64(12345)

words = st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12), max_size=40)


def encoded(batches, *, key=KEY, limit=100, order=UserOrder.RANDOM, normalize=Normalization.NFC, split=False):
    arrays = [
        (pa.array([user for user, _ in batch], pa.string()), pa.array([item for _, item in batch], pa.string()))
        for batch in batches
    ]
    return encode(arrays, key, max_items_per_user=limit, user_order=order, normalization=normalize, split_words=split)


def names(table):
    bounds = zip(table.offsets[:-1], table.offsets[1:], strict=True)
    return [table.data[start:stop].tobytes().decode() for start, stop in bounds]


def sets(contributions):
    """Return each user's kept items, in visiting order."""
    label = names(contributions.table)
    bounds = zip(contributions.offsets[:-1], contributions.offsets[1:], strict=True)
    return [frozenset(label[item] for item in contributions.items[start:stop]) for start, stop in bounds]


# --- StringTable --------------------------------------------------------------------------------------------
@given(batches=st.lists(words, max_size=4))
def test_strings_are_numbered_by_first_appearance(batches):
    """Against a dictionary, with the smallest table, so that it grows in all ways."""
    table, expected = StringTable(SEED, capacity=2), {}
    for batch in batches:
        numbers = table.number(pa.array(batch, pa.string()))
        assert numbers.dtype == np.int32
        assert numbers.tolist() == [expected.setdefault(word, len(expected)) for word in batch]
    offsets, data = table.buffers()
    found = [data[a:b].tobytes().decode() for a, b in itertools.pairwise(offsets)]
    assert found == list(expected)


def test_very_many_and_very_long_strings():
    table = StringTable(SEED, capacity=4)
    many = [f"{i * 7919 % 100_003:x}" for i in range(100_003)]
    long = ["x" * 3_000_000, "x" * 2_999_999 + "y"]
    assert table.number(pa.array(many)).tolist() == list(range(len(many)))
    assert table.number(pa.array(long)).tolist() == [len(many), len(many) + 1]
    assert table.number(pa.array(many[::-1])).tolist() == list(range(len(many)))[::-1]


@given(batch=words, codes=st.lists(st.integers(0, 5), max_size=20), cut=st.integers(0, 20))
def test_dictionary_arrays_are_numbered_like_plain_ones(batch, codes, cut):
    entries = [*batch[:5], "last"]
    indices = [code % len(entries) for code in codes]
    array = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), pa.array(entries)).slice(cut)
    coded, plain = StringTable(SEED), StringTable(SEED)
    coded_numbers, plain_numbers = coded.number(array), plain.number(array.cast(pa.string()))
    # Numbers may differ, as unused entries are numbered too; equality of strings may not.
    pairs = set(zip(coded_numbers.tolist(), plain_numbers.tolist(), strict=True))
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def test_a_dictionary_that_changes_between_batches_is_noticed():
    table = StringTable(SEED)
    indices = pa.array([0, 1], pa.int32())
    one = pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b"]))
    two = pa.DictionaryArray.from_arrays(indices, pa.array(["b", "a"]))
    three = pa.DictionaryArray.from_arrays(indices, pa.array(["x", "a", "b"]).slice(1))
    assert [table.number(array).tolist() for array in (one, two, one, three)] == [[0, 1], [1, 0], [0, 1], [0, 1]]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize(("offset", "length"), [(0, None), (2, None), (1, 2), (4, None), (0, 0)])
def test_slices_show_their_own_strings_only(kind, offset, length):
    whole = pa.array(["a", "", "ccc", "dé"], kind)
    part = whole.slice(offset, length)
    offsets, data = string_buffers(part)
    found = [data[a:b].tobytes().decode() for a, b in itertools.pairwise(offsets)]
    assert found == part.to_pylist()


def test_too_many_distinct_values_are_refused(monkeypatch):
    monkeypatch.setattr(strings, "MAX_ITEMS", 100)
    with pytest.raises(dpunion.BadSource, match="more than 100 distinct values"):
        StringTable(SEED, capacity=2).number(pa.array([str(i) for i in range(1000)]))


def test_strings_are_numbered_up_to_the_most_and_no_further(monkeypatch):
    """The room for strings grows by half; none of it may lie beyond the largest number."""
    monkeypatch.setattr(strings, "MAX_ITEMS", 100)
    table = StringTable(SEED, capacity=64)
    assert table.number(pa.array([f"{i}" for i in range(100)])).tolist() == [*range(100)]
    with pytest.raises(dpunion.BadSource, match="more than 100 distinct values"):
        table.number(pa.array(["one more"]))


def test_too_many_users_are_refused(monkeypatch):
    monkeypatch.setattr(encoding, "MAX_USERS", 3)
    with pytest.raises(dpunion.BadSource, match="more than 3 users"):
        encoded([[(str(i), "item") for i in range(4)]])


# --- encode -------------------------------------------------------------------------------------------------
pairs = st.lists(
    st.tuples(st.sampled_from("uvwxyz"), st.sampled_from(["a", "b", "c", "d", "é", "e\u0301", "A"])), max_size=60
)


@given(pairs=pairs, order=st.sampled_from(UserOrder), data=st.data())
def test_users_hold_their_distinct_normalised_items(pairs, order, data):
    cut = data.draw(st.integers(0, len(pairs)))
    contributions = encoded([pairs[:cut], pairs[cut:]], order=order)
    expected = {}
    for user, item in pairs:
        expected.setdefault(user, set()).add(unicodedata.normalize("NFC", item))
    assert Counter(sets(contributions)) == Counter(map(frozenset, expected.values()))
    assert contributions.users == len(expected)
    assert len(contributions.table) == len({item for items in expected.values() for item in items})
    assert contributions.offsets.dtype == np.int64
    assert contributions.items.dtype == np.int32


@given(pairs=pairs, limit=st.integers(1, 4), data=st.data())
def test_layout_does_not_matter(pairs, limit, data):
    """Order of rows, duplicates and batches: every array of the result is the same."""
    shuffled = data.draw(st.permutations(pairs + pairs[: len(pairs) // 2]))
    cut = data.draw(st.integers(0, len(shuffled)))
    one = encoded([pairs], limit=limit)
    other = encoded([shuffled[:cut], [], shuffled[cut:]], limit=limit)
    for attribute in ("offsets", "items"):
        assert np.array_equal(getattr(one, attribute), getattr(other, attribute))
    for attribute in ("offsets", "data", "digests"):
        assert np.array_equal(getattr(one.table, attribute), getattr(other.table, attribute))


@given(pairs=pairs)
def test_items_stand_in_the_order_of_their_digests_and_each_once_in_a_user(pairs):
    contributions = encoded([pairs])
    table = contributions.table
    digests = [(int(high), int(low)) for high, low in table.digests]
    assert digests == sorted(set(digests))
    recomputed = KEY.digests(Purpose.ITEM, table.offsets, np.ascontiguousarray(table.data))
    assert np.array_equal(recomputed, table.digests)
    for start, stop in zip(contributions.offsets[:-1], contributions.offsets[1:], strict=True):
        held = contributions.items[start:stop].tolist()
        assert held == sorted(set(held))


@settings(max_examples=30)
@given(pairs=pairs, limit=st.integers(1, 4), order=st.sampled_from(UserOrder))
def test_a_user_more_changes_nothing_for_the_others(pairs, limit, order):
    """What a user keeps and the relative order of users depend on their own data and the key alone."""
    with_guest = [*pairs, *(("guest", item) for item in ("a", "new", "b", "other"))]
    alone, together = (encoded([rows], limit=limit, order=order) for rows in (pairs, with_guest))
    left, right = sets(alone), sets(together)
    assert len(right) == len(left) + 1
    assert any(right[:i] + right[i + 1 :] == left for i in range(len(right)))


@given(pairs=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 300)), min_size=1, max_size=200))
def test_rows_packed_into_four_bytes_or_eight_and_blocks_of_any_size_are_the_same(pairs):
    rows = [[(str(user), str(item)) for user, item in pairs]]
    usual = encoded(rows, limit=5)
    with pytest.MonkeyPatch.context() as patch:
        for bits, most_rows in ((0, 1 << 17), (0, 4), (32, 4), (12, 1 << 17)):
            patch.setattr(grouping, "NARROW_BITS", bits)
            patch.setattr(grouping, "ROWS_PER_BLOCK", most_rows)
            other = encoded(rows, limit=5)
            assert other.items.tolist() == usual.items.tolist()
            assert other.offsets.tolist() == usual.offsets.tolist()


@pytest.mark.parametrize("item_bits", [1, 20, 31])
@pytest.mark.parametrize("users", [1, 5000, 900_000, 2**31 - 1])
def test_a_block_is_small_enough_where_four_bytes_suffice(users, item_bits):
    for rows in (users, 90 * users):
        shift = grouping.block_shift(users, rows, item_bits)
        assert users >> shift <= 2 * grouping.MOST_BLOCKS
        if item_bits == 20 and users < 2**24:
            assert shift + item_bits <= 32


def test_at_most_the_limit_is_kept():
    rows = [(f"user{u}", f"item{i}") for u in range(50) for i in range(u)]
    for limit in (1, 3, 100):
        contributions = encoded([rows], limit=limit)
        sizes = sorted(np.diff(contributions.offsets).tolist())
        assert sizes == sorted(min(u, limit) for u in range(1, 50))
        assert contributions.max_items_per_user == limit


def test_duplicates_and_spellings_are_dropped_before_bounding():
    """A user with many spellings of two items keeps both: were they counted first, one would often be lost."""
    rows = [("u", form) for form in ("é", "e\u0301", "è", "e\u0300") for _ in range(50)]
    for seed in range(20):
        (kept,) = sets(encoded([rows], key=RunKey.for_tests(seed), limit=2))
        assert kept == {"é", "è"}


def test_every_item_is_kept_equally_often():
    items = [f"item{i}" for i in range(10)]
    rows = [(f"user{u}", item) for u in range(4000) for item in items]
    counts = Counter(item for kept in sets(encoded([rows], limit=3)) for item in kept)
    assert sum(counts.values()) == 12_000
    assert stats.chisquare([counts[item] for item in items]).pvalue > 1e-6
    # Power: one item preferred by a quarter is noticed.
    assert stats.chisquare([1200 + 297, *[1200 - 33] * 9]).pvalue < 1e-6


def test_different_users_and_keys_keep_different_items():
    rows = [(f"user{u}", f"item{i}") for u in range(200) for i in range(20)]
    kept = [sets(encoded([rows], key=RunKey.for_tests(seed), limit=5)) for seed in range(2)]
    assert len(set(kept[0])) > 190
    assert kept[0] != kept[1]


def test_the_random_order_is_random():
    """The user named first stands in each half of the order equally often."""
    rows = [(f"user{u}", f"item{u}") for u in range(20)]
    halves = Counter(
        sets(encoded([rows], key=RunKey.for_tests(seed))).index(frozenset({"item0"})) < 10 for seed in range(400)
    )
    assert stats.binomtest(halves[True], 400, 0.5).pvalue > 1e-6


def test_smallest_first_goes_by_what_is_kept():
    rows = [(f"user{u}", f"item{i}") for u in range(30) for i in range(u % 7 + 1)]
    sizes = np.diff(encoded([rows], limit=4, order=UserOrder.SMALLEST_FIRST).offsets)
    assert (np.diff(sizes) >= 0).all()
    assert not (np.diff(np.diff(encoded([rows], limit=4).offsets)) >= 0).all()


@pytest.mark.parametrize(
    ("normalize", "expected"),
    [
        (Normalization.EXACT, {"É", "E\u0301", "é", "İ", "plain"}),
        (Normalization.NFC, {"É", "é", "İ", "plain"}),
        (Normalization.NFC_LOWER, {"é", "i\u0307", "plain"}),
    ],
)
def test_each_normalization_merges_its_own_spellings(normalize, expected):
    rows = [("u", item) for item in ("É", "E\u0301", "é", "İ", "plain", "plain")]
    contributions = encoded([rows], normalize=normalize)
    assert set(names(contributions.table)) == expected
    assert sets(contributions) == [frozenset(expected)]
    assert len(contributions.table) == len(expected)


def test_texts_are_split_into_words():
    rows = [("u", "To be, or not"), ("v", ""), ("v", "to BE"), ("w", "...")]
    contributions = encoded([rows], split=True, normalize=Normalization.NFC_LOWER)
    assert Counter(sets(contributions)) >= Counter([frozenset({"to", "be", "or", "not"}), frozenset({"to", "be"})])
    cased = encoded([rows], split=True, normalize=Normalization.NFC)
    assert Counter(sets(cased)) >= Counter([frozenset({"To", "be", "or", "not"}), frozenset({"to", "BE"})])
    assert set(names(contributions.table)) == {"to", "be", "or", "not"}


@pytest.mark.parametrize("batches", [[], [[]], [[], []]], ids=["no batch", "empty batch", "empty batches"])
@pytest.mark.parametrize("split", [False, True])
def test_empty_batches_give_no_users_and_no_items(batches, split):
    contributions = encoded(batches, split=split)
    assert contributions.users == 0
    assert len(contributions.table) == 0
    assert contributions.offsets.tolist() == [0]


def test_odd_but_valid_strings_are_told_apart():
    items = ["", " ", "\x00", "\x00\x00", "a", "a\x00", "a ", "😀", "\ufeff", "\u200b"]
    contributions = encoded([[("u", item) for item in items]], normalize=Normalization.EXACT)
    assert set(names(contributions.table)) == set(items)


def test_users_are_told_apart_byte_by_byte():
    """Ids are never normalised: who looks alike may be somebody else."""
    users = ["é", "e\u0301", "E", "e", "1", "01", "1.0", " 1", "1 ", "", "a\x00"]
    assert encoded([[(user, "item") for user in users]]).users == len(users)
