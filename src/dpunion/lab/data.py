"""Data for a study: read and encoded once, then bounded afresh for every trial.

Guarantees: none. What is measured on it is NOT PRIVATE, and its fingerprint is an unkeyed function of it.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpunion.algorithms import MAX_ITEMS, Bounding
from dpunion.contributions import Contributions, Int64s, offsets_of
from dpunion.engines.local.engine import open_request, read_sets
from dpunion.kernels.bounding import gather_users
from dpunion.lab.generators import AskRedditLike
from dpunion.randomness import Purpose, RunKey
from dpunion.reading.databases import public_name
from dpunion.requests import Progress, Request, Run
from dpunion.sets.grouping import keep_of_heavy, visiting_order

ENCODING_KEY = 0
COVERAGE = (5, 10, 15, 20, 25)
"""The numbers of holders for which coverage is told (k of k-anonymity)."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LabData:
    """A set for study, whole: nobody's items are cut. holders: int64[items], how many users hold each item.

    Guarantees: nothing about the values shows in the repr.
    """

    name: str
    everything: Contributions
    holders: Int64s
    fingerprint: str

    def __repr__(self) -> str:
        return f"LabData({self.name!r}, <sensitive>)"

    @property
    def facts(self) -> dict[str, Any]:
        """Return the exact numbers of the set, which are NOT PRIVATE."""
        return {
            "name": self.name,
            "fingerprint": self.fingerprint,
            "users": self.everything.users,
            "pairs": len(self.everything.items),
            "items": len(self.holders),
        }


def load(source: Any, *, progress: Progress | None = None, **asked: Any) -> LabData:
    """Read a source as `dpunion.release` does, or an `AskRedditLike` to generate, and keep everything of everybody.

    asked: user, item, text, query, null_users, normalize, as in `dpunion.release`.
    """
    if isinstance(source, AskRedditLike):
        name = f"AskReddit-like, {source.users:,} users, seed {source.seed}"
        usual = AskRedditLike()
        if replace(source, users=usual.users, seed=usual.seed) != usual:
            name += f", {source.items:,} ranks, knee at {source.knee:,}, exponent {source.exponent:g}"
        request = Request.of(source.reader(), user="user", item="item")
    else:
        request = Request.of(source, **asked)
        shortest, longest = request.lengths
        name = _name(source) + (f", n-grams {shortest}-{longest}" if longest > 1 else "")
    with open_request(request, Run(progress=progress), None) as rows:
        return encoded(name, read_sets(request, rows, Bounding(MAX_ITEMS), RunKey.for_tests(ENCODING_KEY)))


def encoded(name: str, everything: Contributions) -> LabData:
    """Wrap contributions that hold everything of everybody."""
    digest = hashlib.sha256(b"dpunion-lab-data/1")
    # Users and items stand in the order of their digests by a fixed key, so the same set has the same fingerprint.
    for part in (everything.user_digests, everything.offsets, everything.table.digests, everything.items):
        digest.update(np.ascontiguousarray(part).data.cast("B"))
    holders = np.bincount(everything.items, minlength=len(everything.table)).astype(np.int64)
    return LabData(name, everything, holders, digest.hexdigest())


def bounded(data: LabData, bounding: Bounding, key: RunKey) -> Contributions:
    """Return the set as a release with this key would see it: at most the limit of each user, in its order."""
    everything, limit = data.everything, bounding.limit
    # subtle: words of a digest under the trial's key are as good as digests of the name under it.
    user_digests = key.words(Purpose.USER, 0, everything.user_digests)
    starts, sizes, items = everything.offsets[:-1], np.diff(everything.offsets), everything.items
    heavy = np.flatnonzero(sizes > limit)
    if len(heavy):
        items = items.copy()
        heavy_keys = key.words(Purpose.BOUND, 0, user_digests[heavy])
        keep_of_heavy(starts, items, sizes, heavy, heavy_keys, everything.table.digests, limit)
    visited = visiting_order(sizes, user_digests, bounding.order)
    offsets = offsets_of(sizes[visited])
    kept = np.empty(int(offsets[-1]), np.int32)
    gather_users(starts, items, visited, offsets, kept)
    return Contributions(offsets, kept, everything.table, user_digests[visited], limit)


def _name(source: Any) -> str:
    """Return what a source may be called in public: no folders, no passwords."""
    if isinstance(source, (list, tuple)) and source and all(isinstance(one, (str, os.PathLike)) for one in source):
        return ", ".join(_name(one) for one in source)
    if isinstance(source, str) and "://" in source:
        return public_name(source)
    return Path(source).name if isinstance(source, (str, os.PathLike)) else "data in memory"
