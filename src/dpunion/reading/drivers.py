"""The three databases: how each is opened for reading only, asked what a query gives, and read in batches."""

from __future__ import annotations

import contextlib
import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

import pyarrow as pa

from dpunion.buffers import pc
from dpunion.errors import BadParameter, DpunionError, ForeignErrors, UnsupportedType
from dpunion.reading.database_errors import Failure, explain_failure

T = TypeVar("T")

SQLITE_ROWS, DUCKDB_ROWS = 1 << 15, 1 << 16
NEEDS_EXTRA = "Install it: pip install 'dpunion[databases]'."
AS_TEXT = "Cast it to text in the query, for example cast({} as text)."

# PostgreSQL's types with one text for each value. Not char(n), whose trailing blanks mean nothing, nor money and oid,
# which the driver makes integers, nor numeric, where 1.0 and 1.00 are one value.
POSTGRESQL_TYPES = {"text", "character varying", "name", "smallint", "integer", "bigint", "date", "boolean"}
POSTGRESQL_TYPES |= {"timestamp without time zone", "timestamp with time zone"}  # which need a granularity

# What SQLite stores has a type in each row, not in each column.
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
    "temp_directory": "",  # nothing private is spilled to disk
}
# No progress bar, as standard output is for the release; then nothing can be changed any more.
DUCKDB_SETTINGS = "set enable_progress_bar = false; set lock_configuration = true"


