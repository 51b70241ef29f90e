"""A ledger in an SQLite file: the default, for one machine."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dpunion.errors import DamagedLedger, ForeignErrors, LedgerError, system_reason
from dpunion.files import sync_folder
from dpunion.ledger.events import LONGEST_WAIT, TABLE, VERSION, Session, Store, table_definition

APPLICATION = 0x6470756E  # "dpun": by this number `file` and SQLite recognise the file

# On these, SQLite's locks are unreliable, or its shared memory does not work.
# fmt: off
NETWORK_FILE_SYSTEMS = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "ceph", "lustre", "gpfs", "beegfs", "ocfs2", "gfs2",
    "9p", "davfs", "fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.glusterfs", "fuse.ceph", "fuse.davfs2",
})
# fmt: on

NEXT = f"SELECT COALESCE(MAX(sequence), 0) + 1 FROM {TABLE}"  # noqa: S608 - constants only
REFUSE = "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
SCHEMA = (
    table_definition("INTEGER"),
    f"CREATE TRIGGER {TABLE}_no_update BEFORE UPDATE ON {TABLE} {REFUSE}",
    f"CREATE TRIGGER {TABLE}_no_delete BEFORE DELETE ON {TABLE} {REFUSE}",
    # subtle: INSERT OR REPLACE deletes without calling the trigger above.
    f"CREATE TRIGGER {TABLE}_in_order BEFORE INSERT ON {TABLE} WHEN NEW.sequence IS NOT ({NEXT}) {REFUSE}",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {VERSION}",
)


class SqliteStore(Store):
    """A ledger in a file.

    subtle: nothing here opens the file itself once it exists. Closing any descriptor of a file drops all locks of this
    process on it, also those of an SQLite connection in another thread.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.name = path.name

    def __repr__(self) -> str:
        return f"SqliteStore({str(self.path)!r})"

    def prepare(self, *, create: bool) -> None:
        if re.search(r"[\ud800-\udfff]", str(self.path)):
            raise LedgerError("The ledger's path is not UTF-8.", "Rename the file or its folder: statements name it.")
        if create:
            self._make_file()
        self._check_file()
        with self._session(write=create) as session:
            if create and not session.run("SELECT 1 FROM sqlite_master LIMIT 1"):
                for statement in SCHEMA:
                    session.run(statement)
            self._check_identity(session)

    @contextlib.contextmanager
    def transaction(self, *, write: bool) -> Iterator[Session]:
        with self._session(write=write) as session:
            self._check_identity(session)
            yield session

    def close(self) -> None:
        return None

    def check_storage(self) -> str | None:
        with self._session(write=False) as session:
            findings = session.run("PRAGMA integrity_check(1)")
        return None if findings == [("ok",)] else "SQLite finds the file malformed"

    @contextlib.contextmanager
    def _session(self, *, write: bool) -> Iterator[_SqliteSession]:
        """Open a connection for one transaction: none is open across a fork, or between reserving and settling."""
        frozen = None if write else self._frozen()
        with ForeignErrors(self._explain, sqlite3.Error):
            mode = "mode=rw" if frozen is None else "mode=ro&immutable=1"
            connection = sqlite3.connect(
                f"file:{quote(str(self.path))}?{mode}", uri=True, timeout=LONGEST_WAIT, isolation_level=None
            )
            with contextlib.closing(connection):
                session = _SqliteSession(connection)
                session.set_up(durable=frozen is None)
                session.run("BEGIN IMMEDIATE" if write else "BEGIN")
                try:
                    yield session
                    session.run("COMMIT")
                finally:
                    if connection.in_transaction:
                        with contextlib.suppress(sqlite3.Error):
                            connection.execute("ROLLBACK")
                    if not write and self._frozen() != frozen:
                        raise LedgerError(f"The ledger {self.path} was written while it was read.", "Try again.")

    def _frozen(self) -> tuple[int, int] | None:
        """Return size and time of a file on a read-only file system, where SQLite cannot lock; elsewhere None.

        subtle: SQLite then reads the file without locks and without its journal, so the journal must be empty; and as
        another mount of the same disk may be writable, the file must be the same afterwards.
        """
        with contextlib.suppress(OSError):
            if os.statvfs(self.path).f_flag & os.ST_RDONLY:
                journal, status = Path(f"{self.path}-wal"), self.path.stat()
                if journal.exists() and journal.stat().st_size:
                    raise LedgerError(
                        f"The last changes of the ledger {self.path} are in its journal ({journal.name}), which cannot "
                        "be read on a read-only file system.",
                        "Copy both files into a folder that can be written, and read the copy.",
                    )
                return status.st_size, status.st_mtime_ns
        return None

    def _make_file(self) -> None:
        """Create an empty file that only its owner may read, unless there is one."""

        def explain(error: OSError) -> LedgerError:
            why = system_reason(error)
            return LedgerError(f"The ledger {self.path} cannot be created: {why}.", "Choose another folder.")

        with ForeignErrors(explain, OSError), contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
            sync_folder(self.path.parent)

    def _check_file(self) -> None:
        """Refuse a missing file, and one that SQLite could not lock."""

        def explain(error: OSError) -> LedgerError:
            if isinstance(error, FileNotFoundError):
                return LedgerError(
                    f"There is no ledger at {self.path}.", "Open one with `dpunion ledger open`, or check the path."
                )
            what = f"The ledger {self.path} cannot be opened: {system_reason(error)}."
            return LedgerError(what, "Check the path and permissions.")

        with ForeignErrors(explain, OSError):
            status = self.path.stat()
        if not self.path.is_file():
            raise LedgerError(f"The ledger {self.path} is not a file.", "Check the path.")
        if status.st_nlink != 1:
            raise LedgerError(
                f"The ledger {self.path} has more than one name (hard links).",
                "Remove the other names, as SQLite could look for its journal under the wrong one.",
            )
        kind = file_system(self.path)
        if kind in NETWORK_FILE_SYSTEMS:
            raise LedgerError(
                f"The ledger {self.path} is on a network file system ({kind}), where file locks are unreliable.",
                "Keep it on a local disk, or use a PostgreSQL ledger.",
            )

    def _check_identity(self, session: Session) -> None:
        application, version = session.run("PRAGMA application_id")[0][0], session.run("PRAGMA user_version")[0][0]
        if application != APPLICATION:
            raise DamagedLedger(f"{self.path} is not a ledger of dpunion.", "Check the path.")
        if version != VERSION:
            raise LedgerError(f"The ledger {self.path} has format {version}.", "Use a newer dpunion.")

    def _explain(self, error: sqlite3.Error) -> LedgerError:
        """Turn an error of SQLite into ours: with its kind only, never its text."""
        code = getattr(error, "sqlite_errorname", type(error).__name__)
        for start, what, remedy in _REASONS:
            if code.startswith(start):
                kind = DamagedLedger if start in _DAMAGE else LedgerError
                return kind(f"The ledger {self.path} {what}.", remedy)
        return LedgerError(
            f"The ledger {self.path} failed ({code}).", "Nothing was granted; run `dpunion ledger verify`."
        )


