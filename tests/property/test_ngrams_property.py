"""N-grams on random small texts: kernels and candidates equal their readable twins, and neighbours stay near."""

import functools
import math
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import names

from dpunion.algorithms import Bounding, Funnel, PolicyGaussian, UserOrder, WeightedGaussian
from dpunion.budget import Budget
from dpunion.engines.spark.tasks import Secret, WeighRows
from dpunion.engines.spark.texts import level_of_tokens, pack_stream, read_pairs
from dpunion.kernels.ngrams import compact
from dpunion.mechanisms import mechanism_on_candidates
from dpunion.ngrams.candidates import CandidateGrams, Level, halves, places_in, unsupported
from dpunion.ngrams.lengths import _level_of, pair_digests, pair_table
from dpunion.plans.ngrams import LengthPlan, Ngrams, plan_ngrams
from dpunion.randomness import RunKey
from dpunion.sets import spill, streams
from dpunion.sets.encoding import Normalization
from dpunion.sets.streams import bound_stream, encode_ngrams, pair_grams, read_tokens
from dpunion.text.splitting import Splitting
from making import encode_items, publish_ngrams
from twins.ngrams import candidates as reference_candidates
from twins.ngrams import held_candidates, ngrams_of
from weighing import weigh_by

ALPHABET = ["a", "b", "c", "d"]
KEY = RunKey.for_tests(3)
documents = st.lists(st.sampled_from(ALPHABET), max_size=8)
databases = st.dictionaries(
    st.sampled_from([f"user{i}" for i in range(6)]), st.lists(documents, min_size=1, max_size=3), min_size=1, max_size=6
)
# What may have been released at each length: any set closed under prefixes and suffixes.
token_sets = st.sets(st.sampled_from(ALPHABET), min_size=1)


def batches(database, rows=1000):
    pairs = [(user, " ".join(words)) for user, texts in database.items() for words in texts]
    return [
        (
            pa.array([user for user, _ in pairs[at : at + rows]], pa.string()),
            pa.array([text for _, text in pairs[at : at + rows]], pa.string()),
        )
        for at in range(0, len(pairs), rows)
    ]


def stream_of(database, key=KEY, **options):
    return read_tokens(batches(database, **options), key, Splitting(), Normalization.NFC)


def levels_of(released, longest):
    """Build the levels of released n-grams given as tuples of tokens, for lengths 1 to longest."""
    tokens = sorted(gram for gram in released if len(gram) == 1)
    zero = np.zeros(len(tokens), np.int32)
    digests = np.array([[ord(token), 7] for (token,) in tokens], np.uint64)
    levels = [Level(1, zero, zero, np.arange(len(tokens), dtype=np.int32), digests)]
    grams = [tokens]
    for length in range(2, longest + 1):
        below = {gram: number for number, gram in enumerate(grams[-1])}
        here = sorted(
            (gram for gram in released if len(gram) == length), key=lambda gram: (below[gram[:-1]], below[gram[1:]])
        )
        prefixes = np.array([below[gram[:-1]] for gram in here], np.int32)
        suffixes = np.array([below[gram[1:]] for gram in here], np.int32)
        pairs = (prefixes.astype(np.uint64) << np.uint64(32)) | suffixes.astype(np.uint64)
        digests = pair_digests(pairs, levels[0], levels[-1], KEY)
        levels.append(Level(length, prefixes, suffixes, levels[-1].last[suffixes], digests))
        grams.append(here)
    return levels, grams


@st.composite
def released_sets(draw, longest=3):
    """Draw n-grams of lengths 1..longest, each length among the candidates of the one below."""
    released = {(token,) for token in draw(token_sets)}
    below = set(released)
    for length in range(2, longest + 1):
        possible = sorted(reference_candidates(below, length))
        below = set(draw(st.lists(st.sampled_from(possible), unique=True))) if possible else set()
        released |= below
    return released


@given(released=released_sets(), longest=st.integers(1, 3))
def test_the_candidates_are_counted_and_numbered_as_brute_force_finds_them(released, longest):
    levels, grams = levels_of(released, longest)
    level, shorter = levels[-1], grams[-1]
    brute = reference_candidates(shorter, longest + 1)
    candidates = CandidateGrams(level)
    assert candidates.count == len(brute)
    pairs = candidates.at(np.arange(candidates.count))
    prefixes, suffixes = halves(pairs)
    assert {shorter[p] + shorter[s][-1:] for p, s in zip(prefixes, suffixes, strict=True)} == brute
    assert len(set(pairs.tolist())) == candidates.count


