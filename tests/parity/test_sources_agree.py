"""The same rows give the same release, wherever they live: files, frames, databases, directories, standard input."""

from __future__ import annotations

import functools
import gzip
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
from dpunion.reading import ValueKind, open_rows
from dpunion.sets.encoding import Normalization, encode
from making import publish

KEY = 1
BUDGET = {"epsilon": 2.0, "delta": 1e-3}
QUERY = "select author, word from posts"
ODD = [
    "naïve",
    "nai\u0308ve",
    "a,b",
    'q"q',
    "x\ty",
    "line\nbreak",
    "ends with \\",
    "NULL",
    "001",
    "1.0",
    "☃",
    " padded ",
]


def make_rows() -> pa.Table:
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
def rows() -> pa.Table:
    return make_rows()


@pytest.fixture(scope="module")
def expected(rows: pa.Table) -> tuple[str, ...]:
    """The release from pairs of Python strings, which no reader has touched."""
    pairs = zip(rows["author"].to_pylist(), rows["word"].to_pylist(), strict=True)
    items = dpunion.release(pairs, **BUDGET, unsafe_test_key=KEY).items
    assert 50 < len(items) < 2_000
    assert set(items) & set(ODD)
    return items


@functools.cache
def planned_once() -> dpunion.Plan:
    return plan(dpunion.Funnel(), **BUDGET)


def released(source: Any, **more: Any) -> tuple[str, ...]:
    """Make a release as the main path does, from any source."""
    planned = planned_once()
    key = RunKey.for_tests(KEY)
    with open_rows(source, user="author", value="word", kind=ValueKind.ITEM, **more) as batches:
        contributions = encode(
            ((batch.users, batch.values) for batch in batches),
            key,
            max_items_per_user=planned.algorithm.bounding.limit,
            user_order=planned.algorithm.bounding.order,
            normalization=Normalization.NFC,
            split_words=False,
        )
    return tuple(publish(planned, contributions, key).items)


def delimited(table: pa.Table, mark: str) -> bytes:
    lines = [table.column_names, *(row.values() for row in table.to_pylist())]
    return "".join(
        mark.join('"' + field.replace('"', '""') + '"' for field in line) + "\r\n" for line in lines
    ).encode()


def json_lines(table: pa.Table) -> bytes:
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in table.to_pylist()).encode()


def write_bytes(convert: Callable[[pa.Table], bytes]) -> Callable[[pa.Table, Path], None]:
    return lambda table, path: path.write_bytes(convert(table)) and None


def write_ipc(new: Callable[..., Any]) -> Callable[[pa.Table, Path], None]:
    def write(table: pa.Table, path: Path) -> None:
        with pa.OSFile(str(path), "wb") as file, new(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=7_000)

    return write


def write_sqlite(table: pa.Table, path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("create table posts (author text, place text, word text)")
    connection.executemany("insert into posts values (?, ?, ?)", [tuple(row.values()) for row in table.to_pylist()])
    connection.commit()
    connection.close()


def write_duckdb(table: pa.Table, path: Path) -> None:
    with duckdb.connect(path) as connection:
        connection.register("rows_", table)
        connection.execute("create table posts as from rows_")


def write_hive(table: pa.Table, path: Path) -> None:
    ds.write_dataset(table, path, format="parquet", partitioning=["place"], partitioning_flavor="hive")


FILES: dict[str, Callable[[pa.Table, Path], None]] = {
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
DATABASES = {"rows.sqlite": write_sqlite, "rows.duckdb": write_duckdb}
FRAMES = {"pyarrow": lambda t: t, "pandas": lambda t: t.to_pandas(), "polars": pl.from_arrow,
          "categories": lambda t: t.to_pandas().astype("category")}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files(tmp_path: Path, rows: pa.Table, expected: tuple[str, ...], name: str) -> None:
    FILES[name](rows, tmp_path / name)
    made = dpunion.release(tmp_path / name, user="author", item="word", **BUDGET, unsafe_test_key=KEY)
    assert made.items == expected


@pytest.mark.parametrize("name", DATABASES)
def test_database_files(tmp_path: Path, rows: pa.Table, expected: tuple[str, ...], name: str) -> None:
    DATABASES[name](rows, tmp_path / name)
    assert released(tmp_path / name, query=QUERY) == expected


@pytest.mark.parametrize("name", FRAMES)
def test_frames(rows: pa.Table, expected: tuple[str, ...], name: str) -> None:
    made = dpunion.release(FRAMES[name](rows), user="author", item="word", **BUDGET, unsafe_test_key=KEY)
    assert made.items == expected


def test_a_real_postgres(
    rows: pa.Table, expected: tuple[str, ...], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_standard_input(tmp_path: Path, rows: pa.Table, expected: tuple[str, ...], name: str) -> None:
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
