"""Sources that Spark opens by name: read as on one machine or refused, after the charge, and nothing is printed."""

import contextlib
import functools
import gzip
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import dpunion
from dpunion.engines.spark import files, sessions, sources
from dpunion.engines.spark.sessions import call_spark, guard_task
from dpunion.engines.spark.sources import open_frame, session_of
from dpunion.errors import (
    AlreadyReleased,
    BadSource,
    CannotWrite,
    DamagedSource,
    DpunionError,
    UnknownColumn,
    UnsupportedType,
)
from dpunion.ledger import Ledger
from dpunion.reading import SourceRequest, ValueKind, jsonlines
from dpunion.reading.locate import data_file
from dpunion.requests import Charge, Folder, Run, SparkSource
from dpunion.sets.encoding import Normalization
from opening import make_request, read_pairs
from running import run_cli, run_python

KEY = 5
BUDGET = {"user": "user", "item": "item", "epsilon": 2.0, "delta": 1e-3, "algorithm": "weighted-gaussian"}
CANARY = "CanarySecret"
PEOPLE = 300


@pytest.fixture(autouse=True)
def _signals(monkeypatch):
    """Commands that run here leave the handlers of signals alone."""
    monkeypatch.setattr("signal.signal", lambda *_: None)


def reading(source, user="user", value="item", **options):
    return make_request(source, user, value, **({"normalization": Normalization.EXACT} | options))


def rows_of(source, **options):
    return sorted(read_pairs(source, **({"user": "user", "value": "item"} | options)))


def on_spark(*paths, **options):
    source = SparkSource(tuple(map(str, paths)))
    frame, check_rows = open_frame(reading(source, **options), session_of(source))
    check_rows()
    names = {name: options[name] for name in ("user", "value") if name in options}
    return rows_of(call_spark(frame.toArrow), **names)


def outcome(read):
    try:
        return read()
    except DpunionError:
        return "refused"


