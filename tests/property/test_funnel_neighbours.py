"""Funnel, round by round: given the same public scores, one user moves the weights by at most the round's budget.

The engine itself runs, with its kernel wrapped: the wrapper keeps the weights that the kernel gave and then puts
public numbers in their place, so that the scores after the round are the same with and without the user.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import contributions, databases, names

from dpunion import mechanisms
from dpunion.algorithms import Funnel
from dpunion.budget import Budget
from dpunion.engines.local import run_rounds
from dpunion.plans import plan_release
from dpunion.randomness import RunKey

FUNNELS = {
    "default": Funnel(max_items_per_user=12),
    "tight limit": Funnel(max_items_per_user=3),
    "three rounds": Funnel(max_items_per_user=12, rounds=3, keep_margin=0.5),
    "even": Funnel(max_items_per_user=12, rounds=4, first_share=0.25, haste=1.0),
    "hasty": Funnel(max_items_per_user=12, rounds=8, first_share=0.15, haste=20.0),
    "random order": Funnel(max_items_per_user=12, user_order="random", first_share=0.5, rounds=2),
}
PLANS = {name: plan_release(funnel, Budget(1.0, 0.01)) for name, funnel in FUNNELS.items()}
KEY = RunKey.for_tests(3)


class Recorder:
    """Stands in for the kernel: remembers each round's weights by item name, and hands on public ones."""

    def __init__(self, data, seed, plan):
        self.step = 0.1 * plan.threshold
        self.labels = names(data.table)
        self.seed = seed
        self.rounds = []

    def __call__(self, offsets, items, gaps, radius):
        targets = gaps.copy()
        KERNEL(offsets, items, gaps, radius)
        weights = targets - gaps
        assert np.all(weights >= 0.0)
        self.rounds.append((radius, dict(zip(self.labels, weights.tolist(), strict=True))))
        # Some items rise fast and pass, some fall below the line: what lives on varies from round to round.
        public = [self.public_weight(label) for label in self.labels]
        gaps[:] = targets - np.array(public)

    def public_weight(self, label):
        return self.step * ((sum(label.encode()) * 7 + len(self.rounds) * 5 + self.seed) % 11 - 2)


KERNEL = mechanisms.descend_ball


def recorded(name, database, seed, patched):
    plan = PLANS[name]
    data = contributions(database, KEY, FUNNELS[name].bounding.limit, FUNNELS[name].bounding.order)
    recorder = Recorder(data, seed, plan)
    patched.setattr(mechanisms, "descend_ball", recorder)
    run_rounds(mechanisms.mechanism_for(plan), data, KEY)
    held = {recorder.labels[item] for item in data.items}
    return recorder.rounds, held


@pytest.mark.parametrize("name", FUNNELS)
@settings(max_examples=40)
@given(database=databases, seed=st.integers(0, 10))
def test_one_user_moves_each_rounds_weights_by_at_most_its_budget(name, database, seed):
    slack = PLANS[name].rounding_slack
    limit = FUNNELS[name].max_items_per_user
    with pytest.MonkeyPatch.context() as patched:
        full, full_held = recorded(name, database, seed, patched)
        assert len(full) == FUNNELS[name].rounds
        for user in database:
            rest = {other: items for other, items in database.items() if other != user}
            if not rest:
                continue
            without, held = recorded(name, rest, seed, patched)
            novel = len(full_held - held)
            for number, ((radius, one), (_, other)) in enumerate(zip(full, without, strict=True)):
                moved = {item: weight - other.get(item, 0.0) for item, weight in one.items()}
                assert math.hypot(*moved.values()) <= radius * (1.0 + slack)
                if number == 0:
                    # All targets are equal in round 1: shared items move by at most c_1 sqrt(1 - t/max_items).
                    shared = math.hypot(*[moved[item] for item in moved if item in held])
                    assert shared <= radius * math.sqrt(1.0 - novel / limit) * (1.0 + slack) + 1e-12


def test_the_scores_really_are_the_same_in_both_worlds():
    """The wrapper would prove nothing if later rounds had nothing left, or differing items alive."""
    database = {f"user{i}": {f"item{j}" for j in range(i % 5, 12)} for i in range(8)}
    with pytest.MonkeyPatch.context() as patched:
        full, _ = recorded("default", database, 3, patched)
        without, _ = recorded("default", {u: s for u, s in database.items() if u != "user3"}, 3, patched)
    for number, ((_, one), (_, other)) in enumerate(zip(full, without, strict=True)):
        alive = {item for item, weight in one.items() if weight > 0.0}
        assert alive == {item for item, weight in other.items() if weight > 0.0}
        assert alive
        assert number == 0 or len(alive) < 12
