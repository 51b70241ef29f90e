"""What a database's failure means and what to do about it, from its code or class alone: its texts quote values."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dpunion.errors import BadSource, DamagedSource
from dpunion.reading.queries import without_strings

CODE = re.compile(r"[0-9A-Z]{5}")
TRY_IT = "Try the query in the database's own shell, which shows more than dpunion may repeat here."
CONNECTING = (
    ("authentication failed", "28P01"),
    ("no password supplied", "28P01"),
    ("does not exist", "3D000"),
    ("no pg_hba.conf entry", "28000"),
    ("percent-encoded", "URL"),
    ("definition of service", "service"),
)
"""Phrases in libpq's messages about a connection, which has no code yet when it fails."""

UNKNOWN_NAMES = (
    re.compile(
        r"\b(column|table|relation|function|type)(?: with name)? \"?([\w.]+)\"?(?:\([^)]*\))?"
        r" (?:not found|was not found|does not exist)",
        re.IGNORECASE,
    ),
    re.compile(r"\bno such (column|table|function): ([\w.]+)"),
    re.compile(r"\bdoes not have a (column) named \"(\w+)\""),
)
"""How databases tell which name of a query they do not know: its kind, and the name."""
SYNTAX = re.compile(r"\bnear \"(\w+)\"")

SQLITE = (
    ("no such ", "ProgrammingError"),
    ("disk image is malformed", "SQLITE_CORRUPT"),
    ("not a database", "SQLITE_NOTADB"),
    ("is locked", "SQLITE_BUSY"),
)
"""Phrases in SQLite's messages, whose codes its driver leaves out."""

MISTAKE = "cannot be understood"
"""What is said of the query itself; all else is said of the database."""
REASONS: tuple[tuple[str, type[BadSource], str, str], ...] = (
    ("08", BadSource, "lost the connection", "Try again; check the network and the server's log."),
    ("22", DamagedSource, "found a value that the query cannot handle", TRY_IT),
    ("25006", BadSource, "was asked to write", "Use a single select that only reads rows."),
    (
        "28",
        BadSource,
        "refused the role or its password",
        "Check PGUSER, PGPASSWORD, ~/.pgpass and the server's pg_hba.conf.",
    ),
    (
        "3D000",
        BadSource,
        "or the role does not exist",
        "Check the database and the role in the URL, PGDATABASE and PGUSER.",
    ),
    ("42501", BadSource, "may not be read by this role", "Ask for the SELECT permission."),
    ("42703", BadSource, MISTAKE, f"Check the names of columns. {TRY_IT}"),
    ("42P01", BadSource, MISTAKE, f"Check the names of tables. {TRY_IT}"),
    (
        "42",
        BadSource,
        MISTAKE,
        f"Check its spelling, and the names of tables and columns. {TRY_IT}",
    ),
    ("53", BadSource, "is out of space, memory or connections", "Try again later, or select fewer columns."),
    ("57014", BadSource, "cancelled the query, probably because it took too long", "Check statement_timeout."),
    ("57", BadSource, "is shutting down or starting", "Try again later."),
    ("URL", BadSource, "cannot be found: the URL is not well-formed", "Percent-encode special characters in it."),
    ("service", BadSource, "cannot be found: there is no such service", "Check PGSERVICEFILE and ~/.pg_service.conf."),
    ("connect", BadSource, "cannot be reached", "Check host and port, and that the server is running."),
    # SQLite's and DuckDB's
    ("SQLITE_BUSY", BadSource, "is locked", "Try again when no other program is writing to it."),
    ("SQLITE", DamagedSource, "is damaged", "Write or copy it again from its origin; dpunion used nothing of it."),
    ("ProgrammingError", BadSource, MISTAKE, f"Check its spelling and its names. {TRY_IT}"),
    ("ParserException", BadSource, MISTAKE, f"Check its spelling. {TRY_IT}"),
    ("BinderException", BadSource, MISTAKE, f"Check the names of columns. {TRY_IT}"),
    (
        "CatalogException",
        BadSource,
        MISTAKE,
        f"Check the names of tables; files that were named are the table 'source'. {TRY_IT}",
    ),
    ("ConversionException", DamagedSource, "found a value that the query cannot handle", TRY_IT),
    ("OutOfRangeException", DamagedSource, "found a value that the query cannot handle", TRY_IT),
    (
        "PermissionException",
        BadSource,
        "may read only what was named as the source",
        "Name files as the source, and select from the table 'source'; leave extensions out of the query.",
    ),
    (
        "OutOfMemoryException",
        BadSource,
        "needs more memory than is available",
        "Store the query's result as a table first.",
    ),
    ("IOException", BadSource, "cannot be opened", "End the program that is writing to it, or write the file again."),
)


@dataclass(frozen=True, slots=True)
class Failure:
    """What may be reported of an exception of a driver (public).

    code: its SQLSTATE, a word of ours, or its class. mistake: what is wrong with the query, if it tells.
    """

    code: str
    mistake: str = ""

    @classmethod
    def of(cls, error: Exception, query: str = "") -> Failure:
        """Return what may be reported of an exception; query: what the database looked at and did not run."""
        state = getattr(error, "sqlstate", None) or ""
        text = str(error)
        # subtle: the driver appends the query, in which these phrases may stand too.
        message = text.partition("\nquery:")[0]
        mistake = mistake_in(query, message) if query else ""
        if CODE.fullmatch(state):
            return cls(state, mistake)
        if "Failed to connect" in text:
            return cls(next((code for phrase, code in CONNECTING if phrase in text), "connect"))
        return cls(next((code for phrase, code in SQLITE if phrase in message), type(error).__name__), mistake)


def mistake_in(query: str, message: str) -> str:
    """Return what a database's message says is wrong with a query; empty where it does not tell.

    Guarantees: a word is repeated only if it stands in the query, outside of strings and comments.
    """
    found = next(filter(None, (pattern.search(message) for pattern in (*UNKNOWN_NAMES, SYNTAX))), None)
    if found is None or not re.search(
        rf"(?<!\w){re.escape(found[found.lastindex or 0])}(?!\w)", without_strings(query)
    ):
        return ""
    if found.lastindex == 1:
        return f"cannot be understood at {found[1]!r}"
    return f"names the {found[1].lower().replace('relation', 'table')} {found[2]!r}, which does not exist"


def explain_failure(failure: Failure, where: str) -> BadSource:
    """Return our error for a failure."""
    query = where if where.startswith("the query") else f"the query on {where}"
    for start, kind, what, remedy in REASONS:
        if failure.code.startswith(start):
            said = f"{query} {failure.mistake or what}" if what is MISTAKE else f"{where} {what}"
            return kind(f"{said[0].upper()}{said[1:]} ({failure.code}).", remedy)
    return DamagedSource(f"T{query[1:]} failed ({failure.code}).", TRY_IT)
