"""Plans: every number of a release, fixed before any data is read, and public.

All kinds of plans answer the questions of `Planned`: `Plan` is for one algorithm, `look.LookPlan` lets a private look
choose the limit of items per person, and `ngrams.NgramPlan` releases n-grams length by length. PLANNERS has one entry
for each algorithm.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, cast

from dpunion import algorithms
from dpunion.algorithms import Algorithm, Bounding, CountGaussian, Funnel, Norm, Sensitivity, algorithm_named
from dpunion.budget import Budget
from dpunion.calibration import bounds, composition, gaussian, rounding
from dpunion.calibration.composition import ComposedNoise
from dpunion.calibration.funnel import calibrate_with_hints
from dpunion.calibration.gaussian import GUARD, Calibrated
from dpunion.checks import check_real, check_whole, refuse_policy
from dpunion.errors import BadParameter, ForeignErrors
from dpunion.kernels.normal import gaussian_delta
from dpunion.plans.counts import PARTS, Counts, CountsPlan

if TYPE_CHECKING:
    from dpunion.chances import Needed
    from dpunion.plans.look import SizeLook
    from dpunion.plans.ngrams import NgramPlan

LARGEST = 1e12
"""No number of a plan is larger."""
STEPS = len(PARTS)
"""Counting takes this many Gaussian releases."""
SMALL_GAUSSIAN_SHARE = 0.98
"""The part of delta for Funnel's noise, where most of the budget is Funnel's own: novel items then need less."""


class Noise(enum.Enum):
    """The distribution of the noise in a decision."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"
    TRUNCATED_GEOMETRIC = "truncated-geometric"


@dataclass(frozen=True, slots=True)
class Round:
    """One of several rounds.

    budget: how far one user may move this round's weights (l2 norm). stddev: of the noise added to them. threshold: the
    score that an item must exceed to stay (Funnel, before the last round) or to be released.
    """

    budget: float
    stddev: float
    threshold: float


@dataclass(frozen=True, slots=True)
class Nouns:
    """The words for what a release lists, for what comes out first, and for a person's data that it protects."""

    item: str
    first: str
    covers: str


ITEMS = Nouns("item", "an item", "rows")
NGRAMS = Nouns("n-gram", "a single word", "texts")


@dataclass(frozen=True, slots=True)
class CandidatesPlan:
    """The public numbers of a list of candidates: items that need less, and may come out although nobody has them.

    listed: how many items are on the list; sha256: that of the list. error: the largest allowed
    probability of releasing an item that nobody has; chance: the exact one. threshold: what a noisy weight must exceed.
    """

    listed: int
    sha256: str
    error: float
    threshold: float
    chance: float

    @property
    def expected(self) -> float:
        """Return how many listed items come out on average, at most, although nobody has them.

        The exact chance exceeds the error where the list's threshold would be above that of other items.
        """
        return self.listed * max(self.error, self.chance)

    @property
    def seldom_more(self) -> int:
        """Return a number that these items exceed in at most one release of a hundred: a quantile of Poisson's law."""
        mean = self.expected
        first = max(0, math.floor(mean - 10.0 * math.sqrt(mean)))
        total, at = 0.0, first
        while mean > 0.0:
            total += math.exp(at * math.log(mean) - mean - math.lgamma(at + 1.0))
            if total >= 0.99:
                return at
            at += 1
        return 0

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"expected": self.expected, "seldom_more": self.seldom_more}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> CandidatesPlan:
        listed = check_whole("candidates", "listed", values["listed"], 0, algorithms.MAX_ITEMS)
        numbers = (read_real(values, "error", 0.0, 1.0), read_real(values, "threshold"))
        return cls(listed, str(values["sha256"]), *numbers, read_real(values, "chance", 0.0, 1.0))


