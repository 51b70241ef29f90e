"""The chance that Funnel misses an item that many people keep."""

import math
import runpy
from pathlib import Path

import numpy as np
import pytest

from dpunion.algorithms import Funnel
from dpunion.budget import Budget
from dpunion.errors import BadParameter
from dpunion.plans import plan_release

missing_chance = runpy.run_path(Path(__file__).parents[3] / "benchmarks" / "missing.py")["missing_chance"]
EVEN = Funnel(rounds=4, first_share=0.25, keep_fraction=0.9, keep_margin=1.0, cutoff_margin=3.0, haste=1.0)


def planned(shape, epsilon=3.0, delta=1e-5):
    plan = plan_release(shape, Budget(epsilon, delta))
    return plan.scale, plan.threshold, shape


@pytest.mark.parametrize("limit", [10, 30, 100, 300, 1000])
@pytest.mark.parametrize(("epsilon", "delta"), [(3.0, math.exp(-10)), (1.0, 1e-5)])
def test_what_very_many_people_keep_is_missing_less_than_once_in_a_million(limit, epsilon, delta):
    numbers = planned(Funnel(max_items_per_user=limit), epsilon, delta)
    assert missing_chance(*numbers, 100_000) < 1e-7
    assert missing_chance(*numbers, round(150 * math.sqrt(limit) * numbers[0])) < 1e-6


def test_without_haste_one_in_a_few_hundred_is_missing():
    assert 1e-3 < missing_chance(*planned(EVEN), 10**6) < 1e-2


def simulated(stddev, threshold, shape, brought, trials):
    """Walk items that get this part of their targets."""
    random = np.random.default_rng(1)
    score, missed, passed, spent = np.zeros(trials), np.zeros(trials, bool), np.zeros(trials, bool), 0.0
    for number, square in enumerate(shape.squared_shares):
        share, left = math.sqrt(square), 1.0 - spent
        need = threshold + shape.cutoff_margin * stddev * math.sqrt(left) - score
        target = need * min(shape.haste * share / left, 1.0 / share)
        score += np.where(passed, 0.0, share * (brought * target + stddev * random.standard_normal(trials)))
        spent += square
        passed |= score > threshold
        line = shape.keep_fraction * spent * threshold - shape.keep_margin * stddev * math.sqrt(spent)
        missed |= ~passed & ((score <= line) | (number + 1 == shape.rounds))
    return missed.mean()


@pytest.mark.parametrize("brought", [1.0, 0.7, 0.5])
def test_the_chance_is_that_of_a_simulated_walk(brought):
    shape = Funnel(
        max_items_per_user=1, rounds=4, first_share=0.3, keep_margin=1.2, keep_fraction=1.0, cutoff_margin=1.5
    )
    stddev, threshold = 1.3, 7.0
    # With one item each, the first round's gifts are the smallest part: find the keepers that bring about this much.
    highest = [
        aim * (cutoff - line)
        for aim, cutoff, line in zip(
            shape.aims, shape.cutoffs(stddev, threshold), (0.0, *shape.keep_lines(stddev, threshold)), strict=True
        )
    ]
    parts = [share / high for share, high in zip(shape.shares, highest, strict=True)]
    keepers = 10**6 if brought == 1.0 else max(1, round(math.log(1.0 - brought) / math.log(1.0 - min(parts))))
    least, most = (1.0 - (1.0 - pick(parts)) ** keepers for pick in (min, max))
    chance = missing_chance(stddev, threshold, shape, keepers)
    low, high = (simulated(stddev, threshold, shape, part, 400_000) for part in (most, least))
    error = 4.0 * math.sqrt(max(high, 1e-5) / 400_000)
    assert low - error <= chance <= high + error
    assert chance > 5e-4


def test_more_keepers_and_less_company_help():
    numbers = planned(Funnel())
    chances = [missing_chance(*numbers, keepers) for keepers in (10, 100, 1_000, 10_000)]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] > 0.5
    assert missing_chance(*numbers, 100, company=10) < missing_chance(*numbers, 100, company=100) < chances[1]
    with pytest.raises(BadParameter):
        missing_chance(*numbers, 0)
    with pytest.raises(BadParameter):
        missing_chance(*numbers, 10, company=301)
