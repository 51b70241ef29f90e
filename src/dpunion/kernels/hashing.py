"""Keyed hashing as machine code: ChaCha20 (RFC 8439), SipHash-2-4, and a table hash; BLAKE2b is in blake2b.py.

ChaCha20, SipHash and BLAKE2b are pseudo-random functions and carry the privacy of a run; `table_hash` only spreads
strings over hash tables. The readable twins are in tests/twins/hashing.py.

subtle: what is done for many things at once has no inner loops, so that the loop over the things runs on vector
registers, and stands on arrays of its own, as the compiler must be sure that nothing overlaps.

subtle: numba turns uint64 combined with a signed integer into float64, so every constant is an np.uint64;
indices are unsigned too, which also spares the test for negative ones.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpunion.contributions import Uint64s
from dpunion.kernels.compiler import inlined, kernel, word_at

U0, U1, U2, U3, U4, U5, U6, U7 = (np.uint64(i) for i in range(8))
U8, U13, U14, U16, U17, U21, U24, U32 = (np.uint64(i) for i in (8, 13, 14, 16, 17, 21, 24, 32))
U40, U48, U56, U63, U64, U128 = (np.uint64(i) for i in (40, 48, 56, 63, 64, 128))
LOW_HALF = np.uint64(0xFFFFFFFF)
ALL_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)


@inlined
def rotate_left(x: np.uint64, count: np.uint64) -> np.uint64:
    """Rotate a 64-bit word by 1 to 63 bits."""
    return (x << count) | (x >> (U64 - count))


@inlined
def read8(data: npt.NDArray[np.uint8], at: np.uint64) -> np.uint64:
    """Read eight bytes, little-endian."""
    return word_at(data, at)


@inlined
def read4(data: npt.NDArray[np.uint8], at: np.uint64) -> np.uint64:
    """Read four bytes, little-endian."""
    return (
        np.uint64(data[at])
        | (np.uint64(data[at + U1]) << U8)
        | (np.uint64(data[at + U2]) << U16)
        | (np.uint64(data[at + U3]) << U24)
    )


# --------------------------------------------------------------------------------------------- ChaCha20

# "expand 32-byte k", little-endian (RFC 8439, section 2.3).
LANES = 256
"""So many inputs are mixed side by side; the compiler makes of it what the processor has."""
Words = tuple[np.uint32, ...]
"""The sixteen words of a ChaCha state."""

CHACHA_0, CHACHA_1, CHACHA_2, CHACHA_3 = (np.uint32(w) for w in (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574))


@inlined
def rotate_left32(x: np.uint32, count: np.uint32) -> np.uint32:
    """Rotate a 32-bit word by 1 to 31 bits."""
    return np.uint32((x << count) | (x >> (np.uint32(32) - count)))


@inlined
def quarter_round(
    a: np.uint32, b: np.uint32, c: np.uint32, d: np.uint32
) -> tuple[np.uint32, np.uint32, np.uint32, np.uint32]:
    """Mix four words of the ChaCha state (RFC 8439, section 2.1)."""
    a = np.uint32(a + b)
    d = rotate_left32(np.uint32(d ^ a), np.uint32(16))
    c = np.uint32(c + d)
    b = rotate_left32(np.uint32(b ^ c), np.uint32(12))
    a = np.uint32(a + b)
    d = rotate_left32(np.uint32(d ^ a), np.uint32(8))
    c = np.uint32(c + d)
    b = rotate_left32(np.uint32(b ^ c), np.uint32(7))
    return a, b, c, d


@inlined
def join_halves(low: np.uint32, high: np.uint32, add_low: np.uint32, add_high: np.uint32) -> np.uint64:
    """Add the first state to two adjacent words and join them, little-endian (RFC 8439, section 2.3)."""
    return np.uint64(np.uint32(low + add_low)) | (np.uint64(np.uint32(high + add_high)) << U32)


@inlined
def double_round(x: Words) -> Words:
    """Mix the columns and then the diagonals of the state (RFC 8439, section 2.3.1)."""
    x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15 = x
    x0, x4, x8, x12 = quarter_round(x0, x4, x8, x12)
    x1, x5, x9, x13 = quarter_round(x1, x5, x9, x13)
    x2, x6, x10, x14 = quarter_round(x2, x6, x10, x14)
    x3, x7, x11, x15 = quarter_round(x3, x7, x11, x15)
    x0, x5, x10, x15 = quarter_round(x0, x5, x10, x15)
    x1, x6, x11, x12 = quarter_round(x1, x6, x11, x12)
    x2, x7, x8, x13 = quarter_round(x2, x7, x8, x13)
    x3, x4, x9, x14 = quarter_round(x3, x4, x9, x14)
    return x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15


@inlined
def ten_double_rounds(x: Words) -> Words:
    """Mix the state: twenty rounds (RFC 8439, section 2.3)."""
    x = double_round(double_round(double_round(double_round(double_round(x)))))
    return double_round(double_round(double_round(double_round(double_round(x)))))


@kernel
def chacha20_words(key: npt.NDArray[np.uint32], inputs: Uint64s) -> Uint64s:
    """Return the first 16 bytes of the ChaCha20 block of each input, counter || nonce.

    key: uint32[8], its 32 bytes little-endian; inputs: uint64[n, 2], 16 bytes little-endian (RFC 8439, 2.3); returns
    uint64[n, 2].

    Guarantees:
    - row i depends on the key and on inputs[i] alone.
    """
    count = len(inputs)
    out = np.empty((count, 2), dtype=np.uint64)
    k0, k1, k2, k3, k4, k5, k6, k7 = key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7]
    n0, n1 = np.zeros(LANES, dtype=np.uint32), np.zeros(LANES, dtype=np.uint32)
    n2, n3 = np.zeros(LANES, dtype=np.uint32), np.zeros(LANES, dtype=np.uint32)
    for group in range(0, count, LANES):
        some = min(LANES, count - group)
        for i in range(some):
            first, second = inputs[group + i, 0], inputs[group + i, 1]
            n0[i], n1[i] = np.uint32(first & LOW_HALF), np.uint32(first >> U32)
            n2[i], n3[i] = np.uint32(second & LOW_HALF), np.uint32(second >> U32)
        for i in range(LANES):
            x = ten_double_rounds(
                (
                    CHACHA_0, CHACHA_1, CHACHA_2, CHACHA_3, k0, k1, k2, k3,
                    k4, k5, k6, k7, n0[i], n1[i], n2[i], n3[i],
                )
            )  # fmt: skip
            n0[i], n1[i] = np.uint32(x[0] + CHACHA_0), np.uint32(x[1] + CHACHA_1)
            n2[i], n3[i] = np.uint32(x[2] + CHACHA_2), np.uint32(x[3] + CHACHA_3)
        for i in range(some):
            out[group + i, 0] = np.uint64(n0[i]) | (np.uint64(n1[i]) << U32)
            out[group + i, 1] = np.uint64(n2[i]) | (np.uint64(n3[i]) << U32)
    return out


@kernel
def chacha20_blocks(key: npt.NDArray[np.uint32], inputs: Uint64s) -> Uint64s:
    """Return the whole ChaCha20 block of each input: 512 pseudo-random bits.

    key: uint32[8]; inputs: uint64[n, 2]; returns uint64[n, 8], whose first two columns are chacha20_words.

    Guarantees:
    - row i depends on the key and on inputs[i] alone.
    """
    out = np.empty((len(inputs), 8), dtype=np.uint64)
    for i in range(len(inputs)):
        first, second = inputs[i, 0], inputs[i, 1]
        start = (
            CHACHA_0, CHACHA_1, CHACHA_2, CHACHA_3, key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7],
            np.uint32(first & LOW_HALF), np.uint32(first >> U32),
            np.uint32(second & LOW_HALF), np.uint32(second >> U32),
        )  # fmt: skip
        x = ten_double_rounds(start)
        for w in range(8):
            out[i, w] = join_halves(x[2 * w], x[2 * w + 1], start[2 * w], start[2 * w + 1])
    return out


# ---------------------------------------------------------------------------------------- SipHash-2-4


@inlined
def sip_round(
    v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Mix the state once (Aumasson & Bernstein 2012, figure 2.1)."""
    v0 += v1
    v2 += v3
    v1 = rotate_left(v1, U13) ^ v0
    v3 = rotate_left(v3, U16) ^ v2
    v0 = rotate_left(v0, U32)
    v2 += v1
    v0 += v3
    v1 = rotate_left(v1, U17) ^ v2
    v3 = rotate_left(v3, U21) ^ v0
    v2 = rotate_left(v2, U32)
    return v0, v1, v2, v3


