"""Text files as blocks of whole rows, decompressed, checked for UTF-8 and NUL bytes.

dpunion splits files itself, so that long rows can be read, errors have line numbers, and threads can parse blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from dpunion.errors import WRITE_AGAIN, DamagedSource, ForeignErrors, attempt
from dpunion.kernels.words import count_byte
from dpunion.reading.parts import OnFraction, Piece
from dpunion.reading.storage import Compression, InputFile

B = TypeVar("B")

BLOCK_BYTES = 8 << 20
LONGEST_ROW = 64 << 20
"""The most bytes of a row. A lost quote turns the rest of the file into one row, which must not fill the memory."""
LONG_ROW = "In CSV, a quote that is never closed causes this: check that line. Or write the data as Parquet."
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, repr=False)
class Block:
    """Some whole rows of a text file as bytes, and the line number of the first row (sensitive)."""

    data: bytes
    line: int
    where: str

    def damaged(
        self, what: str, *, position: int | None = None, line: int | None = None, remedy: str = WRITE_AGAIN
    ) -> DamagedSource:
        """Return the error for damage at a byte position or line of the block, without quoting it."""
        if position is not None:
            line = count_lines(self.data[:position])
        at = "" if line is None else f", line {self.line + line}"
        return DamagedSource(f"In {self.where}{at}: {what}.", remedy)


def read_blocks(
    file: InputFile, row_end: Callable[[Block, bool], int], on_fraction: OnFraction | None, size: int = BLOCK_BYTES
) -> Iterator[Block]:
    """Yield the file in blocks of whole rows; `row_end(block, is_last)` returns the end of the last whole row.

    Without on_fraction, the caller only looks at the beginning, and the file can be opened again.

    Guarantees:
    - all bytes are valid UTF-8 and none is NUL; truncated or damaged compression is refused;
    - a row of more than LONGEST_ROW bytes is refused before more of it is read.
    """
    with attempt(file.peek if on_fraction is None else file.open, file.where) as raw:
        stream = attempt(lambda: decompress(raw, file.compression), file.where)
        pending, line, want, first = b"", 1, size, True
        while True:
            fresh = attempt(functools.partial(read_fully, stream, want), file.where)
            is_last = len(fresh) < want
            if first:
                fresh, first = fresh.removeprefix(BYTE_ORDER_MARK), False
            buffer = Block(pending + fresh, line, file.where)
            end = row_end(buffer, is_last)
            if end == 0 and not is_last:
                if len(buffer.data) > LONGEST_ROW:
                    raise buffer.damaged(f"a row is longer than {LONGEST_ROW >> 20} MiB", line=0, remedy=LONG_ROW)
                pending = buffer.data
                want = min(max(len(pending), size), LONGEST_ROW + 1 - len(pending))
                continue
            block = Block(buffer.data[:end], line, file.where)
            check_text(block)
            if block.data:
                yield block
            if on_fraction is not None and file.size:
                on_fraction(min(raw.tell() / file.size, 1.0))
            if is_last and file.compression is not Compression.NONE and raw.tell() == 0:
                raise DamagedSource(f"There are no bytes in {file.where}, not even a compression header.", WRITE_AGAIN)
            if is_last:
                return
            line += count_lines(block.data)
            pending, want = buffer.data[end:], size


def decompress(raw: Any, compression: Compression) -> Any:
    """Return a stream of the plain bytes of a file."""
    return raw if compression is Compression.NONE else pa.CompressedInputStream(raw, compression.value)


def read_fully(stream: Any, size: int) -> bytes:
    """Return the next `size` bytes, fewer only at the end of the stream."""
    parts: list[bytes] = []
    missing = size
    while missing and (part := stream.read(missing)):
        parts.append(part)
        missing -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def count_lines(data: bytes) -> int:
    """Return the number of line ends, in any one convention."""
    octets = np.frombuffer(data, np.uint8)
    return count_byte(octets, ord("\n")) or count_byte(octets, ord("\r"))


def check_text(block: Block) -> None:
    """Refuse NUL bytes and bytes that are not UTF-8, in all columns."""
    nul = block.data.find(b"\0")
    if nul >= 0:
        raise block.damaged("there is a NUL byte", position=nul)
    if block.data.isascii():
        return

    def locate(error: UnicodeDecodeError) -> DamagedSource:
        return block.damaged("the text is not UTF-8", position=error.start, remedy="Write the file again as UTF-8.")

    with ForeignErrors(locate, UnicodeDecodeError):
        block.data.decode()


def try_parse(parse: Callable[[], B]) -> B | None:
    """Return what one of Arrow's parsers returns, None when it refuses the block."""
    try:
        return parse()
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, ValueError):
        return None


def parse_later(parse: Callable[..., tuple[Any, ...]], *given: Any) -> Piece:
    """Return a piece that calls a parser when it is read."""
    return lambda: (parse(*given),)
