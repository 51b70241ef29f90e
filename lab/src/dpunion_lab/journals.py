"""A journal of finished trials: append-only lines of JSON that survive a kill, so that a study can go on."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpunion.errors import CannotWrite, ForeignErrors, system_reason
from dpunion.files import OWNER_ONLY
from dpunion_lab.figures import NOT_PRIVATE

FORMAT = "dpunion-lab-journal/1"
HEADER = json.dumps({"format": FORMAT, "warning": NOT_PRIVATE})


class Journal:
    """Finished trials by their identity, on disk.

    Guarantees:
    - a file that is no journal is never changed; the journal is for its owner alone, as it holds counts of the data;
    - a trial is on disk, whole and synced, when `add` returns; a line that a kill cut short is dropped afterwards;
    - one process at a time writes; a second one is refused.
    """

    def __init__(self, path: Path, descriptor: int, entries: dict[str, dict[str, Any]]) -> None:
        self.path = path
        self.entries = entries
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def add(self, identity: str, values: dict[str, Any]) -> None:
        """Put a finished trial on disk."""
        line = json.dumps({"identity": identity} | values, separators=(",", ":"), allow_nan=False)
        with self._lock:
            _append(self.path, self._descriptor, line)
            self.entries[identity] = values


@contextlib.contextmanager
def open_journal(path: Path, *, start_over: bool = False) -> Iterator[Journal]:
    """Open a journal for reading and adding, making it when it is not there; start_over: forget what it holds."""

    def explain(error: OSError) -> CannotWrite:
        why = "it is a link" if error.errno == errno.ELOOP else system_reason(error)
        return CannotWrite(f"The journal {path} cannot be opened: {why}.", "Choose another place for the results.")

    # Links are not followed, and a pipe does not make us wait.
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with ForeignErrors(explain, OSError):
        descriptor = os.open(path, flags, OWNER_ONLY)
    try:
        _refuse_strange(path, os.fstat(descriptor))
        _take(path, descriptor)
        content = _content(path, descriptor)
        entries = {} if start_over else _entries(path, content)
        os.fchmod(descriptor, OWNER_ONLY)
        os.ftruncate(descriptor, 0 if start_over else content.rfind(b"\n") + 1)
        if not os.fstat(descriptor).st_size:
            _append(path, descriptor, HEADER)
        yield Journal(path, descriptor, entries)
    finally:
        os.close(descriptor)


def _refuse_strange(path: Path, status: os.stat_result) -> None:
    """Refuse what is no file, or a file of somebody else, who could read what is added to it."""
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        raise CannotWrite(
            f"The journal {path} is not a file of this user.",
            "Move that file, or choose another place for the results.",
        )


def _take(path: Path, descriptor: int) -> None:
    taken = CannotWrite(f"Another run is writing {path}.", "Wait for it, or choose another place for the results.")
    with ForeignErrors(lambda _: taken, OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _content(path: Path, descriptor: int) -> bytes:
    """Return the bytes of a journal; refuse what is none, be it without a line's end. Nothing is changed."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        content = file.read()
    first, end, _ = content.partition(b"\n")
    is_journal = not end and HEADER.encode().startswith(first)
    with contextlib.suppress(ValueError, KeyError, TypeError):
        is_journal = is_journal or json.loads(first)["format"] == FORMAT
    if not is_journal:
        raise CannotWrite(
            f"{path} is not a journal of trials.", "Move that file, or choose another place for the results."
        )
    return content


def _entries(path: Path, content: bytes) -> dict[str, dict[str, Any]]:
    """Return the entries; a last line without its end is what a kill left, and is passed over."""
    entries: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        for line in content.split(b"\n")[1:-1]:
            values = json.loads(line)
            entries[values.pop("identity")] = values
        return entries
    raise CannotWrite(f"The journal {path} is damaged.", "Start over (--force, overwrite=True), or move it away.")


def _append(path: Path, descriptor: int, line: str) -> None:

    def explain(error: OSError) -> CannotWrite:
        return CannotWrite(
            f"Writing {path} failed: {system_reason(error)}.", "Free some space; finished trials are kept."
        )

    content = line.encode() + b"\n"
    with ForeignErrors(explain, OSError):
        # A short write, on a full disk, leaves a line without its end: it is dropped when next opened.
        if os.write(descriptor, content) < len(content):
            raise OSError(errno.ENOSPC, "short write")
        os.fsync(descriptor)
