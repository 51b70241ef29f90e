"""Is a private release as fast as the plain query? End to end, against DuckDB and polars in the same run.

    python benchmarks/speed.py                       the small set (223,388 users, 8.6 million pairs)
    python benchmarks/speed.py --large               also 2,000,000 users, 77 million pairs, grouped and shuffled
    python benchmarks/speed.py --billion             one billion pairs, dpunion only
    python benchmarks/speed.py --json results.json   also write the numbers

Each contender is a process of its own that reads the file and writes its result; contenders take turns, and the best
of the repeats counts. Peers compute SELECT item, COUNT(DISTINCT user) ... GROUP BY item. Data is generated once into
--folder (default: a folder for temporary files) and reused. "from first byte" leaves out starting the process and
importing libraries, for both.
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
import pyarrow.csv
import pyarrow.parquet as pq

from dpunion.lab.generators import AskRedditLike

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


def run(command: list[str]) -> Measured:
    """Run a process and measure it."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        printed = process.stdout.read() if process.stdout else ""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"failed with {process.returncode}: {command[:4]}")
    wall = time.perf_counter() - began
    return Measured(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e6, printed)


def contenders(path: Path, out: Path, *, limit: str | None, peers: bool) -> dict[str, list[str]]:
    """Return the commands that take turns."""
    python = sys.executable
    cli = [str(Path(python).with_name("dpunion")), "release", str(path), "--user", "user", "--item", "item"]
    cli += ["--epsilon", EPSILON, "--delta", DELTA, "--out", str(out), "--force"]
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
            for who, command in commands.items():
                runs[who].append(run(command))
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
    """Return the set with so many users, rows grouped by user, made when it is not there."""
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
    """Return the set with so many users, rows in random order."""
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


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--billion", action="store_true")
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
    else:
        small = generated(arguments.folder, "small", 223_388)
        results.append(compare("8.6M pairs, Parquet by pyarrow", small, arguments.repeats))
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
