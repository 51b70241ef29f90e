"""The same rows give the same release, wherever they live: files, frames, databases, directories, standard input."""

import functools
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import dpunion
from dpunion.pipeline import plan
from dpunion.randomness import RunKey
from making import encode_items, publish
from opening import open_rows, write_sqlite

KEY = 1
BUDGET = {"epsilon": 2.0, "delta": 1e-3, "algorithm": dpunion.Funnel()}
QUERY = "select author, word from posts"
ODD = [
    "naïve", "nai\u0308ve", "a,b", 'q"q', "x\ty", "line\nbreak", "ends with \\", "NULL", "001", "1.0", "☃", " padded ",
]  # fmt: skip


def make_rows():
    """Return rows of some thousand authors, with words of every awkward kind, and a third column."""
    draw = np.random.default_rng(7)
    ranks = np.minimum(draw.zipf(1.3, 30_000), 3_000)
    words = [ODD[rank - 1] if rank <= len(ODD) else f"word {rank}" for rank in ranks.tolist()]
    authors = [
        f"author {number}" if number % 3 else f"{number:05}" for number in draw.integers(0, 3_000, 30_000).tolist()
    ]
    places = [["north", "south/west", "ea=st"][number] for number in draw.integers(0, 3, 30_000).tolist()]
    return pa.table({"author": authors, "place": places, "word": words})


@pytest.fixture(scope="module")
def rows():
    return make_rows()


@pytest.fixture(scope="module")
def expected(rows):
    """The release from pairs of Python strings, which no reader has touched."""
    pairs = zip(rows["author"].to_pylist(), rows["word"].to_pylist(), strict=True)
    items = dpunion.release(pairs, **BUDGET, unsafe_test_key=KEY).items
    assert 50 < len(items) < 2_000
    assert set(items) & set(ODD)
    return items


def items_of(source, item="word"):
    return dpunion.release(source, user="author", item=item, **BUDGET, unsafe_test_key=KEY).items


@functools.cache
def planned_once():
    return plan(**BUDGET)


def released(source, **more):
    """Make a release as the main path does, from any source."""
    planned, key = planned_once(), RunKey.for_tests(KEY)
    bounding = planned.algorithm.bounding
    with open_rows(source, user="author", value="word", **more) as batches:
        contributions = encode_items(batches, key, bounding.limit, bounding.order)
    return tuple(publish(planned, contributions, key).items)


def delimited(table, mark):
    lines = [table.column_names, *(row.values() for row in table.to_pylist())]
    return "".join(
        mark.join('"' + field.replace('"', '""') + '"' for field in line) + "\r\n" for line in lines
    ).encode()


def json_lines(table):
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in table.to_pylist()).encode()


def write_bytes(convert):
    return lambda table, path: path.write_bytes(convert(table)) and None


def write_ipc(new):
    def write(table, path):
        with pa.OSFile(str(path), "wb") as file, new(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=7_000)

    return write


def to_sqlite(table, path):
    write_sqlite(path, "posts (author text, place text, word text)", [tuple(row.values()) for row in table.to_pylist()])


def write_duckdb(table, path):
    with duckdb.connect(path) as connection:
        connection.register("rows_", table)
        connection.execute("create table posts as from rows_")


def write_hive(table, path):
    ds.write_dataset(table, path, format="parquet", partitioning=["place"], partitioning_flavor="hive")


FILES = {
    "coded.parquet": lambda table, path: pq.write_table(table, path, row_group_size=9_000),
    "plain.parquet": lambda table, path: pq.write_table(table, path, use_dictionary=False),
    "rows.csv": write_bytes(lambda table: delimited(table, ",")),
    "rows.csv.gz": write_bytes(lambda table: gzip.compress(delimited(table, ","))),
    "rows.tsv": write_bytes(lambda table: delimited(table, "\t")),
    "rows.jsonl": write_bytes(json_lines),
    "rows.jsonl.zst": write_bytes(lambda table: pa.compress(json_lines(table), codec="zstd").to_pybytes()),
    "rows.arrow": write_ipc(pa.ipc.new_file),
    "rows.arrows": write_ipc(pa.ipc.new_stream),
    "directory": write_hive,
}
DATABASES = {"rows.sqlite": to_sqlite, "rows.duckdb": write_duckdb}
FRAMES = {"pyarrow": lambda t: t, "pandas": lambda t: t.to_pandas(), "polars": pl.from_arrow,
          "categories": lambda t: t.to_pandas().astype("category")}  # fmt: skip


LAZY = {
    "LazyFrame": lambda table: pl.from_arrow(table).lazy().filter(pl.col("word") != ""),
    "Dataset": ds.dataset,
    "Scanner": lambda table: ds.dataset(table).scanner(batch_size=1_000),
    "generator": lambda table: iter(table.to_batches(max_chunksize=7_000)),
    "generator of frames": lambda table: (pl.from_arrow(table.slice(at, 9_000)) for at in range(0, len(table), 9_000)),
    "list of batches": lambda table: table.to_batches(max_chunksize=7_000),
}


