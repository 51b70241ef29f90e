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

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dpunion.addresses import public_address
from dpunion.buffers import array_of, large_texts, pc, read_only, string_buffers, text_array
from dpunion.errors import BadSource, DamagedSource, SourceNotFound, UnknownColumn, attempt
from dpunion.kernels.interning import hash_strings
from dpunion.kernels.words import count_byte
from dpunion.reading.blocks import read_blocks
from dpunion.reading.jsonlines import distinct_keys, find_line_end
from dpunion.reading.locate import COMPRESSIONS, FORMATS, PARTS, data_file, file_size
from dpunion.reading.parts import SourcePart, ValueKind, Wanted
from dpunion.reading.spelling import Column, Role
from dpunion.reading.storage import Compression, DataFile, Format, status
from dpunion.releases.formats import COLUMN, LISTED, SINCE, csv_text, is_utf8, join_key, text_of_csv, unescape_controls
from dpunion.text.words import Normalization, normalize_array, words

NGRAM_COLUMN = "ngram"
_EMPTY = pa.nulls(0, pa.large_string())


@dataclass(frozen=True, slots=True)
class KnownItems:
    """The items of a public list, each once, and the SHA-256 of the file or of the sorted list.

    texts: large_string[items], in the spelling of the release's items; `formats.join_key` makes one text of a key of
    several columns. week: of this release, if the list is what a schedule released before. since: in which week of the
    schedule each of these items was released first. listed: those that came out as candidates.

    Guarantees: it is public, and nothing of it comes from people's rows.
    """

    texts: pa.Array
    sha256: str
    week: int | None = None
    since: Mapping[str, int] = field(default_factory=dict)
    listed: frozenset[str] = frozenset()

    def weeks_of(self, texts: Sequence[str]) -> tuple[int, ...] | None:
        """Return since which week each text is released; None without a schedule."""
        return None if self.week is None else tuple(self.since.get(text, self.week) for text in texts)

    @property
    def items(self) -> tuple[str, ...]:
        """Return the items as sorted texts."""
        return tuple(sorted(self.texts.to_pylist()))

    def without(self, others: pa.Array) -> KnownItems:
        """Return the list without the items that another list has too."""
        return replace(self, texts=self.texts.filter(pc.invert(pc.is_in(self.texts, value_set=others))))


def read_known(
    source: Any,
    columns: Sequence[str] = (COLUMN,),
    kind: ValueKind = ValueKind.ITEM,
    normalization: Normalization = Normalization.EXACT,
    what: str = "known list",
    *,
    words_only: bool = False,
) -> KnownItems:
    """Read a public list.

    columns: those of the key. kind, normalization: how the release spells its items. what: what errors call the list.
    words_only: for texts, drop what is not one word, as no item of a release equals it.

    Guarantees: if some of the list cannot be read, or is not text, all of it is refused.
    """
    if isinstance(source, (str, os.PathLike)):
        path = Path(source).expanduser()
        if status(path) is None:
            remedy = "Name a file with one word or item on each line, for example words.txt."
            raise SourceNotFound(f"There is no file {public_address(path)} with a {what}.", remedy)
        texts = _read_rows(path, columns, what)
        if not isinstance(texts, pa.Array):
            found = _texts(texts, len(columns))
            texts = None if found is None else large_texts(text_array(found))
        if texts is None or texts.null_count:
            raise DamagedSource(f"The {what} {path} contains something other than texts.", _needs(columns))
        digest = hashlib.sha256(attempt(path.read_bytes, f"{what} {str(path)!r}"))
    else:
        listed = _texts(_listed(source, columns), len(columns))
        if listed is None:
            each = "texts" if len(columns) == 1 else f"tuples of {len(columns)} texts"
            raise BadSource(
                f"A {what} must contain {each}.", f"Pass a file or a Release with {_named(columns)}, or an iterable."
            )
        texts = large_texts(text_array(listed))
        digest = hashlib.sha256("\0".join(listed).encode())
    return KnownItems(_each_once(_spell(texts, kind, normalization, words_only=words_only)), digest.hexdigest())


def _each_once(texts: pa.Array) -> pa.Array:
    """Return the texts that are not empty, each once. Most lists are so already; sorted hashes show it quickly."""
    offsets, data = string_buffers(texts)
    hashes = np.sort(hash_strings(read_only(offsets), read_only(data)))
    if np.all(offsets[1:] > offsets[:-1]) and np.all(hashes[1:] > hashes[:-1]):
        return texts
    return texts.filter(pc.not_equal(texts, "")).unique()


