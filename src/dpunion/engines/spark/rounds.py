"""The DataFrames of a release: users together, the rounds, and the released items on their way out.

Guarantees of every function here:
- the run key travels in closures only, never in a literal, a column or the name of anything;
- nothing but released items reaches the driver, and these only if a caller collects them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from dpunion.engines.spark import tasks
from dpunion.engines.spark.sessions import Spread, call_spark, change_setting, guard_task
from dpunion.engines.spark.sources import PARTITIONS, column_named
from dpunion.engines.spark.tasks import (
    MARKS_SHARD,
    SHARDS_PER_MASK,
    CutIntoPieces,
    Naming,
    PublicDigests,
    Reader,
    Secret,
)
from dpunion.engines.spark.wire import digests_from_arrow
from dpunion.errors import CannotWrite, InternalError
from dpunion.mechanisms import Mechanism

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MARKS = "payload binary, name binary"
PIECES = "shard int, payload binary, name binary"
GIVEN = "item binary, units long, sensitivity double"
SUMS = "digest binary, shard int, units long, score double, sensitivity double"
REPLIES = "shard int, payload binary, score double"
RELEASED = "payload binary"
ROWS_PER_FILE = 1_000_000


@dataclass(frozen=True, slots=True, repr=False)
class Selecting:
    """What the rounds need besides the sets; tell: reports progress; listed: the public list of candidates.

    marks: public candidates (payload: digest, name) that are released if nobody keeps them.
    """

    mechanism: Mechanism
    secret: Secret
    shards: int
    spread: Spread
    tell: Callable[[str, float | None], None]
    listed: PublicDigests | None = None
    marks: pa.RecordBatch | None = None

    def __repr__(self) -> str:
        return "Selecting(<sensitive>)"


@dataclass(frozen=True, slots=True)
class Pieces:
    """Everybody's sets and the items' names as a persisted frame; load: how many tasks' room they fill."""

    frame: DataFrame
    load: int


# --- from rows to released items --------------------------------------------------------------------------------


@contextlib.contextmanager
def select_items(
    frame: DataFrame, selecting: Selecting, read: Reader, *, grouped: bool = False, naming: Naming = tasks.by_name
) -> Iterator[DataFrame]:
    """Run the rounds on rows whose first column is the user; give the released items as one column, `item` (binary).

    grouped: every partition has whole users already, whatever its columns are. The frame is for one action: see
    `write_folder`, `collect_items`. Leaving the context drops what was kept for rounds.

    Guarantees:
    - every user's rows meet in one partition, so that they are bounded together;
    - a user belongs to one shard, so one user moves the summed weights by no more than on one machine;
    - tasks that run again draw the same noise.
    """
    mechanism, secret = selecting.mechanism, selecting.secret
    rows = frame
    if not grouped:
        read = functools.partial(tasks.read_renamed, read, tuple(frame.columns))
        rows = group_by_user(frame, selecting.spread)
    if is_order_free(mechanism):
        given = rows.mapInArrow(guard_task(tasks.WeighRows(read, mechanism, secret)), GIVEN)
        if selecting.marks is not None:
            # subtle: a mark weighs nothing, and every user's share is positive: a sum of 0 is a mark nobody keeps.
            zeros = ("name as item", "0L as units", "cast(null as double) as sensitivity")
            given = given.unionByName(send_marks(frame.sparkSession, selecting.marks).selectExpr(*zeros))
        decide = tasks.Decide(mechanism, secret, 0, 1, naming=naming, marked=selecting.marks is not None)
        sums = sum_units(given, "item", selecting.spread.rows)
        yield sums.mapInArrow(guard_task(decide), RELEASED).toDF("item")
        return
    task = CutIntoPieces(read, mechanism.bounding, secret, selecting.shards)
    with cut_into_pieces(rows, task, selecting.spread) as pieces, select_from_pieces(pieces, selecting) as chosen:
        yield chosen


