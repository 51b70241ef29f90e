"""What comes out of a length has the distribution of a plain Gaussian mechanism on all its candidates.

Every verdict is taken twice: the true distribution must pass, a wrong one must fail. Keys are fixed, so the verdicts
are too; limits are set so that a fresh key would pass with probability above 1 - 1e-6.
"""

import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import integrate, stats

from dpunion.algorithms import Funnel, PolicyGaussian, WeightedGaussian
from dpunion.calibration.composition import walk_tail, walk_threshold
from dpunion.engines.local.texts import LocalTexts
from dpunion.kernels.normal import upper_tail
from dpunion.ngrams import lengths
from dpunion.ngrams.candidates import (
    UNIFORM_BITS,
    CandidateGrams,
    Level,
    bernoulli_positions,
    binomial_table,
    mark_candidates,
    unsupported,
)
from dpunion.ngrams.lengths import first_level, next_level, threshold_for
from dpunion.plans.ngrams import LengthPlan
from dpunion.randomness import RunKey
from dpunion.sets.encoding import Normalization
from dpunion.sets.streams import read_tokens
from dpunion.text.splitting import Splitting

PASSES = 1e-6
KEY = RunKey.for_tests(8)


@pytest.mark.parametrize("chance", [0.5, 0.3, 0.01, 1e-3, 7e-7, 0.999])
def test_each_position_comes_up_with_exactly_its_chance(chance):
    """The mean of the block's binomial table over its size is the chance, in exact rationals, to 2^-100."""
    size = 1 << max(0, int(1.0 / chance).bit_length() - 1)
    table = binomial_table(size, chance)
    below = [Fraction(entry, 1 << UNIFORM_BITS) for entry in table]
    mean = sum(j * (high - low) for j, (low, high) in enumerate(zip([Fraction(0), *below], below, strict=False)))
    assert abs(mean / size - Fraction(chance)) < Fraction(1, 1 << 100) * Fraction(chance)


@pytest.mark.parametrize(("trials", "chance"), [(1, 0.3), (8, 0.11), (64, 0.01)])
def test_the_binomial_table_is_the_binomial_distribution(trials, chance):
    exact, total = Fraction(chance), Fraction(0)
    table = binomial_table(trials, chance)
    for j in range(min(trials, len(table) - 1)):
        total += math.comb(trials, j) * exact**j * (1 - exact) ** (trials - j)
        assert 0 <= total - Fraction(table[j], 1 << UNIFORM_BITS) < Fraction(2, 1 << UNIFORM_BITS)
    assert table[-1] == 1 << UNIFORM_BITS


def test_draws_beyond_the_last_block_do_not_count():
    for total in (1, 2, 5, 63, 64, 65):
        for draw_round in range(50):
            found = bernoulli_positions(total, 0.2, KEY, draw_round).tolist()
            assert found == sorted(set(found))
            assert all(0 <= place < total for place in found)
    assert len(bernoulli_positions(0, 0.2, KEY, 0)) == 0
    assert len(bernoulli_positions(10, 0.0, KEY, 0)) == 0


def tiny_level():
    """Return five released tokens of which bigrams (0,1), (1,2), (1,3), (2,1), (4,4) are released, as a level."""
    tokens = Level(
        1, *[np.zeros(5, np.int32)] * 2, np.arange(5, dtype=np.int32), np.arange(10, dtype=np.uint64).reshape(5, 2)
    )
    pairs = np.array([0 << 32 | 1, 1 << 32 | 2, 1 << 32 | 3, 2 << 32 | 1, 4 << 32 | 4], np.uint64)
    return tokens, lengths._level_of(pairs, tokens, tokens, KEY)


ROUNDS = 6_000


@pytest.mark.parametrize("bias", [False, True])
def test_spurious_ngrams_are_uniform_over_the_candidates_nobody_holds(bias):
    """25 candidate bigrams, 7 of them held: how often each of the 18 others comes up, by chi-squared."""
    tokens, _ = tiny_level()
    candidates = CandidateGrams(tokens)
    held = candidates.at(np.array([0, 3, 4, 5, 11, 23, 24]))
    counts = dict.fromkeys(candidates.at(np.arange(25)).tolist(), 0)
    sizes = []
    for draw_round in range(ROUNDS):
        drawn = unsupported(mark_candidates(candidates, 0.13, KEY, draw_round), held).tolist()
        assert len(set(drawn)) == len(drawn)
        sizes.append(len(drawn))
        for pair in drawn:
            counts[pair] += 1
    assert all(counts[pair] == 0 for pair in held.tolist())
    seen = np.array([count for pair, count in counts.items() if pair not in set(held.tolist())], float)
    if bias:  # the power of the test: every other candidate comes up 12 % too often
        seen[::2] *= 1.12
    expected, variance = ROUNDS * 0.13, ROUNDS * 0.13 * 0.87
    uniform = ((seen - expected) ** 2 / variance).sum()
    assert (uniform < stats.chi2.isf(PASSES, 18)) != bias
    binomial = stats.binom.pmf(np.arange(19), 18, 0.13) * ROUNDS
    binned = np.bincount(sizes, minlength=19)
    assert stats.chisquare([*binned[:6], binned[6:].sum()], [*binomial[:6], binomial[6:].sum()]).pvalue > PASSES


