"""Where the data comes from: files, databases, frames and Python objects -> batches of (user, value) text columns.

    files        Parquet, Arrow IPC (file or stream), CSV, TSV, JSON Lines; the text formats plain, .gz or .zst;
                 one path, a list of paths or a glob pattern; a directory of Parquet files, partitioned or not;
                 on this machine, or at s3://, gs:// or abfs://
    tables       Delta Lake and Iceberg, at their current snapshot
    databases    PostgreSQL by its URL, SQLite and DuckDB files, each with a query
    input        "-" for standard input
    frames       pandas, polars, pyarrow, DuckDB: anything with `__arrow_c_stream__`; LazyFrames, Datasets, Scanners,
                 DeltaTables, tables of pyiceberg, iterables of record batches
    objects      an iterable of (user, value) pairs, a mapping from users to iterables of values

A value may be a key of several columns. Then a list names its columns, and each key becomes one text, see
`dpunion.releases.formats`. In Python objects such a key is a tuple, and the list names its parts.
All sources yield the same rows: see `cleaning.Cleaner` for nulls and lengths, `spelling` for types.

A new source is one module with `parts_of` (see `parts.SourceReader`) and one word in READERS.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from dpunion.addresses import check_address
from dpunion.errors import BadParameter
from dpunion.reading import databases, frames, locate, pairs, stdin, tables
from dpunion.reading.cleaning import Cleaner, Rows
from dpunion.reading.databases import PasswordInUrl as PasswordInUrl
from dpunion.reading.databases import QueryMixesPeople as QueryMixesPeople
from dpunion.reading.frames import TypesGuessed as TypesGuessed
from dpunion.reading.pairs import PAIRS
from dpunion.reading.parts import SourceReader, SourceRequest, ValueKind, Wanted
from dpunion.reading.spelling import refuse_without_moments

__all__ = ["Rows", "SourceRequest", "ValueKind", "check_addresses", "open_source"]

READERS: tuple[SourceReader, ...] = (stdin, databases, tables, frames, locate, pairs)
"""The first reader that knows a source reads it: a database file is a path too, and a LazyFrame is iterable."""


def open_source(
    request: SourceRequest,
    start_reading: Callable[[], None] = lambda: None,
    on_progress: Callable[[float], None] = lambda _: None,
) -> Rows:
    """Check a source, and return its rows.

    start_reading: called once, before the first row is read. on_progress: called with the fraction of the input that
    was read, from 0.0 to 1.0, never decreasing.

    Guarantees:
    - what is refused before `start_reading` is called depends on names, header lines and schemas alone;
    - unknown files, formats, columns and types are refused before any row is yielded, if the format tells them;
    - nothing is lost of a source that can be read only once: what the checks looked at is read again;
    - no error contains a value of the data, neither in its text nor in its causes.
    """
    check_addresses(request)
    parts = next((found for reader in READERS if (found := reader.parts_of(request)) is not None), None)
    if parts is None:
        raise BadParameter(f"dpunion reads no {type(request.source).__name__}.", PAIRS)
    has_columns = all(part.has_columns for part in parts)
    wanted = Wanted.of(request, has_columns=has_columns)
    cleaner = Cleaner(request if has_columns else dataclasses.replace(request, granularity=None))
    for part in parts:
        if not part.needs_rows:
            part.check(wanted, cleaner.columns)
    if request.granularity is not None and all(part.knows_types for part in parts):
        refuse_without_moments(cleaner.values.parts)
    start_reading()
    for part in parts:
        if part.needs_rows:
            part.check(wanted, cleaner.columns)
    return Rows(parts, wanted, cleaner, on_progress)


def check_addresses(request: SourceRequest) -> None:
    """Refuse addresses of the source that may contain a password, and addresses of an unknown form."""
    for path in request.paths or ():
        check_address(path)
