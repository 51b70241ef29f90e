"""What one person adds to the counts of listed items: whole units, so that sums are exact and order-free.

Users' listed items are numbers of the public list: user u has items[offsets[u]:offsets[u+1]], distinct.
"""

from __future__ import annotations

import numpy as np

from dpunion.contributions import Bools, Float64s, Int32s, Int64s, Uint64s
from dpunion.kernels.compiler import kernel

WHOLE = 2**16
"""The distance between two marks is divided into this many parts."""


@kernel
def copy_listed(
    offsets: Int64s, items: Int32s, numbers: Int32s, listed: Int32s, sizes: Int64s, anything: Bools, others: Bools
) -> int:
    """Copy the listed items of every user, as numbers of the list, to listed: int32[pairs]. Returns how many.

    numbers: int32[items], public: the place on the list, -1 when not listed, -2 when known and not listed. sizes:
    int64[users] gets how many; anything, others: bool[users] whether the user has anything, and anything unlisted.
    In-place use (listed is items) is fine: what is written is never ahead of what is read.

    Guarantees: what is written about a user depends on the user's own items and the public numbers alone.
    """
    to = 0
    for user in range(len(offsets) - 1):
        before = to
        other = False
        for i in range(offsets[user], offsets[user + 1]):
            # subtle: no branch, which the processor could mispredict; the next number overwrites an unlisted one.
            number = numbers[np.uint32(items[i])]
            listed[to] = number
            to += number >= 0
            other |= number == -1
        sizes[user] = to - before
        anything[user] = offsets[user + 1] > offsets[user]
        others[user] = other
    return to


@kernel
def find_in_buckets(digests: Uint64s, starts: Int64s, shift: int, listed: Uint64s) -> Int64s:
    """Return each digest's place on the list, or -1: int64[digests]; starts: of those of each first word >> shift.

    Guarantees: a place tells nothing but which digests are equal.
    """
    places = np.full(len(digests), -1, np.int64)
    for i in range(len(listed)):
        bucket = np.int64(listed[i, 0] >> np.uint64(shift))
        for at in range(starts[bucket], starts[bucket + 1]):
            if digests[at, 0] == listed[i, 0] and digests[at, 1] == listed[i, 1]:
                places[at] = i
    return places


@kernel
def add_marks(offsets: Int64s, items: Int32s, burdens: Int64s, marks: Int64s, unit: int, sums: Int64s) -> None:
    """Add `unit` for each user with listed items, divided between the two marks around the sum of the user's burdens.

    The nearer mark gets more, so that their weighted mean is the user's burden. In-place on sums: int64[marks].
    burdens: int64[items], public and positive; marks: int64[n], rising.

    Guarantees: what a user adds is not negative and sums up to exactly `unit`; users without listed items add nothing.
    """
    for user in range(len(offsets) - 1):
        first, last = offsets[user], offsets[user + 1]
        if first == last:
            continue
        burden = 0
        for i in range(first, last):
            burden += burdens[np.uint32(items[i])]
        place, upper = between_marks(marks, burden)
        above = unit * upper // WHOLE
        sums[place] += unit - above
        if upper > 0:
            sums[place + 1] += above


@kernel
def between_marks(marks: Int64s, burden: int) -> tuple[int, int]:
    """Return the mark below and how far the burden is on the way to the next, in parts of WHOLE.

    marks: int64[n], rising. A burden below the first mark or above the last one counts as that mark.
    """
    if burden < marks[0]:
        return 0, 0
    low, high = 0, len(marks)
    while high - low > 1:
        middle = (low + high) >> 1
        if marks[middle] <= burden:
            low = middle
        else:
            high = middle
    if high == len(marks):
        return low, 0
    return low, int(WHOLE * ((burden - marks[low]) / (marks[high] - marks[low])))


@kernel
def add_capped(offsets: Int64s, items: Int32s, weights: Int64s, room: int, most: int, sums: Int64s) -> None:
    """Add the weight of each listed item, capped so that the user's squares add up to at most `room`. In-place on sums.

    weights: int64[items], public, at most 2^24; most: at least the largest set; sums: int64[items].

    Guarantees: whatever the weights, the squares of what one user adds sum up to at most room, in whole numbers.
    """
    squares = np.empty(most, np.int64)
    # subtle: numba checks whether a signed index counts from the end, so items are unsigned here.
    for user in range(len(offsets) - 1):
        own = items[offsets[user] : offsets[user + 1]]
        total = 0
        for item in own:
            weight = weights[np.uint32(item)]
            sums[np.uint32(item)] += weight
            total += weight * weight
        if total > room:
            for i in range(len(own)):
                squares[i] = weights[np.uint32(own[i])] ** 2
            cap = cap_of(squares[: len(own)], room)
            for item in own:
                sums[np.uint32(item)] -= max(0, weights[np.uint32(item)] - cap)


@kernel
def cap_of(squares: Int64s, room: int) -> int:
    """Return the largest whole t whose squares min(square, t^2) sum up to at most room; squares: int64[n], overwritten.

    The level starts at room/n. Squares below it count in full and leave others more: it rises until none is below it.

    Guarantees: the sum is at most room; all arithmetic is in whole numbers.
    """
    level, left = room // max(1, len(squares)), len(squares)
    while left:
        above = 0
        for i in range(left):
            square = squares[i]
            squares[above] = square
            is_above = square > level
            above += is_above
            room -= (1 - is_above) * square
        if above in (0, left):
            break
        level, left = room // above, above
    return whole_root(level)


@kernel
def whole_root(value: int) -> int:
    """Return the whole square root of 0 <= value < 2^62, rounded down."""
    root = int(np.sqrt(np.float64(value)))
    while root * root > value:
        root -= 1
    while (root + 1) * (root + 1) <= value:
        root += 1
    return root


@kernel
def lower_to_parts(values: Float64s, variances: Float64s, parts: Int32s, sweeps: int, enough: float) -> None:
    """Move values as little as possible, weighed by variances, so that none exceeds its parts. In-place on values.

    parts: int32[n, 2], the places of the two parts, -1 where there is none. Hildreth's method, with at most this many
    sweeps, or until no step is larger than `enough` standard deviations.

    Guarantees: only noisy, public values come in; it is the projection onto the values that obey all inequalities, so
    no further from any such values than before.
    """
    pressure = np.zeros(parts.shape)
    for _ in range(sweeps):
        largest = 0.0
        for child in range(len(values)):
            for side in range(2):
                parent = parts[child, side]
                if parent < 0:
                    continue
                both = variances[child] + variances[parent]
                before = pressure[child, side]
                after = max(0.0, before + (values[child] - values[parent]) / both)
                step = after - before
                if step != 0.0:
                    pressure[child, side] = after
                    values[child] -= step * variances[child]
                    values[parent] += step * variances[parent]
                    largest = max(largest, abs(step) * np.sqrt(both))
        if largest <= enough:
            break
