"""Run keys keep their secret, and every draw is a function of (run key, purpose, round, item bytes)."""

import copy
import hashlib
import inspect
import itertools
import json
import multiprocessing
import os
import pickle
import traceback
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpunion
import dpunion_lab
from dpunion import randomness
from dpunion.errors import BadParameter, InternalError
from dpunion.kernels import sampling
from dpunion.randomness import ClosureKey, Purpose, RunKey
from twins import hashing as twin

KEY = RunKey.for_tests(1)
NAMES = [f"item {i}".encode() for i in range(200)] + [b"", "naïve 東京".encode(), b"x" * 300]


def pack(strings):
    offsets = np.zeros(len(strings) + 1, dtype=np.int64)
    np.cumsum([len(s) for s in strings], out=offsets[1:])
    return offsets, np.frombuffer(b"".join(strings), dtype=np.uint8)


DIGESTS = KEY.digests(Purpose.ITEM, *pack(NAMES))


# --------------------------------------------------------------------------------------- the secret
def traces(secret):
    """Every run of four key bytes, raw, as hex and as Python writes bytes."""
    pieces = [secret[i : i + 4] for i in range(len(secret) - 3)]
    return [form for p in pieces for form in (p, p.hex().encode(), repr(p)[2:-1].encode())]


def assert_silent(text, key):
    shown = text.encode()
    assert not [t for t in traces(key._secret) if t in shown]


def test_the_trace_finder_finds_a_secret():
    key = RunKey.fresh()
    for leak in (key._secret.hex(), repr(key._secret), repr(key._secret[9:20])):
        with pytest.raises(AssertionError):
            assert_silent(leak, key)


@pytest.mark.parametrize("make", [RunKey.fresh, lambda: RunKey.for_tests(3)])
def test_no_byte_of_the_key_is_shown(make):
    key = make()
    for shown in (key, key.export_for_closure()):
        for text in (repr(shown), str(shown), f"{shown}", f"{shown!r}", f"{[shown]}", "%s" % shown):  # noqa: UP031
            assert_silent(text, key)
        with pytest.raises(TypeError) as caught:
            json.dumps(shown)
        assert_silent(str(caught.value), key)
        assert not hasattr(shown, "__dict__")


@pytest.mark.parametrize("make", [RunKey.fresh, lambda: RunKey.for_tests(3)])
@pytest.mark.parametrize("attempt", [pickle.dumps, copy.copy, copy.deepcopy, lambda k: pickle.dumps(k, protocol=0)])
def test_keys_are_neither_pickled_nor_copied(make, attempt):
    key = make()
    with pytest.raises(BadParameter, match="export_for_closure") as caught:
        attempt(key)
    assert_silent("".join(traceback.format_exception(caught.value)), key)


@pytest.mark.parametrize("make", [RunKey.fresh, lambda: RunKey.for_tests(3)])
def test_a_key_travels_in_a_closure_and_keeps_its_stamp(make):
    key = make()
    exported = pickle.loads(pickle.dumps(key.export_for_closure()))
    assert isinstance(exported, ClosureKey)
    arrived = RunKey.from_closure(exported)
    assert arrived.is_test == key.is_test
    assert np.array_equal(arrived.words(Purpose.COIN, 2, DIGESTS), key.words(Purpose.COIN, 2, DIGESTS))


def test_keys_compare_by_identity():
    assert RunKey.for_tests(1) != RunKey.for_tests(1)
    assert len({RunKey.for_tests(1), RunKey.for_tests(1)}) == 2


def test_only_keys_for_tests_say_so():
    assert RunKey.for_tests(0).is_test
    assert not RunKey.fresh().is_test
    assert "NOT PRIVATE" in repr(RunKey.for_tests(0))
    assert "NOT PRIVATE" not in repr(RunKey.fresh())


def test_a_key_of_another_length_is_refused_without_showing_it():
    with pytest.raises(InternalError, match="32 bytes") as caught:
        RunKey(b"hunter2", is_test=False)
    assert "hunter2" not in str(caught.value)


