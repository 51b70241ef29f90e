"""A known list: items that are public already, so that the budget finds new ones.

A known list is a file (one of dpunion's own outputs, or any file with a column `item` or a single column), a Release or
an iterable of texts. It is public: nothing about it is protected.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpunion.errors import BadSource, DamagedSource, SourceNotFound

COLUMN = "item"
READABLE = (".parquet", ".arrow", ".csv", ".jsonl", ".json", ".txt")


@dataclass(frozen=True, slots=True)
class Known:
    """The known items, sorted, and the SHA-256 of the file or of the sorted list."""

    items: tuple[str, ...]
    sha256: str


def known_items(source: Any) -> Known:
    """Read a known list."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if not path.is_file():
            raise SourceNotFound(f"There is no file {path} with a known list.", "Check the path.")
        return Known(tuple(sorted(set(_read(path)))), hashlib.sha256(path.read_bytes()).hexdigest())
    texts = getattr(source, "items", None)
    if not isinstance(texts, tuple):
        texts = tuple(source) if isinstance(source, Iterable) else None
    if texts is None or not all(isinstance(text, str) for text in texts):
        raise BadSource("A known list must hold texts.", "Pass a file, a Release or an iterable of strings.")
    items = tuple(sorted(set(texts)))
    return Known(items, hashlib.sha256("\0".join(items).encode()).hexdigest())


def _read(path: Path) -> Iterable[str]:
    suffix = path.suffix.lower()
    if suffix not in READABLE:
        raise BadSource(
            f"A known list must be one of {', '.join(READABLE)}. Got {suffix!r} instead.",
            "Convert it, or write it with dpunion.",
        )
    texts: list[Any] = []
    try:
        match suffix:
            case ".txt":
                texts = [_unescaped(line) for line in path.read_text("utf-8").split("\n") if line]
            case ".csv":
                with path.open(encoding="utf-8", newline="") as file:
                    # Our own CSV has an apostrophe before what a spreadsheet would run.
                    texts = [row[COLUMN].removeprefix("'") for row in csv.DictReader(file)]
            case ".jsonl":
                texts = [json.loads(line)[COLUMN] for line in path.read_text("utf-8").split("\n") if line.strip()]
            case ".json":
                texts = json.loads(path.read_text("utf-8"))["items"]
            case _:
                texts = _read_columnar(path)
        good = all(isinstance(text, str) for text in texts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        good = False
    if not good:
        raise DamagedSource(
            f"The known list {path} cannot be read.", f"It needs a column {COLUMN!r} of texts, as dpunion writes it."
        )
    return texts


def _unescaped(line: str) -> str:
    if "\\" not in line:
        return line
    return line.encode("latin-1", "backslashreplace").decode("unicode_escape")


def _read_columnar(path: Path) -> list[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix.lower() == ".parquet":
        table = pq.read_table(path)
    else:
        with pa.memory_map(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
    name = COLUMN if COLUMN in table.column_names or table.num_columns != 1 else table.column_names[0]
    found: list[Any] = table.column(name).to_pylist()
    return found
