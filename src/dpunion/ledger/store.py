"""What a database must offer to hold a ledger: transactions, one writer at a time, on one append-only table."""

from __future__ import annotations

import abc
from contextlib import AbstractContextManager
from typing import Any, Protocol

from dpunion.ledger.amounts import FIELDS
from dpunion.ledger.events import COLUMNS

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
