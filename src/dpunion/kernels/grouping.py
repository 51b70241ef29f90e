"""Rows (user, item) -> each user's distinct items in rising order: a radix sort in blocks that fit the cache.

Users are numbered 0..users-1 and cut into blocks of 2^shift neighbours. Rows are first moved to their block, packed as
(user within the block) << 32 | item; then each block is sorted on its own, which is the part that threads share.
"""

from __future__ import annotations

import numpy as np

from dpunion.contributions import Int32s, Int64s, Uint64s
from dpunion.kernels.compiler import kernel

DIGIT = 11
ITEM_MASK = np.uint64(0xFFFFFFFF)
USER_SHIFT = np.uint64(32)


@kernel
def count_blocks(users: Int32s, shift: int, counts: Int64s) -> None:
    """Add the number of rows of each block of users to counts: int64[blocks]. In-place.

    Guarantees: row order does not matter.
    """
    for user in users:
        counts[user >> shift] += 1


@kernel
def pack_rows(users: Int32s, items: Int32s, renumbered: Int32s, shift: int, heads: Int64s, packed: Uint64s) -> None:
    """Move each row, its item renumbered, behind the head of its block. In-place on heads: int64[blocks] and packed.

    Guarantees: a row stays with its user; every row is moved once.
    """
    low = (1 << shift) - 1
    for row in range(len(users)):
        user = users[row]
        block = user >> shift
        at = heads[block]
        packed[at] = (np.uint64(user & low) << USER_SHIFT) | np.uint64(renumbered[items[row]])
        heads[block] = at + 1


@kernel
def sort_digit(source: Uint64s, target: Uint64s, place: int) -> bool:
    """Write source to target in the order of the 11 bits from `place` up, equals in their order; False: all equal."""
    counts = np.zeros((1 << DIGIT) + 1, np.int64)
    shift = np.uint64(place)
    mask = np.uint64((1 << DIGIT) - 1)
    for value in source:
        counts[np.int64((value >> shift) & mask) + 1] += 1
    if len(source) > 0 and counts[np.int64((source[0] >> shift) & mask) + 1] == len(source):
        return False
    for digit in range(1 << DIGIT):
        counts[digit + 1] += counts[digit]
    for value in source:
        own = np.int64((value >> shift) & mask)
        target[counts[own]] = value
        counts[own] += 1
    return True


@kernel
def group_block(
    packed: Uint64s,
    scratch: Uint64s,
    first: int,
    last: int,
    first_user: int,
    item_bits: int,
    user_bits: int,
    starts: Int64s,
    sizes: Int64s,
) -> None:
    """Sort rows first..last-1 (one block) and leave each user's distinct items where the rows were, as int32.

    scratch: uint64[at least last - first]. starts, sizes: int64[users], written for the block's users; a user's
    items are packed.view(int32)[starts[u] : starts[u] + sizes[u]]. In-place.

    Guarantees: duplicate rows change nothing; the order inside a user is canonical.
    """
    rows = packed[first:last]
    other = scratch[: last - first]
    place = 0
    while place < 32 + user_bits:
        if sort_digit(rows, other, place):
            rows, other = other, rows
        place += DIGIT
        if place >= item_bits and place < 32:
            place = 32
    narrow = packed.view(np.int32)
    to = 2 * first
    # subtle: when the sorted rows are still in `packed`, item i is read at 8 bytes times i before anything at or
    # beyond it is written, as at most one int32 is written per row read.
    for i in range(len(rows)):
        user = first_user + np.int64(rows[i] >> USER_SHIFT)
        item = np.int32(rows[i] & ITEM_MASK)
        if sizes[user] == 0:
            starts[user] = to
        elif narrow[to - 1] == item:
            continue
        narrow[to] = item
        sizes[user] += 1
        to += 1


@kernel
def split_rows(users: Int32s, items: Int32s, parts: int, packed: Uint64s) -> Int64s:
    """Pack rows as user << 32 | item, ordered by user modulo parts; return where each part ends: int64[parts].

    packed: uint64[rows], written.
    Guarantees: every row is written once; all rows of a user are in the same part.
    """
    heads = np.zeros(parts + 1, np.int64)
    for user in users:
        heads[user % parts + 1] += 1
    for part in range(parts):
        heads[part + 1] += heads[part]
    for row in range(len(users)):
        part = users[row] % parts
        packed[heads[part]] = (np.uint64(users[row]) << USER_SHIFT) | np.uint64(items[row])
        heads[part] += 1
    return heads[:parts]


@kernel
def has_ties(digests: Uint64s, order: Int64s) -> bool:
    """Say whether two of the digests: uint64[n, 2], put in order: int64[n] by their first words, share that word.

    Guarantees: nothing is changed.
    """
    for i in range(1, len(order)):
        if digests[order[i], 0] == digests[order[i - 1], 0]:
            return True
    return False
