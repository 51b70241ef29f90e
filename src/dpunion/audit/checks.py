"""What must hold for every release besides the odds of its outcomes: each check returns evidence against, or None.

The empirical audit rests on two of them: draws of different items are independent, and keys are fresh.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa

from dpunion.algorithms import Algorithm, DpSips, Funnel
from dpunion.audit.empirical import ERROR, AlgorithmResult, audit_pair
from dpunion.audit.exact import largest_divergence, lone_user_delta
from dpunion.audit.trials import Batch, System, chosen_names, copies
from dpunion.audit.worlds import NeighbourPair, neighbour_pairs, singles
from dpunion.budget import Budget
from dpunion.calibration.funnel import certificate
from dpunion.errors import BudgetExhausted
from dpunion.ledger import Ledger
from dpunion.plans import Plan
from dpunion.randomness import RunKey

BORDERLINE_ITEMS = 400
KEYS = 20
CANARIES = 600
SUFFIXES = (".parquet", ".arrow", ".csv", ".json", ".jsonl", ".txt")

Check = Callable[[System, Algorithm, Budget, int], str | None]


def borderline(plan: Plan) -> Batch:
    """Return many items, each with the support at which it is released about every second time."""
    return copies(singles(1, max(1, round(plan.threshold))), BORDERLINE_ITEMS)


def released(system: System, plan: Plan, key: RunKey) -> frozenset[int]:
    """Return which of the borderline items come out."""
    contributions = system.encode(plan, [borderline(plan)], key)
    return frozenset(chosen_names(contributions, system.select(plan, contributions, key))[0].tolist())


def odds_hold(system: System, algorithm: Algorithm, budget: Budget, trials: int) -> str | None:
    """No event of any pair of neighbours is likelier than the budget allows (empirical.py)."""
    plan = system.plan(algorithm, budget)
    pairs = sorted(neighbour_pairs(plan), key=lambda pair: (len(pair.rest), pair.rows))
    tail = ERROR / (8.0 * len(pairs))
    # Stop at the first pair that refutes the claim: the bounds of all pairs hold together anyway.
    for pair in pairs:
        found = refuted(system, plan, pair, trials, tail)
        if found is not None:
            return found
    return None


def refuted(system: System, plan: Plan, pair: NeighbourPair, trials: int, tail: float) -> str | None:
    """Return what one pair shows against the claim."""
    result = AlgorithmResult(plan, (audit_pair(system, plan, pair, trials, tail),))
    if not result.violated:
        return None
    worst = result.pairs[0]
    return f"{pair.name}: epsilon >= {worst.epsilon_bound:.2f}, delta >= {worst.delta_bound:.4f}"


def numbers_are_certified(system: System, algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """The plan's noise and threshold give an exact delta within the budget: on tiny databases, for lone users.

    Funnel's is the certificate of Theorem A at the plan's own numbers (docs/guarantees-funnel.md).
    """
    plan = system.plan(algorithm, budget)
    if isinstance(algorithm, Funnel):
        exact = certificate(budget.epsilon, budget.delta, plan.scale, plan.threshold, algorithm)[0]
    else:
        exact = largest_divergence(plan, 2)[0]
        if not isinstance(algorithm, DpSips):
            exact = max(exact, *[lone_user_delta(plan, t) for t in range(1, algorithm.max_items_per_user + 1)])
    return f"the exact delta is {exact:.4f}" if exact > budget.delta else None


def keys_are_fresh(system: System, algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """Two releases decide differently somewhere among hundreds of even coins."""
    plan = system.plan(algorithm, budget)
    if released(system, plan, system.new_key()) == released(system, plan, system.new_key()):
        return f"two releases with new keys agree on all of {BORDERLINE_ITEMS} borderline items"
    return None


def decisions_are_keyed(system: System, algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """The same key decides the same, so that a task that runs twice does not draw twice."""
    plan = system.plan(algorithm, budget)
    key = system.new_key()
    if released(system, plan, key) != released(system, plan, key):
        return "the same key decides differently the second time"
    return None


def items_are_independent(system: System, algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """The number of equal items released varies from key to key as that of independent coins does.

    The dispersion of binomial counts over k keys is chi-squared with k-1 degrees of freedom; beyond ten times its
    mean is a chance below 1e-29.
    """
    plan = system.plan(algorithm, budget)
    counts = np.array([len(released(system, plan, system.new_key())) for _ in range(KEYS)])
    chance = counts.mean() / BORDERLINE_ITEMS
    if not 0.0 < chance < 1.0:
        return "equal items are always released together"
    dispersion = ((counts - counts.mean()) ** 2).sum() / (BORDERLINE_ITEMS * chance * (1.0 - chance))
    if dispersion > 10.0 * (KEYS - 1):
        return f"equal items are released together: {dispersion / (KEYS - 1):.0f} times the spread of independent coins"
    return None


def canary_rows() -> tuple[pa.Array, pa.Array]:
    """Return items of many users, and items of one user each that a release has no right to show."""
    pairs = [(f"user{number}", f"popular{number % 4}") for number in range(CANARIES)]
    pairs += [(user, f"canary-of-{user}") for user, _ in pairs]
    # An order that is not that of the alphabet.
    pairs.sort(key=lambda pair: (pair[1][::-1], pair[0]), reverse=True)
    return pa.array([user for user, _ in pairs]), pa.array([item for _, item in pairs])


def order_is_canonical(system: System, algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """The same rows in another order give the same bytes."""
    plan = system.plan(algorithm, Budget(budget.epsilon, 1e-9))
    users, items = canary_rows()
    reverse = pa.array(range(len(users) - 1, -1, -1))
    key = system.new_key()
    files = [
        written(system, plan, rows, key, ".csv")
        for rows in ((users, items), (users.take(reverse), items.take(reverse)))
    ]
    return None if files[0] == files[1] else "the order of rows shows in the file"


def files_hold_the_release_only(system: System, algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """No written file holds a canary; the chance that one is rightly released is below 1e-6."""
    plan = system.plan(algorithm, Budget(budget.epsilon, 1e-9))
    key = system.new_key()
    for suffix in SUFFIXES:
        content = written(system, plan, canary_rows(), key, suffix)
        if b"canary" in content:
            return f"a {suffix} file holds items that were not released"
        if b"popular" not in content:
            return f"a {suffix} file holds nothing, so nothing was checked"
    return None


def written(system: System, plan: Plan, rows: Batch, key: RunKey, suffix: str) -> bytes:
    """Return the bytes of a released file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"release{suffix}"
        system.write(plan, [rows], key, path)
        return path.read_bytes()


