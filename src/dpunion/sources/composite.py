"""Keys of several columns: inside, one text for each combination; outside, its parts again.

The parts stand one after the other with U+001F between them. Inside a part, a backslash is doubled and U+001F is
written as a backslash and an underscore, so different keys are different texts.

subtle: neither U+001F nor the backslash nor the underscore composes with a combining mark, has another case, or counts
as part of a word; so normalising or lower-casing the one text is the same as doing it to each part.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dpunion.sources.canonical import Column, Role, is_missing_possible
from dpunion.sources.guard import attempt
from dpunion.sources.strings import string_buffers

SEPARATOR, ESCAPE = "\x1f", "\\"
ESCAPES = ((ESCAPE, ESCAPE + ESCAPE), (SEPARATOR, ESCAPE + "_"))
"""What is written for what; the backslash comes first, for the other escape adds one."""

LONGEST_PART = 4096
"""Parts longer than this many UTF-8 bytes count as missing: no item is that long."""


def join(parts: Sequence[str]) -> str:
    """Return the one text of a key."""
    return SEPARATOR.join(escaped(part) for part in parts)


def split(text: str) -> tuple[str, ...]:
    """Return the parts of a key's text: split(join(parts)) == parts, for one part or more."""
    return tuple(unescaped(part) for part in text.split(SEPARATOR))


def escaped(part: str) -> str:
    """Return a part without U+001F and without a single backslash."""
    for plain, written in ESCAPES:
        part = part.replace(plain, written)
    return part


def unescaped(part: str) -> str:
    """Undo `escaped`; between doubled backslashes, every other one stands before an underscore."""
    if ESCAPE not in part:
        return part
    return ESCAPE.join(piece.replace(ESCAPE + "_", SEPARATOR) for piece in part.split(ESCAPE + ESCAPE))


class KeyColumn(Column):
    """Several columns that are one key, as one column of structs over all its batches.

    Guarantees:
    - each part is spelled by the rules for its own column, and keeps its kind;
    - a row with a null or empty part has no key: null;
    - different keys get different texts.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(", ".join(names), Role.KEY)
        self.columns = tuple(Column(name, Role.KEY) for name in names)

    @property
    def parts(self) -> tuple[Column, ...]:
        """The columns of the key, in its order."""
        return self.columns

    def text(self, array: Any, where: str) -> Any:
        """Return the keys of one batch of structs: large_utf8[rows], null where a part is missing."""
        parts = [column.text(array.field(i), where) for i, column in enumerate(self.columns)]
        return attempt(lambda: join_columns(parts), where)


def key_struct(columns: Sequence[Any]) -> Any:
    """Return the columns of a key as one array of structs, not copied."""
    return pa.StructArray.from_arrays(list(columns), [str(i) for i in range(len(columns))])


def join_columns(parts: Sequence[Any]) -> Any:
    """Return the keys of columns of canonical text: large_utf8[rows], null where a part is null or empty."""
    # subtle: large, for a few short entries of dictionaries can be more than 2 GiB when each row has its own.
    between = pa.scalar(SEPARATOR, pa.large_string())
    return pc.binary_join_element_wise(*map(written, parts), between, null_handling="emit_null")


def written(texts: Any) -> Any:
    """Return a column's escaped texts, large_utf8[rows]; a dictionary's entries are escaped once."""
    if pt.is_dictionary(texts.type):
        return written(texts.dictionary).take(texts.indices)
    texts = texts.cast(pa.large_string())
    if is_missing_possible(texts, LONGEST_PART):
        sizes = pc.binary_length(texts)
        texts = pc.if_else(pc.and_(pc.greater(sizes, 0), pc.less_equal(sizes, LONGEST_PART)), texts, None)
    if not has_special(texts):
        return texts
    return functools.reduce(
        lambda some, pair: pc.replace_substring(some, pattern=pair[0], replacement=pair[1]), ESCAPES, texts
    )


def has_special(texts: Any) -> bool:
    """Say whether a byte among the texts needs escaping; what nulls hide may count."""
    offsets, data = string_buffers(texts)
    some = data[int(offsets[0]) : int(offsets[-1])]
    return any(bool(np.any(some == ord(special))) for special, _ in ESCAPES)
