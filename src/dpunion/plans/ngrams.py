"""Plans of n-grams, released length by length: the settings, and every number fixed before any data is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from dpunion import plans
from dpunion.algorithms import MAX_ITEMS, Algorithm, Bounding, Funnel, PolicyGaussian, WeightedGaussian, algorithm_named
from dpunion.budget import Budget
from dpunion.calibration import rounding
from dpunion.calibration.composition import candidate_threshold, geometric_shares, walk_threshold
from dpunion.checks import check_real, check_whole
from dpunion.errors import BadParameter
from dpunion.plans import NGRAMS, STEPS, Nouns, Plan, as_algorithm, read_real, target_steps
from dpunion.plans.counts import Counts, CountsPlan

Gaussians = WeightedGaussian | PolicyGaussian | Funnel
LONGEST = 10
MOST_NGRAMS = 2**63 - 1

# On public candidates novel items cost nothing, so a sharper line than Funnel's own is best (tuned on public film
# reviews).
LATER = Funnel(max_items_per_user=500, keep_fraction=1.2, keep_margin=1.75)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ngrams:
    """How to release n-grams of length 1 to `longest`; public parameters only.

    first: the algorithm for single tokens. later: the algorithm for lengths 2 and more, which runs on the public
    candidates, or one algorithm for each of these lengths. spurious_rate: n-grams that nobody wrote come out by chance,
    at each length about this many for each released n-gram one shorter; a lower rate raises the threshold.
    share_ratio: each length's share of the budget over that of the length before; 1 divides evenly, more favours long
    n-grams.
    """

    longest: int = 3
    first: Gaussians = dataclasses.field(default_factory=Funnel)
    later: tuple[Gaussians, ...] = (LATER,)
    spurious_rate: float = 0.01
    share_ratio: float = 1.0

    def __post_init__(self) -> None:
        check_whole("n-grams", "longest", self.longest, 1, LONGEST)
        check_real("n-grams", "spurious_rate", self.spurious_rate, 1e-6, 0.25)
        check_real("n-grams", "share_ratio", self.share_ratio, 0.1, 10.0)
        object.__setattr__(self, "first", _gaussian("first", self.first))
        later = self.later if isinstance(self.later, tuple | list) else (self.later,)
        if len(later) not in {1, max(1, self.longest - 1)}:
            raise BadParameter(
                f"The 'later' parameter has {len(later)} algorithms for the {self.longest - 1} lengths above 1.",
                "Give one for all of them, or one for each.",
            )
        object.__setattr__(self, "later", tuple(_gaussian("later", one) for one in later))
        object.__setattr__(self, "spurious_rate", float(self.spurious_rate))
        object.__setattr__(self, "share_ratio", float(self.share_ratio))

    @property
    def name(self) -> str:
        """Return the name: n-grams, and the algorithm of each length."""
        each = (self.algorithm_at(length).name for length in range(1, self.longest + 1))
        return f"ngrams ({', '.join(each)})"

    @property
    def shares(self) -> tuple[float, ...]:
        """Return each length's part of the budget; they sum to 1."""
        return geometric_shares(self.longest, self.share_ratio)

    def algorithm_at(self, length: int) -> Gaussians:
        """Return the algorithm of one length."""
        if length == 1:
            return self.first
        return self.later[0] if len(self.later) == 1 else self.later[length - 2]

    def to_dict(self) -> dict[str, Any]:
        return {
            "longest": self.longest,
            "first": _described(self.first),
            "later": [_described(one) for one in self.later],
            "spurious_rate": self.spurious_rate,
            "share_ratio": self.share_ratio,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Ngrams:
        return cls(
            longest=values["longest"],
            first=algorithm_named(values["first"]["algorithm"], **values["first"]["parameters"]),  # type: ignore[arg-type]
            later=tuple(algorithm_named(one["algorithm"], **one["parameters"]) for one in values["later"]),  # type: ignore[misc]
            spurious_rate=values["spurious_rate"],
            share_ratio=values["share_ratio"],
        )


def _described(algorithm: Gaussians) -> dict[str, Any]:
    return {"algorithm": algorithm.name, "parameters": algorithm.parameters()}


def _gaussian(name: str, algorithm: object) -> Gaussians:
    """Accept an algorithm that composes over lengths; refuse Laplace noise and algorithms without a proof here."""
    chosen = as_algorithm(algorithm)
    if not isinstance(chosen, WeightedGaussian | PolicyGaussian | Funnel):
        raise BadParameter(
            f"The {name!r} parameter of a release of n-grams must be weighted-gaussian, policy-gaussian or funnel. "
            f"Got {chosen.name} instead.",
            "Choose one of these three, whose noise composes over the lengths.",
        )
    return chosen


@dataclass(frozen=True, slots=True)
class LengthPlan:
    """The numbers of one length: its part of the budget, its algorithm, its noise (raised for rounding)."""

    length: int
    share: float
    algorithm: Gaussians
    stddev: float
    rounding_slack: float


@dataclass(frozen=True, slots=True)
class LengthResult:
    """What the released n-grams say about one length; public.

    candidates: |V_k|, the n-grams that could come out (None at length 1, where anything could). threshold: what pure
    noise had to exceed. spurious: the expected number of n-grams that nobody kept, at most.
    """

    length: int
    released: int
    candidates: int | None
    threshold: float | None
    spurious: float

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> LengthResult:
        """Read back a result that was written as plain values."""
        released, candidates = (
            None if values[name] is None else check_whole("a result", name, values[name], 0, MOST_NGRAMS)
            for name in ("released", "candidates")
        )
        if released is None:
            raise ValueError("a length without a number of n-grams")
        threshold = None if values["threshold"] is None else read_real(values, "threshold")
        return cls(read_length(values), released, candidates, threshold, read_real(values, "spurious", 0.0))


@dataclass(frozen=True, slots=True, repr=False)
class NgramPlan(plans.PlanDisplay):
    """The public numbers of a release of n-grams; first: the plan of length 1, with its threshold."""

    nouns: ClassVar[Nouns] = NGRAMS
    look: ClassVar[None] = None
    candidates: ClassVar[None] = None
    alternatives: ClassVar[tuple[Plan, ...]] = ()

    settings: Ngrams
    budget: Budget
    first: Plan
    lengths: tuple[LengthPlan, ...]
    delta_used: float
    counts: CountsPlan | None = None

    @property
    def algorithm(self) -> Ngrams:
        return self.settings

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def opening(self) -> Plan:
        return self.first

    @property
    def bounding(self) -> Bounding:
        return self.first.bounding

    def choose_plan(self, _measure: Callable[..., Any]) -> NgramPlan:
        return self

    def funnels(self) -> Iterator[tuple[float, float, Funnel]]:
        """Yield the numbers of each length by Funnel, with the highest threshold that candidates can have."""
        yield from self.first.funnels()
        for one in self.lengths[1:]:
            if isinstance(one.algorithm, Funnel):
                yield one.stddev, 1.05 * highest_threshold(one.stddev, self.settings.spurious_rate), one.algorithm

    def to_dict(self) -> dict[str, Any]:
        counts = {} if self.counts is None else {"counts": self.counts.to_dict()}
        rate = self.settings.spurious_rate
        rule = f"pure noise passes with probability {rate:g} * min(1, shorter / candidates)"
        return {
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "settings": self.settings.to_dict(),
            "first": self.first.to_dict(),
            "lengths": [
                {
                    "length": one.length,
                    "share": one.share,
                    "algorithm": one.algorithm.name,
                    "max_items_per_user": one.algorithm.max_items_per_user,
                    "stddev": one.stddev,
                    "threshold": self.first.threshold if one.length == 1 else rule,
                    "rounding_slack": one.rounding_slack,
                }
                for one in self.lengths
            ],
            "delta_used": self.delta_used,
        } | counts

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> NgramPlan:
        """Read back what `to_dict` wrote: a record of what was done. A new release always makes a new plan."""
        with plans.refuse_strange("NgramPlan"):
            settings = Ngrams.from_dict(values["settings"])
            lengths = tuple(
                LengthPlan(
                    read_length(one, settings.longest),
                    read_real(one, "share", 0.0, 1.0),
                    settings.algorithm_at(one["length"]),
                    read_real(one, "stddev", 0.0),
                    read_real(one, "rounding_slack", 0.0),
                )
                for one in values["lengths"]
            )
            budget = Budget(values["epsilon"], values["delta"])
            counts = CountsPlan.from_dict(values["counts"]) if "counts" in values else None
            first, used = Plan.from_dict(values["first"]), read_real(values, "delta_used", 0.0, 1.0)
            return cls(settings, budget, first, lengths, used, counts)


def read_length(values: Any, longest: int = LONGEST) -> int:
    """Return a length that was read from a file."""
    return check_whole("n-grams", "length", values["length"], 1, longest)


def plan_ngrams(settings: Ngrams, budget: Budget, counts: Counts | None = None) -> NgramPlan:
    """Fix every number of a release of n-grams, and of its counts."""
    # Each length takes twice the usual slack: for its coins, and for the chance of its spurious n-grams.
    epsilon, delta = budget.epsilon, budget.delta
    for _ in range(2 * settings.longest):
        epsilon, delta = rounding.calibration_target(epsilon, delta)
    for length in range(1, settings.longest + 1):
        if isinstance(settings.algorithm_at(length), Funnel):
            delta = rounding.funnel_target(budget.epsilon, delta)
    shares = settings.shares
    if counts is not None:
        epsilon, delta = target_steps(budget, epsilon, delta, STEPS)
        shares = (*((1.0 - counts.share) * one for one in shares), *counts.shares)
    composed = plans.compose(settings.first, epsilon, delta, shares)
    opening = plans.plan_composed(settings.first, budget, composed)
    lengths = [LengthPlan(1, shares[0], settings.first, opening.scale, opening.rounding_slack)]
    for length in range(2, settings.longest + 1):
        algorithm, stddev = settings.algorithm_at(length), composed.stddevs[length - 1]
        slack = largest_slack(algorithm, stddev, settings.spurious_rate)
        lengths.append(LengthPlan(length, shares[length - 1], algorithm, stddev * (1.0 + slack), slack))
    steps = None if counts is None else CountsPlan(counts.share, *composed.stddevs[-STEPS:])
    return NgramPlan(settings, budget, opening, tuple(lengths), composed.delta_used, steps)


def highest_threshold(stddev: float, rate: float) -> float:
    """Return a number that no threshold on candidates exceeds: |S|/|V| is at least 1/|S| >= 1/MAX_ITEMS.

    It uses half of the rate, because a walk of several rounds may pass its threshold in any of them.
    """
    return candidate_threshold(stddev, 0.5 * rate / MAX_ITEMS)


def largest_slack(algorithm: Algorithm, stddev: float, rate: float) -> float:
    """Return what rounding can add with any threshold on candidates, which follows from the shorter n-grams.

    subtle: a Funnel with a lower threshold may have higher targets. They are convex in it, so largest at an end.
    """
    ends = [highest_threshold(stddev, rate)]
    if isinstance(algorithm, Funnel):
        ends.append(stddev * walk_threshold(1.0, rate, algorithm))
    return max(plans.find_slack(algorithm, stddev, end) for end in ends)
