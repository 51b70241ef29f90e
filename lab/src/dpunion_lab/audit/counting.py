"""Lower bounds on epsilon and delta for counts: for each step alone, and for a whole release with all three steps.

The audit looks at the noisy sums, from which everything that a release prints is computed. The attacker knows
everybody's sets, and picks every public number of a step: the worst burdens and weights. The best test then projects
the noisy sums onto the line between the two worlds. The outcome of a trial is the cell of the line that the projection
falls into; one edge between cells is exactly in the middle of the worlds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dpunion.algorithms import Algorithm, Funnel, WeightedGaussian
from dpunion.budget import Budget
from dpunion.calibration.gaussian import gaussian_stddev
from dpunion.checks import check_real, check_whole
from dpunion.contributions import Float64s, Int64s
from dpunion.counting import steps
from dpunion.counting.holdings import Holdings, holdings_of, number_items
from dpunion.counting.steps import BURDEN, ONE, FineStep, MarksStep, RoughStep, Step
from dpunion.errors import InternalError
from dpunion.plans import Plan, plan_release
from dpunion.plans.counts import MOST_COUNTED, Counts
from dpunion.randomness import RunKey
from dpunion.sets.encoding import digests_of
from dpunion_lab.audit.empirical import (
    ERROR,
    AlgorithmResult,
    AuditReport,
    PairResult,
    algorithm_label,
    bound_pair,
)
from dpunion_lab.audit.exact import COUNTED
from dpunion_lab.audit.reach import STEPS, moved_sums, squared_norm
from dpunion_lab.audit.runs import (
    ROWS_PER_RUN,
    TRACKED,
    NeighbourPair,
    System,
    User,
    copies,
    encode_for,
    names,
    outcomes,
    singles,
)

# Counts get half of the budget, so that neither they nor the selection hide a flaw of the other.
SHARE = 0.5
# The width of a cell on the line between the worlds, in standard deviations, and the number of cells on each side.
CELL, CELLS = 0.5, 8
MANY = 12
# A person with more items than are counted: the number of items, and how many of them are listed.
BEYOND, BEYOND_LISTED = MOST_COUNTED + 2_000, 12


@dataclass(frozen=True, slots=True)
class CountedPair:
    """Neighbouring databases, and how many of their items, the first ones, are on the public list."""

    pair: NeighbourPair
    listed: int


def counted_pairs() -> Iterator[CountedPair]:
    """Yield the pairs of databases for the audit of each step."""
    everything = tuple(range(MANY))
    yield CountedPair(NeighbourPair("one listed item", ((0,),) * 3, (0,)), 1)
    yield CountedPair(NeighbourPair("alone on a listed item", (), (0,)), 1)
    yield CountedPair(NeighbourPair("many listed items", (everything,) * 2, everything), MANY)
    yield CountedPair(NeighbourPair("alone on many listed items", ((0,),), everything), MANY)
    yield CountedPair(NeighbourPair("novel items only", ((0,),) * 3, everything[5:]), 5)
    yield CountedPair(NeighbourPair("listed and novel items", ((0, 1),) * 3, everything), 5)
    yield CountedPair(NeighbourPair("more than are counted", ((0, 1),) * 3, tuple(range(BEYOND))), BEYOND_LISTED)


def holdings_in(users: Sequence[User], listed: Sequence[int], plan: Plan, key: RunKey) -> Holdings:
    """Return which listed items each user has, with the code of releases: read, number by digests, bound."""
    contributions = encode_for(plan, [copies(tuple(users), 1)], key, limit=MOST_COUNTED)
    texts = names(np.zeros(len(listed), np.int64), np.array(listed, np.int64)).to_pylist()
    numbers = number_items(contributions.table.digests, digests_of(texts, key), digests_of((), key))
    return holdings_of(contributions, numbers, key)


def worst_steps(listed: int) -> list[Step]:
    """Return the three steps with the public numbers that make one person most visible.

    At the marks, that is a person who is the only one at a mark: one of the first items outweighs all later ones.
    """
    burdens = BURDEN >> np.minimum(np.arange(listed) * 17, 40)
    return [RoughStep(listed), MarksStep(burdens), FineStep(np.full(listed, ONE))]


@dataclass(frozen=True, slots=True, eq=False)
class Contrast:
    """The line between two worlds, in the sums of one step.

    places: int64[n], where the sums differ. without: the sums without the person at these places. along: what the
    person adds to them.
    """

    step: Step
    places: Int64s
    without: Int64s
    along: Int64s

    @classmethod
    def between(cls, step: Step, one: Holdings, other: Holdings) -> Contrast:
        """Return the line. one: everybody's sets. other: the sets of all but one person."""
        moved = moved_sums(step, one, other)
        places = np.flatnonzero(moved)
        return cls(step, places, step.add_up(other)[places], moved[places])

    @property
    def length(self) -> float:
        """Return the l2 distance of the worlds."""
        return math.sqrt(squared_norm(self.along)) / ONE

    def draw(self, stddev: float, key: RunKey, trials: int, *, is_with: bool) -> Float64s:
        """Return the projection of each trial's noisy sums onto the line: float64[trials].

        The unit is a standard deviation, and 0 is the world without the person. Every trial uses other places, and the
        noise is a function of the place; `counts_take_noise` checks that draws at different places are independent.
        """
        width = len(self.places)
        sums = np.tile(self.without + self.along if is_with else self.without, trials)
        places = np.arange(trials * width)
        noisy = steps.add_noise(sums, self.step.sensitivity, stddev, self.step.number, key, places)
        shifts: Float64s = (noisy.reshape(trials, width) - self.without) / ONE
        return shifts @ (self.along / (self.length * ONE * stddev))


