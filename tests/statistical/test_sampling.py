"""Draws follow their distributions, by tests that notice a probability or a scale that is slightly wrong.

Every verdict is taken twice: the true distribution must pass, a wrong one must fail. Keys are fixed, so the
verdicts are too; limits are set so that a fresh key would pass with probability above 1 - 1e-6.
"""

import numpy as np
import pytest
from scipy import stats

from dpunion.kernels import hashing, sampling
from dpunion.randomness import Purpose, RunKey

KEY = RunKey.for_tests(20)
PASSES = 1e-6
MANY = 2_000_000
COUNTERS = np.stack([np.arange(MANY, dtype=np.uint64), np.zeros(MANY, dtype=np.uint64)], axis=1)
COIN_WORDS = KEY.words(Purpose.COIN, 0, COUNTERS)
MORE_COIN_WORDS = np.concatenate([KEY.words(Purpose.COIN, number, COUNTERS) for number in range(1, 5)])
NORMALS = KEY.normals(0, COUNTERS)


def binomial_passes(hits, trials, probability):
    return stats.binomtest(hits, trials, probability).pvalue > PASSES


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, True), (1.1, False), (0.9, False)])
@pytest.mark.parametrize(
    ("probability", "words"), [(0.7, COIN_WORDS), (0.5, COIN_WORDS), (0.01, COIN_WORDS), (1e-3, MORE_COIN_WORDS)]
)
@pytest.mark.parametrize("released", [True, False])
def test_coins_have_their_probability(probability, words, factor, *, released, verdict):
    """At 1e-3 a tenth is nine standard deviations of 8 million tosses, the limit at 1e-6 is five."""
    sides = np.full(len(words), released)
    tossed = sampling.coin(np.full(len(words), probability), sides, words)
    hits = int((tossed == sides).sum())
    assert binomial_passes(hits, len(words), probability * factor) == verdict


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, True), (1.05, False), (0.95, False)])
@pytest.mark.parametrize(
    ("decide", "noise", "above"),
    [
        *((sampling.decide_gaussian, stats.norm, above) for above in (-3.0, -1.0, 0.5, 1.0, 2.5)),
        *((sampling.decide_laplace, stats.laplace, above) for above in (-5.0, -1.0, 0.5, 1.0, 4.0)),
    ],
)
def test_decisions_have_the_probability_of_noise_and_threshold(decide, noise, above, factor, *, verdict):
    """Against scipy's distributions; a spread 5 % off must be noticed."""
    weights = np.full(MANY, 10.0 + above * 2.0)
    chance = noise.sf(10.0, loc=weights[0], scale=2.0 * factor)
    released = decide(weights, 10.0, 2.0, COIN_WORDS)
    assert binomial_passes(int(released.sum()), MANY, chance) == verdict


@pytest.mark.parametrize(("scale", "shift", "verdict"), [(1.0, 0.0, True), (1.05, 0.0, False), (1.0, 0.01, False)])
def test_normals_pass_kolmogorov_smirnov(scale, shift, *, verdict):
    ordered = stats.norm.cdf(np.sort(NORMALS * scale + shift))
    steps = np.arange(MANY + 1) / MANY
    distance = max(np.max(steps[1:] - ordered), np.max(ordered - steps[:-1]))
    # The limit of the Kolmogorov distribution at 1e-6, good at this many draws.
    assert (distance * np.sqrt(MANY) < stats.kstwobign.isf(PASSES)) == verdict


@pytest.mark.parametrize(("scale", "verdict"), [(1.0, True), (1.05, False), (0.95, False)])
def test_normals_pass_chi_squared_over_cells_into_the_tail(scale, *, verdict):
    edges = np.concatenate([[-np.inf], np.linspace(-4.0, 4.0, 81), [np.inf]])
    expected = MANY * np.diff(stats.norm.cdf(edges))
    counted, _ = np.histogram(NORMALS * scale, bins=edges)
    assert (stats.chisquare(counted, expected).pvalue > PASSES) == verdict


