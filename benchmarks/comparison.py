"""Items released by dpunion, by two published algorithms and by three libraries, at the same (epsilon, delta).

    python benchmarks/comparison.py                    the bundled sample, and two sets of DPUNION_DATA
    python benchmarks/comparison.py --json comparison.json --set debian_depends
    python benchmarks/comparison.py --draw             from the results: the table and the picture of docs/comparison.md

NOT PRIVATE: releases are compared with the truth, on public data. The unit of privacy is a person with all their items.
Everybody is given the same Parquet file of distinct pairs. Each run is a process of its own: its seconds are CPU
time of the whole program, which reads the file and writes the result, and its memory is the peak. The programs are in
benchmarks/peers; the lines that a user writes are counted there, without imports of `sys`, arguments and comments.

dpunion chooses by itself, privately, how many items of a person count. For all others a search tries bounds, from few
items to many, until fewer come out; the best one counts. The search is not private and costs nothing here, which
favours them. Libraries are installed into environments of their own, in --peers; a row says why one is missing. Errors
are relative ones of the counts of the released items, the median; counts are rounded and at least 1, and made with the
bound with which most items have one.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from counts import NOT_PRIVATE, save
from release_sizes import data_sets
from speed import Measured, run

from dpunion.budget import Budget

ROOT = Path(__file__).parents[1]
PROGRAMS = Path(__file__).resolve().with_name("peers")
RESULTS = Path(__file__).with_name("results") / "comparison.json"
PICTURE = ROOT / "docs" / "_static" / "comparison.svg"
BUDGETS = (Budget(1.0, 1e-6), Budget(3.0, 1e-5))
# The bounds that the search tries, for sets whose people have few items and many.
BOUNDS = {
    "debian_depends": (1, 3, 10, 30),
    "online_retail": (1, 10, 30, 100, 300),
    "goodbooks_to_read": (1, 3, 10, 30, 100),
}
SAMPLE = "debian_depends"
HEADS = f"  {'':18}{'items':>8}{'with counts':>13}{'error':>8}{'seconds':>9}{'GB':>7}{'lines':>7}{'bound':>11}"
TITLES = {SAMPLE: "the sample", "online_retail": "online retail", "goodbooks_to_read": "books to read"}


@dataclass(frozen=True)
class Contender:
    """One row of the table.

    ways: how its program finds items; the best one counts. counts: how it counts, if another run does that. packages:
    what pip installs for it; none for dpunion's own. bounded: whether a user has to choose a bound.
    """

    name: str
    program: str
    ways: tuple[str, ...]
    counts: str = ""
    packages: tuple[str, ...] = ()
    bounded: bool = True

    def count_lines(self, way: str) -> int:
        """Return how many lines a user writes to have the items in one of the ways."""
        tree = ast.parse((PROGRAMS / self.program).read_text("utf-8"))
        return sum(count_lines(each, way) for each in tree.body[1:])


CONTENDERS = (
    Contender("dpunion", "with_dpunion.py", ("items",), "counts", bounded=False),
    Contender("DP-SIPS", "with_dpunion.py", ("dp-sips",)),
    Contender("Policy Gaussian", "with_dpunion.py", ("policy-gaussian",)),
    Contender("OpenDP", "with_opendp.py", ("gaussian", "laplace"), "", ("opendp[polars]",)),
    Contender("PipelineDP", "with_pipelinedp.py", ("gaussian", "geometric"), "counts", ("pipeline-dp", "pyarrow")),
    Contender("Tumult Analytics", "with_tumult.py", ("items",), "counts", ("tmlt.analytics",)),
)


def count_lines(statement: ast.stmt, way: str) -> int:
    """Return the lines of a statement; of a choice between ways, those of the one that is taken."""
    text = ast.unparse(statement)
    if isinstance(statement, ast.If):
        branch = statement.body if f"'{way}'" in ast.unparse(statement.test) else statement.orelse
        return sum(count_lines(each, way) for each in branch)
    is_ours = any(word in text for word in ("sys", "jvm", "spark.stop", "import os"))
    return 0 if is_ours else (statement.end_lineno or 0) - statement.lineno + 1


def prepare_python(contender: Contender, folder: Path) -> tuple[str, str]:
    """Return the interpreter that has a contender, and its version or, without an interpreter, why it is missing."""
    if not contender.packages:
        subprocess.run(
            [str(Path(sys.executable).with_name("dpunion")), "warm-up"], check=True, stdout=subprocess.DEVNULL
        )
        return sys.executable, version_in(sys.executable, "dpunion")
    home = folder / contender.program.removesuffix(".py").removeprefix("with_")
    python, package = str(home / "bin" / "python"), contender.packages[0].split("[")[0]
    if not Path(python).exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    found = version_in(python, package)
    if not found:
        print(f"Installing {contender.name} into {home} ...", file=sys.stderr)
        words = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *contender.packages]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            return "", f"not installed: {(errors or ['pip failed'])[0].removeprefix('ERROR: ')}"
        found = version_in(python, package)
    return python, found


def version_in(python: str, package: str) -> str:
    """Return the version of a package in an environment, empty if it is not there."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    done = subprocess.run([python, "-c", code], check=False, capture_output=True, text=True)
    return done.stdout.strip()