class Planned(Protocol):
    """What is fixed before any data is read, for every kind of plan.

    name: of the algorithm. counts: how people are counted, if they are. candidates: the numbers of a public list, if
    there is one. look: the private look before the release, if there is one. opening: the plan of the list that is
    released first; with a look, the plan that is followed when the look shows nothing. alternatives: every plan that
    may be followed; empty if the ledger must charge the whole budget. bounding: how many items are read of each user.
    """

    nouns: ClassVar[Nouns]

    @property
    def name(self) -> str: ...

    @property
    def budget(self) -> Budget: ...

    @property
    def counts(self) -> CountsPlan | None: ...

    @property
    def candidates(self) -> CandidatesPlan | None: ...

    @property
    def look(self) -> SizeLook | None: ...

    @property
    def opening(self) -> Plan: ...

    @property
    def alternatives(self) -> tuple[Plan, ...]: ...

    @property
    def bounding(self) -> Bounding: ...

    def choose_plan(self, measure: Callable[[SizeLook], Sequence[float]]) -> Plan | NgramPlan:
        """Return the plan to follow; with a look, `measure` takes it: noisy numbers of people of each size class."""

    def funnels(self) -> Iterator[tuple[float, float, Funnel]]:
        """Yield (stddev, highest threshold, funnel) of every Funnel that may run."""

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON and for people."""


class PlanDisplay:
    """What every plan shows of itself: how many people an item needs, computed when it is asked for."""

    __slots__ = ()

    def needed(self: Planned, set_sizes: Sequence[int] = (1, 10, 100), *, listed: bool = False) -> tuple[Needed, ...]:
        """Return about how many people must have an item for a chance of 50 % (even) and 90 % (likely) to come out.

        There is one row for each number of items that these people have in total, if their other items are rare.
        listed: for an item on the list of candidates. It reads no data.

        >>> plan_release("policy-gaussian", Budget(epsilon=1.0, delta=1e-6)).needed([1, 10])
        (Needed(items_each=1, even=24, likely=31), Needed(items_each=10, even=118, likely=182))
        """
        from dpunion.chances import find_needed

        return find_needed(self, set_sizes, listed=listed)

    def __repr__(self: Planned) -> str:
        from dpunion.chances import describe_plan

        return describe_plan(self)

    def _repr_html_(self: Planned) -> str:
        """Return a small card for notebooks."""
        from dpunion.chances import draw_plan

        return draw_plan(self)


@dataclass(frozen=True, slots=True, repr=False)
class Plan(PlanDisplay):
    """The public numbers of a release with one algorithm.

    scale: the standard deviation of Gaussian or the scale of Laplace noise. threshold: what a noisy weight must
    exceed. cutoff: what a policy fills items up to (None: no policy). delta_used: the delta that the certificate
    proves, at most the budget's. rounding_slack: by how much noise and threshold were raised for float64 rounding.
    rounds: of an algorithm with several. counts: how people are counted, if they are. look: the look that chose the
    limit of items per person, if there was one. candidates: the numbers of a public list, if there is one.
    planned_novelty: for a release of a schedule, the chance of novel items from which it was planned.
    """

    nouns: ClassVar[Nouns] = ITEMS

    algorithm: Algorithm
    budget: Budget
    noise: Noise
    scale: float
    threshold: float
    cutoff: float | None
    sensitivity: Sensitivity
    delta_used: float
    rounding_slack: float
    rounds: tuple[Round, ...] = ()
    counts: CountsPlan | None = None
    look: SizeLook | None = None
    candidates: CandidatesPlan | None = None
    planned_novelty: float | None = None

    @property
    def name(self) -> str:
        return self.algorithm.name

    @property
    def opening(self) -> Plan:
        return self

    @property
    def alternatives(self) -> tuple[Plan, ...]:
        return (self,)

    @property
    def bounding(self) -> Bounding:
        return self.algorithm.bounding

    @property
    def selecting(self) -> float:
        """Return the squared mu, (sensitivity/stddev)², of selecting the list.

        Rounding may raise the sensitivity by the slack, and the noise was raised by it too: the ratio leaves both out.
        """
        return (self.sensitivity.bound * (1.0 + self.rounding_slack) / self.scale) ** 2

    @property
    def extra_stddevs(self) -> tuple[float, ...]:
        """Return the noise of every further Gaussian release, of sensitivity 1: the steps of counting, and the look."""
        counts = () if self.counts is None else self.counts.stddevs
        return counts if self.look is None else (*counts, self.look.stddev)

    @property
    def novelty(self) -> float | None:
        """Return the chance that an item of one user shows in a release that is Gaussian otherwise; None: not proved.

        The ledger charges a Gaussian release with this chance less than its whole budget.
        """
        if self.planned_novelty is not None:
            return self.planned_novelty
        bound = PLANNERS[type(self.algorithm)].novelty
        return None if bound is None else bound(self)

    def choose_plan(self, _measure: Callable[[SizeLook], Sequence[float]]) -> Plan:
        return self

    def funnels(self) -> Iterator[tuple[float, float, Funnel]]:
        if isinstance(self.algorithm, Funnel):
            yield self.scale, self.threshold, self.algorithm
            if self.candidates is not None:
                yield self.scale, self.candidates.threshold, self.algorithm.for_listed

    def to_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "algorithm": self.algorithm.name,
            "parameters": self.algorithm.parameters(),
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "noise": self.noise.value,
            "stddev" if self.noise is Noise.GAUSSIAN else "scale": self.scale,
            "threshold": self.threshold,
        }
        if self.cutoff is not None:
            values["cutoff"] = self.cutoff
        values |= {
            "sensitivity": {"norm": self.sensitivity.norm.value, "bound": self.sensitivity.bound},
            "delta_used": self.delta_used,
            "delta_used_share": self.delta_used / self.budget.delta,
            "rounding_slack": self.rounding_slack,
        }
        if self.rounds:
            values["rounds"] = [dataclasses.asdict(one) for one in self.rounds]
        if self.planned_novelty is not None:
            values["novelty"] = self.planned_novelty
        parts = {"counts": self.counts, "look": self.look, "candidates": self.candidates}
        return values | {name: part.to_dict() for name, part in parts.items() if part is not None}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Plan:
        """Read back what `to_dict` wrote: a record of what was done. A new release always makes a new plan."""
        from dpunion.plans.look import SizeLook

        with refuse_strange("Plan"):
            noise = Noise(values["noise"])
            norm = Norm(values["sensitivity"]["norm"])
            return cls(
                algorithm=algorithm_named(str(values["algorithm"]), **values["parameters"]),
                budget=Budget(values["epsilon"], values["delta"]),
                noise=noise,
                scale=read_real(values, "stddev" if noise is Noise.GAUSSIAN else "scale", 0.0),
                threshold=read_real(values, "threshold"),
                cutoff=read_real(values, "cutoff") if "cutoff" in values else None,
                sensitivity=Sensitivity(norm, read_real(values["sensitivity"], "bound", 0.0)),
                delta_used=read_real(values, "delta_used", 0.0, 1.0),
                rounding_slack=read_real(values, "rounding_slack", 0.0),
                rounds=tuple(
                    Round(read_real(one, "budget"), read_real(one, "stddev"), read_real(one, "threshold"))
                    for one in values.get("rounds", [])
                ),
                counts=CountsPlan.from_dict(values["counts"]) if "counts" in values else None,
                look=SizeLook.from_dict(values["look"]) if "look" in values else None,
                candidates=CandidatesPlan.from_dict(values["candidates"]) if "candidates" in values else None,
                planned_novelty=read_real(values, "novelty", 0.0, 1.0) if "novelty" in values else None,
            )


def refuse_strange(kind: str) -> ForeignErrors:
    """Return a context that refuses values which are not a plan of this kind, in one sentence."""
    strange = BadParameter("This is not a plan of dpunion.", f"Pass what {kind}.to_dict returned.")
    return ForeignErrors(lambda _: strange, KeyError, TypeError, ValueError, ours_too=True)


def read_real(values: Any, name: str, low: float = -LARGEST, high: float = LARGEST) -> float:
    """Return a number that was read from a file; refuse numbers that no plan has."""
    return check_real("a plan", name, values[name], low, high)


def as_algorithm(algorithm: object, /, **settings: Any) -> Algorithm:
    """Accept an algorithm, or its name with settings; refuse policies that are not private with the reason."""
    if isinstance(algorithm, str):
        return algorithm_named(algorithm, **settings)
    if settings:
        refuse_settings(algorithm, settings)
    if isinstance(algorithm, tuple(algorithms.ALGORITHMS.values())):
        return cast("Algorithm", algorithm)
    refuse_policy(str(getattr(algorithm, "name", "")))
    raise BadParameter(
        f"The 'algorithm' parameter must be an algorithm of dpunion. Got a {type(algorithm).__name__} instead.",
        f"Pass one of {', '.join(kind.__name__ for kind in algorithms.ALGORITHMS.values())}, or its name.",
    )


def refuse_settings(algorithm: object, settings: Collection[str]) -> NoReturn:
    """Refuse settings that were given next to an algorithm object, which has its own."""
    kind = type(algorithm).__name__
    raise BadParameter(
        f"{', '.join(map(repr, settings))} cannot be given together with {kind}(...), which has its own.",
        f"Write it inside {kind}(...), or give the name of an algorithm instead.",
    )


# --- from an algorithm and a budget to numbers --------------------------------------------------------------------


def plan_release(algorithm: object, budget: Budget, counts: Counts | None = None) -> Plan:
    """Fix every number of a release with `algorithm` under `budget`; counting takes its part of the budget."""
    chosen = as_algorithm(algorithm)
    # The calibration aims at slightly less than the budget: see rounding.calibration_target.
    epsilon, delta = rounding.calibration_target(budget.epsilon, budget.delta)
    if counts is not None:
        epsilon, delta = target_steps(budget, epsilon, delta, STEPS)
    return PLANNERS[type(chosen)].plan(chosen, budget, epsilon, delta, counts)


def target_steps(budget: Budget, epsilon: float, delta: float, steps: int) -> tuple[float, float]:
    """Return the (epsilon, delta) to calibrate to, so that the computed normals of these steps keep the promised pair.

    Each step takes what every noisy decision takes (docs/guarantees-counts.md, "Noise and rounding").
    """
    for _ in range(steps):
        epsilon, delta = rounding.calibration_target(epsilon, rounding.funnel_target(budget.epsilon, delta))
    return epsilon, delta


def find_slack(algorithm: Algorithm, scale: float, threshold: float) -> float:
    """Return how much rounding can add to the sensitivity, for a threshold at most 5 % above this one."""
    bound, limit = algorithm.sensitivity.bound, algorithm.max_items_per_user
    if isinstance(algorithm, Funnel):
        return rounding.funnel_slack(scale, threshold, algorithm)
    if isinstance(algorithm, algorithms.DescentPolicy):
        # The cutoff is taken 5 % higher than planned, which is more than the slack can add to it.
        visits = algorithm.visits(scale, threshold)
        slack_of = rounding.l2_descent_slack if algorithm.norm is Norm.L2 else rounding.l1_descent_slack
        return slack_of(1.05 * visits[-1][0], limit, len(visits), scale)
    # Weights that are exact integers: only the decision itself rounds.
    if Noise(algorithm.noise) is Noise.GAUSSIAN:
        return rounding.l2_coins_slack(scale, bound)
    return rounding.l1_coins_slack(scale, bound, limit)


def finish_plan(algorithm: Algorithm, budget: Budget, found: Calibrated, slack: float | None = None) -> Plan:
    """Return the plan with this noise and threshold, both raised by the slack for rounding (by default find_slack)."""
    if slack is None:
        slack = find_slack(algorithm, found.scale, found.threshold)
    scale = found.scale * (1.0 + slack)
    threshold = max(found.threshold * (1.0 + slack), found.threshold)
    margin = getattr(algorithm, "cutoff_margin", None)
    return Plan(
        algorithm=algorithm,
        budget=budget,
        noise=Noise(algorithm.noise),
        scale=scale,
        threshold=threshold,
        cutoff=None if margin is None else threshold + margin * scale,
        sensitivity=algorithm.sensitivity,
        delta_used=found.delta_used,
        rounding_slack=slack,
        rounds=plan_rounds(algorithm, scale, threshold) if isinstance(algorithm, Funnel) else (),
    )


def plan_rounds(algorithm: Funnel, stddev: float, threshold: float) -> tuple[Round, ...]:
    """Return the rounds of Funnel, with the score that an item must exceed to stay, or to come out."""
    lines = (*algorithm.keep_lines(stddev, threshold), threshold)
    return tuple(Round(share, stddev, line) for share, line in zip(algorithm.shares, lines, strict=True))


def compose(algorithm: Algorithm, epsilon: float, delta: float, shares: tuple[float, ...]) -> ComposedNoise:
    """Return the noise of a set union by this algorithm, and of Gaussian releases on what it makes public."""
    if isinstance(algorithm, Funnel):
        part = SMALL_GAUSSIAN_SHARE if shares[0] >= 0.5 else composition.FUNNEL_GAUSSIAN_SHARE
        return composition.compose_funnel(epsilon, delta, algorithm, shares, part)
    if isinstance(algorithm, CountGaussian | algorithms.WeightedGaussian | algorithms.PolicyGaussian):
        counted = isinstance(algorithm, CountGaussian)
        compose_both = composition.compose_count if counted else composition.compose_unit_norm
        return compose_both(epsilon, delta, algorithm.max_items_per_user, shares, algorithm.calibration)
    return refuse_counts(algorithm.name)


def plan_composed(algorithm: Algorithm, budget: Budget, composed: ComposedNoise) -> Plan:
    """Plan the first of several releases: its part of the noise, and the threshold of the whole composition."""
    plan = finish_plan(algorithm, budget, Calibrated(composed.stddevs[0], composed.threshold, composed.delta_used, 0))
    # The proofs need a positive threshold, but for count-gaussian.
    if not isinstance(algorithm, CountGaussian) and not (plan.threshold > 0.0 and math.isfinite(plan.threshold)):
        raise BadParameter(
            "This budget is too large: the threshold would not be positive.",
            "Choose a smaller 'delta', well below one over the number of people.",
        )
    return plan


def _plan_with_counts(algorithm: Algorithm, budget: Budget, epsilon: float, delta: float, counts: Counts) -> Plan:
    composed = compose(algorithm, epsilon, delta, (1.0 - counts.share, *counts.shares))
    plan = plan_composed(algorithm, budget, composed)
    return dataclasses.replace(plan, counts=CountsPlan(counts.share, *composed.stddevs[-STEPS:]))


Calibrate = Callable[[float, float, int], Calibrated]


def _plan_one_round(published: Calibrate, exact: Calibrate | None = None) -> PlanAlgorithm:
    """Return the function that plans an algorithm of one round by these constants of (epsilon, delta, items)."""

    def plan(algorithm: Any, budget: Budget, epsilon: float, delta: float, counts: Counts | None) -> Plan:
        if counts is not None:
            return _plan_with_counts(algorithm, budget, epsilon, delta, counts)
        calibrate = exact if exact and algorithm.calibration is algorithms.Calibration.EXACT else published
        made = finish_plan(algorithm, budget, calibrate(epsilon, delta, algorithm.max_items_per_user))
        if made.cutoff is not None and made.cutoff <= 0.0:
            raise BadParameter(
                "This budget is too large: the policy's cutoff would not be positive.",
                "Choose a smaller 'delta' (well below one over the number of people) or a larger 'cutoff_margin'.",
            )
        return made

    return plan


def _plan_funnel(algorithm: Funnel, budget: Budget, epsilon: float, delta: float, counts: Counts | None) -> Plan:
    """Plan Funnel: stddev and threshold by Theorems A and B, then both raised for rounding."""
    delta = rounding.funnel_target(budget.epsilon, delta)
    if counts is not None:
        return _plan_with_counts(algorithm, budget, epsilon, delta, counts)
    best = calibrate_with_hints(epsilon, delta, algorithm)
    found = Calibrated(best.stddev, best.threshold, best.delta_used, best.worst_novel)
    plan = finish_plan(algorithm, budget, found)
    # The same number but for its last bit, which fingerprints of earlier releases depend on.
    return dataclasses.replace(plan, cutoff=algorithm.cutoffs(plan.scale, plan.threshold)[0])


def _plan_sips(
    algorithm: algorithms.DpSips, budget: Budget, epsilon: float, delta: float, counts: Counts | None
) -> Plan:
    """Plan DP-SIPS: half of delta for the noise of all rounds together, half shared out for novel items."""
    half, share = delta / 2.0, 1.0 if counts is None else 1.0 - counts.share
    base = gaussian.gaussian_stddev(epsilon, half, 1.0)
    calibrated = base / math.sqrt(share)
    # Each round's coins round: by Minkowski the shifts of all rounds together count sqrt(rounds) times.
    slack = rounding.l2_coins_slack(calibrated * algorithm.rounds, 1.0)
    stddev = calibrated * (1.0 + slack)
    rounds = []
    for part in algorithm.shares:
        spread = stddev / math.sqrt(part)
        threshold = gaussian.spread_threshold(spread, half * part, algorithm.max_items_per_user)
        rounds.append(Round(1.0, spread, threshold * (1.0 + slack)))
    return Plan(
        algorithm=algorithm,
        budget=budget,
        noise=Noise.GAUSSIAN,
        scale=stddev,
        threshold=rounds[-1].threshold,
        cutoff=None,
        sensitivity=algorithm.sensitivity,
        delta_used=budget.delta,
        rounding_slack=slack,
        rounds=tuple(rounds),
        counts=CountsPlan(counts.share, *(base / math.sqrt(one) for one in counts.shares)) if counts else None,
    )


def _plan_optimal(
    algorithm: algorithms.OptimalSingleItem, budget: Budget, epsilon: float, _delta: float, counts: Counts | None
) -> Plan:
    """Plan the optimal single-item release; the threshold is the count released with probability one half."""
    if counts is not None:
        refuse_counts(algorithm.name)
    chances = bounds.released_with(bounds.release_odds_for(budget))
    threshold = float(next(count for count, chance in enumerate(chances) if chance >= 0.5))
    return finish_plan(algorithm, budget, Calibrated(1.0 / epsilon, threshold, budget.delta, 0), 0.0)


def refuse_counts(name: str) -> NoReturn:
    """Refuse counts for an algorithm whose noise cannot be composed with theirs."""
    raise BadParameter(
        f"{name} cannot estimate counts: its noise is not Gaussian.",
        "Choose funnel, policy-gaussian, weighted-gaussian, count-gaussian, dp-sips, or leave 'counts' (--counts) out.",
    )


def _funnel_novelty(plan: Plan) -> float:
    """Return at least p_t for every t: Theorem A says delta_G(epsilon; mu_t) + p_t <= certified.

    mu_t^2 >= (1 - c_1^2) selecting + counting for every t. With a look, this is the certificate of the release after
    the look, so its mu_t has no part of the look. The budget's epsilon is larger than the certificate's, which makes
    `least`, the part to subtract, smaller.
    """
    first: float = plan.algorithm.parameters()["first_share"]
    epsilon, _ = rounding.calibration_target(plan.budget.epsilon, plan.budget.delta)
    counting = 0.0 if plan.counts is None else math.fsum(stddev**-2.0 for stddev in plan.counts.stddevs)
    least = gaussian_delta(epsilon, math.sqrt(plan.selecting * (1.0 - first) + counting))
    certified = plan.delta_used if plan.look is None else plan.look.delta
    return certified - least * (1.0 - GUARD)


def certified_novelty(plan: Plan) -> float:
    """Return the certificate's delta, which for every t is at least the chance of t novel items alone."""
    return plan.delta_used


