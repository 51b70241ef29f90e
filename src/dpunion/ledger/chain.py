"""The chain of rows: reading it from the first row on, and adding the next one, inside a transaction."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from dpunion.errors import DamagedLedger
from dpunion.ledger.amounts import Amounts
from dpunion.ledger.events import Book, BrokenChain, Event, EventKind
from dpunion.ledger.store import ALL_ROWS, APPEND, Session


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
