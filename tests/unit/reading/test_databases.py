"""SQLite, DuckDB and PostgreSQL as sources: what is read, what is refused, and what never shows."""

import contextlib
import os
import sqlite3
import traceback
import warnings

import duckdb
import pytest

from dpunion import errors
from dpunion.reading import SourceRequest, ValueKind
from dpunion.reading.cleaning import Cleaner
from dpunion.reading.databases import PasswordInUrl, name_database, parts_of
from dpunion.reading.drivers import Failure, connect_postgresql, explain_failure, original_names
from dpunion.reading.parts import NullUserPolicy
from opening import check_source, open_rows, read_pairs, write_sqlite
from running import run_python

# What is warned of is a matter of tests/unit/reading/test_queries.py; here such queries are run.
pytestmark = pytest.mark.filterwarnings("ignore::dpunion.reading.QueryMixesPeople")

CANARY = "CANARYvalue"
ALL = "select u, v from t"


def read(source, query=ALL, kind=ValueKind.ITEM, **more):
    check_source(source, kind=kind, query=query)
    return read_pairs(source, kind=kind, query=query, **more)


def refused(source, query=ALL, **more):
    """Return the error of a source, after checking that neither data nor password is in it."""
    with pytest.raises(errors.DpunionError) as caught:
        read(source, query, **more)
    error = caught.value
    texts = [f"{e} {e!r}" for e in (error, error.__cause__, error.__context__)] + traceback.format_exception(error)
    assert not [text for text in texts if CANARY in text or "s%40w" in text or "ss@w" in text]
    assert error.remedy
    return error


def sqlite_file(path, rows, columns="u, v"):
    return write_sqlite(path, f"t ({columns})", rows)


def duckdb_file(path, *statements):
    with duckdb.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    return path


@pytest.mark.parametrize("name", ["d.db", "d.sqlite", "d.sqlite3", "d", "d.data"])
def test_sqlite_files_are_told_by_their_first_bytes(tmp_path, name):
    path = sqlite_file(tmp_path / name, [("a", "x"), ("b", None), ("c", ""), ("d", "é\0z")])
    assert read(path) == [("a", "x"), ("d", "é\0z")]
    assert read(f"sqlite:///{path}") == [("a", "x"), ("d", "é\0z")]


def test_urls_of_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sqlite_file(tmp_path / "odd ?#%41.db", [("a", "x")])
    duckdb_file(tmp_path / "e.duckdb", "create table t as select 'a' as u, 'x' as v")
    assert read("sqlite:///odd ?#%41.db") == read("duckdb:///e.duckdb") == read("e.duckdb") == [("a", "x")]
    with pytest.raises(errors.DamagedSource, match="not a SQLite database"):
        read("sqlite:///e.duckdb")
    with pytest.raises(errors.SourceNotFound, match=r"no database file 'nope\.db'"):
        read("sqlite:///nope.db")
    for url, words in {
        "sqlite://e.db": "malformed.*sqlite:///path",
        "duckdb:///": "malformed.*duckdb:///path",
        f"mysql://a:{CANARY}@h/d": "'mysql'",
    }.items():
        with pytest.raises(errors.BadSource, match=words):
            read(url)
    (tmp_path / "f.db").write_bytes(b"")
    with pytest.raises(errors.DamagedSource, match="not a SQLite or DuckDB database"):
        read("f.db")


def test_nulls_before_everything_else_do_not_decide_a_type(tmp_path):
    """The SQLite driver takes types from its first batch, where a column of nulls becomes one of integers."""
    rows = [("a", None)] * 70_000 + [("b", "x")]
    assert read(sqlite_file(tmp_path / "d.db", rows)) == [("b", "x")]


def test_integers_of_sqlite(tmp_path):
    path = sqlite_file(tmp_path / "d.db", [(1, -(2**63)), (2**63 - 1, None), (7, 0)])
    assert read(path) == [("1", str(-(2**63))), ("7", "0")]
    with pytest.raises(errors.UnsupportedType, match="cannot be read as text"):
        read(path, kind=ValueKind.TEXT)


