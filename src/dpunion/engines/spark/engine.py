"""The rounds as Spark DataFrames: who is summed with whom, and what is kept between rounds.

Guarantees of every function here:
- the run key travels in closures only, never in a literal, a column or the name of anything;
- nothing but released items reaches the driver, and these only where a caller asks for them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dpunion import errors
from dpunion.algorithms import Funnel
from dpunion.engines.spark.frames import cleanly
from dpunion.engines.spark.partitions import CutIntoPieces, Reader, Renamed, SplitKeys, WeighRows
from dpunion.engines.spark.targets import check_scores
from dpunion.engines.spark.tasks import SHARDS_PER_MASK, Decide, Secret, Weigh, by_name, guarded
from dpunion.mechanisms import Mechanism
from dpunion.plans import Plan
from dpunion.randomness import RunKey

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

ROWS_PER_FILE = 1_000_000
LARGEST_CLOSURE = "spark.broadcast.UDFCompressionThreshold"
PIECES = "shard int, payload binary, name binary"
GIVEN = "item binary, units long, sensitivity double"
SUMS = "digest binary, shard int, units long, score double, sensitivity double"
REPLIES = "shard int, payload binary, score double"
RELEASED = "payload binary"


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


def check_run(plan: Plan, shards: int) -> None:
    """Refuse, before any data is read, so many shards that rounding in Funnel's scores is no longer negligible."""
    if isinstance(plan.algorithm, Funnel):
        check_scores(plan.scale, plan.threshold, plan.algorithm, shards)


def check_folder(frame: DataFrame, path: str) -> None:
    """Refuse an output folder that exists; what cannot be told before writing is left to the writing."""
    try:
        # subtle: looking for the path is part of making the frame; nothing is read.
        frame.sparkSession.read.format("text").load(path)
    except Exception:  # noqa: BLE001 - there is no such path, or it will be seen later
        return
    raise errors.CannotWrite("The output folder exists already.", "Choose another, or allow overwriting (--force).")


@contextlib.contextmanager
def selected(
    frame: DataFrame, mechanism: Mechanism, read: Reader, key: RunKey, shards: int, *, grouped: bool = False
) -> Iterator[DataFrame]:
    """Run the rounds on rows whose first column is the user; give the released items as one column, `item` (binary).

    grouped: the rows of whole users are in one partition already, whatever the columns.
    What is kept between rounds is dropped on leaving. The frame is for one action: see `written`, `collected`.

    Guarantees:
    - every user's rows meet in one partition, so that they are bounded together;
    - a user belongs to one shard, so one user moves the summed weights by no more than on one machine;
    - tasks that run again draw the same noise;
    - large closures are not written to files, and so the key is not.
    """
    with (
        closures_in_memory(frame.sparkSession),
        _selected(frame, mechanism, read, key, shards, grouped=grouped) as chosen,
    ):
        yield chosen


@contextlib.contextmanager
def closures_in_memory(session: SparkSession) -> Iterator[None]:
    """Have Spark send closures of every size as they are; by default it writes those above a megabyte to a file.

    Connect, and platforms that guard their context, do as they are set.
    """
    settings: Any = None
    with contextlib.suppress(Exception):
        settings = session.sparkContext._jsc.sc().conf()  # noqa: SLF001 - a running context has no other door
    if settings is None:
        yield
        return
    before = settings.get(LARGEST_CLOSURE, "1m")
    settings.set(LARGEST_CLOSURE, "1g")
    try:
        yield
    finally:
        settings.set(LARGEST_CLOSURE, before)


@contextlib.contextmanager
def _selected(
    frame: DataFrame, mechanism: Mechanism, read: Reader, key: RunKey, shards: int, *, grouped: bool
) -> Iterator[DataFrame]:
    secret = Secret.of(key)
    rows = frame
    if not grouped:
        read = Renamed(read, tuple(frame.columns))
        rows = by_user(frame)
    if is_order_free(mechanism):
        decide = Decide(mechanism, secret, 0, 1, naming=by_name)
        yield sums_of_rows(rows, mechanism, read, secret).mapInArrow(guarded(decide), RELEASED).toDF("item")
        return
    with cut_into_pieces(rows, mechanism, read, secret, shards) as pieces, dropped_after() as kept:
        yield named(pieces, run_rounds(pieces, mechanism, secret, shards, kept))


def is_order_free(mechanism: Mechanism) -> bool:
    """Say whether what users give depends on their own sets alone, once: then partitions are simply added up."""
    return mechanism.cutoff is None and mechanism.rounds == 1


@contextlib.contextmanager
def cut_into_pieces(
    rows: DataFrame, mechanism: Mechanism, read: Reader, secret: Secret, shards: int
) -> Iterator[DataFrame]:
    """Give everybody's sets as pieces by shard, computed once; drop them on leaving."""
    task = guarded(CutIntoPieces(read, mechanism.bounding, secret, shards))
    pieces = rows.mapInArrow(task, PIECES).persist()
    with dropped_after(pieces):
        materialize(pieces)
        yield pieces


