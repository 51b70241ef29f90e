"""Tables whose own log says which files and rows count: Delta Lake, Apache Hudi, Apache Iceberg.

The Parquet files of such a table also hold rows that were deleted from it or replaced. Reading them as plain files
would bring back people who were erased, so they are refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from dpunion.errors import BadSource
from dpunion.reading.folders import entries, shown
from dpunion.reading.stores import ObjectStore

DELTA, HUDI, ICEBERG = "Delta Lake", "Hudi", "Iceberg"
# What reads the rows that count.
REMEDIES = {
    DELTA: (
        "Install deltalake (pip install 'dpunion[delta]') and name the folder of the table itself, or in Python pass"
        " DeltaTable(path); or pass spark.read.format('delta').load(path)."
    ),
    HUDI: "Pass the DataFrame spark.read.format('hudi').load(path) as the source, or export the valid rows.",
    ICEBERG: (
        "Install pyiceberg (pip install 'dpunion[iceberg]') and name the table as iceberg://catalog/space.table, or"
        " its newest metadata file, or in Python pass catalog.load_table(name); or pass spark.table(name)."
    ),
}
MARKS = {"_delta_log": DELTA, ".hoodie": HUDI, ".hoodie_partition_metadata": HUDI}
ICEBERG_FOLDER = "metadata"
ICEBERG_ENDS = (".metadata.json", ".metadata.json.gz", ".avro")


def refuse_tables(files: Iterable[Path]) -> None:
    """Refuse files that belong to a table with a log: it may lie in any folder above them, links followed or not."""
    seen: set[Path] = set()
    for folder in dict.fromkeys(folder for path in files for folder in folders_of(path)):
        for above in (folder, *folder.parents):
            if above in seen:
                break  # with all that is above it
            seen.add(above)
            kind = table_kind(above)
            if kind is not None:
                raise table_refusal(shown(above), kind)


def table_refusal(folder: str, kind: str) -> BadSource:
    """Return the error for files that belong to a table."""
    return BadSource(
        f"Folder {folder!r} is a table of {kind}: its log says which rows are valid, and its Parquet files also "
        "contain deleted rows.",
        REMEDIES[kind],
    )


def folders_of(path: Path) -> Iterator[Path]:
    """Yield the folder a file is named in, and the folder it is really in."""
    yield Path(os.path.abspath(path)).parent  # noqa: PTH100 - resolve() would follow links
    yield Path(os.path.realpath(path.parent))
    if os.path.islink(path):  # noqa: PTH114 - the method raises where the folder may not be entered
        yield Path(os.path.realpath(path)).parent


def table_kind(folder: Path) -> str | None:
    """Return what kind of table a folder is the root (or, of Hudi, a partition) of."""
    kind = next((kind for mark, kind in MARKS.items() if os.path.lexists(folder / mark)), None)
    return ICEBERG if kind is None and is_iceberg(folder / ICEBERG_FOLDER) else kind


def is_iceberg(metadata: Path) -> bool:
    """Say whether a folder holds the metadata of an Iceberg table; refuse one that cannot be read to tell."""
    return any(entry.name.endswith(ICEBERG_ENDS) for entry in entries(metadata))


def stored_kind(store: ObjectStore, folder: PurePosixPath) -> str | None:
    """Return what kind of table a folder of an object store is the root of."""
    kind = next((kind for mark, kind in MARKS.items() if store.exists(folder / mark)), None)
    if kind is None and any(path.name.endswith(ICEBERG_ENDS) for path in store.listed(folder / ICEBERG_FOLDER)):
        return ICEBERG
    return kind


def refuse_stored_tables(store: ObjectStore, files: Sequence[PurePosixPath]) -> None:
    """Refuse files of an object store that belong to a table with a log, in any folder above them."""
    for above in dict.fromkeys(folder for path in files for folder in path.parents if folder.name):
        kind = stored_kind(store, above)
        if kind is not None:
            raise table_refusal(store.shown(above), kind)
