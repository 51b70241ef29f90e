"""A ledger in a PostgreSQL database, for teams.

The address is libpq's: postgresql://user@host/database, with the password from PGPASSWORD, ~/.pgpass or a service file.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from dpunion.errors import BadParameter, DamagedLedger, ForeignErrors, LedgerError
from dpunion.ledger.store import LONGEST_WAIT, TABLE, VERSION, Session, Store, table_definition

if TYPE_CHECKING:
    import psycopg

LONGEST_SILENCE = LONGEST_WAIT + 30
"""Seconds after which a server that does not answer a statement is given up; waiting for a turn is part of them."""
# What the network itself notices: a machine that is gone, not a server that stands still.
NETWORK = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
PLAIN_NAME = re.compile(r"[A-Za-z0-9._ -]+")
LOCK = 0x6470756E_696F6E00  # "dpunion": the key of the advisory lock that makes writers take turns

SCHEMA = (
    table_definition("BIGINT"),
    f"COMMENT ON TABLE {TABLE} IS 'dpunion ledger, format {VERSION}'",
    f"CREATE FUNCTION {TABLE}_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$",
    f"CREATE TRIGGER {TABLE}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {TABLE} "
    f"FOR EACH STATEMENT EXECUTE FUNCTION {TABLE}_refuse()",
)
IDENTITY = f"SELECT obj_description(to_regclass('{TABLE}'), 'pg_class'), to_regclass('{TABLE}') IS NOT NULL"
# A server may be set to answer before a commit is on disk; a ledger must not.
DURABLE = (
    f"SELECT set_config('lock_timeout', '{LONGEST_WAIT}s', true), CASE current_setting('synchronous_commit') "
    "WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END"
)


# subtle: a connection that a fork inherited is neither used nor closed, for closing it would end the parent's.
_inherited: list[psycopg.Connection[tuple[Any, ...]]] = []


class PostgresStore(Store):
    """A ledger in a database.

    Guarantees:
    - neither the password nor any other part of the address but the database's name is in a repr or an error;
    - writers take turns by an advisory lock; were it ignored, the sequence's primary key refuses the second of two.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._owner = 0
        self._turn = threading.Lock()
        self.name = f"postgresql/{_database(address)}"

    def __repr__(self) -> str:
        return f"PostgresStore({self.name!r})"

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        connection, self._connection = getattr(self, "_connection", None), None
        if connection is None:
            return
        if self._owner == os.getpid():
            connection.close()
        else:
            _inherited.append(connection)

    def prepare(self, *, create: bool) -> None:
        with self._session(write=create) as session:
            if create and not session.run(IDENTITY)[0][1]:
                for statement in SCHEMA:
                    session.run(statement)
            self._check_identity(session)

    @contextlib.contextmanager
    def transaction(self, *, write: bool) -> Iterator[Session]:
        with self._session(write=write) as session:
            yield session

    def check_storage(self) -> str | None:
        return None

    def _check_identity(self, session: Session) -> None:
        comment, exists = session.run(IDENTITY)[0]
        if not exists:
            raise LedgerError(f"There is no ledger in {self.name}.", "Open one with `dpunion ledger open`.")
        if comment != f"dpunion ledger, format {VERSION}":
            raise DamagedLedger(
                f"The table {TABLE} in {self.name} is not a ledger of this format.", "Use a newer dpunion."
            )

    @contextlib.contextmanager
    def _session(self, *, write: bool) -> Iterator[_PostgresSession]:
        import psycopg

        with ForeignErrors(self._explain, psycopg.Error), self._turn:
            session = self._begin(write=write)
            try:
                yield session
                session.connection.commit()
            finally:
                if not session.connection.closed:
                    with contextlib.suppress(psycopg.Error):
                        session.connection.rollback()

    def _begin(self, *, write: bool) -> _PostgresSession:
        """Start a transaction, on a new connection when the old one has died or belongs to the parent process."""
        import psycopg

        if self._connection is not None and self._owner == os.getpid() and not self._connection.closed:
            try:
                return self._start(self._connection, write=write)
            except psycopg.OperationalError:
                pass  # Nothing was asked of it yet but its turn: asking again is safe.
        self.close()
        self._connection = _connect(self._address)
        self._owner = os.getpid()
        return self._start(self._connection, write=write)

    def _start(self, connection: psycopg.Connection[tuple[Any, ...]], *, write: bool) -> _PostgresSession:
        import psycopg

        # subtle: each statement must see what was committed before it, so the rows are read after the lock was got.
        connection.isolation_level = (
            psycopg.IsolationLevel.READ_COMMITTED if write else psycopg.IsolationLevel.REPEATABLE_READ
        )
        connection.read_only = not write
        session = _PostgresSession(connection)
        if write:
            session.run(DURABLE)
            session.run("SELECT pg_advisory_xact_lock(?)", LOCK)
        else:
            session.run("SELECT 1")
        return session

    def _explain(self, error: psycopg.Error) -> LedgerError:
        """Turn an error of the driver into ours: its code only, for its text may hold the address."""
        code = error.sqlstate or type(error).__name__
        for start, what, remedy in _REASONS:
            if code.startswith(start):
                return LedgerError(f"The ledger {self.name} {what} ({code}).", remedy)
        return LedgerError(f"The ledger {self.name} failed ({code}).", "Nothing was granted; see the server's log.")


