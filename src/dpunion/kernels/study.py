"""Policies of the papers that are NOT private: for the lab and the audit, never for a release.

Arrays as in `descent.py`; weights change in place.
"""

from __future__ import annotations

import math

import numpy as np

from dpunion.contributions import Float64s, Int32s, Int64s
from dpunion.kernels.compiler import kernel


@kernel
def descend_l1_with_l2_budget(offsets: Int64s, items: Int32s, weights: Float64s, cutoff: float, budget: float) -> None:
    """Raise each user's weights by a common amount with l2 norm at most `budget` (arXiv 2002.09745, Alg. 8).

    Guarantees: none. Two histograms can move apart, like sqrt(items per user): docs/guarantees.md, "Errata".
    """
    for user in range(len(offsets) - 1):
        start = offsets[user]
        size = offsets[user + 1] - start
        gaps = np.empty(size)
        squares = 0.0
        for i in range(size):
            gaps[i] = cutoff - weights[items[start + i]]
            squares += gaps[i] * gaps[i]
        if squares <= budget * budget:
            for i in range(size):
                weights[items[start + i]] = cutoff
            continue
        ordered = np.sort(gaps)
        filled = 0.0
        raise_by = 0.0
        for i in range(size):
            raise_by = math.sqrt(max(0.0, budget * budget - filled) / (size - i))
            if ordered[i] >= raise_by:
                break
            filled += ordered[i] * ordered[i]
        for i in range(size):
            weights[items[start + i]] += min(gaps[i], raise_by)


@kernel
def fill_greedily(offsets: Int64s, items: Int32s, weights: Float64s, cutoff: float, budget: float) -> None:
    """Fill each user's items to the cutoff in order of rising gap until the l1 budget is spent (ICML 2020, suppl. E).

    Guarantees: none. The sensitivity is unbounded: docs/guarantees.md, "Errata".
    """
    for user in range(len(offsets) - 1):
        start = offsets[user]
        size = offsets[user + 1] - start
        gaps = np.empty(size)
        for i in range(size):
            gaps[i] = cutoff - weights[items[start + i]]
        left = budget
        for i in np.argsort(gaps, kind="mergesort"):
            given = min(gaps[i], left)
            weights[items[start + i]] += given
            left -= given
            if left <= 0.0:
                break


@kernel
def fill_in_order(offsets: Int64s, items: Int32s, weights: Float64s, cutoff: float, budget: float) -> None:
    """Fill each user's items to the cutoff in the order in which they stand until the l1 budget is spent (GW).

    Carvalho et al. 2022: the order is that of the user's own item counts, most frequent first.
    Guarantees: none. Items the user does not own can become exposed: docs/guarantees.md, "Errata".
    """
    for user in range(len(offsets) - 1):
        left = budget
        for i in range(offsets[user], offsets[user + 1]):
            given = min(max(0.0, cutoff - weights[items[i]]), left)
            weights[items[i]] += given
            left -= given
            if left <= 0.0:
                break
