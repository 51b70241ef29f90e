"""Laplace noise: scales and thresholds. The published constants are already exact."""

from __future__ import annotations

import math

import numpy as np

from dpunion.calibration.gaussian import GUARD, Calibrated, novel_tail
from dpunion.contributions import Float64s


def laplace_chances(weights: Float64s, threshold: float, scale: float) -> Float64s:
    """Return Pr[weight + Laplace(scale) > threshold] for each weight, in the same shape."""
    tails = 0.5 * np.exp(-np.abs(weights - threshold) / scale)
    return np.where(weights > threshold, 1.0 - tails, tails)


def laplace_quantile_above(tail: float, scale: float) -> float:
    """Return x with Pr[Laplace(scale) > x] = tail; negative when tail exceeds one half."""
    if tail <= 0.5:
        return scale * math.log(0.5 / tail)
    return -scale * math.log(0.5 / (1.0 - tail))


def published_spread(epsilon: float, delta: float, max_items: int) -> Calibrated:
    """Return scale 1/epsilon and rho_Lap: t novel items of weight 1/t each (arXiv 2002.09745, Alg. 5)."""
    scale = 1.0 / epsilon
    allowed = delta * (1.0 - GUARD)
    thresholds = [(1.0 / t + laplace_quantile_above(novel_tail(allowed, t), scale), t) for t in range(1, max_items + 1)]
    threshold, worst = max(thresholds)
    return Calibrated(scale, threshold, allowed, worst)


def published_count(epsilon: float, delta: float, max_items: int) -> Calibrated:
    """Return scale max_items/epsilon and the threshold for max_items novel items of weight 1 each."""
    scale = max_items / epsilon
    allowed = delta * (1.0 - GUARD)
    threshold = 1.0 + laplace_quantile_above(novel_tail(allowed, max_items), scale)
    return Calibrated(scale, threshold, allowed, max_items)
