"""Plan: every number of a release, fixed before any data is read, and public."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NoReturn

from dpunion.algorithms import (
    ALGORITHMS,
    Algorithm,
    Calibration,
    CountGaussian,
    CountLaplace,
    DpSips,
    Funnel,
    Norm,
    OptimalSingleItem,
    PolicyGaussian,
    PolicyLaplace,
    Sensitivity,
    WeightedGaussian,
    WeightedLaplace,
    algorithm_named,
)
from dpunion.budget import Budget
from dpunion.calibration import bounds, gaussian, rounding
from dpunion.calibration.funnel import calibrate_with_hints
from dpunion.calibration.gaussian import Calibrated
from dpunion.checks import check_real, refuse_policy
from dpunion.errors import BadParameter, ForeignErrors
from dpunion.plans.counts import CountsPlan
from dpunion.plans.looks import LookPlan

LARGEST = 1e12
"""No number of a plan is larger."""


class Noise(enum.Enum):
    """The distribution of the noise in a decision."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"
    TRUNCATED_GEOMETRIC = "truncated-geometric"


@dataclass(frozen=True, slots=True)
class Round:
    """One of several rounds.

    budget: how far one user may move this round's weights (l2 norm). stddev: of the noise added to them. threshold:
    what the score must exceed afterwards, to stay (Funnel, before the last round) or to be released.
    """

    budget: float
    stddev: float
    threshold: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What a release will do, in public numbers.

    scale: the standard deviation of Gaussian or the scale of Laplace noise. threshold: what a noisy weight must
    exceed. cutoff: what a policy fills items up to (None: no policy). delta_used: what the certificate says the
    delta is, at most the budget's. rounding_slack: how much noise and threshold were raised for float64 rounding.
    rounds: the rounds of an algorithm that has several. counts: of a release with counts, how these are made. look:
    where the number of items per user was chosen by a look, that look.
    """

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
    look: LookPlan | None = None

    @property
    def beside(self) -> tuple[float, ...]:
        """Return the noise of every Gaussian release, of sensitivity 1, that is made beside the list."""
        counts = () if self.counts is None else self.counts.stddevs
        return counts if self.look is None else (*counts, self.look.stddev)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON and for people."""
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
        if self.counts is not None:
            values["counts"] = self.counts.to_dict()
        if self.look is not None:
            values["look"] = self.look.to_dict()
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Plan:
        """Read back what `to_dict` wrote: a record of what was done. A new release always plans anew."""
        strange = BadParameter("This is not a plan of dpunion.", "Pass what Plan.to_dict returned.")
        with ForeignErrors(lambda _: strange, KeyError, TypeError, ValueError, ours_too=True):
            noise = Noise(values["noise"])
            norm = Norm(values["sensitivity"]["norm"])
            return cls(
                algorithm=algorithm_named(str(values["algorithm"]), **values["parameters"]),
                budget=Budget(values["epsilon"], values["delta"]),
                noise=noise,
                scale=real_in(values, "stddev" if noise is Noise.GAUSSIAN else "scale", 0.0),
                threshold=real_in(values, "threshold"),
                cutoff=real_in(values, "cutoff") if "cutoff" in values else None,
                sensitivity=Sensitivity(norm, real_in(values["sensitivity"], "bound", 0.0)),
                delta_used=real_in(values, "delta_used", 0.0, 1.0),
                rounding_slack=real_in(values, "rounding_slack", 0.0),
                rounds=tuple(
                    Round(real_in(one, "budget"), real_in(one, "stddev"), real_in(one, "threshold"))
                    for one in values.get("rounds", [])
                ),
                counts=CountsPlan.from_dict(values["counts"]) if "counts" in values else None,
                look=LookPlan.from_dict(values["look"]) if "look" in values else None,
            )


def real_in(values: Any, name: str, low: float = -LARGEST, high: float = LARGEST) -> float:
    """Return a number that was read from a file; refuse what no plan holds."""
    return check_real("a plan", name, values[name], low, high)


def as_algorithm(algorithm: object, /, **settings: Any) -> Algorithm:
    """Accept an algorithm, or its name with settings.

    Policies that are not private are refused with the reason, and so is anything else.
    """
    if isinstance(algorithm, str):
        return algorithm_named(algorithm, **settings)
    if settings:
        refuse_settings(algorithm, settings)
    if isinstance(algorithm, tuple(ALGORITHMS.values())):
        return algorithm  # type: ignore[return-value]
    refuse_policy(str(getattr(algorithm, "name", "")))
    raise BadParameter(
        f"The 'algorithm' parameter must be an algorithm of dpunion. Got a {type(algorithm).__name__} instead.",
        f"Pass one of {', '.join(kind.__name__ for kind in ALGORITHMS.values())}, or its name.",
    )


