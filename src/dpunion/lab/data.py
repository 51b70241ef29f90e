"""Data for a study: read and encoded once, then bounded afresh for every trial.

Guarantees: none. What is measured on it is NOT PRIVATE, and its fingerprint is an unkeyed function of it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpunion.algorithms import MAX_ITEMS, Bounding, as_choice
from dpunion.contributions import Contributions, Int64s
from dpunion.errors import BadParameter
from dpunion.lab.generators import AskRedditLike
from dpunion.pipeline import PLAIN, Reading, lengths_of, read, splitting_of
from dpunion.randomness import RunKey
from dpunion.reading import NullUserPolicy, ValueKind
from dpunion.reading.databases import public_name
from dpunion.sets.encoding import Normalization

Progress = Callable[[str, float | None], None]

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


def load(
    source: Any,
    *,
    user: str | None = None,
    item: Any = None,
    text: str | None = None,
    ngrams: str | tuple[int, int] | None = None,
    tokenizer: str = "words",
    drop_urls: bool = False,
    sentences: bool = False,
    query: str | None = None,
    input_format: str | None = None,
    null_users: str = "refuse",
    normalize: str = "nfc",
    progress: Progress | None = None,
) -> LabData:
    """Read a source as `dpunion.release` does, or an `AskRedditLike` to generate, and keep everything of everybody."""
    if isinstance(source, AskRedditLike):
        name = f"AskReddit-like, {source.users:,} users, seed {source.seed}"
        usual = AskRedditLike()
        if replace(source, users=usual.users, seed=usual.seed) != usual:
            name += f", {source.items:,} ranks, knee at {source.knee:,}, exponent {source.exponent:g}"
        source, user, item = source.reader(), "user", "item"
    else:
        name = _name(source) + (f", n-grams {ngrams}" if ngrams else "")
    if item is not None and text is not None:
        raise BadParameter("Both 'item' and 'text' were given.", "Name one: ready items, or texts to split into words.")
    if text is None and (ngrams is not None or tokenizer != "words" or drop_urls or sentences):
        raise BadParameter("n-grams and tokenizers are for texts.", "Name the column of texts with 'text' (--text).")
    reading = Reading(
        source=source,
        user=user,
        kind=ValueKind.ITEM if text is None else ValueKind.TEXT,
        value=text if text is not None else tuple(item) if isinstance(item, list) else item,
        query=query,
        input_format=input_format,
        null_users=as_choice("null_users", null_users, NullUserPolicy),
        normalization=as_choice("normalize", normalize, Normalization),
        known=None,
        memory_limit=None,
        lengths=lengths_of(ngrams),
        splitting=PLAIN
        if text is None
        else splitting_of(tokenizer, drop_urls=drop_urls, sentences=sentences, locale="en"),
    )
    tell = progress or (lambda _stage, _done: None)
    return encoded(name, read(reading, Bounding(MAX_ITEMS), RunKey.for_tests(ENCODING_KEY), tell, None))


def encoded(name: str, everything: Contributions) -> LabData:
    """Wrap contributions that hold everything of everybody."""
    digest = hashlib.sha256(b"dpunion-lab-data/1")
    # Users and items stand in the order of their digests by a fixed key, so the same set has the same fingerprint.
    for part in (everything.user_digests, everything.offsets, everything.table.digests, everything.items):
        digest.update(np.ascontiguousarray(part).data.cast("B"))
    holders = np.bincount(everything.items, minlength=len(everything.table)).astype(np.int64)
    return LabData(name, everything, holders, digest.hexdigest())


def _name(source: Any) -> str:
    """Return what a source may be called in public: no folders, no passwords."""
    if isinstance(source, (list, tuple)) and source and all(isinstance(one, (str, os.PathLike)) for one in source):
        return ", ".join(_name(one) for one in source)
    if isinstance(source, str) and "://" in source:
        return public_name(source)
    return Path(source).name if isinstance(source, (str, os.PathLike)) else "data in memory"
