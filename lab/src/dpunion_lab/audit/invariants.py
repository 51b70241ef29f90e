"""Properties of every release, in addition to the odds of its outcomes. Each check returns evidence of a flaw, or None.

The empirical audit relies on two of them: draws of different items are independent, and keys are fresh.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from unittest import mock

import numpy as np
import pyarrow as pa

from dpunion.algorithms import Algorithm, DpSips, Funnel, Sensitivity
from dpunion.budget import Budget
from dpunion.calibration.funnel import certificate
from dpunion.errors import BudgetExhausted, InternalError, SensitivityMismatch
from dpunion.ledger import Ledger
from dpunion.mechanisms import FunnelMechanism, mechanism_for
from dpunion.pipeline import release
from dpunion.plans import Plan, plan_release
from dpunion.plans.candidates import WITHOUT_LISTS
from dpunion.randomness import RunKey
from dpunion.requests import Charge
from dpunion_lab.audit.counting import counts_odds_hold
from dpunion_lab.audit.empirical import ERROR, AlgorithmResult, audit_pair
from dpunion_lab.audit.exact import (
    counts_mu,
    divergence,
    gaussian_parts_delta,
    largest_divergence,
    lone_user_delta,
    with_list,
)
from dpunion_lab.audit.noise import counts_take_noise, look_is_paid_for, look_takes_noise
from dpunion_lab.audit.reach import STEPS, search_reach
from dpunion_lab.audit.runs import Batch, System, chosen_names, copies, neighbour_pairs, singles

BORDERLINE_ITEMS = 400
KEYS = 20
CANARIES = 600
# How many examples of each step of counting are tried.
REACHES = 400
# Known items of a user for each item that bounding keeps: it hardly ever keeps a new one among them by chance.
KNOWN_PER_KEPT = 100
# Candidates that one person has, of which a release keeps three; candidates that nobody has.
HELD, FREE = 40, 10
ERROR_OF_LISTS = 1e-3
SUFFIXES = (".parquet", ".arrow", ".csv", ".json", ".jsonl", ".txt")

Check = Callable[[System, Algorithm, Budget, int], str | None]


def borderline(plan: Plan) -> Batch:
    """Return many items, each with as many users as release it about half of the time."""
    return copies(singles(1, max(1, round(plan.threshold))), BORDERLINE_ITEMS)


def select_borderline(system: System, plan: Plan, key: RunKey) -> frozenset[int]:
    """Select among the borderline items; return the numbers of those released."""
    contributions = system.encode(plan, [borderline(plan)], key)
    return frozenset(chosen_names(contributions, system.select(plan, contributions, key))[0].tolist())


def odds_hold(system: System, algorithm: Algorithm, budget: Budget, trials: int) -> str | None:
    """No event of any pair of neighbours is likelier than the budget allows (empirical.py)."""
    plan = system.plan(algorithm, budget)
    pairs = sorted(neighbour_pairs(plan), key=lambda pair: (len(pair.rest), pair.rows))
    tail = ERROR / (8.0 * len(pairs))
    # Stop at the first pair that refutes the claim; the bounds of all pairs hold together anyway.
    for pair in pairs:
        found = audit_pair(system, plan, pair, trials, tail)
        if AlgorithmResult(pair.name, plan.budget, (found,)).violated:
            return f"{pair.name}: epsilon >= {found.epsilon_bound:.2f}, delta >= {found.delta_bound:.4f}"
    return None


def numbers_are_certified(system: System, algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """The plan's numbers, weighed and decided by the engine, give an exact delta within the budget.

    The check covers tiny databases, lone users and the noise alone, with counts if the plan has them. For a Funnel
    with more than two rounds it computes only the certificate of Theorem A at the plan's numbers
    (docs/guarantees-funnel.md).
    """
    plan = system.plan(algorithm, budget)
    exact = 0.0
    if isinstance(algorithm, Funnel):
        others = counts_mu(plan) ** 2
        exact = certificate(
            budget.epsilon, budget.delta, plan.scale, plan.threshold, algorithm, extra_mu_squared=others
        )[0]
    elif not isinstance(algorithm, DpSips):
        exact = max(lone_user_delta(plan, t) for t in range(1, algorithm.max_items_per_user + 1))
    if not isinstance(algorithm, Funnel) or algorithm.rounds <= 2:
        exact = max(exact, largest_divergence(plan, 2)[0])
    if plan.counts is not None:
        exact = max(exact, gaussian_parts_delta(plan))
    return f"the exact delta is {exact:.6f}" if exact > budget.delta else None


def sensitivity_is_compared(system: System, algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """A release refuses weights when the noise is for another sensitivity."""
    plan = system.plan(algorithm, budget)
    other = Sensitivity(plan.sensitivity.norm, 0.5 * plan.sensitivity.bound)
    try:
        select_borderline(system, dataclasses.replace(plan, sensitivity=other), system.new_key())
    except SensitivityMismatch:
        return None
    return "noise for half of the weights' sensitivity is accepted"


def keys_are_fresh(system: System, algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """Two releases differ in at least one of hundreds of fair coins."""
    plan = system.plan(algorithm, budget)
    if select_borderline(system, plan, system.new_key()) == select_borderline(system, plan, system.new_key()):
        return f"two releases with new keys agree on all of {BORDERLINE_ITEMS} borderline items"
    return None


def decisions_are_keyed(system: System, algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """The same key makes the same decisions, so a task that runs twice does not draw twice."""
    plan = system.plan(algorithm, budget)
    key = system.new_key()
    if select_borderline(system, plan, key) != select_borderline(system, plan, key):
        return "the same key decides differently the second time"
    return None


def items_are_independent(system: System, algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """The number of released items among equal ones varies from key to key as for independent coins.

    The dispersion of binomial counts over k keys is chi-squared with k-1 degrees of freedom; it exceeds ten times its
    mean with a probability below 1e-29.
    """
    plan = system.plan(algorithm, budget)
    counts = np.array([len(select_borderline(system, plan, system.new_key())) for _ in range(KEYS)])
    chance = counts.mean() / BORDERLINE_ITEMS
    if not 0.0 < chance < 1.0:
        return "equal items are always released together"
    dispersion = ((counts - counts.mean()) ** 2).sum() / (BORDERLINE_ITEMS * chance * (1.0 - chance))
    if dispersion > 10.0 * (KEYS - 1):
        return f"equal items are released together: {dispersion / (KEYS - 1):.0f} times the spread of independent coins"
    return None


def canary_rows() -> Batch:
    """Return items of many users, and canaries: items of one user each, which no release may show."""
    pairs = [(f"user{number}", f"popular{number % 4}") for number in range(CANARIES)]
    pairs += [(user, f"canary-of-{user}") for user, _ in pairs]
    # Not in alphabetical order.
    pairs.sort(key=lambda pair: (pair[1][::-1], pair[0]), reverse=True)
    return pa.array([user for user, _ in pairs]), pa.array([item for _, item in pairs])


def order_is_canonical(system: System, algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """The same rows in another order give the same file."""
    careful = Budget(budget.epsilon, 1e-9)
    users, items = canary_rows()
    files = [
        written_bytes(system, algorithm, careful, rows, 1, ".csv")
        for rows in ((users, items), (users[::-1], items[::-1]))
    ]
    return None if files[0] == files[1] else "the order of rows shows in the file"


def files_hold_the_release_only(system: System, algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """No file contains a canary; the probability that a correct release has one is below 1e-6."""
    careful = Budget(budget.epsilon, 1e-9)
    for suffix in SUFFIXES:
        content = written_bytes(system, algorithm, careful, canary_rows(), None, suffix)
        if b"canary" in content:
            return f"a {suffix} file contains items that were not released"
        if b"popular" not in content:
            return f"a {suffix} file is empty, so nothing was checked"
    return None


def written_bytes(
    system: System, algorithm: Algorithm, budget: Budget, rows: Batch, test_key: int | None, suffix: str
) -> bytes:
    """Make a release and return the bytes of its file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"release{suffix}"
        system.write(algorithm, budget, rows, test_key, path)
        return path.read_bytes()


