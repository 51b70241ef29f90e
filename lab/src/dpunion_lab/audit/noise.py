"""Check the noise of whole releases: of the three steps of counting, and of the look that chooses the bound.

Counting: a release counts a public list, and nobody has any item of it. All true sums are 0, so the output is the
noise. The look: everybody has a set of the same size, so the true result is known; and choosing by the look, even as
badly as possible, must stay within delta.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from unittest import mock

import numpy as np

from dpunion.algorithms import Algorithm, WeightedGaussian
from dpunion.budget import Budget
from dpunion.calibration.funnel import certificate
from dpunion.calibration.gaussian import gaussian_stddev
from dpunion.contributions import Float64s, Int64s
from dpunion.counting import Measure
from dpunion.counting.steps import ONE, Step
from dpunion.engines import Listed, count_listed
from dpunion.engines.local import engine
from dpunion.engines.local.engine import LocalEngine
from dpunion.pipeline import release
from dpunion.plans import Plan
from dpunion.plans.counts import Counted, Counts, CountsPlan
from dpunion.plans.look import CLASSES, LookPlan, plan_look
from dpunion.requests import Known, Request, Run
from dpunion_lab.audit.reach import STEPS
from dpunion_lab.audit.runs import System

LISTED = 20_000
# A wrong verdict has a probability below 1e-8. For sums of squares, that is e^-SELDOM in the bound of Laurent and
# Massart (2000, Lemma 1); for correlations, FAR standard deviations, with ENOUGH draws for a normal distribution.
SELDOM, FAR = 18.5, 6.0
ENOUGH = 1_000


@dataclass(slots=True)
class SeenSteps:
    """Replaces the engine's counting of a list, and records the noisy sums of each step.

    plan: the numbers of counting. drawn: for each step, its sums over the planned standard deviation, float64[n].
    """

    plan: CountsPlan | None = None
    drawn: list[tuple[int, Float64s]] = field(default_factory=list)

    def count(self, listed: Listed, plan: CountsPlan, measure: Measure) -> Counted:
        """Count as the engine does, and record."""
        self.plan = plan
        planned = plan.stddevs

        def watched(step: Step, stddev: float) -> Int64s:
            noisy = measure(step, stddev)
            # Leave out the totals at the end of the third step, which are not 0: they count people.
            empty = noisy[: len(listed.texts)]
            self.drawn.append((step.number, empty / (ONE * planned[step.number])))
            return noisy

        return count_listed(listed, plan, watched)


def see_steps(budget: Budget, listed: int = LISTED, test_key: int | None = None) -> SeenSteps:
    """Make a release that counts a public list of items that nobody has, and record its steps."""
    seen = SeenSteps()
    with mock.patch.object(engine, "count_listed", seen.count):
        release(
            {"somebody": ["something"]},
            epsilon=budget.epsilon,
            delta=budget.delta,
            weak_budget=True,
            algorithm=WeightedGaussian(max_items_per_user=1),
            counts=Counts(share=0.5),
            known=Known([f"item{number:06}" for number in range(listed)], include=True),
            unsafe_test_key=test_key,
        )
    return seen


def far_variance(draws: Float64s) -> str | None:
    """Return a complaint if the draws are not standard normal: the sum of their squares must be chi-squared."""
    total, count = float(draws @ draws), len(draws)
    slack = 2.0 * math.sqrt(count * SELDOM)
    if count - slack <= total <= count + slack + 2.0 * SELDOM:
        return None
    return f"the noise is {math.sqrt(total / count):.3f} of the planned"


def far_correlation(one: Float64s, other: Float64s) -> str | None:
    """Return a complaint if two rows of draws are correlated; the few draws at marks are not judged."""
    if len(one) < ENOUGH:
        return None
    together = float(one @ other) / math.sqrt(len(one))
    return f"draws go together, by {together:.0f} standard deviations" if abs(together) > FAR else None


def wrong_noise(drawn: Iterable[tuple[int, Float64s]]) -> str | None:
    """Return a complaint about the noise of the steps, or None."""
    rows = list(drawn)
    if sorted(number for number, _ in rows) != sorted(STEPS):
        return f"people's sets are asked {len(rows)} times, not once for each step"
    by_number = dict(rows)
    for number, draws in rows:
        wrong = far_variance(draws) or far_correlation(draws[:-1], draws[1:])
        if wrong is not None:
            return f"{STEPS[number]} step: {wrong}"
    first, last = by_number[min(STEPS)], by_number[max(STEPS)]
    wrong = far_correlation(first, last)
    return None if wrong is None else f"two steps: {wrong}"


def counts_take_noise(_system: System, _algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """Each step runs once; its noise is as wide as planned and independent at each place."""
    seen = see_steps(Budget(budget.epsilon, 1e-6))
    return wrong_noise(seen.drawn)


LOOKS = 60
# The number of items of each person of the example, and the number of people.
HELD, PEOPLE = 5, 200
# The range of the integral over the look's outcome, in standard deviations, and its number of points.
REACH, POINTS = 12.0, 2401


def draw_looks(system: System, plan: LookPlan) -> Float64s:
    """Look several times at people with sets of one size; return the noise in planned standard deviations."""
    request = Request.of({f"u{user}": [f"i{item}" for item in range(HELD)] for user in range(PEOPLE)})
    machine = LocalEngine.for_run(Run(), None)
    truth = np.zeros(len(CLASSES))
    truth[np.searchsorted(CLASSES, HELD, side="right") - 1] = PEOPLE
    rows = []
    for key in (system.new_key() for _ in range(LOOKS)):
        with machine.read(request, plan, key, lambda: None) as held:
            rows.append((np.array(machine.look(held, plan.look, key)) - truth) / plan.look.stddev)
    return np.concatenate(rows)


def look_takes_noise(system: System, _algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """Everybody counts once, in one class of sizes, and the noise is as wide as planned."""
    return far_variance(draw_looks(system, plan_look(Budget(budget.epsilon, 1e-6), None, {})))


def noise_delta(epsilon: float, mu: float) -> float:
    """Return the delta of a Gaussian release with sensitivity over noise mu (Balle & Wang 2018)."""
    below = math.erfc((epsilon / mu - mu / 2.0) / math.sqrt(2.0))
    return (below - math.exp(epsilon) * math.erfc((epsilon / mu + mu / 2.0) / math.sqrt(2.0))) / 2.0


def whole_delta(plan: Plan, stddev: float) -> float:
    """Return the delta of a look followed by the worst release for each outcome of the look.

    For outcomes that are likelier with the person, the worst release spends the delta of the plan's certificate on its
    noise; for the others, it spends as much on novel items. The integral over the outcomes is by Simpson's rule, so the
    result is the delta of this pair and not a bound.
    """
    epsilon, nu = plan.budget.epsilon, 1.0 / stddev
    used, _ = certificate(epsilon, plan.budget.delta, plan.scale, plan.threshold, plan.algorithm)  # type: ignore[arg-type]
    mu = 1.0 / gaussian_stddev(epsilon, used, 1.0)
    total, step = 0.0, 2.0 * REACH / (POINTS - 1)
    for place in range(POINTS):
        point = -REACH + step * place + nu / 2.0
        ratio = math.exp(nu * point - nu * nu / 2.0)
        value = ratio * (noise_delta(epsilon - math.log(ratio), mu) if point > nu / 2.0 else used)
        weight = 1.0 if place in (0, POINTS - 1) else 4.0 if place % 2 else 2.0
        total += weight * value * math.exp(-point * point / 2.0)
    return total * step / 3.0 / math.sqrt(2.0 * math.pi)


def look_is_paid_for(_system: System, _algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """Even the worst choice by the look stays within delta, for every plan to choose from."""
    asked = Budget(budget.epsilon, 1e-6)
    planned = plan_look(asked, None, {})
    some = (planned.alternatives[0], planned.opening)
    worst = max(whole_delta(plan, planned.look.stddev) for plan in some)
    return f"the delta of look and release is {worst:.3g}" if worst > asked.delta else None
