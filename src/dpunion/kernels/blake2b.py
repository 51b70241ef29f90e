"""BLAKE2b (RFC 7693), keyed, of many strings: several at a time, in the lanes of vector registers.

The readable twin is in tests/twins/hashing.py; see also hashing.py.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpunion.contributions import Uint64s
from dpunion.kernels.compiler import inlined, kernel
from dpunion.kernels.hashing import ALL_ONES, U0, U1, U3, U7, U16, U32, U40, U48, U128, read8, rotate_left

Words = tuple[np.uint64, ...]
"""Sixteen words: a block, or the state while it is mixed."""

IV_0, IV_1, IV_2, IV_3, IV_4, IV_5, IV_6, IV_7 = (
    np.uint64(word)
    for word in (
        0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
        0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
    )
)  # fmt: skip
# Parameter block word 0 of RFC 7693, section 2.8: digest of 16 bytes, key of 32 bytes, fanout 1, depth 1.
DIGEST_16_KEY_32 = np.uint64(0x01010000 | 32 << 8 | 16)
LANES = 64
"""So many strings are hashed side by side; a compiler makes of it what the processor has."""


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
def blake2b_round(v: Words, m: Words) -> Words:
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
def blake2b_rounds(v: Words, m: Words) -> Words:
    """Mix a block into the state: twelve rounds (RFC 7693, sections 2.7 and 3.2).

    subtle: without a loop, so that the loop over strings around it can run on vector registers.
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
def blake2b_start(state: Uint64s, length: np.uint64, last: np.uint64) -> Words:
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
        blocks[first + np.uint64(w) * step] = read8(data, start + (np.uint64(w) << U3))
    for w in range(whole, U16):
        blocks[first + np.uint64(w) * step] = U0
    for i in range(whole << U3, size):
        at = np.uint64(i)
        blocks[first + (at >> U3) * step] |= np.uint64(data[start + at]) << ((at & U7) << U3)


@kernel
def blake2b_lanes(state: Uint64s, blocks: Uint64s, lengths: Uint64s, first: Uint64s, second: Uint64s) -> None:
    """Fold the last block of each lane into one state, and write the first two words of what comes of it.

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

    offsets: int64[n+1], nondecreasing, within data; data: uint8[]; key: uint64[4], its 32 bytes little-
    endian; returns uint64[n, 2], each row the 16 digest bytes little-endian.

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
