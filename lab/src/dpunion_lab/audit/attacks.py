"""Attacks on a policy: the examples that the search tries. No attack knows any policy.

Attacks on one update draw histograms, pairs of histograms and a user, near the places where policies change their
behaviour. Attacks from the empty histogram draw sequences of users and leave one of them out. They are of three kinds:

groups   earlier users prime some items of each group, others stay fresh; the extra user moves many groups a little, and
         the followers of each group amplify that, if the policy lets them
ladders  items are primed to rising levels, and followers have neighbouring rungs
growth   users are appended one at a time, each the candidate that separates the two worlds most

The attacks' randomness is here too. It decides nothing private, so it can have a seed.
"""

from __future__ import annotations

import dataclasses
import math
import os
from dataclasses import dataclass

import numpy as np

from dpunion.algorithms import Norm
from dpunion.contributions import Float64s, Int32s
from dpunion_lab.audit.examples import PairExample, SequenceExample, StepExample
from dpunion_lab.audit.policies import Subject

Generator = np.random.Generator

# Closer pairs than this would only show rounding.
CLOSEST = 1e-3
MOST_USERS = 1500
EXTRAS = ("all", "primed", "fresh")


def generator(seed: int) -> Generator:
    """Return the attacks' random generator; the same seed tries the same attacks in the same order."""
    return np.random.default_rng(seed)


def new_seed() -> int:
    """Return a random seed; the report prints it, so that the search can be repeated."""
    return int.from_bytes(os.urandom(4), "little")


# --- on one update ------------------------------------------------------------------------------------------


def random_state(rng: Generator, subject: Subject, size: int) -> Float64s:
    """Draw a histogram within [0, cutoff]: empty, uniform, all equal, rising, or just below the cutoff."""
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
    # One kind for all items, a mix of two kinds, or a kind for each item.
    kinds = rng.choice(len(choices), size=int(rng.choice([1, 2, len(choices)])))
    state: Float64s = choices[rng.choice(kinds, size=size), np.arange(size)]
    return state


def random_neighbour(rng: Generator, subject: Subject, state: Float64s) -> Float64s:
    """Draw a second histogram near the first: a few or all items move, equally, at random or only down."""
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
    """Draw a user with all items, or with some of them."""
    most = min(size, subject.max_items)
    count = most if rng.random() < 0.5 else int(rng.integers(1, most + 1))
    return np.sort(rng.choice(size, count, replace=False)).astype(np.int32)


def random_size(rng: Generator, subject: Subject) -> int:
    """Draw the number of items: mostly few, sometimes as many as a user may have."""
    if rng.random() < 0.8:
        return int(rng.integers(1, 9))
    return int(rng.integers(1, subject.max_items + 1))


def random_pair(rng: Generator, subject: Subject, attack: str) -> PairExample | None:
    """Draw a pair and a user; return None if the histograms are too close to show anything."""
    size = random_size(rng, subject)
    one = random_state(rng, subject, size)
    other = random_neighbour(rng, subject, one) if rng.random() < 0.8 else random_state(rng, subject, size)
    if subject.distance(one, other) < CLOSEST * subject.budget:
        return None
    return PairExample.of(subject, one, other, random_items(rng, subject, size), attack)


def random_pairs(rng: Generator, subject: Subject, tries: int) -> list[PairExample]:
    """Draw pairs at random."""
    drawn = (random_pair(rng, subject, "random pairs") for _ in range(tries))
    return [pair for pair in drawn if pair is not None]


def random_steps(rng: Generator, subject: Subject, tries: int) -> list[StepExample]:
    """Draw single updates, to see how far one user moves a histogram."""
    found = []
    for _ in range(tries):
        size = random_size(rng, subject)
        state = random_state(rng, subject, size)
        found.append(StepExample.of(subject, state, random_items(rng, subject, size), "random steps"))
    return found


