"""Counts where so few people are there that nobody can be made out: weights, and what is taken for the burdens."""

import numpy as np
import pytest

from dpunion.counting.estimates import FEW, ROOM, TOLD_APART, Popularity, Spread, choose_allowance
from dpunion.counting.steps import LEVELS, MARKS, ONE
from dpunion.counts import CountsPlan

PLAN = CountsPlan(0.1, rough=40.0, spread=80.0, fine=15.0)
NOBODY = Spread(np.zeros(MARKS), np.zeros(MARKS), np.zeros((MARKS, LEVELS)))


def popularity(*sums):
    return Popularity.of((np.array(sums, np.float64) * ONE).astype(np.int64), PLAN)


def test_items_get_what_people_with_a_few_of_them_can_give():
    chosen = choose_allowance(popularity(*[-10.0, 30.0] * 50, 500.0), NOBODY, PLAN)
    squares = (chosen.weights / ONE) ** 2
    assert squares[:100] == pytest.approx(ROOM / FEW, rel=1e-4)
    assert squares[100] == pytest.approx(ROOM / FEW * TOLD_APART * PLAN.rough / 500.0, rel=1e-3)
    assert chosen.cut == 0.0


def test_items_of_a_short_list_get_what_people_with_all_of_them_can_give():
    chosen = choose_allowance(popularity(-10.0, 30.0, 500.0), NOBODY, PLAN)
    squares = (chosen.weights / ONE) ** 2
    assert squares.sum() == pytest.approx(ROOM, rel=1e-4)
    assert squares[2] == pytest.approx(squares[0] * TOLD_APART * PLAN.rough / 500.0, rel=1e-3)
    assert chosen.cut == 0.0


def test_levels_that_nobody_holds_have_burdens_between_their_neighbours():
    levels = popularity(60.0, 60.0 * 4.0**3.5).level_burdens()
    assert list(levels) == sorted(levels, reverse=True)
    assert levels[0] == pytest.approx(1.0 / 60.0)


def test_an_empty_list_has_no_weights():
    assert len(choose_allowance(popularity(), NOBODY, PLAN).weights) == 0
