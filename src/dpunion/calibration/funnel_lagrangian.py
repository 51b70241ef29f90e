"""The chance that Funnel releases a novel item, by pricing each round's budget: valid for every item cap.

docs/guarantees-funnel.md, the Lagrangian bound. Whatever a round gives t novel items, the sum of y^2 is at most
c_r^2. With a price lambda_r >= 0 on y^2 the items separate: p_t <= sum_r lambda_r c_r^2 + t E[J_2(S_1)],
where J_r(s) is the best chance to be released from score s, minus the prices paid. Any prices are valid
(weak duality), so several sets are tried and the smallest result is taken, for each t. Round 1 gives every
novel item the same, so it needs no price. Prices of 0 are always among the sets: every item then gets the
whole budget of each round.

Private side: as in `dpunion.kernels.walks`; for y in a piece, the shift is that of its upper end and the
cost that of its lower end.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from dpunion.calibration.funnel_novelty import (
    ROUNDING,
    ScoreGrid,
    interpolated,
    largest_gifts,
    score_grid,
    single_round,
)
from dpunion.calibration.funnel_shape import FunnelShape
from dpunion.kernels import walks

CELLS = 2000
PIECES = 128
SEARCH_CELLS = 300
SEARCH_PIECES = 24

Prices = tuple[tuple[float, ...], ...]


def lagrangian_novelty_bounds(
    stddev: float, threshold: float, shape: FunnelShape, *, prices: Prices = (), cells: int = CELLS
) -> NDArray[np.float64]:
    """Return p_t for t = 0..max_items_per_user, for any item cap: float64[max_items_per_user + 1], p_0 = 0.

    `prices` are sets of lambda_2..lambda_R; any are valid, and without them good ones are searched for.
    """
    novel = np.arange(1, shape.max_items_per_user + 1)
    bound = LagrangianNovelty(stddev, threshold, shape, prices or search_prices(stddev, threshold, shape), cells)
    return np.concatenate(([0.0], bound.at(novel, largest_gifts(stddev, threshold, shape))))


class LagrangianNovelty:
    """The Lagrangian bound for one noise, threshold and shape: a table after round 1 per set of prices."""

    def __init__(self, stddev: float, threshold: float, shape: FunnelShape, prices: Prices, cells: int = CELLS) -> None:
        self.stddev, self.threshold, self.shape = stddev, threshold, shape
        if shape.rounds == 1:
            return
        self._grid = score_grid(stddev, threshold, shape, cells)
        free = (0.0,) * (shape.rounds - 1)
        self._tables = [
            (spend(each, shape), priced_table(stddev, threshold, shape, self._grid, each, PIECES)[:1])
            for each in (free, *prices)
        ]

    def at(self, novel: NDArray[np.int64], gifts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bound the chance that one of novel[i] items passes if round 1 gives gifts[i] each: float64[n]."""
        if self.shape.rounds == 1:
            return single_round(self.stddev, self.threshold, novel, gifts)
        best = np.ones(novel.size)
        for cost, table in self._tables:
            best = np.minimum(best, (cost + novel * self._passing(table, gifts)) * ROUNDING)
        return best

    def along(self, novel: int, gifts: NDArray[np.float64]) -> NDArray[np.float64]:
        """As `at`, for one number of novel items and increasing gifts, by interpolation."""
        if self.shape.rounds == 1:
            return single_round(self.stddev, self.threshold, np.full(gifts.size, novel), gifts)
        best = np.ones(gifts.size)
        for cost, table in self._tables:
            passing = interpolated(functools.partial(self._passing, table), gifts, self.stddev)
            best = np.minimum(best, (cost + novel * passing) * ROUNDING)
        return best

    def _passing(self, table: NDArray[np.float64], gifts: NDArray[np.float64]) -> NDArray[np.float64]:
        return after_first_round(table, gifts, self.stddev, self.shape, self._grid)


def spend(prices: tuple[float, ...], shape: FunnelShape) -> float:
    """Return sum_r lambda_r c_r^2 over rounds 2..R."""
    return float(np.dot(prices, shape.squared_shares[1:]))


def after_first_round(
    table: NDArray[np.float64], gifts: NDArray[np.float64], stddev: float, shape: FunnelShape, grid: ScoreGrid
) -> NDArray[np.float64]:
    """Return the expectation of a one-row table over the score after round 1, for each gift: float64[n]."""
    share = shape.shares[0]
    weights = np.ones((gifts.size, 1))
    return walks.first_round(table, grid.starts[0], grid.lines[0], grid.step, share * gifts, share * stddev, weights)


def priced_table(
    stddev: float,
    threshold: float,
    shape: FunnelShape,
    grid: ScoreGrid,
    prices: tuple[float, ...],
    pieces: int,
) -> NDArray[np.float64]:
    """Return J_2 on the first grid, then the expected squared gifts of rounds R..2: float64[R, edges]."""
    values = np.empty((0, 0))
    for r in range(shape.rounds - 2, -1, -1):  # grid r is where round r+2 (counted from 1) begins
        share = shape.shares[r + 1]
        if values.size:
            # In the last round J is the indicator of a score above the threshold: one edge there, no cell.
            edges, start, line = values, grid.starts[r + 1], grid.lines[r + 1]
        else:
            edges, start, line = np.ones((1, 1)), threshold, threshold
        smoothed = walks.smooth(
            edges, start, line, grid.step, grid.starts[r], grid.points(r), grid.stride, share * stddev
        )
        largest = shape.item_cap * share
        values = walks.priced_values(
            smoothed, grid.stride, grid.counts[r], grid.step, share, largest, prices[r], pieces, stddev
        )
    return values


def search_prices(
    stddev: float, threshold: float, shape: FunnelShape, *, start: Prices = (), sweeps: int = 24
) -> Prices:
    """Return good prices for a few numbers of novel items, from the largest down; a search, hence only hints.

    The dual function is convex, with slope c_r^2 - t E[y_r^2] in lambda_r: each price is multiplied by a
    power of t E[y_r^2] / c_r^2 until the slope vanishes.
    """
    if shape.rounds == 1:
        return ()
    grid = score_grid(stddev, threshold, shape, SEARCH_CELLS)
    gifts = largest_gifts(stddev, threshold, shape)
    squares = np.array(shape.squared_shares[1:])
    found: list[tuple[float, ...]] = []
    novel = shape.max_items_per_user
    while novel >= 2:
        prices = np.array(start[len(found)]) if len(found) < len(start) else _first_prices(found, novel, shape)
        best, kept = np.inf, prices
        for _ in range(sweeps):
            table = priced_table(stddev, threshold, shape, grid, tuple(prices), SEARCH_PIECES)
            means = [
                after_first_round(row.reshape(1, -1), gifts[novel - 1 : novel], stddev, shape, grid)[0] for row in table
            ]
            total = spend(tuple(prices), shape) + novel * means[0]
            if total < best:
                best, kept = total, prices
            used = novel * np.array(means[:0:-1]) / squares
            prices = prices * np.clip(used, 0.02, 50.0) ** 0.35
        found.append(tuple(float(price) for price in kept))
        novel //= 4
    return tuple(found)


def _first_prices(found: list[tuple[float, ...]], novel: int, shape: FunnelShape) -> NDArray[np.float64]:
    # Fewer items compete for the same budget, so it is worth less; without any experience, a small price.
    if found:
        return np.array(found[-1]) * 0.5
    return np.full(shape.rounds - 1, 1e-3 / novel)
