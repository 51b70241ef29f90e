"""One machine: everybody's sets are arrays in this process; `run_rounds` runs the rounds on them."""

from __future__ import annotations

import contextlib

import numpy as np

from dpunion.calibration.rounding import MAX_USERS
from dpunion.checks import refuse_more_than
from dpunion.contributions import Contributions, Int64s, Uint64s
from dpunion.counting.holdings import find_listed as find_listed
from dpunion.errors import InternalError
from dpunion.mechanisms import Mechanism, State
from dpunion.randomness import RunKey
from dpunion.sets.narrowing import Sets
from dpunion.threads import Threads, usable_cores


def run_rounds(
    mechanism: Mechanism,
    contributions: Contributions,
    key: RunKey,
    threads: int | None = None,
    listed: Uint64s | None = None,
) -> Int64s:
    """Run the rounds, each one call of weigh and one of decide: return the numbers of the items to release.

    threads: at most this many, and no more than the usable cores. listed: the digests of a public list, uint64[n, 2];
    then the numbers from len(contributions.table) on are places on this list, of items that nobody keeps.

    Guarantees:
    - the number of threads changes nothing;
    - contributions bounded more loosely than planned, and more users than the rounding slack covers, are refused;
    - the numbers depend on the contributions and the key only, and nothing else is returned.
    """
    if contributions.max_items_per_user > mechanism.bounding.limit:
        raise InternalError("the contributions are bounded more loosely than the plan assumes")
    if contributions.users > MAX_USERS:
        refuse_more_than(MAX_USERS, "users")
    count = min(threads or usable_cores(), usable_cores())
    table = contributions.table
    places = None if listed is None else find_listed(table.digests, listed)
    with contextlib.nullcontext() if count == 1 else Threads(count) as pool:
        sets, state = Sets(contributions, pool), State.start(len(table), None if places is None else places >= 0)
        marking = None if pool is None or listed is None else pool.submit(mechanism.mark, listed, key)
        for number in range(mechanism.rounds):
            if number:
                sets.narrow(state.alive & ~state.released, may_wait=mechanism.skips_gone)
            weights = mechanism.weigh(sets, state, number, key)
            state = mechanism.decide(weights, state, number, sets.digests, key)
        released = np.flatnonzero(state.released)
        if listed is None or places is None:
            return released
        # subtle: `held` means kept by the plan that runs, before the first round drops anything. An item that somebody
        # has but nobody keeps is treated like one that nobody has (docs/guarantees-funnel.md, section 11).
        marked = np.flatnonzero(mechanism.mark(listed, key) if marking is None else marking.result())
        unkept = np.ones(len(listed), np.bool_)
        unkept[places[(places >= 0) & sets.held]] = False
        return np.concatenate([released, len(table) + marked[unkept[marked]]])
