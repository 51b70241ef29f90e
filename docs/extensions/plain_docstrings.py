"""Turns the docstrings of this project, which are plain sentences, into paragraphs and lists for the API pages.

A docstring is one sentence; then perhaps `name: what it is.` for parameters, each on a line or several in a row, or a
table of names and what they are; then perhaps `Guarantees:` with a list. Nothing in it is markup but backquotes and
examples, which begin with >>>.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# A parameter's description: at the beginning of a line, or after the end of a sentence.
DESCRIBED = re.compile(r"(?:^|(?<=[.;]) )([a-z_]+(?:, [a-z_]+)*): (?=\S)")
# A row of a table: the name, and behind two spaces or more what it is; a line that is indented goes on with it.
ROW = re.compile(r"([a-z_]+) {2,}(\S.*)")
GUARANTEES = re.compile(r"Guarantees:\s*(.*)", re.DOTALL)
DRAWN = re.compile(r"[│├└]|^ {4}\S", re.MULTILINE)


def as_markup(lines: list[str], names: set[str]) -> list[str]:
    """Return a docstring's lines as reStructuredText; `names` are those that may be described in it."""
    written: list[str] = []
    for paragraph in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")):
        written += [*_paragraph(paragraph, names), ""]
    return written


def _paragraph(text: str, names: set[str]) -> list[str]:
    if DRAWN.search(text):
        return ["::", "", *("    " + line for line in text.splitlines())]
    promised = GUARANTEES.fullmatch(text.strip())
    if promised is not None:
        return ["**Guarantees**", "", *_list(promised[1])]
    if text.lstrip().startswith(">>> "):
        return text.splitlines()
    if text.lstrip().startswith("- "):
        return _list(text)
    rows = _rows(text, names)
    if rows:
        return [f"- **{name}**: {escaped(' '.join(what.split()))}" for name, what in rows]
    joined = " ".join(text.split())
    places = [found for found in DESCRIBED.finditer(joined) if set(found[1].split(", ")) <= names]
    if not places:
        return [escaped(joined)]
    opening = joined[: places[0].start()].strip()
    ends = [found.start() for found in places[1:]] + [len(joined)]
    items = [
        f"- **{', '.join(found[1].split(', '))}**: {escaped(joined[found.end() : end].strip())}"
        for found, end in zip(places, ends, strict=True)
    ]
    return [*([escaped(opening), ""] if opening else []), *items]


def _rows(text: str, names: set[str]) -> list[tuple[str, str]]:
    """Return the rows of a table of described names; none when the text is something else."""
    rows: list[tuple[str, str]] = []
    for line in text.splitlines():
        found = ROW.fullmatch(line)
        if found is not None and found[1] in names:
            rows.append((found[1], found[2]))
        elif rows and line.startswith("  "):
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {line.strip()}")
        else:
            return []
    return rows


def _list(text: str) -> list[str]:
    items = re.split(r"(?:^|\n)\s*- ", text.strip()) if text.strip().startswith("- ") else ["", text]
    return [f"- {escaped(' '.join(item.split()))}" for item in items if item.strip()]


def escaped(text: str) -> str:
    """Return a sentence with its backquoted parts as code, pages as links and everything else taken by its letters."""
    return "".join(map(_marked, re.split(r"(`[^`]+`|\bdocs/[\w-]+\.md\b)", text)))


def _marked(part: str) -> str:
    if part.startswith("`") and part.endswith("`"):
        return f"``{part[1:-1]}``"
    if part.startswith("docs/") and part.endswith(".md"):
        return f":doc:`{part.removeprefix('docs/').removesuffix('.md')}`"
    return re.sub(r"([*|\\`]|_(?!\w))", r"\\\1", part)


def described_names(thing: Any) -> set[str]:
    """Return the names that a docstring may describe: parameters of a function, fields of a class."""
    import inspect

    names = set(getattr(thing, "__dataclass_fields__", {}))
    try:
        names |= set(inspect.signature(thing).parameters)
    except (TypeError, ValueError):
        return names
    return names


def _process(_app: Sphinx, kind: str, name: str, thing: Any, _options: Any, lines: list[str]) -> None:
    del kind, name
    lines[:] = as_markup(lines, described_names(thing))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
