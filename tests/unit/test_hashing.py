"""The kernels equal the standard library, the published test vectors and their readable twins."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpunion.kernels import hashing
from twins import hashing as twin

words64 = st.integers(0, 2**64 - 1)
extreme_words64 = st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]) | words64


def pack(strings):
    offsets = np.zeros(len(strings) + 1, dtype=np.int64)
    np.cumsum([len(s) for s in strings], out=offsets[1:])
    return offsets, np.frombuffer(b"".join(strings), dtype=np.uint8)


def as_words(data):
    return np.frombuffer(data, dtype="<u8").astype(np.uint64)


def chacha(key, inputs):
    key_words = np.frombuffer(key, dtype="<u4").astype(np.uint32)
    return hashing.chacha20_words(key_words, as_words(inputs).reshape(-1, 2))


def table_hash(message, seed, *, before=b"", after=b""):
    data = np.frombuffer(before + message + after, dtype=np.uint8)
    return int(hashing.table_hash(data, len(before), len(before) + len(message), np.uint64(seed)))


# -------------------------------------------------------------------------------------------- BLAKE2b
@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.binary(max_size=40) | st.binary(min_size=100, max_size=400), max_size=12),
    st.binary(min_size=32, max_size=32),
)
def test_blake2b_equals_the_standard_library(strings, key):
    digests = hashing.blake2b_digests(*pack(strings), as_words(key))
    assert digests.shape == (len(strings), 2)
    expected = [twin.blake2b_digest(key, s) for s in strings]
    assert [row.astype("<u8").tobytes() for row in digests] == expected


@pytest.mark.parametrize("sign", [0, 0xFF])
def test_blake2b_equals_the_standard_library_at_every_length_about_a_block(sign):
    key = bytes(range(32))
    strings = [bytes([i & 0xFF ^ sign for i in range(length)]) for length in range(400)]
    digests = hashing.blake2b_digests(*pack(strings), as_words(key))
    for string, row in zip(strings, digests, strict=True):
        assert row.astype("<u8").tobytes() == hashlib.blake2b(string, digest_size=16, key=key).digest()


def test_blake2b_reads_a_slice_of_the_strings():
    strings = [b"alpha", b"", b"gamma", b"delta" * 40]
    offsets, data = pack(strings)
    key = as_words(bytes(32))
    whole = hashing.blake2b_digests(offsets, data, key)
    assert np.array_equal(hashing.blake2b_digests(offsets[1:4], data, key), whole[1:3])


# ------------------------------------------------------------------------------------------- ChaCha20
def test_chacha20_block_of_rfc_8439_section_2_3_2():
    key = bytes(range(32))
    counter_and_nonce = (1).to_bytes(4, "little") + bytes.fromhex("000000090000004a00000000")
    expected = bytes.fromhex(
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )
    assert twin.chacha20_block(key, counter_and_nonce) == expected
    assert chacha(key, counter_and_nonce)[0].astype("<u8").tobytes() == expected[:16]


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.lists(st.binary(min_size=16, max_size=16), max_size=5))
def test_chacha20_equals_its_twin(key, inputs):
    words = chacha(key, b"".join(inputs))
    expected = [twin.chacha20_block(key, i)[:16] for i in inputs]
    assert [row.astype("<u8").tobytes() for row in words] == expected


@pytest.mark.parametrize("count", [0, 1, 20, 255, 256, 257, 700])
def test_chacha20_words_are_the_first_16_bytes_of_the_block(count):
    key = np.arange(8, dtype=np.uint32)
    inputs = np.arange(2 * count, dtype=np.uint64).reshape(count, 2) << np.uint64(40)
    words = hashing.chacha20_words(key, inputs)
    blocks = [twin.chacha20_block(key.astype("<u4").tobytes(), row.astype("<u8").tobytes()) for row in inputs]
    assert [row.astype("<u8").tobytes() for row in words] == [block[:16] for block in blocks]
    assert len(np.unique(words)) == words.size


# -------------------------------------------------------------------------------------------- SipHash
@pytest.mark.parametrize(
    ("length", "expected"),
    [(0, "310e0edd47db6f72"), (8, "6224939a79f5f593"), (15, "e545be4961ca29a1"), (16, "db9bc2577fcc2a3f")],
)
def test_siphash_twin_gives_the_vectors_of_the_authors(length, expected):
    """The paper's appendix A (length 15) and the authors' vectors.h: key 00..0f, message 00, 01, 02, ..."""
    got = twin.siphash24(bytes(range(16)), bytes(range(length)))
    assert got.to_bytes(8, "little").hex() == expected


def test_siphash_kernel_gives_the_vector_of_16_bytes():
    m0, m1 = as_words(bytes(range(16)))
    assert int(hashing.siphash24(m0, m1, m0, m1)).to_bytes(8, "little").hex() == "db9bc2577fcc2a3f"


@settings(max_examples=200, deadline=None)
@given(st.tuples(*[extreme_words64] * 4))
def test_siphash_equals_its_twin(numbers):
    data = b"".join(n.to_bytes(8, "little") for n in numbers)
    got = hashing.siphash24(*(np.uint64(n) for n in numbers))
    assert int(got) == twin.siphash24(data[:16], data[16:])


# ------------------------------------------------------------------------------------------ hash tables
@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=70), extreme_words64)
def test_table_hash_equals_its_twin(message, seed):
    assert table_hash(message, seed) == twin.table_hash(message, seed)


@pytest.mark.parametrize("length", [*range(34), 48, 49, 100])
def test_table_hash_depends_on_every_byte_inside_and_on_none_outside(length):
    message = bytes(range(1, length + 1))
    expected = table_hash(message, 7)
    assert table_hash(message, 7, before=b"\xff" * 9, after=b"\xff" * 9) == expected
    for i in range(length):
        changed = message[:i] + bytes([message[i] ^ 0x80]) + message[i + 1 :]
        assert table_hash(changed, 7) != expected
    assert table_hash(message, 8) != expected


def test_table_hash_has_no_collision_among_many_short_strings():
    strings = [f"{i:x}".encode() for i in range(100_000)] + [bytes(n) for n in range(100)]
    hashes = {twin.table_hash(s, 12345) for s in strings}
    assert len(hashes) == len(strings)


@pytest.mark.parametrize("shift", [0, 16, 32, 48])
def test_table_hash_fills_buckets_evenly(shift):
    """Chi-squared over 256 buckets, by any byte of the hash; 400 is 6 standard deviations above 255."""
    offsets, data = pack([f"word{i}".encode() for i in range(50_000)])
    hashes = [int(hashing.table_hash(data, offsets[i], offsets[i + 1], np.uint64(1))) for i in range(50_000)]
    counts = np.bincount([(h >> shift) & 0xFF for h in hashes], minlength=256)
    expected = 50_000 / 256
    assert ((counts - expected) ** 2 / expected).sum() < 400


@settings(max_examples=200, deadline=None)
@given(extreme_words64, extreme_words64)
def test_wide_product(a, b):
    low, high = hashing.multiply_wide(np.uint64(a), np.uint64(b))
    assert (int(high) << 64) + int(low) == a * b