@given(database=databases, released=released_sets(longest=2), length=st.sampled_from([2, 3]))
def test_users_hold_exactly_their_ngrams_that_are_candidates(database, released, length):
    held, _ = held_pairs(database, released, length, limit=1000)
    expected = held_candidates(database, [gram for gram in released if len(gram) == length - 1], length)
    assert sorted(map(sorted, held)) == sorted(map(sorted, (grams for grams in expected.values())))


def held_pairs(database, released, length, limit, order=UserOrder.RANDOM):
    """Return each user's kept n-grams as tuples, by the kernels, and the contributions with their pairs."""
    levels, grams = levels_of(released, length - 1)
    stream = stream_of(database)
    codes = positions(stream, grams)
    offsets = np.empty_like(stream.offsets)
    codes = codes[: compact(stream.offsets, codes, offsets)]
    pairs = pair_grams(codes, KEY)
    table = pair_table(pairs, pair_digests(pairs, levels[0], levels[-1], KEY))
    data = bound_stream(stream.user_digests, offsets, codes, table, KEY, Bounding(limit, order), bound_round=length)
    shorter = grams[-1]
    prefixes, suffixes = halves(pairs)
    texts = [shorter[p] + shorter[s][-1:] for p, s in zip(prefixes, suffixes, strict=True)]
    kept = [{texts[i] for i in data.items[data.offsets[u] : data.offsets[u + 1]]} for u in range(data.users)]
    return kept, (data, texts)


def positions(stream, grams):
    """Return where the longest released n-grams start, found the slow way: int32 codes."""
    label = names(stream.table)
    number = {gram: i for i, gram in enumerate(grams[-1])}
    length = len(grams)
    tokens = [label[code] if code >= 0 else None for code in stream.tokens]
    return np.array([number.get(tuple(tokens[i : i + length]), -1) for i in range(len(tokens))], np.int32)


@given(database=databases, lengths=st.sampled_from([(1, 1), (1, 3), (2, 3), (2, 2)]), limit=st.sampled_from([2, 100]))
def test_all_lengths_as_one_set_equal_ready_items(database, lengths, limit):
    shortest, longest = lengths
    common = {"max_items_per_user": limit, "user_order": UserOrder.SMALLEST_FIRST}
    ours = encode_ngrams(batches(database), KEY, shortest=shortest, longest=longest, splitting=Splitting(), **common)
    items = [
        (user, " ".join(gram))
        for user, texts in database.items()
        for words in texts
        for length in range(shortest, longest + 1)
        for gram in ngrams_of(words, length)
    ]
    users = pa.array([user for user, _ in items], pa.string())
    ready = encode_items([(users, pa.array([item for _, item in items], pa.string()))], KEY, *common.values())
    assert names(ours.table) == names(ready.table)
    assert ours.table.digests.tolist() == ready.table.digests.tolist()
    # Users whose texts are too short for any n-gram are users without items here, and no users there.
    assert [s for s in sets(ours) if s] == sets(ready)


def texts_of(stream):
    """Return each user's documents, in any order: digest -> sorted lists of tokens."""
    label, found = names(stream.table), {}
    for user, digest in enumerate(stream.user_digests.tolist()):
        tokens = stream.tokens[stream.offsets[user] : stream.offsets[user + 1]].tolist()
        ends = [at for at, token in enumerate(tokens) if token < 0]
        starts = [0, *(end + 1 for end in ends)]
        assert starts.pop() == len(tokens), "the last document has an end"
        found[tuple(digest)] = sorted([label[t] for t in tokens[a:b]] for a, b in zip(starts, ends, strict=True))
    return found


@given(
    database=databases,
    stop_words=st.sampled_from([(), ("a",), ("a", "b", "c")]),
    threads=st.sampled_from([1, 2, 4]),
    limit=st.sampled_from([8, 200]),
)
def test_texts_that_wait_on_disk_are_the_same_texts(database, stop_words, threads, limit):
    how = Splitting(stop_words=stop_words)

    def made(**options):
        stream = read_tokens(batches(database, rows=2), KEY, how, Normalization.NFC, **options)
        bounds = {"shortest": 1, "longest": 3, "max_items_per_user": 4, "user_order": UserOrder.SMALLEST_FIRST}
        ngrams = encode_ngrams(batches(database, rows=2), KEY, splitting=how, **bounds, **options)
        parts = (ngrams.offsets, ngrams.items, ngrams.user_digests, ngrams.table.data, ngrams.table.digests)
        return texts_of(stream), [part.tolist() for part in parts]

    expected = made(threads=1)
    # Few parts, so that each has several users; sets are made of some of them at a time.
    with mock.patch.object(spill, "PARTS", 3), mock.patch.object(streams, "CODES_AT_ONCE", 6):
        assert made(memory_limit=limit, threads=threads) == expected
    written = [[t for t in text if t not in stop_words] for texts in database.values() for text in texts]
    assert sorted(text for texts in expected[0].values() for text in texts) == sorted(filter(None, written))


