"""Funnel's novelty bounds and certificate: against simulation and against slow twins."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpunion.algorithms import Funnel
from dpunion.calibration.funnel import GUARD, ROUNDED, FunnelHints, calibrate_funnel, certificate
from dpunion.calibration.gaussian import exact_unit_norm
from dpunion.calibration.novelty import WalkNovelty, interpolate_gifts, largest_gifts
from dpunion.errors import BadParameter
from dpunion.kernels import novelty
from dpunion.kernels.normal import gaussian_delta, upper_tail
from twins import novelty as twin
from weighing import novelty_bounds

SMALL = Funnel(max_items_per_user=40)


def lone_user(novel, stddev, threshold, shape, trials, seed, *, tilt=None):
    """Run the algorithm itself for one user whose items nobody else keeps: the chance that any is released.

    Rare releases are made frequent by importance sampling: one random item's noise is pushed up by tilt * c_r in
    round r, and each run weighted by its likelihood ratio. Returns the estimate and its standard error.
    """
    tilt = (threshold - 0.5) / stddev if tilt is None else tilt
    rng = np.random.default_rng(seed)
    found = []
    for chunk in np.array_split(np.arange(trials), max(1, trials * novel // 1_000_000)):
        score, push = np.zeros((chunk.size, novel)), np.zeros((chunk.size, novel))
        push[np.arange(chunk.size), rng.integers(novel, size=chunk.size)] = tilt
        alive, likelihood, spent = np.ones(score.shape, bool), np.zeros(score.shape), 0.0
        for square in shape.squared_shares:
            share = math.sqrt(square)
            noise = rng.standard_normal(score.shape) + push * share
            likelihood += tilt * share * noise
            aim = min(shape.haste * share / (1.0 - spent), 1.0 / share)
            cutoff = threshold + shape.cutoff_margin * stddev * math.sqrt(1.0 - spent)
            wanting = alive & (score <= threshold)
            target = np.where(wanting, np.maximum(0.0, cutoff - score), 0.0) * aim
            score = np.where(wanting, score + share * (project(target, share) + stddev * noise), score)
            spent += square
            if spent < 1.0 - 1e-9:
                line = shape.keep_fraction * spent * threshold - shape.keep_margin * stddev * math.sqrt(spent)
                line = min(line, threshold - 1.01 * share * stddev)
                alive &= score > line
        released = (alive & (score > threshold)).any(axis=1)
        found.append(released / np.exp(likelihood - 0.5 * tilt * tilt).mean(axis=1))
    weights = np.concatenate(found)
    return weights.mean(), weights.std() / math.sqrt(trials)


def project(target, budget):
    """Project each row onto the ball |y| <= budget."""
    norms = np.sqrt((target**2).sum(axis=1, keepdims=True))
    return target * np.minimum(1.0, budget / np.maximum(norms, 1e-300))


def refuted(bound, estimate):
    """Say whether a simulation shows, at 99.9 %, that the bound is too small."""
    mean, error = estimate
    return mean - 3.09 * error > bound


# ------------------------------------------------------------------------------------------------ simulation
@pytest.fixture(scope="module")
def loose():
    """A calibration with so large a delta that plain simulation can see it."""
    shape = Funnel()
    found = calibrate_funnel(1.0, 0.02, shape)
    return shape, found, novelty_bounds(found.stddev, found.threshold, shape)


@pytest.mark.parametrize(("novel", "trials"), [(1, 20_000), (10, 20_000), (100, 8_000), (300, 8_000)])
def test_simulated_releases_stay_below_the_bound_and_near_it(loose, novel, trials):
    shape, found, bounds = loose
    estimate = lone_user(novel, found.stddev, found.threshold, shape, trials, seed=novel)
    assert not refuted(bounds[novel], estimate)
    assert bounds[novel] < 1.5 * estimate[0]  # measured: 1.05 to 1.25
    # Power: a bound that is too small by a third is caught, and so is the mistaken idea that a survivor never
    # gets more than an equal share of each round's budget, and has one chance to pass.
    assert refuted(estimate[0] / 1.5, estimate)
    mistaken = novel * upper_tail((found.threshold - 1.0 / math.sqrt(novel)) / found.stddev)
    assert refuted(mistaken, estimate)


def test_importance_sampling_agrees_with_plain_simulation(loose):
    shape, found, _ = loose
    plain = lone_user(30, found.stddev, found.threshold, shape, 100_000, seed=1, tilt=0.0)
    tilted = lone_user(30, found.stddev, found.threshold, shape, 10_000, seed=2)
    assert abs(plain[0] - tilted[0]) < 3.5 * math.hypot(plain[1], tilted[1])
    assert tilted[1] < 0.1 * tilted[0]


@pytest.mark.parametrize(("epsilon", "delta"), [(3.0, math.exp(-10)), (1.0, 1e-5)])
def test_at_small_deltas_the_bound_holds_and_is_near(epsilon, delta):
    found = calibrate_funnel(epsilon, delta, Funnel())
    bound = novelty_bounds(found.stddev, found.threshold, Funnel())[300]
    estimate = lone_user(300, found.stddev, found.threshold, Funnel(), 6_000, seed=4)
    assert not refuted(bound, estimate)
    assert bound < 1.5 * estimate[0]
    assert bound < delta


def test_single_round_constants_really_fail_in_several_rounds():
    single = exact_unit_norm(3.0, math.exp(-10), 300)
    estimate = lone_user(300, single.scale, single.threshold, Funnel(), 6_000, seed=6)
    assert refuted(2.5 * math.exp(-10), estimate)
    assert estimate[0] == pytest.approx(4.5 * math.exp(-10), rel=0.15)


@pytest.mark.parametrize(
    "shape",
    [
        Funnel(max_items_per_user=60),
        Funnel(rounds=2, first_share=0.5, max_items_per_user=60),
        Funnel(rounds=6, first_share=0.1, keep_fraction=0.6, cutoff_margin=1.0, max_items_per_user=60),
        Funnel(rounds=3, keep_fraction=1.0, keep_margin=0.0, cutoff_margin=0.0, max_items_per_user=60),
        Funnel(rounds=4, first_share=0.25, keep_margin=1.0, haste=1.0, max_items_per_user=60),
        Funnel(rounds=8, first_share=0.15, keep_fraction=1.0, keep_margin=1.2, haste=20.0, max_items_per_user=60),
    ],
)
def test_other_shapes_are_bounded_too(shape):
    stddev, threshold = 0.8, 3.6
    walk = novelty_bounds(stddev, threshold, shape)
    for novel in (2, 60):
        estimate = lone_user(novel, stddev, threshold, shape, 10_000, seed=5)
        assert not refuted(walk[novel], estimate)
        assert walk[novel] < 2.5 * estimate[0]
        assert refuted(0.75 * estimate[0], estimate)


# ---------------------------------------------------------------------------------------- bounds among themselves
def test_bounds_are_probabilities_that_grow_with_the_number_of_novel_items():
    bounds = novelty_bounds(1.2885, 7.07, Funnel())
    assert bounds.shape == (301,)
    assert bounds[0] == 0.0
    assert np.all(np.diff(bounds) > 0.0)
    assert novelty_bounds(1.2885, 0.5, SMALL)[-1] == 1.0


def test_bounds_fall_with_the_threshold():
    by_threshold = [novelty_bounds(1.3, threshold, SMALL, cells=1000)[1:] for threshold in (4.0, 5.0, 6.0, 7.0)]
    for higher, lower in itertools.pairwise(by_threshold):
        assert np.all(lower < higher)


def test_finer_grids_give_smaller_bounds_which_agree():
    coarse, middle, fine = (novelty_bounds(1.3, 6.0, SMALL, cells=cells)[1:] for cells in (250, 1000, 4000))
    assert np.all(fine < middle)
    assert np.all(middle < coarse)
    assert np.all(coarse < 1.4 * fine)
    assert np.all(middle < 1.08 * fine)


def test_one_novel_item_gets_the_whole_budget():
    # Without keep lines a lone item's score is N(f_r, f_r stddev^2): the bound must find the chance to pass in a round.
    shape = Funnel(rounds=2, first_share=0.9, keep_fraction=0.0, keep_margin=10.0, max_items_per_user=1)
    first, second = 1.3 * math.sqrt(0.9), 1.3 * math.sqrt(0.1)
    scores = np.linspace(0.9 - 9.0 * first, 7.0, 100_001)
    density = np.exp(-0.5 * ((scores - 0.9) / first) ** 2) / (first * math.sqrt(2.0 * math.pi))
    later = np.array([upper_tail((7.0 - score - 0.1) / second) for score in scores])
    exact = upper_tail((7.0 - 0.9) / first) + float(np.trapezoid(density * later, scores))
    assert exact > 1.001 * upper_tail((7.0 - 1.0) / 1.3)
    assert exact <= novelty_bounds(1.3, 7.0, shape)[1] < 1.02 * exact


def test_along_bounds_at_and_is_close():
    bound = WalkNovelty(1.0, 5.0, SMALL)
    gifts = np.linspace(0.1, 0.44, 23)
    exact = bound.at(np.full(23, 4), gifts)
    quick = bound.along(4, gifts)
    assert np.all(quick >= exact * (1.0 - 1e-12))
    assert np.all(quick <= exact * 1.001)


# ----------------------------------------------------------------------------------------------- calibration
@settings(max_examples=12, deadline=None)
@given(
    epsilon=st.floats(math.log(0.01), math.log(20.0)).map(math.exp),
    delta=st.floats(math.log(1e-15), math.log(0.1)).map(math.exp),
    items=st.integers(1, 60),
    rounds=st.integers(1, 6),
    first=st.floats(0.02, 0.98),
)
def test_every_calibration_is_certified_and_wastes_little(epsilon, delta, items, rounds, first):
    shape = Funnel(rounds=rounds, first_share=first if rounds > 1 else 1.0, max_items_per_user=items)
    found = calibrate_funnel(epsilon, delta, shape)
    used, worst = certificate(epsilon, delta, found.stddev, found.threshold, shape)
    assert (used, worst) == (found.delta_used, found.worst_novel)
    assert 0.95 * delta <= used <= delta * (1.0 - GUARD)
    assert certificate(epsilon, delta, found.stddev, 0.99 * found.threshold, shape)[0] > delta


def test_hints_are_fast_starting_points_and_never_trusted():
    found = calibrate_funnel(2.0, 1e-6, SMALL)
    assert calibrate_funnel(2.0, 1e-6, SMALL, hints=found.hints) == found
    for wrong in (
        FunnelHints(found.stddev, 0.9 * found.threshold),
        FunnelHints(0.9 * found.stddev, found.threshold),
        FunnelHints(found.stddev, 3.0 * found.threshold),
        FunnelHints(math.nan, found.threshold),
    ):
        assert calibrate_funnel(2.0, 1e-6, SMALL, hints=wrong) == found


def test_other_gaussian_releases_are_composed():
    alone = calibrate_funnel(2.0, 1e-6, SMALL)
    extra = 0.3 / alone.stddev**2
    together = calibrate_funnel(2.0, 1e-6, SMALL, extra_mu_squared=extra)
    total = math.sqrt(1.0 / together.stddev**2 + extra)
    assert gaussian_delta(2.0, total) == pytest.approx(together.gaussian_share * 1e-6, rel=1e-6)
    assert together.threshold > alone.threshold
    assert together.delta_used <= 1e-6 * (1.0 - GUARD)
    assert certificate(2.0, 1e-6, alone.stddev, alone.threshold, SMALL, extra_mu_squared=extra)[0] > 1e-6
    with pytest.raises(BadParameter, match="no budget"):
        calibrate_funnel(2.0, 1e-6, SMALL, extra_mu_squared=2.0 / alone.stddev**2)


def test_the_certificate_is_theorem_a_where_all_items_are_novel():
    # With t = max_items the gift of round 1 is one number, and the joint form is the plain one.
    shape = Funnel(max_items_per_user=1, first_share=0.3)
    bound = novelty_bounds(1.2, 6.0, shape)[1]
    plain = gaussian_delta(3.0, math.sqrt(0.7) / 1.2) + bound
    used, worst = certificate(3.0, 1e-4, 1.2, 6.0, shape)
    assert (used, worst) == (max(plain, gaussian_delta(3.0, 1.0 / 1.2)), int(plain > gaussian_delta(3.0, 1.0 / 1.2)))


def test_the_certificate_is_at_most_theorem_a_and_at_least_each_pure_case():
    stddev, threshold = 1.2885, 7.07
    shape = Funnel()
    bounds = novelty_bounds(stddev, threshold, shape)
    novel = np.arange(301)
    deltas = np.array(
        [gaussian_delta(3.0, math.sqrt(1.0 - shape.first_share * ROUNDED * t / 300) / stddev) for t in novel]
    )
    used, _ = certificate(3.0, math.exp(-10), stddev, threshold, shape)
    assert used <= (deltas + bounds).max() * (1.0 + 1e-12)
    all_novel = gaussian_delta(3.0, math.sqrt(1.0 - shape.first_share) / stddev)
    assert used >= max(deltas[0], bounds[300] + all_novel, bounds.max())


# ---------------------------------------------------------------------------------------- kernels and twins
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_smoothing_kernels_equal_their_twins(seed):
    rng = np.random.default_rng(seed)
    edges, points, stride = int(rng.integers(1, 30)), int(rng.integers(1, 9)), int(rng.integers(1, 5))
    values = np.sort(rng.random((3, edges)), axis=1)
    start, step, stddev = rng.normal(), 0.01 + rng.random(), 0.1 + rng.random()
    line = start - rng.integers(0, 2) * rng.random()
    arguments = (values, start, line, step, rng.normal(), points, stride, stddev)
    np.testing.assert_allclose(novelty.smooth(*arguments), twin.smooth(*arguments), rtol=1e-9, atol=1e-15)
    means, weights = rng.normal(size=4), rng.random((4, 3))
    weights /= weights.sum(axis=1, keepdims=True)
    arguments = (values, start, line, step, means, stddev, weights)
    np.testing.assert_allclose(novelty.first_round(*arguments), twin.first_round(*arguments), rtol=1e-9, atol=1e-15)


@settings(max_examples=300, deadline=None)
@given(
    need=st.floats(-1.0, 20.0),
    others=st.integers(0, 300),
    least=st.floats(0.0, 20.0),
    share=st.floats(0.05, 1.0),
    below=st.floats(0.0, 1.0),
)
def test_gift_equals_its_twin(need, others, least, share, below):
    arguments = (need, float(others), least, share, below / share)
    assert novelty.gift(*arguments) == pytest.approx(twin.gift(*arguments), rel=1e-6, abs=1e-7)


def test_stay_chances_equal_their_twin_and_are_lower_bounds():
    starts, counts = np.array([0.3, 0.7, 1.4]), np.array([40, 50, 45])
    stddevs = np.array([0.6, 0.7, 0.5])
    found = novelty.stay_chances(starts, counts, 0.03, stddevs)
    np.testing.assert_allclose(found, twin.stay_chances(starts, counts, 0.03, stddevs), rtol=1e-12)
    score = np.cumsum(stddevs * np.random.default_rng(3).standard_normal((400_000, 3)), axis=1)
    inside = np.logical_and.accumulate((score > starts) & (score <= starts + 0.03 * counts), axis=1).mean(axis=0)
    assert np.all(found < inside + 3.0 * np.sqrt(inside / 400_000))
    assert np.all(found > 0.93 * inside)


def test_binomial_levels_equal_their_twin():
    for chance in (0.0, 0.03, 0.5, 1.0):
        for levels in ([0], [0, 1], [0, 1, 2, 3, 5, 8, 13], [0, 4, 40]):
            arguments = (chance, 25, np.array(levels))
            np.testing.assert_allclose(
                novelty.binomial_levels(*arguments), twin.binomial_levels(*arguments), atol=1e-13
            )


@pytest.mark.parametrize(
    "smoothed",
    [
        lambda x: np.array([upper_tail(0.3 - each) for each in x]),  # of a step
        lambda x: 0.5 + 0.5 * math.exp(-2.0) * np.cos(2.0 * x),  # of cos^2
        lambda x: 0.01 * (x**4 + 6.0 * x**2 + 3.0),  # of u^4
        lambda x: 0.1 * np.exp(-0.5 * x**2),  # of a point mass: here the bound is attained
    ],
)
def test_interpolation_bounds_any_smoothed_function(smoothed):
    gifts = np.linspace(-1.0, 1.5, 101)
    exact, quick = smoothed(gifts), interpolate_gifts(smoothed, gifts, 1.0)
    assert np.all(quick >= exact * (1.0 - 1e-12))
    assert np.all(quick <= exact * 1.01)


def test_round_1_gives_every_novel_item_the_same_share_of_the_budget():
    gifts = largest_gifts(1.3, 7.0, Funnel(first_share=0.25))
    np.testing.assert_allclose(gifts[[0, 3, 99, 299]], [0.5, 0.25, 0.05, 0.5 / math.sqrt(300)])


@pytest.mark.parametrize("haste", [1.0, 1.5])
def test_round_1_gives_no_item_more_than_its_target(haste):
    shape = Funnel(first_share=0.25, cutoff_margin=0.0, haste=haste, max_items_per_user=40)
    gifts = largest_gifts(0.2, 0.4, shape)
    assert gifts[0] == pytest.approx(0.4 * 0.5 * haste)
    assert gifts[39] == pytest.approx(0.5 / math.sqrt(40))


@settings(max_examples=200, deadline=None)
@given(
    others=st.integers(0, 300),
    least=st.floats(0.0, 20.0),
    rounds=st.integers(2, 8),
    haste=st.floats(1.0, 20.0),
    first=st.floats(0.02, 0.98),
    scores=st.tuples(st.floats(-5.0, 12.0), st.floats(-5.0, 12.0)),
)
def test_a_higher_score_stays_higher_after_every_gift(others, least, rounds, haste, first, scores):
    """Lemma F3: score + c_r gift does not fall, which an aim above 1/c_r would break."""
    shape = Funnel(rounds=rounds, haste=haste, first_share=first)
    for share, aim in zip(shape.shares, shape.aims, strict=True):
        low, high = (x + share * novelty.gift(10.0 - x, others, least, share, aim) for x in sorted(scores))
        assert low <= high + 1e-12


# ------------------------------------------------------------------------------------------------- parameters
def test_shares_add_up():
    shape = Funnel(rounds=4, first_share=0.2, keep_fraction=0.85, keep_margin=1.0)
    assert shape.squared_shares == pytest.approx((0.2, 0.8 / 3, 0.8 / 3, 0.8 / 3))
    assert shape.spent == pytest.approx((0.2, 0.2 + 0.8 / 3, 0.2 + 1.6 / 3, 1.0))
    assert shape.spent[-1] == 1.0
    assert shape.remaining == pytest.approx((1.0, 0.8, 1.6 / 3, 0.8 / 3))
    assert shape.keep_lines(2.0, 10.0)[0] == pytest.approx(0.85 * 0.2 * 10.0 - 2.0 * math.sqrt(0.2))
    assert shape.cutoffs(2.0, 10.0) == pytest.approx([10.0 + 4.4 * math.sqrt(left) for left in shape.remaining])
    assert Funnel(rounds=1, first_share=1.0).squared_shares == (1.0,)


def test_haste_aims_at_more_but_never_beyond_the_cutoff():
    even, hasty, most = (Funnel(rounds=4, first_share=0.2, haste=haste) for haste in (1.0, 1.5, 20.0))
    assert even.aims == pytest.approx([c / left for c, left in zip(even.shares, even.remaining, strict=True)])
    assert hasty.aims == pytest.approx([1.5 * even.aims[0], 1.5 * even.aims[1], 1.5 * even.aims[2], even.aims[3]])
    assert most.aims == tuple(1.0 / c for c in most.shares)
    assert Funnel(rounds=1, first_share=1.0, haste=7.0).aims == (1.0,)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rounds": 0}, {"rounds": 9}, {"rounds": True}, {"rounds": 1}, {"first_share": 0.0}, {"first_share": 1.0},
        {"first_share": math.nan}, {"keep_fraction": 2.1}, {"keep_margin": -0.1}, {"haste": 0.9}, {"haste": math.inf},
        {"cutoff_margin": math.inf}, {"max_items_per_user": 0},
    ],
)  # fmt: skip
def test_bad_shapes_are_refused(wrong):
    with pytest.raises(BadParameter):
        Funnel(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0}, {"epsilon": math.nan}, {"epsilon": math.inf}, {"delta": 0.0}, {"delta": 1.0},
        {"extra_mu_squared": -1.0}, {"extra_mu_squared": math.nan}, {"gaussian_share": 1.0},
    ],
)  # fmt: skip
def test_bad_questions_are_refused(wrong):
    with pytest.raises(BadParameter):
        calibrate_funnel(**({"epsilon": 1.0, "delta": 1e-5, "shape": SMALL} | wrong))


def test_a_certificate_needs_positive_numbers():
    with pytest.raises(BadParameter):
        certificate(1.0, 1e-5, 0.0, 5.0, SMALL)
