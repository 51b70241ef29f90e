"""One round of a planned algorithm on contributions, for tests that look at weights."""

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
