"""Addresses: no password, key or setting of one is shown or stored anywhere, and such a source costs nothing."""

import json
import warnings
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpunion.addresses import NOT_SHOWN, Address, check_address, public_address
from dpunion.errors import BadSource
from dpunion.ledger import Ledger
from dpunion.ledger.ledgers import store_at
from dpunion.requests import Request, Run, SparkSource
from opening import check_source
from running import run_cli

CANARY = "hunter2"
SECRETS = [
    f"s3://AK:{CANARY}@b/x", f"s3://AK:{CANARY}/more@b/x", f"s3://{CANARY}@b/x", f"s3://b/x?secret_key={CANARY}",
    f"s3://b/x.parquet;tok={CANARY}", f"s3://b/x.parquet#key={CANARY}", f"S3://AK:{CANARY}@b/x",
    f" s3://AK:{CANARY}@b/x", f"s3:/AK:{CANARY}@b/x", f"s3:AK:{CANARY}", f"gs://AK:{CANARY}@b/x",
    f"abfs://c:{CANARY}@account.dfs.core.windows.net/x", f"abfs://c@account.dfs.core.windows.net/x?sig={CANARY}",
    f"mysql://u:{CANARY}@h/db", f"mongodb+srv://u:{CANARY}@h/db", f"PostgreSQL://u:{CANARY}@h/db",
    f" postgresql://u:{CANARY}@h/db", f"postgresql:/u:{CANARY}@h/db", f"postgresql:u:{CANARY}",
    f"postgresql+psycopg://u:{CANARY}@h/db", f"host=h password={CANARY}", f"host=h password = {CANARY}",
    f"password={CANARY}", f"host:6379,password={CANARY},ssl=True", f"p%61ssword={CANARY}",
    f"Server=h;Database=d;User Id=u;Pwd={CANARY}", f"AccountName=a;AccountKey={CANARY}",
    f"jdbc:postgresql://h/db?user=u&password={CANARY}", f"jdbc:oracle:thin:scott/{CANARY}@h:1521:db",
    f"sqlite:///x.db?key={CANARY}", f"sqlite://u:{CANARY}@h/x.db", f"duckdb:///x.duckdb?motherduck_token={CANARY}",
    f"ftp://u:{CANARY}@h/x.csv", f"sftp://u:{CANARY}@h/x.csv", f"hdfs://u:{CANARY}@h/x",
    f"iceberg://c/t?token={CANARY}", f"iceberg://u:{CANARY}@c/t", f"u:{CANARY}@h/x.csv",
    f"//u:{CANARY}@h/share/x.csv", f"x.csv?token={CANARY}", f"https:///u:{CANARY}@h/x.csv",
    f"https://h/x.csv;tok={CANARY}", f"https://h/{CANARY}/x.csv", f"https://u:{CANARY}@h/x.csv",
    f"HTTP://u:{CANARY}@h/x.csv", f"https://u:{CANARY}@[::1/x.csv", f"s3://AK:{CANARY}@b/x.metadata.json",
    f"http://user:{CANARY}@h/x.metadata.json", f"user:{CANARY}@h/x.metadata.json",
]  # fmt: skip
SHOWN = {
    "posts.csv": "posts.csv",
    "logs/week=2026-W46/*.csv": "logs/week=2026-W46/*.csv",
    "logs/part-?.csv": "logs/part-?.csv",
    "logs/k=a b/[0-9]?.parquet": "logs/k=a b/[0-9]?.parquet",
    "posts-2026-01-01T10:30:00.csv": "posts-2026-01-01T10:30:00.csv",
    "me@home;draft & copy.csv": "me@home;draft & copy.csv",
    "C:\\data\\posts.csv": "C:\\data\\posts.csv",
    "./note:1.csv": "./note:1.csv",
    "is_secret=true/x.parquet": "is_secret=true/x.parquet",
    "": "",
    "-": "-",
    "s3://bucket/k=1/rows.parquet": "s3://bucket/k=1/rows.parquet",
    "s3://bucket": "s3://bucket",
    "hdfs://name:8020/{day=1,day=2}/k=3": "hdfs://name:8020/{day=1,day=2}/k=3",
    "s3://bucket/a@b?.parquet": "s3://bucket/a@b?.parquet",
    "abfs://box@account.dfs.core.windows.net/a": "abfs://box@account.dfs.core.windows.net/a",
    "iceberg://catalog/space.table": "iceberg://catalog/space.table",
    "sqlite:////srv/x.db": "sqlite:////srv/x.db",
    f"postgresql://u:{CANARY}@h:5433/db": "postgresql://h:5433/db",
    f"PostgreSQL://u:{CANARY}@h/db?password={CANARY}": "postgresql://h/db",
    f"postgresql://u:p@{CANARY}@h/db": "postgresql://…",
    f"https://h/{CANARY}/x.csv;a=b": "https://…",
    f"u:{CANARY}@h/db": NOT_SHOWN,
}


@pytest.mark.parametrize("address", SECRETS)
def test_secrets_are_not_shown_and_sources_with_them_are_refused(address):
    with pytest.raises(BadSource) as caught:
        check_address(address)
    assert CANARY not in str(caught.value)
    assert CANARY not in public_address(address)
    with pytest.raises(BadSource) as caught:
        check_source(address, query="select u, v from t")
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(("address", "shown"), SHOWN.items())
def test_what_is_shown_of_an_address(address, shown):
    assert public_address(address) == shown


