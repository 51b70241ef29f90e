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
from dpunion.algorithms import Bounding
from dpunion.engines.spark.failures import cleanly
from dpunion.engines.spark.frames import by_user
from dpunion.engines.spark.partitions import (
    CutIntoPieces,
    CutWhole,
    KeepWhole,
    Reader,
    Renamed,
    Tighten,
    WeighRows,
)
from dpunion.engines.spark.tasks import SHARDS_PER_MASK, Decide, Secret, Weigh, by_name, guarded
from dpunion.mechanisms import Mechanism
from dpunion.randomness import RunKey

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LARGEST_CLOSURE = "spark.broadcast.UDFCompressionThreshold"
PIECES = "shard int, payload binary, name binary"
GIVEN = "item binary, units long, sensitivity double"
SUMS = "digest binary, shard int, units long, score double, sensitivity double"
REPLIES = "shard int, payload binary, score double"
RELEASED = "payload binary"


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
    task = CutIntoPieces(read, mechanism.bounding, secret, shards)
    with cut_into_pieces(rows, task) as pieces, selected_from(pieces, mechanism, key, shards) as chosen:
        yield chosen


@contextlib.contextmanager
def selected_from(pieces: DataFrame, mechanism: Mechanism, key: RunKey, shards: int) -> Iterator[DataFrame]:
    """Run the rounds on pieces; give the released items as `selected` does."""
    with dropped_after() as kept:
        yield named(pieces, run_rounds(pieces, mechanism, Secret.of(key), shards, kept))


@contextlib.contextmanager
def read_pieces(
    frame: DataFrame, bounding: Bounding, read: Reader, tighten: Tighten, key: RunKey, shards: int
) -> Iterator[DataFrame]:
    """Read rows whose first column is the user once: give pieces to select from, and those to count; drop them later.

    bounding: that of what is counted; tighten: makes of it what is selected from.
    """
    task = CutIntoPieces(Renamed(read, tuple(frame.columns)), bounding, Secret.of(key), shards, tighten)
    with closures_in_memory(frame.sparkSession), cut_into_pieces(by_user(frame), task) as pieces:
        yield pieces


@contextlib.contextmanager
def keep_whole(frame: DataFrame, bounding: Bounding, read: Reader, key: RunKey) -> Iterator[DataFrame]:
    """Read rows whose first column is the user once, into pieces of no shard and names; drop them later."""
    task = KeepWhole(Renamed(read, tuple(frame.columns)), bounding, Secret.of(key))
    with closures_in_memory(frame.sparkSession), cut_into_pieces(by_user(frame), task) as pieces:
        yield pieces


@contextlib.contextmanager
def cut_whole(whole: DataFrame, tighten: Tighten, limit: int, key: RunKey, shards: int) -> Iterator[DataFrame]:
    """Cut what keep_whole gave into pieces to select from, beside the names; drop them later."""
    task = CutWhole(tighten, limit, Secret.of(key), shards)
    with cut_into_pieces(whole.filter("name is null").select("payload"), task) as pieces:
        yield pieces.unionByName(whole.filter("name is not null"))


def is_order_free(mechanism: Mechanism) -> bool:
    """Say whether what users give depends on their own sets alone, once: then partitions are simply added up."""
    return mechanism.cutoff is None and mechanism.rounds == 1


@contextlib.contextmanager
def cut_into_pieces(rows: DataFrame, task: CutIntoPieces | KeepWhole | CutWhole) -> Iterator[DataFrame]:
    """Give everybody's sets as pieces by shard, computed once; drop them on leaving."""
    pieces = rows.mapInArrow(guarded(task), PIECES).persist()
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
        inputs = shard_inputs(pieces, replies)
        # What users give by their own sets alone is added up where they are.
        together = inputs if is_order_free(mechanism) else inputs.repartitionById(shards, "shard")
        parts = together.mapInArrow(weigh, SUMS)
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


def shard_inputs(pieces: DataFrame, replies: DataFrame | None) -> DataFrame:
    """Return the shards' pieces, and what was replied to each: (shard, payload, score)."""
    from pyspark.sql import functions as F  # noqa: N812

    state = pieces.filter("shard is not null").select("shard", "payload", F.lit(None).cast("double").alias("score"))
    return state if replies is None else state.unionByName(replies)


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


def named(pieces: DataFrame, chosen: DataFrame) -> DataFrame:
    """Return the names of the chosen digests as one column, `item`.

    Guarantees: of a semi-join only the side of the chosen can be sent around whole, so other names stay where they are.
    """
    names = pieces.filter("name is not null").select("payload", "name")
    found = names.join(chosen.hint("shuffle_hash"), "payload", "left_semi")
    return found.dropDuplicates(["payload"]).selectExpr("name as item")
