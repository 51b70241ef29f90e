"""Standard input as a source: '-'.

What it holds is known by its first bytes: gzip and zstd, then an Arrow stream, JSON Lines (a '{' comes first), and CSV
otherwise; or it is said by `input_format`. Parquet cannot be read from a pipe: its index is at its end.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from dpunion.checks import refuse_choice
from dpunion.errors import WRITE_AGAIN, BadParameter, BadSource, DamagedSource, DpunionError, attempt, attempt_each
from dpunion.reading.blocks import BYTE_ORDER_MARK, decompressed, read_fully
from dpunion.reading.columnar import END_OF_STREAM, IPC_FILE_MAGIC
from dpunion.reading.columns import FileTypes, OnFraction, SourcePart, Wanted
from dpunion.reading.delimited import DelimitedPart
from dpunion.reading.jsonlines import JsonLinesPart
from dpunion.reading.locate import Compression, Format
from dpunion.reading.spelling import Column

NAME = "-"
CHOICES = [Format.CSV.value, Format.TSV.value, Format.JSON_LINES.value, Format.ARROW.value]
MAGIC = {b"\x1f\x8b": Compression.GZIP, b"\x28\xb5\x2f\xfd": Compression.ZSTD}
PARQUET_MAGIC, CONTINUATION = b"PAR1", b"\xff\xff\xff\xff"
HEAD_BYTES = 1 << 12
AS_FILE = "Name the file itself as the source, or pipe in CSV, JSON Lines or an Arrow stream."


class Tape:
    """A stream that can be started over, until it is read for good.

    Guarantees:
    - nothing that was looked at is lost to the reading that follows;
    - what is kept for starting over goes once it was read for good.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.kept = bytearray()
        self.is_spent = False

    def start(self, *, keep: bool) -> TapeReader:
        """Return a reader from the first byte on."""
        if self.is_spent:
            raise BadSource("Standard input was read already, and cannot be read again.", "Save it to a file first.")
        self.is_spent = not keep
        return TapeReader(self, keep=keep)


class TapeReader:
    """The file object that Arrow reads a tape through."""

    def __init__(self, tape: Tape, *, keep: bool) -> None:
        self._tape, self._keep = tape, keep
        self._done = 0
        self.closed = False
        self.tail = b""

    def read(self, size: int) -> bytes:
        """Return the next bytes, as many as asked for unless the stream ends."""
        kept = self._tape.kept
        data = bytes(kept[self._done : self._done + size])
        if len(data) < size:
            fresh = read_fully(self._tape.stream, size - len(data))
            data += fresh
            if self._keep:
                kept += fresh
            else:
                kept.clear()
        self._done += len(data)
        self.tail = (self.tail + data[-len(END_OF_STREAM) :])[-len(END_OF_STREAM) :]
        return data

    def tell(self) -> int:
        """Return how many bytes were read."""
        return self._done

    def flush(self) -> None:
        """Do nothing: nothing is written."""

    def close(self) -> None:
        """Close the reader, not the stream."""
        self.closed = True


_current: Tape | None = None


def current_tape() -> Tape:
    """Return the tape of the process's standard input, the same one for every look at it."""
    global _current  # noqa: PLW0603 - there is one standard input in a process
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None or stream.closed or stream.isatty():
        raise BadSource(
            "The source '-' is standard input, but nothing is piped into it.",
            "Pipe the data in, for example: zcat posts.csv.gz | dpunion release - …",
        )
    if _current is None or _current.stream is not stream:
        _current = Tape(stream)
    return _current


@dataclass(frozen=True, slots=True)
class StandardInput:
    """Text on standard input (its name, format and size are public)."""

    tape: Tape
    where: str
    format: Format
    compression: Compression
    size: int

    def peek(self) -> Any:
        """Open for looking at the beginning."""
        return pa.PythonFile(self.tape.start(keep=True), mode="r")

    def open(self) -> Any:
        """Open for reading it all, once."""
        return pa.PythonFile(self.tape.start(keep=False), mode="r")


