"""Where files are: folders on this machine, and object stores through Arrow's file systems.

    s3://bucket/path                     the settings of AWS's tools: AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_REGION, and
                                         AWS_ENDPOINT_URL for other servers that speak S3
    gs://bucket/path                     GOOGLE_APPLICATION_CREDENTIALS, or what gcloud stored
    abfs://container@account.dfs.core.windows.net/path
                                         AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, or the default of Azure's tools

An address never contains a key or password, because addresses are shown and stored.

Nothing is left out silently. Python's own `glob` and `os.walk` skip folders without permission, and broken links.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import enum
import fnmatch
import glob
import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, NoReturn, TypeVar

import pyarrow as pa

from dpunion.addresses import STORES, Address, check_address
from dpunion.errors import BadSource, ForeignErrors, InternalError, system_reason
from dpunion.reading.parts import SourcePart

T = TypeVar("T")

ANY_DEPTH = "**"
AZURE_HOST = re.compile(r"([a-z0-9]+)\.(?:dfs|blob)\.[a-z0-9.]+")
CONNECT_SECONDS, REQUEST_SECONDS, ATTEMPTS = 10, 60, 3
NAMES = {"s3": "S3", "gs": "Google Cloud Storage", "abfs": "Azure storage", "abfss": "Azure storage"}
CREDENTIALS = {
    "s3": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; check that they may list and read it.",
    "gs": "Set GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth application-default login; check the permissions.",
    "abfs": "Set AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, or run az login; check the permissions.",
}
DENIED = ("access_denied", "status 401", "status 403", "forbidden", "invalid_access_key", "signature", "credential")
DENIED_TOO = ("access token", "unauthor", "authentic", "permission_denied", "expiredtoken", "invalid_client_token")
UNREACHABLE = ("network_connection", "curlcode", "resolve host", "could not connect", "timed out", "timeout")


class Format(enum.Enum):
    """The file formats that can be read."""

    PARQUET = "parquet"
    ARROW = "arrow"
    CSV = "csv"
    TSV = "tsv"
    JSON_LINES = "jsonl"


class Compression(enum.Enum):
    """Compression around a text file. Parquet and Arrow compress inside."""

    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"


Partitions = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, repr=False)
class InputFile:
    """The bytes of a file, wherever they come from.

    where: what errors call the file. format: that of the decompressed bytes. size: the number of bytes, 0 if unknown.

    Guarantees: only `where` shows in the repr.
    """

    where: str
    format: Format
    compression: Compression
    size: int

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.where})"

    def open(self) -> Any:
        """Open the file to read all of it, which may be possible only once."""
        raise InternalError("an abstract method was called")

    def peek(self) -> Any:
        """Open the file to look at its beginning; it can be opened again."""
        return self.open()


class FilePart(SourcePart):
    """A part of a source that is one file."""

    def __init__(self, file: InputFile) -> None:
        super().__init__(file.where, file.size)
        self.file = file


@dataclass(frozen=True, slots=True, repr=False)
class DataFile(InputFile):
    """A file on this machine or in an object store.

    partitions: columns whose only value comes from the names of the file's folders: (name, value), in path order.

    Guarantees: the values of its partitions, which are data, do not show in the repr.
    """

    path: Place
    partitions: Partitions = ()

    def open(self) -> Any:
        """Open the file: a pa.NativeFile that can seek."""
        return pa.OSFile(str(self.path)) if isinstance(self.path, Path) else self.path.open()


def status(path: Path) -> os.stat_result | None:
    """Return what a path leads to, links followed; None when there is nothing."""
    return look_at(path.stat, path)


def is_directory(found: os.stat_result | None) -> bool:
    """Return whether the thing found at a path is a folder."""
    return found is not None and stat.S_ISDIR(found.st_mode)


def list_folder(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder sorted by name; an empty list when there is no such folder."""

    def scan() -> list[os.DirEntry[str]]:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)

    return look_at(scan, folder) or []


