"""Keys of several columns, column by column: each key as the one text of `dpunion.releases.formats`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from dpunion.buffers import pc, string_buffers
from dpunion.errors import attempt
from dpunion.reading.moments import Granularity, MomentColumn, refuse_without_moments
from dpunion.reading.spelling import Column, Role, is_missing_possible
from dpunion.releases.formats import KEY_ESCAPES, SEPARATOR

LONGEST_PART = 4096
"""Parts longer than this many UTF-8 bytes count as missing: no item is that long."""


class KeyColumn(Column):
    """Several columns that are one key, as one column of structs over all its batches.

    Guarantees:
    - each part is spelled by the rules for its own column, and keeps its kind;
    - a row with a null or empty part has no key: null;
    - different keys get different texts.
    """

    def __init__(self, names: Sequence[str], granularity: Granularity | None = None) -> None:
        super().__init__(", ".join(names), Role.KEY)
        self.granularity = granularity
        self.columns = tuple(
            Column(name, Role.KEY) if granularity is None else MomentColumn(name, Role.KEY, granularity)
            for name in names
        )

    @property
    def parts(self) -> tuple[Column, ...]:
        """The columns of the key, in its order."""
        return self.columns

    def text(self, array: Any, where: str) -> Any:
        """Return the keys of one batch of structs: large_utf8[rows], null where a part is missing."""
        parts = [column.text(array.field(i), where) for i, column in enumerate(self.columns)]
        if self.granularity is not None and all(column.kind is not None for column in self.columns):
            refuse_without_moments(self.columns)
        return attempt(lambda: join_columns(parts), where)


def key_struct(columns: Sequence[Any]) -> Any:
    """Return the columns of a key as one array of structs, not copied."""
    return pa.StructArray.from_arrays(list(columns), [str(i) for i in range(len(columns))])


def join_columns(parts: Sequence[Any]) -> Any:
    """Return the keys of columns of canonical text: large_utf8[rows], null where a part is null or empty."""
    # subtle: large, for a few short entries of dictionaries can be more than 2 GiB when each row has its own.
    between = pa.scalar(SEPARATOR, pa.large_string())
    return pc.binary_join_element_wise(*map(escape_texts, parts), between, null_handling="emit_null")


def escape_texts(texts: Any) -> Any:
    """Return a column's escaped texts, large_utf8[rows]; a dictionary's entries are escaped once."""
    if pt.is_dictionary(texts.type):
        return escape_texts(texts.dictionary).take(texts.indices)
    texts = texts.cast(pa.large_string())
    if is_missing_possible(texts, LONGEST_PART):
        sizes = pc.binary_length(texts)
        texts = pc.if_else(pc.and_(pc.greater(sizes, 0), pc.less_equal(sizes, LONGEST_PART)), texts, None)
    if not has_special(texts):
        return texts
    return functools.reduce(
        lambda some, pair: pc.replace_substring(some, pattern=pair[0], replacement=pair[1]), KEY_ESCAPES, texts
    )


def has_special(texts: Any) -> bool:
    """Say whether a byte among the texts needs escaping; what nulls hide may count."""
    offsets, data = string_buffers(texts)
    some = data[int(offsets[0]) : int(offsets[-1])]
    return any(bool(np.any(some == ord(special))) for special, _ in KEY_ESCAPES)
