"""Text files on Spark: whole files go to the workers, and dpunion's own strict readers read them there.

Spark's readers of CSV and JSON match columns by position, infer types from everybody's rows, let one lost quote swallow
other people's rows, replace bad bytes and print what they refuse. None of them is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dpunion.engines.spark.failures import cleanly
from dpunion.engines.spark.frames import input_files
from dpunion.engines.spark.tasks import Batches, guarded
from dpunion.errors import BadSource, DamagedSource
from dpunion.reading.cleaning import Cleaner, NullUserPolicy, ValueKind
from dpunion.reading.columns import SourcePart, Wanted
from dpunion.reading.delimited import DelimitedPart
from dpunion.reading.folders import shown
from dpunion.reading.jsonlines import JsonLinesPart
from dpunion.reading.locate import COMPRESSIONS, Compression, Format
from dpunion.reading.spelling import Column, TextKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LARGEST_FILE = 512 << 20
"""A larger text file is refused: it has to fit into the memory of one task, compressed as it is."""

TO_PARQUET = (
    "Convert it to Parquet, for example: duckdb -c \"copy (from read_csv('posts.csv', all_varchar=true))"
    " to 'posts.parquet'\"."
)


@dataclass(frozen=True, slots=True)
class WantedRows:
    """Which columns are read, and as what (public)."""

    user: str
    values: tuple[str, ...]
    kind: ValueKind
    null_users: NullUserPolicy

    @property
    def names(self) -> tuple[str, ...]:
        """All columns, the user's first."""
        return self.user, *self.values

    def cleaner(self) -> Cleaner:
        """Return what cleans the rows of one file, as on one machine."""
        return Cleaner(self.user, self.values[0] if len(self.values) == 1 else self.values, self.kind, self.null_users)

    def wanted(self) -> Wanted:
        """Return the columns as the readers of files know them."""
        return Wanted(self.user, self.values, self.cleaner().values.role)


@dataclass(frozen=True, slots=True, repr=False)
class FileInWorker:
    """A whole text file in the memory of a task (sensitive)."""

    where: str
    format: Format
    compression: Compression
    content: Any

    @property
    def size(self) -> int:
        """The number of bytes."""
        return int(self.content.size)

    def peek(self) -> Any:
        """Open for looking at the beginning."""
        return pa.BufferReader(self.content)

    def open(self) -> Any:
        """Open for reading it all."""
        return pa.BufferReader(self.content)

    @property
    def part(self) -> SourcePart:
        """The reader of the file, the one of one machine."""
        if self.format is Format.JSON_LINES:
            return JsonLinesPart(self, self.where, self.size)
        return DelimitedPart(self, self.where, self.size)


@dataclass(frozen=True)
class ReadFiles:
    """(path, content) of text files -> rows of text columns: the user, then the value or the parts of the key.

    Guarantees:
    - what is read of a file depends on this file alone, and is what one machine reads of it;
    - a file that one machine refuses is refused.
    """

    format: Format
    rows: WantedRows

    def __call__(self, batches: Batches) -> Batches:
        """Run the task."""
        for file in files_in(batches, self.format):
            yield from read_file(file, self.rows.wanted(), self.rows.cleaner())


@dataclass(frozen=True)
class LookAtFiles:
    """(path, content) of text files -> (kinds,): of what kind the columns of each file are, null where all is null.

    Guarantees: a kind is text, integer, date or boolean, and depends on its file alone.
    """

    format: Format
    rows: WantedRows

    def __call__(self, batches: Batches) -> Batches:
        """Run the task."""
        for file in files_in(batches, self.format):
            cleaner = self.rows.cleaner()
            for _ in read_file(file, self.rows.wanted(), cleaner):
                if all(column.kind is not None for column in cleaner.columns):
                    break
            kinds = [None if column.kind is None else column.kind.value for column in cleaner.columns]
            yield pa.record_batch({"kinds": pa.array([kinds], pa.list_(pa.string()))})


