"""Tables whose log says which rows count are refused: their files hold rows that were deleted."""

from pathlib import Path

import pytest

from dpunion.errors import BadSource
from opening import check_source, put, read_pairs

CANARY = "CANARYvalue"
MARKS = {
    "_delta_log/00000000000000000000.json": r"table of Delta Lake.*folder of the table itself.*DeltaTable\(path\)",
    ".hoodie/hoodie.properties": "a table of Hudi.*format",
    "metadata/v1.metadata.json": "a table of Iceberg.*iceberg://catalog/space.table",
    "metadata/00001-5f.gz.metadata.json": "a table of Iceberg",
    "metadata/snap-1.avro": "a table of Iceberg",
}


def refused(source, words):
    with pytest.raises(BadSource, match=words) as caught:
        check_source(source)
    assert CANARY not in str(caught.value)


@pytest.fixture(params=MARKS)
def table(request, tmp_path):
    """The folder of a table with files of a partition, and what is said of it."""
    root = tmp_path / f"k={CANARY}" / "table"
    for name in ("0.parquet", "data/day=1/1.parquet"):
        put(root / name)
    (root / request.param).parent.mkdir()
    (root / request.param).write_text("{}")
    return root, MARKS[request.param]


def test_every_way_into_a_table_is_refused(table, tmp_path):
    root, words = table
    below = "data/day=1/1.parquet"
    for source in (
        *(root, root.parent, tmp_path, root / "data", root / "data" / "day=1"),
        *(root / "0.parquet", root / below, [root / below], root / "*.parquet", root / "**" / "*.parquet"),
        *(tmp_path / "**" / "*.parquet", tmp_path / "*" / "*" / "*.parquet"),
    ):
        refused(source, words)
        refused(str(source) if isinstance(source, Path) else source, words)


def test_links_into_and_out_of_a_table_are_refused(table, tmp_path):
    root, words = table
    aside = tmp_path / "aside"
    aside.mkdir()
    (aside / "file.parquet").symlink_to(root / "data" / "day=1" / "1.parquet")
    refused(aside / "file.parquet", words)
    refused(aside, words)
    (aside / "file.parquet").unlink()
    (aside / "folder").symlink_to(root / "data")
    refused(aside / "folder" / "day=1" / "1.parquet", words)
    refused(aside, words)
    plain = put(tmp_path / "plain" / "2.parquet")
    (root / "link.parquet").symlink_to(plain)
    refused(root / "link.parquet", words)


def test_a_relative_path_is_enough(table, monkeypatch):
    root, words = table
    monkeypatch.chdir(root / "data")
    refused("day=1/1.parquet", words)
    refused("*/*.parquet", words)
    refused(".", words)


def test_a_copied_partition_of_hudi_is_refused(tmp_path):
    put(tmp_path / "0.parquet")
    (tmp_path / ".hoodie_partition_metadata").touch()
    refused(tmp_path, "a table of Hudi")


def test_what_is_no_table_is_read(tmp_path):
    """Other metadata, and text files beside a table, which has none."""
    put(tmp_path / "metadata" / "0.parquet")
    (tmp_path / "beside" / "_delta_log").mkdir(parents=True)
    (tmp_path / "beside" / "notes.csv").write_text("u,v\na,x\n")
    for source in (tmp_path / "metadata", tmp_path / "metadata" / "0.parquet", tmp_path / "beside" / "notes.csv"):
        assert len(read_pairs(source)) == 1
