"""Build wheels and sdists of dpunion and dpunion-lab, and try the wheels in a clean environment elsewhere.

What is tried: the metadata (twine), what is inside, the commands of README.md as they are printed there, in an empty
folder with an empty cache; then the commands of dpunion-lab, without that wheel and with it. One run takes about a
minute; --python names another Python to try.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "docs")]

# What the package cannot work without, besides its modules.
HOMES = {"dpunion": ROOT / "src", "dpunion_lab": ROOT / "lab" / "src"}
NEEDED = (
    "dpunion/py.typed",
    "dpunion/data/debian_depends.parquet",
    "dpunion/data/README.md",
    "dpunion/data/unicode14.json",
    *(f"dpunion/data/lists/{name}.txt" for name in ("countries", "country-names", "currencies", "LICENSE-CLDR")),
    *(f"dpunion/data/lists/{name}.txt" for name in ("languages", "language-names")),
    "dpunion/report/templates/page.html",
    "dpunion/report/templates/page.css",
    "dpunion/report/templates/page.js",
    "dpunion_lab/py.typed",
    "dpunion_lab/published.json",
)
# A command of the lab, and what it says where the lab is missing.
OF_LAB = "dpunion lab compare --generate 300 -a weighted-gaussian -e 3 -d 1e-4"
MISSING_LAB = "pip install dpunion-lab"
# Commands of the README that set up a copy of the repository, or this very installation.
SET_UP = re.compile(r"(make|pip|python -m pip) ")
# A first release says so; the README shows a later one.
COMPILING = re.compile(r"^Compiling\b[^\n]*\n", re.MULTILINE)
LONGEST_COMMAND = 300  # seconds


def main() -> int:
    """Build, check and try; return the number of problems."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where wheel and sdist go")
    parser.add_argument("--python", default=sys.executable, help="the Python to install the wheel into")
    asked = parser.parse_args()
    wheels = [build(asked.out, ROOT, "dpunion"), build(asked.out, ROOT / "lab", "dpunion_lab")]
    problems = [problem for wheel in wheels for problem in missing_parts(wheel)]
    with tempfile.TemporaryDirectory() as folder:
        problems += try_out(*wheels, Path(folder), asked.python)
    for problem in problems:
        print(f"PROBLEM: {problem}")
    print(f"{' and '.join(wheel.name for wheel in wheels)}: {len(problems) or 'no'} problems")
    return len(problems)


def build(out: Path, project: Path, name: str) -> Path:
    """Build the sdist, and from it the wheel; check what an index will read; return the wheel."""
    for old in (*out.glob(f"{name}-*.whl"), *out.glob(f"{name}-*.tar.gz")):
        old.unlink()
    call(sys.executable, "-m", "build", "--outdir", str(out), str(project))
    (wheel,), (sdist,) = out.glob(f"{name}-*.whl"), out.glob(f"{name}-*.tar.gz")
    call(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist))
    return wheel


def missing_parts(wheel: Path) -> list[str]:
    """Say what the wheel should hold and does not, and what it holds and should not."""
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    package = wheel.name.partition("-")[0]
    modules = {str(path.relative_to(HOMES[package])) for path in (HOMES[package] / package).rglob("*.py")}
    needed = {name for name in NEEDED if name.startswith(f"{package}/")}
    missing = sorted((modules | needed) - held)
    strange = sorted(name for name in held if not name.startswith((f"{package}/", f"{package}-")))
    return [f"the wheel lacks {name}" for name in missing] + [f"the wheel holds {name}" for name in strange]


def try_out(wheel: Path, lab: Path, folder: Path, python: str) -> list[str]:
    """Install the wheels and run what the README shows, in an empty folder; return what is wrong."""
    call(python, "-m", "venv", str(folder / "clean"))
    binaries, work = folder / "clean" / "bin", folder / "work"
    work.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DPUNION", "NUMBA"))}
    environment = kept | {
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "COLUMNS": "120",
    }

    def install(*what: str) -> None:
        call(str(binaries / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what)

    install(str(wheel))
    print((binaries / "python").resolve(), run_in(work, environment, "dpunion --version")[1].strip())
    home = run_in(work, environment, "python -c 'import dpunion; print(dpunion.__file__)'")[1].strip()
    problems = [] if home.startswith(str(folder)) else [f"dpunion is imported from {home}"]
    problems += play_readme(work, environment)
    code, printed = run_in(work, environment, OF_LAB)
    if code != 2 or MISSING_LAB not in printed:
        problems.append(f"without dpunion-lab: exit code {code}\n{printed}")
    install(f"{wheel}[report]", str(lab))
    code, printed = run_in(work, environment, OF_LAB)
    return problems if code == 0 else [*problems, f"with dpunion-lab: exit code {code}\n{printed}"]


def play_readme(work: Path, environment: dict[str, str]) -> list[str]:
    """Run the README's commands as printed and compare what they print with what is shown."""
    from doc_examples import blocks, commands, difference

    text = (ROOT / "README.md").read_text("utf-8")
    shown = [one for block in blocks("README.md", text) if block.language == "console" for one in commands(block)]
    problems: list[str] = []
    compiled = False
    for command in (one for one in shown if not SET_UP.match(one.text)):
        code, printed = run_in(work, environment, command.text)
        compiled = compiled or COMPILING.search(printed) is not None
        wrong = f"exit code {code}\n{printed}" if code else difference(command.shown, COMPILING.sub("", printed))
        print(f"$ {command.text}: {'not as shown' if wrong else 'as shown'}")
        problems += [f"README.md:{command.line}: {command.text}\n{wrong}"] if wrong else []
    return problems if compiled else [*problems, "the first release did not say that it compiles"]


def run_in(work: Path, environment: dict[str, str], command: str) -> tuple[int, str]:
    """Run a command line; return its exit code and all it printed."""
    done = subprocess.run(  # noqa: S603 - commands of our own README
        ["/bin/bash", "-c", command],
        cwd=work,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=LONGEST_COMMAND,
    )
    return done.returncode, done.stdout


def call(*words: str) -> None:
    """Run a tool; what it prints is shown when it fails."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)  # noqa: S603
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout}")


if __name__ == "__main__":
    sys.exit(main())
