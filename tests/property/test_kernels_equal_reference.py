"""Every kernel equals its slow, readable twin."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import csr

from dpunion.buffers import as_texts
from dpunion.contributions import Contributions, ItemTable, offsets_of
from dpunion.kernels import bounding, descent, grouping, hashing, interning, words
from dpunion.sets import narrowing
from dpunion.sets.grouping import digest_order
from dpunion.sets.strings import StringTable, select_strings
from dpunion.threads import Threads
from dpunion_lab import study
from twins import hashing as twin_hashing
from twins import kernels as twins

user_lists = st.lists(
    st.lists(st.integers(0, 9), min_size=1, max_size=10, unique=True).map(sorted), min_size=0, max_size=12
)
some_or_no_items = st.lists(st.lists(st.integers(0, 9), max_size=10, unique=True).map(sorted), min_size=0, max_size=12)
cutoffs = st.floats(0.05, 12.0)
budgets = st.sampled_from([1.0, 0.5, 0.25])


def compare_with_twin(kernel, twin, users, *numbers, within, scratch=()):
    """Let a kernel and its twin weigh the same sets."""
    weights, slow = np.zeros(10), [0.0] * 10
    kernel(*csr(users), weights, *numbers, *scratch)
    twin(users, slow, *numbers)
    np.testing.assert_allclose(weights, slow, rtol=within, atol=within)


@given(user_lists, cutoffs, budgets)
def test_descend_l2(users, cutoff, budget):
    compare_with_twin(descent.descend_l2, twins.descend_l2, users, cutoff, budget, within=1e-13)


@given(user_lists, cutoffs, budgets)
def test_descend_l1(users, cutoff, budget):
    scratch = (np.empty(10),)
    compare_with_twin(descent.descend_l1, twins.descend_l1, users, cutoff, budget, within=1e-12, scratch=scratch)


@given(user_lists, cutoffs)
def test_research_policies(users, cutoff):
    for name in ("descend_l1_with_l2_budget", "fill_greedily", "fill_in_order"):
        compare_with_twin(getattr(study, name), getattr(twins, name), users, cutoff, 1.0, within=1e-9)


@given(user_lists)
def test_add_shares(users):
    offsets, items = csr(users)
    share = np.arange(100, 111, dtype=np.int64)
    weights, twin = np.zeros(10, np.int64), [0] * 10
    descent.add_shares(offsets, items, share, weights)
    twins.add_shares(users, share.tolist(), twin)
    assert weights.tolist() == twin


# Empty, short and long names around the sizes 8, 11 and 16; shared beginnings and ends; zeros; non-ASCII text.
names = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"", b"\0", b"\0\0", b"user", b"user\0", b"user1234567", b"user12345678", b"\xff" * 11]),
    st.text("aé語😀", max_size=9).map(str.encode),
    st.tuples(st.sampled_from([b"a" * 10, b"b" * 30]), st.binary(max_size=4), st.sampled_from([b"", b"c" * 9])).map(
        b"".join
    ),
)


@given(st.lists(names), st.integers(0, 2**64 - 1), st.sampled_from([np.int32, np.int64]), st.binary(max_size=3))
def test_intern_rows(strings, seed, dtype, before):
    codes, table = intern(strings, np.uint64(seed), slots=1 << 12, dtype=dtype, before=before)
    assert (codes, table) == twins.number_strings(strings)


def test_a_table_of_colliding_hashes_still_tells_strings_apart():
    """Equality is decided on the bytes: 100 strings in a table of 256 places collide often."""
    strings = [b"%d" % (i % 100) for i in range(1000)]
    codes, table = intern(strings, np.uint64(3), slots=512)
    assert (codes, table) == twins.number_strings(strings)


@pytest.mark.parametrize("rest", [b"", b"z" * 24], ids=["short", "long"])
def test_strings_whose_whole_hashes_are_equal_are_told_apart(rest):
    """A factor of zero makes the hash forget what stands beside it: such strings are made here on purpose."""
    seed = 12345
    factor = (seed ^ 0x2D358DCCAA6C78A5) * 0x8BB84B93962EACC9 % 2**64
    factor ^= factor >> 32
    width = 8 if rest else 3
    strings = [factor.to_bytes(8, "little") + bytes([i] * width) + rest for i in (1, 2, 3, 2, 1)]
    if rest:
        assert len({twin_hashing.table_hash(string, seed) for string in strings}) == 1
    codes, table = intern(strings, np.uint64(seed), slots=32)
    assert (codes, table) == twins.number_strings(strings)


@given(st.lists(names, max_size=200), st.integers(0, 2**64 - 1))
def test_a_table_that_grew_finds_every_string_again(strings, seed):
    table = StringTable(np.uint64(seed), capacity=2)
    offsets = np.cumsum([0, *map(len, strings)], dtype=np.int64)
    data = np.frombuffer(b"".join(strings) or b"\0", np.uint8)
    for _ in range(2):
        assert table.number_buffers(offsets, data).tolist() == twins.number_strings(strings)[0]


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_hash_pair_equals_its_twin(a, b, seed):
    assert int(hashing.hash_pair(np.uint64(a), np.uint64(b), np.uint64(seed))) == twin_hashing.spread(a, b, seed)


@given(st.binary(max_size=300), st.sampled_from([10, 13, 0, 255]))
def test_count_byte(data, byte):
    assert words.count_byte(np.frombuffer(data, np.uint8), byte) == data.count(bytes([byte]))


def intern(strings, seed, slots, dtype=np.int64, before=b""):
    offsets = np.cumsum([len(before), *(len(s) for s in strings)], dtype=dtype)
    data = np.frombuffer(before + b"".join(strings), np.uint8) if before or any(strings) else np.empty(0, np.uint8)
    codes = np.empty(len(strings), np.int32)
    table_offsets, table_data = np.zeros(slots // 2 + 1, np.int64), np.empty(1 << 16, np.uint8)
    state = np.zeros(interning.STATE_WORDS, np.uint64)
    done = interning.intern_rows(
        offsets, data, 0, codes, np.zeros(slots, np.uint64), table_offsets, table_data, state, seed
    )
    assert done == len(strings)
    count = int(state[int(interning.COUNT)])
    table = [table_data[table_offsets[i] : table_offsets[i + 1]].tobytes() for i in range(count)]
    return codes.tolist(), table


@given(user_lists, st.lists(st.floats(0.0, 9.0), min_size=10, max_size=10), st.floats(0.1, 1.0))
def test_descend_ball(users, targets, radius):
    offsets, items = csr(users)
    gaps, twin = np.array(targets), list(targets)
    descent.descend_ball(offsets, items, gaps, radius)
    twins.descend_ball(users, twin, radius)
    np.testing.assert_allclose(gaps, twin, rtol=1e-9, atol=1e-9)


@given(st.lists(st.floats(0.0, 9.0), min_size=1, max_size=10), st.floats(0.1, 1.0))
def test_the_projection_stays_in_its_set(targets, radius):
    gaps = np.array(targets)
    descent.descend_ball(*csr([list(range(len(targets)))]), gaps, radius)
    moved = np.array(targets) - gaps
    assert np.linalg.norm(moved) <= radius * (1 + 1e-14) + 1e-15
    assert moved.min() >= 0.0
    assert gaps.min() >= 0.0


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5000)), min_size=1, max_size=300),
    st.integers(1, 30),
    st.integers(0, 6),
    st.sampled_from([np.uint32, np.uint64]),
    st.booleans(),
)
def test_grouping_and_bounding(pairs, limit, shift, width, in_runs):
    pairs = sorted(pairs) if in_runs else pairs
    users = np.array([user for user, _ in pairs], np.int32)
    items = np.array([item for _, item in pairs], np.int32)
    counts = np.zeros((41 >> shift) + 1, np.int64)
    lengths = np.zeros(0, np.int32)
    if in_runs:
        owners, lengths = np.empty(len(users), np.int32), np.empty(len(users), np.int32)
        runs = grouping.find_runs(users, owners, lengths)
        expected_runs = [(user, len(list(same))) for user, same in itertools.groupby(users.tolist())]
        assert list(zip(owners[:runs].tolist(), lengths[:runs].tolist(), strict=True)) == expected_runs
        assert grouping.find_runs(users, owners[: runs - 1], lengths[: runs - 1]) == -1
        users, lengths = owners[:runs], lengths[:runs]
    grouping.count_blocks(users, lengths, shift, counts)
    heads = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    begins = heads.copy()
    packed = np.empty(len(pairs), width)
    grouping.pack_rows(users, lengths, items, np.arange(5001, dtype=np.int32), shift, 13, heads, packed)
    starts, sizes = np.zeros(41, np.int64), np.zeros(41, np.int64)
    for block in range(len(counts)):
        scratch = np.empty(counts[block], width)
        grouping.group_block(
            packed, scratch, begins[block], begins[block + 1], block << shift, 13, shift, starts, sizes
        )
    grouped = packed.view(np.int32)
    rng = np.random.default_rng(0)
    keys, digests = (rng.integers(0, 2**63, (n, 2), np.uint64) for n in (41, 5001))
    heavy = np.flatnonzero(sizes > limit)
    bounding.keep_random(starts, grouped, sizes, heavy, keys[heavy], digests, limit)
    expected = twins.group_by_user(pairs)
    for user in range(41):
        got = grouped[starts[user] : starts[user] + sizes[user]].tolist()

        def priority(item, user=user):
            return int(twin_hashing.siphash24(keys[user].tobytes(), digests[item].tobytes()))

        assert got == twins.keep_smallest(expected.get(user, []), priority, limit)


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 3), min_size=1, max_size=60), st.data())
def test_kth_smallest(values, data):
    k = data.draw(st.integers(0, len(values) - 1))
    assert int(bounding.kth_smallest(np.array(values, np.uint64), k)) == sorted(values)[k]
    assert int(bounding.select_smallest(np.array(values, np.uint64), k)) == sorted(values)[k]


@pytest.mark.parametrize("spread", [2**64, 2**60, 3, 1])
@pytest.mark.parametrize("count", [64, 65, 66, 1000])
def test_kth_smallest_of_many(spread, count):
    values = [number * 0x9E3779B97F4A7C15 % 2**64 % spread for number in range(count)]
    for k in (0, 1, count // 2, count - 2, count - 1):
        assert int(bounding.kth_smallest(np.array(values, np.uint64), k)) == sorted(values)[k]


@pytest.mark.parametrize("size", [1, 4, 64, 65, 700])
def test_what_a_user_with_many_items_keeps(size):
    digests = np.arange(4 * size, dtype=np.uint64).reshape(-1, 2) * np.uint64(0x9E3779B97F4A7C15)
    key, items = np.array([[5, 2**63 + 7]], np.uint64), list(range(0, 2 * size, 2))
    grouped, sizes = np.array(items, np.int32), np.array([size])
    limit = max(1, size // 2)
    bounding.keep_random(np.zeros(1, np.int64), grouped, sizes, np.arange(1), key, digests, limit)

    def priority(item):
        return int(twin_hashing.siphash24(key[0].tobytes(), digests[item].tobytes()))

    assert grouped[: sizes[0]].tolist() == twins.keep_smallest(items, priority, limit)


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(1, 10))
def test_take_numbers(places, count):
    numbers, taken = np.arange(100, 100 + count, dtype=np.int32), np.zeros(len(places), np.int32)
    there = all(place < count for place in places)
    assert interning.take_numbers(numbers, np.array(places, np.int32), taken) == there
    if there:
        assert taken.tolist() == [100 + place for place in places]


def test_a_place_below_the_first_is_not_there():
    assert not interning.take_numbers(np.zeros(3, np.int32), np.array([-1], np.int32), np.zeros(1, np.int32))


@given(user_lists)
def test_count_items(users):
    counts = np.zeros(10, np.int64)
    bounding.count_items(csr(users)[1], counts)
    assert counts.tolist() == [sum(item in items for items in users) for item in range(10)]


@given(some_or_no_items, st.lists(st.booleans(), min_size=10, max_size=10), st.integers(1, 5), st.sampled_from([1, 8]))
def test_narrowing_in_parts_and_in_place_is_narrowing_at_once(users, alive, pairs, growth):
    offsets, items = csr(users)
    expected = [left for items in users if (left := [item for item in items if alive[item]])]
    before, alive = items.copy(), np.array(alive)
    with pytest.MonkeyPatch.context() as patch, Threads(1) as one, Threads(3) as three:
        in_parts_of(pairs, growth, patch)
        for threads in (None, one, three):
            visits = narrowing.Sets(whole_users(offsets, items), threads)
            assert held_by(visits) == [list(one) for one in users]
            for _ in range(2):
                visits.narrow(alive)
                assert held_by(visits) == expected
                assert held_by(visits) == expected, "a second pass sees the same"
            assert set(np.flatnonzero(visits.held).tolist()) == {item for one in users for item in one}
            assert (items == before).all()


def in_parts_of(pairs, growth, patch):
    """Have sets cut into parts of about so few pairs, of which each is larger by a `growth`-th of those before."""
    patch.setattr(narrowing, "FEWEST_PAIRS", pairs)
    patch.setattr(narrowing, "MOST_PAIRS", 10 * pairs)
    patch.setattr(narrowing, "ITEMS_PER_PAIR", 100 if growth == 1 else 1)
    patch.setattr(narrowing, "GROWTH", growth)


@given(some_or_no_items, st.integers(1, 5), st.sampled_from([1, 8]))
def test_parts_are_all_users_in_order(users, pairs, growth):
    offsets, items = csr(users)
    whole = whole_users(offsets, items)
    with pytest.MonkeyPatch.context() as patch:
        in_parts_of(pairs, growth, patch)
        parts = narrowing.parts_of(whole)
    assert held_by(parts) == [list(one) for one in users]
    assert sum(len(part.user_digests) for part in parts) == len(users)
    assert all(len(part.offsets) > 1 for part in parts)
    if len(items) > 30 * pairs:
        assert len(parts) > 1


@given(some_or_no_items, st.lists(st.booleans(), min_size=10, max_size=10))
def test_narrowing_may_wait_while_most_stay(users, alive):
    visits = narrowing.Sets(whole_users(*csr(users)))
    visits.narrow(np.array(alive), may_wait=True)
    expected = [[item for item in items if alive[item]] for items in users]
    staying, all_of_them = (sum(map(len, some)) for some in (expected, users))
    waits = staying > narrowing.MOST_STAYING * all_of_them
    assert held_by(visits) == ([list(one) for one in users] if waits else list(filter(None, expected)))


gaps_of_ten = st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 20.0)), min_size=10, max_size=10)


@given(some_or_no_items, gaps_of_ten, st.floats(0.05, 5.0), st.lists(st.booleans(), min_size=10, max_size=10))
def test_what_has_no_gap_changes_nothing_to_the_last_bit(users, gaps, amount, stays):
    """So threads may leave it out of sets ahead of the visits, whichever of it they have noticed by then."""
    stays = [gap > 0.0 or stay for gap, stay in zip(gaps, stays, strict=True)]
    fewer = [[item for item in items if stays[item]] for items in users]
    cutoff = 32.0
    weights = cutoff - np.array(gaps)
    raised = (descent.descend_l2, functools.partial(with_scratch, descent.descend_l1), *study.UPDATES.values())
    for descend, start in (
        (lambda sets, numbers: descent.descend_ball(*sets, numbers, amount), np.array(gaps)),
        *((lambda sets, numbers, one=one: one(*sets, numbers, cutoff, amount), weights) for one in raised),
    ):
        whole, without = start.copy(), start.copy()
        descend(csr(users), whole)
        descend(csr(fewer), without)
        assert whole.tobytes() == without.tobytes()


def with_scratch(kernel, *given):
    kernel(*given, np.empty(10))


@given(
    some_or_no_items,
    gaps_of_ten,
    st.floats(0.05, 5.0),
    st.lists(st.booleans(), min_size=10, max_size=10),
    st.integers(1, 5),
    st.sampled_from([1, 8]),
)
def test_visits_of_what_wants_something_are_visits_of_everything(users, targets, radius, alive, pairs, growth):
    """To the last bit, whatever the number of threads and of parts, also while sets are narrowed."""
    offsets, items = csr(users)
    left = [np.ones(10, np.bool_), np.array(alive), np.array(alive) & (np.arange(10) % 3 > 0)]
    starts = [np.where(some, targets, 0.0) for some in left]
    ends = [start.copy() for start in starts]
    for end in ends:
        descent.descend_ball(offsets, items, end, radius)
    with pytest.MonkeyPatch.context() as patch, Threads(1) as one, Threads(3) as three:
        in_parts_of(pairs, growth, patch)
        for threads in (None, one, three):
            visits, seen = narrowing.Sets(whole_users(offsets, items), threads), []
            for some, start, end in zip(left, starts, ends, strict=True):
                visits.narrow(some)
                for _ in range(2):
                    gaps = start.copy()
                    for part in visits.wanting(functools.partial(np.not_equal, gaps, 0.0)):
                        seen.extend(part.items.tolist())
                        descent.descend_ball(part.offsets, part.items, gaps, radius)
                    assert gaps.tobytes() == end.tobytes()
                stayed = [[item for item in one if some[item]] for one in users]
                assert held_by(visits) == list(filter(None, stayed)), "what was left out is there the next time"
            assert all(targets[item] > 0.0 for item in seen), "what wants nothing from the start is never shown"


def whole_users(offsets, items):
    """Return contributions of ten nameless items."""
    table = ItemTable(np.zeros(11, np.int64), np.empty(0, np.uint8), np.zeros((10, 2), np.uint64))
    return Contributions(offsets, items, table, np.zeros((len(offsets) - 1, 2), np.uint64), 10)


def held_by(visits):
    """Return everybody's items as the visits meet them."""
    return [
        part.items[start:stop].tolist() for part in visits for start, stop in itertools.pairwise(part.offsets.tolist())
    ]


