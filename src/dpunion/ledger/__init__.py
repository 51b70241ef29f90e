"""The ledger: how much of each dataset's privacy budget is spent, stored for good, and exact under many writers.

amounts.py    budgets as whole numbers, rounded to the private side
accounts.py   the caps of a dataset and the cost of a release, additive or tight (docs/ledger.md has the proofs)
schedules.py  when releases are made, and the part of the caps that each gets; which release is due
events.py     the rows, a hash chain, and the state that they give; what a database must offer
sqlite.py     a ledger in a file; postgres.py: in a PostgreSQL database
ledgers.py    Ledger and Reservation: reserve before reading, settle after writing; a crash counts as spent
"""

from __future__ import annotations

from dpunion.ledger.amounts import Amounts, Composition
from dpunion.ledger.events import Account, Entry, EntryState, Overview
from dpunion.ledger.fingerprints import fingerprint, is_intact
from dpunion.ledger.ledgers import Ledger, Reservation, Verification
from dpunion.ledger.schedules import Schedule as Schedule

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
