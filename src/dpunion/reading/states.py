"""What the file system says of a source before it is read: how many files, how large, last changed when."""

from __future__ import annotations

import datetime as dt
import glob
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dpunion.reading.folders import walk


def source_states(source: Any) -> list[dict[str, Any]] | None:
    """Return the state of each path, folder or pattern; None for what is no file, where a change cannot be seen.

    Guarantees:
    - no file is opened, and names that were found in a folder or by a pattern, which may be data, are not kept.
    """
    names = source if isinstance(source, (list, tuple)) else [source]
    if not all(isinstance(name, (str, os.PathLike)) for name in names):
        return None
    states = []
    for name in names:
        try:
            found = [path.stat() for path in _files(os.fspath(name))]
        except OSError:
            return None
        if not found:
            return None
        changed = dt.datetime.fromtimestamp(max(status.st_mtime for status in found), dt.UTC)
        states.append({"files": len(found), "bytes": sum(one.st_size for one in found), "changed": changed.isoformat()})
    return states


def _files(name: str) -> Iterable[Path]:
    path = Path(name).expanduser()
    if path.is_dir():
        return walk(path)
    if path.exists():
        return [path]
    return [Path(match) for match in glob.glob(str(path), recursive=True)]  # noqa: PTH207 - the pattern may be absolute