@given(user_lists, st.lists(st.booleans(), min_size=10, max_size=10))
def test_narrow_and_gather(users, alive):
    offsets, items = csr(users)
    kept, ends, stayed = np.empty(len(items), np.int32), np.zeros(len(users), np.int64), np.zeros(len(users), np.int64)
    count = bounding.narrow_users(offsets, items, np.array(alive), kept, ends, stayed)
    expected = {user: left for user, items in enumerate(users) if (left := [item for item in items if alive[item]])}
    assert stayed[:count].tolist() == list(expected)
    assert ends[:count].tolist() == list(itertools.accumulate(map(len, expected.values())))
    total = sum(map(len, expected.values()))
    assert kept[:total].tolist() == [i for u in expected.values() for i in u]
    order = np.arange(count)[::-1].copy()
    starts = np.concatenate([np.zeros(1, np.int64), ends[:count]])
    new_offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.diff(starts)[order])])
    gathered = np.empty(total, np.int32)
    bounding.gather_users(starts, kept, order, new_offsets, gathered)
    assert gathered.tolist() == [i for u in list(expected.values())[::-1] for i in u]


digest_words = st.integers(0, 3) | st.integers(2**64 - 2, 2**64 - 1)


@given(st.lists(st.tuples(digest_words, digest_words), max_size=8))
def test_digests_are_ordered_by_both_words(pairs):
    digests = np.array(pairs, np.uint64).reshape(-1, 2)
    order = np.empty(len(pairs), np.int64)
    grouping.order_by_digest(digests, order)
    assert order.tolist() == sorted(range(len(pairs)), key=lambda place: (pairs[place], place))
    assert digest_order(digests).tolist() == order.tolist()


@given(st.lists(st.text(max_size=12), min_size=1, max_size=9), st.lists(st.integers(0, 8), max_size=20))
def test_selected_strings_are_the_wanted_ones(texts, wanted):
    """Any texts, as they are and with ASCII alone; a place may be wanted several times."""
    for each in (texts, [ascii(text) for text in texts]):
        encoded = [text.encode() for text in each]
        offsets, data = offsets_of(np.array(list(map(len, encoded)))), np.frombuffer(b"".join(encoded), np.uint8)
        places = [place % len(each) for place in wanted]
        taken = select_strings(offsets, data, np.array(places, np.int64))
        assert tuple(as_texts(*taken)) == tuple(each[place] for place in places)
        assert taken[0].dtype == np.int64
        assert taken[0][-1] == len(taken[1])


@given(st.lists(st.integers(0, 20), max_size=60), st.randoms(use_true_random=False))
def test_order_by_size(sizes, random):
    order = list(range(len(sizes)))
    random.shuffle(order)
    found = grouping.order_by_size(np.array(sizes, np.int64), np.array(order, np.int64), max(sizes, default=0))
    assert found.tolist() == sorted(order, key=lambda user: sizes[user])
