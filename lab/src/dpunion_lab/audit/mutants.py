"""Releases with a known mistake in them: what an audit that finds nothing must at least be able to find.

Each mutant is the real system with one part replaced by a mistake that was seen in published code or is easily made;
those that a whole release must show stand inside the shipped code while their check runs (`Patch`).
Nothing here can be reached from a release.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpunion import coins, counting, mechanisms, pipeline
from dpunion.algorithms import (
    MAX_ITEMS,
    Algorithm,
    Funnel,
    OptimalSingleItem,
    PolicyGaussian,
    Sensitivity,
    WeightedGaussian,
)
from dpunion.budget import Budget
from dpunion.calibration import bounds
from dpunion.calibration.bounds import laplace_quantile_above
from dpunion.charging import Entry, charged
from dpunion.contributions import Bools, Contributions, Float64s, Int64s, ItemTable, Uint64s, offsets_of
from dpunion.counting import steps
from dpunion.counting.steps import ONE, LookStep
from dpunion.engines.local import engine
from dpunion.ledger import Reservation
from dpunion.mechanisms import FunnelMechanism, Weights
from dpunion.plans import Plan, look, plan_release
from dpunion.randomness import Purpose, RunKey
from dpunion.sets.encoding import encode, mark_known
from dpunion.sets.narrowing import Part, narrow
from dpunion.sets.strings import string_buffers
from dpunion_lab.audit.invariants import failed_checks
from dpunion_lab.audit.mistakes import (
    add_uncapped,
    add_up_items,
    count_with_less_noise,
    forget_counts,
    forget_rough_step,
    look_for_free,
    reuse_noise_of_counts,
    weigh_by_true_counts,
)
from dpunion_lab.audit.runs import Batch, Patch, System, encode_for, make_release, select_for, write_release
from dpunion_lab.audit.text import table

BUDGET = Budget(1.0, 0.01)
# Mistakes in numbers are seen by the exact layer and, independently, in the outcomes.
VISIT = FunnelMechanism.visit
NUMBERS = ("numbers are certified", "odds hold")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mistake, and a release that has it.

    checks: those that must notice; budget: one at which it can show; effort: how many times the usual trials it takes
    to show in the outcomes.
    """

    name: str
    system: System
    algorithm: Algorithm
    checks: tuple[str, ...]
    budget: Budget = BUDGET
    effort: int = 1


def less_noise(algorithm: Algorithm, budget: Budget) -> Plan:
    """Plan with 0.7 of the noise, thresholds unchanged."""
    plan = plan_release(algorithm, budget)
    rounds = tuple(dataclasses.replace(one, stddev=0.7 * one.stddev) for one in plan.rounds)
    return dataclasses.replace(plan, scale=0.7 * plan.scale, rounds=rounds)


def lower_threshold(algorithm: Algorithm, budget: Budget) -> Plan:
    """Plan with nine tenths of the threshold."""
    plan = plan_release(algorithm, budget)
    rounds = tuple(dataclasses.replace(one, threshold=0.9 * one.threshold) for one in plan.rounds)
    return dataclasses.replace(plan, threshold=0.9 * plan.threshold, rounds=rounds)


def wrong_tail(algorithm: Algorithm, budget: Budget) -> Plan:
    """Plan a Gaussian release with the threshold of Laplace noise (as in SmartNoise issue 204)."""
    plan = plan_release(algorithm, budget)
    return dataclasses.replace(plan, threshold=1.0 + laplace_quantile_above(budget.delta, 1.0 / budget.epsilon))


