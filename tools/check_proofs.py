"""Check the proofs: compile proofs/ with Coq, and print every theorem that the documents cite.

    python tools/check_proofs.py [--record | --needs]

Of each theorem its statement, in which every premise stands, and the axioms it rests on; then every definition, that
is, what the words of the statements mean; all as Coq prints them. What is printed must be what proofs/statements.txt
records; --record writes it anew. Compiled files stay in a temporary
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
DEFINITION = re.compile(r"^(?:Definition|Fixpoint|Record|Inductive) (\w+)", re.MULTILINE)
CITATION = re.compile(r"`proofs/(\w+)\.v::(\w+)`")
QUIET = ("-w", "none")
ARGUMENTS = "\n\nArguments "
"""After a definition Coq tells how to write its arguments."""

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
    wanted, files = list(names), list(loaded) or modules()
    statements = _ask(folder, "Check", wanted, files)
    axioms = _ask(folder, "Print Assumptions", wanted, files)
    return [Theorem(*one) for one in zip(wanted, statements, map(_axioms, axioms), strict=True)]


def report(folder: Path) -> str:
    """Return what is to be recorded: the cited theorems and all definitions, in a folder of compiled files."""
    files = modules()
    texts = {name: (folder / f"{name}.v").read_text(encoding="utf-8") for name in files}
    words = [f"{name}.{word}" for name in files for word in DEFINITION.findall(texts[name])]
    meanings = [
        f"{word.partition('.')[0]}.v: {printed.partition(ARGUMENTS)[0]}\n"
        for word, printed in zip(words, _ask(folder, "Print", words, files), strict=True)
    ]
    return "\n".join([*map(str, inspect(folder, cited())), "Definitions\n", *meanings])


def _ask(folder: Path, question: str, names: list[str], files: list[str]) -> list[str]:
    imports = "\n".join(f"From dpunion Require Import {name}." for name in files)
    asked = [f'Redirect "{name}" {question} {name}.' for name in names]
    (folder / "asked.v").write_text("\n".join([PREAMBLE.format(imports=imports), *asked, ""]), encoding="utf-8")
    compile_file(folder / "asked.v")
    answers = [(folder / f"{name}.out").read_text(encoding="utf-8").strip() for name in names]
    return ["\n".join(line.rstrip() for line in answer.splitlines()) for answer in answers]


def _axioms(printed: str) -> frozenset[str]:
    found = re.findall(r"^([\w.]+)(?= :|$)", printed.partition("Axioms:\n")[2], re.MULTILINE)
    return frozenset(name.rpartition(".")[2] for name in found)


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
            text = report(Path(made))
        except ProofFails as failure:
            print(failure)
            return 1
    print(text)
    if "--record" in sys.argv[1:]:
        RECORD.write_text(text, encoding="utf-8")
    if RECORD.read_text(encoding="utf-8") != text:
        print("This is not what proofs/statements.txt records: look at the difference, then use --record.")
        return 1
    print(f"{len(cited())} theorems and all definitions are as recorded in proofs/statements.txt.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