_REASONS = (
    ("SQLITE_BUSY", f"was busy for {LONGEST_WAIT} seconds", "Nothing was granted; try again."),
    ("SQLITE_FULL", "cannot be written: the disk is full", "Nothing was granted; free some space."),
    ("SQLITE_READONLY", "cannot be written", "Nothing was granted; check the file's and folder's permissions."),
    ("SQLITE_CANTOPEN", "cannot be opened", "Check the file's and folder's permissions."),
    ("SQLITE_PERM", "cannot be opened", "Check the file's and folder's permissions."),
    ("SQLITE_IOERR", "cannot be read or written: the disk failed or is full", "Nothing was granted; check the disk."),
    ("SQLITE_NOTADB", "is not an SQLite file", "Check the path, or restore the file from a backup."),
    ("SQLITE_CORRUPT", "is damaged", "Restore it from a backup, and charge all releases made since then by hand."),
    ("SQLITE_CONSTRAINT", "refused a row", "Nothing was granted; run `dpunion ledger verify`."),
)
_DAMAGE = frozenset({"SQLITE_NOTADB", "SQLITE_CORRUPT"})


class _SqliteSession:
    """A connection inside a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with contextlib.suppress(UnicodeDecodeError):
            return self._connection.execute(sql, values).fetchall()
        # subtle: SQLite quotes a damaged schema in its message, and these bytes may not be UTF-8.
        error = sqlite3.DatabaseError("a message that is not UTF-8")
        error.sqlite_errorname = "SQLITE_CORRUPT"
        raise error

    def set_up(self, *, durable: bool) -> None:
        """Trust nothing in the schema; if `durable`, commit durably and never checkpoint while others write.

        subtle: SQLite before 3.51.3 can corrupt a file in WAL mode when checkpoints and a commit of several connections
        coincide (sqlite.org/wal.html, "WAL-reset bug"). Without automatic checkpoints only the last connection to close
        makes one, alone.
        """
        self.run("PRAGMA trusted_schema = OFF")
        if not durable:
            return
        self.run("PRAGMA wal_autocheckpoint = 0")
        self.run("PRAGMA journal_mode = WAL")
        self.run("PRAGMA synchronous = FULL")
        if sys.platform == "darwin":
            self.run("PRAGMA fullfsync = ON")
            self.run("PRAGMA checkpoint_fullfsync = ON")


def file_system(path: Path, table: str | None = None) -> str | None:
    """Return the type of the file system of `path`; None if it is unknown, as everywhere but on Linux."""
    if table is None:
        if not sys.platform.startswith("linux"):
            return None
        try:
            table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return None
    found: tuple[int, str | None] = (-1, None)
    target = path.resolve()
    for line in table.splitlines():
        left, dash, right = line.partition(" - ")
        fields, kind = left.split(" "), right.split(" ")[0]
        if not dash or len(fields) < 5:
            continue
        mount = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
        # A later mount hides an earlier one at the same place.
        if target.is_relative_to(mount) and len(mount) >= found[0]:
            found = (len(mount), kind)
    return found[1]
