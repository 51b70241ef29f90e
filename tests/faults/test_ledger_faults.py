"""The ledger under many writers, sudden deaths, full disks and tampering: never more granted than there is."""

import contextlib
import json
import os
import sqlite3
import sys
from pathlib import Path

import pytest

from dpunion.budget import Budget
from dpunion.errors import DamagedLedger, LedgerError, ledger_note
from dpunion.ledger import Amounts, EntryState, Ledger
from dpunion.ledger.accounts import charge_for_plan
from dpunion.plans import plan_release
from running import run_program, run_python

STORM = Path(__file__).with_name("ledger_storm.py")
UNIT = Amounts(epsilon=10**9, delta=10**9)
NOBODY = 65534


def run_storm(command, where, dataset, charge, first, second):
    arguments = [command, str(where), dataset, json.dumps(charge.values()), str(first), str(second)]
    done = run_program(sys.executable, STORM, *arguments)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def spent_entries(ledger):
    found = ledger.overview()
    return [entry for entry in found.entries if entry.state is not EntryState.CANCELLED]


def check_additive_storm(where, processes, tries, budget):
    """Exactly the budget is granted, however many ask."""
    ledger = Ledger.open(where, create=True)
    ledger.create_dataset("storm", budget, 0.5)
    assert run_storm("spend", where, "storm", UNIT, processes, tries) == budget
    assert len(spent_entries(ledger)) == budget
    assert ledger.overview().accounts[0].remaining.epsilon == 0
    assert ledger.verify().good