def find_sets(wanted: list[str]) -> Iterator[tuple[str, Path]]:
    """Yield the sets that are here: files of distinct pairs."""
    found = {name: source for name, source, _ in data_sets() if name in wanted}
    for name in wanted:
        if name in found:
            yield name, found[name]
        else:
            print(f"\n{name} is not here: DPUNION_DATA must name its folder.", file=sys.stderr)


def release_once(
    contender: Contender, python: str, path: Path, budget: Budget, setting: tuple[int, str]
) -> tuple[pa.Table, Measured]:
    """Run the program of a contender; return what it released and what that took."""
    words = [python, str(PROGRAMS / contender.program), str(path.resolve())]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # Spark leaves a folder where it runs
        out = Path(folder) / "out.parquet"
        os.environ["PYSPARK_PYTHON"] = python  # what Spark's workers run, as in an activated environment
        measured = run([*words, str(out), repr(budget.epsilon), repr(budget.delta), str(setting[0]), setting[1]])
        return pq.read_table(out), measured


def measure_error(made: pa.Table, true: dict[str, int]) -> float | None:
    """Return the median relative error of the counts, None of nothing."""
    holders = np.array([true[item] for item in made["item"].to_pylist()], np.float64)
    people = np.maximum(1.0, np.rint(made["people"].to_numpy().astype(np.float64)))
    return float(np.median(np.abs(people / holders - 1.0))) if len(holders) else None


def search(
    contender: Contender, ways: tuple[str, ...], python: str, path: Path, budget: Budget, bounds: tuple[int, ...]
) -> tuple[tuple[int, str], pa.Table, Measured, list[Any]]:
    """Return the best setting, what came out with it, what it took, and the items of all settings that were tried."""
    best, tried = None, []
    for way in ways:
        last = -1
        for bound in bounds if contender.bounded else (0,):
            made, measured = release_once(contender, python, path, budget, (bound, way))
            tried.append([bound, way, len(made)])
            if best is None or len(made) > len(best[1]):
                best = ((bound, way), made, measured)
            if len(made) < last:
                break
            last = len(made)
    if best is None:
        raise SystemExit("nothing was tried")
    return *best, tried


def measure(contender: Contender, python: str, name: str, path: Path, budget: Budget) -> dict[str, Any]:
    """Return the figures of one contender on one set."""
    numbers = pc.value_counts(pq.read_table(path, columns=["item"])["item"])
    true = dict(zip(numbers.field("values").to_pylist(), numbers.field("counts").to_pylist(), strict=True))
    try:
        place = (python, path, budget, BOUNDS[name])
        setting, made, measured, tried = search(contender, contender.ways, *place)
        counted = made
        if contender.counts:
            _, counted, _, more = search(contender, (contender.counts,), *place)
            tried += more
    except SystemExit as problem:
        return {"missing": f"ran, but {problem.code}".split(":")[0]}
    has_counts = "people" in counted.column_names
    return {
        "items": len(made),
        "bound": setting[0] or None,
        "way": setting[1],
        "counted": len(counted) if has_counts else None,
        "median_relative": measure_error(counted, true) if has_counts else None,
        "lines": contender.count_lines(setting[1]),
        "seconds": measured.cpu,
        "wall": measured.wall,
        "memory": measured.memory,
        "tried": tried,
    }


def show(row: dict[str, Any]) -> None:
    """Print one line of the table."""
    if "missing" in row:
        print(f"  {row['contender']:18}{row['missing']}", flush=True)
        return
    error = "-" if row["median_relative"] is None else f"{row['median_relative']:.2f}"
    counted = "-" if row["counted"] is None else f"{row['counted']:,}"
    shown = f"{row['items']:>8,}{counted:>13}{error:>8}{row['seconds']:>9.1f}{row['memory']:>7.2f}{row['lines']:>7}"
    print(f"  {row['contender']:18}{shown}{row['bound'] or 'by itself':>11}  {row['version']}", flush=True)


def make_table(rows: list[dict[str, Any]]) -> str:
    """Return the table of docs/comparison.md."""
    heads = "| data, (ε, δ) | tool | items | with counts | error | seconds | GB | lines | bound |"
    lines = [heads, "|---|---|---:|---:|---:|---:|---:|---:|---|"]
    last = None
    for row in rows:
        about = f"{TITLES[row['set']]}, ({row['epsilon']:g}, {row['delta']:.0e})".replace("e-0", "e-")
        start = f"| {about if about != last else ''} | {row['contender']} |"
        last = about
        if "missing" in row:
            lines.append(f"{start} {row['missing']} | | | | | | |")
            continue
        counted = "–" if row["counted"] is None else f"{row['counted']:,}"
        error = "–" if row["median_relative"] is None else f"{row['median_relative']:.2f}"
        cost = f"{row['seconds']:.1f} | {row['memory']:.2f} | {row['lines']}"
        lines.append(f"{start} {row['items']:,} | {counted} | {error} | {cost} | {row['bound'] or 'by itself'} |")
    return "\n".join(lines)


