"""A lone user's novel items through the real Funnel: how often one comes out, against the bound that delta pays for.

Each trial is a user with items of its own, so one run is many independent trials: every item's noise is a keyed
function of its digest, and nobody shares an item.
"""

import dataclasses
import functools
import math
import os

import numpy as np
import pytest

from dpunion.algorithms import Funnel
from dpunion.budget import Budget
from dpunion.contributions import Contributions, ItemTable
from dpunion.engines.local import run_rounds
from dpunion.kernels.normal import gaussian_delta
from dpunion.mechanisms import mechanism_for
from dpunion.plans import plan_release
from dpunion.randomness import RunKey
from dpunion_lab.audit.empirical import lower_bound, upper_bound
from weighing import novelty_bounds

FUNNEL = Funnel()
PLAN = plan_release(FUNNEL, Budget(1.0, 0.02))
BOUNDS = novelty_bounds(PLAN.scale, PLAN.threshold, FUNNEL)
ITEMS_PER_RUN = 3_000_000
CONFIDENCE = 1e-3


def lone_users(trials, novel, first):
    """Return `trials` users with `novel` items each that nobody else holds; digests are counters from `first` on."""
    items = trials * novel
    numbers = np.arange(first, first + items, dtype=np.uint64)
    digests = np.stack([numbers, np.zeros(items, np.uint64)], axis=1)
    table = ItemTable(np.zeros(items + 1, np.int64), np.empty(0, np.uint8), digests)
    offsets = np.arange(trials + 1, dtype=np.int64) * novel
    users = np.zeros((trials, 2), np.uint64)
    return Contributions(offsets, np.arange(items, dtype=np.int32), table, users, FUNNEL.max_items_per_user)


def exposed(trials, novel, key, plan=PLAN):
    """Return in how many trials any novel item was released."""
    found, done = 0, 0
    while done < trials:
        now = min(trials - done, ITEMS_PER_RUN // novel)
        chosen = run_rounds(mechanism_for(plan), lone_users(now, novel, done * novel), key)
        found += len(np.unique(chosen // novel))
        done += now
    return found


@functools.cache
def measured(novel, trials):
    """Return a 99.9 % interval of the chance that any of `novel` items comes out."""
    hits = exposed(trials, novel, RunKey.for_tests(novel))
    return lower_bound(hits, trials, CONFIDENCE), upper_bound(hits, trials, CONFIDENCE)


# `make audit` runs more: DPUNION_AUDIT_SCALE times as many trials.
SCALE = int(os.environ.get("DPUNION_AUDIT_SCALE", "1"))
TRIALS = {novel: SCALE * trials for novel, trials in {1: 400_000, 10: 300_000, 100: 30_000, 300: 15_000}.items()}
# What delta leaves for t novel items beside the noise (docs/guarantees.md, Theorem A).
ALLOWED = {
    novel: PLAN.budget.delta
    - gaussian_delta(
        PLAN.budget.epsilon, math.sqrt(1.0 - FUNNEL.first_share * novel / FUNNEL.max_items_per_user) / PLAN.scale
    )
    for novel in TRIALS
}


@pytest.mark.parametrize("novel", TRIALS)
def test_novel_items_come_out_no_more_often_than_the_bound_says(novel):
    """With one novel item the bound is the truth itself, so that no more than this can be said."""
    assert measured(novel, TRIALS[novel])[0] <= BOUNDS[novel]


@pytest.mark.parametrize("novel", TRIALS)
def test_novel_items_come_out_surely_less_often_than_delta_pays_for(novel):
    """With many novel items the truth is nine tenths of what is paid for: seeing that takes many trials."""
    needed = {100: 16, 300: 8}.get(novel, 1)
    if needed > SCALE:
        pytest.skip(f"needs DPUNION_AUDIT_SCALE={needed}")
    assert measured(novel, TRIALS[novel])[1] <= ALLOWED[novel]


def test_the_bound_is_within_three_times_of_what_happens_where_it_decides():
    worst = max(TRIALS, key=lambda novel: BOUNDS[novel])
    assert measured(worst, TRIALS[worst])[0] >= BOUNDS[worst] / 3.0


def test_a_threshold_six_percent_too_low_would_be_noticed():
    rounds = (*PLAN.rounds[:-1], dataclasses.replace(PLAN.rounds[-1], threshold=0.94 * PLAN.threshold))
    lower = dataclasses.replace(PLAN, threshold=0.94 * PLAN.threshold, rounds=rounds)
    hits = exposed(10_000, 300, RunKey.for_tests(9), lower)
    assert lower_bound(hits, 10_000, CONFIDENCE) > BOUNDS[300]