def test_the_operating_system_is_asked_for_randomness_in_one_module_only():
    sources = [path for package in (dpunion, dpunion_lab) for path in Path(package.__file__).parent.rglob("*.py")]
    asking = {p.name for p in sources if "urandom" in p.read_text(encoding="utf-8")}
    # The audit draws a public seed for its search.
    assert asking == {"randomness.py", "attacks.py"}
    assert "os.urandom" in inspect.getsource(RunKey.fresh)


def fresh_subkey(_):
    return RunKey.fresh().subkey(Purpose.COIN)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fresh_keys_differ_between_forked_processes():
    parent = RunKey.fresh()
    with multiprocessing.get_context("fork").Pool(4) as pool:
        subkeys = pool.map(fresh_subkey, range(16), chunksize=1)
    assert len({*subkeys, parent.subkey(Purpose.COIN)}) == 17


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fresh_keys_differ_after_a_bare_fork():
    readers = []
    for _ in range(3):
        reader, writer = os.pipe()
        if os.fork() == 0:
            try:
                os.write(writer, RunKey.fresh().subkey(Purpose.USER))
            finally:
                os._exit(0)
        os.close(writer)
        readers.append(reader)
    subkeys = [os.read(reader, 32) for reader in readers]
    for reader in readers:
        os.close(reader)
        os.wait()
    assert [len(s) for s in subkeys] == [32, 32, 32]
    assert len({*subkeys, RunKey.fresh().subkey(Purpose.USER)}) == 4


# ---------------------------------------------------------------------------- subkeys, digests, words
def test_subkey_is_keyed_blake2b_of_purpose_and_round():
    message = b"noise\0" + (7).to_bytes(8, "little")
    expected = hashlib.blake2b(message, digest_size=32, key=KEY._secret, person=b"dpunion").digest()
    assert KEY.subkey(Purpose.NOISE, 7) == expected


def test_subkeys_of_all_keys_purposes_and_rounds_differ():
    rounds = [0, 1, 2, 255, 256, 2**32, 2**64 - 1]
    subkeys = {RunKey.for_tests(s).subkey(p, r) for s in (0, 1, -1) for p in Purpose for r in rounds}
    assert len(subkeys) == 3 * len(Purpose) * len(rounds)
    assert all("\0" not in p.value for p in Purpose)


@pytest.mark.parametrize("number", [-1, 2**64])
def test_rounds_outside_eight_bytes_are_refused(number):
    with pytest.raises(InternalError, match="round"):
        KEY.subkey(Purpose.COIN, number)


def test_digests_are_keyed_blake2b_of_the_bytes():
    subkey = KEY.subkey(Purpose.ITEM)
    assert [row.astype("<u8").tobytes() for row in DIGESTS] == [
        hashlib.blake2b(name, digest_size=16, key=subkey).digest() for name in NAMES
    ]


def test_words_are_the_first_bytes_of_the_chacha_block_of_the_digest():
    words, subkey = KEY.words(Purpose.COIN, 3, DIGESTS), KEY.subkey(Purpose.COIN, 3)
    blocks = [twin.chacha20_block(subkey, row.astype("<u8").tobytes()) for row in DIGESTS]
    assert [row.astype("<u8").tobytes() for row in words] == [block[:16] for block in blocks]


def test_words_of_all_keys_purposes_rounds_and_items_differ():
    drawn = [RunKey.for_tests(s).words(p, r, DIGESTS) for s in (1, 2) for p in Purpose for r in range(3)]
    flat = np.concatenate(drawn).ravel()
    assert len(np.unique(flat)) == len(flat)