def draw(rows: list[dict[str, Any]]) -> str:
    """Return the picture of docs/comparison.md: the items of the sample at the first budget, as bars."""
    first = (SAMPLE, BUDGETS[0].epsilon, BUDGETS[0].delta)
    bars = [row for row in rows if (row["set"], row["epsilon"], row["delta"]) == first and "items" in row]
    bars.sort(key=lambda row: row["items"], reverse=True)
    most, height = max(row["items"] for row in bars), 34 * len(bars) + 76
    title = "Items released from the bundled sample at (ε, δ) = (1, 10⁻⁶)"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 {height}" font-family="sans-serif" font-size="14" '
        f'role="img">\n<title>{title}</title>\n<rect width="680" height="{height}" rx="6" fill="#ffffff"/>',
        f'<text x="20" y="30" font-size="16" font-weight="bold" fill="#222">{title}</text>',
    ]
    for place, row in enumerate(bars):
        top, width = 46 + 34 * place, 400.0 * row["items"] / most
        ours = row["contender"] == "dpunion"
        weight, colour = (' font-weight="bold"', "#2563a8") if ours else ("", "#9aa5b1")
        parts.append(
            f'<text x="150" y="{top + 18}" text-anchor="end" fill="#222"{weight}>{row["contender"]}</text>'
            f'<rect x="160" y="{top}" width="{width:.1f}" height="26" rx="3" fill="{colour}"/>'
            f'<text x="{168 + width:.1f}" y="{top + 18}" fill="#222"{weight}>{row["items"]:,}</text>'
        )
    note = (
        "dpunion chooses its bound privately; all others have their best bound, found by a search that is not private"
    )
    parts.append(f'<text x="20" y="{height - 12}" font-size="12" fill="#555">{note}</text>\n</svg>\n')
    return "\n".join(parts)


def write_picture(rows: list[dict[str, Any]]) -> None:
    """Draw the picture, if there is something to draw."""
    if any(row["set"] == SAMPLE and "items" in row for row in rows):
        PICTURE.write_text(draw(rows), "utf-8")
        print(f"\nDrew {PICTURE.relative_to(ROOT)}.")


def keep_rows(path: Path | None) -> list[dict[str, Any]]:
    """Return the rows that the file has, which another run measured."""
    return json.loads(path.read_text("utf-8"))["sets"] if path is not None and path.exists() else []


def place_of(row: dict[str, Any]) -> tuple[int, float, int]:
    """Return where a row belongs in the table."""
    names = [one.name for one in CONTENDERS]
    return list(BOUNDS).index(row["set"]), row["epsilon"], names.index(row["contender"])


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", action="append", choices=list(BOUNDS), help="only these sets")
    parser.add_argument("--epsilon", type=float, help="only the budget with this epsilon")
    parser.add_argument("--only", action="append", help="only the contenders with these names")
    parser.add_argument("--peers", type=Path, default=ROOT / ".venv-peers", help="the libraries' environments")
    parser.add_argument("--install", action="store_true", help="measure nothing: install the libraries")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    parser.add_argument(
        "--draw", action="store_true", help="measure nothing: print the table from the results, and draw"
    )
    arguments = parser.parse_args()
    if arguments.draw:
        rows = json.loads(RESULTS.read_text("utf-8"))["sets"]
        print(make_table(rows))
        write_picture(rows)
        return
    if arguments.install:
        for one in CONTENDERS:
            if one.packages:
                print(f"{one.name}: {prepare_python(one, arguments.peers)[1]}")
        return
    chosen = [one for one in CONTENDERS if arguments.only is None or one.name in arguments.only]
    pythons = {one.name: prepare_python(one, arguments.peers) for one in chosen}
    print(f"{NOT_PRIVATE}\n\nThe best of the bounds that were tried, for all but dpunion; one run of each")
    rows = keep_rows(arguments.json)
    for name, path in find_sets(arguments.set or list(BOUNDS)):
        for budget in BUDGETS:
            if arguments.epsilon not in {None, budget.epsilon}:
                continue
            print(f"\n{name}, epsilon {budget.epsilon:g}, delta {budget.delta:.3g}")
            print(HEADS)
            for contender in chosen:
                python, version = pythons[contender.name]
                made = measure(contender, python, name, path, budget) if python else {"missing": version}
                asked = {"set": name, "epsilon": budget.epsilon, "delta": budget.delta, "contender": contender.name}
                rows = [row for row in rows if not asked.items() <= row.items()]
                rows.append(asked | {"version": version} | made)
                show(rows[-1])
                save(arguments.json, sorted(rows, key=place_of))
    write_picture(sorted(rows, key=place_of))
    if "DPUNION_DATA" not in os.environ:
        print("\nDPUNION_DATA is not set: the larger real sets were left out.", file=sys.stderr)


if __name__ == "__main__":
    main()
