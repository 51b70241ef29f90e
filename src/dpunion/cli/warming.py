"""The command warm-up: small releases of made-up rows compile everything beforehand, in each way kernels are used."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dpunion
from dpunion.cli.answers import answering, progress_bar, say
from dpunion.cli.groups import in_groups
from dpunion.cli.options import Quiet
from dpunion.errors import CannotWrite
from dpunion.kernels import listening

WARM_UP_HELP = """Compile everything in advance, so that no release has to. Use it after installing and in images.

The compiled code is stored in a folder of the user who runs this: $XDG_CACHE_HOME/dpunion, or ~/.cache/dpunion. In an
image, run it as the user who will make releases, and on the same kind of processor.

[bold]Examples[/bold]

  [cyan]dpunion warm-up[/cyan]"""


@answering
@in_groups
def warm_up_command(*, quiet: Quiet = False) -> None:
    """Compile everything beforehand."""
    from dpunion.kernels.compiler import cache_directory

    del quiet  # for `answering`
    began = time.monotonic()
    place = cache_directory()
    if place is None:
        raise CannotWrite(
            "There is no folder to store compiled kernels in.",
            "Set XDG_CACHE_HOME to a folder that only you can write, in folders that only you or root can write.",
        )
    with progress_bar() as show:
        compiled = warm_up(lambda job, done: show(f"compiling: {job}", done))
    seconds = time.monotonic() - began
    found = f"{compiled} kernels were compiled" if compiled else "Everything was compiled already"
    say(f"{found}, and stored in {place} ({seconds:.0f} s).")


PEOPLE, MANY = 400, 40_000
WORDS = tuple(f"word{number}" for number in range(40))
BUDGET: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-4}
LENGTHS = ("funnel", "policy-gaussian", "weighted-gaussian")


@dataclass(frozen=True, slots=True)
class Job:
    """One small release: what it is for, and how it is made."""

    name: str
    make: Callable[[], object]


def warm_up(on_job: Callable[[str, float], None]) -> int:
    """Make every kind of release once, so that its kernels are compiled and kept; return how often was compiled.

    on_job: told what is being prepared, and which part of all is done.

    Guarantees: the rows are made up here; nothing is released, charged or left behind but compiled kernels.
    """
    import tempfile

    compiled = 0

    def hear(begins: bool) -> None:
        nonlocal compiled
        compiled += begins

    with tempfile.TemporaryDirectory(prefix="dpunion-") as folder, listening(hear):
        jobs = list(_jobs(_write_rows(Path(folder))))
        for number, job in enumerate(jobs):
            on_job(job.name, number / len(jobs))
            job.make()
    return compiled


def _write_rows(folder: Path) -> dict[str, Path]:
    """Write made-up rows in every format that is read in its own way."""
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
    # More than the tables of names and of pairs of words begin with.
    many = [f"thing{number}" for number in range(MANY)]
    pairs = [f"{one} {many[(at * at) % MANY]}" for at, one in enumerate(many)]
    files["many"] = folder / "many.parquet"
    owners = [f"person{number % PEOPLE}" for number in range(MANY)]
    pq.write_table(pa.table({"user": owners, "item": many, "body": pairs}), files["many"])
    return files


def _read_with_little_memory(rows: Path) -> None:
    """Read with less memory than anybody may ask for, so that even a few rows wait on disk."""
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
    from dpunion.sets.spill import SpilledPart, runs_of

    rows = np.zeros(2, np.int32)
    group_part(SpilledPart(0, 1, [(*runs_of(rows), rows)]), 1, rows, MAX_ITEMS, 1)


def _jobs(files: dict[str, Path]) -> Iterator[Job]:
    """Yield what is made: each algorithm, each kind of items and each way of reading."""
    from dpunion.algorithms import ALGORITHMS
    from dpunion.plans import as_algorithm

    rows = files["parquet"]

    def job(name: str, source: Any, **options: Any) -> Job:
        return Job(name, lambda: dpunion.release(source, user="user", **{**BUDGET, "item": "item", **options}))

    for name in ALGORITHMS:
        yield job(name, rows, algorithm=name)
    yield job("counts", rows, counts=True)
    yield job("a known list", rows, known=dpunion.Known(list(WORDS[:3]), include=True), counts=True)
    yield job("keys of several columns", rows, item=["kind", "item"], counts=True)
    yield job("exact items", rows, normalize="exact")
    yield job("items in lower case", rows, normalize="nfc-lower")
    yield Job("rows that wait on disk", lambda: _read_with_little_memory(rows))
    yield job("many items", files["many"])
    yield Job("very many items", _group_wide_rows)
    yield job("many n-grams", files["many"], item=dpunion.Words("body", lengths=(1, 2)))
    yield job("CSV", files["csv"])
    yield job("words", rows, item=dpunion.Words("body"), counts=True)
    yield job("words of CSV", files["csv"], item=dpunion.Words("body"))
    yield job("n-grams as one set", rows, item=dpunion.Words("body", "whitespace", (1, 3), sentences=True), counts=True)
    for name in LENGTHS:
        chosen: Any = as_algorithm(name)
        grams = dpunion.Ngrams(longest=3, first=chosen, later=(chosen,))
        yield job(f"n-grams, {name}", rows, item=dpunion.Words("body"), algorithm=grams, counts=True)
