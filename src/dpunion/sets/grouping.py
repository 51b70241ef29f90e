"""Numbered rows -> Contributions: group by user, drop duplicates, bound, lay the users out in visiting order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np

from dpunion.algorithms import Bounding, UserOrder
from dpunion.contributions import Bools, Contributions, Int32s, Int64s, ItemTable, Uint64s, offsets_of
from dpunion.kernels.bounding import drop_items, gather_users, keep_random
from dpunion.kernels.grouping import count_blocks, group_block, has_ties, pack_rows
from dpunion.randomness import Purpose, RunKey
from dpunion.sets.spill import Part, RowStore
from dpunion.threads import Threads

T = TypeVar("T")

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
    # subtle: the arguments are gone when the call returns, so that the rows and the digests are not both there twice.
    order, offsets, items = laid_out(
        *bounded_rows(rows, renumbered, user_digests, table, key, max_items, unwanted), user_digests, user_order
    )
    return Contributions(offsets, items, table, user_digests[order], max_items)


def laid_out(
    starts: Int64s, sizes: Int64s, kept: Int32s, user_digests: Uint64s, user_order: UserOrder
) -> tuple[Int64s, Int64s, Int32s]:
    """Copy the users' items in visiting order, on both cores: (order, offsets, items).

    order: int64[users]; offsets: int64[users+1]; items: int32[pairs].
    Guarantees: those of visiting_order; each user's items stay together and in order.
    """
    order = visiting_order(sizes, user_digests, user_order)
    offsets = offsets_of(sizes[order])
    items = np.empty(int(offsets[-1]), np.int32)
    middle = int(np.searchsorted(offsets, offsets[-1] // 2))
    in_threads(
        lambda some: gather_users(starts, kept, order[some], offsets[some.start : some.stop + 1], items),
        [slice(0, middle), slice(middle, len(order))],
    )
    return order, offsets, items


def bounded_rows(
    rows: RowStore,
    renumbered: Int32s,
    user_digests: Uint64s,
    table: ItemTable,
    key: RunKey,
    max_items: int,
    unwanted: Bools | None,
) -> tuple[Int64s, Int64s, Int32s]:
    """Group and bound the stored rows, part by part: (starts, sizes, kept), int64[users] twice and int32[>= pairs].

    Guarantees: those of group_rows; user u's items are kept[starts[u] : starts[u] + sizes[u]].
    """
    starts = sizes = np.empty(0, np.int64)
    pieces: list[Int32s] = []
    placed = 0
    for part in rows.parts():
        mine = slice(part.phase, None, part.stride)
        part_starts, part_sizes, grouped = group_part(part, len(user_digests[mine]), renumbered, len(table))
        if unwanted is not None:
            drop_items(part_starts, grouped, part_sizes, unwanted)
        bound_sets(part_starts, grouped, part_sizes, user_digests[mine], table, key, max_items)
        if part.stride == 1:
            return part_starts, part_sizes, grouped
        if not pieces:
            starts, sizes = np.zeros(len(user_digests), np.int64), np.zeros(len(user_digests), np.int64)
        grouped, part_starts = compacted(part_starts, part_sizes, grouped)
        starts[mine], sizes[mine] = part_starts + placed, part_sizes
        pieces.append(grouped)
        placed += len(grouped)
    return starts, sizes, np.concatenate(pieces)


def bound_again(everything: Contributions, bounding: Bounding, key: RunKey) -> Contributions:
    """Bound whole sets as a release with this key would, and lay them out in visiting order; they stay as they are.

    Guarantees: those of group_rows.
    """
    # subtle: words of a digest under this key are as good as digests of the name under it.
    user_digests = key.words(Purpose.USER, 0, everything.user_digests)
    starts, sizes, items = everything.offsets[:-1], np.diff(everything.offsets), everything.items
    if int(sizes.max(initial=0)) > bounding.limit:
        items = items.copy()
        bound_sets(starts, items, sizes, user_digests, everything.table, key, bounding.limit)
    order, offsets, kept = laid_out(starts, sizes, items, user_digests, bounding.order)
    return Contributions(offsets, kept, everything.table, user_digests[order], bounding.limit)


def bound_sets(
    starts: Int64s,
    grouped: Int32s,
    sizes: Int64s,
    user_digests: Uint64s,
    table: ItemTable,
    key: RunKey,
    max_items: int,
) -> None:
    """Keep random items of the users who hold too many, on both cores; in place on `grouped` and `sizes`.

    Guarantees: those of keep_random; what a user keeps depends on that user's own items and the key alone.
    """
    heavy = np.flatnonzero(sizes > max_items)
    heavy_keys = key.words(Purpose.BOUND, 0, user_digests[heavy])

    def keep(some: slice) -> None:
        keep_random(starts, grouped, sizes, heavy[some], heavy_keys[some], table.digests, max_items)

    in_threads(keep, halves(len(heavy)))


def group_part(part: Part, users: int, renumbered: Int32s, items: int) -> tuple[Int64s, Int64s, Int32s]:
    """Sort one part of the rows in blocks that fit the cache, on both cores.

    Returns (starts, sizes, grouped): int64[users] twice and int32[>= rows].
    Guarantees: each user's items are distinct and in rising order.
    """
    rows = sum(len(chunk) for chunk, _ in part.chunks)
    shift = block_shift(users, rows)
    # Each thread counts, and then packs, its own chunks; within a block the second one's rows follow the first one's.
    teams = [part.chunks[some] for some in halves(len(part.chunks))]
    part.chunks.clear()
    counted = np.zeros((len(teams), (users >> shift) + 1), np.int64)

    def count(team: int) -> None:
        for chunk, _ in teams[team]:
            count_blocks(chunk, shift, counted[team])

    in_threads(count, range(len(teams)))
    counts = counted.sum(axis=0)
    ends = np.cumsum(counts)
    heads = (ends - counts) + np.cumsum(counted, axis=0) - counted
    packed = np.empty(rows, np.uint64)

    def pack(team: int) -> None:
        while teams[team]:
            pack_rows(*teams[team].pop(), renumbered, shift, heads[team], packed)

    in_threads(pack, range(len(teams)))
    starts, sizes = np.zeros(users, np.int64), np.zeros(users, np.int64)
    bits = max(1, int(items - 1).bit_length())

    def sort_blocks(blocks: range) -> None:
        scratch = np.empty(max((counts[block] for block in blocks), default=0), np.uint64)
        for block in blocks:
            begin, end = ends[block] - counts[block], ends[block]
            group_block(packed, scratch, begin, end, block << shift, bits, shift, starts, sizes)

    # Both threads get about half of the rows.
    middle = int(np.searchsorted(ends, rows // 2, side="right"))
    in_threads(sort_blocks, (range(middle), range(middle, len(counts))))
    return starts, sizes, packed.view(np.int32)


def halves(count: int) -> list[slice]:
    """Return two slices that cover 0..count-1."""
    return [slice(0, count // 2), slice(count // 2, count)]


def in_threads(work: Callable[[T], None], shares: Iterable[T]) -> None:
    """Do each share of the work in a thread of its own; kernels run without the interpreter lock."""
    with Threads(THREADS) as threads:
        for task in [threads.submit(work, share) for share in shares]:
            task.result()


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
    order = digest_order(user_digests)
    if user_order is UserOrder.SMALLEST_FIRST:
        # subtle: numpy sorts 16-bit keys stably by radix, in linear time; max_items_per_user is far below 2^16.
        small = sizes[order].astype(np.uint16) if int(sizes.max(initial=0)) < 2**16 else sizes[order]
        order = order[np.argsort(small, kind="stable")]
    return order


def digest_order(digests: Uint64s) -> Int64s:
    """Return the places of 128-bit digests in rising order: int64[n]; the second word is looked at when it matters."""
    order = np.argsort(digests[:, 0])
    if has_ties(digests, order):
        return np.lexsort((digests[:, 1], digests[:, 0]))
    return order