def plain_encode(plan: Plan, batches: Iterable[Batch], key: RunKey, *, distinct: bool) -> Contributions:
    """Group rows by user in the plainest way, with or without dropping duplicates.

    Of too many items those that come first are kept; users stand in the random order of their digests.
    """
    users, items = (pa.concat_arrays(column) for column in zip(*batches, strict=True))
    owners, user_digests = _numbered(users, key, Purpose.USER)
    numbers, item_digests = _numbered(items, key, Purpose.ITEM)
    rows = np.lexsort((numbers, owners))
    owner, number = owners[rows], numbers[rows]
    if distinct:
        new = np.r_[True, (owner[1:] != owner[:-1]) | (number[1:] != number[:-1])]
        owner, number = owner[new], number[new]
    limit = plan.algorithm.max_items_per_user
    kept = np.arange(len(owner)) - np.searchsorted(owner, owner) < limit
    owner, number = owner[kept], number[kept]
    sizes = np.bincount(owner, minlength=len(user_digests)).astype(np.int64)
    order = np.lexsort((user_digests[:, 1], user_digests[:, 0]))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    rows = np.argsort(rank[owner], kind="stable")
    name_offsets, data = string_buffers(_distinct(items))
    table = ItemTable(name_offsets.astype(np.int64), data, item_digests)
    return Contributions(offsets_of(sizes[order]), number[rows].astype(np.int32), table, user_digests[order], limit)


def _distinct(strings: pa.Array) -> Any:
    return strings.unique().cast(pa.large_string())


def _numbered(strings: pa.Array, key: RunKey, purpose: Purpose) -> tuple[Int64s, Uint64s]:
    """Return each string's number in order of first appearance, and the digests of the distinct ones."""
    offsets, data = string_buffers(_distinct(strings))
    numbers = np.asarray(strings.dictionary_encode().indices, np.int64)
    return numbers, key.digests(purpose, offsets.astype(np.int64), data)


def keep_duplicates(plan: Plan, batches: Iterable[Batch], key: RunKey) -> Contributions:
    """Forget to drop repeated rows."""
    return plain_encode(plan, batches, key, distinct=False)


def keep_everything(plan: Plan, batches: Iterable[Batch], key: RunKey) -> Contributions:
    """Forget to bound the items of a user; the plan's bound is claimed all the same."""
    unbounded = encode_for(plan, batches, key, limit=MAX_ITEMS)
    return dataclasses.replace(unbounded, max_items_per_user=plan.algorithm.max_items_per_user)


class SameNoiseKey(RunKey):
    """Draws that do not depend on the item: one noise for all."""

    def words(self, purpose: Purpose, round: int, digests: Uint64s) -> Uint64s:  # noqa: A002
        """Draw for the first item, and give it to all."""
        return super().words(purpose, round, np.zeros_like(digests))


def reuse_noise(plan: Plan, contributions: Contributions, key: RunKey) -> Int64s:
    """Decide all items by the same draw."""
    return select_for(plan, contributions, SameNoiseKey.from_closure(key.export_for_closure()))


def redraw_noise(plan: Plan, contributions: Contributions, _key: RunKey) -> Int64s:
    """Decide by draws that are new at every call, as rand() in a lazy engine does."""
    return select_for(plan, contributions, RunKey.fresh())


def seeded_key() -> RunKey:
    """Return the same key for every release, as numpy.random.seed(42) does."""
    return RunKey.for_tests(42)


def write_in_row_order(algorithm: Algorithm, budget: Budget, rows: Batch, test_key: int | None, path: Path) -> None:
    """Write the right items in the order in which they first appeared in the rows."""
    chosen = set(make_release(algorithm, budget, rows, test_key).items)
    order = [str(item) for item in rows[1].unique().to_pylist()]
    path.write_text("item\n" + "".join(f"{item}\n" for item in order if item in chosen))


def write_with_dictionary(algorithm: Algorithm, budget: Budget, rows: Batch, test_key: int | None, path: Path) -> None:
    """Write the right items by filtering a dictionary column: its dictionary keeps all the others."""
    if path.suffix != ".parquet":
        write_release(algorithm, budget, rows, test_key, path)
        return
    chosen = set(make_release(algorithm, budget, rows, test_key).items)
    column: Any = rows[1].unique().dictionary_encode()
    keep = [item in chosen for item in column.to_pylist()]
    pq.write_table(pa.table({"item": column.filter(pa.array(keep))}), path)


