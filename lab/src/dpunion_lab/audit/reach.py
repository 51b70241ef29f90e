"""Search for a person who moves the sums of a step of counting too far.

The search chooses everybody's sets and the public numbers of the step, weights or burdens, which may be anything. A
person adds the difference of the step's sums with and without that person. All of these are integers, so the claim
that the squares add up to at most 1 is checked without rounding.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpunion.checks import check_real, check_whole
from dpunion.contributions import Bools, Int32s, Int64s, offsets_of
from dpunion.counting.holdings import Holdings
from dpunion.counting.steps import BURDEN, ONE, FineStep, MarksStep, RoughStep, Step
from dpunion.plans.counts import MOST_COUNTED
from dpunion_lab.audit.attacks import Generator, generator, new_seed
from dpunion_lab.audit.examples import table

STEPS = {RoughStep.number: "rough", MarksStep.number: "marks", FineStep.number: "fine"}
MOST_OTHERS = 5
# Lists are mostly short; now and then, one is as long as one person's counted items can be.
FEW, SOME = 12, 400
OFTEN_FEW, OFTEN_SOME = 0.6, 0.97
CLIMBS = 20


@dataclass(frozen=True, slots=True, eq=False)
class Person:
    """One person's items: sorted places on the list, int32[k], and whether there is anything, or anything unlisted."""

    items: Int32s
    anything: bool
    others: bool


def hold(people: list[Person]) -> Holdings:
    """Return these people's sets in the form that steps take."""
    offsets = offsets_of(np.array([len(one.items) for one in people], np.int64))
    items = np.concatenate([np.zeros(0, np.int32), *(one.items for one in people)])
    anything: Bools = np.array([one.anything for one in people], np.bool_)
    others: Bools = np.array([one.others for one in people], np.bool_)
    return Holdings(offsets, items, anything, others)


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """A step, everybody's sets, and how far one person moves the sums.

    place: the index of that person. squared: the squared l2 norm of the difference, in squared units.
    """

    step: Step
    people: tuple[Person, ...]
    place: int
    squared: int

    @classmethod
    def of(cls, step: Step, people: list[Person], place: int) -> Reach:
        """Compute the sums with and without the person."""
        moved = moved_sums(step, hold(people), hold(people[:place] + people[place + 1 :]))
        return cls(step, tuple(people), place, squared_norm(moved))

    @property
    def distance(self) -> float:
        """Return how far the person moves the sums."""
        return math.sqrt(self.squared) / ONE

    @property
    def is_too_far(self) -> bool:
        """Say whether the person moves the sums by more than 1."""
        return self.squared > ONE * ONE


def moved_sums(step: Step, one: Holdings, other: Holdings) -> Int64s:
    """Return the difference of the step's sums: int64[length]."""
    return step.add_up(one) - step.add_up(other)


def squared_norm(moved: Int64s) -> int:
    """Return the sum of the squares, exactly."""
    return sum(value * value for value in moved[moved != 0].tolist())


# --- examples ---------------------------------------------------------------------------------------------------


def draw_size(rng: Generator) -> int:
    """Draw how many items are listed."""
    kind = rng.random()
    if kind < OFTEN_FEW:
        return int(rng.integers(1, FEW + 1))
    return int(rng.integers(1, SOME + 1)) if kind < OFTEN_SOME else MOST_COUNTED


def draw_person(rng: Generator, size: int) -> Person:
    """Draw a person with all, one, some or none of the listed items, and with or without other items."""
    counts = (size, 1, int(rng.integers(0, size + 1)), 0)
    count = counts[int(rng.choice(4, p=(0.4, 0.2, 0.3, 0.1)))]
    items = np.sort(rng.choice(size, count, replace=False)).astype(np.int32)
    others = bool(rng.random() < 0.5)
    return Person(items, others or count > 0 or bool(rng.random() < 0.5), others)


def draw_rough(_rng: Generator, size: int) -> RoughStep:
    """Return the first step, whose only public number is the length of the list."""
    return RoughStep(size)


