"""The proofs in docs/: what they name exists, every section has tests, and section 0 has the statement's numbers."""

import itertools
import re
from pathlib import Path

import pytest

from claims import CLAIMS, missing, numbered_sections
from dpunion.budget import (
    LARGEST_DELTA,
    LARGEST_EPSILON,
    MODERATE,
    STRONG,
    WITHOUT_LEAVE,
    Budget,
    Strength,
    guarantee,
    sureness_in_words,
)

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "dpunion"
HOMES = {"benchmarks/": ROOT, "tests/": ROOT, "dpunion_lab/": ROOT / "lab" / "src"}
PROOFS = ("guarantees.md", "guarantees-funnel.md", "guarantees-counts.md")
TEXTS = {name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in PROOFS}
REFERENCE = re.compile(r"`([\w./-]+\.py)(?:::([\w.]+))?`")


def references(text):
    """Return the (path, name or None) of each `path.py` and `path.py::name`, in order and once."""
    return list(dict.fromkeys((path, name or None) for path, name in REFERENCE.findall(text)))


def problem(root, path, name):
    """Say what is wrong with a reference, or None."""
    file = root / path
    if not file.is_file():
        return f"{path} does not exist"
    if name is None:
        return None
    word = re.escape(name)
    defined = rf"^\s*(?:async )?(?:def|class) {word}\b|^{word}\b\s*(?::[^=\n]+)?="
    return None if re.search(defined, file.read_text(encoding="utf-8"), re.MULTILINE) else f"{path} has no {name}"


@pytest.mark.parametrize(("path", "name"), references("".join(TEXTS.values())))
def test_what_the_guarantees_refer_to_exists(path, name):
    root = next((home for start, home in HOMES.items() if path.startswith(start)), PACKAGE)
    assert problem(root, path, name) is None


CITATION = re.compile(r'docs/([\w-]+\.md)(?:,\s+(?:"([^"\n]+)"|section (\d+)))?')


def citations():
    """Return the (page, heading or None, section number or None) that the package cites, each once."""
    sources = (path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py")))
    # A citation may be wrapped to the next line of a comment.
    return sorted({one for text in sources for one in CITATION.findall(re.sub(r"\n\s*#?\s*", " ", text))})


@pytest.mark.parametrize(("page", "heading", "section"), citations())
def test_the_pages_and_headings_that_the_package_cites_exist(page, heading, section):
    file = ROOT / "docs" / page
    assert file.is_file()
    headings = re.findall(r"^#+ (?:([\d.]+) )?(.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    assert not heading or any(title.startswith(heading) for _, title in headings)
    assert not section or section in {number.rstrip(".") for number, _ in headings}


@pytest.mark.parametrize("document", TEXTS)
def test_proofs_name_code(document):
    assert len(references(TEXTS[document])) >= 20


@pytest.mark.parametrize("document", TEXTS)
def test_every_section_of_the_proofs_has_tests_that_exist(document):
    claims = CLAIMS[f"docs/{document}"]
    assert list(claims) == numbered_sections(TEXTS[document])
    assert [section for section, tests in claims.items() if not tests] == []
    assert missing(test for tests in claims.values() for test in tests) == []
    assert len({test for tests in claims.values() for test in tests}) >= 20


@pytest.mark.parametrize("document", TEXTS)
def test_no_backticked_python_file_escapes_the_check(document):
    """A reference with a slip in it would not be looked up: each backticked text with .py in it must match."""
    quoted = re.findall(r"`([^`\n]*\.py[^`\n]*)`", TEXTS[document])
    assert [text for text in quoted if not REFERENCE.fullmatch(f"`{text}`")] == []


@pytest.mark.parametrize("document", TEXTS)
def test_links_between_documents_lead_somewhere(document):
    linked = re.findall(r"\]\(([^)#:]+)\)", TEXTS[document])
    assert [target for target in linked if not (ROOT / "docs" / target).is_file()] == []


def test_wrong_references_are_found(tmp_path):
    (tmp_path / "a.py").write_text("LIMIT: int = 3\nclass Thing:\n    def verb(self): ...\n", encoding="utf-8")
    found = references("See `a.py`, `a.py::LIMIT`, `a.py::verb`, `a.py::gone`, `b.py` and `a.py` again.")
    assert [problem(tmp_path, *each) for each in found] == [None, None, None, "a.py has no gone", "b.py does not exist"]


# --- the numbers and words of section 0 ----------------------------------------------------------------------
def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def table_after(heading):
    """Return the cells of the first table behind a heading in bold."""
    lines = TEXTS["guarantees.md"].split(heading, 1)[1].splitlines()
    return [cells(line) for line in itertools.takewhile(bool, itertools.dropwhile(lambda one: one[:1] != "|", lines))]


def test_the_table_of_sureness_is_what_statements_say():
    (_, *epsilons), _, (_, *words) = table_after("**In numbers.**")
    assert len(epsilons) == len(words) > 5
    for epsilon, said in zip(epsilons, words, strict=True):
        assert sureness_in_words(float(epsilon.removesuffix(" and more"))).removeprefix("at most ") == said


def test_the_table_of_strengths_has_the_limits_of_the_code():
    _, _, *rows = table_after("**In words.**")
    assert [row[0] for row in rows] == [one.value for one in Strength]
    limits = [(float(epsilon), delta) for _, epsilon, delta, _ in rows]
    assert limits == [(STRONG[0], "1e-5"), (MODERATE[0], "1e-4"), (LARGEST_EPSILON, f"{LARGEST_DELTA:g}")]
    assert (STRONG[1], MODERATE[1]) == (1e-5, 1e-4)
    text = " ".join(TEXTS["guarantees.md"].split())
    assert f"refuses ε above {WITHOUT_LEAVE[0]:g} or δ above {WITHOUT_LEAVE[1]:g} unless you ask for it" in text


@pytest.mark.parametrize("name", ["README.md", "docs/tutorial.md"])
def test_documents_say_what_the_statement_says(name):
    text = " ".join((ROOT / name).read_text(encoding="utf-8").split())
    permitted = guarantee(Budget(1.0, 1e-6))[2].removeprefix("Worst case: ").removesuffix(".")
    assert permitted in text
    assert "better than by guessing" not in text


@pytest.mark.parametrize("name", ["docs/sharp-edges.md", "docs/spark.md", "src/dpunion/pipeline.py"])
def test_people_are_told_what_may_come_before_a_release(name):
    text = " ".join((ROOT / name).read_text(encoding="utf-8").split()).lower()
    assert "may keep, drop or change a row by that row, or by the same person's rows, alone" in text
    assert re.search(r"explicit (types|schema)", text)
    assert "inferred" in text
