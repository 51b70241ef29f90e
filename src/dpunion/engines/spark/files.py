"""Text files on Spark: CSV, TSV and JSON Lines, read in the workers by dpunion's own strict readers.

Whole files go to the workers, one per task. Spark cuts large JSON Lines files into parts, at line ends.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dpunion.engines.spark import sources
from dpunion.engines.spark.sessions import Batches, Task, call_spark, guard_task
from dpunion.engines.spark.sources import OpenedFrame, exact_path, names_in, whole_files
from dpunion.errors import BadSource, DamagedSource, UnknownColumn, UnsupportedType
from dpunion.reading import SourceRequest
from dpunion.reading.blocks import LONG_ROW, LONGEST_ROW, Block, check_text
from dpunion.reading.cleaning import Cleaner
from dpunion.reading.delimited import DelimitedPart
from dpunion.reading.jsonlines import UNKNOWN, JsonLinesPart, Learner, key_names, parse_lines
from dpunion.reading.locate import COMPRESSIONS
from dpunion.reading.parts import SourcePart, Wanted
from dpunion.reading.spelling import TextKind, is_list
from dpunion.reading.storage import Compression, Format, InputFile, hide_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LARGEST_FILE = 512 << 20  # one task has a whole text file in memory, compressed as it is
LARGEST_WHOLE = 64 << 20  # JSON Lines files above this are cut, unless they are compressed
A_PART = "a part of a large JSON Lines file"
FOUND_IN_FILES = "file long, kinds array<string>, lists array<boolean>, has array<boolean>"


# --- the driver -------------------------------------------------------------------------------------------------


def open_text_files(session: SparkSession, formats: dict[str, str], rows: SourceRequest) -> OpenedFrame:
    """Open text files of one or several formats: name -> format."""
    for name, format_ in formats.items():
        sources.list_files(session, name, format_)
    groups = [
        (whole_files(session, [name for name, one in formats.items() if one == format_]), sources.TEXT_FORMATS[format_])
        for format_ in sorted(set(formats.values()))
    ]
    large: list[str] = []
    sizes: dict[str, int] = {}
    for place, (files, kind) in enumerate(groups):
        found = dict(zip(*call_spark(files.select("path", "length").toArrow).to_pydict().values(), strict=True))
        if kind is Format.JSON_LINES:
            paths = [path for path, size in found.items() if size > LARGEST_WHOLE]
            packed = [path for path in paths if Path(path).suffix.lower() in COMPRESSIONS]
            large = [path for path in paths if path not in packed]
            # subtle: Spark opens only files of this length; it would fail to open the largest ones whole.
            whole = files.filter(f"length <= {LARGEST_WHOLE}")
            more = whole_files(session, list(map(exact_path, packed))) if packed else None
            groups[place] = (whole if more is None else whole.unionByName(more), kind)
        elif len(found) < len(sources.input_files(files)):  # Spark gives files without a byte to no task
            raise DamagedSource(
                "A text file has 0 bytes, and so no header line.",
                "Write the column names as its first line, or remove it.",
            )
        sizes |= found
    whole_sizes = [size for path, size in sizes.items() if path not in large]
    frames = [
        map_to_texts(files.select("path", "content"), functools.partial(read_files, kind, rows), rows)
        for files, kind in groups
    ]
    lines = cut_lines(session, large) if large else None
    if lines is not None:
        frames.append(map_to_texts(lines, functools.partial(read_lines, rows), rows))
    frame = call_spark(lambda: functools.reduce(lambda one, other: one.unionByName(other), frames))

    def check_rows() -> None:
        if max(whole_sizes, default=0) > LARGEST_FILE:
            raise BadSource(
                f"A text file has more than {LARGEST_FILE >> 20} MiB, the most that Spark reads in one task.",
                f"Split it, each part with the header. {sources.TO_PARQUET}",
            )
        if lines is not None or (len(whole_sizes) > 1 and any(format_ is Format.JSON_LINES for _, format_ in groups)):
            check_kinds(groups, lines, rows)

    return OpenedFrame(frame, check_rows)


def cut_lines(session: SparkSession, paths: list[str]) -> DataFrame:
    """Return the lines of JSON Lines files, which Spark cuts at line ends alone: (file, line), bytes as they are."""
    reader = sources.strict_reader(session, "text").option("lineSep", "\n").option("recursiveFileLookup", True)
    columns = ("xxhash64(_metadata.file_path) as file", "cast(value as binary) as line")
    return call_spark(lambda: reader.load(list(map(exact_path, paths))).selectExpr(*columns))


def map_to_texts(source: DataFrame, task: Task, rows: SourceRequest) -> DataFrame:
    """Return what a task reads, as text columns of the wanted names."""
    schema = ", ".join(f"column{place} string" for place in range(len(names_in(rows))))
    return call_spark(lambda: source.mapInArrow(guard_task(task), schema).toDF(*names_in(rows)))


def check_kinds(groups: list[tuple[DataFrame, Format]], lines: DataFrame | None, rows: SourceRequest) -> None:
    """Refuse files whose columns have different kinds, such as numbers in one and texts in another.

    lines: those of large files; one that lacks a key, or has lists and plain values in a column, is refused too.
    """
    columns, names = Cleaner(rows).columns, names_in(rows)
    searches: list[tuple[DataFrame, Task]] = [
        (files.select("path", "content"), functools.partial(find_kinds, format_, rows)) for files, format_ in groups
    ]
    searches += [] if lines is None else [(lines, functools.partial(find_line_kinds, rows))]
    held: dict[int, set[str]] = {}
    shapes: dict[tuple[int, str], bool] = {}
    for source, task in searches:
        found = source.mapInArrow(guard_task(task), FOUND_IN_FILES)
        for file, kinds, lists, has in sorted(call_spark(found.collect), key=repr):
            held.setdefault(file, set()).update(itertools.compress(names, has))
            for name, column, kind, shape in zip(names, columns, kinds, lists, strict=True):
                column.see(None if kind is None else TextKind(kind), "one of the files")
                if shape is not None and shapes.setdefault((file, name), shape) != shape:
                    raise UnsupportedType(
                        f"Mixed types: column {name!r} has lists and plain values in one large JSON Lines file.",
                        "Write the column with one type (text is always possible).",
                    )
    for name in names:
        if any(name not in one for one in held.values()):
            raise UnknownColumn(f"No row of a large JSON Lines file has the key {name!r}.", "Check the name.")


# --- the workers ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class FileInWorker(InputFile):
    """A whole text file in the memory of a task (sensitive)."""

    content: Any

    def open(self) -> Any:
        return pa.BufferReader(self.content)


def read_files(format_: Format, rows: SourceRequest, batches: Batches) -> Batches:
    """(path, content) of text files -> rows of text columns: the user, then the value or the parts of the key.

    Guarantees:
    - the rows of a file depend on this file alone, and are those that one machine reads;
    - a file that one machine refuses is refused.
    """
    for file in files_in(batches, format_):
        yield from read_file(file, Wanted.of(rows), Cleaner(rows))


def find_kinds(format_: Format, rows: SourceRequest, batches: Batches) -> Batches:
    """(path, content) of text files -> FOUND_IN_FILES: the kinds of each file's columns, null for one of nulls.

    Guarantees: a kind is text, integer, date or boolean, and depends on its file alone.
    """
    for file in files_in(batches, format_):
        cleaner = Cleaner(rows)
        for _ in read_file(file, Wanted.of(rows), cleaner):
            if all(column.kind is not None for column in cleaner.columns):
                break
        yield _kinds_of(cleaner, 0, [None] * len(cleaner.columns), [True] * len(cleaner.columns))


def read_lines(rows: SourceRequest, batches: Batches) -> Batches:
    """(file, line) of large JSON Lines files -> rows of text columns, as `read_files` gives them.

    Guarantees: as for `read_files`; types are those of the first values of this part, and others are refused.
    """
    for _, blocks in blocks_in(batches):
        learner, cleaner = Learner(key_names(Wanted.of(rows))), Cleaner(rows)
        for block in blocks:
            yield from clean_columns(parse_lines(block, learner.names, learner.types_for(block)), cleaner, A_PART)


def find_line_kinds(rows: SourceRequest, batches: Batches) -> Batches:
    """As `find_kinds`, for the parts of large JSON Lines files (file, line); has: whether a row has the keys."""
    for file, blocks in blocks_in(batches):
        learner, cleaner = Learner(key_names(Wanted.of(rows))), Cleaner(rows)
        for block in blocks:
            if not any(type_ in UNKNOWN for type_ in learner.types_for(block)):
                break
        for column, type_ in zip(cleaner.columns, learner.types, strict=True):
            if type_ is not None:
                column.expect(type_, A_PART)
        if learner.first is not None:
            lists = [None if type_ is None else is_list(type_) for type_ in learner.types]
            yield _kinds_of(cleaner, file, lists, learner.found)


def _kinds_of(cleaner: Cleaner, file: int, lists: list[bool | None], has: list[bool]) -> pa.RecordBatch:
    kinds = pa.array([[column.kind and column.kind.value for column in cleaner.columns]], pa.list_(pa.string()))
    flags = {"lists": pa.array([lists], pa.list_(pa.bool_())), "has": pa.array([has])}
    return pa.record_batch({"file": pa.array([file]), "kinds": kinds, **flags})


def blocks_in(batches: Batches) -> Iterator[tuple[int, Iterator[Block]]]:
    """Yield the parts of large files in a task, each as blocks of whole lines; only those that are asked for are made.

    Guarantees: as for `read_blocks`; a line is in one block, unchanged.
    """

    def cut() -> Iterator[tuple[int, Any]]:
        for batch in batches:
            files = np.asarray(batch.column("file"))
            cuts = [0, *(np.flatnonzero(np.diff(files)) + 1).tolist(), len(files)]
            for start, end in itertools.pairwise(cuts):
                yield int(files[start]), batch.column("line").slice(start, end - start)

    def block_of(texts: Any) -> Block:
        lines = texts.to_pylist()
        block = Block(b"\n".join(lines) + b"\n", 1, A_PART)
        if len(block.data) > LONGEST_ROW and max(map(len, lines)) > LONGEST_ROW:
            raise block.damaged(f"a row is longer than {LONGEST_ROW >> 20} MiB", remedy=LONG_ROW)
        check_text(block)
        return block

    for file, found in itertools.groupby(cut(), key=operator.itemgetter(0)):
        yield file, (block_of(texts) for _, texts in found)


def files_in(batches: Batches, format_: Format) -> Iterator[FileInWorker]:
    """Yield the files of a task, one after the other."""
    for batch in batches:
        for place, text in enumerate(batch.column("path").to_pylist()):
            path = Path(text)
            # subtle: errors show this name, and folders such as user=somebody are data.
            where = f"file {hide_values(path)!r}"
            compression = COMPRESSIONS.get(path.suffix.lower(), Compression.NONE)
            content = batch.column("content")[place].as_buffer()
            yield FileInWorker(where, format_, compression, content.size, content)


def read_file(file: FileInWorker, wanted: Wanted, cleaner: Cleaner) -> Batches:
    """Yield the wanted columns of a file as text, numbered; lists are flattened, rows without an item dropped.

    Guarantees: as for the readers of one machine, and for `Cleaner`; the parts of a key are cleaned later, together.
    """
    part: SourcePart = JsonLinesPart(file) if file.format is Format.JSON_LINES else DelimitedPart(file)
    part.check(wanted, cleaner.columns)
    for columns in part.batches(wanted, lambda _: None):
        yield from clean_columns(columns, cleaner, file.where)


def clean_columns(columns: tuple[pa.Array, ...], cleaner: Cleaner, where: str) -> Batches:
    """Yield some rows as `read_file` does. Guarantees: as for `read_file`."""
    users, *values = columns
    if len(values) > 1:
        pairs = zip(cleaner.columns, columns, strict=True)
        yield _number_columns(*(column.text(array, where) for column, array in pairs))
        return
    for rows in cleaner.clean(users, values[0], where):
        yield _number_columns(rows.users, rows.values)


def _number_columns(*texts: Any) -> pa.RecordBatch:
    return pa.record_batch({f"column{place}": one.cast(pa.string()) for place, one in enumerate(texts)})
