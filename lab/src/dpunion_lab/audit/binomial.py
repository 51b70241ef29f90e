"""Bounds on a probability from counting: the Clopper-Pearson interval, without any approximation of the tails."""

from __future__ import annotations

import math

from dpunion.errors import InternalError

LONGEST = 1_000_000


def beta_fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method.

    Converges fast for x < (a + 1)/(a + b + 2), in about sqrt(max(a, b)) steps.
    """
    tiny = 1e-300
    front = 1.0
    back = 1.0 - (a + b) * x / (a + 1.0)
    back = 1.0 / (back if abs(back) > tiny else tiny)
    value = back
    for m in range(1, LONGEST):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0)),
        ):
            back = 1.0 + factor * back
            front = 1.0 + factor / front
            back = 1.0 / (back if abs(back) > tiny else tiny)
            front = front if abs(front) > tiny else tiny
            change = back * front
            value *= change
        if abs(change - 1.0) < 1e-15:
            return value
    raise InternalError("an incomplete beta function does not converge")


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b) for a, b > 0 (DLMF 8.17)."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - incomplete_beta(b, a, 1.0 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / a * beta_fraction(a, b, x)


def _solve(hits: int, trials: int, tail: float, *, upper: bool) -> float:
    """Bisect for the probability at which the count is `tail` unlikely; ends on the cautious side."""
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        if upper:
            # Pr[X <= hits] = I_{1-p}(trials - hits, hits + 1), falling in p.
            inside = incomplete_beta(trials - hits, hits + 1.0, 1.0 - middle) > tail
        else:
            # Pr[X >= hits] = I_p(hits, trials - hits + 1), rising in p.
            inside = incomplete_beta(float(hits), trials - hits + 1.0, middle) <= tail
        low, high = (middle, high) if inside else (low, middle)
        if high - low < 1e-13 * high:
            break
    return high if upper else low


def lower_bound(hits: int, trials: int, tail: float) -> float:
    """Return p such that, were the probability any smaller, this many hits would have a chance below `tail`.

    Clopper & Pearson 1934.
    """
    return 0.0 if hits == 0 else _solve(hits, trials, tail, upper=False)


def upper_bound(hits: int, trials: int, tail: float) -> float:
    """Return p such that, were the probability any larger, so few hits would have a chance below `tail`."""
    return 1.0 if hits == trials else _solve(hits, trials, tail, upper=True)
