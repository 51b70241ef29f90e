"""Compile everything in advance: small releases of made-up rows use every kernel in each way that releases do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dpunion
from dpunion.errors import CannotWrite
from dpunion.kernels import on_compiling
from dpunion.kernels.compiler import cache_directory

PEOPLE, MANY = 400, 40_000
WORDS = tuple(f"word{number}" for number in range(40))
BUDGET: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-4}
LENGTHS = ("funnel", "policy-gaussian", "weighted-gaussian")


Job = tuple[str, Callable[[], object]]
"""One small release: its name, and the function that makes it."""


def warm_up(on_job: Callable[[str, float], None]) -> tuple[int, Path]:
    """Make every kind of release once, so that its kernels are cached; return how many were compiled, and the folder.

    on_job: called with the name of each job, and with the part of all jobs that is done.

    Guarantees: the rows are made up here; only compiled kernels are left behind.
    """
    import tempfile

    place, compiled = cache_directory(), 0
    if place is None:
        raise CannotWrite(
            "There is no folder to store compiled kernels in.",
            "Set XDG_CACHE_HOME to a folder that only you can write, in folders that only you or root can write.",
        )

    def count(begins: bool) -> None:  # noqa: FBT001 - a hook of `kernels.on_compiling`
        nonlocal compiled
        compiled += begins

    with tempfile.TemporaryDirectory(prefix="dpunion-") as folder, on_compiling(count):
        jobs = list(_jobs(_write_rows(Path(folder))))
        for number, (name, make) in enumerate(jobs):
            on_job(name, number / len(jobs))
            make()
    return compiled, place


def _write_rows(folder: Path) -> dict[str, Path]:
    """Write made-up rows in every format that has a reader of its own."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    users = [f"person{number}" for number in range(PEOPLE) for _ in range(8)]
    items = [WORDS[(at * at + at // 8) % len(WORDS)] for at in range(len(users))]
    bodies = [f"{item} and {WORDS[at % 7]} the Café, again" for at, item in enumerate(items)]
    table = pa.table({"user": users, "item": items, "kind": [item[-1] for item in items], "body": bodies})
    files = {suffix: folder / f"rows.{suffix}" for suffix in ("parquet", "csv")}
    pq.write_table(table, files["parquet"])
    pyarrow.csv.write_csv(table, files["csv"])
    # More names and pairs of words than their tables have room for at first, so that the tables grow.
    many = [f"thing{number}" for number in range(MANY)]
    pairs = [f"{one} {many[(at * at) % MANY]}" for at, one in enumerate(many)]
    files["many"] = folder / "many.parquet"
    owners = [f"person{number % PEOPLE}" for number in range(MANY)]
    pq.write_table(pa.table({"user": owners, "item": many, "body": pairs}), files["many"])
    return files


def _read_with_little_memory(rows: Path) -> None:
    """Read with less memory than a user may choose, so that even a few rows go to disk."""
    from dpunion.engines.local.engine import LocalEngine
    from dpunion.randomness import RunKey
    from dpunion.requests import Request, Run

    request, engine = Request.of(rows, user="user", item="item"), LocalEngine(Run(), 4096)
    with engine.read(request, dpunion.plan(**BUDGET), RunKey.for_run(None), lambda: None):
        pass


def _group_wide_rows() -> None:
    """Group two rows as if there were more items than fit into four bytes with their users."""
    import numpy as np

    from dpunion.algorithms import MAX_ITEMS
    from dpunion.sets.grouping import group_part
    from dpunion.sets.spill import runs_of

    rows = np.zeros(2, np.int32)
    group_part([(*runs_of(rows), rows)], 1, rows, MAX_ITEMS, 1)


def _jobs(files: dict[str, Path]) -> Iterator[Job]:
    """Yield a job for each algorithm, each kind of items and each way of reading."""
    from dpunion.algorithms import ALGORITHMS
    from dpunion.plans import as_algorithm

    rows = files["parquet"]

    def job(name: str, source: Any, **options: Any) -> Job:
        return name, lambda: dpunion.release(source, user="user", **{**BUDGET, "item": "item", **options})

    for name in ALGORITHMS:
        yield job(name, rows, algorithm=name)
    yield job("counts", rows, counts=True)
    yield job("a known list", rows, known=dpunion.Known(list(WORDS[:3]), include=True), counts=True)
    yield job("keys of several columns", rows, item=["kind", "item"], counts=True)
    yield job("exact items", rows, normalize="exact")
    yield job("items in lower case", rows, normalize="nfc-lower")
    yield "rows that wait on disk", lambda: _read_with_little_memory(rows)
    yield job("many items", files["many"])
    yield "very many items", _group_wide_rows
    yield job("many n-grams", files["many"], item=dpunion.Words("body", lengths=(1, 2)))
    yield job("CSV", files["csv"])
    yield job("words", rows, item=dpunion.Words("body"), counts=True)
    yield job("words of CSV", files["csv"], item=dpunion.Words("body"))
    yield job("n-grams as one set", rows, item=dpunion.Words("body", "whitespace", (1, 3), sentences=True), counts=True)
    for name in LENGTHS:
        chosen: Any = as_algorithm(name)
        grams = dpunion.Ngrams(longest=3, first=chosen, later=(chosen,))
        yield job(f"n-grams, {name}", rows, item=dpunion.Words("body"), algorithm=grams, counts=True)