class Killed(BaseException):
    """Simulates the death of the process: nothing runs after it, and nobody catches it."""


@dataclass(slots=True)
class WatchedRows:
    """Rows that record the spent budget of the dataset "audit" when the first row is read, then kill the process.

    spent: None if nothing was read.
    """

    ledger: Ledger
    spent: int | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[str, str]:
        """Record the spent budget, then die."""
        if self.spent is None:
            self.spent = max(self.ledger.overview().accounts[0].spent.values())
        raise Killed


def budget_is_charged_first(_system: System, algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """`dpunion.release` charges its whole cost before it reads, and the charge stays when the process dies.

    The dataset has the budget of one release, so a second one after the death may not read anything.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "ledger.db"
        ledger = Ledger.open(place, create=True)
        ledger.create_dataset("audit", budget.epsilon, budget.delta)
        first, second = WatchedRows(ledger), WatchedRows(ledger)
        for rows in (first, second):
            with contextlib.suppress(Killed, BudgetExhausted):
                release(
                    rows,
                    epsilon=budget.epsilon,
                    delta=budget.delta,
                    weak_budget=True,
                    algorithm=algorithm,
                    charge=Charge(place, "audit", again=True),
                )
        ledger.close()
    if first.spent is None:
        return "nothing was read, so nothing was checked"
    if first.spent == 0:
        return "data is read before it is paid for"
    return None if second.spent is None else "a release that died while reading left budget for another"


def known_items_are_set_aside_first(system: System, algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """Everybody's one new item counts in full among many known items, and no known item is released."""
    careful = Budget(budget.epsilon, 1e-9)
    known = [f"known{number}" for number in range(KNOWN_PER_KEPT * algorithm.max_items_per_user)]
    people = 10 * max(1, round(system.plan(algorithm, careful).threshold))
    source = {f"user{number}": [*known, "new"] for number in range(people)}
    made = release(source, epsilon=careful.epsilon, delta=careful.delta, algorithm=algorithm, known=known)
    if set(made.items) & set(known):
        return "known items are released"
    return None if made.items == ("new",) else "known items take the place of new ones"


def one_person_counts_once(_system: System, _algorithm: Algorithm, _budget: Budget, _trials: int) -> str | None:
    """Nobody moves the sums of a step of counting by more than 1, at any public numbers."""
    report = search_reach(seconds=1e6, tries=REACHES, seed=1)
    if not report.violations:
        return None
    worst = max((report.furthest[name] for name in report.violations), key=lambda reach: reach.squared)
    return f"one person moves the {STEPS[worst.step.number]} step by {worst.distance:.7f}"


def candidates_aim_no_higher(_system: System, _algorithm: Algorithm, _budget: Budget, _trials: int) -> str | None:
    """In the first round a candidate aims no higher than other items, which the proof assumes (Theorem L).

    The numbers of this budget and limit would break it, if nobody saw to it.
    """
    mechanism = mechanism_for(with_list(plan_release(Funnel(max_items_per_user=3), Budget(1.0, 1e-5)), ERROR_OF_LISTS))
    if not isinstance(mechanism, FunnelMechanism):
        raise InternalError("another mechanism than Funnel's")
    listed, other = mechanism.targets(np.zeros(2), 0, np.array([True, False]))
    return f"a candidate aims {listed / other:.3f} times as high" if listed > other else None


def candidates_are_certified(system: System, algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """The exact delta of a person with a candidate and another item is within the budget, whoever has the candidate.

    Algorithms that take no list, and funnels of more than two rounds, have no such law.
    """
    if algorithm.name in WITHOUT_LISTS or (isinstance(algorithm, Funnel) and algorithm.rounds > 2):
        return None
    plan = with_list(system.plan(algorithm, budget), ERROR_OF_LISTS)
    listed = np.array([True, False])
    exact = max(divergence(plan, ((0,),) * others, (0, 1), 0, 2, listed) for others in (0, 1, 4, 6))
    return f"the exact delta is {exact:.6f}" if exact > budget.delta else None


def unkept_candidates_are_tossed(_system: System, _algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """Just the candidates that nobody keeps come out by their marks: here all are marked.

    Reading for counts takes all items of the one person, the release keeps three of them. That noise releases all three
    has a chance below 1e-5.
    """
    held = [f"held{number}" for number in range(HELD)]
    listed = [*held, *(f"free{number}" for number in range(FREE))]
    with mock.patch.object(RunKey, "marks", lambda _key, _draw, digests, _chance: np.ones(len(digests), np.bool_)):
        made = release(
            {"somebody": held},
            epsilon=budget.epsilon,
            delta=1e-6,
            algorithm=Funnel(max_items_per_user=3),
            counts=True,
            candidates=listed,
        )
    missing = set(listed).difference(made.items)
    if not missing:
        return "a candidate that is kept and dropped is tossed as one that nobody keeps"
    return f"{len(missing)} of {len(listed)} candidates cannot come out; 3 are kept" if len(missing) > 3 else None


CHECKS: dict[str, Check] = {
    "numbers are certified": numbers_are_certified,
    "sensitivity is compared": sensitivity_is_compared,
    "keys are fresh": keys_are_fresh,
    "decisions are keyed": decisions_are_keyed,
    "items are independent": items_are_independent,
    "order is canonical": order_is_canonical,
    "files hold the release only": files_hold_the_release_only,
    "budget is charged first": budget_is_charged_first,
    "known items are set aside first": known_items_are_set_aside_first,
    "candidates aim no higher": candidates_aim_no_higher,
    "candidates are certified": candidates_are_certified,
    "unkept candidates are tossed": unkept_candidates_are_tossed,
    "one person counts once": one_person_counts_once,
    "counts take noise": counts_take_noise,
    "odds of counts hold": counts_odds_hold,
    "look takes noise": look_takes_noise,
    "look is paid for": look_is_paid_for,
    "odds hold": odds_hold,
}


def failed_checks(
    system: System, algorithm: Algorithm, budget: Budget, trials: int, names: Iterable[str] = tuple(CHECKS)
) -> dict[str, str]:
    """Run the named checks; return the evidence of the failed ones."""
    with system.in_place():
        found = {name: CHECKS[name](system, algorithm, budget, trials) for name in names}
    return {name: evidence for name, evidence in found.items() if evidence is not None}
