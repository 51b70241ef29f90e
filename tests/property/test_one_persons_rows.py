"""The rule of every reader of every engine: removing one person's rows never changes how another's are read.

Each case is data with one odd person in it. It is read whole and with one person deleted in turn; whenever two of these
readings succeed, the people in both have the same items in both. To refuse is allowed, to read otherwise is not.
"""

import contextlib
import dataclasses
import datetime as dt
import gzip
import io
import itertools
import json
import sqlite3
import sys
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dpunion.engines.spark.sessions import call_spark
from dpunion.engines.spark.sources import open_frame, session_of
from dpunion.errors import DpunionError
from dpunion.reading.parts import NullUserPolicy
from dpunion.reading.spelling import Granularity
from dpunion.requests import SparkSource
from dpunion.sets.encoding import Normalization
from opening import make_request, read_pairs

ODD = "v"


# --- reading and comparing ----------------------------------------------------------------------------------
def found_in(source, **options):
    """Return the items of each person, as a source is read."""
    found = {}
    columns = {"user": "user", "value": "item"} | options
    for user, item in read_pairs(source, null_users=NullUserPolicy.DROP, **columns):
        found.setdefault(user, set()).add(item)
    return found


def found_on_spark(source, user="user", value="item", input_format=None):
    """The same through Spark, up to where its workers read the rows of whole users."""
    options = {"null_users": NullUserPolicy.DROP, "normalization": Normalization.EXACT, "input_format": input_format}
    reading = make_request(source, user, value, **options)
    frame, check_rows = open_frame(reading, session_of(source))
    check_rows()
    return found_in(call_spark(frame.toArrow), user=user, value=value)


def attempted(read):
    """Return what is read, None for a refusal."""
    try:
        return read()
    except DpunionError:
        return None


def agree(readings):
    """Check that people in two readings have the same items in both."""
    for (_, one), (_, other) in itertools.combinations(readings, 2):
        if one is not None and other is not None:
            for user in one.keys() & other.keys():
                assert one[user] == other[user], "somebody's items depend on somebody else's rows"


def compare(readings, odd=(ODD,)):
    """Check the rule on (who was deleted, what was read); say whether the whole was read."""
    readings = list(readings)
    agree(readings)
    regular = dict(readings)[odd[0]]
    assert regular is not None, "without the odd person everything is read"
    assert len(regular) >= 3
    for deleted, found in readings:
        if found is not None:
            assert regular.keys() - {deleted} <= found.keys(), "somebody is lost"
            assert found.keys() <= {*regular, *odd}, "somebody is new"
    return readings[0][1] is not None


# --- text files ---------------------------------------------------------------------------------------------
HEADER = b"user,item"
REGULAR = [(b"p0", b"p0,01"), (b"p1", b"p1,02"), (b"p1", b'p1,"x, y"'), (b"p2", b"p2,1"), (b"p3", "p3,é".encode())]
ODD_LINES = {
    "fine": b"v,zz", "number": b"v,1", "empty": b"v,", "nobody": b",x", "two lines": b'v,"a\nb"',
    "quotes": b'v,"a ""b"" c"', "unclosed": b'v,"abc', "stray quote": b'v,ab"c', "text behind a quote": b'v,"a"b',
    "more fields": b"v,a,b", "fewer fields": b"v", "bad bytes": b"v,\xff\xfe", "latin": "v,é".encode("latin-1"),
    "nul": b"v,a\0b", "carriage return": b"v,a\rb",
}  # fmt: skip
ODD_FILES = {
    "swapped": (b"item,user", b"zz,v"),
    "more columns": (b"other,item,user", b"1,zz,v"),
    "other names": (b"who,what", b"v,zz"),
    "no header": (b"v,zz", b"v,yy"),
    "byte order mark": (b"\xef\xbb\xbfuser,item", b"v,zz"),
}


@dataclass(frozen=True)
class TextCase:
    """Files as (header, lines with their owners); a file whose lines are all deleted is gone."""

    name: str
    files: tuple[tuple[bytes | None, tuple[tuple[bytes, bytes], ...]], ...]

    def without(self, user):
        kept = [(head, tuple(line for line in lines if line[0] != user.encode())) for head, lines in self.files]
        return dataclasses.replace(self, files=tuple(file for file in kept if file[1]))

    def people(self):
        return sorted({owner.decode() for _, lines in self.files for owner, _ in lines} | {ODD})

    def contents(self):
        texts = [[head, *(line for _, line in lines)] for head, lines in self.files]
        return [b"\n".join(line for line in text if line is not None) + b"\n" for text in texts]