@given(
    database=databases,
    released=released_sets(longest=2),
    length=st.sampled_from([2, 3]),
    limit=st.sampled_from([2, 1000]),
    cut=st.integers(0, 6),
)
def test_partitions_of_users_add_up_to_all_of_them(database, released, length, limit, cut):
    """What Spark's tasks find in packed streams of some users each, in units by n-gram, is what one stream gives."""
    users = list(database)
    groups = [{user: database[user] for user in part} for part in (users[:cut], users[cut:]) if part]
    whole, parts = units_of(database, released, length, limit), [units_of(g, released, length, limit) for g in groups]
    assert whole == {gram: sum(part.get(gram, 0) for part in parts) for part in parts for gram in part}
    held = held_candidates(database, [gram for gram in released if len(gram) == length - 1], length)
    if limit == 1000:
        assert set(whole) == set().union(*held.values())


def units_of(database, released, length, limit):
    """Run the tasks on one packed stream: return the units of each n-gram, as a tuple of tokens."""
    _, grams = levels_of(released, length - 1)
    tokens = level_of_tokens(tuple("".join(gram) for gram in grams[0]), KEY)
    levels = (tokens,)
    for above, below in zip(grams[1:], grams[:-1], strict=True):
        pairs = [below.index(gram[:-1]) << 32 | below.index(gram[1:]) for gram in above]
        levels = (*levels, _level_of(np.array(pairs, np.uint64), tokens, levels[-1], KEY))
    packed = pa.table({"part": pa.array([0], pa.int32()), "payload": [pack_stream(stream_of(database))]})
    algorithm = WeightedGaussian(max_items_per_user=limit)
    plan = LengthPlan(length, 0.5, algorithm, 1.0, 0.0)
    read = functools.partial(read_pairs, plan, levels)
    add = WeighRows(read, mechanism_on_candidates(plan, 2.0), Secret.of(KEY))
    given = pa.schema({"item": pa.binary(), "units": pa.int64(), "sensitivity": pa.float64()})
    found = pa.Table.from_batches(list(add(iter(packed.to_batches()))), given)
    names = np.frombuffer(b"".join(found["item"].to_pylist()), np.uint64)
    shorter = grams[-1]
    texts = [shorter[p] + shorter[s][-1:] for p, s in zip(*halves(names), strict=True)]
    return dict(zip(texts, found["units"].to_pylist(), strict=True))


def sets(data):
    return [data.items[data.offsets[u] : data.offsets[u + 1]].tolist() for u in range(data.users)]


@given(database=databases, seed=st.integers(0, 3))
def test_neither_the_order_of_rows_nor_their_batches_matter(database, seed):
    key = RunKey.for_tests(seed)
    plan = plan_ngrams(Ngrams(longest=3, first=PolicyGaussian(), later=PolicyGaussian()), Budget(20.0, 0.5))
    forward = publish_ngrams(plan, stream_of(database, key), key)
    turned = {user: texts[::-1] for user, texts in reversed(database.items())}
    backward = publish_ngrams(plan, stream_of(turned, key, rows=2), key)
    assert forward == backward


SETTINGS = [
    pytest.param(WeightedGaussian(max_items_per_user=3), id="weighted"),
    pytest.param(PolicyGaussian(max_items_per_user=3), id="policy"),
    pytest.param(Funnel(max_items_per_user=3, rounds=3), id="funnel"),
]


@pytest.mark.parametrize("later", SETTINGS)
@given(database=databases, seed=st.integers(0, 20))
def test_every_part_of_a_released_ngram_is_released(later, database, seed):
    """At a budget and a rate that let much through, also spurious n-grams."""
    plan = plan_ngrams(Ngrams(longest=4, first=WeightedGaussian(), later=later, spurious_rate=0.25), Budget(25.0, 0.3))
    key = RunKey.for_tests(seed)
    release = publish_ngrams(plan, stream_of(database, key), key)
    released = {tuple(text.split(" ")) for text, _ in release.rows()}
    assert all(len(text.split(" ")) == length for text, length in release.rows())
    for gram in released:
        assert len(gram) == 1 or (gram[:-1] in released and gram[1:] in released)
    assert {gram for gram in released if len(gram) == 1} <= {
        (word,) for texts in database.values() for words in texts for word in words
    }
    for result in release.results[1:]:
        shorter = [gram for gram in released if len(gram) == result.length - 1]
        assert result.candidates == len(reference_candidates(shorter, result.length))


