"""What each user gives every item where all get the same."""

from __future__ import annotations

import enum
import math

import numpy as np

from dpunion.algorithms import Norm, Sensitivity
from dpunion.contributions import Int64s


class ShareRule(enum.Enum):
    """What a user with k items gives each of them: 1, 1/k or 1/sqrt(k)."""

    COUNT = "count"
    L1 = "l1"
    L2 = "l2"

    def of_sizes(self, limit: int) -> Int64s:
        """Return the share for each set size 0..limit, in units of 2^-32, rounded down: int64[limit+1]."""
        if self is ShareRule.COUNT:
            return np.full(limit + 1, 2**32, np.int64)
        if self is ShareRule.L1:
            return np.array([0] + [2**32 // k for k in range(1, limit + 1)], np.int64)
        return np.array([0] + [math.isqrt(2**64 // k) for k in range(1, limit + 1)], np.int64)

    def sensitivity(self, norm: Norm, limit: int) -> Sensitivity:
        """Return how far a user with at most `limit` items moves the weights, in this norm."""
        root = math.sqrt(limit)
        more = {(self.COUNT, Norm.L1): float(limit), (self.COUNT, Norm.L2): root, (self.L2, Norm.L1): root}
        return Sensitivity(norm, more.get((self, norm), 1.0))
