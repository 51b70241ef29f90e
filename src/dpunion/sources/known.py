"""A known list: items that are public already, so that the budget finds new ones.

A known list is a file (one of dpunion's own outputs, or any file with a column `item` or a single column), a Release or
an iterable of texts. For keys of several columns, the file has these columns, and the iterable holds tuples. It is
public: nothing about it is protected.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpunion.errors import BadSource, DamagedSource, SourceNotFound
from dpunion.releases import restore_formula
from dpunion.sources.composite import join

COLUMN = "item"
READABLE = (".parquet", ".arrow", ".csv", ".jsonl", ".json", ".txt")


@dataclass(frozen=True, slots=True)
class Known:
    """The known items, sorted, and the SHA-256 of the file or of the sorted list.

    items: keys of several columns as the one text of `composite.join`.
    """

    items: tuple[str, ...]
    sha256: str


def known_items(source: Any, columns: Sequence[str] = (COLUMN,)) -> Known:
    """Read a known list; columns: those of the key."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if not path.is_file():
            raise SourceNotFound(f"There is no file {path} with a known list.", "Check the path.")
        items = _texts(_read(path, columns), len(columns))
        if items is None:
            raise DamagedSource(
                f"The known list {path} cannot be read.",
                f"It needs {_named(columns)} of texts, as dpunion writes it.",
            )
        return Known(items, hashlib.sha256(path.read_bytes()).hexdigest())
    found = getattr(source, "items", None)
    if isinstance(found, tuple):
        same = tuple(getattr(source, "columns", columns)) == tuple(columns)
        items = _texts(found, len(columns)) if same else None
    else:
        items = _texts(tuple(source), len(columns)) if isinstance(source, Iterable) else None
    if items is None:
        each = "texts" if len(columns) == 1 else f"tuples of {len(columns)} texts"
        raise BadSource(
            f"A known list must hold {each}.", f"Pass a file with {_named(columns)}, such a Release or an iterable."
        )
    return Known(items, hashlib.sha256("\0".join(items).encode()).hexdigest())


def _named(columns: Sequence[str]) -> str:
    return f"{'a column' if len(columns) == 1 else 'columns'} {', '.join(map(repr, columns))}"


def _texts(items: Iterable[Any] | None, width: int) -> tuple[str, ...] | None:
    """Return the sorted texts of items, which are texts or tuples of `width` texts; None when some are not."""
    if items is None:
        return None
    keys = [(item,) if width == 1 else item for item in items]
    if not all(isinstance(key, tuple | list) and len(key) == width for key in keys):
        return None
    if not all(isinstance(part, str) for key in keys for part in key):
        return None
    return tuple(sorted({key[0] if width == 1 else join(key) for key in keys}))


def _read(path: Path, columns: Sequence[str]) -> list[Any] | None:
    """Return what a file lists, texts or tuples; None when it cannot be read."""
    suffix = path.suffix.lower()
    if suffix not in READABLE:
        raise BadSource(
            f"A known list must be one of {', '.join(READABLE)}. Got {suffix!r} instead.",
            "Convert it, or write it with dpunion.",
        )
    rows: list[Any] | None = None
    try:
        match suffix:
            case ".txt":
                lines = [line for line in path.read_text("utf-8").split("\n") if line]
                rows = [tuple(map(_unescaped, line.split("\t", len(columns) - 1))) for line in lines]
            case ".csv":
                rows = _read_csv(path, columns)
            case ".jsonl":
                objects = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line.strip()]
                rows = [tuple(one[name] for name in columns) for one in objects]
            case ".json":
                values = json.loads(path.read_text("utf-8"))
                same = len(columns) == 1 or values["columns"] == list(columns)
                return list(values["items"]) if same else None
            case _:
                rows = _read_columnar(path, columns)
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, csv.Error):
        return None
    return [row[0] if len(row) == 1 else row for row in rows]


def _read_csv(path: Path, columns: Sequence[str]) -> list[Any]:
    # Our own CSV has apostrophes before what a spreadsheet would run.
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = (list(map(restore_formula, row)) for row in csv.reader(file) if row)
    positions = [header.index(name) for name in columns]
    return [tuple(row[i] for i in positions) for row in rows]


def _unescaped(line: str) -> str:
    if "\\" not in line:
        return line
    return line.encode("latin-1", "backslashreplace").decode("unicode_escape")


def _read_columnar(path: Path, columns: Sequence[str]) -> list[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix.lower() == ".parquet":
        table = pq.read_table(path)
    else:
        with pa.memory_map(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
    if len(columns) == 1 and columns[0] not in table.column_names and table.num_columns == 1:
        columns = table.column_names
    return list(zip(*(table.column(name).to_pylist() for name in columns), strict=True))
