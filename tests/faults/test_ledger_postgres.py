"""The same faults on a real PostgreSQL, started on loopback; skipped where there is no server to start."""

import contextlib
import os
import signal
import threading

import pytest
import test_ledger_faults

from dpunion.errors import BadParameter, DamagedLedger, LedgerError
from dpunion.ledger import Ledger
from dpunion.ledger.postgres import NETWORK
from postgres_server import started
from running import PATIENCE

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

pytestmark = pytest.mark.full
PASSWORD = "correct-horse-battery"


@pytest.fixture(scope="module")
def server():
    with pytest.MonkeyPatch.context() as patch, started("ledger", PASSWORD) as found:
        patch.setenv("PGPASSWORD", PASSWORD)
        yield found


def execute(server, database, *statements):
    with contextlib.closing(psycopg.connect(server.address(database), autocommit=True)) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
def address(server, request):
    name = "budgets_" + str(abs(hash(request.node.name)))
    execute(server, "postgres", f"CREATE DATABASE {name}")
    return server.address(name)


def database_of(address):
    return address.rsplit("/", 1)[1]


def test_exactly_the_budget_is_granted_to_a_storm(address):
    test_ledger_faults.check_additive_storm(address, 32, 400, 1000)


def test_tight_composition_grants_what_adding_up_offline_does(address):
    test_ledger_faults.check_tight_storm(address, 16, 8)


def test_concurrent_requests_for_one_release_are_granted_once(address):
    test_ledger_faults.check_same_release(address)


def test_after_a_hundred_kills_no_more_is_granted_than_there_is(address):
    test_ledger_faults.check_killings(address, 100, seed=21)


def test_a_server_that_dies_loses_no_grant(server, address):
    ledger = Ledger.open(address, create=True)
    ledger.create_dataset("data", 10, 0.5)
    held = ledger.reserve("data", test_ledger_faults.UNIT, "before")
    held.start_reading()
    server.stop("immediate")
    with pytest.raises(LedgerError, match="reached"):
        ledger.reserve("data", test_ledger_faults.UNIT, "while it is down")
    server.start()
    held.settle(digest="00" * 32)
    ledger.reserve("data", test_ledger_faults.UNIT, "after")
    assert [entry.number for entry in test_ledger_faults.spent_entries(ledger)] == [2, 4]
    assert ledger.verify([held.receipt]).good


@contextlib.contextmanager
def standing_still(*processes):
    """Stop the processes, whose machine goes on answering for them."""
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


def test_a_server_that_stands_still_is_waited_for(server, address, monkeypatch):
    """A connection in use waits for the operator; a new one gives up after connect_timeout."""
    monkeypatch.setitem(NETWORK, "connect_timeout", 2)
    ledger = Ledger.open(address, create=True)
    ledger.create_dataset("data", 10, 0.5)
    held = ledger.reserve("data", test_ledger_faults.UNIT, "before")
    everything = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    settling = threading.Thread(target=held.settle, kwargs={"digest": "00" * 32}, daemon=True)
    with standing_still(ledger._store._connection.info.backend_pid, everything):
        settling.start()
        with pytest.raises(LedgerError, match="not answered in time"):
            Ledger.open(address)
        assert settling.is_alive()
    settling.join(PATIENCE)
    assert not settling.is_alive()
    ledger.reserve("data", test_ledger_faults.UNIT, "after")
    assert ledger.verify([held.receipt]).good
    ledger.close()


def test_the_table_is_append_only_and_alterations_are_found(server, address):
    ledger = Ledger.open(address, create=True)
    ledger.create_dataset("data", 10, 0.5)
    receipts = [ledger.reserve("data", test_ledger_faults.UNIT, str(number)).receipt for number in range(4)]
    name = database_of(address)
    for statement in ("UPDATE dpunion_ledger SET epsilon = 0", "DELETE FROM dpunion_ledger", "TRUNCATE dpunion_ledger"):
        with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
            execute(server, name, statement)
    assert ledger.verify(receipts).good
    forced = "ALTER TABLE dpunion_ledger DISABLE TRIGGER USER"
    execute(server, name, forced, "DELETE FROM dpunion_ledger WHERE sequence = 5")
    assert ledger.verify().good
    assert "receipt" in ledger.verify(receipts).problem
    execute(server, name, forced, "UPDATE dpunion_ledger SET epsilon = 1 WHERE sequence = 3")
    assert "Row 3" in ledger.verify().problem
    with pytest.raises(DamagedLedger):
        ledger.overview()


def test_a_role_that_may_only_read_and_insert_is_enough(server, address):
    ledger = Ledger.open(address, create=True)
    ledger.create_dataset("data", 10, 0.5)
    role = "analyst_" + database_of(address)
    execute(
        server,
        database_of(address),
        f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'",
        f"GRANT SELECT, INSERT ON dpunion_ledger TO {role}",
    )
    modest = Ledger.open(address.replace("ledger@", f"{role}@"))
    with modest.reserve("data", test_ledger_faults.UNIT, "release") as reservation:
        reservation.settle(digest="00" * 32)
    assert ledger.verify([reservation.receipt]).good


def test_a_server_that_answers_before_writing_is_told_not_to(server, address):
    execute(server, database_of(address), f"ALTER DATABASE {database_of(address)} SET synchronous_commit = off")
    ledger = Ledger.open(address, create=True)
    with ledger._store.transaction(write=True) as session:
        assert session.run("SHOW synchronous_commit") == [("on",)]


def test_a_missing_ledger_is_refused(address):
    with pytest.raises(LedgerError, match="no ledger"):
        Ledger.open(address)


def chain_of(error):
    while error is not None:
        yield f"{error!r} {error}"
        error = error.__cause__ or error.__context__


def test_a_password_shows_nowhere(server, address, monkeypatch):
    monkeypatch.delenv("PGPASSWORD")
    name = database_of(address)
    secret = server.address(name, password=PASSWORD)
    ledger = Ledger.open(secret, create=True)
    ledger.create_dataset("data", 1, 0.5)
    reservation = ledger.reserve("data", test_ledger_faults.UNIT, "release")
    texts = [repr(ledger), repr(ledger._store), repr(reservation), reservation.sentence, ledger.name]
    wrong = [
        server.address(name, password="wrong-secret"),
        server.address("nowhere", password=PASSWORD),
        f"postgresql://ledger:{PASSWORD}@127.0.0.1:1/{name}",
        f"postgresql://ledger:{PASSWORD}@127.0.0.1:{server.port}/{name}?nonsense=1",
        f"postgresql://ledger:{PASSWORD}@[127.0.0.1/{name}",
    ]
    for address_ in wrong:
        with pytest.raises((LedgerError, BadParameter)) as caught:
            Ledger.open(address_)
        texts += chain_of(caught.value)
    assert len(texts) >= 10
    for text in texts:
        assert PASSWORD not in text
        assert "wrong-secret" not in text