class Killed(BaseException):
    """Stands for a process that dies: nothing after it runs, and nobody catches it."""


def budget_is_charged_first(system: System, algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """A release that dies while reading has been paid for, and one that cannot be paid for reads nothing."""
    plan = system.plan(algorithm, budget)
    seen: list[str] = []

    def read(*, then_die: bool) -> Batch:
        seen.append("read")
        if then_die:
            raise Killed
        return canary_rows()

    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.open(Path(folder) / "ledger.db", create=True)
        ledger.create_dataset("audit", 10.0 * budget.epsilon, 10.0 * budget.delta)
        ledger.create_dataset("poor", 0.1 * budget.epsilon, budget.delta)
        path = Path(folder) / "release.csv"
        with contextlib.suppress(Killed):
            system.charge(ledger, "audit", plan, lambda: read(then_die=True), path)
        spent = next(each.spent for each in ledger.overview().accounts if each.name == "audit")
        if max(spent.values()) <= 0:
            return "a release that died after reading has cost nothing"
        seen.clear()
        with contextlib.suppress(BudgetExhausted):
            system.charge(ledger, "poor", plan, lambda: read(then_die=False), path)
        ledger.close()
    return "data is read that nobody paid for" if seen else None


CHECKS: dict[str, Check] = {
    "numbers are certified": numbers_are_certified,
    "keys are fresh": keys_are_fresh,
    "decisions are keyed": decisions_are_keyed,
    "items are independent": items_are_independent,
    "order is canonical": order_is_canonical,
    "files hold the release only": files_hold_the_release_only,
    "budget is charged first": budget_is_charged_first,
    "odds hold": odds_hold,
}


def failed_checks(
    system: System, algorithm: Algorithm, budget: Budget, trials: int, names: Iterable[str] = tuple(CHECKS)
) -> dict[str, str]:
    """Run the named checks; return the evidence of those that failed."""
    found = {name: CHECKS[name](system, algorithm, budget, trials) for name in names}
    return {name: evidence for name, evidence in found.items() if evidence is not None}
