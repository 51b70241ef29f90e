"""Queries that let people's rows depend on each other: what can be seen of it in their text, and a warning.

A query may keep, drop or change a row by that row, or by the same person's rows, alone. Where one person's rows decide
about another's, as with LIMIT, what is read is no longer a set of rows for each person, and nothing is guaranteed.
Views hide what they do, so a query without a finding may still be wrong.
"""

from __future__ import annotations

import re
import warnings

# Standard strings end at a quote, those of Spark (and E'...') not at one behind a backslash: both readings count.
STANDARD = r"""'(?:[^']|'')*'|"(?:[^"]|"")*\""""
ESCAPED = r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\""""
OTHERS = r"`(?:[^`]|``)*`|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$|--[^\n]*|/\*.*?\*/"
HIDDEN = [re.compile(f"{strings}|{OTHERS}", re.DOTALL) for strings in (STANDARD, ESCAPED)]
CLAUSES = {
    "LIMIT": r"\blimit\b",
    "OFFSET": r"\boffset\b",
    "FETCH": r"\bfetch\b",
    "HAVING": r"\bhaving\b",
    "QUALIFY": r"\bqualify\b",
    "OVER": r"\bover\b",
    "GROUP BY": r"\bgroup\s+by\b",
    "DISTINCT ON": r"\bdistinct\s+on\b",
    "TABLESAMPLE": r"\btablesample\b",
    "USING SAMPLE": r"\busing\s+sample\b",
    "PIVOT": r"\bpivot\b",
    "JOIN": r"\bjoin\b",
}
TOKEN = re.compile(r"\bdistinct\s+from\b|[\w$]+|[(),]", re.IGNORECASE)
AFTER_TABLES = {
    "where",
    "group",
    "having",
    "window",
    "qualify",
    "order",
    "limit",
    "union",
    "intersect",
    "except",
    "select",
}


class QueryMixesPeople(UserWarning):
    """A query looks as if it let one person's rows decide about other people's."""


def warn_of_mixing(query: str) -> None:
    """Warn of a query in which people's rows may depend on each other; the warning does not repeat it."""
    found = mixing_clauses(query)
    if found:
        # subtle: without stacklevel the warning has one place, so that Python shows it once.
        warnings.warn(  # noqa: B028
            f"The query has {' and '.join(found)}: if that lets one person's rows decide about other people's, nothing "
            "is guaranteed. A query may keep, drop or change a row by that row, or by the same person's rows, alone.",
            QueryMixesPeople,
        )


def mixing_clauses(query: str) -> tuple[str, ...]:
    """Return what in a query can make people's rows depend on each other; strings, names and comments do not count."""
    texts = [hidden.sub(" ' ", query) for hidden in HIDDEN]
    found = [name for name, clause in CLAUSES.items() if any(re.search(clause, one, re.IGNORECASE) for one in texts)]
    if any(_has_two_tables(one) for one in texts):
        found.append("several tables in FROM")
    if any(len(re.findall(r"\bselect\b", one, re.IGNORECASE)) > 1 for one in texts):
        found.append("a second SELECT")
    return tuple(found)


def _has_two_tables(text: str) -> bool:
    """Say whether a FROM lists several tables with commas; inside brackets, FROM counts for itself."""
    listing = [False]
    for token in TOKEN.findall(text):
        word = token.lower()
        if word == "(":
            listing.append(False)
        elif word == ")":
            listing = listing[:-1] or [False]
        elif word == "from":
            listing[-1] = True
        elif word in AFTER_TABLES:
            listing[-1] = False
        elif word == "," and listing[-1]:
            return True
    return False
