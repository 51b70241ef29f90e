"""Where the time of a release goes, what of it more cores cannot shorten, and where the first second goes.

    python benchmarks/stages.py                      8.6 million pairs
    python benchmarks/stages.py --data large         77 million pairs; or large-shuffled, small.csv
    python benchmarks/stages.py --start              only the start: imports, kernels, plan, first rows

Each stage is a function of the package, timed from outside in a process of its own, without the stages inside it: on
one core with one thread, and on all cores. Stages that threads share are divided by the number of cores for what is
expected on more; the rest is not. On all cores, what another thread does is with the stage that waits for it. What is
expected was not measured: memory that is shared by many cores can be slower. The best of the repeats counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from speed import pinned
from speed_data import ready

from dpunion.samples import debian_depends

STAGES = {
    "read, clean, number": ("dpunion.sets.encoding", "number_rows", "pairs", True),
    "digest users": ("dpunion.sets.encoding", "digests_in_threads", "users", True),
    "number items by digest": ("dpunion.sets.encoding", "canonical_table", "items", True),
    "group by user": ("dpunion.sets.grouping", "group_part", "pairs", True),
    "bound": ("dpunion.sets.grouping", "tighten_sets", "users with many items", True),
    "lay out in visiting order": ("dpunion.sets.grouping", "lay_out_users", "pairs", True),
    "bound as the look chose": ("dpunion.engines.local.engine", "tighten_sets", "pairs", True),
    "narrow sets": ("dpunion.sets.narrowing", "narrow", "pairs kept", True),
    "visit users in turn": ("dpunion.mechanisms", "descend_ball", "what items still want", False),
    "decide, and wait for others": ("dpunion.engines.local.engine", "run_rounds", "items", False),
    "publish": ("dpunion.pipeline", "publish", "released items", False),
}
"""By name: module and function, what its time grows with, and whether all threads share the work."""

RELEASE = """
import importlib, json, sys, threading, time
import dpunion, dpunion.pipeline
stages, path, out = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
spent = dict.fromkeys(stages, 0.0)
inside = []
def timed(name, real):
    def call(*given, **named):
        if threading.current_thread() is not threading.main_thread():
            return real(*given, **named)  # part of another stage, or of the rehearsal during it
        inside.append(0.0)
        began = time.perf_counter()
        try:
            return real(*given, **named)
        finally:
            took = time.perf_counter() - began
            spent[name] += took - inside.pop()  # but for the stages inside it
            if inside:
                inside[-1] += took
    return call
options = {"epsilon": 3.0, "delta": 4.5e-5}
dpunion.release([("a", "b")], **options)
for name, (module, function, *_) in stages.items():
    home = importlib.import_module(module)
    setattr(home, function, timed(name, getattr(home, function)))
began = time.perf_counter()
dpunion.release(path, user="user", item="item", out=out, run=dpunion.Run(overwrite=True), **options)
spent["all"] = time.perf_counter() - began
print(json.dumps(spent))
"""

START = """
import time
began = float(__import__("sys").argv[1])
times = []
def mark(name):
    times.append((name, time.time()))
mark("start Python")
import numpy
mark("import numpy")
import pyarrow, pyarrow.parquet
mark("import pyarrow")
from dpunion.kernels import HIDDEN_FROM_NUMBA
HIDDEN_FROM_NUMBA.append("yaml")
import dpunion.kernels.compiler
mark("import numba")
import dpunion.cli, dpunion.cli.release
mark("import the command (click, rich)")
import dpunion.pipeline, dpunion.engines.local.engine, dpunion.sets.encoding
mark("import the rest of dpunion")
import dpunion
dpunion.plan(epsilon=3.0, delta=4.5e-5)
mark("plan")
pairs = [("a", "b")]
dpunion.release(pairs, epsilon=3.0, delta=4.5e-5)
mark("load compiled kernels, first rows")
dpunion.release(pairs, epsilon=3.0, delta=4.5e-5)
mark("the same release once more")
import json
print(json.dumps([[name, at - before] for (name, at), before in zip(times, [began, *(at for _, at in times)])]))
"""


def run(code: str, *words: str, one_core: bool = False) -> Any:
    """Run Python in a process of its own and return what it printed, as JSON."""
    with pinned(one_core):
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, *words], check=True, capture_output=True)
    return json.loads(done.stdout)


def best(runs: list[dict[str, float]]) -> dict[str, float]:
    """Return the best time of each stage."""
    return {name: min(one[name] for one in runs) for name in runs[0]}


def print_stages(path: Path, repeats: int) -> None:
    """Print the time of each stage on one core and on all, and what is expected on more."""
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        words = [json.dumps(STAGES), str(path), str(Path(folder) / "out.parquet")]
        alone = best([run(RELEASE, *words, one_core=True) for _ in range(repeats)])
        every = best([run(RELEASE, *words) for _ in range(repeats)])
    for spent in (alone, every):
        spent["the rest"] = spent["all"] - sum(spent[name] for name in STAGES)
    print(f"\n{path.name}\n  {'':28}{'one core s':>11}{f'{cores} cores s':>11}{'ratio':>7}  grows with")
    for name in (*STAGES, "the rest", "all"):
        grows = STAGES[name][2] if name in STAGES else ""
        ratio = every[name] / max(alone[name], 1e-9)
        print(f"  {name:28}{alone[name]:>11.2f}{every[name]:>11.2f}{ratio:>7.2f}  {grows}")
    shared = sum(alone[name] for name in STAGES if STAGES[name][3])
    serial = alone["all"] - shared
    print(f"  not shared by threads: {serial:.2f} s of {alone['all']:.2f} s on one core")
    for count in (2, 4, 8, 16):
        print(f"  expected on {count} cores, by that part: {serial + shared / count:.2f} s")


def print_start(repeats: int) -> None:
    """Print where the time before the first row goes."""
    run(START, str(time.time()))
    runs = [dict(run(START, str(time.time()))) for _ in range(repeats)]
    print(f"\nthe start, kernels compiled before\n  {'':36}{'s':>7}")
    for name, seconds in best(runs).items():
        print(f"  {name:36}{seconds:>7.3f}")
    whole = []
    options = ["--user", "user", "--item", "item", "--epsilon", "3", "--delta", "4.5e-5", "--force", "--out"]
    with tempfile.TemporaryDirectory() as folder:
        command = [str(Path(sys.executable).with_name("dpunion")), "release", str(debian_depends()), *options]
        for _ in range(repeats):
            began = time.perf_counter()
            subprocess.run([*command, str(Path(folder) / "out.txt")], check=True, capture_output=True)
            whole.append(time.perf_counter() - began)
    print(f"  {'the command on the bundled sample':36}{min(whole):>7.3f}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="small")
    parser.add_argument("--start", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "dpunion-benchmark")
    options = parser.parse_args()
    if not options.start:
        print_stages(ready(options.folder, options.data), options.repeats)
    print_start(options.repeats)


if __name__ == "__main__":
    main()