def in_file(path, *lines):
    """Write lines, texts or bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines))
    return path


# --- as on one machine --------------------------------------------------------------------------------------
CSV = ["user,item", "a,x", "b,y"]
# What Spark's own readers accept and one machine refuses or reads otherwise: files of a case, by name.
DIFFERENT = {
    "other names": {"1.csv": CSV, "2.csv": ["who,what", "c,z"]},
    "swapped names": {"1.csv": CSV, "2.csv": ["item,user", "z,c"]},
    "no header": {"1.csv": CSV, "2.csv": ["c,z", "d,z"]},
    "unterminated quote": {"1.csv": [*CSV, 'c,"z', "d,z"]},
    "stray quote": {"1.csv": [*CSV, 'c,z"z']},
    "text behind a quote": {"1.csv": [*CSV, 'c,"z"z']},
    "nul": {"1.csv": [*CSV, "c,z\0z"]},
    "bad bytes": {"1.csv": [*CSV, b"c,\xff\xfe"]},
    "latin ids": {"1.csv": [*CSV, "é,z".encode("latin-1"), "è,z".encode("latin-1")]},
    "ids 1 and '1'": {"1.jsonl": ['{"user": 1, "item": "x"}', '{"user": "1", "item": "y"}']},
    "ids 1, 1.0 and 'a'": {"1.jsonl": [f'{{"user": {user}, "item": "x"}}' for user in ("1", "1.0", '"a"')]},
    "ids 1 and '1' in two files": {"1.jsonl": ['{"user": 1, "item": "x"}'], "2.jsonl": ['{"user": "1", "item": "y"}']},
    "lone surrogates": {"1.jsonl": [f'{{"user": "\\ud80{n}", "item": "x"}}' for n in "01"]},
    "two objects on a line": {"1.jsonl": ['{"user": "a", "item": "x"} {"user": "b", "item": "y"}']},
    "text behind an object": {"1.jsonl": ['{"user": "a", "item": "x"} y']},
    "mixed items": {"1.jsonl": [f'{{"user": "a", "item": {item}}}' for item in ('"x"', '["y", "z"]', '{"k": 1}')]},
    "single quotes": {"1.jsonl": ["{'user': 'a', 'item': 'x'}"]},
    "array on a line": {"1.jsonl": ['[{"user": "a", "item": "x"}]']},
    "no bytes": {"1.csv": CSV, "2.csv": []},
    "no bytes, compressed": {"1.csv": CSV, "2.tsv.gz": []},
    "no bytes but the same file twice": {"1.csv": CSV, "./1.csv": CSV, "2.csv": []},
    "no JSON Lines": {"1.jsonl": ['{"user": "a", "item": "x"}'], "2.jsonl": []},
    "two formats": {"1.csv": CSV, "2.jsonl": ['{"user": "c", "item": ["z", "zz"]}']},
}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("case", list(DIFFERENT))
def test_text_files_are_read_as_on_one_machine(tmp_path, case):
    paths = [str(in_file(tmp_path / name, *lines)) for name, lines in DIFFERENT[case].items()]
    here, there = outcome(lambda: rows_of(paths)), outcome(lambda: on_spark(*paths))
    assert there == here
    assert (here == "refused") == (case not in {"swapped names", "two formats", "no JSON Lines"})


@pytest.mark.usefixtures("spark")
def test_folders_of_001_and_1_are_two_users(tmp_path):
    for user in ("001", "1"):
        (tmp_path / "data" / f"user={user}").mkdir(parents=True)
        pq.write_table(pa.table({"item": ["x"]}), tmp_path / "data" / f"user={user}" / "0.parquet")
    assert on_spark(tmp_path / "data") == rows_of(str(tmp_path / "data")) == [("001", "x"), ("1", "x")]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("suffix", "write"), [("parquet", pq.write_table), ("orc", orc.write_table)])
def test_a_file_that_lacks_a_column_is_refused_and_nulls_are_not(tmp_path, suffix, write):
    write(pa.table({"user": ["a"], "item": ["x"]}), tmp_path / f"0.{suffix}")
    write(pa.table({"user": ["b"], "item": pa.array([None], pa.string())}), tmp_path / f"odd [1] é.{suffix}")
    assert on_spark(tmp_path, input_format=suffix) == [("a", "x")]
    write(pa.table({"user": ["b"], "other": ["y"]}), tmp_path / f"1.{suffix}")
    with pytest.raises(BadSource, match="lacks the column 'item'"):
        on_spark(tmp_path, input_format=suffix)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("suffix", "write"), [("parquet", pq.write_table), ("orc", orc.write_table)])
def test_columns_that_spark_takes_for_one_are_refused(tmp_path, suffix, write):
    table = pa.table({"user": ["a"], "item": ["x"]})
    cases = {"case": ["0", "1"], "folder": ["item=F/0"], "folder of another case": ["Item=F/0"]}
    for case, names in cases.items():
        for name in names:
            path = tmp_path / case / f"{name}.{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            write(table if name != "1" else table.rename_columns(["User", "item"]), path)
        for query in (None, "select user, item from source"):
            with pytest.raises(BadSource, match=r"(?i)several columns '(user|item)'.*Rename or remove"):
                on_spark(tmp_path / case, input_format=suffix, query=query)
        if suffix == "parquet" and case != "folder of another case":
            assert outcome(lambda case=case: rows_of(str(tmp_path / case))) == "refused"


@pytest.mark.usefixtures("spark")
def test_files_of_different_types_are_told_as_such(tmp_path):
    pq.write_table(pa.table({"user": ["a"], "item": ["x"]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"user": ["a"], "item": [1]}), tmp_path / "1.parquet")
    with pytest.raises(UnsupportedType, match=r"Mixed types.*Cast it to one type"):
        on_spark(tmp_path)


@pytest.mark.usefixtures("spark")
def test_files_are_not_left_out(tmp_path):
    table = pa.table({"user": ["a"], "item": ["x"]})
    (tmp_path / "below").mkdir()
    pq.write_table(table, tmp_path / "0.parquet")
    pq.write_table(table, tmp_path / "below" / "1.parquet")
    with pytest.raises(BadSource, match="leave out files in subfolders"):
        on_spark(tmp_path)
    in_file(tmp_path / "mixed" / "1.csv", *CSV)
    pq.write_table(table, tmp_path / "mixed" / "0.parquet")
    with pytest.raises(BadSource, match="'csv' by its name"):
        on_spark(tmp_path / "mixed")
    (tmp_path / "empty.csv").mkdir()
    with pytest.raises(BadSource, match="no files"):
        on_spark(tmp_path / "mixed" / "1.csv", tmp_path / "empty.csv")
    with pytest.raises(BadSource, match="no file"):
        on_spark(tmp_path / "nothing.csv")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("mark", ["_delta_log/0.json", ".hoodie/hoodie.properties", "metadata/v1.metadata.json"])
def test_folders_of_tables_with_a_log_are_refused(tmp_path, mark):
    pq.write_table(pa.table({"user": ["a"], "item": ["x"]}), tmp_path / "0.parquet")
    in_file(tmp_path / mark, "{}")
    with pytest.raises(BadSource, match="table of"):
        on_spark(tmp_path)
    with pytest.raises(BadSource, match="table of"):
        on_spark(tmp_path / "*.parquet")
    pq.write_table(pa.table({"user": ["a"], "item": ["x"]}), in_file(tmp_path / "day=1" / "0.parquet"))
    with pytest.raises(BadSource, match="table of"):
        on_spark(tmp_path / "day=1")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("count", [1, 2])
def test_one_file_needs_no_search_for_missing_columns(tmp_path, monkeypatch, count):
    searched = []
    monkeypatch.setattr(sources, "check_complete", lambda *_: searched.append(True))
    for number in range(count):
        pq.write_table(pa.table({"user": ["a"], "item": ["x"]}), tmp_path / f"{number}.parquet")
    assert on_spark(tmp_path) == [("a", "x")] * count
    assert bool(searched) == (count > 1)


# --- outputs that are inputs --------------------------------------------------------------------------------
@pytest.mark.parametrize("named", ["frame", "files", "table"])
@pytest.mark.parametrize("out", [".", "..", "link", "file:"])
def test_a_folder_with_files_that_are_read_is_never_replaced(spark, tmp_path, named, out):
    place = tmp_path / "with space" / "rows"
    in_file(place / "0.parquet")
    pq.write_table(pa.table({"user": ["a"], "item": ["x"]}), place / "0.parquet")
    (tmp_path / "link").symlink_to(place)
    out = {".": place, "..": place.parent, "link": tmp_path / "link", "file:": f"file://{place}"}[out]
    frame = spark.read.parquet(str(place))
    frame.createOrReplaceTempView("replaced")
    source = {"frame": frame, "files": SparkSource((str(place),)), "table": SparkSource(("replaced",), format="table")}
    ledger = tmp_path / "ledger.db"
    Ledger.open(ledger, create=True).create_dataset("people", 20.0, 0.5)
    options = {"charge": Charge(ledger, "people"), "run": Run(overwrite=True), "out": Folder(out)}
    with pytest.raises(CannotWrite):
        dpunion.release(source[named], **BUDGET, **options)
    assert [one.name for one in place.iterdir()] == ["0.parquet"]
    assert not [one for one in Ledger.open(ledger).overview().entries if not one.is_cancelled]
    frame.unpersist()


def test_another_folder_is_replaced(spark, tmp_path):
    frame = spark.createDataFrame([(f"u{n}", "x") for n in range(PEOPLE)], "user string, item string")
    for _ in range(2):
        made = dpunion.release(frame, **BUDGET, out=Folder(tmp_path / "out"), run=Run(overwrite=True))
        assert pq.read_table(made.stored)["item"].to_pylist() == ["x"]


def test_tables_are_of_one_type_and_not_text(spark, tmp_path):
    spark.createDataFrame([("001", "x")], "user string, item string").createOrReplaceTempView("texts")
    spark.createDataFrame([("y", 1)], "item string, user long").createOrReplaceTempView("numbers")
    spark.createDataFrame([("y", "b")], "item string, user string").createOrReplaceTempView("swapped")
    assert on_spark("texts", "swapped", input_format="table") == [("001", "x"), ("b", "y")]
    with pytest.raises(DpunionError, match="different names or types"):
        on_spark("texts", "numbers", input_format="table")
    in_file(tmp_path / "lenient" / "1.csv", *CSV)
    spark.sql(f"create table lenient (user string, item string) using csv location '{tmp_path}/lenient'")
    try:
        with pytest.raises(BadSource, match="stored as csv"):
            on_spark("lenient", input_format="table")
    finally:
        spark.sql("drop table lenient")
    spark.sql(f"create table provider (user string, Provider string) using csv location '{tmp_path}/lenient'")
    try:
        with pytest.raises(BadSource, match="stored as csv"):
            on_spark("provider", input_format="table", value="Provider")
    finally:
        spark.sql("drop table provider")


def test_the_task_of_the_workers_reads_what_one_machine_reads(tmp_path):
    """Without Spark: whole files as the workers get them."""
    wanted = SourceRequest(None, "user", ValueKind.ITEM, "item")
    for number, (case, contents) in enumerate(DIFFERENT.items()):
        for name, lines in contents.items():
            path = in_file(tmp_path / f"{number}{name}", *lines)
            batch = pa.record_batch({"path": [f"file:{path}"], "content": pa.array([path.read_bytes()], pa.binary())})
            task = functools.partial(files.read_files, data_file(path).format, wanted)

            def there(task=task, batch=batch):
                try:
                    found = list(guard_task(task)(iter([batch])))
                except RuntimeError as error:
                    assert "dpunion-error" in str(error)
                    return "refused"
                return sorted(row for one in found for row in zip(*one.to_pydict().values(), strict=True))

            assert there() == outcome(lambda path=path: rows_of(str(path))), case


@pytest.mark.usefixtures("spark")
def test_keys_of_several_columns_and_compressed_files(tmp_path):
    lines = "user,country,device\n" + "".join(f"u{n},de,phone\nu{n},,x\n" for n in range(PEOPLE))
    (tmp_path / "visits.csv.gz").write_bytes(gzip.compress(lines.encode()))
    options = BUDGET | {"item": ["country", "device"], "unsafe_test_key": KEY}
    there = dpunion.release(SparkSource((str(tmp_path / "visits.csv.gz"),)), **options)
    assert there.items == dpunion.release(str(tmp_path / "visits.csv.gz"), **options).items == (("de", "phone"),)


# --- one person ---------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("spark")
def test_one_person_of_another_type_changes_nobodys_items(tmp_path):
    lines = [json.dumps({"user": f"u{n}", "item": ["apple", "pear"]}) for n in range(PEOPLE)]
    without = in_file(tmp_path / "without" / "F.jsonl", *lines)
    with_one = in_file(tmp_path / "with" / "F.jsonl", *lines, json.dumps({"user": "v", "item": "plum"}))
    released = dpunion.release(SparkSource((str(without),)), **BUDGET)
    assert released.items == ("apple", "pear")
    with pytest.raises(DpunionError, match="Mixed types"):
        dpunion.release(SparkSource((str(with_one),)), **BUDGET)


@pytest.mark.usefixtures("spark")
def test_a_user_id_is_never_released(tmp_path):
    one = in_file(tmp_path / "a.csv", "user,item", *(f"person{n},popular" for n in range(PEOPLE)))
    other = in_file(tmp_path / "b.csv", "item,user", *(f"thing{n},alice" for n in range(PEOPLE)))
    for names in ((one, other), (other, one)):
        assert dpunion.release(SparkSource(tuple(map(str, names))), **BUDGET).items == ("popular",)


# --- queries, the ledger, the record ------------------------------------------------------------------------
@pytest.fixture
def posts(tmp_path):
    table = pa.table({"user": [f"u{n}" for n in range(PEOPLE)] * 2, "item": ["x"] * PEOPLE + ["y"] * PEOPLE})
    pq.write_table(table, tmp_path / "posts.parquet")
    return str(tmp_path / "posts.parquet")


@pytest.mark.usefixtures("spark")
@pytest.mark.filterwarnings("ignore::dpunion.reading.QueryMixesPeople")
@pytest.mark.parametrize(
    "query",
    [
        "insert overwrite directory '{out}' using parquet select * from source",
        "insert overwrite local directory '{out}' using ( 'csv' ) select * from source",
        "with t as (select * from source) insert overwrite directory '{out}' stored as parquet select * from t",
        "from source insert overwrite directory '{out}' stored as parquet select *",
        "create table written location '{out}' as select * from source",
        "select 1) t; create table written as select * from (select 1",
        "cache table source",
    ],
)
def test_a_query_cannot_write(tmp_path, posts, query):
    out = tmp_path / "written"
    with pytest.raises(DpunionError):
        dpunion.release(SparkSource((posts,)), query=query.format(out=out), **BUDGET)
    assert not out.exists()
    assert not Path("spark-warehouse", "written").exists()


@pytest.mark.usefixtures("spark")
def test_a_query_selects_and_reads_no_other_files(tmp_path, posts):
    query = "select user, item from source where item = 'x' -- only these;"
    assert dpunion.release(SparkSource((posts,)), query=query, **BUDGET).items == ("x",)
    in_file(tmp_path / "other.csv", *CSV)
    for other in (f"csv.`{tmp_path}/other.csv`", f"parquet.`{posts}`"):
        with pytest.raises(DpunionError):
            dpunion.release(SparkSource((posts,)), query=f"select * from {other}", **BUDGET)


def test_a_query_leaves_no_view_behind(spark, posts):
    source, query = SparkSource((posts,)), "select user, item from source where item = 'x'"
    frame, _ = open_frame(reading(source, query=query), session_of(source))
    assert not spark.catalog.tableExists("source")
    assert set(call_spark(frame.toArrow)["item"].to_pylist()) == {"x"}
    with pytest.raises(DpunionError):
        open_frame(reading(source, query="select nothing from source"), session_of(source))
    assert not spark.catalog.tableExists("source")


def test_two_queries_at_once_read_their_own_rows(spark, monkeypatch):
    """Each is a table of the same name for a moment."""
    real = sources.change_setting

    @contextlib.contextmanager
    def slowly(*given, **options):
        time.sleep(0.05)
        with real(*given, **options):
            yield

    monkeypatch.setattr(sources, "change_setting", slowly)
    frames = {name: spark.createDataFrame([(name,)], "name string") for name in "abcd"}

    def ask(name):
        found = sources.run_query(spark, frames[name], "select name from source")
        return call_spark(found.toArrow)["name"].to_pylist()

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(ask, frames)) == [["a"], ["b"], ["c"], ["d"]]
    assert not spark.catalog.tableExists("source")


def test_a_session_is_found_from_any_thread_and_stays_as_it_was(spark):
    before = (
        spark.conf.get("spark.sql.session.timeZone"),
        spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch"),
    )
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        with ThreadPoolExecutor(1) as other:
            assert other.submit(sessions.open_session).result().sparkContext is spark.sparkContext
            settings = {"spark.sql.execution.arrow.maxRecordsPerBatch": before[1]}
            other.submit(sessions.open_session, "local[2]", settings).result()
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        spark.conf.set("spark.sql.session.timeZone", before[0])
    with pytest.raises(dpunion.BadParameter, match=r"runs on local\[2\]"):
        sessions.open_session("yarn")
    with pytest.raises(DpunionError, match="Spark stopped with"):
        sessions.open_session(settings={"spark.sql.shuffle.partitions": CANARY})


@pytest.mark.usefixtures("spark")
def test_a_name_that_is_no_path_is_refused(tmp_path):
    with pytest.raises(DpunionError) as refused:
        on_spark(f"{CANARY}:b/x.parquet")
    assert CANARY not in str(refused.value)


@pytest.mark.usefixtures("spark")
def test_nothing_is_read_before_the_charge(tmp_path, monkeypatch, posts):
    place = tmp_path / "ledger.db"
    book = Ledger.open(place, create=True)
    book.create_dataset("people", 20.0, 0.5)
    options = BUDGET | {"charge": Charge(place, "people")}
    bad = in_file(tmp_path / "bad.jsonl", '{"user": "a", "item": "x"}', "{")
    with pytest.raises(DpunionError):
        dpunion.release(SparkSource((str(bad),)), **options)
    good = in_file(tmp_path / "good.csv", "user,item", *(f"u{n},x" for n in range(PEOPLE)))
    assert dpunion.release(SparkSource((str(good),)), **options).items == ("x",)
    # Another source, and another query of the same one, are other releases; the same again is not.
    for query in ("select user, item from source where item = 'x'", "select user, item from source where item = 'y'"):
        assert len(dpunion.release(SparkSource((posts,)), query=query, **options).items) == 1
    monkeypatch.setattr("dpunion.engines.spark.sources.open_session", lambda *_: pytest.fail("Spark was started"))
    with pytest.raises(AlreadyReleased):
        dpunion.release(SparkSource((str(good),)), **options)
    states = [entry.state.value for entry in book.overview().entries]
    book.close()
    assert states == ["unsettled", "settled", "settled", "settled"], "the damaged source is paid for"


@pytest.mark.usefixtures("spark")
def test_a_file_that_is_too_large_costs_the_charge(tmp_path, monkeypatch):
    """One person's rows can make it too large, so a refusal that costs nothing would show them."""
    monkeypatch.setattr(files, "LARGEST_FILE", 100)
    source = in_file(tmp_path / "large.csv", "user,item", *(f"u{n},x" for n in range(PEOPLE)))
    book = Ledger.open(tmp_path / "ledger.db", create=True)
    book.create_dataset("people", 20.0, 0.5)
    with pytest.raises(BadSource, match="the most that Spark reads in one task"):
        dpunion.release(SparkSource((str(source),)), charge=Charge(tmp_path / "ledger.db", "people"), **BUDGET)
    assert [entry.state.value for entry in book.overview().entries] == ["unsettled"]
    book.close()


