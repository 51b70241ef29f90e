"""What Spark reads by name: checked by name before the charge, opened after it, complete, columns matched by name.

text files     CSV, TSV, JSON Lines, also mixed: dpunion's own readers read them in the workers. A task gets a whole
               file, or a part of a large JSON Lines file, which Spark cuts at line ends
columnar       Parquet or ORC files and folders, read by Spark; values in folder names stay text
tables         of Spark's catalog

Spark's own readers of CSV and JSON match columns by position, infer types from everybody's rows, let one lost quote
swallow other people's rows, replace bad bytes and print what they refuse. dpunion uses none of them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from dpunion.addresses import check_address
from dpunion.checks import refuse_choice
from dpunion.engines.spark.sessions import call_spark, change_setting, open_session
from dpunion.errors import BadParameter, BadSource, CannotWrite, DpunionError, SourceNotFound, UnsupportedType
from dpunion.reading import SourceRequest, open_source
from dpunion.reading.databases import warn_of_mixing
from dpunion.reading.locate import COMPRESSIONS, local_path, partitions_of
from dpunion.reading.parts import Wanted, find_columns
from dpunion.reading.storage import Format, Partitions, is_hidden
from dpunion.requests import Request, SparkSource

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TEXT_FORMATS = {"csv": Format.CSV, "tsv": Format.TSV, "jsonl": Format.JSON_LINES}
COLUMNAR_FORMATS = ("parquet", "orc")
TABLE = "table"
FORMATS = (*COLUMNAR_FORMATS, *TEXT_FORMATS, TABLE)
SUFFIXES = {name: name for name in (*COLUMNAR_FORMATS, *TEXT_FORMATS)}
SUFFIXES |= {"pq": "parquet", "json": "jsonl", "ndjson": "jsonl"}
UNREAD_SUFFIXES = ("arrow", "arrows", "ipc", "feather")
TEXT_PROVIDERS = {"csv", "json", "text", "xml"}
TO_PARQUET = (
    "Convert it to Parquet, for example: duckdb -c \"copy (from read_csv('posts.csv', all_varchar=true))"
    " to 'posts.parquet'\"."
)
# Parts of SQL that run programs or Java methods, which could write.
PROGRAMS = re.compile(r"\b(reflect|try_reflect|java_method)\b|\busing\b(?!\s*\()", re.IGNORECASE)
# Files by which the folder of a table is recognised, and the tool: such a folder also has deleted rows.
TABLE_MARKS = {"_delta_log": "Delta Lake", ".hoodie": "Hudi", "metadata/*.metadata.json": "Iceberg"}
OLDEST_SPARK = (4, 1)  # the rounds call repartitionById
CASE_SENSITIVE = "spark.sql.caseSensitive"
PARTITION_TYPES = "spark.sql.sources.partitionColumnTypeInference.enabled"
FILES_IN_QUERIES = "spark.sql.runSQLOnFiles"
PARTITIONS = "spark.sql.shuffle.partitions"
ONE_QUERY = threading.Lock()


class OpenedFrame(NamedTuple):
    """A DataFrame with the wanted columns, and a check to call before using it: the check reads rows."""

    frame: DataFrame
    check_rows: Callable[[], None]


# --- names, before Spark starts ---------------------------------------------------------------------------------


def names_in(rows: SourceRequest) -> tuple[str, ...]:
    """Return the names of all columns, the user's first."""
    return tuple(map(str, Wanted.of(rows).columns))


def check_names(source: SparkSource, query: str | None) -> None:
    """Refuse, before Spark starts, what the names show: passwords, bad formats, queries that could write."""
    for name in source.names:
        check_address(name, on_spark=True)
    formats = {format_of(name, source.format) for name in source.names}
    if not formats:
        raise BadParameter("There is no source.", "Name files, folders or tables.")
    if len(formats) > 1 and not formats <= set(TEXT_FORMATS):
        raise BadParameter(
            f"Sources of different formats ({', '.join(sorted(formats))}) are not read together on Spark.",
            f"Name sources of one format (CSV, TSV and JSON Lines count as one). {TO_PARQUET}",
        )
    if query is None:
        return
    if formats <= set(TEXT_FORMATS):
        raise BadParameter(
            "A query on Spark needs typed columns, and text files have none.",
            f"Leave the query out and name the columns. {TO_PARQUET}",
        )
    if PROGRAMS.search(query):
        raise BadParameter(
            "The query could run a program: it has 'using' without columns in parentheses, or calls Java.",
            "Write a query that selects rows and nothing else.",
        )
    warn_of_mixing(query)