@pytest.mark.parametrize("far", [0, 40_000])
def test_values_of_several_types_in_one_column_of_sqlite(tmp_path, far):
    """1 and '1' are two values of SQLite, so they must not become one user."""
    for i, (one, other) in enumerate([("1", 1), (1, "1"), (1, 1.0), ("x", b"x")]):
        for columns in ([(one, "x")] * (1 + far) + [(other, "x")], [("a", one)] * (1 + far) + [("a", other)]):
            path = tmp_path / f"{i}.db"
            path.unlink(missing_ok=True)
            assert isinstance(refused(sqlite_file(path, columns)), errors.UnsupportedType)


def test_types_of_sqlite_without_one_text(tmp_path):
    assert "1 and 1.0 would merge" in str(refused(sqlite_file(tmp_path / "1.db", [(1.5, "x")])))
    assert "binary" in str(refused(sqlite_file(tmp_path / "2.db", [("a", CANARY.encode())])))
    bad = sqlite_file(tmp_path / "3.db", [("a", "x")])
    with contextlib.closing(sqlite3.connect(bad)) as connection, connection:
        connection.execute("insert into t values ('b', cast(x'ff41' as text))")
    assert isinstance(refused(bad), errors.DamagedSource)


def test_missing_users_in_databases(tmp_path):
    sqlite_file(tmp_path / "d.db", [("a", "x"), (None, "y"), ("", "z")])
    duckdb_file(tmp_path / "d.duckdb", "create table t as from (values ('a', 'x'), (null, 'y'), ('', 'z')) t(u, v)")
    for name in ("d.db", "d.duckdb"):
        with pytest.raises(errors.NullUsers):
            read(tmp_path / name)
        assert read(tmp_path / name, null_users=NullUserPolicy.DROP) == [("a", "x")]
    assert isinstance(refused(sqlite_file(tmp_path / "n.db", [(None, "x")])), errors.NullUsers)