@contextlib.contextmanager
def charge_after_release(*arguments: Any) -> Iterator[Entry]:
    """Read and write first, and pay when all went well."""
    yield Entry()
    with charged(*arguments) as entry:
        entry.start_reading()


@contextlib.contextmanager
def charge_nothing(*_arguments: Any) -> Iterator[Entry]:
    """Take the ledger's name, and never open it."""
    yield Entry()


def keep_quiet(_reservation: Reservation) -> None:
    """Read without telling the ledger, which then gives the budget back when the run dies."""


def accept_any_sensitivity(_weights: Weights, _calibrated: Sensitivity) -> None:
    """Compare nothing of what the weights and the noise were made for."""


def other_odds(budget: Budget) -> tuple[Float64s, Bools]:
    """Return the odds of a delta a thousandth larger, without what rounding needs."""
    odds = bounds.release_odds(budget.epsilon, 1.001 * budget.delta)
    return np.array([chance for chance, _ in odds]), np.array([side for _, side in odds])


def visit_too_far(mechanism: FunnelMechanism, part: Part, gaps: Float64s, budget: float) -> None:
    """Let each user move a round's weights a tenth further than the round's budget."""
    VISIT(mechanism, part, gaps, 1.1 * budget)


def drop_known_last(batches: Iterable[Batch], key: RunKey, *, known: Sequence[str], **options: Any) -> Contributions:
    """Bound first, so that known items fill the sets, and take them out afterwards."""
    bounded = encode(batches, key, **options)
    unwanted = mark_known(bounded.table, known, key)
    if unwanted is None:
        return bounded
    left = narrow(Part(bounded.offsets, bounded.items, bounded.user_digests), ~unwanted)
    return dataclasses.replace(bounded, offsets=left.offsets, items=left.items, user_digests=left.user_digests)


def patched(owner: Any, name: str, mistake: Any) -> System:
    """Return the real system with one name of the shipped code replaced."""
    return System(patches=(Patch(owner, name, mistake),))


def mutants() -> list[Mutant]:
    """Return all mutants, each with the checks that must notice it."""
    weighted, policy = WeightedGaussian(max_items_per_user=3), PolicyGaussian(max_items_per_user=3)
    funnel, wider = Funnel(max_items_per_user=3), WeightedGaussian(max_items_per_user=10)
    same, keyed, paid = ("items are independent",), ("decisions are keyed",), ("budget is charged first",)
    exact, first = ("numbers are certified",), ("known items are set aside first",)
    two_rounds = Funnel(max_items_per_user=2, rounds=2)
    other_sensitivity = patched(mechanisms, "check_sensitivity", accept_any_sensitivity)
    return [
        Mutant("noise x 0.7", System(plan=less_noise), weighted, NUMBERS),
        Mutant("noise x 0.7, funnel", System(plan=less_noise), funnel, NUMBERS, effort=3),
        Mutant("threshold - 10 %", System(plan=lower_threshold), weighted, NUMBERS),
        Mutant("threshold - 10 %, funnel", System(plan=lower_threshold), funnel, ("numbers are certified",)),
        Mutant("no deduplication", System(encode=keep_duplicates), wider, ("odds hold",)),
        Mutant("wrong tail formula", System(plan=wrong_tail), weighted, NUMBERS, Budget(3.0, 0.005)),
        Mutant("no bound on items", System(encode=keep_everything), policy, ("odds hold",)),
        Mutant("noise reused across items", System(select=reuse_noise), weighted, same),
        Mutant("noise reused across items, funnel", System(select=reuse_noise), funnel, same),
        Mutant("seeded randomness", System(new_key=seeded_key), weighted, ("keys are fresh",)),
        Mutant("insertion-order output", System(write=write_in_row_order), weighted, ("order is canonical",)),
        Mutant("leftover dictionary", System(write=write_with_dictionary), weighted, ("files hold the release only",)),
        Mutant("charge after release", patched(pipeline, "charged", charge_after_release), weighted, paid),
        Mutant("budget not charged", patched(pipeline, "charged", charge_nothing), weighted, paid),
        Mutant("charge given back", patched(Reservation, "start_reading", keep_quiet), weighted, paid),
        Mutant("any sensitivity", other_sensitivity, weighted, ("sensitivity is compared",)),
        Mutant("odds of another delta", patched(coins, "optimal_odds", other_odds), OptimalSingleItem(), exact),
        Mutant("larger ball", patched(FunnelMechanism, "visit", visit_too_far), two_rounds, exact),
        Mutant("known list after bounding", patched(engine, "encode", drop_known_last), weighted, first),
        Mutant("redrawn noise", System(select=redraw_noise), weighted, keyed),
        Mutant("redrawn noise, funnel", System(select=redraw_noise), funnel, keyed),
        *count_mutants(),
        *look_mutants(),
    ]


