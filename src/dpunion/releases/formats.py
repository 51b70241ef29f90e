"""The files of a release, and how to read their texts back.

Files are built from plain strings, sorted by bytes, in a fixed layout: nothing of the input's dictionaries, order,
statistics or buffers can be in them. For every function that escapes a text, this module has one that undoes it.

A key of several columns is one text inside dpunion, and several outside. The one text has U+001F between the parts.
Inside a part, a backslash is doubled, and U+001F becomes a backslash and an underscore, so different keys are different
texts.

subtle: neither U+001F nor the backslash nor the underscore composes with a combining mark, has another case, or counts
as part of a word; so normalising or lower-casing the one text is the same as doing it to each part.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from dpunion.checks import check_suffix
from dpunion.files import check_place

if TYPE_CHECKING:
    from dpunion.releases.release import Release

COLUMN = "item"
LISTED = "listed"
SINCE = "since"
"""The column of a schedule's release that says in which week each item was released first."""
ROWS_PER_GROUP = 1 << 16
# The characters that begin a formula, with their full-width forms, which spreadsheets in East Asia also accept.
SIGNS = "=+-@＝＋－＠"
MAY_RUN = re.compile(f"['{re.escape(SIGNS)}]")
# Separators of cells in spreadsheets, besides the comma; splitting keeps them.
CELLS = re.compile("([;\t\r\n])")
QUOTED = re.compile('[",;\t\r\n]')
ESCAPE = re.compile(r"\\(\\|t|n|r|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")
# A NUL, which is not allowed in CSV, becomes \x00; backslashes before that, or before a plain x00, are doubled.
NUL = re.compile(r"(?<!\\)(\\*)(\0|x00)")
WRITTEN_NUL = re.compile(r"(?<!\\)(\\+)x00")
SEPARATOR, BACKSLASH = "\x1f", "\\"
KEY_ESCAPES = ((BACKSLASH, BACKSLASH + BACKSLASH), (SEPARATOR, BACKSLASH + "_"))
"""Characters and their escapes; the backslash comes first, as the other escape adds one."""
SHORT_ESCAPES = {"\\": "\\", "t": "\t", "n": "\n", "r": "\r"}
WIDEST_TEXT = 48
"""The widest column of texts in a table; a longer text moves the numbers of its row to the right."""


Writer = Callable[["Release", IO[bytes]], None]


def check_target(target: Path, *, overwrite: bool) -> Writer:
    """Return the writer for the suffix; refuse early a file that cannot be written."""
    remedy = "Name the output file after the format you want, for example vocabulary.parquet."
    writer = WRITERS[check_suffix("The output's suffix", target, WRITERS, remedy)]
    check_place(target, overwrite=overwrite)
    return writer


def escape_controls(text: str) -> str:
    """Return the text with backslashes and all control and line-breaking characters escaped."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(
        character if character.isprintable() and character != "\\" else character.encode("unicode_escape").decode()
        for character in text
    )


def unescape_controls(text: str) -> str:
    """Undo `escape_controls`; return any other text unchanged."""

    def character(escape: re.Match[str]) -> str:
        if escape[1] in SHORT_ESCAPES:
            return SHORT_ESCAPES[escape[1]]
        number = int(escape[1][1:], 16)
        return chr(number) if number <= sys.maxunicode else escape[0]

    plain = ESCAPE.sub(character, text)
    return plain if escape_controls(plain) == text and is_utf8(plain) else text


def is_utf8(text: str) -> bool:
    """Say whether a text can be written in UTF-8: a lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def text_line(row: Sequence[Any]) -> str:
    """Return a row's texts and numbers as one line, escaped, separated by tabs."""
    return "\t".join(escape_controls(str(value)) for value in row)


def show_number(number: int) -> str:
    """Return a number of a release for people."""
    return ("yes" if number else "no") if isinstance(number, bool) else f"{number:,}"


def table_lines(made: Release, most: int | None = None) -> Iterator[str]:
    """Yield the rows of a release below the names of its columns: texts to the left, numbers to the right.

    most: show only this many rows, with long texts cut.
    """
    from rich.cells import cell_len, set_cell_size

    def cut(text: str) -> str:
        return text if cell_len(text) <= WIDEST_TEXT else set_cell_size(text, WIDEST_TEXT - 1).rstrip() + "…"

    width = len(made.columns)
    rows = itertools.islice(made.rows(), most)
    texts = ([*map(escape_controls, row[:width]), *map(show_number, row[width:])] for row in rows)
    shown = [[*map(escape_controls, made.header)], *texts]
    if most is not None:
        shown = [[*(cut(text) for text in row[:width]), *row[width:]] for row in shown]
    widths = [max(map(cell_len, cells)) for cells in zip(*shown, strict=True)]
    for row in shown:
        padding = (" " * (min(wide, WIDEST_TEXT) - cell_len(text)) for text, wide in zip(row, widths, strict=True))
        cells = [
            text + gap if at < width else gap + text for at, (text, gap) in enumerate(zip(row, padding, strict=True))
        ]
        yield "  ".join(cells)


