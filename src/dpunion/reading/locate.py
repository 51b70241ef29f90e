"""Which files a name means, each with its format by its suffix, on this machine or in an object store.

A directory means all Parquet files below it, sorted by path. Folders named key=value are partitions, as Hive, Spark,
DuckDB, Polars and Arrow write them: the key is a column of the files below, and its value is text.

Delta Lake, Hudi and Iceberg tables have a log of the files and rows that are valid. Their Parquet files also contain
deleted and replaced rows, so reading them as plain files would bring back people who were erased. They are refused.

`refuse_overwriting` protects these files from outputs; `source_states` describes them without opening them.
"""

from __future__ import annotations

import datetime as dt
import glob
import os
import stat
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, NoReturn

from dpunion.addresses import DATABASE_FILES, Address, public_address
from dpunion.errors import BadSource, CannotWrite, DamagedSource, SourceNotFound
from dpunion.reading import storage
from dpunion.reading.columnar import ArrowPart, ParquetPart
from dpunion.reading.delimited import DelimitedPart
from dpunion.reading.jsonlines import JsonLinesPart
from dpunion.reading.parts import SourcePart, SourceRequest
from dpunion.reading.storage import Compression, DataFile, Format, ObjectStore, Partitions, Place, StoredFile

PathLike = str | os.PathLike[str]

PARTS: dict[Format, Callable[[DataFile], SourcePart]] = {
    Format.PARQUET: ParquetPart,
    Format.ARROW: ArrowPart,
    Format.CSV: DelimitedPart,
    Format.TSV: DelimitedPart,
    Format.JSON_LINES: JsonLinesPart,
}
FORMATS = dict.fromkeys((".parquet", ".pq"), Format.PARQUET)
FORMATS |= dict.fromkeys((".arrow", ".arrows", ".ipc", ".feather"), Format.ARROW)
FORMATS |= {".csv": Format.CSV, ".tsv": Format.TSV, ".jsonl": Format.JSON_LINES, ".ndjson": Format.JSON_LINES}
COMPRESSIONS = {".gz": Compression.GZIP, ".zst": Compression.ZSTD}
TEXT_FORMATS = (Format.CSV, Format.TSV, Format.JSON_LINES)
SUPPORTED = (
    "Supported are .parquet, .pq, .arrow, .arrows, .ipc, .feather, and .csv, .tsv, .jsonl, .ndjson,"
    " the latter four also with .gz or .zst: convert or rename the file."
)
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"

DELTA, HUDI, ICEBERG = "Delta Lake", "Hudi", "Iceberg"
TABLE_REMEDIES = {
    DELTA: (
        "Install deltalake (pip install 'dpunion[delta]') and name the folder of the table itself, or in Python pass"
        " DeltaTable(path); or pass spark.read.format('delta').load(path)."
    ),
    HUDI: "Pass the DataFrame spark.read.format('hudi').load(path) as the source, or export the valid rows.",
    ICEBERG: (
        "Install pyiceberg (pip install 'dpunion[iceberg]') and name the table as iceberg://catalog/space.table, or"
        " its newest metadata file, or in Python pass catalog.load_table(name); or pass spark.table(name)."
    ),
}
MARKS = {"_delta_log": DELTA, ".hoodie": HUDI, ".hoodie_partition_metadata": HUDI}
ICEBERG_FOLDER = "metadata"
ICEBERG_ENDS = (".metadata.json", ".metadata.json.gz", ".avro")


def parts_of(request: SourceRequest) -> list[SourcePart] | None:
    """Return the files that the names of a source mean."""
    return None if request.paths is None else [part for path in request.paths for part in path_parts(path)]


def path_parts(path: PathLike) -> list[SourcePart]:
    """Return the readers of the files that a path means."""
    return [PARTS[file.format](file) for file in locate([path])]


def locate(paths: Iterable[PathLike]) -> list[DataFile]:
    """Return the files that paths, directories and glob patterns mean, those of a directory or pattern sorted.

    Guarantees:
    - no file is left out silently: what cannot be accessed, or is not a file, is refused;
    - Parquet files of a table with a log are refused.
    """
    files = [file for given in paths for file in expand(given)]
    refuse_tables(file.path for file in files if file.format is Format.PARQUET and isinstance(file.path, Path))
    return files


