"""Neighbouring databases that are as bad as we know: what the empirical audit runs.

Items are small numbers; a user is the tuple of that user's rows, which may repeat. The first TRACKED items are looked
at one by one, the others only by how many of them were released.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from dpunion.plans import Plan

TRACKED = 6
User = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NeighbourPair:
    """A database and one user more. rest: the users in both worlds; extra: the one who may stay away."""

    name: str
    rest: tuple[User, ...]
    extra: User

    @property
    def rows(self) -> int:
        """The number of rows in the larger world."""
        return sum(map(len, self.rest)) + len(self.extra)


def singles(items: int, count: int) -> tuple[User, ...]:
    """Return `count` users for each item, who hold nothing else."""
    return tuple((item,) for item in range(items) for _ in range(count))


def neighbour_pairs(plan: Plan) -> Iterator[NeighbourPair]:
    """Yield the pairs for a plan, sized by its public threshold, noise and limit.

    A user alone on an item gives it 1 in every algorithm, so the number of such users stands for its weight.
    """
    limit = plan.algorithm.max_items_per_user
    for novel in sorted({1, (limit + 1) // 2, limit}):
        yield NeighbourPair(f"lone user, {novel} novel", (), tuple(range(novel)))
    # Where a test of one item tells the worlds apart best, its weight is off the threshold by one or two noise scales.
    away = 1.8 * plan.scale
    places = {"far below": -away, "below": -0.5 * away, "at": 0.0, "above": 0.5 * away, "far above": away}
    for items in sorted({1, min(limit, 4)}):
        for place in places if items == 1 else ("below", "at", "above"):
            count = max(1, round(plan.threshold + places[place] - 0.5))
            yield NeighbourPair(f"{items} shared {place} the threshold", singles(items, count), tuple(range(items)))
    if limit >= 2:
        count = max(1, round(plan.threshold / math.sqrt(0.5)))
        yield NeighbourPair("displaces others", ((0, 1),) * count, (0,))
        support = max(1, round(plan.threshold - away))
        yield NeighbourPair("survivors beside a shared item", singles(1, support), tuple(range(limit)))
    yield NeighbourPair("repeated rows", (), (0,) * 10)
    yield NeighbourPair("more items than the limit", (), tuple(range(min(8 * limit, 200))))
