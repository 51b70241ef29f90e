"""Is a private release as fast as the plain query? End to end, against DuckDB and polars in the same run.

    python benchmarks/speed.py                       223,388 users, 8.6 million pairs; 1 to 8 threads
    python benchmarks/speed.py --large               only 2,000,000 users, 77 million pairs, grouped and shuffled
    python benchmarks/speed.py --texts               words of imdb's and of generated texts, and their trigrams
    python benchmarks/speed.py --billion             one billion pairs, dpunion only
    python benchmarks/speed.py --skew                the memory of skewed data: all pairs of one user, one pair per user
    python benchmarks/speed.py --lists               a public list of candidates, 1 and 10 million items, over none
    python benchmarks/speed.py --json results.json   also write the numbers

Each contender is a process of its own that reads the file and writes its result; contenders take turns, and the best
of the repeats counts: on all cores, and then pinned to one, so that the table shows what further cores are worth. Peers
compute SELECT item, COUNT(DISTINCT user) ... GROUP BY item. Data is made once, by other processes, into --folder
(default: a folder for temporary files) and reused. "from first byte" leaves out starting the process and importing
libraries, for both. The readable twins of the kernels (plain Python) are timed on the first TWIN_PAIRS pairs, and their
time for the whole set is extrapolated in proportion. With one test key the sets with and without a memory limit, those
of any number of threads, and those of the twins, must be the same: whether they are is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from speed_data import SKEWED, SKEWED_PAIRS, ready
from twin import release_by_twins

import dpunion
from dpunion.randomness import RunKey

TWIN_PAIRS = 20_000
LISTS = ("1000000.txt", "1000000.csv", "1000000.parquet", "10000000.txt", "10000000.parquet")
TEST_KEY = 1
THREADS = (1, 2, 4, 8)
EPSILON, DELTA = "3", "4.5399929762484854e-05"

DUCKDB = """
import os, sys, time
import duckdb
connection = duckdb.connect()
connection.execute(f"set threads={len(os.sched_getaffinity(0))}")
connection.execute("set enable_progress_bar=false")
began = time.perf_counter()
connection.sql(
    f"copy (select item, count(distinct user) as users from '{sys.argv[1]}' group by item) to '{sys.argv[2]}'"
)
print(time.perf_counter() - began)
"""

POLARS = """
import sys, time
import polars as pl
began = time.perf_counter()
scan = pl.scan_csv if sys.argv[1].endswith(".csv") else pl.scan_parquet
query = scan(sys.argv[1]).group_by("item").agg(pl.col("user").n_unique())
query.collect(engine="streaming").write_parquet(sys.argv[2])
print(time.perf_counter() - began)
"""

DPUNION = """
import sys, time
import dpunion
import dpunion.pipeline
dpunion.plan(epsilon=float(sys.argv[3]), delta=float(sys.argv[4]))
dpunion.release([("a", "b")], epsilon=float(sys.argv[3]), delta=float(sys.argv[4]))
began = time.perf_counter()
release = dpunion.release(sys.argv[1], user="user", item="item", epsilon=float(sys.argv[3]), delta=float(sys.argv[4]))
release.write(sys.argv[2], overwrite=True)
print(time.perf_counter() - began)
"""

# What the first one times is reading, splitting and numbering; the second one is the whole release.
WORDS = """
import sys, time
import pyarrow as pa
from dpunion.text.words import Normalization
from dpunion.randomness import RunKey
from dpunion.reading import SourceRequest, ValueKind, open_source
from dpunion.sets.encoding import number_rows
from dpunion.sets.spill import RowStore
from dpunion.threads import usable_cores
def read(source):
    with open_source(SourceRequest(source, "user", ValueKind.TEXT, "text")) as rows, RowStore() as store:
        number_rows(rows, store, RunKey.for_tests(1), Normalization.NFC_LOWER, usable_cores())