@pytest.mark.parametrize("later", SETTINGS)
@given(database=databases, released=released_sets(longest=2), length=st.sampled_from([2, 3]))
def test_one_user_moves_the_weights_of_a_length_by_at_most_one(later, database, released, length):
    """With what was released before fixed: every user's removal, every algorithm, exact distances."""
    full = histograms(later, database, released, length)
    for user in database:
        rest = {other: texts for other, texts in database.items() if other != user}
        if not rest:
            continue
        for (with_user, budget), (without, _) in zip(full, histograms(later, rest, released, length), strict=True):
            grams = set(with_user) | set(without)
            squares = [(with_user.get(gram, 0.0) - without.get(gram, 0.0)) ** 2 for gram in grams]
            assert math.sqrt(sum(squares)) <= budget * (1 + 1e-12)


def histograms(later, database, released, length):
    """Return (histogram by n-gram, budget) of each round, given scores that are a function of the n-gram."""
    _, (data, texts) = held_pairs(database, released, length, later.max_items_per_user, later.bounding.order)
    mechanism = mechanism_on_candidates(LengthPlan(length, 1.0, later, 0.7, 0.0), 2.0)
    scores = np.array([0.4 * (sum(map(ord, "".join(text))) % 5) for text in texts])
    weights = [weigh_by(mechanism, data, KEY, number, scores.copy()) for number in range(mechanism.rounds)]
    return [(dict(zip(texts, one.values.tolist(), strict=True)), one.sensitivity.bound) for one in weights]


@given(database=databases, released=released_sets(longest=2), limit=st.sampled_from([1, 2]))
def test_what_a_user_keeps_is_bounded_and_the_users_own_choice(database, released, limit):
    kept, _ = held_pairs(database, released, 2, limit)
    assert all(len(grams) <= limit for grams in kept)
    for user, texts in database.items():
        alone, _ = held_pairs({user: texts}, released, 2, limit)
        assert alone[0] in kept


@given(
    have=st.lists(st.integers(0, 20), unique=True, max_size=10),
    ask=st.lists(st.integers(0, 20), unique=True, max_size=10),
)
def test_places_among_the_released(have, ask):
    released, pairs = np.array(sorted(have), np.uint64), np.array(sorted(ask), np.uint64)
    found = places_in(released, pairs).tolist()
    assert found == [sorted(have).index(pair) if pair in have else -1 for pair in sorted(ask)]
    assert unsupported(pairs, released).tolist() == sorted(set(ask) - set(have))


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_many_pairs_are_numbered_across_growing_tables(threads):
    grams = np.random.default_rng(2).integers(-1, 300, 60_000).astype(np.int32)
    grams[-1] = -1
    codes = grams.copy()
    pairs = pair_grams(codes, KEY, threads)
    both = (grams[:-1] >= 0) & (grams[1:] >= 0)
    expected = np.full(len(grams), -1, np.int64)
    raw = (grams[:-1].astype(np.int64) << 32) | grams[1:].astype(np.int64)
    distinct, expected[:-1][both] = np.unique(raw[both], return_inverse=True)
    assert codes.tolist() == expected.tolist()
    assert pairs.tolist() == distinct.tolist()


@given(parts=st.lists(st.lists(st.integers(-1, 3), max_size=12), min_size=1, max_size=5))
def test_squeezing_keeps_what_is_neighbouring(parts):
    parts = [[*part, -1] for part in parts]
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    codes, new_offsets = np.array([code for part in parts for code in part], np.int32), np.empty_like(offsets)
    size = compact(offsets, codes, new_offsets)
    assert new_offsets[-1] == size

    def runs(codes):
        pieces = [[]]
        for code in codes:
            pieces = [*pieces, []] if code < 0 else [*pieces[:-1], [*pieces[-1], code]]
        return [piece for piece in pieces if piece]

    squeezed = [codes[start:stop].tolist() for start, stop in zip(new_offsets[:-1], new_offsets[1:], strict=True)]
    assert [runs(part) for part in squeezed] == [runs(part) for part in parts]
    assert all(part[i : i + 2] != [-1, -1] and part[:1] != [-1] for part in squeezed for i in range(len(part)))
