"""The proofs in docs/: every place in the code or the tests that they name exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXTS = {name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("guarantees.md", "guarantees-funnel.md")}
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
    assert problem(ROOT, path, name) is None


@pytest.mark.parametrize("document", TEXTS)
def test_proofs_name_code_and_tests(document):
    paths = [path for path, _ in references(TEXTS[document])]
    assert sum(path.startswith("src/dpunion/") for path in paths) >= 20
    assert sum(path.startswith("tests/") for path in paths) >= 20


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
