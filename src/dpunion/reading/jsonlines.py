"""JSON Lines: one object per line. A file without any byte is a valid empty one; a missing key is a null.

The type of a column is that of its first value; Arrow then parses whole blocks with it, so that nothing is
inferred from the look of a text (Arrow by itself makes timestamps of texts like "2024-01-01").
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.json

from dpunion.errors import BadParameter, DamagedSource, DpunionError, ForeignErrors, UnknownColumn, UnsupportedType
from dpunion.reading.blocks import Block, parse_later, read_blocks
from dpunion.reading.columns import OnFraction, Piece, Wanted, check_distinct, join_pieces, refuse_column
from dpunion.reading.locate import InputFile
from dpunion.reading.spelling import Column, is_list

ONE_OBJECT = "Write one JSON object per line, in UTF-8, or write Parquet instead."


@dataclass(frozen=True, slots=True)
class JsonLinesPart:
    """A file of JSON Lines.

    Guarantees:
    - texts stay texts and integers stay integers; floats are refused, also where they look like integers;
    - lines that are not one JSON object each are refused, naming file and line only;
    - a key that no row has is an unknown column, not a column of nulls.
    """

    needs_rows: ClassVar[bool] = True
    """The keys and types of JSON Lines stand in the rows only."""

    file: InputFile
    where: str
    size: int

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        """Check the wanted columns by the first block, which is all of a small file."""
        learner = Learner(key_names(wanted))
        blocks = self._blocks(None)
        block = next(blocks, None)
        if block is None:
            return
        for column, type_ in zip(columns, learner.types_for(block), strict=True):
            if type_ is not None:
                column.expect(type_, self.where)
        if next(blocks, None) is None:
            learner.finish()

    def batches(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[tuple[Any, ...]]:
        """Yield the wanted columns, a block of lines at a time."""
        return join_pieces(self.pieces(wanted, on_fraction))

    def pieces(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[Piece]:
        """Yield blocks of lines, to be parsed."""
        learner = Learner(key_names(wanted))
        for block in self._blocks(on_fraction):
            types = learner.types_for(block)
            yield parse_later(functools.partial(parse_lines, names=learner.names, types=types), block)
        learner.finish()

    def _blocks(self, on_fraction: OnFraction | None) -> Iterator[Block]:
        return read_blocks(self.file, find_line_end, on_fraction)


class Learner:
    """What is known of the wanted columns so far: their types, and whether any row has their keys."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.types: list[Any] = [None for _ in names]
        self.found = [False for _ in names]
        self.first: Block | None = None

    def types_for(self, block: Block) -> list[Any]:
        """Return the types with which to parse a block, None for a column without values so far."""
        if self.first is None and block.data.strip():
            self.first = block
        if None in self.types:
            self.types = learn(block, self.names, self.types)
        for i, name in enumerate(self.names):
            self.found[i] = self.found[i] or self.types[i] is not None or has_key(block, name)
        return self.types

    def finish(self) -> None:
        """Refuse columns whose keys no row has had.

        Guarantees: no key but the wanted ones is reported: keys are data, as in {"somebody": ["something"]}.
        """
        if self.first is None or all(self.found):
            return
        if not any(self.found):
            raise UnknownColumn(
                f"No row of {self.first.where} has the keys {' or '.join(map(repr, self.names))}.",
                "Check the names, and that each line is an object with these keys.",
            )
        refuse_column((), self.names[self.found.index(False)], self.first.where, said="")


def find_line_end(block: Block, is_last: bool) -> int:  # noqa: FBT001 - the signature that read_blocks calls
    """Return where the last whole line of the block ends."""
    return len(block.data) if is_last else block.data.rfind(b"\n") + 1


def key_names(wanted: Wanted) -> tuple[str, ...]:
    """Return the names of the columns; JSON objects have no positions."""
    names = tuple(column for column in wanted.columns if isinstance(column, str))
    if len(names) < len(wanted.columns):
        raise BadParameter("JSON Lines files have no column positions.", "Name the columns by their keys.")
    check_distinct(wanted, names)
    return names


def lines_of(block: Block) -> Iterator[tuple[int, bytes]]:
    """Yield (line number within the block, line) of every line that is not blank."""
    for number, line in enumerate(block.data.split(b"\n")):
        if line.strip(b" \t\r"):
            yield number, line


def load_line(block: Block, number: int, line: bytes) -> dict[str, Any]:
    """Return the object on one line, or refuse the line."""

    def refuse(error: Exception) -> DamagedSource:
        twice = isinstance(error, DuplicateKeyError)
        what = "an object has the same key twice" if twice else "the line is not valid JSON"
        return block.damaged(what, line=number, remedy=ONE_OBJECT)

    with ForeignErrors(refuse, ValueError, RecursionError):
        row = json.loads(line, object_pairs_hook=distinct)
    if not isinstance(row, dict):
        raise block.damaged("the line is not a JSON object", line=number, remedy=ONE_OBJECT)
    return row


