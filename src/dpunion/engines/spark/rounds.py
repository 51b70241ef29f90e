"""The DataFrames of a release: users together, the rounds, and the released items on their way out.

Guarantees of every function here:
- the run key travels in closures only, never in a literal, a column or the name of anything;
- nothing but released items reaches the driver, and these only if a caller collects them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from dpunion.engines.spark.sessions import call_spark, closures_in_memory, guard_task
from dpunion.engines.spark.sources import column_named
from dpunion.engines.spark.tasks import (
    SHARDS_PER_MASK,
    CutIntoPieces,
    CutWhole,
    Decide,
    KeepWhole,
    Reader,
    ReadRenamed,
    Secret,
    SplitKeys,
    Weigh,
    WeighRows,
    by_name,
)
from dpunion.errors import CannotWrite, InternalError
from dpunion.mechanisms import Mechanism
from dpunion.randomness import RunKey

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PIECES = "shard int, payload binary, name binary"
GIVEN = "item binary, units long, sensitivity double"
SUMS = "digest binary, shard int, units long, score double, sensitivity double"
REPLIES = "shard int, payload binary, score double"
RELEASED = "payload binary"
ROWS_PER_FILE = 1_000_000


# --- from rows to released items --------------------------------------------------------------------------------


@contextlib.contextmanager
def select_items(
    frame: DataFrame, mechanism: Mechanism, read: Reader, key: RunKey, shards: int, *, grouped: bool = False
) -> Iterator[DataFrame]:
    """Run the rounds on rows whose first column is the user; give the released items as one column, `item` (binary).

    grouped: every partition has whole users already, whatever its columns are. The frame is for one action: see
    `write_folder`, `collect_items`. Leaving the context drops what was kept between rounds.

    Guarantees:
    - every user's rows meet in one partition, so that they are bounded together;
    - a user belongs to one shard, so one user moves the summed weights by no more than on one machine;
    - tasks that run again draw the same noise;
    - Spark does not write large closures, and so the key, to files.
    """
    secret = Secret.of(key)
    rows = frame
    if not grouped:
        read = ReadRenamed(read, tuple(frame.columns))
        rows = group_by_user(frame)
    with closures_in_memory(frame.sparkSession):
        if is_order_free(mechanism):
            decide = Decide(mechanism, secret, 0, 1, naming=by_name)
            given = rows.mapInArrow(guard_task(WeighRows(read, mechanism, secret)), GIVEN)
            yield sum_units(given, "item").mapInArrow(guard_task(decide), RELEASED).toDF("item")
            return
        task = CutIntoPieces(read, mechanism.bounding, secret, shards)
        with cut_into_pieces(rows, task) as pieces, select_from_pieces(pieces, mechanism, key, shards) as chosen:
            yield chosen


@contextlib.contextmanager
def select_from_pieces(pieces: DataFrame, mechanism: Mechanism, key: RunKey, shards: int) -> Iterator[DataFrame]:
    """Run the rounds on pieces; give the released items as `select_items` does.

    Guarantees: the semi-join can send only the chosen digests to all executors, so no other name travels.
    """
    with drop_afterwards() as kept:
        chosen = run_rounds(pieces, mechanism, Secret.of(key), shards, kept)
        names = pieces.filter("name is not null").select("payload", "name")
        found = names.join(chosen.hint("shuffle_hash"), "payload", "left_semi")
        yield found.dropDuplicates(["payload"]).selectExpr("name as item")


def group_by_user(frame: DataFrame) -> DataFrame:
    """Bring the rows of each user together; the first column is the user. Columns get numbers (see `ReadRenamed`)."""
    return frame.toDF(*(f"column{place}" for place in range(len(frame.columns)))).repartition("column0")


def is_order_free(mechanism: Mechanism) -> bool:
    """Say whether a user's weights depend on that user's set alone, in one round: then partitions are simply added."""
    return mechanism.cutoff is None and mechanism.rounds == 1


@contextlib.contextmanager
def cut_into_pieces(rows: DataFrame, task: CutIntoPieces | KeepWhole | CutWhole) -> Iterator[DataFrame]:
    """Give everybody's sets as pieces, computed once; drop them on leaving."""
    pieces = rows.mapInArrow(guard_task(task), PIECES).persist()
    with drop_afterwards(pieces):
        materialize(pieces)
        yield pieces


