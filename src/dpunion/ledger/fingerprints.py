"""Which release this is, and whether what it wrote is still there."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from dpunion.errors import LedgerError


def fingerprint(**configuration: Any) -> str:
    """Return the SHA-256 of a release's public configuration: sources' names, columns, options and plan.

    Values must be plain (JSON); names are sorted, so the order of arguments does not matter.
    """
    text = json.dumps(configuration, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(f"dpunion-release-request/1\n{text}".encode("ascii")).hexdigest()


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256 in hex."""
    problem: str | None = None
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else type(error).__name__
    raise LedgerError(f"{path} cannot be read back: {problem}.", "The release's budget is spent; it is not settled.")


def is_intact(output: tuple[str, str]) -> bool:
    """Say whether a stored release's file is still what was written."""
    path, digest = output
    return bool(path) and Path(path).is_file() and sha256_of(Path(path)) == digest
