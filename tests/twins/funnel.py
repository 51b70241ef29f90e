"""Funnel with a public list once more, slowly and item by item as docs/guarantees-funnel.md writes it.

The mechanism and its twin must release the same items.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from dpunion.plans import Plan
from dpunion.plans.candidates import plan_for_listed
from twins.kernels import descend_ball


def run_funnel(
    plan: Plan, users: Sequence[Sequence[int]], listed: AbstractSet[int], noise: Sequence[Mapping[int, float]]
) -> set[int]:
    """Return the kept items that pass. users: in visiting order; noise: of each round and item, in deviations."""

    def numbers(one: Plan) -> tuple[Any, Any, Any, float]:
        funnel: Any = one.algorithm
        return one.rounds, funnel.cutoffs(one.scale, one.threshold), funnel.aims, one.threshold

    plain, candidate = numbers(plan), numbers(plan_for_listed(plan))
    kept = sorted({item for items in users for item in items})
    of_item = {item: candidate if item in listed else plain for item in kept}
    size = max(kept, default=-1) + 1
    scores, alive, passed = dict.fromkeys(kept, 0.0), set(kept), set[int]()
    for number, one in enumerate(plan.rounds):
        targets = [0.0] * size
        for item in alive - passed:
            _, cutoffs, aims, _ = of_item[item]
            targets[item] = aims[number] * max(0.0, cutoffs[number] - scores[item])
            if number == 0:
                targets[item] = min(targets[item], plain[2][0] * plain[1][0])
        gaps = list(targets)
        descend_ball(users, gaps, one.budget)
        for item in sorted(alive - passed):
            rounds, cutoffs, _, threshold = of_item[item]
            given = min(targets[item] - gaps[item], max(0.0, cutoffs[number] - scores[item]) / one.budget)
            scores[item] += one.budget * (given + one.stddev * noise[number][item])
            if scores[item] <= rounds[number].threshold:
                alive.remove(item)
            elif scores[item] > threshold:
                passed.add(item)
    return passed
