"""Databases as sources: a URL or a database file, and a query whose result has the wanted columns.

    postgresql://user@host/database     PostgreSQL; every setting as libpq has it (PGHOST, PGSERVICE, ~/.pgpass …)
    sqlite:///path, a SQLite file       known by its first bytes
    duckdb:///path, a DuckDB file       known by its first bytes

Three slashes go before a relative path, four before an absolute one. With a query, Parquet files are a database too:
see `file_queries`.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dpunion.addresses import DATABASE_FILES, POSTGRESQL, Address
from dpunion.errors import BadParameter, DamagedSource, SourceNotFound
from dpunion.reading.columns import OnFraction, Wanted, find_columns
from dpunion.reading.drivers import Driver, DuckDB, PostgreSQL, SQLite
from dpunion.reading.file_queries import FilesInDuckDB
from dpunion.reading.locate import COMPRESSIONS, FORMATS
from dpunion.reading.queries import warn_of_mixing
from dpunion.reading.spelling import Column

FILES: dict[str, Callable[[Path], Driver]] = {"sqlite": SQLite, "duckdb": DuckDB}
SUFFIXES = (".db", ".db3", ".sqlite", ".sqlite3", ".duckdb", ".ddb")
HEAD_BYTES = 16
SQLITE_HEAD, DUCKDB_HEAD = b"SQLite format 3\0", b"DUCK"
PASSWORD = re.compile(r"://[^/?#]*:[^@]+@|[?&](ssl)?password=.")


class PasswordInUrl(UserWarning):
    """A password stands in a database's URL, where others can see it."""


class DatabasePart:
    """The result of a query, streamed in batches.

    Guarantees:
    - the session cannot write, and reads nothing but the database;
    - neither URL nor password nor anything that the database says is in the repr or in an error: of a failure only the
      code or class is reported.
    """

    def __init__(self, driver: Driver, query: str) -> None:
        self._driver = driver
        self._query = query
        self.where = driver.where
        self.size = 1

    def __repr__(self) -> str:
        return f"DatabasePart({self.where})"

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        """Check the query and the wanted columns by what the database says of them, without running the query."""
        with self._driver.session(rows=False) as session:
            names = session.names(self._query)
            positions = find_columns(names, wanted, self.where, self._query)
            for type_, column in zip(session.types(self._query, len(names), positions), columns, strict=True):
                if type_ is not None:
                    column.expect(type_, self.where)

    def batches(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[tuple[Any, ...]]:
        """Yield the wanted columns of each batch of the result."""
        del on_fraction  # how much is to come, a database does not say
        with self._driver.session() as session:
            names = session.names(self._query)
            positions = find_columns(names, wanted, self.where, self._query)
            yield from session.batches(self._query, len(names), positions)


def database_part(source: Any, query: str | None) -> DatabasePart | None:
    """Return the part for a database, or for a query over Parquet files; None when there is no query to run."""
    if isinstance(source, list | tuple) and any(is_database(one) for one in source):
        raise BadParameter(
            "A database is in a list of sources.", "Read a single database, with one query that joins its tables."
        )
    paths = source if isinstance(source, list | tuple) else [source]
    is_files = not is_database(source) and all(isinstance(one, str | os.PathLike) for one in paths)
    if not is_database(source) and (query is None or not is_files or source in ("", "-")):
        if query is not None:
            raise BadParameter(
                "A query was given, but the source is neither a database nor files.",
                "Leave the query out, or name a database or Parquet files.",
            )
        return None
    if query is None or not query.strip().strip(";"):
        raise BadParameter(
            "A database needs a query.",
            'Give one, for example query="select author, word from posts" (--query on the command line).',
        )
    warn_of_mixing(query)
    driver = FilesInDuckDB(paths) if is_files else driver_of(os.fspath(source))
    return DatabasePart(driver, query.strip().rstrip(";"))


def is_database(source: object) -> bool:
    """Say whether a source is a URL or the path of a database file."""
    if isinstance(source, str) and (scheme := Address.of(source).scheme):
        return scheme in (*POSTGRESQL, *DATABASE_FILES)
    if not isinstance(source, str | os.PathLike):
        return False
    path = Path(os.fspath(source)).expanduser()
    suffix = path.suffix.lower()
    # subtle: the method of Path raises where a folder may not be entered, which `locate` refuses in its own words.
    if suffix in FORMATS or suffix in COMPRESSIONS or not os.path.isfile(path):  # noqa: PTH113
        return False
    return suffix in SUFFIXES or kind_of_file(path) is not None


def driver_of(source: str) -> Driver:
    """Return what opens a database; no error repeats a URL, for it may hold a password."""
    address = Address.of(source)
    if not address.scheme:
        return file_driver(Path(source).expanduser(), None)
    if address.scheme in POSTGRESQL:
        warn_of_password(source)
        return PostgreSQL(source, name_database(source))
    return file_driver(Path(address.path[1:]), address.scheme)


def file_driver(path: Path, expected: str | None) -> Driver:
    """Return the driver for a database file, by its first bytes."""
    if not path.is_file():
        raise SourceNotFound(f"There is no database file {str(path)!r}.", "Check the path.")
    kind = kind_of_file(path)
    if kind is None or (expected is not None and kind != expected):
        named = {"sqlite": "SQLite", "duckdb": "DuckDB", None: "SQLite or DuckDB"}[expected]
        raise DamagedSource(
            f"File {str(path)!r} is not a {named} database.", "Check the path, or write the file again."
        )
    return FILES[kind](path)


def kind_of_file(path: Path) -> str | None:
    """Return which database wrote a file, by its first bytes, None when neither did."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        head = b""
    if head == SQLITE_HEAD:
        return "sqlite"
    return "duckdb" if head[8:12] == DUCKDB_HEAD else None


def name_database(url: str) -> str:
    """Name a PostgreSQL database for errors: its name and host, if these are certain to be no password.

    subtle: with a character in the password that should have been percent-encoded, parts of it look like a host.
    """
    address = Address.of(url)
    host, database = (address.place or "").removeprefix("//").partition(":")[0], address.path.removeprefix("/")
    return "the PostgreSQL database" + (f" {database!r}" if database else "") + (f" on {host!r}" if host else "")


def warn_of_password(url: str) -> None:
    """Warn of a password in a URL; the warning does not repeat it."""
    if PASSWORD.search(url):
        # subtle: without stacklevel the warning has one place, so that Python shows it once.
        warnings.warn(  # noqa: B028
            "The database URL contains a password, which shows in process listings and in the shell's history. "
            "Leave it out, and keep it in PGPASSWORD, in ~/.pgpass or in a service file, as for psql.",
            PasswordInUrl,
        )