read(pa.table({"user": pa.array(["a"]).dictionary_encode(), "text": ["some words"]}))
began = time.perf_counter()
read(sys.argv[1])
print(time.perf_counter() - began)
"""
TRIGRAMS = """
import sys, time
from dpunion import release_ngrams
release_ngrams([("a", "some words here")], epsilon=3.0, delta=1e-6)
began = time.perf_counter()
release_ngrams(sys.argv[1], user="user", text="text", longest=3, epsilon=3.0, delta=1e-6)
print(time.perf_counter() - began)
"""


@dataclass
class Measured:
    """One process: seconds of wall and CPU time, peak memory in GB, and what it printed."""

    wall: float
    cpu: float
    memory: float
    printed: str


@contextlib.contextmanager
def pinned(to_one: bool) -> Iterator[None]:  # noqa: FBT001
    """Let the processes that are started inside use one core only, if that is asked for."""
    cores = os.sched_getaffinity(0)
    if to_one:
        os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def run(words: list[str], *, one_core: bool = False) -> Measured:
    """Run a process and measure it."""
    began = time.perf_counter()
    with (
        pinned(one_core),
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process,
    ):
        printed = process.stdout.read() if process.stdout else ""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"failed with {process.returncode}: {words[:4]}")
    wall = time.perf_counter() - began
    return Measured(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e6, printed)


def take_turns(words: list[str], repeats: int) -> tuple[list[Measured], list[Measured]]:
    """Run a process on all cores, on one, and on all again, so many times; return what was measured on all and on one.

    subtle: memory that nobody used for some seconds comes slowly on a virtual machine, so who comes first is slower.
    """
    everywhere, alone = [], []
    for _ in range(repeats):
        everywhere.append(run(words))
        alone.append(run(words, one_core=True))
        everywhere.append(run(words))
    return everywhere, alone


def contenders(path: Path, out: Path, *, limit: str | None, peers: bool) -> dict[str, list[str]]:
    """Return the commands that take turns."""
    python = sys.executable
    cli = command(path, out)
    found = {"dpunion": cli}
    if peers and not limit:
        found["dpunion, policy-gaussian"] = [*cli, "--algorithm", "policy-gaussian", "--max-items-per-user", "300"]
    if limit:
        found[f"dpunion, limit {limit}"] = [*cli, "--memory-limit", limit]
    if peers:
        found["dpunion from first byte"] = [python, "-c", DPUNION, str(path), str(out), EPSILON, DELTA]
        found["duckdb"] = [python, "-c", DUCKDB, str(path), str(out)]
        found["polars"] = [python, "-c", POLARS, str(path), str(out)]
    return found


def seconds_of(who: str, measured: list[Measured]) -> float:
    """Return the best time: on the clock, or what was printed where only a part of the process counts."""
    return min(float(one.printed) if who.endswith("first byte") else one.wall for one in measured)


def compare(name: str, path: Path, repeats: int, *, limit: str | None = None, peers: bool = True) -> dict[str, Any]:
    """Let the contenders take turns and print the best of each beside DuckDB's, and beside itself on one core."""
    with tempfile.TemporaryDirectory() as folder:
        commands = contenders(path, Path(folder) / "out.parquet", limit=limit, peers=peers)
        runs: dict[str, list[Measured]] = {who: [] for who in commands}
        alone: dict[str, list[Measured]] = {who: [] for who in commands}
        for _ in range(repeats):
            for who, words in commands.items():
                both = take_turns(words, 1)
                runs[who] += both[0]
                alone[who] += both[1]
    rows = {}
    for who, measured in runs.items():
        wall, one_core = seconds_of(who, measured), seconds_of(who, alone[who])
        best = min(measured, key=lambda one: one.wall)
        memory = max(one.memory for one in measured)
        rows[who] = {"wall": wall, "cpu": best.cpu, "memory": memory, "one_core": one_core, "scaling": wall / one_core}
    if peers:
        first_byte = min(float(one.printed) for one in runs["duckdb"])
        for who, row in rows.items():
            row["ratio"] = row["wall"] / (first_byte if who.endswith("first byte") else rows["duckdb"]["wall"])
    print(f"\n{name}: {path.stat().st_size / 1e6:,.0f} MB, {len(os.sched_getaffinity(0))} cores and one")
    print(f"  {'':26}{'wall s':>9}{'CPU s':>9}{'GB':>7}{'x DuckDB':>10}{'one core s':>12}{'all / one':>11}")
    for who, row in rows.items():
        ratio = f"{row['ratio']:>10.2f}" if "ratio" in row else f"{'':10}"
        scaling = f"{row['one_core']:>12.2f}{row['scaling']:>11.2f}"
        print(f"  {who:26}{row['wall']:>9.2f}{row['cpu']:>9.2f}{row['memory']:>7.2f}{ratio}{scaling}", flush=True)
    return {"name": name, "bytes": path.stat().st_size, "contenders": rows}


