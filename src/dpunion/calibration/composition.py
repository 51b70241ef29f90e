"""Divide one budget among several releases: the noise of each, and the thresholds on public candidates.

The first release is a set union and pays for novel items. The later ones, longer n-grams and counts, are Gaussian
mechanisms on a public set (the candidates that released shorter n-grams leave, or the list itself), so they cost
delta_G only, and the squared distances of all releases add up (docs/ngrams.md and docs/counts.md, "Why it is private").

The shares f_1 + ... + f_T = 1 divide the budget: release k has stddev_k = base / sqrt(f_k), so that the squared mu of
all together is 1/base^2, as for one Gaussian release with stddev `base`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpunion.algorithms import Calibration, Funnel
from dpunion.calibration import gaussian
from dpunion.calibration.funnel import calibrate_with_hints
from dpunion.contributions import Float64s
from dpunion.errors import InternalError
from dpunion.kernels.normal import unit_norm_delta

# At length 1 Funnel's noise gets this part of delta, novel items the rest: a public choice, near the best in trials.
FUNNEL_GAUSSIAN_SHARE = 0.95
# The parts of delta tried for the noise of Weighted and Policy Gaussian at length 1.
PARTS = (0.9, 0.97, 0.99, 0.995, 0.998)
COARSE = 40
FEWEST_NODES = 160


@dataclass(frozen=True, slots=True)
class ComposedNoise:
    """Noise of every release, and the first one's threshold with the delta that all of them use."""

    stddevs: tuple[float, ...]
    threshold: float
    delta_used: float


def geometric_shares(longest: int, ratio: float) -> tuple[float, ...]:
    """Return each length's part of the (squared) budget, each `ratio` times the one before; they sum to 1."""
    raw = [ratio**i for i in range(longest)]
    return tuple(part / math.fsum(raw) for part in raw)


@functools.lru_cache(maxsize=64)
def compose_unit_norm(
    epsilon: float, delta: float, max_items: int, shares: tuple[float, ...], calibration: Calibration
) -> ComposedNoise:
    """Compose Weighted or Policy Gaussian at length 1 with Gaussian releases on public candidates.

    EXACT: the certificate of docs/guarantees.md with mu^2 = (1 - t b^2)/stddev_1^2 + sum_k 1/stddev_k^2.
    PUBLISHED: half of delta for all the noise, half for novel items (Kim et al. 2021, Alg. 1).
    """
    if calibration is Calibration.PUBLISHED:
        base = gaussian.gaussian_stddev(epsilon, delta / 2.0, 1.0)
        first = base / math.sqrt(shares[0])
        threshold = gaussian.spread_threshold(first, delta / 2.0, max_items)
        return ComposedNoise(tuple(base / math.sqrt(share) for share in shares), threshold, delta)
    if len(shares) == 1:
        found = gaussian.exact_unit_norm(epsilon, delta, max_items)
        return ComposedNoise((found.scale,), found.threshold, found.delta_used)
    return min((_certified(epsilon, delta, max_items, shares, part) for part in PARTS), key=lambda one: one.threshold)


def _certified(epsilon: float, delta: float, max_items: int, shares: tuple[float, ...], part: float) -> ComposedNoise:
    """Give the noise of all lengths `part` of delta, and find the smallest threshold whose certificate holds.

    Even when all of a user's items are novel, the other lengths still spend on noise. So the two pure cases cannot
    both have the whole of delta, as they can in a release of one length.
    """
    base = gaussian.gaussian_stddev(epsilon, part * delta, 1.0)
    first, others = base / math.sqrt(shares[0]), math.fsum(shares[1:]) / base**2
    allowed = delta * (1.0 - gaussian.GUARD)

    def used(threshold: float, cells: int) -> float:
        return unit_norm_delta(epsilon, first, threshold, max_items, cells, others)[0]

    start = gaussian.spread_threshold(first, delta, max_items)
    # The coarse certificate is never below the fine one, and only finds where to search.
    near = _smallest(lambda at: used(at, COARSE) <= allowed, start - 1e-3 * first, start + 1e-3 * first)
    threshold = _smallest(lambda at: used(at, gaussian.CELLS) <= allowed, near - 1e-2 * first, near)
    stddevs = tuple(base / math.sqrt(share) for share in shares)
    return ComposedNoise(stddevs, threshold, used(threshold, gaussian.CELLS))


def _smallest(passes: Callable[[float], bool], low: float, high: float) -> float:
    """Return a point where the monotone `passes` holds, at most a relative 1e-6 above the smallest one."""
    step = high - low
    while not passes(high):
        low, high = high, high + step
        step *= 2.0
        if step > 1e9:
            raise InternalError("a composition does not converge")
    return gaussian.bisect(passes, low, high, 1e-6, 1e-3)