@pytest.mark.usefixtures("spark")
def test_the_private_record_replays(tmp_path, posts):
    os.rename(posts, tmp_path / "posts")
    first, again = tmp_path / "first.csv", tmp_path / "again.csv"
    query = "select user, item from source where item = 'x'"
    options = ["--user", "user", "--item", "item", "-e", "2", "-d", "1e-3", "--algorithm", "weighted-gaussian"]
    spark = ["--engine", "spark", "--query", query, "--input-format", "parquet", "--shards", "3"]
    done = run_cli("release", tmp_path / "posts", *options, *spark, "--out", first)
    assert done.exit_code == 0, done.output
    record = str(first) + ".private.toml"
    record_text = Path(record).read_text(encoding="utf-8")
    for line in ('engine = "spark"', 'input-format = "parquet"', "shards = 3", f'query = "{query}"'):
        assert line in record_text
    done = run_cli("release", "--config", record, "--out", again, "--statement")
    assert done.exit_code == 0, done.output
    assert "Apache Spark" in done.stderr
    assert again.read_bytes() == first.read_bytes() == b"item\nx\n"


# --- what is printed ----------------------------------------------------------------------------------------
DRIVER = """
import json, sys
from dpunion.cli import app
codes = []
for command in json.loads(sys.argv[1]):
    try:
        app(command)
    except SystemExit as left:
        codes.append(left.code)
print(codes)
"""