def refuse_settings(algorithm: object, settings: Collection[str]) -> NoReturn:
    """Refuse settings beside an algorithm that has them inside."""
    kind = type(algorithm).__name__
    raise BadParameter(
        f"{', '.join(map(repr, settings))} cannot be given together with {kind}(...), which has its own.",
        f"Write it inside {kind}(...), or give the name of an algorithm instead.",
    )


def plan_release(algorithm: object, budget: Budget) -> Plan:
    """Fix every number of a release with `algorithm` under `budget`."""
    chosen = as_algorithm(algorithm)
    # The calibration aims at slightly less than was asked for: see rounding.calibration_target.
    epsilon, delta = rounding.calibration_target(budget.epsilon, budget.delta)
    return PLANNERS[type(chosen)](chosen, budget, epsilon, delta)


def _count_laplace(algorithm: CountLaplace, budget: Budget, epsilon: float, delta: float) -> Plan:
    found = bounds.published_count_laplace(epsilon, delta, algorithm.max_items_per_user)
    return shares_plan(algorithm, budget, Noise.LAPLACE, found)


def _weighted_laplace(algorithm: WeightedLaplace, budget: Budget, epsilon: float, delta: float) -> Plan:
    found = bounds.published_spread(epsilon, delta, algorithm.max_items_per_user)
    return shares_plan(algorithm, budget, Noise.LAPLACE, found)


def _count_gaussian(algorithm: CountGaussian, budget: Budget, epsilon: float, delta: float) -> Plan:
    published = algorithm.calibration is Calibration.PUBLISHED
    calibrate = gaussian.published_count_gaussian if published else gaussian.exact_count
    return shares_plan(algorithm, budget, Noise.GAUSSIAN, calibrate(epsilon, delta, algorithm.max_items_per_user))


def _weighted_gaussian(algorithm: WeightedGaussian, budget: Budget, epsilon: float, delta: float) -> Plan:
    return shares_plan(algorithm, budget, Noise.GAUSSIAN, unit_norm(algorithm, epsilon, delta))


def _policy_laplace(algorithm: PolicyLaplace, budget: Budget, epsilon: float, delta: float) -> Plan:
    found = bounds.published_spread(epsilon, delta, algorithm.max_items_per_user)
    return _descent_plan(algorithm, budget, Noise.LAPLACE, found)


def _policy_gaussian(algorithm: PolicyGaussian, budget: Budget, epsilon: float, delta: float) -> Plan:
    return _descent_plan(algorithm, budget, Noise.GAUSSIAN, unit_norm(algorithm, epsilon, delta))


def unit_norm(algorithm: WeightedGaussian | PolicyGaussian, epsilon: float, delta: float) -> Calibrated:
    """Return noise and threshold for weights that one user moves by at most 1 in l2 norm."""
    published = algorithm.calibration is Calibration.PUBLISHED
    calibrate = gaussian.published_unit_norm if published else gaussian.exact_unit_norm
    return calibrate(epsilon, delta, algorithm.max_items_per_user)


def _funnel_plan(algorithm: Funnel, budget: Budget, epsilon: float, delta: float) -> Plan:
    """Plan Funnel: stddev and threshold by Theorems A and B, then both raised for rounding."""
    found = calibrate_with_hints(epsilon, rounding.funnel_target(budget.epsilon, delta), algorithm)
    slack = rounding.funnel_slack(found.stddev, found.threshold, algorithm)
    stddev, threshold = found.stddev * (1.0 + slack), found.threshold * (1.0 + slack)
    return Plan(
        algorithm=algorithm,
        budget=budget,
        noise=Noise.GAUSSIAN,
        scale=stddev,
        threshold=threshold,
        cutoff=algorithm.cutoffs(stddev, threshold)[0],
        sensitivity=algorithm.sensitivity,
        delta_used=found.delta_used,
        rounding_slack=slack,
        rounds=rounds_of_funnel(algorithm, stddev, threshold),
    )


