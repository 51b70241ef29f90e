"""A ledger in a PostgreSQL database, for teams.

The address is libpq's: postgresql://user@host/database, with the password from PGPASSWORD, ~/.pgpass or a service file.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dpunion.errors import BadParameter, DamagedLedger, ForeignErrors, LedgerError
from dpunion.ledger.events import LONGEST_WAIT, TABLE, VERSION, Session, Store, table_definition

if TYPE_CHECKING:
    import psycopg

# The network notices a machine that is gone, but not a server that stands still.
NETWORK = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
PLAIN_NAME = re.compile(r"[A-Za-z0-9._ -]+")
LOCK = 0x6470756E_696F6E00  # "dpunion": the key of the advisory lock, which only one writer has at a time

SCHEMA = (
    table_definition("BIGINT"),
    f"COMMENT ON TABLE {TABLE} IS 'dpunion ledger, format {VERSION}'",
    f"CREATE FUNCTION {TABLE}_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$",
    f"CREATE TRIGGER {TABLE}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {TABLE} "
    f"FOR EACH STATEMENT EXECUTE FUNCTION {TABLE}_refuse()",
)
IDENTITY = f"SELECT obj_description(to_regclass('{TABLE}'), 'pg_class'), to_regclass('{TABLE}') IS NOT NULL"
# A server's settings may let it answer before a commit is on disk, which is not safe for a ledger.
DURABLE = (
    f"SELECT set_config('lock_timeout', '{LONGEST_WAIT}s', true), CASE current_setting('synchronous_commit') "
    "WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END"
)


# subtle: a connection that a fork inherited is neither used nor closed: closing it would close the parent's.
_inherited: list[psycopg.Connection[tuple[Any, ...]]] = []


class PostgresStore(Store):
    """A ledger in a database.

    Guarantees:
    - of the address, only the database's name appears in a repr or an error;
    - an advisory lock lets one writer in at a time; if one ignored it, the primary key would refuse the second row.
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
        with self.transaction(write=create) as session:
            if create and not session.run(IDENTITY)[0][1]:
                for statement in SCHEMA:
                    session.run(statement)
            self._check_identity(session)

    def _check_identity(self, session: Session) -> None:
        comment, exists = session.run(IDENTITY)[0]
        if not exists:
            raise LedgerError(f"There is no ledger in {self.name}.", "Open one with `dpunion ledger open`.")
        if comment != f"dpunion ledger, format {VERSION}":
            raise DamagedLedger(
                f"The table {TABLE} in {self.name} is not a ledger of this format.", "Use a newer dpunion."
            )

    @contextlib.contextmanager
    def transaction(self, *, write: bool) -> Iterator[Session]:
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
        """Start a transaction, on a new connection if the old one has died or belongs to the parent process."""
        import psycopg

        if self._connection is not None and self._owner == os.getpid() and not self._connection.closed:
            try:
                return self._start(self._connection, write=write)
            except psycopg.OperationalError:
                pass  # It only waited for the lock: to ask again is safe.
        self.close()
        self._connection = psycopg.connect(self._address, application_name="dpunion", **NETWORK)
        self._owner = os.getpid()
        return self._start(self._connection, write=write)

    def _start(self, connection: psycopg.Connection[tuple[Any, ...]], *, write: bool) -> _PostgresSession:
        import psycopg

        # subtle: each statement must see the commits before it, because the rows are read after the lock is acquired.
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
        """Turn an error of the driver into ours: with its code only, as its text may have the address."""
        code = error.sqlstate or type(error).__name__
        for start, what, remedy in _REASONS:
            if code.startswith(start):
                return LedgerError(f"The ledger {self.name} {what} ({code}).", remedy)
        return LedgerError(f"The ledger {self.name} failed ({code}).", "Nothing was granted; see the server's log.")


_REASONS = (
    ("55P03", f"was busy for {LONGEST_WAIT} seconds", "Nothing was granted; try again."),
    ("53", "cannot be written: the server is out of space, memory or connections", "Nothing was granted; free some."),
    ("42501", "denied permission to this role", "It needs SELECT and INSERT on the table; to open, CREATE."),
    ("42P01", "does not exist", "Open one with `dpunion ledger open`."),
    ("28", "refused the role or password", "Check PGUSER, PGPASSWORD, ~/.pgpass and the server's pg_hba.conf."),
    ("25006", "is read-only", "Connect to the primary server."),
    ("ConnectionTimeout", "has not answered in time", "Nothing was granted; check the server."),
    (
        "OperationalError",
        "cannot be reached, or its connection broke",
        "Nothing was granted; check host, port and network.",
    ),
)


class _PostgresSession:
    """A connection inside a transaction."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self.connection = connection

    def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(sql.replace("?", "%s").encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def _database(address: str) -> str:
    """Return the database's name; refuse, without showing it, an address that has none or cannot be parsed."""
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
    # subtle: a password with a slash or an @ that is not percent-encoded ends up in the database's name.
    return str(name) if PLAIN_NAME.fullmatch(str(name)) else "database"