def lines_between(pair: NeighbourPair, listed: Sequence[int], plan: Plan, key: RunKey) -> list[Contrast]:
    """Return the lines of the steps, without those where the person makes no difference."""
    one = holdings_in((*pair.rest, pair.extra), listed, plan, key)
    other = holdings_in(pair.rest, listed, plan, key) if pair.rest else nobody()
    lines = [Contrast.between(step, one, other) for step in worst_steps(len(listed))]
    return [line for line in lines if len(line.places)]


def nobody() -> Holdings:
    """Return the sets of an empty database."""
    return Holdings(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.bool_), np.zeros(0, np.bool_))


def cells_of(places: Float64s, middle: float) -> Int64s:
    """Return the cell of each place on the line, from 0 to 2 CELLS - 1; cell CELLS begins in the middle."""
    cells: Int64s = CELLS + np.clip(np.floor((places - middle) / CELL), -CELLS, CELLS - 1).astype(np.int64)
    return cells


# --- each step alone -----------------------------------------------------------------------------------------------


def step_cells(line: Contrast, stddev: float, system: System, trials: int, *, is_with: bool) -> Int64s:
    """Run the step this many times and return the cells: int64[trials]."""
    most = max(1, ROWS_PER_RUN // len(line.places))
    runs = [min(most, trials - first) for first in range(0, trials, most)]
    drawn = [line.draw(stddev, system.new_key(), count, is_with=is_with) for count in runs]
    return cells_of(np.concatenate(drawn), 0.5 * line.length / stddev)


def audit_step(
    system: System, counted: CountedPair, budget: Budget, trials: int, tail: float
) -> Iterator[tuple[int, PairResult]]:
    """Audit each step on a pair, with noise that uses the whole budget for this step."""
    stddev = gaussian_stddev(budget.epsilon, budget.delta, 1.0)
    plan = plan_release(WeightedGaussian(max_items_per_user=1), budget)
    for line in lines_between(counted.pair, range(counted.listed), plan, system.new_key()):
        one, other = (step_cells(line, stddev, system, trials, is_with=is_with) for is_with in (True, False))
        yield line.step.number, bound_pair(counted.pair, one, other, budget, tail)


def audit_steps(system: System, budget: Budget, trials: int, error: float) -> list[AlgorithmResult]:
    """Audit the three steps, each with the whole budget."""
    pairs = list(counted_pairs())
    tail = error / (8.0 * len(STEPS) * len(pairs))
    found: dict[int, list[PairResult]] = {number: [] for number in STEPS}
    for counted in pairs:
        for number, result in audit_step(system, counted, budget, trials, tail):
            found[number].append(result)
    return [AlgorithmResult(f"counts: {STEPS[number]} step", budget, tuple(some)) for number, some in found.items()]


# --- a whole release with counts --------------------------------------------------------------------------------------


def whole_pairs(plan: Plan) -> Iterator[NeighbourPair]:
    """Yield the pairs of databases for releases with counts; the outcome tracks every item of them."""
    limit = min(plan.algorithm.max_items_per_user, TRACKED)
    surely = max(1, round(plan.threshold + 6.0 * plan.scale))
    near = max(1, round(plan.threshold - 0.5))
    yield NeighbourPair("lone user, counted", (), tuple(range(limit)))
    yield NeighbourPair("1 listed item", singles(1, surely), (0,))
    yield NeighbourPair("1 item at the threshold, counted", singles(1, near), (0,))
    yield NeighbourPair("items at the threshold, counted", singles(limit, near), tuple(range(limit)))
    yield NeighbourPair("a listed and novel items", singles(1, surely), tuple(range(limit)))


def whole_cells(system: System, plan: Plan, pair: NeighbourPair, trials: int, *, is_with: bool) -> Int64s:
    """Select and count this many times; return the released set and the cell of the counts as one code: int64[trials].

    The cell is that of the likelihood ratio of all three steps, computed for the planned noise.
    """
    chosen = outcomes(system, plan, (*pair.rest, pair.extra) if is_with else pair.rest, trials)
    cells = np.zeros(trials, np.int64)
    for code in np.unique(chosen).tolist():
        these = np.flatnonzero(chosen == code)
        listed = [item for item in range(TRACKED) if code >> item & 1]
        lines = lines_between(pair, listed, plan, system.new_key())
        ratios = log_ratios(lines, plan, system.new_key(), len(these), is_with=is_with)
        cells[these] = 2 * CELLS * code + cells_of(ratios, 0.0)
    return cells


def log_ratios(lines: Sequence[Contrast], plan: Plan, key: RunKey, trials: int, *, is_with: bool) -> Float64s:
    """Return the log-likelihood ratio of each trial, divided by its standard deviation: float64[trials]."""
    total, squares = np.zeros(trials), 0.0
    if plan.counts is None:
        raise InternalError("a release without counts has no numbers to look at")
    stddevs = plan.counts.stddevs
    for line in lines:
        stddev = stddevs[line.step.number]
        mu = line.length / stddev
        total += mu * line.draw(stddev, key, trials, is_with=is_with) - 0.5 * mu * mu
        squares += mu * mu
    return total / math.sqrt(squares)


def audit_whole(system: System, plan: Plan, trials: int, error: float) -> AlgorithmResult:
    """Audit one algorithm's release with counts."""
    pairs = list(whole_pairs(plan))
    results = tuple(audit_counted(system, plan, pair, trials, error / (8.0 * len(pairs))) for pair in pairs)
    return AlgorithmResult(f"{algorithm_label(plan)} with counts", plan.budget, results)


def audit_counted(system: System, plan: Plan, pair: NeighbourPair, trials: int, tail: float) -> PairResult:
    """Run both worlds of a pair, with counts, and bound both directions."""
    one, other = (whole_cells(system, plan, pair, trials, is_with=is_with) for is_with in (True, False))
    return bound_pair(pair, one, other, plan.budget, tail)


def counted_algorithms(limit: int) -> list[Algorithm]:
    """Return every algorithm that allows counts, with a small limit."""
    return [kind(max_items_per_user=limit) for kind in (Funnel, *COUNTED)]


def with_counts(share: float = SHARE) -> Callable[[Algorithm, Budget], Plan]:
    """Return a function that plans releases with counts, which get this share of the budget."""
    return functools.partial(plan_release, counts=Counts(share=share))


def audit_counts(
    algorithms: Sequence[Algorithm] | None = None,
    *,
    epsilon: float = 1.0,
    delta: float = 0.01,
    max_items_per_user: int = 3,
    trials: int = 100_000,
    error: float = ERROR,
    system: System | None = None,
) -> AuditReport:
    """Audit the three steps of counting, each alone, and releases with counts, with the real code and fresh keys.

    The parameters are those of audit_release. Counts get half of the budget, so that neither they nor the selection
    hide a flaw of the other.
    """
    check_whole("audit_counts", "trials", trials, 100, 10**9)
    check_real("audit_counts", "error", error, 1e-300, 0.5)
    budget = Budget(epsilon, delta)
    tested = system or System(plan=with_counts())
    chosen = counted_algorithms(max_items_per_user) if algorithms is None else list(algorithms)
    with tested.in_place():
        plans = [tested.plan(algorithm, budget) for algorithm in chosen]
        part = error / (1 + len(plans))
        results = [*audit_steps(tested, budget, trials, part), *(audit_whole(tested, p, trials, part) for p in plans)]
    return AuditReport(tuple(results), trials, error)


def counts_odds_hold(system: System, _algorithm: Algorithm, budget: Budget, trials: int) -> str | None:
    """No outcome of a step is likelier than the budget allows, if the step gets the whole budget."""
    for result in audit_steps(system, budget, trials, ERROR):
        if result.violated:
            worst = max(result.pairs, key=lambda one: max(one.epsilon_bound / budget.epsilon, one.delta_bound))
            shown = f"epsilon >= {worst.epsilon_bound:.2f}, delta >= {worst.delta_bound:.4f}"
            return f"{result.label}, {worst.pair.name}: {shown}"
    return None
