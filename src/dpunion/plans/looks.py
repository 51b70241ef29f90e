"""A private look at how many items people hold: what it asks, its plan, and what is chosen by it. All public.

`max_items_per_user` is the question that users must guess everywhere else. Here everybody is put into one of a few
classes by the size of their own set, the numbers of people in the classes get noise, and the noisy numbers choose from
a public menu. docs/guarantees-funnel.md, section 10, has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpunion.checks import check_real, check_whole

MENU = (3, 10, 25, 60, 150, 300, 600)
"""The numbers of items per person to choose from."""
USUAL = 300
"""What is chosen when the look shows nothing."""
CLASSES = (1, 2, 3, 4, 6, 8, 11, 17, 26, 45, 61, 121, 301, 451)
"""The smallest set of each class; the last class has no end."""
LARGEST_CLASS_ENDS = 1_000
STRENGTH = 0.04
"""The look's sensitivity over its noise, as a part of what the whole budget would allow one Gaussian release."""
# Tuned on public data: what a person can give grows with the size of the set to this power (0.5 if all items were
# equally hopeless, 1 if none were), and so much of a standard deviation is taken off each class, as only what is below
# zero can be seen to be noise.
POWER = 0.7
SHRINKAGE = 0.5
CLEAR = 2.0
"""More than the usual number is chosen where people with larger sets are so many standard deviations from nobody."""


@dataclass(frozen=True, slots=True)
class LookPlan:
    """The numbers of a look, fixed before any data is read.

    stddev: of the noise on the number of people of each class. delta: what every plan of the menu keeps to; the rest of
    the budget's delta pays for choosing by the look. menu: the bounds to choose from; thresholds: those of their plans.
    """

    stddev: float
    delta: float
    menu: tuple[int, ...]
    thresholds: tuple[float, ...]

    def choose(self, people: Sequence[float]) -> int:
        """Return the bound for which people can give the most, next to what an item needs to come out.

        people: the noisy numbers of people of each class.

        Guarantees: a function of noisy and public numbers alone.
        """
        seen = [max(0.0, number - SHRINKAGE * self.stddev) for number in people]

        def promise(bound: int, threshold: float) -> float:
            gifts = (number * min(size, bound) ** POWER for number, size in zip(seen, class_sizes(), strict=True))
            return math.fsum(gifts) / threshold

        offered = [
            (promise(bound, line), -abs(bound - USUAL), bound)
            for bound, line in zip(self.menu, self.thresholds, strict=True)
            if bound <= USUAL or self.shows_large_sets(people)
        ]
        return max(offered)[-1]

    def shows_large_sets(self, people: Sequence[float]) -> bool:
        """Say whether people with more than the usual number of items stand out from the noise."""
        large = [number for number, first in zip(people, CLASSES, strict=True) if first > USUAL]
        return math.fsum(large) > CLEAR * self.stddev * math.sqrt(len(large))

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return {
            "stddev": self.stddev,
            "delta": self.delta,
            "classes": list(CLASSES),
            "menu": list(self.menu),
            "thresholds": list(self.thresholds),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> LookPlan:
        """Read back what `to_dict` wrote."""
        menu = tuple(check_whole("a look", "menu", bound, 1, 10_000) for bound in values["menu"])
        thresholds = tuple(check_real("a look", "threshold", line, 0.0, 1e12) for line in values["thresholds"])
        stddev = check_real("a look", "stddev", values["stddev"], 0.0, 1e12)
        return cls(stddev, check_real("a look", "delta", values["delta"], 0.0, 1.0), menu, thresholds)


def class_sizes() -> list[float]:
    """Return a typical size of the sets of each class."""
    ends = [*(first - 1 for first in CLASSES[1:]), LARGEST_CLASS_ENDS]
    return [math.sqrt(first * last) for first, last in zip(CLASSES, ends, strict=True)]