@dataclass(frozen=True, slots=True)
class ArrowInputPart:
    """An Arrow IPC stream on standard input.

    Guarantees:
    - a stream without its end marker, or with anything behind it, is refused after its rows were read.
    """

    tape: Tape
    where: str
    size: int

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        """Check the wanted columns by the schema, which comes first."""
        FileTypes(self.where, self._schema()).check(wanted, columns)

    def batches(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[tuple[Any, ...]]:
        """Yield the wanted columns of each record batch; the other columns are not loaded."""
        positions = FileTypes(self.where, self._schema()).find(wanted)
        fields = sorted(positions)
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        tape = self.tape.start(keep=False)
        raw = pa.PythonFile(tape, mode="r")
        reader = attempt(lambda: pa.ipc.open_stream(raw, options=options), self.where)
        for batch in attempt_each(lambda: iter(reader), self.where):
            yield tuple(batch.column(fields.index(i)) for i in positions)
            if self.size:
                on_fraction(min(tape.tell() / self.size, 1.0))
        if tape.tail != END_OF_STREAM or tape.read(1):
            raise DamagedSource(f"The Arrow stream on {self.where} does not end correctly.", WRITE_AGAIN)

    def _schema(self) -> Any:
        raw = pa.PythonFile(self.tape.start(keep=True), mode="r")
        return attempt(lambda: pa.ipc.open_stream(raw), self.where).schema


def input_part(input_format: str | None) -> SourcePart:
    """Return standard input as a part, in the format that was said or that its first bytes tell."""
    if input_format == Format.PARQUET.value:
        raise BadParameter("Parquet cannot be read from standard input: its index is at its end.", AS_FILE)
    if input_format is not None and input_format not in CHOICES:
        refuse_choice("input_format", input_format, CHOICES)
    tape = current_tape()
    first = attempt(lambda: tape.start(keep=True).read(HEAD_BYTES), "standard input")
    compression = next((packing for magic, packing in MAGIC.items() if first.startswith(magic)), Compression.NONE)
    head = b""
    with contextlib.suppress(DpunionError):  # damage is found when it is read for good
        head = attempt(lambda: plain_head(tape, compression), "standard input")
    refuse_files(head)
    format_ = told_format(head) if input_format is None else Format(input_format)
    where = f"standard input (read as {format_.value})"
    size = size_of(tape.stream)
    if format_ is Format.ARROW:
        if compression is not Compression.NONE:
            raise BadSource(f"The Arrow stream on standard input is compressed with {compression.value}.", "Unpack it.")
        return ArrowInputPart(tape, where, size)
    part: Callable[..., SourcePart] = JsonLinesPart if format_ is Format.JSON_LINES else DelimitedPart
    return part(StandardInput(tape, where, format_, compression, size), where, size)


def plain_head(tape: Tape, compression: Compression) -> bytes:
    """Return the first bytes, decompressed."""
    raw = pa.PythonFile(tape.start(keep=True), mode="r")
    return read_fully(decompressed(raw, compression), HEAD_BYTES)


def refuse_files(head: bytes) -> None:
    """Refuse the formats that need a file one can jump about in."""
    if head.startswith(PARQUET_MAGIC):
        raise BadSource("There is a Parquet file on standard input; its index is at its end.", AS_FILE)
    if head.startswith(IPC_FILE_MAGIC):
        raise BadSource(
            "There is an Arrow file on standard input; its index is at its end.",
            "Name the file itself as the source, or pipe in an Arrow stream (pyarrow.ipc.new_stream).",
        )


def told_format(head: bytes) -> Format:
    """Return what the first bytes look like; CSV when they look like nothing else."""
    if head.startswith(CONTINUATION):
        return Format.ARROW
    text = head.removeprefix(BYTE_ORDER_MARK).lstrip(b" \t\r\n")
    return Format.JSON_LINES if text.startswith(b"{") else Format.CSV


def size_of(stream: Any) -> int:
    """Return the number of bytes if the input is a file, else 0."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
