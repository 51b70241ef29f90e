"""What a ledger's address means: a file, or a PostgreSQL database."""

from __future__ import annotations

import os
from pathlib import Path

from dpunion.addresses import POSTGRESQL, Address
from dpunion.errors import BadParameter
from dpunion.ledger.postgres import PostgresStore
from dpunion.ledger.sqlite import SqliteStore
from dpunion.ledger.store import Store


def store_at(where: str | os.PathLike[str]) -> Store:
    """Return the database that an address names.

    Guarantees:
    - what looks like a connection, but is of no known form, is refused without being repeated: it may hold a password,
      and a file of that name would be a budget of its own.
    """
    text = os.fspath(where).strip()
    address = Address.of(text)
    rest = text.partition(":")[2]
    if address.scheme in POSTGRESQL and rest.startswith("//"):
        return PostgresStore(f"postgresql:{rest}")
    if address.scheme or not address.is_known or set("=@").intersection(text):
        raise BadParameter(
            "The ledger's address is neither a path nor of the form postgresql://user@host/database. It is not "
            "repeated here, as it may hold a password.",
            "Correct the address, or choose a path without '://', '=' and '@'.",
        )
    return SqliteStore(Path(where))
