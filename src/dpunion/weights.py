"""What rounds pass on: the weights that people gave, and what is known about the items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpunion.algorithms import Sensitivity
from dpunion.contributions import Bools, Float64s
from dpunion.threads import Task


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Weights:
    """A weighted histogram and the sensitivity it was built to.

    units: int64[items] or float64[items], in which `unit` is one; held: bool[items], whether anybody gave the item its
    part in this round. noise: what is drawn for this round beside, where there was a thread for it.

    Guarantees:
    - adding or removing one user changes the weights by at most `sensitivity`;
    - nothing about the values shows in the repr.
    """

    units: npt.NDArray[Any]
    unit: float
    held: Bools
    sensitivity: Sensitivity
    noise: Task[Float64s] | None = None

    def __repr__(self) -> str:
        return f"Weights(<sensitive>, {self.sensitivity})"

    @property
    def values(self) -> Float64s:
        """Return the weights: float64[items]; integers are exact below 2^53 units."""
        return self.units if self.unit == 1.0 else np.multiply(self.units, self.unit, dtype=np.float64)


@dataclass(slots=True, repr=False, eq=False)
class State:
    """What is known about the items between rounds: never released (but for `released`, after the last round).

    released: what has passed so far; it takes no part in later rounds.

    scores: float64[items]; alive, released: bool[items].
    """

    scores: Float64s
    alive: Bools
    released: Bools

    @classmethod
    def start(cls, items: int) -> State:
        """Return the state before the first round."""
        return cls(np.zeros(items), np.ones(items, np.bool_), np.zeros(items, np.bool_))

    def __repr__(self) -> str:
        return "State(<sensitive>)"
