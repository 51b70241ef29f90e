"""Object stores as places of files, through Arrow's own file systems: s3://, gs:// and abfs://.

    s3://bucket/path                     settings as AWS's tools have them: AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_REGION,
                                         AWS_ENDPOINT_URL for other servers that speak S3
    gs://bucket/path                     GOOGLE_APPLICATION_CREDENTIALS, or what gcloud stored
    abfs://container@account.dfs.core.windows.net/path
                                         AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, or the default of Azure's tools

A key or password never stands in an address, for addresses are shown and stored.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, NoReturn, TypeVar

from dpunion.addresses import STORES, Address, check_address
from dpunion.errors import BadSource, ForeignErrors
from dpunion.reading.folders import shown

T = TypeVar("T")

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


def is_stored(name: object) -> bool:
    """Say whether a source is an address in an object store."""
    return isinstance(name, str) and name.startswith(tuple(f"{scheme}://" for scheme in STORES))


@dataclass(slots=True, repr=False)
class ObjectStore:
    """An object store, and what was looked at in it (sensitive: names of folders may be data).

    root: bucket and path of the address. address: how it begins, before the path in the bucket. below_seen: what was
    listed of folders.

    Guarantees:
    - what cannot be looked at is refused, never taken for absent;
    - a key that is no plain path, or is a folder as well, is refused: two keys never become one path;
    - errors name the store, the address and a remedy; nothing that the store answered.
    """

    scheme: str
    files: Any
    root: PurePosixPath
    address: str
    below_seen: dict[PurePosixPath, dict[PurePosixPath, int | None]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"ObjectStore({self.scheme})"

    def shown(self, path: PurePosixPath) -> str:
        """Return a path as an address, with the values of partitions left out."""
        rest = PurePosixPath(*path.parts[1:])
        return self.address if not rest.parts else f"{self.address}/{shown(rest)}"

    def size_of(self, path: PurePosixPath) -> int | None:
        """Return the bytes of a file, None for a folder; raise KeyError when there is nothing."""
        known = self._known(path)
        if known is not None:
            return known[path]
        info = self._ask(lambda: self.files.get_file_info(str(path)))
        if not (info.is_file or info.type.name == "Directory"):
            raise KeyError(path)
        return int(info.size) if info.is_file else None

    def exists(self, path: PurePosixPath) -> bool:
        """Say whether there is a file or folder."""
        with contextlib.suppress(KeyError):
            self.size_of(path)
            return True
        return False

    def below(self, folder: PurePosixPath) -> Mapping[PurePosixPath, int | None]:
        """Return all that is below a folder, at any depth, with the bytes of files and None for folders."""
        from pyarrow.fs import FileSelector

        if folder not in self.below_seen:
            chosen = FileSelector(str(folder), recursive=True, allow_not_found=True)
            found = self._ask(lambda: self.files.get_file_info(chosen))
            files = {one.path for one in found if one.is_file}
            folders = {one.path for one in found if not one.is_file}
            if files & folders or not all(map(is_normal_key, files)):
                refuse_key(self.shown(folder))
            sizes = {PurePosixPath(one.path): int(one.size) if one.is_file else None for one in found}
            self.below_seen[folder] = dict(sorted(sizes.items(), key=lambda pair: pair[0].parts))
        return self.below_seen[folder]

    def listed(self, folder: PurePosixPath) -> Iterator[PurePosixPath]:
        """Yield what is in a folder itself."""
        known = self._known(folder / "any")
        return (path for path in (self.below(folder) if known is None else known) if path.parent == folder)

    def open(self, path: PurePosixPath) -> Any:
        """Open a file for reading."""
        return self.files.open_input_file(str(path))

    def _known(self, path: PurePosixPath) -> Mapping[PurePosixPath, int | None] | None:
        """Return what was listed of a folder above a path, so that nothing is asked twice."""
        return next((seen for above, seen in self.below_seen.items() if above in path.parents), None)

    def _ask(self, call: Callable[[], T]) -> T:
        with ForeignErrors(lambda failure: explain_store(failure, self.scheme, self.address)):
            return call()


def is_normal_key(key: str) -> bool:
    """Say whether a key is a path in its one spelling, without empty parts, '.' and '..'."""
    return posixpath.normpath(key) == key


def refuse_key(place: str) -> NoReturn:
    """Refuse keys that paths cannot tell apart, or that are no paths."""
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
        """The suffixes of its name."""
        return self.path.suffixes

    def open(self) -> Any:
        """Open it for reading."""
        return self.store.open(self.path)

    def __str__(self) -> str:
        return self.store.shown(self.path)


def open_store(address: str) -> ObjectStore:
    """Return the store that an address is in; nothing is asked of it yet, but where the bucket is.

    Guarantees: an address that holds a key, a password or settings is refused and not repeated.
    """
    check_address(address)
    found = Address.of(address)
    scheme, beginning = found.scheme, f"{found.scheme}:{found.place}"
    container, _, host = (found.place or "").removeprefix("//").rpartition("@")
    path = found.path.removeprefix("/")
    if path.rstrip("/") and not is_normal_key(path.removesuffix("/")):
        refuse_key(beginning)
    with ForeignErrors(lambda failure: explain_store(failure, scheme, beginning)):
        files = arrow_files(scheme, host)
    return ObjectStore(scheme, files, PurePosixPath(container or host, path), beginning)


def arrow_files(scheme: str, host: str) -> Any:
    """Return Arrow's file system, with limits on its patience; keys and servers are those of the environment."""
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
    """Return our error for a store's failure, of which only known phrases are looked for."""
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
