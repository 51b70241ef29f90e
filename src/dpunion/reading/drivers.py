"""PostgreSQL, SQLite and DuckDB: open them for reading only, describe a query, read its result, explain failures.

Errors use only the code or class of a database's failure, because its text quotes values.
"""

from __future__ import annotations

import contextlib
import functools
import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol, Self, TypeVar

import pyarrow as pa

from dpunion.buffers import pc
from dpunion.errors import BadParameter, BadSource, DamagedSource, DpunionError, ForeignErrors, UnsupportedType

T = TypeVar("T")

SQLITE_ROWS, DUCKDB_ROWS = 1 << 15, 1 << 16
NEEDS_EXTRA = "Install it: pip install 'dpunion[databases]'."
AS_TEXT = "Cast it to text in the query, for example cast({} as text)."

# PostgreSQL's types with one text for each value. Excluded are char(n), which ignores trailing blanks, money and oid,
# which the driver converts to integers, and numeric, where 1.0 and 1.00 are the same value.
POSTGRESQL_TYPES = {"text", "character varying", "name", "smallint", "integer", "bigint", "date", "boolean"}
POSTGRESQL_TYPES |= {"timestamp without time zone", "timestamp with time zone"}  # with a granularity

# In SQLite each value has its own type.
SQLITE_KINDS = {1: pa.string(), 2: pa.int64(), 3: pa.float64(), 4: pa.binary()}
SQLITE_KIND = (
    "case typeof({0}) when 'null' then 0 when 'text' then 1 when 'integer' then 2 when 'real' then 3 else 4 end"
)

NAME = r"(?:[A-Za-z_][A-Za-z0-9_]*|\"[^\"]+\")"
PLAIN_TABLE = re.compile(rf"select\s+(?:\*|{NAME}(?:\s*,\s*{NAME})*)\s+from\s+({NAME}(?:\.{NAME})*)\s*", re.IGNORECASE)

DUCKDB_CONFIGURATION = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
    "python_enable_replacements": "false",  # a query must not find our own variables
    "temp_directory": "",  # write nothing private to disk
}
# Turn the progress bar off, because standard output is for the release. After that, lock all settings.
DUCKDB_SETTINGS = "set enable_progress_bar = false; set lock_configuration = true"

# Standard strings end at a quote; those of Spark (and E'...') do not end at a quote after a backslash. Both count.
STANDARD = r"""'(?:[^']|'')*'|"(?:[^"]|"")*\""""
ESCAPED = r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\""""
OTHERS = r"`(?:[^`]|``)*`|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$|--[^\n]*|/\*.*?\*/"
HIDDEN = [re.compile(f"{strings}|{OTHERS}", re.DOTALL) for strings in (STANDARD, ESCAPED)]

CODE = re.compile(r"[0-9A-Z]{5}")
CHECK_ROLE = "Check PGUSER, PGPASSWORD, ~/.pgpass and the server's pg_hba.conf."
CHECK_NAMES = "Check the database and the role in the URL, PGDATABASE and PGUSER."
CHECK_TABLES = "Check the names of tables; files that were named are the table 'source'."
NAME_FILES = "Name files as the source, and select from the table 'source'; leave extensions out of the query."
STORE_RESULT = "Store the query's result as a table first."
TRY_IT = "Try the query in the database's own shell, which shows more than dpunion may repeat here."
CONNECTING = (
    ("authentication failed", "28P01"),
    ("no password supplied", "28P01"),
    ("does not exist", "3D000"),
    ("no pg_hba.conf entry", "28000"),
    ("percent-encoded", "URL"),
    ("definition of service", "service"),
)
"""Phrases in libpq's messages about a failed connection, which has no code yet."""

UNKNOWN_NAMES = (
    re.compile(
        r"\b(column|table|relation|function|type)(?: with name)? \"?([\w.]+)\"?(?:\([^)]*\))?"
        r" (?:not found|was not found|does not exist)",
        re.IGNORECASE,
    ),
    re.compile(r"\bno such (column|table|function): ([\w.]+)"),
    re.compile(r"\bdoes not have a (column) named \"(\w+)\""),
)
"""How databases report an unknown name of a query: its kind, and the name."""
SYNTAX = re.compile(r"\bnear \"(\w+)\"")

