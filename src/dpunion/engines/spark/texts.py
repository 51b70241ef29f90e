"""N-grams on Apache Spark: the texts stay on the executors as token streams; released n-grams come to the driver.

    rows ── by user ── streams ──┬── length 1: the set union of dpunion.engines.spark ───────────────────── tokens
                                 └── length k: pairs of the public level k-1 ── bound ──┬── sum ────┐
                                                                                        └── rounds ─┴ + marks ── pairs

Released n-grams are public, so levels travel to the tasks in closures, and each task finds the places of the level's
n-grams in its own texts again: only the streams are kept between lengths.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dpunion.algorithms import Bounding
from dpunion.contributions import Contributions, ItemTable, Uint64s
from dpunion.counting.holdings import Holdings
from dpunion.engines import Listed
from dpunion.engines.spark import rounds
from dpunion.engines.spark.counting import Find
from dpunion.engines.spark.rounds import collect_items, drop_afterwards, group_by_user, materialize
from dpunion.engines.spark.sessions import Batches, Spread, guard_task
from dpunion.engines.spark.tasks import Secret, rename_columns
from dpunion.engines.spark.wire import arrow_names, digests_to_arrow, pack_arrays, unpack_arrays
from dpunion.errors import InternalError
from dpunion.mechanisms import Mechanism, mechanism_for, mechanism_on_candidates
from dpunion.ngrams import lengths
from dpunion.ngrams.candidates import Level
from dpunion.plans import Plan
from dpunion.plans.ngrams import LengthPlan
from dpunion.randomness import RunKey
from dpunion.reading import open_source
from dpunion.requests import Request
from dpunion.sets.encoding import digests_of
from dpunion.sets.streams import TokenStream, read_tokens

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STREAM = ("<u8", "<i8", "<u8", "<i8", "<i4", "u1")
STREAMS = "part int, payload binary"
BYTES_PER_PART = 1 << 25

Select = Callable[[Mechanism], rounds.Selecting]


@contextlib.contextmanager
def read_texts(frame: DataFrame, request: Request, key: RunKey, spread: Spread, select: Select) -> Iterator[SparkTexts]:
    """Split the texts of a DataFrame into token streams that stay on the executors; drop them on leaving.

    Guarantees: every user's texts meet in one stream, and Spark reads them once: all lengths see the same texts.
    """
    task = functools.partial(read_streams, request.of_rows(None), tuple(frame.columns), Secret.of(key))
    streams = group_by_user(frame, spread).mapInArrow(guard_task(task), STREAMS).persist()
    with drop_afterwards(streams):
        materialize(streams)
        yield SparkTexts(streams, key, spread, select)


@dataclass(frozen=True, slots=True, repr=False)
class SparkTexts:
    """The texts as token streams on Spark's executors; select: returns what the rounds of a mechanism need.

    Guarantees: nothing but released tokens and n-grams comes to the driver.
    """

    streams: DataFrame
    key: RunKey
    spread: Spread
    select: Select

    def __repr__(self) -> str:
        return "SparkTexts(<sensitive>)"

    def to_count(self, listed: Listed, key: RunKey) -> tuple[DataFrame, Find[Holdings]]:  # noqa: ARG002 - as for sets
        """Return the people to count, and what finds listed n-grams in texts. Guarantees: nothing is computed yet."""
        return self.streams, functools.partial(find_ngrams, listed.levels)

    def first(self, plan: Plan) -> tuple[Level, tuple[str, ...]]:
        """Release single tokens. Guarantees: as for `rounds.select_items`."""
        read = functools.partial(read_kept_tokens, plan.algorithm.bounding)
        with rounds.select_items(self.streams, self.select(mechanism_for(plan)), read, grouped=True) as chosen:
            words = tuple(word.decode() for word in collect_items(chosen))
        return level_of_tokens(words, self.key), words

    def later(self, plan: LengthPlan, threshold: float, marks: Uint64s, levels: tuple[Level, ...]) -> Uint64s:
        """Release n-grams one longer than the last of the levels.

        Guarantees:
        - a released n-gram was kept by somebody and passed, or is marked and was kept by nobody;
        - given the levels, one user moves the sums by at most 1 in l2 norm.
        """
        digests = lengths.pair_digests(marks, levels[0], levels[-1], self.key)
        marked = {"payload": digests_to_arrow(digests), "name": arrow_names(lengths.pair_table(marks, digests))}
        selecting = self.select(mechanism_on_candidates(plan, threshold))
        selecting = dataclasses.replace(selecting, marks=pa.record_batch(marked))
        read, naming = functools.partial(read_pairs, plan, levels), functools.partial(name_pairs, levels)
        with rounds.select_items(self.streams, selecting, read, grouped=True, naming=naming) as chosen:
            return np.sort(pairs_of(collect_items(chosen)))


def pairs_of(names: list[bytes]) -> Uint64s:
    """Return the pairs of these names: uint64[n]."""
    return np.frombuffer(b"".join(names), "<u8").astype(np.uint64)


def level_of_tokens(words: tuple[str, ...], key: RunKey) -> Level:
    """Return the released tokens as a level, as `first_level` does. Guarantees: nothing but released tokens is used."""
    nothing = np.zeros(len(words), np.int32)
    return Level(1, nothing, nothing, np.arange(len(words), dtype=np.int32), digests_of(words, key))


# --- in the workers ---------------------------------------------------------------------------------------------


def read_streams(request: Request, names: tuple[str, ...], secret: Secret, batches: Batches) -> Batches:
    """Rows of whole users -> one token stream, packed and cut: (part, payload); names: those of the columns.

    Guarantees: as for `read_tokens`; no user id leaves the task, only keyed digests.
    """
    first = next(batches, None)
    if first is None:
        return
    source = rename_columns(itertools.chain([first], batches), first.schema, names)
    with open_source(request.of_rows(source)) as rows:
        stream = read_tokens(rows, secret.key, request.splitting, request.normalization)
    packed = memoryview(pack_stream(stream))
    for part, start in enumerate(range(0, len(packed), BYTES_PER_PART)):
        payload = pa.array([packed[start : start + BYTES_PER_PART]], pa.binary())
        yield pa.record_batch({"part": pa.array([part], pa.int32()), "payload": payload})


def pack_stream(stream: TokenStream) -> bytes:
    """Pack a token stream and its table. Guarantees: users are keyed digests only."""
    table, users = stream.table, (stream.user_digests, stream.offsets)
    return pack_arrays(STREAM, *users, table.digests, table.offsets, stream.tokens, table.data)


def join_stream(source: Iterable[pa.RecordBatch]) -> TokenStream:
    """Join the parts of one partition's stream."""
    parts: dict[int, bytes] = {}
    for batch in source:
        for part, payload in zip(batch.column("part").to_pylist(), batch.column("payload"), strict=True):
            if part in parts:
                raise InternalError("two token streams in one partition")
            parts[part] = payload.as_py()
    whole = unpack_arrays(STREAM, b"".join(parts[part] for part in sorted(parts)))
    user_digests, offsets, digests, starts, tokens, data = whole
    table = ItemTable(starts, data, digests.reshape(-1, 2))
    return TokenStream(offsets, tokens, table, user_digests.reshape(-1, 2))