def format_of(name: str, input_format: str | None) -> str:
    """Return the format of a source: that of its suffix or of the option, by default Parquet."""
    if input_format is not None and input_format not in FORMATS:
        refuse_choice("input_format", input_format, list(FORMATS))
    if input_format == TABLE:
        return TABLE
    last = name.rstrip("/").rpartition("/")[2]
    if name == "-" or name.startswith(("postgresql:", "postgres:")):
        raise BadParameter(
            "With --engine spark, dpunion reads files, folders and tables, but not standard input or databases.",
            "Leave out --engine spark, or read it with Spark in Python and pass the DataFrame.",
        )
    if last not in {"", ".", ".."} and is_hidden(last):
        raise BadSource(
            f"Spark leaves out files and folders whose names begin with '_' or '.', such as {last!r}.", "Rename it."
        )
    by_suffix = suffix_format(last)
    if by_suffix in UNREAD_SUFFIXES:
        raise BadSource("Spark does not read Arrow files.", "Write them as Parquet, or leave out --engine spark.")
    if by_suffix is not None and input_format is not None and by_suffix != input_format:
        raise BadParameter(
            f"The input format is {input_format!r}, but a source is {by_suffix!r} by its name.",
            "Leave the input format out, or name sources of this format only.",
        )
    return input_format or by_suffix or "parquet"


def suffix_format(name: str) -> str | None:
    """Return the format that a file's suffix names, without the suffix of a compression; None for other suffixes."""
    path = PurePosixPath(name.lower())
    plain = path.with_suffix("") if path.suffix in COMPRESSIONS else path
    suffix = plain.suffix.removeprefix(".")
    return suffix if suffix in UNREAD_SUFFIXES else SUFFIXES.get(suffix)


# --- columns ----------------------------------------------------------------------------------------------------


def column_named(name: str) -> Column:
    """Return a frame's column of exactly this name, dots and backticks included."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.col("`" + name.replace("`", "``") + "`")


def select_columns(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return the frame with these columns only."""
    if any(name not in frame.columns for name in names):
        # open_source refuses the frame with a better error: it names the column, and similar names.
        return frame
    return call_spark(lambda: frame.select(*map(column_named, names)))


def input_files(frame: DataFrame) -> list[str]:
    """Return the files that a frame reads, sorted; none if it does not read files."""
    return sorted(call_spark(frame.inputFiles))


# --- open a source ----------------------------------------------------------------------------------------------


def session_of(source: Any) -> SparkSession:
    """Return the session of a DataFrame, or open that of a SparkSource; refuse one that has ended or is too old."""
    is_named = isinstance(source, SparkSource)
    session: SparkSession = open_session(source.master, dict(source.settings)) if is_named else source.sparkSession
    version = call_spark(lambda: session.version)  # asks Spark
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < OLDEST_SPARK:
        raise BadParameter(
            f"dpunion needs Spark 4.1 or newer, and this session is Spark {version}.",
            "Use a cluster or a platform with Spark 4.1 or newer, or read the data without Spark.",
        )
    if is_named and type(session).__module__.startswith("pyspark.sql.connect"):
        # subtle: it opens files late, when the settings that switch type inference off no longer hold.
        raise BadParameter(
            "On Spark Connect dpunion cannot open files or tables itself.",
            "Read them with Spark, and pass the DataFrame.",
        )
    return session


def open_frame(request: Request, session: SparkSession) -> OpenedFrame:
    """Open the source as a DataFrame of the wanted columns, and check their types.

    Guarantees:
    - no row is read before `check_rows` is called, and no type is inferred from rows, now or later;
    - columns are found by their names in every file and table; a file or table that lacks one is refused.
    """
    user, values = request.user, (request.value,) if isinstance(request.value, str) else request.value
    if not isinstance(user, str) or not isinstance(values, tuple):
        raise BadParameter("A DataFrame needs the names of its columns.", "Name the user and the item column.")
    # Text files have no dates, so the workers that read them need no granularity.
    rows = SourceRequest(None, user, request.kind, values, null_users=request.null_users)
    opened = _open_source(request.source, session, rows, request.input_format, request.query)
    frame = select_columns(opened.frame, names_in(rows))
    empty = call_spark(lambda: frame.limit(0).toArrow())
    open_source(request.of_rows(empty))  # checks the types
    return OpenedFrame(frame, opened.check_rows)


def _open_source(
    source: Any, session: SparkSession, rows: SourceRequest, input_format: str | None, query: str | None
) -> OpenedFrame:
    """Open a source, or return the DataFrame that is one."""
    if not isinstance(source, SparkSource):
        if query is not None or input_format is not None:
            raise BadParameter(
                "A DataFrame takes no query and no input format.",
                "Leave them out, and select from the DataFrame first.",
            )
        return OpenedFrame(source, lambda: None)
    formats = {name: format_of(name, input_format) for name in source.names}
    first = next(iter(formats.values()))
    if first in TEXT_FORMATS:
        from dpunion.engines.spark.files import open_text_files

        return open_text_files(session, formats, rows)
    if first == TABLE:
        opened = OpenedFrame(_open_tables(session, source.names, rows if query is None else None), lambda: None)
    else:
        opened = _open_columnar(session, source.names, first, rows if query is None else None)
    if query is None:
        return opened
    return OpenedFrame(run_query(session, opened.frame, query), opened.check_rows)


