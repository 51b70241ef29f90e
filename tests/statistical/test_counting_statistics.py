"""Counts have the noise that was planned, and intervals hold what they should; verdicts that can be wrong either way.

Every verdict is taken twice: the true one must pass, a slightly wrong one must fail. Keys are fixed, so the verdicts
are too; limits are set so that a fresh key would pass with probability above 1 - 1e-6.
"""

import dataclasses
import functools
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dpunion.algorithms import Funnel, WeightedGaussian
from dpunion.audit import noise
from dpunion.audit.counting import audit_counts, audit_steps, counted_algorithms, with_counts
from dpunion.audit.runs import System, repeatable_keys
from dpunion.budget import Budget
from dpunion.composing import plan_with_counts
from dpunion.contributions import offsets_of
from dpunion.counting import counted as counted_module
from dpunion.counting import estimates
from dpunion.counting.counted import count_people
from dpunion.counting.holdings import Holdings
from dpunion.counting.steps import ONE, FineStep, add_noise
from dpunion.counts import Counts, Z
from dpunion.lab.generators import AskRedditLike
from dpunion.randomness import RunKey

PASSES = 1e-6
LARGE, SMALL = Budget(3.0, math.exp(-10)), Budget(1.0, 1e-5)


# --- the noise of each step --------------------------------------------------------------------------------------


@functools.cache
def drawn_noise():
    """Return each step's draws over the planned stddev, from whole releases under many keys: float64[many] each."""
    rows = [noise.see_steps(Budget(1.0, 1e-6), listed=1_000, test_key=seed).drawn for seed in range(150)]
    return {number: np.concatenate([dict(row)[number] for row in rows]) for number in (0, 1, 2)}


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, True), (0.97, False), (1.03, False)])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_noise_of_each_step_has_the_planned_stddev(number, factor, verdict):
    """The sum of squares is chi-squared; 3 % of the stddev are more than twelve of its standard deviations."""
    draws = factor * drawn_noise()[number]
    assert len(draws) >= 80_000
    total = float(draws @ draws)
    chance = 2.0 * min(stats.chi2.cdf(total, len(draws)), stats.chi2.sf(total, len(draws)))
    assert (chance > PASSES) == verdict


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_noise_of_each_step_is_normal_and_without_bias(number):
    draws = drawn_noise()[number]
    assert stats.kstest(draws, stats.norm().cdf).pvalue > PASSES
    assert stats.kstest(1.06 * draws, stats.norm().cdf).pvalue < PASSES
    assert abs(draws.mean()) * math.sqrt(len(draws)) < stats.norm.isf(PASSES / 2)


def test_the_noise_of_steps_and_places_is_independent():
    draws = drawn_noise()
    limit = stats.norm.isf(PASSES / 2)
    for one, other in itertools.combinations(draws, 2):
        count = min(len(draws[one]), len(draws[other]))
        assert abs(draws[one][:count] @ draws[other][:count]) / math.sqrt(count) < limit
    for each in draws.values():
        assert abs(each[:-1] @ each[1:]) / math.sqrt(len(each)) < limit


# --- intervals -----------------------------------------------------------------------------------------------------

# Of each band so many items, each with so many holders.
BANDS = {8: 300, 25: 300, 100: 200, 400: 150, 2_000: 100}
TRUE = np.repeat(list(BANDS), list(BANDS.values()))
SEEDS = 40
# So many must there be of a band for a verdict.
ENOUGH = 2_000


def even_sets(each):
    """Return people of whom nearly everybody holds `each` items of the bands."""
    items = np.repeat(np.arange(len(TRUE)), TRUE)
    users = math.ceil(len(items) / each)
    owner = np.arange(len(items)) % users
    order = np.lexsort((items, owner))
    sizes = np.bincount(owner, minlength=users)
    others = np.arange(users) % 3 == 0
    return Holdings(offsets_of(sizes), items[order].astype(np.int32), np.ones(users, np.bool_), others)


def counted_once(holdings, plan, count, seed):
    """Return the counts under one key, the weights of the fine step, and which people were cut."""
    key, taken = RunKey.for_tests(seed), []

    def measure(step, stddev):
        taken.append(step)
        return add_noise(step.add_up(holdings), step.sensitivity, stddev, step.number, key)

    counted = count_people(plan, np.ones(count, np.bool_), measure)
    fine = taken[-1]
    assert isinstance(fine, FineStep)
    owner = np.repeat(np.arange(len(holdings.offsets) - 1), np.diff(holdings.offsets))
    squares = np.bincount(owner, fine.weights[holdings.items].astype(float) ** 2, minlength=len(holdings.offsets) - 1)
    return counted, squares > max(fine.room, ONE * ONE), owner


