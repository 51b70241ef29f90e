"""Count the people who hold each item of a public list: three steps, wherever people's sets are."""

from __future__ import annotations

from collections.abc import Callable

from dpunion.contributions import Bools, Int32s, Int64s
from dpunion.counting.estimates import Popularity, Spread, choose_allowance, estimate_people
from dpunion.counting.steps import RoughStep, Step
from dpunion.counts import Counted, CountsPlan

Measure = Callable[[Step, float], Int64s]
"""Adds up a step over all people and adds noise of this stddev: nothing else about people comes out of it."""


def count_people(plan: CountsPlan, sure: Bools, measure: Measure, parts: Int32s | None = None) -> Counted:
    """Take the three steps; sure, parts: as in estimate_people.

    Guarantees: people's sets are seen by `measure` alone, three times; each step is a function of the list and of what
    the steps before released.
    """
    popularity = Popularity.of(measure(RoughStep(len(sure)), plan.rough), plan)
    spread = Spread.of(measure(popularity.step(), plan.spread), popularity, plan)
    allowance = choose_allowance(popularity, spread, plan)
    people, low, high, totals = estimate_people(measure(allowance.step(), plan.fine), allowance, plan, sure, parts)
    return Counted(tuple(people.tolist()), tuple(low.tolist()), tuple(high.tolist()), totals)
