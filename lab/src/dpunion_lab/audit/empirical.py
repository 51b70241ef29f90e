"""Lower bounds on epsilon and delta, from running neighbouring databases many times.

For an event O with probabilities p and q in the two worlds, (epsilon, delta)-privacy says p <= e^epsilon q + delta.
One half of the trials chooses the event and the other half measures it, so the choice costs no confidence.
Clopper-Pearson bounds on p and q then give bounds that hold with the stated confidence for the whole audit (Bonferroni
over all pairs, both directions, both bounds).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpunion.algorithms import ALGORITHMS, Algorithm, Funnel, OptimalSingleItem
from dpunion.budget import Budget
from dpunion.checks import check_real, check_whole
from dpunion.contributions import Bools, Int64s
from dpunion.plans import Plan
from dpunion_lab.audit.examples import table
from dpunion_lab.audit.runs import NeighbourPair, System, neighbour_pairs, outcomes

# The probability that an audit of a private release has any wrong bound.
ERROR = 1e-6


@dataclass(frozen=True, slots=True)
class PairResult:
    """The bounds from one pair of databases, in its worse direction."""

    pair: NeighbourPair
    epsilon_bound: float
    delta_bound: float
    detectable_epsilon: float
    detectable_delta: float


@dataclass(frozen=True, slots=True)
class AlgorithmResult:
    """The bounds from all pairs of one algorithm, or of a part of it, and its claim."""

    label: str
    budget: Budget
    pairs: tuple[PairResult, ...]

    @property
    def worst_epsilon(self) -> PairResult:
        return max(self.pairs, key=lambda result: result.epsilon_bound)

    @property
    def worst_delta(self) -> PairResult:
        return max(self.pairs, key=lambda result: result.delta_bound)

    @property
    def violated(self) -> bool:
        """Say whether a bound exceeds the claim; a private release is accused with probability ERROR at most."""
        budget = self.budget
        return self.worst_epsilon.epsilon_bound > budget.epsilon or self.worst_delta.delta_bound > budget.delta


def largest_ratio_event(in_p: Int64s, in_q: Int64s, delta: float, tail: float) -> Bools:
    """Choose the event with the best bound on epsilon: the outcomes with the largest likelihood ratios.

    in_p, in_q: int64[outcomes], how often each outcome occurred in the half that chooses.
    """
    # Add half a count on each side: an outcome seen once in one world only is no proof.
    order = np.argsort(-(in_p + 0.5) / (in_q + 0.5), kind="stable")
    hits, misses = np.cumsum(in_p[order]), np.cumsum(in_q[order])
    total_p, total_q = int(in_p.sum()), int(in_q.sum())
    bounds = [epsilon_bound(int(k), total_p, int(m), total_q, delta, tail) for k, m in zip(hits, misses, strict=True)]
    event = np.zeros(len(in_p), np.bool_)
    event[order[: int(np.argmax(bounds)) + 1]] = True
    return event


def lower_bound(hits: int, trials: int, tail: float) -> float:
    """Return Clopper and Pearson's lower bound (1934): below it, this many hits have a chance below `tail`."""
    from scipy.special import betaincinv

    return float(betaincinv(hits, trials - hits + 1, tail)) if hits else 0.0


def upper_bound(hits: int, trials: int, tail: float) -> float:
    """Return Clopper and Pearson's upper bound (1934): above it, this few hits have a chance below `tail`."""
    from scipy.special import betainccinv

    return float(betainccinv(hits + 1, trials - hits, tail)) if hits < trials else 1.0


def epsilon_bound(hits: int, trials_p: int, misses: int, trials_q: int, delta: float, tail: float) -> float:
    """Return ln((p_low - delta)/q_high), at least 0."""
    surely = lower_bound(hits, trials_p, tail) - delta
    return max(0.0, math.log(surely / upper_bound(misses, trials_q, tail))) if surely > 0.0 else 0.0


def delta_bound(hits: int, trials_p: int, misses: int, trials_q: int, epsilon: float, tail: float) -> float:
    """Return p_low - e^epsilon q_high, at least 0."""
    return max(0.0, lower_bound(hits, trials_p, tail) - math.exp(epsilon) * upper_bound(misses, trials_q, tail))


def compare_outcomes(codes_p: Int64s, codes_q: Int64s, budget: Budget, tail: float) -> tuple[float, float]:
    """Return lower bounds on epsilon and delta for telling P from Q. codes: one outcome per trial."""
    kinds = np.unique(np.concatenate([codes_p, codes_q]))
    half_p, half_q = len(codes_p) // 2, len(codes_q) // 2

    def counts(codes: Int64s) -> Int64s:
        return np.bincount(np.searchsorted(kinds, codes), minlength=len(kinds)).astype(np.int64)

    chosen_p, chosen_q = counts(codes_p[:half_p]), counts(codes_q[:half_q])
    measured_p, measured_q = counts(codes_p[half_p:]), counts(codes_q[half_q:])
    total_p, total_q = int(measured_p.sum()), int(measured_q.sum())
    ratio = largest_ratio_event(chosen_p, chosen_q, budget.delta, tail)
    likelier = (chosen_p + 0.5) / half_p > math.exp(budget.epsilon) * (chosen_q + 0.5) / half_q
    return (
        epsilon_bound(int(measured_p[ratio].sum()), total_p, int(measured_q[ratio].sum()), total_q, budget.delta, tail),
        delta_bound(
            int(measured_p[likelier].sum()), total_p, int(measured_q[likelier].sum()), total_q, budget.epsilon, tail
        ),
    )