PlanAlgorithm = Callable[[Any, Budget, float, float, Counts | None], Plan]


@dataclass(frozen=True, slots=True)
class Planner:
    """How an algorithm becomes a plan.

    plan: a function of the algorithm, the budget, the (epsilon, delta) to calibrate to, and the counts to make.
    novelty: what Plan.novelty returns; None where only the budget is proved, and the ledger charges all of it.
    """

    plan: PlanAlgorithm
    novelty: Callable[[Plan], float] | None = None


_plan_unit_norm = _plan_one_round(gaussian.published_unit_norm, gaussian.exact_unit_norm)
PLANNERS: dict[type[Algorithm], Planner] = {
    algorithms.CountLaplace: Planner(_plan_one_round(bounds.published_count_laplace)),
    CountGaussian: Planner(_plan_one_round(gaussian.published_count_gaussian, gaussian.exact_count), certified_novelty),
    algorithms.WeightedLaplace: Planner(_plan_one_round(bounds.published_spread)),
    algorithms.WeightedGaussian: Planner(_plan_unit_norm, certified_novelty),
    algorithms.PolicyLaplace: Planner(_plan_one_round(bounds.published_spread)),
    algorithms.PolicyGaussian: Planner(_plan_unit_norm, certified_novelty),
    Funnel: Planner(_plan_funnel, _funnel_novelty),
    # Half of delta is shared out over the rounds for novel items; the rounds' 1/stddev^2 add up to mu^2.
    algorithms.DpSips: Planner(_plan_sips, lambda plan: plan.budget.delta / 2.0),
    algorithms.OptimalSingleItem: Planner(_plan_optimal),
}
"""How each algorithm is planned. A new algorithm is one more entry."""
