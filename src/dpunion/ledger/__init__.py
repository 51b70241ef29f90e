"""The ledger: how much of each dataset's privacy budget is spent, kept for good and exact under many writers.

amounts.py    budgets as whole numbers, rounded to the private side
accounts.py   what a dataset may spend and what a release costs, additive or tight (docs/ledger.md has the proofs)
events.py     the rows: a hash chain, and what replaying it gives
store.py      what a database must offer, and the one table; sqlite.py and postgres.py offer it
overviews.py  all of it for people: what is left and how far it reaches
ledgers.py    Ledger and Reservation: reserve before reading, settle after writing, a crash counts as spent
"""

from __future__ import annotations

from dpunion.ledger.amounts import Amounts, Composition
from dpunion.ledger.events import Account, Entry, EntryState, Overview
from dpunion.ledger.fingerprints import fingerprint, is_intact
from dpunion.ledger.ledgers import Ledger, Reservation, Verification

__all__ = [
    "Account",
    "Amounts",
    "Composition",
    "Entry",
    "EntryState",
    "Ledger",
    "Overview",
    "Reservation",
    "Verification",
    "fingerprint",
    "is_intact",
]
