"""Objects that yield record batches when asked, and tables with a log by their names."""

from __future__ import annotations

import base64
import datetime as dt
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dpunion.errors import BadParameter, BadSource, UnknownColumn, UnsupportedType
from dpunion.reading import ValueKind, check_source, open_rows

ROWS = pa.table({"u": ["a", "b", "a"], "v": ["x", "y", None], "w": [1.5, 2.5, 3.5]})
CANARY = "CANARYvalue"
STANDARD_85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
Z_85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def pairs(source: Any, **options: Any) -> list[tuple[str, str]]:
    columns = {"user": "u", "value": "v", "kind": ValueKind.ITEM} | options
    with open_rows(source, **columns) as batches:
        return sorted(pair for batch in batches for pair in zip(*(one.to_pylist() for one in batch), strict=True))


OBJECTS = {
    "LazyFrame": pl.from_arrow(ROWS).lazy(),
    "Dataset": ds.dataset(ROWS),
    "Scanner": ds.dataset(ROWS).scanner(),
    "list": ROWS.to_batches(),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_columns_and_types_are_checked_before_rows_are_read(name: str) -> None:
    source = OBJECTS[name]
    assert pairs(source) == [("a", "x"), ("b", "y")]
    reading: list[bool] = []
    late = name == "list"  # whose batches are looked at one by one
    for column, error in (("vv", UnknownColumn), ("w", UnsupportedType)):
        with (
            pytest.raises(error),
            open_rows(
                source, user="u", value=column, kind=ValueKind.ITEM, on_reading=lambda: reading.append(True)
            ) as batches,
        ):
            list(batches)
    assert bool(reading) == late


def test_only_the_wanted_columns_of_a_lazy_frame_are_computed() -> None:
    frame = pl.from_arrow(ROWS).lazy().with_columns(z=pl.col("w").map_elements(lambda _: 1 // 0, return_dtype=pl.Int64))
    assert pairs(frame) == [("a", "x"), ("b", "y")]


def test_what_fails_later_does_not_quote_rows() -> None:
    frame = pl.LazyFrame({"u": ["a"], "v": [CANARY]}).with_columns(v=pl.col("v").str.to_date())
    with pytest.raises(BadSource) as caught:
        pairs(frame)
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_text_files_in_a_dataset_are_refused(tmp_path: Path) -> None:
    pc.write_csv(ROWS.select(["u", "v"]), tmp_path / "rows.csv")
    text = ds.dataset(tmp_path / "rows.csv", format="csv")
    union = ds.dataset([text, ds.dataset(ROWS.select(["u", "v"]))])
    for source in (text, union, ds.dataset([ds.dataset(ROWS.select(["u", "v"])), union])):
        with pytest.raises(BadSource, match="Name the files themselves"):
            check_source(source, user="u", value="v", kind=ValueKind.ITEM)


def test_nothing_of_a_generator_is_lost_to_the_check() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches(max_chunksize=1)

    source = batches()
    check_source(source, user="u", value="v", kind=ValueKind.ITEM)
    assert pairs(source) == [("a", "x"), ("b", "y")]


def test_batches_with_other_orders_of_columns_are_read_by_name() -> None:
    first, second = ROWS.select(["u", "v"]).slice(0, 1), ROWS.select(["w", "v", "u"]).slice(1)
    assert pairs(iter([first, second])) == [("a", "x"), ("b", "y")]


def test_an_iterable_of_something_else_is_refused() -> None:
    with pytest.raises(BadParameter, match=r"Element number 0 of the generator .* is no record batch but a tuple"):
        pairs(pair for pair in [("a", "x")])
    with pytest.raises(BadParameter, match="has no columns to name"):
        check_source([("a", "x")], user="u", value="v", kind=ValueKind.ITEM)
    with pytest.raises(UnknownColumn):
        pairs(iter([ROWS.select(["u"])]))


def test_batches_of_other_types_are_refused() -> None:
    number = pa.table({"u": ["a"], "v": [1]})
    with pytest.raises(UnsupportedType, match="Mixed types"):
        pairs(iter([ROWS, number]))


def write_delta(place: Path) -> Any:
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(place, ROWS.select(["u", "v"]))
    return deltalake


def test_a_delta_table_is_read_at_the_version_it_has(tmp_path: Path) -> None:
    deltalake = write_delta(tmp_path / "t")
    before = deltalake.DeltaTable(tmp_path / "t")
    deltalake.DeltaTable(tmp_path / "t").delete("u = 'b'")
    assert pairs(before) == [("a", "x"), ("b", "y")]
    assert pairs(tmp_path / "t") == [("a", "x")]
    assert pairs([tmp_path / "t", tmp_path / "t"]) == [("a", "x"), ("a", "x")]


def test_rows_of_a_deletion_vector_are_not_read(tmp_path: Path) -> None:
    """A log as Spark writes it: the file stays, and a bitmap in the log says which rows of it are gone."""
    roaring = pytest.importorskip("pyroaring")
    write_delta(tmp_path / "t")
    log = tmp_path / "t" / "_delta_log"
    entries = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    added = next(entry["add"] for entry in entries if "add" in entry)
    bitmap = struct.pack("<I", 1681511377) + roaring.BitMap64([1]).serialize()
    padded = bitmap + bytes(-len(bitmap) % 4)
    text = base64.b85encode(padded).translate(bytes.maketrans(STANDARD_85, Z_85)).decode()
    vector = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(bitmap), "cardinality": 1}
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    more = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": {"path": added["path"], "dataChange": True, "deletionTimestamp": 1}},
        {"add": added | {"deletionVector": vector, "dataChange": True}},
    ]
    (log / f"{1:020}.json").write_text("\n".join(map(json.dumps, more)))
    assert pairs(tmp_path / "t") == [("a", "x")]


def test_a_delta_table_of_the_future_is_refused(tmp_path: Path) -> None:
    write_delta(tmp_path / "t")
    features = {"readerFeatures": ["notYetInvented"], "writerFeatures": ["notYetInvented"]}
    entry = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    (tmp_path / "t" / "_delta_log" / f"{1:020}.json").write_text(json.dumps(entry))
    with pytest.raises(BadSource):
        pairs(tmp_path / "t")


def test_files_of_a_delta_table_are_still_refused(tmp_path: Path) -> None:
    write_delta(tmp_path / "t")
    for source in (tmp_path / "t" / "*.parquet", tmp_path, next((tmp_path / "t").glob("*.parquet"))):
        with pytest.raises(BadSource, match="a table of Delta Lake"):
            check_source(source, user="u", value="v", kind=ValueKind.ITEM)


def test_without_the_package_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpunion.reading import logged

    write_delta(tmp_path / "t")
    monkeypatch.setattr(logged.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadSource, match=r"pip install 'dpunion\[delta\]'"):
        check_source(tmp_path / "t", user="u", value="v", kind=ValueKind.ITEM)


def test_an_iceberg_table_by_its_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = pytest.importorskip("pyiceberg.catalog.memory")
    import pyiceberg.catalog

    catalog = memory.InMemoryCatalog("test", warehouse=tmp_path.as_uri())
    catalog.create_namespace("space")
    catalog.create_table("space.rows", schema=ROWS.schema).append(ROWS)
    monkeypatch.setattr(pyiceberg.catalog, "load_catalog", {"prod": catalog}.__getitem__)
    assert pairs("iceberg://prod/space.rows") == [("a", "x"), ("b", "y")]
    for wrong in ("iceberg://prod/space.none", "iceberg://other/space.rows", "iceberg://prod"):
        with pytest.raises(BadSource, match=r"(?i)iceberg"):
            pairs(wrong)


def test_equality_deletes_are_not_passed_over(tmp_path: Path) -> None:
    """Deletions that pyiceberg cannot apply end the run: a table whose newest snapshot has such a file."""
    from pyiceberg.manifest import DataFileContent

    memory = pytest.importorskip("pyiceberg.catalog.memory")
    catalog = memory.InMemoryCatalog("test", warehouse=tmp_path.as_uri())
    catalog.create_namespace("space")
    table = catalog.create_table("space.rows", schema=ROWS.schema)
    table.append(ROWS)
    scan = table.scan()
    manifests = table.current_snapshot().manifests(table.io)
    entries = [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)]
    entries[0].data_file._data[0] = DataFileContent.EQUALITY_DELETES
    monkeypatched = type(manifests[0])
    original = monkeypatched.fetch_manifest_entry
    try:
        monkeypatched.fetch_manifest_entry = lambda *a, **k: entries
        with pytest.raises(BadSource):
            pairs(scan)
    finally:
        monkeypatched.fetch_manifest_entry = original


def test_dates_keep_their_text(tmp_path: Path) -> None:
    day = pa.table({"u": ["a"], "v": [dt.date(2024, 2, 29)]})
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(tmp_path / "t", day)
    assert pairs(tmp_path / "t") == pairs(ds.dataset(day)) == pairs(pl.from_arrow(day).lazy()) == [("a", "2024-02-29")]
    pq.write_table(day, tmp_path / "day.parquet")
    assert pairs(tmp_path / "day.parquet") == [("a", "2024-02-29")]
