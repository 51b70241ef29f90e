"""What a person adds when dpunion counts people, and the noise: steps, each a Gaussian mechanism.

    rough   1/sqrt(k) to each of the person's k listed items          about how popular is each item?
    marks   1 in all, to the two marks around the person's burden     how many items do people have?
    fine    a weight for each listed item, capped; and two totals     how many people have each item?
    look    1 to the class of the size of the person's set            how many items do people have? (before the list)

A step knows public numbers only: the list, and what the steps before it released. In each step one person adds a vector
of l2 norm at most 1, whatever other people have (docs/guarantees-counts.md, section 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

import numpy as np

from dpunion.algorithms import Norm, Sensitivity
from dpunion.contributions import Bools, Contributions, Int64s
from dpunion.counting.holdings import Holdings
from dpunion.errors import InternalError, SensitivityMismatch
from dpunion.kernels.counting import add_capped, add_marks
from dpunion.kernels.descent import add_shares
from dpunion.plans.counts import MOST_COUNTED, TOTALS
from dpunion.plans.look import CLASSES, SizeLook
from dpunion.randomness import Purpose, RunKey

ONE = 2**24
"""This many units are 1. People add whole units, so sums are exact and do not depend on order."""
FINENESS = 2**12
"""Noisy sums are rounded to this part of a standard deviation before anything else uses them."""
UNIT_NORM = Sensitivity(Norm.L2, 1.0)
BURDEN = 2**40
"""This many units are a burden of 1. The burdens of MOST_COUNTED items add up to less than 2^54 units."""

Held = TypeVar("Held", contravariant=True)  # noqa: PLC0105 - what a step sees of people


class AnyStep(Protocol[Held]):
    """One step: noisy sums of what people give, which depends on their items.

    number: selects the noise; every step has its own. length: the number of sums.
    """

    number: ClassVar[int]

    @property
    def length(self) -> int: ...

    @property
    def sensitivity(self) -> Sensitivity: ...

    def add_up(self, held: Held, /) -> Int64s:
        """Add up what users give, in units: int64[length]. Guarantees: a user moves it by at most the sensitivity."""


Step = AnyStep[Holdings]
"""A step of counting, which sees each user's listed items."""


