"""Data for a study: the lab reads and encodes it once, and every trial bounds it anew.

Guarantees: none. Measurements on the data are NOT PRIVATE, and its fingerprint is computed without a key.
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

NOT_PRIVATE = (
    "NOT PRIVATE: a study, not a release. All numbers below, also those of users and items, are exact, without noise, "
    "and say something about the people in the data. Study public or generated data only."
)

ENCODING_KEY = 0
COVERAGE = (5, 10, 15, 18, 20, 25)
"""The k of k-anonymity for which the lab reports coverage: items that at least k users have."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LabData:
    """Everybody's whole set, for study. holders: int64[items], how many users have each item.

    Guarantees: the repr shows nothing of the values.
    """

    name: str
    everything: Contributions
    holders: Int64s
    fingerprint: str

    def __repr__(self) -> str:
        return f"LabData({self.name!r}, <sensitive>)"

    @property
    def facts(self) -> dict[str, Any]:
        """Return the exact sizes of the data, which are NOT PRIVATE."""
        return {
            "name": self.name,
            "fingerprint": self.fingerprint,
            "users": self.everything.users,
            "pairs": len(self.everything.items),
            "items": len(self.holders),
        }


def load(source: Any, *, progress: Progress | None = None, **reading: Any) -> LabData:
    """Read a source as `dpunion.release` does, or `Generated` data, and keep all items of all users.

    reading: user, item, text, query, null_users, normalize, as in `dpunion.release`.
    """
    if isinstance(source, Generated):
        name = source.name
        request = Request.of(source.reader(), user="user", item="item")
    else:
        request = Request.of(source, **reading)
        shortest, longest = request.lengths
        name = _name(request) + (f", n-grams {shortest}-{longest}" if longest > 1 else "")
    with open_request(request, Run(progress=progress)) as rows:
        return wrap_sets(name, read_sets(request, rows, Bounding(MAX_ITEMS), RunKey.for_tests(ENCODING_KEY)))


def wrap_sets(name: str, everything: Contributions) -> LabData:
    """Add the holders of each item and a fingerprint to everybody's whole sets."""
    digest = hashlib.sha256(b"dpunion-lab-data/1")
    # The key of the digests is fixed, and users and items are in the order of their digests: equal data, equal print.
    for part in (everything.user_digests, everything.offsets, everything.table.digests, everything.items):
        digest.update(np.ascontiguousarray(part).data.cast("B"))
    holders = np.bincount(everything.items, minlength=len(everything.table)).astype(np.int64)
    return LabData(name, everything, holders, digest.hexdigest())


def _name(request: Request) -> str:
    """Return a name of the source that is fit to print, without folders and passwords."""
    if not request.is_named:
        return "data in memory"
    names = LocalEngine.for_run(Run(), None).name_sources(request)
    return ", ".join(Path(name).name for name in names)