def climb_pair(rng: Generator, subject: Subject, tries: int) -> list[PairExample]:
    """Draw some pairs, then change the one that expands most, coordinate by coordinate, while it expands more.

    This is a pattern search: it needs no gradient, and steps shrink when none of them helps.
    """
    starts = [pair for pair in (random_pair(rng, subject, "pattern search") for _ in range(tries // 5)) if pair]
    if not starts:
        return []
    # Many pairs keep their distance exactly, so ties are common: start from a random one of the best.
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
        following = PairExample.of(subject, one, other, best.items, best.attack)
        if following.score >= best.score:
            best = following
        else:
            step = max(0.97 * step, 1e-3 * subject.budget)
    return [best]


# --- from the empty histogram -------------------------------------------------------------------------------


def user(items: object) -> Int32s:
    """Return a user's items as kernels take them: sorted, int32[k]."""
    return np.unique(np.asarray(items, np.int32))


@dataclass(frozen=True, slots=True)
class Groups:
    """A database of equal groups.

    groups: their number. primed, fresh: the items of each group. layers: (size, count) pairs, `count` users for each
    run of `size` primed items. extra: which items of every group the extra user has. followers: later users per group.
    """

    groups: int
    primed: int
    fresh: int
    layers: tuple[tuple[int, int], ...]
    extra: str
    followers: int

    @property
    def per_group(self) -> int:
        return self.primed + self.fresh

    @property
    def users(self) -> int:
        runs = sum(math.ceil(self.primed / size) * count for size, count in self.layers)
        return self.groups * (runs + self.followers) + 1

    def fits(self, subject: Subject) -> bool:
        """Say whether the shape is valid and within the limits."""
        held = {"all": self.per_group, "primed": self.primed, "fresh": self.fresh}[self.extra]
        return (
            min(self.groups, self.per_group, held, self.followers) >= 1
            and min(self.primed, self.fresh) >= 0
            and all(size >= 1 and count >= 0 for size, count in self.layers)
            and max(self.groups * held, self.per_group) <= subject.max_items
            and self.users <= MOST_USERS
        )

    def example(self, subject: Subject) -> SequenceExample:
        """Make the users and run both worlds."""
        starts = [group * self.per_group for group in range(self.groups)]
        before: list[Int32s] = []
        for size, count in self.layers:
            for start in starts:
                for first in range(0, self.primed, size):
                    before += [user(range(start + first, start + min(first + size, self.primed)))] * count
        low = self.primed if self.extra == "fresh" else 0
        high = self.primed if self.extra == "primed" else self.per_group
        extra = user([start + i for start in starts for i in range(low, high)])
        after = [user(range(start, start + self.per_group)) for start in starts for _ in range(self.followers)]
        size = self.groups * self.per_group
        return SequenceExample.of(subject, tuple(before), extra, tuple(after), size, "groups")


def random_groups(rng: Generator, subject: Subject) -> Groups:
    """Draw the shape of a database of groups."""
    per_group = int(rng.integers(1, min(16, subject.max_items) + 1))
    groups = int(rng.integers(1, max(1, subject.max_items // per_group) + 1))
    fresh = int(rng.integers(0, min(4, per_group) + 1))
    layers = tuple(_random_layer(rng, subject, max(1, per_group - fresh)) for _ in range(int(rng.integers(1, 4))))
    return Groups(groups, per_group - fresh, fresh, layers, str(rng.choice(EXTRAS)), int(rng.integers(1, 4)))


def _random_layer(rng: Generator, subject: Subject, primed: int) -> tuple[int, int]:
    """Draw users who prime runs of items, up to as many as bring the items to the cutoff."""
    size = int(rng.integers(1, primed + 1)) if rng.random() < 0.5 else 1
    each = subject.budget / (size if subject.norm is Norm.L1 else math.sqrt(size))
    return size, int(rng.integers(0, math.ceil(subject.cutoff / each) + 2))


def change_groups(rng: Generator, subject: Subject, shape: Groups) -> Groups:
    """Change one number of the shape."""
    which = int(rng.integers(7))
    step = int(rng.choice([-2, -1, 1, 2]))
    match which:
        case 0 | 1 | 2:
            name = ("groups", "primed", "fresh")[which]
            return dataclasses.replace(shape, **{name: getattr(shape, name) + step})
        case 3:
            return dataclasses.replace(shape, extra=str(rng.choice(EXTRAS)))
        case 4:
            return dataclasses.replace(shape, followers=max(1, shape.followers + step))
        case 5:
            most = max(1, subject.max_items // max(1, shape.per_group))
            return dataclasses.replace(shape, groups=most)
        case _:
            layers = list(shape.layers)
            place = int(rng.integers(len(layers)))
            size, count = layers[place]
            layers[place] = (
                (size, max(0, count + step))
                if rng.random() < 0.7
                else _random_layer(rng, subject, max(1, shape.primed))
            )
            return dataclasses.replace(shape, layers=tuple(layers))


def climb_groups(rng: Generator, subject: Subject, tries: int) -> list[SequenceExample]:
    """Draw some shapes, then change the best one number by number while the distance grows."""
    shapes = [shape for shape in (random_groups(rng, subject) for _ in range(tries)) if shape.fits(subject)]
    starts = [(shape.example(subject), shape) for shape in shapes[: max(1, tries // 3)]]
    if not starts:
        return []
    best, shape = max(starts, key=lambda pair: pair[0].distance)
    for _ in range(tries - len(starts)):
        following = change_groups(rng, subject, shape)
        if following.fits(subject):
            example = following.example(subject)
            if example.distance >= best.distance:
                best, shape = example, following
    return [best]


def random_ladders(rng: Generator, subject: Subject, tries: int) -> list[SequenceExample]:
    """Draw items primed to rising levels, an extra user with some of them, and followers with neighbouring rungs."""
    found = []
    for _ in range(tries):
        size = int(rng.integers(2, min(24, max(3, subject.max_items)) + 1))
        rise = float(rng.uniform(0.0, 2.0)) * subject.cutoff / size
        counts = (rise * np.arange(size)).astype(np.int64)
        before = [user([rung]) for rung in range(size) for _ in range(int(counts[rung]))]
        most = min(size, subject.max_items)
        extra = user(rng.choice(size, int(rng.integers(1, most + 1)), replace=False))
        width = int(rng.integers(1, most + 1))
        after = [user(range(first, first + width)) for first in range(size - width + 1)]
        if rng.random() < 0.5:
            after.reverse()
        repeats = int(rng.integers(1, 4))
        found.append(SequenceExample.of(subject, tuple(before), extra, tuple(after * repeats), size, "ladders"))
    return found


def grow_sequence(rng: Generator, subject: Subject, tries: int) -> list[SequenceExample]:
    """Append users one at a time, each the best of a few candidates, until no candidate helps or tries run out."""
    size = int(rng.integers(2, min(10, max(2, subject.max_items)) + 1))
    before = [_random_user(rng, subject, size) for _ in range(int(rng.integers(0, 4 * size)))]
    common = subject.after(np.zeros(size), before)
    extra = _random_user(rng, subject, size)
    with_extra, without = subject.policy(common, extra), common
    after: list[Int32s] = []
    for _ in range(max(1, tries // 8)):
        best: tuple[float, Int32s, Float64s, Float64s] | None = None
        for candidate in _candidates(rng, subject, with_extra, without):
            one, other = subject.policy(with_extra, candidate), subject.policy(without, candidate)
            distance = subject.distance(one, other)
            if best is None or distance > best[0]:
                best = (distance, candidate, one, other)
        # subtle: a user who brings the worlds closer might help later, but growth stops there: it never ends worse.
        if best is None or best[0] < subject.distance(with_extra, without):
            break
        after.append(best[1])
        with_extra, without = best[2], best[3]
    return [SequenceExample.of(subject, tuple(before), extra, tuple(after), size, "growth")]


def _random_user(rng: Generator, subject: Subject, size: int) -> Int32s:
    most = min(size, subject.max_items)
    return user(rng.choice(size, int(rng.integers(1, most + 1)), replace=False))


def _candidates(rng: Generator, subject: Subject, with_extra: Float64s, without: Float64s) -> list[Int32s]:
    """Return candidates: random users, and users with items that differ much, little, or some of both."""
    size = len(without)
    found = [_random_user(rng, subject, size) for _ in range(5)]
    order = np.argsort(without - with_extra, kind="stable")
    count = int(rng.integers(1, min(size, subject.max_items) + 1))
    ends = np.concatenate([order[: (count + 1) // 2], order[size - count // 2 :]])
    found += [user(order[:count]), user(order[size - count :]), user(ends)]
    return found
