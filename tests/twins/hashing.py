"""The readable twins of the kernels that hash and draw: bytes, integers and fractions, as in the papers."""

from __future__ import annotations

import hashlib
from fractions import Fraction

MASK_32 = 2**32 - 1
MASK_64 = 2**64 - 1


def blake2b_digest(key: bytes, message: bytes) -> bytes:
    """Return the 16-byte keyed BLAKE2b digest (RFC 7693), by the standard library."""
    return hashlib.blake2b(message, digest_size=16, key=key).digest()


def rotate(x: int, count: int, bits: int) -> int:
    """Rotate an integer of the given number of bits to the left."""
    return (x << count | x >> (bits - count)) & ((1 << bits) - 1)


def little_endian(data: bytes, size: int) -> list[int]:
    """Cut bytes into little-endian integers of `size` bytes."""
    return [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]


def quarter_round(x: list[int], a: int, b: int, c: int, d: int) -> None:
    """Mix four words of the ChaCha state in place (RFC 8439, section 2.1)."""
    for first, second, third, count in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        x[first] = (x[first] + x[second]) & MASK_32
        x[third] = rotate(x[third] ^ x[first], count, 32)


def chacha20_block(key: bytes, counter_and_nonce: bytes) -> bytes:
    """Return the 64-byte ChaCha20 block of a 16-byte input (RFC 8439, section 2.3)."""
    first = little_endian(b"expand 32-byte k" + key + counter_and_nonce, 4)
    x = first.copy()
    for _ in range(10):
        for column in range(4):
            quarter_round(x, column, 4 + column, 8 + column, 12 + column)
        for diagonal in range(4):
            quarter_round(x, diagonal, 4 + (diagonal + 1) % 4, 8 + (diagonal + 2) % 4, 12 + (diagonal + 3) % 4)
    return b"".join(((a + b) & MASK_32).to_bytes(4, "little") for a, b in zip(x, first, strict=True))


def sip_round(v: list[int]) -> None:
    """Mix the SipHash state in place (Aumasson & Bernstein 2012, figure 2.1)."""
    for a, b, count_b, c, d, count_d in ((0, 1, 13, 2, 3, 16), (2, 1, 17, 0, 3, 21)):
        v[a] = (v[a] + v[b]) & MASK_64
        v[c] = (v[c] + v[d]) & MASK_64
        v[b] = rotate(v[b], count_b, 64) ^ v[a]
        v[d] = rotate(v[d], count_d, 64) ^ v[c]
        v[a] = rotate(v[a], 32, 64)


def siphash24(key: bytes, message: bytes) -> int:
    """Return SipHash-2-4 of any message under a 16-byte key (Aumasson & Bernstein 2012, section 2)."""
    k0, k1 = little_endian(key, 8)
    # The paper's constants spell words; they are read big-endian, unlike everything else.
    some = [int.from_bytes(w, "big") for w in (b"somepseu", b"dorandom", b"lygenera", b"tedbytes")]
    v = [some[0] ^ k0, some[1] ^ k1, some[2] ^ k0, some[3] ^ k1]
    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    for word in little_endian(padded, 8):
        v[3] ^= word
        sip_round(v)
        sip_round(v)
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(4):
        sip_round(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def fold(a: int, b: int) -> int:
    """Multiply and fold the 128-bit product onto its two halves."""
    product = a * b
    return (product ^ product >> 64) & MASK_64


def table_hash(message: bytes, seed: int) -> int:
    """Return the hash that spreads strings over hash tables."""
    constant0, constant1 = 0x2D358DCCAA6C78A5, 0x8BB84B93962EACC9
    second = (seed ^ constant0) * constant1 & MASK_64
    second ^= second >> 32
    first, size, start = seed, len(message), 0
    while size - start > 16:
        a, b = little_endian(message[start : start + 16], 8)
        first = fold(a ^ second, b ^ first)
        start += 16
    if size >= 16:
        a, b = little_endian(message[-16:], 8)
    elif size >= 4:
        width = 8 if size >= 8 else 4
        a, b = int.from_bytes(message[:width], "little"), int.from_bytes(message[-width:], "little")
    else:
        a = int.from_bytes(message[:1] + message[size // 2 : size // 2 + 1] + message[-1:], "big")
        b = 0
    product = (a ^ second) * (b ^ first)
    return fold(product & MASK_64 ^ constant0 ^ size, product >> 64 ^ constant1)


def spread(a: int, b: int, seed: int) -> int:
    """Return the hash that chooses a place for two words."""
    constant0, constant1 = 0x2D358DCCAA6C78A5, 0x8BB84B93962EACC9
    second = (seed ^ constant0) * constant1 & MASK_64
    second ^= second >> 32
    product = (a ^ second) * (b ^ seed)
    return fold(product & MASK_64 ^ constant0, product >> 64 ^ constant1)


def hits(probability: float, high: int, low: int) -> bool:
    """Say whether the 128-bit integer of the two words is below floor(probability · 2¹²⁸), with fractions."""
    return high * 2**64 + low < Fraction(probability) * 2**128 // 1