SQLITE = (
    ("no such ", "ProgrammingError"),
    ("disk image is malformed", "SQLITE_CORRUPT"),
    ("not a database", "SQLITE_NOTADB"),
    ("is locked", "SQLITE_BUSY"),
)
"""Phrases in SQLite's messages: its driver leaves out the codes."""

MISTAKE = "cannot be understood"
"""Only this reason is about the query; all others are about the database."""
UNKNOWN_VALUE = "found a value that the query cannot handle"
REASONS: tuple[tuple[str, type[BadSource], str, str], ...] = (
    ("08", BadSource, "lost the connection", "Try again; check the network and the server's log."),
    ("22", DamagedSource, UNKNOWN_VALUE, TRY_IT),
    ("25006", BadSource, "was asked to write", "Use a single select that only reads rows."),
    ("28", BadSource, "refused the role or its password", CHECK_ROLE),
    ("3D000", BadSource, "or the role does not exist", CHECK_NAMES),
    ("42501", BadSource, "may not be read by this role", "Ask for the SELECT permission."),
    ("42703", BadSource, MISTAKE, f"Check the names of columns. {TRY_IT}"),
    ("42P01", BadSource, MISTAKE, f"Check the names of tables. {TRY_IT}"),
    ("42", BadSource, MISTAKE, f"Check its spelling, and the names of tables and columns. {TRY_IT}"),
    ("53", BadSource, "is out of space, memory or connections", "Try again later, or select fewer columns."),
    ("57014", BadSource, "cancelled the query, probably because it took too long", "Check statement_timeout."),
    ("57", BadSource, "is shutting down or starting", "Try again later."),
    ("URL", BadSource, "cannot be found: the URL is not well-formed", "Percent-encode special characters in it."),
    ("service", BadSource, "cannot be found: there is no such service", "Check PGSERVICEFILE and ~/.pg_service.conf."),
    ("connect", BadSource, "cannot be reached", "Check host and port, and that the server is running."),
    # SQLite's and DuckDB's
    ("SQLITE_BUSY", BadSource, "is locked", "Try again when no other program is writing to it."),
    ("SQLITE", DamagedSource, "is damaged", "Write or copy it again from its origin; dpunion used none of it."),
    ("ProgrammingError", BadSource, MISTAKE, f"Check its spelling and its names. {TRY_IT}"),
    ("ParserException", BadSource, MISTAKE, f"Check its spelling. {TRY_IT}"),
    ("BinderException", BadSource, MISTAKE, f"Check the names of columns. {TRY_IT}"),
    ("CatalogException", BadSource, MISTAKE, f"{CHECK_TABLES} {TRY_IT}"),
    ("ConversionException", DamagedSource, UNKNOWN_VALUE, TRY_IT),
    ("OutOfRangeException", DamagedSource, UNKNOWN_VALUE, TRY_IT),
    ("PermissionException", BadSource, "may read only what was named as the source", NAME_FILES),
    ("OutOfMemoryException", BadSource, "needs more memory than is available", STORE_RESULT),
    ("IOException", BadSource, "cannot be opened", "End the program that is writing to it, or write the file again."),
)
"""What a failure means: the beginning of its code or class, our error, what is wrong, and the remedy."""


