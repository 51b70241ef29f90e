"""Bound the chance that Funnel releases an item that only one user kept.

The proof is Theorem B of docs/guarantees-funnel.md. It follows the crowd of that user's other items. A user with t
novel items shares each round's budget among those still alive, so a surviving item gains when its companions die. The
noise of companions is independent of the item's, and their pure-noise walks bound from below what they need: before
round r, n_r companions have stayed inside the windows (keep line, cut_j] of all earlier rounds, and each of them needs
at least m_r = cutoff_r - f_(r-1) - cut_r. Staying is nested, so n_2 >= n_3 >= ... is a Markov chain of binomial
thinnings, and the pass probability is one backward recursion over (score, crowd): p_t = t * E[value(S_1, n_2)],
n_2 ~ Bin(t-1, Q_2), n_r+1 ~ Bin(n_r, Q_r+1/Q_r), where Q_r is the chance to stay up to round r.

The worst case gives an item the most it can get, because score + c_r y(score) is nondecreasing: y is one coordinate of
a projection onto a convex set, hence 1-Lipschitz in the target; the target's slope is aim_r, and c_r aim_r <= 1.

Every step rounds to the private side. Fewer companions mean larger gifts, so each Q_r is bounded from below (lower
bounds of the survival function of a companion's lifetime couple all n_r at once), counts are rounded down to levels
and unlikely counts to 0, and values on the score grid are rounded up (see `dpunion.kernels.novelty`). Round 1 starts
from one point and needs no grid. Windows and levels are free choices: any of them is valid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpunion.algorithms import Funnel
from dpunion.contributions import Float64s, Int64s
from dpunion.kernels import novelty
from dpunion.kernels.normal import upper_tail

# Cells of the score grid. The bound is too high by about half a cell for each round: a 1000th of the threshold.
FINE = 4000
# Float errors stay relative (all terms are nonnegative) and are below 1e-12; this factor is far outside them.
ROUNDING = 1.0 + 1e-9
# No grid reaches below this many stddevs of the pure-noise walk; lower scores have the value of the lowest edge.
DEPTH = 6.0
# Crowds less likely than this are taken to be empty.
RARE = 1e-14
# Smoothed values are computed this many times per stddev of the round's noise, and interpolated between.
POINTS_PER_STDDEV = 20


@dataclass(frozen=True, slots=True)
class ScoreGrid:
    """Grids of scores with one spacing; grid r begins at round r's keep line, so that no line needs rounding.

    All grids end at the threshold, where an item is released; the last edge is at or just above it.
    """

    step: float
    lines: tuple[float, ...]  # at or below which an item is dropped after round 1..R-1
    starts: tuple[float, ...]  # first edge of each of these grids, at or above its line
    counts: tuple[int, ...]  # edges of each
    stride: int  # edges per point at which smoothed values are computed

    def points(self, r: int, beyond: float) -> int:
        """Return how many points span grid r, and this far beyond its last edge."""
        return (self.counts[r] - 1) // self.stride + 2 + math.ceil(beyond / (self.stride * self.step))


def score_grid(stddev: float, threshold: float, shape: Funnel, cells: int) -> ScoreGrid:
    """Return the grids between the keep lines and the threshold, where the longest has `cells` cells."""
    lines = shape.keep_lines(stddev, threshold)
    starts = tuple(
        max(line, -DEPTH * stddev * math.sqrt(done)) for line, done in zip(lines, shape.spent[:-1], strict=True)
    )
    step = (threshold - min(starts)) / cells
    counts = tuple(math.ceil((threshold - start) / step) + 1 for start in starts)
    stride = max(1, int(shape.shares[-1] * stddev / (POINTS_PER_STDDEV * step)))
    return ScoreGrid(step, lines, starts, counts, stride)


def largest_gifts(stddev: float, threshold: float, shape: Funnel) -> Float64s:
    """Return the most that round 1 gives each of t = 1..max_items_per_user novel items: float64[max_items].

    All targets are equal then, so every novel item gets the same: at most c_1/sqrt(t), and its target.
    """
    novel = np.arange(1, shape.max_items_per_user + 1)
    target = shape.cutoffs(stddev, threshold)[0] * shape.aims[0]
    return np.minimum(target, shape.shares[0] / np.sqrt(novel))


def single_round(stddev: float, threshold: float, novel: Int64s, gifts: Float64s) -> Float64s:
    """Return the exact chance that one of `novel` independent items passes in a funnel of one round."""
    tails = np.array([upper_tail((threshold - gift) / stddev) for gift in gifts])
    return np.asarray(-np.expm1(novel * np.log1p(-tails)) * ROUNDING, np.float64)


class WalkNovelty:
    """Theorem B's bound for one noise, threshold and shape: a table after round 1, for any t and gift."""

    def __init__(self, stddev: float, threshold: float, shape: Funnel, cells: int = FINE) -> None:
        self.stddev, self.threshold, self.shape = stddev, threshold, shape
        if shape.rounds > 1:
            self._grid = score_grid(stddev, threshold, shape, cells)
            crowd = _Crowd.of(stddev, threshold, shape, self._grid.starts, cells)
            self._values = _values(stddev, threshold, shape, self._grid, crowd)
            weights = novelty.binomial_levels(crowd.stay[0], shape.max_items_per_user - 1, crowd.levels[0])
            # Unlikely crowds count as empty ones, which is the private side and saves their sums.
            rare = np.where(weights < RARE, weights, 0.0)
            self._weights = weights - rare
            self._weights[:, 0] += rare.sum(axis=1)

    def at(self, novel: Int64s, gifts: Float64s) -> Float64s:
        """Bound the chance that one of novel[i] items passes if round 1 gives gifts[i] each: float64[n]."""
        if self.shape.rounds == 1:
            return single_round(self.stddev, self.threshold, novel, gifts)
        # The union bound over the t items: they are not independent, as they share each round's budget.
        return np.minimum(1.0, novel * self._passing(novel, gifts) * ROUNDING)

    def along(self, novel: int, gifts: Float64s) -> Float64s:
        """Bound the same chance for one number of novel items and increasing gifts, by interpolation: float64[n]."""
        if self.shape.rounds == 1:
            return single_round(self.stddev, self.threshold, np.full(gifts.size, novel), gifts)
        passing = interpolate_gifts(lambda nodes: self._passing(np.full(nodes.size, novel), nodes), gifts, self.stddev)
        return np.minimum(1.0, novel * passing * ROUNDING)

    def _passing(self, novel: Int64s, gifts: Float64s) -> Float64s:
        share = self.shape.shares[0]
        return novelty.first_round(
            self._values,
            self._grid.starts[0],
            self._grid.lines[0],
            self._grid.step,
            share * gifts,
            share * self.stddev,
            self._weights[novel - 1],
        )


