"""A job of a platform engineer: the keys of each week from S3, and once from PostgreSQL, charged to one ledger."""

import itertools

import adbc_driver_postgresql.dbapi as postgres
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transcripts import Shell

USERS = 1_500
WEEKS = ("2026-W43", "2026-W44", "2026-W45", "2026-W46", "2026-W47")
QUERIES = ("weather", "news", "trains", "football", "recipes")
# Dies as by `kill -9`, out of memory or a power cut, when the first rows have been asked for.
KILLED = """
import os, signal
from dpunion.engines.local import engine
engine.encode = lambda *_arguments, **_options: os.kill(os.getpid(), signal.SIGKILL)
from dpunion.cli import main
main()
"""
ASKED = "--user uid --item country --item device --item query -e 1 -d 1e-7 --ledger budget.db --dataset logs --json"
FIRST_WEEKS = f"""
$ dpunion ledger open budget.db --dataset logs -e 6 -d 1e-6
...
$ dpunion release s3://logs/week=2026-W43 {ASKED} --out keys-2026-W43.parquet > first.json
...
$ dpunion release s3://logs/week=2026-W44 {ASKED} --known keys-2026-W43.parquet --include-known \\
    --out keys-2026-W44.parquet > second.json
...
$ dpunion release s3://logs/week=2026-W44 {ASKED} --known keys-2026-W43.parquet --include-known \\
    --out keys-2026-W44.parquet > again.json
This release was made before, as entry budget.db#4: ...
[6]
$ dpunion release s3://logs/week=2026-W99 {ASKED} --out keys-2026-W99.parquet > missing.json
...
[3]
"""
THIRD = (
    f"release s3://logs/week=2026-W45 {ASKED} --known keys-2026-W44.parquet --include-known --out keys-2026-W45.parquet"
)
CRASH = f"""
$ python -c "$KILLED" {THIRD} > killed.json
...
[137]
$ dpunion {THIRD} > retried.json
...
[5]
$ dpunion {THIRD} --charge-again > third.json
...
$ dpunion {THIRD} > thrice.json
...
[6]
"""
LAST_WEEKS = f"""
$ dpunion release s3://logs/week=2026-W46 {ASKED} --known keys-2026-W45.parquet --include-known \\
    --out keys-2026-W46.parquet > fourth.json
...
$ dpunion release "$DATABASE" --query "select uid, country, device, query from logs where week = '2026-W47'" {ASKED} \\
    --known keys-2026-W46.parquet --out keys-2026-W47.parquet > database.json
...
$ dpunion release s3://logs/week=2026-W43 -u uid -i query -e 1 -d 1e-7 --ledger budget.db --dataset logs --json \\
    --out queries.csv > spent.json
...
[5]
$ dpunion ledger show budget.db --json > ledger.json
$ dpunion ledger verify budget.db
All 14 rows are in order. Head: ...
"""


def keys_of(number):
    """Return the keys that week number adds."""
    return set(itertools.product(("Chile", "Ghana"), ("phone", "desk"), (QUERIES[number],)))


def rows_of(number):
    """Return a week's rows: all keys until then, each held by many, and one that is somebody's alone."""
    keys = sorted(set().union(*(keys_of(week) for week in range(number + 1))))
    held = [(f"u{user}", *keys[(user + step) % len(keys)]) for user in range(USERS) for step in range(2)]
    held.append((f"u{number}", "Chile", "phone", f"private query {number}"))
    return pa.table(dict(zip(("uid", "country", "device", "query"), map(list, zip(*held, strict=True)), strict=True)))


@pytest.fixture
def shell(tmp_path, s3, s3_address, postgres_url):
    s3.create_dir("logs")
    for number, week in enumerate(WEEKS[:4]):
        with s3.open_output_stream(f"logs/week={week}/part-0.parquet") as file:
            pq.write_table(rows_of(number), file)
    table = rows_of(4)
    table = table.append_column("week", pa.array([WEEKS[4]] * len(table)))
    with postgres.connect(postgres_url) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("logs", table, mode="create")
        connection.commit()
    return Shell(tmp_path, KILLED=KILLED, DATABASE=postgres_url)


def test_weekly_keys_with_a_crash_and_a_retry(shell):
    shell.follow(FIRST_WEEKS)
    first, second, again, missing = map(shell.json, ("first.json", "second.json", "again.json", "missing.json"))
    assert summary(first) == ("budget.db#2", 5, 4)
    assert summary(second) == ("budget.db#4", 4, 8)
    assert keys_in(shell, WEEKS[0]) == keys_of(0)
    assert keys_in(shell, WEEKS[1]) == keys_of(0) | keys_of(1)
    assert (again["already_released"], again["entry"]) == (True, "budget.db#4")
    assert again["source_changed"] is None, "of a store nothing is noted"
    assert again["files"][0]["intact"] is True
    assert (missing["code"], missing["ledger"]["charged"]) == (3, False)
    assert missing["charge"] == "Nothing was charged: entry budget.db#6 is cancelled."

    shell.follow(CRASH)
    assert shell.text("killed.json") == ""
    retried, third = shell.json("retried.json"), shell.json("third.json")
    assert (retried["code"], retried["error"]) == (5, "UnfinishedRelease")
    assert "budget.db#8" in retried["message"]
    assert "--charge-again" in retried["remedy"]
    assert summary(third) == ("budget.db#9", 2, 12)
    assert shell.json("thrice.json")["entry"] == "budget.db#9"

    shell.follow(LAST_WEEKS)
    assert summary(shell.json("fourth.json")) == ("budget.db#11", 1, 16)
    assert summary(shell.json("database.json")) == ("budget.db#13", 0, 4)
    assert keys_in(shell, WEEKS[3]) == set().union(*map(keys_of, range(4)))
    assert keys_in(shell, WEEKS[4]) == keys_of(4), "only what is new, without what one person asked"
    spent = shell.json("spent.json")
    assert (spent["code"], spent["error"], spent["ledger"]) == (5, "BudgetExhausted", None)
    assert not (shell.folder / "queries.csv").exists()
    check_ledger(shell)


def check_ledger(shell):
    """Each grant is counted once: four weeks, the run that died, and the database."""
    found = shell.json("ledger.json")
    states = [(entry["entry"], entry["state"]) for entry in found["entries"]]
    settled = [(number, "settled") for number in (2, 4, 9, 11, 13)]
    assert states == sorted([*settled, (6, "cancelled"), (8, "unsettled")])
    (logs,) = found["datasets"]
    assert (logs["spent_share"], logs["more_like_the_last"]) == (1.0, 0)
    password = shell.environment["DATABASE"].split("@")[0].split(":")[-1]
    for path in shell.folder.iterdir():
        assert password.encode() not in path.read_bytes(), path


def summary(said):
    """Return the entry of a release, how many more like it are left, and how many keys it has."""
    assert said["ledger"]["receipt"] in said["statement"]
    return said["ledger"]["entry"], said["ledger"]["more"], said["released"]


def keys_in(shell, week):
    """Return the keys of a week's file."""
    table = pq.read_table(shell.folder / f"keys-{week}.parquet")
    assert table.column_names == ["country", "device", "query"]
    return set(zip(*(column.to_pylist() for column in table.columns), strict=True))
