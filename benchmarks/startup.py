"""What is each trick worth that makes the first release start sooner?

    python benchmarks/startup.py              one line for each trick, ten runs with it and ten without
    python benchmarks/startup.py --runs 20

A run is a process of its own: the command `dpunion release` on the bundled sample, with kernels that are compiled and
kept already. Runs with and without a trick take turns, and the medians count: of the time on the clock, and of the time
that the processor spent on it, which other programs hardly change. A trick is taken away from outside, so nothing in
the package is there for this benchmark. One that is worth less than a hundredth of a second is not worth its lines.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from dpunion.samples import debian_depends

WITHOUT = {
    "kernels are loaded without telling numba's compiler of all it knows": (
        "import dpunion.kernels.compiler as compiler\nassert compiler.LOADS_ALONE\ncompiler.LOADS_ALONE = False\n"
    ),
    # What pa.array does at its first use, where pandas is installed.
    "texts become Arrow arrays without pandas": "import pandas\n",
    "Arrow's functions are loaded by who calls one": "import pyarrow.compute\n",
    # Anything that is set there already is left.
    "numpy makes no threads for matrices": (
        "import os\nos.environ['OPENBLAS_NUM_THREADS'] = str(len(os.sched_getaffinity(0)))\n"
    ),
    "other commands are not imported": "import dpunion.cli.ledger, dpunion.cli.plan, dpunion_lab.commands\n",
    "libraries are not taken apart at the end": "import dpunion.cli\ndpunion.cli._leave = sys.exit\n",
    "compiled kernels are kept": "import os\nos.environ['XDG_CACHE_HOME'] = '/dev/null'\n",
}
SLOW = "compiled kernels are kept"
RUN = "from dpunion.cli import main\nmain()\n"


def timed(before: str, source: Path, target: Path) -> tuple[float, float]:
    """Run a release in a process of its own; return (seconds on the clock, seconds of the processor)."""
    options = ["--user", "user", "--item", "item", "--epsilon", "1", "--delta", "1e-6", "--force"]
    command = [sys.executable, "-W", "ignore", "-c", "import sys\n" + before + RUN, "release", str(source), *options]
    start = time.perf_counter()
    process = os.posix_spawn(
        sys.executable,
        [*command, "--out", str(target)],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (1, 2)],
    )
    _, status, used = os.wait4(process, 0)
    if status:
        raise SystemExit(f"A release failed with status {status}.")
    return time.perf_counter() - start, used.ru_utime + used.ru_stime


def main() -> None:
    """Measure every trick."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--slow", action="store_true", help="also without kept kernels, which takes minutes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "out.txt")
        timed("", debian_depends(), target)
        for trick, before in WITHOUT.items():
            if trick == SLOW and not options.slow:
                continue
            runs = [
                (timed("", debian_depends(), target), timed(before, debian_depends(), target))
                for _ in range(options.runs)
            ]
            (clock, used), (clock_without, used_without) = (
                [statistics.median(values) for values in zip(*side, strict=True)] for side in zip(*runs, strict=True)
            )
            print(
                f"{trick}: worth {used_without - used:+.2f} s of the processor, {clock_without - clock:+.2f} s on the "
                f"clock (with it {used:.2f} s and {clock:.2f} s)",
                flush=True,
            )


if __name__ == "__main__":
    main()
