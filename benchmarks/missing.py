"""The chance that Funnel misses an item that many people keep: a bound by public numbers, no privacy is at stake.

docs/guarantees-funnel.md, "Nothing popular is missing". Each of the people who keep an item closes its gap by at least
the factor 1 - q_r, q_r = min(1, c_r / (sqrt(company) T_r)), where `company` is how many items such a person keeps and
T_r is the highest target of the round. So k of them bring at least the part 1 - (1 - q_r)^k of the item's target,
whatever else they hold, and the chance to be missed is at most that of a walk with just these gifts.
"""

from __future__ import annotations

import math

import numpy as np

from dpunion.algorithms import Funnel
from dpunion.checks import check_whole
from dpunion.contributions import Float64s
from dpunion.kernels.normal import upper_tail

NODES = 200
MOST_KEEPERS = 2**30


def missing_chance(stddev: float, threshold: float, shape: Funnel, keepers: int, company: int | None = None) -> float:
    """Bound the chance that an item which `keepers` people keep is not released, on one machine.

    company: how many items each of them keeps at most; without it, as many as count.

    Backwards over the rounds, by Gauss-Legendre quadrature between the keep line and the threshold.
    """
    check_whole("", "keepers", keepers, 1, MOST_KEEPERS)
    most = shape.max_items_per_user
    size = most if company is None else check_whole("", "company", company, 1, most)
    points, weights = np.polynomial.legendre.leggauss(NODES)
    lines = (*shape.keep_lines(stddev, threshold), threshold)
    cutoffs = shape.cutoffs(stddev, threshold)
    values: Float64s = np.empty(0)
    for r in range(shape.rounds - 1, -1, -1):
        half = 0.5 * (threshold - lines[r - 1]) if r else 0.0
        starts = lines[r - 1] + half * (points + 1.0) if r else np.zeros(1)
        highest = shape.aims[r] * (cutoffs[r] - (lines[r - 1] if r else 0.0))
        brought = 1.0 - (1.0 - min(1.0, shape.shares[r] / (math.sqrt(size) * highest))) ** keepers
        means = starts + shape.shares[r] * shape.aims[r] * brought * np.maximum(0.0, cutoffs[r] - starts)
        spread = shape.shares[r] * stddev
        dropped = np.array([upper_tail((mean - lines[r]) / spread) for mean in means])
        if r + 1 == shape.rounds:
            values = dropped
            continue
        half = 0.5 * (threshold - lines[r])
        nodes = lines[r] + half * (points + 1.0)
        offsets = (nodes[None, :] - means[:, None]) / spread
        density = np.exp(-0.5 * offsets * offsets) / (spread * math.sqrt(2.0 * math.pi))
        values = dropped + density @ (half * weights * values)
    return float(values[0])
