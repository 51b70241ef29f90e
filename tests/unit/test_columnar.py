"""How columnar files are read: what stays a dictionary."""

from types import SimpleNamespace

import pyarrow as pa
import pytest

from dpunion.sources.columnar import is_coded


def chunk(rows, *, coded, size=0):
    return SimpleNamespace(num_values=rows, has_dictionary_page=coded, total_uncompressed_size=size)


def parquet(*chunks, kind=None):
    groups = [SimpleNamespace(num_rows=one.num_values, column=lambda _leaf, one=one: one) for one in chunks]
    metadata = SimpleNamespace(num_row_groups=len(groups), row_group=groups.__getitem__)
    return SimpleNamespace(schema_arrow=pa.schema({"item": kind or pa.string()}), metadata=metadata)


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([chunk(1000, coded=True)], True),
        ([chunk(1000, coded=False)], False),
        ([chunk(1000, coded=True), chunk(50, coded=False)], True),
        ([chunk(1000, coded=True), chunk(500, coded=False)], False),
        ([chunk(1000, coded=True, size=10_000_000)], False),
        ([], True),
    ],
    ids=["all", "none", "all but a short end", "two thirds", "a dictionary that was given up", "no rows"],
)
def test_a_column_stays_a_dictionary_where_nearly_all_rows_are_coded(chunks, expected):
    assert is_coded(parquet(*chunks), 0, 0) is expected


def test_numbers_are_not_read_as_dictionaries():
    assert not is_coded(parquet(chunk(1000, coded=True), kind=pa.int64()), 0, 0)