def expand(given: PathLike) -> list[DataFile]:
    """Return the file at a path, the files below a directory, or the files that match a pattern."""
    text = os.fspath(given)
    if storage.is_stored(text):
        return stored_files(storage.open_store(text))
    path = Path(text).expanduser()
    found = storage.status(path) if text else None
    if found is not None:
        return directory_files(path) if stat.S_ISDIR(found.st_mode) else [data_file(path)]
    if glob.has_magic(text):
        matches = storage.match_pattern(path)
        if not matches:
            raise SourceNotFound(f"No file matches the pattern {text!r}.", "Check the folder and the pattern.")
        # subtle: what a pattern found may be named after data, in folders like user=somebody.
        names = [str(Path(storage.hide_values(match.parent), match.name)) for match in matches]
        return [data_file(match, f"file {name!r}") for match, name in zip(matches, names, strict=True)]
    raise SourceNotFound(
        f"There is no file {public_address(text)!r}.", f"Check the path; the current folder is {str(Path.cwd())!r}."
    )


def stored_files(store: ObjectStore) -> list[DataFile]:
    """Return the files that an address in an object store means, by the rules for paths of this machine."""
    root = store.root
    is_pattern = glob.has_magic(str(root)) and not store.exists(root)
    if not is_pattern and not store.exists(root):
        raise SourceNotFound(f"There is no file or folder {store.name(root)!r}.", "Check the address.")
    if not is_pattern and store.size_of(root) is not None:
        if store.list_below(root):
            storage.refuse_key(store.name(root))
        refuse_stored_tables(store, [root] if is_parquet(root) else [])
        return [data_file(StoredFile(store, root, store.size_of(root) or 0))]
    if not is_pattern:
        seen = [path.relative_to(root) for path, size in store.list_below(root).items() if size is not None]
        found = [path for path in seen if not any(map(storage.is_hidden, path.parts))]
        refuse_stored_tables(store, [root / path for path in found] or [root / "any"])
        places = [StoredFile(store, root / path, store.list_below(root)[root / path] or 0) for path in found]
        return parquet_files(store.name(root), found, places, lambda path: store.name(root / path))
    fixed = next(number for number, part in enumerate(root.parts) if glob.has_magic(part))
    base, wanted = PurePosixPath(*root.parts[:fixed]), root.parts[fixed:]
    below = store.list_below(base).items()
    fitting = {path: size for path, size in below if storage.fits_pattern(path.relative_to(base).parts, wanted)}
    matches = [path for path, size in fitting.items() if size is not None or not storage.matches_contents(wanted)]
    if not matches:
        raise SourceNotFound(f"No file matches the pattern {store.name(root)!r}.", "Check the folder and the pattern.")
    for path in matches:
        if fitting[path] is None:
            refuse_folder(f"file {store.name(path)!r}")
    refuse_stored_tables(store, [path for path in matches if is_parquet(path)])
    return [data_file(StoredFile(store, path, fitting[path] or 0)) for path in matches]


def data_file(path: Place, label: str = "") -> DataFile:
    """Return how to read the file at `path`, by its suffixes; label: what errors call the file."""
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
    return DataFile(where, format_, compression, size, path)


def is_parquet(path: PurePath) -> bool:
    """Return whether a file is Parquet by its suffix."""
    return FORMATS.get(path.suffix.lower()) is Format.PARQUET


def refuse_folder(where: str) -> NoReturn:
    """Refuse a folder where a file is expected."""
    raise BadSource(
        f"There is a folder instead of {where}.",
        "Name the files in it by a pattern, or the folder itself if it contains Parquet files.",
    )


def file_size(path: Place, where: str) -> int:
    """Return the number of bytes of a file; refuse anything else."""
    if not isinstance(path, Path):
        return path.size
    found = storage.status(path)
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
    """Return all Parquet files below a directory, with the partitions that their folders name.

    Guarantees:
    - no file is left out silently, except those that writers hide (_SUCCESS, _metadata, .crc);
    - a folder or file that cannot be accessed is refused, and so is a table with a log;
    - values of partitions do not show in errors.
    """
    paths = sorted(storage.walk(root), key=lambda path: path.relative_to(root).parts)
    refuse_tables(paths)
    found = [path.relative_to(root) for path in paths]
    return parquet_files(str(root), found, paths, lambda path: str(root / storage.hide_values(path.parent) / path.name))


