"""Examples that the search finds: measured, shrunk until people can read them, and written as plain text."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from dpunion.contributions import Float64s, Int32s
from dpunion.report.tables import lay_out
from dpunion_lab.audit.policies import Subject

# A violation must exceed the claim by more than the rounding of a few thousand updates.
TOLERANCE = 1e-7
# A shrunk violation keeps this share of its excess over the claim, but needs no more than the second number,
# relative to the claim.
KEPT_EXCESS, PLAIN_EXCESS = 0.5, 0.02


@dataclass(frozen=True, slots=True, eq=False)
class PairExample:
    """Two histograms and one user. before, after: the distance of the histograms before and after the user's update.

    one, other: float64[n]; items: int32[k].
    """

    one: Float64s
    other: Float64s
    items: Int32s
    before: float
    after: float
    attack: str

    @classmethod
    def of(cls, subject: Subject, one: Float64s, other: Float64s, items: Int32s, attack: str) -> Self:
        """Measure the pair."""
        after = subject.distance(subject.policy(one, items), subject.policy(other, items))
        return cls(one, other, items, subject.distance(one, other), after, attack)

    @property
    def score(self) -> float:
        """Return the expansion: above 1, the distance grew."""
        return self.after / self.before if self.before > 0.0 else (np.inf if self.after > 0.0 else 0.0)

    def violates(self, _subject: Subject) -> bool:
        """Say whether the distance grew by more than rounding."""
        return self.score > 1.0 + TOLERANCE


@dataclass(frozen=True, slots=True, eq=False)
class StepExample:
    """One histogram and one user who moved it by `moved`. weights: float64[n]; items: int32[k]."""

    weights: Float64s
    items: Int32s
    moved: float
    attack: str

    @classmethod
    def of(cls, subject: Subject, weights: Float64s, items: Int32s, attack: str) -> Self:
        """Measure the step."""
        return cls(weights, items, subject.distance(subject.policy(weights, items), weights), attack)

    @property
    def score(self) -> float:
        """Return how far the user moved the histogram."""
        return self.moved

    def violates(self, subject: Subject) -> bool:
        """Say whether the user moved the histogram further than claimed."""
        return self.moved > subject.budget * (1.0 + TOLERANCE)


@dataclass(frozen=True, slots=True, eq=False)
class SequenceExample:
    """Users in order, from the empty histogram. distance: between the results with and without the user `extra`.

    before, after: the users before and after the extra one, int32[k] each. size: the number of items.
    """

    before: tuple[Int32s, ...]
    extra: Int32s
    after: tuple[Int32s, ...]
    size: int
    distance: float
    attack: str

    @classmethod
    def of(
        cls,
        subject: Subject,
        before: tuple[Int32s, ...],
        extra: Int32s,
        after: tuple[Int32s, ...],
        size: int,
        attack: str,
    ) -> Self:
        """Run both worlds and measure their distance."""
        with_extra, without = histograms(subject, before, extra, after, size)
        return cls(before, extra, after, size, subject.distance(with_extra, without), attack)

    @property
    def score(self) -> float:
        """Return the distance that one user made."""
        return self.distance

    def violates(self, subject: Subject) -> bool:
        """Say whether one user made a larger difference than claimed."""
        return self.distance > subject.budget * (1.0 + TOLERANCE)

    @property
    def users(self) -> int:
        """Return the number of users, with the extra one."""
        return len(self.before) + 1 + len(self.after)

    @property
    def largest(self) -> int:
        """Return the size of the largest user's set."""
        return max(len(items) for items in (*self.before, self.extra, *self.after))


Example = PairExample | StepExample | SequenceExample


def histograms(
    subject: Subject, before: tuple[Int32s, ...], extra: Int32s, after: tuple[Int32s, ...], size: int
) -> tuple[Float64s, Float64s]:
    """Return the histogram with and without the extra user, float64[size] each."""
    common = subject.after(np.zeros(size), list(before))
    later = list(after)
    return subject.after(subject.policy(common, extra), later), subject.after(common, later)


# --- shrinking: fewer users, fewer items, rounder numbers, still a violation ----------------------------------


def kept_level(score: float, claim: float) -> float:
    """Return the score that a shrunk example must keep."""
    return claim + min(KEPT_EXCESS * (score - claim), PLAIN_EXCESS * claim)


def shrink_sequence(subject: Subject, example: SequenceExample, *, seconds: float = 10.0) -> SequenceExample:
    """Remove users and items while the sequence still violates the claim."""
    level = kept_level(example.distance, subject.budget)
    deadline = time.monotonic() + seconds

    def good(candidate: SequenceExample) -> bool:
        return candidate.distance >= level

    best = example
    while True:
        start = best
        best = _remove_users(subject, best, good, deadline)
        best = _remove_items(subject, best, good, deadline)
        best = _shrink_users(subject, best, good, deadline)
        if best is start or time.monotonic() > deadline:
            return _renumber(subject, best)


