"""CSV and TSV: every field is text, byte for byte, and the quoting is RFC 4180 without exceptions.

A lenient parser turns one lost quote into a single field that swallows the rest of the file. Here every quote
must open a field, close one, or be doubled inside one; all else is refused with the number of its line.
"""

from __future__ import annotations

import contextlib
import csv
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from dpunion.contributions import Uint8s
from dpunion.errors import DamagedSource, DpunionError, UnknownColumn, attempt
from dpunion.reading.blocks import (
    BLOCK_BYTES,
    BYTE_ORDER_MARK,
    Block,
    check_text,
    count_lines,
    decompressed,
    parse_later,
    read_blocks,
    read_fully,
)
from dpunion.reading.columns import OnFraction, Piece, Wanted, find_columns, join_pieces
from dpunion.reading.locate import Format, InputFile
from dpunion.reading.spelling import Column, TextKind

QUOTE, LINE_FEED, CARRIAGE_RETURN = ord('"'), ord("\n"), ord("\r")
HEADER_BYTES = 1 << 16
NO_HEADER, WRITE_NAMES = "There is no header line in {}.", "Write the column names as its first line."
PIECE_BYTES = 1 << 20  # looked at together: bounds memory, changes no result
QUOTING = (
    'Quote fields that contain quotes, delimiters or line breaks, and double the quotes inside ("" for "), as in '
    "RFC 4180; or write Parquet instead."
)


