"""Attacks on one update: histograms, pairs of them and a user, drawn where policies change their behaviour."""

from __future__ import annotations

import numpy as np

from dpunion.audit.draws import Generator
from dpunion.audit.findings import PairFinding, StepFinding
from dpunion.audit.policies import Subject
from dpunion.contributions import Float64s, Int32s

# Pairs closer than this would only show rounding.
CLOSEST = 1e-3


def random_state(rng: Generator, subject: Subject, size: int) -> Float64s:
    """Draw a histogram within [0, cutoff]: empty, anywhere, tied, on a ladder or just below the cutoff."""
    cutoff = subject.cutoff
    choices = np.stack(
        [
            np.zeros(size),
            rng.uniform(0.0, cutoff, size),
            np.full(size, rng.uniform(0.0, cutoff)),
            cutoff * np.arange(size) / size,
            cutoff - np.minimum(cutoff, subject.budget * 10.0 ** rng.uniform(-3.0, 0.5, size)),
            np.full(size, cutoff - min(cutoff, subject.budget * 10.0 ** rng.uniform(-2.0, 0.2))),
            np.full(size, cutoff),
        ]
    )
    # One kind for all, two kinds mixed, or every item its own kind.
    kinds = rng.choice(len(choices), size=int(rng.choice([1, 2, len(choices)])))
    state: Float64s = choices[rng.choice(kinds, size=size), np.arange(size)]
    return state


def random_neighbour(rng: Generator, subject: Subject, state: Float64s) -> Float64s:
    """Draw a second histogram near the first: a few or all items moved, evenly, at random or down only."""
    touched = rng.random(len(state)) < rng.choice([0.2, 0.5, 1.0])
    length = subject.budget * 10.0 ** rng.uniform(-2.0, 0.3)
    kinds = (np.ones(len(state)), rng.normal(size=len(state)), -np.abs(rng.normal(size=len(state))))
    direction = kinds[int(rng.integers(len(kinds)))] * touched
    norm = float(np.abs(direction).max())
    if norm == 0.0:
        return state
    moved: Float64s = np.clip(state + direction * (length / norm), 0.0, subject.cutoff)
    return moved


def random_items(rng: Generator, subject: Subject, size: int) -> Int32s:
    """Draw who comes along: a user with all items, or with some of them."""
    most = min(size, subject.max_items)
    count = most if rng.random() < 0.5 else int(rng.integers(1, most + 1))
    return np.sort(rng.choice(size, count, replace=False)).astype(np.int32)


def random_size(rng: Generator, subject: Subject) -> int:
    """Draw the number of items: mostly few, sometimes as many as a user may hold."""
    if rng.random() < 0.8:
        return int(rng.integers(1, 9))
    return int(rng.integers(1, subject.max_items + 1))


def random_pair(rng: Generator, subject: Subject, attack: str) -> PairFinding | None:
    """Draw a pair and a user; None when the two are too close to tell anything."""
    size = random_size(rng, subject)
    one = random_state(rng, subject, size)
    other = random_neighbour(rng, subject, one) if rng.random() < 0.8 else random_state(rng, subject, size)
    if subject.distance(one, other) < CLOSEST * subject.budget:
        return None
    return PairFinding.of(subject, one, other, random_items(rng, subject, size), attack)


def random_pairs(rng: Generator, subject: Subject, tries: int) -> list[PairFinding]:
    """Draw pairs at random."""
    drawn = (random_pair(rng, subject, "random pairs") for _ in range(tries))
    return [pair for pair in drawn if pair is not None]


def random_steps(rng: Generator, subject: Subject, tries: int) -> list[StepFinding]:
    """Draw single updates, to see how far one user moves a histogram."""
    found = []
    for _ in range(tries):
        size = random_size(rng, subject)
        state = random_state(rng, subject, size)
        found.append(StepFinding.of(subject, state, random_items(rng, subject, size), "random steps"))
    return found


def climbed_pair(rng: Generator, subject: Subject, tries: int) -> list[PairFinding]:
    """Draw some pairs, then change the most expanding one coordinate by coordinate while it expands more.

    A pattern search: no gradient is needed, and the steps shrink when none of them helps.
    """
    starts = [pair for pair in (random_pair(rng, subject, "pattern search") for _ in range(tries // 5)) if pair]
    if not starts:
        return []
    # Many pairs keep their distance exactly; a random one among the best is a better place to start than the first.
    order = rng.permutation(len(starts))
    best = max((starts[i] for i in order), key=lambda pair: pair.score)
    step = 0.3 * subject.budget
    for _ in range(tries - len(starts)):
        one, other = best.one.copy(), best.other.copy()
        place = int(rng.integers(len(one)))
        which = int(rng.integers(3))
        change = float(rng.normal()) * step
        for histogram in (one, other)[slice(0, 2) if which == 2 else slice(which, which + 1)]:
            histogram[place] = min(max(histogram[place] + change, 0.0), subject.cutoff)
        if subject.distance(one, other) < CLOSEST * subject.budget:
            continue
        following = PairFinding.of(subject, one, other, best.items, best.attack)
        if following.score >= best.score:
            best = following
        else:
            step = max(0.97 * step, 1e-3 * subject.budget)
    return [best]
