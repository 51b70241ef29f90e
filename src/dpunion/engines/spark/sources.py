"""What Spark reads by name: checked by the names before the charge, opened after it, complete and by column names.

text files     CSV, TSV, JSON Lines, also together, by dpunion's own readers (see `files`)
columnar       Parquet or ORC files and folders, by Spark; values of folders stay text
tables         of Spark's catalog
"""

from __future__ import annotations

import contextlib
import functools
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from dpunion.addresses import check_address
from dpunion.checks import refuse_choice
from dpunion.engines.spark.failures import cleanly
from dpunion.engines.spark.files import TO_PARQUET, WantedRows, check_kinds, check_sizes, read_text_files, whole_files
from dpunion.engines.spark.frames import checked_names, column_named, columns_of, empty_table, input_files
from dpunion.engines.spark.sessions import open_session
from dpunion.errors import BadParameter, BadSource, SourceNotFound, UnsupportedType
from dpunion.reading import check_source
from dpunion.reading.columns import find_columns
from dpunion.reading.folders import is_hidden
from dpunion.reading.locate import COMPRESSIONS, Format, Partitions, partitions_of
from dpunion.reading.queries import warn_of_mixing
from dpunion.requests import Request, SparkSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TEXT_FORMATS = {"csv": Format.CSV, "tsv": Format.TSV, "jsonl": Format.JSON_LINES}
COLUMNAR_FORMATS = ("parquet", "orc")
TABLE = "table"
FORMATS = (*COLUMNAR_FORMATS, *TEXT_FORMATS, TABLE)
SUFFIXES = {name: name for name in (*COLUMNAR_FORMATS, *TEXT_FORMATS)}
SUFFIXES |= {"pq": "parquet", "json": "jsonl", "ndjson": "jsonl"}
UNREAD_SUFFIXES = ("arrow", "arrows", "ipc", "feather")
TEXT_PROVIDERS = {"csv", "json", "text", "xml"}
# Parts of SQL that run programs or Java methods, which could write.
PROGRAMS = re.compile(r"\b(reflect|try_reflect|java_method)\b|\busing\b(?!\s*\()", re.IGNORECASE)
# What the folder of a table holds besides its data, deleted rows among them, by the tool that wrote it.
TABLE_MARKS = {"_delta_log": "Delta Lake", ".hoodie": "Hudi", "metadata/*.metadata.json": "Iceberg"}
CASE_SENSITIVE = "spark.sql.caseSensitive"
PARTITION_TYPES = "spark.sql.sources.partitionColumnTypeInference.enabled"
FILES_IN_QUERIES = "spark.sql.runSQLOnFiles"


class OpenedFrame(NamedTuple):
    """A DataFrame with the wanted columns, and what must be checked before it is used but takes reading rows."""

    frame: DataFrame
    check_rows: Callable[[], None]


def check_names(source: SparkSource, query: str | None) -> None:
    """Refuse, before Spark starts, what can be told by the names: passwords, formats, queries that could write."""
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
    """Return the format of a source, by its suffix or as it was said; Parquet when nothing tells."""
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
    told = suffix_format(last)
    if told in UNREAD_SUFFIXES:
        raise BadSource("Spark does not read Arrow files.", "Write them as Parquet, or leave out --engine spark.")
    if told is not None and input_format is not None and told != input_format:
        raise BadParameter(
            f"The input format is {input_format!r}, but a source is {told!r} by its name.",
            "Leave the input format out, or name sources of this format only.",
        )
    return input_format or told or "parquet"


def suffix_format(name: str) -> str | None:
    """Return the format that the suffix of a file names, compression aside; None when it names none."""
    path = PurePosixPath(name.lower())
    plain = path.with_suffix("") if path.suffix in COMPRESSIONS else path
    suffix = plain.suffix.removeprefix(".")
    return suffix if suffix in UNREAD_SUFFIXES else SUFFIXES.get(suffix)


def open_frame(asked: Request) -> OpenedFrame:
    """Open what is to be read as a DataFrame of the wanted columns, and check their types.

    Guarantees:
    - no row is read before `check_rows` is called, and no type is inferred from rows, now or later;
    - columns are found by their names in every file and table; what lacks one is refused.
    """
    user, values = checked_names(asked.user, asked.value)
    rows = WantedRows(user, values, asked.kind, asked.null_users)
    opened = _opened(asked.source, rows, asked.input_format, asked.query)
    frame = columns_of(opened.frame, user, values)
    check_source(empty_table(frame), user=user, value=asked.value, kind=asked.kind, granularity=asked.granularity)
    return OpenedFrame(frame, opened.check_rows)


