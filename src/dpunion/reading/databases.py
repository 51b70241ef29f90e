"""Databases as sources: a URL or a database file, and a query whose result has the wanted columns.

    postgresql://user@host/database     PostgreSQL, with all settings of libpq (PGHOST, PGSERVICE, ~/.pgpass …)
    sqlite:///path, a SQLite file       recognized by its first bytes
    duckdb:///path, a DuckDB file       recognized by its first bytes
    Parquet files                       DuckDB runs the query on the table `source`, which contains only these files

Three slashes go before a relative path, four before an absolute one.

A query may keep, drop or change a row because of that row, or of other rows of the same person. If one person's rows
affect another's, as with LIMIT, there is no set of rows for each person, and nothing is guaranteed. dpunion warns of
what it sees in the text of a query; views hide what they do, so a query without a warning may still be wrong.
"""

from __future__ import annotations

import functools
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpunion.addresses import DATABASE_FILES, POSTGRESQL, Address
from dpunion.errors import BadParameter, BadSource, DamagedSource, SourceNotFound, attempt
from dpunion.reading.columnar import folder_schema
from dpunion.reading.drivers import HIDDEN, QuerySession, ask, connect_duckdb, connect_postgresql, connect_sqlite
from dpunion.reading.locate import COMPRESSIONS, FORMATS, locate
from dpunion.reading.parts import FileTypes, OnFraction, SourcePart, SourceRequest, Wanted, find_columns
from dpunion.reading.spelling import Column
from dpunion.reading.storage import DataFile, Format

Connect = Callable[[bool], QuerySession]
"""Opens a database read-only; called with False if only names and types are needed."""
SUFFIXES = (".db", ".db3", ".sqlite", ".sqlite3", ".duckdb", ".ddb")
HEAD_BYTES = 16
SQLITE_HEAD, DUCKDB_HEAD = b"SQLite format 3\0", b"DUCK"
PASSWORD = re.compile(r"://[^/?#]*:[^@]+@|[?&](ssl)?password=.")
TABLE = "source"
TO_PARQUET = "Leave the query out and name the columns, or convert the files to Parquet."

WORDS = ("LIMIT", "OFFSET", "FETCH", "HAVING", "QUALIFY", "OVER", "GROUP BY", "DISTINCT ON", "TABLESAMPLE")
MORE_WORDS = ("USING SAMPLE", "PIVOT", "JOIN", "INTERSECT")
CLAUSES = {name: rf"\b{name}\b".replace(" ", r"\s+") for name in (*WORDS, *MORE_WORDS)}
CLAUSES["EXCEPT"] = r"\bexcept\b(?!\s*\()"  # with brackets it leaves out columns
AGGREGATES = re.compile(
    r"\b(?:any_value|approx_\w+|arg_(?:max|min)\w*|array_agg|avg|bit_(?:and|or|xor)|bitstring_agg|bool_(?:and|or)"
    r"|collect_(?:list|set)|corr|count|count_?if|count_star|covar_\w+|entropy|every|f?avg|first|fsum|geomean|group_concat"
    r"|histogram|json_(?:agg|group_\w+|object_agg)|jsonb_(?:agg|object_agg)|kurtosis\w*|last|list|listagg|mad|max|max_by"
    r"|mean|median|min|min_by|mode|percentile\w*|product|quantile\w*|regr_\w+|sem|skewness|std|stddev\w*|string_agg"
    r"|sum|total|var_\w+|variance|xmlagg)\s*\(",
    re.IGNORECASE,
)
TAKES_FROM = {"extract", "trim", "substring", "overlay"}
"""Functions with a FROM among their arguments, as in extract(year from day)."""
TOKEN = re.compile(r"\bdistinct\s+from\b|[\w$]+|[(),]", re.IGNORECASE)
AFTER_TABLES = re.compile(r"where|group|having|window|qualify|order|limit|union|intersect|except|select")


class PasswordInUrl(UserWarning):
    """The URL of a database contains a password, which others can see."""


class QueryMixesPeople(UserWarning):
    """A query looks as if one person's rows affect other people's."""


