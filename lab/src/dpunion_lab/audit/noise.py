"""What counting takes from people's sets in a whole release: three steps, each once, each with the planned noise.

The release counts a public list that nobody holds anything of. All its sums are 0, so what comes out is the noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from unittest import mock

from dpunion.algorithms import Algorithm, WeightedGaussian
from dpunion.budget import Budget
from dpunion.contributions import Float64s, Int64s
from dpunion.counting import Measure
from dpunion.counting.steps import ONE, Step
from dpunion.engines import Listed, count_listed
from dpunion.engines.local import engine
from dpunion.pipeline import release
from dpunion.plans.counts import Counted, Counts, CountsPlan
from dpunion.requests import Known
from dpunion_lab.audit.reach import STEPS
from dpunion_lab.audit.runs import System

LISTED = 20_000
# A wrong verdict has a chance below 1e-8: sums of squares by the bound of Laurent and Massart (2000, Lemma 1), where a
# chance is e^-SELDOM; correlations by this many standard deviations, where there are enough draws for a normal law.
SELDOM, FAR = 18.5, 6.0
ENOUGH = 1_000


@dataclass(slots=True)
class SeenSteps:
    """Stands where the engine counts a list, and notes what comes out of people's sets: each step's noisy sums.

    plan: the numbers of counting; drawn: for each step, float64[n], its sums over the planned standard deviation.
    """

    plan: CountsPlan | None = None
    drawn: list[tuple[int, Float64s]] = field(default_factory=list)

    def count(self, listed: Listed, plan: CountsPlan, measure: Measure) -> Counted:
        """Count as the engine does."""
        self.plan = plan
        planned = plan.stddevs

        def watched(step: Step, stddev: float) -> Int64s:
            noisy = measure(step, stddev)
            # The totals, at the end of the third step, are of people; all else nobody holds.
            empty = noisy[: len(listed.texts)]
            self.drawn.append((step.number, empty / (ONE * planned[step.number])))
            return noisy

        return count_listed(listed, plan, watched)


def see_steps(budget: Budget, listed: int = LISTED, test_key: int | None = None) -> SeenSteps:
    """Make a release with counts of a public list that nobody holds anything of, and see its steps."""
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
    """Say when the draws are not those of standard normals: the sum of their squares is chi-squared."""
    total, count = float(draws @ draws), len(draws)
    slack = 2.0 * math.sqrt(count * SELDOM)
    if count - slack <= total <= count + slack + 2.0 * SELDOM:
        return None
    return f"the noise is {math.sqrt(total / count):.3f} of the planned"


def far_correlation(one: Float64s, other: Float64s) -> str | None:
    """Say when two rows of draws go together; of the few draws at marks that is not judged."""
    if len(one) < ENOUGH:
        return None
    together = float(one @ other) / math.sqrt(len(one))
    return f"draws go together, by {together:.0f} standard deviations" if abs(together) > FAR else None


def wrong_noise(drawn: Iterable[tuple[int, Float64s]]) -> str | None:
    """Return what is wrong with the noise of the steps, if anything is."""
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
    """Each step is taken once, and its noise is as wide as planned, and its own at each place."""
    seen = see_steps(Budget(budget.epsilon, 1e-6))
    return wrong_noise(seen.drawn)
