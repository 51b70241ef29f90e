"""Releases are charged and add up; a charge is given back only for what nobody's rows decide."""

import dataclasses
import fcntl
import gzip
import os
import sqlite3
import subprocess
import sys
import urllib.parse

import click
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpunion
from dpunion import errors
from dpunion.cli.answers import _explain
from dpunion.files import claim_names
from dpunion.kernels.compiler import cache_directory
from dpunion.ledger import EntryState, Ledger
from dpunion.requests import Charge, Dated
from opening import check_source, read_pairs

MANY = 400_000  # rows: more than two blocks of a text file
BUDGET = {"epsilon": 1.0, "delta": 1e-4}


@pytest.fixture
def options(tmp_path):
    book = Ledger.open(tmp_path / "budget.db", create=True)
    book.create_dataset("posts", 100, 1e-2)
    return {"user": "u", "item": "v", "charge": Charge(tmp_path / "budget.db", "posts"), **BUDGET}


def spent(options):
    return Ledger.open(options["charge"].ledger).overview().accounts[0].spent.epsilon / 10**9


def fate(source, options, **changes):
    """Return what became of the charge of a release that fails, and that the error says so."""
    with pytest.raises(errors.DpunionError) as caught:
        dpunion.release(source, **(options | changes))
    entry = Ledger.open(options["charge"].ledger).overview().entries[-1]
    stays = entry.state is not EntryState.CANCELLED
    note = errors.ledger_note(caught.value)
    assert note.facts["charged"] is stays
    assert (f"stays: entry budget.db#{entry.number}" if stays else "Nothing was charged") in note
    return entry.state


CSV_FAULTS = {
    "bad UTF-8": b"x,\xff\n",
    "NUL": b"x,\0\n",
    "ragged": b"x,y,z\n",
    "stray quote": b'x,y"z\n',
    "no user": b",y\n",
}
JSON_FAULTS = {
    "bad UTF-8": b'{"u": "x", "v": "\xff"}\n',
    "NUL": b'{"u": "x", "v": "\0"}\n',
    "no object": b"17\n",
    "a float": b'{"u": "x", "v": 1.5}\n',
    "no user": b'{"v": "y"}\n',
}


def packed(data, packing):
    return gzip.compress(data, 1) if packing else data


@pytest.mark.parametrize("packing", ["", ".gz"])
@pytest.mark.parametrize("kind", [".csv", ".jsonl"])
def test_a_fault_in_the_first_row_costs_what_it_costs_in_the_last(tmp_path, options, kind, packing):
    path = tmp_path / f"d{kind}{packing}"
    head, row, faults = (
        (b"u,v\n", b"somebody,something-or-other-that-is-long\n", CSV_FAULTS)
        if kind == ".csv"
        else (b"", b'{"u": "somebody", "v": "something-or-other"}\n', JSON_FAULTS)
    )
    for number, (name, fault) in enumerate(faults.items()):
        for place, rows in (("first", fault + row), ("last", row * (MANY if number == 0 else 3) + fault)):
            path.write_bytes(packed(head + rows, packing))
            state = fate(path, options, charge=dataclasses.replace(options["charge"], again=True))
            assert state is EntryState.UNSETTLED, (name, place)


@pytest.mark.parametrize("row", [b"x,y\n", b"x,\xff\n", b"x,\0\n", b'x,"y\n', b"x,y,z\n", b""])
@pytest.mark.parametrize("packing", ["", ".gz"])
def test_a_wrong_column_of_a_csv_costs_nothing_whatever_its_rows_are(tmp_path, options, packing, row):
    path = tmp_path / f"d.csv{packing}"
    path.write_bytes(packed(b"u,v\n" + row, packing))
    assert fate(path, options, item="w") is EntryState.CANCELLED


@pytest.mark.parametrize("rows", [b"", b"x,y\n"])
@pytest.mark.parametrize("header", [b'u,"v\n', b'u,v"\n', b"u,\xff\n"])
def test_a_line_that_is_no_header_is_left_to_the_reading(tmp_path, options, header, rows):
    path = tmp_path / "d.csv"
    path.write_bytes(header + rows)
    assert fate(path, options) is EntryState.UNSETTLED


def test_a_wrong_column_of_json_lines_is_told_by_rows_only(tmp_path, options):
    path = tmp_path / "d.jsonl"
    path.write_text('{"u": "x", "v": "y"}\n')
    assert fate(path, options, item="w") is EntryState.UNSETTLED


def test_a_missing_file_and_an_empty_one_cost_nothing(tmp_path, options):
    assert fate(tmp_path / "d.csv", options) is EntryState.CANCELLED
    (tmp_path / "d.csv").write_bytes(b"\n\n")
    assert fate(tmp_path / "d.csv", options) is EntryState.CANCELLED


