"""What is done to Spark's DataFrames before and after the rounds: columns, users together, items out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from dpunion import errors
from dpunion.engines.spark.failures import cleanly
from dpunion.engines.spark.partitions import SplitKeys
from dpunion.engines.spark.tasks import guarded

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ROWS_PER_FILE = 1_000_000


def columns_of(frame: DataFrame, user: str | None, value: str | tuple[str, ...] | None) -> DataFrame:
    """Return the frame with the columns of users and values only, the user first."""
    owner, values = checked_names(user, value)
    names = [owner, *values]
    if any(name not in frame.columns for name in names):
        # The check of the source says it better: which column, and which names are near.
        return frame
    return cleanly(lambda: frame.select(*map(column_named, names)))


def checked_names(user: str | None, value: str | tuple[str, ...] | None) -> tuple[str, tuple[str, ...]]:
    """Return the columns of users and of values; refuse what names none."""
    values = (value,) if isinstance(value, str) else value
    if not isinstance(user, str) or not isinstance(values, tuple):
        raise errors.BadParameter("A DataFrame needs the names of its columns.", "Name the user and the item column.")
    return user, values


def column_named(name: str) -> Column:
    """Return a frame's column of exactly this name, dots and backticks included."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.col("`" + name.replace("`", "``") + "`")


def by_user(frame: DataFrame) -> DataFrame:
    """Bring the rows of every user together, users being the first column; the columns are numbered (see `Renamed`)."""
    return frame.toDF(*(f"column{place}" for place in range(len(frame.columns)))).repartition("column0")


def empty_table(frame: DataFrame) -> pa.Table:
    """Return the frame's columns as Arrow, without rows."""
    return cleanly(lambda: frame.limit(0).toArrow())


def as_columns(items: DataFrame, columns: tuple[str, ...]) -> DataFrame:
    """Return the released items as text columns of these names."""
    if len(columns) == 1:
        return items.selectExpr("cast(item as string) as item")
    schema = ", ".join(f"`{name.replace('`', '``')}` string" for name in columns)
    return items.mapInArrow(guarded(SplitKeys(columns)), schema)


def check_folder(frame: DataFrame, path: str) -> None:
    """Refuse an output folder that exists; what cannot be told before writing is left to the writing."""
    try:
        # subtle: looking for the path is part of making the frame, on Spark Connect of asking for its columns.
        _ = frame.sparkSession.read.format("text").load(path).columns
    except Exception:  # noqa: BLE001 - there is no such path, or it will be seen later
        return
    raise errors.CannotWrite("The output folder exists already.", "Choose another, or allow overwriting (--force).")


def input_files(frame: DataFrame) -> list[str]:
    """Return the files a frame reads, sorted; none for frames that are made otherwise."""
    return sorted(cleanly(frame.inputFiles))


def collected(items: DataFrame) -> list[bytes]:
    """Bring the released items to the driver, sorted."""
    return sorted(cleanly(items.toArrow).column(0).to_pylist())


def by_item(items: DataFrame) -> DataFrame:
    """Return the released items as one sorted run."""
    return items.repartition(1).sortWithinPartitions(*map(column_named, items.columns))


def as_frame(session: SparkSession, rows: pa.Table) -> DataFrame:
    """Hand a release's rows, which are public, to Spark."""
    return cleanly(lambda: session.createDataFrame(rows))


def rows_in_order(session: SparkSession, rows: pa.Table) -> DataFrame:
    """Return a release's rows, which are public, as one run in their order."""
    names = [f"column{place}" for place in range(len(rows.column_names))]
    numbered = rows.rename_columns(names).append_column("place", pa.array(range(len(rows)), pa.int64()))
    frame = as_frame(session, numbered)
    return frame.repartition(1).sortWithinPartitions("place").drop("place").toDF(*rows.column_names)


def written(ordered: DataFrame, path: str, *, overwrite: bool) -> None:
    """Write one run of released items with Spark, as Parquet, cut into files of a million rows.

    Guarantees: how many files there are, and what is in which, follows from the released items alone.
    """
    writer = ordered.write.mode("overwrite" if overwrite else "error")
    writer = writer.option("maxRecordsPerFile", ROWS_PER_FILE).option("compression", "zstd")
    cleanly(lambda: writer.parquet(path))