def look_at(look: Callable[[], T], path: Path) -> T | None:
    """Return what `look` returns, None when the path does not exist; refuse a path that cannot be accessed."""

    def explain(error: OSError) -> BadSource:
        return BadSource(
            f"{hide_values(path)!r} cannot be accessed: {system_reason(error)}.",
            "Ask for permission to read it, or read a copy.",
        )

    # A ValueError is a NUL in the path. The names of folders may be data.
    with ForeignErrors(explain, OSError), contextlib.suppress(FileNotFoundError, NotADirectoryError, ValueError):
        return look()
    return None


def walk(root: Path) -> Iterator[Path]:
    """Yield the files below a folder, links followed, without those that writers hide.

    Guarantees: a folder that cannot be read is refused, not skipped.
    """
    seen: set[str] = set()
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        real = os.path.realpath(folder)
        # subtle: a link to a folder above would be followed for ever; rows read twice would not matter.
        if real in seen:
            continue
        seen.add(real)
        for entry in list_folder(folder):
            if is_hidden(entry.name):
                continue
            if is_folder(entry):
                waiting.append(folder / entry.name)
            else:
                yield folder / entry.name


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is not data by the convention of Hadoop's writers."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder or a link to one."""
    return bool(look_at(entry.is_dir, Path(entry.path)))


def match_pattern(pattern: Path) -> list[Path]:
    """Return everything that a pattern matches, sorted: *, ? and [...] within a name, ** for folders at any depth.

    Names that begin with a dot are matched only by patterns that begin with one.

    Guarantees:
    - a folder that the pattern passes through must be readable, and no broken link, or it is refused;
    - a match that is a folder is returned too, unless the pattern also matches everything in it.
    """
    start, parts = Path(pattern.anchor), pattern.parts[bool(pattern.anchor) :]
    found = sorted(set(_match_parts(start, parts, set())))
    return [path for path in found if not (matches_contents(parts) and is_directory(status(path)))]


def matches_contents(pattern: Sequence[str]) -> bool:
    """Return whether a pattern, part by part, matches everything in a folder that it matches."""
    return pattern[-1] == ANY_DEPTH or tuple(pattern[-2:]) == (ANY_DEPTH, "*")