def check_tight_storm(where, processes, tries):
    """As many are granted as adding up offline says; both with the Gaussian and with the novel-item part binding."""
    ledger = Ledger.open(where, create=True)
    charge = charge_for_plan(plan_release("weighted-gaussian", Budget(1.0, 1e-8)))
    for name, total, counted in (("gaussian", 1e-6, "mu_squared"), ("novel", 5e-8, "novelty")):
        caps = ledger.create_dataset(name, 10.0, total, "tight").caps
        fitting = [getattr(caps, each) // getattr(charge, each) for each in ("mu_squared", "novelty", "rounding")]
        assert min(fitting) == getattr(caps, counted) // getattr(charge, counted)
        assert min(fitting) < processes * tries
        assert run_storm("spend", where, name, charge, processes, tries) == min(fitting)
    assert ledger.verify().good


def check_same_release(where):
    """Sixteen processes ask for the same three releases: each is granted once."""
    ledger = Ledger.open(where, create=True)
    ledger.create_dataset("same", 1000, 0.5)
    assert run_storm("same", where, "same", UNIT, 16, 3) == 3
    assert len(spent_entries(ledger)) == 3


def check_killings(where, kills, seed):
    """Whoever is killed at whatever moment: what was granted is spent, the chain holds, the rest can be spent."""
    ledger = Ledger.open(where, create=True)
    budget = 2 * kills
    ledger.create_dataset("killed", budget, 0.5)
    sure = run_storm("kill", where, "killed", UNIT, kills, seed)
    recorded = len(spent_entries(ledger))
    assert kills / 10 < sure <= recorded <= budget
    rest = budget - recorded
    assert run_storm("spend", where, "killed", UNIT, 2, rest + 5) == rest
    assert ledger.overview().accounts[0].spent.epsilon == budget * 10**9
    assert ledger.verify().good


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.db"


@pytest.mark.full
def test_exactly_the_budget_is_granted_to_a_storm(path):
    check_additive_storm(path, 32, 400, 1000)


def test_tight_composition_grants_what_adding_up_offline_does(path):
    check_tight_storm(path, 16, 8)


def test_concurrent_requests_for_one_release_are_granted_once(path):
    check_same_release(path)


@pytest.mark.full
def test_after_a_hundred_kills_no_more_is_granted_than_there_is(path):
    check_killings(path, 100, seed=20)


def run_limited(code, *arguments):
    done = run_python(code, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


FULL_DISK = """
import resource, sys
from dpunion.errors import LedgerError
from dpunion.ledger import Amounts, Ledger
ledger = Ledger.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (45_000, 45_000))
granted = refused = 0
for number in range(400):
    try:
        ledger.reserve("full", Amounts(epsilon=10**9, delta=10**9), f"release-{number}")
        granted += 1
    except LedgerError as error:
        assert "disk" in error.what, error
        refused += 1
        if refused > 5:
            break
print(granted, refused)
"""


def test_a_full_disk_grants_nothing_and_damages_nothing(path):
    ledger = Ledger.open(path, create=True)
    ledger.create_dataset("full", 1000, 0.5)
    granted, refused = map(int, run_limited(FULL_DISK, path))
    assert granted > 3
    assert refused > 5
    assert len(spent_entries(ledger)) == granted
    assert ledger.verify().good
    ledger.reserve("full", UNIT, "when there is space again")


READ_ONLY = """
import os, sys
from dpunion.errors import LedgerError
from dpunion.ledger import Amounts, Ledger
ledger = Ledger.open(sys.argv[1])
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
try:
    ledger.reserve("readonly", Amounts(epsilon=1), "release")
except LedgerError as error:
    print(error.what.rsplit(" ", 1)[-1], error.exit_code)
"""


def test_a_ledger_that_cannot_be_written_grants_nothing(path):
    ledger = Ledger.open(path, create=True)
    ledger.create_dataset("readonly", 1, 0.5)
    for folder in (path.parent, *path.parent.parents):
        with contextlib.suppress(PermissionError):
            if folder.stat().st_uid == os.geteuid() and folder.is_relative_to("/tmp") and folder != Path("/tmp"):
                folder.chmod(0o755)
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        said = run_limited(READ_ONLY, path, NOBODY)
    finally:
        path.parent.chmod(0o755)
        path.chmod(0o600)
    assert said in (["written.", "5"], ["opened.", "5"])
    assert spent_entries(ledger) == []


@pytest.mark.parametrize(
    "content", [b"not a database, but long enough to look at" * 40, b"SQLite format 3\0" + b"\xff" * 4000]
)
def test_another_file_is_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(DamagedLedger):
        Ledger.open(path)
    with pytest.raises(DamagedLedger):
        Ledger.open(path, create=True)
    assert path.read_bytes() == content


def test_an_empty_or_foreign_database_is_not_taken_for_a_ledger(path):
    path.touch()
    with pytest.raises(DamagedLedger):
        Ledger.open(path)
    with contextlib.closing(sqlite3.connect(path)) as foreign:
        foreign.execute("CREATE TABLE other (x)")
    for create in (False, True):
        with pytest.raises(DamagedLedger):
            Ledger.open(path, create=create)


def filled(path):
    ledger = Ledger.open(path, create=True)
    ledger.create_dataset("first", 100, 0.5)
    ledger.create_dataset("second", 10, 1e-6, "tight")
    for number in range(8):
        with ledger.reserve("first", UNIT, f"release-{number}") as reservation:
            if number != 5:
                reservation.start_reading()
            if number % 2:
                continue
            reservation.settle(digest="ab" * 32)
    return ledger


def test_a_flipped_byte_is_noticed_or_harmless(path):
    ledger = filled(path)
    before = ledger.overview()
    good = path.read_bytes()
    noticed = 0
    for position in range(7, len(good), len(good) // 150):
        path.write_bytes(good[:position] + bytes([good[position] ^ 0x41]) + good[position + 1 :])
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        try:
            if ledger.verify().good:
                assert ledger.overview() == before
            else:
                noticed += 1
        except LedgerError:
            noticed += 1
    assert noticed > 20


def test_a_truncated_file_is_noticed(path):
    ledger = filled(path)
    good = path.read_bytes()
    for length in (100, 4096, len(good) // 2, len(good) - 4096):
        path.write_bytes(good[:length])
        with contextlib.suppress(LedgerError):
            assert not ledger.verify().good


def altered(path, *statements):
    """Do to the file what its triggers forbid."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for name in ("no_update", "no_delete", "in_order"):
            connection.execute(f"DROP TRIGGER IF EXISTS dpunion_ledger_{name}")
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE dpunion_ledger SET epsilon = 1 WHERE sequence = 4",
        "UPDATE dpunion_ledger SET epsilon = epsilon + 1 WHERE sequence = 1",
        "UPDATE dpunion_ledger SET mu_squared = mu_squared + 1 WHERE sequence = 2",
        "UPDATE dpunion_ledger SET details = '{}' WHERE sequence = 3",
        "UPDATE dpunion_ledger SET written = '' WHERE sequence = 3",
        "UPDATE dpunion_ledger SET fingerprint = 'another' WHERE sequence = 5",
        "UPDATE dpunion_ledger SET dataset = 'second' WHERE sequence = 5",
        "UPDATE dpunion_ledger SET kind = 'cancelled' WHERE sequence = 4",
        "UPDATE dpunion_ledger SET epsilon = 'text' WHERE sequence = 4",
        "UPDATE dpunion_ledger SET hash = 'ab' WHERE sequence = 6",
        "DELETE FROM dpunion_ledger WHERE sequence = 7",
        "DELETE FROM dpunion_ledger WHERE sequence = 1",
        "UPDATE dpunion_ledger SET sequence = 100 - sequence",
    ],
)
def test_every_alteration_is_found(path, statement):
    ledger = filled(path)
    altered(path, statement)
    found = ledger.verify()
    assert not found.good
    assert found.problem.startswith("Row ")
    with pytest.raises(DamagedLedger):
        ledger.overview()


def test_two_rows_exchanged_are_found(path):
    ledger = filled(path)
    altered(
        path,
        "UPDATE dpunion_ledger SET sequence = 1000 WHERE sequence = 4",
        "UPDATE dpunion_ledger SET sequence = 4 WHERE sequence = 6",
        "UPDATE dpunion_ledger SET sequence = 6 WHERE sequence = 1000",
    )
    assert "Row 4" in ledger.verify().problem


def test_rows_cut_off_at_the_end_are_found_by_a_receipt(path):
    ledger = filled(path)
    head = ledger.overview().head
    receipt = ledger.reserve("first", UNIT, "the last").receipt
    assert ledger.verify([head, receipt]).good
    altered(path, "DELETE FROM dpunion_ledger WHERE sequence = (SELECT MAX(sequence) FROM dpunion_ledger)")
    assert ledger.verify([head]).good
    assert "receipt" in ledger.verify([head, receipt]).problem
    ledger.reserve("first", UNIT, "in its place")
    assert "receipt" in ledger.verify([receipt]).problem


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE dpunion_ledger SET epsilon = 0 WHERE sequence = 3",
        "UPDATE dpunion_ledger SET epsilon = 1000 * epsilon WHERE sequence = 1",
        "DELETE FROM dpunion_ledger WHERE sequence IN (4, 5)",
        "UPDATE dpunion_ledger SET fingerprint = 'another' WHERE sequence = 3",
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_a_broken_chain_grants_nothing(path, statement, again):
    """Neither the ledger that has seen the rows whole nor one that is opened later grants, settles or gives back."""
    ledger = filled(path)
    held = ledger.reserve("first", UNIT, "held")
    altered(path, statement)
    asked = Ledger.open(path) if again else ledger
    rows = len(all_rows(path))
    with pytest.raises(DamagedLedger, match="Row "):
        asked.reserve("first", UNIT, "one more", charge_again=True)
    with pytest.raises(DamagedLedger):
        asked.create_dataset("third", 1, 1e-6)
    with pytest.raises(LedgerError, match="could not be settled"):
        held.settle(digest="00" * 32)
    assert len(all_rows(path)) == rows


def all_rows(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT sequence, kind, entry FROM dpunion_ledger").fetchall()


def put_back(path, backup):
    """Put an older copy of the ledger in its place."""
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.write_bytes(backup)


@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("reading", [False, True])
def test_a_replaced_ledger_is_not_changed_and_is_reported(path, taken, reading):
    """Whether or not another release has the number now, it is not ours to settle or to give back."""
    ledger = filled(path)
    backup = path.read_bytes()
    held = ledger.reserve("first", UNIT, "ours")
    put_back(path, backup)
    if taken:
        assert Ledger.open(path).reserve("first", UNIT, "theirs").number == held.number
    before = all_rows(path)

    def run():
        with held:
            if not reading:
                raise RuntimeError
            held.start_reading()
            held.settle(digest="00" * 32)

    with pytest.raises(LedgerError if reading else RuntimeError) as caught:
        run()
    said = f"{caught.value} {ledger_note(caught.value)}"
    assert "replaced in the meantime" in said
    assert f"entry {held.receipt}, (1, 1e-09) on 'first', is not in it" in said
    assert ledger_note(caught.value).facts["charged"] is False
    assert all_rows(path) == before
    assert Ledger.open(path).verify().good


def test_a_changed_last_row_stops_further_grants(path):
    ledger = filled(path)
    altered(path, "UPDATE dpunion_ledger SET written = '' WHERE sequence = (SELECT MAX(sequence) FROM dpunion_ledger)")
    with pytest.raises(DamagedLedger):
        ledger.reserve("first", UNIT, "one more")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE dpunion_ledger SET epsilon = 0",
        "DELETE FROM dpunion_ledger",
        "INSERT OR REPLACE INTO dpunion_ledger SELECT * FROM dpunion_ledger WHERE sequence = 3",
    ],
)
def test_the_table_is_append_only(path, statement):
    ledger = filled(path)
    with (
        contextlib.closing(sqlite3.connect(path)) as connection,
        pytest.raises(sqlite3.IntegrityError, match="append-only"),
    ):
        connection.execute(statement)
    assert ledger.verify().good


def test_a_writer_that_waits_too_long_is_told_so(path, monkeypatch):
    ledger = filled(path)
    monkeypatch.setattr("dpunion.ledger.sqlite.LONGEST_WAIT", 0.05)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="busy"):
            ledger.reserve("first", UNIT, "one more")
    ledger.reserve("first", UNIT, "one more")


def test_a_damaged_schema_whose_bytes_are_no_text_is_a_damaged_ledger(path):
    """SQLite's message then holds those bytes, and Python cannot decode it."""
    filled(path).close()
    raw = path.read_bytes()
    damaged = raw.replace(b"CREATE TRIGGER ", b"CREATE \xff\xffIGGER ")
    assert damaged != raw
    path.write_bytes(damaged)
    with pytest.raises(DamagedLedger, match="is damaged"):
        Ledger.open(path).overview()
