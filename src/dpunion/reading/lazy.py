"""What yields Arrow record batches when it is asked: LazyFrames, Datasets, Scanners, tables with a log, iterables.

Tables with a log (Delta Lake, Iceberg) are read by their own libraries.

Other libraries' objects are known by their classes' modules, so that none of them is imported here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from dpunion.errors import BadParameter, BadSource
from dpunion.reading.columns import OnFraction, Wanted, expect_types, find_column, find_columns, schema_names
from dpunion.reading.guard import attempt, attempt_each
from dpunion.reading.spelling import Column

ROWS_PER_BATCH = 1 << 17
TEXT_FORMATS = ("CsvFileFormat", "JsonFileFormat")
BATCHES = "With columns named, an iterable yields record batches of pyarrow, or frames; without, it yields pairs."


class Lazy(Protocol):
    """Rows that are not read yet."""

    def schema(self) -> Any:
        """Return the pa.Schema, without looking at rows."""
        ...

    def batches(self, names: list[str]) -> Iterable[Any]:
        """Return pa.RecordBatches that have at least the named columns."""
        ...


class LazyPart:
    """A source that yields record batches when it is asked, for the wanted columns only.

    Guarantees:
    - only the wanted columns are asked for;
    - what the other library says when it fails is not repeated: its messages quote rows.
    """

    def __init__(self, lazy: Lazy, where: str) -> None:
        self.lazy = lazy
        self.where = where
        self.size = 1

    def __repr__(self) -> str:
        return f"LazyPart({self.where})"

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        """Check the wanted columns by the schema."""
        expect_types(attempt(self.lazy.schema, self.where), wanted, columns, self.where)

    def batches(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[tuple[Any, ...]]:
        """Yield the wanted columns of each record batch."""
        del on_fraction  # how much is to come is not known
        names = schema_names(attempt(self.lazy.schema, self.where), self.where)
        chosen = [names[i] for i in find_columns(names, wanted, self.where)]
        for batch in attempt_each(lambda: self.lazy.batches(chosen), self.where):
            found = schema_names(batch.schema, self.where)
            yield tuple(batch.column(find_column(found, name, self.where)) for name in chosen)


class BatchesPart:
    """An iterable of record batches, or of frames.

    Guarantees:
    - nothing is taken from it before it is read, so that of a generator nothing is lost;
    - columns are found by name in each batch; one that lacks a column is refused.
    """

    needs_rows = True

    def __init__(self, source: Iterable[Any]) -> None:
        self.source = source
        self.where = f"the {type(source).__name__}"
        self.size = 1

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        """Nothing is known before the batches are read."""

    def batches(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[tuple[Any, ...]]:
        """Yield the wanted columns of each record batch."""
        del on_fraction
        for number, element in enumerate(attempt_each(lambda: self.source, self.where)):
            if not is_batch(element):
                raise BadParameter(
                    f"Element number {number} of {self.where} (counted from 0) is no record batch but a"
                    f" {type(element).__name__}.",
                    BATCHES,
                )
            for batch in attempt_each(lambda element=element: batches_in(element), self.where):  # type: ignore[misc]
                positions = find_columns(schema_names(batch.schema, self.where), wanted, self.where)
                yield tuple(batch.column(i) for i in positions)


def is_batch(element: object) -> bool:
    """Say whether an element of an iterable holds Arrow columns."""
    return isinstance(element, pa.RecordBatch) or hasattr(element, "__arrow_c_stream__")


def batches_in(element: Any) -> Iterable[Any]:
    """Return the record batches of one element."""
    return [element] if isinstance(element, pa.RecordBatch) else pa.RecordBatchReader.from_stream(element)


def yields_batches(source: Any, user: object) -> bool:
    """Say whether an iterable is to be read as record batches: its columns are named, and what can be seen is such.

    Nothing is taken from it for that.
    """
    if user is None or isinstance(source, (str, bytes, Mapping)) or not isinstance(source, Iterable):
        return False
    return isinstance(source, Iterator) or (
        isinstance(source, (list, tuple)) and bool(source) and all(map(is_batch, source))
    )


class DatasetRows:
    """A pyarrow Dataset (sensitive).

    Guarantees: one of CSV or JSON files, whose types rows decide, is refused.
    """

    def __init__(self, dataset: Any, where: str) -> None:
        refuse_inferred(dataset, where)
        self.dataset = dataset

    def schema(self) -> Any:
        """Return its schema."""
        return self.dataset.schema

    def batches(self, names: list[str]) -> Iterator[Any]:
        """Scan some columns."""
        yield from self.dataset.scanner(columns=names, batch_size=ROWS_PER_BATCH).to_reader()


def refuse_inferred(dataset: Any, where: str) -> None:
    """Refuse text files in a Dataset: Arrow takes their types from the first rows, so that these change all others."""
    for one in getattr(dataset, "children", ()):
        refuse_inferred(one, where)
    if type(getattr(dataset, "format", None)).__name__ in TEXT_FORMATS:
        raise BadSource(
            f"There are CSV or JSON files in {where}, whose types Arrow infers from the first rows.",
            "Name the files themselves as the source: they are then read as text, whatever stands in them.",
        )


class ScannerRows:
    """A pyarrow Scanner (sensitive).

    Guarantees: nothing is scanned before it is read.
    """

    def __init__(self, scanner: Any) -> None:
        self.scanner = scanner

    def schema(self) -> Any:
        """Return the schema of what it yields."""
        return self.scanner.projected_schema

    def batches(self, names: list[str]) -> Iterator[Any]:
        """Scan; which columns, the scanner knows already."""
        del names
        yield from self.scanner.to_reader()


class LazyFrameRows:
    """A polars LazyFrame (sensitive).

    Guarantees: it is not run before it is read, and for the wanted columns only.
    """

    def __init__(self, frame: Any) -> None:
        self.frame = frame

    def schema(self) -> Any:
        """Return the schema of its result, which polars knows before it runs."""
        return pa.RecordBatchReader.from_stream(self.frame.clear().collect()).schema

    def batches(self, names: list[str]) -> Iterable[Any]:
        """Run it for some columns, in batches where polars is new enough to give them."""
        chosen = self.frame.select(names)
        streams = hasattr(chosen, "collect_batches")
        frames = chosen.collect_batches(chunk_size=ROWS_PER_BATCH) if streams else [chosen.collect()]
        return (batch for frame in frames for batch in pa.RecordBatchReader.from_stream(frame))


class DeltaRows:
    """A Delta table at one version (sensitive).

    Guarantees: rows that were deleted are left out, by deletion vectors too; what deltalake cannot apply makes it fail.
    """

    def __init__(self, table: Any) -> None:
        self.table = table

    def schema(self) -> Any:
        """Return the table's schema, by its log."""
        return pa.schema(self.table.schema().to_arrow())

    def batches(self, names: list[str]) -> Iterator[Any]:
        """Scan some columns."""
        yield from pa.RecordBatchReader.from_stream(self.table.scan(columns=names))


