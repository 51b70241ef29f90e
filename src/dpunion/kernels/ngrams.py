"""Streams of tokens to n-grams, over integers: a stream is int32 codes, in which -1 ends a document.

An n-gram is identified by where it starts. Its code at length k comes from the codes of its two parts of length k-1,
which start there and one position later; so no string is built, and an n-gram with an unreleased part becomes -1.
"""

from __future__ import annotations

import numpy as np

from dpunion.contributions import Int32s, Int64s, Uint8s, Uint64s
from dpunion.kernels.compiler import add_word, kernel, load_word, swap_word

END = -1
FREE = np.uint64(0xFFFFFFFFFFFFFFFF)
NONE, ONE, U32 = np.uint64(0), np.uint64(1), np.uint64(32)
MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@kernel
def count_documents(counts: Int64s, users: Int32s, sizes: Int64s) -> None:
    """Add the size of each document, its tokens and its end, to its user's sizes: int64[users]. In-place.

    counts: int64[documents], tokens of each; users: int32[documents].

    Guarantees: the order of documents does not matter; a document without tokens has size 0.
    """
    for document in range(len(counts)):
        if counts[document] > 0:
            sizes[users[document]] += counts[document] + 1


@kernel
def scatter_documents(
    counts: Int64s, users: Int32s, tokens: Int32s, renumbered: Int32s, heads: Int64s, stream: Int32s
) -> None:
    """Copy each document behind the head of its user's part of the stream, renumbered and ended by -1. In-place.

    tokens: int32[sum of counts]; heads: int64[users]; stream: int32[all sizes].

    Guarantees: a user's part of the stream contains that user's documents only.
    """
    at = 0
    for document in range(len(counts)):
        if counts[document] == 0:
            continue
        to = heads[users[document]]
        for _ in range(counts[document]):
            stream[to] = renumbered[tokens[at]]
            to += 1
            at += 1
        stream[to] = END
        heads[users[document]] = to + 1


@kernel
def spread_pair(pair: np.uint64, seed: np.uint64) -> np.uint64:
    """Mix the bits of a pair for a hash table (splitmix64's finaliser, seeded); the table compares the pairs."""
    x = pair ^ seed
    x = (x ^ (x >> np.uint64(30))) * MIX_1
    x = (x ^ (x >> np.uint64(27))) * MIX_2
    return x ^ (x >> np.uint64(31))


@kernel
def number_pairs(
    grams: Int32s, first: int, stop: int, beyond: int, slots: Uint64s, count: Uint64s, seed: np.uint64
) -> int:
    """Write at positions first..stop-1 the place of the pair (grams[i], grams[i+1]); stop if the table must grow.

    grams: int32[n], overwritten, by -1 if a part is missing; beyond: the old grams[stop], -1 at the end. slots:
    uint64[2^m], FREE or a pair, prefix << 32 | suffix; count: uint64[1], how many. Returns where it stopped. In-place.

    Several threads may do this at once for other positions: one of them takes a place, for ever.

    Guarantees: two positions have the same code exactly when both their parts do; nothing crosses a document's end.
    """
    mask = np.uint64(len(slots) - 1)
    for i in range(first, stop):
        following = beyond if i + 1 == stop else np.int64(grams[i + 1])
        if grams[i] < 0 or following < 0:
            grams[i] = END
            continue
        pair = (np.uint64(grams[i]) << U32) | np.uint64(following)
        at = spread_pair(pair, seed) & mask
        while True:
            found = load_word(slots, at)
            if found == FREE:
                if 2 * (np.int64(load_word(count, NONE)) + 1) > len(slots):
                    return i
                if swap_word(slots, at, FREE, pair):
                    add_word(count, NONE, ONE)
                    break
            elif found == pair:
                break
            else:
                at = (at + ONE) & mask
        grams[i] = at
    return stop


@kernel
def refill_pairs(old: Uint64s, slots: Uint64s, moved: Int32s, seed: np.uint64) -> None:
    """Enter all pairs of the `old` places into slots that are all FREE; moved: int32[old places], the new places.

    Guarantees: every pair has one place.
    """
    mask = np.uint64(len(slots) - 1)
    for place in range(len(old)):
        if old[place] != FREE:
            at = spread_pair(old[place], seed) & mask
            while slots[at] != FREE:
                at = (at + ONE) & mask
            slots[at] = old[place]
            moved[place] = at