def detectable(budget: Budget, trials: int, tail: float) -> tuple[float, float]:
    """Return the best bounds that an audit with this many measured trials could give.

    First the bound on epsilon for a release that uses its whole epsilon (randomised response with leak delta), then the
    smallest delta that the audit would tell from the claim, for an outcome that is impossible in one world.
    """
    odds = math.exp(budget.epsilon)
    p = odds * (1.0 - budget.delta) / (1.0 + odds) + budget.delta
    q = (1.0 - budget.delta) / (1.0 + odds)
    epsilon = epsilon_bound(round(p * trials), trials, round(q * trials), trials, budget.delta, tail)
    impossible = odds * upper_bound(0, trials, tail)
    low, high = 0, trials
    while low < high:
        middle = (low + high) // 2
        if lower_bound(middle, trials, tail) - impossible > budget.delta:
            high = middle
        else:
            low = middle + 1
    return epsilon, low / trials


def audit_pair(system: System, plan: Plan, pair: NeighbourPair, trials: int, tail: float) -> PairResult:
    """Run both worlds of a pair and bound both directions."""
    with_extra = outcomes(system, plan, (*pair.rest, pair.extra), trials)
    without = outcomes(system, plan, pair.rest, trials)
    return bound_pair(pair, with_extra, without, plan.budget, tail)


def bound_pair(pair: NeighbourPair, with_extra: Int64s, without: Int64s, budget: Budget, tail: float) -> PairResult:
    """Bound both directions, from one outcome code per trial of each world."""
    trials = len(with_extra)
    forth = compare_outcomes(with_extra, without, budget, tail)
    back = compare_outcomes(without, with_extra, budget, tail)
    epsilon, delta = detectable(budget, trials - trials // 2, tail)
    return PairResult(pair, max(forth[0], back[0]), max(forth[1], back[1]), epsilon, delta)


def audited_algorithms(limit: int) -> list[Algorithm]:
    """Return every algorithm with a small limit: the fewer items share the budget, the sharper the audit."""
    return [
        *[kind() if kind is OptimalSingleItem else kind(max_items_per_user=limit) for kind in ALGORITHMS.values()],
        Funnel(max_items_per_user=limit, rounds=2),
    ]


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The empirical audit of several algorithms."""

    results: tuple[AlgorithmResult, ...]
    trials: int
    error: float

    @property
    def violations(self) -> list[AlgorithmResult]:
        """Return the algorithms whose claim was refuted."""
        return [result for result in self.results if result.violated]

    @property
    def pairs(self) -> int:
        """Return how many pairs of neighbouring databases were run."""
        return sum(len(result.pairs) for result in self.results)

    def text(self) -> str:
        """Return a table of the bounds, the claims and what the audit could have detected."""
        rows = []
        for result in self.results:
            budget, worst_e, worst_d = result.budget, result.worst_epsilon, result.worst_delta
            rows.append(
                [
                    result.label,
                    f"{worst_e.epsilon_bound:.3f}",
                    f"{budget.epsilon:g}",
                    f"{worst_d.delta_bound:.5f}",
                    f"{budget.delta:g}",
                    f"{worst_e.detectable_epsilon:.3f}",
                    f"{worst_d.detectable_delta:.5f}",
                    "VIOLATED" if result.violated else "holds",
                    worst_d.pair.name if worst_d.delta_bound > 0.0 else worst_e.pair.name,
                ]
            )
        head = [
            "algorithm",
            "epsilon >=",
            "claim",
            "delta >=",
            "claim",
            "could show epsilon",
            "could show delta",
            "verdict",
            "worst pair",
        ]
        return (
            table(head, rows)
            + f"\n\nLower bounds from {self.trials} trials of each world of {self.pairs} pairs of neighbouring "
            f"databases; all hold together with probability {1.0 - self.error:.9g}.\n"
            "'could show': the bound on epsilon that a release using its whole budget would get from this many trials, "
            "and the delta from which on a release would be found out."
        )


def audit_release(
    algorithms: Sequence[Algorithm] | None = None,
    *,
    epsilon: float = 1.0,
    delta: float = 0.01,
    max_items_per_user: int = 3,
    trials: int = 100_000,
    error: float = ERROR,
    system: System | None = None,
) -> AuditReport:
    """Audit algorithms with the real code, fresh keys and worst-case neighbours.

    algorithms: all by default. epsilon, delta: the claim to test. An excess is visible only at a large delta, and the
    code path is the same at any delta. trials: runs of each database of each pair. error: the probability that the
    report accuses a private release.
    """
    check_whole("audit_release", "trials", trials, 100, 10**9)
    check_real("audit_release", "error", error, 1e-300, 0.5)
    budget = Budget(epsilon, delta)
    tested = system or System()
    chosen = audited_algorithms(max_items_per_user) if algorithms is None else list(algorithms)
    with tested.in_place():
        plans = [tested.plan(algorithm, budget) for algorithm in chosen]
        pairs = [list(neighbour_pairs(plan)) for plan in plans]
        # Two directions, with two bounds each, on two probabilities each.
        tail = error / (8.0 * sum(map(len, pairs)))
        results = [
            AlgorithmResult(
                algorithm_label(plan), budget, tuple(audit_pair(tested, plan, pair, trials, tail) for pair in some)
            )
            for plan, some in zip(plans, pairs, strict=True)
        ]
    return AuditReport(tuple(results), trials, error)


def algorithm_label(plan: Plan) -> str:
    """Return the algorithm's name and the parameters that differ from their defaults."""
    default = type(plan.algorithm)()
    changed = [
        f"{field.name}={getattr(plan.algorithm, field.name)}"
        for field in dataclasses.fields(plan.algorithm)
        if field.name != "max_items_per_user" and getattr(plan.algorithm, field.name) != getattr(default, field.name)
    ]
    return plan.algorithm.name + (f" ({', '.join(changed)})" if changed else "")