def count_mutants() -> list[Mutant]:
    """Return the mutants of releases with counts."""
    weighted, funnel = WeightedGaussian(max_items_per_user=3), Funnel(max_items_per_user=3)
    noisy, once, odds, exact = (
        "counts take noise",
        "one person counts once",
        "odds of counts hold",
        "numbers are certified",
    )
    whole_room = patched(steps.FineStep, "room", ONE * ONE)
    true_counts = patched(counting, "count_people", weigh_by_true_counts)
    return [
        Mutant("noise of counts x 0.7", patched(steps, "add_noise", count_with_less_noise), weighted, (noisy, odds)),
        Mutant("noise of counts reused", patched(steps, "add_noise", reuse_noise_of_counts), weighted, (noisy,)),
        Mutant("no cap", patched(steps, "add_capped", add_uncapped), weighted, (once, odds)),
        Mutant("no room for totals", whole_room, weighted, (once,)),
        Mutant("weights from the true counts", true_counts, weighted, (noisy,)),
        Mutant("counts not charged", System(plan=forget_counts), weighted, (exact,)),
        Mutant("counts not charged, funnel", System(plan=forget_counts), funnel, (exact,)),
        Mutant("rough step not composed", System(plan=forget_rough_step), weighted, (exact,)),
        Mutant("rough step not composed, funnel", System(plan=forget_rough_step), funnel, (exact,)),
    ]


def look_mutants() -> list[Mutant]:
    """Return the mutants of releases that begin with a look."""
    funnel, noisy, paid = Funnel(max_items_per_user=3), ("look takes noise",), ("look is paid for",)
    return [
        Mutant("noise of a look x 0.7", patched(steps, "add_noise", count_with_less_noise), funnel, noisy),
        Mutant("a look counts items", patched(LookStep, "add_up", add_up_items), funnel, noisy),
        Mutant("a look for free", patched(look, "cost_of_look", look_for_free), funnel, paid),
    ]


@dataclass(frozen=True, slots=True)
class MutantResult:
    """A mutant and the evidence of the checks that noticed it."""

    mutant: Mutant
    evidence: dict[str, str]

    @property
    def caught(self) -> bool:
        """Say whether every check that must notice the mistake did."""
        return set(self.evidence) >= set(self.mutant.checks)


def run_mutants(trials: int = 60_000, some: Iterable[Mutant] | None = None) -> list[MutantResult]:
    """Run each mutant against the checks that must notice it."""
    return [
        MutantResult(each, failed_checks(each.system, each.algorithm, each.budget, trials * each.effort, each.checks))
        for each in (mutants() if some is None else some)
    ]


def mutants_text(results: list[MutantResult]) -> str:
    """Lay out which mutants were caught, and by what."""
    rows = [
        [
            result.mutant.name,
            "caught  " if result.caught else "SURVIVED",
            "; ".join(f"{name}: {evidence}" for name, evidence in result.evidence.items()),
        ]
        for result in results
    ]
    width = max(len(row[2]) for row in rows)
    return table(["mutant", "verdict", "what failed".ljust(width)], [[*row[:2], row[2].ljust(width)] for row in rows])
