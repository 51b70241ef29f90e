"""Frames, and other objects that yield Arrow record batches.

    frames        pandas, polars, pyarrow, DuckDB: anything with `__arrow_c_stream__`
    lazy          polars LazyFrames, pyarrow Datasets and Scanners
    iterables     of record batches or of frames

Other libraries' objects are recognized by the modules of their classes, so that no library is imported here.
"""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from dpunion.errors import BadParameter, BadSource, UnsupportedType, attempt, attempt_each
from dpunion.reading.parts import FileTypes, OnFraction, SourcePart, SourceRequest, Wanted, find_column, find_columns
from dpunion.reading.spelling import Column, is_list, is_text
from dpunion.reading.storage import hide_values

ROWS_PER_BATCH = 1 << 17
TEXT_FORMATS = ("CsvFileFormat", "JsonFileFormat")
BATCHES = "With columns named, an iterable yields record batches of pyarrow, or frames; without, it yields pairs."
ONE_TYPE = "Give each column one type, for example by casting it to text."
FAMILIES: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("boolean", (bool, np.bool_)),
    ("integer", (int, np.integer)),
    ("float", (float,)),
    ("text", (str,)),
    ("timestamp", (dt.datetime,)),
    ("date", (dt.date,)),
    ("list", (list, tuple, np.ndarray)),
)
"""The types that Arrow infers for Python classes; the first match counts."""


def parts_of(request: SourceRequest) -> Sequence[SourcePart] | None:
    """Return the parts of a frame, of a lazy object or of an iterable of record batches."""
    source, kind = request.source, type(request.source)
    if request.paths is not None:
        return None
    where, package = f"the {kind.__name__}", kind.__module__.split(".")[0]
    if package == "polars" and kind.__name__ == "LazyFrame":
        return [LazyPart(LazyFrameRows(source), where)]
    if package == "pyarrow" and hasattr(source, "get_fragments"):
        return attempt(lambda: dataset_parts(source, where), where)
    if package == "pyarrow" and hasattr(source, "projected_schema"):
        return [LazyPart(ScannerRows(source), where)]
    if request.user is not None and yields_batches(source):
        return [BatchesPart(source, where)]
    return [FramePart(source, where)] if hasattr(source, "__arrow_c_stream__") else None


class ObjectPart(SourcePart):
    """A part of a source that is an object of another library."""

    def __init__(self, source: Any, where: str) -> None:
        super().__init__(where)
        self.source = source


