"""Weights that users give their items: even shares, or raised in turn toward a target, with a contraction proof.

offsets: int64[users+1], items: int32[pairs], weights: float64[items], changed in place and never above the cutoff.
Users are visited in their order. An item whose weight is at the cutoff, or whose gap is zero, changes nothing, to the
last bit: neither its weight nor what other items get.

subtle: items become unsigned, because numba checks every signed index for counting from the end.
"""

from __future__ import annotations

import math

import numpy as np

from dpunion.contributions import Float64s, Int32s, Int64s
from dpunion.kernels.compiler import inlined, kernel


@kernel
def add_shares(offsets: Int64s, items: Int32s, share_of_size: Int64s, weights: Int64s) -> None:
    """Add share_of_size[number of the user's items] to each of them. In-place on weights: int64[items].

    The weights are exact integers, so the order of the users does not matter.

    Guarantees: a user with k items adds exactly share_of_size[k] to k items and nothing elsewhere.
    """
    for user in range(len(offsets) - 1):
        share = share_of_size[offsets[user + 1] - offsets[user]]
        for i in range(offsets[user], offsets[user + 1]):
            weights[np.uint32(items[i])] += share


@inlined
def sum_squares(own: Int32s, weights: Float64s, cutoff: float) -> float:
    """Return the sum of the squares of cutoff - weight over a user's own items: int32[n].

    subtle: one sum, in order, to which a gap of zero adds nothing: so sets may lack items without a gap.
    """
    total = 0.0
    for item in own:
        gap = cutoff - weights[np.uint32(item)]
        total += gap * gap
    return total


@kernel
def descend_l2(offsets: Int64s, items: Int32s, weights: Float64s, cutoff: float, budget: float) -> None:
    """Move each user's weights straight toward the cutoff by l2 distance at most `budget`.

    arXiv 2002.09745, Alg. 4, with H <- cutoff in the near case (as printed it is not a contraction).

    Guarantees: one user moves the weights by at most `budget` in l2 norm; two histograms never move apart.
    """
    for user in range(len(offsets) - 1):
        own = items[offsets[user] : offsets[user + 1]]
        squares = sum_squares(own, weights, cutoff)
        if squares <= budget * budget:
            for item in own:
                weights[np.uint32(item)] = cutoff
        else:
            step = budget / math.sqrt(squares)
            for item in own:
                weights[np.uint32(item)] += (cutoff - weights[np.uint32(item)]) * step


@kernel
def descend_l1(
    offsets: Int64s, items: Int32s, weights: Float64s, cutoff: float, budget: float, scratch: Float64s
) -> None:
    """Raise each user's weights by a common amount, none above the cutoff, by l1 distance at most `budget`.

    arXiv 2002.09745, Alg. 6 (l1-descent). scratch: float64[largest number of items of a user].

    Guarantees: one user moves the weights by at most `budget` in l1 norm; two histograms never move apart.
    """
    for user in range(len(offsets) - 1):
        start = offsets[user]
        size = offsets[user + 1] - start
        total = 0.0
        for i in range(size):
            gap = cutoff - weights[items[start + i]]
            scratch[i] = gap
            total += gap
        if total <= budget:
            for i in range(size):
                weights[items[start + i]] = cutoff
            continue
        gaps = np.sort(scratch[:size])
        filled = 0.0
        raise_by = budget / size
        for i in range(size):
            raise_by = (budget - filled) / (size - i)
            if gaps[i] >= raise_by:
                break
            filled += gaps[i]
        for i in range(size):
            if scratch[i] <= raise_by:
                weights[items[start + i]] = cutoff
            else:
                weights[items[start + i]] += raise_by


@kernel
def descend_ball(offsets: Int64s, items: Int32s, gaps: Float64s, radius: float) -> None:
    """Close each user's gaps by the projection onto the ball {|y|_2 <= radius}.

    gaps: float64[items], each item's own target minus its weight, at least 0; changed in place. The projection of a
    gap g is q g with the largest q <= 1 for which its norm is at most radius (docs/guarantees.md).

    Guarantees: one user moves the gaps by at most `radius` in l2 norm; two histograms under the same targets never
    move apart.
    """
    for user in range(len(offsets) - 1):
        own = items[offsets[user] : offsets[user + 1]]
        squares = sum_squares(own, gaps, 0.0)
        step = 1.0
        if squares > radius * radius:
            step = radius / math.sqrt(squares)
        for item in own:
            gaps[np.uint32(item)] -= step * gaps[np.uint32(item)]
