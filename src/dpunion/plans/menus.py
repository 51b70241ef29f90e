"""A menu of plans, one for each number of items per person: all fixed before data is read; a private look chooses."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from dpunion.algorithms import Funnel, algorithm_named
from dpunion.budget import Budget
from dpunion.calibration import rounding
from dpunion.calibration.look import LookCost, cost_of_look
from dpunion.errors import BadParameter
from dpunion.plans import PLANNERS, Plan
from dpunion.plans.composing import STEPS, plan_both, steps_target
from dpunion.plans.counts import Counts, CountsPlan
from dpunion.plans.looks import MENU, STRENGTH, USUAL, LookPlan
from dpunion.threads import Threads, usable_cores

AUTO = "auto"
"""The word for a number of items per person that a look chooses."""


@dataclass(frozen=True, slots=True)
class MenuPlan:
    """What a release will do that begins with a look: one plan for each number of items per person, in public numbers.

    look: how the number is chosen. plans: from the smallest number to the largest.
    """

    budget: Budget
    look: LookPlan
    plans: tuple[Plan, ...]

    @property
    def algorithm(self) -> Funnel:
        """The algorithm with the largest number of items per person: so many are read."""
        return cast("Funnel", self.plans[-1].algorithm)

    @property
    def counts(self) -> CountsPlan | None:
        """How people are counted; the same in every plan."""
        return self.plans[-1].counts

    @property
    def usual(self) -> Plan:
        """The plan for people with any number of items: the one taken when the look shows nothing."""
        return self.plan_for(min(self.look.menu, key=lambda bound: abs(bound - USUAL)))

    def plan_for(self, bound: int) -> Plan:
        """Return the plan with this number of items per person."""
        return self.plans[self.look.menu.index(bound)]

    def decided(self, people: Sequence[float]) -> Plan:
        """Return the plan that the look chose; people: noisy numbers of people of each class.

        Guarantees: a function of noisy and public numbers alone.
        """
        return self.plan_for(self.look.choose(people))

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON and for people."""
        plans = [one.to_dict() for one in self.plans]
        for one in plans:
            del one["look"]
        return {
            "algorithm": self.algorithm.name,
            "parameters": self.algorithm.parameters() | {"max_items_per_user": AUTO},
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "look": self.look.to_dict(),
            "menu": plans,
        } | ({} if self.counts is None else {"counts": self.counts.to_dict()})


def is_for_look(algorithm: object, settings: Mapping[str, Any]) -> bool:
    """Say whether a look is to choose the number of items per person: for Funnel by name, where none is given."""
    bound = settings.get("max_items_per_user", AUTO)
    if isinstance(bound, str) and bound != AUTO:
        raise BadParameter(
            f"The 'max_items_per_user' parameter must be a whole number, or 'auto' with funnel. Got {bound!r} instead.",
            "Leave it out to let funnel choose it privately.",
        )
    if bound != AUTO:
        return False
    if algorithm is None or algorithm == Funnel.name:
        return True
    if "max_items_per_user" not in settings:
        return False
    raise BadParameter(
        "Only funnel can choose 'max_items_per_user' automatically.",
        "Use funnel, leave 'max_items_per_user' (--max-items-per-user) out, or give a number.",
    )


def plan_menu(budget: Budget, counts: Counts | None, settings: dict[str, Any]) -> MenuPlan:
    """Fix every number of a release by Funnel with these settings that begins with a look."""
    epsilon, delta = rounding.calibration_target(budget.epsilon, budget.delta)
    epsilon, delta = steps_target(budget, epsilon, delta, 1 if counts is None else 1 + STEPS)
    cost = cost_of_look(epsilon, delta, STRENGTH)
    shapes = [algorithm_named(Funnel.name, **settings | {"max_items_per_user": bound}) for bound in MENU]
    plans: list[Plan] = []
    with Threads(min(usable_cores(), len(shapes))) as threads:
        # The largest numbers take longest, and so are begun first.
        tasks = [threads.submit(_plan_one, cast("Funnel", one), budget, epsilon, cost, counts) for one in shapes[::-1]]
        for task in tasks[::-1]:
            try:
                plans.append(task.result())
            except BadParameter:
                # With very small budgets the largest numbers have no plan; the smallest says what is wrong.
                if not plans:
                    raise
    menu = tuple(plan.algorithm.max_items_per_user for plan in plans)
    look = LookPlan(1.0 / cost.ratio, cost.room, menu, tuple(plan.threshold for plan in plans))
    return MenuPlan(budget, look, tuple(dataclasses.replace(plan, look=look) for plan in plans))


def _plan_one(shape: Funnel, budget: Budget, epsilon: float, cost: LookCost, counts: Counts | None) -> Plan:
    if counts is None:
        plan = PLANNERS[Funnel](shape, budget, epsilon, cost.room)
    else:
        plan = plan_both(shape, budget, epsilon, cost.room, counts)
    return dataclasses.replace(plan, delta_used=cost.whole(plan.delta_used))
