"""Count the people who have each item of a public list: three noisy steps, wherever people's sets are."""

from __future__ import annotations

from collections.abc import Callable

from dpunion.contributions import Int32s, Int64s
from dpunion.counting.estimates import Popularity, choose_allowance, estimate_people, people_at_marks
from dpunion.counting.steps import FineStep, MarksStep, RoughStep, Step
from dpunion.plans.counts import Counted, CountsPlan

Measure = Callable[[Step, float], Int64s]
"""Adds up a step over all people and adds noise of this stddev: nothing else about people comes out of it."""


def count_people(plan: CountsPlan, least: Int64s, measure: Measure, parts: Int32s | None = None) -> Counted:
    """Take the three steps; least, parts: as in estimate_people.

    Guarantees: only `measure` sees people's sets, three times; a step depends on the list and earlier steps' releases.
    """
    popularity = Popularity.of(measure(RoughStep(len(least)), plan.rough), plan)
    marks = MarksStep(popularity.units)
    people = people_at_marks(measure(marks, plan.marks), plan)
    allowance = choose_allowance(popularity, marks, people, plan)
    return estimate_people(measure(FineStep(allowance.weights), plan.fine), allowance, plan, least, parts)
