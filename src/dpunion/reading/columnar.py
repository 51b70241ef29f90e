"""Columnar files: Parquet, and Arrow IPC files and streams."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pyarrow.types as pt

from dpunion.buffers import pc
from dpunion.errors import WRITE_AGAIN, DamagedSource, attempt, attempt_each
from dpunion.reading.parts import FileTypes, OnFraction, Piece, Wanted, find_column
from dpunion.reading.spelling import Column, Role, is_list
from dpunion.reading.storage import DataFile, FilePart

BATCH_BYTES, PIECE_BYTES, BUFFER_BYTES = 2 << 20, 32 << 20, 1 << 18
SMALLEST_BATCH, LARGEST_BATCH = 1 << 10, 1 << 20
FEW_RUNS, FEW_CORES = 16, 2
MOST_PLAIN = 0.1
IPC_FILE_MAGIC = b"ARROW1"
DICTIONARY_BYTES, INDEX_BYTES, PLACE_BYTES = (1 << 20) + (1 << 16), 3, 4
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"

StoredBatches = Iterator[tuple[int, dict[int, Any]]]
"""Some rows of a Parquet file: (rows, {position: array})."""
StoredPiece = Callable[[], StoredBatches]
"""Called to yield such batches."""


class ParquetPart(FilePart):
    """A Parquet file, read in batches. Page checksums are verified if the file has them.

    Guarantees:
    - a file that is truncated, structurally damaged or failing a checksum is refused, without quoting it;
    - a column that is also named by a folder, as polars writes it, must have the folder's value in every row;
    - memory is limited to a few batches, whatever the size of the file.
    """

    file: DataFile

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        """Check the wanted columns by the file's footer and the names of its folders."""
        self._types(self._open([])).check(wanted, columns)

    def pieces(self, wanted: Wanted, on_fraction: OnFraction, size: int) -> Iterator[Piece]:
        """Yield runs of row groups to read; for few large row groups, yield batches that are read already.

        Text that is dictionary-encoded in the file stays so.
        """
        del size
        source = attempt(self.file.open, self.where)
        file = self._open([], source)
        types, folders = self._types(file), dict(self.file.partitions)
        positions = types.find(wanted)
        constant = {i: constant_column(folders[types.names[i]]) for i in positions if i >= len(types.schema)}
        stored = [i for i in positions if i not in constant]
        doubled = {i: folders[types.names[i]] for i in stored if types.names[i] in folders}
        total, done = file.metadata.num_rows, 0

        def all_columns(stored: StoredPiece) -> Iterator[tuple[Any, ...]]:
            for rows, arrays in stored():
                for i, value in doubled.items():
                    self._check_folder(types.names[i], value, arrays[i])
                zeros = pa.nulls(rows, pa.int32()).fill_null(0) if constant else None
                columns = arrays | {i: array.take(zeros) for i, array in constant.items()}
                yield tuple(columns[i] for i in positions)

        may_be_coded = [positions[0]] if wanted.role is Role.TEXT else stored
        for rows, piece in self._stored(file, source, stored, may_be_coded):
            yield functools.partial(all_columns, piece)
            done += rows
            on_fraction(done / max(total, 1))
        if done != total:
            raise self._wrong_rows()

    def _wrong_rows(self) -> DamagedSource:
        return DamagedSource(f"There are not as many rows in {self.where} as its footer says.", WRITE_AGAIN)

    def _types(self, file: Any) -> FileTypes:
        names = FileTypes(self.where, file.schema_arrow).names
        folders = folder_schema(one for one in self.file.partitions if one[0] not in names)
        return FileTypes(self.where, file.schema_arrow, folders)

    def _check_folder(self, name: str, value: str | None, array: Any) -> None:
        """Refuse rows whose value differs from the value of the file's folder."""
        texts = Column(name, Role.KEY).text(array, self.where)
        same = texts.is_null() if value is None else pc.equal(texts, value).fill_null(False)
        if not pc.all(same, min_count=0).as_py():
            raise DamagedSource(
                f"Column {name!r} of {self.where} differs from the name of its folder '{name}=…'.",
                "Rename or remove one of them.",
            )

    def _stored(
        self, plain: Any, source: Any, positions: list[int], may_be_coded: list[int]
    ) -> Iterator[tuple[int, StoredPiece]]:
        """Yield (rows, piece) of columns in the file; only `may_be_coded` may stay dictionaries."""
        if not positions:
            total = plain.metadata.num_rows
            for done in range(0, total, LARGEST_BATCH):
                rows = min(LARGEST_BATCH, total - done)
                yield rows, functools.partial(iter, [(rows, {})])
            return
        columns = [plain.schema_arrow.names[i] for i in positions]
        metadata = plain.metadata
        samples = sample_groups(metadata.num_row_groups)
        # subtle: with a damaged footer, pyarrow's accessors of column metadata, below, abort the process. Reading a row
        # first makes Arrow look at the same parts of the footer in a place where it catches its exceptions.
        for group in samples:
            rows = functools.partial(plain.iter_batches, 1, row_groups=[group], columns=columns)
            next(attempt_each(rows, self.where), None)
        coded, size, runs = attempt(lambda: plan_reading(plain, positions, may_be_coded, samples), self.where)

        def read(groups: list[int], *, use_threads: bool = False) -> StoredBatches:
            # subtle: each call has its own reader, because a reader works for one thread only, and reads a few row
            # groups, because Arrow keeps the bytes of all row groups that it was asked for.
            file, missing = self._open(coded, source, metadata), rows_in(metadata, groups)
            batches = functools.partial(
                file.iter_batches, size, row_groups=groups, columns=columns, use_threads=use_threads
            )
            for batch in attempt_each(batches, self.where):
                places = [find_column(batch.schema.names, name, self.where) for name in columns]
                yield batch.num_rows, {i: batch.column(place) for i, place in zip(positions, places, strict=True)}
                missing -= batch.num_rows
            if missing:
                raise self._wrong_rows()

        for groups, is_large in runs:
            if is_large:
                # On few cores the other threads are busy, so the columns of a batch are decoded one by one.
                for batch in read(groups, use_threads=pa.cpu_count() > FEW_CORES):
                    yield batch[0], functools.partial(iter, [batch])
            else:
                yield rows_in(metadata, groups), functools.partial(read, groups)

    def _open(self, coded: list[str], source: Any = None, metadata: Any = None) -> Any:
        # subtle: without a buffer size, Arrow reads a whole column of a row group even for one row. From an object
        # store, all wanted columns of some row groups are fetched at once.
        ahead = metadata is not None and not isinstance(self.file.path, Path)
        options = {"read_dictionary": coded, "pre_buffer": ahead, "buffer_size": BUFFER_BYTES, "metadata": metadata}
        options["page_checksum_verification"] = True
        return attempt(lambda: pq.ParquetFile(source or self.file.open(), **options), self.where)


