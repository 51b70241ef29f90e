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

from dpunion.errors import DamagedSource, DpunionError, UnknownColumn
from dpunion.sources.blocks import (
    BLOCK_BYTES,
    BYTE_ORDER_MARK,
    Block,
    check_text,
    count_lines,
    decompressed,
    parsed,
    read_blocks,
    read_fully,
)
from dpunion.sources.canonical import Column, Kind
from dpunion.sources.columns import OnFraction, Wanted, find_columns
from dpunion.sources.guard import attempt
from dpunion.sources.locate import Format, InputFile

QUOTE, LINE_FEED, CARRIAGE_RETURN = ord('"'), ord("\n"), ord("\r")
HEADER_BYTES = 1 << 16
NO_HEADER, WRITE_NAMES = "There is no header line in {}.", "Write the column names as its first line."
QUOTING = (
    'Quote fields that hold quotes, delimiters or line breaks, and double the quotes inside ("" for "), as in'
    " RFC 4180; or write Parquet instead."
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
            column.see(Kind.TEXT, self.where)

    def batches(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[tuple[Any, ...]]:
        """Yield the wanted columns, a block of rows at a time."""
        names = self._header()
        positions = find_in_header(names, wanted, self.where)
        blocks = self._without_header(on_fraction, BLOCK_BYTES)
        yield from parsed(lambda block: parse(block, self.delimiter, len(names), *positions), blocks)

    def _blocks(self, on_fraction: OnFraction | None, size: int) -> Iterator[Block]:
        return read_blocks(self.file, row_end, on_fraction, size)

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
        """Return the first line that is not blank, b"" in a file without any, None when it cannot be told early."""
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
            elif block.data.strip(b"\r\n"):
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
    end = start
    while True:
        ends = [i for i in (data.find(b"\n", end), data.find(b"\r", end)) if i >= 0]
        if not ends:
            return len(data)
        end = min(ends) + 1
        if data.count(b'"', start, end) % 2 == 0:
            return end


def split_fields(row: bytes, delimiter: str) -> list[str]:
    """Return the fields of one row."""
    rows = list(csv.reader([row.decode().strip("\r\n")], delimiter=delimiter, strict=True))
    return rows[0] if rows else []


def row_end(block: Block, is_last: bool) -> int:  # noqa: FBT001 - the signature that read_blocks calls
    """Return where the last whole row of the block ends: at a line end after an even number of quotes."""
    data = block.data
    end = len(data) if is_last else max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    if is_last or data.count(b'"', 0, end) % 2 == 0:
        return end
    octets = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(octets == QUOTE)
    ends = np.flatnonzero((octets == LINE_FEED) | (octets == CARRIAGE_RETURN))
    outside = ends[np.searchsorted(quotes, ends) % 2 == 0]
    return int(outside[-1]) + 1 if len(outside) else 0


def check_quotes(block: Block, delimiter: str) -> None:
    """Refuse a misplaced or unclosed quote in a block of whole rows.

    A block starts outside of quotes, so quotes number 0, 2, 4… open a field and 1, 3, 5… close one; a doubled
    quote is a closing one that the next opening one follows at once. Hence the rule: before an opening quote
    stands a delimiter, a line end, a quote or nothing, and the same after a closing one.
    """
    if b'"' not in block.data:
        return
    octets = np.frombuffer(block.data, np.uint8)
    quotes = np.flatnonzero(octets == QUOTE)
    allowed = np.zeros(256, np.bool_)
    allowed[[QUOTE, LINE_FEED, CARRIAGE_RETURN, ord(delimiter)]] = True
    opening, closing = quotes[0::2], quotes[1::2]
    bad_open = opening[(opening > 0) & ~allowed[octets[opening - 1]]]
    bad_close = closing[(closing < len(octets) - 1) & ~allowed[octets[(closing + 1) % len(octets)]]]
    bad = np.concatenate([bad_open, bad_close])
    if len(bad):
        raise block.damaged("a quote is misplaced", position=int(bad.min()), remedy=QUOTING)
    if len(quotes) % 2:
        raise block.damaged("a quote is never closed", position=int(quotes[-1]), remedy=QUOTING)


def parse(block: Block, delimiter: str, width: int, *positions: int) -> tuple[Any, ...]:
    """Return some columns of a block as text arrays: utf8[rows] each."""
    names = [str(i) for i in range(width)]
    wanted = [str(i) for i in positions]
    if not block.data.strip(b"\r\n"):
        return tuple(pa.array([], pa.string()) for _ in wanted)
    check_quotes(block, delimiter)
    table = _try_read(block, delimiter, names, wanted)
    if table is None:
        raise ragged(block, delimiter, width)
    table = table.combine_chunks()
    return tuple(table.column(name).chunk(0) if table.num_rows else pa.array([], pa.string()) for name in wanted)


def _try_read(block: Block, delimiter: str, names: list[str], wanted: list[str]) -> Any:
    try:
        return pa.csv.read_csv(
            pa.BufferReader(block.data),
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=len(block.data) + 1, column_names=names),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=b'"' in block.data),
            convert_options=pa.csv.ConvertOptions(
                check_utf8=False,  # the block is known to be UTF-8, and fields end at ASCII bytes
                column_types=dict.fromkeys(wanted, pa.string()),
                include_columns=wanted,
                null_values=[],
                strings_can_be_null=False,
            ),
        )
    except (pa.ArrowException, OSError, ValueError):
        return None


def ragged(block: Block, delimiter: str, width: int) -> DamagedSource:
    """Return the error for a block that the parser refused, with the line of its first ragged row."""
    octets = np.frombuffer(block.data, np.uint8)
    quotes = np.flatnonzero(octets == QUOTE)
    marks = np.flatnonzero((octets == LINE_FEED) | (octets == CARRIAGE_RETURN) | (octets == ord(delimiter)))
    marks = marks[np.searchsorted(quotes, marks) % 2 == 0]
    is_end = octets[marks] != ord(delimiter)
    ends = np.append(marks[is_end], len(octets))
    starts = np.append(0, ends[:-1] + 1)
    delimiters = marks[~is_end]
    fields = np.searchsorted(delimiters, ends) - np.searchsorted(delimiters, starts) + 1
    wrong = np.flatnonzero((fields != width) & (ends > starts))
    position = int(starts[wrong[0]]) if len(wrong) else None
    what = f"a row does not have {width} fields, as the header has"
    return block.damaged(what, position=position, remedy=f"Give every row all its fields. {QUOTING}")
