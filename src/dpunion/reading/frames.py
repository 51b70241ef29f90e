"""Frames and relations: anything that speaks the Arrow PyCapsule protocol (`__arrow_c_stream__`)."""

from __future__ import annotations

import datetime as dt
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dpunion.errors import UnsupportedType, attempt_each
from dpunion.reading.columns import FileTypes, OnFraction, Wanted, find_columns
from dpunion.reading.spelling import Column


class FramePart:
    """A pandas or polars frame, a pyarrow table or reader, a DuckDB relation, or the like.

    Guarantees:
    - only the wanted columns are looked at;
    - Python objects of several types in a column of pandas are refused: Arrow would infer one type for all of them;
    - a reader that can be read once is not touched by the early check.
    """

    def __init__(self, source: Any) -> None:
        self.source = source
        self.where = f"the {type(source).__name__}"
        self.size = 1

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        """Check the wanted columns by the schema, if it can be had without running a query or consuming rows."""
        schema = schema_of(self.source)
        if schema is not None:
            FileTypes(self.where, schema).check(wanted, columns)

    def batches(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[tuple[Any, ...]]:
        """Yield the wanted columns of each record batch."""
        wanted, frame = narrow_frame(self.source, wanted, self.where)
        reader = open_stream(frame)
        if reader is None:
            raise UnsupportedType(
                f"The columns of {self.where} cannot be converted to Arrow: probably one has mixed types.",
                "Give each column one type, for example by casting it to text.",
            )
        total, done = length_of(self.source), 0
        positions = FileTypes(self.where, reader.schema).find(wanted)
        for batch in attempt_each(lambda: reader, self.where):
            yield tuple(batch.column(i) for i in positions)
            done += batch.num_rows
            if total:
                on_fraction(min(done / total, 1.0))


def is_frame(source: object) -> bool:
    """Say whether a source speaks the Arrow PyCapsule protocol for streams."""
    return hasattr(source, "__arrow_c_stream__")


def is_pandas(source: object) -> bool:
    """Say whether a source is a pandas frame, without importing pandas."""
    kind = type(source)
    return kind.__module__.split(".")[0] == "pandas" and hasattr(source, "columns")


def narrow_frame(source: Any, wanted: Wanted, where: str) -> tuple[Wanted, Any]:
    """Leave out the other columns of a pandas frame: converting them could fail, and takes time."""
    if not is_pandas(source):
        return wanted, source
    positions = find_columns([str(name) for name in source.columns], wanted, where)
    for position in positions:
        column = source.iloc[:, position]
        values = column.cat.categories if str(column.dtype) == "category" else column
        if str(values.dtype) == "object":
            check_objects(functools.partial(iter, values), where)
    return Wanted(0, tuple(range(1, len(positions))), wanted.role), source.iloc[:, list(positions)]


def check_objects(values: Callable[[], Iterable[Any]], where: str) -> None:
    """Refuse Python objects of several types, lists by their elements.

    subtle: Arrow infers one type from all objects. With one date among numbers the numbers become dates.
    """
    kinds = {name for kind in set(map(type, values())) if (name := name_of(kind)) is not None}
    if "float" in kinds and all(value != value for value in values() if isinstance(value, float)):  # noqa: PLR0124 - NaN
        kinds.remove("float")
    if "timestamp" in kinds:
        # subtle: Arrow would make one zone of all, and take those without one for UTC.
        raise UnsupportedType(
            f"A column of {where} contains Python datetimes as objects.", "Convert it with pandas.to_datetime first."
        )
    if len(kinds) > 1:
        raise UnsupportedType(
            f"Mixed types: a column of {where} contains Python objects of several types.",
            "Give each column one type, for example by casting it to text.",
        )
    if kinds == {"list"}:
        check_objects(lambda: itertools.chain.from_iterable(v for v in values() if name_of(type(v)) == "list"), where)


def name_of(kind: type) -> str | None:
    """Return what Arrow takes a Python class for; None for what stands for a missing value."""
    if kind.__name__ in {"NoneType", "NAType", "NaTType"}:
        return None
    families: list[tuple[str, tuple[type, ...]]] = [
        ("boolean", (bool, np.bool_)),
        ("integer", (int, np.integer)),
        ("float", (float,)),
        ("text", (str,)),
        ("timestamp", (dt.datetime,)),
        ("date", (dt.date,)),
        ("list", (list, tuple, np.ndarray)),
    ]
    return next((name for name, classes in families if issubclass(kind, classes)), kind.__name__)


def open_stream(source: Any) -> Any:
    """Return a record batch reader, or None when the source cannot be turned into Arrow columns."""
    try:
        return pa.RecordBatchReader.from_stream(source)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - the message could quote values
        return None


def schema_of(source: Any) -> Any:
    """Return the Arrow schema if the source can tell it without running or consuming anything, or None."""
    schema = getattr(source, "schema", None)
    if isinstance(schema, pa.Schema):
        return schema
    for method in ("limit", "head"):
        try:
            # subtle: read to its end, or a database connection would stay busy.
            return pa.RecordBatchReader.from_stream(getattr(source, method)(0)).read_all().schema
        except Exception:  # noqa: BLE001, S112 - another library's object: the check is then left to the reading
            continue
    return None


def length_of(source: Any) -> int | None:
    """Return the number of rows if the source knows it."""
    # subtle: a relation's length or shape would run its query, so only frames in memory are asked.
    in_memory = type(source).__module__.split(".")[0] in {"pandas", "polars", "pyarrow"}
    return len(source) if in_memory and hasattr(source, "__len__") else None
