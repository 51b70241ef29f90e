"""What yields Arrow record batches when it is asked: LazyFrames, Datasets, Scanners, tables with a log, iterables.

Tables with a log (Delta Lake, Iceberg) are read by their own libraries.

Other libraries' objects are known by their classes' modules, so that none of them is imported here.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.types as pt

from dpunion.errors import BadParameter, BadSource, UnsupportedType, attempt, attempt_each
from dpunion.reading.columns import FileTypes, OnFraction, Wanted, find_column
from dpunion.reading.folders import shown
from dpunion.reading.spelling import Column, is_list, is_text
from dpunion.reading.table_rows import IcebergRows, delta_rows

ROWS_PER_BATCH = 1 << 17
TEXT_FORMATS = ("CsvFileFormat", "JsonFileFormat")
BATCHES = "With columns named, an iterable yields record batches of pyarrow, or frames; without, it yields pairs."


class Lazy(Protocol):
    """Rows that are not read yet."""

    def types(self, where: str) -> FileTypes:
        """Return the columns, without reading rows."""
        ...

    def files(self, where: str, names: list[str]) -> Iterable[FileTypes]:
        """Yield the named columns as each file has them; nothing where the files cannot be seen or are the whole."""
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
        """Check the wanted columns by the types of the whole and of each file."""
        whole = self._types()
        whole.check(wanted, columns)
        names = [whole.names[i] for i in whole.find(wanted)]
        named = Wanted(names[0], tuple(names[1:]), wanted.role)
        for types in attempt_each(lambda: self.lazy.files(self.where, names), self.where):
            types.check(named, columns)
            for name in names:
                refuse_other_lists(types.schema.field(name).type, whole.schema.field(name).type, types.where)

    def batches(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[tuple[Any, ...]]:
        """Yield the wanted columns of each record batch."""
        del on_fraction  # how much is to come is not known
        whole = self._types()
        chosen = [whole.names[i] for i in whole.find(wanted)]
        for batch in attempt_each(lambda: self.lazy.batches(chosen), self.where):
            found = FileTypes(self.where, batch.schema).names
            yield tuple(batch.column(find_column(found, name, self.where)) for name in chosen)

    def _types(self) -> FileTypes:
        return attempt(lambda: self.lazy.types(self.where), self.where)


def refuse_other_lists(own: Any, logged: Any, where: str) -> None:
    """Refuse lists where a log says single values, and the reverse: casts would write the brackets into the texts."""
    if not pt.is_null(own) and is_list(own) is not is_list(logged):
        raise UnsupportedType(
            f"Mixed types: a column of {where} has lists where its log has single values, or the reverse.",
            "Write the file again with the types of the log.",
        )


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
                    f"Element number {number} of {self.where} (counted from 0) is not a record batch but a "
                    f"{type(element).__name__}.",
                    BATCHES,
                )
            for batch in attempt_each(lambda element=element: batches_in(element), self.where):  # type: ignore[misc]
                yield tuple(batch.column(i) for i in FileTypes(self.where, batch.schema).find(wanted))


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


class WithoutFiles:
    """What is one file, or does not show its files."""

    def files(self, where: str, names: list[str]) -> tuple[FileTypes, ...]:
        """Return nothing."""
        del where, names
        return ()


class FragmentRows(WithoutFiles):
    """One file of a pyarrow Dataset, or the rows of one in memory (sensitive).

    Guarantees:
    - the file is read by its own types: Arrow would cast it to the types of the Dataset's first file;
    - a filter of the Dataset is kept.
    """

    def __init__(self, fragment: Any, schema: Any, options: Mapping[str, Any]) -> None:
        self.fragment = fragment
        self.schema = schema
        self.options = options

    def types(self, where: str) -> FileTypes:
        """Return the columns of the file and of its folders."""
        return FileTypes(where, self.fragment.physical_schema, self._told())

    def batches(self, names: list[str]) -> Iterator[Any]:
        """Scan some columns."""
        own = self.fragment.physical_schema
        types = pa.schema([*own, *(one for one in self._told() if one.name not in own.names)])
        yield from self.fragment.scanner(
            schema=types, columns=names, batch_size=ROWS_PER_BATCH, **self.options
        ).to_reader()

    def name(self, number: int) -> str:
        """Return what errors call it, without values of partitions, which are data; number: its place, from 1 on."""
        path = getattr(self.fragment, "path", None)
        if path is None or not all(f"{name}=" in path for name in self._told().names):
            return f"part {number}"
        return f"file {shown(PurePosixPath(path))!r}"

    def _told(self) -> Any:
        """Return the columns that the names of folders tell, with the types that Arrow gives them."""
        from pyarrow.dataset import get_partition_keys

        told = get_partition_keys(self.fragment.partition_expression)
        return pa.schema([self.schema.field(name) for name in told if name in self.schema.names])


def dataset_parts(dataset: Any, where: str) -> list[LazyPart]:
    """Return one part for each file of a pyarrow Dataset, so that each file is read by itself."""
    from pyarrow import dataset as ds

    refuse_inferred(dataset, where)
    # subtle: Arrow lists no fragments of a filtered Dataset, so take the filter off a copy, and put it on each scan.
    plain = dataset.replace_schema(dataset.schema)
    plain._scan_options, options = {}, dataset._scan_options  # noqa: SLF001 - there is no other way to see a filter
    fragments = list(plain.get_fragments()) or ds.dataset(dataset.schema.empty_table()).get_fragments()
    rows = [FragmentRows(fragment, dataset.schema, options) for fragment in fragments]
    return [LazyPart(one, f"{one.name(number)} of {where}") for number, one in enumerate(rows, 1)]


def refuse_inferred(dataset: Any, where: str) -> None:
    """Refuse text files in a Dataset: Arrow takes their types from the first rows, so that these change all others."""
    for one in getattr(dataset, "children", ()):
        refuse_inferred(one, where)
    if type(getattr(dataset, "format", None)).__name__ in TEXT_FORMATS:
        raise BadSource(
            f"There are CSV or JSON files in {where}, whose types Arrow infers from the first rows.",
            "Name the files themselves as the source: dpunion then reads them as text, whatever they contain.",
        )


class ScannerRows(WithoutFiles):
    """A pyarrow Scanner (sensitive).

    Guarantees: nothing is scanned before it is read. What it casts, types of several files included, cannot be seen.
    """

    def __init__(self, scanner: Any) -> None:
        self.scanner = scanner

    def types(self, where: str) -> FileTypes:
        """Return the columns that it yields."""
        return FileTypes(where, self.scanner.projected_schema)

    def batches(self, names: list[str]) -> Iterator[Any]:
        """Scan; which columns, the scanner knows already."""
        del names
        yield from self.scanner.to_reader()


class TypesGuessed(UserWarning):
    """A column has a type that was guessed from the names of all folders, so that one of them changes all others."""


class LazyFrameRows:
    """A polars LazyFrame (sensitive).

    Guarantees: it is not run before it is read, and for the wanted columns only.
    """

    def __init__(self, frame: Any) -> None:
        self.frame = frame

    def types(self, where: str) -> FileTypes:
        """Return the columns of its result, which polars knows before it runs."""
        return FileTypes(where, pa.RecordBatchReader.from_stream(self.frame.clear().collect()).schema)

    def files(self, where: str, names: list[str]) -> tuple[FileTypes, ...]:
        """Return nothing; warn of columns that stand in the names of folders and are no text."""
        schema, plan = self.types(where).schema, self.frame.explain(optimized=False)
        guessed = [name for name in names if f"/{name}=" in plan and not is_text(schema.field(name).type)]
        if guessed:
            warnings.warn(  # noqa: B028 - without stacklevel the warning has one place, so that Python shows it once
                f"Polars reads {' and '.join(map(repr, guessed))} from the names of folders. Unless you gave the types,"
                " it guessed them from all folders, and one person's folder can change how everybody's are read: give"
                f" hive_schema={{{guessed[0]!r}: pl.String}}, or name the folder itself as the source.",
                TypesGuessed,
            )
        return ()

    def batches(self, names: list[str]) -> Iterable[Any]:
        """Run it for some columns, in batches where polars is new enough to give them."""
        chosen = self.frame.select(names)
        streams = hasattr(chosen, "collect_batches")
        frames = chosen.collect_batches(chunk_size=ROWS_PER_BATCH) if streams else [chosen.collect()]
        return (batch for frame in frames for batch in pa.RecordBatchReader.from_stream(frame))


def lazy_parts(source: Any) -> list[LazyPart] | None:
    """Return the parts of an object of a library that yields record batches when asked, None for others."""
    kind = type(source)
    where, home = f"the {kind.__name__}", kind.__module__.split(".")[0]
    if home == "polars" and kind.__name__ == "LazyFrame":
        return [LazyPart(LazyFrameRows(source), where)]
    if home == "pyarrow" and hasattr(source, "get_fragments"):
        return attempt(lambda: dataset_parts(source, where), where)
    if home == "pyarrow" and hasattr(source, "projected_schema"):
        return [LazyPart(ScannerRows(source), where)]
    if home == "deltalake" and kind.__name__ == "DeltaTable":
        return [LazyPart(delta_rows(source), where)]
    if home == "pyiceberg" and hasattr(source, "scan"):
        return [LazyPart(IcebergRows(source.scan()), where)]
    if home == "pyiceberg" and hasattr(source, "to_arrow_batch_reader"):
        return [LazyPart(IcebergRows(source), where)]
    return None
