"""Counts have the noise that was planned, and intervals hold what they should; verdicts that can be wrong either way.

Every verdict is taken twice: the true one must pass, a slightly wrong one must fail. Keys are fixed, so the verdicts
are too; limits are set so that a fresh key would pass with probability above 1 - 1e-6.
"""

import collections
import dataclasses
import functools
import itertools
import math

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats

import dpunion
from dpunion.algorithms import Funnel, WeightedGaussian
from dpunion.budget import Budget
from dpunion.contributions import offsets_of
from dpunion.counting import count_people, estimates
from dpunion.counting.holdings import Holdings
from dpunion.counting.steps import ONE, FineStep, add_noise
from dpunion.plans import plan_release
from dpunion.plans.counts import Counts
from dpunion.randomness import RunKey
from dpunion.samples import debian_depends
from dpunion_lab.audit import noise
from dpunion_lab.audit.counting import audit_counts, audit_steps, counted_algorithms, with_counts
from dpunion_lab.audit.runs import System, repeatable_keys
from dpunion_lab.generators import AskRedditLike
from dpunion_lab.hindsight import judge_worlds

PASSES = 1e-6
LARGE, SMALL = Budget(3.0, math.exp(-10)), Budget(1.0, 1e-5)


# --- the noise of each step --------------------------------------------------------------------------------------
@functools.cache
def drawn_noise():
    """Return each step's draws over the planned stddev, from whole releases under many keys: float64[many] each."""
    rows = [noise.see_steps(Budget(1.0, 1e-6), listed=1_000, test_key=seed).drawn for seed in range(150)]
    return {number: np.concatenate([dict(row)[number] for row in rows]) for number in (0, 1, 2)}


@pytest.mark.parametrize(("sign", "verdict"), [(0.0, True), (-1.0, False), (1.0, False)])
@pytest.mark.parametrize(("number", "wrong", "fewest"), [(0, 0.03, 80_000), (1, 0.2, 1_000), (2, 0.03, 80_000)])
def test_the_noise_of_each_step_has_the_planned_stddev(number, wrong, fewest, sign, verdict):
    """The sum of squares is chi-squared; a wrong stddev is more than eight of its standard deviations away.

    A release has few marks, so that there a wrong stddev must be wrong by more to be seen.
    """
    draws = (1.0 + sign * wrong) * drawn_noise()[number]
    assert len(draws) >= fewest
    total = float(draws @ draws)
    chance = 2.0 * min(stats.chi2.cdf(total, len(draws)), stats.chi2.sf(total, len(draws)))
    assert (chance > PASSES) == verdict


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_noise_of_each_step_is_normal_and_without_bias(number):
    draws = drawn_noise()[number]
    assert stats.kstest(draws, stats.norm().cdf).pvalue > PASSES
    assert stats.kstest((1.06 if number != 1 else 1.4) * draws, stats.norm().cdf).pvalue < PASSES
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
    """Return people of whom nearly everybody has `each` items of the bands."""
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

    counted = count_people(plan, np.ones(count, np.int64), measure)
    fine = taken[-1]
    assert isinstance(fine, FineStep)
    owner = np.repeat(np.arange(len(holdings.offsets) - 1), np.diff(holdings.offsets))
    squares = np.bincount(owner, fine.weights[holdings.items].astype(float) ** 2, minlength=len(holdings.offsets) - 1)
    return counted, squares > max(fine.room, ONE * ONE), owner


def coverage(holdings, budget, seeds=SEEDS):
    """Return by band the part of uncut items whose interval contains the truth, and of those whose low is above it.

    Also the same for totals, and how many people were cut. An item is uncut when everybody who has it counts for it in
    full, or for 99 of 100: what the totals take.
    """
    plan = plan_release(WeightedGaussian(), budget, Counts()).counts
    hits, above, trials = (dict.fromkeys(BANDS, 0) for _ in range(3))
    totals, people_cut = [], 0
    for seed in range(seeds):
        counted, cut, owner = counted_once(holdings, plan, len(TRUE), seed)
        people_cut += int(cut.sum())
        uncut = np.bincount(holdings.items[cut[owner]], minlength=len(TRUE)) == 0
        low, high = np.array(counted.low), np.array(counted.high)
        for band in BANDS:
            mine = uncut & (band == TRUE)
            hits[band] += int(((low <= TRUE) & (high >= TRUE) & mine).sum())
            above[band] += int(((low > TRUE) & mine).sum())
            trials[band] += int(mine.sum())
        for total, holds in ((counted.totals.everybody, holdings.anything), (counted.totals.others, holdings.others)):
            totals.append(total.low <= int(holds.sum()) <= total.high)
    enough = [band for band in BANDS if trials[band] >= ENOUGH]
    inside, over = ({band: found[band] / trials[band] for band in enough} for found in (hits, above))
    return inside, over, totals, people_cut