class IcebergRows:
    """A scan of an Iceberg table at one snapshot (sensitive).

    Guarantees: rows that were deleted are left out; deletions that pyiceberg cannot apply make it fail.
    """

    def __init__(self, scan: Any) -> None:
        self.scan = scan

    def schema(self) -> Any:
        """Return the schema of what is scanned."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        return schema_to_pyarrow(self.scan.projection(), include_field_ids=False)

    def batches(self, names: list[str]) -> Iterator[Any]:
        """Scan some columns."""
        yield from self.scan.select(*names).to_arrow_batch_reader()


def lazy_part(source: Any) -> LazyPart | None:
    """Return the part for an object of a library that yields record batches when asked, None for others."""
    kind = type(source)
    where, home = f"the {kind.__name__}", kind.__module__.split(".")[0]
    if home == "polars" and kind.__name__ == "LazyFrame":
        return LazyPart(LazyFrameRows(source), where)
    if home == "pyarrow" and hasattr(source, "get_fragments"):
        return LazyPart(DatasetRows(source, where), where)
    if home == "pyarrow" and hasattr(source, "projected_schema"):
        return LazyPart(ScannerRows(source), where)
    if home == "deltalake" and kind.__name__ == "DeltaTable":
        return delta_part(source, where)
    if home == "pyiceberg" and hasattr(source, "scan"):
        return LazyPart(IcebergRows(source.scan()), where)
    if home == "pyiceberg" and hasattr(source, "to_arrow_batch_reader"):
        return LazyPart(IcebergRows(source), where)
    return None


def delta_part(table: Any, where: str) -> LazyPart:
    """Return the part for a deltalake.DeltaTable at the version that it has loaded."""
    if not hasattr(table, "scan"):
        raise BadParameter("This deltalake is too old to be read from.", "Update it: pip install 'dpunion[delta]'.")
    return LazyPart(DeltaRows(table), where)
