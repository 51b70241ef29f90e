"""Attacks from the empty histogram: sequences of users, of whom one may stay away.

Three generic families. Groups: some items of each group are primed by earlier users, others fresh; the extra user
nudges many groups at once, and each group's followers amplify the nudge, if the policy lets them. Ladders: items
primed to rising levels, followers who hold neighbouring rungs. Growth: users appended one at a time, each the
candidate that drives the two worlds furthest apart. None of them knows any policy.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from dpunion.algorithms import Norm
from dpunion.audit.draws import Generator
from dpunion.audit.findings import SequenceFinding
from dpunion.audit.policies import Subject
from dpunion.contributions import Float64s, Int32s

MOST_USERS = 1500
EXTRAS = ("all", "primed", "fresh")


def user(items: object) -> Int32s:
    """Return a user's items as a kernel wants them: rising, int32[k]."""
    return np.unique(np.asarray(items, np.int32))


@dataclass(frozen=True, slots=True)
class Groups:
    """A database of equal groups.

    groups: how many; primed, fresh: items of each group; layers: (size, count) pairs, `count` users for each run of
    `size` primed items; extra: what the extra user holds of every group; followers: users after it, per group.
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
        """Say whether this is a database at all, within the limits."""
        held = {"all": self.per_group, "primed": self.primed, "fresh": self.fresh}[self.extra]
        return (
            min(self.groups, self.per_group, held, self.followers) >= 1
            and min(self.primed, self.fresh) >= 0
            and all(size >= 1 and count >= 0 for size, count in self.layers)
            and max(self.groups * held, self.per_group) <= subject.max_items
            and self.users <= MOST_USERS
        )

    def finding(self, subject: Subject) -> SequenceFinding:
        """Lay out the users and run both worlds."""
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
        return SequenceFinding.of(subject, tuple(before), extra, tuple(after), size, "groups")


def random_groups(rng: Generator, subject: Subject) -> Groups:
    """Draw the shape of a database of groups."""
    per_group = int(rng.integers(1, min(16, subject.max_items) + 1))
    groups = int(rng.integers(1, max(1, subject.max_items // per_group) + 1))
    fresh = int(rng.integers(0, min(4, per_group) + 1))
    layers = tuple(_random_layer(rng, subject, max(1, per_group - fresh)) for _ in range(int(rng.integers(1, 4))))
    return Groups(groups, per_group - fresh, fresh, layers, str(rng.choice(EXTRAS)), int(rng.integers(1, 4)))


def _random_layer(rng: Generator, subject: Subject, primed: int) -> tuple[int, int]:
    """Draw users who prime runs of items: so many that the items come anywhere up to the cutoff."""
    size = int(rng.integers(1, primed + 1)) if rng.random() < 0.5 else 1
    each = subject.budget / (size if subject.norm is Norm.L1 else math.sqrt(size))
    return size, int(rng.integers(0, math.ceil(subject.cutoff / each) + 2))


def changed_groups(rng: Generator, subject: Subject, shape: Groups) -> Groups:
    """Change one number of the shape."""
    which = int(rng.integers(7))
    step = int(rng.choice([-2, -1, 1, 2]))
    match which:
        case 0:
            return dataclasses.replace(shape, groups=shape.groups + step)
        case 1:
            return dataclasses.replace(shape, primed=shape.primed + step)
        case 2:
            return dataclasses.replace(shape, fresh=shape.fresh + step)
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


def climbed_groups(rng: Generator, subject: Subject, tries: int) -> list[SequenceFinding]:
    """Draw some shapes, then change the best one number by number while the distance grows."""
    shapes = [shape for shape in (random_groups(rng, subject) for _ in range(tries)) if shape.fits(subject)]
    starts = [(shape.finding(subject), shape) for shape in shapes[: max(1, tries // 3)]]
    if not starts:
        return []
    best, shape = max(starts, key=lambda pair: pair[0].distance)
    for _ in range(tries - len(starts)):
        following = changed_groups(rng, subject, shape)
        if following.fits(subject):
            finding = following.finding(subject)
            if finding.distance >= best.distance:
                best, shape = finding, following
    return [best]


def random_ladders(rng: Generator, subject: Subject, tries: int) -> list[SequenceFinding]:
    """Draw items primed to rising levels, an extra user who holds some, and followers with neighbouring rungs."""
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
        found.append(SequenceFinding.of(subject, tuple(before), extra, tuple(after * repeats), size, "ladders"))
    return found


def grown_sequence(rng: Generator, subject: Subject, tries: int) -> list[SequenceFinding]:
    """Append users one at a time, each the best of a few candidates, until the tries are used up."""
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
        # subtle: a user who brings the worlds together may still be needed; but a worse end is never kept.
        if best is None or best[0] < subject.distance(with_extra, without):
            break
        after.append(best[1])
        with_extra, without = best[2], best[3]
    return [SequenceFinding.of(subject, tuple(before), extra, tuple(after), size, "growth")]


def _random_user(rng: Generator, subject: Subject, size: int) -> Int32s:
    most = min(size, subject.max_items)
    return user(rng.choice(size, int(rng.integers(1, most + 1)), replace=False))


def _candidates(rng: Generator, subject: Subject, with_extra: Float64s, without: Float64s) -> list[Int32s]:
    """Return who might come next: random users, and users who hold what differs together with what does not."""
    size = len(without)
    found = [_random_user(rng, subject, size) for _ in range(5)]
    order = np.argsort(without - with_extra, kind="stable")
    count = int(rng.integers(1, min(size, subject.max_items) + 1))
    ends = np.concatenate([order[: (count + 1) // 2], order[size - count // 2 :]])
    found += [user(order[:count]), user(order[size - count :]), user(ends)]
    return found