def parquet_files(
    root: str, found: Sequence[PurePath], places: Sequence[Place], name_of: Callable[[Any], str]
) -> list[DataFile]:
    """Return the files below a folder with their partitions; refuse files that are not Parquet.

    found: their paths below the folder, which may be named after data; name_of: what errors call such a path.
    """
    files: list[DataFile] = []
    for path, place in zip(found, places, strict=True):
        name = name_of(path)
        if not is_parquet(path):
            raise BadSource(
                f"File {name!r} in directory {root!r} is not a Parquet file.",
                f"Move it elsewhere, or name the files to read by a pattern such as {root + '/**/*.parquet'!r}.",
            )
        label = f"file {name!r} (number {len(files) + 1} of its directory in order of path)"
        partitions = partitions_of(path.parent.parts, label)
        files.append(DataFile(label, Format.PARQUET, Compression.NONE, file_size(place, label), place, partitions))
    if not files:
        raise SourceNotFound(f"There is no Parquet file in directory {root!r}.", "Check the path.")
    for file in files:
        if [name for name, _ in file.partitions] != [name for name, _ in files[0].partitions]:
            raise BadSource(
                f"The folders of {file.where} name other partitions than those of the first file.",
                "Partition all files of the directory by the same columns in the same order.",
            )
    return files


def partitions_of(folders: tuple[str, ...], where: str) -> Partitions:
    """Return the percent-decoded keys and values of folders named key=value; Hive's mark for nulls is a null."""
    found: list[tuple[str, str | None]] = []
    for key, value in (folder.split("=", maxsplit=1) for folder in folders if "=" in folder):
        name, text = decode_percents(key), decode_percents(value)
        if name is None or text is None:
            raise DamagedSource(f"The folders of {where} are not percent-encoded UTF-8.", "Write the directory again.")
        found.append((name, None if value == NULL_PARTITION else text))
    if len({name for name, _ in found}) != len(found):
        raise DamagedSource(f"The folders of {where} name a partition twice.", "Write the directory again.")
    return tuple(found)


def decode_percents(text: str) -> str | None:
    """Undo percent-encoding; return None when the result is not UTF-8."""
    try:
        plain = urllib.parse.unquote(text, errors="strict")
        plain.encode()
    except UnicodeError:
        return None
    return plain


def refuse_tables(files: Iterable[Path]) -> None:
    """Refuse files of a table with a log: any folder above them may be the table, links followed or not."""
    seen: set[Path] = set()
    for folder in dict.fromkeys(folder for path in files for folder in folders_of(path)):
        for above in (folder, *folder.parents):
            if above in seen:
                break  # so are all folders above it
            seen.add(above)
            if (kind := table_kind(above)) is not None:
                refuse_table(storage.hide_values(above), kind)


def refuse_stored_tables(store: ObjectStore, files: Sequence[PurePosixPath]) -> None:
    """Refuse files of an object store that belong to a table with a log, in any folder above them."""
    for above in dict.fromkeys(folder for path in files for folder in path.parents if folder.name):
        if (kind := table_kind(above, store)) is not None:
            refuse_table(store.name(above), kind)


def refuse_table(folder: str, kind: str) -> NoReturn:
    """Refuse files that belong to a table."""
    raise BadSource(
        f"Folder {folder!r} is a table of {kind}: its log says which rows are valid, and its Parquet files also "
        "contain deleted rows.",
        TABLE_REMEDIES[kind],
    )


def folders_of(path: Path) -> Iterator[Path]:
    """Yield the folder in the name of a file, and the folder that the file is really in."""
    yield Path(os.path.abspath(path)).parent  # noqa: PTH100 - resolve() would follow links
    yield Path(os.path.realpath(path.parent))
    if os.path.islink(path):  # noqa: PTH114 - the method raises when the folder may not be entered
        yield Path(os.path.realpath(path)).parent