def defuse_formula(text: str) -> str:
    """Return the text with an apostrophe before anything a spreadsheet would run, and before a leading apostrophe.

    Many spreadsheets begin a cell at a semicolon or a tab, even inside quotes after a line's first comma. So text after
    one of these, or after a line break, is treated like the beginning. `restore_formula` gives the item back.
    """
    return "".join(map(_defuse_cell, CELLS.split(text))) if MAY_RUN.search(text) else text


def restore_formula(text: str) -> str:
    """Undo `defuse_formula`; apostrophes that it did not add stay."""
    if "'" not in text:
        return text
    return "".join(cell[1:] if cell == _defuse_cell(cell[1:]) else cell for cell in CELLS.split(text))


def _defuse_cell(cell: str) -> str:
    """Return the cell, with an apostrophe before it if it begins with an apostrophe or, visibly, with a sign.

    Quotes do not count as visible: a reader that splits at semicolons takes them as its own.
    """
    visible = next((character for character in cell if character.isprintable() and character not in ' "'), "")
    return "'" + cell if cell[:1] == "'" or (visible and visible in SIGNS) else cell


def _write_parquet(release: Release, file: IO[bytes]) -> None:
    import pyarrow.parquet as pq

    pq.write_table(
        release.table(),
        file,
        compression="zstd",
        use_dictionary=False,
        write_page_checksum=True,
        row_group_size=ROWS_PER_GROUP,
    )


def _write_arrow(release: Release, file: IO[bytes]) -> None:
    import pyarrow as pa

    table = release.table()
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=ROWS_PER_GROUP)


def csv_text(text: str) -> str:
    """Return the text for CSV: formulas defused, and NUL escaped. `text_of_csv` undoes it."""
    return NUL.sub(lambda found: 2 * found[1] + ("\\x00" if found[2] == "\0" else "x00"), defuse_formula(text))


def text_of_csv(text: str) -> str:
    """Undo `csv_text`."""

    def plain(found: re.Match[str]) -> str:
        half, is_nul = divmod(len(found[1]), 2)
        return half * "\\" + ("\0" if is_nul else "x00")

    return restore_formula(WRITTEN_NUL.sub(plain, text))


def _csv_line(row: Sequence[Any]) -> str:
    """Return texts and numbers as a line of CSV (RFC 4180), quoted if a reader might take them for several fields."""
    fields = (csv_text(str(value).lower() if isinstance(value, bool) else str(value)) for value in row)
    return ",".join('"' + one.replace('"', '""') + '"' if not one or QUOTED.search(one) else one for one in fields)


def _json_line(release: Release, row: Sequence[Any]) -> str:
    return json.dumps(dict(zip(release.header, row, strict=True)), ensure_ascii=False)


def _write_lines(lines: Iterable[str], file: IO[bytes], end: str = "\n") -> None:
    for line in lines:
        file.write((line + end).encode())


WRITERS: dict[str, Writer] = {
    ".parquet": _write_parquet,
    ".csv": lambda release, file: _write_lines(map(_csv_line, (release.header, *release.rows())), file),
    ".jsonl": lambda release, file: _write_lines((_json_line(release, row) for row in release.rows()), file),
    ".txt": lambda release, file: _write_lines(release.lines(), file),
    ".arrow": _write_arrow,
    ".json": lambda release, file: _write_lines([release.to_json()], file, end=""),
}


def join_key(parts: Sequence[str]) -> str:
    """Return the one text of a key."""
    escaped = list(parts)
    for plain, written in KEY_ESCAPES:
        escaped = [part.replace(plain, written) for part in escaped]
    return SEPARATOR.join(escaped)


def split_key(text: str) -> tuple[str, ...]:
    """Undo `join_key`: return the parts of a key's text."""
    if BACKSLASH not in text:
        return tuple(text.split(SEPARATOR))
    # Between doubled backslashes, every single one is before an underscore.
    pieces = (part.split(BACKSLASH + BACKSLASH) for part in text.split(SEPARATOR))
    return tuple(BACKSLASH.join(one.replace(BACKSLASH + "_", SEPARATOR) for one in some) for some in pieces)
