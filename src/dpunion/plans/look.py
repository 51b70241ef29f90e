"""Plans that begin with a private look at how many items people have, which chooses `max_items_per_user`.

Everybody is put into a class by the size of their own set. The noisy numbers of people in the classes choose one of a
few limits, and the plans for all limits are fixed before any data is read. docs/guarantees-funnel.md, section 10, has
the proof. `plan_share` plans the releases of a schedule, with or without a look. All of this is public.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from dpunion import plans
from dpunion.algorithms import Bounding, Funnel, algorithm_named
from dpunion.budget import Budget
from dpunion.calibration import rounding
from dpunion.calibration.funnel import threshold_for_novelty
from dpunion.calibration.gaussian import GUARD, Calibrated
from dpunion.calibration.look import cost_of_look
from dpunion.checks import check_real, check_whole
from dpunion.errors import BadParameter
from dpunion.kernels.normal import gaussian_delta
from dpunion.plans import ITEMS, PLANNERS, STEPS, CandidatesPlan, Nouns, Plan, as_algorithm, finish_plan, target_steps
from dpunion.plans.counts import Counts, CountsPlan
from dpunion.threads import Threads, usable_cores

AUTO = "auto"
"""The value of max_items_per_user that asks for a look."""
LIMITS = (3, 10, 25, 60, 150, 300, 600)
"""The numbers of items per person to choose from."""
USUAL = 300
"""The choice when the look shows nothing."""
CLASSES = (1, 2, 3, 4, 6, 8, 11, 17, 26, 45, 61, 121, 301, 451)
"""The smallest set of each class; the last class has no end."""
LARGEST_CLASS_ENDS = 1_000
STRENGTH = 0.04
"""The look's sensitivity over its noise, relative to one Gaussian release with the whole budget."""
# Both were tuned on public data. What a person can give grows with the size of the set to this power (0.5 if all items
# were equally hopeless, 1 if none were). And this many standard deviations are taken off each class, because only
# numbers below zero show that they are noise.
POWER = 0.7
SHRINKAGE = 0.5
RARE = 2.0**-64
"""More than the probabilities of collisions, floors of coins and extreme normals add up to (5 * 2^-68)."""
CLEAR = 2.0
"""A limit above USUAL needs people with larger sets to stand out from the noise by this many standard deviations."""


