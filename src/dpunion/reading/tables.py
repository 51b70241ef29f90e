"""Delta Lake and Iceberg tables at their current snapshot, read by their own libraries.

    events/                              a folder with _delta_log, by the deltalake package
    iceberg://catalog/space.table        a table of a catalog that pyiceberg is configured for
    events/metadata/v3.metadata.json     an Iceberg table as this file describes it
    events/                              the same, when metadata/version-hint.text names the newest file
    DeltaTable(...), load_table(...)     tables and scans that Python code opened

Only the folder of the table itself can be named: `locate` refuses what lies below it or matches a pattern.

The libraries cast each file to the types of the log, fill columns that a file lacks with nulls, and read whatever file
the log names. So the files are checked first: their types must be those of the log (`FileTypes`), a file may lack only
columns that the log added later, and it must be in the table's folder.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import posixpath
import re
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from dpunion.addresses import ICEBERG as ICEBERG_SCHEME
from dpunion.addresses import Address, public_address
from dpunion.errors import BadParameter, BadSource, DpunionError, ForeignErrors
from dpunion.reading import locate
from dpunion.reading.frames import LazyPart, LazyRows
from dpunion.reading.parts import FileTypes, SourcePart, SourceRequest
from dpunion.reading.storage import hide_values, is_directory, is_stored, open_store, status

METADATA_ENDS = (".metadata.json", ".metadata.json.gz")
HINT = "version-hint.text"
PHYSICAL_NAME = "delta.columnMapping.physicalName"
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
UTC_MOMENT = pa.timestamp("us", "UTC")


def parts_of(request: SourceRequest) -> list[SourcePart] | None:
    """Return the tables among the names of a source, together with its plain files, or the table in memory."""
    if request.paths is None:
        return object_parts(request.source)
    tables = [open_table(path) for path in request.paths]
    if not any(tables):
        return None
    return [
        part
        for path, table in zip(request.paths, tables, strict=True)
        for part in ([table] if table is not None else locate.path_parts(path))
    ]


def object_parts(source: Any) -> list[SourcePart] | None:
    """Return the part for a table object of deltalake or pyiceberg; its module tells, so that neither is imported."""
    kind = type(source)
    where, package = f"the {kind.__name__}", kind.__module__.split(".")[0]
    if package == "deltalake" and kind.__name__ == "DeltaTable":
        return [LazyPart(DeltaRows(source), where)]
    if package == "pyiceberg" and hasattr(source, "scan"):
        return [LazyPart(IcebergRows(source.scan()), where)]
    if package == "pyiceberg" and hasattr(source, "to_arrow_batch_reader"):
        return [LazyPart(IcebergRows(source), where)]
    return None


def open_table(path: str | os.PathLike[str]) -> LazyPart | None:
    """Open the table that a name means, at its current snapshot; return None for other names.

    Guarantees: deleted rows are not read, and a table that its library cannot read is refused.
    """
    name = os.fspath(path)
    address = Address.of(name)
    if address.scheme == ICEBERG_SCHEME:

        def load() -> Any:
            from pyiceberg.catalog import load_catalog

            return load_catalog((address.place or "").removeprefix("//")).load_table(address.path[1:])

        return open_iceberg(name, load)
    if name.endswith(METADATA_ENDS):
        return open_iceberg(name, lambda: load_static_table(name))
    kind = None
    if is_stored(name):
        store = open_store(name)
        kind = locate.table_kind(store.root, store)
    elif name and is_directory(status(Path(name).expanduser())):
        kind = locate.table_kind(Path(name).expanduser())
    if kind == locate.DELTA and importlib.util.find_spec("deltalake") is not None:

        def load_delta() -> LazyPart:
            from deltalake import DeltaTable

            place = name if is_stored(name) else str(Path(name).expanduser().absolute())
            return LazyPart(DeltaRows(DeltaTable(place)), f"Delta table {public_name(name)!r}")

        return load_or_refuse(locate.DELTA, name, load_delta)
    # Without a hint, only a catalog knows which metadata is the newest.
    has_hint = not is_stored(name) and (Path(name).expanduser() / locate.ICEBERG_FOLDER / HINT).is_file()
    if kind == locate.ICEBERG and importlib.util.find_spec("pyiceberg") is not None and has_hint:
        return open_iceberg(name, lambda: load_static_table(name))
    return None


def open_iceberg(name: str, load: Callable[[], Any]) -> LazyPart:
    """Open an Iceberg table at its current snapshot."""
    where = f"Iceberg table {public_name(name)!r}"
    return load_or_refuse(locate.ICEBERG, name, lambda: LazyPart(IcebergRows(load().scan()), where))


def load_static_table(name: str) -> Any:
    """Load an Iceberg table from a metadata file, or from the newest one of its folder."""
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(name if is_stored(name) else str(Path(name).expanduser().absolute()))
    # subtle: the metadata may say that the table is somewhere else, and name files that do not belong to it.
    folder = posixpath.dirname(posixpath.dirname(table.metadata_location))
    if normalize_place(folder) != normalize_place(table.location()):
        raise outside_error(f"Iceberg table {public_name(name)!r}")
    return table


def load_or_refuse(kind: str, name: str, load: Callable[[], LazyPart]) -> LazyPart:
    """Return what `load` returns; an error of the library becomes ours, which repeats nothing of it."""
    remedy = locate.TABLE_REMEDIES[kind]

    def explain(failure: Exception) -> DpunionError:
        if isinstance(failure, ImportError):
            return BadParameter(f"A table of {kind} needs a package that is not installed.", remedy)
        return BadSource(
            f"{public_name(name)!r} is a table of {kind} that cannot be opened ({type(failure).__name__}).",
            f"Check its log and permissions. {remedy}",
        )

    with ForeignErrors(explain):
        return load()


def public_name(name: str) -> str:
    """Return a table's name for errors, without the values of partitions, which are data."""
    scheme, mark, path = public_address(name).rpartition("://")
    return scheme + mark + hide_values(PurePosixPath(path) if mark else Path(path))