def delimited_cases():
    cases = []
    for name, line in ODD_LINES.items():
        for where, lines in (("first", [(b"v", line), *REGULAR]), ("last", [*REGULAR, (b"v", line)])):
            cases.append(TextCase(f"{name}, {where}", ((HEADER, tuple(lines)),)))
    for name, (head, line) in ODD_FILES.items():
        regular, odd = (HEADER, tuple(REGULAR)), (head, ((b"v", line),))
        cases.append(TextCase(f"{name}, first file", (odd, regular)))
        cases.append(TextCase(f"{name}, second file", (regular, odd)))
    return cases


def tabbed(case):
    files = [
        (head and head.replace(b",", b"\t"), tuple((owner, line.replace(b",", b"\t")) for owner, line in lines))
        for head, lines in case.files
    ]
    return dataclasses.replace(case, files=tuple(files))


JSON_ITEMS = {"text": ["01", "02", "1", "é"], "list": [["a", "b"], ["a"], [], ["1"]], "number": [1, 2, 3, 4]}
ODD_JSON = {
    "text": b'"zz"', "number": b"7", "float": b"1.0", "large": b"123456789012345678901", "boolean": b"true",
    "null": b"null", "list": b'["a", "q"]', "list of null": b"[null]", "list of numbers": b"[1, 2]",
    "mixed list": b'[1, "a"]', "list of lists": b'[["a"]]', "object": b'{"k": 1}', "lone surrogate": b'"\\ud800"',
    "bad bytes": b'"\xff"', "date": b'"2024-01-01"',
}  # fmt: skip
ODD_JSON_LINES = {
    "more keys": b'{"user": "v", "item": null, "more": {"deep": [1]}}', "no item": b'{"user": "v"}',
    "number as user": b'{"user": 7, "item": null}',
    "two objects": b'{"user": "v", "item": null} {"user": "p0", "item": null}',
    "text behind": b'{"user": "v", "item": null} x', "single quotes": b"{'user': 'v'}", "array": b'[{"user": "v"}]',
    "the same key twice": b'{"user": "v", "user": "p0", "item": null}', "no json": b"v,zz",
}  # fmt: skip


def json_cases(kinds=tuple(JSON_ITEMS)):
    cases = []
    for kind in kinds:
        people = [(f"p{number}", item) for number, item in enumerate(JSON_ITEMS[kind])]
        lines = [(user.encode(), json.dumps({"user": user, "item": item}).encode()) for user, item in people]
        lines.append((b"p4", lines[0][1].replace(b"p0", b"p4")))
        odd = {name: b'{"user": "v", "item": ' + value + b"}" for name, value in ODD_JSON.items()} | ODD_JSON_LINES
        for name, line in odd.items():
            case = (b"v", line)
            cases.append(TextCase(f"{name} among {kind}, first", ((None, (case, *lines)),)))
            cases.append(TextCase(f"{name} among {kind}, last", ((None, (*lines, case)),)))
            cases.append(TextCase(f"{name} among {kind}, a file", ((None, tuple(lines)), (None, (case,)))))
    return cases


TEXT_CASES = {"csv": delimited_cases(), "tsv": [tabbed(case) for case in delimited_cases()], "jsonl": json_cases()}
PACKED = {"": bytes, ".gz": gzip.compress, ".zst": lambda data: bytes(pa.compress(data, codec="zstd").to_pybytes())}


def written(folder, case, suffix, packing=""):
    folder.mkdir(parents=True)
    paths = []
    for number, content in enumerate(case.contents()):
        path = folder / f"{number}.{suffix}{packing}"
        path.write_bytes(PACKED[packing](content))
        paths.append(str(path))
    return paths