def test_draws_depend_on_no_order_of_the_items():
    order = np.random.default_rng(5).permutation(len(NAMES))
    shuffled = KEY.digests(Purpose.ITEM, *pack([NAMES[i] for i in order]))
    assert np.array_equal(shuffled, DIGESTS[order])
    assert np.array_equal(KEY.words(Purpose.COIN, 1, shuffled), KEY.words(Purpose.COIN, 1, DIGESTS)[order])
    assert np.array_equal(KEY.normals(1, shuffled), KEY.normals(1, DIGESTS)[order])
    weights = np.linspace(0.0, 8.0, len(NAMES))
    decided = KEY.decide_gaussian(1, DIGESTS, weights, threshold=4.0, stddev=1.0)
    assert 0 < decided.sum() < len(decided)
    again = KEY.decide_gaussian(1, shuffled, weights[order], threshold=4.0, stddev=1.0)
    assert np.array_equal(again, decided[order])


def test_a_draw_of_one_item_alone_is_its_draw_among_others():
    for i in (0, 7, len(NAMES) - 1):
        alone = KEY.digests(Purpose.ITEM, *pack([NAMES[i]]))
        assert KEY.normals(2, alone)[0] == KEY.normals(2, DIGESTS)[i]


def test_empty_arrays_give_empty_draws():
    digests = KEY.digests(Purpose.ITEM, *pack([]))
    assert digests.shape == (0, 2)
    assert KEY.words(Purpose.COIN, 0, digests).shape == (0, 2)
    assert KEY.normals(0, digests).shape == (0,)
    assert KEY.decide_laplace(0, digests, np.zeros(0), threshold=1.0, scale=1.0).shape == (0,)


@pytest.mark.parametrize(
    ("offsets", "data"),
    [
        (np.array([0, 5]), np.zeros(4, np.uint8)),
        (np.array([-1, 4]), np.zeros(4, np.uint8)),
        (np.array([0, 3, 2, 4]), np.zeros(4, np.uint8)),
        (np.array([], np.int64), np.zeros(4, np.uint8)),
        (np.array([0, 4], np.int32), np.zeros(4, np.uint8)),
        (np.array([0, 4]), np.zeros(4, np.int8)),
    ],
)
def test_offsets_that_leave_the_data_are_refused(offsets, data):
    with pytest.raises(InternalError):
        KEY.digests(Purpose.ITEM, offsets, data)


@pytest.mark.parametrize("digests", [DIGESTS.view(np.int64), DIGESTS[:, :1], DIGESTS.ravel()])
def test_other_things_than_digests_are_refused(digests):
    with pytest.raises(InternalError, match="digests"):
        KEY.words(Purpose.COIN, 0, digests)


# ------------------------------------------------------------------------------------- exact coins
def split(number):
    return np.uint64(number >> 64), np.uint64(number & (2**64 - 1))


PROBABILITIES = [0.5, 0.25, 1e-3, 0.1, 1 / 3, 0.49999999999999994, 0.75, 1 - 2**-53]
PROBABILITIES += [2**-64, 2**-65, 1e-20, 1e-30, 2**-128]


@pytest.mark.parametrize("probability", PROBABILITIES)
def test_coin_boundary_is_exact(probability):
    bound = Fraction(probability) * 2**128 // 1
    assert bound > 0
    assert sampling.hits(probability, *split(bound - 1))
    assert not sampling.hits(probability, *split(bound))
    assert sampling.hits(probability, *split(0))
    assert not sampling.hits(probability, *split(2**128 - 1))