@dataclass(frozen=True, slots=True)
class RoughStep:
    """Each user gives 1/sqrt(k) to each of the user's k listed items; length: how many items are listed."""

    number: ClassVar[int] = 0
    sensitivity: ClassVar[Sensitivity] = UNIT_NORM

    length: int

    def add_up(self, holdings: Holdings) -> Int64s:
        """Add up the shares. Guarantees: k shares of at most 1/sqrt(k), rounded down, have norm at most 1."""
        # Roots of whole numbers below 2^52 are right when rounded down.
        shares = np.zeros(MOST_COUNTED + 1, np.int64)
        shares[1:] = np.sqrt(ONE * ONE // np.arange(1, MOST_COUNTED + 1))
        sums = np.zeros(self.length, np.int64)
        add_shares(holdings.offsets, holdings.items, shares, sums)
        return sums


@dataclass(frozen=True, slots=True, eq=False)
class MarksStep:
    """Each user gives 1 in all to the two marks around the sum of the burdens of that user's listed items.

    burdens: int64[items], in units of 1/BURDEN, at least 1. There is one sum for each mark.
    """

    number: ClassVar[int] = 1
    sensitivity: ClassVar[Sensitivity] = UNIT_NORM

    burdens: Int64s

    @property
    def marks(self) -> Int64s:
        """Return the marks: the smallest burden, doubled until nobody can have more. int64[length], rising."""
        least = int(self.burdens.min(initial=BURDEN))
        most = int(np.sort(self.burdens)[-MOST_COUNTED:].sum())
        octaves = max(0, -(-most // least) - 1).bit_length()
        return least << np.arange(octaves + 1, dtype=np.int64)

    @property
    def length(self) -> int:
        return len(self.marks)

    def add_up(self, holdings: Holdings) -> Int64s:
        """Add up the users at each mark.

        Guarantees: what a user adds is not negative and sums up to 1, or is nothing, so its l2 norm is at most 1.
        """
        marks = self.marks
        sums = np.zeros(len(marks), np.int64)
        add_marks(holdings.offsets, holdings.items, self.burdens, marks, ONE, sums)
        return sums


@dataclass(frozen=True, slots=True, eq=False)
class FineStep:
    """Each user gives every listed item its weight, or less where that is too much; and two totals.

    weights: int64[items], in units, 1 to ONE. The last two sums are of all users, and of those with an unlisted item.
    """

    number: ClassVar[int] = 2
    sensitivity: ClassVar[Sensitivity] = UNIT_NORM

    weights: Int64s

    @property
    def length(self) -> int:
        return len(self.weights) + 2

    @property
    def total_weight(self) -> int:
        """Return what a user gives each of the two totals, in units."""
        return math.isqrt(int(TOTALS * ONE * ONE))

    @property
    def room(self) -> int:
        """Return what the squares of a user's weights may sum up to, in squared units."""
        return ONE * ONE - 2 * self.total_weight**2

    def add_up(self, holdings: Holdings) -> Int64s:
        """Add up the weights, capped.

        Guarantees: the squares of what a user adds sum up to at most 1, exactly: `room` for items, the rest for totals.
        """
        if len(self.weights) and not (self.weights.min() >= 1 and self.weights.max() <= ONE):
            raise InternalError("a weight of an item is not within its bounds")
        sums = np.zeros(self.length, np.int64)
        most = int(np.diff(holdings.offsets).max(initial=0))
        add_capped(holdings.offsets, holdings.items, self.weights, self.room, most, sums[:-2])
        sums[-2] = self.total_weight * int(np.count_nonzero(holdings.anything))
        sums[-1] = self.total_weight * int(np.count_nonzero(holdings.others))
        return sums


def add_noise(
    sums: Int64s, sensitivity: Sensitivity, stddev: float, number: int, key: RunKey, places: Int64s | None = None
) -> Int64s:
    """Return the sums with Gaussian noise, rounded to a part of its standard deviation, in units: int64[n].

    places: int64[n], which sums these are; all of them, in order, when left out.

    Guarantees:
    - refuses sums of another sensitivity than the noise is for;
    - the noise of a sum is a function of the run key, the step and its place alone;
    - sums and noise are whole numbers of units, so what comes out is a function of sum + normal, exactly.
    """
    if sensitivity != UNIT_NORM:
        raise SensitivityMismatch("the sums and the noise assume different sensitivities")
    spread = stddev * ONE
    grid = max(1, math.floor(spread / FINENESS))
    names = np.zeros((len(sums), 2), np.uint64)
    names[:, 0] = np.arange(len(sums)) if places is None else places
    normals = key.normals(number, names, Purpose.COUNT)
    noisy = sums + np.rint(spread * normals).astype(np.int64)
    return (noisy + grid // 2) // grid * grid


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
    """Return how many wanted items each user has: int64[users]; unwanted: bool[items].

    Guarantees: a user's size is a function of that user's own set and of public lists. Sets may be bounded already, as
    long as the bound is in the last class.
    """
    if unwanted is None:
        return np.diff(sets.offsets)
    wanted = np.zeros(len(sets.items) + 1, np.int64)
    np.cumsum(~unwanted[sets.items], out=wanted[1:])
    return np.diff(wanted[sets.offsets])


def look_at_sizes(sizes: Int64s, look: SizeLook, key: RunKey) -> list[float]:
    """Return the noisy numbers of people of each class; sizes: int64[users]. Guarantees: as for add_noise."""
    step = LookStep()
    return people_in_classes(add_noise(step.add_up(sizes), step.sensitivity, look.stddev, step.number, key))


def people_in_classes(noisy: Int64s) -> list[float]:
    """Return noisy sums as numbers of people."""
    return [float(number) for number in noisy / ONE]
