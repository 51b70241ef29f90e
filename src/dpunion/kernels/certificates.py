"""The exact delta of one noisy, thresholded round, evaluated over every way a user can mix new and shared items."""

from __future__ import annotations

import math

from dpunion.kernels.compiler import kernel
from dpunion.kernels.normal import gaussian_delta, log_upper_tail


@kernel
def mixed_delta(epsilon: float, log_quiet: float, mu: float) -> float:
    """Return the larger hockey-stick divergence of the two directions (docs/guarantees.md, "Gaussian noise, exactly").

    log_quiet: ln of the probability that no novel item is released; mu: distance on the shared items / stddev.
    """
    quiet = math.exp(log_quiet)
    adding = -math.expm1(log_quiet) + quiet * gaussian_delta(epsilon - log_quiet, mu)
    removing = gaussian_delta(epsilon + log_quiet, mu)
    return max(adding, removing)


@kernel
def unit_norm_delta(
    epsilon: float, stddev: float, threshold: float, max_items: int, cells: int, others: float
) -> tuple[float, int]:
    """Return (delta, worst t) when a user moves the weights by l2 norm at most 1 toward one common target.

    t = number of novel items, each gets b in [0.98/sqrt(max_items), 1/sqrt(t)], the shared ones move by at most
    sqrt(1 - t b^2). Both divergences grow with b and with the shared distance, so on a cell [b0, b1] they are
    taken at L(b1) and s(b0): never below the truth. `others` is the squared mu of further Gaussian releases
    composed with this one.
    """
    worst = gaussian_delta(epsilon, math.sqrt(1.0 / (stddev * stddev) + others))
    worst_t = 0
    # A little below 1/sqrt(max_items): with rounding a novel item may get a little less than the shared ones.
    lowest = 0.98 / math.sqrt(max_items)
    for t in range(1, max_items + 1):
        highest = 1.0 / math.sqrt(t)
        for cell in range(cells):
            b0 = lowest + (highest - lowest) * cell / cells
            b1 = min(highest, lowest + (highest - lowest) * (cell + 1) / cells)
            shared = max(0.0, 1.0 - t * b0 * b0)
            log_quiet = t * log_upper_tail((b1 - threshold) / stddev)
            delta = mixed_delta(epsilon, log_quiet, math.sqrt(shared / (stddev * stddev) + others))
            if delta > worst:
                worst = delta
                worst_t = t
    return worst, worst_t


@kernel
def unit_count_delta(
    epsilon: float, stddev: float, threshold: float, max_items: int, others: float
) -> tuple[float, int]:
    """Return (delta, worst t) when a user adds exactly 1 to each of at most `max_items` items.

    Wilkins et al. 2024: t novel items, max_items - t shared ones. `others` as in unit_norm_delta.
    """
    worst = 0.0
    worst_t = 0
    log_quiet_one = log_upper_tail((1.0 - threshold) / stddev)
    for t in range(max_items + 1):
        delta = mixed_delta(
            epsilon, t * log_quiet_one, math.hypot(math.sqrt(max_items - t) / stddev, math.sqrt(others))
        )
        if delta > worst:
            worst = delta
            worst_t = t
    return worst, worst_t
