"""Is a private release as fast as the plain query? End to end, against DuckDB and polars in the same run.

    python benchmarks/speed.py                       the small set (223,388 users, 8.6 million pairs)
    python benchmarks/speed.py --large               also 2,000,000 users, 77 million pairs, grouped and shuffled
    python benchmarks/speed.py --billion             one billion pairs, dpunion only
    python benchmarks/speed.py --skew                the memory of skewed data: all pairs of one user, one pair per user
    python benchmarks/speed.py --json results.json   also write the numbers

Each contender is a process of its own that reads the file and writes its result; contenders take turns, and the best
of the repeats counts. Peers compute SELECT item, COUNT(DISTINCT user) ... GROUP BY item. Data is generated once into
--folder (default: a folder for temporary files) and reused. "from first byte" leaves out starting the process and
importing libraries, for both. The readable twins of the kernels (plain Python) are timed on the first TWIN_PAIRS pairs,
and their time for the whole set is extrapolated in proportion. With one test key the sets with and without a memory
limit, and those of the twins, must be the same: whether they are is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq
from twin import release_by_twins

import dpunion
from dpunion.lab.generators import AskRedditLike
from dpunion.randomness import RunKey

TWIN_PAIRS = 20_000
SKEWED_PAIRS = 5_000_000
TEST_KEY = 1
EPSILON, DELTA = "3", "4.5399929762484854e-05"

DUCKDB = """
import sys, time
import duckdb
connection = duckdb.connect()
connection.execute("set threads=2")
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
from pathlib import Path
import dpunion
import dpunion.pipeline
dpunion.plan(epsilon=float(sys.argv[3]), delta=float(sys.argv[4]))
dpunion.release([("a", "b")], epsilon=float(sys.argv[3]), delta=float(sys.argv[4]))
began = time.perf_counter()
release = dpunion.release(sys.argv[1], user="user", item="item", epsilon=float(sys.argv[3]), delta=float(sys.argv[4]))
release.write(sys.argv[2], overwrite=True)
print(time.perf_counter() - began)
"""


@dataclass
class Measured:
    """One process: seconds of wall and CPU time, peak memory in GB, and what it printed."""

    wall: float
    cpu: float
    memory: float
    printed: str


def run(words: list[str]) -> Measured:
    """Run a process and measure it."""
    began = time.perf_counter()
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        printed = process.stdout.read() if process.stdout else ""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"failed with {process.returncode}: {words[:4]}")
    wall = time.perf_counter() - began
    return Measured(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e6, printed)


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


def compare(name: str, path: Path, repeats: int, *, limit: str | None = None, peers: bool = True) -> dict[str, Any]:
    """Let the contenders take turns and print the best of each beside DuckDB's."""
    with tempfile.TemporaryDirectory() as folder:
        commands = contenders(path, Path(folder) / "out.parquet", limit=limit, peers=peers)
        runs: dict[str, list[Measured]] = {who: [] for who in commands}
        for _ in range(repeats):
            for who, words in commands.items():
                runs[who].append(run(words))
    rows = {}
    for who, measured in runs.items():
        best = min(measured, key=lambda one: one.wall)
        wall = min(float(one.printed) for one in measured) if who.endswith("first byte") else best.wall
        rows[who] = {"wall": wall, "cpu": best.cpu, "memory": max(one.memory for one in measured)}
    if peers:
        first_byte = min(float(one.printed) for one in runs["duckdb"])
        for who, row in rows.items():
            row["ratio"] = row["wall"] / (first_byte if who.endswith("first byte") else rows["duckdb"]["wall"])
    print(f"\n{name}: {path.stat().st_size / 1e6:,.0f} MB")
    print(f"  {'':26}{'wall s':>9}{'CPU s':>9}{'GB':>7}{'x DuckDB':>10}")
    for who, row in rows.items():
        ratio = f"{row['ratio']:>10.2f}" if "ratio" in row else ""
        print(f"  {who:26}{row['wall']:>9.2f}{row['cpu']:>9.2f}{row['memory']:>7.2f}{ratio}", flush=True)
    return {"name": name, "bytes": path.stat().st_size, "contenders": rows}


