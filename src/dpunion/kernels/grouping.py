"""Rows (user, item) -> each user's distinct items in rising order: a radix sort in blocks that fit the cache.

Users are numbered 0..users-1 and cut into blocks of 2^shift neighbours. Rows are first moved to their block, packed as
(user within the block) << item_bits | item, in four bytes if these suffice, else in eight; then threads sort each one.
"""

from __future__ import annotations

import numpy as np

from dpunion.contributions import Int32s, Int64s, Uint32s, Uint64s
from dpunion.kernels.compiler import kernel

DIGIT = 11
USER_SHIFT = np.uint64(32)


@kernel
def find_runs(users: Int32s, owners: Int32s, lengths: Int32s) -> int:
    """Write the user and the length of each run of rows with the same user; return the number of runs.

    owners, lengths: int32[most runs]. Returns -1 if there are more runs than that.

    Guarantees: together the runs are the rows, in their order.
    """
    runs, start = 0, 0
    for row in range(1, len(users) + 1):
        if row == len(users) or users[row] != users[start]:
            if runs == len(owners):
                return -1
            owners[runs], lengths[runs] = users[start], row - start
            runs, start = runs + 1, row
    return runs


@kernel
def count_blocks(users: Int32s, lengths: Int32s, shift: int, counts: Int64s) -> None:
    """Add the number of rows of each block of users to counts: int64[blocks]. In-place.

    lengths: int32[runs], the number of rows of each entry of users; empty if each has one.

    Guarantees: row order does not matter.
    """
    if len(lengths) == 0:
        for user in users:
            counts[np.uint32(user) >> shift] += 1
    for run in range(len(lengths)):
        counts[np.uint32(users[run]) >> shift] += lengths[run]


@kernel
def pack_rows(
    users: Int32s,
    lengths: Int32s,
    items: Int32s,
    renumbered: Int32s,
    shift: int,
    item_bits: int,
    heads: Int64s,
    packed: Uint32s | Uint64s,
) -> None:
    """Move each row, its item renumbered, behind the head of its block. In-place on heads: int64[blocks] and packed.

    lengths: as in count_blocks.

    Guarantees: a row stays with its user; every row is moved once.
    """
    low = np.uint64((1 << shift) - 1)
    if len(lengths) == 0:
        for row in range(len(users)):
            user = np.uint64(users[row])
            block = user >> np.uint64(shift)
            at = heads[block]
            own = np.uint64(renumbered[np.uint32(items[row])])
            packed[np.uint64(at)] = ((user & low) << np.uint64(item_bits)) | own
            heads[block] = at + 1
    row = 0
    for run in range(len(lengths)):
        user = np.uint64(users[run])
        block = user >> np.uint64(shift)
        at, owner = heads[block], (user & low) << np.uint64(item_bits)
        target, source = packed[at : at + lengths[run]], items[row : row + lengths[run]]
        for i in range(len(target)):
            target[i] = owner | np.uint64(renumbered[np.uint32(source[i])])
        heads[block] = at + lengths[run]
        row += lengths[run]


@kernel
def sort_digit(source: Uint32s | Uint64s, target: Uint32s | Uint64s, place: int) -> bool:
    """Write source to target in the order of the 11 bits from `place` up, stably; return False if all are equal."""
    counts = np.zeros((1 << DIGIT) + 1, np.int64)
    mask = (1 << DIGIT) - 1
    for value in source:
        counts[((np.int64(value) >> place) & mask) + 1] += 1
    if len(source) > 0 and counts[((np.int64(source[0]) >> place) & mask) + 1] == len(source):
        return False
    for digit in range(1 << DIGIT):
        counts[digit + 1] += counts[digit]
    for value in source:
        own = (np.int64(value) >> place) & mask
        target[np.uint64(counts[own])] = value
        counts[own] += 1
    return True


@kernel
def group_block(
    packed: Uint32s | Uint64s,
    scratch: Uint32s | Uint64s,
    first: int,
    last: int,
    first_user: int,
    item_bits: int,
    user_bits: int,
    starts: Int64s,
    sizes: Int64s,
) -> None:
    """Sort rows first..last-1 (one block) and leave each user's distinct items where the rows were, as int32.

    scratch: like packed, at least last - first. starts, sizes: int64[users], written for the block's users; a user's
    items are packed.view(int32)[starts[u] : starts[u] + sizes[u]]. In-place.

    Guarantees: duplicate rows change nothing; the order inside a user is canonical.
    """
    rows = packed[first:last]
    other = scratch[: last - first]
    for place in range(0, item_bits + user_bits, DIGIT):
        if sort_digit(rows, other, place):
            rows, other = other, rows
    narrow = packed.view(np.int32)
    to = first * (packed.itemsize // 4)
    mask = (1 << item_bits) - 1
    before, owner = np.int64(-1), np.int64(-1)
    # subtle: if the sorted rows are in `packed`, a row is read before anything at or beyond it is written, because at
    # most one int32 is written per row read.
    for row in rows:
        value = np.int64(row)
        if value == before:
            continue
        before = value
        if value >> item_bits != owner:
            if owner >= 0:
                sizes[first_user + owner] = to - starts[first_user + owner]
            owner = value >> item_bits
            starts[first_user + owner] = to
        narrow[np.uint64(to)] = value & mask
        to += 1
    if owner >= 0:
        sizes[first_user + owner] = to - starts[first_user + owner]


@kernel
def split_rows(users: Int32s, items: Int32s, parts: int, packed: Uint64s) -> Int64s:
    """Pack rows as user << 32 | item, ordered by user modulo parts; return where each part ends: int64[parts].

    packed: uint64[rows], written. Guarantees: every row is written once; all rows of a user are in the same part.
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
def order_by_digest(digests: Uint64s, order: Int64s) -> None:
    """Write the places of digests: uint64[n, 2] in their rising order: int64[n]. In-place on order.

    As many bits of the first word as fit above the place are sorted by digits; if these bits are the same, which is
    rare, whole digests are compared.

    Guarantees: the order depends on the digests alone, if no two are the same.
    """
    count = len(digests)
    bits = 1
    while count >> bits:
        bits += 1
    low = np.uint64((1 << bits) - 1)
    packed, other = np.empty(count, np.uint64), np.empty(count, np.uint64)
    for place in range(count):
        packed[place] = (digests[place, 0] & ~low) | np.uint64(place)
    for digit in range(bits, 64, DIGIT):
        if sort_digit(packed, other, digit):
            packed, other = other, packed
    for at in range(count):
        own = np.int64(packed[at] & low)
        to = at
        while to > 0 and (packed[to - 1] ^ packed[at]) & ~low == np.uint64(0):
            before = order[to - 1]
            if digests[before, 0] < digests[own, 0] or (
                digests[before, 0] == digests[own, 0] and digests[before, 1] <= digests[own, 1]
            ):
                break
            order[to] = before
            to -= 1
        order[to] = own


@kernel
def order_by_size(sizes: Int64s, order: Int64s, most: int) -> Int64s:
    """Return `order`: int64[users] by sizes: int64[users], each at most `most`; users of the same size stay in order.

    Guarantees: the result depends on the sizes and the order alone.
    """
    heads = np.zeros(most + 2, np.int64)
    for size in sizes:
        heads[size + 1] += 1
    for size in range(most + 1):
        heads[size + 1] += heads[size]
    sorted_ = np.empty(len(order), np.int64)
    for user in order:
        size = sizes[user]
        sorted_[heads[size]] = user
        heads[size] += 1
    return sorted_
