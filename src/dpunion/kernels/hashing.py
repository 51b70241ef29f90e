"""Keyed hashing as machine code: ChaCha20 (RFC 8439), BLAKE2b (RFC 7693), SipHash-2-4, and a hash for hash tables.

ChaCha20, SipHash and BLAKE2b are pseudo-random functions and carry the privacy of a run; `table_hash` only spreads
strings over hash tables. The readable twins are in tests/twins/hashing.py.

subtle: a function that hashes many inputs has no inner loops, so that the loop over the inputs runs on vector
registers, and each of its arrays has separate memory, because the compiler must be sure that nothing overlaps.

subtle: numba turns uint64 combined with a signed integer into float64, so every constant is an np.uint64;
indices are unsigned too, which also spares the test for negative ones.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpunion.contributions import Uint64s
from dpunion.kernels.compiler import inlined, kernel, word_at

U0, U1, U2, U3, U4, U7, U8, U13, U16, U17 = (np.uint64(i) for i in (0, 1, 2, 3, 4, 7, 8, 13, 16, 17))
U21, U24, U32, U40, U48, U64, U128 = (np.uint64(i) for i in (21, 24, 32, 40, 48, 64, 128))
LOW_HALF, ALL_ONES = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFFFFFFFFFF)


@inlined
def rotate_left(x: np.uint64, count: np.uint64) -> np.uint64:
    """Rotate a 64-bit word by 1 to 63 bits."""
    return (x << count) | (x >> (U64 - count))


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

CHACHA_LANES = 256
"""The number of inputs mixed side by side; the compiler maps them to the vector registers that the processor has."""
Words = tuple[np.uint32, ...]
"""The sixteen words of a ChaCha state."""
# "expand 32-byte k", little-endian (RFC 8439, section 2.3).
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

    key: uint32[8], 32 bytes little-endian; inputs, result: uint64[n, 2], 16 bytes little-endian (RFC 8439, 2.3).

    Guarantees: row i depends on the key and on inputs[i] alone.
    """
    count = len(inputs)
    out = np.empty((count, 2), dtype=np.uint64)
    k0, k1, k2, k3, k4, k5, k6, k7 = key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7]
    n0, n1 = np.zeros(CHACHA_LANES, dtype=np.uint32), np.zeros(CHACHA_LANES, dtype=np.uint32)
    n2, n3 = np.zeros(CHACHA_LANES, dtype=np.uint32), np.zeros(CHACHA_LANES, dtype=np.uint32)
    for group in range(0, count, CHACHA_LANES):
        some = min(CHACHA_LANES, count - group)
        for i in range(some):
            first, second = inputs[group + i, 0], inputs[group + i, 1]
            n0[i], n1[i] = np.uint32(first & LOW_HALF), np.uint32(first >> U32)
            n2[i], n3[i] = np.uint32(second & LOW_HALF), np.uint32(second >> U32)
        for i in range(CHACHA_LANES):
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


# -------------------------------------------------------------------------------------------- BLAKE2b

IV_0, IV_1, IV_2, IV_3, IV_4, IV_5, IV_6, IV_7 = (
    np.uint64(word)
    for word in (
        0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
        0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
    )
)  # fmt: skip
# Parameter block word 0 of RFC 7693, section 2.8: digest of 16 bytes, key of 32 bytes, fanout 1, depth 1.
DIGEST_16_KEY_32 = np.uint64(0x01010000 | 32 << 8 | 16)
BlockWords = tuple[np.uint64, ...]
"""Sixteen words: a block, or the state while it is mixed."""

LANES = 64
"""The number of strings hashed side by side; the compiler maps them to the vector registers that the processor has."""