@pytest.mark.parametrize("packing", list(PACKED))
@pytest.mark.parametrize("suffix", list(TEXT_CASES))
def test_nobody_changes_how_others_are_read_from_text_files(tmp_path, suffix, packing):
    numbers = itertools.count()
    read = 0
    for case in TEXT_CASES[suffix]:
        whole = ["", *case.people()]
        readings = []
        for deleted in whole:
            paths = written(tmp_path / str(next(numbers)), case.without(deleted), suffix, packing)
            readings.append((deleted, attempted(lambda paths=paths: found_in(paths))))
        read += compare(readings)
    assert 5 <= read <= len(TEXT_CASES[suffix]) - 5, "some cases are read, others refused"


@pytest.mark.parametrize("suffix", list(TEXT_CASES))
def test_nobody_changes_how_others_are_read_from_standard_input(monkeypatch, suffix):
    read = 0
    for case in TEXT_CASES[suffix]:
        if len(case.files) > 1:
            continue
        readings = []
        for deleted in ["", *case.people()]:
            (content,) = case.without(deleted).contents()
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
            given = {"input_format": "tsv"} if suffix == "tsv" else {}
            readings.append((deleted, attempted(lambda given=given: found_in("-", **given))))
        read += compare(readings)
    assert read >= 5


# --- columnar files -----------------------------------------------------------------------------------------
PLAIN = {"user": ["p0", "p1", "p1", "p2", "p3"], "item": ["01", "02", "x, y", "1", "é"]}
DATES = [dt.date(2024, 1, day) for day in range(1, 6)]
REGULAR_TABLES = {
    "text": pa.table(PLAIN),
    "number": pa.table({"user": PLAIN["user"], "item": pa.array(range(5), pa.int32())}),
    "date": pa.table({"user": PLAIN["user"], "item": pa.array(DATES, pa.date32())}),
    "list": pa.table({"user": PLAIN["user"], "item": [["a"], ["b", "c"], [], None, ["01"]]}),
}
ODD_TABLES = {
    "text": pa.table({"user": [ODD], "item": ["zz"]}),
    "null": pa.table({"user": [ODD], "item": pa.array([None], pa.string())}),
    "nobody": pa.table({"user": pa.array([None], pa.string()), "item": ["zz"]}),
    "number": pa.table({"user": [ODD], "item": pa.array([7], pa.int32())}),
    "long number": pa.table({"user": [ODD], "item": pa.array([7], pa.int64())}),
    "date": pa.table({"user": [ODD], "item": pa.array(DATES[:1], pa.date32())}),
    "float": pa.table({"user": [ODD], "item": [1.5]}),
    "boolean": pa.table({"user": [ODD], "item": [True]}),
    "bytes": pa.table({"user": [ODD], "item": [b"\xff\xfe"]}),
    "list": pa.table({"user": [ODD], "item": [["a", "q"]]}),
    "numbers as users": pa.table({"user": pa.array([7], pa.int64()), "item": ["zz"]}),
    "swapped": pa.table({"item": ["zz"], "user": [ODD]}),
    "more columns": pa.table({"extra": [1.5], "item": ["zz"], "more": [[1]], "user": [ODD]}),
    "no item": pa.table({"user": [ODD], "other": ["zz"]}),
    "other letters": pa.table({"USER": [ODD], "ITEM": ["zz"]}),
}


def written_tables(folder, tables, deleted, suffix):
    folder.mkdir(parents=True)
    paths = []
    for number, table in enumerate(tables):
        owners = table[next(name for name in table.column_names if name.lower() == "user")].to_pylist()
        kept = table.filter([str(owner if owner not in (7, None) else ODD) != deleted for owner in owners])
        if not kept.num_rows:
            continue
        path = folder / f"{number}.{suffix}"
        if suffix == "parquet":
            pq.write_table(kept, path)
        else:
            with pa.ipc.new_file(path, kept.schema) as writer:
                writer.write_table(kept)
        paths.append(str(path))
    return paths


def table_cases(kinds, odd=tuple(ODD_TABLES)):
    pairs = [(REGULAR_TABLES[kind], ODD_TABLES[name]) for kind in kinds for name in odd]
    return [order for one, other in pairs for order in ((one, other), (other, one))]


def table_readings(root, cases, source, suffix):
    """Write each case and what is left without each person, and compare; source: what is read, of folder and files."""
    read = 0
    for number, tables in enumerate(cases):
        readings = []
        for deleted in ["", ODD, "p0", "p1", "p2", "p3"]:
            folder = root / f"{number}-{deleted}"
            paths = written_tables(folder, tables, deleted, suffix)
            readings.append((deleted, attempted(lambda folder=folder, paths=paths: found_in(source(folder, paths)))))
        read += compare(readings, (ODD, "7"))
    return read


