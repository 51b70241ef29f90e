"""How columnar files are read: what stays a dictionary, and names that are none."""

import io
from types import SimpleNamespace

import pyarrow as pa
import pytest

import dpunion
from dpunion.errors import DamagedSource
from dpunion.reading.columnar import is_coded


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


@pytest.mark.parametrize("kind", ["file", "stream", "standard input"])
def test_a_name_that_is_not_utf8_is_damage(tmp_path, monkeypatch, kind):
    table = pa.table({"user": ["u"], "item": ["x"], "notutf": ["y"]})
    written = io.BytesIO()
    with (pa.ipc.new_file if kind == "file" else pa.ipc.new_stream)(written, table.schema) as writer:
        writer.write_table(table)
    data = written.getvalue().replace(b"notutf", b"\xff\xfe\xfd\xfc\xfb\xfa")
    source = tmp_path / "d.arrow"
    source.write_bytes(data)
    options = {"user": "user", "item": "item", "epsilon": 1.0, "delta": 1e-6}
    if kind == "standard input":
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        source = dpunion.Stdin("arrow")
    with pytest.raises(DamagedSource, match="damaged, truncated or not what its name says"):
        dpunion.release(source, **options)