class QuerySession(Protocol):
    """An open connection, closed when the `with` block ends. A subclass describes and reads queries.

    Guarantees: errors repeat nothing that the database said, only its code or class.
    """

    connection: Any
    where: str

    def __init__(self, connection: Any, where: str) -> None:
        self.connection = connection
        self.where = where

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        with contextlib.suppress(Exception):
            self.connection.close()

    def names(self, query: str) -> list[str]:
        """Return the names of the result's columns, without running the query."""

    def types(self, query: str, width: int, positions: tuple[int, ...]) -> list[Any]:
        """Return the Arrow types of some columns of the result, without running the query; None when rows tell."""

    def batches(self, query: str, width: int, positions: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
        """Yield some columns of the result as pa.Arrays, in batches of limited size."""


def ask(call: Callable[[], T], where: str, query: str = "") -> T:
    """Return what `call` returns; an exception becomes our error.

    Guarantees:
    - the error has the database's code or class, and no cause, context or other traceback;
    - with a query, which must not have been run, the error also names the word that the database does not know.
    """

    def explain(failure: Exception) -> DpunionError:
        if isinstance(failure, ImportError):
            return BadParameter(f"To read {where}, dpunion needs a package that is not installed.", NEEDS_EXTRA)
        return explain_failure(Failure.of(failure, query), where)

    with ForeignErrors(explain, where=where):
        return call()


def ask_each(reader: Any, where: str) -> Iterator[Any]:
    """Yield the batches of a reader, calling `ask` for each."""
    end = object()
    while (batch := ask(lambda: next(reader, end), where)) is not end:
        yield batch


def reader_of(cursor: Any) -> Any:
    """Return the reader of a cursor's result: if possible the driver manager's own, whose errors have a code."""
    own = getattr(getattr(cursor, "_results", None), "reader", None)
    return own if hasattr(own, "read_next_batch") else cursor.fetch_record_batch()


def wrap_query(query: str, width: int, positions: tuple[int, ...]) -> str:
    """Return a query for some columns of a query's result, whatever their names."""
    names = ", ".join(f"c{i}" for i in range(width))
    some = ", ".join(f"c{i}" for i in positions)
    # subtle: the line break ends a comment at the end of the query.
    return f"select {some} from (\n{query}\n) as q ({names})"  # noqa: S608 - it is the user's own query


def connect_postgresql(url: str, where: str) -> QuerySession:
    """Connect to a PostgreSQL server by libpq's rules through ADBC; COPY streams the results."""
    import adbc_driver_postgresql.dbapi

    return PostgreSQLSession(adbc_driver_postgresql.dbapi.connect(url), where)


class PostgreSQLSession(QuerySession):
    """A transaction in PostgreSQL. Guarantees: it is read-only; a type without one text for each value is refused."""

    def __enter__(self) -> Self:
        for statement in ("set transaction read only", "set client_encoding to 'UTF8'"):
            with self.connection.cursor() as cursor:
                ask(functools.partial(cursor.execute, statement), self.where)
        return self

    def names(self, query: str) -> list[str]:
        schema = self._schema(query)
        return ask(lambda: list(schema.names), self.where)

    def types(self, query: str, width: int, positions: tuple[int, ...]) -> list[Any]:
        """Prepare the query.

        For a plain table the server's own types are checked too. For other queries, and for views, the server would
        have to plan the query, which may call functions that read rows: `batches` checks those types.
        """
        table = PLAIN_TABLE.fullmatch(query)
        if table is not None:
            name = table[1].replace("'", "''")
            # A view has another kind.
            asked = f"select count(*) from pg_class where oid = to_regclass('{name}') and relkind in ('r', 'p')"  # noqa: S608 - a name of the user's query
            if self._fetch_row(asked)[0]:
                self._check_types(query, width, positions)
        types = list(self._schema(wrap_query(query, width, positions)).types)
        for position, type_ in zip(positions, types, strict=True):
            # The driver marks types that Arrow does not have.
            if hasattr(type_, "type_name"):
                self._refuse_type(self.names(query)[position], type_.type_name)
        return types

    def _fetch_row(self, query: str) -> tuple[Any, ...]:
        with self.connection.cursor() as cursor:
            ask(lambda: cursor.execute(query), self.where)
            return tuple(ask(cursor.fetchone, self.where))

    def _check_types(self, query: str, width: int, positions: tuple[int, ...]) -> None:
        """Refuse types that do not have one text for each value, by the server's own names of types."""
        none = f"select * from (\n{wrap_query(query, width, positions)}\n) as s limit 0"  # noqa: S608 - it is the user's own query
        names = [f"t{i}" for i in range(len(positions))]
        types = ", ".join(f"pg_typeof({name})::text" for name in names)
        # The join makes one row from zero rows of the result.
        asked = f"select {types} from (values (1)) as one left join ({none}) as q ({', '.join(names)}) on true"  # noqa: S608 - as above
        for position, type_ in zip(positions, self._fetch_row(asked), strict=True):
            if type_.removesuffix("[]") not in POSTGRESQL_TYPES:
                self._refuse_type(self.names(query)[position], type_)

    def _refuse_type(self, name: str, type_: str) -> NoReturn:
        raise UnsupportedType(
            f"Column {name!r} of {self.where} has type {type_}: values of this type have no unique text form.",
            AS_TEXT.format(name),
        )

    def batches(self, query: str, width: int, positions: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
        self._check_types(query, width, positions)
        with self.connection.cursor() as cursor:
            ask(lambda: cursor.execute(wrap_query(query, width, positions)), self.where)
            for batch in ask_each(ask(lambda: reader_of(cursor), self.where), self.where):
                yield tuple(batch.columns)

    def _schema(self, query: str) -> Any:
        with self.connection.cursor() as cursor:
            return ask(lambda: cursor.adbc_execute_schema(query), self.where, query)


def connect_sqlite(path: Path, where: str) -> QuerySession:
    """Open a SQLite file through ADBC in a mode that cannot write."""
    import adbc_driver_sqlite.dbapi

    address = f"file:{urllib.parse.quote(str(path.resolve()))}?mode=ro"
    return SQLiteSession(adbc_driver_sqlite.dbapi.connect(address), where)


class SQLiteSession(QuerySession):
    """A connection to a SQLite file.

    Each value has a type, and the driver takes a column's from the first batch: so each text is selected with its type.

    Guarantees: the type of one row never changes the value of another.
    """

    def names(self, query: str) -> list[str]:
        """Look up the names in a temporary view.

        subtle: SQLite may run parts of a query before it applies `limit 0`; for a view it only looks up the names.
        """
        with self.connection.cursor() as cursor:
            view = f"create temp view dpunion_query as select * from (\n{query}\n)"  # noqa: S608 - it is the user's own query
            ask(lambda: cursor.execute(view), self.where, query)
            try:
                ask(lambda: cursor.execute("select name from pragma_table_info('dpunion_query')"), self.where, query)
                return original_names([name for (name,) in ask(cursor.fetchall, self.where, query)])
            finally:
                ask(lambda: cursor.execute("drop view temp.dpunion_query"), self.where)

    def types(self, query: str, width: int, positions: tuple[int, ...]) -> list[Any]:
        del query, width
        return [None for _ in positions]  # only the rows tell

    def batches(self, query: str, width: int, positions: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
        """Run the query; all values of a column in a batch must have one type."""
        names = self.names(query)
        pairs = ", ".join(f"{SQLITE_KIND.format(f'c{i}')}, coalesce(cast(c{i} as text), '')" for i in positions)
        columns = ", ".join(f"c{i}" for i in range(width))
        asked = f"with q ({columns}) as (\n{query}\n) select {pairs} from q"  # noqa: S608 - as above
        with self.connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(SQLITE_ROWS)})
            ask(lambda: cursor.execute(asked), self.where)
            for batch in ask_each(ask(lambda: reader_of(cursor), self.where), self.where):
                yield tuple(
                    self._typed(batch.column(2 * i), batch.column(2 * i + 1), names[position])
                    for i, position in enumerate(positions)
                )

    def _typed(self, kinds: Any, texts: Any, name: str) -> Any:
        """Return a column with the type of its values; nulls may become empty texts, which mean the same."""
        found = [kind for kind in pc.unique(kinds).to_pylist() if kind != 0]
        if not found:
            return pa.nulls(len(texts))
        if len(found) > 1:
            raise UnsupportedType(
                f"Mixed types: column {name!r} of {self.where} has values of several types.", AS_TEXT.format(name)
            )
        type_ = SQLITE_KINDS[found[0]]
        if pa.types.is_string(type_):
            return texts
        if pa.types.is_integer(type_):
            return pc.if_else(pc.equal(kinds, 0), None, texts).cast(type_)
        return pa.nulls(len(texts), type_)  # this type is refused


def original_names(names: list[str]) -> list[str]:
    """Undo the numbers that SQLite adds to columns of the same name: word, word:1, word:2."""
    bases = [name.rpartition(":") for name in names]
    lowered = {name.lower() for name in names}
    return [
        base if number.isdigit() and base.lower() in lowered else name
        for name, (base, _, number) in zip(names, bases, strict=True)
    ]


def connect_duckdb(path: Path | None, where: str, tables: Mapping[str, Any]) -> QuerySession:
    """Open a DuckDB file for reading only, or a database in memory with these tables; then lock its settings.

    Guarantees: a query reads no other file, loads no extension, changes no setting and writes nothing to disk.
    """
    import duckdb

    place = ":memory:" if path is None else str(path)
    connection = duckdb.connect(place, read_only=path is not None, config=dict(DUCKDB_CONFIGURATION))
    for name, table in tables.items():
        connection.register(name, table)
    connection.execute(DUCKDB_SETTINGS)
    return DuckDBSession(connection, where)


class DuckDBSession(QuerySession):
    """A connection to a DuckDB file. Guarantees: a query whose column names would come from rows is refused."""

    def names(self, query: str) -> list[str]:
        return [name for name, _ in self._describe(query)]

    def types(self, query: str, width: int, positions: tuple[int, ...]) -> list[Any]:
        del width
        described = self._describe(query)
        nulls = ", ".join(f"cast(null as {described[i][1]})" for i in positions)
        none = f"select {nulls} limit 0"
        return list(ask(lambda: self.connection.sql(none).to_arrow_table().schema.types, self.where))

    def _describe(self, query: str) -> list[tuple[str, str]]:
        """Return the names and types of the result's columns, in DuckDB's spelling of types.

        subtle: to bind a PIVOT without a list of values, DuckDB runs it to find the values, which become column names.
        """
        statements = ask(lambda: self.connection.extract_statements(f"describe (\n{query}\n)"), self.where, query)
        if any(statement.type.name == "MULTI" for statement in statements):
            raise BadParameter(
                "The query pivots by values from the rows, which would become names of columns.",
                "List the values in the query, as in PIVOT t ON v IN ('a', 'b'), or read the rows without a pivot.",
            )
        rows = ask(lambda: self.connection.sql(f"describe (\n{query}\n)").fetchall(), self.where, query)
        return [(row[0], row[1]) for row in rows]

    def batches(self, query: str, width: int, positions: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
        asked = wrap_query(query, width, positions)
        reader = ask(lambda: self.connection.sql(asked).to_arrow_reader(DUCKDB_ROWS), self.where)
        for batch in ask_each(reader, self.where):
            yield tuple(batch.columns)


@dataclass(frozen=True, slots=True)
class Failure:
    """What errors may repeat of a driver's exception (public).

    code: its SQLSTATE, a word of ours, or its class. mistake: what is wrong with the query, if the message says it.
    """

    code: str
    mistake: str = ""

    @classmethod
    def of(cls, error: Exception, query: str = "") -> Failure:
        """Return what errors may repeat of an exception; query: what the database parsed but did not run."""
        state = getattr(error, "sqlstate", None) or ""
        text = str(error)
        # subtle: the driver appends the query, which may contain these phrases too.
        message = text.partition("\nquery:")[0]
        mistake = mistake_in(query, message) if query else ""
        if CODE.fullmatch(state):
            return cls(state, mistake)
        if "Failed to connect" in text:
            return cls(next((code for phrase, code in CONNECTING if phrase in text), "connect"))
        return cls(next((code for phrase, code in SQLITE if phrase in message), type(error).__name__), mistake)


def mistake_in(query: str, message: str) -> str:
    """Return what a database's message says is wrong with a query, or an empty text.

    Guarantees: a word is repeated only if the query contains it outside of strings and comments.
    """
    found = next(filter(None, (pattern.search(message) for pattern in (*UNKNOWN_NAMES, SYNTAX))), None)
    plain = HIDDEN[0].sub(" ' ", query)  # as the SQL standard reads it
    if found is None or not re.search(rf"(?<!\w){re.escape(found[found.lastindex or 0])}(?!\w)", plain):
        return ""
    if found.lastindex == 1:
        return f"cannot be understood at {found[1]!r}"
    return f"names the {found[1].lower().replace('relation', 'table')} {found[2]!r}, which does not exist"


def explain_failure(failure: Failure, where: str) -> BadSource:
    """Return our error for a failure."""
    query = where if where.startswith("the query") else f"the query on {where}"
    for start, kind, what, remedy in REASONS:
        if failure.code.startswith(start):
            text = f"{query} {failure.mistake or what}" if what is MISTAKE else f"{where} {what}"
            return kind(f"{text[0].upper()}{text[1:]} ({failure.code}).", remedy)
    return DamagedSource(f"T{query[1:]} failed ({failure.code}).", TRY_IT)