@kernel
def renumber(codes: Int32s, renumbered: Int32s) -> None:
    """Replace each code that is not -1 by renumbered[code], which may be -1. In-place. Guarantees: positions stay."""
    for i in range(len(codes)):
        if codes[i] >= 0:
            codes[i] = renumbered[codes[i]]


@kernel
def compact(offsets: Int64s, codes: Int32s, new_offsets: Int64s) -> int:
    """Reduce each run of -1 to a single one, none at a user's start; return the new length. In-place on codes.

    offsets: int64[users+1]; new_offsets: int64[users+1], written.

    Guarantees: two codes are neighbours afterwards exactly when they were before; those of two users never are.
    """
    to = 0
    for user in range(len(offsets) - 1):
        new_offsets[user] = to
        begin = to
        for i in range(offsets[user], offsets[user + 1]):
            if codes[i] >= 0 or (to > begin and codes[to - 1] >= 0):
                codes[to] = codes[i]
                to += 1
    new_offsets[len(offsets) - 1] = to
    return to


@kernel
def collect(offsets: Int64s, codes: Int32s, new_offsets: Int64s, grouped: Int32s) -> None:
    """Copy each user's codes that are not -1 to grouped: int32[number of these], or codes itself.

    new_offsets: int64[users+1], written.

    Guarantees: each user gets that user's own codes only, repeats included.
    """
    to = 0
    for user in range(len(offsets) - 1):
        new_offsets[user] = to
        for i in range(offsets[user], offsets[user + 1]):
            if codes[i] >= 0:
                grouped[to] = codes[i]
                to += 1
    new_offsets[len(offsets) - 1] = to


@kernel
def join_texts(
    offsets: Int64s,
    data: Uint8s,
    token_offsets: Int64s,
    token_data: Uint8s,
    prefixes: Int32s,
    last: Int32s,
    new_offsets: Int64s,
    new_data: Uint8s,
) -> None:
    """Write prefix, space, last token of each n-gram to new_data[new_offsets[i]:new_offsets[i+1]].

    prefixes: int32[n], numbers of the strings (offsets, data); last: int32[n], numbers of the tokens.

    Guarantees: exactly new_offsets[-1] bytes are written.
    """
    for i in range(len(prefixes)):
        to = new_offsets[i]
        for at in range(offsets[prefixes[i]], offsets[prefixes[i] + 1]):
            new_data[to] = data[at]
            to += 1
        new_data[to] = 32
        to += 1
        for at in range(token_offsets[last[i]], token_offsets[last[i] + 1]):
            new_data[to] = token_data[at]
            to += 1


@kernel
def lay_beside(offsets: Int64s, codes: Int32s, before: int, number: int, total: int, out: Int32s) -> None:
    """Copy each user's codes, plus `before`, to the user's part `number` of `total` equal parts. In-place on out.

    offsets: int64[users+1]; codes: int32[n], -1 stays; out: int32[n * total], of user u from total * offsets[u] on.

    Guarantees: each user's part contains that user's own codes only.
    """
    for user in range(len(offsets) - 1):
        start = offsets[user]
        size = offsets[user + 1] - start
        to = total * start + number * size
        for i in range(size):
            code = codes[start + i]
            out[to + i] = code + before if code >= 0 else code


@kernel
def sort_unique(offsets: Int64s, grouped: Int32s, sizes: Int64s, first: int, last: int) -> None:
    """Sort the codes of users first..last-1 and drop repeats; sizes: int64[users] gets the new sizes. In-place.

    Guarantees: repeats change nothing; the order inside a user is canonical.
    """
    for user in range(first, last):
        start, stop = offsets[user], offsets[user + 1]
        grouped[start:stop].sort()
        kept = start
        for i in range(start, stop):
            if kept == start or grouped[kept - 1] != grouped[i]:
                grouped[kept] = grouped[i]
                kept += 1
        sizes[user] = kept - start