def parts_of(request: SourceRequest) -> list[SourcePart] | None:
    """Return the result of the query on a database or on Parquet files; None without a query to run."""
    source, query = request.source, request.query
    if isinstance(source, list | tuple) and any(is_database(one) for one in source):
        raise BadParameter(
            "A database is in a list of sources.", "Read a single database, with one query that joins its tables."
        )
    is_one = is_database(source)
    if not is_one and query is None:
        return None
    if not is_one and (request.paths is None or request.paths in ([""], ["-"])):
        raise BadParameter(
            "A query was given, but the source is neither a database nor files.",
            "Leave the query out, or name a database or Parquet files.",
        )
    if query is None or not query.strip().strip(";"):
        raise BadParameter(
            "A database needs a query.",
            'Give one, for example query="select author, word from posts" (--query on the command line).',
        )
    warn_of_mixing(query)
    where, connect = find_database(os.fspath(source)) if is_one else query_files(request.paths or [])
    return [DatabasePart(where, connect, query.strip().rstrip(";"))]


class DatabasePart(SourcePart):
    """The result of a query, streamed in batches.

    Guarantees:
    - the session cannot write, and reads only the database;
    - the repr and errors contain no URL, no password and nothing that the database says but a failure's code or class.
    """

    def __init__(self, where: str, connect: Connect, query: str) -> None:
        super().__init__(where)
        self._connect = connect
        self._query = query

    def check(self, wanted: Wanted, columns: Sequence[Column]) -> None:
        """Check the query and the wanted columns as the database describes them, without running the query."""
        with ask(lambda: self._connect(False), self.where) as session:
            width, positions = self._find(session, wanted)
            for type_, column in zip(session.types(self._query, width, positions), columns, strict=True):
                if type_ is not None:
                    column.expect(type_, self.where)

    def batches(self, wanted: Wanted, on_fraction: OnFraction) -> Iterator[tuple[Any, ...]]:
        del on_fraction  # a database does not say how many rows follow
        with ask(lambda: self._connect(True), self.where) as session:
            yield from session.batches(self._query, *self._find(session, wanted))

    def _find(self, session: QuerySession, wanted: Wanted) -> tuple[int, tuple[int, ...]]:
        """Return the number of the result's columns, and the positions of the wanted ones."""
        names = session.names(self._query)
        return len(names), find_columns(names, wanted, self.where, self._query)


def is_database(source: object) -> bool:
    """Return whether a source is a URL or the path of a database file."""
    if isinstance(source, str) and (scheme := Address.of(source).scheme):
        return scheme in (*POSTGRESQL, *DATABASE_FILES)
    if not isinstance(source, str | os.PathLike):
        return False
    path = Path(os.fspath(source)).expanduser()
    suffix = path.suffix.lower()
    # subtle: the method of Path raises when a folder may not be entered; `locate` has an error for that.
    if suffix in FORMATS or suffix in COMPRESSIONS or not os.path.isfile(path):  # noqa: PTH113
        return False
    return suffix in SUFFIXES or kind_of_file(path) is not None


def find_database(source: str) -> tuple[str, Connect]:
    """Return what errors call a database, and how to open it; the URL, which may contain a password, is not shown."""
    address = Address.of(source)
    if address.scheme in POSTGRESQL:
        if PASSWORD.search(source):
            # subtle: without stacklevel the warning has one place, so that Python shows it once.
            warnings.warn(  # noqa: B028
                "The database URL contains a password, which shows in process listings and in the shell's history. "
                "Leave it out, and keep it in PGPASSWORD, in ~/.pgpass or in a service file, as for psql.",
                PasswordInUrl,
            )
        where = name_database(source)
        return where, lambda _: connect_postgresql(source, where)
    path, expected = (Path(address.path[1:]), address.scheme) if address.scheme else (Path(source).expanduser(), "")
    if not path.is_file():
        raise SourceNotFound(f"There is no database file {str(path)!r}.", "Check the path.")
    kind = kind_of_file(path)
    if kind is None or kind != (expected or kind):
        named = {"sqlite": "SQLite", "duckdb": "DuckDB"}.get(expected, "SQLite or DuckDB")
        raise DamagedSource(
            f"File {str(path)!r} is not a {named} database.", "Check the path, or write the file again."
        )
    if kind == "sqlite":
        where = f"SQLite file {str(path)!r}"
        return where, lambda _: connect_sqlite(path, where)
    where = f"DuckDB file {str(path)!r}"
    return where, lambda _: connect_duckdb(path, where, {})


