"""The standard normal distribution, accurate far into the tail, for compiled and plain code alike.

All rests on `math.erfc`, whose relative error stays within a few ulp even where the value is 1e-300.
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
