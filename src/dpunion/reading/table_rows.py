"""Rows of tables with a log, Delta Lake and Iceberg, read by their own libraries.

The libraries cast each file to the types of the log, put nulls in the place of columns that a file lacks, and read
whatever file the log names. So the files are looked at first: their types must be those of the log (`FileTypes`), a
file may lack only what the log added later, and it must lie in the table's folder.
"""

from __future__ import annotations

import functools
import os
import posixpath
import re
import urllib.parse
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pyarrow as pa

from dpunion.errors import BadParameter, BadSource
from dpunion.reading.columns import FileTypes
from dpunion.reading.folders import shown

PHYSICAL_NAME = "delta.columnMapping.physicalName"
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
UTC_MOMENT = pa.timestamp("us", "UTC")


class Version(NamedTuple):
    """What a Delta table has at one version."""

    columns: frozenset[str]
    files: frozenset[str]


class DeltaRows:
    """A Delta table at one version (sensitive).

    Guarantees:
    - rows that were deleted are left out, by deletion vectors too; what deltalake cannot apply makes it fail;
    - a file outside of the table's folder is refused.
    """

    def __init__(self, table: Any) -> None:
        self.table = table
        self._settings = table._storage_options  # noqa: SLF001 - what opens its other files
        self._version = functools.cache(self._load_version)

    def types(self, where: str) -> FileTypes:
        """Return the columns by the log."""
        return FileTypes(where, pa.schema(self.table.schema().to_arrow()))

    def files(self, where: str, names: list[str]) -> Iterator[FileTypes]:
        """Yield the named columns of each file."""
        from deltalake.fs import DeltaStorageHandler
        from pyarrow import fs

        folder = fs.PyFileSystem(DeltaStorageHandler(self.table.table_uri, self._settings))
        for path in sorted(paths_of(self.table)):
            plain = urllib.parse.unquote(path)
            if SCHEME.match(path) or plain.startswith("/") or ".." in plain.split("/"):
                raise outside(where)
            # A link in a folder of this machine may lead elsewhere.
            if not is_below(f"{self.table.table_uri.rstrip('/')}/{plain}", self.table.table_uri):
                raise outside(where)
            with folder.open_input_file(plain) as file:
                found = parquet_types(file)
            fields = [self._field_in(path, name, found) for name in names]
            name = f"file {shown(PurePosixPath(plain))!r} of {where}"
            yield FileTypes(name, pa.schema([field for field in fields if field is not None]))

    def batches(self, names: list[str]) -> Iterator[Any]:
        """Scan some columns."""
        yield from pa.RecordBatchReader.from_stream(self.table.scan(columns=names))

    def _field_in(self, path: str, name: str, found: dict[str, Any]) -> Any:
        """Return a column with its type in a file, None when the file should have it but lacks it.

        found: the types in the file, by the names that columns have there.
        """
        field = next(field for field in self.table.schema().fields if field.name == name)
        physical = field.metadata.get(PHYSICAL_NAME, name)
        told = name in self.table.metadata().partition_columns
        if not told and physical in found:
            return pa.field(name, found[physical])
        if told or self._is_added_later(name, path):
            return self.types("").schema.field(name)
        return None

    def _is_added_later(self, column: str, path: str) -> bool:
        """Say whether the log added a column after a file: it is not in the table's version that brought the file.

        A log whose first versions were cleaned up begins with the first version that is left.
        """
        absent, present = -1, self.table.version()
        while present - absent > 1:
            middle = (absent + present) // 2
            if path in self._version(middle).files:
                present = middle
            else:
                absent = middle
        return column not in self._version(present).columns

    def _load_version(self, version: int) -> Version:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            table = DeltaTable(self.table.table_uri, version, self._settings)
        except DeltaError:
            return Version(frozenset(), frozenset())  # it was cleaned up
        return Version(frozenset(field.name for field in table.schema().fields), frozenset(paths_of(table)))


def delta_rows(table: Any) -> DeltaRows:
    """Return the rows of a deltalake.DeltaTable at the version that it has loaded."""
    if not hasattr(table, "scan"):
        raise BadParameter("The installed deltalake is too old.", "Update it: pip install 'dpunion[delta]'.")
    return DeltaRows(table)


