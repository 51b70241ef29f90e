"""From what the user calls a source to the files it means, each with its format by its suffix.

A directory means all Parquet files below it, in order of path. Folders named key=value are partitions, as Hive, Spark,
DuckDB, Polars and Arrow write them: the key is a column of the files below, with the value as text.
"""

from __future__ import annotations

import dataclasses
import enum
import glob
import os
import re
import urllib.parse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from dpunion.errors import BadSource, DamagedSource, SourceNotFound


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
"""Columns whose one value is told by the folders of a file: (name, value), in order of the path (sensitive)."""


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

    path: Path
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
        return pa.OSFile(str(self.path))

    def open(self) -> Any:
        """Open for reading it all."""
        return pa.OSFile(str(self.path))


def locate(paths: Iterable[str | os.PathLike[str]]) -> list[DataFile]:
    """Return the files that paths, directories and glob patterns mean, those of a directory or pattern sorted."""
    return [file for given in paths for file in expand(given)]


def expand(given: str | os.PathLike[str]) -> list[DataFile]:
    """Return the file at a path, the files below a directory, or the files that match a pattern."""
    text = os.fspath(given)
    path = Path(text).expanduser()
    if path.is_dir() and text:
        return directory_files(path)
    if path.exists() and text:
        return [data_file(path)]
    if glob.has_magic(text):
        found = sorted(Path(match) for match in glob.glob(str(path), recursive=True))  # noqa: PTH207 - the pattern may be absolute
        files = [match for match in found if match.is_file()]
        if not files:
            raise SourceNotFound(f"No file matches the pattern {text!r}.", "Check the folder and the pattern.")
        # subtle: what a pattern found may have been named after data, in folders like user=somebody.
        return [dataclasses.replace(data_file(match), label=f"file {shown(match)!r}") for match in files]
    # subtle: a mistyped connection string may hold a password.
    named = "such file" if re.search(r"password|:.*@", text) else f"file {text!r}"
    raise SourceNotFound(f"There is no {named}.", f"Check the path; the current folder is {str(Path.cwd())!r}.")


def data_file(path: Path) -> DataFile:
    """Return how to read the file at `path`, by its suffixes."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    last = suffixes[-1] if suffixes else ""
    compression = COMPRESSIONS.get(last, Compression.NONE)
    inner = last if compression is Compression.NONE else "".join(suffixes[-2:-1])
    format_ = FORMATS.get(inner)
    if not path.is_file():
        # subtle: files are opened more than once, and what was read from a pipe is gone.
        raise BadSource(f"{str(path)!r} is a pipe or device, no file.", "Pipe the data in, and name '-' as the source.")
    if format_ is None or (compression is not Compression.NONE and format_ not in TEXT_FORMATS):
        shown = "".join(suffixes[-2:]) if compression is not Compression.NONE else last
        raise BadSource(f"The suffix {shown!r} of file {str(path)!r} does not name a format.", SUPPORTED)
    return DataFile(path, format_, compression, path.stat().st_size)


def directory_files(root: Path) -> list[DataFile]:
    """Return all Parquet files below a directory, with the partitions that their folders tell.

    Guarantees:
    - no file is left out silently, but those that writers mean to be left out (_SUCCESS, _metadata, .crc);
    - values of partitions do not show in errors.
    """
    files: list[DataFile] = []
    for path in sorted(walk(root), key=lambda path: path.relative_to(root).parts):
        name = str(root / shown(path.relative_to(root)))
        if FORMATS.get(path.suffix.lower()) is not Format.PARQUET:
            raise BadSource(
                f"File {name!r} in directory {str(root)!r} is not a Parquet file.",
                f"Move it away, or name the files to read by a pattern such as {str(root / '**' / '*.parquet')!r}.",
            )
        label = f"file {name!r} (number {len(files) + 1} of its directory in order of path)"
        partitions = partitions_of(path.relative_to(root).parent.parts, label)
        files.append(DataFile(path, Format.PARQUET, Compression.NONE, path.stat().st_size, partitions, label))
    if not files:
        raise SourceNotFound(f"There is no Parquet file in directory {str(root)!r}.", "Check the path.")
    for file in files:
        if keys_of(file) != keys_of(files[0]):
            raise BadSource(
                f"The folders of {file.where} name other partitions than those of the first file.",
                "Partition all files of the directory by the same columns in the same order.",
            )
    return files


def walk(root: Path) -> Iterator[Path]:
    """Yield the files below a directory, links followed, without those that writers hide."""
    seen: set[str] = set()
    for folder, folders, names in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        # subtle: a link to a folder above would be followed for ever; rows read twice would not matter.
        folders[:] = [] if real in seen else [name for name in folders if not is_hidden(name)]
        yield from (Path(folder, name) for name in names if real not in seen and not is_hidden(name))
        seen.add(real)


def is_hidden(name: str) -> bool:
    """Say whether a file or folder is not data by the convention of Hadoop's writers."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def shown(path: Path) -> str:
    """Return a path with the values of partitions left out, for they are data."""
    pieces = ((part, *part.partition("=")) for part in path.parts[:-1])
    return str(Path(*(f"{key}=…" if mark else part for part, key, mark, _ in pieces), path.name))


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