class FramePart(ObjectPart):
    """A pandas or polars frame, a pyarrow table or reader, a DuckDB relation, or the like.

    Guarantees:
    - only the wanted columns are read;
    - Python objects of several types in a column of pandas are refused: Arrow would infer one type for all of them;
    - the early check does not consume a reader that can be read only once.
    """

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        """Check the wanted columns by the schema, if it is available without running a query or consuming rows."""
        schema = schema_of(self.source)
        if schema is not None:
            FileTypes(self.where, schema).check(wanted, columns)

    def batches(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[tuple[Any, ...]]:
        wanted, frame = narrow_frame(self.source, wanted, self.where)
        try:
            reader = pa.RecordBatchReader.from_stream(frame)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - the message could quote values
            reader = None
        if reader is None:
            raise UnsupportedType(
                f"The columns of {self.where} cannot be converted to Arrow: probably one has mixed types.", ONE_TYPE
            )
        # subtle: the length or shape of a relation would run its query, so only frames in memory are asked.
        in_memory = type(frame).__module__.split(".")[0] in {"pandas", "polars", "pyarrow"}
        total, done = len(frame) if in_memory and hasattr(frame, "__len__") else 0, 0
        positions = FileTypes(self.where, reader.schema).find(wanted)
        for batch in attempt_each(lambda: reader, self.where):
            yield tuple(batch.column(i) for i in positions)
            done += batch.num_rows
            if total:
                on_fraction(min(done / total, 1.0))


def narrow_frame(source: Any, wanted: Wanted, where: str) -> tuple[Wanted, Any]:
    """Return only the wanted columns of a pandas frame: converting the others could fail, and takes time."""
    if type(source).__module__.split(".")[0] != "pandas" or not hasattr(source, "columns"):
        return wanted, source
    positions = find_columns([str(name) for name in source.columns], wanted, where)
    for position in positions:
        column = source.iloc[:, position]
        values = column.cat.categories if str(column.dtype) == "category" else column
        if str(values.dtype) == "object":
            check_objects(functools.partial(iter, values), where)
    return Wanted(0, tuple(range(1, len(positions))), wanted.role), source.iloc[:, list(positions)]


def check_objects(values: Callable[[], Iterable[Any]], where: str) -> None:
    """Refuse Python objects of several types; check the elements of lists.

    subtle: Arrow infers one type from all objects. With one date among numbers, the numbers become dates.
    """
    kinds = {name for kind in set(map(type, values())) if (name := family_of(kind)) is not None}
    if "float" in kinds and all(value != value for value in values() if isinstance(value, float)):  # noqa: PLR0124 - NaN
        kinds.remove("float")
    if "timestamp" in kinds:
        # subtle: Arrow would convert all of them to one zone, and read those without a zone as UTC.
        raise UnsupportedType(
            f"A column of {where} contains Python datetimes as objects.", "Convert it with pandas.to_datetime first."
        )
    if len(kinds) > 1:
        raise UnsupportedType(f"Mixed types: a column of {where} contains Python objects of several types.", ONE_TYPE)
    if kinds == {"list"}:
        check_objects(lambda: itertools.chain.from_iterable(v for v in values() if family_of(type(v)) == "list"), where)


def family_of(kind: type) -> str | None:
    """Return the type that Arrow infers for a Python class; None for classes of missing values."""
    if kind.__name__ in {"NoneType", "NAType", "NaTType"}:
        return None
    return next((name for name, classes in FAMILIES if issubclass(kind, classes)), kind.__name__)


def schema_of(source: Any) -> Any:
    """Return the Arrow schema, or None when getting it would run or consume something."""
    schema = getattr(source, "schema", None)
    if isinstance(schema, pa.Schema):
        return schema
    for method in ("limit", "head"):
        try:
            # subtle: read to its end, or a database connection would stay busy.
            return pa.RecordBatchReader.from_stream(getattr(source, method)(0)).read_all().schema
        except Exception:  # noqa: BLE001, S112 - another library's object: reading it will check it
            continue
    return None


class BatchesPart(ObjectPart):
    """An iterable of record batches, or of frames.

    Guarantees:
    - nothing is taken from it before it is read, so nothing of a generator is lost;
    - columns are found by name in each batch; a batch that lacks a column is refused.
    """

    knows_types = False

    def batches(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[tuple[Any, ...]]:
        del on_fraction
        for number, element in enumerate(attempt_each(lambda: self.source, self.where)):
            if not is_batch(element):
                raise BadParameter(
                    f"Element number {number} of {self.where} (counted from 0) is not a record batch but a "
                    f"{type(element).__name__}.",
                    BATCHES,
                )
            is_one = isinstance(element, pa.RecordBatch)
            read = functools.partial(pa.RecordBatchReader.from_stream, element)
            for batch in [element] if is_one else attempt_each(read, self.where):
                yield tuple(batch.column(i) for i in FileTypes(self.where, batch.schema).find(wanted))


def is_batch(element: object) -> bool:
    """Return whether an element of an iterable contains Arrow columns."""
    return isinstance(element, pa.RecordBatch) or hasattr(element, "__arrow_c_stream__")


def yields_batches(source: Any) -> bool:
    """Return whether to read an iterable as record batches: an iterator, or a list of batches. It is not advanced."""
    if isinstance(source, (list, tuple)):
        return bool(source) and all(map(is_batch, source))
    return isinstance(source, Iterator)


class LazyRows(Protocol):
    """Rows that another library reads on demand."""

    def types(self, where: str) -> FileTypes:
        """Return the columns without reading rows."""

    def files(self, where: str, names: list[str]) -> Iterable[FileTypes]:  # noqa: ARG002 - for those that have files
        """Yield the named columns as each file has them; nothing if the files are unknown, or there is only one."""
        return ()

    def batches(self, names: list[str]) -> Iterable[Any]:
        """Return pa.RecordBatches that have at least the named columns."""


class LazyPart(ObjectPart):
    """A source that another library reads on demand.

    Guarantees:
    - only the wanted columns are requested;
    - the other library's error messages, which quote rows, are not repeated.
    """

    source: LazyRows

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        """Check the wanted columns by the types of the whole and of each file."""
        whole = self._types()
        whole.check(wanted, columns)
        names = [whole.names[i] for i in whole.find(wanted)]
        named = Wanted(names[0], tuple(names[1:]), wanted.role)
        for types in attempt_each(lambda: self.source.files(self.where, names), self.where):
            types.check(named, columns)
            for name in names:
                own, logged = types.schema.field(name).type, whole.schema.field(name).type
                # A cast would write the brackets of the list into the text.
                if not pt.is_null(own) and is_list(own) is not is_list(logged):
                    raise UnsupportedType(
                        f"Mixed types: a column of {types.where} has lists where its log has single values, or the "
                        "reverse.",
                        "Write the file again with the types of the log.",
                    )

    def batches(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[tuple[Any, ...]]:
        del on_fraction  # the number of rows is unknown
        whole = self._types()
        names = [whole.names[i] for i in whole.find(wanted)]
        for batch in attempt_each(lambda: self.source.batches(names), self.where):
            found = FileTypes(self.where, batch.schema).names
            yield tuple(batch.column(find_column(found, name, self.where)) for name in names)

    def _types(self) -> FileTypes:
        return attempt(lambda: self.source.types(self.where), self.where)


class FragmentRows(LazyRows):
    """One file of a pyarrow Dataset, or its rows in memory (sensitive).

    Guarantees:
    - the file is read by its own types: Arrow would cast it to the types of the Dataset's first file;
    - a filter of the Dataset applies.
    """

    def __init__(self, fragment: Any, schema: Any, options: Mapping[str, Any]) -> None:
        from pyarrow.dataset import get_partition_keys

        self.fragment = fragment
        self.options = options
        keys = get_partition_keys(fragment.partition_expression)
        self.folders = pa.schema([schema.field(name) for name in keys if name in schema.names])

    def types(self, where: str) -> FileTypes:
        return FileTypes(where, self.fragment.physical_schema, self.folders)

    def batches(self, names: list[str]) -> Iterator[Any]:
        own = self.fragment.physical_schema
        types = pa.schema([*own, *(one for one in self.folders if one.name not in own.names)])
        scanner = self.fragment.scanner(schema=types, columns=names, batch_size=ROWS_PER_BATCH, **self.options)
        yield from scanner.to_reader()

    def name(self, number: int) -> str:
        """Return what errors call it, without values of partitions, which are data; number: its place, from 1."""
        path = getattr(self.fragment, "path", None)
        if path is None or not all(f"{name}=" in path for name in self.folders.names):
            return f"part {number}"
        return f"file {hide_values(PurePosixPath(path))!r}"


def dataset_parts(dataset: Any, where: str) -> list[SourcePart]:
    """Return one part for each file of a pyarrow Dataset, so that each file is read by its own types."""
    from pyarrow import dataset as ds

    refuse_text_files(dataset, where)
    # subtle: Arrow lists no fragments of a filtered Dataset, so take the filter off a copy, and put it on each scan.
    plain = dataset.replace_schema(dataset.schema)
    plain._scan_options, options = {}, dataset._scan_options  # noqa: SLF001 - there is no other way to see a filter
    fragments = list(plain.get_fragments()) or ds.dataset(dataset.schema.empty_table()).get_fragments()
    rows = [FragmentRows(fragment, dataset.schema, options) for fragment in fragments]
    return [LazyPart(one, f"{one.name(number)} of {where}") for number, one in enumerate(rows, 1)]


def refuse_text_files(dataset: Any, where: str) -> None:
    """Refuse text files in a Dataset: Arrow infers their types from the first rows, which would change all others."""
    for one in getattr(dataset, "children", ()):
        refuse_text_files(one, where)
    if type(getattr(dataset, "format", None)).__name__ in TEXT_FORMATS:
        raise BadSource(
            f"There are CSV or JSON files in {where}, whose types Arrow infers from the first rows.",
            "Name the files themselves as the source: dpunion then reads them as text, whatever they contain.",
        )


class ScannerRows(LazyRows):
    """A pyarrow Scanner (sensitive), whose casts dpunion cannot see. Guarantees: it is not run before it is read."""

    def __init__(self, scanner: Any) -> None:
        self.scanner = scanner

    def types(self, where: str) -> FileTypes:
        return FileTypes(where, self.scanner.projected_schema)

    def batches(self, names: list[str]) -> Iterator[Any]:
        del names  # it scans the columns that it was made for
        yield from self.scanner.to_reader()


class TypesGuessed(UserWarning):
    """The type of a column was guessed from the names of all folders, so one folder can change all values."""


class LazyFrameRows(LazyRows):
    """A polars LazyFrame (sensitive). Guarantees: it is not run before it is read, and only for the wanted columns."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame

    def types(self, where: str) -> FileTypes:
        """Return the columns of its result, which polars knows before it runs."""
        return FileTypes(where, pa.RecordBatchReader.from_stream(self.frame.clear().collect()).schema)

    def files(self, where: str, names: list[str]) -> tuple[FileTypes, ...]:
        """Return nothing; warn of columns that come from the names of folders and are not text."""
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
        """Run it for some columns, in batches if this polars supports them."""
        selected = self.frame.select(names)
        streams = hasattr(selected, "collect_batches")
        frames = selected.collect_batches(chunk_size=ROWS_PER_BATCH) if streams else [selected.collect()]
        return (batch for frame in frames for batch in pa.RecordBatchReader.from_stream(frame))
