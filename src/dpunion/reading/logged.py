"""Tables with a log, by name: the folder of a Delta table, an Iceberg table by its catalog, metadata file or folder.

    events/                              a folder with _delta_log, by the deltalake package
    iceberg://catalog/space.table        a table of a catalog that pyiceberg is configured for
    events/metadata/v3.metadata.json     an Iceberg table as this file tells it
    events/                              the same, when metadata/version-hint.text says which file is the newest

Only the folder of the table itself is taken: what lies below it or matches a pattern is refused by `tables`.
"""

from __future__ import annotations

import importlib.util
import os
import posixpath
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from dpunion.addresses import ICEBERG as ICEBERG_SCHEME
from dpunion.addresses import Address, public_address
from dpunion.errors import BadParameter, BadSource, DpunionError, ForeignErrors
from dpunion.reading.folders import is_directory, shown, status
from dpunion.reading.lazy import LazyPart
from dpunion.reading.stores import is_stored, open_store
from dpunion.reading.table_rows import IcebergRows, delta_rows, outside, plain_place
from dpunion.reading.tables import DELTA, ICEBERG, ICEBERG_FOLDER, REMEDIES, stored_kind, table_kind

METADATA_ENDS = (".metadata.json", ".metadata.json.gz")
HINT = "version-hint.text"


def table_part(source: str | os.PathLike[str]) -> LazyPart | None:
    """Return the part for a table with a log that a name means, at its current snapshot; None for all else.

    Guarantees: rows that were deleted from the table are not read; a table that its library cannot read is refused.
    """
    name = os.fspath(source)
    address = Address.of(name)
    if address.scheme == ICEBERG_SCHEME:
        return catalog_part(name, address)
    if name.endswith(METADATA_ENDS):
        return iceberg_part(name, lambda: static_table(name))
    kind = root_kind(name)
    if kind == DELTA and importlib.util.find_spec("deltalake") is not None:
        return opened(
            DELTA, name, lambda: LazyPart(delta_rows(delta_table(name)), f"Delta table {public_name(name)!r}")
        )
    if kind == ICEBERG and importlib.util.find_spec("pyiceberg") is not None and has_hint(name):
        return iceberg_part(name, lambda: static_table(name))
    return None


def root_kind(name: str) -> str | None:
    """Return what kind of table a name is the folder of, if it is."""
    if is_stored(name):
        store = open_store(name)
        return stored_kind(store, store.root)
    path = Path(name).expanduser()
    return table_kind(path) if name and is_directory(status(path)) else None


def has_hint(name: str) -> bool:
    """Say whether a local folder tells which of its metadata is the newest: without that, only a catalog knows."""
    return not is_stored(name) and (Path(name).expanduser() / ICEBERG_FOLDER / HINT).is_file()


def catalog_part(name: str, address: Address) -> LazyPart:
    """Return the part for iceberg://catalog/space.table."""

    def load() -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog((address.place or "").removeprefix("//")).load_table(address.path[1:])

    return iceberg_part(name, load)


def iceberg_part(name: str, load: Callable[[], Any]) -> LazyPart:
    """Return the part for an Iceberg table at its current snapshot."""
    return opened(ICEBERG, name, lambda: LazyPart(IcebergRows(load().scan()), f"Iceberg table {public_name(name)!r}"))


def static_table(name: str) -> Any:
    """Return an Iceberg table as a metadata file, or the newest of its folder, tells it."""
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(name if is_stored(name) else str(Path(name).expanduser().absolute()))
    # subtle: a table may say that it is somewhere else, and so name files that are none of it.
    folder = posixpath.dirname(posixpath.dirname(table.metadata_location))
    if plain_place(folder) != plain_place(table.location()):
        raise outside(f"Iceberg table {public_name(name)!r}")
    return table


def delta_table(name: str) -> Any:
    """Return a Delta table at its newest version; for object stores the settings are those of the environment."""
    from deltalake import DeltaTable

    return DeltaTable(name if is_stored(name) else str(Path(name).expanduser().absolute()))


def opened(kind: str, name: str, load: Callable[[], LazyPart]) -> LazyPart:
    """Return what `load` returns; what the library raises becomes an error of ours that quotes nothing of it."""

    def explain(failure: Exception) -> DpunionError:
        if isinstance(failure, ImportError):
            return BadParameter(f"A table of {kind} needs a package that is not installed.", REMEDIES[kind])
        return BadSource(
            f"{public_name(name)!r} is a table of {kind} that cannot be opened ({type(failure).__name__}).",
            f"Check its log and permissions. {REMEDIES[kind]}",
        )

    with ForeignErrors(explain):
        return load()


def public_name(name: str) -> str:
    """Return a table's name for errors: values of partitions, which are data, are left out."""
    scheme, mark, path = public_address(name).rpartition("://")
    return scheme + mark + shown(PurePosixPath(path) if mark else Path(path))
