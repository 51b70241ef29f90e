"""Algorithms of several rounds on one machine: weigh, decide, narrow, again."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from dpunion.algorithms import DpSips, Funnel
from dpunion.contributions import Contributions, Float64s, Int32s, Int64s, offsets_of
from dpunion.engines.shares import in_weight, l2_shares
from dpunion.kernels.bounding import gather_users, keep_random, mark_items, narrow_users
from dpunion.kernels.descent import descend_ball
from dpunion.kernels.shares import add_shares
from dpunion.plans import Plan
from dpunion.randomness import Purpose, RunKey
from dpunion.threads import Task, Threads

Bools = npt.NDArray[np.bool_]
Sets = tuple[Int64s, Int32s]
"""Some users' sets: user u holds items[offsets[u]:offsets[u+1]]."""

PAIRS_PER_PART = 1 << 21
PARTS_AHEAD = 3


def select_by_funnel(plan: Plan, algorithm: Funnel, contributions: Contributions, key: RunKey) -> Int64s:
    """Run Funnel: return the numbers of the items to release (docs/guarantees-funnel.md).

    Guarantees:
    - each user's items are those drawn once, before round 1;
    - given the public scores, one user moves round r's weights by at most the round's budget;
    - each item's noise of each round is a function of the run key, the round and the item's bytes;
    - an item kept by nobody is never released, and scores never leave this function.
    """
    digests = contributions.table.digests
    with Threads(1) as other_thread:
        marked = other_thread.submit(held_items, contributions)
        alive: Bools = np.empty(0, np.bool_)
        scores = np.zeros(len(contributions.table))
        sets: Iterable[Sets] = parts_of(contributions.offsets, contributions.items)
        for number, (one, left) in enumerate(zip(plan.rounds, algorithm.remaining, strict=True)):
            targets = funnel_targets(plan, scores, one.budget / left)
            gaps = targets.copy()
            visited = []
            for offsets, items in sets:
                descend_ball(offsets, items, gaps, one.budget)
                visited.append((offsets, items))
            if number == 0:
                alive = marked.result()
            living = np.flatnonzero(alive)
            weights = (targets - gaps)[living]
            noise = key.normals(number, digests[living])
            scores[living] += one.budget * (weights + one.stddev * noise)
            alive[living] = scores[living] > one.threshold
            if number + 1 < len(plan.rounds):
                sets = narrowed(visited, alive, other_thread, in_place=number > 0)
    return np.flatnonzero(alive)


def held_items(contributions: Contributions) -> Bools:
    """Say for each item whether any user kept it: bool[items].

    Guarantees: an item that was in the data but kept by nobody is not held.
    """
    held = np.zeros(len(contributions.table), np.bool_)
    mark_items(contributions.items, held)
    return held


def parts_of(offsets: Int64s, items: Int32s) -> list[Sets]:
    """Cut the users into parts of about PAIRS_PER_PART pairs, in their order; nothing is copied."""
    count = min(len(items) // PAIRS_PER_PART + 1, max(len(offsets) - 1, 1))
    ends = np.searchsorted(offsets, np.arange(1, count) * len(items) // count)
    places = [0, *ends.tolist(), len(offsets) - 1]
    return [(offsets[first : last + 1], items) for first, last in itertools.pairwise(places)]


def narrowed(parts: list[Sets], alive: Bools, other_thread: Threads, *, in_place: bool) -> Iterator[Sets]:
    """Yield what `narrow` makes of each part, in order, while the other thread is at the next ones.

    Guarantees: those of narrow.
    """
    parts.reverse()
    coming: deque[Task[Sets]] = deque()
    while parts or coming:
        while parts and len(coming) < PARTS_AHEAD:
            coming.append(other_thread.submit(narrow, *parts.pop(), alive, in_place=in_place))
        yield coming.popleft().result()


def funnel_targets(plan: Plan, scores: Float64s, share: float) -> Float64s:
    """Return what each item should get in this round: its need up to the cutoff, times the round's share of it."""
    if plan.cutoff is None:
        raise AssertionError("a funnel without a cutoff")
    targets: Float64s = np.maximum(0.0, plan.cutoff - scores) * share
    return targets


def narrow(offsets: Int64s, items: Int32s, alive: Bools, *, in_place: bool = False) -> Sets:
    """Drop what is no longer alive from every set; the users stay in their order.

    in_place: the items are written over. Visiting the smallest remaining sets first again was measured and gains
    nothing.

    Guarantees: a user's new set is a function of the user's old one and the public `alive`.
    """
    kept = items if in_place else np.empty(int(offsets[-1] - offsets[0]), np.int32)
    sizes = np.empty(len(offsets) - 1, np.int64)
    total = narrow_users(offsets, items, alive, kept, sizes)
    return offsets_of(sizes), kept[:total]


def select_by_sips(plan: Plan, algorithm: DpSips, contributions: Contributions, key: RunKey) -> Int64s:
    """Run DP-SIPS: return the numbers of the items to release.

    Guarantees:
    - each round draws at most max_items_per_user of a user's remaining items afresh, from the user's own data;
    - one user moves a round's weights by at most 1 in l2 norm;
    - what was released no longer takes part.
    """
    table = contributions.table
    share_of_size = l2_shares(algorithm.max_items_per_user)
    released = np.zeros(len(table), np.bool_)
    offsets, items = contributions.offsets, contributions.items
    for number, one in enumerate(plan.rounds):
        drawn_offsets, drawn = draw_items(offsets, items, contributions, algorithm.max_items_per_user, number, key)
        units = np.zeros(len(table), np.int64)
        add_shares(drawn_offsets, drawn, share_of_size, units)
        passed = key.decide_gaussian(
            number, table.digests, in_weight(units), threshold=one.threshold, stddev=one.stddev
        )
        released |= passed & (units > 0)
        if number + 1 < len(plan.rounds):
            offsets, items = narrow(offsets, items, ~released)
    return np.flatnonzero(released)


def draw_items(
    offsets: Int64s, items: Int32s, contributions: Contributions, max_items: int, number: int, key: RunKey
) -> tuple[Int64s, Int32s]:
    """Draw at most `max_items` items of each user for round `number`.

    Guarantees: what one user draws depends on that user's own items and the key alone.
    """
    drawn, starts, sizes = items.copy(), offsets[:-1], np.diff(offsets)
    heavy = np.flatnonzero(sizes > max_items)
    keys = key.words(Purpose.BOUND, number, contributions.user_digests[heavy])
    keep_random(starts, drawn, sizes, heavy, keys, contributions.table.digests, max_items)
    new_offsets = offsets_of(sizes)
    kept = np.empty(int(new_offsets[-1]), np.int32)
    gather_users(starts, drawn, np.arange(len(sizes)), new_offsets, kept)
    return new_offsets, kept