@inlined
def sip_word(
    v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64, word: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Fold one word of the message into the state (Aumasson & Bernstein 2012, section 2.2)."""
    v0, v1, v2, v3 = sip_round(*sip_round(v0, v1, v2, v3 ^ word))
    return v0 ^ word, v1, v2, v3


SIP_0, SIP_1, SIP_2, SIP_3 = (
    np.uint64(w) for w in (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
)
# The last word of a message holds its length, 16 bytes, in the top byte.
SIP_LENGTH_16 = np.uint64(16 << 56)
SIP_FINAL = np.uint64(0xFF)


@inlined
def siphash24(k0: np.uint64, k1: np.uint64, m0: np.uint64, m1: np.uint64) -> np.uint64:
    """Return SipHash-2-4 of the 16-byte message (m0, m1) under the key (k0, k1), all little-endian.

    This orders the items of one user for bounding: the key is the user's row of words(BOUND, round, user
    digests), the message is the item's digest. What a user keeps depends on the run key and that user alone.
    """
    v0, v1, v2, v3 = k0 ^ SIP_0, k1 ^ SIP_1, k0 ^ SIP_2, k1 ^ SIP_3
    v0, v1, v2, v3 = sip_word(v0, v1, v2, v3, m0)
    v0, v1, v2, v3 = sip_word(v0, v1, v2, v3, m1)
    v0, v1, v2, v3 = sip_word(v0, v1, v2, v3, SIP_LENGTH_16)
    v2 ^= SIP_FINAL
    v0, v1, v2, v3 = sip_round(*sip_round(v0, v1, v2, v3))
    v0, v1, v2, v3 = sip_round(*sip_round(v0, v1, v2, v3))
    return v0 ^ v1 ^ v2 ^ v3


# -------------------------------------------------------------------------------------- hash tables only

TABLE_0, TABLE_1 = np.uint64(0x2D358DCCAA6C78A5), np.uint64(0x8BB84B93962EACC9)


@inlined
def multiply_wide(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the low and the high word of the 128-bit product, from four 32-bit products."""
    a_low, a_high = a & LOW_HALF, a >> U32
    b_low, b_high = b & LOW_HALF, b >> U32
    middle = a_high * b_low + ((a_low * b_low) >> U32)
    cross = a_low * b_high + (middle & LOW_HALF)
    return a * b, a_high * b_high + (middle >> U32) + (cross >> U32)