def command(path: Path, out: Path, *more: str) -> list[str]:
    """Return the command line of a release."""
    cli = [str(Path(sys.executable).with_name("dpunion")), "release", str(path), "--user", "user", "--item", "item"]
    return [*cli, "--epsilon", EPSILON, "--delta", DELTA, "--out", str(out), "--force", *more]


def same_within_limit(path: Path) -> dict[str, Any]:
    """Say whether a memory limit changes what is released, under one test key."""
    sets = [released(path, *more)[0] for more in ((), ("--memory-limit", "100MB"))]
    print(f"  with and without --memory-limit 100MB, one test key: {len(sets[0]):,} items,", said(sets[0] == sets[1]))
    return {"name": "memory limit", "released": len(sets[0]), "identical": sets[0] == sets[1]}


def same_with_threads(path: Path, repeats: int) -> dict[str, Any]:
    """Say whether the number of threads changes what is released, under one test key, and what it changes in time."""
    sets: dict[int, list[str]] = {}
    walls: dict[int, float] = {}
    for _ in range(repeats):
        for threads in THREADS:
            sets[threads], wall = released(path, "--threads", str(threads))
            walls[threads] = min(wall, walls.get(threads, wall))
    identical = all(one == sets[1] for one in sets.values())
    times = ", ".join(f"{threads}: {wall:.2f} s" for threads, wall in walls.items())
    print(f"  threads, one test key: {len(sets[1]):,} items, {said(identical)}; {times}")
    print(f"  8 threads over 2: {walls[8] / walls[2]:.2f}", flush=True)
    return {"name": "threads", "released": len(sets[1]), "identical": identical, "wall": walls}


