"""Columnar files: Parquet, and Arrow IPC files and streams."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pyarrow.types as pt

from dpunion.buffers import pc
from dpunion.errors import WRITE_AGAIN, DamagedSource, attempt, attempt_each
from dpunion.reading.columns import FileTypes, OnFraction, Piece, Wanted, find_column, join_pieces
from dpunion.reading.locate import Partitions, Place, open_file
from dpunion.reading.spelling import Column, Role, is_list

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
"""What yields them when it is called."""


@dataclass(frozen=True, slots=True, repr=False)
class ParquetPart:
    """A Parquet file, read in batches; page checksums are verified where the file has them.

    Guarantees:
    - a file that is truncated, structurally damaged or failing a checksum is refused, without quoting it;
    - a column that its folders tell too, as polars writes it, must say the same in every row;
    - memory is bounded by a few batches, whatever the size of the file.
    """

    path: Place
    where: str
    size: int
    partitions: Partitions = ()

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        """Check the wanted columns by the file's footer and the names of its folders."""
        self._types(self._open([])).check(wanted, columns)

    def batches(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[tuple[Any, ...]]:
        """Yield the wanted columns; text that is dictionary-encoded in the file stays so."""
        return join_pieces(self.pieces(wanted, on_fraction))

    def pieces(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[Piece]:
        """Yield runs of row groups, to be read; of few large row groups, batches that were read here."""
        source = attempt(lambda: open_file(self.path), self.where)
        file = self._open([], source)
        types = self._types(file)
        positions = types.find(wanted)
        constant = {i: repeated(dict(self.partitions)[types.names[i]]) for i in positions if i >= len(types.schema)}
        stored = [i for i in positions if i not in constant]
        total, done = file.metadata.num_rows, 0

        told = dict(self.partitions)
        doubled = {i: told[types.names[i]] for i in stored if types.names[i] in told}

        def all_columns(stored: StoredPiece) -> Iterator[tuple[Any, ...]]:
            for rows, arrays in stored():
                for i, value in doubled.items():
                    self._check_folder(types.names[i], value, arrays[i])
                same = pa.nulls(rows, pa.int32()).fill_null(0) if constant else None
                columns = arrays | {i: array.take(same) for i, array in constant.items()}
                yield tuple(columns[i] for i in positions)

        as_they_are = [positions[0]] if wanted.role is Role.TEXT else stored
        for rows, piece in self._stored(file, source, stored, as_they_are):
            yield functools.partial(all_columns, piece)
            done += rows
            on_fraction(done / max(total, 1))
        if done != total:
            raise DamagedSource(f"There are not as many rows in {self.where} as its footer says.", WRITE_AGAIN)

    def _types(self, file: Any) -> FileTypes:
        """Return the columns of the file and of its folders."""
        schema = file.schema_arrow
        names = FileTypes(self.where, schema).names
        return FileTypes(self.where, schema, told_by(one for one in self.partitions if one[0] not in names))

    def _check_folder(self, name: str, value: str | None, array: Any) -> None:
        """Refuse rows in which a column of the file does not say what the file's folder says."""
        texts = Column(name, Role.KEY).text(array, self.where)
        same = texts.is_null() if value is None else pc.equal(texts, value).fill_null(False)
        if not pc.all(same, min_count=0).as_py():
            raise DamagedSource(
                f"Column {name!r} of {self.where} differs from the name of its folder '{name}=…'.",
                "Rename or remove one of them.",
            )

    def _stored(
        self, plain: Any, source: Any, positions: list[int], as_they_are: list[int]
    ) -> Iterator[tuple[int, StoredPiece]]:
        """Yield (rows, piece) of columns in the file; only `as_they_are` may stay dictionaries."""
        if not positions:
            total = plain.metadata.num_rows
            for done in range(0, total, LARGEST_BATCH):
                rows = min(LARGEST_BATCH, total - done)
                yield rows, functools.partial(iter, [(rows, {})])
            return
        columns = [plain.schema_arrow.names[i] for i in positions]
        metadata = plain.metadata
        looked_at = spread_out(metadata.num_row_groups)
        # subtle: a damaged footer would abort the process in pyarrow's accessors of column metadata, below; preparing
        # to read a row group makes Arrow look at the same parts of the footer where it does catch its exceptions.
        for group in looked_at:
            attempt(functools.partial(read_one_row, plain, group, columns), self.where)
        coded, size, runs = attempt(lambda: layout(plain, positions, as_they_are, looked_at), self.where)

        def read(groups: list[int], *, use_threads: bool = False) -> StoredBatches:
            # subtle: a reader for each, as none serves two threads; a few row groups at a time, as Arrow holds the
            # bytes of all that it is asked for.
            file = self._open(coded, source, metadata)
            batches = functools.partial(
                file.iter_batches, size, row_groups=groups, columns=columns, use_threads=use_threads
            )
            for batch in attempt_each(batches, self.where):
                places = [find_column(batch.schema.names, name, self.where) for name in columns]
                yield batch.num_rows, {i: batch.column(place) for i, place in zip(positions, places, strict=True)}

        for groups, is_large in runs:
            if is_large:
                # On few cores the columns of a batch are decoded one after the other: others are at work beside it.
                for batch in read(groups, use_threads=pa.cpu_count() > FEW_CORES):
                    yield batch[0], functools.partial(iter, [batch])
            else:
                rows = rows_in(metadata, groups)
                yield rows, functools.partial(self._whole, functools.partial(read, groups), rows)

    def _whole(self, read: StoredPiece, rows: int) -> StoredBatches:
        """Yield what `read` yields, and refuse it at its end when there were not as many rows as expected."""
        for batch in read():
            rows -= batch[0]
            yield batch
        if rows:
            raise DamagedSource(f"There are not as many rows in {self.where} as its footer says.", WRITE_AGAIN)

    def _open(self, coded: list[str], source: Any = None, metadata: Any = None) -> Any:
        # subtle: of a file here little is read at a time; without that, Arrow reads a column of a row group whole, for
        # one row too. From elsewhere all that is wanted of some row groups is fetched at once.
        ahead = metadata is not None and not isinstance(self.path, Path)
        options = {
            "read_dictionary": coded,
            "pre_buffer": ahead,
            "buffer_size": BUFFER_BYTES,
            "page_checksum_verification": True,
        }
        return attempt(
            lambda: pq.ParquetFile(open_file(self.path) if source is None else source, metadata=metadata, **options),
            self.where,
        )


def told_by(partitions: Iterable[tuple[str, str | None]]) -> Any:
    """Return the columns that the names of folders tell as a pa.Schema: all of them are text."""
    return pa.schema([(name, pa.string()) for name, _ in partitions])


def repeated(text: str | None) -> Any:
    """Return the one value of a partition as a column of one row, to be taken again and again."""
    return pa.DictionaryArray.from_arrays(pa.array([None if text is None else 0], pa.int32()), pa.array([text or ""]))


def read_one_row(file: Any, group: int, columns: list[str]) -> None:
    """Read the first row of a row group."""
    next(file.iter_batches(1, row_groups=[group], columns=columns), None)


def spread_out(groups: int) -> list[int]:
    """Return the row groups by which a file is known: the first, the last and one between."""
    return sorted({0, groups // 2, groups - 1}) if groups else []


def layout(
    file: Any, positions: list[int], as_they_are: list[int], looked_at: list[int]
) -> tuple[list[str], int, list[tuple[list[int], bool]]]:
    """Return how to read a file: (paths, rows, runs).

    paths: the columns to read as dictionaries; rows: how many make a batch; runs: row groups to read together, and
    whether a run is so large, and there are so few, that its batches are shared out among threads rather than the runs.
    looked_at: the row groups whose columns may be looked at; the others are taken to be like them.
    """
    leaves = {i: leaves_of(file, i) for i in positions}
    groups = [file.metadata.row_group(i) for i in looked_at]
    coded = [leaf for i in positions if i in as_they_are for leaf in leaves[i] if is_coded(file, i, leaf, groups)]
    paths = [file.schema.column(leaf).path for leaf in coded]
    chunks = [group.column(leaf) for group in groups for some in leaves.values() for leaf in some]
    known_rows = sum(group.num_rows for group in groups)
    per_row = max(sum(chunk.total_uncompressed_size for chunk in chunks) / max(known_rows, 1), 1.0)
    in_memory = max(per_row, float(PLACE_BYTES * len(coded)))
    rows = int(min(max(BATCH_BYTES / in_memory, SMALLEST_BATCH), LARGEST_BATCH))
    runs = list(grouped(file.metadata, rows))
    few = len(runs) < FEW_RUNS
    return paths, rows, [(run, few and per_row * rows_in(file.metadata, run) > PIECE_BYTES) for run in runs]


def leaves_of(file: Any, position: int) -> list[int]:
    """Return the leaf columns below one top-level column of a Parquet file."""
    counts = [leaf_count(field.type) for field in file.schema_arrow]
    first = sum(counts[:position])
    return list(range(first, first + counts[position]))


def leaf_count(type_: Any) -> int:
    """Return how many leaf columns a type has in Parquet."""
    if pt.is_dictionary(type_):
        return leaf_count(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        return leaf_count(type_.storage_type)
    if is_list(type_):
        return leaf_count(type_.value_type)
    if pt.is_map(type_):
        return leaf_count(type_.key_type) + leaf_count(type_.item_type)
    if pt.is_struct(type_):
        return sum(leaf_count(type_.field(i).type) for i in range(type_.num_fields))
    return 1


def is_coded(file: Any, position: int, leaf: int, groups: list[Any]) -> bool:
    """Say whether a text column is dictionary-encoded in nearly all rows of some row groups.

    Writers begin each column chunk with a dictionary and give it up when it grows beyond about 1 MiB; the
    rest then is plain text of at least 4 bytes a value, where indices take no more than 3. Building a
    dictionary of such a chunk would cost more than it saves; but a last row group with few rows, which some
    writers leave plain, must not decide about all the others.
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


def grouped(metadata: Any, size: int) -> Iterator[list[int]]:
    """Yield runs of row groups with about `size` rows each, or one row group where it has more."""
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
    """Return how many rows some row groups have."""
    return sum(metadata.row_group(i).num_rows for i in groups)


@dataclass(frozen=True, slots=True)
class ArrowPart:
    """An Arrow IPC file or stream; which of the two is known by its first bytes, not by its name.

    Guarantees:
    - a stream without its end marker is refused: it could be the beginning of a longer one.
    """

    path: Place
    where: str
    size: int

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        """Check the wanted columns by the schema at the file's beginning."""
        with attempt(lambda: open_file(self.path), self.where) as file:
            schema = attempt(lambda: open_ipc(file, None), self.where).schema
            FileTypes(self.where, schema).check(wanted, columns)

    def batches(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[tuple[Any, ...]]:
        """Yield the wanted columns of each record batch; the other columns are not loaded."""
        with attempt(lambda: open_file(self.path), self.where) as file:
            schema = attempt(lambda: open_ipc(file, None), self.where).schema
            positions = FileTypes(self.where, schema).find(wanted)
            fields = sorted(positions)
            attempt(lambda: file.seek(0), self.where)
            reader = attempt(lambda: open_ipc(file, fields), self.where)
            for batch in attempt_each(lambda: ipc_batches(reader), self.where):
                yield tuple(batch.column(fields.index(i)) for i in positions)
                on_fraction(min(file.tell() / max(self.size, 1), 1.0))


def open_ipc(file: Any, fields: list[int] | None) -> Any:
    """Open an IPC file or stream, loading only some fields."""
    options = pa.ipc.IpcReadOptions(included_fields=fields)
    magic = file.read(len(IPC_FILE_MAGIC))
    if magic == IPC_FILE_MAGIC:
        return pa.ipc.open_file(file, options=options)
    file.seek(file.size() - len(END_OF_STREAM))
    if file.read() != END_OF_STREAM:
        raise pa.ArrowInvalid("no end of stream")
    file.seek(0)
    return pa.ipc.open_stream(file, options=options)


def ipc_batches(reader: Any) -> Iterator[Any]:
    """Yield the record batches of either kind of IPC reader."""
    if hasattr(reader, "num_record_batches"):
        return (reader.get_batch(i) for i in range(reader.num_record_batches))
    return iter(reader)