def run_rounds(
    pieces: DataFrame, mechanism: Mechanism, secret: Secret, shards: int, kept: list[DataFrame]
) -> DataFrame:
    """Run the rounds over the shards' pieces; give the digests of what is released (payload: binary).

    kept: gets the frames that are persisted on the way.

    Guarantees: given what was replied, one user moves the sums of a round by at most what the mechanism says.
    """
    replies: DataFrame | None = None
    released: DataFrame | None = None
    for number in range(mechanism.rounds):
        weigh = guarded(Weigh(mechanism, secret, number, shards))
        parts = shard_inputs(pieces, shards, replies).mapInArrow(weigh, SUMS)
        goes_on = number + 1 < mechanism.rounds and not mechanism.tells_released
        decide = guarded(Decide(mechanism, secret, number, shards, replies=goes_on))
        decided = _sums(parts, shards if goes_on else 0).mapInArrow(decide, REPLIES if goes_on else RELEASED)
        if mechanism.tells_released:
            kept.append(decided.persist())
            materialize(decided)
            released = decided if released is None else released.unionByName(decided)
            replies = told_to_all(released, shards)
        else:
            replies = released = decided
    if released is None:
        raise errors.InternalError("an algorithm without rounds")
    return released


def told_to_all(released: DataFrame, shards: int) -> DataFrame:
    """Return what was released as replies to every shard."""
    from pyspark.sql import functions as F  # noqa: N812

    everywhere = F.explode(F.sequence(F.lit(0), F.lit(shards - 1))).alias("shard")
    return released.select(everywhere, "payload", F.lit(0.0).alias("score"))


def sums_of_rows(rows: DataFrame, mechanism: Mechanism, read: Reader, secret: Secret) -> DataFrame:
    """Add up what the users of all partitions give each item: (item, units, and the sensitivities)."""
    return added_up(rows.mapInArrow(guarded(WeighRows(read, mechanism, secret)), GIVEN), "item")


@contextlib.contextmanager
def dropped_after(*frames: DataFrame) -> Iterator[list[DataFrame]]:
    """Drop persisted frames on leaving, also those that are added to the list."""
    kept = list(frames)
    try:
        yield kept
    finally:
        for frame in kept:
            with contextlib.suppress(Exception):
                frame.unpersist()


def materialize(frame: DataFrame) -> None:
    """Compute a persisted frame once; nothing of it comes back."""
    cleanly(lambda: frame.write.format("noop").mode("overwrite").save())


def shard_inputs(pieces: DataFrame, shards: int, replies: DataFrame | None) -> DataFrame:
    """Bring each shard's pieces, and what was replied to it, together in one partition."""
    from pyspark.sql import functions as F  # noqa: N812

    state = pieces.filter("shard is not null").select("shard", "payload", F.lit(None).cast("double").alias("score"))
    inputs = state if replies is None else state.unionByName(replies)
    return inputs.repartitionById(shards, "shard")


def _sums(parts: DataFrame, shards: int = 0) -> DataFrame:
    """Add up what the shards report of each item; with shards, also say in which it is, 62 to a bit mask."""
    from pyspark.sql import functions as F  # noqa: N812

    masks = []
    for block, first in enumerate(range(0, shards, SHARDS_PER_MASK)):
        bit = f"case when shard div {SHARDS_PER_MASK} = {block} then shiftleft(1L, shard - {first}) else 0L end"
        masks.append(F.expr(f"bit_or({bit})").alias(f"shards{block}"))
    return added_up(parts, "digest", F.max("score").alias("score"), *masks)


def added_up(parts: DataFrame, by: str, *more: Column) -> DataFrame:
    """Add up the units of each item; a sum beyond 63 bits is null, whatever the session says about overflows."""
    from pyspark.sql import functions as F  # noqa: N812

    least, most = F.min("sensitivity").alias("least_sensitivity"), F.max("sensitivity").alias("most_sensitivity")
    return parts.groupBy(by).agg(F.try_sum("units").alias("units"), least, most, *more)


def input_files(frame: DataFrame) -> list[str]:
    """Return the files a frame reads, sorted; none for frames that are made otherwise."""
    return sorted(cleanly(frame.inputFiles))


def named(pieces: DataFrame, chosen: DataFrame) -> DataFrame:
    """Return the names of the chosen digests as one column, `item`.

    Guarantees: of a semi-join only the side of the chosen can be sent around whole, so other names stay where they are.
    """
    names = pieces.filter("name is not null").select("payload", "name")
    found = names.join(chosen.hint("shuffle_hash"), "payload", "left_semi")
    return found.dropDuplicates(["payload"]).selectExpr("name as item")


def collected(items: DataFrame) -> list[bytes]:
    """Bring the released items to the driver, sorted."""
    return sorted(cleanly(items.toArrow).column(0).to_pylist())


def written(items: DataFrame, path: str, *, overwrite: bool) -> None:
    """Write the released items with Spark, as Parquet: one sorted run, cut into files of a million rows.

    Guarantees: how many files there are, and what is in which, follows from the released items alone.
    """
    ordered = items.repartition(1).sortWithinPartitions(*map(column_named, items.columns))
    writer = ordered.write.mode("overwrite" if overwrite else "errorifexists")
    writer = writer.option("maxRecordsPerFile", ROWS_PER_FILE).option("compression", "zstd")
    cleanly(lambda: writer.parquet(path))
