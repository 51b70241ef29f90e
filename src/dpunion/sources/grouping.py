"""Numbered rows -> Contributions: group by user, drop duplicates, bound, lay the users out in visiting order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from dpunion.algorithms import UserOrder
from dpunion.contributions import Bools, Contributions, Int32s, Int64s, ItemTable, Uint64s, offsets_of
from dpunion.kernels.bounding import drop_items, gather_users, keep_random
from dpunion.kernels.grouping import count_blocks, group_block, pack_rows
from dpunion.randomness import Purpose, RunKey
from dpunion.sources.rowstore import Part, RowStore

THREADS = 2
ROWS_PER_BLOCK = 1 << 17
MOST_BLOCKS = 4096


def group_rows(
    rows: RowStore,
    renumbered: Int32s,
    user_digests: Uint64s,
    table: ItemTable,
    key: RunKey,
    max_items: int,
    user_order: UserOrder,
    unwanted: Bools | None = None,
) -> Contributions:
    """Turn the stored rows into contributions; the store is empty afterwards.

    renumbered: int32[raw items], the final number of each raw one; user_digests: uint64[users, 2]; unwanted:
    bool[items], public, what to leave out of every set before bounding.

    Guarantees:
    - duplicate rows, and the order of rows, change nothing;
    - what a user keeps, and where the user stands, depends on that user's own rows and the key alone.
    """
    users = len(user_digests)
    starts, sizes = np.zeros(users, np.int64), np.zeros(users, np.int64)
    pieces: list[Int32s] = []
    placed = 0
    for part in rows.parts():
        mine = slice(part.phase, None, part.stride)
        part_starts, part_sizes, grouped = group_part(part, len(user_digests[mine]), renumbered, len(table))
        if unwanted is not None:
            drop_items(part_starts, grouped, part_sizes, unwanted)
        heavy = np.flatnonzero(part_sizes > max_items)
        heavy_keys = key.words(Purpose.BOUND, 0, user_digests[mine][heavy])
        keep_random(part_starts, grouped, part_sizes, heavy, heavy_keys, table.digests, max_items)
        if part.stride > 1:
            grouped, part_starts = compacted(part_starts, part_sizes, grouped)
        starts[mine], sizes[mine] = part_starts + placed, part_sizes
        pieces.append(grouped)
        placed += len(grouped)
    order = visiting_order(sizes, user_digests, user_order)
    offsets = offsets_of(sizes[order])
    kept = pieces[0] if len(pieces) == 1 else np.concatenate([*pieces, np.empty(0, np.int32)])
    pieces.clear()
    items = np.empty(int(offsets[-1]), np.int32)
    gather_users(starts, kept, order, offsets, items)
    return Contributions(offsets, items, table, user_digests[order], max_items)


def group_part(part: Part, users: int, renumbered: Int32s, items: int) -> tuple[Int64s, Int64s, Int32s]:
    """Sort one part of the rows in blocks that fit the cache, on both cores.

    Returns (starts, sizes, grouped): int64[users] twice and int32[>= rows].
    Guarantees: each user's items are distinct and in rising order.
    """
    rows = sum(len(chunk) for chunk, _ in part.chunks)
    shift = block_shift(users, rows)
    counts = np.zeros((users >> shift) + 1, np.int64)
    for chunk, _ in part.chunks:
        count_blocks(chunk, shift, counts)
    heads = offsets_of(counts)
    ends = heads[1:].copy()
    packed = np.empty(rows, np.uint64)
    while part.chunks:
        pack_rows(*part.chunks.pop(), renumbered, shift, heads, packed)
    starts, sizes = np.zeros(users, np.int64), np.zeros(users, np.int64)
    bits = max(1, int(items - 1).bit_length())

    def sort_blocks(blocks: range) -> None:
        scratch = np.empty(max((counts[block] for block in blocks), default=0), np.uint64)
        for block in blocks:
            begin, end = ends[block] - counts[block], ends[block]
            group_block(packed, scratch, begin, end, block << shift, bits, shift, starts, sizes)

    # Both threads get about half of the rows.
    middle = int(np.searchsorted(ends, rows // 2, side="right"))
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(sort_blocks, (range(middle), range(middle, len(counts)))))
    return starts, sizes, packed.view(np.int32)


def compacted(starts: Int64s, sizes: Int64s, grouped: Int32s) -> tuple[Int32s, Int64s]:
    """Return the kept items of all users without gaps, and where each user's begin.

    Guarantees: nothing but kept items is copied.
    """
    offsets = offsets_of(sizes)
    kept = np.empty(int(offsets[-1]), np.int32)
    gather_users(starts, grouped, np.arange(len(sizes)), offsets, kept)
    return kept, offsets[:-1]


def block_shift(users: int, rows: int) -> int:
    """Return how many bits of a user's number lie within a block: about 2^17 rows, and at most 4096 blocks."""
    wanted = max(users * ROWS_PER_BLOCK // max(rows, 1), users // MOST_BLOCKS, 1)
    return min(wanted.bit_length() - 1 + (users >> (wanted.bit_length() - 1) >= MOST_BLOCKS), 30)


def visiting_order(sizes: Int64s, user_digests: Uint64s, user_order: UserOrder) -> Int64s:
    """Return the users in visiting order: int64[users]. Their keyed digests are the random order.

    Guarantees: each sort key is a function of that user's own data and the run key, so adding a user never
    reorders the others.
    """
    order = np.argsort(user_digests[:, 0])
    first = user_digests[order, 0]
    if len(first) > 1 and bool((first[1:] == first[:-1]).any()):
        order = np.lexsort((user_digests[:, 1], user_digests[:, 0]))
    if user_order is UserOrder.SMALLEST_FIRST:
        # subtle: numpy sorts 16-bit keys stably by radix, in linear time; max_items_per_user is far below 2^16.
        small = sizes[order].astype(np.uint16) if int(sizes.max(initial=0)) < 2**16 else sizes[order]
        order = order[np.argsort(small, kind="stable")]
    return order
