"""A known list: items that are public already, so that the budget finds new ones.

A known list is a file, a Release or an iterable of texts. For keys of several columns, the file has
these columns, and the iterable holds tuples. It is public: nothing about it is protected. But a list that is misread is
paid for, so files are read as strictly as sources are, and before anything is charged:

    .parquet, .arrow, .csv, .tsv, .jsonl, …   a column `item` or `ngram`, or of Parquet and Arrow the only column
    .txt                                      one item on each line, a key's parts with tabs between them
    .json                                     what dpunion writes

What dpunion wrote reads back exactly. It escapes control characters in .txt, and puts an apostrophe before what a
spreadsheet would run in .csv; both are undone only where dpunion would have written the very same, so that `'tis` and
`C:\\dir` of another program's list stay. (Of another program, `'=x` and `''x` in .csv, `\\n` in .txt are taken for
dpunion's: give such lists as Parquet or JSON Lines.)
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
from dpunion.reading import file_part
from dpunion.reading.blocks import read_blocks
from dpunion.reading.cleaning import ValueKind
from dpunion.reading.columns import SourcePart, Wanted
from dpunion.reading.folders import status
from dpunion.reading.jsonlines import distinct, find_line_end
from dpunion.reading.locate import COMPRESSIONS, FORMATS, Compression, DataFile, Format, data_file, file_size
from dpunion.reading.spelling import Column, Role
from dpunion.releases.formats import COLUMN, csv_text, is_utf8, join_key, text_of_csv, unescape_controls
from dpunion.text.words import Normalization, normalize_texts, words

NGRAM_COLUMN = "ngram"


@dataclass(frozen=True, slots=True)
class KnownItems:
    """The known items, sorted, and the SHA-256 of the file or of the sorted list as it was given.

    items: spelled as the items of the release are; keys of several columns as the one text of `formats.join_key`.
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
    """Read a known list; columns: those of the key; kind, normalization: how the release spells its items.

    what: how errors call it.

    Guarantees: a list of which something cannot be read, or is no text, is refused as a whole.
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
                f"A {what} must contain {each}.", f"Pass a file with {_named(columns)}, such a Release or an iterable."
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
    """Return what an object in memory lists, texts or tuples; None when it is no list of such columns."""
    if getattr(source, "stored", None) is not None:
        return None  # its items are in a folder
    items = getattr(source, "items", None)
    if isinstance(items, tuple):
        named = tuple(getattr(source, "columns", columns))
        return items if named == tuple(columns) or (len(named) == len(columns) == 1) else None
    return source if isinstance(source, Iterable) and not isinstance(source, Mapping) else None


def _texts(items: Iterable[Any] | None, width: int) -> list[str] | None:
    """Return the texts of items, sorted, which are texts or tuples of `width` texts; None when some are not."""
    if items is None:
        return None
    keys = [(item,) if width == 1 else item for item in items]
    if not all(isinstance(key, tuple | list) and len(key) == width for key in keys):
        return None
    if not all(isinstance(part, str) and is_utf8(part) for key in keys for part in key):
        return None
    return sorted({key[0] if width == 1 else join_key(key) for key in keys} - {""})


def _read(path: Path, columns: Sequence[str], what: str) -> list[Any] | None:
    """Return what a file lists, texts or tuples; None when they are of other columns."""
    where = f"{what} {str(path)!r}"
    *_, inner, last = ["", "", *(suffix.lower() for suffix in path.suffixes)]
    compression = COMPRESSIONS.get(last, Compression.NONE)
    suffix = last if compression is Compression.NONE else inner
    if suffix == ".json" and compression is Compression.NONE:
        file_size(path, where)
        return attempt(lambda: _json_items(path, columns), where)
    if suffix == ".txt":
        lines = DataFile(path, Format.TSV, compression, file_size(path, where), label=where)
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
    values = json.loads(path.read_bytes().decode("utf-8-sig"), object_pairs_hook=distinct)
    name = "ngrams" if len(columns) == 1 and "items" not in values else "items"
    same = len(columns) == 1 or values["columns"] == list(columns)
    if not same or not isinstance(values[name], list):
        return None
    return [text for text, _ in values[name]] if name == "ngrams" else values[name]


def _text_rows(file: DataFile, width: int) -> Iterator[tuple[str, ...]]:
    """Yield what stands on the lines of a text file."""
    for block in read_blocks(file, find_line_end, None):
        for ended in block.data.decode().split("\n"):
            line = ended.removesuffix("\r")  # dpunion writes none, other programs end lines so
            if line:
                yield tuple(map(unescape_controls, line.split("\t") if width > 1 else [line]))


def _column_rows(file: DataFile, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the texts in the columns of a file, None for nulls."""
    part = file_part(file)
    for names in _column_names(part, file.format, tuple(columns)):
        rows = _rows_of(part, names)
        if rows is not None:
            is_csv = file.format is Format.CSV
            return [tuple(text and text_of_csv(text) for text in row) for row in rows] if is_csv else rows
    raise UnknownColumn(
        f"There is no {' and '.join(map(repr, columns))} among the columns of {file.where}.", _needs(columns)
    )


def _column_names(part: SourcePart, format_: Format, columns: tuple[str, ...]) -> Iterator[tuple[str | int, ...]]:
    """Yield the columns to look for, the first that are there being meant."""
    yield columns
    if format_ is Format.CSV:
        yield tuple(map(csv_text, columns))
    if columns == (COLUMN,):
        yield (NGRAM_COLUMN,)
        # subtle: not of CSV, for a list without a header would lose its first item.
        if format_ in (Format.PARQUET, Format.ARROW) and _has_one_column(part):
            yield (0,)


def _has_one_column(part: SourcePart) -> bool:
    """Say whether there is no second column, of whatever type."""
    try:
        part.check(Wanted(1, (), Role.KEY), [Column("1", Role.KEY)])
    except BadSource as error:
        return isinstance(error, UnknownColumn)
    return False


def _rows_of(part: SourcePart, names: tuple[str | int, ...]) -> list[tuple[Any, ...]] | None:
    """Return the texts in some columns, None when they are not there."""
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
