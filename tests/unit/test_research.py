"""The published policies that are not private: the counterexamples, from the empty histogram."""

import numpy as np
import pytest

from dpunion.kernels.descent import descend_l2
from dpunion_lab.study import descend_l1_with_l2_budget, fill_greedily, fill_in_order


def weights_by(update, offsets, items, item_count, cutoff):
    weights = np.zeros(item_count)
    update(offsets, items, weights, cutoff, 1.0)
    return weights


def groups_and_an_extra_user(extra: bool):
    """Six users {A_ij} for each of 80 items; maybe one user with all 90; one user {A_i1..A_i8, B_i} per group."""
    users = [[group * 9 + j] for group in range(10) for j in range(8) for _ in range(6)]
    if extra:
        users.append(list(range(90)))
    users += [[group * 9 + j for j in range(9)] for group in range(10)]
    offsets = np.concatenate([[0], np.cumsum([len(items) for items in users])])
    return offsets.astype(np.int64), np.array([item for items in users for item in items], np.int32)


def distance(policy_weights):
    with_extra, without = (policy_weights(*groups_and_an_extra_user(extra)) for extra in (True, False))
    return float(np.linalg.norm(with_extra - without))


def test_l1_descent_with_an_l2_budget_moves_neighbours_1_697_apart():
    moved = distance(lambda o, i: weights_by(descend_l1_with_l2_budget, o, i, 90, 6.0 + 1.0 / 3.0))
    assert 1.69 <= moved <= 1.70


def test_l2_descent_does_not():
    assert distance(lambda o, i: weights_by(descend_l2, o, i, 90, 6.0 + 1.0 / 3.0)) <= 1.0 + 1e-12  # rounding


def test_one_step_of_l1_descent_with_an_l2_budget_expands():
    """x = (9.3, 0), x' = (9.4, 0.1): 0.141 apart before the update, 0.186 after, with the cutoff at 10."""
    offsets, items = np.array([0, 2], np.int64), np.array([0, 1], np.int32)
    after = [np.array([9.3, 0.0]), np.array([9.4, 0.1])]
    for histogram in after:
        descend_l1_with_l2_budget(offsets, items, histogram, 10.0, 1.0)
    assert np.linalg.norm(after[0] - after[1]) == pytest.approx(0.186, abs=5e-4)


def test_greedy_redirects_every_later_user():
    """All later users hold both items; greedy follows whoever came first, so each widens the gap by 2."""
    later = 5

    def weights(extra):
        users = ([[1]] if extra else []) + [[0, 1]] * later
        offsets = np.concatenate([[0], np.cumsum([len(items) for items in users])]).astype(np.int64)
        return weights_by(fill_greedily, offsets, np.array([i for u in users for i in u], np.int32), 2, 10.0)

    assert np.abs(weights(extra=True) - weights(extra=False)).sum() == pytest.approx(2 * later + 1)


def test_gw_exposes_items_of_others():
    """Two more users fill the first item of all others, who then turn to items nobody had given weight before."""

    def support(extra):
        users = ([[0], [0]] if extra else []) + [[0, 1], [0, 2], [0, 3]]
        offsets = np.concatenate([[0], np.cumsum([len(items) for items in users])]).astype(np.int64)
        weights = weights_by(fill_in_order, offsets, np.array([i for u in users for i in u], np.int32), 4, 2.0)
        return set(np.flatnonzero(weights).tolist())

    assert support(extra=True) - support(extra=False) == {1, 2}