def interpolate_gifts(passing: Callable[[Float64s], Float64s], gifts: Float64s, stddev: float) -> Float64s:
    """Bound passing(gifts) from a few nodes, for increasing gifts: float64[n].

    passing(y) = E[f(c_1 (y + stddev Z))], f >= 0, is a Gaussian convolution in y, so that the bound of
    `novelty.interpolate` holds for it; nodes are at most a 15th of stddev apart (an error below 6e-4).
    """
    nodes = 2 + int(15.0 * (gifts[-1] - gifts[0]) / stddev)
    step = (gifts[-1] - gifts[0]) / (nodes - 1)
    if step <= 0.0:
        return passing(gifts)
    values = passing(np.linspace(gifts[0], gifts[-1], nodes))
    with np.errstate(divide="ignore"):
        logs = np.log(values)
    spread = step / stddev
    positions = np.minimum((gifts - gifts[0]) / step, nodes - 1)
    found = novelty.interpolate_all(logs, positions, 0.5 * spread * spread)
    # subtle: at the last node `interpolate` would say 1, the bound beyond a grid.
    return np.where(positions < nodes - 1, found, values[-1])


@dataclass(frozen=True, slots=True)
class _Crowd:
    """The companions before rounds 2..R.

    levels: what counts are rounded down to. needs: m_r, the least a counted companion needs. stay: Q_2, then Q_r+1/Q_r.
    """

    levels: tuple[Int64s, ...]
    needs: tuple[float, ...]
    stay: tuple[float, ...]

    @classmethod
    def of(cls, stddev: float, threshold: float, shape: Funnel, starts: tuple[float, ...], cells: int) -> _Crowd:
        cutoffs, spent = shape.cutoffs(stddev, threshold), shape.spent[:-1]
        # A companion's score is at most its pure-noise walk plus f_r: round j adds c_j y with y <= c_j.
        most_needs = [cutoff - done for cutoff, done in zip(cutoffs[1:], spent, strict=True)]
        stddevs = np.array(shape.shares[:-1]) * stddev
        # Fine enough for the smallest step of the walk, unless that would take too many cells.
        step = max(float(stddevs.min()) / 100.0, stddev / 300.0) * max(1.0, 0.25 * FINE / cells)
        # A companion that counts has not passed the threshold: its walk ends below threshold - f_r.
        windows = [
            min(
                _window(start, stddev * math.sqrt(done), most, step),
                max(0, math.floor((threshold - done - start) / step)),
            )
            for start, done, most in zip(starts, spent, most_needs, strict=True)
        ]
        survival = novelty.stay_chances(np.array(starts), np.array(windows), step, stddevs)
        # Rounding could lift one above the one before it, or above the truth.
        survival = np.minimum.accumulate(survival) * (1.0 - 1e-9)
        stay = tuple(
            float(now / before) if before > 0.0 else 0.0
            for before, now in zip((1.0, *survival[:-1]), survival, strict=True)
        )
        needs = tuple(
            max(0.0, most - (start + window * step))
            for start, most, window in zip(starts, most_needs, windows, strict=True)
        )
        others = shape.max_items_per_user - 1
        means = [others * chance for chance in survival]
        # Counts are rounded down to these levels.
        levels = [rise(0, min(others, math.ceil(mean + 4.0 * math.sqrt(mean) + 3.0))) for mean in means]
        return cls(tuple(levels), needs, stay)


