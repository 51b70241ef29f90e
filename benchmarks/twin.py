"""A release by the readable twins of the kernels: Funnel in plain Python, to be timed and compared.

Numbering, grouping, bounding and descending are those of tests/twins; the draws are the library's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpunion.contributions import offsets_of
from dpunion.plans import Plan
from dpunion.randomness import Purpose, RunKey

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from twins import hashing, kernels


def digests_of(key: RunKey, purpose: Purpose, names: Sequence[bytes]) -> Any:
    """Return the run key's digests of some names: uint64[n, 2]."""
    offsets = offsets_of(np.array([len(name) for name in names], np.int64))
    return key.digests(purpose, offsets, np.frombuffer(b"".join(names), np.uint8))


def order_of(digests: Any) -> list[int]:
    """Return the places of digests in rising order."""
    words = digests.tolist()
    return sorted(range(len(words)), key=words.__getitem__)


def bounded_sets(pairs: Sequence[tuple[str, str]], plan: Plan, key: RunKey) -> tuple[list[list[int]], list[bytes], Any]:
    """Return each user's kept items in visiting order, the items by number, and their digests."""
    owners, people = kernels.number_strings(user.encode() for user, _ in pairs)
    held, words = kernels.number_strings(item.encode() for _, item in pairs)
    raw = digests_of(key, Purpose.ITEM, words)
    order = order_of(raw)
    number = {old: new for new, old in enumerate(order)}
    digests = raw[order]
    people_digests = digests_of(key, Purpose.USER, people)
    keys = key.words(Purpose.BOUND, 0, people_digests)
    sets = kernels.group_by_user((owner, number[item]) for owner, item in zip(owners, held, strict=True))
    limit = plan.algorithm.max_items_per_user
    for user, items in sets.items():
        if len(items) > limit:
            own = keys[user].tobytes()

            def priority(item: int, own: bytes = own) -> int:
                return hashing.siphash24(own, digests[item].tobytes())

            sets[user] = kernels.keep_smallest(items, priority, limit)
    people_words = people_digests.tolist()
    visited = sorted(sets, key=lambda user: (len(sets[user]), people_words[user]))
    return [sets[user] for user in visited], [words[old] for old in order], digests


def release_by_twins(pairs: Sequence[tuple[str, str]], plan: Plan, key: RunKey) -> set[str]:
    """Run Funnel's plan on (user, item) pairs, with the smallest sets first: return the released items."""
    sets, words, digests = bounded_sets(pairs, plan, key)
    funnel: Any = plan.algorithm
    alive = {item for items in sets for item in items}
    scores = [0.0] * len(words)
    cutoffs = funnel.cutoffs(plan.scale, plan.threshold)
    for number, (one, cutoff, aim) in enumerate(zip(plan.rounds, cutoffs, funnel.aims, strict=True)):
        wanting = {item for item in alive if scores[item] <= plan.threshold}
        targets = [max(0.0, cutoff - score) * aim if item in wanting else 0.0 for item, score in enumerate(scores)]
        gaps = list(targets)
        kernels.descend_ball(sets, gaps, one.budget)
        noise = key.normals(number, digests)
        for item in wanting:
            scores[item] += one.budget * (targets[item] - gaps[item] + one.stddev * float(noise[item]))
        alive = {item for item in alive if scores[item] > one.threshold}
        sets = [[item for item in items if item in alive] for items in sets]
    return {words[item].decode() for item in alive}