def join_lists(lists: Sequence[KnownItems]) -> KnownItems:
    """Return several lists as one; its SHA-256 is that of their SHA-256s, one on each line."""
    if len(lists) == 1:
        return lists[0]
    digest = hashlib.sha256("\n".join(one.sha256 for one in lists).encode())
    return KnownItems(pa.concat_arrays([one.texts for one in lists]).unique(), digest.hexdigest())


def read_vocabulary(
    path: Path | None,
    sha256: str,
    week: int,
    columns: Sequence[str] = (COLUMN,),
    kind: ValueKind = ValueKind.ITEM,
    normalization: Normalization = Normalization.EXACT,
) -> KnownItems:
    """Read what a schedule has released before `week`, from a file with this SHA-256; without a file, nothing.

    Guarantees: a file with another hash, other columns or other weeks is refused.
    """
    if path is None:
        return KnownItems(_EMPTY, hashlib.sha256().hexdigest(), week)
    what = "list of the previous release"
    rows: list[Any] = list(_read_rows(path, (*columns, SINCE), what) or ())
    listed: set[Any] = set()
    if LISTED not in columns:
        with contextlib.suppress(UnknownColumn):  # which only releases with candidates have
            flags = _read_rows(path, (*columns, LISTED), what) or ()
            listed = {row[:-1] for row in flags if str(row[-1]).lower() == "true"}
    texts = _texts([row[:-1] if len(columns) > 1 else row[0] for row in rows], len(columns))
    weeks = [str(row[-1]) for row in rows]
    good = texts is not None and len(texts) == len(rows)
    good = good and all(one.isdecimal() and 1 <= int(one) <= week for one in weeks)
    if not good or hashlib.sha256(attempt(path.read_bytes, f"{what} {str(path)!r}")).hexdigest() != sha256:
        raise DamagedSource(
            f"The {what} {path} is not as dpunion wrote it.", "Restore it from a backup; nothing was charged."
        )
    keys = [row[0] if len(columns) == 1 else join_key(row[:-1]) for row in rows]
    spelled = _spell(large_texts(text_array(keys)), kind, normalization, words_only=False).to_pylist()
    found = dict(sorted(zip(spelled, map(int, weeks), strict=True)))
    doubtful = frozenset(text for text, row in zip(spelled, rows, strict=True) if row[:-1] in listed)
    return KnownItems(large_texts(text_array(list(found))), sha256, week, found, doubtful)


def _named(columns: Sequence[str]) -> str:
    return f"{'a column' if len(columns) == 1 else 'columns'} {', '.join(map(repr, columns))}"


def _needs(columns: Sequence[str]) -> str:
    return f"It needs {_named(columns)} of texts, as dpunion writes it; or write one item on each line of a .txt file."


def _spell(texts: pa.Array, kind: ValueKind, normalization: Normalization, *, words_only: bool) -> pa.Array:
    """Return texts as the release would spell them; a text that is not one word stays unless words_only."""
    if kind is ValueKind.ITEM:
        return normalize_array(texts, normalization)
    found = words(texts, normalization)
    one_word = pc.equal(found.value_lengths(), 1)
    spelled = found.filter(one_word).flatten()
    if words_only:
        return spelled
    is_exact = normalization is Normalization.EXACT
    return pc.replace_with_mask(
        normalize_array(texts, normalization if is_exact else Normalization.NFC), one_word, spelled
    )


def _listed(source: Any, columns: Sequence[str]) -> Iterable[Any] | None:
    """Return the texts or tuples of an object in memory; None when it is not a list of such columns."""
    if getattr(source, "stored", None) is not None or getattr(source, "ndim", 1) != 1:
        return None  # its items are in a folder, or it is a pandas DataFrame, which yields the names of its columns
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


def _read_rows(path: Path, columns: Sequence[str], what: str) -> pa.Array | Iterable[Any] | None:
    """Return the texts or tuples of a file, or its only column as an array; None when it has other columns."""
    where = f"{what} {str(path)!r}"
    *_, inner, last = ["", "", *(suffix.lower() for suffix in path.suffixes)]
    compression = COMPRESSIONS.get(last, Compression.NONE)
    suffix = last if compression is Compression.NONE else inner
    if suffix == ".json" and compression is Compression.NONE:
        file_size(path, where)
        return attempt(lambda: _json_items(path, columns), where)
    if suffix == ".txt":
        lines = DataFile(where, Format.TSV, compression, file_size(path, where), path)
        return pa.concat_arrays([_EMPTY, *_line_texts(lines)]) if len(columns) == 1 else _text_rows(lines)
    if suffix in FORMATS:
        return _column_rows(data_file(path, where), columns)
    raise BadSource(
        f"The suffix {last!r} of {where} is not a known format.",
        f"A {what} may be {', '.join(FORMATS)}, .txt or .json: convert it, or write it with dpunion.",
    )


