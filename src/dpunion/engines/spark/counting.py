"""Counting on Apache Spark: what people give is added up where they are, and gets its noise before anybody sees it.

    pieces or streams ── who holds what of the list ── sums by place ──┐
    every place of the step ── 0 ──────────────────────────────────────┴── sum ── + noise ── noisy sums ── driver

The list is public, and so is what a step holds: both travel to the tasks in closures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from dpunion.contributions import Int64s, Uint64s
from dpunion.counting.holdings import Holdings, holdings_of, number_items
from dpunion.counting.steps import AnyStep, add_noise, set_sizes
from dpunion.engines.spark.failures import cleanly
from dpunion.engines.spark.rounds import added_up
from dpunion.engines.spark.tasks import (
    Batches,
    Secret,
    guarded,
    sensitivity_number,
    slices,
    summed_sensitivity,
    summed_units,
)
from dpunion.engines.spark.wire import Piece
from dpunion.errors import InternalError
from dpunion.plans.counts import MOST_COUNTED
from dpunion.randomness import RunKey
from dpunion.sets.encoding import is_known

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GIVEN_TO_PLACES = "place long, units long, sensitivity double"
NOISY = "place long, units long"


Found = TypeVar("Found", covariant=True)  # noqa: PLC0105 - what a step is shown
Shown = TypeVar("Shown")


class Find(Protocol[Found]):
    """Says what the people of one partition hold, as a step wants to see it, in a worker."""

    def __call__(self, batches: Batches, key: RunKey) -> Iterator[Found]:
        """Yield what the people hold; every one of them is in one of the parts."""


def measure_on(people: DataFrame, find: Find[Shown], key: RunKey) -> Callable[[AnyStep[Shown], float], Int64s]:
    """Return what takes a step; people: a frame of what `find` reads.

    Guarantees:
    - every person is in one partition, so moves the sums of all by no more than the step says;
    - all sums get noise in the workers, those of 0 too: nothing but noisy sums comes to the driver;
    - tasks that run again draw the same noise.
    """
    secret = Secret.of(key)

    def measure(step: AnyStep[Shown], stddev: float) -> Int64s:
        given = people.mapInArrow(guarded(AddUp(find, step, secret)), GIVEN_TO_PLACES)
        sums = added_up(given.unionByName(every_place(people, step)), "place")
        noisy = sums.mapInArrow(guarded(AddNoise(step.number, stddev, secret)), NOISY)
        return in_places(cleanly(noisy.toArrow), step.length)

    return measure


def every_place(people: DataFrame, step: AnyStep[Any]) -> DataFrame:
    """Return a sum of 0 for every place of the step, so that which places got nothing does not show."""
    places = people.sparkSession.range(0, step.length, 1, 1)
    number = sensitivity_number(step.sensitivity)
    return places.selectExpr("id as place", "0L as units", f"cast({number!r} as double) as sensitivity")


def in_places(noisy: pa.Table, length: int) -> Int64s:
    """Return noisy sums in the order of their places: int64[length]; refuse others than one for each."""
    places = np.asarray(noisy.column("place"), np.int64)
    order = np.argsort(places)
    if not np.array_equal(places[order], np.arange(length)):
        raise InternalError("there is not one noisy sum for each place")
    return np.asarray(noisy.column("units"), np.int64)[order]


# --- in the workers ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class FindItems:
    """Reads pieces (payload); listed, known: uint64[n, 2], the digests of public lists."""

    listed: Uint64s
    known: Uint64s

    def __call__(self, batches: Batches, key: RunKey) -> Iterator[Holdings]:
        """Read the pieces, one after the other.

        Guarantees: those of holdings_of.
        """
        for batch in batches:
            for payload in batch.column("payload"):
                sets = Piece.from_bytes(payload.as_py()).sets(MOST_COUNTED)
                yield holdings_of(sets, number_items(sets.table.digests, self.listed, self.known), key)


@dataclass(frozen=True)
class FindSizes:
    """Reads pieces (payload) -> how many wanted items each of their people holds; known: as in FindItems."""

    known: Uint64s

    def __call__(self, batches: Batches, key: RunKey) -> Iterator[Int64s]:  # noqa: ARG002 - as in Find
        """Read the pieces, one after the other.

        Guarantees: those of set_sizes.
        """
        for batch in batches:
            for payload in batch.column("payload"):
                sets = Piece.from_bytes(payload.as_py()).sets(MOST_COUNTED)
                yield set_sizes(sets, is_known(sets.table.digests, self.known))


@dataclass(frozen=True)
class AddUp(Generic[Shown]):
    """What `find` reads -> (place, units, sensitivity): what the people of this partition give together in a step."""

    find: Find[Shown]
    step: AnyStep[Shown]
    secret: Secret

    def __call__(self, batches: Batches) -> Batches:
        """Run the task.

        Guarantees: those of the step's `add_up`; a person is in one of the holdings.
        """
        sums = np.zeros(self.step.length, np.int64)
        for held in self.find(batches, self.secret.key):
            sums += self.step.add_up(held)
        places, number = np.flatnonzero(sums), sensitivity_number(self.step.sensitivity)
        for some in slices(len(places)):
            mine = places[some]
            sensitivity = pa.array(np.full(len(mine), number))
            yield pa.record_batch({"place": pa.array(mine), "units": pa.array(sums[mine]), "sensitivity": sensitivity})


@dataclass(frozen=True)
class AddNoise:
    """Sums over all partitions -> (place, units) with the noise of a step; number: which step."""

    number: int
    stddev: float
    secret: Secret

    def __call__(self, batches: Batches) -> Batches:
        """Run the task.

        Guarantees: those of add_noise, which refuses sums of another sensitivity than the noise is for.
        """
        for batch in batches:
            if batch.num_rows:
                places = np.asarray(batch.column("place"), np.int64)
                sums, sensitivity = summed_units(batch), summed_sensitivity(batch)
                noisy = add_noise(sums, sensitivity, self.stddev, self.number, self.secret.key, places)
                yield pa.record_batch({"place": pa.array(places), "units": pa.array(noisy)})
