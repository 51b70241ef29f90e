"""The main path: from a source of (user, item) rows to a private release. Read this file first.

plan     every number is fixed, from public parameters only
read     rows -> contributions: normalised, without duplicates, at most so many items of each user
select   weigh the items, flip one coin for each
publish  the chosen items, sorted, as plain strings
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpunion.algorithms import Funnel, UserOrder, as_choice
from dpunion.budget import Budget
from dpunion.calibration.rounding import MAX_ITEMS
from dpunion.contributions import Contributions, Int64s, ItemTable
from dpunion.engines import local
from dpunion.errors import BadParameter
from dpunion.plans import Plan, plan_release
from dpunion.randomness import RunKey
from dpunion.releases import Release
from dpunion.sources import NullUserPolicy, ValueKind, open_rows
from dpunion.sources.encoding import Normalization, encode
from dpunion.sources.rowstore import as_bytes

Progress = Callable[[str, float | None], None]
"""Told the stage, and while reading the part of the input's bytes that was read; never anything about values."""


def plan(algorithm: object = None, *, epsilon: float, delta: float) -> Plan:
    """Fix every number of a release, without data."""
    return plan_release(Funnel() if algorithm is None else algorithm, Budget(epsilon, delta))


def release(
    source: Any,
    *,
    user: str | None = None,
    item: str | None = None,
    text: str | None = None,
    epsilon: float,
    delta: float,
    algorithm: object = None,
    null_users: str | NullUserPolicy = NullUserPolicy.REFUSE,
    normalize: str | Normalization = Normalization.NFC,
    memory_limit: int | str | None = None,
    unsafe_test_key: int | None = None,
    progress: Progress | None = None,
) -> Release:
    """Release as many items as possible of the union of the users' sets.

    source: a path, a list of paths or a pattern (Parquet, Arrow IPC, CSV, TSV, JSONL; .gz and .zst); any object with
    `__arrow_c_stream__` (pandas, polars, pyarrow, DuckDB); an iterable of (user, item) pairs; a mapping user -> items.
    user, item: the columns. text: instead of item, a column of texts that are split into words.
    algorithm: an algorithm or its name; Funnel() when left out.
    null_users: "refuse" or "drop" rows that do not say whose they are.
    normalize: "nfc", "nfc-lower" or "exact", applied to items before duplicates are dropped.
    memory_limit: bytes, or text like "2GB" (a share of the machine when left out); beyond it rows wait in nameless
    private files.
    unsafe_test_key: fixes the randomness, for tests; the result is stamped NOT PRIVATE.

    Guarantees:
    - (epsilon, delta)-differential privacy for adding or removing one user and all of that user's rows;
    - a bad budget, algorithm or option is refused before any data is read.
    """
    planned = plan(algorithm, epsilon=epsilon, delta=delta)
    nulls = as_choice("null_users", null_users, NullUserPolicy)
    normalization = as_choice("normalize", normalize, Normalization)
    kind, value = _value_column(item, text)
    limit = as_bytes(memory_limit)
    key = RunKey.fresh() if unsafe_test_key is None else RunKey.for_tests(unsafe_test_key)
    tell = progress or _silent

    tell("reading", 0.0)
    with open_rows(
        source, user=user, value=value, kind=kind, null_users=nulls, on_progress=lambda done: tell("reading", done)
    ) as rows:
        contributions = encode(
            ((batch.users, batch.values) for batch in rows),
            key,
            max_items_per_user=planned.algorithm.max_items_per_user if planned.algorithm.bounds_once else MAX_ITEMS,
            user_order=getattr(planned.algorithm, "user_order", UserOrder.RANDOM),
            normalization=normalization,
            split_words=kind is ValueKind.TEXT,
            memory_limit=limit,
        )
    tell("selecting", None)
    return publish(planned, contributions, key)


def publish(planned: Plan, contributions: Contributions, key: RunKey) -> Release:
    """Select by the plan and turn the chosen items into a release.

    Guarantees:
    - the items are copied out one by one and sorted by bytes; nothing else of the input reaches the release.
    """
    chosen = local.select(planned, contributions, key)
    return Release(_texts(contributions.table, chosen), planned, private=not key.is_test)


def _texts(table: ItemTable, chosen: Int64s) -> tuple[str, ...]:
    starts, stops = table.offsets[chosen].tolist(), table.offsets[chosen + 1].tolist()
    data = np.ascontiguousarray(table.data)
    return tuple(sorted(data[start:stop].tobytes().decode() for start, stop in zip(starts, stops, strict=True)))


def _value_column(item: str | None, text: str | None) -> tuple[ValueKind, str | None]:
    if item is not None and text is not None:
        raise BadParameter(
            "Both 'item' and 'text' were given.", "Use 'item' for ready items or 'text' for texts to split into words."
        )
    return (ValueKind.TEXT, text) if text is not None else (ValueKind.ITEM, item)


def _silent(_stage: str, _done: float | None) -> None:
    return None
