"""Directories of Parquet files, partitioned by folders or not."""

import datetime as dt
import os

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from dpunion.errors import BadSource, DamagedSource, NullUsers, SourceNotFound, UnknownColumn
from dpunion.reading import ValueKind, columnar
from dpunion.reading.locate import locate
from dpunion.reading.parts import NullUserPolicy
from opening import check_source, open_rows, put, read_pairs

CANARY = "CANARYvalue"
AWKWARD = ["a", "b/c", "d=e", "100%", "é ☃", "x:y", "with space", "__x"]


def read(source, user="u", value="v", **more):
    check_source(source, user=user, value=value)
    return sorted(read_pairs(source, user=user, value=value, **more))


def by_arrow(table, folder, keys):
    ds.write_dataset(table, folder, format="parquet", partitioning=keys, partitioning_flavor="hive")


def by_duckdb(table, folder, keys):
    with duckdb.connect() as connection:
        connection.register("rows_", table)
        connection.execute(f"copy rows_ to '{folder}' (format parquet, partition_by ({', '.join(keys)}))")


def by_polars(table, folder, keys):
    frame = pl.from_arrow(table)
    frame.write_parquet(folder, partition_by=keys)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("writer", [by_arrow, by_duckdb, by_polars])
@pytest.mark.parametrize("keys", [["u"], ["v"], ["u", "v"], ["d", "u"]], ids="-".join)
def test_what_other_programs_write_is_read_back(tmp_path, writer, keys):
    users = [AWKWARD[i % 8] for i in range(40)]
    values = [AWKWARD[i % 5] for i in range(40)]
    days = [dt.date(2024, 2, 28 + i % 2) for i in range(40)]
    writer(pa.table({"u": users, "v": values, "d": days, "w": [1.5] * 40}), tmp_path / "data", keys)
    assert read(tmp_path / "data") == sorted(zip(users, values, strict=True))
    assert set(read(tmp_path / "data", "u", "d")) == {(u, d.isoformat()) for u, d in zip(users, days, strict=True)}


def test_a_directory_is_read_whole_without_hidden_files(tmp_path):
    put(tmp_path / "b.parquet", u=["b"], v=["y"])
    put(tmp_path / "deep" / "er" / "a.pq", u=["a"], v=["x"])
    for name in ("_SUCCESS", "_metadata", ".b.parquet.crc", "_temporary/0/c.parquet", ".git/config"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"junk")
    assert read(tmp_path) == read(str(tmp_path)) == read(f"{tmp_path}/") == [("a", "x"), ("b", "y")]
    assert [file.path.name for file in locate([tmp_path])] == ["b.parquet", "a.pq"]


def test_nulls_and_empty_values_of_partitions(tmp_path):
    for folder in ("u=a", "u=__HIVE_DEFAULT_PARTITION__", "u="):
        put(tmp_path / folder / "0.parquet", v=["x", "y"])
    with pytest.raises(NullUsers):
        read(tmp_path)
    assert read(tmp_path, null_users=NullUserPolicy.DROP) == [("a", "x"), ("a", "y")]
    assert read(tmp_path, "v", "u") == [("x", "a"), ("y", "a")]


def test_both_columns_from_folder_names(tmp_path, monkeypatch):
    monkeypatch.setattr(columnar, "LARGEST_BATCH", 2)
    put(tmp_path / "u=a" / "v=x" / "0.parquet", w=[1.0, 2.0, 3.0])
    put(tmp_path / "u=b" / "v=y" / "0.parquet", w=pa.array([], pa.float64()))
    assert read(tmp_path) == [("a", "x")] * 3


def test_texts_from_folder_names_are_no_dictionaries(tmp_path):
    put(tmp_path / "v=some text" / "0.parquet", u=["a", "b"])
    [(users, texts)] = open_rows(tmp_path, kind=ValueKind.TEXT)
    assert texts.type == pa.string()
    assert list(zip(users.to_pylist(), texts.to_pylist(), strict=True)) == [("a", "some text"), ("b", "some text")]


def test_the_files_own_column_comes_first(tmp_path):
    put(tmp_path / "u=a%20b" / "0.parquet", u=["a b"], v=["x"])
    assert read(tmp_path) == [("a b", "x")]


def test_positions_count_the_folders_last(tmp_path):
    put(tmp_path / "k=1" / "u=a" / "0.parquet", w=[1], v=["x"])
    assert read(tmp_path, 3, 1) == [("a", "x")]
    assert read(tmp_path, 2, 1) == [("1", "x")]
    with pytest.raises(UnknownColumn, match="'w', 'v', 'k', 'u'"):
        read(tmp_path, "q")