def _json_items(path: Path, columns: Sequence[str]) -> list[Any] | None:
    """Return the items of a release that was written as JSON."""
    values = json.loads(path.read_bytes().decode("utf-8-sig"), object_pairs_hook=distinct_keys)
    if (name := columns[-1]) in (SINCE, LISTED) and name not in values["columns"]:
        items = [item if isinstance(item, list) else [item] for item in values["items"]]
        if values["columns"] != list(columns[:-1]):
            raise UnknownColumn(f"The columns of {path} are not those of the key.", _needs(columns[:-1]))
        numbers = values["numbers"].get(name, [None] * len(items))
        return [(*item, one) for item, one in zip(items, numbers, strict=True)]
    name = "ngrams" if len(columns) == 1 and "items" not in values else "items"
    same = len(columns) == 1 or values["columns"] == list(columns)
    if not same or not isinstance(values[name], list):
        return None
    return [text for text, _ in values[name]] if name == "ngrams" else values[name]


def _line_texts(file: DataFile) -> Iterator[pa.Array]:
    """Yield the items on the lines of a text file, large_string for each block of it; their bytes, less line ends."""
    for block in read_blocks(file, find_line_end, None):
        data = (block.data.replace(b"\r\n", b"\n") if b"\r" in block.data else block.data).removesuffix(b"\r")
        if b"\\" in data:
            yield large_texts(text_array(list(map(unescape_controls, data.decode().split("\n")))))
            continue
        ends = np.flatnonzero(np.frombuffer(data if data.endswith(b"\n") else data + b"\n", np.uint8) == ord("\n"))
        yield array_of(np.append(0, ends - np.arange(len(ends))), data.translate(None, b"\n"), pa.large_string())


def _text_rows(file: DataFile) -> Iterator[tuple[str, ...]]:
    """Yield the keys on the lines of a text file."""
    for block in read_blocks(file, find_line_end, None):
        for ended in block.data.decode().split("\n"):
            if line := ended.removesuffix("\r"):  # which other programs write
                yield tuple(map(unescape_controls, line.split("\t")))


def _column_rows(file: DataFile, columns: Sequence[str]) -> pa.Array | list[tuple[Any, ...]]:
    """Return the texts in the columns of a file, None for nulls; the first names that exist are used.

    One column is an array, several are tuples.
    """
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
        found = _texts_of(part, names)
        if found is not None:
            texts = [_undo_csv(one) for one in found] if is_csv else found
            return texts[0] if len(texts) == 1 else list(zip(*(one.to_pylist() for one in texts), strict=True))
    raise UnknownColumn(
        f"There is no {' and '.join(map(repr, columns))} among the columns of {file.where}.", _needs(columns)
    )


def _undo_csv(texts: pa.Array) -> pa.Array:
    """Return texts that were escaped for CSV as they were; most columns have none."""
    if texts.null_count or not any(count_byte(read_only(string_buffers(texts)[1]), ord(one)) for one in "'\\"):
        return texts  # the caller refuses nulls
    return large_texts(text_array([text_of_csv(text) for text in texts.to_pylist()]))


def _has_one_column(part: SourcePart) -> bool:
    """Return whether there is no second column of any type."""
    try:
        part.check(Wanted(1, (), Role.KEY), [Column("1", Role.KEY)])
    except BadSource as error:
        return isinstance(error, UnknownColumn)
    return False


def _texts_of(part: SourcePart, names: tuple[str | int, ...]) -> list[pa.Array] | None:
    """Return the texts of some columns, large_string each; None when a column is missing."""
    wanted = Wanted(names[0], names[1:], Role.KEY)
    spelled = [Column(str(name), Role.KEY) for name in names]
    try:
        part.check(wanted, spelled)
        batches = list(part.batches(wanted, lambda _: None))
    except UnknownColumn:
        return None
    found: list[pa.Array] = []
    for at, column in enumerate(spelled):
        texts = [large_texts(column.text(arrays[at], part.where)) for arrays in batches]
        found.append(pa.concat_arrays(texts or [_EMPTY]))
    return found