def run_query(session: SparkSession, frame: DataFrame, query: str) -> DataFrame:
    """Return the query's rows of a frame, which is its table `source`; Spark needs this name for this moment only.

    Guarantees: the query cannot run or write anything: inside a select, Spark's grammar allows no other statement.
    """
    text = query.strip().rstrip(";")
    with ONE_QUERY:  # another release in this session would replace the table
        frame.createOrReplaceTempView("source")
        try:
            with change_setting(session.conf, FILES_IN_QUERIES, "false", owner=session):
                return call_spark(lambda: session.sql(f"select * from (\n{text}\n)"))  # noqa: S608 - the operator's own
        finally:
            with contextlib.suppress(DpunionError):
                call_spark(lambda: session.catalog.dropTempView("source"))


def strict_reader(session: SparkSession, format_: str) -> Any:
    """Return Spark's reader of a format, which fails at files that are damaged or gone instead of leaving them out."""
    reader = session.read.format(format_)
    return reader.option("ignoreCorruptFiles", False).option("ignoreMissingFiles", False)


def whole_files(session: SparkSession, names: list[str]) -> DataFrame:
    """Return the files below these names as Spark lists them: (path, modificationTime, length, content)."""
    reader = strict_reader(session, "binaryFile").option("recursiveFileLookup", True)
    return call_spark(lambda: reader.load(names))


def list_files(session: SparkSession, name: str, format_: str) -> list[str]:
    """Return all files below a name; refuse a name without files, and files of another format."""
    found = input_files(whole_files(session, [name]))
    if not found:
        raise SourceNotFound("Spark found no files in a source.", "Check the paths and patterns.")
    for file in found:
        by_suffix = suffix_format(urllib.parse.unquote(file))
        if by_suffix is not None and by_suffix != format_:
            raise BadSource(
                f"A source that is read as {format_!r} has a file that is {by_suffix!r} by its name.",
                "Move that file, or name the files to read by a pattern with their suffix.",
            )
    return found


# --- Parquet and ORC --------------------------------------------------------------------------------------------


def _open_columnar(
    session: SparkSession, names: Sequence[str], format_: str, rows: SourceRequest | None
) -> OpenedFrame:
    """Open Parquet or ORC; rows: the wanted columns, None for all."""
    for name in names:
        check_no_table(session, name)
    files = {file for name in names for file in list_files(session, name, format_)}
    for folder in table_folders(files):
        check_no_table(session, exact_path(folder))
    reader = strict_reader(session, format_).option("mergeSchema", True)
    # subtle: by default Spark reads the folder value 01 as 1, unless another person's folder value is not a number.
    with change_setting(session.conf, PARTITION_TYPES, "false", owner=session):
        frame = call_spark(lambda: reader.load(list(names)))
    if set(input_files(frame)) != files:
        raise BadSource(
            "Spark would leave out files in subfolders that are not named key=value.",
            "Name the subfolders, or a pattern such as 'folder/*'.",
        )
    columns = frame.columns if rows is None else names_in(rows)
    refuse_merged_columns(session, names, format_, files, columns)
    wanted = [name for name in columns if name in frame.columns]
    return OpenedFrame(frame, lambda: check_complete(frame, format_, wanted) if len(files) > 1 else None)


def check_no_table(session: SparkSession, name: str) -> None:
    """Refuse the folder of a table: only the table's own reader knows which of its files count."""
    context: Any = session.sparkContext
    java, settings = context._jvm, context._jsc.hadoopConfiguration()  # noqa: SLF001 - opening a frame takes longer
    for mark, tool in TABLE_MARKS.items():
        path = call_spark(functools.partial(java.org.apache.hadoop.fs.Path, f"{name.rstrip('/')}/{mark}"))
        if call_spark(lambda path=path: path.getFileSystem(settings).globStatus(path)):  # type: ignore[misc]
            raise BadSource(
                f"A source is a table of {tool}, or a part of one: its folder also contains deleted rows.",
                "Name it in Spark's catalog and use --input-format table, or pass a DataFrame.",
            )


def table_folders(files: Iterable[str]) -> list[str]:
    """Return the folders in which a table with these files would have its log: above folders named key=value."""
    folders = {re.sub(r"(/[^/=]+=[^/]*)*/[^/]*$", "", urllib.parse.unquote(file)) for file in files}
    return sorted(folders | {one.removesuffix("/data") for one in folders})