QUERIES = {
    "semicolon": "select u, v from t ;\n",
    "comment": "select u, v from t -- all of it",
    "more columns": "select 1.5 as w, v, u from t",
    "order": "select u, v from t order by v limit 10",
    "with": "with s as (select u, v from t) select * from s",
    "quotes": 'select t.u as "u", t."v" from t where v <> \';\'',
    "same name elsewhere": "select w, u, v, w from (select u, v, 1 as w from t) as s",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("databases")
    return {
        "sqlite": sqlite_file(folder / "d.db", [("a", "x"), ("b", "y")]),
        "duckdb": duckdb_file(folder / "d.duckdb", "create table t as from (values ('a','x'), ('b','y')) t(u, v)"),
    }


@pytest.mark.parametrize("case", QUERIES)
@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
def test_every_form_of_a_query_gives_the_rows(files, engine, case):
    assert sorted(read(files[engine], QUERIES[case])) == [("a", "x"), ("b", "y")]


@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
def test_queries_that_are_refused(files, engine):
    before = files[engine].read_bytes()
    for query in ("selec", "select u from nope", "select nope from t", "select u, v from t; select 1", "select (u",
                  "delete from t returning u, v", "drop table t", "insert into t values ('c', 'z') returning u, v",
                  f"select '{CANARY}' from nope", "create table s (u)"):  # fmt: skip
        assert isinstance(refused(files[engine], query), errors.BadSource), query
    with pytest.raises(errors.UnknownColumn, match=r"no column 'v' in .*Check the spelling"):
        read(files[engine], "select u, v as w from t")
    with pytest.raises(errors.UnknownColumn, match="Did you mean 'vv'"):
        read(files[engine], "select u, v as vv from t")
    with pytest.raises(errors.UnknownColumn) as caught:
        check_source(files[engine], value="vv", query="select * from t /* vvv */")
    assert "'v'" not in str(caught.value)  # no word of the query
    with pytest.raises(errors.DamagedSource, match="2 columns named 'v'"):
        read(files[engine], "select u, v, u || 'x' as v from t")
    assert files[engine].read_bytes() == before
    assert not list(files[engine].parent.glob("*.tmp"))


def test_columns_of_a_query_by_position(files):
    for path in files.values():
        batches = open_rows(path, user=2, value=0, query="select v, v, u from t order by u")
        assert [b.values.to_pylist() for b in batches] == [["x", "y"]]


def test_a_query_and_a_database_go_together(files, tmp_path):
    (tmp_path / "d.csv").write_text("u,v\na,x\n")
    for query in (None, "", "  ; "):
        with pytest.raises(errors.BadParameter, match=r"A database needs a query.*--query"):
            read(files["sqlite"], query)
        with pytest.raises(errors.BadParameter, match="A database needs a query"):
            read("postgresql://127.0.0.1:1/nowhere", query)
    for source in ([("a", "x")], {"a": ["x"]}, "-"):
        with pytest.raises(errors.BadParameter, match="neither a database nor files"):
            check_source(source, query=ALL)
    with pytest.raises(errors.BadParameter, match="convert the files to Parquet"):
        check_source(tmp_path / "d.csv", query=ALL)
    with pytest.raises(errors.BadParameter, match="in a list"):
        read([files["sqlite"], tmp_path / "d.csv"])


def test_failures_of_sqlite_do_not_quote(tmp_path):
    path = sqlite_file(tmp_path / "d.db", [(CANARY, f"{CANARY}{i}") for i in range(40_000)])
    overflow = f"select u, abs(-9223372036854775807 - (v = '{CANARY}39999')) as v from t"
    assert isinstance(refused(path, overflow), errors.DamagedSource)
    assert isinstance(refused(path, "select u, json_extract(v, '$.a') as v from t"), errors.DamagedSource)
    path.write_bytes(path.read_bytes()[:9000])
    assert isinstance(refused(path), errors.DamagedSource)


def test_failures_of_duckdb_do_not_quote(tmp_path):
    rows = f"select 'u' as u, '{CANARY}' || i as v from range(9000) r(i)"
    path = duckdb_file(tmp_path / "d.duckdb", f"create table t as {rows}")
    error = refused(path, "select u, v::int as v from t")
    assert isinstance(error, errors.DamagedSource)
    assert "ConversionException" in str(error)
    path.write_bytes(path.read_bytes()[:5000])
    assert isinstance(refused(path), errors.BadSource)


def test_duckdb_reads_nothing_but_its_file(tmp_path):
    path = duckdb_file(tmp_path / "d.duckdb", "create table t as select 'a' as u, 'x' as v")
    (tmp_path / "e.csv").write_text(f"u,v\n{CANARY},x\n")
    names = ["self", "query", "source"]  # names of our own variables, which DuckDB would find in the stack
    for query in (f"from read_csv('{tmp_path}/e.csv')", f"from '{tmp_path}/e.csv'", "from read_text('/etc/hostname')",
                  "install httpfs", "select u, v from t; set lock_configuration = false", "attach 'x.db'",
                  *(f"from {name}" for name in names)):  # fmt: skip
        assert isinstance(refused(path, query), errors.BadSource)


@pytest.mark.parametrize(
    "query",
    [
        "pivot t on v using count(*)",
        "select * from (PIVOT t ON v)",
        "with p as (pivot t on v) from p",
        "pivot_wider t on v",
    ],
)
def test_values_do_not_become_names_of_columns(tmp_path, query):
    path = duckdb_file(tmp_path / "d.duckdb", f"create table t as select 'a' as u, '{CANARY}' as v")
    for value in (CANARY, "nosuch"):
        with pytest.raises(errors.BadParameter, match="pivots by values from the rows"):
            check_source(path, value=value, query=query)
    listed = "select u, x::text as v from (pivot t on v in ('x') using count(*) group by u)"
    assert read(path, listed) == [("a", "0")]


def test_types_of_duckdb(tmp_path):
    path = duckdb_file(
        tmp_path / "d.duckdb",
        "create type mood as enum ('sad', 'ok')",
        "create table t as select 'a' as u, 'ok'::mood as e, ['x', null, 'y'] as l, 7::utinyint as i, true as b,"
        " date '2024-02-29' as d, 1.50 as n, 1::hugeint as h, now() as z, 'infinity'::date as f",
    )
    expected = {"e": ["ok"], "l": ["x", "y"], "i": ["7"], "b": ["true"], "d": ["2024-02-29"]}
    for column, values in expected.items():
        assert [v for _, v in read(path, f"select u, {column} as v from t")] == values
    for column in "nhz":
        with pytest.raises(errors.UnsupportedType, match=r"Cast it to text|granularity"):
            check_source(path, query=f"select u, {column} as v from t")
    assert "years 1 to 9999" in str(refused(path, "select u, f as v from t"))
    assert read(path, "select i as u, n::text as v from t") == [("7", "1.50")]


def test_sqlite_names_of_equal_columns():
    assert original_names(["v", "u", "v:1", "V:2", "w:1", "12:30"]) == ["v", "u", "v", "V", "w:1", "12:30"]


MISSING = """
import sys
for name in ("adbc_driver_sqlite", "adbc_driver_postgresql", "duckdb"):
    sys.modules[name] = None
from dpunion.reading import SourceRequest, ValueKind, open_source
for source in sys.argv[1:]:
    try:
        open_source(SourceRequest(source, "u", ValueKind.ITEM, "v", "select u, v from t"))
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_missing_packages_are_named_by_their_extra(files):
    lines = run_python(MISSING, *files.values(), "postgresql://127.0.0.1:1/x", check=True).stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("BadParameter")
        assert line.endswith("pip install 'dpunion[databases]'.")


GROWTH = """
import resource, sys
from dpunion.reading import SourceRequest, ValueKind, open_source
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
before, rows = peak(), 0
for batch in open_source(SourceRequest(sys.argv[1], "u", ValueKind.ITEM, "v", sys.argv[2])):
    rows += len(batch.users)
print(rows, peak() - before)
"""


def growth(source, query):
    """Return how many rows were read, and by how many MiB the process grew."""
    rows, grown = map(int, run_python(GROWTH, source, query, check=True).stdout.split())
    return rows, grown


def test_results_of_files_are_streamed(tmp_path):
    """A result of 300 MB does not fit into what the process may grow by."""
    duckdb_file(tmp_path / "d.duckdb", "create table t as select 'x' as x from range(1000000)")
    rows, grown = growth(tmp_path / "d.duckdb", "select 'a' as u, repeat('x', 300) || x as v from t")
    assert rows == 1_000_000
    assert grown < 200
    sqlite_file(tmp_path / "d.db", [])
    numbers = "with recursive r(i) as (select 1 union all select i + 1 from r where i < 100000) select * from r"
    rows, grown = growth(tmp_path / "d.db", f"select 'a' as u, printf('%03000d', i) as v from ({numbers})")
    assert rows == 100_000
    assert grown < 250


# PostgreSQL
@pytest.fixture
def no_settings(monkeypatch):
    for name in list(os.environ):
        if name.startswith("PG"):
            monkeypatch.delenv(name)


@pytest.fixture
def postgres(postgres_url, no_settings, monkeypatch):
    """The URL without password, which is in PGPASSWORD; table t has two rows."""
    user, host = postgres_url.split("@")
    monkeypatch.setenv("PGPASSWORD", "pa:ss@w/rd")
    url = f"{user.rsplit(':', maxsplit=1)[0]}@{host}"
    execute(url, "drop table if exists t", "create table t (u text, v text)",
            "insert into t values ('a', 'x'), ('b', 'é')")  # fmt: skip
    return url


def execute(url, *statements):
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        connection.commit()


def test_postgres_reads_a_query(postgres):
    assert read(postgres) == [("a", "x"), ("b", "é")]
    assert read(postgres.replace("postgresql:", "postgres:")) == [("a", "x"), ("b", "é")]
    for case, query in QUERIES.items():
        if case != "order":
            assert sorted(read(postgres, query)) == [("a", "x"), ("b", "é")], case


def test_a_password_comes_from_the_environment_or_the_password_file(postgres, monkeypatch, tmp_path):
    port = postgres.rsplit(":", maxsplit=1)[1].split("/", maxsplit=1)[0]
    assert "refused the role or its password" in str(refused_with(postgres, monkeypatch, PGPASSWORD=CANARY))
    assert "28P01" in str(refused_with(postgres, monkeypatch, PGPASSWORD=None))
    (tmp_path / "pass").write_text(f"127.0.0.1:{port}:people:tester:pa\\:ss@w/rd\n")
    (tmp_path / "pass").chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pass"))
    assert len(read(postgres)) == 2
    (tmp_path / "service").write_text(f"[mine]\nhost=127.0.0.1\nport={port}\nuser=tester\ndbname=people\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "service"))
    assert len(read("postgresql:///?service=mine")) == 2
    monkeypatch.setenv("PGSERVICE", "mine")
    assert len(read("postgresql://")) == 2
    assert "no such service" in str(refused("postgresql:///?service=other"))


def refused_with(url, monkeypatch, **settings):
    for name, value in settings.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    return refused(url)


def test_a_password_in_the_url_works_and_warns_once(postgres_url, postgres, monkeypatch):
    monkeypatch.delenv("PGPASSWORD")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):
            assert len(read(postgres_url)) == 2
    assert [w.category for w in caught] == [PasswordInUrl]
    text = str(caught[0].message)
    assert "process listings" in text
    assert "PGPASSWORD" in text
    assert ".pgpass" in text
    assert "s%40w" not in text
    with pytest.warns(PasswordInUrl):
        [part] = parts_of(SourceRequest(postgres_url, "u", ValueKind.ITEM, "v", ALL))
    assert "s%40w" not in f"{part!r} {part} {vars(part)['_connect']!r}"
    with pytest.warns(PasswordInUrl):
        assert "28P01" in str(refused(postgres_url.replace("pa%3A", "wrong%3A")))
    with pytest.warns(PasswordInUrl):
        assert "42P01" in str(refused(postgres_url, "select u, v from nope"))


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://me@db.example.org:5432/people?sslmode=require", "'people' on 'db.example.org'"),
        ("postgresql://me:secret@db/people", "'people' on 'db'"), ("postgresql:///people", "'people'"),
        ("postgresql://db", "on 'db'"), ("postgresql://", ""), ("postgresql://me:sec/ret@db/people", ""),
        ("postgresql://me:s@cret@db/people", ""), ("postgresql://me:s#cret@db/people", ""),
        ("postgresql://me:s?cret@db/people", ""), ("postgresql://me:secret", ""),
        ("postgresql://me:@secret/x@db/people", ""), ("postgresql://h1:1,h2:2/people", ""),
    ],
)  # fmt: skip
def test_public_names_hold_no_password(url, name):
    assert name_database(url) == f"the PostgreSQL database {name}".rstrip()


@pytest.mark.parametrize(
    ("url", "is_password"),
    [("postgresql://a:b@h/d", True), ("postgresql://h/d?password=b", True), ("postgresql://h/?x=1&sslpassword=b", True),
     ("postgresql://a:b/c@h/d", True), ("postgresql://a@h:5432/d", False), ("postgresql://h/d?passfile=x", False)],
)  # fmt: skip
def test_what_counts_as_a_password_in_a_url(url, is_password):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parts_of(SourceRequest(url, "u", ValueKind.ITEM, "v", ALL))
    assert bool(caught) == is_password


def test_servers_that_cannot_be_reached(no_settings):
    error = refused("postgresql://tester@127.0.0.1:1/people")
    assert isinstance(error, errors.BadSource)
    assert "'people' on '127.0.0.1' cannot be reached" in str(error)
    assert "not well-formed" in str(refused("postgresql://tester@127.0.0.1:1/%zz"))


def test_a_missing_database_is_refused_by_its_code(postgres):
    assert "3D000" in str(refused(postgres.replace("/people", "/nobodys")))


POSTGRES_ITEMS = {"'x'::varchar(3)": ["x"], "'x'::name": ["x"], "7::int2": ["7"], "-7::int8": ["-7"], "true": ["true"],
                  "date '2024-02-29'": ["2024-02-29"], "null": [], "array['x', null, 'y']": ["x", "y"],
                  "array[1, 2]": ["1", "2"], "array[]::text[]": []}  # fmt: skip
POSTGRES_REFUSED = {"1.50": "numeric", "1.5::float8": "double precision",
                    "'a'::char(3)": "character", "3::money": "money", "3::oid": "oid", "'\\x00'::bytea": "bytea",
                    "'{}'::jsonb": "jsonb", "gen_random_uuid()": "uuid", "interval '1 day'": "interval",
                    "row(1, 2)": "record", "array[1.5]": r"numeric\[\]", "inet '1.2.3.4'": "inet",
                    "'[1,2)'::int4range": "int4range"}  # fmt: skip


def test_types_of_postgres(postgres):
    with connect_postgresql(postgres, "the server") as session:
        for value, items in POSTGRES_ITEMS.items():
            found = []
            for users, values in session.batches(f"select 'a' as u, {value} as v", 2, (0, 1)):
                cleaner = Cleaner(SourceRequest(None, "u", ValueKind.ITEM, "v"))
                found += [v for batch in cleaner.clean(users, values, "the server") for v in batch.values.to_pylist()]
            assert found == items, value
        for value, name in POSTGRES_REFUSED.items():
            with pytest.raises(
                errors.UnsupportedType, match=f"'v' of the server has type {name}: .*cast\\(v as text\\)"
            ):
                next(session.batches(f"select 'a' as u, {value} as v", 2, (0, 1)))
    assert isinstance(refused(postgres, "select 'a' as u, 1.50 as v"), errors.UnsupportedType)
    assert isinstance(refused(postgres, "select true as u, 'x' as v"), errors.UnsupportedType)
    assert isinstance(refused(postgres, "select 'a' as u, 7 as v", kind=ValueKind.TEXT), errors.UnsupportedType)
    assert "years 1 to 9999" in str(refused(postgres, "select 'a' as u, date 'infinity' as v"))
    assert read(postgres, "select 1 as u, cast(1.50 as text) as v") == [("1", "1.50")]


POSTGRES_QUERIES = {
    "selec": "42601", "select u from nope": "42P01", "select nope from t": "42703", "delete from t": "no column 'u'",
    "delete from t returning u, v": "42601", "select u, v from t; select 1": "42601",
    "with s as (delete from t returning u, v) select * from s": "0A000",
    "select u as v, v, v as u from t": "2 columns named",
}  # fmt: skip


def test_postgres_queries_that_are_refused(postgres):
    for query, words in POSTGRES_QUERIES.items():
        error = refused(postgres, query)
        assert isinstance(error, errors.BadSource)
        assert words in str(error)
    assert len(read(postgres)) == 2


def test_a_session_cannot_write(postgres):
    execute(postgres, "drop sequence if exists numbers", "create sequence numbers")
    error = refused(postgres, "select 'a' as u, nextval('numbers') as v")
    assert "was asked to write (25006)" in str(error)


def test_values_that_fail_late_are_not_quoted(postgres):
    late = f"case i when 600000 then ('{CANARY}' || i)::int else i end"
    error = refused(postgres, f"select 'a' as u, {late} as v from generate_series(1, 700000) as i")
    assert isinstance(error, errors.DamagedSource)
    assert "22P02" in str(error)


def test_results_of_postgres_are_streamed(postgres):
    rows, grown = growth(postgres, "select 'a' as u, repeat('x', 3000) || i as v from generate_series(1, 100000) as i")
    assert rows == 100_000
    assert grown < 200


def test_other_encodings_arrive_as_utf8(postgres, monkeypatch):
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    assert read(postgres) == [("a", "x"), ("b", "é")]


def test_codes_without_an_explanation_still_name_no_text():
    class Odd(Exception):
        sqlstate = f"{CANARY}"

    error = explain_failure(Failure.of(Odd(CANARY)), "the database")
    assert "(Odd)" in str(error)
    assert CANARY not in str(error)
    assert explain_failure(Failure("22012"), "the database").exit_code == 3
