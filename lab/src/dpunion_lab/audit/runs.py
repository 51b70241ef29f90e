"""Many independent trials of a tiny database in one run of the real code.

The trials are disjoint copies: every copy has its own users and its own items. What the engine does to a copy depends
on that copy alone: bounding and visiting order are keyed by the user's name and compare users of the same copy only
where their items meet; a policy's update touches the user's own items; every coin and every normal is a keyed
function of the item's name. So one run over n copies is n runs, through `encode` and `run_rounds` as a release
goes, at millions of coins per second. That draws of different items are independent is itself a check
(`invariants.py`), not an assumption.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from dpunion.algorithms import Algorithm
from dpunion.budget import Budget
from dpunion.contributions import Contributions, Int64s, Uint8s
from dpunion.engines.local.rounds import run_rounds
from dpunion.mechanisms import mechanism_for
from dpunion.pipeline import release
from dpunion.plans import Plan, plan_release
from dpunion.randomness import RunKey
from dpunion.releases.release import Release
from dpunion.sets.encoding import encode
from dpunion.text.normal_forms import Normalization
from dpunion_lab.audit.neighbours import TRACKED, User

Batch = tuple[pa.Array, pa.Array]

HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
TRIAL_DIGITS = 8
NUMBER_DIGITS = 4
WIDTH = TRIAL_DIGITS + NUMBER_DIGITS
# This many rows go through one run; more trials take more runs, each with its own key.
ROWS_PER_RUN = 2_000_000
MOST_COUNTED = 3


def encode_for(plan: Plan, batches: Iterable[Batch], key: RunKey, *, limit: int | None = None) -> Contributions:
    """Encode rows as `dpunion.release` does; limit: another one than the plan's."""
    return encode(
        batches,
        key,
        max_items_per_user=limit or plan.algorithm.bounding.limit,
        user_order=plan.algorithm.bounding.order,
        normalization=Normalization.NFC,
        split_words=False,
    )


def select_for(plan: Plan, contributions: Contributions, key: RunKey) -> Int64s:
    """Select as `dpunion.release` does."""
    return run_rounds(mechanism_for(plan), contributions, key, threads=1)


def make_release(algorithm: Algorithm, budget: Budget, rows: Batch, test_key: int | None, **options: Any) -> Release:
    """Make a release of rows, by `dpunion.release` itself."""
    return release(
        pa.table({"user": rows[0], "item": rows[1]}),
        user="user",
        item="item",
        epsilon=budget.epsilon,
        delta=budget.delta,
        weak_budget=True,
        algorithm=algorithm,
        unsafe_test_key=test_key,
        **options,
    )


def write_release(algorithm: Algorithm, budget: Budget, rows: Batch, test_key: int | None, path: Path) -> None:
    """Make a release and have it written."""
    make_release(algorithm, budget, rows, test_key, out=path)


@dataclass(frozen=True, slots=True)
class Patch:
    """A name inside the real code (of a module or class), and what stands there while a mutant is audited."""

    owner: Any
    name: str
    mistake: Any


@dataclass(frozen=True, slots=True)
class System:
    """The parts of a release that an audit exercises; the defaults are the real ones, a mutant replaces one.

    patches: mistakes inside the shipped code itself, for checks that drive all of `dpunion.release`.
    """

    plan: Callable[[Algorithm, Budget], Plan] = plan_release
    encode: Callable[[Plan, Iterable[Batch], RunKey], Contributions] = encode_for
    select: Callable[[Plan, Contributions, RunKey], Int64s] = select_for
    new_key: Callable[[], RunKey] = RunKey.fresh
    write: Callable[[Algorithm, Budget, Batch, int | None, Path], None] = write_release
    patches: tuple[Patch, ...] = ()

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the patches in for as long as the context lasts."""
        with contextlib.ExitStack() as stack:
            for patch in self.patches:
                stack.enter_context(mock.patch.object(patch.owner, patch.name, patch.mistake))
            yield


def repeatable_keys(seed: int) -> Callable[[], RunKey]:
    """Return a source of fixed keys, each different, for audits that must repeat exactly."""
    numbers = iter(range(seed * 1_000_000, (seed + 1) * 1_000_000))
    return lambda: RunKey.for_tests(next(numbers))


def names(trials: Int64s, numbers: Int64s) -> pa.Array:
    """Return fixed-width names: the trial and the number, in hexadecimal."""
    digits = np.empty((len(trials), WIDTH), np.uint8)
    for place in range(TRIAL_DIGITS):
        digits[:, place] = HEX[(trials >> (4 * (TRIAL_DIGITS - 1 - place))) & 15]
    for place in range(NUMBER_DIGITS):
        digits[:, TRIAL_DIGITS + place] = HEX[(numbers >> (4 * (NUMBER_DIGITS - 1 - place))) & 15]
    ends = np.arange(len(trials) + 1, dtype=np.int32) * WIDTH
    return pa.StringArray.from_buffers(len(trials), pa.py_buffer(ends), pa.py_buffer(digits))


def parsed(data: Uint8s) -> tuple[Int64s, Int64s]:
    """Return the trials and numbers of names: data is uint8[n, WIDTH]."""
    values = data.astype(np.int64)
    values = np.where(values >= ord("a"), values - ord("a") + 10, values - ord("0"))
    powers = 16 ** np.arange(TRIAL_DIGITS - 1, -1, -1)
    return values[:, :TRIAL_DIGITS] @ powers, values[:, TRIAL_DIGITS:] @ powers[-NUMBER_DIGITS:]


def copies(users: tuple[User, ...], trials: int) -> Batch:
    """Return the rows of `trials` disjoint copies of a database."""
    owner = np.array([number for number, items in enumerate(users) for _ in items], np.int64)
    items = np.array([item for held in users for item in held], np.int64)
    trial = np.repeat(np.arange(trials), len(owner))
    return names(trial, np.tile(owner, trials)), names(trial, np.tile(items, trials))


def chosen_names(contributions: Contributions, chosen: Int64s) -> tuple[Int64s, Int64s]:
    """Return the trials and item numbers of the chosen items, all of whose names have the fixed width."""
    data: Any = np.ascontiguousarray(contributions.table.data)[: len(contributions.table) * WIDTH]
    return parsed(data.reshape(-1, WIDTH)[chosen])


def outcomes(system: System, plan: Plan, users: tuple[User, ...], trials: int) -> Int64s:
    """Run the database `trials` times; return what came out of each: int64[trials].

    The code holds one bit for each of the first TRACKED items, and above them how many others came out, up to
    MOST_COUNTED.
    """
    if not users:
        return np.zeros(trials, np.int64)
    per_run = max(1, ROWS_PER_RUN // sum(map(len, users)))
    runs = [_one_run(system, plan, users, min(per_run, trials - first)) for first in range(0, trials, per_run)]
    return np.concatenate(runs)


def _one_run(system: System, plan: Plan, users: tuple[User, ...], trials: int) -> Int64s:
    key = system.new_key()
    contributions = system.encode(plan, [copies(users, trials)], key)
    trial, item = chosen_names(contributions, system.select(plan, contributions, key))
    tracked = item < TRACKED
    codes = np.zeros(trials, np.int64)
    np.bitwise_or.at(codes, trial[tracked], np.left_shift(1, item[tracked]))
    others = np.bincount(trial[~tracked], minlength=trials)
    result: Int64s = codes + (np.minimum(others, MOST_COUNTED) << TRACKED)
    return result
