"""A journal of finished trials: append-only lines of JSON that survive a kill, so that a study can go on."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpunion.errors import CannotWrite
from dpunion.lab.tables import NOT_PRIVATE

FORMAT = "dpunion-lab-journal/1"


class Journal:
    """Finished trials by their identity, on disk.

    Guarantees:
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
    """Open a journal for reading and adding, making it when it is not there."""
    problem: str | None = None
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else type(error).__name__
    if problem is not None:
        raise CannotWrite(f"The journal {path} cannot be opened: {problem}.", "Choose another place for the results.")
    try:
        _take(path, descriptor)
        if start_over:
            os.ftruncate(descriptor, 0)
        yield Journal(path, descriptor, _read(path, descriptor))
    finally:
        os.close(descriptor)


def _take(path: Path, descriptor: int) -> None:
    taken = False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        taken = True
    if taken:
        raise CannotWrite(f"Another run is writing {path}.", "Wait for it, or choose another place for the results.")


def _read(path: Path, descriptor: int) -> dict[str, dict[str, Any]]:
    """Return the entries; a last line without its end is what a kill left, and goes."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        content = file.read()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.ftruncate(descriptor, whole)
    lines = content[:whole].splitlines()
    if not lines:
        _append(path, descriptor, json.dumps({"format": FORMAT, "warning": NOT_PRIVATE}))
        return {}
    entries: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(ValueError, KeyError, TypeError):
        if json.loads(lines[0])["format"] == FORMAT:
            for line in lines[1:]:
                values = json.loads(line)
                entries[values.pop("identity")] = values
            return entries
    raise CannotWrite(f"{path} is not a journal of trials.", "Move it away, or start over (--force, overwrite=True).")


def _append(path: Path, descriptor: int, line: str) -> None:
    problem: str | None = None
    content = line.encode() + b"\n"
    try:
        # A short write, on a full disk, leaves a line without its end: it is dropped when next opened.
        if os.write(descriptor, content) < len(content):
            problem = "the disk is full"
        os.fsync(descriptor)
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else type(error).__name__
    if problem is not None:
        raise CannotWrite(f"Writing {path} failed: {problem}.", "Free some space; finished trials are kept.")