def logged_table(folder, paths):
    """Return a Delta table of files of any types, by a log with the types of the first file."""
    deltalake = pytest.importorskip("deltalake")
    table = pq.read_table(paths[0])
    deltalake.write_deltalake(folder, table.select([name for name in table.column_names if name != "more"]))
    adding = {"dataChange": True, "modificationTime": 0, "partitionValues": {}}
    files = [{"path": Path(path).name, "size": Path(path).stat().st_size} for path in paths[1:]]
    if files:
        log = folder / "_delta_log" / f"{1:020}.json"
        log.write_text("\n".join(json.dumps({"add": adding | file}) for file in files))
    return deltalake.DeltaTable(folder)


SEEN_THROUGH = {
    "files": lambda folder, paths: paths,
    "folder": lambda folder, paths: str(folder),
    "Dataset": lambda folder, paths: ds.dataset(paths),
    "Dataset of a folder": lambda folder, paths: ds.dataset(folder, format="parquet"),
    "Dataset of Datasets": lambda folder, paths: ds.UnionDataset(ds.dataset(paths).schema, [ds.dataset(paths)]),
    "filtered Dataset": lambda folder, paths: ds.dataset(paths).filter(ds.field("item").is_valid()),
    "Delta table": logged_table,
}


@pytest.mark.parametrize(("kind", "suffix"), [*((kind, "parquet") for kind in SEEN_THROUGH), ("files", "arrow")])
def test_nobody_changes_how_others_are_read_from_columnar_files(tmp_path, kind, suffix):
    assert 10 <= table_readings(tmp_path, table_cases(REGULAR_TABLES), SEEN_THROUGH[kind], suffix) <= 100


def iceberg_table(folder, paths):
    memory = pytest.importorskip("pyiceberg.catalog.memory")
    catalog = memory.InMemoryCatalog("test", warehouse=folder.as_uri())
    catalog.create_namespace("space")
    table = catalog.create_table("space.rows", schema=pq.read_schema(paths[0]))
    for path in paths:
        with table.update_schema() as change:
            change.union_by_name(pq.read_schema(path))
        table.append(pq.read_table(path))
    return table


NOT_SEEN_THROUGH = {
    "Iceberg table": iceberg_table,
    "LazyFrame": lambda folder, paths: pl.scan_parquet(paths, extra_columns="ignore"),
    "Scanner": lambda folder, paths: ds.dataset(paths).scanner(),
    "batches": lambda folder, paths: ds.dataset(paths).to_batches(),
    "DuckDB relation": lambda folder, paths: duckdb.sql(f"from read_parquet({paths})"),
}


@pytest.mark.parametrize("kind", list(NOT_SEEN_THROUGH))
def test_files_of_the_same_types_in_what_hides_them(tmp_path, kind):
    """What other libraries cast, dpunion cannot see: files of different types are up to whoever makes the source."""
    cases = table_cases(["text"], ["text", "null", "nobody", "swapped", "more columns"])
    assert 4 <= table_readings(tmp_path, cases, NOT_SEEN_THROUGH[kind], "parquet") <= len(cases)


# --- folders key=value --------------------------------------------------------------------------------------
ODD_VALUES = ["zz", "1", "001", "1.0", "1e0", "__HIVE_DEFAULT_PARTITION__", "2024-01-01", "true", "a%2Fb", "%C3%A9"]
FOLDERS = {"p0": "01", "p1": "02", "p2": "1", "p3": "007"}


def written_folders(root, people, key):
    """Write one folder for each person: the user or the item is the folder's name."""
    for user, item in people.items():
        name, other, value = (item, "user", user) if key == "item" else (user, "item", item)
        folder = root / f"{key}={name}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({other: [value], "more": [1]}), folder / f"{user}.parquet")
    return root


def folder_cases():
    """Return (key, people, odd one): odd items, then odd users among users like 01."""
    cases = [("item", {**FOLDERS, ODD: value}, ODD) for value in ODD_VALUES]
    users = dict.fromkeys(FOLDERS.values(), "x")
    return cases + [("user", {**users, value: "y"}, value) for value in ODD_VALUES if value not in users]


