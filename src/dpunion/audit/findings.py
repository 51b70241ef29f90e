"""What the search found: numbers that anyone can recompute with the policy at hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from dpunion.audit.policies import Subject
from dpunion.contributions import Float64s, Int32s

# A violation must exceed the claim by more than float64 rounding in a few thousand updates can.
TOLERANCE = 1e-7


@dataclass(frozen=True, slots=True, eq=False)
class PairFinding:
    """Two histograms and one user. before: how far apart they were; after: how far once the user came along.

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
        """The expansion: above 1 the pair moved apart."""
        return self.after / self.before if self.before > 0.0 else (np.inf if self.after > 0.0 else 0.0)

    def violates(self, _subject: Subject) -> bool:
        """Say whether the pair moved apart by more than rounding."""
        return self.score > 1.0 + TOLERANCE


@dataclass(frozen=True, slots=True, eq=False)
class StepFinding:
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
        """How far one user moved the histogram."""
        return self.moved

    def violates(self, subject: Subject) -> bool:
        """Say whether the user moved the histogram further than claimed."""
        return self.moved > subject.budget * (1.0 + TOLERANCE)


@dataclass(frozen=True, slots=True, eq=False)
class SequenceFinding:
    """Users in order, from the empty histogram: with and without `extra` the results are `distance` apart.

    before, after: the users who come before and after the extra one, int32[k] each; size: the number of items.
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
        """Run both worlds; what comes before the extra user is the same in both."""
        with_extra, without = histograms(subject, before, extra, after, size)
        return cls(before, extra, after, size, subject.distance(with_extra, without), attack)

    @property
    def score(self) -> float:
        """How far apart one user left the two histograms."""
        return self.distance

    def violates(self, subject: Subject) -> bool:
        """Say whether one user made more difference than claimed."""
        return self.distance > subject.budget * (1.0 + TOLERANCE)

    @property
    def users(self) -> int:
        """The number of users, the extra one included."""
        return len(self.before) + 1 + len(self.after)

    @property
    def largest(self) -> int:
        """The most items that one user holds."""
        return max(len(items) for items in (*self.before, self.extra, *self.after))


Finding = PairFinding | StepFinding | SequenceFinding


def histograms(
    subject: Subject, before: tuple[Int32s, ...], extra: Int32s, after: tuple[Int32s, ...], size: int
) -> tuple[Float64s, Float64s]:
    """Return the histogram with and without the extra user, float64[size] each."""
    common = subject.after(np.zeros(size), list(before))
    later = list(after)
    return subject.after(subject.policy(common, extra), later), subject.after(common, later)
