"""How much may be learnt about one person: the pair (epsilon, delta), validated."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpunion.errors import BadParameter

LARGEST_EPSILON = 30.0
SMALLEST_EPSILON = 1e-3
SMALLEST_DELTA = 1e-15


@dataclass(frozen=True, slots=True)
class Budget:
    """A privacy budget for adding or removing one user.

    epsilon in [0.001, 30]: below, the numerical slack of the decisions would no longer be negligible; above, the
    promise is empty and the coins' rounding would show. delta in [1e-15, 1): zero is impossible for an unbounded
    universe of items.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _number("epsilon", self.epsilon))
        object.__setattr__(self, "delta", _number("delta", self.delta))
        if not SMALLEST_EPSILON <= self.epsilon <= LARGEST_EPSILON:
            raise BadParameter(
                f"The 'epsilon' parameter must be between {SMALLEST_EPSILON:g} and {LARGEST_EPSILON:g}. "
                f"Got {self.epsilon!r} instead.",
                "Typical values lie between 0.1 and 10; smaller is more private.",
            )
        if not SMALLEST_DELTA <= self.delta < 1.0:
            raise BadParameter(
                f"The 'delta' parameter must be at least {SMALLEST_DELTA:g} and below 1. Got {self.delta!r} instead.",
                "Choose it well below one over the number of people, from public knowledge, for example 1e-6.",
            )


def _number(name: str, value: object) -> float:
    """Return `value` as a finite float, or raise the sentence that says what was wrong."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadParameter(
            f"The {name!r} parameter must be a number. Got a {type(value).__name__} instead.",
            f"Pass {name!r} as a plain number, for example 1e-6.",
        )
    number = float(value)
    if not math.isfinite(number):
        raise BadParameter(
            f"The {name!r} parameter must be finite. Got {number!r} instead.", f"Pass a finite {name!r}."
        )
    return number