@inlined
def table_hash(
    data: npt.NDArray[np.uint8], start: int | np.uint64, stop: int | np.uint64, seed: np.uint64
) -> np.uint64:
    """Hash the bytes start..stop for a hash table: seeded, fast, equal for equal bytes, no more than that.

    Sixteen bytes are folded per step by a 128-bit product, as in wyhash. Where strings may come from somebody
    hostile the seed must be secret. Collisions are expected, so a table compares the strings themselves.
    """
    begin, end = np.uint64(start), np.uint64(stop)
    size = end - begin
    second = (seed ^ TABLE_0) * TABLE_1
    second ^= second >> U32
    first = seed
    if size > U16:
        at = begin
        while end - at > U16:
            low, high = multiply_wide(read8(data, at) ^ second, read8(data, at + U8) ^ first)
            first = low ^ high
            at += U16
        a, b = read8(data, end - U16), read8(data, end - U8)
    elif size >= U8:
        a, b = read8(data, begin), read8(data, end - U8)
    elif size >= U4:
        a, b = read4(data, begin), read4(data, end - U4)
    elif size > U0:
        # One to three bytes: the first, the middle and the last name them all, together with the size below.
        a = (np.uint64(data[begin]) << U16) | (np.uint64(data[begin + (size >> U1)]) << U8) | np.uint64(data[end - U1])
        b = U0
    else:
        a, b = U0, U0
    low, high = multiply_wide(a ^ second, b ^ first)
    low, high = multiply_wide(low ^ TABLE_0 ^ size, high ^ TABLE_1)
    return low ^ high


@inlined
def hash_pair(a: np.uint64, b: np.uint64, seed: np.uint64) -> np.uint64:
    """Hash two words for a hash table: seeded, as table_hash."""
    second = (seed ^ TABLE_0) * TABLE_1
    second ^= second >> U32
    low, high = multiply_wide(a ^ second, b ^ seed)
    low, high = multiply_wide(low ^ TABLE_0, high ^ TABLE_1)
    return low ^ high