class DeltaRows(LazyRows):
    """A deltalake.DeltaTable at the version that it has loaded (sensitive).

    Guarantees:
    - deleted rows are left out, also those in deletion vectors; deltalake fails when it cannot apply one;
    - a file outside of the table's folder is refused.
    """

    def __init__(self, table: Any) -> None:
        if not hasattr(table, "scan"):
            raise BadParameter("The installed deltalake is too old.", "Update it: pip install 'dpunion[delta]'.")
        self.table = table
        self._settings = table._storage_options  # noqa: SLF001 - what opens its other files
        self._version = functools.cache(self._load_version)

    def types(self, where: str) -> FileTypes:
        return FileTypes(where, pa.schema(self.table.schema().to_arrow()))

    def files(self, where: str, names: list[str]) -> Iterator[FileTypes]:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow import fs

        folder = fs.PyFileSystem(DeltaStorageHandler(self.table.table_uri, self._settings))
        for path in sorted(delta_files(self.table)):
            plain = urllib.parse.unquote(path)
            leaves = SCHEME.match(path) or plain.startswith("/") or ".." in plain.split("/")
            # A link in a folder of this machine may lead elsewhere.
            if leaves or not is_below(f"{self.table.table_uri.rstrip('/')}/{plain}", self.table.table_uri):
                raise outside_error(where)
            with folder.open_input_file(plain) as file:
                found = parquet_types(file)
            fields = [self._field_in(path, name, found) for name in names]
            name = f"file {hide_values(PurePosixPath(plain))!r} of {where}"
            yield FileTypes(name, pa.schema([field for field in fields if field is not None]))

    def batches(self, names: list[str]) -> Iterator[Any]:
        yield from pa.RecordBatchReader.from_stream(self.table.scan(columns=names))

    def _field_in(self, path: str, name: str, found: dict[str, Any]) -> Any:
        """Return a column with its type in a file, None when the file lacks a column that it should have.

        found: the types in the file, by the names that columns have there.
        """
        field = next(field for field in self.table.schema().fields if field.name == name)
        physical = field.metadata.get(PHYSICAL_NAME, name)
        is_partition = name in self.table.metadata().partition_columns
        if not is_partition and physical in found:
            return pa.field(name, found[physical])
        if is_partition or self._is_added_later(name, path):
            return self.types("").schema.field(name)
        return None

    def _is_added_later(self, column: str, path: str) -> bool:
        """Return whether the log added a column after a file: the version that added the file does not have it.

        A log whose first versions were cleaned up begins with its first remaining version.
        """
        absent, present = -1, self.table.version()
        while present - absent > 1:
            middle = (absent + present) // 2
            if path in self._version(middle)[1]:
                present = middle
            else:
                absent = middle
        return column not in self._version(present)[0]

    def _load_version(self, version: int) -> tuple[set[str], set[str]]:
        """Return the columns and the files of a version."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            table = DeltaTable(self.table.table_uri, version, self._settings)
        except DeltaError:
            return set(), set()  # it was cleaned up
        return {field.name for field in table.schema().fields}, set(delta_files(table))


def delta_files(table: Any) -> list[str]:
    """Return the files of a Delta table as its log names them."""
    paths: list[str] = pa.table(table.get_add_actions()).column("path").to_pylist()
    return paths


def parquet_types(file: Any) -> dict[str, Any]:
    """Return the column types of a Parquet file; Spark's old timestamps (INT96) are in UTC."""
    import pyarrow.parquet as pq

    opened = pq.ParquetFile(file)
    leaves = (opened.schema.column(i) for i in range(len(opened.schema)))
    old = {leaf.path for leaf in leaves if leaf.physical_type == "INT96"}
    return {field.name: UTC_MOMENT if field.name in old else field.type for field in opened.schema_arrow}


