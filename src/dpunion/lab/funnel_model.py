"""Funnel on the model of `curves`: the item's own score is simulated through the rounds, many times at once.

Everything here is seeded and public: a plan goes in, a probability comes out, and no data is near.
"""

from __future__ import annotations

import enum
import functools
import math
from typing import assert_never

import numpy as np

from dpunion.algorithms import Funnel
from dpunion.contributions import Float64s
from dpunion.errors import BadParameter
from dpunion.plans import Plan, Round, funnel_shape

TRIALS = 20_000
CROWD = 512
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
    if plan.cutoff is None:
        raise AssertionError("a funnel without a cutoff")
    if algorithm.item_cap < 1.0:
        raise BadParameter("The release curve of Funnel is known for an item_cap of 1 only.", "Leave 'item_cap' out.")
    if size == 1 or company is Company.POPULAR:
        return _alone(plan, algorithm, keepers)
    match company:
        case Company.EQUAL:
            return _among_equals(plan, algorithm, size, keepers)
        case Company.RARE:
            return _among_rare(plan, algorithm, size, keepers)
        case _:
            assert_never(company)


@functools.lru_cache(maxsize=4)
def _normals(*shape: int) -> Float64s:
    """Return the same standard normals in every call, so that curves are smooth; the second half mirrors the first."""
    generator = np.random.default_rng(20)  # noqa: TID251 - a public model, seeded, far from any release
    half = generator.standard_normal((shape[0], (shape[1] + 1) // 2, *shape[2:]))
    return np.concatenate([half, -half], axis=1)[:, : shape[1]]


def _rounds(plan: Plan, algorithm: Funnel) -> list[tuple[Round, float]]:
    """Return each round with the part of the remaining need that it aims at."""
    left = funnel_shape(algorithm).remaining
    return [(one, one.budget / rest) for one, rest in zip(plan.rounds, left, strict=True)]


def _target(plan: Plan, scores: Float64s, share: float) -> Float64s:
    return np.maximum(0.0, float(plan.cutoff or 0.0) - scores) * share


def _alone(plan: Plan, algorithm: Funnel, keepers: float) -> float:
    """The item gets each holder's whole budget, up to its target."""
    noise = _normals(len(plan.rounds), TRIALS)
    scores, alive = np.zeros(TRIALS), np.ones(TRIALS, np.bool_)
    for number, (one, share) in enumerate(_rounds(plan, algorithm)):
        weights = np.minimum(_target(plan, scores, share), keepers * one.budget)
        scores += one.budget * (weights + one.stddev * noise[number])
        alive &= scores > one.threshold
    return float(alive.mean())


def _among_equals(plan: Plan, algorithm: Funnel, size: int, keepers: float) -> float:
    """All holders hold the same items: each step goes in the same direction, so n users take n steps at once."""
    trials = max(200, 2 * TRIALS // size)
    noise = _normals(len(plan.rounds), trials, size)
    scores, alive = np.zeros((trials, size)), np.ones((trials, size), np.bool_)
    for number, (one, share) in enumerate(_rounds(plan, algorithm)):
        targets = np.where(alive, _target(plan, scores, share), 0.0)
        length = np.sqrt((targets * targets).sum(axis=1, keepdims=True))
        weights = targets * np.minimum(1.0, keepers * one.budget / np.maximum(length, 1e-300))
        scores += one.budget * (weights + one.stddev * noise[number])
        alive &= scores > one.threshold
    return float(alive.mean())


def _among_rare(plan: Plan, algorithm: Funnel, size: int, keepers: float) -> float:
    """Each holder's other items are touched by that holder only; a crowd of such holders is simulated along.

    What a rare item gets depends a little on the common item's gap: its mean over the trials is used.
    """
    trials = TRIALS // 6
    steps = min(math.ceil(keepers), MOST_STEPS)
    users = keepers / steps  # subtle: more users than steps take them in groups, which act as one longer step
    noise, rare_noise = _normals(len(plan.rounds), trials), _normals(len(plan.rounds) + 1, CROWD, size - 1)[1:]
    scores, alive = np.zeros(trials), np.ones(trials, np.bool_)
    rare, rare_alive = np.zeros((CROWD, size - 1)), np.ones((CROWD, size - 1), np.bool_)
    seats = np.arange(trials) * 37
    for number, (one, share) in enumerate(_rounds(plan, algorithm)):
        targets = _target(plan, scores, share)
        rare_targets = np.where(rare_alive, _target(plan, rare, share), 0.0)
        rivals = (rare_targets * rare_targets).sum(axis=1)
        gaps = targets.copy()
        for step in range(steps):
            length = np.sqrt(gaps * gaps + rivals[(seats + step) % CROWD])
            gaps -= gaps * np.minimum(1.0, users * one.budget / np.maximum(length, one.budget))
        scores += one.budget * (targets - gaps + one.stddev * noise[number])
        alive &= scores > one.threshold
        typical = float(targets.mean())
        length = np.sqrt(typical * typical + rivals)[:, None]
        given = rare_targets * (one.budget / np.maximum(length, one.budget))
        rare += one.budget * (given + one.stddev * rare_noise[number])
        rare_alive &= rare > one.threshold
    return float(alive.mean())