def released(path: Path, *more: str) -> tuple[list[str], float]:
    """Return what the command releases under the test key, and the seconds."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.parquet"
        wall = run(command(path, out, "--unsafe-test-key", str(TEST_KEY), *more)).wall
        return pq.read_table(out)["item"].to_pylist(), wall


def said(identical: bool) -> str:  # noqa: FBT001
    """Return the word for a comparison."""
    return "identical" if identical else "DIFFERENT"


def time_twins(path: Path, whole: float) -> dict[str, Any]:
    """Time the readable twins on the first pairs, compare their set, and extrapolate to the whole file."""
    file = pq.ParquetFile(path)
    first = next(file.iter_batches(TWIN_PAIRS)).to_pydict()
    pairs = list(zip(first["user"], first["item"], strict=True))
    budget = {"epsilon": float(EPSILON), "delta": float(DELTA)}
    algorithm = dpunion.Funnel(max_items_per_user=300)
    planned = dpunion.plan(algorithm, **budget)
    began = time.perf_counter()
    found = release_by_twins(pairs, planned, RunKey.for_tests(TEST_KEY))
    seconds = time.perf_counter() - began
    identical = found == set(dpunion.release(pairs, algorithm=algorithm, **budget, unsafe_test_key=TEST_KEY).items)
    extrapolated = seconds * file.metadata.num_rows / len(pairs)
    print(
        f"  readable twins: {seconds:.2f} s for the first {len(pairs):,} pairs, {len(found):,} items,", said(identical)
    )
    print(f"  in proportion (extrapolated): {extrapolated:,.0f} s for all, {extrapolated / whole:,.0f} x dpunion")
    return {"name": "twins", "pairs": len(pairs), "wall": seconds, "extrapolated": extrapolated, "identical": identical}


def compare_skew(folder: Path) -> dict[str, Any]:
    """Print the peak memory for skewed data beside that for ordinary data with as many pairs."""
    print(
        f"\nskew, {SKEWED_PAIRS / 1e6:.0f}M pairs each\n  {'':26}{'wall s':>9}{'CPU s':>9}{'GB':>7}{'x ordinary':>12}"
    )
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name in SKEWED:
            measured = run(command(ready(folder, name), Path(temporary) / "out.parquet"))
            rows[name] = {"wall": measured.wall, "cpu": measured.cpu, "memory": measured.memory}
            ratio = measured.memory / rows["ordinary"]["memory"]
            print(
                f"  {name:26}{measured.wall:>9.2f}{measured.cpu:>9.2f}{measured.memory:>7.2f}{ratio:>12.2f}", flush=True
            )
    return {"name": "skew", "contenders": rows}


def compare_lists(folder: Path, repeats: int) -> dict[str, Any]:
    """Print time and memory of a release with a public list of candidates over those of the same one without.

    All take turns, twice each, but for the lists of ten million items.
    """
    rows: dict[str, dict[str, Any]] = {}
    for data, times in (("small", repeats), ("large", max(1, repeats - 2))):
        source = ready(folder, data)
        with tempfile.TemporaryDirectory() as temporary:
            out = Path(temporary) / "out.parquet"
            commands = {"without": command(source, out)}
            for name in LISTS:
                commands[name] = command(source, out, "--candidates", str(ready(folder, f"list-{name}")))
            runs: dict[str, list[Measured]] = {who: [] for who in commands}
            for _ in range(times):
                for who, words in commands.items():
                    runs[who] += [run(words) for _ in range(1 if who.startswith("10000000") else 2)]
        columns = f"{'wall s':>9}{'CPU s':>9}{'GB':>7}{'time x':>9}{'memory x':>10}"
        print(f"\nlists of candidates, {data}\n  {'':26}{columns}")
        for who, measured in runs.items():
            best = min(measured, key=lambda one: one.wall)
            row = {"wall": best.wall, "cpu": best.cpu, "memory": max(one.memory for one in measured)}
            rows[f"{data}, {who}"] = row
            against = rows[f"{data}, without"]
            row |= {"time": row["wall"] / against["wall"], "more_memory": row["memory"] / against["memory"]}
            print(f"  {who:26}{row['wall']:>9.2f}{row['cpu']:>9.2f}{row['memory']:>7.2f}", end="")
            print(f"{row['time']:>9.2f}{row['more_memory']:>10.2f}", flush=True)
    return {"name": "lists of candidates", "contenders": rows}


def compare_texts(folder: Path, repeats: int) -> dict[str, Any]:
    """Print how long texts take to become numbered words, and trigrams, on all cores and on one."""
    sources = {"generated": ready(folder, "texts")}
    if os.environ.get("DPUNION_DATA"):
        sources = {"imdb": Path(os.environ["DPUNION_DATA"]) / "imdb_reviews_50k.parquet", **sources}
    steps = [("words", WORDS, name) for name in sources] + [("trigrams", TRIGRAMS, "generated")]
    print(f"\ntexts, from first byte\n  {'':26}{'wall s':>9}{'GB':>7}{'one core s':>12}{'all / one':>11}")
    rows: dict[str, dict[str, float]] = {}
    for what, code, name in steps:
        words = [sys.executable, "-c", code, str(sources[name])]
        runs, alone_runs = take_turns(words, repeats)
        wall, alone = (min(float(one.printed) for one in some) for some in (runs, alone_runs))
        memory = max(one.memory for one in runs)
        rows[f"{what}, {name}"] = {"wall": wall, "memory": memory, "one_core": alone, "scaling": wall / alone}
        print(f"  {what + ', ' + name:26}{wall:>9.2f}{memory:>7.2f}{alone:>12.2f}{wall / alone:>11.2f}", flush=True)
    return {"name": "texts", "contenders": rows}


def measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Print the tables that were asked for, and return their numbers."""
    folder, repeats = arguments.folder, arguments.repeats
    if arguments.billion:
        return [compare("one billion pairs", ready(folder, "billion"), 1, peers=False)]
    if arguments.skew:
        return [compare_skew(folder)]
    if arguments.lists:
        return [compare_lists(folder, repeats)]
    if arguments.texts:
        return [compare_texts(folder, repeats)]
    if arguments.large:
        return [
            compare("77M pairs, grouped by user", ready(folder, "large"), max(1, repeats - 2), limit="2GB"),
            compare("77M pairs, shuffled", ready(folder, "large-shuffled"), max(1, repeats - 2), limit="2GB"),
        ]
    small = ready(folder, "small")
    compared = compare("8.6M pairs, Parquet by pyarrow", small, repeats)
    return [
        compared,
        same_within_limit(small),
        same_with_threads(small, repeats),
        time_twins(small, compared["contenders"]["dpunion"]["wall"]),
        compare("8.6M pairs, Parquet by DuckDB", ready(folder, "small-duckdb"), repeats),
        compare("8.6M pairs, CSV", ready(folder, "small.csv"), repeats),
    ]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--texts", action="store_true")
    parser.add_argument("--billion", action="store_true")
    parser.add_argument("--skew", action="store_true")
    parser.add_argument("--lists", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "dpunion-benchmark")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    peers = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("duckdb", "polars"))
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {peers}"
    print(f"{machine}; {time.strftime('%Y-%m-%d')}")
    results = measure(arguments)
    if arguments.json:
        record = {"machine": machine, "date": time.strftime("%Y-%m-%d"), "results": results}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
