"""What a release of n-grams will do: settings, and every number that is fixed before any data is read."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from dpunion.algorithms import (
    MAX_ITEMS,
    Funnel,
    PolicyGaussian,
    WeightedGaussian,
    algorithm_named,
)
from dpunion.budget import Budget
from dpunion.calibration import rounding
from dpunion.calibration.composition import candidate_threshold, geometric_shares
from dpunion.checks import check_real, check_whole
from dpunion.errors import BadParameter
from dpunion.mechanisms import Mechanism, mechanism_on_candidates
from dpunion.plans import Plan, as_algorithm, real_in
from dpunion.plans.composing import STEPS, Gaussians, compose, plan_first, plan_steps, slack_of, steps_target
from dpunion.plans.counts import Counts, CountsPlan

LONGEST = 10
MOST_NGRAMS = 2**63 - 1

# On public candidates nothing is paid for novel items, so a sharper line than Funnel's own is best (tuned on public
# film reviews).
LATER = Funnel(max_items_per_user=500, keep_fraction=1.2, keep_margin=1.75)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ngrams:
    """How n-grams of length 1 to `longest` are released; public parameters only.

    first: the algorithm for single tokens. later: the algorithm for lengths 2 and more, where it runs on the public
    candidates, or one for each of these lengths. spurious_rate: at each length, n-grams that nobody holds come out by
    chance, about this many for each released n-gram one shorter; less costs a higher threshold. share_ratio: each
    length's share of the budget over that of the length before; 1 shares evenly, more favours long n-grams.
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
        """Name the algorithm in one line: n-grams, and what selects each length."""
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
        """Return the settings as plain values."""
        return {
            "longest": self.longest,
            "first": _described(self.first),
            "later": [_described(one) for one in self.later],
            "spurious_rate": self.spurious_rate,
            "share_ratio": self.share_ratio,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Ngrams:
        """Read back what `to_dict` wrote."""
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
    """Refuse what does not compose over lengths: Laplace noise, and algorithms without a proof here."""
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

    def mechanism(self, threshold: float) -> Mechanism:
        """Return what is done on the public candidates of this length (2 and more), given their threshold."""
        return mechanism_on_candidates(self.algorithm, self.stddev, threshold, self.length)


@dataclass(frozen=True, slots=True)
class LengthResult:
    """What is known about one length from the released n-grams alone, hence public.

    candidates: |V_k|, the n-grams that could come out (None at length 1, where anything could). threshold: what pure
    noise had to exceed. spurious: how many n-grams that nobody kept are to be expected, at most.
    """

    length: int
    released: int
    candidates: int | None
    threshold: float | None
    spurious: float

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> LengthResult:
        """Read back a result that was written as plain values."""
        for name in ("released", "candidates"):
            if name == "released" or values[name] is not None:
                check_whole("a result", name, values[name], 0, MOST_NGRAMS)
        threshold = None if values["threshold"] is None else real_in(values, "threshold")
        length, spurious = read_length(values), real_in(values, "spurious", 0.0)
        return cls(length, values["released"], values["candidates"], threshold, spurious)

    @classmethod
    def nothing(cls, length: int) -> LengthResult:
        """Return the result where there was no candidate."""
        return cls(length, 0, 0, None, 0.0)


@dataclass(frozen=True, slots=True)
class NgramPlan:
    """What a release of n-grams will do, in public numbers; first is the plan of length 1, with its threshold."""

    settings: Ngrams
    budget: Budget
    first: Plan
    lengths: tuple[LengthPlan, ...]
    delta_used: float
    counts: CountsPlan | None = None

    @property
    def algorithm(self) -> Ngrams:
        """The algorithm: its settings."""
        return self.settings

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON and for people."""
        counts = {} if self.counts is None else {"counts": self.counts.to_dict()}
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
                    "threshold": self.first.threshold if one.length == 1 else self.threshold_rule,
                    "rounding_slack": one.rounding_slack,
                }
                for one in self.lengths
            ],
            "delta_used": self.delta_used,
        } | counts

    @property
    def threshold_rule(self) -> str:
        """Say how the thresholds of lengths 2 and more follow from the n-grams released before."""
        return f"pure noise passes with probability {self.settings.spurious_rate:g} * min(1, shorter / candidates)"

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> NgramPlan:
        """Read back what `to_dict` wrote: a record of what was done. A new release always plans anew."""
        try:
            settings = Ngrams.from_dict(values["settings"])
            lengths = tuple(
                LengthPlan(
                    read_length(one, settings.longest),
                    real_in(one, "share", 0.0, 1.0),
                    settings.algorithm_at(one["length"]),
                    real_in(one, "stddev", 0.0),
                    real_in(one, "rounding_slack", 0.0),
                )
                for one in values["lengths"]
            )
            budget = Budget(values["epsilon"], values["delta"])
            counts = CountsPlan.from_dict(values["counts"]) if "counts" in values else None
            first, used = Plan.from_dict(values["first"]), real_in(values, "delta_used", 0.0, 1.0)
            return cls(settings, budget, first, lengths, used, counts)
        except (KeyError, TypeError, ValueError):
            problem = BadParameter("This is not a plan of dpunion.", "Pass what NgramPlan.to_dict returned.")
        raise problem


def read_length(values: Any, longest: int = LONGEST) -> int:
    """Return a length that was read from a file."""
    return check_whole("n-grams", "length", values["length"], 1, longest)


def plan_ngrams(settings: Ngrams, budget: Budget, counts: Counts | None = None) -> NgramPlan:
    """Fix every number of a release of n-grams, with counts when they are asked for."""
    # Twice the usual slack for each length: once for its coins, once for the chance of its spurious n-grams.
    epsilon, delta = budget.epsilon, budget.delta
    for _ in range(2 * settings.longest):
        epsilon, delta = rounding.calibration_target(epsilon, delta)
    for length in range(1, settings.longest + 1):
        if isinstance(settings.algorithm_at(length), Funnel):
            delta = rounding.funnel_target(budget.epsilon, delta)
    shares = settings.shares
    if counts is not None:
        epsilon, delta = steps_target(budget, epsilon, delta, STEPS)
        shares = (*((1.0 - counts.share) * one for one in shares), *counts.shares)
    composed = compose(settings.first, epsilon, delta, shares)
    opening = plan_first(settings.first, budget, composed)
    lengths = [LengthPlan(1, shares[0], settings.first, opening.scale, opening.rounding_slack)]
    for length in range(2, settings.longest + 1):
        algorithm, stddev = settings.algorithm_at(length), composed.stddevs[length - 1]
        slack = slack_of(algorithm, stddev, highest_threshold(stddev, settings.spurious_rate))
        lengths.append(LengthPlan(length, shares[length - 1], algorithm, stddev * (1.0 + slack), slack))
    steps = None if counts is None else plan_steps(counts, composed)
    return NgramPlan(settings, budget, opening, tuple(lengths), composed.delta_used, steps)


def highest_threshold(stddev: float, rate: float) -> float:
    """Return what no threshold on candidates can exceed: |S|/|V| is at least 1/|S| >= 1/MAX_ITEMS.

    Half of the rate, as a walk of several rounds may pass its threshold in any of them.
    """
    return candidate_threshold(stddev, 0.5 * rate / MAX_ITEMS)