def test_normals_have_the_far_tail_under_a_lens():
    """Words whose first 40 tail bits are zero are draws given |z| beyond 6.9: their tails are uniform too."""
    words = KEY.words(Purpose.NOISE, 1, COUNTERS[:200_000])
    far = np.stack([words[:, 0] >> np.uint64(40), words[:, 1]], axis=1)
    far[:, 0] = (far[:, 0] & ~np.uint64(1)) | (words[:, 0] & np.uint64(1))
    draws = sampling.normals(far)
    beyond = np.exp(stats.norm.logsf(np.abs(draws)) + 41 * np.log(2.0))
    assert np.abs(draws).min() > 6.9
    assert stats.kstest(beyond, "uniform").pvalue > PASSES
    assert stats.kstest(np.exp(stats.norm.logsf(np.abs(draws) * 1.001) + 41 * np.log(2.0)), "uniform").pvalue < PASSES


def bits(words):
    return np.unpackbits(words.astype("<u8").view(np.uint8), axis=1)


def test_each_bit_of_the_words_is_fair_and_uncorrelated_with_the_others():
    ones = bits(COIN_WORDS[:200_000]).astype(np.float32) * 2 - 1
    together = (ones.T @ ones) / np.sqrt(len(ones))
    np.fill_diagonal(together, 0.0)
    # 8128 pairs and 128 single bits: 7 standard deviations have probability 2e-8.
    assert np.abs(together).max() < 7.0
    assert np.abs(ones.sum(axis=0)).max() < 7.0 * np.sqrt(len(ones))


def standardised(words):
    return (words[:, 0].astype(np.float64) / 2**64 - 0.5) * np.sqrt(12.0)


STREAMS = {
    (purpose, number): standardised(KEY.words(purpose, number, COUNTERS[:200_000]))
    for purpose in (Purpose.COIN, Purpose.NOISE, Purpose.BOUND, Purpose.SHARD)
    for number in range(3)
}


def test_rounds_and_purposes_are_uncorrelated():
    matrix = np.corrcoef(np.stack(list(STREAMS.values()))) * np.sqrt(200_000)
    np.fill_diagonal(matrix, 0.0)
    assert np.abs(matrix).max() < 6.0


def test_the_correlation_measure_sees_two_percent_of_a_shared_stream():
    first, second = STREAMS[Purpose.COIN, 0], STREAMS[Purpose.COIN, 1]
    mixed = second + 0.02 * first
    assert abs(np.corrcoef(first, mixed)[0, 1]) * np.sqrt(200_000) > 6.0


def test_neighbouring_items_are_uncorrelated():
    stream = STREAMS[Purpose.COIN, 0]
    for lag in (1, 2, 16):
        assert abs(np.corrcoef(stream[:-lag], stream[lag:])[0, 1]) * np.sqrt(200_000) < 6.0


def test_bounding_keeps_each_item_equally_often():
    """Each of 20,000 users keeps the 5 of 20 items with the smallest SipHash: chi-squared over the items."""
    users = KEY.words(Purpose.BOUND, 0, COUNTERS[:20_000])
    items = KEY.digests(Purpose.ITEM, np.arange(21, dtype=np.int64), np.arange(20, dtype=np.uint8))
    priority = np.array([[hashing.siphash24(k0, k1, m0, m1) for m0, m1 in items] for k0, k1 in users], dtype=np.uint64)
    kept = np.argsort(priority, axis=1)[:, :5]
    counts = np.bincount(kept.ravel(), minlength=20)
    # Each user keeps exactly 5, so counts have covariance -1/19 of their variance: hence the factor 19/20.
    statistic = ((counts - 5_000) ** 2 / (20_000 * 0.25 * 0.75)).sum() * 19 / 20
    assert statistic < stats.chi2.isf(PASSES, 19)
    assert counts.std() > 5.0
