"""Mutants: releases with a known mistake. An audit that finds nothing must at least be able to find these.

Each mutant is the real system with one part replaced by a mistake that was seen in published code or is easily made.
A mistake that only a whole release can show replaces a name inside the shipped code while its check runs (`Patch`).
No release can reach the code in this module.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
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
from dpunion.buffers import string_buffers
from dpunion.calibration import bounds
from dpunion.calibration.bounds import laplace_quantile_above
from dpunion.calibration.look import LookCost, cost_of_look
from dpunion.charging import Entry, charged
from dpunion.contributions import Bools, Contributions, Float64s, Int32s, Int64s, ItemTable, Uint64s, offsets_of
from dpunion.counting import Measure, steps
from dpunion.counting.steps import ONE, LookStep, RoughStep, Step
from dpunion.engines.local import engine, find_listed, run_rounds
from dpunion.ledger import Reservation
from dpunion.mechanisms import FunnelMechanism, Mechanism, Weights
from dpunion.plans import Plan, look, plan_release
from dpunion.plans.counts import PARTS, Counted, CountsPlan
from dpunion.plans.look import CLASSES
from dpunion.randomness import Purpose, RunKey
from dpunion.sets.encoding import encode, mark_known
from dpunion.sets.narrowing import Part, narrow
from dpunion_lab.audit.counting import SHARE, with_counts
from dpunion_lab.audit.examples import table
from dpunion_lab.audit.invariants import failed_checks
from dpunion_lab.audit.runs import Batch, Patch, System, encode_for, make_release, select_for, write_release

ADD_NOISE, COUNT_PEOPLE, COST_OF_LOOK = steps.add_noise, counting.count_people, cost_of_look
PLAN_COUNTS = with_counts()


def count_with_less_noise(
    sums: Int64s, sensitivity: Sensitivity, stddev: float, number: int, key: RunKey, places: Int64s | None = None
) -> Int64s:
    """Add 0.7 of the planned noise to the sums of every step."""
    return ADD_NOISE(sums, sensitivity, 0.7 * stddev, number, key, places)


def reuse_noise_of_counts(
    sums: Int64s, sensitivity: Sensitivity, stddev: float, _number: int, key: RunKey, places: Int64s | None = None
) -> Int64s:
    """Add the same draws in every step, so that the difference of two steps has no noise."""
    return ADD_NOISE(sums, sensitivity, stddev, 0, key, places)


def add_uncapped(offsets: Int64s, items: Int32s, weights: Int64s, _room: int, _most: int, sums: Int64s) -> None:
    """Let everybody give each item its whole weight, without a cap."""
    np.add.at(sums, items[: offsets[-1]], weights[items[: offsets[-1]]])


def weigh_by_true_counts(plan: CountsPlan, least: Int64s, measure: Measure, parts: Int32s | None = None) -> Counted:
    """Choose the weights of the last two steps from nearly exact sums: the first step adds hardly any noise."""

    def truly(step: Step, stddev: float) -> Int64s:
        return measure(step, 1e-6 if isinstance(step, RoughStep) else stddev)

    return COUNT_PEOPLE(plan, least, truly, parts)


def forget_counts(algorithm: Algorithm, budget: Budget) -> Plan:
    """Plan the selection as if the release had no counts."""
    return dataclasses.replace(plan_release(algorithm, budget), counts=PLAN_COUNTS(algorithm, budget).counts)


def forget_rough_step(algorithm: Algorithm, budget: Budget) -> Plan:
    """Plan with counts, and spend the rough step's part of the budget on the selection, too."""
    plan = PLAN_COUNTS(algorithm, budget)
    kept = 1.0 - SHARE
    factor = math.sqrt(kept / (kept + SHARE * PARTS[0]))
    rounds = tuple(dataclasses.replace(one, stddev=factor * one.stddev) for one in plan.rounds)
    return dataclasses.replace(plan, scale=factor * plan.scale, rounds=rounds)


def look_for_free(epsilon: float, delta: float, strength: float) -> LookCost:
    """Give every plan to choose from the whole delta, as if the look did not choose the plan."""
    return dataclasses.replace(COST_OF_LOOK(epsilon, delta, strength), room=delta)


def add_up_items(self: LookStep, sizes: Int64s) -> Int64s:
    """Count everybody in their class once for each of their items."""
    places = np.searchsorted(CLASSES, sizes, side="right") - 1
    return ONE * np.bincount(places, weights=sizes, minlength=self.length).astype(np.int64)


BUDGET = Budget(1.0, 0.01)
VISIT, TARGETS = FunnelMechanism.visit, FunnelMechanism.targets
# The exact check finds mistakes in numbers, and so do, independently, the outcomes.
NUMBERS = ("numbers are certified", "odds hold")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mistake, and a system that makes it.

    checks: the checks that must notice it. budget: one at which the mistake is visible. effort: how many times the
    usual trials the outcomes need to show it.
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
    """Group rows by user in the simplest way, with or without dropping duplicates.

    A user keeps the first items up to the limit. Users are in the random order of their digests.
    """
    users, items = (pa.concat_arrays(column) for column in zip(*batches, strict=True))
    owners, user_digests = _number(users, key, Purpose.USER)
    numbers, item_digests = _number(items, key, Purpose.ITEM)
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