def files_in(batches: Batches, format_: Format) -> Iterator[FileInWorker]:
    """Yield the files of a task, one after the other."""
    for batch in batches:
        paths = batch.column("path").to_pylist()
        for place, text in enumerate(paths):
            path = Path(text)
            # subtle: folders like user=somebody are data, and this name gets into errors.
            where = f"file {shown(path)!r}"
            compression = COMPRESSIONS.get(path.suffix.lower(), Compression.NONE)
            yield FileInWorker(where, format_, compression, batch.column("content")[place].as_buffer())


def read_file(file: FileInWorker, wanted: Wanted, cleaner: Cleaner) -> Batches:
    """Yield the wanted columns of a file as text, numbered; lists are flattened, rows without an item left out.

    Guarantees: those of the readers of one machine, and of `Cleaner`; the parts of a key are cleaned later, together.
    """
    part = file.part
    part.check(wanted, cleaner.columns)
    for users, *values in part.batches(wanted, lambda _: None):
        if len(values) > 1:
            columns = zip(cleaner.columns, (users, *values), strict=True)
            yield _numbered(*(column.text(array, file.where) for column, array in columns))
            continue
        for rows in cleaner.clean(users, values[0], file.where):
            yield _numbered(rows.users, rows.values)


def _numbered(*texts: Any) -> pa.RecordBatch:
    return pa.record_batch({f"column{place}": one.cast(pa.string()) for place, one in enumerate(texts)})


def whole_files(session: SparkSession, names: list[str]) -> DataFrame:
    """Return the files below these names as Spark knows them: (path, modificationTime, length, content)."""
    reader = session.read.format("binaryFile").option("recursiveFileLookup", True)
    return cleanly(lambda: reader.option("ignoreCorruptFiles", False).option("ignoreMissingFiles", False).load(names))


def read_text_files(files: DataFrame, format_: Format, rows: WantedRows) -> DataFrame:
    """Return the rows of text files, all columns text."""
    schema = ", ".join(f"column{place} string" for place in range(len(rows.names)))
    task = guarded(ReadFiles(format_, rows))
    return cleanly(lambda: files.select("path", "content").mapInArrow(task, schema).toDF(*rows.names))


def check_sizes(groups: list[tuple[DataFrame, Format]]) -> int:
    """Return the number of files; refuse one that is too large for a task, and one that is too small for a header.

    subtle: Spark lists files of 0 bytes, but no task gets to see them.
    """
    from pyspark.sql import functions as F  # noqa: N812

    total = 0
    for files, format_ in groups:
        asked = files.select("path", "length").agg(F.count("length"), F.max("length"), F.count_distinct("path"))
        count, largest, different = cleanly(asked.collect)[0]
        if different < len(input_files(files)) and format_ is not Format.JSON_LINES:
            raise DamagedSource(
                "A text file has 0 bytes, and so no header line.",
                "Write the column names as its first line, or remove it.",
            )
        if (largest or 0) > LARGEST_FILE:
            raise BadSource(
                f"A text file has more than {LARGEST_FILE >> 20} MiB, the most that Spark reads in one task.",
                f"Split it, each part with the header. {TO_PARQUET}",
            )
        total += count
    return total


def check_kinds(groups: list[tuple[DataFrame, Format]], rows: WantedRows) -> None:
    """Refuse files whose columns are of different kinds, numbers here and texts there, as one machine does."""
    columns: tuple[Column, ...] = rows.cleaner().columns
    for files, format_ in groups:
        task = guarded(LookAtFiles(format_, rows))
        found = files.select("path", "content").mapInArrow(task, "kinds array<string>").distinct()
        for (kinds,) in sorted(cleanly(found.collect), key=repr):
            for column, kind in zip(columns, kinds, strict=True):
                column.see(None if kind is None else TextKind(kind), "one of the files")