class QuerySession(Protocol):
    """An open connection."""

    def names(self, query: str) -> list[str]:
        """Return the names of the result's columns.

        Guarantees: the query is parsed and its names are looked up; nothing of it is run, and no row is read.
        """
        ...

    def types(self, query: str, width: int, positions: tuple[int, ...]) -> list[Any]:
        """Return the Arrow types of some columns of the result, None where only the rows tell.

        Guarantees: those of `names`.
        """
        ...

    def batches(self, query: str, width: int, positions: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
        """Yield some columns of the result as pa.Arrays, in batches of bounded size."""
        ...


class Driver(Protocol):
    """A database that can be opened."""

    @property
    def where(self) -> str:
        """The database as errors call it."""
        ...

    def session(self, *, rows: bool = True) -> contextlib.AbstractContextManager[QuerySession]:
        """Open a connection for reading only; without rows, only to ask for names and types."""
        ...


def ask(call: Callable[[], T], where: str, query: str = "") -> T:
    """Return what `call` returns; what it raises becomes an error of ours that says nothing of its text.

    Guarantees:
    - the error tells the database's code or class, and has neither cause nor context nor the other traceback;
    - with a query, which must not have been run, the error also tells which name in it the database does not know.
    """
    with ForeignErrors(lambda failure: _explain(failure, where, query), where=where):
        return call()


def _explain(failure: Exception, where: str, query: str) -> DpunionError:
    if isinstance(failure, ImportError):
        return BadParameter(f"To read {where}, dpunion needs a package that is not installed.", NEEDS_EXTRA)
    return explain_failure(Failure.of(failure, query), where)


def ask_each(reader: Any, where: str) -> Iterator[Any]:
    """Yield the batches of a reader, each asked for as by `ask`."""
    end = object()
    while (batch := ask(lambda: next(reader, end), where)) is not end:
        yield batch


def reader_of(cursor: Any) -> Any:
    """Return the reader of a cursor's result: the driver manager's own, whose errors have a code, if it can be had."""
    own = getattr(getattr(cursor, "_results", None), "reader", None)
    return own if hasattr(own, "read_next_batch") else cursor.fetch_record_batch()


def chosen(query: str, width: int, positions: tuple[int, ...]) -> str:
    """Return a query for some columns of a query's result, whatever their names."""
    names = ", ".join(f"c{i}" for i in range(width))
    some = ", ".join(f"c{i}" for i in positions)
    # subtle: the line breaks keep a comment at the query's end from swallowing what follows.
    return f"select {some} from (\n{query}\n) as q ({names})"  # noqa: S608 - it is the user's own query


class PostgreSQL:
    """A PostgreSQL server, reached by libpq's rules through ADBC; results are streamed by COPY."""

    def __init__(self, url: str, where: str) -> None:
        self._url = url
        self.where = where

    def __repr__(self) -> str:
        return f"PostgreSQL({self.where})"

    @contextlib.contextmanager
    def session(self, *, rows: bool = True) -> Iterator[PostgreSQLSession]:
        """Open a transaction that is read-only and speaks UTF-8."""
        del rows
        connection = ask(self._connect, self.where)
        try:
            session = PostgreSQLSession(connection, self.where)
            session.run("set transaction read only")
            session.run("set client_encoding to 'UTF8'")
            yield session
        finally:
            with contextlib.suppress(Exception):
                connection.close()

    def _connect(self) -> Any:
        import adbc_driver_postgresql.dbapi

        return adbc_driver_postgresql.dbapi.connect(self._url)


class PostgreSQLSession:
    """A transaction on a PostgreSQL server.

    Guarantees: those of `ask`.
    """

    def __init__(self, connection: Any, where: str) -> None:
        self._connection = connection
        self._where = where

    def run(self, statement: str) -> None:
        """Run a statement without result."""
        with self._connection.cursor() as cursor:
            ask(lambda: cursor.execute(statement), self._where)

    def names(self, query: str) -> list[str]:
        """Return the names of the result's columns by preparing the query."""
        schema = self._schema(query)
        return ask(lambda: list(schema.names), self._where)

    def types(self, query: str, width: int, positions: tuple[int, ...]) -> list[Any]:
        """Return the Arrow types of some columns by preparing the query.

        Of a plain table the server's own types are checked too. To do so for any other query, or a view, the server
        would have to plan it, which may call functions that read rows: that is left to `batches`.
        """
        table = PLAIN_TABLE.fullmatch(query)
        if table is not None and self._is_table(table[1]):
            self._check_types(query, width, positions)
        types = list(self._schema(chosen(query, width, positions)).types)
        for position, type_ in zip(positions, types, strict=True):
            # The driver marks types that Arrow does not have.
            if hasattr(type_, "type_name"):
                self._refuse_type(self.names(query)[position], type_.type_name)
        return types

    def _is_table(self, name: str) -> bool:
        """Say whether a name is that of a table, and not of a view or of something else."""
        quoted = name.replace("'", "''")
        asked = f"select count(*) from pg_class where oid = to_regclass('{quoted}') and relkind in ('r', 'p')"  # noqa: S608 - a name of the user's query
        with self._connection.cursor() as cursor:
            ask(lambda: cursor.execute(asked), self._where)
            return bool(ask(cursor.fetchone, self._where)[0])

    def _check_types(self, query: str, width: int, positions: tuple[int, ...]) -> None:
        """Refuse types without one text for each value."""
        for position, type_ in zip(positions, self._own_types(query, width, positions), strict=True):
            if type_.removesuffix("[]") not in POSTGRESQL_TYPES:
                self._refuse_type(self.names(query)[position], type_)

    def _refuse_type(self, name: str, type_: str) -> NoReturn:
        raise UnsupportedType(
            f"Column {name!r} of {self._where} has type {type_}: values of this type have no unique text form.",
            AS_TEXT.format(name),
        )

    def batches(self, query: str, width: int, positions: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
        """Yield some columns of the result; refuse types as _check_types does."""
        self._check_types(query, width, positions)
        with self._connection.cursor() as cursor:
            ask(lambda: cursor.execute(chosen(query, width, positions)), self._where)
            for batch in ask_each(ask(lambda: reader_of(cursor), self._where), self._where):
                yield tuple(batch.columns)

    def _schema(self, query: str) -> Any:
        with self._connection.cursor() as cursor:
            return ask(lambda: cursor.adbc_execute_schema(query), self._where, query)

    def _own_types(self, query: str, width: int, positions: tuple[int, ...]) -> tuple[str, ...]:
        """Return the server's own names of some columns' types; the join makes one row of no row of the result."""
        none = f"select * from (\n{chosen(query, width, positions)}\n) as s limit 0"  # noqa: S608 - it is the user's own query
        names = [f"t{i}" for i in range(len(positions))]
        types = ", ".join(f"pg_typeof({name})::text" for name in names)
        asked = f"select {types} from (values (1)) as one left join ({none}) as q ({', '.join(names)}) on true"  # noqa: S608 - as above
        with self._connection.cursor() as cursor:
            ask(lambda: cursor.execute(asked), self._where)
            return tuple(ask(cursor.fetchone, self._where))


class SQLite:
    """A SQLite file, opened through ADBC in a mode that cannot write."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.where = f"SQLite file {str(path)!r}"

    @contextlib.contextmanager
    def session(self, *, rows: bool = True) -> Iterator[SQLiteSession]:
        """Open the file."""
        del rows
        connection = ask(self._connect, self.where)
        try:
            yield SQLiteSession(connection, self.where)
        finally:
            with contextlib.suppress(Exception):
                connection.close()

    def _connect(self) -> Any:
        import adbc_driver_sqlite.dbapi

        return adbc_driver_sqlite.dbapi.connect(f"file:{urllib.parse.quote(str(self._path.resolve()))}?mode=ro")


class SQLiteSession:
    """A connection to a SQLite file.

    Each value has a type of its own, and the driver takes the column's type from the first batch. So each value is
    asked for as text, beside its type.

    Guarantees: those of `ask`; no value is made another by the type of another row.
    """

    def __init__(self, connection: Any, where: str) -> None:
        self._connection = connection
        self._where = where

    def names(self, query: str) -> list[str]:
        """Return the names of the result's columns.

        subtle: SQLite may run parts of a query before it looks at `limit 0`; of a view it only looks up the names.
        """
        with self._connection.cursor() as cursor:
            view = f"create temp view dpunion_query as select * from (\n{query}\n)"  # noqa: S608 - it is the user's own query
            ask(lambda: cursor.execute(view), self._where, query)
            try:
                ask(lambda: cursor.execute("select name from pragma_table_info('dpunion_query')"), self._where, query)
                return original_names([name for (name,) in ask(cursor.fetchall, self._where, query)])
            finally:
                ask(lambda: cursor.execute("drop view temp.dpunion_query"), self._where)

    def types(self, query: str, width: int, positions: tuple[int, ...]) -> list[Any]:
        """Only the rows tell."""
        del query, width
        return [None for _ in positions]

    def batches(self, query: str, width: int, positions: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
        """Yield some columns of the result, each with the type that all its values of the batch have."""
        names = self.names(query)
        pairs = ", ".join(f"{SQLITE_KIND.format(f'c{i}')}, coalesce(cast(c{i} as text), '')" for i in positions)
        columns = ", ".join(f"c{i}" for i in range(width))
        with self._reading(f"with q ({columns}) as (\n{query}\n) select {pairs} from q") as reader:  # noqa: S608 - as above
            for batch in ask_each(reader, self._where):
                yield tuple(
                    self._typed(batch.column(2 * i), batch.column(2 * i + 1), names[position])
                    for i, position in enumerate(positions)
                )

    def _typed(self, kinds: Any, texts: Any, name: str) -> Any:
        """Return a column of the one type that its values have; nulls may be empty texts, which mean the same."""
        found = [kind for kind in pc.unique(kinds).to_pylist() if kind != 0]
        if not found:
            return pa.nulls(len(texts))
        if len(found) > 1:
            raise UnsupportedType(
                f"Mixed types: column {name!r} of {self._where} has values of several types.", AS_TEXT.format(name)
            )
        type_ = SQLITE_KINDS[found[0]]
        if pa.types.is_string(type_):
            return texts
        if pa.types.is_integer(type_):
            return pc.if_else(pc.equal(kinds, 0), None, texts).cast(type_)
        return pa.nulls(len(texts), type_)  # whose type is refused

    @contextlib.contextmanager
    def _reading(self, query: str) -> Iterator[Any]:
        with self._connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(SQLITE_ROWS)})
            ask(lambda: cursor.execute(query), self._where)
            yield ask(lambda: reader_of(cursor), self._where)


def original_names(names: list[str]) -> list[str]:
    """Undo how SQLite tells columns of the same name apart: word, word:1, word:2."""
    bases = [name.rpartition(":") for name in names]
    lowered = {name.lower() for name in names}
    return [
        base if number.isdigit() and base.lower() in lowered else name
        for name, (base, _, number) in zip(names, bases, strict=True)
    ]


def connect_duckdb(place: str | None, tables: Mapping[str, Any]) -> Any:
    """Open a DuckDB file for reading only, or a database in memory with these tables; then lock it in."""
    import duckdb

    connection = duckdb.connect(place or ":memory:", read_only=place is not None, config=dict(DUCKDB_CONFIGURATION))
    for name, table in tables.items():
        connection.register(name, table)
    connection.execute(DUCKDB_SETTINGS)
    return connection


class DuckDB:
    """A DuckDB file, opened read-only and locked in: no other file, no extension, no spilling."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.where = f"DuckDB file {str(path)!r}"

    @contextlib.contextmanager
    def session(self, *, rows: bool = True) -> Iterator[DuckDBSession]:
        """Open the file."""
        del rows
        connection = ask(self._connect, self.where)
        try:
            yield DuckDBSession(connection, self.where)
        finally:
            with contextlib.suppress(Exception):
                connection.close()

    def _connect(self) -> Any:
        return connect_duckdb(str(self._path), {})


class DuckDBSession:
    """A connection to a DuckDB file.

    Guarantees: those of `ask`.
    """

    def __init__(self, connection: Any, where: str) -> None:
        self._connection = connection
        self._where = where

    def names(self, query: str) -> list[str]:
        """Return the names of the result's columns by binding the query."""
        return [name for name, _ in self._described(query)]

    def types(self, query: str, width: int, positions: tuple[int, ...]) -> list[Any]:
        """Return the Arrow types of some columns."""
        del width
        described = self._described(query)
        nulls = ", ".join(f"cast(null as {described[i][1]})" for i in positions)
        none = f"select {nulls} limit 0"
        return list(ask(lambda: self._connection.sql(none).to_arrow_table().schema.types, self._where))

    def _described(self, query: str) -> list[tuple[str, str]]:
        """Return the names and types of the result's columns, as DuckDB writes types.

        subtle: to bind a PIVOT without a list of values, DuckDB runs it to find them, and its columns are values.
        """
        statements = ask(lambda: self._connection.extract_statements(f"describe (\n{query}\n)"), self._where, query)
        if any(statement.type.name == "MULTI" for statement in statements):
            raise BadParameter(
                "The query pivots by values from the rows, which would become names of columns.",
                "List the values in the query, as in PIVOT t ON v IN ('a', 'b'), or read the rows without a pivot.",
            )
        rows = ask(lambda: self._connection.sql(f"describe (\n{query}\n)").fetchall(), self._where, query)
        return [(row[0], row[1]) for row in rows]

    def batches(self, query: str, width: int, positions: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
        """Yield some columns of the result."""
        reader = ask(
            lambda: self._connection.sql(chosen(query, width, positions)).to_arrow_reader(DUCKDB_ROWS), self._where
        )
        for batch in ask_each(reader, self._where):
            yield tuple(batch.columns)