def run_rounds(
    pieces: DataFrame, mechanism: Mechanism, secret: Secret, shards: int, kept: list[DataFrame]
) -> DataFrame:
    """Run the rounds over the shards' pieces; return the digests of the released items (payload: binary).

    kept: gets the frames that this function persists.

    Guarantees: given the replies, one user moves the sums of a round by at most the mechanism's sensitivity.
    """
    from pyspark.sql import functions as F  # noqa: N812

    state = pieces.filter("shard is not null").select("shard", "payload", F.lit(None).cast("double").alias("score"))
    replies: DataFrame | None = None
    released: DataFrame | None = None
    for number in range(mechanism.rounds):
        inputs = state if replies is None else state.unionByName(replies)
        # If a user's weights depend on that user's set alone, they are added where they are.
        together = inputs if is_order_free(mechanism) else inputs.repartitionById(shards, "shard")
        parts = together.mapInArrow(guard_task(Weigh(mechanism, secret, number, shards)), SUMS)
        goes_on = number + 1 < mechanism.rounds and not mechanism.tells_released
        decide = guard_task(Decide(mechanism, secret, number, shards, replies=goes_on))
        decided = _sum_shards(parts, shards if goes_on else 0).mapInArrow(decide, REPLIES if goes_on else RELEASED)
        if mechanism.tells_released:
            kept.append(decided.persist())
            materialize(decided)
            released = decided if released is None else released.unionByName(decided)
            every_shard = F.explode(F.sequence(F.lit(0), F.lit(shards - 1))).alias("shard")
            replies = released.select(every_shard, "payload", F.lit(0.0).alias("score"))
        else:
            replies = released = decided
    if released is None:
        raise InternalError("an algorithm without rounds")
    return released


@contextlib.contextmanager
def drop_afterwards(*frames: DataFrame) -> Iterator[list[DataFrame]]:
    """Give a list of persisted frames, to which more can be added; drop them on leaving."""
    kept = list(frames)
    try:
        yield kept
    finally:
        for frame in kept:
            with contextlib.suppress(Exception):
                frame.unpersist()


def materialize(frame: DataFrame) -> None:
    """Compute a persisted frame once; no row of it comes to the driver."""
    call_spark(lambda: frame.write.format("noop").mode("overwrite").save())


def _sum_shards(parts: DataFrame, shards: int) -> DataFrame:
    """Sum the shards' reports on each item; for a number of shards above 0, also say which shards have the item.

    A column `shards0`, `shards1`, ... is a bit mask of 62 shards.
    """
    from pyspark.sql import functions as F  # noqa: N812

    masks = []
    for block, first in enumerate(range(0, shards, SHARDS_PER_MASK)):
        bit = f"case when shard div {SHARDS_PER_MASK} = {block} then shiftleft(1L, shard - {first}) else 0L end"
        masks.append(F.expr(f"bit_or({bit})").alias(f"shards{block}"))
    return sum_units(parts, "digest", F.max("score").alias("score"), *masks)


def sum_units(parts: DataFrame, by: str, *more: Column) -> DataFrame:
    """Sum the units of each item; a sum beyond 63 bits is null, whatever the session's setting for overflows."""
    from pyspark.sql import functions as F  # noqa: N812

    least, most = F.min("sensitivity").alias("least_sensitivity"), F.max("sensitivity").alias("most_sensitivity")
    return parts.groupBy(by).agg(F.try_sum("units").alias("units"), least, most, *more)


# --- released items ---------------------------------------------------------------------------------------------


def collect_items(items: DataFrame) -> list[bytes]:
    """Bring the released items to the driver, sorted."""
    return sorted(call_spark(items.toArrow).column(0).to_pylist())


def sort_items(items: DataFrame, columns: tuple[str, ...]) -> DataFrame:
    """Return the released items as text columns of these names, sorted, in one partition."""
    if len(columns) == 1:
        texts = items.selectExpr("cast(item as string) as item")
    else:
        schema = ", ".join(f"`{name.replace('`', '``')}` string" for name in columns)
        texts = items.mapInArrow(guard_task(SplitKeys(columns)), schema)
    return texts.repartition(1).sortWithinPartitions(*map(column_named, texts.columns))


def send_rows(session: SparkSession, rows: pa.Table) -> DataFrame:
    """Send a release's rows, which are public, to Spark: one partition, in their order."""
    names = [f"column{place}" for place in range(len(rows.column_names))]
    numbered = rows.rename_columns(names).append_column("place", pa.array(range(len(rows)), pa.int64()))
    frame = call_spark(lambda: session.createDataFrame(numbered))
    return frame.repartition(1).sortWithinPartitions("place").drop("place").toDF(*rows.column_names)


def check_folder(frame: DataFrame, path: str) -> None:
    """Refuse an output folder that exists; other problems show when Spark writes."""
    try:
        # subtle: Spark looks for the path when it makes the frame, and Spark Connect when it needs the columns.
        _ = frame.sparkSession.read.format("text").load(path).columns
    except Exception:  # noqa: BLE001 - there is no such path, or writing will fail
        return
    raise CannotWrite("The output folder exists already.", "Choose another, or allow overwriting (--force).")


def write_folder(ordered: DataFrame, path: str, *, overwrite: bool) -> None:
    """Write one sorted partition of released items with Spark, as Parquet files of a million rows.

    Guarantees: the number of files and their content follow from the released items alone.
    """
    writer = ordered.write.mode("overwrite" if overwrite else "error")
    writer = writer.option("maxRecordsPerFile", ROWS_PER_FILE).option("compression", "zstd")
    call_spark(lambda: writer.parquet(path))
