"""Gaussian walks with stopping lines on a grid: the arithmetic behind Funnel's novelty bounds.

Every function rounds to the private side: probabilities of passing come out too large, never too small (except
for float rounding, which callers cover by an explicit factor). What makes each step an upper bound:

- a cell's value is the value at its right edge, since all value functions are nondecreasing in the score;
- above the last edge the value is 1; between a stopping line and the first edge it is that of the first edge;
- between grid points `interpolate` is an upper bound for *any* nonnegative function convolved with a Gaussian;
- all terms are nonnegative and the tails telescope against nondecreasing values, so float errors stay relative (1e-13).

Readable twins in plain numpy: tests/twins/novelty.py.
"""

from __future__ import annotations

import math

import numpy as np

from dpunion.contributions import Float64s, Int64s
from dpunion.kernels.compiler import inlined, kernel
from dpunion.kernels.normal import gaussian_delta, upper_tail


@inlined
def between(low: float, high: float) -> float:
    """Return Pr[low < Z <= high], without cancellation in either tail."""
    if low > 0.0:
        return upper_tail(low) - upper_tail(high)
    return upper_tail(-high) - upper_tail(-low)


@kernel
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
    """Bound E[value(x + stddev Z)] at the points x = point_start + i*stride*step, for every row of values.

    values: float64[rows, edges], at edge_start + j*step; 0 at and below `line` <= edge_start. Points may be
    sparser than edges: a cell costs an error of first order, interpolation of second. Returns float64[rows, points].
    """
    rows, edges = values.shape
    # The chance of the cell that ends in edge j, seen from point i, depends on i*stride - j only; it is kept
    # by (that number mod stride) so that the innermost loop runs along contiguous memory.
    chance = np.empty((stride, (edges - 1) // stride + points + 1))
    for residue in range(stride):
        for k in range(chance.shape[1]):
            end = (edge_start - point_start + (edges - 1 - residue - k * stride) * step) / stddev
            chance[residue, k] = between(end - step / stddev, end)
    out = np.empty((rows, points))
    for i in range(points):
        x = point_start + i * stride * step
        lowest = between((line - x) / stddev, (edge_start - x) / stddev)
        above = upper_tail((edge_start + (edges - 1) * step - x) / stddev)
        for row in range(rows):
            out[row, i] = above + lowest * values[row, 0]
    for j in range(1, edges):
        shift = (edges - 1 - j) // stride
        weights = chance[(edges - 1 - j) % stride, shift : shift + points]
        for row in range(rows):
            add_multiple(out[row], values[row, j], weights)
    return out


@inlined
def add_multiple(out: Float64s, factor: float, terms: Float64s) -> None:
    """Add factor * terms to out, both float64[n]. In-place; a separate loop, so that it runs on vector registers."""
    for i in range(out.size):
        out[i] += factor * terms[i]


@inlined
def interpolate(logs: Float64s, position: float, penalty: float) -> float:
    """Bound a smoothed value between grid points; `position` is in steps, penalty = step^2 / (2 stddev^2).

    For M = f * N(0, stddev^2) with f >= 0, (ln M)'' = Var[posterior]/stddev^4 - 1/stddev^2 >= -1/stddev^2, so ln M(x) +
    x^2/(2 stddev^2) is convex, and lies below its chord. Beyond the last point it is 1. logs: float64[points], ln M.
    """
    last = logs.size - 1
    if position >= last:
        return 1.0
    i = int(position)
    part = position - i
    left, right = logs[i], logs[i + 1]
    if left == -math.inf:
        return math.exp(right)  # M is nondecreasing, so the right neighbour bounds it
    return min(1.0, math.exp(left + part * (right - left) + part * (1.0 - part) * penalty))


@kernel
def interpolate_all(logs: Float64s, positions: Float64s, penalty: float) -> Float64s:
    """Apply `interpolate` at each of the positions, which are below the last point: float64[n]."""
    out = np.empty(positions.size)
    for i in range(positions.size):
        out[i] = interpolate(logs, positions[i], penalty)
    return out


@kernel
def gaussian_deltas(epsilon: float, mus: Float64s) -> Float64s:
    """Apply `gaussian_delta` to each mu: float64[n]."""
    out = np.empty(mus.size)
    for i in range(mus.size):
        out[i] = gaussian_delta(epsilon, mus[i])
    return out


@inlined
def gift(need: float, others: float, least: float, share: float, aim: float) -> float:
    """Return the most that a round gives a novel item if `others` more alive items need at least `least`.

    The round gives every item y = q * need, with the largest q <= aim that keeps the l2 norm within
    `share`: so y falls when others need more, and is largest when they need just `least`.
    """
    if need <= 0.0:
        return 0.0
    most = min(share, need * aim)
    return min(most, share / math.sqrt(need * need + others * least * least) * need)


@kernel
def final_values(
    start: float,
    count: int,
    step: float,
    crowds: Int64s,
    least: float,
    cutoff: float,
    threshold: float,
    share: float,
    stddev: float,
) -> Float64s:
    """Return the chance to pass the threshold in the last round, for each crowd from each edge.

    crowds: int64[rows], numbers of others that need at least `least`. Returns float64[rows, count].
    """
    out = np.empty((crowds.size, count))
    for row in range(crowds.size):
        for i in range(count):
            score = start + i * step
            mean = score + share * gift(cutoff - score, crowds[row], least, share, 1.0 / share)
            out[row, i] = upper_tail((threshold - mean) / (share * stddev))
    return out


@kernel
def crowd_values(
    smoothed: Float64s,
    stride: int,
    thinning: Float64s,
    start: float,
    count: int,
    step: float,
    crowds: Int64s,
    least: float,
    cutoff: float,
    share: float,
    aim: float,
    stddev: float,
) -> Float64s:
    """Carry values back over one round: shift by what the round gives, with the crowd thinned on the way.

    smoothed: float64[next rows, points], at start + i*stride*step; thinning: float64[rows, next rows], each row sums to
    1; crowds: int64[rows], how many others need at least `least`. Returns float64[rows, count], at start + i*step.
    """
    points = smoothed.shape[1]
    spread = stride * step / (share * stddev)
    out = np.empty((crowds.size, count))
    logs = np.empty(points)
    for row in range(crowds.size):
        logs[:] = 0.0
        for k in range(smoothed.shape[0]):
            add_multiple(logs, thinning[row, k], smoothed[k])
        for i in range(points):
            logs[i] = math.log(logs[i]) if logs[i] > 0.0 else -math.inf
        for i in range(count):
            shift = share * gift(cutoff - (start + i * step), crowds[row], least, share, aim)
            out[row, i] = interpolate(logs, (i + shift / step) / stride, 0.5 * spread * spread)
    return out


@kernel
def first_round(
    values: Float64s, edge_start: float, line: float, step: float, means: Float64s, stddev: float, weights: Float64s
) -> Float64s:
    """Bound E[value(mean + stddev Z)] for each mean, averaged over the rows by that mean's own weights.

    values: float64[rows, edges]; means: float64[n]; weights: float64[n, rows]. Returns float64[n].
    """
    rows, edges = values.shape
    mixed, out = np.empty(edges), np.empty(means.size)
    for t in range(means.size):
        mixed[:] = 0.0
        for row in range(rows):
            if weights[t, row] > 0.0:
                add_multiple(mixed, weights[t, row], values[row])
        # subtle: differences of upper tails are accurate enough even where the tails are near 1, because
        # against nondecreasing values their errors telescope (Abel summation) to a relative error of the sum.
        before = upper_tail((edge_start - means[t]) / stddev)
        total = mixed[0] * (upper_tail((line - means[t]) / stddev) - before)
        for j in range(1, edges):
            if before <= 1e-12 * total:
                break  # values are at most 1: all that remains is at most `before`, which is added below
            after = upper_tail((edge_start + j * step - means[t]) / stddev)
            total += mixed[j] * (before - after)
            before = after
        out[t] = total + before
    return out


@kernel
def stay_chances(starts: Float64s, counts: Int64s, step: float, stddevs: Float64s) -> Float64s:
    """Bound from below the chance that a pure-noise walk stays inside its windows up to each round.

    Window r is (starts[r], starts[r] + counts[r]*step]; the walk begins at 0 and its step r has stddevs[r]. The
    chance to stay is log-concave in the score (a Gaussian convolved with log-concave windows), hence unimodal: in a
    cell it is at least the smaller of its ends' values. starts, stddevs, result: float64[n]; counts: int64[n].
    """
    rounds = starts.size
    out = np.empty(rounds)
    for goal in range(rounds):
        values = np.ones(counts[goal] + 1)
        for r in range(goal, 0, -1):
            values = stay_one_round(values, starts[r], starts[r - 1], counts[r - 1] + 1, step, stddevs[r])
        out[goal] = stay_one_round(values, starts[0], 0.0, 1, step, stddevs[0])[0]
    return out


@kernel
def stay_one_round(values: Float64s, window: float, start: float, count: int, step: float, stddev: float) -> Float64s:
    """Bound E[value(x + stddev Z); x + stddev Z in the window] from below at x = start + i*step."""
    edges, offset = values.size, count - 1
    chance = np.empty(edges + count)
    for k in range(edges + count - 1):
        low = (window - start + (k - offset) * step) / stddev
        chance[k] = between(low, low + step / stddev)
    out = np.zeros(count)
    for i in range(count):
        for j in range(edges - 1):
            out[i] += chance[j - i + offset] * min(values[j], values[j + 1])
    return out


@kernel
def binomial_levels(chance: float, largest: int, levels: Int64s) -> Float64s:
    """Return Pr[Bin(n, chance) falls in level k] for n = 0..largest; level k is [levels[k], levels[k+1]).

    Counts beyond the last level stay in it. Adding one trial at a time keeps every term nonnegative.
    levels: int64[k], increasing from 0. Returns float64[largest + 1, k].
    """
    cap = levels[-1]
    level_of = np.zeros(cap + 1, np.int64)
    for k in range(levels.size):
        level_of[levels[k] :] = k
    mass = np.zeros(cap + 1)
    mass[0] = 1.0
    out = np.zeros((largest + 1, levels.size))
    out[0, 0] = 1.0
    for n in range(1, largest + 1):
        if n <= cap:
            mass[n] = 0.0
        mass[cap] += chance * mass[cap - 1] if cap > 0 else 0.0
        for k in range(min(n, cap - 1), -1, -1):
            mass[k] = (1.0 - chance) * mass[k] + (chance * mass[k - 1] if k > 0 else 0.0)
        for k in range(cap + 1):
            out[n, level_of[k]] += mass[k]
    return out