def coverage(holdings, budget, seeds=SEEDS):
    """Return by band the part of uncut items that lie in their interval, and how many these are; the same for totals.

    An item is uncut when everybody who holds it counts for it in full, or for 99 of 100: what the totals take.
    """
    plan = plan_with_counts(WeightedGaussian(), budget, Counts()).counts
    hits, trials = dict.fromkeys(BANDS, 0), dict.fromkeys(BANDS, 0)
    totals, people_cut = [], 0
    for seed in range(seeds):
        counted, cut, owner = counted_once(holdings, plan, len(TRUE), seed)
        people_cut += int(cut.sum())
        uncut = np.bincount(holdings.items[cut[owner]], minlength=len(TRUE)) == 0
        inside = (np.array(counted.low) <= TRUE) & (np.array(counted.high) >= TRUE)
        for band in BANDS:
            hits[band] += int((inside & uncut & (band == TRUE)).sum())
            trials[band] += int((uncut & (band == TRUE)).sum())
        for total, holds in ((counted.totals.everybody, holdings.anything), (counted.totals.others, holdings.others)):
            totals.append(total.low <= int(holds.sum()) <= total.high)
    parts = {band: hits[band] / trials[band] for band in BANDS if trials[band] >= ENOUGH}
    return parts, totals, people_cut


@functools.cache
def coverage_where_nobody_is_cut(budget, narrower=1.0):
    """Everybody holds one item."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(estimates, "Z", narrower * estimates.Z)
        return coverage(even_sets(1), budget)


@pytest.mark.parametrize("budget", [SMALL, LARGE], ids=["small", "large"])
def test_intervals_hold_95_of_100_in_every_band_where_nobody_is_cut(budget):
    """4,000 to 12,000 items in each band: 2 of 100 are more than five standard deviations."""
    parts, totals, people_cut = coverage_where_nobody_is_cut(budget)
    assert people_cut == 0
    assert set(parts) == set(BANDS)
    assert all(0.93 <= part <= 0.97 for part in parts.values()), parts
    assert stats.binomtest(sum(totals), len(totals), 0.95).pvalue > 1e-3


def test_intervals_a_tenth_too_narrow_are_noticed():
    """At the smaller budget, where an interval is so wide that rounding to whole people adds nothing."""
    parts, *_ = coverage_where_nobody_is_cut(SMALL, 0.9)
    assert not all(0.93 <= part <= 0.97 for part in parts.values()), parts
    whole, *_ = coverage_where_nobody_is_cut(SMALL)
    assert all(parts[band] < whole[band] - 0.01 for band in BANDS)


@pytest.mark.parametrize("budget", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("each", [4, 12])
def test_intervals_of_uncut_items_are_nearly_as_good_where_others_are_cut(each, budget):
    """The correction for those who were cut raises the counts of the others a little: 90 of 100 at least."""
    parts, _, people_cut = coverage(even_sets(each), budget)
    assert people_cut > 0
    assert len(parts) >= 3
    assert all(0.90 <= part <= 0.98 for part in parts.values()), parts


# --- short lists ---------------------------------------------------------------------------------------------------


def hold_every(steps, users):
    """Return who holds what: every first, second, fifth ... holds an item."""
    return np.arange(users)[:, None] % np.array(steps)[None, :] == 0


def hold_by_chance(chances, users):
    """Return who holds what: each item with its chance, some people far more than others."""
    rng = np.random.default_rng(2)
    return rng.random((users, len(chances))) < np.minimum(1.0, rng.lognormal(-0.5, 1.0, users)[:, None] * chances)


SHORT = {
    "five": (hold_every((1, 2, 3, 5, 8), 3_000), Budget(1.0, 1e-6)),
    "few people": (hold_every((1, 2, 3, 5, 8), 600), Budget(3.0, 1e-6)),
    "everybody": (np.ones((2_000, 10), np.bool_), Budget(1.0, 1e-6)),
    "two kinds": (np.arange(3_000)[:, None] % np.where(np.arange(8) == 0, 1, 2) == 0, Budget(1.0, 1e-6)),
    "twenty": (hold_by_chance(0.8 / np.arange(1, 21) ** 0.7, 5_000), Budget(1.0, 1e-6)),
}


@functools.cache
def short_list(name):
    """Return the part of items in their interval, and the largest error in standard deviations of all people."""
    held, budget = SHORT[name]
    plan, true = plan_with_counts(WeightedGaussian(), budget, Counts()).counts, held.sum(axis=0)
    owner, items = np.nonzero(held)
    anything = held.any(axis=1)
    offsets = offsets_of(np.bincount(owner, minlength=len(held)))
    holdings = Holdings(offsets, items.astype(np.int32), anything, np.zeros(len(held), np.bool_))
    inside, errors = [], []
    for seed in range(200):
        counted, *_ = counted_once(holdings, plan, len(true), seed)
        inside.append((np.array(counted.low) <= true) & (np.array(counted.high) >= true))
        errors.append(np.abs(np.array(counted.people) - true).max() / (plan.total_width / Z))
    return float(np.mean(inside)), max(errors)


@pytest.mark.parametrize("name", SHORT)
def test_intervals_of_short_lists_hold_95_of_100(name):
    """Who holds how much can hardly be made out in the noise; nobody is far off for it, under any of 200 keys."""
    covered, farthest = short_list(name)
    assert 0.93 <= covered <= 0.975
    assert farthest < 4.0


def test_short_lists_would_be_wrong_if_people_were_cut():
    """So the limits above mean something."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(estimates, "SURE", 0.0)
        covered, _ = short_list.__wrapped__("five")
    assert covered < 0.93