def _window(start: float, spread: float, most_need: float, step: float) -> int:
    """Choose the cells of a window: wide enough to count most companions, low enough that each needs much.

    Any window is valid; this one maximises need * (fraction inside)^2 under the Gaussian above `start`.
    """
    alive = upper_tail(start / spread)
    if alive <= 0.0:
        return 1  # nobody survives: nothing to count
    best, chosen = 0.0, 1
    for k in range(1, 101):
        width = 0.05 * k * spread
        need = most_need - start - width
        if need <= 0.0:
            break
        counted = 1.0 - upper_tail((start + width) / spread) / alive
        if need * counted * counted > best:
            best, chosen = need * counted * counted, max(1, round(width / step))
    return chosen


def rise(first: int, enough: int) -> Int64s:
    """Return rising numbers, the last of which is enough: every number up to 32, then steps of about 6 %."""
    numbers = [first]
    while numbers[-1] < enough:
        numbers.append(numbers[-1] + max(1, numbers[-1] // 16))
    return np.array(numbers, np.int64)


def _values(stddev: float, threshold: float, shape: Funnel, grid: ScoreGrid, crowd: _Crowd) -> Float64s:
    """Return the chance to be released, after round 1: float64[levels of n_2, edges of the first grid].

    At the last edge of a grid, which may lie just above the threshold, the item has been released: the value is 1.
    """
    cutoffs, last = shape.cutoffs(stddev, threshold), shape.rounds - 2

    def before(r: int) -> tuple[float, int, float, Int64s, float]:
        """Return the edges of grid r, and the companions that count there."""
        return grid.starts[r], grid.counts[r], grid.step, crowd.levels[r], crowd.needs[r]

    values = novelty.final_values(*before(last), cutoffs[-1], threshold, shape.shares[-1], stddev)
    values[:, -1] = 1.0
    for r in range(last - 1, -1, -1):  # grid r is where round r+2 (counted from 1) begins
        share, aim = shape.shares[r + 1], shape.aims[r + 1]
        after, points = (grid.starts[r + 1], grid.lines[r + 1], grid.step), grid.points(r, share * share)
        smoothed = novelty.smooth(values, *after, grid.starts[r], points, grid.stride, share * stddev)
        table = novelty.binomial_levels(crowd.stay[r + 1], int(crowd.levels[r][-1]), crowd.levels[r + 1])
        crowds = table[crowd.levels[r]]
        values = novelty.crowd_values(smoothed, grid.stride, crowds, *before(r), cutoffs[r + 1], share, aim, stddev)
        values[:, -1] = 1.0
    return values