def kind_of_file(path: Path) -> str | None:
    """Return which database wrote a file, by its first bytes; None when neither did."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        head = b""
    if head == SQLITE_HEAD:
        return "sqlite"
    return "duckdb" if head[8:12] == DUCKDB_HEAD else None


def name_database(url: str) -> str:
    """Return what errors call a PostgreSQL database: its name and host, if they are certainly no password.

    subtle: a special character in a password that is not percent-encoded makes parts of the password look like a host.
    """
    address = Address.of(url)
    host, database = (address.place or "").removeprefix("//").partition(":")[0], address.path.removeprefix("/")
    return "the PostgreSQL database" + (f" {database!r}" if database else "") + (f" on {host!r}" if host else "")


def query_files(paths: Sequence[str | os.PathLike[str]]) -> tuple[str, Connect]:
    """Return what errors call Parquet files, and how to open them as the only table of a database in memory."""
    where = "the query over files"

    def connect(rows: bool) -> QuerySession:  # noqa: FBT001 - as Connect says
        dataset = dataset_of(locate(paths))
        return connect_duckdb(None, where, {TABLE: dataset if rows else dataset.schema.empty_table()})

    return where, connect


def dataset_of(files: Sequence[DataFile]) -> Any:
    """Return Parquet files as one pyarrow Dataset; values of partitions are text.

    Guarantees: files with different columns or types are refused, so that no file is read by the schema of another.
    """
    from pyarrow import dataset as ds
    from pyarrow import fs

    scan = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    format_ = ds.ParquetFileFormat(default_fragment_scan_options=scan)
    first = types_of(files[0])
    if len(set(first.names)) < len(first.names):
        raise BadSource(
            f"A column of {first.where} exists twice, in the file or as the name of a folder.",
            "Rename or remove all but one of them.",
        )
    fragments = []
    for file in files:
        types = types_of(file)
        if not (types.schema.equals(first.schema) and types.folders.equals(first.folders)):
            raise BadSource(
                f"The columns of {file.where} are not those of the first file.",
                "Write all files with the same columns of the same types, or query them one by one.",
            )
        conditions = (
            ds.field(name).is_null() if value is None else ds.field(name) == value for name, value in file.partitions
        )
        constant = functools.reduce(lambda one, other: one & other, conditions, ds.scalar(True))
        if isinstance(file.path, Path):
            place, files_in = str(file.path.absolute()), fs.LocalFileSystem()
        else:
            place, files_in = str(file.path.path), file.path.store.files
        fragments.append(format_.make_fragment(place, filesystem=files_in, partition_expression=constant))
    return ds.FileSystemDataset(fragments, pa.schema([*first.schema, *first.folders]), format_)


def types_of(file: DataFile) -> FileTypes:
    """Return the columns of a Parquet file and of its folders; refuse other formats."""
    import pyarrow.parquet as pq

    if file.format is not Format.PARQUET:
        raise BadParameter(f"A query needs typed columns, and {file.where} has none.", TO_PARQUET)
    schema = attempt(lambda: pq.read_schema(file.open()), file.where).remove_metadata()
    return FileTypes(file.where, schema, folder_schema(file.partitions))


def warn_of_mixing(query: str) -> None:
    """Warn of a query that may let people's rows depend on each other, without repeating it."""
    if found := mixing_clauses(query):
        # subtle: without stacklevel the warning has one place, so that Python shows it once.
        warnings.warn(  # noqa: B028
            f"The query has {' and '.join(found)}. If one person's rows can affect other people's rows through "
            "it, nothing is guaranteed: each row that a query returns may depend only on rows of the same person.",
            QueryMixesPeople,
        )


def mixing_clauses(query: str) -> tuple[str, ...]:
    """Return what in a query can make people's rows depend on each other, outside of strings, names and comments."""
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
    """Return the number of FROMs with tables, and whether one lists several; brackets have FROMs of their own."""
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
        elif AFTER_TABLES.fullmatch(word):
            listing[-1] = False
        elif word == "," and listing[-1]:
            lists_several = True
        before = word
    return count, lists_several