@contextlib.contextmanager
def select_from_pieces(pieces: Pieces, selecting: Selecting) -> Iterator[DataFrame]:
    """Run the rounds on pieces; give the released items as `select_items` does.

    If the pieces fit into the room of one task, this task runs all rounds. Otherwise Spark shuffles twice in a round.

    Guarantees: both ways release the same items; the digests are joined by a shuffle, so that neither the driver nor
    an executor gets a list of names.
    """
    wanted, marks = pieces.frame.filter("shard is not null or name is not null"), selecting.marks
    if pieces.load <= 1:
        if marks is not None:
            marked = send_marks(wanted.sparkSession, marks)
            wanted = wanted.unionByName(marked.selectExpr(f"{MARKS_SHARD} as shard", "payload", "name"))
        together = wanted.coalesce(1) if selecting.spread.rows == 1 else wanted.repartition(1)
        here = tasks.RunRounds(selecting.mechanism, selecting.secret, selecting.shards, selecting.listed)
        selecting.tell("selecting on Spark, all rounds in one task", None)
        yield together.mapInArrow(guard_task(here), RELEASED).toDF("item")
        return
    with drop_afterwards() as kept:
        width = selecting.spread.width(pieces.load)
        # subtle: without these shuffles and the hint, a join could send its smaller side to the driver. A left_semi
        # join would move below the shuffle of the names; and Spark shuffles again into as many partitions as the
        # session's, if these are more.
        chosen = run_rounds(pieces, selecting, kept).repartition(width, "payload").hint("shuffle_hash")
        names = wanted.filter("name is not null").select("payload", "name").repartition(width, "payload")
        found = names.join(chosen, "payload").dropDuplicates(["payload"]).selectExpr("name as item")
        with change_setting(wanted.sparkSession.conf, PARTITIONS, "1", owner=wanted.sparkSession):
            yield found if marks is None else found.unionByName(find_unkept(pieces, marks, width))


def group_by_user(frame: DataFrame, spread: Spread) -> DataFrame:
    """Bring the rows of each user together; the first column is the user. Columns get numbers (see `read_renamed`)."""
    numbered = frame.toDF(*(f"column{place}" for place in range(len(frame.columns))))
    return numbered.repartition(spread.rows, "column0")


def is_order_free(mechanism: Mechanism) -> bool:
    """Say whether a user's weights depend on that user's set alone, in one round: then partitions are simply added."""
    return mechanism.cutoff is None and mechanism.rounds == 1


@contextlib.contextmanager
def cut_into_pieces(rows: DataFrame, task: CutIntoPieces, spread: Spread) -> Iterator[Pieces]:
    """Give everybody's sets as pieces, computed once; drop them on leaving."""
    frame = rows.mapInArrow(guard_task(task), PIECES).persist()
    with drop_afterwards(frame):
        yield Pieces(frame, measure_load(frame, spread))


