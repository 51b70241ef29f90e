"""JSON Lines: one object per line. An empty file is valid; a missing key is a null.

The first value of a column decides its type, and Arrow parses whole blocks with this type. Without it, Arrow would
convert texts like "2024-01-01" to timestamps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from dpunion.errors import BadParameter, DamagedSource, DpunionError, ForeignErrors, UnknownColumn, UnsupportedType
from dpunion.reading.blocks import Block, parse_later, read_blocks, try_parse
from dpunion.reading.parts import OnFraction, Piece, Wanted, check_distinct, refuse_column
from dpunion.reading.spelling import Column, is_list
from dpunion.reading.storage import FilePart

ONE_OBJECT = "Write one JSON object per line, in UTF-8, or write Parquet instead."
EMPTY = pa.list_(pa.null())  # the type of empty lists and lists of nulls
UNKNOWN = (None, EMPTY)  # the types of columns without values so far


class JsonLinesPart(FilePart):
    """A file of JSON Lines.

    Guarantees:
    - texts stay texts and integers stay integers; floats are refused, even if they look like integers;
    - a line that is not one JSON object is refused, naming file and line only;
    - a key that no row has is an unknown column, not a column of nulls.
    """

    needs_rows = True  # only the rows have the keys and types

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        """Check the wanted columns by the first block, which is the whole of a small file."""
        learner = Learner(key_names(wanted))
        blocks = read_blocks(self.file, find_line_end, None)
        block = next(blocks, None)
        if block is None:
            return
        for column, type_ in zip(columns, learner.types_for(block), strict=True):
            if type_ is not None:
                column.expect(type_, self.where)
        if next(blocks, None) is None:
            learner.finish()

    def pieces(self, wanted: Wanted, on_fraction: OnFraction, size: int) -> Iterator[Piece]:
        del size
        learner = Learner(key_names(wanted))
        for block in read_blocks(self.file, find_line_end, on_fraction):
            yield parse_later(parse_lines, block, learner.names, learner.types_for(block))
        learner.finish()


class Learner:
    """The types of the wanted columns, and whether any row has their keys, as known so far."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.types: list[Any] = [None for _ in names]
        self.found = [False for _ in names]
        self.first: Block | None = None

    def types_for(self, block: Block) -> list[Any]:
        """Return the types to parse a block with, one of UNKNOWN for a column without values so far."""
        if self.first is None and block.data.strip():
            self.first = block
        if any(type_ in UNKNOWN for type_ in self.types):
            self.types = learn(block, self.names, self.types)
        for i, name in enumerate(self.names):
            self.found[i] = self.found[i] or self.types[i] is not None or has_key(block, name)
        return self.types

    def finish(self) -> None:
        """Refuse columns whose keys were in no row.

        Guarantees: errors name only wanted keys, because keys are data, as in {"somebody": ["something"]}.
        """
        if self.first is None or all(self.found):
            return
        if not any(self.found):
            raise UnknownColumn(
                f"No row of {self.first.where} has the keys {' or '.join(map(repr, self.names))}.",
                "Check the names, and that each line is an object with these keys.",
            )
        refuse_column((), self.names[self.found.index(False)], self.first.where, query="")


def find_line_end(block: Block, is_last: bool) -> int:  # noqa: FBT001 - the signature that read_blocks calls
    """Return the end of the last whole line of the block."""
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
        what = "an object has the same key twice" if isinstance(error, KeyError) else "the line is not valid JSON"
        return block.damaged(what, line=number, remedy=ONE_OBJECT)

    with ForeignErrors(refuse, ValueError, RecursionError, KeyError):
        row = json.loads(line, object_pairs_hook=distinct_keys)
    if not isinstance(row, dict):
        raise block.damaged("the line is not a JSON object", line=number, remedy=ONE_OBJECT)
    return row


def distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; raise KeyError if it has a key twice."""
    row = dict(pairs)
    if len(row) != len(pairs):
        raise KeyError
    return row


def learn(block: Block, names: tuple[str, ...], known: list[Any]) -> list[Any]:
    """Return the Arrow types of the wanted columns, one of UNKNOWN for a column without values so far."""
    types = list(known)
    for number, line in lines_of(block):
        row = load_line(block, number, line)
        for i, name in enumerate(names):
            if types[i] in UNKNOWN:
                found = type_of(row.get(name), name, block, number)
                if types[i] is None or (found is not None and is_list(found)):  # a list stays one
                    types[i] = found
        if not any(type_ in UNKNOWN for type_ in types):
            break
    return types


def type_of(value: Any, name: str, block: Block, number: int) -> Any:
    """Return the Arrow type of a JSON value, None for null and EMPTY for lists without values."""
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
            return next((pa.list_(type_) for type_ in types if type_ is not None), EMPTY)
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
    """Return whether any object of the block has the key, with a value or with null."""
    spellings = [json.dumps(name).encode(), json.dumps(name, ensure_ascii=False).encode()]
    lines = lines_of(block) if any(one in block.data for one in spellings) else ()
    return any(name in load_line(block, n, line) for n, line in lines if any(one in line for one in spellings))


def check_lines(block: Block) -> int:
    """Return the number of lines that are not blank; refuse a line that does not begin with { and end with }.

    subtle: when Arrow then finds as many rows as lines, every line is exactly one object. This check also refuses the
    line `null`, on which Arrow's parser crashes.
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
    """Return the wanted columns of a block with their types; those without values are nulls, which fit every kind."""
    texts = pa.list_(pa.string())  # as which nulls and lists without values can be parsed
    schema = [(name, texts if type_ in UNKNOWN else type_) for name, type_ in zip(names, types, strict=True)]
    lines = check_lines(block)
    read = pa.json.ReadOptions(use_threads=False, block_size=len(block.data) + 1)
    parse = pa.json.ParseOptions(explicit_schema=pa.schema(schema), unexpected_field_behavior="ignore")
    table = try_parse(lambda: pa.json.read_json(pa.BufferReader(block.data), read_options=read, parse_options=parse))
    if table is None or table.num_rows != lines:
        raise explain(block, names, types)
    columns = zip(table.columns, types, strict=True)
    return tuple(pa.nulls(lines, type_) if type_ in UNKNOWN else one.combine_chunks() for one, type_ in columns)


def explain(block: Block, names: tuple[str, ...], types: list[Any]) -> DpunionError:
    """Return the error for a block that Arrow refused, by parsing its lines one by one."""
    for number, line in lines_of(block):
        try:
            row = load_line(block, number, line)
            got = [type_of(row.get(name), name, block, number) for name in names]
        except DpunionError as error:
            return error
        for name, type_, expected in zip(names, got, types, strict=True):
            value = row.get(name)
            some = [one for one in value if one is not None] if isinstance(value, list) else []
            if (
                (type_ not in UNKNOWN and type_ != expected)
                or (value is not None and expected is not None and isinstance(value, list) != is_list(expected))
                or len({str(type_of(one, name, block, number)) for one in some}) > 1
            ):
                return UnsupportedType(
                    f"Mixed types: in {block.where}, line {block.line + number}, column {name!r} has a value of "
                    "another type than before.",
                    "Write the column with one type (text is always possible).",
                )
    return block.damaged("the lines cannot be read as one JSON object each", line=0, remedy=ONE_OBJECT)
