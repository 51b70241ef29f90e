"""A query over Parquet files: DuckDB runs it on the table `source`, which is these files and nothing else.

The files are found by our own rules (`locate`), and the session has no access to any other file, so that a query can
neither write nor read what was not named. Types are those of the files; text files have none, and are refused.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpunion.errors import BadParameter, BadSource, attempt
from dpunion.reading.columnar import told_by
from dpunion.reading.columns import FileTypes
from dpunion.reading.drivers import DuckDBSession, ask, connect_duckdb
from dpunion.reading.locate import DataFile, Format, locate, open_file

TABLE = "source"
TO_PARQUET = "Leave the query out and name the columns, or convert the files to Parquet."


class FilesInDuckDB:
    """Parquet files as the one table of a database in memory.

    Guarantees: the session reads these files alone, and cannot write, attach, install or load anything.
    """

    where = "the query over files"

    def __init__(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        self._paths = paths

    def __repr__(self) -> str:
        return "FilesInDuckDB()"

    @contextlib.contextmanager
    def session(self, *, rows: bool = True) -> Iterator[DuckDBSession]:
        """Open the files; without rows, an empty table with their columns."""
        dataset = dataset_of(locate(self._paths))
        table = dataset if rows else dataset.schema.empty_table()
        connection = ask(lambda: connect_duckdb(None, {TABLE: table}), self.where)
        try:
            yield DuckDBSession(connection, self.where)
        finally:
            with contextlib.suppress(Exception):
                connection.close()


def dataset_of(files: Sequence[DataFile]) -> Any:
    """Return Parquet files as one pyarrow Dataset; values of partitions are text.

    Guarantees: files whose columns or types differ are refused, so that none is read by the schema of another.
    """
    from pyarrow import dataset as ds

    scan = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    format_ = ds.ParquetFileFormat(default_fragment_scan_options=scan)
    first = types_of(files[0])
    if len(set(first.names)) < len(first.names):
        raise BadSource(
            f"A column of {first.where} exists twice, in the file or as the name of a folder.",
            "Rename or remove all but one of them.",
        )
    fragments = []
    for file in files:
        types = types_of(file)
        if not (types.schema.equals(first.schema) and types.told.equals(first.told)):
            raise BadSource(
                f"The columns of {file.where} are not those of the first file.",
                "Write all files with the same columns of the same types, or query them one by one.",
            )
        place, files_in = place_of(file)
        constant = functools.reduce(
            lambda one, other: one & other, (equals(name, value) for name, value in file.partitions), ds.scalar(True)
        )
        fragments.append(format_.make_fragment(place, filesystem=files_in, partition_expression=constant))
    return ds.FileSystemDataset(fragments, pa.schema([*first.schema, *first.told]), format_)


def equals(name: str, value: str | None) -> Any:
    """Return the expression that a partition has this value."""
    from pyarrow import dataset as ds

    return ds.field(name).is_null() if value is None else ds.field(name) == value


def types_of(file: DataFile) -> FileTypes:
    """Return the columns of a Parquet file and of its folders; refuse other formats."""
    import pyarrow.parquet as pq

    if file.format is not Format.PARQUET:
        raise BadParameter(f"A query needs typed columns, and {file.where} has none.", TO_PARQUET)
    schema = attempt(lambda: pq.read_schema(open_file(file.path)), file.where).remove_metadata()
    return FileTypes(file.where, schema, told_by(file.partitions))


def place_of(file: DataFile) -> tuple[str, Any]:
    """Return where Arrow finds a file: its path and the file system."""
    from pyarrow import fs

    if isinstance(file.path, Path):
        return str(file.path.absolute()), fs.LocalFileSystem()
    return str(file.path.path), file.path.store.files