def protect_input(frame: DataFrame, folder: str) -> None:
    """Refuse to overwrite a folder with files that Spark names as the frame's; those of a cached frame it does not."""
    with contextlib.suppress(SourceNotFound):  # there is nothing to replace
        both = (frame, whole_files(frame.sparkSession, [exact_path(folder)]))
        read, there = ({os.path.realpath(local_path(file) or file) for file in input_files(one)} for one in both)
        if read & there:
            raise CannotWrite(
                "The output folder has files that this run reads.",
                "Choose another folder for the output; overwriting does not help here.",
            )


def refuse_merged_columns(
    session: SparkSession, names: Sequence[str], format_: str, files: Iterable[str], wanted: Sequence[str]
) -> None:
    """Refuse columns that Spark would merge: names that differ in case only, or a file's column and its folder's."""
    reader = session.read.format(format_).option("mergeSchema", True).option("recursiveFileLookup", True)
    with change_setting(session.conf, CASE_SENSITIVE, "true", owner=session):
        stored = call_spark(lambda: reader.load(list(names)).columns)
    in_folders = {name for file in files for name, _ in partitions_above(file)}
    for name in wanted:
        if [one.lower() for one in (*stored, *in_folders)].count(name.lower()) > 1:
            raise BadSource(
                f"There are several columns {name!r}: their names differ in case only, or one is the name of a folder"
                f" '{name}=…'.",
                "Rename or remove all but one of them, in all files.",
            )


def partitions_above(file: str) -> Partitions:
    """Return the columns and values that the names of a file's folders give."""
    return partitions_of(PurePosixPath(urllib.parse.unquote(file)).parts[:-1], "a file")


def exact_path(path: str) -> str:
    """Return the pattern that means this path alone."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


def check_complete(frame: DataFrame, format_: str, names: Sequence[str]) -> None:
    """Refuse a frame if one of its files lacks one of the columns: Spark would read nulls.

    subtle: Spark does not say which file has which columns. A file that lacks a column has only nulls there, so only
    the files with such a column are opened one by one.
    """
    from pyspark.sql import functions as F  # noqa: N812

    flags = [F.max(column_named(name).isNotNull()).alias(f"has{place}") for place, name in enumerate(names)]
    found = frame.groupBy(F.col("_metadata.file_path").alias("file")).agg(*flags)
    complete = " and ".join(f"has{place}" for place in range(len(names)))
    # subtle: the names of files are few rows, which the session's number of partitions would spread over many tasks.
    with change_setting(frame.sparkSession.conf, PARTITIONS, "1", owner=frame.sparkSession):
        suspects = call_spark(found.filter(f"not ({complete})").select("file").collect)
    for (file,) in suspects:
        exact = exact_path(urllib.parse.unquote(file))
        reader = frame.sparkSession.read.format(format_)
        own = call_spark(lambda reader=reader, exact=exact: reader.load(exact).columns)  # type: ignore[misc]
        own += [name for name, _ in partitions_above(file)]
        for name in names:
            if name not in own:
                raise BadSource(
                    f"A file lacks the column {name!r}, which others have.",
                    "Leave the file out, or write it again with all columns.",
                )


# --- tables -----------------------------------------------------------------------------------------------------


def _open_tables(session: SparkSession, names: Sequence[str], rows: SourceRequest | None) -> DataFrame:
    """Return the union of tables, columns matched by name; rows: the wanted columns, None for all."""
    frames = []
    for name in names:
        described = call_spark(lambda name=name: session.sql(f"describe table extended {name}").collect())  # type: ignore[misc]
        # Views have no provider, and some catalogs do not say it.
        # A column may be called Provider too.
        if providers := TEXT_PROVIDERS & {row[1].lower() for row in described if row[0] == "Provider"}:
            raise BadSource(
                f"A table is stored as {providers.pop()}, which Spark does not read strictly.",
                f"Name its files as the source, or store it as Parquet. {TO_PARQUET}",
            )
        frame = call_spark(functools.partial(session.table, name))
        if rows is not None:
            find_columns(frame.columns, Wanted.of(rows), f"table {name!r}")
            frame = select_columns(frame, names_in(rows))
        frames.append(frame)
    kinds = [{field.name: field.dataType for field in frame.schema} for frame in frames]
    if any(kind != kinds[0] for kind in kinds):
        raise UnsupportedType(
            "The tables have columns of different names or types.",
            "Cast them to one type (text is always possible) in everything that is read together.",
        )
    return call_spark(lambda: functools.reduce(lambda one, other: one.unionByName(other), frames))