def rounds_of_funnel(algorithm: Funnel, stddev: float, threshold: float) -> tuple[Round, ...]:
    """Return the rounds of Funnel with this noise and threshold: what a score must exceed to stay, or to come out."""
    lines = (*algorithm.keep_lines(stddev, threshold), threshold)
    return tuple(Round(share, stddev, line) for share, line in zip(algorithm.shares, lines, strict=True))


def sips_plan(algorithm: DpSips, budget: Budget, epsilon: float, delta: float, share: float = 1.0) -> Plan:
    """Plan DP-SIPS: half of delta for the noise of all rounds together, half shared out for novel items.

    share: its part of the squared budget; the rest is for Gaussian releases composed with it.
    """
    half = delta / 2.0
    calibrated = gaussian.gaussian_stddev(epsilon, half, 1.0) / math.sqrt(share)
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
    )


def _optimal_plan(algorithm: OptimalSingleItem, budget: Budget, epsilon: float, _delta: float) -> Plan:
    """Plan the optimal single-item release; the threshold is the count released with probability one half."""
    chances = bounds.released_with(bounds.release_odds_for(budget))
    return Plan(
        algorithm=algorithm,
        budget=budget,
        noise=Noise.TRUNCATED_GEOMETRIC,
        scale=1.0 / epsilon,
        threshold=float(next(count for count, chance in enumerate(chances) if chance >= 0.5)),
        cutoff=None,
        sensitivity=algorithm.sensitivity,
        delta_used=budget.delta,
        rounding_slack=0.0,
    )


def shares_plan(algorithm: Algorithm, budget: Budget, noise: Noise, calibrated: Calibrated) -> Plan:
    """Plan for weights that are exact integers: only the decision itself rounds."""
    bound, limit = algorithm.sensitivity.bound, algorithm.max_items_per_user
    if noise is Noise.GAUSSIAN:
        slack = rounding.l2_coins_slack(calibrated.scale, bound)
    else:
        slack = rounding.l1_coins_slack(calibrated.scale, bound, limit)
    return _scaled_plan(algorithm, budget, noise, calibrated, None, slack)


def _descent_plan(
    algorithm: PolicyLaplace | PolicyGaussian, budget: Budget, noise: Noise, calibrated: Calibrated
) -> Plan:
    """Plan for a policy toward a cutoff: its float64 updates round, so noise and threshold grow by the slack."""
    slack_of = rounding.l2_descent_slack if noise is Noise.GAUSSIAN else rounding.l1_descent_slack
    # The slack is taken for a cutoff 5 % higher than planned, which is more than the slack can add to it.
    visits = algorithm.visits(calibrated.scale, calibrated.threshold)
    slack = slack_of(1.05 * visits[-1][0], algorithm.max_items_per_user, len(visits), calibrated.scale)
    return _scaled_plan(algorithm, budget, noise, calibrated, algorithm.cutoff_margin, slack)


def _scaled_plan(
    algorithm: Algorithm, budget: Budget, noise: Noise, calibrated: Calibrated, margin: float | None, slack: float
) -> Plan:
    scale = calibrated.scale * (1.0 + slack)
    threshold = max(calibrated.threshold * (1.0 + slack), calibrated.threshold)
    cutoff = None if margin is None else threshold + margin * scale
    if cutoff is not None and cutoff <= 0.0:
        raise BadParameter(
            "This budget is too large: the policy's cutoff would not be positive.",
            "Choose a smaller 'delta' (well below one over the number of people) or a larger 'cutoff_margin'.",
        )
    return Plan(
        algorithm=algorithm,
        budget=budget,
        noise=noise,
        scale=scale,
        threshold=threshold,
        cutoff=cutoff,
        sensitivity=dataclasses.replace(algorithm.sensitivity),
        delta_used=calibrated.delta_used,
        rounding_slack=slack,
    )


PLANNERS: dict[type[Algorithm], Callable[[Any, Budget, float, float], Plan]] = {
    CountLaplace: _count_laplace,
    CountGaussian: _count_gaussian,
    WeightedLaplace: _weighted_laplace,
    WeightedGaussian: _weighted_gaussian,
    PolicyLaplace: _policy_laplace,
    PolicyGaussian: _policy_gaussian,
    Funnel: _funnel_plan,
    DpSips: sips_plan,
    OptimalSingleItem: _optimal_plan,
}
"""How each algorithm is planned: a function of it, the budget, and the (epsilon, delta) to calibrate to."""