def _number(strings: pa.Array, key: RunKey, purpose: Purpose) -> tuple[Int64s, Uint64s]:
    """Return each string's number in order of first appearance, and the digests of the distinct ones."""
    offsets, data = string_buffers(_distinct(strings))
    numbers = np.asarray(strings.dictionary_encode().indices, np.int64)
    return numbers, key.digests(purpose, offsets.astype(np.int64), data)


def keep_duplicates(plan: Plan, batches: Iterable[Batch], key: RunKey) -> Contributions:
    """Encode without dropping repeated rows."""
    return plain_encode(plan, batches, key, distinct=False)


def keep_everything(plan: Plan, batches: Iterable[Batch], key: RunKey) -> Contributions:
    """Encode without bounding the items of a user, but claim the plan's bound."""
    unbounded = encode_for(plan, batches, key, limit=MAX_ITEMS)
    return dataclasses.replace(unbounded, max_items_per_user=plan.algorithm.max_items_per_user)


class SameNoiseKey(RunKey):
    """A key whose draws do not depend on the item."""

    def words(self, purpose: Purpose, round: int, digests: Uint64s) -> Uint64s:  # noqa: A002
        """Give all items the same draw."""
        return super().words(purpose, round, np.zeros_like(digests))


def reuse_noise(plan: Plan, contributions: Contributions, key: RunKey) -> Int64s:
    """Decide all items with the same draw."""
    return select_for(plan, contributions, SameNoiseKey.from_closure(key.export_for_closure()))


def redraw_noise(plan: Plan, contributions: Contributions, _key: RunKey) -> Int64s:
    """Decide with new draws at every call, as rand() in a lazy engine does."""
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
    """Write the right items by filtering a dictionary column, whose dictionary keeps all other items."""
    if path.suffix != ".parquet":
        write_release(algorithm, budget, rows, test_key, path)
        return
    chosen = set(make_release(algorithm, budget, rows, test_key).items)
    column: Any = rows[1].unique().dictionary_encode()
    keep = [item in chosen for item in column.to_pylist()]
    pq.write_table(pa.table({"item": column.filter(pa.array(keep))}), path)


@contextlib.contextmanager
def charge_after_release(*arguments: Any) -> Iterator[Entry]:
    """Read and write first, and charge only after success."""
    yield Entry()
    with charged(*arguments) as entry:
        entry.start_reading()


@contextlib.contextmanager
def charge_nothing(*_arguments: Any) -> Iterator[Entry]:
    """Accept a ledger and never open it."""
    yield Entry()


def keep_quiet(_reservation: Reservation) -> None:
    """Read without recording it in the ledger, which then refunds the budget when the run dies."""


def accept_any_sensitivity(_weights: Weights, _calibrated: Sensitivity) -> None:
    """Do not compare the sensitivity of the weights with that of the noise."""


def other_odds(budget: Budget) -> tuple[Float64s, Bools]:
    """Return the odds for a delta that is larger by a thousandth, without room for rounding."""
    odds = bounds.release_odds(budget.epsilon, 1.001 * budget.delta)
    return np.array([chance for chance, _ in odds]), np.array([side for _, side in odds])


def visit_too_far(mechanism: FunnelMechanism, part: Part, gaps: Float64s, budget: float) -> None:
    """Let each user move the weights by 1.1 times the round's budget."""
    VISIT(mechanism, part, gaps, 1.1 * budget)


def drop_known_last(batches: Iterable[Batch], key: RunKey, *, known: Sequence[str], **options: Any) -> Contributions:
    """Bound first and remove known items afterwards, so that they take the places of new ones."""
    bounded = encode(batches, key, **options)
    unwanted = mark_known(bounded.table, known, key)
    if unwanted is None:
        return bounded
    left = narrow(Part(bounded.offsets, bounded.items, bounded.user_digests), ~unwanted)
    return dataclasses.replace(bounded, offsets=left.offsets, items=left.items, user_digests=left.user_digests)


def release_kept_only(mechanism: Mechanism, contributions: Contributions, *rest: Any) -> Int64s:
    """Release a candidate only if somebody keeps it, so that its presence reveals a person."""
    chosen = run_rounds(mechanism, contributions, *rest)
    return chosen[chosen < len(contributions.table)]


def take_read_for_kept(mechanism: Mechanism, contributions: Contributions, *rest: Any) -> Int64s:
    """Toss the mark of a candidate only if nobody has it; one that somebody has and nobody keeps never comes out."""
    chosen, size = run_rounds(mechanism, contributions, *rest), len(contributions.table)
    return chosen[(chosen < size) | ~np.isin(chosen - size, find_listed(contributions.table.digests, rest[-1]))]


