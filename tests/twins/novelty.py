"""The kernels of `dpunion.kernels.novelty` once more, slowly and as the formulas are written.

A kernel and its twin must agree on every input.
"""

from __future__ import annotations

import math

import numpy as np

from dpunion.contributions import Float64s, Int64s


def tail(x: float) -> float:
    """Pr[Z > x]."""
    return 0.5 * math.erfc(x / math.sqrt(2.0))


def expectation(values: Float64s, edge_start: float, line: float, step: float, mean: float, stddev: float) -> float:
    """E[value(mean + stddev Z)], each cell valued at its right edge: float64[edges] in, one number out."""
    total = 0.0
    left = line
    for j, value in enumerate(values):
        right = edge_start + j * step
        total += value * (tail((left - mean) / stddev) - tail((right - mean) / stddev))
        left = right
    return total + tail((left - mean) / stddev)


def smooth(
    values: Float64s,
    edge_start: float,
    line: float,
    step: float,
    point_start: float,
    points: int,
    stride: int,
    stddev: float,
) -> Float64s:
    """Return the expectation of every row from every point: float64[rows, points]."""
    at = [point_start + i * stride * step for i in range(points)]
    return np.array([[expectation(row, edge_start, line, step, x, stddev) for x in at] for row in values])


def first_round(
    values: Float64s, edge_start: float, line: float, step: float, means: Float64s, stddev: float, weights: Float64s
) -> Float64s:
    """Return the expectation of the mixture of rows, for each mean and its weights: float64[n]."""
    return np.array(
        [
            expectation(mix @ values, edge_start, line, step, mean, stddev)
            for mean, mix in zip(means, weights, strict=True)
        ]
    )


def gift(need: float, others: float, least: float, share: float, aim: float) -> float:
    """Return q * need for the largest q <= aim within the budget, found by bisection."""

    def spends(q: float) -> float:
        return (q * need) ** 2 + others * (q * least) ** 2

    low, high = 0.0, aim
    if need <= 0.0 or spends(high) <= share * share:
        return high * max(0.0, need)
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if spends(middle) <= share * share else (low, middle)
    return low * need


def stay_chances(starts: Float64s, counts: Int64s, step: float, stddevs: Float64s) -> Float64s:
    """Return, per round, the chance to have stayed in all windows so far, cells valued at their lower end."""
    out = []
    for goal in range(starts.size):
        values = np.ones(counts[goal] + 1)
        for r in range(goal, -1, -1):
            points = starts[r - 1] + step * np.arange(counts[r - 1] + 1) if r > 0 else np.zeros(1)
            edges = starts[r] + step * np.arange(counts[r] + 1)
            lower = np.minimum(values[:-1], values[1:])
            tails = np.array([[tail((edge - x) / stddevs[r]) for edge in edges] for x in points])
            values = (tails[:, :-1] - tails[:, 1:]) @ lower
        out.append(values[0])
    return np.array(out)


def binomial_levels(chance: float, largest: int, levels: Int64s) -> Float64s:
    """Return Pr[Bin(n, chance) in level k] from the binomial coefficients: float64[largest + 1, levels]."""
    out = np.zeros((largest + 1, levels.size))
    for n in range(largest + 1):
        for k in range(n + 1):
            level = int(np.searchsorted(levels, k, side="right")) - 1
            out[n, level] += math.comb(n, k) * chance**k * (1.0 - chance) ** (n - k)
    return out