MISTAKES = (
    "selct u, v from {t}",
    "select u, v, from {t} where",
    "select u, v from nope",
    "select u, v from {t} where nope = 1",
    "select nope(u) as u, v from {t}",
    "select u, lower(v) from {t}",  # an alias is missing
    "select u, upper(v) as w from {t} where v > ''",
    "with w as (select u from {t}) select u, v from w",
    "select u, v from {t}; select 1",
)
FAILS_ON_ROWS = {
    "sqlite": "select u, v from (select u, abs(n) as v from t group by 1, 2 order by 2)",
    "duckdb": "select u, (1000 * n)::text as v from t order by 2",
    "parquet": "select u, (1000 * n)::text as v from source order by 2",
    "postgres": "select u, (1000 * n)::text as v from t order by 2",
}
COLUMNS = ("create table t (u text, v text, n bigint)", "insert into t values ('x', 'hiv', -9223372036854775808)")


@pytest.fixture(params=["sqlite", "duckdb", "parquet", pytest.param("postgres", marks=pytest.mark.full)])
def queried(request, tmp_path, monkeypatch):
    """A database, or a Parquet file, with one row that makes a query fail which is run; and what it is."""
    kind = request.param
    path = tmp_path / f"d.{kind}"
    if kind == "postgres":
        import psycopg

        url = urllib.parse.urlsplit(request.getfixturevalue("postgres_url"))
        monkeypatch.setenv("PGPASSWORD", urllib.parse.unquote(url.password))
        place = url._replace(netloc=url.netloc.replace(f":{url.password}@", "@")).geturl()
        with psycopg.connect(place) as connection:
            for statement in ("drop table if exists t", *COLUMNS):
                connection.execute(statement)
        return place, kind
    if kind == "parquet":
        pq.write_table(pa.table({"u": ["x"], "v": ["hiv"], "n": [-(2**63)]}), path)
        return path, kind
    connection = sqlite3.connect(path) if kind == "sqlite" else duckdb.connect(str(path))
    for statement in COLUMNS:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path, kind


@pytest.mark.filterwarnings("ignore::dpunion.reading.QueryMixesPeople")
def test_a_mistake_in_a_query_costs_nothing(queried, options):
    source, kind = queried
    table = "source" if kind == "parquet" else "t"
    for mistake in MISTAKES:
        assert fate(source, options, query=mistake.format(t=table)) is EntryState.CANCELLED, mistake
    for right in ("select * from {t}", "select upper(u) as u, v from {t} where v > ''"):
        assert fate(source, options, query=right.format(t=table), item="w") is EntryState.CANCELLED


@pytest.mark.filterwarnings("ignore::dpunion.reading.QueryMixesPeople")
def test_a_query_is_not_run_before_the_charge(queried, options):
    source, kind = queried
    check_source(source, query=FAILS_ON_ROWS[kind])
    with pytest.raises(errors.BadSource):
        read_pairs(source, query=FAILS_ON_ROWS[kind])
    assert fate(source, options, query=FAILS_ON_ROWS[kind]) is EntryState.UNSETTLED


@pytest.mark.parametrize("queried", [pytest.param("postgres", marks=pytest.mark.full)], indirect=True)
def test_a_view_is_not_planned_before_the_charge(queried, options):
    """Planning a view calls its functions that are said to be immutable, and these can read rows."""
    import psycopg

    source, _ = queried
    with psycopg.connect(source) as connection:
        connection.execute(
            "create or replace function f(n bigint) returns text immutable language sql as 'select v from t'"
        )
        connection.execute("create or replace view w as select u, (1 / (f(1) <> 'hiv')::int)::text as v from t")
    assert fate(source, options, query="select u, v from w") is EntryState.UNSETTLED


@pytest.mark.filterwarnings("ignore::dpunion.reading.QueryMixesPeople")
@pytest.mark.parametrize("queried", ["duckdb", "parquet"], indirect=True)
def test_a_pivot_by_values_is_found_before_the_charge(queried, options):
    source, kind = queried
    table = "source" if kind == "parquet" else "t"
    for query in (f"pivot {table} on v", f"select u, v from query('pivot {table} on v')"):
        assert fate(source, options, query=query) is EntryState.CANCELLED


def test_a_bad_option_that_was_charged_does_not_look_free():
    def exit_code(charged):
        error = errors.BadParameter("This is wrong.", "Correct it.")
        error.add_note(errors.LedgerNote("A charge.", {"charged": charged}))
        with pytest.raises(click.exceptions.Exit) as left:
            _explain(error)
        return left.value.exit_code

    assert (exit_code(charged=True), exit_code(charged=False)) == (3, 2)


def test_a_granularity_for_texts_and_a_column_named_twice_cost_nothing(tmp_path, options):
    path = tmp_path / "d.jsonl"
    path.write_text('{"u": "x", "v": "y"}\n')
    assert fate(path, options, item=Dated("v", "day")) is EntryState.CANCELLED
    assert fate(path, options, item="u") is EntryState.CANCELLED


def test_pairs_are_rows_from_the_first_on(options):
    changes = {"user": None, "item": None}
    assert fate([("x", 1.5)], options, **changes) is EntryState.UNSETTLED


