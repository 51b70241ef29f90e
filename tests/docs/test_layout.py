"""Pages are laid out so that a change of one sentence shows as one: no line outside examples is over 120 characters."""

import pytest
from doc_examples import ROOT, without_blocks

WIDTH = 120
PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]


def long_lines(text):
    """Return the numbers of the lines outside fenced examples that are too long; tables are not spared."""
    lines = without_blocks(text).splitlines()
    return [number for number, line in enumerate(lines, 1) if len(line) > WIDTH]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_no_line_is_too_long(path):
    assert long_lines(path.read_text(encoding="utf-8")) == []


def test_a_long_line_is_found_but_not_in_an_example():
    long = "word " * 30
    assert long_lines(f"short\n{long}\n```text\n{long}\n```\n| {long} |\n") == [2, 6]
