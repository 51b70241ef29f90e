"""The privacy budget (epsilon, delta) for one person: checked, and explained in words."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from dpunion.checks import check_real
from dpunion.errors import BadParameter

LARGEST_EPSILON = 30.0
SMALLEST_EPSILON = 1e-3
SMALLEST_DELTA = 1e-15
LARGEST_DELTA = 0.5

# The largest epsilon and delta of each class, and of budgets that need no permission. docs/guarantees.md §0 says why.
STRONG = (1.0, 1e-5)
MODERATE = (5.0, 1e-4)
WITHOUT_LEAVE = (10.0, 1e-3)


class Strength(enum.Enum):
    """How much a budget protects; the worse of epsilon and delta decides."""

    STRONG = "strong"
    MODERATE = "moderate"
    WEAK = "weak"


@dataclass(frozen=True, slots=True)
class Budget:
    """A privacy budget for adding or removing one user.

    epsilon is in [0.001, 30]: below, the numerical slack of the decisions would no longer be negligible; above, the
    promise is empty and the rounding of the coins would show. delta is in [1e-15, 0.5]: with an unbounded universe of
    items it cannot be zero.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        typical = "Typical values lie between 0.1 and 10; smaller is more private."
        small = "Choose it well below one over the number of people, from public knowledge, for example 1e-6."
        epsilon = check_real("", "epsilon", self.epsilon, SMALLEST_EPSILON, LARGEST_EPSILON, typical)
        delta = check_real("", "delta", self.delta, SMALLEST_DELTA, LARGEST_DELTA, small)
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)

    @property
    def strength(self) -> Strength:
        """Return how much this budget protects."""
        if self.is_within(STRONG):
            return Strength.STRONG
        return Strength.MODERATE if self.is_within(MODERATE) else Strength.WEAK

    def is_within(self, largest: tuple[float, float]) -> bool:
        return self.epsilon <= largest[0] and self.delta <= largest[1]


def budget_for_release(epsilon: float, delta: float, *, weak_budget: bool) -> Budget:
    """Return the budget of a release; refuse one that protects next to nothing, unless weak budgets are allowed."""
    budget = Budget(epsilon, delta)
    if not weak_budget and not budget.is_within(WITHOUT_LEAVE):
        raise BadParameter(
            f"A budget of {_pair(budget)} is too weak to be used by default: in the worst case, "
            f"{permitted(budget.epsilon, budget.delta)}.",
            f"Choose an epsilon of at most {WITHOUT_LEAVE[0]:g} and a delta of at most {WITHOUT_LEAVE[1]:g}, or "
            "allow a weak budget with weak_budget=True (--weak-budget).",
        )
    return budget


def guarantee(
    budget: Budget, *, subject: str = "This list", covers: str = "rows", write: Callable[[float], str] = "{:g}".format
) -> tuple[str, str, str]:
    """Say what this budget guarantees: as experts say it, by its strength, and in numbers.

    covers: which data of one person is protected, "rows" or "texts". write: formats epsilon and delta.
    """
    meaning = {
        Strength.STRONG: "The guarantee is strong: whether a given person's data was used stays in doubt.",
        Strength.MODERATE: "The guarantee is moderate: others may become fairly sure, but not certain, whether a "
        "given person's data was used.",
        Strength.WEAK: f"THE GUARANTEE IS WEAK: {_weakness(budget)}.",
    }
    return (
        f"{subject} is {_pair(budget, write)}-differentially private for adding or removing one user (all "
        f"{covers} of one person).",
        meaning[budget.strength],
        f"Worst case: {permitted(budget.epsilon, budget.delta)}.",
    )


def _pair(budget: Budget, write: Callable[[float], str] = "{:g}".format) -> str:
    return f"({write(budget.epsilon)}, {write(budget.delta)})"


def permitted(epsilon: float, delta: float) -> str:
    """Say in numbers what the worst case is: delta as a chance, epsilon as how sure somebody can become.

    subtle: both halves describe one worst case together, and no release is worse. But (epsilon, delta) does not imply
    that the bound on how sure somebody becomes fails with probability at most delta: docs/guarantees.md §0.
    """
    return (
        f"someone who was 50 % sure that a given person's data was used becomes {sureness_in_words(epsilon)} "
        f"sure, and with a probability of at most {chance_in_words(delta)} the person is exposed"
    )


def _weakness(budget: Budget) -> str:
    """Say what makes a budget weak."""
    doubts = []
    if budget.epsilon > MODERATE[0]:
        doubts.append("others may become practically certain whether a given person's data was used")
    if budget.delta > MODERATE[1]:
        doubts.append(f"up to {chance_in_words(budget.delta)} of the people may be exposed outright")
    return ", and ".join(doubts)


def chance_in_words(chance: float) -> str:
    """Write a small probability as 1 in n, and a large one in per cent; never round it down."""
    exact = Fraction(repr(chance))
    if exact > Fraction(1, 10):
        return f"{math.ceil(exact * 100)} %"
    whole = int(1 / exact)
    last = 10 ** max(0, len(str(whole)) - 3)
    return f"1 in {whole // last * last:,}"


def sureness(epsilon: float) -> float:
    """Return how sure somebody can become who was 50 % sure before: e^epsilon / (1 + e^epsilon)."""
    return 1.0 / (1.0 + math.exp(-epsilon))


def sureness_in_words(epsilon: float) -> str:
    """Say how sure somebody can become who was 50 % sure before, e^epsilon / (1 + e^epsilon), never rounded down.

    No finite epsilon makes anybody 100 % sure: up to three digits show that, and then "more than".
    """
    doubt = 100.0 * math.exp(-epsilon) * sureness(epsilon)
    for digits in (1, 2, 3):
        # Round the remaining doubt down, with room for the rounding of exp.
        left = math.floor(doubt * (1.0 - 1e-12) * 10**digits)
        if left:
            return f"at most {100.0 - left / 10**digits:.{digits}f} %"
    return "more than 99.999 %"