# --- two runs with the same output --------------------------------------------------------------------------
linux = pytest.mark.skipif(not hasattr(fcntl, "F_OFD_SETLK"), reason="this system has no locks of open files")
ROWS = [(f"u{number}", f"v{number % 3}") for number in range(300)]
HOLDER = """
import sys
from pathlib import Path
from dpunion.engines.publishing import Outputs
with Outputs((Path(sys.argv[1]),), None, False).claimed():
    print("claimed", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """A process that has claimed out.csv and is about to write it."""
    command = [sys.executable, "-c", HOLDER, tmp_path / "out.csv"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "claimed\n"
        yield process
        process.kill()


@linux
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_run_whose_output_another_run_is_about_to_write_is_not_charged(tmp_path, options, holder, overwrite):
    charge = Charge(options["charge"].ledger, "posts", again=True)
    changes = {"user": None, "item": None, "charge": charge, "run": dpunion.Run(overwrite=overwrite)}
    assert fate(ROWS, options, out=tmp_path / "out.csv", **changes) is EntryState.CANCELLED
    with pytest.raises(errors.CannotWrite, match="Another run is about to write"):
        dpunion.release(ROWS, **(options | changes | {"out": [tmp_path / "b.csv", tmp_path / "out.csv"]}))
    (tmp_path / "link").symlink_to(tmp_path)
    assert fate(ROWS, options, out=tmp_path / "link" / "out.csv", **changes) is EntryState.CANCELLED
    dpunion.release(ROWS, **(options | changes | {"out": tmp_path / "b.csv"}))
    assert sorted(os.listdir(tmp_path)) == ["b.csv", "budget.db", "link"]


@linux
def test_a_claim_ends_with_its_process_and_leaves_nothing(tmp_path, options, holder):
    holder.kill()
    holder.wait()
    assert sorted(os.listdir(tmp_path)) == ["budget.db"]
    changes = {"user": None, "item": None, "out": tmp_path / "out.csv"}
    dpunion.release(ROWS, **(options | changes))
    assert (tmp_path / "out.csv").exists()
    assert (cache_directory().parent / "outputs.lock").stat().st_size == 0
    # Neither an output that is named twice nor one in no folder is called claimed.
    with pytest.raises(errors.BadParameter, match="Two outputs name the same file"):
        dpunion.release(ROWS, **(options | changes | {"out": [tmp_path / "c.csv"] * 2, "charge": None}))
    with pytest.raises(errors.CannotWrite, match="does not exist"):
        dpunion.release(ROWS, **(options | changes | {"out": tmp_path / "none" / "c.csv", "charge": None}))


@linux
@pytest.mark.parametrize("place", ["none/outputs.lock", "folder"])
def test_without_a_place_for_locks_nothing_is_refused(tmp_path, place):
    (tmp_path / "folder").mkdir()
    with claim_names([tmp_path / "a"], tmp_path / place), claim_names([tmp_path / "a"], tmp_path / place):
        assert os.listdir(tmp_path) == ["folder"]


# --- releases add up: empty ones too, the same one once, those of test keys never -------------------------------
@pytest.mark.parametrize("rows", [[], [("only", "one")], [("a", "")]], ids=["nobody", "one person", "nothing held"])
def test_an_empty_release_is_charged_and_written(tmp_path, options, rows):
    made = dpunion.release(rows, out=tmp_path / "a.txt", charge=options["charge"], epsilon=1.0, delta=1e-12)
    assert made.items == ()
    assert (tmp_path / "a.txt").read_bytes() == b""
    assert spent(options) == 1.0


def test_a_release_with_a_test_key_is_refused_and_costs_nothing(options):
    with pytest.raises(dpunion.NotPrivate):
        dpunion.release([("a", "x")], unsafe_test_key=1, charge=options["charge"], **BUDGET)
    assert spent(options) == 0.0


def test_the_same_release_names_the_first_or_is_charged_again(tmp_path, options):
    (tmp_path / "a.csv").write_text("u,v\nx,y\n")
    dpunion.release(tmp_path / "a.csv", out=tmp_path / "b.txt", **options)
    with pytest.raises(errors.AlreadyReleased) as caught:
        dpunion.release(tmp_path / "a.csv", **options)
    assert caught.value.outputs[0][0] == str(tmp_path / "b.txt")
    assert spent(options) == 1.0
    again = dataclasses.replace(options["charge"], again=True)
    dpunion.release(tmp_path / "a.csv", **(options | {"charge": again}))
    assert spent(options) == 2.0


def test_releases_of_other_files_add_up_until_nothing_is_left(tmp_path, options):
    """Another month is another file and another release of the same people."""
    Ledger.open(options["charge"].ledger).create_dataset("months", 5, 1e-2)
    options |= {"charge": Charge(options["charge"].ledger, "months")}
    for month in range(6):
        (tmp_path / f"{month}.csv").write_text("u,v\nx,y\n")
    for month in range(5):
        dpunion.release(tmp_path / f"{month}.csv", **options)
        assert Ledger.open(options["charge"].ledger).overview().accounts[1].spent.epsilon == (month + 1) * 10**9
    with pytest.raises(errors.BudgetExhausted):
        dpunion.release(tmp_path / "5.csv", **options)
