"""Candidates that nobody has come out as often as planned: by their marks, and by rounds of noise alone."""

import dataclasses
import random
from unittest import mock

import numpy as np
import pytest
from scipy import stats

import dpunion
from dpunion.algorithms import ALGORITHMS, Funnel, Norm, Sensitivity
from dpunion.calibration.composition import walk_tail
from dpunion.mechanisms import MARKS_DRAW, State, Weights, mechanism_for
from dpunion.plans.candidates import WITHOUT_LISTS, add_candidates
from dpunion.randomness import RunKey
from dpunion.reading.known import read_known
from dpunion_lab.audit import exact

ACCEPT = 1e-6
KEY = RunKey.for_tests(11)
FUNNELS = {
    "default": {"max_items_per_user": 300},
    "three items": {"max_items_per_user": 3},
    "two rounds": {"max_items_per_user": 3, "rounds": 2, "first_share": 0.3},
}


def planned(algorithm, error=1e-3):
    return add_candidates(dpunion.plan(algorithm, epsilon=1.0, delta=1e-5), read_known(["a"]), error)


def distinct_digests(count):
    numbers = np.arange(count, dtype=np.uint64)
    return np.stack([numbers, numbers ^ np.uint64(0x5555)], axis=1)


def fits(hits, tosses, chance):
    return stats.binomtest(int(hits), tosses, chance).pvalue > ACCEPT


def test_marks_come_up_as_often_as_planned():
    """Four million candidates that nobody has, against the exact chance and against the chances of mistakes."""
    plan = planned(Funnel(max_items_per_user=300))
    tosses = 4_000_000
    hits = mechanism_for(plan).mark(distinct_digests(tosses), KEY).sum()
    listed, shape = plan.candidates, plan.algorithm.for_listed
    assert fits(hits, tosses, listed.chance)
    for factor in (0.97, 1.03):
        assert not fits(hits, tosses, walk_tail(factor * plan.scale, listed.threshold, shape))


def test_marks_of_several_keys_and_of_the_noise_are_independent():
    chance, tosses = 0.1, 1_000_000
    digests = distinct_digests(tosses)
    one, other = KEY.marks(MARKS_DRAW, digests, chance), RunKey.for_tests(12).marks(MARKS_DRAW, digests, chance)
    noise = KEY.normals(0, digests) > 0.0
    assert fits((one & other).sum(), tosses, chance**2)
    assert fits((one & noise).sum(), tosses, chance / 2.0)
    assert fits((one[1:] & one[:-1]).sum(), tosses - 1, chance**2)


@pytest.mark.parametrize("name", FUNNELS)
def test_rounds_of_noise_alone_release_as_many_as_the_marks(name):
    """Listed items to which nobody gives anything are forced through the rounds."""
    plan = planned(Funnel(**FUNNELS[name]), 0.01)
    mechanism, tosses = mechanism_for(plan), 500_000
    digests = distinct_digests(tosses)
    everywhere = np.ones(tosses, np.bool_)
    state = State.start(tosses, everywhere)
    for number, one in enumerate(plan.rounds):
        held = everywhere if number == 0 else state.alive
        weights = Weights(np.zeros(tosses), 1.0, held, Sensitivity(Norm.L2, one.budget))
        state = mechanism.decide(weights, state, number, digests, KEY)
    walked = state.released.sum()
    assert fits(walked, tosses, plan.candidates.chance)
    assert not fits(walked, tosses, walk_tail(1.05 * plan.scale, plan.candidates.threshold, plan.algorithm.for_listed))
    marked = mechanism.mark(digests, KEY).sum()
    table = [[walked, tosses - walked], [marked, tosses - marked]]
    assert stats.fisher_exact(table).pvalue > ACCEPT


@pytest.mark.parametrize(
    "kind", [kind for kind in ALGORITHMS.values() if kind.name not in {*WITHOUT_LISTS, "funnel"}],
    ids=lambda kind: kind.name,
)  # fmt: skip
def test_coins_without_people_come_up_as_often_as_planned(kind):
    plan = planned(kind(max_items_per_user=3))
    tosses = 1_000_000
    hits = mechanism_for(plan).mark(distinct_digests(tosses), KEY).sum()
    assert fits(hits, tosses, plan.candidates.chance)
    wrong = mechanism_for(dataclasses.replace(plan, scale=1.1 * plan.scale))
    assert not fits(wrong.mark(distinct_digests(tosses), KEY).sum(), tosses, plan.candidates.chance)


WORLDS = 250


def random_world(source, size):
    """Return other people, a person and their place: some candidates only the person has, or nobody."""
    shared = [item for item in range(size) if source.random() < 0.6]
    others = source.choice([0, 1, 2, 4, 8, 16]) if shared else 0
    rest = [tuple(sorted(source.sample(shared, source.randint(1, min(2, len(shared)))))) for _ in range(others)]
    extra = tuple(sorted(source.sample(range(size), source.randint(1, 2))))
    return tuple(rest), extra, source.randint(0, len(rest))


@pytest.mark.parametrize("seed", range(4))
def test_any_shape_and_threshold_for_candidates_keeps_to_delta(seed):
    """Theorem L: lines, aims, cutoffs and thresholds of candidates may be any public numbers, but for round 1."""
    source, worst = random.Random(seed), 0.0
    epsilon, delta = source.choice([(0.3, 1e-3), (1.0, 1e-3), (3.0, 1e-4), (1.0, 1e-2)])
    sizes = {"max_items_per_user": 2, "rounds": 2, "keep_margin": source.choice([0.0, 0.5, 3.0])}
    plan = dpunion.plan(Funnel(**sizes, first_share=source.choice([0.2, 0.5, 0.8])), epsilon=epsilon, delta=delta,
                        weak_budget=True)  # fmt: skip
    plan = add_candidates(plan, read_known(["a"]), 1e-3)
    for _ in range(WORLDS):
        shape = dataclasses.replace(
            plan.algorithm,
            keep_fraction=source.uniform(0.0, 2.0),
            keep_margin=source.uniform(0.0, 4.0),
            cutoff_margin=source.uniform(0.0, 4.0),
            haste=source.uniform(1.0, 6.0),
        )
        threshold = plan.threshold * source.uniform(-0.3, 1.0)
        chance = walk_tail(plan.scale, threshold, shape)
        numbers = dataclasses.replace(plan.candidates, threshold=threshold, chance=chance)
        listed = np.array([True, source.random() < 0.2])
        with mock.patch.object(Funnel, "for_listed", shape):
            tried = dataclasses.replace(plan, candidates=numbers)
            worst = max(worst, exact.divergence(tried, *random_world(source, 2), 2, listed))
    assert 0.7 * delta < worst <= delta
