"""Keywords that `release` does not take itself, but a class does that it takes: the error says which."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from dpunion.about import About
from dpunion.counts import Counts
from dpunion.errors import BadParameter
from dpunion.names import Settings
from dpunion.ngrams.plans import Ngrams
from dpunion.requests import Charge, Dated, Folder, Known, Run, SparkSource, Stdin, Words

HOMES: tuple[tuple[type[Any], str, tuple[str, ...]], ...] = (
    (Words, "item={}", ('"body"',)),
    (Dated, "item={}", ('"at"',)),
    (Known, "known={}", ('"old.csv"',)),
    (Charge, "charge={}", ('"budget.db"', '"posts"')),
    (Counts, "counts={}", ()),
    (Run, "run={}", ()),
    (About, "run=Run(about={})", ()),
    (Folder, "out={}", ('"hdfs:///out"',)),
    (Ngrams, "algorithm={}", ()),
    (Stdin, "release({}, ...)", ()),
    (SparkSource, "release({}, ...)", ('"logs/*.parquet"',)),
)
"""The classes, how `release` takes each, and examples of their first fields."""
OTHER_NAMES = {
    "charge_again": "again",
    "conf": "settings",
    "count_share": "share",
    "engine": "names",
    "force": "overwrite",
    "include_known": "include",
    "input_format": "format",
    "ngrams": "lengths",
    "out_folder": "path",
    "spark_settings": "settings",
}
"""What the command line calls some of the fields."""
COMMAND_LINE_ONLY = frozenset({"as_json", "config", "json", "quiet"})


def refuse_misplaced(names: Iterable[str], algorithm: object) -> None:
    """Refuse keywords that are no setting of any algorithm, but have a place elsewhere; leave the others alone."""
    own = {field.name for field in dataclasses.fields(algorithm)} if dataclasses.is_dataclass(algorithm) else set()
    for name in names:
        if name in Settings.__annotations__ or name in own:
            continue
        if name in COMMAND_LINE_ONLY:
            raise BadParameter(f"{name!r} is an option of the command line only.", "Leave it out.")
        wanted = OTHER_NAMES.get(name, name)
        for kind, place, examples in HOMES:
            fields = [field.name for field in dataclasses.fields(kind)]
            if wanted in fields:
                given = examples if wanted in fields[: len(examples)] else (*examples, f"{wanted}=...")
                call = place.format(f"{kind.__name__}({', '.join(given)})")
                raise BadParameter(f"{name!r} belongs to {kind.__name__}.", f"Write {call}.")