def _opened(source: Any, rows: WantedRows, input_format: str | None, query: str | None) -> OpenedFrame:
    """Open a source, or take a DataFrame as it is."""
    if not isinstance(source, SparkSource):
        if query is not None or input_format is not None:
            raise BadParameter(
                "A DataFrame takes no query and no input format.",
                "Leave them out, and select from the DataFrame first.",
            )
        return OpenedFrame(source, lambda: None)
    session = open_session(source.master, dict(source.settings))
    if is_connect(session):
        # subtle: it opens files late, when the settings that keep types from being inferred no longer hold.
        raise BadParameter(
            "On Spark Connect dpunion cannot open files or tables itself.",
            "Read them with Spark, and pass the DataFrame.",
        )
    formats = {name: format_of(name, input_format) for name in source.names}
    first = next(iter(formats.values()))
    if first in TEXT_FORMATS:
        return _text_frame(session, formats, rows)
    if first == TABLE:
        opened = OpenedFrame(_tables(session, source.names, rows if query is None else None), lambda: None)
    else:
        opened = _columnar_frame(session, source.names, first, rows if query is None else None)
    if query is None:
        return opened
    return OpenedFrame(selected_by(session, opened.frame, query), opened.check_rows)


def is_connect(session: object) -> bool:
    """Say whether a session is one of Spark Connect, without importing it."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def selected_by(session: SparkSession, frame: DataFrame, query: str) -> DataFrame:
    """Return the query's rows of a frame, which is its table `source`.

    Guarantees: nothing is run or written. As a part of a select, Spark's grammar takes a query and no other statement.
    """
    frame.createOrReplaceTempView("source")
    text = query.strip().rstrip(";")
    with setting(session, FILES_IN_QUERIES, "false"):
        return cleanly(lambda: session.sql(f"select * from (\n{text}\n)"))  # noqa: S608 - the operator's own


@contextlib.contextmanager
def setting(session: SparkSession, name: str, value: str) -> Iterator[None]:
    """Change a setting of the session for a while."""
    before = session.conf.get(name)
    session.conf.set(name, value)
    try:
        yield
    finally:
        session.conf.set(name, before)


def listed(session: SparkSession, name: str, format_: str) -> list[str]:
    """Return all files below a name; refuse when there is none, or one of another format."""
    found = input_files(whole_files(session, [name]))
    if not found:
        raise SourceNotFound("Spark found no files in a source.", "Check the paths and patterns.")
    for file in found:
        told = suffix_format(urllib.parse.unquote(file))
        if told is not None and told != format_:
            raise BadSource(
                f"A source that is read as {format_!r} has a file that is {told!r} by its name.",
                "Move that file, or name the files to read by a pattern with their suffix.",
            )
    return found


def check_no_table(session: SparkSession, name: str) -> None:
    """Refuse a folder of which only a table's own reader knows which files count."""
    for mark, tool in TABLE_MARKS.items():
        try:
            whole_files(session, [f"{name.rstrip('/')}/{mark}"])
        except SourceNotFound:
            continue
        raise BadSource(
            f"A source is a table of {tool}: its folder also contains deleted rows.",
            "Name it in Spark's catalog and use --input-format table, or pass a DataFrame.",
        )


def _text_frame(session: SparkSession, formats: dict[str, str], rows: WantedRows) -> OpenedFrame:
    for name, format_ in formats.items():
        listed(session, name, format_)
    groups = [
        (whole_files(session, [name for name, one in formats.items() if one == format_]), TEXT_FORMATS[format_])
        for format_ in sorted(set(formats.values()))
    ]
    count = check_sizes(groups)
    frames = [read_text_files(files, format_, rows) for files, format_ in groups]
    frame = cleanly(lambda: functools.reduce(lambda one, other: one.unionByName(other), frames))

    def check_rows() -> None:
        if count > 1 and any(format_ is Format.JSON_LINES for _, format_ in groups):
            check_kinds(groups, rows)

    return OpenedFrame(frame, check_rows)