@pytest.mark.usefixtures("spark")
def test_no_row_reaches_standard_error(tmp_path):
    """In a process of its own, with all that Spark's Java prints."""
    ragged = in_file(tmp_path / "c.csv", "user,item", "a,x", f"{CANARY}1,{CANARY}2,extra")
    mixed = in_file(tmp_path / "c.jsonl", '{"user": "a", "item": ["x"]}', f'{{"user": "{CANARY}", "item": "{CANARY}"}}')
    pq.write_table(pa.table({"user": [CANARY], "item": [CANARY]}), tmp_path / "c.parquet")
    plain = ["--user", "user", "--item", "item", "-e", "1", "-d", "1e-6", "--engine", "spark", "--master", "local[1]"]
    plain += ["--algorithm", "weighted-gaussian"]
    cast = "select cast(user as int) user, item from source"
    commands = [
        ["release", str(ragged), *plain],
        ["release", str(mixed), *plain],
        ["release", str(tmp_path / "c.parquet"), *plain, "--query", cast],
        ["release", str(tmp_path / "c.parquet"), *plain, "--query", f"select {CANARY} from source"],
    ]
    done = run_python(DRIVER, json.dumps(commands))
    assert done.stdout.strip() == "[3, 3, 3, 3]", done.stderr[-3000:]
    assert "does not have 2 fields" in done.stderr
    assert "CAST_INVALID_INPUT" in done.stderr
    assert CANARY not in done.stderr


