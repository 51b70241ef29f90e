"""What Spark's workers do before and after a look, without Spark: the classes and sets of one machine."""

import dataclasses
import functools

from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import databases

import dpunion
from dpunion.counting.steps import LookStep, people_in_classes
from dpunion.engines.local.engine import LocalEngine, choose_reading, tighten_sets
from dpunion.engines.spark.counting import FindSizes
from dpunion.engines.spark.engine import read_in_worker
from dpunion.engines.spark.tasks import CutIntoPieces, Secret, cut_whole
from dpunion.randomness import RunKey
from dpunion.reading import ValueKind
from dpunion.reading.known import read_known
from dpunion.requests import Run
from dpunion.sets.encoding import Normalization, digests_of
from spark_in_process import READING, each, measure_here, partitions, reader, spread_out

KEYS = st.integers(1, 5).map(RunKey.for_tests)
LOOK = dpunion.plan(epsilon=2.0, delta=0.001)
COUNTED = dpunion.plan(epsilon=2.0, delta=0.001, counts=True)


def kept_whole(plan, database, key, count, known):
    """Return the rows of pieces of no shard, and those of names."""
    asked, bounding = choose_reading(dataclasses.replace(READING, known=known), plan)
    read = functools.partial(read_in_worker, asked, bounding)
    rows = each(CutIntoPieces(read, bounding, Secret.of(key), 0), partitions(database, count))
    assert all(row["shard"] is None for row in rows)
    return [row for row in rows if row["name"] is None], [row for row in rows if row["name"] is not None]


@given(databases, KEYS, st.integers(1, 3), st.booleans(), st.sampled_from([LOOK, COUNTED]))
@settings(max_examples=30)
def test_workers_see_the_sizes_of_one_machine(database, key, count, some_known, plan):
    known = read_known(["item2", "item4"], ("item",), ValueKind.ITEM, Normalization.NFC) if some_known else None
    request = dataclasses.replace(READING, source=database, user=None, value=None, known=known)
    engine = LocalEngine.for_run(Run(), None)
    with engine.read(request, plan, key, lambda: None) as held:
        here = engine.look(held, plan.look, key)
    whole, _ = kept_whole(plan, database, key, count, known)
    find = FindSizes(digests_of(() if known is None else known.items, key))
    noisy = measure_here(spread_out(whole, count), find, key)(LookStep(), plan.look.stddev)
    assert people_in_classes(noisy) == here


@given(databases, KEYS, st.integers(1, 3), st.sampled_from([3, 10]))
@settings(max_examples=30)
def test_sets_cut_after_a_look_equal_those_read_so(database, key, count, bound):
    """After a look, what is selected from is what reading with the chosen number would have given."""
    plan = LOOK.plan_for(bound)
    rows = each(CutIntoPieces(reader(plan), plan.algorithm.bounding, Secret.of(key), 2), partitions(database, count))
    whole, names = kept_whole(LOOK, database, key, count, None)
    tighten = functools.partial(tighten_sets, request=READING, plan=plan)
    task = functools.partial(cut_whole, tighten, LOOK.algorithm.max_items_per_user, Secret.of(key), 2)
    cut = each(task, spread_out(whole, count))

    def pieces(some):
        return sorted((row["shard"], row["payload"]) for row in some if row["shard"] is not None)

    assert pieces(cut) == pieces(rows)
    assert {row["name"] for row in rows if row["name"] is not None} <= {row["name"] for row in names}
