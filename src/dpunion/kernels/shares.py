"""Weights that depend on the user's own items only: exact integers, so their order cannot matter."""

from __future__ import annotations

from dpunion.contributions import Int32s, Int64s
from dpunion.kernels.compiler import kernel


@kernel
def add_shares(offsets: Int64s, items: Int32s, share_of_size: Int64s, weights: Int64s) -> None:
    """Add share_of_size[number of the user's items] to each of them. In-place on weights: int64[items].

    Guarantees: a user with k items adds exactly share_of_size[k] to k items and nothing elsewhere.
    """
    for user in range(len(offsets) - 1):
        share = share_of_size[offsets[user + 1] - offsets[user]]
        for i in range(offsets[user], offsets[user + 1]):
            weights[items[i]] += share
