"""What a database's failure means and what to do about it, from its code or class alone: its texts quote values."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dpunion.errors import BadSource, DamagedSource

CODE = re.compile(r"[0-9A-Z]{5}")
TRY_IT = "Try the query in the database's own shell, which says more than may be repeated here."
CONNECTING = (
    ("authentication failed", "28P01"),
    ("no password supplied", "28P01"),
    ("does not exist", "3D000"),
    ("no pg_hba.conf entry", "28000"),
    ("percent-encoded", "URL"),
    ("definition of service", "service"),
)
"""Phrases in libpq's messages about a connection, which has no code yet when it fails."""

SQLITE = (
    ("disk image is malformed", "SQLITE_CORRUPT"),
    ("not a database", "SQLITE_NOTADB"),
    ("is locked", "SQLITE_BUSY"),
)
"""Phrases in SQLite's messages, whose codes its driver leaves out."""

REASONS: tuple[tuple[str, type[BadSource], str, str], ...] = (
    ("08", BadSource, "lost the connection", "Try again; check the network and the server's log."),
    ("22", DamagedSource, "met a value that the query cannot handle", TRY_IT),
    ("25006", BadSource, "was asked to write", "Ask for rows only: one select."),
    (
        "28",
        BadSource,
        "refused the role or its password",
        "Check PGUSER, PGPASSWORD, ~/.pgpass and the server's pg_hba.conf.",
    ),
    (
        "3D000",
        BadSource,
        "or the role is not there",
        "Check the database and the role in the URL, PGDATABASE and PGUSER.",
    ),
    ("42501", BadSource, "may not be read by this role", "Ask for the SELECT permission."),
    ("42703", BadSource, "knows no column of a name in the query", f"Check the names of columns. {TRY_IT}"),
    ("42P01", BadSource, "knows no table of a name in the query", f"Check the names of tables. {TRY_IT}"),
    (
        "42",
        BadSource,
        "does not understand the query",
        f"Check its spelling, and the names of tables and columns. {TRY_IT}",
    ),
    ("53", BadSource, "is out of space, memory or connections", "Try again later, or ask for fewer columns."),
    ("57014", BadSource, "cancelled the query, probably for its time", "Check statement_timeout."),
    ("57", BadSource, "is shutting down or starting", "Try again later."),
    ("URL", BadSource, "cannot be found: the URL is not well-formed", "Percent-encode what is special in it."),
    ("service", BadSource, "cannot be found: there is no such service", "Check PGSERVICEFILE and ~/.pg_service.conf."),
    ("connect", BadSource, "cannot be reached", "Check host and port, and that the server is running."),
    # SQLite's and DuckDB's
    ("SQLITE_BUSY", BadSource, "is locked", "Try again when the program that is writing to it has ended."),
    ("SQLITE", DamagedSource, "is damaged", "Write or copy it again from its origin; nothing of it was used."),
    ("ProgrammingError", BadSource, "does not understand the query", f"Check its spelling and its names. {TRY_IT}"),
    ("ParserException", BadSource, "does not understand the query", f"Check its spelling. {TRY_IT}"),
    ("BinderException", BadSource, "does not understand the query", f"Check the names of columns. {TRY_IT}"),
    (
        "CatalogException",
        BadSource,
        "does not understand the query",
        f"Check the names of tables; files that were named are the table 'source'. {TRY_IT}",
    ),
    ("ConversionException", DamagedSource, "met a value that the query cannot handle", TRY_IT),
    ("OutOfRangeException", DamagedSource, "met a value that the query cannot handle", TRY_IT),
    (
        "PermissionException",
        BadSource,
        "may read nothing but what was named as the source",
        "Name files as the source, and select from the table 'source'; leave extensions out of the query.",
    ),
    (
        "OutOfMemoryException",
        BadSource,
        "needs more memory than there is",
        "Store the query's result as a table first.",
    ),
    ("IOException", BadSource, "cannot be opened", "End the program that is writing to it; or write it again."),
)


@dataclass(frozen=True, slots=True)
class Failure:
    """What may be reported of an exception of a driver: its SQLSTATE, a word of ours, or its class (public)."""

    code: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Return what may be reported of an exception."""
        state = getattr(error, "sqlstate", None) or ""
        if CODE.fullmatch(state):
            return cls(state)
        text = str(error)
        if "Failed to connect" in text:
            return cls(next((code for phrase, code in CONNECTING if phrase in text), "connect"))
        # subtle: the driver appends the query, in which these phrases may stand too.
        message = text.partition("\nquery:")[0]
        return cls(next((code for phrase, code in SQLITE if phrase in message), type(error).__name__))


def explain_failure(failure: Failure, where: str) -> BadSource:
    """Return our error for a failure."""
    for start, kind, what, remedy in REASONS:
        if failure.code.startswith(start):
            return kind(f"{where[0].upper()}{where[1:]} {what} ({failure.code}).", remedy)
    return DamagedSource(f"The query on {where} failed ({failure.code}).", TRY_IT)
