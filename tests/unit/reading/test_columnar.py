"""How columnar files are read: what stays a dictionary, and names that are none."""

import io
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

import dpunion
from dpunion.errors import DamagedSource
from dpunion.reading.columnar import BATCH_BYTES, is_coded, plan_reading, sample_groups
from dpunion.reading.spelling import validate_all


def chunk(rows, *, coded, size=0):
    return SimpleNamespace(num_values=rows, has_dictionary_page=coded, total_uncompressed_size=size)


def parquet(kind=None):
    return SimpleNamespace(schema_arrow=pa.schema({"item": kind or pa.string()}))


def groups(*chunks):
    return [SimpleNamespace(num_rows=one.num_values, column=lambda _leaf, one=one: one) for one in chunks]


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
    assert is_coded(parquet(), 0, 0, groups(*chunks)) is expected


def test_numbers_are_not_read_as_dictionaries():
    assert not is_coded(parquet(pa.int64()), 0, 0, groups(chunk(1000, coded=True)))


@pytest.mark.parametrize(("count", "expected"), [(0, []), (1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (100, [0, 50, 99])])
def test_a_file_is_known_by_few_row_groups(count, expected):
    assert sample_groups(count) == expected


@pytest.mark.parametrize(
    ("texts", "most"), [(["a", "b"], BATCH_BYTES // 8), ([f"{n:040}" for n in range(20_000)], 60_000)]
)
def test_a_batch_is_small_in_memory_however_small_it_is_in_the_file(texts, most):
    """Rows of two columns of few texts take a byte or less in the file, and two places of four bytes each when read."""
    column = pa.array(texts * (40_000 // len(texts)))
    written = io.BytesIO()
    pq.write_table(pa.table({"user": column, "item": column}), written)
    file = pq.ParquetFile(written)
    _, rows, _ = plan_reading(file, [0, 1], [0, 1], [0])
    assert most // 4 < rows <= most


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
    with pytest.raises(DamagedSource, match="damaged, truncated, or not in the format that its name says"):
        dpunion.release(source, **options)


@given(
    offsets=st.lists(st.integers(-2, 12), min_size=2, max_size=6),
    data=st.binary(min_size=8, max_size=8) | st.text(st.characters(max_codepoint=127), min_size=8).map(str.encode),
    cut=st.integers(0, 3),
    wide=st.booleans(),
    valid=st.none() | st.integers(0, 255),
)
def test_texts_are_refused_where_arrow_refuses_them(offsets, data, cut, wide, valid):
    """Offsets that point backwards or outside, and bytes that are no UTF-8; also in slices."""
    offsets = sorted(offsets) if cut else offsets
    kind, width = (pa.large_string(), np.int64) if wide else (pa.string(), np.int32)
    bits = None if valid is None else pa.py_buffer(bytes([valid]))
    places = pa.py_buffer(np.array(offsets, width))
    try:
        array = pa.Array.from_buffers(kind, len(offsets) - 1, [bits, places, pa.py_buffer(data)]).slice(cut)
    except pa.ArrowInvalid:
        reject()  # Arrow looks at the last offset by itself

    def is_refused(validate):
        try:
            validate()
        except pa.ArrowInvalid:
            return True
        return False

    assert is_refused(lambda: validate_all(array)) == is_refused(lambda: array.validate(full=True))
