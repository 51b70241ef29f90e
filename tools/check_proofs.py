"""Check the proofs: compile proofs/ with Coq, and print every theorem that the documents cite.

    python tools/check_proofs.py [--record | --needs]

Of each theorem its statement, in which every premise stands, and the axioms it rests on, both as Coq prints them. What
is printed must be what proofs/statements.txt records; --record writes it anew. Compiled files stay in a temporary
folder. --needs prints Debian's packages if any is missing. docs/proofs.md says what the theorems mean.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROOFS = ROOT / "proofs"
RECORD = PROOFS / "statements.txt"
PACKAGES = ("coq", "libcoq-mathcomp", "libcoq-mathcomp-algebra-tactics", "libcoq-mathcomp-analysis")
"""What Debian calls the proof assistant and the libraries."""
VERSION, DEBIAN = "8.16", "12"
NEEDED = ("mathcomp/ssreflect/all_ssreflect.vo", "mathcomp/algebra_tactics/ring.vo", "mathcomp/analysis/exp.vo")
CITATION = re.compile(r"`proofs/(\w+)\.v::(\w+)`")
QUIET = ("-w", "none")

# Notations, so that statements are printed as they are written.
PREAMBLE = """From mathcomp Require Import all_ssreflect ssralg ssrnum.
From mathcomp.classical Require Import classical_sets.
From mathcomp.analysis Require Import reals measure sequences exp.
{imports}
Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.
Unset Printing Implicit Defensive.
Set Printing Width 110.
"""


class ProofFails(Exception):
    """A file or a theorem that Coq does not accept."""


@dataclass(frozen=True, slots=True)
class Theorem:
    """A cited theorem: module.name, its statement, and the axioms it rests on, by their last names."""

    name: str
    statement: str
    axioms: frozenset[str]

    def __str__(self) -> str:
        module = self.name.partition(".")[0]
        return f"{module}.v: {self.statement}\n  rests on: {', '.join(sorted(self.axioms)) or 'no axiom'}\n"


def missing_tools() -> str | None:
    """Say what is not installed, or None."""
    absent = _absent()
    if absent:
        return f"{absent}; on Debian {DEBIAN}: apt-get install {' '.join(PACKAGES)}"
    version = _output(["coqc", "--print-version"], PROOFS).split()[0]
    written_for = f"the proofs are written for {VERSION}, as in Debian {DEBIAN}"
    return None if version.startswith(f"{VERSION}.") else f"Coq is {version}, and {written_for}"


def _absent() -> str | None:
    if shutil.which("coqc") is None:
        return "coqc is not installed"
    where = Path(_output(["coqc", "-where"], PROOFS).strip()) / "user-contrib"
    libraries = [name.removesuffix(".vo") for name in NEEDED if not (where / name).is_file()]
    return f"Coq has no {libraries[0]}" if libraries else None


def modules() -> list[str]:
    """Return the names of the files, in the order in which they build on each other."""
    lines = (PROOFS / "_CoqProject").read_text(encoding="utf-8").splitlines()
    return [line.removesuffix(".v") for line in lines if line.endswith(".v")]


def cited() -> list[str]:
    """Return the theorems that documents cite, as module.name, by module."""
    pages = sorted((ROOT / "docs").glob("*.md"))
    found = {name for page in pages for name in CITATION.findall(page.read_text(encoding="utf-8"))}
    order = {module: number for number, module in enumerate(modules())}
    return [".".join(name) for name in sorted(found, key=lambda one: (order.get(one[0], -1), one))]


def compile_file(path: Path) -> None:
    """Compile one file beside those it builds on."""
    _output(["coqc", "-q", *QUIET, "-Q", ".", "dpunion", path.name], path.parent)


def compile_all(folder: Path) -> None:
    """Compile copies of all files in a folder."""
    for name in modules():
        shutil.copyfile(PROOFS / f"{name}.v", folder / f"{name}.v")
        compile_file(folder / f"{name}.v")


def inspect(folder: Path, names: Iterable[str], loaded: Iterable[str] = ()) -> list[Theorem]:
    """Ask Coq for the statements and axioms of some theorems, in a folder of compiled files: all, or those loaded."""
    wanted = list(names)
    imports = "\n".join(f"From dpunion Require Import {name}." for name in loaded or modules())
    asked = [
        f'Redirect "{name}.statement" Check {name}.\nRedirect "{name}.axioms" Print Assumptions {name}.'
        for name in wanted
    ]
    (folder / "cited.v").write_text("\n".join([PREAMBLE.format(imports=imports), *asked, ""]), encoding="utf-8")
    compile_file(folder / "cited.v")
    return [_answer(folder, name) for name in wanted]


def _answer(folder: Path, name: str) -> Theorem:
    printed = (folder / f"{name}.statement.out").read_text(encoding="utf-8").strip()
    statement = "\n".join(line.rstrip() for line in printed.splitlines())
    axioms = (folder / f"{name}.axioms.out").read_text(encoding="utf-8")
    found = re.findall(r"^([\w.]+)(?= :|$)", axioms.partition("Axioms:\n")[2], re.MULTILINE)
    return Theorem(name, statement, frozenset(one.rpartition(".")[2] for one in found))


def _output(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise ProofFails(f"{command[-1]}\n{done.stdout}{done.stderr}".strip())
    return done.stdout


def main() -> int:
    """Compile, print and compare with the record."""
    if "--needs" in sys.argv[1:]:
        print(" ".join(PACKAGES) if _absent() else "")
        return 0
    lacking = missing_tools()
    if lacking:
        print(lacking)
        return 1
    with tempfile.TemporaryDirectory() as made:
        try:
            compile_all(Path(made))
            text = "\n".join(str(one) for one in inspect(Path(made), cited()))
        except ProofFails as failure:
            print(failure)
            return 1
    print(text)
    if "--record" in sys.argv[1:]:
        RECORD.write_text(text, encoding="utf-8")
    if RECORD.read_text(encoding="utf-8") != text:
        print("This is not what proofs/statements.txt records: look at the difference, then use --record.")
        return 1
    print(f"{len(cited())} theorems are as recorded in proofs/statements.txt.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