def test_links_are_followed_once(tmp_path):
    put(tmp_path / "elsewhere" / "0.parquet", u=["a"], v=["x"])
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "data")
    assert read(tmp_path / "data") == [("a", "x")]


@pytest.mark.parametrize("name", ["c.csv", "notes.txt", "part-0", "d.db", "sub/e.jsonl.gz", "u=x/f.csv"])
def test_other_files_are_not_left_out_silently(tmp_path, name):
    put(tmp_path / "a.parquet", u=["a"], v=["x"])
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("u,v\n")
    with pytest.raises(BadSource, match=r"not a Parquet file.*\*\*/\*\.parquet"):
        read(tmp_path)
    if "/" not in name:
        assert read(tmp_path / "**" / "*.parquet") == [("a", "x")]


@pytest.mark.parametrize(
    ("folders", "words"),
    [
        (["u=a", "w=b"], "other partitions"), (["u=a", "."], "other partitions"), (["u=a/k=1", "k=1/u=a"], "other"),
        (["u=a/u=b"], "twice"), (["u=%FF"], "not percent-encoded UTF-8"), (["%C3=a"], "not percent-encoded UTF-8"),
    ],
)  # fmt: skip
def test_folders_that_do_not_agree(tmp_path, folders, words):
    for folder in folders:
        put(tmp_path / folder / "0.parquet", v=["x"])
    with pytest.raises(BadSource, match=words):
        read(tmp_path)


def test_a_directory_without_data_is_refused(tmp_path):
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(SourceNotFound, match="no Parquet file"):
        read(tmp_path)


def test_values_in_folder_names_do_not_show(tmp_path):
    """Where data is partitioned by user, every path holds somebody's id."""
    put(tmp_path / "u=a" / "0.parquet", v=["x"])
    bad = put(tmp_path / f"u={CANARY}" / "1.parquet", v=["y"])
    assert CANARY not in repr(locate([tmp_path]))
    bad.write_bytes(bad.read_bytes()[:-9])
    with pytest.raises(DamagedSource, match=r"u=…/1\.parquet' \(number 1 ") as caught:
        read(tmp_path)
    assert CANARY not in str(caught.value)
    for breaking in (
        lambda: bad.rename(bad.with_suffix(".csv")),
        lambda: put(bad.parent / "u=a" / "2.parquet", v=["z"]),
    ):
        bad.unlink(missing_ok=True)
        put(bad, v=["y"])
        breaking()
        with pytest.raises(BadSource) as caught:
            read(tmp_path)
        assert CANARY not in str(caught.value)
        bad.with_suffix(".csv").unlink(missing_ok=True)
    put(tmp_path / f"u={CANARY}" / "1.parquet", v=[1.5])
    (bad.parent / "u=a" / "2.parquet").unlink()
    with pytest.raises(BadSource, match="double") as caught:
        read(tmp_path)
    assert CANARY not in str(caught.value)


def test_values_in_the_paths_that_a_pattern_finds_do_not_show(tmp_path):
    bad = put(tmp_path / f"u={CANARY}" / "1.parquet", u=["a"], v=["y"])
    assert read(tmp_path / "*" / "*.parquet") == [("a", "y")]
    bad.write_bytes(b"PAR1")
    with pytest.raises(DamagedSource, match=r"u=…/1\.parquet") as caught:
        read(tmp_path / "*" / "*.parquet")
    assert CANARY not in str(caught.value)


def test_pipes_are_not_files(tmp_path):
    os.mkfifo(tmp_path / "p.csv")
    with pytest.raises(BadSource, match=r"There is a pipe.*'-'"):
        read(tmp_path / "p.csv")


def test_a_column_that_is_also_a_folder_must_say_the_same(tmp_path):
    put(tmp_path / "v=F" / "0.parquet", u=["a", "b"], v=["F", "F"])
    assert read(tmp_path) == [("a", "F"), ("b", "F")]
    put(tmp_path / "v=F" / "1.parquet", u=["c", "d"], v=["F", "G"])
    with pytest.raises(DamagedSource, match=r"differs from the name of its folder 'v=…'.*[Rr]ename"):
        read(tmp_path)
    for source in (ds.dataset(tmp_path, partitioning="hive"), tmp_path):
        query = None if source is not tmp_path else "select u, v from source"
        with pytest.raises(BadSource, match=r"Rename or remove"):
            check_source(source, query=query)
