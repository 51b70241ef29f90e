"""Plans with a public list of candidates, whose items need less to come out (docs/guarantees-funnel.md, section 11).

A listed item may come out although nobody has it. So nothing has to hide who has it, and its threshold only has to keep
pure noise out: `error` is the probability that an item that nobody has is released. All of this is public.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sized
from typing import NoReturn, Protocol, TypeVar

import numpy as np

from dpunion.algorithms import Funnel
from dpunion.calibration import rounding
from dpunion.calibration.bounds import laplace_chances, laplace_quantile_above
from dpunion.calibration.composition import candidate_threshold, walk_tail, walk_threshold
from dpunion.calibration.gaussian import Calibrated, gaussian_chances
from dpunion.errors import BadParameter
from dpunion.plans import CandidatesPlan, Noise, Plan, Planned, finish_plan, plan_rounds
from dpunion.plans.look import LookPlan
from dpunion.plans.ngrams import NgramPlan

P = TypeVar("P", bound=Planned)

# Rounding in the scores of listed items, which the budget pays for up to this spread (section 11, "Rounding").
LARGEST_LISTED_SPREAD = 650.0
WITHOUT_LISTS = {"dp-sips": "draws items anew in each round", "optimal-single-item": "uses each person's only item"}
"""The algorithms that take no list, and what they do instead of weighing every item once."""


class PublicItems(Protocol):
    """A public list as it was read: its items, and its SHA-256."""

    @property
    def texts(self) -> Sized: ...

    @property
    def sha256(self) -> str: ...


def add_candidates(planned: P, listed: PublicItems | None, error: float) -> P:
    """Return the plan with the numbers for a public list, None while it is still read; error: as in `Candidates`.

    Guarantees: noise, threshold and delta of all other items stay as they are, unless rounding needs more for the list;
    nothing here depends on data.
    """
    if isinstance(planned, NgramPlan):
        refuse_candidates("Ngrams(...)")
    if isinstance(planned, LookPlan):
        plans = tuple(_add(plan, listed, error) for plan in planned.alternatives)
        look = dataclasses.replace(planned.look, thresholds=tuple(plan.threshold for plan in plans))
        plans = tuple(dataclasses.replace(plan, look=look) for plan in plans)
        return dataclasses.replace(planned, look=look, alternatives=plans)
    return _add(planned, listed, error)  # type: ignore[arg-type,return-value]


def refuse_candidates(what: str) -> NoReturn:
    """Refuse a list of candidates for what has no proof with one."""
    raise BadParameter(f"{what} cannot use a list of candidates yet.", "Leave 'candidates' (--candidates) out.")


def plan_for_listed(plan: Plan) -> Plan:
    """Return the plan in which every item is a listed one: a model of what a listed item needs, not a private plan."""
    if plan.candidates is None:
        return plan
    threshold, lower = plan.candidates.threshold, plan.threshold - plan.candidates.threshold
    cutoff = None if plan.cutoff is None else plan.cutoff - lower
    model = dataclasses.replace(plan, threshold=threshold, cutoff=cutoff, candidates=None)
    if not isinstance(plan.algorithm, Funnel):
        return model
    shape = plan.algorithm.for_listed
    return dataclasses.replace(model, algorithm=shape, rounds=plan_rounds(shape, plan.scale, threshold))


def _add(plan: Plan, listed: PublicItems | None, error: float) -> Plan:
    name = plan.algorithm.name
    if name in WITHOUT_LISTS:
        raise BadParameter(
            f"{name} {WITHOUT_LISTS[name]}, so it cannot use a list of candidates.",
            "Choose funnel, or leave 'candidates' (--candidates) out.",
        )
    if isinstance(plan.algorithm, Funnel):
        plan = _leave_room(plan, plan.algorithm, error)
        shape = plan.algorithm.for_listed  # type: ignore[attr-defined]
        threshold = min(listed_threshold(plan.scale, error, shape), plan.threshold)
        chance = walk_tail(1.0, threshold / plan.scale, alone(shape))
    else:
        is_gaussian = plan.noise is Noise.GAUSSIAN
        lowest = candidate_threshold(plan.scale, error) if is_gaussian else laplace_quantile_above(error, plan.scale)
        threshold = min(lowest, plan.threshold)
        chances = {Noise.GAUSSIAN: gaussian_chances, Noise.LAPLACE: laplace_chances}[plan.noise]
        chance = float(chances(np.zeros(1), threshold, plan.scale)[0])
    about = (0, "") if listed is None else (len(listed.texts), listed.sha256)
    numbers = CandidatesPlan(*about, error, threshold, chance)
    return dataclasses.replace(plan, candidates=numbers)


def listed_threshold(stddev: float, error: float, shape: Funnel) -> float:
    """Return the smallest threshold that a walk of pure noise passes with at most this chance.

    It is the same number of standard deviations for all limits of items per person, and computed once.
    """
    return stddev * walk_threshold(1.0, error, alone(shape))


def alone(shape: Funnel) -> Funnel:
    """Return the shape for people with one item, whose walk of pure noise is that of every limit."""
    return dataclasses.replace(shape, max_items_per_user=1)


def _leave_room(plan: Plan, algorithm: Funnel, error: float) -> Plan:
    """Raise noise and threshold if rounding adds more to listed items than to the others, which is rare."""
    base = 1.0 + plan.rounding_slack
    stddev, threshold, shape = plan.scale / base, plan.threshold / base, algorithm.for_listed
    # No listed threshold is higher, so no listed score spreads further than with this one.
    spreads = rounding.score_spread(stddev, threshold, algorithm), rounding.score_spread(stddev, threshold, shape)
    if max(spreads) > LARGEST_LISTED_SPREAD:
        raise BadParameter(
            "Some rounds of this funnel are too small for float64 scores with a list of candidates.",
            "Choose fewer rounds, a first_share nearer to 1/rounds, or leave 'candidates' (--candidates) out.",
        )
    lowest = min(listed_threshold(stddev, error, shape), threshold)
    slack = rounding.funnel_slack(stddev, lowest, shape)
    if slack <= plan.rounding_slack:
        return plan
    raised = finish_plan(algorithm, plan.budget, Calibrated(stddev, threshold, plan.delta_used, 0), slack)
    kept = {name: getattr(plan, name) for name in ("counts", "look", "planned_novelty")}
    return dataclasses.replace(raised, **kept, cutoff=algorithm.cutoffs(raised.scale, raised.threshold)[0])
