"""What a database must offer to hold a ledger: transactions, one writer at a time, on one append-only table.

`ChainReader` reads the chain of rows from the first row on, and `append` adds the next one, inside a transaction.
"""

from __future__ import annotations

import abc
import datetime as dt
import json
from contextlib import AbstractContextManager
from typing import Any, Protocol

from dpunion.errors import DamagedLedger
from dpunion.ledger.amounts import FIELDS, Amounts
from dpunion.ledger.events import COLUMNS, Book, BrokenChain, Event, EventKind

TABLE = "dpunion_ledger"
VERSION = 1
LONGEST_WAIT = 60
"""Seconds that a writer waits for the others."""

COLUMN_LIST = ", ".join(COLUMNS)
ALL_ROWS = f"SELECT {COLUMN_LIST} FROM {TABLE} ORDER BY sequence"  # noqa: S608 - constants only
APPEND = f"INSERT INTO {TABLE} ({COLUMN_LIST}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608
# subtle: no index, so there is no second copy of the rows that could disagree with the first.


def table_definition(integer: str) -> str:
    """Return the table; a negative amount is only ever the return of a cancelled one."""
    amounts = ", ".join(f"{name} {integer} NOT NULL CHECK ({name} >= 0 OR kind = 'cancelled')" for name in FIELDS)
    return (
        f"CREATE TABLE {TABLE} (sequence {integer} PRIMARY KEY CHECK (sequence > 0), kind TEXT NOT NULL, "
        f"dataset TEXT NOT NULL, entry {integer} NOT NULL, {amounts}, fingerprint TEXT NOT NULL, "
        "details TEXT NOT NULL, written TEXT NOT NULL, hash TEXT NOT NULL)"
    )


class Session(Protocol):
    """An open transaction."""

    def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement, with ? for each value, and return its rows."""


class Store(abc.ABC):
    """A database with a ledger in it.

    Guarantees:
    - a write transaction sees every row committed before it began, and no other one runs beside it;
    - when the block ends without an exception, what it wrote is on disk;
    - when anything fails, nothing was written, or it was and the caller learns that it failed.
    """

    name: str
    """What a public statement may call it: no password, no host."""

    @abc.abstractmethod
    def prepare(self, *, create: bool) -> None:
        """Check that there is a ledger of this version, or make one."""

    @abc.abstractmethod
    def transaction(self, *, write: bool) -> AbstractContextManager[Session]:
        """Open a transaction; commit it when the block ends well."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of the connection, if one is kept between transactions."""

    @abc.abstractmethod
    def check_storage(self) -> str | None:
        """Return what the database itself finds wrong with its storage, or None."""


class ChainReader:
    """Replays the chain, and remembers the rows it has found right, so that only new ones are checked again.

    Guarantees:
    - every row is read and, unless it is byte for byte the one that was right before, checked;
    - nothing that a transaction wrote itself is remembered, for it may yet be undone.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._known: tuple[list[tuple[Any, ...]], Book] = ([], Book())

    def replay(self, session: Session, found: dict[int, str] | None = None) -> tuple[Book, str | None]:
        """Return what the rows say, up to the first wrong one, and what is wrong with it; `found` gets all hashes."""
        rows = session.run(ALL_ROWS)
        known, book = self._known
        if found is not None or rows[: len(known)] != known:
            known, book = [], Book()
        book = book.copy()
        for number, row in enumerate(rows[len(known) :], len(known) + 1):
            try:
                book.read(Event.from_row(row))
            except BrokenChain as broken:
                return book, f"Row {number} of {self._name} is wrong: {broken}."
            if found is not None:
                found[book.sequence] = book.head
        self._known = (rows, book.copy())
        return book, None

    def book(self, session: Session) -> Book:
        """Return what the rows say; raise DamagedLedger when one of them is wrong."""
        book, problem = self.replay(session)
        if problem is not None:
            raise DamagedLedger(problem, "Run `dpunion ledger verify`, and restore the ledger from a backup.")
        return book


def append(
    session: Session,
    book: Book,
    kind: EventKind,
    dataset: str,
    amounts: Amounts,
    *,
    entry: int = 0,
    release_fingerprint: str = "",
    details: dict[str, Any],
) -> Event:
    """Add the row that follows the whole chain, which `book` has replayed in this transaction."""
    event = Event(
        sequence=book.sequence + 1,
        kind=kind,
        dataset=dataset,
        entry=entry,
        amounts=amounts,
        fingerprint=release_fingerprint,
        details=json.dumps(details, separators=(",", ":")),
        written=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    )
    chained = Event.from_row((*event.row()[:-1], event.hash_after(book.head)))
    session.run(APPEND, *chained.row())
    return chained