def paths_of(table: Any) -> list[str]:
    """Return the files of a Delta table as its log names them."""
    paths: list[str] = pa.table(table.get_add_actions()).column("path").to_pylist()
    return paths


def parquet_types(file: Any) -> dict[str, Any]:
    """Return the types of the columns of a Parquet file; the old timestamps of Spark (INT96) are moments of UTC."""
    import pyarrow.parquet as pq

    opened = pq.ParquetFile(file)
    leaves = (opened.schema.column(i) for i in range(len(opened.schema)))
    old = {leaf.path for leaf in leaves if leaf.physical_type == "INT96"}
    return {field.name: UTC_MOMENT if field.name in old else field.type for field in opened.schema_arrow}


class IcebergRows:
    """A scan of an Iceberg table at one snapshot (sensitive).

    Guarantees:
    - rows that were deleted are left out; deletions that pyiceberg cannot apply make it fail;
    - a file outside of the table's folder is refused.
    """

    def __init__(self, scan: Any) -> None:
        self.scan = scan

    def types(self, where: str) -> FileTypes:
        """Return the columns of what is scanned."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        return FileTypes(where, schema_to_pyarrow(self.scan.projection(), include_field_ids=False))

    def files(self, where: str, names: list[str]) -> Iterator[FileTypes]:
        """Yield the named columns of each file."""
        from pyiceberg.io.pyarrow import pyarrow_to_schema, schema_to_pyarrow
        from pyiceberg.schema import Schema

        metadata, wanted = self.scan.table_metadata, self.scan.projection()
        fields = [wanted.find_field(name) for name in names]
        later = {one.field_id for one in fields for schema in metadata.schemas if one.field_id not in schema.field_ids}
        for task in self.scan.plan_files():
            place = task.file.file_path
            if not all(is_below(one.file_path, metadata.location) for one in (task.file, *task.delete_files)):
                raise outside(where)
            with self.scan.io.new_input(place).open() as file:
                physical = fragment_of(file, task.file.file_format.name).physical_schema
            found = pyarrow_to_schema(physical, metadata.name_mapping(), downcast_ns_timestamp_to_us=True)
            told = {one.source_id for one in metadata.specs()[task.file.spec_id].fields if is_identity(one)}
            stored = [
                found.find_field(one.field_id).model_copy(update={"name": one.name})
                if one.field_id in found.field_ids
                else one
                for one in fields
                if one.field_id in found.field_ids | later | told
            ]
            name = f"file {posixpath.basename(place)!r} of {where}"
            yield FileTypes(name, schema_to_pyarrow(Schema(*stored), include_field_ids=False))

    def batches(self, names: list[str]) -> Iterator[Any]:
        """Scan some columns."""
        yield from self.scan.select(*names).to_arrow_batch_reader()


def fragment_of(file: Any, format_: str) -> Any:
    """Return an open file of an Iceberg table as Arrow's fragment."""
    from pyarrow import dataset as ds

    formats = {"PARQUET": ds.ParquetFileFormat, "ORC": ds.OrcFileFormat}
    return formats[format_]().make_fragment(file)


def is_identity(field: Any) -> bool:
    """Say whether a partition of Iceberg is a column as it stands, so that the log tells its value."""
    from pyiceberg.transforms import IdentityTransform

    return isinstance(field.transform, IdentityTransform)


def is_below(place: str, folder: str) -> bool:
    """Say whether a path or address is below a folder; of this machine's paths, links are followed."""
    return plain_place(place).startswith(plain_place(folder).rstrip("/") + "/")


def plain_place(address: str) -> str:
    """Return one spelling of a path or an address: file:///a, file:/a and /a are the same, and so are s3a and s3."""
    scheme, mark, rest = address.partition(":")
    if not mark or not SCHEME.fullmatch(scheme + mark):
        return os.path.realpath(address)
    if scheme.lower() == "file":
        return os.path.realpath("/" + rest.lstrip("/"))
    scheme = re.sub(r"^s3[an]$", "s3", scheme.lower())
    return f"{scheme}://{posixpath.normpath(rest.lstrip('/'))}"


def outside(where: str) -> BadSource:
    """Return the error for a file that a log names but that is not in the table's folder."""
    return BadSource(
        f"The log of {where} names a file outside of the table's folder.",
        "Copy the table into one folder, for example by writing its rows to a new table.",
    )
