"""Gaussian noise: scales and thresholds, published and exact."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpunion.contributions import Float64s
from dpunion.errors import InternalError
from dpunion.kernels.normal import gaussian_delta, unit_count_delta, unit_norm_delta, upper_tail

# Of the delta asked for, this part is kept back for the float64 error of the formulas (their relative error is
# below 1e-11 over the whole permitted range of budgets, tests/unit/calibration/test_calibration_gaussian.py).
GUARD = 1e-9
CELLS = 400


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Noise and threshold of one round, the delta they really use, and the number of novel items that uses most."""

    scale: float
    threshold: float
    delta_used: float
    worst_novel: int


def gaussian_chances(weights: Float64s, threshold: float, stddev: float) -> Float64s:
    """Return Pr[weight + N(0, stddev^2) > threshold] for each weight, in the same shape."""
    chances = np.array([upper_tail((threshold - weight) / stddev) for weight in weights.ravel().tolist()])
    return chances.reshape(weights.shape)


def smallest_passing(passes: Callable[[float], bool], low: float, high: float) -> float:
    """Return a point where the monotone `passes` holds, at most a relative 1e-13 above the smallest one."""
    while not passes(high):
        low, high = high, 2.0 * high
        if high > 1e18:
            raise InternalError("a calibration does not converge")
    return bisect(passes, low, high, 1e-13)


def bisect(passes: Callable[[float], bool], low: float, high: float, relative: float, least: float = 0.0) -> float:
    """Return a point where the monotone `passes` holds, at most relative * max(least, |point|) above the smallest one.

    `passes` holds at `high`, and the smallest such point is above `low`.
    """
    while high - low > relative * max(least, abs(high)):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high


def gaussian_stddev(epsilon: float, delta: float, sensitivity: float, others: float = 0.0) -> float:
    """Return the smallest stddev whose Gaussian mechanism is (epsilon, delta)-private (Balle & Wang 2018, Thm 8).

    `others` is the squared mu of further Gaussian releases composed with this one.
    """
    allowed = delta * (1.0 - GUARD)

    def passes(stddev: float) -> bool:
        return gaussian_delta(epsilon, math.sqrt((sensitivity / stddev) ** 2 + others)) <= allowed

    return smallest_passing(passes, 0.0, sensitivity)


def novel_tail(delta: float, novel: int) -> float:
    """Return the tail each of `novel` items may have so that none passes with probability 1 - delta.

    1 - (1-delta)^(1/novel), through log1p and expm1: 1 - delta itself would lose small deltas.
    """
    return -math.expm1(math.log1p(-delta) / novel)


def normal_quantile_above(tail: float) -> float:
    """Return a z with Pr[Z > z] <= tail, at most a rounding above the smallest one."""
    return bisect(lambda z: upper_tail(z) <= tail, -40.0, 40.0, 1e-14, 1.0)


def spread_threshold(stddev: float, delta: float, max_items: int) -> float:
    """Return rho_Gauss, which a set of t <= max_items novel items of weight 1/sqrt(t) passes with at most delta.

    arXiv 2002.09745, eq. (5.1) with its misprint corrected: max_t 1/sqrt(t) + stddev * isf(1 - (1-delta)^(1/t)).
    """
    allowed, sizes = delta * (1.0 - GUARD), range(1, max_items + 1)
    return max(1.0 / math.sqrt(t) + stddev * normal_quantile_above(novel_tail(allowed, t)) for t in sizes)


def published_unit_norm(epsilon: float, delta: float, max_items: int) -> Calibrated:
    """Return the papers' constants for l2 sensitivity 1: half of delta for the noise, half for novel items."""
    stddev = gaussian_stddev(epsilon, delta / 2.0, 1.0)
    threshold = spread_threshold(stddev, delta / 2.0, max_items)
    used, worst = unit_norm_delta(epsilon, stddev, threshold, max_items, CELLS, 0.0)
    return Calibrated(stddev, threshold, used, worst)


def exact_unit_norm(epsilon: float, delta: float, max_items: int, others: float = 0.0) -> Calibrated:
    """Return the smallest noise and threshold whose exact delta is within `delta` (docs/guarantees.md).

    Both pure cases (only shared items; only novel ones) may use the whole delta; the certificate over all mixed
    cases then decides, and both numbers are nudged up until it holds.
    """
    stddev = gaussian_stddev(epsilon, delta, 1.0, others)
    threshold = spread_threshold(stddev, delta, max_items)
    step = 1e-9
    while True:
        used, worst = unit_norm_delta(epsilon, stddev, threshold, max_items, CELLS, others)
        if used <= delta * (1.0 - GUARD / 2.0):
            return Calibrated(stddev, threshold, used, worst)
        stddev *= 1.0 + step
        threshold *= 1.0 + step
        step *= 2.0
        if step > 1.0:
            raise InternalError("the exact calibration does not converge")


def published_count_gaussian(epsilon: float, delta: float, max_items: int, share: float = 1.0) -> Calibrated:
    """Return the papers' constants for weights of 1 on each of at most `max_items` items; share as in exact_count."""
    base = gaussian_stddev(epsilon, delta / 2.0, math.sqrt(max_items))
    stddev, others = base / math.sqrt(share), (1.0 - share) * max_items / base**2
    tail = novel_tail(delta / 2.0 * (1.0 - GUARD), max_items)
    threshold = 1.0 + stddev * normal_quantile_above(tail)
    used, worst = unit_count_delta(epsilon, stddev, threshold, max_items, others)
    return Calibrated(stddev, threshold, used, worst)


def exact_count(epsilon: float, delta: float, max_items: int, share: float = 1.0) -> Calibrated:
    """Return the smallest certified threshold over how delta is split (Wilkins et al. 2024, Thm 5.4).

    Here a mixed case can be the worst one, so the noise gets a little less than the whole delta. Which part it gets is
    a public choice: the part with the lowest threshold. share: this release's part of the squared budget; the rest is
    for further Gaussian releases composed with it.
    """
    allowed = delta * (1.0 - GUARD)
    best: Calibrated | None = None
    for part in (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 0.995, 1.0):
        base = gaussian_stddev(epsilon, part * delta, math.sqrt(max_items))
        stddev, others = base / math.sqrt(share), (1.0 - share) * max_items / base**2

        def certified(threshold: float, stddev: float = stddev, others: float = others) -> bool:
            return unit_count_delta(epsilon, stddev, threshold, max_items, others)[0] <= allowed

        start = 1.0 + stddev * normal_quantile_above(novel_tail(allowed, max_items))
        if not certified(10.0 * start + 100.0):
            continue
        threshold = smallest_passing(certified, 0.5 * start, start)
        if best is None or threshold < best.threshold:
            best = Calibrated(stddev, threshold, *unit_count_delta(epsilon, stddev, threshold, max_items, others))
    if best is None:
        raise InternalError("the exact count calibration found no threshold")
    return best
