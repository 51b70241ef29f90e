"""Tables whose own log says which files and rows count: Delta Lake, Apache Hudi, Apache Iceberg.

The Parquet files of such a table also hold rows that were deleted from it or replaced. Reading them as plain files
would bring back people who were erased, so they are refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from dpunion.errors import BadSource
from dpunion.reading.folders import entries, shown

# What reads the rows that count.
REMEDIES = {
    "Delta Lake": (
        "In Python pass deltalake.DeltaTable(path).to_pyarrow_table() as the source; or export the rows that count with"
        " DuckDB, copy (from delta_scan('path')) to 'rows.parquet'; or pass spark.read.format('delta').load(path)."
    ),
    "Hudi": "Pass the DataFrame spark.read.format('hudi').load(path) as the source, or export the rows that count.",
    "Iceberg": (
        "In Python pass the table's scan().to_arrow() of pyiceberg as the source; or export the rows that count with"
        " DuckDB, copy (from iceberg_scan('path')) to 'rows.parquet'; or pass spark.table(name)."
    ),
}
MARKS = {"_delta_log": "Delta Lake", ".hoodie": "Hudi", ".hoodie_partition_metadata": "Hudi"}
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
                raise BadSource(
                    f"Folder {shown(above)!r} is a table of {kind}: its log says which rows"
                    " count, and its Parquet files hold deleted ones too.",
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
    return "Iceberg" if kind is None and is_iceberg(folder / ICEBERG_FOLDER) else kind


def is_iceberg(metadata: Path) -> bool:
    """Say whether a folder holds the metadata of an Iceberg table; refuse one that cannot be read to tell."""
    return any(entry.name.endswith(ICEBERG_ENDS) for entry in entries(metadata))