@functools.cache
def coverage_where_nobody_is_cut(budget, narrower=1.0):
    """Everybody has one item."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(estimates, "Z", narrower * estimates.Z)
        return coverage(even_sets(1), budget)


@pytest.mark.parametrize("budget", [SMALL, LARGE], ids=["small", "large"])
def test_intervals_hold_95_of_100_in_every_band_where_nobody_is_cut(budget):
    """4,000 to 12,000 items in each band; the lower end is exact: 2.5 of 100 are below it."""
    inside, over, totals, people_cut = coverage_where_nobody_is_cut(budget)
    assert people_cut == 0
    assert set(inside) == set(BANDS)
    assert all(0.945 <= part <= 0.985 for part in inside.values()), inside
    assert all(0.017 <= part <= 0.032 for band, part in over.items() if band >= 100), over
    assert all(part <= 0.032 for part in over.values()), over
    assert stats.binomtest(sum(totals), len(totals), 0.95).pvalue > 1e-3


def test_intervals_a_tenth_too_narrow_are_noticed():
    """At the smaller budget, where an interval is so wide that rounding to whole people adds nothing."""
    inside, over, *_ = coverage_where_nobody_is_cut(SMALL, 0.9)
    whole, *_ = coverage_where_nobody_is_cut(SMALL)
    assert all(inside[band] < whole[band] - 0.01 for band in BANDS)
    assert all(over[band] > 0.032 for band in BANDS), over


@pytest.mark.parametrize(("each", "budget"), [(4, SMALL), (4, LARGE), (12, LARGE)], ids=str)
def test_intervals_are_as_good_where_people_are_cut(each, budget):
    inside, over, _, people_cut = coverage(even_sets(each), budget)
    assert people_cut > 0
    assert len(inside) >= 3
    assert all(part >= 0.945 for part in inside.values()), inside
    assert all(part <= 0.032 for part in over.values()), over


# --- short lists ---------------------------------------------------------------------------------------------------
def draw_short_list(rng):
    """Return who has what of 5 to 20 items: 3,000 people, some with far more than others."""
    chances = rng.uniform(0.2, 0.9) / np.arange(1, rng.integers(5, 21) + 1) ** rng.uniform(0.3, 1.2)
    eager = rng.lognormal(-0.5, rng.uniform(0.3, 1.5), 3_000)
    return rng.random((3_000, len(chances))) < np.minimum(1.0, eager[:, None] * chances)


@functools.cache
def count_short_lists():
    """Return of 1,000 short lists the part of items in their interval, and ratios of sums of items of 100+ people."""
    rng = np.random.default_rng(17)
    inside, ratios = [], []
    for seed in range(1_000):
        held, budget = draw_short_list(rng), Budget(float(rng.uniform(0.5, 3.0)), 1e-6)
        plan, true = plan_of_counts(round(budget.epsilon, 1)), held.sum(axis=0)
        owner, items = np.nonzero(held)
        offsets = offsets_of(np.bincount(owner, minlength=len(held)))
        holdings = Holdings(offsets, items.astype(np.int32), held.any(axis=1), np.zeros(len(held), np.bool_))
        counted, *_ = counted_once(holdings, plan, len(true), seed)
        inside += ((np.array(counted.low) <= true) & (np.array(counted.high) >= true)).tolist()
        many = true >= 100
        if many.any():
            ratios.append(np.array(counted.people)[many].sum() / true[many].sum())
    return float(np.mean(inside)), np.array(ratios)


@functools.cache
def plan_of_counts(epsilon):
    return plan_release(WeightedGaussian(), Budget(epsilon, 1e-6), Counts()).counts


def test_short_lists_are_never_grossly_wrong():
    inside, ratios = count_short_lists()
    assert len(ratios) > 900
    assert inside >= 0.95
    assert not ((ratios < 0.8) | (ratios > 1.25)).any(), (ratios.min(), ratios.max())


def test_short_lists_would_be_wrong_if_losses_did_not_count(monkeypatch):
    """So the limits above mean something: the least noise, whoever is cut for it."""
    monkeypatch.setattr(estimates, "SURE", 0.0)
    monkeypatch.setattr(estimates, "CAUTION", 0.0)
    _, ratios = count_short_lists.__wrapped__()
    assert ((ratios < 0.8) | (ratios > 1.25)).any()


# --- data that nothing was tuned on -------------------------------------------------------------------------------
@functools.cache
def ratios_on_the_sample():
    """Return, over 100 keys, the sum of the estimates over that of the true numbers, of items of 100+ people."""
    table = pq.read_table(debian_depends())
    pairs = set(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))
    true = collections.Counter(item for _, item in pairs)
    found = []
    for key in range(100):
        made = dpunion.release(
            table, user="user", item="item", epsilon=1.0, delta=1e-6, counts=True, unsafe_test_key=key
        )
        many = [item for item in made.items if true[item] >= 100]
        found.append(sum(made.people[item] for item in many) / sum(true[item] for item in many))
    return np.array(found)


def test_sums_are_right_under_every_key_of_the_sample():
    """Intervals can contain the truth while all estimates are too high: only sums show that."""
    ratios = ratios_on_the_sample()
    assert ratios.min() > 0.9
    assert ratios.max() < 1.1


def test_random_worlds_are_right_by_their_worst():
    """30 worlds of a seed of their own; `dpunion lab worlds` judges as many as you like."""
    counts = judge_worlds(seed=77, count=30, judged=("counts",))["summary"]["counts"]
    assert counts["ratio"]["median"] <= 1.05
    assert counts["ratio"]["worst_twentieth"] <= 2.5
    assert len(counts["worlds_with_gross_sums"]) <= 1
    assert counts["bands_below"] <= 1


def test_people_who_are_not_seen_would_be_seen_in_random_worlds(monkeypatch):
    """So the limits above mean something: nobody with many items is expected, so that too many people are cut."""
    monkeypatch.setattr(estimates, "CAUTION", 0.05)
    counts = judge_worlds(seed=77, count=30, judged=("counts",))["summary"]["counts"]
    assert len(counts["worlds_with_gross_sums"]) > 1
    assert counts["ratio"]["median"] > 1.05


# --- people who were cut -------------------------------------------------------------------------------------------
@functools.cache
def reddit_like():
    """Return a heavy-tailed set, of what 15 people or more have, and how many people have each item."""
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


@functools.cache
def sums_of_heavy_tails(put_back=estimates.PUT_BACK):
    """Return the ratio of sums of items of 100+ people, the median error, the share of people cut (estimated, true)."""
    holdings, true = reddit_like()
    plan = plan_release(Funnel(), LARGE, Counts()).counts
    many, found = true >= 100, []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(estimates, "PUT_BACK", put_back)
        for seed in range(10):
            counted, cut, _ = counted_once(holdings, plan, len(true), seed)
            people = np.array(counted.people)
            error = float(np.median(np.abs(people / true - 1.0)))
            found.append((people[many].sum() / true[many].sum(), error, counted.totals.cut, float(cut.mean())))
    return np.mean(found, axis=0)


def test_sums_are_right_where_people_are_cut():
    ratio, error, estimated, true = sums_of_heavy_tails()
    assert 0.95 < ratio < 1.05
    assert error < 0.32
    assert 0.02 < true < 0.3
    assert estimated == pytest.approx(true, abs=0.08)


def test_without_putting_back_sums_would_be_lower():
    assert sums_of_heavy_tails(0.0)[0] < sums_of_heavy_tails()[0] - 0.01


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
