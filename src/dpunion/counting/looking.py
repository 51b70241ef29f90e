"""The look: how many people hold how many items, by classes, with noise. One more step of the kind that counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpunion.algorithms import Sensitivity
from dpunion.contributions import Bools, Contributions, Int64s
from dpunion.counting.steps import ONE, UNIT_NORM, add_noise
from dpunion.plans.looks import CLASSES, LookPlan
from dpunion.randomness import RunKey


@dataclass(frozen=True, slots=True)
class LookStep:
    """Each user gives 1 to the class of the size of that user's set."""

    number: ClassVar[int] = 3
    sensitivity: ClassVar[Sensitivity] = UNIT_NORM
    length: ClassVar[int] = len(CLASSES)

    def add_up(self, sizes: Int64s) -> Int64s:
        """Add up the users of each class; sizes: int64[users].

        Guarantees: a user adds 1 to one sum, or nothing; which one is a function of that user's own set.
        """
        places = np.searchsorted(CLASSES, sizes[sizes > 0], side="right") - 1
        return ONE * np.bincount(places, minlength=self.length).astype(np.int64)


def set_sizes(sets: Contributions, unwanted: Bools | None = None) -> Int64s:
    """Return how many wanted items each user holds: int64[users]; unwanted: bool[items].

    Guarantees: a user's size is a function of that user's own set and of public lists. Sets may be bounded already, as
    long as the bound is in the last class.
    """
    if unwanted is None:
        return np.diff(sets.offsets)
    wanted = np.zeros(len(sets.items) + 1, np.int64)
    np.cumsum(~unwanted[sets.items], out=wanted[1:])
    return np.diff(wanted[sets.offsets])


def look_at_sizes(sizes: Int64s, look: LookPlan, key: RunKey) -> list[float]:
    """Return the noisy numbers of people of each class; sizes: int64[users].

    Guarantees: those of add_noise.
    """
    step = LookStep()
    return people_in_classes(add_noise(step.add_up(sizes), step.sensitivity, look.stddev, step.number, key))


def people_in_classes(noisy: Int64s) -> list[float]:
    """Return noisy sums as numbers of people."""
    return [float(number) for number in noisy / ONE]