_SILENT = (
    "has not answered in time",
    "This run got no budget, but a charge in progress may still appear; check the server.",
)
_REASONS = (
    ("55P03", f"was busy for {LONGEST_WAIT} seconds", "Nothing was granted; try again."),
    ("53", "cannot be written: the server is out of space, memory or connections", "Nothing was granted; free some."),
    ("42501", "denied permission to this role", "It needs SELECT and INSERT on the table; to open, CREATE."),
    ("42P01", "does not exist", "Open one with `dpunion ledger open`."),
    ("28", "refused the role or password", "Check PGUSER, PGPASSWORD, ~/.pgpass and the server's pg_hba.conf."),
    ("25006", "is read-only", "Connect to the primary server."),
    ("_Silence", *_SILENT),
    ("ConnectionTimeout", *_SILENT),
    (
        "OperationalError",
        "cannot be reached, or its connection broke",
        "Nothing was granted; check host, port and network.",
    ),
)


def _connect(address: str) -> psycopg.Connection[tuple[Any, ...]]:
    """Connect; the connection gives up when the server has been silent for too long."""
    import psycopg

    class _Silence(psycopg.OperationalError):  # type: ignore[misc]
        """The server stands still: its machine answers, the server does not."""

    class Impatient(psycopg.Connection[tuple[Any, ...]]):  # type: ignore[misc]
        """A connection whose every wait has an end."""

        def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
            """Wait for an answer; close the connection when none comes, for nothing can be asked of it any more."""
            try:
                return super().wait(_within(gen, LONGEST_SILENCE, _Silence), *arguments, **options)
            except _Silence:
                self.close()
                raise

    return Impatient.connect(address, application_name="dpunion", **NETWORK)


def _within(steps: Generator[Any, int, Any], seconds: float, problem: type[Exception]) -> Generator[Any, int, Any]:
    """Do the steps of a wait, in which 0 means that nothing has happened for a moment; raise when time is up."""
    end = time.monotonic() + seconds
    try:
        wanted = next(steps)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > end:
                raise problem
            wanted = steps.send(ready)
    except StopIteration as done:
        return done.value


class _PostgresSession:
    """A connection inside a transaction."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self.connection = connection

    def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(sql.replace("?", "%s").encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def _database(address: str) -> str:
    """Return the database's name; raise without repeating the address when it has none or cannot be read."""
    missing = BadParameter(
        "A PostgreSQL ledger needs the psycopg package.", "Install it: pip install 'dpunion[databases]'."
    )
    with ForeignErrors(lambda _: missing, ImportError):
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    try:
        parts = conninfo_to_dict(address)
        name = parts.get("dbname") or parts.get("service")
    except psycopg.Error:
        name = None
    name = name or os.environ.get("PGDATABASE")
    if not name:
        raise BadParameter(
            "The ledger's address names no database, or is not of the form postgresql://user@host/database.",
            "Correct the address; keep the password in PGPASSWORD or ~/.pgpass.",
        )
    # subtle: a password with a slash or an @ that was not percent-encoded ends up in the database's name.
    return str(name) if PLAIN_NAME.fullmatch(str(name)) else "database"