@inlined
def blake2b_mix(
    a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64, x: np.uint64, y: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Mix two message words into four state words (function G of RFC 7693, section 3.1)."""
    a = a + b + x
    d = rotate_left(d ^ a, U32)
    c = c + d
    b = rotate_left(b ^ c, U40)
    a = a + b + y
    d = rotate_left(d ^ a, U48)
    c = c + d
    b = rotate_left(b ^ c, U1)
    return a, b, c, d


@inlined
def blake2b_round(v: BlockWords, m: BlockWords) -> BlockWords:
    """Mix sixteen message words, in the order of this round, into the state (RFC 7693, section 3.2)."""
    v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, v10, v11, v12, v13, v14, v15 = v
    v0, v4, v8, v12 = blake2b_mix(v0, v4, v8, v12, m[0], m[1])
    v1, v5, v9, v13 = blake2b_mix(v1, v5, v9, v13, m[2], m[3])
    v2, v6, v10, v14 = blake2b_mix(v2, v6, v10, v14, m[4], m[5])
    v3, v7, v11, v15 = blake2b_mix(v3, v7, v11, v15, m[6], m[7])
    v0, v5, v10, v15 = blake2b_mix(v0, v5, v10, v15, m[8], m[9])
    v1, v6, v11, v12 = blake2b_mix(v1, v6, v11, v12, m[10], m[11])
    v2, v7, v8, v13 = blake2b_mix(v2, v7, v8, v13, m[12], m[13])
    v3, v4, v9, v14 = blake2b_mix(v3, v4, v9, v14, m[14], m[15])
    return v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, v10, v11, v12, v13, v14, v15


@inlined
def blake2b_rounds(v: BlockWords, m: BlockWords) -> BlockWords:
    """Mix a block into the state: twelve rounds (RFC 7693, sections 2.7 and 3.2).

    subtle: there is no loop, so that the loop over strings around it runs on vector registers.
    """
    m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15 = m
    v = blake2b_round(v, (m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15))
    v = blake2b_round(v, (m14, m10, m4, m8, m9, m15, m13, m6, m1, m12, m0, m2, m11, m7, m5, m3))
    v = blake2b_round(v, (m11, m8, m12, m0, m5, m2, m15, m13, m10, m14, m3, m6, m7, m1, m9, m4))
    v = blake2b_round(v, (m7, m9, m3, m1, m13, m12, m11, m14, m2, m6, m5, m10, m4, m0, m15, m8))
    v = blake2b_round(v, (m9, m0, m5, m7, m2, m4, m10, m15, m14, m1, m11, m12, m6, m8, m3, m13))
    v = blake2b_round(v, (m2, m12, m6, m10, m0, m11, m8, m3, m4, m13, m7, m5, m15, m14, m1, m9))
    v = blake2b_round(v, (m12, m5, m1, m15, m14, m13, m4, m10, m0, m7, m6, m3, m9, m2, m8, m11))
    v = blake2b_round(v, (m13, m11, m7, m14, m12, m1, m3, m9, m5, m0, m15, m4, m8, m6, m2, m10))
    v = blake2b_round(v, (m6, m15, m14, m9, m11, m3, m0, m8, m12, m2, m13, m7, m1, m4, m10, m5))
    v = blake2b_round(v, (m10, m2, m8, m4, m7, m6, m1, m5, m15, m11, m9, m14, m3, m12, m13, m0))
    v = blake2b_round(v, (m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15))
    return blake2b_round(v, (m14, m10, m4, m8, m9, m15, m13, m6, m1, m12, m0, m2, m11, m7, m5, m3))


@inlined
def blake2b_start(state: Uint64s, length: np.uint64, last: np.uint64) -> BlockWords:
    """Return the state while it is mixed, at its beginning (RFC 7693, section 3.2).

    state: uint64[8]; length: bytes so far; last: all ones for the last block, else 0.
    """
    return (
        state[0], state[1], state[2], state[3], state[4], state[5], state[6], state[7],
        IV_0, IV_1, IV_2, IV_3, IV_4 ^ length, IV_5, IV_6 ^ last, IV_7,
    )  # fmt: skip


@kernel
def blake2b_compress(state: Uint64s, block: Uint64s, length: np.uint64, last: np.uint64) -> None:
    """Fold one block into the state, in place (function F of RFC 7693, section 3.2).

    state: uint64[8]; block: uint64[16]; length, last: as in blake2b_start.
    """
    m = (
        block[0], block[1], block[2], block[3], block[4], block[5], block[6], block[7],
        block[8], block[9], block[10], block[11], block[12], block[13], block[14], block[15],
    )  # fmt: skip
    v = blake2b_rounds(blake2b_start(state, length, last), m)
    state[0] ^= v[0] ^ v[8]
    state[1] ^= v[1] ^ v[9]
    state[2] ^= v[2] ^ v[10]
    state[3] ^= v[3] ^ v[11]
    state[4] ^= v[4] ^ v[12]
    state[5] ^= v[5] ^ v[13]
    state[6] ^= v[6] ^ v[14]
    state[7] ^= v[7] ^ v[15]


@inlined
def load_block(
    blocks: Uint64s, first: np.uint64, step: np.uint64, data: npt.NDArray[np.uint8], start: np.uint64, size: np.uint64
) -> None:
    """Fill sixteen words with the `size` <= 128 bytes at `start`, then zeros; read no other byte.

    blocks: uint64[]; the words are `step` apart, from `first` on.
    """
    whole = size >> U3
    for w in range(whole):
        blocks[first + np.uint64(w) * step] = word_at(data, start + (np.uint64(w) << U3))
    for w in range(whole, U16):
        blocks[first + np.uint64(w) * step] = U0
    for i in range(whole << U3, size):
        at = np.uint64(i)
        blocks[first + (at >> U3) * step] |= np.uint64(data[start + at]) << ((at & U7) << U3)


@kernel
def blake2b_lanes(state: Uint64s, blocks: Uint64s, lengths: Uint64s, first: Uint64s, second: Uint64s) -> None:
    """Fold the last block of each lane into one state, and write the first two words of the result.

    state: uint64[8]; blocks: uint64[16 * LANES], word w of a lane at w * LANES + lane; lengths, first, second:
    uint64[LANES], bytes so far and the two words.
    """
    for i in range(LANES):
        m = (
            blocks[i], blocks[i + LANES], blocks[i + 2 * LANES], blocks[i + 3 * LANES],
            blocks[i + 4 * LANES], blocks[i + 5 * LANES], blocks[i + 6 * LANES], blocks[i + 7 * LANES],
            blocks[i + 8 * LANES], blocks[i + 9 * LANES], blocks[i + 10 * LANES], blocks[i + 11 * LANES],
            blocks[i + 12 * LANES], blocks[i + 13 * LANES], blocks[i + 14 * LANES], blocks[i + 15 * LANES],
        )  # fmt: skip
        v = blake2b_rounds(blake2b_start(state, lengths[i], ALL_ONES), m)
        first[i] = v[0] ^ v[8]
        second[i] = v[1] ^ v[9]
    for i in range(LANES):
        first[i] ^= state[0]
        second[i] ^= state[1]


@kernel
def blake2b_digests(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], key: Uint64s) -> Uint64s:
    """Return the keyed 128-bit BLAKE2b digest of each string.

    offsets: int64[n+1], nondecreasing, within data; data: uint8[]; key: uint64[4], its 32 bytes little-endian; returns
    uint64[n, 2], each row the 16 digest bytes little-endian.

    Guarantees:
    - row i depends on the key and on bytes offsets[i]..offsets[i+1] alone;
    - no byte outside the strings is read.
    """
    count = len(offsets) - 1
    out = np.empty((count, 2), dtype=np.uint64)
    block = np.zeros(16, dtype=np.uint64)
    keyed = np.array([IV_0 ^ DIGEST_16_KEY_32, IV_1, IV_2, IV_3, IV_4, IV_5, IV_6, IV_7])
    block[:4] = key
    empty = keyed.copy()
    # The key is the first block: folded in once for all strings but the empty one, where it is the last too.
    blake2b_compress(empty, block, U128, ALL_ONES)
    blake2b_compress(keyed, block, U128, U0)
    state = np.empty(8, dtype=np.uint64)
    blocks, lengths = np.zeros(16 * LANES, dtype=np.uint64), np.zeros(LANES, dtype=np.uint64)
    first, second = np.empty(LANES, dtype=np.uint64), np.empty(LANES, dtype=np.uint64)
    for group in range(0, count, LANES):
        some = min(LANES, count - group)
        for i in range(some):
            start, stop = np.uint64(offsets[group + i]), np.uint64(offsets[group + i + 1])
            size = stop - start if stop - start <= U128 else U0
            load_block(blocks, np.uint64(i), np.uint64(LANES), data, start, size)
            lengths[i] = U128 + size
        blake2b_lanes(keyed, blocks, lengths, first, second)
        for i in range(some):
            start, stop = np.uint64(offsets[group + i]), np.uint64(offsets[group + i + 1])
            if start == stop:
                out[group + i, 0], out[group + i, 1] = empty[0], empty[1]
            elif stop - start <= U128:
                out[group + i, 0], out[group + i, 1] = first[i], second[i]
            else:
                state[:] = keyed
                hashed = U128
                while stop - start > U128:
                    load_block(block, U0, U1, data, start, U128)
                    start += U128
                    hashed += U128
                    blake2b_compress(state, block, hashed, U0)
                load_block(block, U0, U1, data, start, stop - start)
                blake2b_compress(state, block, hashed + (stop - start), ALL_ONES)
                out[group + i, 0], out[group + i, 1] = state[0], state[1]
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
# The last word of a message has its length, 16 bytes, in the top byte.
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
    """Hash the bytes start..stop for a hash table: seeded, fast, equal for equal bytes, and no more than that.

    Sixteen bytes are folded per step by a 128-bit product, as in wyhash. If strings may come from somebody hostile, the
    seed must be secret. Collisions are expected, so a table compares the strings themselves.
    """
    begin, end = np.uint64(start), np.uint64(stop)
    size = end - begin
    second = (seed ^ TABLE_0) * TABLE_1
    second ^= second >> U32
    first = seed
    if size > U16:
        at = begin
        while end - at > U16:
            low, high = multiply_wide(word_at(data, at) ^ second, word_at(data, at + U8) ^ first)
            first = low ^ high
            at += U16
        a, b = word_at(data, end - U16), word_at(data, end - U8)
    elif size >= U8:
        a, b = word_at(data, begin), word_at(data, end - U8)
    elif size >= U4:
        a, b = read4(data, begin), read4(data, end - U4)
    elif size > U0:
        # One to three bytes: with the size below, the first, the middle and the last byte are all of them.
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