@dataclass(frozen=True, slots=True)
class DelimitedPart:
    """A CSV or TSV file with a header line.

    Guarantees:
    - no type is inferred and no null is spelled: '001', '1' and '1.0' stay three texts, and only '' is empty;
    - ragged rows, misplaced quotes, NUL bytes and bad UTF-8 are refused, naming file and line only.
    """

    file: InputFile
    where: str
    size: int

    @property
    def delimiter(self) -> str:
        """The byte between fields."""
        return "\t" if self.file.format is Format.TSV else ","

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        """Check the wanted columns by the first line, and look at nothing behind it.

        subtle: whoever is refused here gets the budget back, so nobody's row may decide it. A line that is no plain
        header is left to the reading, which refuses it.
        """
        line = self._first_line()
        if line == b"":
            raise DamagedSource(NO_HEADER.format(self.where), WRITE_NAMES)
        names = None if line is None else header_names(Block(line, 1, self.where), self.delimiter)
        if names is not None:
            find_in_header(names, wanted, self.where)
        for column in columns:
            column.see(TextKind.TEXT, self.where)

    def batches(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[tuple[Any, ...]]:
        """Yield the wanted columns, a block of rows at a time."""
        return join_pieces(self.pieces(wanted, on_fraction))

    def pieces(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[Piece]:
        """Yield blocks of rows, to be parsed."""
        names = self._header()
        positions = find_in_header(names, wanted, self.where)
        for block in self._without_header(on_fraction, BLOCK_BYTES):
            yield parse_later(lambda some: parse_block(some, self.delimiter, len(names), *positions), block)

    def _blocks(self, on_fraction: OnFraction | None, size: int) -> Iterator[Block]:
        return read_blocks(self.file, find_row_end, on_fraction, size)

    def _header(self) -> list[str]:
        """Return the names in the first row."""
        for block in self._blocks(None, HEADER_BYTES):
            header = Block(block.data[: header_end(block)], block.line, block.where)
            check_quotes(header, self.delimiter)
            names = attempt(functools.partial(split_fields, header.data, self.delimiter), self.where)
            if names:
                return names
        raise DamagedSource(NO_HEADER.format(self.where), WRITE_NAMES)

    def _first_line(self) -> bytes | None:
        """Return the first line that is not blank, b"" in a file without any, None when it is not known early."""
        head = None
        with contextlib.suppress(DpunionError), attempt(self.file.peek, self.where) as raw:
            head = attempt(lambda: read_fully(decompressed(raw, self.file.compression), HEADER_BYTES), self.where)
        if head is None:
            return None
        lines = head.removeprefix(BYTE_ORDER_MARK).lstrip(b"\r\n").splitlines(keepends=True)
        if not lines:
            return b"" if len(head) < HEADER_BYTES else None
        whole = lines[0].endswith((b"\r", b"\n")) or len(head) < HEADER_BYTES
        return lines[0].strip(b"\r\n") if whole else None

    def _without_header(self, on_fraction: OnFraction, size: int) -> Iterator[Block]:
        is_header_due = True
        for block in self._blocks(on_fraction, size):
            if not is_header_due:
                yield block
            elif block.data.lstrip(b"\r\n"):
                end = header_end(block)
                is_header_due = False
                yield Block(block.data[end:], block.line + count_lines(block.data[:end]), block.where)


def header_names(line: Block, delimiter: str) -> list[str] | None:
    """Return the names in a line, None when it alone is no header: not UTF-8, or a quote is misplaced or left open."""
    try:
        check_text(line)
        check_quotes(line, delimiter)
        return split_fields(line.data, delimiter)
    except (DamagedSource, csv.Error):
        return None


def find_in_header(names: list[str], wanted: Wanted, where: str) -> tuple[int, ...]:
    """Return the positions of the wanted columns, as `find_columns`, but do not take a row for a header.

    subtle: the first line of a file without header is somebody's row. Its fields are listed as column names only
    when one of them is a wanted name, so that it certainly is a header.
    """
    if not any(column in names for column in wanted.columns) and not is_in_range(names, wanted):
        none = "Neither" if len(wanted.columns) == 2 else "None"
        raise UnknownColumn(
            f"{none} of the columns {wanted.listed()} is in the first line of {where}.",
            "Check the names, and that the file begins with a header line.",
        )
    return find_columns(names, wanted, where)


def is_in_range(names: list[str], wanted: Wanted) -> bool:
    """Say whether all columns are given as positions that the file has."""
    return all(isinstance(column, int) and 0 <= column < len(names) for column in wanted.columns)


def header_end(block: Block) -> int:
    """Return where the first row that is not blank ends, its line end included."""
    data = block.data
    start = len(data) - len(data.lstrip(b"\r\n"))
    for position, octets, inside in quoted(data, start):
        ends = np.flatnonzero(line_ends(octets) & (inside == 0))
        if len(ends):
            return position + int(ends[0]) + 1
    return len(data)


def split_fields(row: bytes, delimiter: str) -> list[str]:
    """Return the fields of one row."""
    rows = list(csv.reader([row.decode().strip("\r\n")], delimiter=delimiter, strict=True))
    return rows[0] if rows else []


def find_row_end(block: Block, is_last: bool) -> int:  # noqa: FBT001 - the signature that read_blocks calls
    """Return where the last whole row of the block ends: at a line end after an even number of quotes."""
    data = block.data
    end = len(data) if is_last else max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    if is_last or data.count(b'"', 0, end) % 2 == 0:
        return end
    last = 0
    for position, octets, inside in quoted(data):
        ends = np.flatnonzero(line_ends(octets) & (inside == 0))
        last = position + int(ends[-1]) + 1 if len(ends) else last
    return last


def quoted(data: bytes, start: int = 0) -> Iterator[tuple[int, Uint8s, Uint8s]]:
    """Yield (position, bytes, inside) of data that starts outside of quotes, a piece at a time to save memory.

    inside: uint8[bytes], 1 from an opening quote on until before the closing one, else 0.
    """
    before = np.uint8(0)
    for position in range(start, len(data), PIECE_BYTES):
        octets = np.frombuffer(data, np.uint8, min(PIECE_BYTES, len(data) - position), position)
        inside = np.bitwise_xor.accumulate((octets == QUOTE).view(np.uint8)) ^ before
        before = inside[-1]
        yield position, octets, inside


def line_ends(octets: Uint8s) -> Any:
    """Say which bytes end a line: bool[bytes]."""
    return (octets == LINE_FEED) | (octets == CARRIAGE_RETURN)


def check_quotes(block: Block, delimiter: str) -> None:
    """Refuse a misplaced or unclosed quote in a block of whole rows.

    A block starts outside of quotes, so quotes number 0, 2, 4… open a field and 1, 3, 5… close one; a doubled
    quote is a closing one that the next opening one follows at once. Hence the rule: before an opening quote
    stands a delimiter, a line end, a quote or nothing, and the same after a closing one.
    """
    if b'"' not in block.data:
        return
    data = block.data
    allowed = np.zeros(256, np.bool_)
    allowed[[QUOTE, LINE_FEED, CARRIAGE_RETURN, ord(delimiter)]] = True
    for position, octets, inside in quoted(data):
        first, last = data[position - 1 : position], data[position + len(octets) : position + len(octets) + 1]
        ends_well = allowed[octets]
        before = np.append(not first or allowed[first[0]], ends_well[:-1])
        after = np.append(ends_well[1:], not last or allowed[last[0]])
        bad = np.flatnonzero((octets == QUOTE) & ~np.where(inside == 1, before, after))
        if len(bad):
            raise block.damaged("a quote is misplaced", position=position + int(bad[0]), remedy=QUOTING)
    if data.count(b'"') % 2:
        raise block.damaged("a quote is never closed", position=data.rfind(b'"'), remedy=QUOTING)


def parse_block(block: Block, delimiter: str, width: int, *positions: int) -> tuple[Any, ...]:
    """Return some columns of a block as text arrays: utf8[rows] each."""
    names = [str(i) for i in range(width)]
    wanted = [str(i) for i in positions]
    if not block.data.lstrip(b"\r\n"):
        return tuple(pa.array([], pa.string()) for _ in wanted)
    check_quotes(block, delimiter)
    table = _try_read(block, delimiter, names, wanted)
    if table is None:
        raise ragged(block, delimiter, width)
    table = table.combine_chunks()
    return tuple(table.column(name).chunk(0) if table.num_rows else pa.array([], pa.string()) for name in wanted)


def _try_read(block: Block, delimiter: str, names: list[str], wanted: list[str]) -> Any:
    # subtle: Arrow drops a byte order mark at what it takes for the start of a file. In the middle of one it is part of
    # somebody's value, and where blocks begin depends on other people's rows.
    data = BYTE_ORDER_MARK + block.data if block.data.startswith(BYTE_ORDER_MARK) else block.data
    try:
        return pa.csv.read_csv(
            pa.BufferReader(data),
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=b'"' in block.data),
            convert_options=pa.csv.ConvertOptions(
                check_utf8=False,  # the block is known to be UTF-8, and fields end at ASCII bytes
                column_types=dict.fromkeys(wanted, pa.string()),
                include_columns=wanted,
                null_values=[],
                strings_can_be_null=False,
            ),
        )
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, ValueError):
        return None


def ragged(block: Block, delimiter: str, width: int) -> DamagedSource:
    """Return the error for a block that the parser refused, with the line of its first ragged row."""
    what = f"a row does not have {width} fields like the header"
    position = ragged_row(block.data, ord(delimiter), width)
    return block.damaged(what, position=position, remedy=f"Give every row all its fields. {QUOTING}")


def ragged_row(data: bytes, delimiter: int, width: int) -> int | None:
    """Return where the first row begins that is not blank and does not have `width` fields."""
    row, before = 0, 0  # where the row under way begins, and its delimiters so far
    for position, octets, inside in quoted(data):
        ends = np.flatnonzero(line_ends(octets) & (inside == 0))
        counts = before + np.cumsum((octets == delimiter) & (inside == 0), dtype=np.int32)
        fields = np.diff(counts[ends], prepend=0) + 1
        rows = np.append(row, position + ends + 1)
        wrong = np.flatnonzero((fields != width) & (position + ends > rows[:-1]))
        if len(wrong):
            return int(rows[wrong[0]])
        row, before = int(rows[-1]), int(counts[-1]) - int(counts[ends[-1]] if len(ends) else 0)
    return row if row < len(data) and before + 1 != width else None
