"""Texts and tables for people at a terminal: wrapped to its width, never cut inside a word; for programs left alone."""

from __future__ import annotations

import itertools
import os
import textwrap
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpunion.releases.release import Release

USUAL, NARROWEST, WIDEST = 80, 40, 120
"""Columns of a terminal that does not say, and those between which texts are wrapped."""
WIDEST_TEXT = 48
"""So many places a column of texts takes at most; a longer text moves its own numbers to the right."""


def is_terminal(stream: IO[Any] | None) -> bool:
    """Say whether a person reads this stream."""
    return stream is not None and not stream.closed and stream.isatty()


def width_of(stream: IO[Any] | None) -> int:
    """Return how wide texts are written to a stream."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told) > 0:
        width = int(told)
    else:
        try:
            width = os.get_terminal_size(stream.fileno() if stream is not None else 1).columns or USUAL
        except (OSError, ValueError):
            width = USUAL
    return min(max(width, NARROWEST), WIDEST)


def wrap(text: str, stream: IO[Any] | None) -> str:
    """Return the text with its lines wrapped for a terminal, each under its own beginning; else as it is."""
    if not is_terminal(stream):
        return text
    width = width_of(stream)
    return "\n".join(_wrapped(line, width) for line in text.split("\n"))


def _wrapped(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.fill(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )


def table_lines(made: Release, most: int | None = None) -> Iterator[str]:
    """Yield the rows below the names of the columns: texts to the left, numbers to the right.

    most: show only so many, with long texts cut.
    """
    from rich.cells import cell_len

    from dpunion.releases.formats import escape_controls

    width = len(made.columns)
    rows = itertools.islice(made.rows(), most)
    texts = ([*map(escape_controls, row[:width]), *(f"{number:,}" for number in row[width:])] for row in rows)
    shown = [[*map(escape_controls, made.header)], *texts]
    if most is not None:
        shown = [[*(_cut(text) for text in row[:width]), *row[width:]] for row in shown]
    widths = [max(map(cell_len, cells)) for cells in zip(*shown, strict=True)]
    for row in shown:
        padding = (" " * (min(wide, WIDEST_TEXT) - cell_len(text)) for text, wide in zip(row, widths, strict=True))
        cells = [
            text + gap if at < width else gap + text for at, (text, gap) in enumerate(zip(row, padding, strict=True))
        ]
        yield "  ".join(cells)


def _cut(text: str) -> str:
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= WIDEST_TEXT else set_cell_size(text, WIDEST_TEXT - 1).rstrip() + "…"
