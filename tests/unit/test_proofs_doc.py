"""What documents say of proofs/: every cited theorem is there, every table tells of it, and no proof has a gap."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import check_proofs  # noqa: E402

PAGE = (ROOT / "docs" / "proofs.md").read_text(encoding="utf-8")
FILES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(check_proofs.PROOFS.glob("*.v"))}
GAPS = re.compile(
    r"\b(Admitted|admit|Abort|Axiom|Axioms|Parameter|Parameters|Conjecture|Unset Guard Checking|bypass_check)\b"
)


def without_comments(text):
    return re.sub(r"\(\*.*?\*\)", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("name", check_proofs.cited())
def test_every_cited_theorem_is_in_its_file(name):
    module, _, theorem = name.partition(".")
    assert re.search(rf"^Theorem {theorem}\b", without_comments(FILES[module]), re.MULTILINE)


@pytest.mark.parametrize("module", FILES)
def test_no_proof_has_a_gap(module):
    assert GAPS.findall(without_comments(FILES[module])) == []


def test_gaps_are_found():
    assert GAPS.findall("Proof. admit. Admitted.\nAxiom a : False.\nLemma admitted_to : True.") == [
        "admit",
        "Admitted",
        "Axiom",
    ]


def test_every_file_is_compiled():
    assert sorted(check_proofs.modules()) == list(FILES)


def test_the_page_tells_of_every_theorem_once():
    told = [".".join(name) for name in re.findall(r"^\| `proofs/(\w+)\.v::(\w+)` \|", PAGE, re.MULTILINE)]
    assert sorted(told) == sorted(check_proofs.cited())


def test_the_record_has_every_cited_theorem():
    record = check_proofs.RECORD.read_text(encoding="utf-8").partition("\nDefinitions\n")[0]
    recorded = re.findall(r"^(\w+)\.v: (\w+)$", record, re.MULTILINE)
    assert [".".join(name) for name in recorded] == check_proofs.cited()


@pytest.mark.parametrize("name", ["guarantees.md", "guarantees-funnel.md"])
def test_the_guarantees_cite_proofs(name):
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert len(check_proofs.CITATION.findall(text)) >= 5


def test_what_is_missing_is_said_with_a_remedy(monkeypatch):
    monkeypatch.setattr(check_proofs.shutil, "which", lambda _: None)
    assert check_proofs.missing_tools().startswith("coqc is not installed; on Debian 12: apt-get install coq ")


COLOURS = {
    name: (colour, re.findall(r"`(\w+\.\w+)`", checked))
    for name, colour, checked in re.findall(
        r"^\| ((?:Theorem|Lemma) \w+) \| (green|amber|white) \| ([^|]*) ?\| [^|]+ \|$", PAGE, re.MULTILINE
    )
}


def test_every_theorem_of_the_guarantees_has_a_colour():
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("guarantees*.md"))]
    stated = {name for text in texts for name in re.findall(r"^\*\*((?:Theorem|Lemma) \w+)", text, re.MULTILINE)}
    assert len(stated) > 20
    assert stated - set(COLOURS) == set()


def test_the_colours_are_those_of_the_record():
    """Green and amber name theorems that Coq has printed; white names none."""
    record = check_proofs.RECORD.read_text(encoding="utf-8").partition("\nDefinitions\n")[0]
    recorded = {".".join(name) for name in re.findall(r"^(\w+)\.v: (\w+)$", record, re.MULTILINE)}
    for name, (colour, checked) in COLOURS.items():
        assert bool(checked) == (colour != "white"), name
        assert set(checked) <= recorded, name


def test_the_picture_has_the_colours_of_the_table():
    picture = (ROOT / "docs" / "_static" / "proofs.svg").read_text(encoding="utf-8")
    boxes = re.findall(r'<g class="(\w+)" data-theorem="((?:Theorem|Lemma) \w+)"><rect [^>]*fill="(#\w+)"', picture)
    fills = {colour: fill for colour, _, fill in boxes}
    assert [one for one in boxes if one[2] != fills[one[0]]] == []
    assert len(set(fills.values())) == len(fills) == 3
    named = {name: colour for colour, name, _ in boxes}
    assert len(named) >= 12
    assert named == {name: COLOURS[name][0] for name in named}
    white = {name for name, colour in named.items() if colour == "white"}
    assert white == {"Theorem F5", "Lemma F4"}, "the default path is white only where numbers are computed"