def folder_schema(partitions: Iterable[tuple[str, str | None]]) -> Any:
    """Return the columns that folders name as a pa.Schema: all of them are text."""
    return pa.schema([(name, pa.string()) for name, _ in partitions])


def constant_column(text: str | None) -> Any:
    """Return the value of a partition as a column of one row, which is then repeated."""
    return pa.DictionaryArray.from_arrays(pa.array([None if text is None else 0], pa.int32()), pa.array([text or ""]))


def sample_groups(groups: int) -> list[int]:
    """Return the row groups that stand for the whole file: the first, the middle and the last."""
    return sorted({0, groups // 2, groups - 1}) if groups else []


def plan_reading(
    file: Any, positions: list[int], may_be_coded: list[int], samples: list[int]
) -> tuple[list[str], int, list[tuple[list[int], bool]]]:
    """Return how to read a file: (paths, rows, runs).

    paths: the columns to read as dictionaries; rows: the size of a batch; runs: row groups to read together, and
    whether threads share the batches of a run instead of the runs, because it is large and there are few runs.
    samples: the row groups whose metadata is used; the others are assumed to be like them.
    """
    counts = [leaf_count(field.type) for field in file.schema_arrow]
    leaves = {i: range(sum(counts[:i]), sum(counts[: i + 1])) for i in positions}
    groups = [file.metadata.row_group(i) for i in samples]
    coded = [leaf for i in positions if i in may_be_coded for leaf in leaves[i] if is_coded(file, i, leaf, groups)]
    paths = [file.schema.column(leaf).path for leaf in coded]
    chunks = [group.column(leaf) for group in groups for some in leaves.values() for leaf in some]
    known_rows = sum(group.num_rows for group in groups)
    per_row = max(sum(chunk.total_uncompressed_size for chunk in chunks) / max(known_rows, 1), 1.0)
    in_memory = max(per_row, float(PLACE_BYTES * len(coded)))
    rows = int(min(max(BATCH_BYTES / in_memory, SMALLEST_BATCH), LARGEST_BATCH))
    runs = list(group_runs(file.metadata, rows))
    few = len(runs) < FEW_RUNS
    return paths, rows, [(run, few and per_row * rows_in(file.metadata, run) > PIECE_BYTES) for run in runs]


def leaf_count(type_: Any) -> int:
    """Return the number of leaf columns of a type in Parquet."""
    if pt.is_dictionary(type_) or is_list(type_):
        return leaf_count(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        return leaf_count(type_.storage_type)
    if pt.is_map(type_):
        return leaf_count(type_.key_type) + leaf_count(type_.item_type)
    if pt.is_struct(type_):
        return sum(leaf_count(type_.field(i).type) for i in range(type_.num_fields))
    return 1


def is_coded(file: Any, position: int, leaf: int, groups: list[Any]) -> bool:
    """Return whether a text column is dictionary-encoded in nearly all rows of some row groups.

    Writers begin each column chunk with a dictionary and stop using it when it grows beyond about 1 MiB. The rest is
    plain text of at least 4 bytes a value, while indices take at most 3. Building a dictionary of such a chunk would
    cost more than it saves. But a small last row group, which some writers leave plain, must not decide for all.
    """
    type_ = file.schema_arrow.field(position).type
    if is_list(type_):
        type_ = type_.value_type
    if not (pt.is_string(type_) or pt.is_large_string(type_)):
        return False
    chunks = [group.column(leaf) for group in groups]
    plain = sum(
        chunk.num_values
        for chunk in chunks
        if not chunk.has_dictionary_page
        or chunk.total_uncompressed_size > DICTIONARY_BYTES + INDEX_BYTES * chunk.num_values
    )
    return bool(plain <= MOST_PLAIN * sum(chunk.num_values for chunk in chunks))


def group_runs(metadata: Any, size: int) -> Iterator[list[int]]:
    """Yield runs of row groups with about `size` rows each; a larger row group is a run by itself."""
    run: list[int] = []
    rows = 0
    for i in range(metadata.num_row_groups):
        if run and rows + metadata.row_group(i).num_rows > size:
            yield run
            run, rows = [], 0
        run.append(i)
        rows += metadata.row_group(i).num_rows
    if run:
        yield run


def rows_in(metadata: Any, groups: Sequence[int]) -> int:
    """Return the number of rows of some row groups."""
    return sum(metadata.row_group(i).num_rows for i in groups)


class ArrowPart(FilePart):
    """An Arrow IPC file or stream; its first bytes, not its name, tell which of the two.

    Guarantees: a stream without its end marker is refused, because it could be the beginning of a longer one.
    """

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        """Check the wanted columns by the schema at the file's beginning."""
        with attempt(self.file.open, self.where) as file:
            schema = attempt(lambda: open_ipc(file, None), self.where).schema
            FileTypes(self.where, schema).check(wanted, columns)

    def batches(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[tuple[Any, ...]]:
        """Yield the wanted columns of each record batch; the other columns are not loaded."""
        with attempt(self.file.open, self.where) as file:
            schema = attempt(lambda: open_ipc(file, None), self.where).schema
            positions = FileTypes(self.where, schema).find(wanted)
            fields = sorted(positions)
            attempt(lambda: file.seek(0), self.where)
            reader = attempt(lambda: open_ipc(file, fields), self.where)
            count = getattr(reader, "num_record_batches", None)  # files have it, streams do not
            batches = iter(reader) if count is None else map(reader.get_batch, range(count))
            for batch in attempt_each(lambda: batches, self.where):
                yield tuple(batch.column(fields.index(i)) for i in positions)
                on_fraction(min(file.tell() / max(self.size, 1), 1.0))


def open_ipc(file: Any, fields: list[int] | None) -> Any:
    """Open an IPC file or stream that loads only some fields."""
    options = pa.ipc.IpcReadOptions(included_fields=fields)
    magic = file.read(len(IPC_FILE_MAGIC))
    if magic == IPC_FILE_MAGIC:
        return pa.ipc.open_file(file, options=options)
    file.seek(file.size() - len(END_OF_STREAM))
    if file.read() != END_OF_STREAM:
        raise pa.ArrowInvalid("no end of stream")
    file.seek(0)
    return pa.ipc.open_stream(file, options=options)
