"""The standard normal distribution, accurate far into the tail, for compiled and plain code alike.

All rests on `math.erfc`, whose relative error stays within a few ulp even where the value is 1e-300. The certificates
are the exact delta of one noisy, thresholded round, evaluated over every way a user can mix new and shared items.
"""

from __future__ import annotations

import math

from dpunion.kernels.compiler import kernel

SQRT_HALF = math.sqrt(0.5)
LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


@kernel
def upper_tail(x: float) -> float:
    """Return Pr[Z > x]."""
    return 0.5 * math.erfc(x * SQRT_HALF)


@kernel
def log_upper_tail(x: float) -> float:
    """Return ln Pr[Z > x], also where the probability itself underflows."""
    if x < -1.0:
        return math.log1p(-0.5 * math.erfc(-x * SQRT_HALF))
    if x < 35.0:
        return math.log(0.5 * math.erfc(x * SQRT_HALF))
    # Laplace's asymptotic series of Mills' ratio; at x >= 35 five terms are exact to 1 ulp.
    q = 1.0 / (x * x)
    series = 1.0 - q * (1.0 - 3.0 * q * (1.0 - 5.0 * q * (1.0 - 7.0 * q)))
    return -0.5 * x * x - LOG_SQRT_2PI - math.log(x) + math.log(series)


@kernel
def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the exact delta of a Gaussian mechanism with sensitivity/stddev = mu (Balle & Wang 2018, Thm 8).

    delta = Pr[Z > epsilon/mu - mu/2] - e^epsilon Pr[Z > epsilon/mu + mu/2]; epsilon may be negative.
    """
    if mu <= 0.0:
        return max(0.0, -math.expm1(epsilon))
    below = upper_tail(epsilon / mu - 0.5 * mu)
    log_above = epsilon + log_upper_tail(epsilon / mu + 0.5 * mu)
    return max(0.0, below - math.exp(log_above))


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
    sqrt(1 - t b^2). Both divergences grow with b and with the shared distance, so on a cell [b0, b1] they are taken at
    L(b1) and s(b0): never below the truth. `others`: the squared mu of other Gaussian releases composed with this one.
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
                worst, worst_t = delta, t
    return worst, worst_t


@kernel
def unit_count_delta(
    epsilon: float, stddev: float, threshold: float, max_items: int, others: float
) -> tuple[float, int]:
    """Return (delta, worst t) when a user adds exactly 1 to each of at most `max_items` items.

    Wilkins et al. 2024: t novel items, max_items - t shared ones. `others` as in unit_norm_delta.
    """
    worst, worst_t = 0.0, 0
    log_quiet_one = log_upper_tail((1.0 - threshold) / stddev)
    for t in range(max_items + 1):
        mu = math.hypot(math.sqrt(max_items - t) / stddev, math.sqrt(others))
        delta = mixed_delta(epsilon, t * log_quiet_one, mu)
        if delta > worst:
            worst, worst_t = delta, t
    return worst, worst_t
