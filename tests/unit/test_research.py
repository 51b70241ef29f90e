"""The published policies that are not private: the counterexamples, from the empty histogram."""

import numpy as np
import pytest

from dpunion.kernels.descent import descend_l2
from dpunion_lab.study import descend_l1_with_l2_budget, fill_greedily, fill_in_order


def weights_by(update, users, item_count, cutoff):
    weights = np.zeros(item_count)
    offsets = np.cumsum([0, *map(len, users)], dtype=np.int64)
    update(offsets, np.array([item for items in users for item in items], np.int32), weights, cutoff, 1.0)
    return weights


def groups_and_an_extra_user(extra):
    """Six users {A_ij} for each of 80 items; maybe one user with all 90; one user {A_i1..A_i8, B_i} per group."""
    users = [[group * 9 + j] for group in range(10) for j in range(8) for _ in range(6)]
    if extra:
        users.append(list(range(90)))
    return users + [[group * 9 + j for j in range(9)] for group in range(10)]


@pytest.mark.parametrize(
    ("descend", "least", "most"), [(descend_l1_with_l2_budget, 1.69, 1.70), (descend_l2, 0.0, 1.0 + 1e-12)]
)
def test_l1_descent_with_an_l2_budget_moves_neighbours_1_697_apart_and_l2_descent_at_most_1(descend, least, most):
    one, other = (weights_by(descend, groups_and_an_extra_user(extra), 90, 6.0 + 1.0 / 3.0) for extra in (True, False))
    assert least <= float(np.linalg.norm(one - other)) <= most


def test_one_step_of_l1_descent_with_an_l2_budget_expands():
    """x = (9.3, 0), x' = (9.4, 0.1): 0.141 apart before the update, 0.186 after, with the cutoff at 10."""
    offsets, items = np.array([0, 2], np.int64), np.array([0, 1], np.int32)
    after = [np.array([9.3, 0.0]), np.array([9.4, 0.1])]
    for histogram in after:
        descend_l1_with_l2_budget(offsets, items, histogram, 10.0, 1.0)
    assert np.linalg.norm(after[0] - after[1]) == pytest.approx(0.186, abs=5e-4)


def test_greedy_redirects_every_later_user():
    """All later users have both items; greedy follows whoever came first, so each widens the gap by 2."""
    later = 5

    def weights(extra):
        users = ([[1]] if extra else []) + [[0, 1]] * later
        return weights_by(fill_greedily, users, 2, 10.0)

    assert np.abs(weights(extra=True) - weights(extra=False)).sum() == pytest.approx(2 * later + 1)


def test_gw_exposes_items_of_others():
    """Two more users fill the first item of all others, who then turn to items nobody had given weight before."""

    def support(extra):
        users = ([[0], [0]] if extra else []) + [[0, 1], [0, 2], [0, 3]]
        return set(np.flatnonzero(weights_by(fill_in_order, users, 4, 2.0)).tolist())

    assert support(extra=True) - support(extra=False) == {1, 2}