@settings(max_examples=300, deadline=None)
@given(st.floats(0.0, 1.0), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(-2, 2))
def test_coin_equals_its_twin(probability, high, low, near):
    assert sampling.hits(probability, np.uint64(high), np.uint64(low)) == twin.hits(probability, high, low)
    edge = min(max(Fraction(probability) * 2**128 // 1 + near, 0), 2**128 - 1)
    words = split(edge)
    assert sampling.hits(probability, *words) == twin.hits(probability, int(words[0]), int(words[1]))


def test_certain_and_impossible_coins():
    for number in (0, 1, 2**127, 2**128 - 1):
        assert sampling.hits(1.0, *split(number))
        assert not sampling.hits(0.0, *split(number))
        assert not sampling.hits(5e-324, *split(number))
        assert not sampling.hits(float("nan"), *split(number))


def test_coin_releases_on_the_named_side():
    words = np.array([split(0), split(2**128 - 1)] * 2, dtype=np.uint64)
    sides = np.array([True, True, False, False])
    assert sampling.coin(np.full(4, 0.25), sides, words).tolist() == [True, False, False, True]
    assert not sampling.coin(np.full(4, np.nan), sides, words).any()


def test_decisions_toss_the_rarer_outcome():
    lowest, highest = split(0), split(2**128 - 1)
    words = np.array([lowest, highest], dtype=np.uint64)
    for decide in (sampling.decide_gaussian, sampling.decide_laplace):
        assert decide(np.array([1.0, 1.0]), 2.0, 1.0, words).tolist() == [True, False]
        assert decide(np.array([3.0, 3.0]), 2.0, 1.0, words).tolist() == [False, True]
        assert not decide(np.array([np.nan, np.nan]), 2.0, 1.0, words).any()


TAILS = {"gaussian": lambda z: mpmath.erfc(z / mpmath.sqrt(2)), "laplace": lambda z: mpmath.exp(-z)}


@pytest.mark.parametrize(
    ("noise", "weight"), [*itertools.product(TAILS, [0.0, 1.5, 4.0, 4.5, 9.0]), ("gaussian", 11.5), ("laplace", 40.0)]
)
def test_decisions_change_exactly_at_the_tail_of_their_noise(noise, weight):
    """Threshold 4, spread 1.5: the last hit is at Pr[Z > |weight - 4|/1.5]·2¹²⁸, to float64 accuracy."""
    with mpmath.workdps(60):
        tail = int(TAILS[noise](abs(mpmath.mpf(weight) - 4) / 1.5) / 2 * 2**128)
    for factor, hit in ((1 - 1e-13, True), (1 + 1e-13, False)):
        words = np.array([split(int(tail * Fraction(factor)))], dtype=np.uint64)
        expected = hit if weight <= 4.0 else not hit
        assert getattr(sampling, f"decide_{noise}")(np.array([weight]), 4.0, 1.5, words)[0] == expected


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(bad):
    fine = np.ones(len(DIGESTS))
    weights = np.where(np.arange(len(DIGESTS)) == 5, bad, fine)
    for decide, spread in ((KEY.decide_gaussian, "stddev"), (KEY.decide_laplace, "scale")):
        with pytest.raises(InternalError, match="weight is not finite"):
            decide(0, DIGESTS, weights, threshold=1.0, **{spread: 1.0})
        for numbers in ({"threshold": bad, spread: 1.0}, {"threshold": 1.0, spread: bad}):
            with pytest.raises(InternalError, match="finite"):
                decide(0, DIGESTS, fine, **numbers)


@pytest.mark.parametrize("spread", [0.0, -1.0])
def test_noise_without_spread_is_refused(spread):
    with pytest.raises(InternalError, match="positive"):
        KEY.decide_gaussian(0, DIGESTS, np.ones(len(DIGESTS)), threshold=1.0, stddev=spread)


@pytest.mark.parametrize("bad", [np.nan, -1e-9, 1.0000001])
def test_coins_refuse_what_is_no_probability(bad):
    with pytest.raises(InternalError, match="probability"):
        KEY.coins(0, DIGESTS, np.full(len(DIGESTS), bad), np.ones(len(DIGESTS), dtype=np.bool_))


def test_arrays_of_other_lengths_than_the_digests_are_refused():
    with pytest.raises(InternalError):
        KEY.coins(0, DIGESTS, np.full(3, 0.5), np.ones(3, dtype=np.bool_))
    with pytest.raises(InternalError):
        KEY.decide_gaussian(0, DIGESTS, np.ones(3), threshold=1.0, stddev=1.0)


def test_coins_use_the_coin_words_of_the_round():
    sides = np.ones(len(DIGESTS), dtype=np.bool_)
    chances = np.full(len(DIGESTS), 0.5)
    tossed = KEY.coins(4, DIGESTS, chances, sides)
    assert np.array_equal(tossed, KEY.words(Purpose.COIN, 4, DIGESTS)[:, 0] < 2**63)
    assert not np.array_equal(tossed, KEY.coins(5, DIGESTS, chances, sides))


# ----------------------------------------------------------------------------------------- normals
def tail_error(p):
    """Return x = inverse_upper_tail(p), and the relative error of its tail by 50-digit arithmetic."""
    x = sampling.inverse_upper_tail(p)
    with mpmath.workdps(50):
        tail = mpmath.erfc(mpmath.mpf(x) / mpmath.sqrt(2)) / 2
        return x, float(abs(tail / mpmath.mpf(p) - 1))


EXPONENTS = [*np.linspace(np.log10(0.5), -5, 150), *np.linspace(-5, -40, 150), *np.linspace(-40, -300, 60)]


def test_inverse_upper_tail_is_as_exact_as_float64_can_be():
    for exponent in EXPONENTS:
        x, error = tail_error(float(10.0**exponent))
        # Half a unit in the last place of x, times the slope of the log tail, which is below x + 1.
        assert error <= (x + 1.0) * np.spacing(x) / 2 + 2e-16
        if x <= 13.0:
            assert error <= 1.3e-14


def test_the_error_measure_sees_a_wrong_tail():
    _, error = tail_error(1e-20)
    with mpmath.workdps(50):
        moved = sampling.inverse_upper_tail(1e-20) * (1 + 1e-14)
        worse = float(abs(mpmath.erfc(mpmath.mpf(moved) / mpmath.sqrt(2)) / 2 / mpmath.mpf(1e-20) - 1))
    assert worse > 20 * error


@pytest.mark.parametrize("border", [0.5, 0.075, float(np.exp(-25.0))])
def test_inverse_upper_tail_is_monotone_across_the_borders_of_its_pieces(border):
    grid = border * (1 + np.arange(-50, 51) * 1e-9)
    values = [sampling.inverse_upper_tail(p) for p in grid]
    assert all(a > b for a, b in itertools.pairwise(values))


def test_inverse_upper_tail_at_its_ends():
    assert sampling.inverse_upper_tail(0.0) == np.inf
    assert sampling.inverse_upper_tail(1.0) == -np.inf
    assert sampling.inverse_upper_tail(0.5) == 0.0
    assert sampling.inverse_upper_tail(0.75) == -sampling.inverse_upper_tail(0.25)
    assert 38.2 < sampling.inverse_upper_tail(1e-320) < 38.3


@pytest.mark.parametrize("tail", [0, 1, 2**20, 2**53 + 1, 2**64 - 1, 2**64, 2**90, 2**126, 2**127 - 1])
def test_normals_read_sign_and_tail_from_the_words(tail):
    """The tail is (T + ½)/2¹²⁸ for the 127 bits T above the sign bit, down to T = 0."""
    high, low = tail >> 64, tail & (2**64 - 1)
    words = np.array([[high << 1 | 1, low], [high << 1, low]], dtype=np.uint64)
    up, down = sampling.normals(words)
    assert up == -down
    assert up == pytest.approx(sampling.inverse_upper_tail(float(Fraction(2 * tail + 1, 2**129))), rel=1e-15, abs=1e-16)
    assert up >= 0.0


def test_normals_reach_beyond_thirteen_standard_deviations():
    assert sampling.normals(np.array([[1, 0]], dtype=np.uint64))[0] > 13.0


def test_normals_use_the_noise_words_of_the_round():
    assert np.array_equal(KEY.normals(3, DIGESTS), sampling.normals(KEY.words(Purpose.NOISE, 3, DIGESTS)))


def test_purposes_are_the_documented_ones():
    assert [p.name for p in randomness.Purpose] == [
        "USER", "ITEM", "BOUND", "COIN", "NOISE", "SPURIOUS", "SHARD", "COUNT",
    ]  # fmt: skip
