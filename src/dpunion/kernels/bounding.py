"""Keep a limited number of each user's items, copy users in visiting order, and drop items.

All kernels see integers only. A user's items are grouped[starts[u] : starts[u] + sizes[u]].
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpunion.contributions import Int32s, Int64s, Uint64s
from dpunion.kernels.compiler import kernel
from dpunion.kernels.hashing import siphash24

FEW, AT_ONCE, FIRST_BITS = 64, 64, 8
OTHER_BITS = np.uint64(64 - FIRST_BITS)


@kernel
def keep_random(
    starts: Int64s,
    grouped: Int32s,
    sizes: Int64s,
    heavy: Int64s,
    heavy_keys: Uint64s,
    item_digests: Uint64s,
    max_items: int,
) -> None:
    """Keep `max_items` random items of each heavy user, who has more. In-place on grouped and sizes.

    heavy: int64[n], users; heavy_keys: uint64[n, 2]; item_digests: uint64[items, 2]. The smallest keyed hashes stay.

    Guarantees: what one user keeps depends on that user's own items and the key alone; at most max_items stay.
    """
    for place in range(len(heavy)):
        user = heavy[place]
        size, start = sizes[user], starts[user]
        # subtle: the digests are fetched first, so that hashing itself runs on vector registers.
        first, second, priorities = np.empty(size, np.uint64), np.empty(size, np.uint64), np.empty(size, np.uint64)
        for i in range(size):
            item = np.uint32(grouped[start + i])
            first[i], second[i] = item_digests[item, 0], item_digests[item, 1]
        key_0, key_1 = heavy_keys[place, 0], heavy_keys[place, 1]
        for i in range(size):
            priorities[i] = siphash24(key_0, key_1, first[i], second[i])
        last = kth_smallest(priorities, max_items - 1)
        ties = max_items
        for i in range(size):
            ties -= priorities[i] < last
        to = start
        # subtle: no branches, which the processor could not predict; the next item overwrites one that does not stay.
        for i in range(size):
            tied = priorities[i] == last and ties > 0
            ties -= tied
            grouped[to] = grouped[start + i]
            to += priorities[i] < last or tied
        sizes[user] = max_items


@kernel
def kth_smallest(values: Uint64s, k: int) -> np.uint64:
    """Return the value at place k of values: uint64[n], if they were sorted.

    Many values are counted by their first bits, as hashes spread evenly; only those with the right bits are searched.
    """
    if len(values) <= FEW:
        return select_smallest(values.copy(), k)
    counts = np.zeros(1 << FIRST_BITS, np.int64)
    for value in values:
        counts[value >> OTHER_BITS] += 1
    bucket = 0
    while k >= counts[bucket]:
        k -= counts[bucket]
        bucket += 1
    # One place more than needed: a value outside the bucket is overwritten, or ends up in the last place.
    inside = np.empty(counts[bucket] + 1, np.uint64)
    found = 0
    for value in values:
        inside[found] = value
        found += value >> OTHER_BITS == np.uint64(bucket)
    return select_smallest(inside[:found], k)


@kernel
def select_smallest(values: Uint64s, k: int) -> np.uint64:
    """Return the value at place k of values: uint64[n], if they were sorted; reorder them (quickselect).

    subtle: numpy's partition does the same, but loading its compiled form takes as long as bounding a small data set.
    """
    low, high = 0, len(values) - 1
    while low < high:
        pivot = values[(low + high) >> 1]
        left, right = low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while values[right] > pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if k <= right:
            high = right
        elif k >= left:
            low = left
        else:
            break
    found: np.uint64 = values[k]
    return found


@kernel
def drop_items(starts: Int64s, grouped: Int32s, sizes: Int64s, unwanted: npt.NDArray[np.bool_]) -> None:
    """Drop unwanted items from every set. In-place on grouped and sizes; unwanted: bool[items], public.

    Guarantees: each user keeps exactly the user's own other items, in order.
    """
    for user in range(len(sizes)):
        to = starts[user]
        for i in range(starts[user], starts[user] + sizes[user]):
            if not unwanted[grouped[i]]:
                grouped[to] = grouped[i]
                to += 1
        sizes[user] = to - starts[user]


@kernel
def gather_users(starts: Int64s, grouped: Int32s, order: Int64s, new_offsets: Int64s, items: Int32s) -> None:
    """Copy users in the given order to items: int32[pairs]. Guarantees: a user's items stay together and in order."""
    starting = np.empty(AT_ONCE, np.int64)
    for first in range(0, len(order), AT_ONCE):
        last = min(first + AT_ONCE, len(order))
        # subtle: a separate loop, in which the processor does not wait for one access before the next.
        for place in range(first, last):
            starting[place - first] = starts[np.uint64(order[place])]
        for place in range(first, last):
            target = items[new_offsets[place] : new_offsets[place + 1]]
            start = starting[place - first]
            source = grouped[start : start + len(target)]
            for i in range(len(target)):
                target[i] = source[i]


@kernel
def count_items(items: Int32s, counts: Int64s) -> None:
    """Add to counts: int64[number of items] how often each item occurs in items: int32[pairs]. In-place on counts.

    Guarantees: an item that does not occur is not counted.
    """
    for item in items:
        counts[np.uint32(item)] += 1


@kernel
def narrow_users(
    offsets: Int64s, items: Int32s, alive: npt.NDArray[np.bool_], kept: Int32s, ends: Int64s, stayed: Int64s
) -> int:
    """Copy each user's alive items to kept: int32[pairs]. Returns how many users have any.

    alive: bool[items]. ends, stayed: int64[users]; for those with any, the end of their items in kept, and the user's
    number. kept may be items itself: writing is never ahead of reading.

    Guarantees: each user keeps exactly the user's own alive items, in order.
    """
    # subtle: unsigned, because numba checks every signed index for counting from the end.
    to, users = np.uint64(0), np.uint64(0)
    for user in range(len(offsets) - 1):
        before = to
        # subtle: no branch, which the processor could not predict; the next item overwrites one that is not alive.
        for i in range(np.uint64(offsets[user]), np.uint64(offsets[user + 1])):
            item = items[i]
            kept[to] = item
            to += np.uint64(alive[np.uint32(item)])
        ends[users], stayed[users] = to, user
        users += np.uint64(to > before)
    return int(users)
