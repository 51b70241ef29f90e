"""Funnel on the model of `curves`: the item's own score is simulated through the rounds, many times at once.

Everything here is seeded and public: a plan goes in, a probability comes out, and no data is near.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable
from statistics import NormalDist
from typing import assert_never

import numpy as np

from dpunion.algorithms import Funnel
from dpunion.contributions import Bools, Float64s
from dpunion.plans import Plan, Round

TRIALS = 20_000
CROWD, CROWD_ITEMS = 512, 40_000
MOST_STEPS = 64


class Company(enum.Enum):
    """What else the holders of an item hold.

    RARE: items that nobody else holds. EQUAL: the same items as each other, all as popular as this one. POPULAR: items
    so popular that others have already seen to them.
    """

    RARE = "rare"
    EQUAL = "equal"
    POPULAR = "popular"


@functools.lru_cache(maxsize=4096)
def funnel_chances(plan: Plan, algorithm: Funnel, size: int, company: Company, keepers: float) -> float:
    """Return the chance that an item is released which `keepers` people keep, each with size - 1 other items."""
    if size == 1 or company is Company.POPULAR:
        return _alone(plan, algorithm, keepers)
    match company:
        case Company.EQUAL:
            return _among_equals(plan, algorithm, size, keepers)
        case Company.RARE:
            return _among_rare(plan, algorithm, size, keepers)
        case _:
            assert_never(company)


@functools.lru_cache(maxsize=8)
def _spread_normals(rounds: int, trials: int) -> Float64s:
    """Return points spread evenly under a normal distribution of this many dimensions: float64[rounds, trials].

    An additive recurrence by powers of the generalised golden ratio, the root of x^(d+1) = x + 1 (Roberts 2018): far
    more even than random points, so that few of them are enough.
    """
    ratio = 1.5
    for _ in range(60):
        ratio = (1.0 + ratio) ** (1.0 / (rounds + 1))
    steps = np.arange(1, trials + 1)
    inverse = NormalDist().inv_cdf
    even = [(0.5 + steps * ratio ** -(at + 1)) % 1.0 for at in range(rounds)]
    return np.array([[inverse(float(min(max(u, 1e-9), 1.0 - 1e-9))) for u in row] for row in even])


@functools.lru_cache(maxsize=4)
def _normals(*shape: int) -> Float64s:
    """Return the same standard normals in every call, so that curves are smooth: float64[shape]."""
    generator = np.random.default_rng(20)  # noqa: TID251 - a public model, seeded, far from any release
    return generator.standard_normal(shape)


def _rounds(plan: Plan, algorithm: Funnel) -> list[tuple[Round, Callable[[Float64s], Float64s]]]:
    """Return each round with the targets that it has for scores."""
    cutoffs = algorithm.cutoffs(plan.scale, plan.threshold)

    def targets(cutoff: float, aim: float, scores: Float64s) -> Float64s:
        return np.where(scores > plan.threshold, 0.0, np.maximum(0.0, cutoff - scores) * aim)

    aimed = (functools.partial(targets, cutoff, aim) for cutoff, aim in zip(cutoffs, algorithm.aims, strict=True))
    return list(zip(plan.rounds, aimed, strict=True))


def _advance(plan: Plan, one: Round, scores: Float64s, alive: Bools, gains: Float64s) -> None:
    """Add what a round brings, noise included; drop what is not above the line. What has passed stays as it is."""
    scores += np.where(scores > plan.threshold, 0.0, gains)
    alive &= scores > one.threshold


def _alone(plan: Plan, algorithm: Funnel, keepers: float) -> float:
    """The item gets each holder's whole budget, up to its target."""
    noise = _spread_normals(len(plan.rounds), TRIALS)
    scores, alive = np.zeros(TRIALS), np.ones(TRIALS, np.bool_)
    for number, (one, targets_of) in enumerate(_rounds(plan, algorithm)):
        weights = np.minimum(targets_of(scores), keepers * one.budget)
        _advance(plan, one, scores, alive, one.budget * (weights + one.stddev * noise[number]))
    return float(alive.mean())


def _among_equals(plan: Plan, algorithm: Funnel, size: int, keepers: float) -> float:
    """All holders hold the same items: each step goes in the same direction, so n users take n steps at once."""
    trials = max(400, 2 * TRIALS // size)
    noise = _normals(len(plan.rounds), trials, size)
    scores, alive = np.zeros((trials, size)), np.ones((trials, size), np.bool_)
    for number, (one, targets_of) in enumerate(_rounds(plan, algorithm)):
        targets = np.where(alive, targets_of(scores), 0.0)
        length = np.sqrt((targets * targets).sum(axis=1, keepdims=True))
        weights = targets * np.minimum(1.0, keepers * one.budget / np.maximum(length, 1e-300))
        _advance(plan, one, scores, alive, one.budget * (weights + one.stddev * noise[number]))
    return float(alive.mean())


def _among_rare(plan: Plan, algorithm: Funnel, size: int, keepers: float) -> float:
    """Each holder's other items are touched by that holder only; a crowd of such holders is simulated along.

    What a rare item gets depends a little on the common item's gap: its mean over the trials and the round is used.
    """
    trials = TRIALS // 5
    steps = min(math.ceil(keepers), MOST_STEPS)
    users = keepers / steps  # subtle: more users than steps take them in groups, which act as one longer step
    crowd = min(16 * CROWD, max(CROWD, CROWD_ITEMS // (size - 1)))
    noise, rare_noise = _spread_normals(len(plan.rounds), trials), _normals(len(plan.rounds), crowd, size - 1)
    scores, alive = np.zeros(trials), np.ones(trials, np.bool_)
    rare, rare_alive = np.zeros((crowd, size - 1)), np.ones((crowd, size - 1), np.bool_)
    seats = np.arange(trials) * 37
    for number, (one, targets_of) in enumerate(_rounds(plan, algorithm)):
        targets = targets_of(scores)
        rare_targets = np.where(rare_alive, targets_of(rare), 0.0)
        rivals = (rare_targets * rare_targets).sum(axis=1)
        gaps = targets.copy()
        for step in range(steps):
            length = np.sqrt(gaps * gaps + rivals[(seats + step) % crowd])
            gaps -= gaps * np.minimum(1.0, users * one.budget / np.maximum(length, one.budget))
        typical = float((targets + gaps)[alive].mean()) / 2.0 if alive.any() else 0.0
        _advance(plan, one, scores, alive, one.budget * (targets - gaps + one.stddev * noise[number]))
        length = np.sqrt(typical * typical + rivals)[:, None]
        given = rare_targets * (one.budget / np.maximum(length, one.budget))
        _advance(plan, one, rare, rare_alive, one.budget * (given + one.stddev * rare_noise[number]))
    return float(alive.mean())
