"""A known list: items that are public already, so that the budget finds new ones.

A known list is a file, a Release or an iterable of texts. For keys of several columns, the file has these columns, and
the iterable yields tuples. It is public: nothing about it is protected. But a misread list would waste budget, so files
are read as strictly as sources, and before anything is charged:

    .parquet, .arrow, .csv, .tsv, .jsonl, …   a column `item` or `ngram`; in Parquet and Arrow, also an only column
    .txt                                      one item per line, with tabs between the parts of a key
    .json                                     as dpunion writes it

Files that dpunion wrote are read back exactly. It escapes control characters in .txt, and in .csv it puts an apostrophe
before text that a spreadsheet would run. Both are undone only if dpunion would have written exactly this, so `'tis` and
`C:\\dir` from another program stay. (`'=x` and `''x` in .csv, and `\\n` in .txt, are always read as dpunion's.)
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpunion.addresses import public_address
from dpunion.buffers import string_buffers, text_array
from dpunion.errors import BadSource, DamagedSource, SourceNotFound, UnknownColumn, attempt
from dpunion.reading.blocks import read_blocks
from dpunion.reading.jsonlines import distinct_keys, find_line_end
from dpunion.reading.locate import COMPRESSIONS, FORMATS, PARTS, data_file, file_size
from dpunion.reading.parts import SourcePart, ValueKind, Wanted
from dpunion.reading.spelling import Column, Role
from dpunion.reading.storage import Compression, DataFile, Format, status
from dpunion.releases.formats import COLUMN, csv_text, is_utf8, join_key, text_of_csv, unescape_controls
from dpunion.text.words import Normalization, normalize_texts, words

NGRAM_COLUMN = "ngram"


@dataclass(frozen=True, slots=True)
class KnownItems:
    """The known items, sorted, and the SHA-256 of the file or of the sorted list.

    items: in the spelling of the release's items; `formats.join_key` makes one text of a key of several columns.
    """

    items: tuple[str, ...]
    sha256: str


def read_known(
    source: Any,
    columns: Sequence[str] = (COLUMN,),
    kind: ValueKind = ValueKind.ITEM,
    normalization: Normalization = Normalization.EXACT,
    what: str = "known list",
) -> KnownItems:
    """Read a known list.

    columns: those of the key. kind, normalization: how the release spells its items. what: what errors call the list.

    Guarantees: if some of the list cannot be read, or is not text, all of it is refused.
    """
    if isinstance(source, (str, os.PathLike)):
        path = Path(source).expanduser()
        if status(path) is None:
            raise SourceNotFound(f"There is no file {public_address(path)} with a {what}.", "Check the path.")
        texts = _texts(_read(path, columns, what), len(columns))
        if texts is None:
            raise DamagedSource(f"The {what} {path} contains something other than texts.", _needs(columns))
        digest = hashlib.sha256(attempt(path.read_bytes, f"{what} {str(path)!r}"))
    else:
        texts = _texts(_listed(source, columns), len(columns))
        if texts is None:
            each = "texts" if len(columns) == 1 else f"tuples of {len(columns)} texts"
            raise BadSource(
                f"A {what} must contain {each}.",
                f"Pass a file with {_named(columns)}, such a Release or an iterable.",
            )
        digest = hashlib.sha256("\0".join(texts).encode())
    return KnownItems(tuple(sorted(set(_spelled(texts, kind, normalization)) - {""})), digest.hexdigest())


def _named(columns: Sequence[str]) -> str:
    return f"{'a column' if len(columns) == 1 else 'columns'} {', '.join(map(repr, columns))}"


def _needs(columns: Sequence[str]) -> str:
    return f"It needs {_named(columns)} of texts, as dpunion writes it; or write one item on each line of a .txt file."


def _spelled(texts: Sequence[str], kind: ValueKind, normalization: Normalization) -> list[str]:
    """Return texts as the release would spell them; a text that is not one word stays, and no word equals it."""
    listed = text_array(texts)
    if kind is ValueKind.ITEM:
        return normalize_texts(*string_buffers(listed), normalization)
    found = words(listed, normalization).to_pylist()
    is_exact = normalization is Normalization.EXACT
    whole = normalize_texts(*string_buffers(listed), normalization if is_exact else Normalization.NFC)
    return [one[0] if len(one) == 1 else text for text, one in zip(whole, found, strict=True)]


def _listed(source: Any, columns: Sequence[str]) -> Iterable[Any] | None:
    """Return the texts or tuples of an object in memory; None when it is not a list of such columns."""
    if getattr(source, "stored", None) is not None:
        return None  # its items are in a folder
    items = getattr(source, "items", None)
    if isinstance(items, tuple):
        named = tuple(getattr(source, "columns", columns))
        return items if named == tuple(columns) or (len(named) == len(columns) == 1) else None
    return source if isinstance(source, Iterable) and not isinstance(source, Mapping) else None


def _texts(items: Iterable[Any] | None, width: int) -> list[str] | None:
    """Return the sorted texts of items; None when an item is not a text, or a tuple of `width` texts."""
    if items is None:
        return None
    keys = [(item,) if width == 1 else item for item in items]
    if not all(isinstance(key, tuple | list) and len(key) == width for key in keys):
        return None
    if not all(isinstance(part, str) and is_utf8(part) for key in keys for part in key):
        return None
    return sorted({key[0] if width == 1 else join_key(key) for key in keys} - {""})


def _read(path: Path, columns: Sequence[str], what: str) -> list[Any] | None:
    """Return the texts or tuples of a file; None when it has other columns."""
    where = f"{what} {str(path)!r}"
    *_, inner, last = ["", "", *(suffix.lower() for suffix in path.suffixes)]
    compression = COMPRESSIONS.get(last, Compression.NONE)
    suffix = last if compression is Compression.NONE else inner
    if suffix == ".json" and compression is Compression.NONE:
        file_size(path, where)
        return attempt(lambda: _json_items(path, columns), where)
    if suffix == ".txt":
        lines = DataFile(where, Format.TSV, compression, file_size(path, where), path)
        rows: Iterable[tuple[Any, ...]] = _text_rows(lines, len(columns))
    elif suffix in FORMATS:
        rows = _column_rows(data_file(path, where), columns)
    else:
        raise BadSource(
            f"The suffix {last!r} of {where} is not a known format.",
            f"A {what} may be {', '.join(FORMATS)}, .txt or .json: convert it, or write it with dpunion.",
        )
    return [row[0] if len(columns) == 1 else row for row in rows]


def _json_items(path: Path, columns: Sequence[str]) -> list[Any] | None:
    """Return the items of a release that was written as JSON."""
    values = json.loads(path.read_bytes().decode("utf-8-sig"), object_pairs_hook=distinct_keys)
    name = "ngrams" if len(columns) == 1 and "items" not in values else "items"
    same = len(columns) == 1 or values["columns"] == list(columns)
    if not same or not isinstance(values[name], list):
        return None
    return [text for text, _ in values[name]] if name == "ngrams" else values[name]


def _text_rows(file: DataFile, width: int) -> Iterator[tuple[str, ...]]:
    """Yield the items on the lines of a text file."""
    for block in read_blocks(file, find_line_end, None):
        for ended in block.data.decode().split("\n"):
            line = ended.removesuffix("\r")  # which other programs write
            if line:
                yield tuple(map(unescape_controls, line.split("\t") if width > 1 else [line]))


def _column_rows(file: DataFile, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the texts in the columns of a file, None for nulls; the first names that exist are used."""
    part, is_csv = PARTS[file.format](file), file.format is Format.CSV
    choices: list[tuple[str | int, ...]] = [tuple(columns)]
    if is_csv:
        choices.append(tuple(map(csv_text, columns)))
    if tuple(columns) == (COLUMN,):
        choices.append((NGRAM_COLUMN,))
        # subtle: not in CSV, because a list without a header would lose its first item.
        if file.format in (Format.PARQUET, Format.ARROW) and _has_one_column(part):
            choices.append((0,))
    for names in choices:
        rows = _rows_of(part, names)
        if rows is not None:
            return [tuple(text and text_of_csv(text) for text in row) for row in rows] if is_csv else rows
    raise UnknownColumn(
        f"There is no {' and '.join(map(repr, columns))} among the columns of {file.where}.", _needs(columns)
    )


def _has_one_column(part: SourcePart) -> bool:
    """Return whether there is no second column of any type."""
    try:
        part.check(Wanted(1, (), Role.KEY), [Column("1", Role.KEY)])
    except BadSource as error:
        return isinstance(error, UnknownColumn)
    return False


def _rows_of(part: SourcePart, names: tuple[str | int, ...]) -> list[tuple[Any, ...]] | None:
    """Return the texts in some columns, None when a column is missing."""
    wanted = Wanted(names[0], names[1:], Role.KEY)
    spelled = [Column(str(name), Role.KEY) for name in names]
    try:
        part.check(wanted, spelled)
        batches = list(part.batches(wanted, lambda _: None))
    except UnknownColumn:
        return None
    columns = (
        [column.text(array, part.where) for column, array in zip(spelled, arrays, strict=True)] for arrays in batches
    )
    return [row for arrays in columns for row in zip(*(array.to_pylist() for array in arrays), strict=True)]