class DuplicateKeyError(ValueError):
    """An object has the same key twice."""


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object whose keys are distinct."""
    row = dict(pairs)
    if len(row) != len(pairs):
        raise DuplicateKeyError
    return row


def learn(block: Block, names: tuple[str, ...], known: list[Any]) -> list[Any]:
    """Return the Arrow types of the wanted columns, None for one that has no value so far."""
    types = list(known)
    for number, line in lines_of(block):
        row = load_line(block, number, line)
        for i, name in enumerate(names):
            if types[i] is None:
                types[i] = type_of(row.get(name), name, block, number)
        if None not in types:
            break
    return types


def type_of(value: Any, name: str, block: Block, number: int) -> Any:
    """Return the Arrow type of a JSON value, None for null and for lists of nulls only."""
    match value:
        case None:
            return None
        case bool():
            return pa.bool_()
        case str():
            return pa.string()
        case int() if -(2**63) <= value < 2**63:
            return pa.int64()
        case list() if not any(isinstance(element, list) for element in value):
            types = (type_of(element, name, block, number) for element in value)
            return next((pa.list_(type_) for type_ in types if type_ is not None), None)
        case int():
            kind = "an integer of more than 64 bits"
        case float():
            kind = "a float"
        case list():
            kind = "a list of lists"
        case _:
            kind = "an object"
    raise UnsupportedType(
        f"In {block.where}, line {block.line + number}: column {name!r} contains {kind}.",
        "Write the column as text or as 64-bit integers.",
    )


def has_key(block: Block, name: str) -> bool:
    """Say whether any object of the block has the key, be it with a null."""
    spellings = [json.dumps(name).encode(), json.dumps(name, ensure_ascii=False).encode()]
    if not any(spelling in block.data for spelling in spellings):
        return False
    lines = ((n, line) for n, line in lines_of(block) if any(spelling in line for spelling in spellings))
    return any(name in load_line(block, n, line) for n, line in lines)


def check_lines(block: Block) -> int:
    """Return how many lines are not blank; refuse those that do not begin with { and end with }.

    subtle: together with as many rows as lines, this makes every line exactly one object. It also keeps a
    line `null` from Arrow's parser, which crashes on it.
    """
    octets = np.frombuffer(block.data, np.uint8)
    ends = np.flatnonzero(octets == ord("\n"))
    if len(octets) and octets[-1] != ord("\n"):
        ends = np.append(ends, len(octets))
    starts = np.append(0, ends[:-1] + 1) if len(ends) else ends
    regular = (ends > starts) & (octets[np.minimum(starts, len(octets) - 1)] == ord("{"))
    regular &= octets[ends - 1] == ord("}")
    lines = int(np.count_nonzero(regular))
    for i in np.flatnonzero(~regular).tolist():
        line = block.data[starts[i] : ends[i]].strip(b" \t\r")
        if line and not (line.startswith(b"{") and line.endswith(b"}")):
            raise block.damaged("the line is not a JSON object", line=i, remedy=ONE_OBJECT)
        lines += bool(line)
    return lines


def parse_lines(block: Block, names: tuple[str, ...], types: list[Any]) -> tuple[Any, ...]:
    """Return the wanted columns of a block with their learned types."""
    schema = [(name, pa.string() if type_ is None else type_) for name, type_ in zip(names, types, strict=True)]
    lines = check_lines(block)
    table = _try_read(block, pa.schema(schema))
    if table is None or table.num_rows != lines:
        raise explain(block, names, types)
    table = table.combine_chunks()
    return tuple(table.column(i).chunk(0) if table.num_rows else pa.nulls(0) for i in range(len(names)))


def _try_read(block: Block, schema: Any) -> Any:
    try:
        return pa.json.read_json(
            pa.BufferReader(block.data),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=len(block.data) + 1),
            parse_options=pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, ValueError):
        return None


def explain(block: Block, names: tuple[str, ...], types: list[Any]) -> DpunionError:
    """Return the error for a block that Arrow refused, found by a slow walk over its lines."""
    for number, line in lines_of(block):
        try:
            row = load_line(block, number, line)
            got = [type_of(row.get(name), name, block, number) for name in names]
        except DpunionError as error:
            return error
        for name, type_, expected in zip(names, got, types, strict=True):
            if type_ is not None and type_ != expected:
                return mixed(block, number, name)
            value = row.get(name)
            if value is not None and expected is not None and isinstance(value, list) != is_list(expected):
                return mixed(block, number, name)
            if isinstance(value, list) and has_mixed_elements(value, name, block, number):
                return mixed(block, number, name)
    return block.damaged("the lines cannot be read as one JSON object each", line=0, remedy=ONE_OBJECT)


def has_mixed_elements(values: list[Any], name: str, block: Block, number: int) -> bool:
    """Say whether the elements of a list have several types."""
    return len({str(type_of(v, name, block, number)) for v in values if v is not None}) > 1


def mixed(block: Block, number: int, name: str) -> UnsupportedType:
    """Return the error for a column whose values change their type."""
    return UnsupportedType(
        f"Mixed types: in {block.where}, line {block.line + number}, column {name!r} has a value of another type "
        "than before.",
        "Write the column with one type (text is always possible).",
    )