@functools.lru_cache(maxsize=64)
def compose_funnel(
    epsilon: float, delta: float, shape: Funnel, shares: tuple[float, ...], gaussian_share: float
) -> ComposedNoise:
    """Compose Funnel at length 1 with Gaussian releases on public candidates.

    docs/guarantees-funnel.md, "Theorem A", with mu^2 = (1 - c_1^2 t/max_items)/stddev_1^2 + sum_k 1/stddev_k^2.
    """
    base = gaussian.gaussian_stddev(epsilon, gaussian_share * delta, 1.0)
    others = math.fsum(shares[1:]) / base**2
    found = calibrate_with_hints(epsilon, delta, shape, extra_mu_squared=others, gaussian_share=gaussian_share)
    later = tuple(base / math.sqrt(share) for share in shares[1:])
    return ComposedNoise((found.stddev, *later), found.threshold, found.delta_used)


@functools.lru_cache(maxsize=64)
def compose_count(
    epsilon: float, delta: float, max_items: int, shares: tuple[float, ...], calibration: Calibration
) -> ComposedNoise:
    """Compose Count Gaussian, whose sensitivity is sqrt(max_items), with Gaussian releases of sensitivity 1."""
    published = calibration is Calibration.PUBLISHED
    calibrate = gaussian.published_count_gaussian if published else gaussian.exact_count
    found = calibrate(epsilon, delta, max_items, shares[0])
    base = found.scale * math.sqrt(shares[0] / max_items)
    later = tuple(base / math.sqrt(share) for share in shares[1:])
    return ComposedNoise((found.scale, *later), found.threshold, found.delta_used)


def spurious_tail(rate: float, released: int, candidates: int) -> float:
    """Return the chance to come out for a candidate that nobody has: rate * min(1, |S_{k-1}|/|V_k|) (Kim et al. 2021).

    So about rate * min(|V_k|, |S_{k-1}|) n-grams are spurious. Free of budget: both sizes are known from the output.
    """
    return rate * min(1.0, released / candidates)


def candidate_threshold(stddev: float, tail: float) -> float:
    """Return the threshold that pure noise exceeds with probability at most `tail`."""
    return stddev * gaussian.normal_quantile_above(tail)


_quadrature = functools.lru_cache(maxsize=8)(np.polynomial.legendre.leggauss)


@functools.lru_cache(maxsize=256)
def walk_tail(stddev: float, threshold: float, shape: Funnel) -> float:
    """Return the chance that pure noise passes a funnel's threshold in some round, and every keep line before.

    The score after round r is S_{r-1} + c_r stddev Z_r, of variance f_r stddev^2, dropped below the keep line of its
    round and released above the threshold. Backwards: J_r(s) = Pr[s + c_r stddev Z > threshold] plus the integral over
    s' between the keep line and the threshold of J_{r+1}(s') times the normal density. There the integrand is analytic,
    so Gauss-Legendre quadrature converges faster than any power; tests hold it to a relative 1e-10.
    """
    lines = shape.keep_lines(stddev, threshold)
    # Enough nodes to resolve the narrowest step, next to how far the walk has spread by then.
    steps = zip(shape.shares[1:], shape.spent[1:], strict=True)
    needed = math.ceil(max((50.0 * math.sqrt(done) / c for c, done in steps), default=0.0))
    points, weights = _quadrature(max(FEWEST_NODES, needed))
    # Values of the function after round r at the nodes of that round, from the last round back to the first.
    later_nodes: list[tuple[Float64s, Float64s]] = []
    for number, line in enumerate(lines):
        spread = stddev * math.sqrt(shape.spent[number])
        top = min(threshold, max(line + spread, 12.0 * spread))
        scale = 0.5 * (top - line)
        later_nodes.append((line + scale * (points + 1.0), scale * weights))
    starts = [np.zeros(1), *(nodes for nodes, _ in later_nodes)]
    values = gaussian.gaussian_chances(starts[-1], threshold, shape.shares[-1] * stddev)
    for number in range(len(lines) - 1, -1, -1):
        width, (nodes, parts) = shape.shares[number] * stddev, later_nodes[number]
        offset = (nodes[None, :] - starts[number][:, None]) / width
        density = np.exp(-0.5 * offset * offset) / (width * math.sqrt(2.0 * math.pi))
        values = gaussian.gaussian_chances(starts[number], threshold, width) + density @ (parts * values)
    return float(values[0])


@functools.lru_cache(maxsize=64)
def walk_threshold(stddev: float, tail: float, shape: Funnel) -> float:
    """Return a threshold whose walk_tail is at most `tail`, at most a relative 1e-9 above the smallest."""
    # By reflection a walk passes a line in some round at most twice as often as it ends above it.
    highest = candidate_threshold(stddev, 0.5 * tail)
    return gaussian.bisect(lambda line: walk_tail(stddev, line, shape) <= tail, 0.0, highest, 1e-9, stddev)
