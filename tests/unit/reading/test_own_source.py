"""A source of one's own: what it takes, and that it is read like any other.

Two places are touched: one module (here the class Diary) with `parts_of` and a part, and one word in READERS.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

import dpunion
from dpunion import reading
from dpunion.errors import UnknownColumn
from dpunion.reading.parts import FileTypes, OnFraction, SourcePart, SourceRequest, Wanted
from dpunion.reading.spelling import Column

PAIRS = [(f"user{number % 70}", f"item{number % 9}") for number in range(700)]
BUDGET = {"epsilon": 3.0, "delta": 1e-3, "algorithm": "weighted-gaussian"}


class DiaryPart(SourcePart):
    """The entries of a diary."""

    def __init__(self, source: Diary) -> None:
        super().__init__("the diary")
        self.table = pa.table({"writer": source.writers, "word": source.words})

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        FileTypes(self.where, self.table.schema).check(wanted, columns)

    def batches(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[tuple[Any, ...]]:
        positions = FileTypes(self.where, self.table.schema).find(wanted)
        for batch in self.table.to_batches(max_chunksize=100):
            yield tuple(batch.column(i) for i in positions)
        on_fraction(1.0)


class Diary:
    """An object that no reader of dpunion knows, and, as its module would, the reader of such objects."""

    def __init__(self, writers: list[str], words: list[str]) -> None:
        self.writers, self.words = writers, words

    @staticmethod
    def parts_of(request: SourceRequest) -> list[SourcePart] | None:
        return [DiaryPart(request.source)] if isinstance(request.source, Diary) else None


@pytest.fixture
def diary(monkeypatch: pytest.MonkeyPatch) -> Diary:
    monkeypatch.setattr(reading, "READERS", (*reading.READERS, Diary))
    users, words = zip(*PAIRS, strict=True)
    return Diary(list(users), list(words))


def rows_of(request: SourceRequest) -> list[tuple[str, str]]:
    with reading.open_source(request) as rows:
        return [pair for batch in rows for pair in zip(*(column.to_pylist() for column in batch), strict=True)]


def test_an_own_source_has_the_rows_of_pairs(diary: Diary) -> None:
    mine = SourceRequest(diary, "writer", reading.ValueKind.ITEM, "word")
    assert rows_of(mine) == rows_of(SourceRequest(PAIRS, None, reading.ValueKind.ITEM, None)) == PAIRS


def test_an_own_source_is_released_like_pairs(diary: Diary) -> None:
    mine = dpunion.release(diary, user="writer", item="word", **BUDGET)
    assert len(mine.items) == 9
    assert set(mine.items) == set(dpunion.release(PAIRS, **BUDGET).items)


def test_an_own_source_is_checked_before_it_is_read(diary: Diary) -> None:
    begun: list[bool] = []
    request = SourceRequest(diary, "writer", reading.ValueKind.ITEM, "wrod")
    with pytest.raises(UnknownColumn, match="Did you mean 'word'"):
        reading.open_source(request, lambda: begun.append(True))
    assert not begun