def mark_in_last_round(mechanism: Mechanism, contributions: Contributions, key: RunKey, *rest: Any) -> Int64s:
    """Toss the marks of candidates after the rounds, of kept ones too if they were dropped."""
    chosen, size, listed = run_rounds(mechanism, contributions, key, *rest), len(contributions.table), rest[-1]
    places = find_listed(contributions.table.digests, listed)
    marked = np.flatnonzero((places >= 0) & mechanism.mark(listed, key)[places])
    return np.union1d(chosen, marked[~np.isin(size + places[marked], chosen)])


def forget_minimum(
    mechanism: FunnelMechanism, scores: Float64s, number: int, listed: Bools | None = None, *, times: float = 1.0
) -> Float64s:
    """Let candidates aim at their own cutoff in the first round, even if it is above that of the others."""
    targets = TARGETS(mechanism, scores, number, listed)
    if number == 0 and mechanism.listed is not None and listed is not None:
        targets[listed] = times * mechanism.listed.cutoffs[0] * mechanism.listed.aims[0]
    return targets


def patch_system(owner: Any, name: str, mistake: Any) -> System:
    """Return the real system with one name of the shipped code replaced."""
    return System(patches=(Patch(owner, name, mistake),))


def mutants() -> list[Mutant]:
    """Return all mutants with the checks that must notice them."""
    weighted, policy = WeightedGaussian(max_items_per_user=3), PolicyGaussian(max_items_per_user=3)
    funnel, wider = Funnel(max_items_per_user=3), WeightedGaussian(max_items_per_user=10)
    same, keyed, paid = ("items are independent",), ("decisions are keyed",), ("budget is charged first",)
    exact, first = ("numbers are certified",), ("known items are set aside first",)
    two_rounds = Funnel(max_items_per_user=2, rounds=2)
    other_sensitivity = patch_system(mechanisms, "check_sensitivity", accept_any_sensitivity)
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
        Mutant("charge after release", patch_system(pipeline, "charged", charge_after_release), weighted, paid),
        Mutant("budget not charged", patch_system(pipeline, "charged", charge_nothing), weighted, paid),
        Mutant("charge given back", patch_system(Reservation, "start_reading", keep_quiet), weighted, paid),
        Mutant("any sensitivity", other_sensitivity, weighted, ("sensitivity is compared",)),
        Mutant("odds of another delta", patch_system(coins, "optimal_odds", other_odds), OptimalSingleItem(), exact),
        Mutant("larger ball", patch_system(FunnelMechanism, "visit", visit_too_far), two_rounds, exact),
        Mutant("known list after bounding", patch_system(engine, "encode", drop_known_last), weighted, first),
        Mutant("redrawn noise", System(select=redraw_noise), weighted, keyed),
        Mutant("redrawn noise, funnel", System(select=redraw_noise), funnel, keyed),
        *count_mutants(),
        *look_mutants(),
        *candidate_mutants(),
    ]


def count_mutants() -> list[Mutant]:
    """Return the mutants of releases with counts."""
    weighted, funnel = WeightedGaussian(max_items_per_user=3), Funnel(max_items_per_user=3)
    noisy, once = "counts take noise", "one person counts once"
    odds, exact = "odds of counts hold", "numbers are certified"
    whole_room = patch_system(steps.FineStep, "room", ONE * ONE)
    true_counts = patch_system(counting, "count_people", weigh_by_true_counts)
    return [
        Mutant(
            "noise of counts x 0.7", patch_system(steps, "add_noise", count_with_less_noise), weighted, (noisy, odds)
        ),
        Mutant("noise of counts reused", patch_system(steps, "add_noise", reuse_noise_of_counts), weighted, (noisy,)),
        Mutant("no cap", patch_system(steps, "add_capped", add_uncapped), weighted, (once, odds)),
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
        Mutant("noise of a look x 0.7", patch_system(steps, "add_noise", count_with_less_noise), funnel, noisy),
        Mutant("a look counts items", patch_system(LookStep, "add_up", add_up_items), funnel, noisy),
        Mutant("a look for free", patch_system(look, "cost_of_look", look_for_free), funnel, paid),
    ]


def candidate_mutants() -> list[Mutant]:
    """Return the mutants of releases with a public list of candidates."""
    funnel, tossed = Funnel(max_items_per_user=3), ("unkept candidates are tossed",)
    two_rounds = Funnel(max_items_per_user=2, rounds=2, first_share=0.8, keep_margin=0.5)
    wrong = {
        "candidates only if kept": release_kept_only,
        "candidates kept by reading": take_read_for_kept,
        "marks in the last round": mark_in_last_round,
    }
    higher = patch_system(FunnelMechanism, "targets", functools.partialmethod(forget_minimum, times=10.0))
    no_minimum = patch_system(FunnelMechanism, "targets", forget_minimum)
    return [
        *(Mutant(name, patch_system(engine, "run_rounds", one), funnel, tossed) for name, one in wrong.items()),
        Mutant("candidates without the minimum", no_minimum, funnel, ("candidates aim no higher",)),
        Mutant("candidates aim higher", higher, two_rounds, ("candidates are certified",), Budget(0.3, 1e-3)),
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
    """Write a table of the mutants, and which check caught each."""
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