def _columnar_frame(session: SparkSession, names: Sequence[str], format_: str, rows: WantedRows | None) -> OpenedFrame:
    """Open Parquet or ORC; rows: which columns are wanted, all of them when None."""
    for name in names:
        check_no_table(session, name)
    files = {file for name in names for file in listed(session, name, format_)}
    reader = session.read.format(format_).option("mergeSchema", True)
    reader = reader.option("ignoreCorruptFiles", False).option("ignoreMissingFiles", False)
    # subtle: by default 01 is made 1, unless somebody else's folder is no number.
    with setting(session, PARTITION_TYPES, "false"):
        frame = cleanly(lambda: reader.load(list(names)))
    if set(input_files(frame)) != files:
        raise BadSource(
            "Spark would leave out files in subfolders that are not named key=value.",
            "Name the subfolders, or a pattern such as 'folder/*'.",
        )
    asked = frame.columns if rows is None else rows.names
    refuse_merged_columns(session, names, format_, files, asked)
    wanted = [name for name in asked if name in frame.columns]
    return OpenedFrame(frame, lambda: check_complete(frame, format_, wanted))


def refuse_merged_columns(
    session: SparkSession, names: Sequence[str], format_: str, files: Iterable[str], wanted: Sequence[str]
) -> None:
    """Refuse columns that Spark takes for one: of names that differ in case only, or of a file and of its folder."""
    reader = session.read.format(format_).option("mergeSchema", True).option("recursiveFileLookup", True)
    with setting(session, CASE_SENSITIVE, "true"):
        stored = cleanly(lambda: reader.load(list(names)).columns)
    told = {name for file in files for name, _ in partitions_above(file)}
    for name in wanted:
        if [one.lower() for one in (*stored, *told)].count(name.lower()) > 1:
            raise BadSource(
                f"There are several columns {name!r}: their names differ in case only, or one is the name of a folder"
                f" '{name}=…'.",
                "Rename or remove all but one of them, in all files.",
            )


def partitions_above(file: str) -> Partitions:
    """Return what the folders above a file tell."""
    return partitions_of(PurePosixPath(urllib.parse.unquote(file)).parts[:-1], "a file")


def check_complete(frame: DataFrame, format_: str, names: Sequence[str]) -> None:
    """Refuse a frame when one of its files lacks one of the columns, for which Spark would put nulls.

    subtle: Spark does not say which file has what. A file that lacks a column has nulls only in it, so only the files
    with such a column are opened one by one.
    """
    from pyspark.sql import functions as F  # noqa: N812

    flags = [F.max(column_named(name).isNotNull()).alias(f"has{place}") for place, name in enumerate(names)]
    found = frame.groupBy(F.col("_metadata.file_path").alias("file")).agg(*flags)
    complete = " and ".join(f"has{place}" for place in range(len(names)))
    suspects = cleanly(found.filter(f"not ({complete})").select("file").collect)
    for (file,) in suspects:
        path = urllib.parse.unquote(file)
        exact = re.sub(r"([\\*?\[\]{}])", r"\\\1", path)
        reader = frame.sparkSession.read.format(format_)
        own = cleanly(lambda reader=reader, exact=exact: reader.load(exact).columns)  # type: ignore[misc]
        told = [name for name, _ in partitions_above(file)]
        for name in names:
            if name not in own and name not in told:
                raise BadSource(
                    f"A file lacks the column {name!r}, which others have.",
                    "Leave the file out, or write it again with all columns.",
                )


def _tables(session: SparkSession, names: Sequence[str], rows: WantedRows | None) -> DataFrame:
    """Return tables as one, by the names of columns; rows: which are wanted, all of them when None."""
    frames = []
    for name in names:
        provider = _provider(session, name)
        if provider in TEXT_PROVIDERS:
            raise BadSource(
                f"A table is stored as {provider}, which Spark does not read strictly.",
                f"Name its files as the source, or store it as Parquet. {TO_PARQUET}",
            )
        frame = cleanly(functools.partial(session.table, name))
        if rows is not None:
            find_columns(frame.columns, rows.wanted(), f"table {name!r}")
            frame = columns_of(frame, rows.user, rows.values)
        frames.append(frame)
    kinds = [{field.name: field.dataType for field in frame.schema} for frame in frames]
    if any(kind != kinds[0] for kind in kinds):
        raise UnsupportedType(
            "The tables have columns of different names or types.",
            "Cast them to one type (text is always possible) in everything that is read together.",
        )
    return cleanly(lambda: functools.reduce(lambda one, other: one.unionByName(other), frames))


def _provider(session: SparkSession, name: str) -> str:
    """Return how a table is stored; empty for views, and where the catalog does not say."""
    described = cleanly(lambda: session.sql(f"describe table extended {name}").collect())
    return next((row[1].lower() for row in described if row[0] == "Provider"), "")
