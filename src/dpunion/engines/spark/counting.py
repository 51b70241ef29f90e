"""Counting on Apache Spark: the workers add up what people give, and add noise before anybody sees a sum.

    pieces or streams ── who has which items of the list, found once ── sums by place ──┐
    every place of the step ── 0 ───────────────────────────────────────────────────────┴── sum ── + noise ── driver

The list and the steps are public: both travel to the tasks in closures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import pyarrow as pa

from dpunion.contributions import Int64s, Uint64s
from dpunion.counting.holdings import Holdings, holdings_of, number_items
from dpunion.counting.steps import AnyStep, add_noise, set_sizes
from dpunion.engines.spark import wire
from dpunion.engines.spark.rounds import sum_units
from dpunion.engines.spark.sessions import Batches, Spread, call_spark, guard_task
from dpunion.engines.spark.tasks import Secret
from dpunion.errors import InternalError
from dpunion.plans.counts import MOST_COUNTED
from dpunion.randomness import RunKey
from dpunion.sets.encoding import is_known
from dpunion.sets.grouping import gathering_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GIVEN_TO_PLACES = "place long, units long, sensitivity double"
NOISY = "place long, units long"
FOUND = "payload binary"
HOLDINGS = ("<i8", "<i4", "?", "?")
PLACES_PER_TASK = 1 << 20
PAIRS_PER_ROW = 1 << 20
Shown = TypeVar("Shown")
Find = Callable[[Batches, RunKey], Iterator[Shown]]
"""Yields the items of one partition's people, in the form that a step takes; each person is in one yielded part."""


def measure_on(
    people: DataFrame, find: Find[Shown], key: RunKey, spread: Spread
) -> Callable[[AnyStep[Shown], float], Int64s]:
    """Return the function that takes a step; people: a frame of the rows that `find` reads.

    Guarantees:
    - every person is in one partition, so moves the sums by at most the step's sensitivity;
    - all sums get noise in the workers, also sums of 0: nothing but noisy sums comes to the driver;
    - tasks that run again draw the same noise.
    """
    secret = Secret.of(key)

    def measure(step: AnyStep[Shown], stddev: float) -> Int64s:
        given = people.mapInArrow(guard_task(AddUp(find, step, secret)), GIVEN_TO_PLACES)
        # Every place gets a 0, so that nobody sees which places got nothing.
        number = wire.sensitivity_number(step.sensitivity)
        places = people.sparkSession.range(0, step.length, 1, 1)
        zeros = places.selectExpr("id as place", "0L as units", f"cast({number!r} as double) as sensitivity")
        width = min(spread.rows, 1 + step.length // PLACES_PER_TASK)
        sums = sum_units(given.unionByName(zeros), "place", width)
        noisy = sums.mapInArrow(guard_task(AddNoise(step.number, stddev, secret)), NOISY)
        return order_by_place(call_spark(noisy.toArrow), step.length)

    return measure


def order_by_place(noisy: pa.Table, length: int) -> Int64s:
    """Return noisy sums in the order of their places: int64[length]; there must be one sum for each place."""
    places = np.asarray(noisy.column("place"), np.int64)
    order = np.argsort(places)
    if not np.array_equal(places[order], np.arange(length)):
        raise InternalError("there is not one noisy sum for each place")
    return np.asarray(noisy.column("units"), np.int64)[order]


# --- in the workers ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class FindItems:
    """Reads pieces (payload); listed, known: digests of public lists. Guarantees: as for `holdings_of`."""

    listed: Uint64s
    known: Uint64s

    def __call__(self, batches: Batches, key: RunKey) -> Iterator[Holdings]:
        for piece in wire.pieces_in(batches):
            sets = piece.sets(MOST_COUNTED)
            yield holdings_of(sets, number_items(sets.table.digests, self.listed, self.known), key)


@dataclass(frozen=True)
class FindSizes:
    """Reads pieces (payload) -> how many wanted items each person has. Guarantees: as for `set_sizes`."""

    known: Uint64s

    def __call__(self, batches: Batches, key: RunKey) -> Iterator[Int64s]:  # noqa: ARG002 - as in Find
        for piece in wire.pieces_in(batches):
            sets = piece.sets(MOST_COUNTED)
            yield set_sizes(sets, is_known(sets.table.digests, self.known))


def keep_holdings(find: Find[Holdings], secret: Secret, batches: Batches) -> Batches:
    """Rows that `find` reads -> (payload): people's listed items. Guarantees: as for `find`; each is in one part."""
    for held in find(batches, secret.key):
        for some in gathering_ranges(held.offsets, 1 + len(held.items) // PAIRS_PER_ROW):
            offsets = held.offsets[some.start : some.stop + 1]
            users, items = slice(some.start, some.stop), held.items[offsets[0] : offsets[-1]]
            flags = (held.anything[users], held.others[users])
            packed = wire.pack_arrays(HOLDINGS, offsets - offsets[0], items, *flags)
            yield pa.record_batch({"payload": pa.array([packed], pa.binary())})


def read_holdings(batches: Batches, _key: RunKey) -> Iterator[Holdings]:
    """Read back what `keep_holdings` wrote. Guarantees: as for Holdings."""
    for batch in batches:
        for payload in batch.column("payload"):
            yield Holdings(*wire.unpack_arrays(HOLDINGS, payload.as_buffer()))


@dataclass(frozen=True)
class AddUp(Generic[Shown]):
    """Rows that `find` reads -> (place, units, sensitivity): what the people of this partition give in a step.

    Guarantees: as for the step's `add_up`; a person is in one part of what `find` yields.
    """

    find: Find[Shown]
    step: AnyStep[Shown]
    secret: Secret

    def __call__(self, batches: Batches) -> Batches:
        sums = np.zeros(self.step.length, np.int64)
        for held in self.find(batches, self.secret.key):
            sums += self.step.add_up(held)
        places, number = np.flatnonzero(sums), wire.sensitivity_number(self.step.sensitivity)
        for some in wire.slice_rows(len(places)):
            mine = places[some]
            sensitivity = pa.array(np.full(len(mine), number))
            yield pa.record_batch({"place": pa.array(mine), "units": pa.array(sums[mine]), "sensitivity": sensitivity})


@dataclass(frozen=True)
class AddNoise:
    """Sums over all partitions -> (place, units) with the noise of a step; number: that of the step.

    Guarantees: as for `add_noise`, which refuses sums of another sensitivity than the noise is for.
    """

    number: int
    stddev: float
    secret: Secret

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            if batch.num_rows:
                places = np.asarray(batch.column("place"), np.int64)
                sums, sensitivity = wire.read_units(batch), wire.read_sensitivity(batch)
                noisy = add_noise(sums, sensitivity, self.stddev, self.number, self.secret.key, places)
                yield pa.record_batch({"place": pa.array(places), "units": pa.array(noisy)})
