"""Algorithms of several rounds on one machine: weigh, decide, narrow, again."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpunion.algorithms import DpSips, Funnel
from dpunion.contributions import Contributions, Float64s, Int32s, Int64s, offsets_of
from dpunion.engines.shares import in_weight, l2_shares
from dpunion.kernels.bounding import gather_users, keep_random, narrow_users
from dpunion.kernels.descent import descend_ball
from dpunion.kernels.shares import add_shares
from dpunion.plans import Plan, funnel_shape
from dpunion.randomness import Purpose, RunKey

Bools = npt.NDArray[np.bool_]


def select_by_funnel(plan: Plan, algorithm: Funnel, contributions: Contributions, key: RunKey) -> Int64s:
    """Run Funnel: return the numbers of the items to release (docs/guarantees-funnel.md).

    Guarantees:
    - each user's items are those drawn once, before round 1;
    - given the public scores, one user moves round r's weights by at most the round's budget;
    - each item's noise of each round is a function of the run key, the round and the item's bytes;
    - an item kept by nobody is never released, and scores never leave this function.
    """
    shape = funnel_shape(algorithm)
    caps, rest = shape.caps_in_budget
    digests = contributions.table.digests
    alive = np.zeros(len(contributions.table), np.bool_)
    alive[contributions.items] = True
    scores = np.zeros(len(alive))
    offsets, items = contributions.offsets, contributions.items
    for number, (one, left) in enumerate(zip(plan.rounds, shape.remaining, strict=True)):
        targets = funnel_targets(plan, scores, one.budget / left)
        gaps = targets.copy()
        cap = algorithm.item_cap * one.budget
        radius, whole = (one.budget, 0) if rest > 0.0 else (math.sqrt(caps) * cap, caps)
        descend_ball(offsets, items, gaps, radius, cap, whole)
        living = np.flatnonzero(alive)
        weights = (targets - gaps)[living]
        noise = key.normals(number, digests[living])
        scores[living] += one.budget * (weights + one.stddev * noise)
        alive[living] = scores[living] > one.threshold
        if number + 1 < len(plan.rounds):
            offsets, items = narrow(offsets, items, alive)
    return np.flatnonzero(alive)


def funnel_targets(plan: Plan, scores: Float64s, share: float) -> Float64s:
    """Return what each item should get in this round: its need up to the cutoff, times the round's share of it."""
    if plan.cutoff is None:
        raise AssertionError("a funnel without a cutoff")
    targets: Float64s = np.maximum(0.0, plan.cutoff - scores) * share
    return targets


def narrow(offsets: Int64s, items: Int32s, alive: Bools) -> tuple[Int64s, Int32s]:
    """Drop what is no longer alive from every set; the users stay in their order.

    Visiting the smallest remaining sets first again was measured and gains nothing.

    Guarantees: a user's new set is a function of the user's old one and the public `alive`.
    """
    kept = np.empty(len(items), np.int32)
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
