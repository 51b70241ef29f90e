"""Numbered rows -> Contributions: group by user, drop duplicates, bound, and put the users in visiting order."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Callable

import numpy as np

from dpunion.algorithms import Bounding, UserOrder
from dpunion.contributions import Bools, Contributions, Int32s, Int64s, ItemTable, Uint32s, Uint64s, offsets_of
from dpunion.kernels.bounding import drop_items, gather_users, keep_random
from dpunion.kernels.grouping import count_blocks, group_block, order_by_digest, order_by_size, pack_rows
from dpunion.randomness import Purpose, RunKey
from dpunion.sets.spill import Chunk, RowStore
from dpunion.threads import Task, share_count, usable_cores, work_in_threads

ROWS_PER_BLOCK = 1 << 17
MOST_BLOCKS = 4096
NARROW_BITS = 32
PAIRS_PER_USER = 100


def group_rows(
    rows: RowStore,
    renumbered: Int32s,
    user_digests: Uint64s,
    table: ItemTable,
    key: RunKey,
    max_items: int,
    user_order: UserOrder,
    unwanted: Bools | None = None,
    threads: int | None = None,
    by_digest: Task[Int64s] | None = None,
) -> Contributions:
    """Turn the stored rows into contributions; the store is empty afterwards.

    renumbered: int32[raw items], the final number of each raw one; user_digests: uint64[users, 2]; unwanted:
    bool[items], public, the items to drop from every set before bounding. threads: by default one for each usable
    core. by_digest: a task that computes digest_order(user_digests); its result is taken.

    Guarantees:
    - the number of threads changes nothing;
    - duplicate rows, and the order of rows, change nothing;
    - what a user keeps, and the user's place in the order, depends on that user's own rows and the key alone.
    """
    # subtle: what bound_rows returns is freed with this call, so that rows and digests are not both in memory twice.
    count = threads or usable_cores()
    offsets, items, digests = lay_out_users(
        *bound_rows(rows, renumbered, user_digests, table, key, max_items, unwanted, count),
        user_digests,
        user_order,
        count,
        rows.take_room,
        by_digest,
    )
    return Contributions(offsets, items, table, digests, max_items)


def lay_out_users(
    starts: Int64s,
    sizes: Int64s,
    kept: Int32s,
    user_digests: Uint64s,
    user_order: UserOrder,
    threads: int,
    room: Callable[[int], Int32s] = lambda size: np.empty(size, np.int32),
    by_digest: Task[Int64s] | None = None,
) -> tuple[Int64s, Int32s, Uint64s]:
    """Copy the users' items and digests in visiting order, in some threads: (offsets, items, digests).

    room: returns memory for this many items. by_digest: as for group_rows. offsets: int64[users+1]; items:
    int32[pairs]; digests: uint64[users, 2]. Guarantees: each user's items stay together and in order.
    """
    order = visiting_order(sizes, user_digests, user_order, by_digest)
    offsets = np.zeros(len(order) + 1, np.int64)
    # subtle: in its default mode numpy writes to a copy of `out` first, here and below.
    np.take(sizes, order, out=offsets[1:], mode="clip")
    np.cumsum(offsets[1:], out=offsets[1:])
    items, digests = room(int(offsets[-1])), np.empty_like(user_digests)

    def gather(some: range) -> None:
        mine = order[some.start : some.stop]
        gather_users(starts, kept, mine, offsets[some.start : some.stop + 1], items)
        np.take(user_digests, mine, axis=0, out=digests[some.start : some.stop], mode="clip")

    work_in_threads(gather, gathering_ranges(offsets, share_count(threads)), threads)
    return offsets, items, digests


def gathering_ranges(offsets: Int64s, parts: int) -> list[range]:
    """Return at most `parts` ranges that cover all users and take about the same time to gather.

    Finding where a user's items are takes as long as copying PAIRS_PER_USER of them.
    """
    users = len(offsets) - 1
    whole = int(offsets[-1]) + PAIRS_PER_USER * users

    def cost(user: int) -> int:
        return int(offsets[user]) + PAIRS_PER_USER * user

    cuts = [bisect.bisect_left(range(users), whole * part // parts, key=cost) for part in range(1, parts)]
    return ranges_of([0, *cuts, users])


def bound_rows(
    rows: RowStore,
    renumbered: Int32s,
    user_digests: Uint64s,
    table: ItemTable,
    key: RunKey,
    max_items: int,
    unwanted: Bools | None,
    threads: int,
) -> tuple[Int64s, Int64s, Int32s]:
    """Group and bound the stored rows, part by part: (starts, sizes, kept), int64[users] twice and int32[>= pairs].

    User u's items are kept[starts[u] : starts[u] + sizes[u]].

    Guarantees: what a user keeps depends on that user's own rows and the key alone.
    """
    starts = sizes = np.empty(0, np.int64)
    pieces: list[Int32s] = []
    placed = 0
    for phase, stride, chunks in rows.give_back():
        mine = slice(phase, None, stride)
        part_starts, part_sizes, grouped = group_part(chunks, len(user_digests[mine]), renumbered, len(table), threads)
        if unwanted is not None:
            drop_items(part_starts, grouped, part_sizes, unwanted)
        bound_sets(part_starts, grouped, part_sizes, user_digests[mine], table.digests, key, max_items, threads)
        if stride == 1:
            return part_starts, part_sizes, grouped
        if not pieces:
            starts, sizes = np.zeros(len(user_digests), np.int64), np.zeros(len(user_digests), np.int64)
        offsets, grouped = compact_items(part_starts, part_sizes, grouped)
        starts[mine], sizes[mine] = offsets[:-1] + placed, part_sizes
        pieces.append(grouped)
        placed += len(grouped)
    return starts, sizes, np.concatenate(pieces)


def bound_further(
    looser: Contributions,
    bounding: Bounding,
    key: RunKey,
    unwanted: Bools | None = None,
    threads: int | None = None,
    *,
    in_place: bool = False,
) -> Contributions:
    """Drop unwanted items, bound sets to fewer items, and put the users in visiting order.

    in_place: allow to overwrite the looser sets.

    Guarantees: what a user keeps depends on that user's own set and the key alone; if the sets were read with this key,
    it is what reading with this bound would have kept.
    """
    count = threads or usable_cores()
    if in_place and unwanted is None and bounding.order is UserOrder.SMALLEST_FIRST:
        return _bound_last(looser, bounding, key, count)
    starts, sizes, items = looser.offsets[:-1], np.diff(looser.offsets), looser.items
    if unwanted is not None or int(sizes.max(initial=0)) > bounding.limit:
        items = items if in_place else items.copy()
        if unwanted is not None:
            drop_items(starts, items, sizes, unwanted)
        bound_sets(starts, items, sizes, looser.user_digests, looser.table.digests, key, bounding.limit, count)
    offsets, kept, digests = lay_out_users(starts, sizes, items, looser.user_digests, bounding.order, count)
    return Contributions(offsets, kept, looser.table, digests, bounding.limit)


def copy_heavy_users(sets: Contributions, limit: int) -> tuple[Contributions, Contributions]:
    """Return the users with fewer items than the limit, sharing memory, and a copy of the others.

    The sets are in the order smallest first. `bound_further` in place, with this limit, changes neither result.

    Guarantees: each user is in one of the two, by the size of the user's own set.
    """
    offsets, digests = sets.offsets, sets.user_digests
    first = int(np.searchsorted(np.diff(offsets), limit))
    begin = offsets[first]
    light = dataclasses.replace(
        sets, offsets=offsets[: first + 1], items=sets.items[:begin], user_digests=digests[:first]
    )
    heavy = dataclasses.replace(
        sets, offsets=offsets[first:] - begin, items=sets.items[begin:].copy(), user_digests=digests[first:].copy()
    )
    return light, heavy


def _bound_last(looser: Contributions, bounding: Bounding, key: RunKey, threads: int) -> Contributions:
    """Do the same for sets in the order smallest first: only the last, with the limit or more, change. In-place."""
    offsets, sizes = looser.offsets, np.diff(looser.offsets)
    first = int(np.searchsorted(sizes, bounding.limit))
    begin, digests = int(offsets[first]), looser.user_digests[first:]
    starts, last, items = offsets[first:-1] - begin, sizes[first:].copy(), looser.items[begin:]
    bound_sets(starts, items, last, digests, looser.table.digests, key, bounding.limit, threads)
    ends, kept, digests = lay_out_users(starts, last, items, digests, bounding.order, threads)
    offsets[first:] = begin + ends
    looser.items[begin : begin + len(kept)] = kept
    looser.user_digests[first:] = digests
    return dataclasses.replace(looser, items=looser.items[: begin + len(kept)], max_items_per_user=bounding.limit)


def bound_sets(
    starts: Int64s,
    grouped: Int32s,
    sizes: Int64s,
    user_digests: Uint64s,
    digests: Uint64s,
    key: RunKey,
    max_items: int,
    threads: int = 1,
    bound_round: int = 0,
) -> None:
    """Keep random items of the users who have too many, in some threads; in place on `grouped` and `sizes`.

    digests: uint64[items, 2], of all items.

    Guarantees: what a user keeps depends on that user's own items and the key alone.
    """
    heavy = np.flatnonzero(sizes > max_items)
    heavy_keys = key.words(Purpose.BOUND, bound_round, user_digests.take(heavy, axis=0))

    def keep(some: range) -> None:
        mine = slice(some.start, some.stop)
        keep_random(starts, grouped, sizes, heavy[mine], heavy_keys[mine], digests, max_items)

    work_in_threads(keep, heavy_ranges(np.cumsum(sizes[heavy]), share_count(threads)), threads)


def group_part(
    chunks: list[Chunk], users: int, renumbered: Int32s, items: int, threads: int
) -> tuple[Int64s, Int64s, Int32s]:
    """Sort one part of the rows in blocks that fit the cache, in some threads; the chunks are used up.

    Returns (starts, sizes, grouped): int64[users] twice and int32[>= rows].
    Guarantees: each user's items are distinct and in rising order.
    """
    rows = sum(len(own) for *_, own in chunks)
    bits = max(1, int(items - 1).bit_length())
    shift = block_shift(users, rows, bits)
    # Each team of chunks is counted, then packed; within a block its rows follow those of the teams before it.
    teams = [chunks[some.start : some.stop] for some in even_ranges(len(chunks), share_count(threads))]
    chunks.clear()
    counted = np.zeros((len(teams), (users >> shift) + 1), np.int64)

    def count(team: int) -> None:
        for owners, lengths, _ in teams[team]:
            count_blocks(owners, lengths, shift, counted[team])

    work_in_threads(count, range(len(teams)), threads)
    counts = counted.sum(axis=0)
    ends = np.cumsum(counts)
    heads = (ends - counts) + np.cumsum(counted, axis=0) - counted
    packed: Uint32s | Uint64s = np.empty(rows, np.uint32)
    if bits + shift > NARROW_BITS:
        packed = np.empty(rows, np.uint64)

    def pack(team: int) -> None:
        while teams[team]:
            pack_rows(*teams[team].pop(), renumbered, shift, bits, heads[team], packed)

    work_in_threads(pack, range(len(teams)), threads)
    starts, sizes = np.zeros(users, np.int64), np.zeros(users, np.int64)

    def sort_blocks(blocks: range) -> None:
        scratch = np.empty(max((counts[block] for block in blocks), default=0), packed.dtype)
        for block in blocks:
            begin, end = ends[block] - counts[block], ends[block]
            group_block(packed, scratch, begin, end, block << shift, bits, shift, starts, sizes)

    work_in_threads(sort_blocks, heavy_ranges(ends, share_count(threads)), threads)
    return starts, sizes, packed.view(np.int32)


def even_ranges(count: int, parts: int) -> list[range]:
    """Return at most `parts` ranges of about equal length that cover 0..count-1; none is empty."""
    return ranges_of([count * part // parts for part in range(parts + 1)])


def heavy_ranges(ends: Int64s, parts: int) -> list[range]:
    """Return at most `parts` ranges that cover all places, of about equal weight; none is empty.

    ends: int64[places], rising: the weight of all places up to each one.
    """
    whole = int(ends[-1]) if len(ends) else 0
    wanted = np.array([whole * part // parts for part in range(1, parts)], np.int64)
    return ranges_of([0, *np.searchsorted(ends, wanted, side="right").tolist(), len(ends)])


def ranges_of(cuts: list[int]) -> list[range]:
    """Return the ranges between cuts, without empty ones."""
    return [range(start, stop) for start, stop in itertools.pairwise(cuts) if start < stop]


def compact_items(starts: Int64s, sizes: Int64s, grouped: Int32s) -> tuple[Int64s, Int32s]:
    """Return the kept items of all users without gaps: (offsets, items), int64[users+1] and int32[pairs]."""
    offsets = offsets_of(sizes)
    kept = np.empty(int(offsets[-1]), np.int32)
    gather_users(starts, grouped, np.arange(len(sizes)), offsets, kept)
    return offsets, kept


def block_shift(users: int, rows: int, item_bits: int) -> int:
    """Return how many bits of a user's number are within a block: about 2^17 rows, and at most 4096 blocks.

    A block has fewer rows if a user and an item then fit into four bytes.
    """
    wanted = max(users * ROWS_PER_BLOCK // max(rows, 1), users // MOST_BLOCKS, 1)
    shift = min(wanted.bit_length() - 1 + (users >> (wanted.bit_length() - 1) >= MOST_BLOCKS), 30)
    fitting = NARROW_BITS - item_bits
    return fitting if 0 <= fitting < shift and users >> fitting < MOST_BLOCKS else shift


def visiting_order(
    sizes: Int64s, user_digests: Uint64s, user_order: UserOrder, by_digest: Task[Int64s] | None = None
) -> Int64s:
    """Return the users in visiting order: int64[users]. Their keyed digests are the random order.

    by_digest: as for group_rows.

    Guarantees: each sort key depends on that user's own data and the run key: adding a user never reorders the others.
    """
    order = digest_order(user_digests) if by_digest is None else by_digest.take()
    if user_order is UserOrder.SMALLEST_FIRST:
        order = order_by_size(sizes, order, int(sizes.max(initial=0)))
    return order


def digest_order(digests: Uint64s) -> Int64s:
    """Return the places of 128-bit digests in rising order: int64[n]."""
    order = np.empty(len(digests), np.int64)
    order_by_digest(digests, order)
    return order