def draw_marks(rng: Generator, size: int) -> MarksStep:
    """Draw burdens: all equal, uniform, extreme, or with sums on a mark or next to one."""
    burdens = (
        np.full(size, int(rng.integers(1, BURDEN + 1))),
        rng.integers(1, BURDEN + 1, size),
        rng.choice([1, BURDEN], size),
        np.clip((1 << rng.integers(0, 41, size)) // size + rng.integers(-1, 2, size), 1, BURDEN),
    )[int(rng.integers(4))]
    return MarksStep(burdens.astype(np.int64))


def draw_fine(rng: Generator, size: int) -> FineStep:
    """Draw weights: the largest, the smallest, uniform, of all magnitudes, or where the cap begins to cut."""
    room = FineStep(np.ones(1, np.int64)).room
    limit = np.sqrt(room / int(rng.integers(1, size + 1)))
    weights = (
        np.full(size, ONE),
        np.ones(size),
        rng.integers(1, ONE + 1, size),
        2.0 ** rng.uniform(0.0, 24.0, size),
        limit + rng.integers(-2, 3, size),
        np.where(rng.random(size) < 0.1, ONE, limit / 2.0),
    )[int(rng.integers(6))]
    return FineStep(np.clip(np.floor(weights), 1, ONE).astype(np.int64))


DRAWN: dict[str, Callable[[Generator, int], Step]] = {"rough": draw_rough, "marks": draw_marks, "fine": draw_fine}


def draw_reach(rng: Generator, name: str) -> Reach:
    """Draw a step's public numbers and everybody's sets."""
    size = draw_size(rng)
    people = [draw_person(rng, size) for _ in range(1 + int(rng.integers(0, MOST_OTHERS + 1)))]
    return Reach.of(DRAWN[name](rng, size), people, int(rng.integers(len(people))))


def change_reach(rng: Generator, reach: Reach) -> Reach:
    """Change one weight, or one item of the person."""
    people, step = list(reach.people), reach.step
    if isinstance(step, FineStep) and rng.random() < 0.7:
        weights = step.weights.copy()
        place = int(rng.integers(len(weights)))
        weights[place] = np.clip(weights[place] + int(rng.choice([-1000, -1, 1, 1000])), 1, ONE)
        return Reach.of(FineStep(weights), people, reach.place)
    size = listed_by(step)
    flipped = np.setxor1d(people[reach.place].items, rng.integers(0, size, 1)).astype(np.int32)
    people[reach.place] = Person(flipped, True, bool(rng.random() < 0.8))
    return Reach.of(step, people, reach.place)


def listed_by(step: Step) -> int:
    """Return the number of items on the step's list."""
    match step:
        case MarksStep():
            return len(step.burdens)
        case FineStep():
            return len(step.weights)
        case _:
            return step.length


# --- the search --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReachReport:
    """The largest move of one person for each step, by name; the number of tries; and the seed to repeat the search."""

    furthest: dict[str, Reach]
    tried: dict[str, int]
    seed: int
    seconds: float

    @property
    def violations(self) -> list[str]:
        """Return the steps that a person moves too far."""
        return [name for name, reach in self.furthest.items() if reach.is_too_far]

    def text(self) -> str:
        """Return a table of the largest moves and the claim of 1."""
        rows = [
            [
                name,
                f"{reach.squared / (ONE * ONE):.9f}",
                "1",
                str(self.tried[name]),
                "VIOLATED" if reach.is_too_far else "holds",
                str(len(reach.people[reach.place].items)),
            ]
            for name, reach in self.furthest.items()
        ]
        head = ["step of counting", "squared move", "claim", "tried", "verdict", "items of the worst person"]
        return (
            table(head, rows)
            + "\n\nWhat one person adds to the sums of each step, in whole units of 2^-24, so the verdict is exact; "
            f"searched {self.seconds:.1f} s with seed {self.seed}."
        )


def search_reach(*, seconds: float = 10.0, tries: int = 10**9, seed: int | None = None) -> ReachReport:
    """Search each step for a person who moves its sums by more than 1, for this long or this many tries.

    seed: repeats a search, as far as its time allows.
    """
    check_real("search_reach", "seconds", seconds, 0.01, 1e6)
    check_whole("search_reach", "tries", tries, 1, 10**9)
    chosen = new_seed() if seed is None else seed
    check_whole("search_reach", "seed", chosen, 0, 2**63)
    rng, start = generator(chosen), time.monotonic()
    furthest: dict[str, Reach] = {}
    tried = dict.fromkeys(DRAWN, 0)
    while min(tried.values()) < tries and (min(tried.values()) == 0 or time.monotonic() - start < seconds):
        for name in DRAWN:
            found = climb_reach(rng, draw_reach(rng, name))
            tried[name] += 1 + CLIMBS
            if name not in furthest or found.squared > furthest[name].squared:
                furthest[name] = found
    return ReachReport(furthest, tried, chosen, time.monotonic() - start)


def climb_reach(rng: Generator, reach: Reach) -> Reach:
    """Change the example repeatedly, and keep each change that moves the sums further."""
    for _ in range(CLIMBS):
        following = change_reach(rng, reach)
        reach = max(reach, following, key=lambda one: one.squared)
    return reach