# --- people who were cut -------------------------------------------------------------------------------------------


EDGES = (15, 50, 200, 1_000, 10_000)


@functools.cache
def reddit_like():
    """Return a heavy-tailed set, of what 15 people or more hold, and how many hold each."""
    owner, rank = (np.concatenate(column) for column in zip(*AskRedditLike(users=60_000).chunks(), strict=True))
    held = np.bincount(rank)
    listed = np.flatnonzero(held >= 15)
    place = np.full(len(held), -1)
    place[listed] = np.arange(len(listed))
    kept = place[rank] >= 0
    users = 60_000
    order = np.lexsort((place[rank[kept]], owner[kept]))
    sizes = np.bincount(owner[kept], minlength=users)
    others = np.bincount(owner[~kept], minlength=users) > 0
    items = place[rank[kept]][order].astype(np.int32)
    return Holdings(offsets_of(sizes), items, np.ones(users, np.bool_), others), held[listed]


def estimate_uncorrected(noisy, allowance, *arguments):
    """Estimate as if nobody was cut."""
    plain = dataclasses.replace(allowance, factors=np.ones(len(allowance.factors)))
    return estimates.estimate_people(noisy, plain, *arguments)


@functools.cache
def bias_by_band(*, corrected=True):
    """Return the mean relative bias by number of holders, over keys; the part of people cut, estimated and true."""
    holdings, true = reddit_like()
    plan = plan_with_counts(Funnel(), LARGE, Counts()).counts
    found, cuts = [], []
    with pytest.MonkeyPatch.context() as patched:
        if not corrected:
            patched.setattr(counted_module, "estimate_people", estimate_uncorrected)
        for seed in range(10):
            counted, cut, _ = counted_once(holdings, plan, len(true), seed)
            found.append(np.array(counted.people) / true - 1.0)
            cuts.append((counted.totals.cut, float(cut.mean())))
    bias = np.mean(found, axis=0)
    highest = dict(itertools.pairwise((*EDGES, math.inf)))
    bands = {low: float(bias[(true >= low) & (true < highest[low])].mean()) for low in EDGES}
    return bands, np.mean(cuts, axis=0)


def test_the_bias_of_people_who_were_cut_is_small():
    """By number of holders: what is rarest is cut most, and what cannot be below 1 is biased upward too."""
    bands, (estimated, true) = bias_by_band()
    assert 0.02 < true < 0.3
    assert estimated == pytest.approx(true, abs=0.05)
    limits = {15: 0.15, 50: 0.10, 200: 0.03, 1_000: 0.02, 10_000: 0.01}
    assert all(abs(bands[low]) <= limit for low, limit in limits.items()), bands


def test_without_the_correction_the_bias_would_be_larger():
    """So the limits above mean something."""
    bands, _ = bias_by_band()
    plain, _ = bias_by_band(corrected=False)
    assert plain[50] < -0.10, plain
    assert abs(plain[200]) > 2.0 * abs(bands[200])


# --- the audit of counts -----------------------------------------------------------------------------------------

CLAIM, SPENT = Budget(1.0, 0.02), Budget(3.0, 0.06)
TRIALS = 6_000


def audited(algorithm, plan):
    system = System(plan=plan, new_key=repeatable_keys(1))
    return audit_counts([algorithm], epsilon=CLAIM.epsilon, delta=CLAIM.delta, trials=TRIALS, system=system)


@pytest.mark.parametrize("algorithm", counted_algorithms(2), ids=lambda algorithm: algorithm.name)
def test_no_claim_about_counts_is_refuted_but_three_times_the_claim_is(algorithm):
    report = audited(algorithm, with_counts())
    assert report.violations == []
    assert [result.label.split(":")[0] for result in report.results[:3]] == ["counts"] * 3
    assert all(result.worst_epsilon.epsilon_bound > 0.0 for result in report.results)
    assert "with counts" in report.text()
    spent = audited(algorithm, lambda one, claim: dataclasses.replace(with_counts()(one, SPENT), budget=claim))
    assert [result.label for result in spent.violations] == [report.results[-1].label]


def test_steps_come_near_their_claim_on_every_pair_where_one_person_moves_them_by_one():
    """With novel items only the totals move."""
    system = System(new_key=repeatable_keys(2))
    for result in audit_steps(system, CLAIM, 60_000, 1e-6):
        assert not result.violated
        bounds = {one.pair.name: one.epsilon_bound for one in result.pairs}
        bounds.pop("novel items only", None)
        assert min(bounds.values()) > 0.6, bounds