@pytest.mark.parametrize("address", [*SECRETS, f"postgresql://u:{CANARY}@h:1,g:2/db"])
def test_no_ledger_is_made_at_an_address_with_a_secret(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        name = store_at(address).name
    except Exception as error:  # noqa: BLE001 - whatever is said
        name = str(error)
    assert CANARY not in name
    assert not list(tmp_path.iterdir())


def test_known_addresses_are_not_refused():
    for address in SHOWN:
        if Address.of(address).is_known and not address.startswith(("PostgreSQL", "hdfs")):
            check_address(address)
    for address in ("hdfs:///logs", "hdfs://name:8020/k=1", "dbfs:/mnt/x", "s3a://bucket/x", "file:/srv/x", "db.table"):
        check_address(address, on_spark=True)
        assert public_address(address) == address


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    Ledger.open("l.db", create=True).create_dataset("d", 9.0, 1e-3)
    return tmp_path


def release(source, *options):
    budget = ("-u", "u", "-i", "v", "-e", "1", "-d", "1e-6", "--ledger", "l.db", "--dataset", "d", "--out", "o.csv")
    return run_cli("release", source, *budget, *options)


@pytest.mark.parametrize("engine", ["local", "spark"])
@pytest.mark.parametrize("address", SECRETS)
def test_an_address_with_a_secret_is_refused_before_anything_is_reserved(address, engine, ledger):
    before = Ledger.open("l.db").overview()
    for options in ((), ("--json",), ("--query", "select u, v from t")):
        answered = release(address, *options, "--engine", engine)
        assert answered.exit_code == 3, answered.output
        assert CANARY not in answered.output + answered.stderr
    assert Ledger.open("l.db").overview() == before
    run_cli("ledger", "report", "l.db", "--out", "page.html", code=0)
    shown = run_cli("ledger", "show", "l.db", "--json")
    assert CANARY not in shown.output
    for path in ledger.rglob("*"):
        if path.is_file():
            assert CANARY.encode() not in path.read_bytes(), path


def test_https_is_refused_with_the_remedy(ledger):
    answered = release("https://host/posts.csv", "--json")
    assert answered.exit_code == 3
    values = json.loads(answered.stdout)
    assert "not read" in values["message"]
    assert "curl" in values["remedy"]
    assert not values["ledger"]


def test_the_password_of_a_database_that_is_read_is_stored_nowhere(postgres_url, ledger):
    password = urlsplit(postgres_url).password
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answered = release(postgres_url, "--query", "select i::text as u, 'x' as v from generate_series(1, 500) i")
    assert answered.exit_code == 0, answered.output
    assert "postgresql://127.0.0.1" in run_cli("ledger", "show", "l.db", "--json").output
    assert run_cli("ledger", "report", "l.db", "--out", "page.html").exit_code == 0
    assert Path("o.csv.private.toml").exists()
    for path in ledger.rglob("*"):
        if path.is_file():
            assert password.encode() not in path.read_bytes(), path


def test_engines_name_sources_alike():
    from dpunion.engines import engine_for

    def named(source):
        request = Request.of(source, user="u", item="v")
        return engine_for(request, Run(), None).name_sources(request)

    for address, shown in SHOWN.items():
        assert named(address) == [shown]
        if address:
            assert named(SparkSource(address)) == [shown]


def test_a_source_in_the_record_is_the_public_address(ledger):
    rows = pa.table({"u": [str(i) for i in range(500)], "v": ["x"] * 500})
    folder = Path("week=46")
    folder.mkdir()
    pq.write_table(rows, folder / "a.parquet")
    answered = release("week=46")
    assert answered.exit_code == 0, answered.output
    assert 'source = ["week=46"]' in Path("o.csv.private.toml").read_text()


@pytest.mark.parametrize("name", ["s3://AK:hunter2@b/x.csv", "a:hunter2@b/x.csv", "postgresql://u:hunter2@h/x.csv"])
def test_an_output_with_a_secret_is_refused_and_not_repeated(name, tmp_path, monkeypatch):
    """Before the ledger is asked for anything, and on pages too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.csv").write_text("u,i\na,x\n")
    commands = [
        ["release", "d.csv", "-u", "u", "-i", "i", "-e", "1", "-d", "1e-6", "--out", name],
        ["report", name],
        ["report", "d.csv", "--out", name],
        ["plan", "-e", "1", "-d", "1e-6", "--html", name],
    ]
    for command in commands:
        done = run_cli(*command)
        assert done.exit_code in {2, 3, 4}
        assert "hunter2" not in done.output


@pytest.mark.parametrize(
    ("name", "is_shown"),
    [
        ("secretary=anna/x.parquet", True), ("token=the/x.parquet", True),
        ("aws_secret_access_key=hunter2/x.parquet", False), ("client_secret=hunter2/x", False),
        ("AccountKey=hunter2/x", False), ("access_token=hunter2/x", False),
        ("scott/hunter2@host:1521/svc.csv", False), ("x_y://hunter2/a", False),
    ],
)  # fmt: skip
def test_folders_are_told_from_secrets(name, is_shown):
    assert Address.of(name).is_known is is_shown
    assert ("hunter2" in public_address(name)) is False
