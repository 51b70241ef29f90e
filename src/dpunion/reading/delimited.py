"""CSV and TSV: every field is text, byte for byte, and the quoting is RFC 4180 without exceptions.

A lenient parser turns one lost quote into a single field that contains the rest of the file. Here every quote must open
a field, close one, or be doubled inside one; anything else is refused with its line number.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from dpunion.contributions import Uint8s
from dpunion.errors import DamagedSource, DpunionError, UnknownColumn, attempt
from dpunion.reading import blocks
from dpunion.reading.blocks import BLOCK_BYTES, BYTE_ORDER_MARK, Block, read_blocks
from dpunion.reading.parts import OnFraction, Piece, Wanted, find_columns
from dpunion.reading.spelling import Column, TextKind
from dpunion.reading.storage import FilePart, Format

QUOTE, LINE_FEED, CARRIAGE_RETURN = ord('"'), ord("\n"), ord("\r")
HEADER_BYTES = 1 << 16
SHOWN_ROWS = 20  # an error lists the columns only if up to this many rows have as many fields
PIECE_BYTES = 1 << 20  # processed at a time: this limits memory and changes no result
QUOTING = (
    'Quote fields that contain quotes, delimiters or line breaks, and double the quotes inside ("" for "), as in '
    "RFC 4180; or write Parquet instead."
)


class DelimitedPart(FilePart):
    """A CSV or TSV file with a header line.

    Guarantees:
    - no type is inferred and no text means null: '001', '1' and '1.0' stay three texts, and only '' is empty;
    - ragged rows, misplaced quotes, NUL bytes and bad UTF-8 are refused, naming file and line only.
    """

    @property
    def delimiter(self) -> str:
        return "\t" if self.file.format is Format.TSV else ","

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        """Check the wanted columns by the first line, and look at nothing after it.

        subtle: a run that is refused here gets its budget back, so nobody's row may decide it. When the first line is
        not a plain header, `pieces` refuses the file.
        """
        line, rows = self._first_lines()
        names: list[str] = []
        if line == b"":
            raise self._no_header()
        # A line that is not UTF-8, or has a misplaced or open quote, is no header.
        with contextlib.suppress(DamagedSource, csv.Error):
            block = Block(line or b"", 1, self.where)
            blocks.check_text(block)
            check_quotes(block, self.delimiter)
            names = split_fields(block.data, self.delimiter)
        if names:
            find_in_header(names, wanted, self.where, self._may_show(names, rows))
        for column in columns:
            column.see(TextKind.TEXT, self.where)

    def pieces(self, wanted: Wanted, on_fraction: OnFraction, size: int) -> Iterator[Piece]:
        del size
        found = read_blocks(self.file, find_row_end, on_fraction, BLOCK_BYTES)
        for block in found:
            end = header_end(block)
            header = Block(block.data[:end], block.line, block.where)
            rows = Block(block.data[end:], block.line + blocks.count_lines(header.data), block.where)
            check_quotes(header, self.delimiter)
            names = attempt(functools.partial(split_fields, header.data, self.delimiter), self.where)
            if names:
                break  # otherwise all lines of the block are blank
        else:
            raise self._no_header()
        positions = find_in_header(names, wanted, self.where, may_show=False)
        for block in itertools.chain([rows], found):
            yield blocks.parse_later(parse_block, block, self.delimiter, len(names), *positions)

    def _no_header(self) -> DamagedSource:
        return DamagedSource(f"There is no header line in {self.where}.", "Write the column names as its first line.")

    def _may_show(self, names: list[str], rows: list[bytes]) -> bool:
        """Say whether an error may list the names: a header that lost its line end has fields of the row after it."""
        if not rows or not all(map(str.isprintable, names)):
            return False
        try:
            return all(len(split_fields(row, self.delimiter)) == len(names) for row in rows)
        except (csv.Error, UnicodeDecodeError):
            return False

    def _first_lines(self) -> tuple[bytes | None, list[bytes]]:
        """Return the first line that is not blank, b"" if there is none, None if it cannot be read early; and rows.

        These are lines that are not blank, and whose end is in what was read.
        """
        head = None
        with contextlib.suppress(DpunionError), attempt(self.file.peek, self.where) as raw:
            head = attempt(
                lambda: blocks.read_fully(blocks.decompress(raw, self.file.compression), HEADER_BYTES), self.where
            )
        if head is None:
            return None, []
        lines = head.removeprefix(BYTE_ORDER_MARK).lstrip(b"\r\n").splitlines(keepends=True)
        if not lines:
            return b"" if len(head) < HEADER_BYTES else None, []
        is_all = len(head) < HEADER_BYTES
        whole = (line.strip(b"\r\n") for line in lines if is_all or line.endswith((b"\r", b"\n")))
        return next(whole, None), list(itertools.islice(filter(None, whole), SHOWN_ROWS))


def find_in_header(names: list[str], wanted: Wanted, where: str, may_show: bool) -> tuple[int, ...]:  # noqa: FBT001
    """Return the positions of the wanted columns in a header line.

    subtle: the first line of a file without a header is somebody's row. Errors list its fields as column names only
    when one of them is a wanted name, because then it certainly is a header; and only when it may_show, because a
    header without its line end goes on with somebody's row.
    """
    in_range = all(isinstance(column, int) and 0 <= column < len(names) for column in wanted.columns)
    if not in_range and not any(column in names for column in wanted.columns):
        none = "Neither" if len(wanted.columns) == 2 else "None"
        *most, last = map(repr, wanted.columns)
        raise UnknownColumn(
            f"{none} of the columns {', '.join(most)} and {last} is in the first line of {where}.",
            "Check the names, and that the file begins with a header line.",
        )
    return find_columns(names, wanted, where, None if may_show else "")


def header_end(block: Block) -> int:
    """Return the end of the first row that is not blank, including its line end."""
    data = block.data
    start = len(data) - len(data.lstrip(b"\r\n"))
    for position, octets, inside in scan_quotes(data, start):
        ends = np.flatnonzero(line_ends(octets) & (inside == 0))
        if len(ends):
            return position + int(ends[0]) + 1
    return len(data)


def split_fields(row: bytes, delimiter: str) -> list[str]:
    """Return the fields of one row."""
    rows = list(csv.reader([row.decode().strip("\r\n")], delimiter=delimiter, strict=True))
    return rows[0] if rows else []


def find_row_end(block: Block, is_last: bool) -> int:  # noqa: FBT001 - the signature that read_blocks calls
    """Return the end of the last whole row of the block: a line end after an even number of quotes."""
    data = block.data
    end = len(data) if is_last else max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    if is_last or data.count(b'"', 0, end) % 2 == 0:
        return end
    last = 0
    for position, octets, inside in scan_quotes(data):
        ends = np.flatnonzero(line_ends(octets) & (inside == 0))
        last = position + int(ends[-1]) + 1 if len(ends) else last
    return last


def scan_quotes(data: bytes, start: int = 0) -> Iterator[tuple[int, Uint8s, Uint8s]]:
    """Yield (position, bytes, inside) of data that starts outside of quotes, in pieces to save memory.

    inside: uint8[bytes], 1 from an opening quote until before the closing one, else 0.
    """
    before = np.uint8(0)
    for position in range(start, len(data), PIECE_BYTES):
        octets = np.frombuffer(data, np.uint8, min(PIECE_BYTES, len(data) - position), position)
        inside = np.bitwise_xor.accumulate((octets == QUOTE).view(np.uint8)) ^ before
        before = inside[-1]
        yield position, octets, inside


def line_ends(octets: Uint8s) -> Any:
    """Return which bytes end a line: bool[bytes]."""
    return (octets == LINE_FEED) | (octets == CARRIAGE_RETURN)


def check_quotes(block: Block, delimiter: str) -> None:
    """Refuse a misplaced or unclosed quote in a block of whole rows.

    A block starts outside of quotes, so quotes number 0, 2, 4… open a field and 1, 3, 5… close one; a doubled
    quote is a closing one followed directly by an opening one. Hence the rule: a delimiter, a line end, a quote or
    nothing comes before an opening quote and after a closing one.
    """
    if b'"' not in block.data:
        return
    data = block.data
    allowed = np.zeros(256, np.bool_)
    allowed[[QUOTE, LINE_FEED, CARRIAGE_RETURN, ord(delimiter)]] = True
    for position, octets, inside in scan_quotes(data):
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
    # subtle: Arrow drops a byte order mark at the start of a block. In the middle of a file it is part of somebody's
    # value, and other people's rows decide where blocks begin.
    data = BYTE_ORDER_MARK + block.data if block.data.startswith(BYTE_ORDER_MARK) else block.data
    read = pa.csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names)
    parse = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=b'"' in block.data)
    convert = pa.csv.ConvertOptions(
        check_utf8=False,  # the block is known to be UTF-8, and fields end at ASCII bytes
        column_types=dict.fromkeys(wanted, pa.string()),
        include_columns=wanted,
        null_values=[],
        strings_can_be_null=False,
    )
    table = blocks.try_parse(lambda: pa.csv.read_csv(pa.BufferReader(data), read, parse, convert))
    if table is None:
        raise ragged(block, delimiter, width)
    table = table.combine_chunks()
    return tuple(table.column(name).chunk(0) if table.num_rows else pa.array([], pa.string()) for name in wanted)


def ragged(block: Block, delimiter: str, width: int) -> DamagedSource:
    """Return the error for a block that the parser refused, with the line of its first ragged row."""
    what = f"a row does not have {width} fields like the header"
    position = ragged_row(block.data, ord(delimiter), width)
    return block.damaged(what, position=position, remedy=f"Give every row all its fields. {QUOTING}")


def ragged_row(data: bytes, delimiter: int, width: int) -> int | None:
    """Return the start of the first row that is not blank and does not have `width` fields."""
    row, before = 0, 0  # the start of the current row, and its delimiters so far
    for position, octets, inside in scan_quotes(data):
        ends = np.flatnonzero(line_ends(octets) & (inside == 0))
        counts = before + np.cumsum((octets == delimiter) & (inside == 0), dtype=np.int32)
        fields = np.diff(counts[ends], prepend=0) + 1
        rows = np.append(row, position + ends + 1)
        wrong = np.flatnonzero((fields != width) & (position + ends > rows[:-1]))
        if len(wrong):
            return int(rows[wrong[0]])
        row, before = int(rows[-1]), int(counts[-1]) - int(counts[ends[-1]] if len(ends) else 0)
    return row if row < len(data) and before + 1 != width else None