def test_longer_candidates_are_drawn_uniformly_too():
    """V_3 of five bigrams is a union of rectangles of different sizes; all of its members are equally likely."""
    _, level = tiny_level()
    candidates = CandidateGrams(level)
    assert candidates.count == 6  # 0 1 2, 0 1 3, 1 2 1, 2 1 2, 2 1 3 and 4 4 4
    everything = np.sort(candidates.at(np.arange(candidates.count)))
    counts = np.zeros(candidates.count)
    for draw_round in range(3_000):
        counts[np.isin(everything, mark_candidates(candidates, 0.3, KEY, draw_round))] += 1
    assert ((counts - 900) ** 2 / 630).sum() < stats.chi2.isf(PASSES, candidates.count)


DATABASE = [("u", "x y"), ("v", "x y x"), ("w", "y y"), ("w", "x"), ("u", "x y")]
HELD = {("x", "y"): 1.0 + 2**-0.5, ("y", "x"): 2**-0.5, ("y", "y"): 1.0, ("x", "x"): 0.0}


@functools.cache
def outcomes(plan, runs, rate=0.2):
    """Return how often each set of bigrams came out, over runs with fresh test keys, and the public numbers."""
    users, texts = (pa.array(column, pa.string()) for column in zip(*DATABASE, strict=True))
    stream = read_tokens([(users, texts)], KEY, Splitting(), Normalization.NFC)
    counts = {}
    result = None
    for seed in range(runs):
        level, positions, words = first_level(stream, np.array([0, 1]))
        key = RunKey.for_tests(seed)
        above, result = next_level(plan, rate, LocalTexts(stream, key, positions), (level,), key)
        out = frozenset((words[p], words[s]) for p, s in zip(above.prefixes, above.suffixes, strict=True))
        counts[out] = counts.get(out, 0) + 1
    return counts, result


def chi_squared_passes(counts, chance_of, runs):
    """Compare the counts of all 16 outcomes with a product of independent coins, rare outcomes together."""
    grams = list(HELD)
    seen, expected, rare_seen, rare_expected = [], [], 0.0, 0.0
    for pattern in itertools.product([False, True], repeat=len(grams)):
        chance = math.prod(chance_of[g] if hit else 1.0 - chance_of[g] for g, hit in zip(grams, pattern, strict=True))
        got = counts.get(frozenset(g for g, hit in zip(grams, pattern, strict=True) if hit), 0)
        if chance * runs < 8.0:
            rare_seen, rare_expected = rare_seen + got, rare_expected + chance * runs
        else:
            seen.append(got)
            expected.append(chance * runs)
    if rare_expected > 0:
        seen.append(rare_seen)
        expected.append(rare_expected)
    return stats.chisquare(seen, expected).pvalue > PASSES


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, True), (1.15, False)])
def test_the_whole_output_is_that_of_the_plain_gaussian_mechanism(factor, verdict):
    """All 16 sets of bigrams of two tokens, one of which nobody has, against independent Gaussian coins."""
    runs, stddev = 3_000, 0.8
    plan = LengthPlan(2, 0.5, WeightedGaussian(), stddev, 0.0)
    counts, result = outcomes(plan, runs)
    assert (result.candidates, result.threshold) == (4, threshold_for(plan, 0.2 * 2 / 4)[0])
    chance = {gram: stats.norm.sf(result.threshold, weight, stddev * factor) for gram, weight in HELD.items()}
    assert chi_squared_passes(counts, chance, runs) == verdict


def test_an_ngram_that_nobody_has_has_the_chance_of_a_weight_of_zero():
    """For algorithms of one round the two ways to decide agree to the last bit."""
    for algorithm in (WeightedGaussian(), PolicyGaussian()):
        plan = LengthPlan(2, 0.5, algorithm, 1.7, 0.0)
        for tail in (0.2, 1e-4, 3e-9):
            threshold, chance = threshold_for(plan, tail)
            assert chance == upper_tail((threshold - 0.0) / plan.stddev)
            assert tail * (1 - 1e-9) < chance <= tail