def folder_readings(root, read, *, everybody):
    done = 0
    known = {}
    for number, (key, people, odd) in enumerate(folder_cases()):
        readings = []
        for deleted in ["", *(people if everybody else [odd])]:
            some = {user: item for user, item in people.items() if user != deleted}
            case = (key, *some.items())
            if case not in known:
                folder = written_folders(root / f"{number}-{deleted or 'all'}", some, key)
                known[case] = attempted(lambda folder=folder: read(str(folder)))
            readings.append((deleted, known[case]))
        done += compare(readings, (odd, "a/b", "é", "Ã©"))
    return done


READ_FOLDERS = {
    "folder": lambda folder: folder,
    "Dataset": lambda folder: ds.dataset(folder, format="parquet", partitioning=text_partitions(folder)),
    "LazyFrame": lambda folder: pl.scan_parquet(
        folder, hive_schema={text_partitions(folder).schema.names[0]: pl.String}
    ),
    "DuckDB relation": lambda folder: duckdb.sql(
        f"from read_parquet('{folder}/*/*.parquet', hive_partitioning = true, hive_types_autocast = false)"
    ),
}


def text_partitions(folder):
    key = next(Path(folder).iterdir()).name.split("=")[0]
    return ds.partitioning(pa.schema([(key, pa.string())]), flavor="hive")


@pytest.mark.parametrize("kind", list(READ_FOLDERS))
def test_nobody_changes_how_others_are_read_from_folders(tmp_path, kind):
    assert folder_readings(tmp_path, lambda folder: found_in(READ_FOLDERS[kind](folder)), everybody=True) >= 15


def test_guessed_types_of_folders(tmp_path):
    """A Dataset whose partitions were guessed is read as text or refused, whoever is in it."""
    read = 0
    for number, (key, people, odd) in enumerate(folder_cases()):
        readings = []
        for deleted in ["", odd]:
            some = {user: item for user, item in people.items() if user != deleted}
            folder = written_folders(tmp_path / f"{number}-{deleted or 'all'}", some, key)
            source = ds.dataset(folder, format="parquet", partitioning="hive")
            readings.append((deleted, attempted(lambda source=source: found_in(source))))
        agree(readings)
        read += readings[0][1] is not None
    assert 5 <= read < len(folder_cases())


# --- frames and databases -----------------------------------------------------------------------------------
MIXED = ["zz", "1", None, "", 7, 1.5, float("nan"), True, b"x", b"\xff", ["a"], dt.date(2024, 1, 1)]
MIXED += [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), 2**70, "\ud800"]
TEXTS = [value for value in MIXED if isinstance(value, str | None) and value != "\ud800"]
OBJECTS = {"text": ["01", "02", "1", "é"], "number": [1, 2, 3, 4], "boolean": [True, False] * 2}
OBJECTS |= {"date": [dt.date(2024, 1, day) for day in (1, 2, 3, 4)]}


def pandas_frame(rows):
    users, items = zip(*rows, strict=True)
    return pd.DataFrame({"user": pd.Series(users, dtype=object), "item": pd.Series(items, dtype=object)})


def polars_frame(rows):
    return pl.DataFrame(rows, schema={"user": pl.String, "item": pl.String}, orient="row")


def rows_without(rows, deleted):
    return [row for row in rows if row[0] != deleted]


def mixed_cases(kinds, odd):
    cases = []
    for kind in kinds:
        regular = [(f"p{number}", item) for number, item in enumerate(OBJECTS[kind])]
        cases += [rows for value in odd for rows in ([(ODD, value), *regular], [*regular, (ODD, value)])]
    return cases


def compare_rows(cases, read):
    done = 0
    for rows in cases:
        people = ["", *sorted({user for user, _ in rows})]
        readings = [(user, attempted(lambda user=user, rows=rows: read(rows_without(rows, user)))) for user in people]
        done += compare(readings)
    return done


def test_nobody_changes_how_others_are_read_from_pandas():
    cases = mixed_cases(OBJECTS, MIXED)
    assert 5 <= compare_rows(cases, lambda rows: found_in(pandas_frame(rows))) < len(cases)