@pytest.mark.parametrize("name", LAZY)
def test_what_yields_batches_gives_the_same_release(rows, expected, name):
    assert items_of(LAZY[name](rows)) == expected


def with_strangers(table):
    """Return the rows and many more, of other people with other words, to be deleted again."""
    strangers = [f"stranger {number}" for number in range(2_000)]
    more = pa.table({"author": strangers, "place": ["gone"] * 2_000, "word": ["deleted"] * 2_000})
    return pa.concat_tables([table, more, table.slice(0, 10)])


def write_delta(table, place):
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(place, with_strangers(table), partition_by=["place"])
    made = deltalake.DeltaTable(place)
    made.delete("word = 'deleted'")
    return made


def write_iceberg(table, folder):
    memory = pytest.importorskip("pyiceberg.catalog.memory")
    catalog = memory.InMemoryCatalog("test", warehouse=folder.as_uri())
    catalog.create_namespace("space")
    made = catalog.create_table("space.posts", schema=table.schema)
    made.append(with_strangers(table))
    made.delete("word = 'deleted'")
    return made


def test_delta_with_deleted_rows(tmp_path, rows, expected):
    table = write_delta(rows, str(tmp_path / "posts"))
    for source in (table, tmp_path / "posts", str(tmp_path / "posts")):
        assert items_of(source) == expected
    files = sorted(tmp_path.rglob("*.parquet"))
    assert "deleted" in {word for file in files for word in pq.read_table(file)["word"].to_pylist()}


def test_iceberg_with_deleted_rows(tmp_path, rows, expected):
    table = write_iceberg(rows, tmp_path)
    newest = table.metadata_location.removeprefix("file://")
    hint = Path(newest).with_name("version-hint.text")
    hint.write_text(Path(newest).name)
    for source in (table, table.scan(), newest, hint.parents[1]):
        assert items_of(source) == expected


def test_object_stores_give_the_same_release(tmp_path, rows, expected, s3):
    """Files, a folder with partitions, a pattern, a text file and a Delta table with deleted rows on a server of S3."""
    s3.create_dir("posts")
    pq.write_table(rows, "posts/one/rows.parquet", filesystem=s3)
    ds.write_dataset(
        rows, "posts/many", filesystem=s3, format="parquet", partitioning=["place"], partitioning_flavor="hive"
    )
    with s3.open_output_stream("posts/one/rows.csv.gz", compression=None) as file:
        file.write(gzip.compress(delimited(rows, ",")))
    write_delta(rows, "s3://posts/delta")
    names = ("one/rows.parquet", "many", "many/*/*.parquet", "many/**/*.parquet", "one/rows.csv.gz", "delta")
    for name in names:
        assert items_of(f"s3://posts/{name}") == expected, name
    assert items_of("s3://posts/many", ["place", "word"]) == items_of(rows, ["place", "word"])


@pytest.mark.parametrize("name", FILES)
def test_files_give_the_same_release(tmp_path, rows, expected, name):
    FILES[name](rows, tmp_path / name)
    assert items_of(tmp_path / name) == expected


@pytest.mark.parametrize("name", DATABASES)
def test_database_files_give_the_same_release(tmp_path, rows, expected, name):
    DATABASES[name](rows, tmp_path / name)
    assert released(tmp_path / name, query=QUERY) == expected


@pytest.mark.parametrize("name", ["coded.parquet", "directory"])
def test_queries_over_files_give_the_same_release(tmp_path, rows, expected, name):
    FILES[name](rows, tmp_path / name)
    assert released(tmp_path / name, query="select author, word from source where place is not null") == expected


@pytest.mark.parametrize("name", FRAMES)
def test_frames_give_the_same_release(rows, expected, name):
    assert items_of(FRAMES[name](rows)) == expected


def test_a_real_postgres(rows, expected, postgres_url, monkeypatch):
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(postgres_url) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("posts", rows, mode="replace")
        connection.commit()
    monkeypatch.setenv("PGPASSWORD", "pa:ss@w/rd")
    without_password = f"postgresql://tester@{postgres_url.rsplit('@', maxsplit=1)[1]}"
    assert released(without_password, query=QUERY) == expected
    shuffled = f"{QUERY} order by md5(author || word)"
    assert released(without_password, query=shuffled) == expected


FROM_INPUT = """
import json, sys
sys.path[:0] = sys.argv[1:]
from test_sources_agree import released
print(json.dumps(released("-")))
"""


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.arrows"])
def test_standard_input_gives_the_same_release(tmp_path, rows, expected, name):
    FILES[name](rows, tmp_path / name)
    folder = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", FROM_INPUT, str(folder), str(folder.parent)],
        input=(tmp_path / name).read_bytes(),
        stdout=subprocess.PIPE,
        check=True,
        env=dict(os.environ),
    )
    assert tuple(json.loads(done.stdout)) == expected
