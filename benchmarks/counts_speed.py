"""What do counts cost in time? Releases with and without them, as processes that take turns.

    python benchmarks/counts_speed.py                    8.6 million pairs
    python benchmarks/counts_speed.py --large            also 77 million pairs, grouped and shuffled
    python benchmarks/counts_speed.py --profile          also where the time of counting goes, within one process

Each release reads the file and writes its result. Medians of the repeats are compared, and their ratio is printed; with
counts it is to be at most 1.2. Data is generated once into --folder and reused, as benchmarks/speed.py does.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import platform
import pstats
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from speed import DELTA, EPSILON, Measured, command, run
from speed_data import ready

import dpunion

HIGHEST_RATIO = 1.2
SHOWN = 25


def compare(name: str, path: Path, repeats: int) -> dict[str, Any]:
    """Let both take turns and print the medians; return the figures."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.parquet"
        commands = {"without": command(path, out), "with counts": command(path, out, "--counts")}
        runs: dict[str, list[Measured]] = {who: [] for who in commands}
        for words in commands.values():
            run(words)  # compiles kernels that are new, and warms the file
        for _ in range(repeats):
            for who, words in commands.items():
                runs[who].append(run(words))
    rows: dict[str, dict[str, float]] = {
        who: {
            "wall": statistics.median(one.wall for one in measured),
            "cpu": statistics.median(one.cpu for one in measured),
            "memory": max(one.memory for one in measured),
        }
        for who, measured in runs.items()
    }
    ratios = {unit: rows["with counts"][unit] / rows["without"][unit] for unit in ("wall", "cpu", "memory")}
    print(f"\n{name}, median of {repeats}\n  {'':16}{'wall s':>9}{'CPU s':>9}{'GB':>7}")
    for who, row in (*rows.items(), ("ratio", ratios)):
        print(f"  {who:16}{row['wall']:>9.2f}{row['cpu']:>9.2f}{row['memory']:>7.2f}")
    verdict = "as promised" if ratios["wall"] <= HIGHEST_RATIO else f"NOT AS PROMISED: above {HIGHEST_RATIO}"
    print(f"  {verdict}", flush=True)
    return {"name": name, "repeats": repeats, "releases": rows, "ratio": ratios}


def profile(path: Path) -> None:
    """Print where the time of a release with counts goes, compiled code warmed up."""
    asked = {"user": "user", "item": "item", "epsilon": float(EPSILON), "delta": float(DELTA), "counts": True}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.parquet"
        dpunion.release(path, **asked, out=out)
        profiler = cProfile.Profile()
        with profiler:
            dpunion.release(path, **asked, out=out, run=dpunion.Run(overwrite=True))
    pstats.Stats(profiler).sort_stats("cumulative").print_stats("dpunion", SHOWN)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "dpunion-benchmark")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{machine}; {time.strftime('%Y-%m-%d')}")
    small = ready(arguments.folder, "small")
    results = [compare("8.6M pairs", small, arguments.repeats)]
    if arguments.large:
        large = ready(arguments.folder, "large")
        mixed = ready(arguments.folder, "large-shuffled")
        results.append(compare("77M pairs, grouped by user", large, arguments.repeats))
        results.append(compare("77M pairs, shuffled", mixed, arguments.repeats))
    if arguments.profile:
        profile(small)
    if arguments.json:
        record = {"machine": machine, "date": time.strftime("%Y-%m-%d"), "results": results}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
