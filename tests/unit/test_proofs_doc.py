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
    r"\b(Admitted|admit|Abort|Axioms?|Parameters?|Conjecture|bypass_check"
    r"|Unset (?:Guard|Positivity|Universe) Checking)\b"
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


PICTURE = (ROOT / "docs" / "_static" / "proofs.svg").read_text(encoding="utf-8")
RECORD = check_proofs.RECORD.read_text(encoding="utf-8")
COLOUR = re.compile(r"^\| ((?:Theorem|Lemma) \w+) \| (green|amber|white) \| ([^|]*?) ?\| ([^|]+) \|$", re.MULTILINE)
BOX = re.compile(r'<g class="(\w+)" data-theorem="([^"]+)"><rect [^>]*fill="(#\w+)"')
COLOUR_CHECKED = [checked for _, _, checked, _ in COLOUR.findall(PAGE)]
ONLY_WHITE = {"Theorem F5"}
"""What the default path leaves to prose alone: floating point."""


def recorded_statements(record):
    """Return the statements that Coq has printed, by module.name."""
    parts = re.split(r"^(\w+)\.v: (?=\w+$)", record.partition("\nDefinitions\n")[0], flags=re.MULTILINE)[1:]
    return {f"{module}.{said.split()[0]}": said for module, said in zip(parts[::2], parts[1::2], strict=True)}


def find_faults(page, picture, record):
    """Say where the table of colours, the picture and the record disagree."""
    statements = recorded_statements(record)
    faults, colours = [], {}
    for name, colour, checked, left in COLOUR.findall(page):
        colours[name] = colour
        theorems = re.findall(r"`(\w+\.\w+)`", checked)
        if bool(theorems) != (colour != "white"):
            faults.append(f"{name} is {colour} and names {len(theorems)} theorems")
        if (colour == "green") != (left == "nothing"):
            faults.append(f"{name} is {colour} and {left} is left")
        faults += [f"{theorem} of {name} is not recorded" for theorem in theorems if theorem not in statements]
        said = " ".join(statements.get(theorem, "") for theorem in theorems)
        faults += [f"{word} of {name} is no premise" for word in re.findall(r"`([^`]+)`", left) if word not in said]
    facts = len(re.findall(r"^\| \d \| `\w+` \|", page, re.MULTILINE))
    premises = {"is_look": "amber"} if "is_look" in statements.get("whole.default_funnel_private", "") else {}
    colours |= {f"facts 1–{facts}": "amber"} | premises | {name.partition(".")[2]: "green" for name in statements}
    boxes = BOX.findall(picture)
    fills = {colour: fill for colour, _, fill in boxes}
    faults += [f"{name} is painted like another colour" for colour, name, fill in boxes if fill != fills[colour]]
    faults += [f"{name} is {colour} in the picture" for colour, name, _ in boxes if colours.get(name) != colour]
    if len(set(fills.values())) != 3:
        faults.append("the picture has not three colours")
    return faults


def test_every_theorem_of_the_guarantees_has_a_colour():
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("guarantees*.md"))]
    stated = {name for text in texts for name in re.findall(r"^\*\*((?:Theorem|Lemma) \w+)", text, re.MULTILINE)}
    assert len(stated) > 20
    assert {name for name, *_ in COLOUR.findall(PAGE)} == stated


def test_the_colours_are_those_of_the_record_and_of_the_picture():
    assert find_faults(PAGE, PICTURE, RECORD) == []


def test_on_the_default_path_only_floating_point_is_white():
    boxes = {name: colour for colour, name, _ in BOX.findall(PICTURE)}
    assert len(boxes) >= 17
    assert {name for name, colour in boxes.items() if colour == "white"} == ONLY_WHITE
    assert {"default_funnel_private", "funnel_runs", "is_look", "Theorem B", "Theorem L", "Lemma F6"} <= set(boxes)


@pytest.mark.parametrize("name", [name for _, name, _ in BOX.findall(PICTURE)])
def test_another_colour_in_the_picture_is_found(name):
    was = re.search(rf'<g class="(\w+)" data-theorem="{name}"', PICTURE)[1]
    other = "amber" if was == "green" else "green"
    changed = PICTURE.replace(f'<g class="{was}" data-theorem="{name}"', f'<g class="{other}" data-theorem="{name}"')
    assert f"{name} is {other} in the picture" in find_faults(PAGE, changed, RECORD)


@pytest.mark.parametrize("row", [match[0] for match in COLOUR.finditer(PAGE)])
def test_another_colour_in_the_table_is_found(row):
    colour = COLOUR.match(row)[2]
    other = "green" if colour == "white" else "white"
    assert find_faults(PAGE.replace(row, row.replace(f"| {colour} |", f"| {other} |")), PICTURE, RECORD)


@pytest.mark.parametrize("theorem", sorted(set(re.findall(r"`(\w+\.\w+)`", " ".join(COLOUR_CHECKED)))))
def test_a_theorem_that_is_gone_from_the_record_is_found(theorem):
    module, _, name = theorem.partition(".")
    changed = RECORD.replace(f"{module}.v: {name}\n", f"{module}.v: other\n")
    assert changed != RECORD
    assert any(fault.startswith(f"{theorem} of ") for fault in find_faults(PAGE, PICTURE, changed))


def test_a_premise_that_is_gone_is_found():
    """Theorem B is amber for one premise; without it the page must change."""
    assert "walk_chance of Theorem B is no premise" in find_faults(
        PAGE, PICTURE, RECORD.replace("walk_chance", "proved")
    )
