"""Releases that begin with a look, on data for study: what the look chose, and how much came out. NOT PRIVATE."""

from __future__ import annotations

from dataclasses import dataclass

from dpunion.contributions import Int64s
from dpunion.counting.steps import look_at_sizes, set_sizes
from dpunion.engines.local.rounds import run_rounds
from dpunion.mechanisms import mechanism_for
from dpunion.plans import Plan
from dpunion.plans.look import LookPlan
from dpunion.sets.grouping import bound_again
from dpunion_lab.data import LabData
from dpunion_lab.trials import trial_key


@dataclass(frozen=True, slots=True)
class Looked:
    """What one release did: the number of items per person that was chosen, and how many items came out."""

    bound: int
    size: int


def run_look(data: LabData, plan: LookPlan, number: int) -> Looked:
    """Look, choose and select, under the key of this trial."""
    sizes = set_sizes(data.everything)
    chosen = plan.choose_plan(lambda look: look_at_sizes(sizes, look, trial_key(number)))
    return Looked(chosen.algorithm.max_items_per_user, run_fixed(data, chosen, number))


def run_fixed(data: LabData, plan: Plan, number: int) -> int:
    """Select by a plan, under the key of this trial; return how many items came out."""
    return len(select_fixed(data, plan, number))


def select_fixed(data: LabData, plan: Plan, number: int) -> Int64s:
    """Select by a plan, under the key of this trial; return the numbers of the items."""
    sets = bound_again(data.everything, plan.algorithm.bounding, trial_key(number))
    return run_rounds(mechanism_for(plan), sets, trial_key(number), threads=1)
