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


@pytest.mark.parametrize(
    ("name", "least"), [("guarantees.md", 5), ("guarantees-funnel.md", 5), ("guarantees-counts.md", 3)]
)
def test_the_guarantees_cite_proofs(name, least):
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert len(check_proofs.CITATION.findall(text)) >= least


def test_what_is_missing_is_said_with_a_remedy(monkeypatch):
    monkeypatch.setattr(check_proofs.shutil, "which", lambda _: None)
    assert check_proofs.missing_tools().startswith("coqc is not installed; on Debian 12: apt-get install coq ")


PICTURE = (ROOT / "docs" / "_static" / "proofs.svg").read_text(encoding="utf-8")
RECORD = check_proofs.RECORD.read_text(encoding="utf-8")
COLOUR = re.compile(r"^\| ((?:Theorem|Lemma) \w+) \| (green|amber|white) \| ([^|]*?) ?\| ([^|]+) \|$", re.MULTILINE)
BOX = re.compile(r'<g class="(\w+)" data-theorem="([^"]+)"><rect [^>]*fill="(#\w+)"')
ARROW = re.compile(r'<path [^>]*data-from="([^"]+)" data-to="([^"]+)"')
COLOUR_CHECKED = [checked for _, _, checked, _ in COLOUR.findall(PAGE)]
ONLY_WHITE = {"Theorem F5"}
"""What the default path leaves to prose alone: floating point."""
WHOLE = "default_funnel_private"
PROSE_ONLY = {"walk_chance": "Theorem B", "is_look": WHOLE, "step_moves": "funnel_runs"}
"""Premises that only prose proves, by the word for them in statements; and what each of them leads to."""
SAYS_MORE = {
    "Lemma 1": "that code computes from a user's own rows",
    "Theorem 5": "policies with a reserve",
    "Lemma 7": "cutoffs that differ between passes",
    "Lemma 9": "F₁ and F₂ as functions: only what follows",
    "Theorem 10": "policies' reserve",
    "Theorem 13": "round 1; floors, scores",
}
"""What the guarantees say in these theorems and Coq's statements do not: somebody has compared them."""


def recorded_statements(record):
    """Return the statements that Coq has printed, by module.name."""
    parts = re.split(r"^(\w+)\.v: (?=\w+$)", record.partition("\nDefinitions\n")[0], flags=re.MULTILINE)[1:]
    return {f"{module}.{said.split()[0]}": said for module, said in zip(parts[::2], parts[1::2], strict=True)}


def recorded_definitions(record):
    """Return what Coq has printed of the words of statements, by name."""
    definitions = re.split(r"^\w+\.v: ", record.partition("\nDefinitions\n")[2], flags=re.MULTILINE)[1:]
    named = re.compile(r"(?:(?:Record|Inductive)\s+)?(?:\w+\.)?(\w+)")
    return {named.match(text)[1]: text for text in definitions}


def premises_of(statement):
    """Return what stands before the last arrow of a statement that is in no brackets."""
    depth, end = 0, 0
    for place, sign in enumerate(statement):
        depth += (sign in "([{") - (sign in ")]}")
        if depth == 0 and statement.startswith("->", place):
            end = place
    return statement[:end]


def prose_premises(statements, definitions, theorem):
    """Return which premises that only prose proves are among those of a theorem, or in a definition that they use."""
    seen, found = set(), re.findall(r"\w+", premises_of(statements.get(theorem, "")))
    while found:
        word = found.pop()
        if word not in seen:
            seen.add(word)
            found += re.findall(r"\w+", definitions.get(word, ""))
    return seen & set(PROSE_ONLY)


def find_faults(page, picture, record):
    """Say where the table of colours, the picture and the record disagree."""
    statements, definitions = recorded_statements(record), recorded_definitions(record)
    rests_on = {name: prose_premises(statements, definitions, name) for name in statements}
    faults, colours = [], {}
    for name, colour, checked, left in COLOUR.findall(page):
        theorems = re.findall(r"`(\w+\.\w+)`", checked)
        premises = set().union(*(rests_on.get(theorem, set()) for theorem in theorems))
        whole = not premises and name not in SAYS_MORE and left == "nothing"
        colours[name] = "white" if not theorems else "green" if whole else "amber"
        if colour != colours[name]:
            faults.append(f"{name} is {colour} in the table and should be {colours[name]}")
        if (colour == "green") != (left == "nothing"):
            faults.append(f"{name} is {colour} and {left} is left")
        if SAYS_MORE.get(name, left) != left:
            faults.append(f"{name} says more than what is checked")
        faults += [f"{theorem} of {name} is not recorded" for theorem in theorems if theorem not in statements]
        faults += [f"{word} of {name} is no premise" for word in set(re.findall(r"`([^`]+)`", left)) ^ premises]
    facts = len(re.findall(r"^\| \d \| `\w+` \|", page, re.MULTILINE))
    colours |= {f"facts 1–{facts}": "amber"} | dict.fromkeys(PROSE_ONLY, "amber")
    colours |= {name.partition(".")[2]: "amber" if rests_on[name] else "green" for name in statements}
    unused = set(PROSE_ONLY) - rests_on.get(f"whole.{WHOLE}", set())
    faults += [f"{word} is no premise of the whole" for word in sorted(unused)]
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


