"""Run neighbouring databases, as bad as we know, many times each: many trials in one run of the real code.

The trials of a run are disjoint copies of one database: every copy has its own users and its own items. What the
engine does to a copy depends on that copy only. The user's name is the key of bounding and of the visiting order, and
two users meet only where they share an item, which is inside one copy. A policy's update touches the user's own items.
Every coin and every normal draw is a keyed function of the item's name. So one run over n copies is n runs, through
the same `encode` and `run_rounds` as a release, at millions of coins per second. That draws of different items are
independent is not assumed: `invariants.py` checks it.

Items are small numbers. A user is the tuple of that user's rows, which may repeat. The outcome of a trial says of each
of the first TRACKED items whether it was released, and of the others only how many were.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from dpunion.algorithms import Algorithm
from dpunion.budget import Budget
from dpunion.buffers import array_of
from dpunion.contributions import Contributions, Int64s, Uint8s
from dpunion.engines.local import run_rounds
from dpunion.mechanisms import mechanism_for
from dpunion.pipeline import release
from dpunion.plans import Plan, plan_release
from dpunion.randomness import RunKey
from dpunion.releases.release import Release
from dpunion.sets.encoding import encode
from dpunion.text.words import Normalization

TRACKED = 6
User = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NeighbourPair:
    """Two databases. rest: the users of both. extra: the user whom only one of them has."""

    name: str
    rest: tuple[User, ...]
    extra: User

    @property
    def rows(self) -> int:
        """Return the number of rows of the larger database."""
        return sum(map(len, self.rest)) + len(self.extra)


def singles(items: int, count: int) -> tuple[User, ...]:
    """Return `count` users for each item, who have only this item."""
    return tuple((item,) for item in range(items) for _ in range(count))


def neighbour_pairs(plan: Plan) -> Iterator[NeighbourPair]:
    """Yield the pairs for a plan; their sizes follow from its threshold, noise and limit.

    In every algorithm, a user with one item gives it weight 1, so the weight of an item is the number of such users.
    """
    limit = plan.algorithm.max_items_per_user
    for novel in sorted({1, (limit + 1) // 2, limit}):
        yield NeighbourPair(f"lone user, {novel} novel", (), tuple(range(novel)))
    # A test of one item is sharpest when its weight is one or two noise scales away from the threshold.
    away = 1.8 * plan.scale
    places = {"far below": -away, "below": -0.5 * away, "at": 0.0, "above": 0.5 * away, "far above": away}
    for items in sorted({1, min(limit, 4)}):
        for place in places if items == 1 else ("below", "at", "above"):
            count = max(1, round(plan.threshold + places[place] - 0.5))
            yield NeighbourPair(f"{items} shared {place} the threshold", singles(items, count), tuple(range(items)))
    if limit >= 2:
        count = max(1, round(plan.threshold / math.sqrt(0.5)))
        yield NeighbourPair("displaces others", ((0, 1),) * count, (0,))
        support = max(1, round(plan.threshold - away))
        yield NeighbourPair("survivors next to a shared item", singles(1, support), tuple(range(limit)))
    yield NeighbourPair("repeated rows", (), (0,) * 10)
    yield NeighbourPair("more items than the limit", (), tuple(range(min(8 * limit, 200))))


Batch = tuple[pa.Array, pa.Array]

HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
TRIAL_DIGITS = 8
NUMBER_DIGITS = 4
WIDTH = TRIAL_DIGITS + NUMBER_DIGITS
# The rows of one run; more trials take more runs, each with its own key.
ROWS_PER_RUN = 2_000_000
MOST_COUNTED = 3


def encode_for(plan: Plan, batches: Iterable[Batch], key: RunKey, *, limit: int | None = None) -> Contributions:
    """Encode rows as `dpunion.release` does. limit: instead of the plan's."""
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
    """Make a release of rows with `dpunion.release`."""
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
    """Make a release and write it."""
    make_release(algorithm, budget, rows, test_key, out=path)


@dataclass(frozen=True, slots=True)
class Patch:
    """A name in a module or class of the real code, and its replacement while a mutant is audited."""

    owner: Any
    name: str
    mistake: Any


@dataclass(frozen=True, slots=True)
class System:
    """The parts of a release that an audit runs; the defaults are the real ones, and a mutant replaces one.

    patches: replacements inside the shipped code, for checks that run all of `dpunion.release`.
    """

    plan: Callable[[Algorithm, Budget], Plan] = plan_release
    encode: Callable[[Plan, Iterable[Batch], RunKey], Contributions] = encode_for
    select: Callable[[Plan, Contributions, RunKey], Int64s] = select_for
    new_key: Callable[[], RunKey] = RunKey.fresh
    write: Callable[[Algorithm, Budget, Batch, int | None, Path], None] = write_release
    patches: tuple[Patch, ...] = ()

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Apply the patches inside the context."""
        with contextlib.ExitStack() as stack:
            for patch in self.patches:
                stack.enter_context(mock.patch.object(patch.owner, patch.name, patch.mistake))
            yield


def repeatable_keys(seed: int) -> Callable[[], RunKey]:
    """Return a source of fixed, distinct keys, for audits that must repeat exactly."""
    numbers = iter(range(seed * 1_000_000, (seed + 1) * 1_000_000))
    return lambda: RunKey.for_tests(next(numbers))


def names(trials: Int64s, numbers: Int64s) -> pa.Array:
    """Return names of fixed width: the trial and the number in hexadecimal."""
    digits = np.empty((len(trials), WIDTH), np.uint8)
    for place in range(TRIAL_DIGITS):
        digits[:, place] = HEX[(trials >> (4 * (TRIAL_DIGITS - 1 - place))) & 15]
    for place in range(NUMBER_DIGITS):
        digits[:, TRIAL_DIGITS + place] = HEX[(numbers >> (4 * (NUMBER_DIGITS - 1 - place))) & 15]
    ends = np.arange(len(trials) + 1, dtype=np.int32) * WIDTH
    return array_of(ends, digits, pa.string())


def parse_names(data: Uint8s) -> tuple[Int64s, Int64s]:
    """Return the trials and numbers of names. data: uint8[n, WIDTH]."""
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
    """Return the trials and item numbers of the chosen items."""
    data: Any = np.ascontiguousarray(contributions.table.data)[: len(contributions.table) * WIDTH]
    return parse_names(data.reshape(-1, WIDTH)[chosen])


def outcomes(system: System, plan: Plan, users: tuple[User, ...], trials: int) -> Int64s:
    """Run the database `trials` times; return the outcome of each run as a code: int64[trials].

    The code has one bit for each of the first TRACKED items, and above them the number of other released items, up to
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