def run_rounds(pieces: Pieces, selecting: Selecting, kept: list[DataFrame]) -> DataFrame:
    """Run the rounds over the shards' pieces; return the digests of the released items (payload: binary).

    kept: gets the frames that this function persists. Each round is computed once, and then the round before is
    dropped.

    Guarantees: given the replies, one user moves the sums of a round by at most the mechanism's sensitivity.
    """
    from pyspark.sql import functions as F  # noqa: N812

    mechanism, secret, shards = selecting.mechanism, selecting.secret, selecting.shards
    width = selecting.spread.width(pieces.load)
    sets = pieces.frame.filter("shard is not null")
    state = sets.select("shard", "payload", F.lit(None).cast("double").alias("score"))
    replies: DataFrame | None = None
    for number in range(mechanism.rounds):
        selecting.tell(f"selecting on Spark, round {number + 1} of {mechanism.rounds}", number / mechanism.rounds)
        inputs = state if replies is None else state.unionByName(replies)
        count = min(shards, width)
        # If a user's weights depend on that user's set alone, they are added where they are.
        alone = is_order_free(mechanism)
        together = inputs if alone else inputs.repartitionById(count, F.expr(f"shard % {count}"))
        weigh = guard_task(tasks.Weigh(mechanism, secret, number, shards, selecting.listed))
        parts = together.mapInArrow(weigh, SUMS)
        goes_on = number + 1 < mechanism.rounds and not mechanism.tells_released
        decide = guard_task(tasks.Decide(mechanism, secret, number, shards, replies=goes_on, listed=selecting.listed))
        masks = []  # a column `shards0`, `shards1`, ... is a bit mask: which of 62 shards have the item
        for block, first in enumerate(range(0, shards if goes_on else 0, SHARDS_PER_MASK)):
            bit = f"case when shard div {SHARDS_PER_MASK} = {block} then shiftleft(1L, shard - {first}) else 0L end"
            masks.append(F.expr(f"bit_or({bit})").alias(f"shards{block}"))
        sums = sum_units(parts, "digest", width, F.max("score").alias("score"), *masks)
        decided = sums.mapInArrow(decide, REPLIES if goes_on else RELEASED).persist()
        kept.append(decided)
        materialize(decided)
        if mechanism.tells_released:
            released = functools.reduce(lambda one, other: one.unionByName(other), kept)
            every_shard = F.explode(F.sequence(F.lit(0), F.lit(shards - 1))).alias("shard")
            replies = released.select(every_shard, "payload", F.lit(0.0).alias("score"))
        else:
            replies = released = decided
            while len(kept) > 1:
                kept.pop(0).unpersist()
    if replies is None:
        raise InternalError("an algorithm without rounds")
    return released


def send_marks(session: SparkSession, marks: pa.RecordBatch) -> DataFrame:
    """Send marks to Spark in a closure, in one partition; which items are marked is as secret as the key."""
    return session.range(0, 1, 1, 1).mapInArrow(guard_task(functools.partial(tasks.emit_rows, marks)), MARKS)


def find_unkept(pieces: Pieces, marks: pa.RecordBatch, width: int) -> DataFrame:
    """Return the names of the marks that nobody keeps by the plan that runs, as one column, `item`."""
    from pyspark.sql import functions as F  # noqa: N812

    sets = pieces.frame.filter("shard is not null").select("payload")
    marked = PublicDigests.of(digests_from_arrow(marks.column("payload")))
    find = functools.partial(tasks.find_kept, marked)
    kept = sets.mapInArrow(guard_task(find), RELEASED).selectExpr("payload", "cast(null as binary) as name")
    both = send_marks(sets.sparkSession, marks).unionByName(kept).repartition(width, "payload")
    found = both.groupBy("payload").agg(F.max("name").alias("item"), F.expr("bool_or(name is null)").alias("is_kept"))
    return found.filter("not is_kept").select("item")


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


def measure_load(frame: DataFrame, spread: Spread) -> int:
    """Compute a persisted frame once; return how many tasks' room it fills, which changes no result."""
    size = "length(payload) + coalesce(length(name), 0)"
    load = frame.selectExpr(f"cast(ceil(sum({size}) / {spread.room}) as int) as load")
    return int(call_spark(load.toArrow).column(0)[0].as_py() or 0)


def sum_units(parts: DataFrame, by: str, width: int, *more: Column) -> DataFrame:
    """Sum the units of each item; a sum beyond 63 bits is null, whatever the session's setting for overflows.

    width: the number of partitions of the sums. Spark sums after the shuffle: a task gives each item once already.
    """
    from pyspark.sql import functions as F  # noqa: N812

    least, most = F.min("sensitivity").alias("least_sensitivity"), F.max("sensitivity").alias("most_sensitivity")
    together = parts.repartition(width, by).groupBy(by)
    return together.agg(F.try_sum("units").alias("units"), least, most, *more)


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
        texts = items.mapInArrow(guard_task(functools.partial(tasks.split_items, columns)), schema)
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