class IcebergRows(LazyRows):
    """A scan of an Iceberg table at one snapshot (sensitive).

    Guarantees:
    - deleted rows are left out; pyiceberg fails when it cannot apply a deletion;
    - a file outside of the table's folder is refused.
    """

    def __init__(self, scan: Any) -> None:
        self.scan = scan

    def types(self, where: str) -> FileTypes:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        return FileTypes(where, schema_to_pyarrow(self.scan.projection(), include_field_ids=False))

    def files(self, where: str, names: list[str]) -> Iterator[FileTypes]:
        from pyarrow import dataset as ds
        from pyiceberg.io.pyarrow import pyarrow_to_schema, schema_to_pyarrow
        from pyiceberg.schema import Schema
        from pyiceberg.transforms import IdentityTransform

        formats = {"PARQUET": ds.ParquetFileFormat, "ORC": ds.OrcFileFormat}
        metadata, wanted = self.scan.table_metadata, self.scan.projection()
        fields = [wanted.find_field(name) for name in names]
        later = {one.field_id for one in fields for schema in metadata.schemas if one.field_id not in schema.field_ids}
        for task in self.scan.plan_files():
            place = task.file.file_path
            if not all(is_below(one.file_path, metadata.location) for one in (task.file, *task.delete_files)):
                raise outside_error(where)
            with self.scan.io.new_input(place).open() as file:
                physical = formats[task.file.file_format.name]().make_fragment(file).physical_schema
            found = pyarrow_to_schema(physical, metadata.name_mapping(), downcast_ns_timestamp_to_us=True)
            # The log has the values of partitions that are columns without a transform.
            partitions = metadata.specs()[task.file.spec_id].fields
            logged = {one.source_id for one in partitions if isinstance(one.transform, IdentityTransform)}
            stored = [
                found.find_field(one.field_id).model_copy(update={"name": one.name})
                if one.field_id in found.field_ids
                else one
                for one in fields
                if one.field_id in found.field_ids | later | logged
            ]
            name = f"file {posixpath.basename(place)!r} of {where}"
            yield FileTypes(name, schema_to_pyarrow(Schema(*stored), include_field_ids=False))

    def batches(self, names: list[str]) -> Iterator[Any]:
        yield from self.scan.select(*names).to_arrow_batch_reader()


def is_below(place: str, folder: str) -> bool:
    """Return whether a path or address is below a folder; links on this machine are followed."""
    return normalize_place(place).startswith(normalize_place(folder).rstrip("/") + "/")


def normalize_place(address: str) -> str:
    """Return one spelling of a path or address: file:///a, file:/a and /a are the same, and so are s3a and s3."""
    scheme, mark, rest = address.partition(":")
    if not mark or not SCHEME.fullmatch(scheme + mark):
        return os.path.realpath(address)
    if scheme.lower() == "file":
        return os.path.realpath("/" + rest.lstrip("/"))
    scheme = re.sub(r"^s3[an]$", "s3", scheme.lower())
    return f"{scheme}://{posixpath.normpath(rest.lstrip('/'))}"


def outside_error(where: str) -> BadSource:
    """Return the error for a file that a log names outside of the table's folder."""
    return BadSource(
        f"The log of {where} names a file outside of the table's folder.",
        "Copy the table into one folder, for example by writing its rows to a new table.",
    )
