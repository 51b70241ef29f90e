"""Adding a row to the chain, inside a write transaction."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from dpunion.errors import DamagedLedger
from dpunion.ledger.amounts import Amounts
from dpunion.ledger.events import NO_HASH, BrokenChain, Event, Kind
from dpunion.ledger.store import APPEND, LAST_ROWS, Session


def append(
    session: Session,
    kind: Kind,
    dataset: str,
    amounts: Amounts,
    *,
    entry: int = 0,
    release_fingerprint: str = "",
    details: dict[str, Any],
) -> Event:
    """Add the next row of the chain, after checking that the last one follows from the one before it."""
    last = [_read(row) for row in session.run(LAST_ROWS)]
    before = last[1].hash if len(last) == 2 else NO_HASH
    if last and last[0].hash != last[0].hash_after(before):
        raise DamagedLedger(
            f"The last row of the ledger ({last[0].sequence}) was altered.", "Run `dpunion ledger verify`."
        )
    event = Event(
        sequence=last[0].sequence + 1 if last else 1,
        kind=kind,
        dataset=dataset,
        entry=entry,
        amounts=amounts,
        fingerprint=release_fingerprint,
        details=json.dumps(details, separators=(",", ":")),
        written=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    )
    values = event.row()[:-1]
    chained = Event.from_row((*values, event.hash_after(last[0].hash if last else NO_HASH)))
    session.run(APPEND, *chained.row())
    return chained


def _read(row: tuple[Any, ...]) -> Event:
    try:
        return Event.from_row(row)
    except BrokenChain as broken:
        reason = str(broken)
    raise DamagedLedger(f"The last rows of the ledger are wrong: {reason}.", "Run `dpunion ledger verify`.")