SHAPES = [
    Funnel(rounds=2, first_share=0.3, keep_margin=0.5),
    Funnel(rounds=3, first_share=0.2, keep_margin=0.75),
    Funnel(rounds=6, first_share=0.2, keep_margin=0.75),
    Funnel(rounds=8, first_share=0.15, keep_fraction=0.5, keep_margin=0.5),
]


@pytest.mark.parametrize("tail", [0.1, 1e-4, 1e-8])
def test_the_chance_of_two_rounds_of_noise_equals_an_integral(tail):
    shape, stddev = SHAPES[0], 2.2
    threshold = walk_threshold(stddev, tail, shape)
    (line,) = shape.keep_lines(stddev, threshold)
    first, second = (c * stddev for c in shape.shares)

    def passing(score):
        return stats.norm.pdf(score, scale=first) * stats.norm.sf(threshold - score, scale=second)

    split = max(line, threshold * 0.3)
    expected = stats.norm.sf(threshold, scale=first) + sum(
        integrate.quad(passing, low, high, epsabs=0.0, epsrel=1e-12, limit=200)[0]
        for low, high in ((line, split), (split, threshold))
        if high > low
    )
    assert walk_tail(stddev, threshold, shape) == pytest.approx(expected, rel=1e-10)
    assert walk_tail(stddev, threshold, shape) <= tail


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.rounds}-rounds")
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, True), (1.1, False)])
def test_the_chance_of_a_walk_is_that_of_simulated_noise(shape, factor, verdict):
    runs, stddev = 400_000, 1.3
    threshold = walk_threshold(stddev, 0.05, shape)
    random = np.random.default_rng(5)
    score, alive = np.zeros(runs), np.ones(runs, bool)
    for share, line in zip(shape.shares, (*shape.keep_lines(stddev, threshold), threshold), strict=True):
        score += np.where(score > threshold, 0.0, share * stddev * random.standard_normal(runs))
        alive &= score > line
    chance = factor * walk_tail(stddev, threshold, shape)
    assert (stats.binomtest(int(alive.sum()), runs, chance).pvalue > PASSES) == verdict


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, True), (1.2, False)])
def test_funnel_on_candidates_is_funnel_with_noise_on_every_candidate(factor, verdict):
    """Against a simulation that walks all four candidates, held or not, with another generator's noise."""
    runs, stddev = 2_500, 0.8
    algorithm = Funnel(rounds=3, first_share=0.3)
    plan = LengthPlan(2, 0.5, algorithm, stddev, 0.0)
    counts, result = outcomes(plan, runs)
    chance = simulated_funnel(algorithm, stddev * factor, result.threshold, stddev)
    marginal = {gram: sum(n for out, n in counts.items() if gram in out) for gram in HELD}
    worst = min(stats.binomtest(marginal[gram], runs, chance[gram]).pvalue for gram in HELD)
    assert (worst > PASSES) == verdict


def simulated_funnel(shape, noise, threshold, stddev):
    """Simulate Funnel on DATABASE densely: users u, w, v hold these bigrams, smallest set first, then by digest.

    With w before or after u nothing changes, as they share no bigram.
    """
    runs = 200_000
    random = np.random.default_rng(6)
    grams = list(HELD)
    users = [[grams.index(("x", "y"))], [grams.index(("y", "y"))], [grams.index(("x", "y")), grams.index(("y", "x"))]]
    score, alive = np.zeros((runs, 4)), np.ones((runs, 4), bool)
    lines = (*shape.keep_lines(stddev, threshold), threshold)
    for c, left, line in zip(shape.shares, shape.remaining, lines, strict=True):
        aim = min(shape.haste * c / left, 1.0 / c)
        wanting = alive & (score <= threshold)
        cutoff = threshold + shape.cutoff_margin * stddev * math.sqrt(left)
        target = np.where(wanting, np.maximum(0.0, cutoff - score) * aim, 0.0)
        given = np.zeros_like(score)
        for items in users:
            gap = np.where(alive[:, items], np.maximum(0.0, target[:, items] - given[:, items]), 0.0)
            norm = np.sqrt((gap**2).sum(axis=1, keepdims=True))
            given[:, items] += gap * np.minimum(1.0, c / np.maximum(norm, 1e-300))
        score += np.where(wanting, c * (given + noise * random.standard_normal(score.shape)), 0.0)
        alive &= score > line
    return dict(zip(grams, alive.mean(axis=0), strict=True))
