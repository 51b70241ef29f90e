"""Open a source with the fields of a SourceRequest as keywords, by default columns `u` and `v` of items; make one."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpunion.reading import Rows, SourceRequest, ValueKind, open_source
from dpunion.reading.parts import NullUserPolicy
from dpunion.requests import Request
from dpunion.sets.encoding import Normalization

COLUMNS = {"user": "u", "value": "v", "kind": ValueKind.ITEM}
ASKED = {"kind": ValueKind.ITEM, "query": None, "input_format": None, "null_users": NullUserPolicy.REFUSE}
ASKED |= {"normalization": Normalization.NFC, "known": None}


def open_rows(
    source: Any,
    *,
    on_reading: Callable[[], None] = lambda: None,
    on_progress: Callable[[float], None] = lambda _: None,
    **request: Any,
) -> Rows:
    """Return the rows of a source."""
    return open_source(SourceRequest(source, **(COLUMNS | request)), on_reading, on_progress)


def check_source(source: Any, **request: Any) -> None:
    """Refuse what can be refused without reading rows."""
    with open_rows(source, **request):
        pass


def read_pairs(source: Any, **request: Any) -> list[tuple[str, str]]:
    """Return the rows of a source as (user, value)."""
    with open_rows(source, **request) as batches:
        return [pair for batch in batches for pair in zip(*(column.to_pylist() for column in batch), strict=True)]


def put(path: Path, **columns: Any) -> Path:
    """Write a Parquet file with these columns, by default with one row, into a folder that may be new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns or {"u": ["a"], "v": ["x"]}), path)
    return path


def write_sqlite(path: Path, table: str, rows: Iterable[tuple[Any, ...]]) -> Path:
    """Write a database of SQLite with one table, such as "posts (author text, word text)", and return its path."""
    places = ", ".join("?" * (table.count(",") + 1))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"create table {table}")
        connection.executemany(f"insert into {table.split(maxsplit=1)[0]} values ({places})", rows)
    return path


def make_request(source: Any, user: Any, value: Any, **more: Any) -> Request:
    """Return a request for this source and these columns."""
    return Request(source=source, user=user, value=value, **(ASKED | more))
