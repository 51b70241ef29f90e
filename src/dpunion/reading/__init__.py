"""Where the data comes from: files, databases, frames and Python objects -> batches of (user, value) text columns.

    files        Parquet, Arrow IPC (file or stream), CSV, TSV, JSON Lines; the text ones plain, .gz or .zst;
                 one path, a list of paths or a glob pattern; a directory of Parquet files, partitioned or not;
                 on this machine, or at s3://, gs:// or abfs://
    tables       Delta Lake and Iceberg, at their current snapshot
    databases    PostgreSQL by its URL, SQLite and DuckDB files, each with a query
    input        "-" for standard input
    frames       pandas, polars, pyarrow, DuckDB: anything with `__arrow_c_stream__`; LazyFrames, Datasets, Scanners,
                 DeltaTables, tables of pyiceberg, iterables of record batches
    objects      an iterable of (user, value) pairs, a mapping from users to iterables of values

A value may be a key of several columns: then its columns are given as a list, and one text for each key comes out, see
`dpunion.releases.formats`. In objects such a key is a tuple, and the list names its parts.
Whatever the source, the same rows come out: see `cleaning.Cleaner` for nulls and lengths, `spelling` for types.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, assert_never

from dpunion.addresses import check_address
from dpunion.errors import BadParameter
from dpunion.reading.cleaning import (
    MAX_ITEM_BYTES,
    MAX_USER_BYTES,
    Cleaner,
    NullUserPolicy,
    RowBatch,
    Rows,
    ValueKind,
)
from dpunion.reading.columnar import ArrowPart, ParquetPart
from dpunion.reading.columns import Piece, SourcePart, Wanted, check_distinct, pieces_of
from dpunion.reading.databases import PasswordInUrl, database_part
from dpunion.reading.delimited import DelimitedPart
from dpunion.reading.frames import FramePart, is_frame
from dpunion.reading.jsonlines import JsonLinesPart
from dpunion.reading.lazy import BatchesPart, LazyPart, TypesGuessed, lazy_parts, yields_batches
from dpunion.reading.locate import DataFile, Format, locate
from dpunion.reading.logged import table_part
from dpunion.reading.moments import Granularity, refuse_without_moments
from dpunion.reading.objects import PAIRS, PairsPart
from dpunion.reading.queries import QueryMixesPeople
from dpunion.reading.stdin import NAME, input_part

__all__ = [
    "MAX_ITEM_BYTES",
    "MAX_USER_BYTES",
    "NullUserPolicy",
    "PasswordInUrl",
    "QueryMixesPeople",
    "RowBatch",
    "Rows",
    "TypesGuessed",
    "ValueKind",
    "check_addresses",
    "check_source",
    "open_rows",
]

ColumnName = str | int | None
ColumnNames = ColumnName | Sequence[str | int]
"""One column, or the columns of a key."""


def open_rows(
    source: Any,
    *,
    user: ColumnName,
    value: ColumnNames,
    kind: ValueKind,
    query: str | None = None,
    input_format: str | None = None,
    null_users: NullUserPolicy = NullUserPolicy.REFUSE,
    granularity: Granularity | None = None,
    on_progress: Callable[[float], None] | None = None,
    on_reading: Callable[[], None] | None = None,
) -> Rows:
    """Open a source and return its rows; columns are named or numbered from 0, or None for Python objects.

    value: one column, or a list of columns that make a key together. granularity: how finely their dates are read.
    query: what to read of a database, which needs one. input_format: what standard input holds, "csv", "tsv", "jsonl"
    or "arrow", where its first bytes do not tell.
    on_progress gets the fraction of the input that was read, from 0.0 to 1.0, never decreasing. on_reading is called
    once, before the first row is looked at.

    Guarantees:
    - unknown files, formats, columns and types are refused before any row is yielded, where the format tells;
    - what is refused before on_reading depends on names, header lines and schemas alone, on nobody's row;
    - no error carries a value of the data, neither in its text nor in its causes.
    """
    cleaner, columns = _cleaner(user, value, kind, null_users, granularity)
    wanted, parts = _prepared(
        source, user, columns, cleaner, query, input_format, on_reading or (lambda: None), granularity
    )
    return Rows(_pieces(parts, wanted, kind.rows_per_batch, on_progress or (lambda _: None)), cleaner)


def check_source(
    source: Any,
    *,
    user: ColumnName,
    value: ColumnNames,
    kind: ValueKind,
    query: str | None = None,
    input_format: str | None = None,
    granularity: Granularity | None = None,
) -> None:
    """Refuse what can be refused without reading rows: files, formats, columns, types, queries.

    Guarantees:
    - nothing of a source that can be read only once is lost: what was looked at of standard input is read again.
    """
    cleaner, columns = _cleaner(user, value, kind, NullUserPolicy.REFUSE, granularity)
    _prepared(source, user, columns, cleaner, query, input_format, lambda: None, granularity)


def check_addresses(source: Any) -> None:
    """Refuse addresses among the names of a source that may hold a password, and those of no known form.

    Guarantees: those of check_address.
    """
    for name in _paths(source) or ():
        check_address(name)


def _cleaner(
    user: ColumnName,
    value: ColumnNames,
    kind: ValueKind,
    null_users: NullUserPolicy,
    granularity: Granularity | None,
) -> tuple[Cleaner, tuple[ColumnName, ...]]:
    """Return the cleaner for the rows, and the value's columns."""
    columns = (value,) if value is None or isinstance(value, str | int) else tuple(value)
    labels = [_label(column, "value") for column in columns]
    if not columns or (len(columns) > 1 and kind is ValueKind.TEXT):
        raise BadParameter(f"There are {len(columns)} columns of {kind.value}s.", "Name one.")
    named = labels[0] if len(labels) == 1 else labels
    return Cleaner(_label(user, "user"), named, kind, null_users, granularity), columns


