"""One run of Funnel round by round: how many items pass, are dropped and go on, and where people's weight went.

NOT PRIVATE: for study on public or generated data.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dpunion.algorithms import Funnel
from dpunion.budget import Budget
from dpunion.contributions import Float64s
from dpunion.mechanisms import State, mechanism_for
from dpunion.plans import Plan, plan_release
from dpunion.report.tables import Table
from dpunion.requests import Progress
from dpunion.sets.grouping import bound_again
from dpunion.sets.narrowing import Sets
from dpunion_lab.data import LabData, load
from dpunion_lab.figures import NOT_PRIVATE
from dpunion_lab.trials import trial_key

WIDTH = 30


@dataclass(frozen=True, slots=True)
class RoundSeen:
    """What a round did: items that took part, passed, were dropped; parts of the weight by what became of the items."""

    number: int
    items: int
    passed: int
    dropped: int
    to_released: float

    @property
    def going_on(self) -> int:
        """Return how many items go on."""
        return self.items - self.passed - self.dropped


@dataclass(frozen=True, slots=True)
class RoundsSeen:
    """All rounds of one run."""

    data: dict[str, Any]
    plan: Plan
    rounds: tuple[RoundSeen, ...]

    @property
    def released(self) -> int:
        """Return how many items came out."""
        return sum(one.passed for one in self.rounds)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain values."""
        rounds = [asdict(one) | {"going_on": one.going_on} for one in self.rounds]
        values = {"warning": NOT_PRIVATE, "data": self.data, "plan": self.plan.to_dict()}
        return values | {"rounds": rounds, "released": self.released}

    def table(self) -> Table:
        """Lay the rounds out, with a bar for the weight that went to what came out in the end."""
        rows = tuple(
            (
                str(one.number),
                one.items,
                one.passed,
                one.dropped,
                one.going_on,
                f"{one.to_released:.0%}",
                weight_bar(one),
            )
            for one in self.rounds
        )
        note = (
            f"{self.released:,} items came out. Weight: the part of what people gave in the round that went to items "
            "which came out in it or later; the rest went to items that were dropped."
        )
        columns = ("round", "items", "passed", "dropped", "go on", "weight", "")
        return Table(f"One run of Funnel on {self.data['name']}", columns, rows, note)


def weight_bar(one: RoundSeen) -> str:
    """Draw the part of the weight that went to what came out."""
    filled = round(WIDTH * one.to_released)
    return "#" * filled + "." * (WIDTH - filled)


def watch_rounds(
    source: Any, algorithm: Funnel, budget: Budget, *, progress: Progress | None = None, **asked: Any
) -> RoundsSeen:
    """Run Funnel once on data for study, under the key of the first trial, and note what each round does."""
    data, plan = load(source, progress=progress, **asked), plan_release(algorithm, budget)
    return RoundsSeen(data.facts, plan, seen_in(data, plan))


def seen_in(data: LabData, plan: Plan) -> tuple[RoundSeen, ...]:
    """Run the rounds of a plan as a release does, and count."""
    mechanism, key = mechanism_for(plan), trial_key(0)
    sets = Sets(bound_again(data.everything, mechanism.bounding, key))
    state = State.start(len(sets))
    counts: list[tuple[int, int, int]] = []
    gifts: list[Float64s] = []
    for number in range(mechanism.rounds):
        part = sets.held if number == 0 else state.alive & ~state.released
        if number:
            sets.narrow(part)
        before = int(state.released.sum())
        weights = mechanism.weigh(sets, state, number, key)
        state = mechanism.decide(weights, state, number, sets.digests, key)
        gifts.append(np.where(part, weights.values, 0.0))
        passed = int(state.released.sum()) - before
        counts.append((int(part.sum()), passed, int(part.sum()) - passed - int((state.alive & ~state.released).sum())))
    parts = [float(given[state.released].sum() / max(given.sum(), 1e-300)) for given in gifts]
    return tuple(RoundSeen(at + 1, *count, part) for at, (count, part) in enumerate(zip(counts, parts, strict=True)))