def test_the_page_lists_the_premises_that_only_prose_proves():
    table = PAGE.partition("**Premises that only prose proves.**")[2].partition("\n\n")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(PROSE_ONLY)


def test_on_the_default_path_only_floating_point_is_white():
    boxes = {name: colour for colour, name, _ in BOX.findall(PICTURE)}
    assert len(boxes) >= 20
    assert {name for name, colour in boxes.items() if colour == "white"} == ONLY_WHITE
    assert {WHOLE, "funnel_runs", "Theorem B", "Theorem L", "Lemma F6", *PROSE_ONLY} <= set(boxes)


def test_arrows_lead_from_every_box_to_the_whole():
    boxes = {name for _, name, _ in BOX.findall(PICTURE)}
    arrows = ARROW.findall(PICTURE)
    assert len(arrows) == PICTURE.count("marker-end")
    assert {end for arrow in arrows for end in arrow} == boxes
    leads = {WHOLE}
    for _ in boxes:
        leads |= {start for start, end in arrows if end in leads}
    assert leads == boxes
    assert set(PROSE_ONLY.items()) <= set(arrows)
    assert ("Theorem B", "funnel_runs") in arrows
    assert {("funnel_runs", WHOLE), ("Theorem 13", WHOLE), ("Theorem F5", WHOLE)} <= set(arrows)


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


@pytest.mark.parametrize("name", [name for name, colour, *_ in COLOUR.findall(PAGE) if colour != "green"])
def test_false_green_in_table_and_picture_alike_is_found(name):
    """The row says green and that nothing is left, and the picture shows the same."""
    _, colour, checked, left = next(row for row in COLOUR.findall(PAGE) if row[0] == name)
    checked = checked or "`rounds.rounds_private`"
    page = re.sub(rf"^\| {name} \| .*$", f"| {name} | green | {checked} | nothing |", PAGE, flags=re.MULTILINE)
    box = re.compile(rf'<g class="{colour}" data-theorem="{name}"><rect ([^>]*)fill="#\w+"')
    picture = box.sub(rf'<g class="green" data-theorem="{name}"><rect \1fill="#b7e1c0"', PICTURE)
    assert page != PAGE
    faults = find_faults(page, picture, RECORD)
    if colour == "white":  # a theorem that is about something else: only people can tell
        return
    assert f"{name} is green in the table and should be amber" in faults, left


@pytest.mark.parametrize("theorem", sorted(set(re.findall(r"`(\w+\.\w+)`", " ".join(COLOUR_CHECKED)))))
def test_a_theorem_that_is_gone_from_the_record_is_found(theorem):
    module, _, name = theorem.partition(".")
    changed = RECORD.replace(f"{module}.v: {name}\n", f"{module}.v: other\n")
    assert changed != RECORD
    assert any(fault.startswith(f"{theorem} of ") for fault in find_faults(PAGE, PICTURE, changed))


@pytest.mark.parametrize("word", PROSE_ONLY)
def test_a_premise_that_is_gone_is_found(word):
    """The page must change when a premise has got a proof: the whole is amber for it."""
    assert f"{word} is no premise of the whole" in find_faults(PAGE, PICTURE, RECORD.replace(word, "proved"))


def test_a_theorem_with_a_premise_of_prose_is_not_green():
    statements, definitions = recorded_statements(RECORD), recorded_definitions(RECORD)
    assert prose_premises(statements, definitions, "whole.default_funnel_private") == set(PROSE_ONLY)
    assert prose_premises(statements, definitions, "whole.default_funnel_private_keys") == set(PROSE_ONLY)
    assert prose_premises(statements, definitions, "counted.funnel_with_counts") == {"walk_chance"}
    assert prose_premises(statements, definitions, "counted.counting_step_moves") == set()
    assert prose_premises(statements, definitions, "rounds.rounds_private") == set()