def read_kept_tokens(bounding: Bounding, source: pa.RecordBatchReader, key: RunKey) -> Contributions:
    """Read the stream of one partition -> the bounded tokens of each user. Guarantees: as for `kept_tokens`."""
    return lengths.kept_tokens(bounding, join_stream(source), key)


def read_pairs(plan: LengthPlan, levels: tuple[Level, ...], source: pa.RecordBatchReader, key: RunKey) -> Contributions:
    """Read the stream of one partition -> each user's n-grams as pairs. Guarantees: as for `kept_ngrams`."""
    stream = join_stream(source)
    *_, last = lengths.positions_in(stream, levels, key)
    positions, pairs = lengths.longer(last, key)
    return lengths.kept_ngrams(plan, stream, positions, pairs, levels, key)


def find_ngrams(levels: tuple[Level, ...], batches: Batches, key: RunKey) -> Iterator[Holdings]:
    """Read the stream of one partition -> who has the public n-grams. Guarantees: as for `ngram_holdings`."""
    first = next(batches, None)
    if first is not None:
        yield lengths.ngram_holdings(join_stream(itertools.chain([first], batches)), levels, key)


def name_pairs(levels: tuple[Level, ...], batch: pa.RecordBatch, key: RunKey) -> tuple[pa.Array, Uint64s]:
    """Return what names n-grams in sums, and their digests: uint64[rows, 2]. Guarantees: as for `pair_digests`."""
    names = batch.column("item").cast(pa.binary())
    return names, lengths.pair_digests(pairs_of(names.to_pylist()), levels[0], levels[-1], key)
