"""Budgets as whole numbers: sums are exact, and every conversion rounds to the private side."""

from __future__ import annotations

import dataclasses
import enum
import math
from dataclasses import dataclass
from fractions import Fraction

from dpunion.errors import BadParameter

EPSILON_UNITS = 10**9
DELTA_UNITS = 10**18
MU_SQUARED_UNITS = 10**15
# Sums of caps and charges up to this size fit into a database's 64-bit integer.
LARGEST_UNITS = 4 * 10**18


class Composition(enum.Enum):
    """How the releases of a dataset add up."""

    ADDITIVE = "additive"
    TIGHT = "tight"


@dataclass(frozen=True, slots=True)
class Amounts:
    """The cost of a release or the caps of a dataset, in whole units.

    epsilon: in 1e-9. delta: in 1e-18. Tight composition adds up the other three (docs/ledger.md): mu_squared: in 1e-15,
    the squared ratio of sensitivity to stddev. novelty: in 1e-18, the chance that an item of only one person is
    released. rounding: in 1e-9, the privacy loss of float64 decisions.
    """

    epsilon: int = 0
    delta: int = 0
    mu_squared: int = 0
    novelty: int = 0
    rounding: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(*(mine + theirs for mine, theirs in zip(self.values(), other.values(), strict=True)))

    def __neg__(self) -> Amounts:
        return Amounts(*(-mine for mine in self.values()))

    def __sub__(self, other: Amounts) -> Amounts:
        return self + (-other)

    def values(self) -> tuple[int, int, int, int, int]:
        return self.epsilon, self.delta, self.mu_squared, self.novelty, self.rounding

    def stored(self, composition: Composition) -> Amounts:
        """Return the numbers for a row: additive accounts do not use the last three, whose sum would have no bound."""
        return Amounts(self.epsilon, self.delta) if composition is Composition.ADDITIVE else self

    def fits(self, cap: Amounts, composition: Composition) -> bool:
        """Say whether the numbers that the composition adds up are within `cap`."""
        return all(getattr(self, name) <= getattr(cap, name) for name in COUNTED[composition])


COUNTED = {Composition.ADDITIVE: ("epsilon", "delta"), Composition.TIGHT: ("mu_squared", "novelty", "rounding")}
FIELDS = tuple(field.name for field in dataclasses.fields(Amounts))


def units_of_decimal(name: str, value: float, units: int, *, up: bool) -> int:
    """Turn a number that a person wrote into whole units; charges are rounded up, totals down.

    subtle: the person meant the shortest decimal that gives the float, so that ten times 0.1 are 1. It may be half an
    ulp below the float; calibration keeps 2^-17 of epsilon and of delta in reserve, which is far more.
    """
    exact = Fraction(repr(float(value))) * units
    return _check_units(name, math.ceil(exact) if up else math.floor(exact))


def units_of_computed(name: str, value: float, units: int) -> int:
    """Turn a computed number into whole units, rounded up, with a margin for rounding errors of its formula."""
    return _check_units(name, math.ceil(Fraction(value) * (1 + Fraction(1, 10**12)) * units))


def _check_units(name: str, units: int) -> int:
    if not 0 <= units <= LARGEST_UNITS:
        raise BadParameter(f"The {name!r} parameter is larger than a ledger can record.", f"Choose a smaller {name!r}.")
    return units