def _remove_users(
    subject: Subject, best: SequenceExample, good: Callable[[SequenceExample], bool], deadline: float
) -> SequenceExample:
    """Remove runs of users, long runs first (delta debugging)."""
    run = max(1, (len(best.before) + len(best.after)) // 2)
    while run >= 1:
        place = 0
        while place < len(best.before) + len(best.after) and time.monotonic() < deadline:
            split = len(best.before)
            users = [*best.before, *best.after]
            before = tuple(users[i] for i in range(split) if not place <= i < place + run)
            after = tuple(users[i] for i in range(split, len(users)) if not place <= i < place + run)
            candidate = SequenceExample.of(subject, before, best.extra, after, best.size, best.attack)
            if good(candidate):
                best = candidate
            else:
                place += run
        run //= 2
    return best


def _remove_items(
    subject: Subject, best: SequenceExample, good: Callable[[SequenceExample], bool], deadline: float
) -> SequenceExample:
    """Remove runs of items from all users, and users without items."""
    run = max(1, best.size // 2)
    while run >= 1:
        for first in range(0, best.size, run):
            if time.monotonic() > deadline:
                return best
            candidate = _take_items(subject, best, first, first + run)
            if candidate is not None and good(candidate):
                best = candidate
        run //= 2
    return best


def _take_items(subject: Subject, example: SequenceExample, first: int, last: int) -> SequenceExample | None:
    def left(items: Int32s) -> Int32s:
        return items[(items < first) | (items >= last)]

    held = np.concatenate([*example.before, example.extra, *example.after])
    if len(left(example.extra)) == 0 or not np.any((held >= first) & (held < last)):
        return None
    before = tuple(kept for kept in map(left, example.before) if len(kept))
    after = tuple(kept for kept in map(left, example.after) if len(kept))
    return SequenceExample.of(subject, before, left(example.extra), after, example.size, example.attack)


def _shrink_users(
    subject: Subject, best: SequenceExample, good: Callable[[SequenceExample], bool], deadline: float
) -> SequenceExample:
    """Remove single items from single users."""
    split = len(best.before)
    place = 0
    while place < best.users:
        users = [*best.before, best.extra, *best.after]
        for item in users[place]:
            if len(users[place]) == 1 or time.monotonic() > deadline:
                break
            fewer = users.copy()
            fewer[place] = users[place][users[place] != item]
            candidate = SequenceExample.of(
                subject, tuple(fewer[:split]), fewer[split], tuple(fewer[split + 1 :]), best.size, best.attack
            )
            if good(candidate):
                best, users = candidate, fewer
        place += 1
    return best


def _renumber(subject: Subject, example: SequenceExample) -> SequenceExample:
    """Number the remaining items 0, 1, ..., unless that changes the distance: targets may depend on the number."""
    held = np.unique(np.concatenate([*example.before, example.extra, *example.after]))

    def renumber(items: Int32s) -> Int32s:
        return np.searchsorted(held, items).astype(np.int32)

    candidate = SequenceExample.of(
        subject,
        tuple(map(renumber, example.before)),
        renumber(example.extra),
        tuple(map(renumber, example.after)),
        len(held),
        example.attack,
    )
    return candidate if abs(candidate.distance - example.distance) <= 1e-9 else example


def shrink_pair(subject: Subject, example: PairExample) -> PairExample:
    """Return a pair with fewer items and rounder numbers whose distance still grows."""
    level = kept_level(example.score, 1.0)
    best = example
    # A large difference is easier to read than one in the fourth digit.
    for stretch in (1000.0, 100.0, 10.0, 3.0):
        best = _better_pair(subject, best, best.one, best.one + stretch * (best.other - best.one), best.items, level)
    for item in range(len(example.one)):
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
    subject: Subject, best: PairExample, one: Float64s, other: Float64s, items: Int32s, level: float
) -> PairExample:
    if subject.distance(one, other) <= 1e-3 * subject.budget:
        return best
    states = np.concatenate([one, other])
    inside = bool(np.all((states >= 0.0) & (states <= subject.cutoff)))
    candidate = PairExample.of(subject, one, other, items, best.attack)
    return candidate if inside and candidate.score >= level else best


def _compact_pair(subject: Subject, example: PairExample) -> PairExample:
    """Drop items that the user does not have and that do not differ, unless that changes the score."""
    used = np.zeros(len(example.one), np.bool_)
    used[example.items] = True
    used |= example.one != example.other
    places = np.flatnonzero(used)
    items = np.searchsorted(places, example.items).astype(np.int32)
    candidate = PairExample.of(subject, example.one[places], example.other[places], items, example.attack)
    return candidate if abs(candidate.score - example.score) <= 1e-9 else example


def shrink_step(subject: Subject, example: StepExample) -> StepExample:
    """Return an update with fewer items and rounder numbers that still goes too far."""
    level = kept_level(example.moved, subject.budget)
    best = example
    for item in example.items:
        if len(best.items) > 1:
            candidate = StepExample.of(subject, best.weights, best.items[best.items != item], best.attack)
            best = candidate if candidate.moved >= level else best
    for digits in range(4):
        candidate = StepExample.of(subject, np.round(best.weights, digits), best.items, best.attack)
        if candidate.moved >= level:
            return candidate
    return best


# --- as text: small tables and bars for terminals and bug reports -----------------------------------------------

BAR = 24
# Longer lists of users than this many items are summed up.
LISTED_ITEMS = 40


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write rows below a head, with the first column aligned left and the others right."""
    lines = [line.rstrip() for line in lay_out([head, *rows], [at == 0 for at in range(len(head))])]
    lines.insert(1, "-" * max(len(line) for line in lines))
    return "\n".join(lines)


def bar(value: float, largest: float) -> str:
    """Draw a number as a bar; the largest number has the full length."""
    length = round(BAR * abs(value) / largest) if largest > 0.0 else 0
    return ("+" if value > 0 else "-") * max(length, 1 if value != 0.0 else 0)


def item_name(item: int) -> str:
    """Return the name of an item: A..Z, then A1..Z1, and so on."""
    turn, letter = divmod(item, 26)
    return chr(ord("A") + letter) + (str(turn) if turn else "")


def user_name(items: Int32s) -> str:
    """Write a user's items as a set."""
    return "{" + ", ".join(item_name(int(item)) for item in items) + "}"


def users_text(users: Sequence[Int32s]) -> str:
    """List users in order, with runs of equal users together, or sum up their sets if the list is too long."""
    if not users:
        return "nobody"
    runs: list[tuple[int, Int32s]] = []
    for items in users:
        if runs and np.array_equal(runs[-1][1], items):
            runs[-1] = (runs[-1][0] + 1, items)
        else:
            runs.append((1, items))
    if sum(len(items) for _, items in runs) <= LISTED_ITEMS:
        return ", ".join(f"{count} x {user_name(items)}" if count > 1 else user_name(items) for count, items in runs)
    kinds = Counter((count, len(items)) for count, items in runs)
    return ", ".join(
        f"{sets} set{'s' * (sets > 1)} of {size} item{'s' * (size > 1)} with {count} user{'s' * (count > 1)} each"
        for (count, size), sets in kinds.items()
    )


def pair_text(subject: Subject, example: PairExample) -> str:
    """Write a pair of histograms before and after the update."""
    one, other = subject.policy(example.one, example.items), subject.policy(example.other, example.items)
    differences = np.abs(one - other)
    rows = [
        [
            item_name(i) + (" *" if i in example.items else ""),
            f"{example.one[i]:.4g}",
            f"{example.other[i]:.4g}",
            f"{one[i]:.4f}",
            f"{other[i]:.4f}",
            bar(float(other[i] - one[i]), float(differences.max())).ljust(BAR),
        ]
        for i in range(len(one))
    ]
    norm = subject.norm.value
    return (
        f"Two histograms whose distance grows: {example.before:.4f} before, {example.after:.4f} after ({norm}; "
        f"{example.score:.3f} times as far), found by {example.attack}; the user has the items marked *.\n"
        + table(["item", "H", "H'", "H after", "H' after", "H' - H after".ljust(BAR)], rows)
    )


def step_text(subject: Subject, example: StepExample) -> str:
    """Write one update that went too far."""
    moved = subject.policy(example.weights, example.items)
    rows = [
        [item_name(i) + (" *" if i in example.items else ""), f"{example.weights[i]:.4g}", f"{moved[i]:.4f}"]
        for i in range(len(moved))
    ]
    return (
        f"One user moves a histogram by {example.moved:.4f} ({subject.norm.value}) where {subject.budget:g} is "
        f"claimed, found by {example.attack}; the user has the items marked *.\n"
        + table(["item", "H", "H after"], rows)
    )


def sequence_text(subject: Subject, example: SequenceExample) -> str:
    """Write a sequence of users and both resulting histograms; items with equal weights share a row."""
    with_extra, without = histograms(subject, example.before, example.extra, example.after, example.size)
    held = np.unique(np.concatenate([*example.before, example.extra, *example.after]))
    weights = np.round(np.stack([with_extra[held], without[held]], axis=1), 9)
    kinds, members = np.unique(weights, axis=0, return_inverse=True)
    gaps = kinds[:, 0] - kinds[:, 1]
    rows = []
    for number, (one, other) in enumerate(kinds):
        items = held[members.reshape(-1) == number]
        name = ", ".join(map(item_name, items)) if len(items) <= 4 else f"{len(items)} items"
        rows.append(
            [name, f"{one:.4f}", f"{other:.4f}", bar(float(gaps[number]), float(np.abs(gaps).max())).ljust(BAR)]
        )
    extra = user_name(example.extra) if len(example.extra) <= 20 else f"one user with {len(example.extra)} items"
    return (
        f"One user changes the histogram by {example.distance:.4f} ({subject.norm.value}) where {subject.budget:g} is "
        f"claimed: {example.users} users, {len(held)} items, at most {example.largest} per user, found by "
        f"{example.attack}.\n"
        f"  first:          {users_text(example.before)}\n"
        f"  then, or not:   {extra}\n"
        f"  then:           {users_text(example.after)}\n"
        + table(["item", "with", "without", "difference".ljust(BAR)], rows)
    )
