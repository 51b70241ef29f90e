"""From what the user calls a source to the files it means, each with its format by its suffix.

The files are on this machine or in an object store (`stores`).

A directory means all Parquet files below it, in order of path. Folders named key=value are partitions, as Hive, Spark,
DuckDB, Polars and Arrow write them: the key is a column of the files below, with the value as text.
"""

from __future__ import annotations

import enum
import glob
import os
import stat
import urllib.parse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, NoReturn, Protocol

import pyarrow as pa

from dpunion.addresses import public_address
from dpunion.errors import BadSource, DamagedSource, SourceNotFound
from dpunion.reading.folders import fits_pattern, goes_on, is_hidden, matching, shown, status, walk
from dpunion.reading.stores import ObjectStore, StoredFile, is_stored, open_store, refuse_key
from dpunion.reading.tables import refuse_stored_tables, refuse_tables


class Format(enum.Enum):
    """The file formats that can be read."""

    PARQUET = "parquet"
    ARROW = "arrow"
    CSV = "csv"
    TSV = "tsv"
    JSON_LINES = "jsonl"


class Compression(enum.Enum):
    """Compression around a text file; Parquet and Arrow compress inside."""

    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"


FORMATS = {
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".arrows": Format.ARROW,
    ".ipc": Format.ARROW,
    ".feather": Format.ARROW,
    ".csv": Format.CSV,
    ".tsv": Format.TSV,
    ".jsonl": Format.JSON_LINES,
    ".ndjson": Format.JSON_LINES,
}
COMPRESSIONS = {".gz": Compression.GZIP, ".zst": Compression.ZSTD}
TEXT_FORMATS = (Format.CSV, Format.TSV, Format.JSON_LINES)
SUPPORTED = (
    "Supported are .parquet, .pq, .arrow, .arrows, .ipc, .feather, and .csv, .tsv, .jsonl, .ndjson,"
    " the latter four also with .gz or .zst: convert or rename the file."
)
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"

Partitions = tuple[tuple[str, str | None], ...]
"""Columns whose one value the folders of a file say: (name, value), in order of the path (sensitive)."""


Place = Path | StoredFile
"""Where a file is."""


