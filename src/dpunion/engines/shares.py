"""What a user with k items gives each of them, as exact integers."""

from __future__ import annotations

import math

import numpy as np

from dpunion.contributions import Float64s, Int64s

# Weights are whole multiples of this, so their sums are exact and order-free.
SHARE_UNIT = 2.0**-32


def count_shares(limit: int) -> Int64s:
    """Return 1 for each set size 0..limit, in units of 2^-32: int64[limit+1]."""
    return np.full(limit + 1, 2**32, np.int64)


def l1_shares(limit: int) -> Int64s:
    """Return 1/k for each set size k, in units of 2^-32, rounded down: int64[limit+1]."""
    return np.array([0] + [2**32 // k for k in range(1, limit + 1)], np.int64)


def l2_shares(limit: int) -> Int64s:
    """Return 1/sqrt(k) for each set size k, in units of 2^-32, rounded down: int64[limit+1]."""
    return np.array([0] + [math.isqrt(2**64 // k) for k in range(1, limit + 1)], np.int64)


def in_weight(units: Int64s) -> Float64s:
    """Return whole units as weights: float64, exact below 2^21, far above any threshold where it matters."""
    return np.multiply(units, SHARE_UNIT, dtype=np.float64)
