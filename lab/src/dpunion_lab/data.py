"""Data for a study: read and encoded once, then bounded afresh for every trial.

Guarantees: none. What is measured on it is NOT PRIVATE, and its fingerprint is an unkeyed function of it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpunion.algorithms import MAX_ITEMS, Bounding
from dpunion.contributions import Contributions, Int64s
from dpunion.engines.local.engine import LocalEngine, open_request, read_sets
from dpunion.randomness import RunKey
from dpunion.requests import Progress, Request, Run
from dpunion_lab.generators import Generated

ENCODING_KEY = 0
COVERAGE = (5, 10, 15, 18, 20, 25)
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
    """Read a source as `dpunion.release` does, or `Generated` data, and keep everything of everybody.

    asked: user, item, text, query, null_users, normalize, as in `dpunion.release`.
    """
    if isinstance(source, Generated):
        name = source.name
        request = Request.of(source.reader(), user="user", item="item")
    else:
        request = Request.of(source, **asked)
        shortest, longest = request.lengths
        name = _name(request) + (f", n-grams {shortest}-{longest}" if longest > 1 else "")
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


def _name(request: Request) -> str:
    """Return what a source may be called in public: no folders, no passwords."""
    if not request.is_named:
        return "data in memory"
    names = LocalEngine.for_run(Run(), None).name_sources(request)
    return ", ".join(Path(name).name for name in names)
