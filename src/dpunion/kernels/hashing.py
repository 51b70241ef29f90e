"""Keyed hashing as machine code: BLAKE2b (RFC 7693), ChaCha20 (RFC 8439), SipHash-2-4, and a table hash.

The first three are pseudo-random functions and carry the privacy of a run; `table_hash` only spreads strings
over hash tables. The readable twins are in tests/twins/hashing.py.

subtle: numba turns uint64 combined with a signed integer into float64, so every constant is an np.uint64;
indices are unsigned too, which also spares the test for negative ones.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpunion.kernels.compiler import inlined, kernel, word_at

Words = npt.NDArray[np.uint64]

U0, U1, U2, U3, U4, U5, U6, U7 = (np.uint64(i) for i in range(8))
U8, U13, U14, U16, U17, U21, U24, U32 = (np.uint64(i) for i in (8, 13, 14, 16, 17, 21, 24, 32))
U40, U48, U56, U63, U64, U128 = (np.uint64(i) for i in (40, 48, 56, 63, 64, 128))
LOW_HALF = np.uint64(0xFFFFFFFF)
ALL_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)


@kernel
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


# ---------------------------------------------------------------------------------------------- BLAKE2b

BLAKE2B_IV = np.array(
    [
        0x6A09E667F3BCC908,
        0xBB67AE8584CAA73B,
        0x3C6EF372FE94F82B,
        0xA54FF53A5F1D36F1,
        0x510E527FADE682D1,
        0x9B05688C2B3E6C1F,
        0x1F83D9ABFB41BD6B,
        0x5BE0CD19137E2179,
    ],
    dtype=np.uint64,
)

# RFC 7693, section 2.7; rounds 10 and 11 repeat the first two rows.
BLAKE2B_SIGMA = np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
        [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
        [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
        [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
        [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
        [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
        [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
        [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
        [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    ],
    dtype=np.uint64,
)

# Parameter block word 0 of RFC 7693, section 2.8: digest of 16 bytes, key of 32 bytes, fanout 1, depth 1.
DIGEST_16_KEY_32 = np.uint64(0x01010000 | 32 << 8 | 16)


@kernel
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


@kernel
def blake2b_compress(state: Words, block: Words, length: np.uint64, last: np.uint64) -> None:
    """Fold one block into the state, in place (function F of RFC 7693, section 3.2).

    state: uint64[8]; block: uint64[16]; length: bytes so far; last: all ones for the last block, else 0.
    """
    v0, v1, v2, v3, v4, v5, v6, v7 = (
        state[0], state[1], state[2], state[3], state[4], state[5], state[6], state[7],
    )  # fmt: skip
    v8, v9, v10, v11 = BLAKE2B_IV[0], BLAKE2B_IV[1], BLAKE2B_IV[2], BLAKE2B_IV[3]
    v12, v13, v14, v15 = BLAKE2B_IV[4] ^ length, BLAKE2B_IV[5], BLAKE2B_IV[6] ^ last, BLAKE2B_IV[7]
    for r in range(12):
        s = BLAKE2B_SIGMA[r]
        v0, v4, v8, v12 = blake2b_mix(v0, v4, v8, v12, block[s[0]], block[s[1]])
        v1, v5, v9, v13 = blake2b_mix(v1, v5, v9, v13, block[s[2]], block[s[3]])
        v2, v6, v10, v14 = blake2b_mix(v2, v6, v10, v14, block[s[4]], block[s[5]])
        v3, v7, v11, v15 = blake2b_mix(v3, v7, v11, v15, block[s[6]], block[s[7]])
        v0, v5, v10, v15 = blake2b_mix(v0, v5, v10, v15, block[s[8]], block[s[9]])
        v1, v6, v11, v12 = blake2b_mix(v1, v6, v11, v12, block[s[10]], block[s[11]])
        v2, v7, v8, v13 = blake2b_mix(v2, v7, v8, v13, block[s[12]], block[s[13]])
        v3, v4, v9, v14 = blake2b_mix(v3, v4, v9, v14, block[s[14]], block[s[15]])
    state[0] ^= v0 ^ v8
    state[1] ^= v1 ^ v9
    state[2] ^= v2 ^ v10
    state[3] ^= v3 ^ v11
    state[4] ^= v4 ^ v12
    state[5] ^= v5 ^ v13
    state[6] ^= v6 ^ v14
    state[7] ^= v7 ^ v15


@kernel
def load_block(block: Words, data: npt.NDArray[np.uint8], start: np.uint64, size: np.uint64) -> None:
    """Fill block (uint64[16]) with the `size` <= 128 bytes at `start`, then zeros; read no other byte."""
    whole = size >> U3
    for w in range(whole):
        block[w] = read8(data, start + (np.uint64(w) << U3))
    for w in range(whole, U16):
        block[w] = U0
    for i in range(whole << U3, size):
        at = np.uint64(i)
        block[at >> U3] |= np.uint64(data[start + at]) << ((at & U7) << U3)


@kernel
def blake2b_digests(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], key: Words) -> Words:
    """Return the keyed 128-bit BLAKE2b digest of each string.

    offsets: int64[n+1], nondecreasing, within data; data: uint8[]; key: uint64[4], its 32 bytes little-
    endian; returns uint64[n, 2], each row the 16 digest bytes little-endian.

    Guarantees:
    - row i depends on the key and on bytes offsets[i]..offsets[i+1] alone;
    - no byte outside the strings is read.
    """
    count = len(offsets) - 1
    out = np.empty((count, 2), dtype=np.uint64)
    block = np.zeros(16, dtype=np.uint64)
    keyed = BLAKE2B_IV.copy()
    keyed[0] ^= DIGEST_16_KEY_32
    block[:4] = key
    empty = keyed.copy()
    # The key is the first block: folded in once for all strings but the empty one, where it is the last too.
    blake2b_compress(empty, block, U128, ALL_ONES)
    blake2b_compress(keyed, block, U128, U0)
    state = np.empty(8, dtype=np.uint64)
    for i in range(count):
        start, stop = np.uint64(offsets[i]), np.uint64(offsets[i + 1])
        if start == stop:
            out[i, 0], out[i, 1] = empty[0], empty[1]
            continue
        state[:] = keyed
        hashed = U128
        while stop - start > U128:
            load_block(block, data, start, U128)
            start += U128
            hashed += U128
            blake2b_compress(state, block, hashed, U0)
        load_block(block, data, start, stop - start)
        blake2b_compress(state, block, hashed + (stop - start), ALL_ONES)
        out[i, 0], out[i, 1] = state[0], state[1]
    return out


# --------------------------------------------------------------------------------------------- ChaCha20

# "expand 32-byte k", little-endian (RFC 8439, section 2.3).
CHACHA_0, CHACHA_1, CHACHA_2, CHACHA_3 = (np.uint32(w) for w in (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574))


@kernel
def rotate_left32(x: np.uint32, count: np.uint32) -> np.uint32:
    """Rotate a 32-bit word by 1 to 31 bits."""
    return np.uint32((x << count) | (x >> (np.uint32(32) - count)))


@kernel
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


@kernel
def join(low: np.uint32, high: np.uint32, add_low: np.uint32, add_high: np.uint32) -> np.uint64:
    """Add the first state to two adjacent words and join them, little-endian (RFC 8439, section 2.3)."""
    return np.uint64(np.uint32(low + add_low)) | (np.uint64(np.uint32(high + add_high)) << U32)


@kernel
def chacha20_block(
    key: npt.NDArray[np.uint32], input0: np.uint64, input1: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64, np.uint64, np.uint64, np.uint64, np.uint64]:
    """Return the ChaCha20 block, as eight little-endian words, of the 128-bit input counter || nonce.

    key: uint32[8], its 32 bytes little-endian; input0, input1: 16 bytes little-endian (RFC 8439, 2.3).
    """
    k0, k1, k2, k3, k4, k5, k6, k7 = key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7]
    n0, n1 = np.uint32(input0 & LOW_HALF), np.uint32(input0 >> U32)
    n2, n3 = np.uint32(input1 & LOW_HALF), np.uint32(input1 >> U32)
    x0, x1, x2, x3 = CHACHA_0, CHACHA_1, CHACHA_2, CHACHA_3
    x4, x5, x6, x7, x8, x9, x10, x11 = k0, k1, k2, k3, k4, k5, k6, k7
    x12, x13, x14, x15 = n0, n1, n2, n3
    for _ in range(10):
        x0, x4, x8, x12 = quarter_round(x0, x4, x8, x12)
        x1, x5, x9, x13 = quarter_round(x1, x5, x9, x13)
        x2, x6, x10, x14 = quarter_round(x2, x6, x10, x14)
        x3, x7, x11, x15 = quarter_round(x3, x7, x11, x15)
        x0, x5, x10, x15 = quarter_round(x0, x5, x10, x15)
        x1, x6, x11, x12 = quarter_round(x1, x6, x11, x12)
        x2, x7, x8, x13 = quarter_round(x2, x7, x8, x13)
        x3, x4, x9, x14 = quarter_round(x3, x4, x9, x14)
    return (
        join(x0, x1, CHACHA_0, CHACHA_1),
        join(x2, x3, CHACHA_2, CHACHA_3),
        join(x4, x5, k0, k1),
        join(x6, x7, k2, k3),
        join(x8, x9, k4, k5),
        join(x10, x11, k6, k7),
        join(x12, x13, n0, n1),
        join(x14, x15, n2, n3),
    )


@kernel
def chacha20_words(key: npt.NDArray[np.uint32], inputs: Words) -> Words:
    """Return the first 16 bytes of the ChaCha20 block of each input.

    key: uint32[8]; inputs: uint64[n, 2]; returns uint64[n, 2].

    Guarantees:
    - row i depends on the key and on inputs[i] alone.
    """
    out = np.empty((len(inputs), 2), dtype=np.uint64)
    for i in range(len(inputs)):
        block = chacha20_block(key, inputs[i, 0], inputs[i, 1])
        out[i, 0], out[i, 1] = block[0], block[1]
    return out


@kernel
def chacha20_blocks(key: npt.NDArray[np.uint32], inputs: Words) -> Words:
    """Return the whole ChaCha20 block of each input: 512 pseudo-random bits.

    key: uint32[8]; inputs: uint64[n, 2]; returns uint64[n, 8], whose first two columns are chacha20_words.

    Guarantees:
    - row i depends on the key and on inputs[i] alone.
    """
    out = np.empty((len(inputs), 8), dtype=np.uint64)
    for i in range(len(inputs)):
        block = chacha20_block(key, inputs[i, 0], inputs[i, 1])
        for w in range(8):
            out[i, w] = block[w]
    return out


# ---------------------------------------------------------------------------------------- SipHash-2-4


@kernel
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


SIP_0, SIP_1, SIP_2, SIP_3 = (
    np.uint64(w) for w in (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
)
# The last word of a message holds its length, 16 bytes, in the top byte.
SIP_LENGTH_16 = np.uint64(16 << 56)
SIP_FINAL = np.uint64(0xFF)


@kernel
def siphash24(k0: np.uint64, k1: np.uint64, m0: np.uint64, m1: np.uint64) -> np.uint64:
    """Return SipHash-2-4 of the 16-byte message (m0, m1) under the key (k0, k1), all little-endian.

    This orders the items of one user for bounding: the key is the user's row of words(BOUND, round, user
    digests), the message is the item's digest. What a user keeps depends on the run key and that user alone.
    """
    v0, v1, v2, v3 = k0 ^ SIP_0, k1 ^ SIP_1, k0 ^ SIP_2, k1 ^ SIP_3
    for word in (m0, m1, SIP_LENGTH_16):
        v3 ^= word
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
        v0 ^= word
    v2 ^= SIP_FINAL
    for _ in range(4):
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
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
def spread(a: np.uint64, b: np.uint64, seed: np.uint64) -> np.uint64:
    """Hash two words for a hash table: seeded, as table_hash."""
    second = (seed ^ TABLE_0) * TABLE_1
    second ^= second >> U32
    low, high = multiply_wide(a ^ second, b ^ seed)
    low, high = multiply_wide(low ^ TABLE_0, high ^ TABLE_1)
    return low ^ high
