"""Make what was found small enough to read: fewer users, fewer items, rounder numbers, still a violation."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from dpunion.audit.findings import PairFinding, SequenceFinding, StepFinding
from dpunion.audit.policies import Subject
from dpunion.contributions import Float64s, Int32s

# What is left of a violation when it is shrunk: at least this part of its excess over the claim ...
KEPT_EXCESS = 0.5
# ... unless that is more than this, relative to the claim: a plain violation is enough.
PLAIN_EXCESS = 0.02


def kept_level(score: float, claim: float) -> float:
    """Return the score that a shrunk example must keep."""
    return claim + min(KEPT_EXCESS * (score - claim), PLAIN_EXCESS * claim)


def shrink_sequence(subject: Subject, finding: SequenceFinding, *, seconds: float = 10.0) -> SequenceFinding:
    """Return a sequence with as few users and items as simple removals reach, still beyond the claim."""
    level = kept_level(finding.distance, subject.budget)
    deadline = time.monotonic() + seconds

    def good(candidate: SequenceFinding) -> bool:
        return candidate.distance >= level

    best = finding
    while True:
        start = best
        best = _without_users(subject, best, good, deadline)
        best = _without_items(subject, best, good, deadline)
        best = _smaller_users(subject, best, good, deadline)
        if best is start or time.monotonic() > deadline:
            return _renumbered(subject, best)


def _without_users(
    subject: Subject, best: SequenceFinding, good: Callable[[SequenceFinding], bool], deadline: float
) -> SequenceFinding:
    """Leave out runs of users, long runs first (delta debugging)."""
    run = max(1, (len(best.before) + len(best.after)) // 2)
    while run >= 1:
        place = 0
        while place < len(best.before) + len(best.after) and time.monotonic() < deadline:
            split = len(best.before)
            users = [*best.before, *best.after]
            before = tuple(users[i] for i in range(split) if not place <= i < place + run)
            after = tuple(users[i] for i in range(split, len(users)) if not place <= i < place + run)
            candidate = SequenceFinding.of(subject, before, best.extra, after, best.size, best.attack)
            if good(candidate):
                best = candidate
            else:
                place += run
        run //= 2
    return best


def _without_items(
    subject: Subject, best: SequenceFinding, good: Callable[[SequenceFinding], bool], deadline: float
) -> SequenceFinding:
    """Take runs of items from everybody; users left with nothing go."""
    run = max(1, best.size // 2)
    while run >= 1:
        for first in range(0, best.size, run):
            if time.monotonic() > deadline:
                return best
            candidate = _taken(subject, best, first, first + run)
            if candidate is not None and good(candidate):
                best = candidate
        run //= 2
    return best


def _taken(subject: Subject, finding: SequenceFinding, first: int, last: int) -> SequenceFinding | None:
    def left(items: Int32s) -> Int32s:
        return items[(items < first) | (items >= last)]

    held = np.concatenate([*finding.before, finding.extra, *finding.after])
    if len(left(finding.extra)) == 0 or not np.any((held >= first) & (held < last)):
        return None
    before = tuple(kept for kept in map(left, finding.before) if len(kept))
    after = tuple(kept for kept in map(left, finding.after) if len(kept))
    return SequenceFinding.of(subject, before, left(finding.extra), after, finding.size, finding.attack)


def _smaller_users(
    subject: Subject, best: SequenceFinding, good: Callable[[SequenceFinding], bool], deadline: float
) -> SequenceFinding:
    """Take single items from single users."""
    split = len(best.before)
    place = 0
    while place < best.users:
        users = [*best.before, best.extra, *best.after]
        for item in users[place]:
            if len(users[place]) == 1 or time.monotonic() > deadline:
                break
            fewer = users.copy()
            fewer[place] = users[place][users[place] != item]
            candidate = SequenceFinding.of(
                subject, tuple(fewer[:split]), fewer[split], tuple(fewer[split + 1 :]), best.size, best.attack
            )
            if good(candidate):
                best, users = candidate, fewer
        place += 1
    return best


def _renumbered(subject: Subject, finding: SequenceFinding) -> SequenceFinding:
    """Number the items that are left 0, 1, ...; policies whose targets depend on the number keep the old ones."""
    held = np.unique(np.concatenate([*finding.before, finding.extra, *finding.after]))

    def renumber(items: Int32s) -> Int32s:
        return np.searchsorted(held, items).astype(np.int32)

    candidate = SequenceFinding.of(
        subject,
        tuple(map(renumber, finding.before)),
        renumber(finding.extra),
        tuple(map(renumber, finding.after)),
        len(held),
        finding.attack,
    )
    return candidate if abs(candidate.distance - finding.distance) <= 1e-9 else finding


def shrink_pair(subject: Subject, finding: PairFinding) -> PairFinding:
    """Return a pair with fewer items and rounder numbers that still moves apart."""
    level = kept_level(finding.score, 1.0)
    best = finding
    # A difference that can be seen reads better than one in the fourth digit.
    for stretch in (1000.0, 100.0, 10.0, 3.0):
        best = _better_pair(subject, best, best.one, best.one + stretch * (best.other - best.one), best.items, level)
    for item in range(len(finding.one)):
        for one, other in (
            (_at(best.one, item, 0.0), _at(best.other, item, 0.0)),
            (best.one, _at(best.other, item, float(best.one[item]))),
        ):
            best = _better_pair(subject, best, one, other, best.items, level)
        if len(best.items) > 1 and item in best.items:
            best = _better_pair(subject, best, best.one, best.other, best.items[best.items != item], level)
    for digits in range(4):
        rounded = _better_pair(
            subject, best, np.round(best.one, digits), np.round(best.other, digits), best.items, level
        )
        if rounded is not best:
            return _compact_pair(subject, rounded)
    return _compact_pair(subject, best)


def _at(weights: Float64s, item: int, value: float) -> Float64s:
    changed = weights.copy()
    changed[item] = value
    return changed


def _better_pair(
    subject: Subject, best: PairFinding, one: Float64s, other: Float64s, items: Int32s, level: float
) -> PairFinding:
    if subject.distance(one, other) <= 1e-3 * subject.budget:
        return best
    states = np.concatenate([one, other])
    inside = bool(np.all((states >= 0.0) & (states <= subject.cutoff)))
    candidate = PairFinding.of(subject, one, other, items, best.attack)
    return candidate if inside and candidate.score >= level else best


def _compact_pair(subject: Subject, finding: PairFinding) -> PairFinding:
    """Drop items that the user does not hold and that do not differ, where the numbering does not matter."""
    used = np.zeros(len(finding.one), np.bool_)
    used[finding.items] = True
    used |= finding.one != finding.other
    places = np.flatnonzero(used)
    items = np.searchsorted(places, finding.items).astype(np.int32)
    candidate = PairFinding.of(subject, finding.one[places], finding.other[places], items, finding.attack)
    return candidate if abs(candidate.score - finding.score) <= 1e-9 else finding


def shrink_step(subject: Subject, finding: StepFinding) -> StepFinding:
    """Return an update with fewer items and rounder numbers that still goes too far."""
    level = kept_level(finding.moved, subject.budget)
    best = finding
    for item in finding.items:
        if len(best.items) > 1:
            candidate = StepFinding.of(subject, best.weights, best.items[best.items != item], best.attack)
            best = candidate if candidate.moved >= level else best
    for digits in range(4):
        candidate = StepFinding.of(subject, np.round(best.weights, digits), best.items, best.attack)
        if candidate.moved >= level:
            return candidate
    return best
