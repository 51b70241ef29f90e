"""Mistakes in counting and in the look, one function each; `mutants` puts them in place of the shipped ones."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from dpunion import counting
from dpunion.algorithms import Algorithm, Sensitivity
from dpunion.budget import Budget
from dpunion.calibration.look import LookCost, cost_of_look
from dpunion.contributions import Int32s, Int64s
from dpunion.counting import Measure, steps
from dpunion.counting.steps import ONE, LookStep, RoughStep, Step
from dpunion.plans import Plan, plan_release
from dpunion.plans.counts import PARTS, Counted, CountsPlan
from dpunion.plans.look import CLASSES
from dpunion.randomness import RunKey
from dpunion_lab.audit.counting import SHARE, with_counts

ADD_NOISE, COUNT_PEOPLE, COST_OF_LOOK = steps.add_noise, counting.count_people, cost_of_look
PLAN_COUNTS = with_counts()


def count_with_less_noise(
    sums: Int64s, sensitivity: Sensitivity, stddev: float, number: int, key: RunKey, places: Int64s | None = None
) -> Int64s:
    """Add 0.7 of the planned noise to the sums of every step."""
    return ADD_NOISE(sums, sensitivity, 0.7 * stddev, number, key, places)


def reuse_noise_of_counts(
    sums: Int64s, sensitivity: Sensitivity, stddev: float, _number: int, key: RunKey, places: Int64s | None = None
) -> Int64s:
    """Add the same draws in every step, so that their difference shows what is behind them."""
    return ADD_NOISE(sums, sensitivity, stddev, 0, key, places)


def add_uncapped(offsets: Int64s, items: Int32s, weights: Int64s, _room: int, _most: int, sums: Int64s) -> None:
    """Let everybody give each item its whole weight, however many they hold."""
    np.add.at(sums, items[: offsets[-1]], weights[items[: offsets[-1]]])


def weigh_by_true_counts(plan: CountsPlan, least: Int64s, measure: Measure, parts: Int32s | None = None) -> Counted:
    """Take the weights of the last two steps from the sums themselves: hardly any noise is asked for in the first."""

    def truly(step: Step, stddev: float) -> Int64s:
        return measure(step, 1e-6 if isinstance(step, RoughStep) else stddev)

    return COUNT_PEOPLE(plan, least, truly, parts)


def forget_counts(algorithm: Algorithm, budget: Budget) -> Plan:
    """Plan the selection as if nothing was counted beside it."""
    return dataclasses.replace(plan_release(algorithm, budget), counts=PLAN_COUNTS(algorithm, budget).counts)


def forget_rough_step(algorithm: Algorithm, budget: Budget) -> Plan:
    """Plan with counts, and give the rough step's part of the budget to the selection as well."""
    plan = PLAN_COUNTS(algorithm, budget)
    kept = 1.0 - SHARE
    factor = math.sqrt(kept / (kept + SHARE * PARTS[0]))
    rounds = tuple(dataclasses.replace(one, stddev=factor * one.stddev) for one in plan.rounds)
    return dataclasses.replace(plan, scale=factor * plan.scale, rounds=rounds)


def look_for_free(epsilon: float, delta: float, strength: float) -> LookCost:
    """Let every plan to choose from have all of delta, as if nothing was chosen by what was seen."""
    return dataclasses.replace(COST_OF_LOOK(epsilon, delta, strength), room=delta)


def add_up_items(self: LookStep, sizes: Int64s) -> Int64s:
    """Let everybody count in their class once for each item."""
    places = np.searchsorted(CLASSES, sizes, side="right") - 1
    return ONE * np.bincount(places, weights=sizes, minlength=self.length).astype(np.int64)