def fits_pattern(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Return whether a pattern matches a path, both in parts; ** matches any number of folders."""
    if not pattern:
        return not parts
    if pattern[0] == ANY_DEPTH:
        plain = next((place for place, part in enumerate(parts) if part.startswith(".")), len(parts))
        return any(fits_pattern(parts[skipped:], pattern[1:]) for skipped in range(plain + 1))
    if not parts or (parts[0].startswith(".") and not pattern[0].startswith(".")):
        return False
    return fnmatch.fnmatchcase(parts[0], pattern[0]) and fits_pattern(parts[1:], pattern[1:])


def _match_parts(folder: Path, parts: Sequence[str], seen: set[str]) -> Iterator[Path]:
    """Yield what matches the parts of a pattern in a folder; seen: folders that ** has already searched."""
    first, rest = parts[0], parts[1:]
    if first == ANY_DEPTH:
        real = os.path.realpath(folder)
        if real in seen:
            return
        seen.add(real)
        if rest:
            yield from _match_parts(folder, rest, set())
        for entry in list_folder(folder):
            if entry.name.startswith("."):
                continue
            if can_enter(entry):
                yield from _match_parts(folder / entry.name, parts, seen)
            elif not rest:
                yield folder / entry.name
    elif not glob.has_magic(first):
        if rest:
            yield from _match_parts(folder / first, rest, set())
        elif look_at((folder / first).lstat, folder / first) is not None:
            yield folder / first
    else:
        fits = re.compile(fnmatch.translate(first)).match
        for entry in list_folder(folder):
            if not fits(entry.name) or (entry.name.startswith(".") and not first.startswith(".")):
                continue
            if not rest:
                yield folder / entry.name
            elif can_enter(entry):
                yield from _match_parts(folder / entry.name, rest, set())


def can_enter(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder; refuse a broken link, which may have been one."""
    if is_folder(entry):
        return True
    path = Path(entry.path)
    if entry.is_symlink() and status(path) is None:
        raise BadSource(
            f"{hide_values(path)!r}, which the pattern passes through, is a broken link.", "Fix the link, or remove it."
        )
    return False


def hide_values(path: PurePath) -> str:
    """Return a path without the values of its partitions, which are data: user=…"""
    pieces = ((part, *part.partition("=")) for part in path.parts)
    return str(type(path)(*(f"{key}=…" if mark else part for part, key, mark, _ in pieces)))


def is_stored(name: object) -> bool:
    """Return whether a source is an address in an object store."""
    return isinstance(name, str) and name.startswith(tuple(f"{scheme}://" for scheme in STORES))


@dataclass(slots=True, repr=False)
class ObjectStore:
    """An object store, and a cache of its listings (sensitive: names of folders may be data).

    root: bucket and path of the address. address: its beginning, before the path in the bucket.

    Guarantees:
    - what cannot be accessed is refused, and never treated as absent;
    - a key that is not a plain path, or is also a folder, is refused: two keys never become one path;
    - errors name the store, the address and a remedy, and repeat nothing that the store answered.
    """

    scheme: str
    files: Any
    root: PurePosixPath
    address: str
    listings: dict[PurePosixPath, dict[PurePosixPath, int | None]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"ObjectStore({self.scheme})"

    def name(self, path: PurePosixPath) -> str:
        """Return a path as an address, without the values of partitions."""
        rest = PurePosixPath(*path.parts[1:])
        return self.address if not rest.parts else f"{self.address}/{hide_values(rest)}"

    def size_of(self, path: PurePosixPath) -> int | None:
        """Return the bytes of a file, None for a folder; raise KeyError when there is nothing."""
        if (known := self._find_listing(path)) is not None:
            return known[path]
        info = self._ask(lambda: self.files.get_file_info(str(path)))
        if not (info.is_file or info.type.name == "Directory"):
            raise KeyError(path)
        return int(info.size) if info.is_file else None

    def exists(self, path: PurePosixPath) -> bool:
        with contextlib.suppress(KeyError):
            self.size_of(path)
            return True
        return False

    def list_below(self, folder: PurePosixPath) -> Mapping[PurePosixPath, int | None]:
        """Return everything below a folder, at any depth, with the bytes of files and None for folders."""
        from pyarrow.fs import FileSelector

        if folder not in self.listings:
            selector = FileSelector(str(folder), recursive=True, allow_not_found=True)
            found = self._ask(lambda: self.files.get_file_info(selector))
            files = {one.path for one in found if one.is_file}
            folders = {one.path for one in found if not one.is_file}
            if files & folders or not all(map(is_normal_key, files)):
                refuse_key(self.name(folder))
            sizes = {PurePosixPath(one.path): int(one.size) if one.is_file else None for one in found}
            self.listings[folder] = dict(sorted(sizes.items(), key=lambda pair: pair[0].parts))
        return self.listings[folder]

    def list_folder(self, folder: PurePosixPath) -> Iterator[PurePosixPath]:
        """Yield what is in a folder itself."""
        known = self._find_listing(folder / "any")
        return (path for path in (self.list_below(folder) if known is None else known) if path.parent == folder)

    def _find_listing(self, path: PurePosixPath) -> Mapping[PurePosixPath, int | None] | None:
        """Return the cached listing of a folder above a path, so that the store is not asked twice."""
        return next((seen for above, seen in self.listings.items() if above in path.parents), None)

    def _ask(self, call: Callable[[], T]) -> T:
        with ForeignErrors(lambda failure: explain_store(failure, self.scheme, self.address)):
            return call()


def is_normal_key(key: str) -> bool:
    """Return whether a key is a path in its only spelling, without empty parts, '.' and '..'."""
    return posixpath.normpath(key) == key


def refuse_key(place: str) -> NoReturn:
    """Refuse keys that are not paths, or that several paths could mean."""
    raise BadSource(
        f"A key in {place!r} has an empty part, '.' or '..' in it, or is the name of a file and of a folder.",
        "Rename or remove the object, or name a folder or pattern that does not reach it.",
    )


@dataclass(frozen=True, slots=True, repr=False)
class StoredFile:
    """A file in an object store (sensitive: its folders may be named after data)."""

    store: ObjectStore
    path: PurePosixPath
    size: int

    @property
    def suffixes(self) -> list[str]:
        return self.path.suffixes

    def open(self) -> Any:
        return self.store.files.open_input_file(str(self.path))

    def __str__(self) -> str:
        return self.store.name(self.path)


Place = Path | StoredFile
"""The location of a file."""


def open_store(address: str) -> ObjectStore:
    """Return the store of an address. This asks the store only for the region of the bucket.

    Guarantees: an address that contains a key, a password or settings is refused and not repeated.
    """
    check_address(address)
    found = Address.of(address)
    scheme, beginning = found.scheme, f"{found.scheme}:{found.place}"
    container, _, host = (found.place or "").removeprefix("//").rpartition("@")
    path = found.path.removeprefix("/")
    if path.rstrip("/") and not is_normal_key(path.removesuffix("/")):
        refuse_key(beginning)
    with ForeignErrors(lambda failure: explain_store(failure, scheme, beginning)):
        files = open_file_system(scheme, host)
    return ObjectStore(scheme, files, PurePosixPath(container or host, path), beginning)


def open_file_system(scheme: str, host: str) -> Any:
    """Return Arrow's file system with timeouts; keys and servers come from the environment."""
    from pyarrow import fs

    if scheme == "s3":
        server = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        return fs.S3FileSystem(
            region=region or (fs.resolve_s3_region(host) if server is None else None),
            endpoint_override=server,
            connect_timeout=CONNECT_SECONDS,
            request_timeout=REQUEST_SECONDS,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        )
    if scheme == "gs":
        return fs.GcsFileSystem(retry_time_limit=dt.timedelta(seconds=CONNECT_SECONDS))
    account = AZURE_HOST.fullmatch(host)
    if account is None:
        raise BadSource(
            "The host of the abfs address is not an account.", "Write container@account.dfs.core.windows.net."
        )
    key, token = os.environ.get("AZURE_STORAGE_KEY"), os.environ.get("AZURE_STORAGE_SAS_TOKEN")
    return fs.AzureFileSystem(account_name=account[1], account_key=key, sas_token=None if key else token)


def explain_store(failure: Exception, scheme: str, address: str) -> BadSource:
    """Return our error for a store's failure, whose text is searched for known phrases only."""
    text = str(failure).lower()
    store = NAMES[scheme]
    if isinstance(failure, ImportError | AttributeError):
        return BadSource(f"This build of pyarrow cannot read from {store}.", "Install another build of pyarrow.")
    if any(phrase in text for phrase in UNREACHABLE):
        return BadSource(
            f"{store} cannot be reached for {address!r}.",
            "Check the network, the name of the bucket, and AWS_ENDPOINT_URL for a server of your own."
            if scheme == "s3"
            else "Check the network and the address.",
        )
    if any(phrase in text for phrase in (*DENIED, *DENIED_TOO)):
        return BadSource(f"{store} denied access to {address!r}.", CREDENTIALS[scheme[:4]])
    return BadSource(
        f"{store} did not answer as expected for {address!r} ({type(failure).__name__}).",
        f"Check the address. {CREDENTIALS[scheme[:4]]}",
    )
