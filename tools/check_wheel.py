"""Build the wheel and the sdist, and try the wheel in a clean environment outside the repository.

What is tried: the metadata (twine), what is inside, the commands of README.md as they are printed there, in an empty
folder with an empty cache. One run takes about a minute; --python names another Python to try.
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
sys.path.insert(0, str(ROOT / "tests" / "docs"))

# What the package cannot work without, besides its modules.
NEEDED = (
    "dpunion/py.typed",
    "dpunion/data/debian_depends.parquet",
    "dpunion/data/README.md",
    "dpunion/lab/published.json",
    "dpunion/report/templates/page.html",
    "dpunion/report/templates/page.css",
    "dpunion/report/templates/page.js",
)
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
    wheel = build(asked.out)
    problems = missing_parts(wheel)
    with tempfile.TemporaryDirectory() as folder:
        problems += try_out(wheel, Path(folder), asked.python)
    for problem in problems:
        print(f"PROBLEM: {problem}")
    print(f"{wheel.name}: {len(problems) or 'no'} problems")
    return len(problems)


def build(out: Path) -> Path:
    """Build the sdist, and from it the wheel; check what an index will read; return the wheel."""
    for old in (*out.glob("dpunion-*.whl"), *out.glob("dpunion-*.tar.gz")):
        old.unlink()
    call(sys.executable, "-m", "build", "--outdir", str(out), str(ROOT))
    (wheel,), (sdist,) = out.glob("dpunion-*.whl"), out.glob("dpunion-*.tar.gz")
    call(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist))
    return wheel


def missing_parts(wheel: Path) -> list[str]:
    """Say what the wheel should hold and does not, and what it holds and should not."""
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "dpunion").rglob("*.py")}
    missing = sorted((modules | set(NEEDED)) - held)
    strange = sorted(name for name in held if not name.startswith(("dpunion/", "dpunion-")))
    return [f"the wheel lacks {name}" for name in missing] + [f"the wheel holds {name}" for name in strange]


def try_out(wheel: Path, folder: Path, python: str) -> list[str]:
    """Install the wheel and run what the README shows, in an empty folder; return what is wrong."""
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
    call(str(binaries / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    print((binaries / "python").resolve(), run_in(work, environment, "dpunion --version")[1].strip())
    home = run_in(work, environment, "python -c 'import dpunion; print(dpunion.__file__)'")[1].strip()
    problems = [] if home.startswith(str(folder)) else [f"dpunion is imported from {home}"]
    return problems + play_readme(work, environment)


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