def test_pandas_categories_and_lists():
    """Other places in which pandas keeps Python objects."""
    for change in (lambda frame: frame.astype({"item": "category"}), in_lists):
        cases = mixed_cases(OBJECTS, [value for value in MIXED if not isinstance(value, list)])
        assert 5 <= compare_rows(cases, lambda rows, change=change: found_in(change(pandas_frame(rows)))) < len(cases)


def in_lists(frame):
    return frame.assign(item=[[item] for item in frame["item"]])


def test_nobody_changes_how_others_are_read_from_pairs_and_mappings():
    cases = mixed_cases(OBJECTS, MIXED)
    plain = {"user": None, "value": None}
    assert 5 <= compare_rows(cases, lambda rows: found_in(rows, **plain)) < len(cases)
    assert 5 <= compare_rows(cases, lambda rows: found_in({u: [i] for u, i in rows}, **plain)) < len(cases)


def test_nobody_changes_how_others_are_read_from_polars():
    assert compare_rows(mixed_cases(["text"], TEXTS), lambda rows: found_in(polars_frame(rows))) >= 4


def test_nobody_changes_how_others_are_read_from_what_yields_batches():
    """Batches of one row each, of the type that the row has; and a LazyFrame."""

    def read(rows):
        return found_in(pa.table({"user": [user], "item": [item]}) for user, item in rows)

    values = [value for value in MIXED if value not in (2**70, "\ud800")]
    cases = mixed_cases(["text", "number"], values)
    assert 5 <= compare_rows(cases, read) < len(cases)
    assert compare_rows(mixed_cases(["text"], TEXTS), lambda rows: found_in(polars_frame(rows).lazy())) >= 4


def test_nobody_changes_how_others_moments_are_read():
    """A datetime with a zone, one without, a date or a text changes nothing about other people's days."""
    regular = [(f"p{number}", dt.datetime(2024, 1, number + 1, 23, 30)) for number in range(4)]  # noqa: DTZ001
    zoned = [(user, moment.replace(tzinfo=dt.UTC)) for user, moment in regular]
    odd = [zoned[0][1], regular[0][1], dt.date(2024, 1, 1), "2024-01-01", None, regular[0][1].replace(year=9999)]
    options = {"user": None, "value": None, "granularity": Granularity.DAY}
    cases = [(rows, value) for rows in (regular, zoned) for value in odd]
    read = [
        compare(
            [
                ("", attempted(lambda rows=rows, value=value: found_in([*rows, (ODD, value)], **options))),
                (ODD, attempted(lambda rows=rows: found_in(rows, **options))),
            ]
        )
        for rows, value in cases
    ]
    assert 4 <= sum(read) < len(read)


def parquet_rows(path, rows):
    pq.write_table(pa.table({"user": [u for u, _ in rows], "item": pa.array([i for _, i in rows], pa.string())}), path)


def sqlite_rows(path, rows):
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute('create table source ("user", item)')
        database.executemany("insert into source values (?, ?)", rows)


def duckdb_rows(path, rows):
    with duckdb.connect(str(path)) as database:
        database.execute('create table source ("user" varchar, item varchar)')
        database.executemany("insert into source values (?, ?)", rows)


SQLITE_VALUES = [value for value in MIXED if not isinstance(value, list | dt.date) and value not in (2**70, "\ud800")]


@pytest.mark.parametrize(
    ("write", "cases", "fewest", "most"),
    [
        (parquet_rows, mixed_cases(["text"], TEXTS), 4, 10**6),
        (duckdb_rows, mixed_cases(["text"], TEXTS), 4, 10**6),
        # Every value of SQLite has a type of its own.
        (sqlite_rows, mixed_cases(["text", "number"], SQLITE_VALUES), 5, 4 * len(SQLITE_VALUES) - 1),
    ],
    ids=["Parquet", "DuckDB", "SQLite"],
)
def test_nobody_changes_how_others_are_read_by_a_query(tmp_path, write, cases, fewest, most):
    numbers = itertools.count()

    def read(rows):
        path = tmp_path / f"{next(numbers)}.{write.__name__.removesuffix('_rows')}"
        write(path, rows)
        return found_in(str(path), query='select "user", item from source')

    assert fewest <= compare_rows(cases, read) <= most


