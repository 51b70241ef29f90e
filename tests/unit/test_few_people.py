"""Counts where the noise hides how many items people have: nobody is cut then."""

import numpy as np
import pytest

from dpunion.counting.estimates import LEAST_SUM, ROOM, Popularity, choose_allowance
from dpunion.counting.steps import ONE, MarksStep
from dpunion.plans.counts import CountsPlan

PLAN = CountsPlan(0.1, rough=40.0, marks=80.0, fine=15.0)


def choose_for(*sums):
    popularity = Popularity.of((np.array(sums, np.float64) * ONE).astype(np.int64), PLAN)
    step = MarksStep(popularity.units)
    return choose_allowance(popularity, step, np.zeros(step.length), PLAN)


@pytest.mark.parametrize("sums", [[-10.0, 30.0, 500.0], [*[-10.0, 30.0] * 50, 500.0]])
def test_items_get_what_people_with_all_of_them_can_give(sums):
    chosen = choose_for(*sums)
    squares = (chosen.weights / ONE) ** 2
    assert squares.sum() == pytest.approx(ROOM, rel=1e-4)
    assert squares[-1] == pytest.approx(squares[0] * LEAST_SUM * PLAN.rough / 500.0, rel=1e-3)
    assert chosen.cut == 0.0
    assert not chosen.lost.any()


def test_an_empty_list_has_no_weights():
    assert len(choose_for().weights) == 0