@dataclass(frozen=True, slots=True)
class SizeLook:
    """The numbers of a look, fixed before any data is read.

    stddev: the noise on the number of people in each class. delta: the delta of each plan; the rest of the budget's
    delta pays for the choice. limits: the limits to choose from. thresholds: the threshold of each limit's plan.
    """

    stddev: float
    delta: float
    limits: tuple[int, ...]
    thresholds: tuple[float, ...]

    def choose_limit(self, people: Sequence[float]) -> int:
        """Return the limit for which people can give the most, relative to what an item needs to come out.

        people: the noisy numbers of people of each class.

        Guarantees: the limit depends on noisy and public numbers alone.
        """
        large = [number for number, first in zip(people, CLASSES, strict=True) if first > USUAL]
        shows_large_sets = math.fsum(large) > CLEAR * self.stddev * math.sqrt(len(large))
        seen = [max(0.0, number - SHRINKAGE * self.stddev) for number in people]

        def promise(limit: int, threshold: float) -> float:
            gifts = (number * min(size, limit) ** POWER for number, size in zip(seen, class_sizes(), strict=True))
            return math.fsum(gifts) / threshold

        offered = [
            (promise(limit, line), -abs(limit - USUAL), limit)
            for limit, line in zip(self.limits, self.thresholds, strict=True)
            if limit <= USUAL or shows_large_sets
        ]
        return max(offered)[-1]

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain values; files call the limits a menu."""
        return {
            "stddev": self.stddev,
            "delta": self.delta,
            "classes": list(CLASSES),
            "menu": list(self.limits),
            "thresholds": list(self.thresholds),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SizeLook:
        limits = tuple(check_whole("a look", "menu", limit, 1, 10_000) for limit in values["menu"])
        thresholds = tuple(check_real("a look", "threshold", line, 0.0, 1e12) for line in values["thresholds"])
        stddev = check_real("a look", "stddev", values["stddev"], 0.0, 1e12)
        return cls(stddev, check_real("a look", "delta", values["delta"], 0.0, 1.0), limits, thresholds)


def class_sizes() -> list[float]:
    """Return a typical size of the sets of each class."""
    ends = [*(first - 1 for first in CLASSES[1:]), LARGEST_CLASS_ENDS]
    return [math.sqrt(first * last) for first, last in zip(CLASSES, ends, strict=True)]


@dataclass(frozen=True, slots=True, repr=False)
class LookPlan(plans.PlanDisplay):
    """The public numbers of a release that begins with a look.

    look: how the limit of items per person is chosen. alternatives: a plan for each limit, the smallest first.
    """

    nouns: ClassVar[Nouns] = ITEMS

    budget: Budget
    look: SizeLook
    alternatives: tuple[Plan, ...]

    @property
    def algorithm(self) -> Funnel:
        """Return the algorithm with the largest limit: this many items are read."""
        return cast("Funnel", self.alternatives[-1].algorithm)

    @property
    def name(self) -> str:
        return self.algorithm.name

    @property
    def bounding(self) -> Bounding:
        """Return how many items are read of each user: the largest limit."""
        return self.algorithm.bounding

    @property
    def counts(self) -> CountsPlan | None:
        """Return how people are counted: alike in every plan."""
        return self.alternatives[-1].counts

    @property
    def candidates(self) -> CandidatesPlan | None:
        """Return the numbers of a public list for the usual limit."""
        return self.opening.candidates

    @property
    def opening(self) -> Plan:
        return self.plan_for(min(self.look.limits, key=lambda limit: abs(limit - USUAL)))

    def plan_for(self, limit: int) -> Plan:
        """Return the plan with this limit of items per person."""
        return self.alternatives[self.look.limits.index(limit)]

    def choose_plan(self, measure: Callable[[SizeLook], Sequence[float]]) -> Plan:
        """Take the look and return the plan that it chooses.

        Guarantees: the plan depends on the noisy numbers that `measure` returns and on public numbers alone.
        """
        return self.plan_for(self.look.choose_limit(measure(self.look)))

    def funnels(self) -> Iterator[tuple[float, float, Funnel]]:
        for plan in self.alternatives:
            yield from plan.funnels()

    def to_dict(self) -> dict[str, Any]:
        plans = [one.to_dict() for one in self.alternatives]
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


def needs_look(algorithm: object, settings: Mapping[str, Any]) -> bool:
    """Say whether a look chooses the limit of items per person: for Funnel by name, when no number is given."""
    limit = settings.get("max_items_per_user", AUTO)
    if isinstance(limit, str) and limit != AUTO:
        raise BadParameter(
            f"The 'max_items_per_user' parameter must be a whole number, or 'auto' with funnel. Got {limit!r} instead.",
            "Leave it out to let funnel choose it privately.",
        )
    if limit != AUTO:
        return False
    if algorithm is None or algorithm == Funnel.name:
        return True
    if "max_items_per_user" not in settings:
        return False
    raise BadParameter(
        "Only funnel can choose 'max_items_per_user' automatically.",
        "Use funnel, leave 'max_items_per_user' (--max-items-per-user) out, or give a number.",
    )


def plan_look(budget: Budget, counts: Counts | None, settings: dict[str, Any]) -> LookPlan:
    """Fix every number of a release by Funnel with these settings that begins with a look."""
    epsilon, delta = rounding.calibration_target(budget.epsilon, budget.delta)
    epsilon, delta = target_steps(budget, epsilon, delta, 1 if counts is None else 1 + STEPS)
    cost = cost_of_look(epsilon, delta, STRENGTH)

    def plan_one(shape: Funnel) -> Plan:
        plan = PLANNERS[Funnel].plan(shape, budget, epsilon, cost.room, counts)
        return dataclasses.replace(plan, delta_used=cost.whole(plan.delta_used))

    return plan_limits(budget, 1.0 / cost.ratio, cost.room, settings, plan_one)


def plan_limits(
    budget: Budget, stddev: float, delta: float, settings: dict[str, Any], plan_one: Callable[[Funnel], Plan]
) -> LookPlan:
    """Plan Funnel with these settings for each limit of items per person, and the look that chooses among them.

    stddev, delta: those of the look.
    """
    shapes = [algorithm_named(Funnel.name, **settings | {"max_items_per_user": limit}) for limit in LIMITS]
    plans: list[Plan] = []
    with Threads(min(usable_cores(), len(shapes))) as threads:
        # The largest limits take longest, so they start first.
        tasks = [threads.submit(plan_one, cast("Funnel", one)) for one in shapes[::-1]]
        for task in tasks[::-1]:
            try:
                plans.append(task.result())
            except BadParameter:
                # With very small budgets the largest limits have no plan; the smallest limit's error says why.
                if not plans:
                    raise
    limits = tuple(plan.algorithm.max_items_per_user for plan in plans)
    look = SizeLook(stddev, delta, limits, tuple(plan.threshold for plan in plans))
    return LookPlan(budget, look, tuple(dataclasses.replace(plan, look=look) for plan in plans))


def plan_share(
    share: tuple[float, float], whole: Budget, algorithm: Any = None, counts: Counts | None = None, **settings: Any
) -> Plan | LookPlan:
    """Plan a release by Funnel from its part of an account's caps (docs/ledger.md, "A schedule"), not from an epsilon.

    share: mu_squared and novelty. whole: the budget of all releases of the account together, which the plan names.

    Guarantees:
    - the squared mu of selecting, look and counting together is at most `mu_squared`;
    - for every number of novel items, the chance that one passes is at most `novelty` less RARE.
    """
    if not (algorithm is None or algorithm == Funnel.name or isinstance(algorithm, Funnel)):
        raise BadParameter("Only funnel can be planned from a schedule.", "Leave 'algorithm' (--algorithm) out.")
    mu_squared, novelty = share[0], (share[1] - RARE) / (1.0 + 2.0 * GUARD)
    # Given what the look shows, the release that follows is one more release of the account (theorem 3 there).
    looks = needs_look(algorithm, settings)
    ratio = STRENGTH * math.sqrt(mu_squared) if looks else 0.0
    left = (mu_squared - ratio * ratio) * (1.0 - GUARD)
    counted = None if counts is None else CountsPlan(counts.share, *(1.0 / math.sqrt(left * f) for f in counts.shares))
    stddev = 1.0 / math.sqrt(left * (1.0 if counts is None else 1.0 - counts.share))
    epsilon, _ = rounding.calibration_target(whole.epsilon, whole.delta)
    used = float(gaussian_delta(epsilon, math.sqrt(mu_squared))) + novelty

    def plan_one(shape: Funnel) -> Plan:
        threshold = threshold_for_novelty(stddev, novelty, shape)
        plan = finish_plan(shape, whole, Calibrated(stddev, threshold, used, shape.max_items_per_user))
        cutoff = shape.cutoffs(plan.scale, plan.threshold)[0]
        return dataclasses.replace(plan, cutoff=cutoff, counts=counted, planned_novelty=novelty)

    if looks:
        return plan_limits(whole, 1.0 / ratio, used, settings, plan_one)
    return plan_one(cast("Funnel", as_algorithm(Funnel.name if algorithm is None else algorithm, **settings)))