def generated(folder: Path, name: str, users: int) -> Path:
    """Return the set with this many users, rows grouped by user, made when it is not there."""
    path = folder / f"{name}.parquet"
    if not path.exists():
        AskRedditLike(users=users).write_parquet(path.with_suffix(".tmp"))
        path.with_suffix(".tmp").rename(path)
    return path


def rewritten_by_duckdb(path: Path) -> Path:
    """Return the same rows in a file written by DuckDB."""
    import duckdb

    target = path.with_name(path.stem + "-duckdb.parquet")
    if not target.exists():
        duckdb.sql(f"copy (from '{path}') to '{target}' (compression zstd)")
    return target


def as_csv(path: Path) -> Path:
    """Return the same rows as CSV."""
    target = path.with_suffix(".csv")
    if not target.exists():
        pa.csv.write_csv(pq.read_table(path), target, pa.csv.WriteOptions(quoting_style="none"))
    return target


def shuffled(folder: Path, name: str, users: int) -> Path:
    """Return the set with this many users, rows in random order."""
    path = folder / f"{name}-shuffled.parquet"
    if path.exists():
        return path
    maker = AskRedditLike(users=users)
    parts = [(owner.astype(np.int32), token.astype(np.int32)) for owner, token in maker.chunks()]
    owners, tokens = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.random.default_rng(1).permutation(len(owners))
    owners, tokens = owners[order], tokens[order]
    people = pa.array([f"user{number}" for number in range(users)])
    words = pa.array([f"word{rank}" for rank in range(maker.items + 1)])
    schema = pa.schema({"user": pa.string(), "item": pa.string()})
    with pq.ParquetWriter(path.with_suffix(".tmp"), schema, compression="zstd") as writer:
        for start in range(0, len(owners), 1 << 20):
            rows = slice(start, start + (1 << 20))
            columns = {"user": people.take(pa.array(owners[rows])), "item": words.take(pa.array(tokens[rows]))}
            writer.write_table(pa.table(columns))
    path.with_suffix(".tmp").rename(path)
    return path


def command(path: Path, out: Path, *more: str) -> list[str]:
    """Return the command line of a release."""
    cli = [str(Path(sys.executable).with_name("dpunion")), "release", str(path), "--user", "user", "--item", "item"]
    return [*cli, "--epsilon", EPSILON, "--delta", DELTA, "--out", str(out), "--force", *more]


def same_within_limit(path: Path) -> dict[str, Any]:
    """Say whether a memory limit changes what is released, under one test key."""
    with tempfile.TemporaryDirectory() as folder:
        names = [Path(folder) / name for name in ("whole.parquet", "limited.parquet")]
        for name, more in zip(names, ([], ["--memory-limit", "100MB"]), strict=True):
            run(command(path, name, "--unsafe-test-key", str(TEST_KEY), *more))
        sets = [pq.read_table(name)["item"].to_pylist() for name in names]
    print(f"  with and without --memory-limit 100MB, one test key: {len(sets[0]):,} items,", said(sets[0] == sets[1]))
    return {"name": "memory limit", "released": len(sets[0]), "identical": sets[0] == sets[1]}


def said(identical: bool) -> str:  # noqa: FBT001
    """Return the word for a comparison."""
    return "identical" if identical else "DIFFERENT"