def _label(column: ColumnName, default: str) -> str:
    return default if column is None else str(column)


def _prepared(
    source: Any,
    user: ColumnName,
    values: tuple[ColumnName, ...],
    cleaner: Cleaner,
    query: str | None,
    input_format: str | None,
    on_reading: Callable[[], None],
    granularity: Granularity | None = None,
) -> tuple[Wanted, list[SourcePart]]:
    """Return the checked parts of a source; on_reading is called between the checks without and with rows."""
    check_addresses(source)
    paths = _paths(source)
    if input_format is not None and paths != [NAME]:
        raise BadParameter(
            "An input format was given, but the source is not standard input.",
            "Leave it out: the suffix of a file tells its format.",
        )
    database = database_part(source, query)
    lazy: Sequence[LazyPart | BatchesPart] | None = lazy_parts(source) if paths is None else None
    if paths is None and lazy is None and yields_batches(source, user):
        lazy = [BatchesPart(source)]
    if paths is None and lazy is None and not is_frame(source):
        if isinstance(source, bytes) or not isinstance(source, Iterable):
            raise BadParameter(f"A {type(source).__name__} is not a source.", PAIRS)
        if user is not None or (values[0] is not None and len(values) == 1):
            raise BadParameter(f"A {type(source).__name__} has no columns to name.", f"Leave out the names. {PAIRS}")
        on_reading()
        pairs = PairsPart(source, cleaner.values.parts)
        cleaner.expect_texts()
        return Wanted(0, tuple(range(1, len(cleaner.columns))), cleaner.values.role), [pairs]
    named = [column for column in values if isinstance(column, str | int) and not isinstance(column, bool)]
    if user is None or isinstance(user, bool) or len(named) < len(values):
        raise BadParameter(
            "Files, databases and frames need a user column and a value column.",
            "Name both: the column with the user ids, and the column with the values.",
        )
    wanted = Wanted(user, tuple(named), cleaner.values.role)
    parts: list[SourcePart]
    if database is not None:
        parts = [database]
    elif lazy is not None:
        parts = list(lazy)
    elif paths is None:
        parts = [FramePart(source)]
    elif paths == [NAME]:
        parts = [input_part(input_format)]
    else:
        parts = [part for path in paths for part in path_parts(path)]
    check_distinct(wanted, wanted.columns)
    by_rows = [isinstance(part, JsonLinesPart | BatchesPart) for part in parts]
    for late in (False, True):
        if late:
            if granularity is not None and not any(isinstance(part, BatchesPart) for part in parts):
                refuse_without_moments(cleaner.values.parts)
            on_reading()
        for part in (part for part, needs_rows in zip(parts, by_rows, strict=True) if needs_rows is late):
            part.check(wanted, cleaner.columns)
    return wanted, parts


def _paths(source: Any) -> list[str | os.PathLike[str]] | None:
    """Return the paths if the source is a path or a list of paths."""
    if isinstance(source, str | os.PathLike):
        return [source]
    if isinstance(source, list | tuple) and source and all(isinstance(s, str | os.PathLike) for s in source):
        return list(source)
    return None


def path_parts(path: str | os.PathLike[str]) -> list[SourcePart]:
    """Return how the files that a path means are read, or the table that its folder is."""
    table = table_part(path)
    return [table] if table is not None else [file_part(file) for file in locate([path])]


def file_part(file: DataFile) -> SourcePart:
    """Return how a file is read, by its format."""
    match file.format:
        case Format.PARQUET:
            return ParquetPart(file.path, file.where, file.size, file.partitions)
        case Format.ARROW:
            return ArrowPart(file.path, file.where, file.size)
        case Format.CSV | Format.TSV:
            return DelimitedPart(file, file.where, file.size)
        case Format.JSON_LINES:
            return JsonLinesPart(file, file.where, file.size)
        case _:
            assert_never(file.format)


def _pieces(
    parts: list[SourcePart], wanted: Wanted, size: int, on_progress: Callable[[float], None]
) -> Iterator[tuple[Piece, str]]:
    total = max(sum(part.size for part in parts), 1)
    before = 0
    for part in parts:

        def on_fraction(fraction: float, before: int = before, size: int = part.size) -> None:
            on_progress(min((before + fraction * size) / total, 1.0))

        for piece in pieces_of(part, wanted, on_fraction, size):
            yield piece, part.where
        before += part.size
    on_progress(1.0)