class InputFile(Protocol):
    """Bytes of a text file, wherever they come from."""

    @property
    def where(self) -> str:
        """The file as errors call it."""
        ...

    @property
    def format(self) -> Format:
        """What the bytes are once decompressed."""
        ...

    @property
    def compression(self) -> Compression:
        """How they are compressed."""
        ...

    @property
    def size(self) -> int:
        """The number of bytes, 0 where it is not known."""
        ...

    def peek(self) -> Any:
        """Open for looking at the beginning; it can be opened again."""
        ...

    def open(self) -> Any:
        """Open for reading it all, which may be possible only once."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class DataFile:
    """A file that exists, and how to read it.

    Guarantees:
    - the values of its partitions, which are data, show neither in the repr nor in `where`.
    """

    path: Place
    format: Format
    compression: Compression
    size: int
    partitions: Partitions = ()
    label: str = ""

    def __repr__(self) -> str:
        return f"DataFile({self.where})"

    @property
    def where(self) -> str:
        """The file as errors call it."""
        return self.label or f"file {str(self.path)!r}"

    def peek(self) -> Any:
        """Open for looking at the beginning."""
        return open_file(self.path)

    def open(self) -> Any:
        """Open for reading it all."""
        return open_file(self.path)


def open_file(place: Place) -> Any:
    """Open a file for reading, wherever it is: a pa.NativeFile one can jump about in."""
    return pa.OSFile(str(place)) if isinstance(place, Path) else place.open()


def locate(paths: Iterable[str | os.PathLike[str]]) -> list[DataFile]:
    """Return the files that paths, directories and glob patterns mean, those of a directory or pattern sorted.

    Guarantees:
    - no file is left out silently: what cannot be looked at, or is no file, is refused;
    - Parquet files of a table whose log says which rows count are refused, see `tables`.
    """
    files = [file for given in paths for file in expand(given)]
    refuse_tables(file.path for file in files if file.format is Format.PARQUET and isinstance(file.path, Path))
    return files


def expand(given: str | os.PathLike[str]) -> list[DataFile]:
    """Return the file at a path, the files below a directory, or the files that match a pattern."""
    text = os.fspath(given)
    if is_stored(text):
        return stored_files(open_store(text))
    path = Path(text).expanduser()
    found = status(path) if text else None
    if found is not None:
        return directory_files(path) if stat.S_ISDIR(found.st_mode) else [data_file(path)]
    if glob.has_magic(text):
        matches = matching(path)
        if not matches:
            raise SourceNotFound(f"No file matches the pattern {text!r}.", "Check the folder and the pattern.")
        # subtle: what a pattern found may have been named after data, in folders like user=somebody.
        return [data_file(match, f"file {str(Path(shown(match.parent), match.name))!r}") for match in matches]
    raise SourceNotFound(
        f"There is no file {public_address(text)!r}.", f"Check the path; the current folder is {str(Path.cwd())!r}."
    )


def stored_files(store: ObjectStore) -> list[DataFile]:
    """Return the files that an address in an object store means, as for paths of this machine."""
    root = store.root
    pattern = glob.has_magic(str(root)) and not store.exists(root)
    if not pattern and not store.exists(root):
        raise SourceNotFound(f"There is no file or folder {store.shown(root)!r}.", "Check the address.")
    if not pattern and store.size_of(root) is not None:
        if store.below(root):
            refuse_key(store.shown(root))
        refuse_stored_tables(store, [root] if is_parquet(root) else [])
        return [data_file(StoredFile(store, root, store.size_of(root) or 0))]
    if not pattern:
        seen = [path.relative_to(root) for path, size in store.below(root).items() if size is not None]
        found = [path for path in seen if not any(map(is_hidden, path.parts))]
        refuse_stored_tables(store, [root / path for path in found] or [root / "any"])
        places = [StoredFile(store, root / path, store.below(root)[root / path] or 0) for path in found]
        return parquet_files(store.shown(root), found, places, lambda path: store.shown(root / path))
    fixed = next(number for number, part in enumerate(root.parts) if glob.has_magic(part))
    base, wanted = PurePosixPath(*root.parts[:fixed]), root.parts[fixed:]
    fitting = {p: size for p, size in store.below(base).items() if fits_pattern(p.relative_to(base).parts, wanted)}
    matches = [path for path, size in fitting.items() if size is not None or not goes_on(wanted)]
    if not matches:
        raise SourceNotFound(f"No file matches the pattern {store.shown(root)!r}.", "Check the folder and the pattern.")
    for path in matches:
        if fitting[path] is None:
            refuse_folder(f"file {store.shown(path)!r}")
    refuse_stored_tables(store, [path for path in matches if is_parquet(path)])
    return [data_file(StoredFile(store, path, fitting[path] or 0)) for path in matches]


def data_file(path: Place, label: str = "") -> DataFile:
    """Return how to read the file at `path`, by its suffixes; label: the file as errors call it."""
    where = label or f"file {str(path)!r}"
    size = file_size(path, where)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    last = suffixes[-1] if suffixes else ""
    compression = COMPRESSIONS.get(last, Compression.NONE)
    inner = last if compression is Compression.NONE else "".join(suffixes[-2:-1])
    format_ = FORMATS.get(inner)
    if format_ is None or (compression is not Compression.NONE and format_ not in TEXT_FORMATS):
        named = "".join(suffixes[-2:]) if compression is not Compression.NONE else last
        raise BadSource(f"The suffix {named!r} of {where} is not a known format.", SUPPORTED)
    return DataFile(path, format_, compression, size, label=label)


def is_parquet(path: PurePath) -> bool:
    """Say whether a file is Parquet by its suffix."""
    return FORMATS.get(path.suffix.lower()) is Format.PARQUET


def refuse_folder(where: str) -> NoReturn:
    """Refuse a folder in the place of a file."""
    raise BadSource(
        f"There is a folder instead of {where}.",
        "Name the files in it by a pattern, or the folder itself if it contains Parquet files.",
    )


def file_size(path: Place, where: str) -> int:
    """Return the number of bytes of a file; refuse what is none."""
    if not isinstance(path, Path):
        return path.size
    found = status(path)
    if found is None:
        raise BadSource(f"There is a broken link instead of {where}.", "Fix the link, or remove it.")
    if stat.S_ISDIR(found.st_mode):
        refuse_folder(where)
    if not stat.S_ISREG(found.st_mode):
        # subtle: files are opened more than once, and what was read from a pipe is gone.
        raise BadSource(
            f"There is a pipe or device instead of {where}.", "Pipe the data in, and name '-' as the source."
        )
    return found.st_size


def directory_files(root: Path) -> list[DataFile]:
    """Return all Parquet files below a directory, with the partitions that their folders tell.

    Guarantees:
    - no file is left out silently, but those that writers mean to be left out (_SUCCESS, _metadata, .crc);
    - a folder or file that cannot be looked at is refused, and so is a table whose log says which rows count;
    - values of partitions do not show in errors.
    """
    paths = sorted(walk(root), key=lambda path: path.relative_to(root).parts)
    refuse_tables(paths)
    found = [path.relative_to(root) for path in paths]
    return parquet_files(str(root), found, paths, lambda path: str(root / shown(path.parent) / path.name))


def parquet_files(
    root: str, found: Sequence[PurePath], places: Sequence[Place], named: Callable[[Any], str]
) -> list[DataFile]:
    """Return the files that were found below a folder, with their partitions; refuse what is not Parquet.

    found: their paths below it, whose folders may be named after data; named: how errors call one of these.
    """
    files: list[DataFile] = []
    for path, place in zip(found, places, strict=True):
        name = named(path)
        if not is_parquet(path):
            raise BadSource(
                f"File {name!r} in directory {root!r} is not a Parquet file.",
                f"Move it elsewhere, or name the files to read by a pattern such as {root + '/**/*.parquet'!r}.",
            )
        label = f"file {name!r} (number {len(files) + 1} of its directory in order of path)"
        partitions = partitions_of(path.parent.parts, label)
        files.append(DataFile(place, Format.PARQUET, Compression.NONE, file_size(place, label), partitions, label))
    if not files:
        raise SourceNotFound(f"There is no Parquet file in directory {root!r}.", "Check the path.")
    for file in files:
        if keys_of(file) != keys_of(files[0]):
            raise BadSource(
                f"The folders of {file.where} name other partitions than those of the first file.",
                "Partition all files of the directory by the same columns in the same order.",
            )
    return files


def partitions_of(folders: tuple[str, ...], where: str) -> Partitions:
    """Return what folders named key=value say, percent-decoded; the mark for nulls is a null."""
    pairs = [folder.split("=", maxsplit=1) for folder in folders if "=" in folder]
    found: list[tuple[str, str | None]] = []
    for key, value in pairs:
        name, text = decoded(key), decoded(value)
        if name is None or text is None:
            raise DamagedSource(f"The folders of {where} are not percent-encoded UTF-8.", "Write the directory again.")
        found.append((name, None if value == NULL_PARTITION else text))
    if len({name for name, _ in found}) != len(found):
        raise DamagedSource(f"The folders of {where} name a partition twice.", "Write the directory again.")
    return tuple(found)


def decoded(text: str) -> str | None:
    """Undo percent-encoding, None when the result is not UTF-8."""
    try:
        plain = urllib.parse.unquote(text, errors="strict")
        plain.encode()
    except UnicodeError:
        return None
    return plain


def keys_of(file: DataFile) -> list[str]:
    """Return the names of a file's partitions."""
    return [name for name, _ in file.partitions]