def table_kind(folder: Any, store: ObjectStore | None = None) -> str | None:
    """Return the kind of table whose root (for Hudi, also a partition) a folder is; refuse an unreadable one."""
    exists: Callable[[Any], bool] = os.path.lexists if store is None else store.exists
    listing: Callable[[Any], Iterable[Any]] = storage.list_folder if store is None else store.list_folder
    kind = next((kind for mark, kind in MARKS.items() if exists(folder / mark)), None)
    if kind is None and any(entry.name.endswith(ICEBERG_ENDS) for entry in listing(folder / ICEBERG_FOLDER)):
        return ICEBERG
    return kind


def refuse_overwriting(out: PathLike | Iterable[PathLike], read: Mapping[str, object]) -> None:
    """Refuse outputs that a run reads, or that its next run would read; read: {what errors call it: its names}.

    Links are followed. Names that are not paths of this machine are ignored.
    """
    for target in [Path(out)] if isinstance(out, (str, os.PathLike)) else map(Path, out):
        for what, names in read.items():
            if is_read(names, target):
                raise CannotWrite(
                    f"The output {target} is the {what} of this run, or the next run would read it as one.",
                    "Choose another name or folder for the output; overwriting does not help here.",
                )


def is_read(names: object, target: Path) -> bool:
    """Return whether one of the names, or a folder or pattern among them, is this file."""
    places = map(local_path, names if isinstance(names, (list, tuple)) else [names])
    return any(is_same_file(target, path) or _would_read(path, target) for path in places if path)


def local_path(name: object) -> Path | None:
    """Return the path or pattern on this machine that a name means, or None."""
    if not isinstance(name, (str, os.PathLike)) or (text := os.fspath(name)) in ("", "-"):
        return None
    address = Address.of(text)
    if not address.scheme:
        return Path(text).expanduser()
    if not address.is_known or address.scheme not in ("file", *DATABASE_FILES):
        return None
    return Path(urllib.parse.unquote(address.path) if address.scheme == "file" else address.path[1:])


def is_same_file(one: Path, other: Path) -> bool:
    """Return whether two paths are one file: by inode, or by name when there is no file yet."""
    try:
        return one.samefile(other)
    except (OSError, ValueError):
        return os.path.realpath(one) == os.path.realpath(other)


def _would_read(source: Path, target: Path) -> bool:
    """Return whether a folder or pattern reads the target, now or after it is written."""
    # The target under its own name in its real folder, and what it links to.
    places = {Path(os.path.realpath(target.parent), target.name), Path(os.path.realpath(target))}
    if source.is_dir():
        real = os.path.realpath(source)
        below = [place.relative_to(real) for place in places if place.is_relative_to(real)]
        is_read = any(not any(map(storage.is_hidden, place.parts)) for place in below)
        return is_read or _is_among(target, storage.walk(source))
    if not glob.has_magic(str(source)) or source.exists():
        return False
    parts = source.absolute().parts
    plain = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    root = Path(os.path.realpath(Path(*parts[:plain])))
    reached = [place.relative_to(root).parts for place in places if place.is_relative_to(root)]
    return any(storage.fits_pattern(place, parts[plain:]) for place in reached) or _is_among(target, _glob(source))


def _is_among(target: Path, files: Iterable[Path]) -> bool:
    return target.exists() and any(is_same_file(target, file) for file in files)


def _glob(pattern: Path) -> Iterator[Path]:
    return map(Path, glob.iglob(str(pattern), recursive=True))  # noqa: PTH207 - the pattern may be absolute


def source_states(source: Any) -> list[dict[str, Any]] | None:
    """Return number, size and last change of the files of each path, folder or pattern; None for other sources.

    Guarantees: no file is opened, and names found in a folder or by a pattern, which may be data, are not kept.
    """
    names = source if isinstance(source, (list, tuple)) else [source]
    if not all(isinstance(name, (str, os.PathLike)) for name in names):
        return None
    states = []
    for path in (Path(name).expanduser() for name in names):
        try:
            files = storage.walk(path) if path.is_dir() else [path] if path.exists() else _glob(path)
            found = [file.stat() for file in files]
        except OSError:
            return None
        if not found:
            return None
        changed = dt.datetime.fromtimestamp(max(one.st_mtime for one in found), dt.UTC)
        states.append({"files": len(found), "bytes": sum(one.st_size for one in found), "changed": changed.isoformat()})
    return states
