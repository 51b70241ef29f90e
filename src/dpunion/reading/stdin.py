"""Standard input as a source: '-'.

Its first bytes tell the format: gzip and zstd, then an Arrow stream, JSON Lines (which begin with '{'), and CSV
otherwise; or `input_format` tells. Parquet cannot be read from a pipe, because its index is at its end.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from dpunion.checks import refuse_choice
from dpunion.errors import WRITE_AGAIN, BadParameter, BadSource, DamagedSource, DpunionError, attempt, attempt_each
from dpunion.reading.blocks import BYTE_ORDER_MARK, decompress, read_fully
from dpunion.reading.columnar import END_OF_STREAM, IPC_FILE_MAGIC
from dpunion.reading.delimited import DelimitedPart
from dpunion.reading.jsonlines import JsonLinesPart
from dpunion.reading.parts import FileTypes, OnFraction, SourcePart, SourceRequest, Wanted
from dpunion.reading.spelling import Column
from dpunion.reading.storage import Compression, Format, InputFile

NAME = "-"
CHOICES = [Format.CSV.value, Format.TSV.value, Format.JSON_LINES.value, Format.ARROW.value]
MAGIC = {b"\x1f\x8b": Compression.GZIP, b"\x28\xb5\x2f\xfd": Compression.ZSTD}
PARQUET_MAGIC, CONTINUATION = b"PAR1", b"\xff\xff\xff\xff"
HEAD_BYTES = 1 << 12
AS_FILE = "Name the file itself as the source, or pipe in CSV, JSON Lines or an Arrow stream."


def parts_of(request: SourceRequest) -> list[SourcePart] | None:
    """Return standard input as a part, in the requested format or in the one that its first bytes tell."""
    input_format = request.input_format
    if request.paths != [NAME]:
        if input_format is not None:
            raise BadParameter(
                "An input format was given, but the source is not standard input.",
                "Leave it out: the suffix of a file tells its format.",
            )
        return None
    if request.query is not None:
        return None  # `databases` refuses it
    if input_format == Format.PARQUET.value:
        raise BadParameter("Parquet cannot be read from standard input: its index is at its end.", AS_FILE)
    if input_format is not None and input_format not in CHOICES:
        refuse_choice("input_format", input_format, CHOICES)
    tape = current_tape()
    first = attempt(lambda: tape.start(keep=True).read(HEAD_BYTES), "standard input")
    compression = next((packing for magic, packing in MAGIC.items() if first.startswith(magic)), Compression.NONE)
    head = b""
    with contextlib.suppress(DpunionError):  # reading it all will find the damage
        raw = tape.open(keep=True)
        head = attempt(lambda: read_fully(decompress(raw, compression), HEAD_BYTES), "standard input")
    guess = guess_format(head)
    format_ = guess if input_format is None else Format(input_format)
    where = f"standard input (read as {format_.value})"
    file = StandardInput(where, format_, compression, size_of(tape.stream), tape)
    if format_ is not Format.ARROW:
        return [JsonLinesPart(file) if format_ is Format.JSON_LINES else DelimitedPart(file)]
    if compression is not Compression.NONE:
        raise BadSource(f"The Arrow stream on standard input is compressed with {compression.value}.", "Unpack it.")
    return [ArrowInputPart(file)]


class Tape:
    """A stream that can be read again from its start, until it is read completely.

    Guarantees:
    - bytes that were only looked at are read again;
    - the bytes kept for that are freed once the stream is read completely.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.kept = bytearray()
        self.is_spent = False

    def start(self, *, keep: bool) -> TapeReader:
        """Return a reader that starts at the first byte; keep: whether another reader may follow."""
        if self.is_spent:
            raise BadSource("Standard input was read already, and cannot be read again.", "Save it to a file first.")
        self.is_spent = not keep
        return TapeReader(self, keep=keep)

    def open(self, *, keep: bool) -> Any:
        """Return the same as a file of Arrow's."""
        return pa.PythonFile(self.start(keep=keep), mode="r")


class TapeReader:
    """The file object that Arrow reads a tape through."""

    def __init__(self, tape: Tape, *, keep: bool) -> None:
        self._tape, self._keep = tape, keep
        self._done = 0
        self.closed = False
        self.tail = b""

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes, fewer only at the end of the stream."""
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
        return self._done

    def flush(self) -> None:
        """Do nothing: nothing is written."""

    def close(self) -> None:
        self.closed = True


_current: Tape | None = None


def current_tape() -> Tape:
    """Return the tape of the process's standard input, the same one for every call."""
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


@dataclass(frozen=True, slots=True, repr=False)
class StandardInput(InputFile):
    """Standard input as a file."""

    tape: Tape

    def peek(self) -> Any:
        return self.tape.open(keep=True)

    def open(self) -> Any:
        return self.tape.open(keep=False)


class ArrowInputPart(SourcePart):
    """An Arrow IPC stream on standard input.

    Guarantees: a stream without its end marker, or with bytes after it, is refused after its rows were read.
    """

    def __init__(self, file: StandardInput) -> None:
        super().__init__(file.where, file.size)
        self.tape = file.tape

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        """Check the wanted columns by the schema at the beginning."""
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
        raw = self.tape.open(keep=True)
        return attempt(lambda: pa.ipc.open_stream(raw), self.where).schema


def guess_format(head: bytes) -> Format:
    """Return the format of the first bytes, CSV by default; refuse formats that need a file that can seek."""
    if head.startswith(PARQUET_MAGIC):
        raise BadSource("There is a Parquet file on standard input; its index is at its end.", AS_FILE)
    if head.startswith(IPC_FILE_MAGIC):
        raise BadSource(
            "There is an Arrow file on standard input; its index is at its end.",
            "Name the file itself as the source, or pipe in an Arrow stream (pyarrow.ipc.new_stream).",
        )
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