@pytest.mark.filterwarnings("ignore::dpunion.reading.PasswordInUrl")
def test_nobody_changes_how_others_are_read_from_postgresql(postgres_url):
    import psycopg

    def read(rows):
        with psycopg.connect(postgres_url, autocommit=True) as database:
            database.execute("drop table if exists one_persons_rows")
            database.execute('create table one_persons_rows ("user" text, item text)')
            database.cursor().executemany("insert into one_persons_rows values (%s, %s)", rows)
        return found_in(postgres_url, query='select "user", item from one_persons_rows')

    assert compare_rows(mixed_cases(["text"], TEXTS), read) >= 4


# --- Spark --------------------------------------------------------------------------------------------------
def on_spark(paths, **options):
    return found_on_spark(SparkSource(tuple(paths)), **options)


def spark_readings(cases, folder, suffix):
    """Compare the whole with what is left without the odd person, which many cases share."""
    done, known = 0, {}
    for number, case in enumerate(cases):
        rest = case.without(ODD)
        if rest.files not in known:
            paths = written(folder / f"{number}-rest", rest, suffix)
            known[rest.files] = attempted(lambda paths=paths: on_spark(paths))
        paths = written(folder / str(number), case, suffix)
        whole = attempted(lambda paths=paths: on_spark(paths))
        done += compare([("", whole), (ODD, known[rest.files])])
    return done


def named(cases, *names):
    """Return some of the cases: a task that refuses costs Spark seconds."""
    known = {case.name: case for case in cases}
    return [known[name] for name in names]


@pytest.mark.usefixtures("spark")
def test_delimited_files_on_spark(tmp_path):
    own_files = [f"{name}, {place} file" for name in ("swapped", "more columns") for place in ("first", "second")]
    lines = ["fine, first", "two lines, last", "unclosed, first", "bad bytes, last", "stray quote, first"]
    chosen = named(TEXT_CASES["csv"], *lines, *own_files, "no header, second file")
    assert 4 <= spark_readings(chosen, tmp_path / "csv", "csv") <= 6
    assert spark_readings(named(TEXT_CASES["tsv"], *own_files[:2]), tmp_path / "tsv", "tsv") == 2


@pytest.mark.usefixtures("spark")
def test_json_lines_on_spark(tmp_path):
    among_lists = [f"{name} among list, last" for name in ("text", "list", "null", "lone surrogate", "two objects")]
    among_texts = [f"{name} among text, a file" for name in ("text", "list", "number", "more keys")]
    chosen = named(TEXT_CASES["jsonl"], *among_lists, *among_texts)
    assert 3 <= spark_readings(chosen, tmp_path, "jsonl") <= 6


@pytest.mark.usefixtures("spark")
def test_parquet_on_spark(tmp_path):
    read = 0
    known = {}
    cases = [
        ("text", name) for name in ("text", "null", "number", "bytes", "list", "swapped", "more columns", "no item")
    ]
    cases += [("number", "date"), ("number", "long number"), ("date", "number"), ("list", "list")]
    for number, (kind, name) in enumerate(cases):
        tables = (ODD_TABLES[name], REGULAR_TABLES[kind])
        if kind not in known:
            rest = written_tables(tmp_path / f"{number}-rest", tables, ODD, "parquet")
            known[kind] = attempted(lambda rest=rest: on_spark(rest))
        paths = written_tables(tmp_path / str(number), tables, "", "parquet")
        readings = [("", attempted(lambda paths=paths: on_spark(paths))), (ODD, known[kind])]
        read += compare(readings, (ODD, "7"))
    assert 4 <= read <= 8


@pytest.mark.usefixtures("spark")
def test_folders_on_spark(tmp_path):
    assert folder_readings(tmp_path, lambda folder: on_spark([folder]), everybody=False) >= 15


@pytest.mark.parametrize("kind", ["table", "data frame"])
def test_tables_and_data_frames_on_spark(spark, kind):
    def read(rows):
        frame = spark.createDataFrame(rows, "user string, item string")
        if kind == "data frame":
            return found_on_spark(frame)
        frame.createOrReplaceTempView("one_persons_rows")
        return on_spark(["one_persons_rows"], input_format="table")

    cases = mixed_cases(["text"], TEXTS)[::2]
    assert compare_rows(cases, read) == len(cases)
