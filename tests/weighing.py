"""One round of a planned algorithm on contributions, for tests that look at weights; and Funnel's novelty bounds."""

import numpy as np

from dpunion.calibration.novelty import FINE, WalkNovelty, largest_gifts
from dpunion.mechanisms import State, mechanism_for
from dpunion.randomness import RunKey
from dpunion.sets.narrowing import Sets

KEY = RunKey.for_tests(1)


def weigh(plan, data, key=KEY, number=0, scores=None):
    """Return the weights of one round, given public scores (none: those before the first round)."""
    return weigh_by(mechanism_for(plan), data, key, number, scores)


def weigh_by(mechanism, data, key=KEY, number=0, scores=None):
    state = State.start(len(data.table))
    if scores is not None:
        state.scores = scores
    return mechanism.weigh(Sets(data), state, number, key)


def novelty_bounds(stddev, threshold, shape, *, cells=FINE):
    """Return p_t for t = 0..max_items_per_user: a bound on the chance that one of t novel items is released.

    float64[max_items_per_user + 1], p_0 = 0 (docs/guarantees-funnel.md, Theorem B).
    """
    novel = np.arange(1, shape.max_items_per_user + 1)
    bound = WalkNovelty(stddev, threshold, shape, cells)
    return np.concatenate(([0.0], bound.at(novel, largest_gifts(stddev, threshold, shape))))