# --- large JSON Lines files, in parts -----------------------------------------------------------------------
@contextlib.contextmanager
def cut_into(session, size):
    """Let Spark cut files into parts of so many bytes; every JSON Lines file counts as large."""
    names = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")
    with contextlib.ExitStack() as changes:
        for name, value in zip(names, (size, 1), strict=True):
            changes.enter_context(sessions.change_setting(session.conf, name, str(value)))
        yield


LONG_LINE = json.dumps({"user": "long", "item": "é" * 60}, ensure_ascii=False)
# Every row has an item of its own, so that a row that is lost or read twice shows.
UNIQUE = [json.dumps({"user": f"u{n % 5}", "item": f"w{n}" + "x" * (n % 7)}) for n in range(6)]
UNIQUE = [*UNIQUE[:3], LONG_LINE, *UNIQUE[3:]]
LAYOUTS = {
    "plain": "\n".join(UNIQUE) + "\n",
    "no last line end": "\n".join(UNIQUE),
    "carriage returns": "\r\n".join(UNIQUE) + "\r\n",
    "blank lines": "\n\n" + "\n \n\r\n\n".join(UNIQUE) + "\n\n",
    "carriage returns in a text": "\n".join(UNIQUE).replace("u1", "u\\r1"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_row_is_lost_or_read_twice_where_files_are_cut(spark, tmp_path, monkeypatch, layout):
    monkeypatch.setattr(files, "LARGEST_WHOLE", 0)
    path = tmp_path / "a.jsonl"
    path.write_bytes(LAYOUTS[layout].encode())
    lines = [line for line in path.read_bytes().split(b"\n") if line.strip()]
    for size in (5, 31, 32, 33, 64):
        with cut_into(spark, size):
            frame = files.cut_lines(spark, [str(path)])
            parts = frame.rdd.getNumPartitions()
            cut = call_spark(frame.toArrow)["line"].to_pylist()
        assert parts >= path.stat().st_size // size, "the file is really cut"
        assert sorted(line for line in cut if line.strip()) == sorted(lines), size
    here = rows_of(str(path))
    assert len(here) == len(set(here)) == len(UNIQUE)
    for size in (60,):
        with cut_into(spark, size):
            assert on_spark(path) == here, size


def lines_of(users, items):
    return [json.dumps({"user": user, "item": item}) for user, item in zip(users, items, strict=True)]


PLAIN = [f"u{n}" for n in range(20)]
LISTS, TEXTS, NUMBERS = [["x", f"y{n}"] for n in range(10)], [f"z{n}" for n in range(10)], list(range(10))
# Values in the order of the lines, and whether one machine refuses them.
MIXED = {
    "empty lists last": ([*LISTS, *[[]] * 10], False),
    "empty lists first": ([*[[]] * 10, *LISTS], False),
    "lists of nulls, nulls and numbers in lists": ([*[[None]] * 5, *[None] * 5, *[[n] for n in NUMBERS]], False),
    "nothing but empty lists": ([[]] * 20, False),
    "nothing but nulls": ([None] * 20, False),
    "nulls, then numbers": ([*[None] * 10, *NUMBERS], False),
    "lists and texts": ([*LISTS, *TEXTS], True),
    "texts and empty lists": ([*TEXTS, *[[]] * 10], True),
    "empty lists and texts": ([*[[]] * 10, *TEXTS], True),
    "lists of texts and of numbers": ([*LISTS, *[[n] for n in NUMBERS]], True),
    "texts and numbers": ([*TEXTS, *NUMBERS], True),
}


@pytest.mark.parametrize("case", [*MIXED, "users in empty lists", "users who are null"])
def test_lists_and_values_in_parts_are_read_as_in_one_piece(spark, tmp_path, monkeypatch, case):
    """On one machine in one block, on one machine in many blocks, and on Spark in many parts."""
    if case in MIXED:
        items, is_refused = MIXED[case]
        users = PLAIN
    else:
        users, items, is_refused = [*PLAIN[:10], *[[] if "lists" in case else None] * 10], PLAIN, True
    path = in_file(tmp_path / "a.jsonl", *lines_of(users, items))
    here = outcome(lambda: rows_of(str(path)))
    assert (here == "refused") == is_refused
    monkeypatch.setattr(jsonlines, "read_blocks", functools.partial(jsonlines.read_blocks, size=70))
    assert outcome(lambda: rows_of(str(path))) == here
    monkeypatch.setattr(files, "LARGEST_WHOLE", 0)
    for size in (150,):
        with cut_into(spark, size):
            assert outcome(lambda: on_spark(path)) == here, size


def test_two_large_files_may_differ_in_lists_as_on_one_machine(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LARGEST_WHOLE", 0)
    paths = [in_file(tmp_path / f"{n}.jsonl", *lines_of(PLAIN[:10], one)) for n, one in enumerate((LISTS, TEXTS))]
    with cut_into(spark, 100):
        assert on_spark(*paths) == rows_of(list(map(str, paths)))


@pytest.mark.usefixtures("spark")
def test_large_json_lines_are_cut_at_line_ends_and_read_as_on_one_machine(tmp_path, monkeypatch):
    """Every file counts as large: one in many parts, and one that stays whole because it is compressed."""
    monkeypatch.setattr(files, "LARGEST_WHOLE", 100)
    session = sessions.open_session()
    lines = [json.dumps({"user": f"u{n % 300}", "item": [f"w{n % 40}", f"é{n % 70}"]}) for n in range(6_000)]
    (tmp_path / "a{1}.jsonl").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write("\n\n".join(lines[:500]))
    options = {"user": "user", "item": "item", "epsilon": 3.0, "delta": 1e-4, "unsafe_test_key": 1}
    options["algorithm"] = "weighted-gaussian"
    smaller, cheaper = "spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes"
    change = sessions.change_setting
    longest = change(session.conf, "spark.sql.sources.binaryFile.maxLength", "20000")  # no large file is opened whole
    with change(session.conf, smaller, "50000"), change(session.conf, cheaper, "1000"), longest:
        assert files.cut_lines(session, [str(tmp_path / "a{1}.jsonl")]).rdd.getNumPartitions() > 4
        there = dpunion.release(SparkSource((str(tmp_path),), format="jsonl"), **options)
    here = dpunion.release(str(tmp_path / "*.jsonl*"), **options)
    assert len(here.items) > 50
    assert there.items == here.items


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("last", "error"),
    [
        ('{"user": 1, "item": "x"}', UnsupportedType),
        ("{broken", DamagedSource),
        ('"\\ud800', DamagedSource),
        (None, None),
    ],
)
def test_parts_of_json_lines_are_as_strict_as_files(tmp_path, monkeypatch, last, error):
    monkeypatch.setattr(files, "LARGEST_WHOLE", 100)
    path = tmp_path / "a.jsonl"
    rows = ['{"user": "somebody", "thing": "x"}' if last is None else '{"user": "somebody", "item": "x"}'] * 50
    path.write_text("\n".join(rows if last is None else [*rows, last]))
    with pytest.raises(UnknownColumn if last is None else error) as caught:
        on_spark(path, user="user", value="item")
    assert "somebody" not in str(caught.value)
