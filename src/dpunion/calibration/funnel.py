"""Funnel's noise and its smallest certified threshold, over all ways to split delta.

docs/guarantees-funnel.md, Theorem A: with t novel items the release is (epsilon, delta)-private for delta = max_t
[delta_G(epsilon; mu_t) + p_t], where p_t bounds the chance that a novel item is released. In round 1 every novel item
gets the same gift y, at least as large as any shared item's, so the shared items move by s_1 with s_1^2 <=
min(c_1^2 - t y^2, (max_items - t) y^2) <= c_1^2 (1 - t/max_items), and mu_t^2 = (1 - c_1^2 + s_1^2)/stddev^2. Nothing
is random before round 1, so y is a fixed number of the data at hand, and the maximum may be taken over y with both
terms at the same y. The plain form of the theorem takes each term at its own worst y and is used wherever it is
enough; the joint form is used elsewhere (it decides when few items are novel).

Searching takes a second or two, so `calibrate_with_hints` saves what it finds in the user's private cache directory.
A saved hint is never trusted: the next plan evaluates the certificate again, and searches again if it fails.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

import numpy as np

from dpunion.algorithms import Funnel
from dpunion.calibration.gaussian import GUARD, gaussian_stddev, normal_quantile_above
from dpunion.calibration.novelty import FINE, WalkNovelty, largest_gifts, rise
from dpunion.checks import check_real
from dpunion.contributions import Float64s, Int64s
from dpunion.errors import BadParameter, CannotWrite, InternalError
from dpunion.files import atomic_file
from dpunion.kernels import novelty
from dpunion.kernels.compiler import cache_directory
from dpunion.kernels.normal import gaussian_delta

# A threshold is accepted when its novelty bound is within this factor of what would be allowed.
SLACK = 1e-3
# The search for the split of delta uses a grid of this many cells, and then finds the threshold on the fine one.
COARSE = 400
# Pieces of the range of round 1's gift, where the joint form of Theorem A is needed.
PIECES = 100
# With rounding a novel item may get a little less than the shared ones in round 1. For every slack up to 0.01 the
# shared move still obeys s_1^2 <= c_1^2 (1 - 0.98^2 t / items): see docs/guarantees-funnel.md, "Rounding".
ROUNDED = 0.98**2
# The parts of delta that the search tries for the noise.
SHARES = (0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.84, 0.87, 0.9, 0.92, 0.93, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995)
FIRST_SHARE = 0.98
LARGEST_MU_SQUARED = 1e300


@dataclass(frozen=True, slots=True)
class FunnelHints:
    """Where a search may start. The certificate is always evaluated again."""

    stddev: float
    threshold: float


@dataclass(frozen=True, slots=True)
class FunnelCalibration:
    """Noise and threshold of a funnel, the delta they really use, and the number of novel items that uses most."""

    stddev: float
    threshold: float
    delta_used: float
    worst_novel: int
    gaussian_share: float  # delta_G without novel items, as a part of delta

    @property
    def hints(self) -> FunnelHints:
        """Return what makes the same calibration fast next time."""
        return FunnelHints(self.stddev, self.threshold)


@dataclass(frozen=True, slots=True)
class _Task:
    """The public question: the guarantee to reach, and the shape to reach it with."""

    epsilon: float
    delta: float
    shape: Funnel
    extra_mu_squared: float

    @property
    def allowed(self) -> float:
        return self.delta * (1.0 - GUARD)

    def gaussian_deltas(self, stddev: float, kept: Float64s) -> Float64s:
        """Return delta_G for each squared sensitivity in `kept`: float64[n]."""
        return novelty.gaussian_deltas(self.epsilon, np.sqrt(kept / stddev**2 + self.extra_mu_squared))


def calibrate_funnel(
    epsilon: float,
    delta: float,
    shape: Funnel,
    *,
    extra_mu_squared: float = 0.0,
    gaussian_share: float | None = None,
    hints: FunnelHints | None = None,
) -> FunnelCalibration:
    """Return the noise and the smallest threshold certified by Theorem A (docs/guarantees-funnel.md).

    extra_mu_squared: the sum of 1/stddev^2 of further Gaussian releases composed with this one. gaussian_share: the
    part of delta that delta_G without novel items gets; by default, the part with the lowest threshold. All arguments
    are public.
    """
    task = _task(epsilon, delta, shape, extra_mu_squared)
    if gaussian_share is not None:
        check_real("", "gaussian_share", gaussian_share, 0.01, 0.999, "Leave it out to let dpunion choose it.")
    if hints is not None:
        stored = _from_hints(task, hints, gaussian_share)
        if stored is not None:
            return stored
    start: float | None = None
    if gaussian_share is None:
        gaussian_share, start = _best_share(task)
    stddev = _stddev(task, gaussian_share)
    return _smallest_threshold(task, stddev, start or _first_guess(stddev, 0.2 * task.delta, task.shape), FINE)


def certificate(
    epsilon: float, delta: float, stddev: float, threshold: float, shape: Funnel, *, extra_mu_squared: float = 0.0
) -> tuple[float, int]:
    """Return the delta that this noise and threshold really use, over every t, and the t that uses it.

    They may be released under `delta` only when the first number is at most delta * (1 - GUARD).
    """
    task = _task(epsilon, delta, shape, extra_mu_squared)
    if not (stddev > 0.0 and threshold > 0.0 and math.isfinite(stddev) and math.isfinite(threshold)):
        raise BadParameter(
            f"A funnel needs a positive stddev and threshold. Got {stddev!r} and {threshold!r} instead.",
            "Use the numbers that the calibration returned.",
        )
    return _worst(task, stddev, WalkNovelty(stddev, threshold, shape, FINE), np.add)


def _worst(
    task: _Task, stddev: float, novelty: WalkNovelty, combine: Callable[[Float64s, Float64s], Float64s]
) -> tuple[float, int]:
    """Return the largest combine(delta_G, p) over every t = 0..max_items and gift of round 1, and its t.

    `combine` is nondecreasing in both. For each t the plain form combines the largest shared move with the largest
    gift; the joint form is computed only for a t that would decide. With more novel items, delta_G, each item's gift
    and its chance to pass can only fall: the first t of a run bounds the plain form of the whole run, and runs that
    cannot decide are skipped.
    """
    shape = task.shape
    items = shape.max_items_per_user
    novel = np.arange(1, items + 1)
    gifts = largest_gifts(stddev, novelty.threshold, shape)
    kept = 1.0 - shape.squared_shares[0] * ROUNDED * novel / items
    deltas = task.gaussian_deltas(stddev, kept)
    none = combine(task.gaussian_deltas(stddev, np.ones(1)), np.zeros(1))
    worst, at = float(none[0]), 0

    def examine(some: Int64s, passing: Float64s) -> None:
        nonlocal worst, at
        plain = combine(deltas[some - 1], passing)
        for index in np.argsort(-plain, kind="stable"):
            if plain[index] <= worst:
                return
            t = int(some[index])
            value = min(float(plain[index]), _joint(task, stddev, novelty, combine, t, float(gifts[t - 1])))
            if value > worst:
                worst, at = value, t

    firsts = rise(1, items)
    firsts = firsts[firsts <= items]  # where runs of 1..items begin
    lasts = np.append(firsts[1:] - 1, items)
    passing = novelty.at(firsts, gifts[firsts - 1])
    examine(firsts, passing)
    most = combine(deltas[firsts - 1], np.minimum(1.0, passing * (lasts / firsts)))
    inside = np.flatnonzero(np.repeat(most > worst, lasts - firsts + 1)) + 1
    others = np.setdiff1d(inside, firsts)
    examine(others, novelty.at(others, gifts[others - 1]))
    return worst, at


def _joint(
    task: _Task,
    stddev: float,
    novelty: WalkNovelty,
    combine: Callable[[Float64s, Float64s], Float64s],
    t: int,
    largest: float,
) -> float:
    """Return the largest combine(delta_G, p) for t novel items over the gift y of round 1.

    s_1^2 = min(c_1^2 - t y^2, (items - t) y^2) grows with y up to y^2 = c_1^2/items and falls beyond, while
    p_t only grows: so only y >= c_1/sqrt(items) matter, and a piece takes s_1 at its lower end and p_t at its
    upper end.
    """
    first, items = task.shape.squared_shares[0], task.shape.max_items_per_user
    lowest = min(largest, math.sqrt(first * ROUNDED / items))
    ends = np.linspace(lowest, largest, PIECES + 1) if largest > lowest else np.array([lowest, largest])
    # Where every gift is below c_1/sqrt(items), the other side of the minimum bounds s_1.
    moved = np.clip(np.minimum(first - t * ends[:-1] ** 2, first * (1.0 - ROUNDED * t / items)), 0.0, None)
    deltas = task.gaussian_deltas(stddev, 1.0 - first + moved)
    return float(combine(deltas, novelty.along(t, ends)[1:]).max())


def _smallest_threshold(task: _Task, stddev: float, start: float, cells: int) -> FunnelCalibration:
    """Find the smallest threshold with delta_G + p_t <= allowed for every t."""
    allowed = task.allowed

    def ratio(deltas: Float64s, passing: Float64s) -> Float64s:
        return np.asarray(passing / (allowed - deltas))

    found = _search(lambda bound: _worst(task, stddev, bound, ratio)[0], stddev, start, task.shape, cells)
    used, worst = _worst(task, stddev, found, np.add)
    share = float(task.gaussian_deltas(stddev, np.ones(1))[0]) / task.delta
    if used > allowed:
        raise InternalError("a funnel's certificate contradicts itself")
    return FunnelCalibration(stddev, found.threshold, used, worst, share)


def _search(
    ratio_of: Callable[[WalkNovelty], float], stddev: float, start: float, shape: Funnel, cells: int
) -> WalkNovelty:
    """Find the threshold whose ratio is just below 1: by the secant method on its logarithm, nearly linear in it."""
    low, high = 0.0, math.inf  # the largest threshold that failed, the smallest that passed
    threshold, slope = start, -start / stddev**2
    before: tuple[float, float] | None = None
    for _ in range(60):
        bound = WalkNovelty(stddev, threshold, shape, cells)
        value = math.log(max(1e-300, ratio_of(bound)))
        if value <= 0.0:
            high = threshold
            if value >= -SLACK or high - low <= 1e-9 * high:
                return bound
        else:
            low = threshold
        if before is not None and value != before[1]:
            slope = min((value - before[1]) / (threshold - before[0]), -1e-3 / stddev)
        before = threshold, value
        # Aim at the middle of what is accepted; fall back to bisection when the step leaves the bracket.
        following = threshold - (value + 0.5 * SLACK) / slope
        if not low < following < high:
            following = 0.5 * (low + high) if math.isfinite(high) else 2.0 * threshold
        threshold = following
    raise InternalError("a funnel's calibration does not converge")


def threshold_for_novelty(stddev: float, novelty: float, shape: Funnel) -> float:
    """Return the smallest threshold with p_t <= novelty for every t and every gift of round 1 (Theorem B)."""
    novel = np.arange(1, shape.max_items_per_user + 1)
    allowed = check_real("", "novelty", novelty, 1e-18, 0.5, "Choose a larger budget.") * (1.0 - GUARD)

    def ratio(bound: WalkNovelty) -> float:
        return float(bound.at(novel, largest_gifts(stddev, bound.threshold, shape)).max()) / allowed

    return _search(ratio, stddev, _first_guess(stddev, novelty, shape), shape, FINE).threshold


def _best_share(task: _Task) -> tuple[float, float]:
    """Return the part of delta for delta_G whose threshold is lowest, and that threshold; by hill climbing.

    It uses the coarse grid: the choice is public and free, and only the threshold needs the fine grid.
    """
    found: dict[int, FunnelCalibration] = {}

    def threshold(index: int) -> float:
        if not (0 <= index < len(SHARES) and _leaves_room(task, SHARES[index])):
            return math.inf
        if index not in found:
            stddev = _stddev(task, SHARES[index])
            near = found[min(found, key=lambda known: abs(known - index))] if found else None
            start = near.threshold if near else _first_guess(stddev, 0.2 * task.delta, task.shape)
            found[index] = _smallest_threshold(task, stddev, start, COARSE)
        return found[index].threshold

    best = SHARES.index(FIRST_SHARE)
    if not _leaves_room(task, FIRST_SHARE):
        best = len(SHARES) - 1
    while True:
        following = min((best, best - 1, best + 1), key=threshold)
        if following == best:
            # Each round but the last lifts the threshold by about half a cell of the coarse grid.
            return SHARES[best], threshold(best) * (1.0 - 0.5 * (task.shape.rounds - 1) / COARSE)
        best = following


def _stddev(task: _Task, share: float) -> float:
    if not _leaves_room(task, share):
        raise BadParameter(
            "The other releases composed with this funnel leave no budget for it.",
            "Give them more noise, or this release a larger budget.",
        )
    return gaussian_stddev(task.epsilon, share * task.delta, 1.0, task.extra_mu_squared)


def _leaves_room(task: _Task, share: float) -> bool:
    return gaussian_delta(task.epsilon, math.sqrt(task.extra_mu_squared)) < share * task.allowed


def _first_guess(stddev: float, novelty: float, shape: Funnel) -> float:
    """Return roughly the threshold: that of a single round whose novel items pass with this chance."""
    items = shape.max_items_per_user
    return 1.1 / math.sqrt(items) + stddev * max(0.5, normal_quantile_above(novelty / items))


@functools.lru_cache(maxsize=256)
def _from_hints(task: _Task, hints: FunnelHints, wanted: float | None) -> FunnelCalibration | None:
    """Return the calibration that the hints describe, if it is certified and wastes nothing; else None."""
    usable = all(math.isfinite(number) and number > 0.0 for number in (hints.stddev, hints.threshold))
    if not usable:
        return None
    share = float(task.gaussian_deltas(hints.stddev, np.ones(1))[0]) / task.delta
    if not (SHARES[0] - 0.01 <= share < 1.0 if wanted is None else abs(share - wanted) < 1e-6):
        return None
    novelty = WalkNovelty(hints.stddev, hints.threshold, task.shape, FINE)
    used, worst = _worst(task, hints.stddev, novelty, np.add)
    if not (1.0 - 2.0 * SLACK) * task.delta <= used <= task.allowed:
        return None
    return FunnelCalibration(hints.stddev, hints.threshold, used, worst, share)


def _task(epsilon: float, delta: float, shape: Funnel, extra_mu_squared: float) -> _Task:
    extra_is = "It is the sum of 1/stddev^2 of the releases composed with this one."
    return _Task(
        check_real("", "epsilon", epsilon, 5e-4, 100.0, "Choose 'epsilon' in this range."),
        check_real("", "delta", delta, 1e-18, 0.5, "Choose 'delta' in this range."),
        shape,
        check_real("", "extra_mu_squared", extra_mu_squared, 0.0, LARGEST_MU_SQUARED, extra_is),
    )


def calibrate_with_hints(
    epsilon: float, delta: float, shape: Funnel, *, extra_mu_squared: float = 0.0, gaussian_share: float | None = None
) -> FunnelCalibration:
    """Return the calibration of a funnel, starting from what an earlier process found."""
    path, known = _hint_path(epsilon, delta, shape, extra_mu_squared, gaussian_share), None
    if path is not None:
        # A file that is unreadable or odd is no hint.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            values = json.loads(path.read_text())
            known = FunnelHints(float(values["stddev"]), float(values["threshold"]))
    found = calibrate_funnel(
        epsilon, delta, shape, extra_mu_squared=extra_mu_squared, gaussian_share=gaussian_share, hints=known
    )
    if path is not None and found.hints != known:
        with contextlib.suppress(CannotWrite), atomic_file(path) as file:
            file.write(json.dumps(asdict(found.hints)).encode())
    return found


def _hint_path(epsilon: float, delta: float, shape: Funnel, extra: float, share: float | None) -> Path | None:
    directory = cache_directory()
    if directory is None:
        return None
    composed = () if share is None else (extra, share)
    digest = hashlib.sha256(repr((epsilon, delta, astuple(shape), *composed)).encode()).hexdigest()[:32]
    return directory / f"funnel-{digest}.json"
