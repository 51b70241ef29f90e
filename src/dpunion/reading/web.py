"""One file at an https address: fetched once into a nameless file, then read like any other."""

from __future__ import annotations

import hashlib
import mmap
import re
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from dpunion.errors import BadSource, DamagedSource
from dpunion.foreign import ForeignErrors

WEB = re.compile(r"https?://", re.IGNORECASE)
SECONDS = 30
CHUNK = 1 << 20
REMEDY = "Check the address and the network; or download the file and name it."


def is_web(name: object) -> bool:
    """Say whether a source is an address in the web."""
    return isinstance(name, str) and WEB.match(name) is not None


def public_address(address: str) -> str:
    """Return an address without user, password, query and fragment, any of which may be secret."""
    parts = urllib.parse.urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def name_address(address: str) -> str:
    """Return an address as a name that tells it from others: a query, which may hold a signature, by its digest."""
    query = urllib.parse.urlsplit(address).query
    digest = f"?sha256={hashlib.sha256(query.encode()).hexdigest()}" if query else ""
    return public_address(address) + digest


@dataclass(frozen=True, slots=True, repr=False)
class WebFile:
    """A file that was fetched (sensitive)."""

    name: str
    data: Any

    @property
    def suffixes(self) -> list[str]:
        """The suffixes of its name."""
        return PurePosixPath(urllib.parse.unquote(urllib.parse.urlsplit(self.name).path)).suffixes

    @property
    def size(self) -> int:
        """The number of bytes."""
        return int(self.data.size)

    def open(self) -> Any:
        """Open it for reading."""
        return pa.BufferReader(self.data)

    def __str__(self) -> str:
        return self.name


class OnlySafely(urllib.request.HTTPRedirectHandler):
    """Follow redirections to https alone."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """Refuse another place that is not https."""
        if not newurl.startswith("https://"):
            fp.close()
            raise BadSource("The https address leads on to one that is not https.", REMEDY)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch_file(address: str) -> WebFile:
    """Fetch the file at an https address.

    Guarantees:
    - http is refused: everybody on the way would read along;
    - a transfer that ends early is refused, and so is one that does not say where it ends;
    - the bytes lie in a file without a name, which the system frees however the process ends;
    - errors do not repeat user, password or query of the address.
    """
    name = public_address(address)
    if not address.startswith("https://"):
        raise BadSource("People's rows are not read over http: everybody on the way could read along.", "Use https.")

    def explain(failure: Exception) -> BadSource:
        if isinstance(failure, urllib.error.HTTPError):
            failure.close()
        status = getattr(failure, "code", None)
        answered = f"status {status}" if isinstance(status, int) else type(failure).__name__
        return BadSource(f"Could not fetch {name!r} ({answered}).", REMEDY)

    with ForeignErrors(explain), tempfile.TemporaryFile() as file:
        opener = urllib.request.build_opener(OnlySafely())
        with opener.open(address, timeout=SECONDS) as answer:
            expected = answer.headers.get("Content-Length")
            if expected is None and not answer.chunked:
                raise DamagedSource(f"The server does not say where {name!r} ends.", REMEDY)
            while chunk := answer.read(CHUNK):
                file.write(chunk)
        file.flush()
        if expected is not None and file.tell() != int(expected):
            raise DamagedSource(f"The transfer of {name!r} ended early.", REMEDY)
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.tell() else b""
    return WebFile(name, pa.py_buffer(mapped))
