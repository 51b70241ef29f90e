"""Objects that yield record batches when asked, and tables with a log by their names."""

import base64
import datetime as dt
import json
import struct
import warnings
from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dpunion.errors import BadParameter, BadSource, UnknownColumn, UnsupportedType
from dpunion.reading.frames import TypesGuessed
from dpunion.reading.tables import is_below
from opening import check_source, put, read_pairs

ROWS = pa.table({"u": ["a", "b", "a"], "v": ["x", "y", None], "w": [1.5, 2.5, 3.5]})
CANARY = "CANARYvalue"
STANDARD_85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
Z_85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def pairs(source, **options):
    return sorted(read_pairs(source, **options))


OBJECTS = {
    "LazyFrame": pl.from_arrow(ROWS).lazy(),
    "Dataset": ds.dataset(ROWS),
    "Scanner": ds.dataset(ROWS).scanner(),
    "list": ROWS.to_batches(),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_columns_and_types_are_checked_before_rows_are_read(name):
    source = OBJECTS[name]
    assert pairs(source) == [("a", "x"), ("b", "y")]
    reading = []
    late = name == "list"  # whose batches are looked at one by one
    for column, error in (("vv", UnknownColumn), ("w", UnsupportedType)):
        with pytest.raises(error):
            read_pairs(source, value=column, on_reading=lambda: reading.append(True))
    assert bool(reading) == late


def test_only_the_wanted_columns_of_a_lazy_frame_are_computed():
    frame = pl.from_arrow(ROWS).lazy().with_columns(z=pl.col("w").map_elements(lambda _: 1 // 0, return_dtype=pl.Int64))
    assert pairs(frame) == [("a", "x"), ("b", "y")]


def test_what_fails_later_does_not_quote_rows():
    frame = pl.LazyFrame({"u": ["a"], "v": [CANARY]}).with_columns(v=pl.col("v").str.to_date())
    with pytest.raises(BadSource) as caught:
        pairs(frame)
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_text_files_in_a_dataset_are_refused(tmp_path):
    pc.write_csv(ROWS.select(["u", "v"]), tmp_path / "rows.csv")
    text = ds.dataset(tmp_path / "rows.csv", format="csv")
    union = ds.dataset([text, ds.dataset(ROWS.select(["u", "v"]))])
    for source in (text, union, ds.dataset([ds.dataset(ROWS.select(["u", "v"])), union])):
        with pytest.raises(BadSource, match="Name the files themselves"):
            check_source(source)


def test_each_file_of_a_dataset_is_read_by_its_own_types(tmp_path):
    put(tmp_path / "b.parquet", u=["a"], v=["01"])
    assert pairs(ds.dataset(tmp_path)) == [("a", "01")]
    put(tmp_path / "a.parquet", u=["b"], v=[7])
    for source in (ds.dataset(tmp_path), ds.dataset(tmp_path).filter(ds.field("u") == "a")):
        with pytest.raises(UnsupportedType, match=r"Mixed types: column 'v' .* 'text' in file '.*b\.parquet'"):
            check_source(source)
    put(tmp_path / "a.parquet", u=["b"])
    with pytest.raises(UnknownColumn, match=r"no column 'v' in file '.*a\.parquet'"):
        check_source(ds.dataset(tmp_path))


def test_columns_by_number_are_those_of_each_file(tmp_path):
    put(tmp_path / "a.parquet", v=["x"], u=["a"])
    put(tmp_path / "b.parquet", u=["b"], v=["y"])
    numbers = {"user": 0, "value": 1}
    assert pairs(ds.dataset(tmp_path), **numbers) == pairs(tmp_path, **numbers) == [("b", "y"), ("x", "a")]


def test_a_filter_of_a_dataset_is_kept():
    assert pairs(ds.dataset(ROWS).filter(ds.field("w") > 2)) == [("b", "y")]
    assert pairs(ds.dataset(ROWS.schema.empty_table())) == []


def test_partitions_of_a_dataset_are_text_or_refused(tmp_path):
    for code in ("01", "02", "__HIVE_DEFAULT_PARTITION__"):
        put(tmp_path / "data" / f"v={code}" / "0.parquet", u=[f"u{code}"])
    guessed = ds.dataset(tmp_path / "data", partitioning="hive")
    coded = ds.dataset(tmp_path / "data", partitioning=ds.HivePartitioning.discover(infer_dictionary=True))
    for source in (guessed, coded):
        with pytest.raises(
            UnsupportedType, match=r"guessed from all folders.*declare the partitions as text"
        ) as caught:
            check_source(source)
        assert "01" not in str(caught.value)
    text = ds.partitioning(pa.schema([("v", pa.string())]), flavor="hive")
    assert pairs(ds.dataset(tmp_path / "data", partitioning=text)) == [("u01", "01"), ("u02", "02")]


def test_guessed_partitions_of_a_lazy_frame_are_warned_of(tmp_path):
    for code in ("01", "02"):
        put(tmp_path / "data" / f"v={code}" / "0.parquet", u=[f"u{code}"], w=[code])
    guessed = pl.scan_parquet(tmp_path / "data").filter(pl.col("w") == "01")
    with pytest.warns(TypesGuessed, match=r"hive_schema=\{'v': pl\.String\}") as caught:
        assert pairs(guessed) == [("u01", "1")]
    assert "01" not in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = pl.scan_parquet(tmp_path / "data", hive_schema={"v": pl.String})
        assert pairs(text) == [("u01", "01"), ("u02", "02")]
        assert pairs(guessed, value="w") == [("u01", "01")]


def test_errors_hold_no_values_of_partitions(tmp_path):
    put(tmp_path / "data" / CANARY / "0.parquet", u=["a"])
    source = ds.dataset(tmp_path / "data", partitioning=["k"])
    with pytest.raises(UnknownColumn, match="part 1 of the FileSystemDataset") as caught:
        check_source(source, value="w")
    assert CANARY not in str(caught.value)


def test_nothing_of_a_generator_is_lost_to_the_check():
    def batches():
        yield from ROWS.to_batches(max_chunksize=1)

    source = batches()
    check_source(source)
    assert pairs(source) == [("a", "x"), ("b", "y")]


def test_batches_with_other_orders_of_columns_are_read_by_name():
    first, second = ROWS.select(["u", "v"]).slice(0, 1), ROWS.select(["w", "v", "u"]).slice(1)
    assert pairs(iter([first, second])) == [("a", "x"), ("b", "y")]


def test_an_iterable_of_something_else_is_refused():
    with pytest.raises(BadParameter, match=r"Element number 0 of the generator .* is not a record batch but a tuple"):
        pairs(pair for pair in [("a", "x")])
    with pytest.raises(BadParameter, match="has no columns to name"):
        check_source([("a", "x")])
    with pytest.raises(UnknownColumn):
        pairs(iter([ROWS.select(["u"])]))


def test_batches_of_other_types_are_refused():
    number = pa.table({"u": ["a"], "v": [1]})
    with pytest.raises(UnsupportedType, match="Mixed types"):
        pairs(iter([ROWS, number]))


def write_delta(place):
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(place, ROWS.select(["u", "v"]))
    return deltalake


def test_a_delta_table_is_read_at_the_version_it_has(tmp_path):
    deltalake = write_delta(tmp_path / "t")
    before = deltalake.DeltaTable(tmp_path / "t")
    deltalake.DeltaTable(tmp_path / "t").delete("u = 'b'")
    assert pairs(before) == [("a", "x"), ("b", "y")]
    assert pairs(tmp_path / "t") == [("a", "x")]
    assert pairs([tmp_path / "t", tmp_path / "t"]) == [("a", "x"), ("a", "x")]


def test_rows_of_a_deletion_vector_are_not_read(tmp_path):
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


def add_file(place, path, table, version=1):
    """Write a file, and add it to the log of a Delta table as a faulty writer may."""
    pq.write_table(table, place / path)
    add_path(place, path, (place / path).stat().st_size, version)


def add_path(place, path, size, version=1):
    """Add a file to the log of a Delta table."""
    add = {"path": path, "size": size, "partitionValues": {}, "modificationTime": 0, "dataChange": True}
    (place / "_delta_log" / f"{version:020}.json").write_text(json.dumps({"add": add}))


@pytest.mark.parametrize(
    "values", [[1.2, 1.7], [Decimal("1.20"), Decimal("1.70")], ["1", "01"], [True, False], [[1], [2]]]
)
@pytest.mark.parametrize("column", ["u", "v"])
def test_a_delta_file_with_other_types_than_its_log_is_refused(tmp_path, column, values):
    deltalake = pytest.importorskip("deltalake")
    other = "v" if column == "u" else "u"
    deltalake.write_deltalake(tmp_path / "t", pa.table({column: [7], other: ["x"]}))
    assert len(pairs(tmp_path / "t")) == 1
    add_file(tmp_path / "t", "other.parquet", pa.table({column: values, other: ["x", "y"]}))
    for source in (tmp_path / "t", deltalake.DeltaTable(tmp_path / "t")):
        with pytest.raises(UnsupportedType, match=r"file 'other\.parquet' of"):
            check_source(source)


def test_a_delta_file_may_lack_what_the_log_added_later(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    place = tmp_path / "t"
    deltalake.write_deltalake(place, pa.table({"u": ["a"]}))
    for number in range(3):
        deltalake.write_deltalake(place, pa.table({"u": [f"b{number}"]}), mode="append")
    deltalake.write_deltalake(place, pa.table({"u": ["c"], "v": ["x"]}), mode="append", schema_mode="merge")
    assert pairs(place) == [("c", "x")]
    add_file(place, "short.parquet", pa.table({"u": ["d"]}), 5)
    with pytest.raises(UnknownColumn, match=r"no column 'v' in file 'short\.parquet' of"):
        check_source(place)


def test_partitions_and_renamed_columns_of_a_delta_table_are_read(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    table = pa.table({"u": ["a", "b"], "v": [1, 2]})
    deltalake.write_deltalake(tmp_path / "parts", table, partition_by=["v"])
    assert pairs(tmp_path / "parts") == [("a", "1"), ("b", "2")]
    deltalake.write_deltalake(tmp_path / "t", table)
    log = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    for entry in entries:
        if "metaData" in entry:
            schema = json.loads(entry["metaData"]["schemaString"])
            for number, field in enumerate(schema["fields"], 1):
                field["metadata"] = {
                    "delta.columnMapping.id": number,
                    "delta.columnMapping.physicalName": field["name"],
                }
                field["name"] = {"u": "who", "v": "what"}[field["name"]]
            entry["metaData"]["schemaString"] = json.dumps(schema)
            entry["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
        if "protocol" in entry:
            entry["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
        entry.get("add", {}).pop("stats", None)
    log.write_text("\n".join(map(json.dumps, entries)))
    assert pairs(tmp_path / "t", user="who", value="what") == [("a", "1"), ("b", "2")]


@pytest.mark.parametrize(
    "path",
    ["file://{}/secret.parquet", "{}/secret.parquet", "../secret.parquet", "%2e%2e/secret.parquet", "linked.parquet"],
)
def test_a_delta_log_names_no_file_outside_of_its_folder(tmp_path, path):
    """Nor by a link inside of it."""
    write_delta(tmp_path / "t")
    pq.write_table(pa.table({"u": ["s"], "v": [CANARY]}), tmp_path / "secret.parquet")
    (tmp_path / "t" / "linked.parquet").symlink_to(tmp_path / "secret.parquet")
    add_path(tmp_path / "t", path.format(tmp_path), (tmp_path / "secret.parquet").stat().st_size)
    with pytest.raises(BadSource, match=r"names a file outside of the table's folder.*Copy the table into one folder"):
        check_source(tmp_path / "t")


def test_a_delta_table_of_the_future_is_refused(tmp_path):
    write_delta(tmp_path / "t")
    features = {"readerFeatures": ["notYetInvented"], "writerFeatures": ["notYetInvented"]}
    entry = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    (tmp_path / "t" / "_delta_log" / f"{1:020}.json").write_text(json.dumps(entry))
    with pytest.raises(BadSource):
        pairs(tmp_path / "t")


def test_files_of_a_delta_table_are_still_refused(tmp_path):
    write_delta(tmp_path / "t")
    for source in (tmp_path / "t" / "*.parquet", tmp_path, next((tmp_path / "t").glob("*.parquet"))):
        with pytest.raises(BadSource, match="a table of Delta Lake"):
            check_source(source)


def test_without_the_package_the_remedy_is_named(tmp_path, monkeypatch):
    from dpunion.reading import tables

    write_delta(tmp_path / "t")
    monkeypatch.setattr(tables.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadSource, match=r"pip install 'dpunion\[delta\]'"):
        check_source(tmp_path / "t")


def test_an_iceberg_table_by_its_catalog(tmp_path, monkeypatch):
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


def iceberg_rows(place):
    memory = pytest.importorskip("pyiceberg.catalog.memory")
    catalog = memory.InMemoryCatalog("test", warehouse=place.as_uri())
    catalog.create_namespace("space")
    table = catalog.create_table("space.rows", schema=ROWS.schema)
    table.append(ROWS)
    return table


def metadata_file(table):
    return Path(table.metadata_location.removeprefix("file://"))


def test_an_iceberg_table_names_no_file_outside_of_its_folder(tmp_path):
    """Nor does the place that it says of itself widen it."""
    table = iceberg_rows(tmp_path / "space")
    pq.write_table(ROWS.select(["u", "v"]), tmp_path / "secret.parquet")
    table.add_files([str(tmp_path / "secret.parquet")])
    place = metadata_file(table)
    for source in (table, table.scan(), place):
        with pytest.raises(BadSource, match="names a file outside of the table's folder"):
            check_source(source)
    metadata = json.loads(place.read_text()) | {"location": tmp_path.as_uri()}
    place.write_text(json.dumps(metadata))
    with pytest.raises(BadSource, match="outside of the table's folder"):
        check_source(place)


def test_an_iceberg_file_may_lack_what_the_table_added_later(tmp_path):
    from pyiceberg.types import StringType

    table = iceberg_rows(tmp_path)
    with table.update_schema() as change:
        change.add_column("x", StringType())
    table.append(pa.table({"u": ["c"], "v": ["z"], "w": [1.0], "x": ["new"]}))
    assert pairs(table, value="x") == [("c", "new")]
    assert pairs(metadata_file(table), value="v") == [("a", "x"), ("b", "y"), ("c", "z")]
    pq.write_table(pa.table({"u": ["d"]}), tmp_path / "space" / "rows" / "short.parquet")
    table.add_files([str(tmp_path / "space" / "rows" / "short.parquet")])
    assert pairs(table, value="x") == [("c", "new")]
    with pytest.raises(UnknownColumn, match=r"no column 'v' in file 'short\.parquet'"):
        check_source(table)


@pytest.mark.parametrize(
    ("place", "folder", "below"),
    [
        ("s3://b/t/data/x", "s3a://b/t/", True), ("file:/t/x", "/t", True), ("file:///t/x", "file:/t/", True),
        ("s3://b/t2/x", "s3://b/t", False), ("s3://c/t/x", "s3://b/t", False), ("s3://b/t/../x", "s3://b/t", False),
        ("gs://b/t/x", "s3://b/t", False),
    ],
)  # fmt: skip
def test_paths_below_a_folder_are_recognised(place, folder, *, below):
    assert is_below(place, folder) is below


def test_equality_deletes_are_not_passed_over(tmp_path, monkeypatch):
    """Deletions that pyiceberg cannot apply end the run: a table whose newest snapshot has such a file."""
    table = iceberg_rows(tmp_path)
    from pyiceberg.manifest import DataFileContent

    scan = table.scan()
    manifests = table.current_snapshot().manifests(table.io)
    entries = [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)]
    entries[0].data_file._data[0] = DataFileContent.EQUALITY_DELETES
    monkeypatch.setattr(type(manifests[0]), "fetch_manifest_entry", lambda *a, **k: entries)
    with pytest.raises(BadSource):
        pairs(scan)


def test_dates_keep_their_text(tmp_path):
    day = pa.table({"u": ["a"], "v": [dt.date(2024, 2, 29)]})
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(tmp_path / "t", day)
    assert pairs(tmp_path / "t") == pairs(ds.dataset(day)) == pairs(pl.from_arrow(day).lazy()) == [("a", "2024-02-29")]
    pq.write_table(day, tmp_path / "day.parquet")
    assert pairs(tmp_path / "day.parquet") == [("a", "2024-02-29")]
