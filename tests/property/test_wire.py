"""Contributions on their way between tasks: whatever way they are cut, sent and put together, they stay the same."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import contributions, databases, names

from dpunion.algorithms import UserOrder
from dpunion.engines.spark import wire
from dpunion.errors import BadSource, InternalError
from dpunion.randomness import Purpose, RunKey
from dpunion.sets.encoding import digests_of_list
from making import encode_items

KEY = RunKey.for_tests(5)
ORDERS = st.sampled_from(UserOrder)
digest_lists = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), unique=True, max_size=16)


def assert_same(one, other, *, texts=True):
    """Two contributions are equal, array by array."""
    assert np.array_equal(one.offsets, other.offsets)
    assert np.array_equal(one.items, other.items)
    assert np.array_equal(one.user_digests, other.user_digests)
    assert np.array_equal(one.table.digests, other.table.digests)
    if texts:
        assert names(one.table) == names(other.table)


def as_digests(pairs):
    return np.array(pairs, np.uint64).reshape(-1, 2)


def sets_of(data):
    """Return {user digest: set of item digests}."""
    owned = zip(data.user_digests.tolist(), itertools.pairwise(data.offsets.tolist()), strict=True)
    digests = [tuple(one) for one in data.table.digests.tolist()]
    return {tuple(user): {digests[item] for item in data.items[start:stop]} for user, (start, stop) in owned}


# --- pieces -------------------------------------------------------------------------------------------------
@given(sizes=st.lists(st.integers(0, 5), max_size=6), items=st.integers(1, 9), draw=st.randoms(use_true_random=False))
def test_a_piece_comes_back_as_it_was_sent(sizes, items, draw):
    words = [draw.getrandbits(64) for _ in range(2 * len(sizes) + 2 * items)]
    codes = np.array([draw.randrange(items) for _ in range(sum(sizes))], np.int32)
    sent = wire.Piece(
        np.array(words[: 2 * len(sizes)], np.uint64).reshape(-1, 2),
        np.array(sizes, np.int32),
        np.array(words[2 * len(sizes) :], np.uint64).reshape(-1, 2),
        codes,
    )
    packed = sent.to_bytes()
    assert len(packed) == 32 + 20 * len(sizes) + 16 * items + 4 * len(codes)
    for got in (wire.Piece.from_bytes(packed), wire.Piece.from_bytes(memoryview(packed))):
        for name in ("user_digests", "sizes", "digests", "codes"):
            assert np.array_equal(getattr(got, name), getattr(sent, name))
    for damaged in (packed[:-1], packed + b"\0"):
        with pytest.raises(InternalError):
            wire.Piece.from_bytes(damaged)


def test_a_piece_shows_nothing():
    piece = next(iter(wire.cut_by_shard(contributions({"a": {"x"}}, KEY), 1, KEY)))[1]
    assert repr(piece) == "Piece(<sensitive>)"


@given(
    database=databases,
    shards=st.integers(1, 70),
    limit=st.integers(1, 12),
    order=ORDERS,
    pairs_per_piece=st.integers(1, 30),
    shuffled=st.randoms(use_true_random=False),
)
def test_pieces_of_all_shards_together_are_the_original(database, shards, limit, order, pairs_per_piece, shuffled):
    data = contributions(database, KEY, limit, order)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(wire, "PAIRS_PER_PIECE", pairs_per_piece)
        found = list(wire.cut_by_shard(data, shards, KEY))
    assert all(0 <= shard < shards for shard, _ in found)
    assert all(len(piece.codes) <= max(pairs_per_piece, limit) for _, piece in found)
    sent = [wire.Piece.from_bytes(piece.to_bytes()) for _, piece in found]
    shuffled.shuffle(sent)
    assert_same(wire.unite_pieces(sent, order, limit), wire.drop_unused_items(data), texts=False)


@given(database=databases, shards=st.integers(1, 12), order=ORDERS)
def test_every_shard_has_its_users_whole_and_in_their_order(database, shards, order):
    data = contributions(database, KEY, 6, order)
    everybody = sets_of(data)
    place = {tuple(user): number for number, user in enumerate(data.user_digests.tolist())}
    seen = []
    for shard in range(shards):
        mine = wire.unite_pieces(
            [piece for number, piece in wire.cut_by_shard(data, shards, KEY) if number == shard], order, 6
        )
        held = sets_of(mine)
        assert all(everybody[user] == held[user] for user in held)
        assert [place[user] for user in held] == sorted(place[user] for user in held)
        assert wire.shard_of(mine.user_digests, shards, KEY).tolist() == [shard] * mine.users
        seen += held
    assert sorted(seen) == sorted(everybody)


@given(database=databases, shards=st.integers(2, 9))
def test_a_users_shard_is_the_users_own(database, shards):
    data = contributions(database, KEY)
    together = dict(zip(map(tuple, data.user_digests), wire.shard_of(data.user_digests, shards, KEY), strict=True))
    for user, items in database.items():
        alone = contributions({user: items}, KEY)
        assert wire.shard_of(alone.user_digests, shards, KEY)[0] == together[tuple(alone.user_digests[0])]


def test_users_spread_evenly_over_shards_and_every_key_spreads_them_otherwise():
    digests = KEY.digests(Purpose.USER, np.arange(0, 80_001, 8), np.arange(10_000).view(np.uint8))
    counts = np.bincount(wire.shard_of(digests, 8, KEY), minlength=8)
    # 10,000 users, 8 shards: a standard deviation is 33, and seven of them come up less than once in 1e11.
    assert np.all(np.abs(counts - 1250) < 7 * 33.1)
    agree = np.mean(wire.shard_of(digests, 8, KEY) == wire.shard_of(digests, 8, RunKey.for_tests(6)))
    assert abs(agree - 1 / 8) < 0.03


def test_more_users_than_a_shard_may_have_are_refused(monkeypatch):
    monkeypatch.setattr(wire, "MAX_USERS_PER_SHARD", 3)
    pieces = [piece for _, piece in wire.cut_by_shard(contributions({f"u{i}": {"x"} for i in range(4)}, KEY), 1, KEY)]
    with pytest.raises(BadSource, match="shards"):
        wire.unite_pieces(pieces, UserOrder.RANDOM, 100)


def test_no_pieces_unite_to_an_empty_piece():
    empty = wire.unite_pieces([], UserOrder.RANDOM, 100)
    assert empty.users == len(empty.table) == len(empty.items) == 0


# --- parts of a partition -----------------------------------------------------------------------------------
def encoded(rows, limit, order):
    batch = (pa.array([user for user, _ in rows], pa.string()), pa.array([item for _, item in rows], pa.string()))
    return encode_items([batch], KEY, limit, order)


rows_of_few = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.sampled_from([f"i{n}" for n in range(9)])), max_size=60
)


@given(rows=rows_of_few, ends=st.lists(st.integers(0, 60), max_size=4), limit=st.integers(1, 4), order=ORDERS)
def test_reading_in_parts_is_reading_at_once(rows, ends, limit, order):
    places = [0, *sorted(min(end, len(rows)) for end in ends), len(rows)]
    parts = [encoded(rows[first:last], limit, order) for first, last in itertools.pairwise(places)]
    whole = wire.drop_unused_items(encoded(rows, limit, order))
    assert_same(wire.join_parts([wire.drop_unused_items(part) for part in parts], KEY, limit, order), whole)
    # What was joined before may be joined again: a partition of many parts is read so.
    again = wire.join_parts([wire.join_parts(parts[:2], KEY, limit), *parts[2:]], KEY, limit, order)
    assert_same(again, whole)


@given(database=databases, limit=st.integers(1, 12))
def test_pruning_leaves_out_what_nobody_keeps_and_nothing_else(database, limit):
    data = contributions(database, KEY, limit)
    less = wire.drop_unused_items(data)
    assert sets_of(less) == sets_of(data)
    assert set(less.items.tolist()) == set(range(len(less.table)))
    texts = dict(zip(map(tuple, data.table.digests), names(data.table), strict=True))
    assert names(less.table) == [texts[tuple(digest)] for digest in less.table.digests]


# --- Arrow --------------------------------------------------------------------------------------------------
@given(database=databases, first=st.integers(0, 12), last=st.integers(0, 12))
def test_arrow_names_are_the_texts_of_the_table(database, first, last):
    table = contributions(database, KEY).table
    assert [name.decode() for name in wire.arrow_names(table).to_pylist()] == names(table)
    some = slice(min(first, last), max(first, last))
    assert [name.decode() for name in wire.arrow_names(table, some).to_pylist()] == names(table)[some]
    assert wire.arrow_names(table, some).type == pa.binary()


@given(texts=st.lists(st.binary(max_size=5), max_size=8), cut_off=st.integers(0, 8), size=st.integers(0, 8))
def test_digests_of_a_slice_are_those_of_its_names(texts, cut_off, size):
    part = pa.array(texts, pa.binary()).slice(cut_off, size)
    apart = [digests_of_list(pa.array([text], pa.binary()), KEY)[0].tolist() for text in part.to_pylist()]
    assert digests_of_list(part, KEY).tolist() == apart


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(16)])
@given(
    words=st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), max_size=6),
    cut_off=st.integers(0, 6),
    size=st.integers(0, 6),
)
def test_digests_come_back_from_any_slice(kind, words, cut_off, size):
    digests = as_digests(words)
    sent = wire.digests_to_arrow(digests)
    assert [len(value) for value in sent.to_pylist()] == [16] * len(words)
    got = wire.digests_from_arrow(sent.cast(kind).slice(cut_off, size))
    assert got.dtype == np.uint64
    assert np.array_equal(got, digests[cut_off : cut_off + size])


def test_digests_of_another_length_are_refused():
    with pytest.raises(InternalError):
        wire.digests_from_arrow(pa.array([b"short"], pa.binary()))


@given(there=digest_lists, wanted=digest_lists)
def test_match_finds_what_is_there(there, wanted):
    places, found = wire.match_digests(as_digests(there), as_digests(wanted))
    assert [there[place] for place in places] == [wanted[number] for number in found]
    assert {there[place] for place in places} == set(there) & set(wanted)
    assert len(places) == len(set(places.tolist()))
