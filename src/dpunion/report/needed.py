"""How many people must hold an item for it to come out: the first question about a budget, answered by a plan alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpunion.ngrams.plans import NgramPlan
from dpunion.plans import Plan
from dpunion.report.curves import MOST_HOLDERS, Company, holders_between, release_curve, saturation

SET_SIZES = (1, 10, 100)
EVEN, LIKELY = 0.5, 0.9
HEAD = ("items each", f"chance {100 * EVEN:.0f} %", f"chance {100 * LIKELY:.0f} %")


@dataclass(frozen=True, slots=True)
class Needed:
    """About how many people must hold an item, each of whom holds `items_each` items, the others being rare.

    even, likely: for a chance of 50 % and 90 % that it comes out; None where no number of people is enough.
    """

    items_each: int
    even: int | None
    likely: int | None

    def to_dict(self) -> dict[str, int | None]:
        """Return the numbers as plain values, for JSON."""
        return {"items_each": self.items_each, "chance_50": self.even, "chance_90": self.likely}

    def texts(self) -> tuple[str, str, str]:
        """Return the numbers as texts, for a table under HEAD."""
        return (f"{self.items_each:,}", _people(self.even), _people(self.likely))


def find_needed(plan: Plan | NgramPlan, set_sizes: Sequence[int] = SET_SIZES) -> tuple[Needed, ...]:
    """Return how many people must hold an item; of n-grams, a single token.

    Guarantees: it depends on the plan alone, and so on nobody's data.
    """
    opening = plan.first if isinstance(plan, NgramPlan) else plan
    found = []
    for size in set_sizes:
        most = saturation(opening, set_size=size, company=Company.RARE)
        grid = holders_between(1, max(10, most))
        curve = release_curve(opening, set_size=size, company=Company.RARE, holders=grid)
        found.append(Needed(size, curve.holders_for(EVEN), curve.holders_for(LIKELY)))
    return tuple(found)


def needed_sentence(plan: Plan | NgramPlan) -> str:
    """Say in one sentence what an item needs, where few came out."""
    alone, ten, hundred = (_people(one.even) for one in find_needed(plan))
    what = "a single word" if isinstance(plan, NgramPlan) else "an item"
    return (
        f"At this budget {what} comes out with an even chance when about {alone} people hold it who hold nothing else, "
        f"or {ten} who hold ten each, or {hundred} who hold a hundred. What fewer people hold mostly stays out, by "
        "design."
    )


def _people(count: int | None) -> str:
    return f"more than {MOST_HOLDERS:,}" if count is None else f"{count:,}"