def time_twins(path: Path, whole: float) -> dict[str, Any]:
    """Time the readable twins on the first pairs, compare their set, and extrapolate to the whole file."""
    file = pq.ParquetFile(path)
    first = next(file.iter_batches(TWIN_PAIRS)).to_pydict()
    pairs = list(zip(first["user"], first["item"], strict=True))
    budget = {"epsilon": float(EPSILON), "delta": float(DELTA)}
    planned = dpunion.plan(**budget)
    began = time.perf_counter()
    found = release_by_twins(pairs, planned, RunKey.for_tests(TEST_KEY))
    seconds = time.perf_counter() - began
    identical = found == set(dpunion.release(pairs, **budget, unsafe_test_key=TEST_KEY).items)
    extrapolated = seconds * file.metadata.num_rows / len(pairs)
    print(
        f"  readable twins: {seconds:.2f} s for the first {len(pairs):,} pairs, {len(found):,} items,", said(identical)
    )
    print(f"  in proportion (extrapolated): {extrapolated:,.0f} s for all, {extrapolated / whole:,.0f} x dpunion")
    return {"name": "twins", "pairs": len(pairs), "wall": seconds, "extrapolated": extrapolated, "identical": identical}


def skewed(folder: Path) -> dict[str, Path]:
    """Return three sets with as many pairs: ordinary people, one user with all items, users with one item each."""
    numbers = np.arange(SKEWED_PAIRS)
    usual = np.random.default_rng(1)
    makers = {
        "ordinary": lambda: (numbers // 40, usual.integers(0, 20_000, SKEWED_PAIRS)),
        "one_user": lambda: (np.zeros(SKEWED_PAIRS, np.int64), numbers),
        "many_users": lambda: (numbers, numbers % 20_000),
    }
    for name, maker in makers.items():
        path = folder / f"{name}.parquet"
        if not path.exists():
            users, items = maker()
            pq.write_table(pa.table({"user": labelled("user", users), "item": labelled("item", items)}), path)
    return {name: folder / f"{name}.parquet" for name in makers}


def labelled(word: str, numbers: Any) -> pa.Array:
    """Return texts like user17."""
    return pa.compute.binary_join_element_wise(word, pa.array(numbers).cast(pa.string()), "")


def compare_skew(folder: Path) -> dict[str, Any]:
    """Print the peak memory for skewed data beside that for ordinary data with as many pairs."""
    print(
        f"\nskew, {SKEWED_PAIRS / 1e6:.0f}M pairs each\n  {'':26}{'wall s':>9}{'CPU s':>9}{'GB':>7}{'x ordinary':>12}"
    )
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name, path in skewed(folder).items():
            measured = run(command(path, Path(temporary) / "out.parquet"))
            rows[name] = {"wall": measured.wall, "cpu": measured.cpu, "memory": measured.memory}
            ratio = measured.memory / rows["ordinary"]["memory"]
            print(
                f"  {name:26}{measured.wall:>9.2f}{measured.cpu:>9.2f}{measured.memory:>7.2f}{ratio:>12.2f}", flush=True
            )
    return {"name": "skew", "contenders": rows}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--billion", action="store_true")
    parser.add_argument("--skew", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "dpunion-benchmark")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{machine}; {time.strftime('%Y-%m-%d')}")
    results = []
    if arguments.billion:
        path = generated(arguments.folder, "billion", 25_900_000)
        results.append(compare("one billion pairs", path, 1, peers=False))
    elif arguments.skew:
        results.append(compare_skew(arguments.folder))
    else:
        small = generated(arguments.folder, "small", 223_388)
        results.append(compare("8.6M pairs, Parquet by pyarrow", small, arguments.repeats))
        results.append(same_within_limit(small))
        results.append(time_twins(small, results[0]["contenders"]["dpunion"]["wall"]))
        results.append(compare("8.6M pairs, Parquet by DuckDB", rewritten_by_duckdb(small), arguments.repeats))
        results.append(compare("8.6M pairs, CSV", as_csv(small), arguments.repeats))
    if arguments.large:
        large = generated(arguments.folder, "large", 2_000_000)
        mixed = shuffled(arguments.folder, "large", 2_000_000)
        repeats = max(1, arguments.repeats - 1)
        results.append(compare("77M pairs, grouped by user", large, repeats, limit="2GB"))
        results.append(compare("77M pairs, shuffled", mixed, repeats, limit="2GB"))
    if arguments.json:
        record = {"machine": machine, "date": time.strftime("%Y-%m-%d"), "results": results}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
