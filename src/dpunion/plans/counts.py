"""Counts of people per released item: the options, the plan, and the results. All of this is public."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from dpunion.checks import check_real, check_whole
from dpunion.errors import BadParameter

MOST_COUNTED = 10_000
"""At most this many items of each person are looked at, drawn at random; the rounding in the proof allows for more."""
LEVEL = 0.95
"""The chance that an interval contains the number of people, where nobody was cut; more where some were."""
Z = 1.959963984540054
"""An interval reaches this many standard deviations to either side: the normal quantile of LEVEL."""
# How the squared budget for counts is divided: how popular items are, how many items people have, and the counts.
PARTS = (0.10, 0.10, 0.80)
# The part of a person's squared budget for each of two numbers: all people, and those with something not listed.
TOTALS = 0.01
# A plan assumes that people use this part of their budget on the whole.
USED = 0.4
PLANNED_SIZES = (20, 100, 1_000, 100_000)
PLANNED_RATIOS = (3, 10, 30)
MOST_PEOPLE = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Ask for the number of people of each item.

    share: the part of the (squared) budget for counts. More makes them more precise, and the list shorter: with a tenth
    it loses two to seven items of a hundred. Public: never tune it on the data.
    """

    share: float = 0.1

    def __post_init__(self) -> None:
        remedy = "Choose the part of the budget for counts, for example 0.1."
        object.__setattr__(self, "share", check_real("counts", "share", self.share, 0.001, 0.9, remedy))

    @property
    def shares(self) -> tuple[float, ...]:
        """Return each step's part of the whole budget; selecting gets what is left."""
        return tuple(self.share * part for part in PARTS)


def as_counts(counts: Any) -> Counts | None:
    """Accept True, False, None or Counts(...)."""
    if counts is None or isinstance(counts, Counts):
        return counts
    if isinstance(counts, bool):
        return Counts() if counts else None
    raise BadParameter(
        f"The 'counts' parameter must be True, False or Counts(...). Got a {type(counts).__name__} instead.",
        "Pass counts=True, or Counts(share=0.1) to choose the part of the budget.",
    )


@dataclass(frozen=True, slots=True)
class CountsPlan:
    """The numbers of counting, fixed before any data is read: its part of the budget, and the noise of its three steps.

    Every step adds Gaussian noise of its stddev to sums that one person moves by at most 1 in l2 norm.
    """

    share: float
    rough: float
    marks: float
    fine: float

    @property
    def stddevs(self) -> tuple[float, ...]:
        """Return the noise of each step."""
        return self.rough, self.marks, self.fine

    def half_width(self, people: int, ratio: float) -> float:
        """Return how far the interval reaches to either side for an item that this many people have.

        ratio: how many people there are for each listed item. People are assumed to use USED of their budget.
        """
        return Z * self.fine / math.sqrt(min(1.0, USED * ratio / max(people, 1)))

    def expected(self) -> list[dict[str, float]]:
        """Return the half-widths to expect, by the number of holders and of people for each listed item."""
        return [
            {"people": people, "people_for_each_item": ratio, "plus_or_minus": self.half_width(people, ratio)}
            for people in PLANNED_SIZES
            for ratio in PLANNED_RATIOS
        ]

    @property
    def total_width(self) -> float:
        """Return how far the interval of the number of all people reaches to either side."""
        return Z * self.fine / math.sqrt(TOTALS)

    def to_dict(self) -> dict[str, Any]:
        return {
            "share": self.share,
            "stddev_rough": self.rough,
            "stddev_marks": self.marks,
            "stddev_fine": self.fine,
            "most_items_counted": MOST_COUNTED,
            "level": LEVEL,
            "all_people_plus_or_minus": self.total_width,
            "expected": self.expected(),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> CountsPlan:
        share = check_real("a plan", "share", values["share"], 0.001, 0.9)
        names = ("stddev_rough", "stddev_marks", "stddev_fine")
        return cls(share, *(check_real("a plan", name, values[name], 0.0, 1e12) for name in names))


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimated number of people, with the interval around it."""

    people: int
    low: int
    high: int

    def to_dict(self) -> dict[str, int]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Estimate:
        return cls(*(check_whole("an estimate", name, values[name], 0, MOST_PEOPLE) for name in cls.__slots__))

    def __str__(self) -> str:
        return f"{self.people:,} ({self.low:,} to {self.high:,})"


@dataclass(frozen=True, slots=True)
class Totals:
    """Estimates about all people together, from the noisy sums alone; public.

    everybody: how many people have at least one item. others: how many have an item that is neither listed nor known.
    cut: about which part of people (0.2 is a fifth) have too many listed items to count as a whole person for all of
    them. corrected: the largest factor by which counts were raised to make up for that; 1 means not at all.
    """

    everybody: Estimate
    others: Estimate
    cut: float
    corrected: float

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Totals:
        everybody, others = Estimate.from_dict(values["everybody"]), Estimate.from_dict(values["others"])
        cut = check_real("totals", "cut", values["cut"], 0.0, 1.0)
        return cls(everybody, others, cut, check_real("totals", "corrected", values["corrected"], 1.0, 1e6))


@dataclass(frozen=True, slots=True)
class Counted:
    """How many people have each item, in the order of the list, and estimates about all people. Public."""

    people: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    totals: Totals
