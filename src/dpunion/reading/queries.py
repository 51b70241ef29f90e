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
    "INTERSECT": r"\bintersect\b",
    "EXCEPT": r"\bexcept\b(?!\s*\()",
}
AGGREGATES = re.compile(
    r"\b(?:any_value|approx_\w+|arg_(?:max|min)\w*|array_agg|avg|bit_(?:and|or|xor)|bitstring_agg|bool_(?:and|or)"
    r"|collect_(?:list|set)|corr|count|count_?if|count_star|covar_\w+|entropy|every|f?avg|first|fsum|geomean|group_concat"
    r"|histogram|json_(?:agg|group_\w+|object_agg)|jsonb_(?:agg|object_agg)|kurtosis\w*|last|list|listagg|mad|max|max_by"
    r"|mean|median|min|min_by|mode|percentile\w*|product|quantile\w*|regr_\w+|sem|skewness|std|stddev\w*|string_agg"
    r"|sum|total|var_\w+|variance|xmlagg)\s*\(",
    re.IGNORECASE,
)
TAKES_FROM = {"extract", "trim", "substring", "overlay"}
"""Functions whose arguments have a FROM, as in extract(year from day)."""
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
            f"The query has {' and '.join(found)}. If one person's rows can affect other people's rows through "
            "it, nothing is guaranteed: each row that a query returns may depend only on rows of the same person.",
            QueryMixesPeople,
        )


def without_strings(query: str) -> str:
    """Return a query without strings, quoted names and comments, as the SQL standard reads them."""
    return HIDDEN[0].sub(" ' ", query)


def mixing_clauses(query: str) -> tuple[str, ...]:
    """Return what in a query can make people's rows depend on each other; strings, names and comments do not count."""
    texts = [hidden.sub(" ' ", query) for hidden in HIDDEN]
    found = [name for name, clause in CLAUSES.items() if any(re.search(clause, one, re.IGNORECASE) for one in texts)]
    if "GROUP BY" not in found and any(map(AGGREGATES.search, texts)):
        found.append("an aggregate function")
    scanned = [_scan_tables(one) for one in texts]
    if any(lists_several for _, lists_several in scanned):
        found.append("several tables in FROM")
    if any(len(re.findall(r"\bselect\b", one, re.IGNORECASE)) > 1 for one in texts):
        found.append("a second SELECT")
    elif any(count > 1 for count, _ in scanned):
        found.append("a second FROM")
    return tuple(found)


def _scan_tables(text: str) -> tuple[int, bool]:
    """Return how many FROMs name tables, and whether one lists several; inside brackets, FROM counts for itself."""
    count, lists_several = 0, False
    listing, callers, before = [False], [""], ""
    for token in TOKEN.findall(text):
        word = token.lower()
        if word == "(":
            listing.append(False)
            callers.append(before)
        elif word == ")":
            listing, callers = listing[:-1] or [False], callers[:-1] or [""]
        elif word == "from" and callers[-1] not in TAKES_FROM:
            count += 1
            listing[-1] = True
        elif word in AFTER_TABLES:
            listing[-1] = False
        elif word == "," and listing[-1]:
            lists_several = True
        before = word
    return count, lists_several
