"""N-grams on Apache Spark: the texts stay on the executors as token streams, what is released comes to the driver.

The longest n-grams, of which nothing is made, need not come when Spark writes them: their pairs stay on the executors.

    rows ── by user ── streams ──┬── length 1: the set union of dpunion.engines.spark ───────────────────── tokens
                                 └── length k: pairs of the public level k-1 ── bound ──┬── sum ────┐
                                                                                        └── rounds ─┴ + marks ── pairs

Released n-grams are public, so levels travel to the tasks in closures, and each task finds the places of the level's
n-grams in its own texts again: nothing but the streams is kept between lengths.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dpunion.algorithms import Bounding
from dpunion.contributions import Contributions, Int32s, ItemTable, Uint64s, offsets_of
from dpunion.counting.holdings import Holdings
from dpunion.engines import Listed
from dpunion.engines.local.engine import open_request
from dpunion.engines.spark import rounds
from dpunion.engines.spark.failures import cleanly
from dpunion.engines.spark.frames import by_user, collected
from dpunion.engines.spark.partitions import CutIntoPieces, WeighRows, renamed
from dpunion.engines.spark.rounds import dropped_after, materialize
from dpunion.engines.spark.tasks import Batches, Decide, Secret, guarded
from dpunion.engines.spark.wire import digests_to_arrow, names_of
from dpunion.errors import InternalError
from dpunion.mechanisms import Mechanism, mechanism_for, mechanism_on_candidates
from dpunion.ngrams.candidates import Level, halves
from dpunion.ngrams.holdings import ngram_holdings, positions_in
from dpunion.ngrams.lengths import kept_ngrams, kept_tokens, longer, longer_texts, pair_digests, pair_table
from dpunion.plans import Plan
from dpunion.plans.ngrams import LengthPlan
from dpunion.randomness import Purpose, RunKey
from dpunion.requests import Request, Run
from dpunion.sets.streams import TokenStream, read_tokens

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STREAMS = "part int, payload binary"
MARKS = "payload binary, name binary"
SPELLED = "item string, length int"
BYTES_PER_PART = 1 << 25
KEPT, PASSED, MARKED = 1, 2, 4


@contextlib.contextmanager
def read_texts(
    frame: DataFrame, request: Request, key: RunKey, shards: int, leaves: int | None = None
) -> Iterator[SparkTexts]:
    """Split the texts of a DataFrame into token streams that stay on the executors; drop them on leaving.

    leaves: the length whose released n-grams stay there too.

    Guarantees: every user's texts meet in one stream, and are read once: all lengths see the same texts.
    """
    task = ReadStreams(request.of_rows(None), tuple(frame.columns), Secret.of(key))
    streams = by_user(frame).mapInArrow(guarded(task), STREAMS).persist()
    with (
        rounds.closures_in_memory(frame.sparkSession),
        dropped_after(streams),
        contextlib.ExitStack() as until_left,
    ):
        materialize(streams)
        yield SparkTexts(streams, key, shards, until_left, leaves)


class SparkTexts:
    """The texts as token streams on Spark's executors; until_left: what is dropped when the reading is left.

    leaves: the length whose released n-grams stay on the executors; left: these, as one column, `item` (binary): their
    pairs, or tokens at length 1.

    Guarantees: nothing but released tokens and n-grams comes to the driver; of those that are left, their number.
    """

    def __init__(
        self,
        streams: DataFrame,
        key: RunKey,
        shards: int,
        until_left: contextlib.ExitStack,
        leaves: int | None = None,
    ) -> None:
        self.streams = streams
        self.left: DataFrame | None = None
        self._until_left = until_left
        self._leaves = leaves
        self._key = key
        self._secret = Secret.of(key)
        self._shards = shards

    def __repr__(self) -> str:
        return "SparkTexts(<sensitive>)"

    def to_count(self, listed: Listed, key: RunKey) -> tuple[DataFrame, FindNgrams]:  # noqa: ARG002 - as for sets
        """Return the people whose n-grams are counted, and what says which of the list they wrote.

        Guarantees: nothing is computed yet.
        """
        return self.streams, FindNgrams(listed.levels)

    def first(self, plan: Plan) -> tuple[Level, tuple[str, ...]] | int:
        """Release single tokens.

        Guarantees: those of rounds.selected.
        """
        read = TokenReader(plan.algorithm.bounding)
        selecting = rounds.selected(self.streams, mechanism_for(plan), read, self._key, self._shards, grouped=True)
        if self._leaves == 1:
            return self._leave(selecting)
        with selecting as chosen:
            words = collected(chosen)
        return level_of_tokens(words, self._key), tuple(word.decode() for word in words)

    def later(self, plan: LengthPlan, threshold: float, marks: Uint64s, levels: tuple[Level, ...]) -> Uint64s | int:
        """Release n-grams one longer than the last of the levels.

        Guarantees:
        - what comes out was kept by somebody and passed, or is marked and was kept by nobody;
        - given the levels, one user moves the sums by at most 1 in l2 norm.
        """
        selecting = self._selected(PairReader(plan, levels), mechanism_on_candidates(plan, threshold), marks)
        if self._leaves == plan.length:
            return self._leave(selecting)
        with selecting as chosen:
            return np.sort(pairs_of(collected(chosen)))

    def _leave(self, selecting: contextlib.AbstractContextManager[DataFrame]) -> int:
        """Compute what is released once, and keep it on the executors until the reading is left; return how many."""
        left = self._until_left.enter_context(selecting).persist()
        self._until_left.enter_context(dropped_after(left))
        self.left = left
        count: int = cleanly(left.count)
        return count

    @contextlib.contextmanager
    def _selected(self, read: PairReader, mechanism: Mechanism, marks: Uint64s) -> Iterator[DataFrame]:
        """Give the pairs of released n-grams as one column, `item`; drop on leaving what was kept for them."""
        spark = self.streams.sparkSession
        marked = spark.range(0, 1, 1, 1).mapInArrow(guarded(EmitMarks(marks, read.levels, self._secret)), MARKS)
        if rounds.is_order_free(mechanism):
            yield self._by_shares(mechanism, read, marked)
            return
        task = CutIntoPieces(read, mechanism.bounding, self._secret, self._shards)
        with rounds.cut_into_pieces(self.streams, task) as pieces, dropped_after() as kept:
            passed = rounds.run_rounds(pieces, mechanism, self._secret, self._shards, kept)
            yield with_marks(pieces, passed, marked)

    def _by_shares(self, mechanism: Mechanism, read: PairReader, marked: DataFrame) -> DataFrame:
        given = self.streams.mapInArrow(guarded(WeighRows(read, mechanism, self._secret)), rounds.GIVEN)
        # subtle: a mark weighs nothing, and every user's share is positive; so a sum of 0 is a mark that nobody keeps.
        both = given.unionByName(
            marked.selectExpr("name as item", "0L as units", "cast(null as double) as sensitivity")
        )
        naming = PairNames(read.levels)
        decide = Decide(mechanism, self._secret, 0, 1, naming=naming, marked=True)
        return rounds.added_up(both, "item").mapInArrow(guarded(decide), rounds.RELEASED).toDF("item")


def with_marks(pieces: DataFrame, passed: DataFrame, marked: DataFrame) -> DataFrame:
    """Return the names of what passed, and of the marks that nobody keeps, as one column, `item`.

    Guarantees: digests are brought together by a shuffle, not by a join whose smaller side could go to the driver.
    """
    from pyspark.sql import functions as F  # noqa: N812

    kept = pieces.filter("name is not null").selectExpr("payload", "name", f"{KEPT} as what")
    chosen = passed.selectExpr("payload", "cast(null as binary) as name", f"{PASSED} as what")
    everything = kept.unionByName(chosen).unionByName(marked.selectExpr("payload", "name", f"{MARKED} as what"))
    known = everything.groupBy("payload").agg(F.max("name").alias("item"), F.bit_or("what").alias("what"))
    return known.filter(f"what & {PASSED} != 0 or what = {MARKED}").select("item")


def spell_ngrams(left: DataFrame, levels: tuple[Level, ...], ngrams: Sequence[tuple[str, int]]) -> DataFrame:
    """Return the n-grams that were left on the executors as rows to be written (item, length); the others are public.

    levels, ngrams: all shorter ones, as numbers and as texts with their lengths, in the same order.
    """
    if not levels:
        # subtle: a plain 1 is never null, and the files would say so, unlike those of other releases.
        return left.selectExpr("cast(item as string) as item", "if(item is null, null, 1) as length")
    by_length = itertools.groupby(ngrams, key=lambda ngram: ngram[1])
    texts = {length: tuple(text for text, _ in some) for length, some in by_length}
    below = levels[-1]
    return left.mapInArrow(guarded(SpellPairs(texts[below.length], texts[1], below.last, below.length + 1)), SPELLED)


def pairs_of(names: list[bytes]) -> Uint64s:
    """Return the pairs of these names: uint64[n]."""
    return np.frombuffer(b"".join(names), "<u8").astype(np.uint64)


def level_of_tokens(words: list[bytes], key: RunKey) -> Level:
    """Return the released tokens, sorted by their bytes, as a level; as `first_level` does on one machine.

    Guarantees: nothing but released tokens is looked at.
    """
    offsets = offsets_of(np.fromiter(map(len, words), np.int64, len(words)))
    digests = key.digests(Purpose.ITEM, offsets, np.frombuffer(b"".join(words) or b"\0", np.uint8))
    nothing = np.zeros(len(words), np.int32)
    return Level(1, nothing, nothing, np.arange(len(words), dtype=np.int32), digests)


# --- in the workers ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadStreams:
    """Rows of whole users, whose columns have these names -> one token stream, packed and cut: (part, payload)."""

    request: Request
    names: tuple[str, ...]
    secret: Secret

    def __call__(self, batches: Batches) -> Batches:
        """Run the task.

        Guarantees: those of `read_tokens`; no user id leaves the task, only keyed digests.
        """
        first = next(batches, None)
        if first is None:
            return
        source = renamed(itertools.chain([first], batches), first.schema, self.names)
        with open_request(self.request.of_rows(source), Run(), None) as rows:
            stream = read_tokens(rows, self.secret.key, self.request.splitting, self.request.normalization)
        packed = memoryview(packed_stream(stream))
        for part, start in enumerate(range(0, len(packed), BYTES_PER_PART)):
            payload = pa.array([packed[start : start + BYTES_PER_PART]], pa.binary())
            yield pa.record_batch({"part": pa.array([part], pa.int32()), "payload": payload})


def packed_stream(stream: TokenStream) -> bytes:
    """Pack a token stream, little-endian: four lengths, then users' digests and offsets, tokens, and the table.

    Guarantees: users are keyed digests only.
    """
    table = stream.table
    lengths = np.array([len(stream.user_digests), len(stream.tokens), len(table), len(table.data)], "<i8")
    arrays = [
        (stream.user_digests, "<u8"),
        (stream.offsets, "<i8"),
        (table.digests, "<u8"),
        (table.offsets, "<i8"),
        (stream.tokens, "<i4"),
        (table.data, "u1"),
    ]
    return b"".join([lengths.tobytes(), *(np.ascontiguousarray(array, kind).tobytes() for array, kind in arrays)])


def unpacked_stream(packed: bytes) -> TokenStream:
    """Read back what `packed_stream` wrote."""
    users, tokens, words, data = np.frombuffer(packed, "<i8", 4).tolist()
    at = 32

    def take(kind: str, count: int) -> Any:
        nonlocal at
        array = np.frombuffer(packed, kind, count, at)
        at += array.nbytes
        return array

    if len(packed) != at + 16 * users + 8 * (users + 1) + 16 * words + 8 * (words + 1) + 4 * tokens + data:
        raise InternalError("a token stream that is cut short")
    user_digests, offsets = take("<u8", 2 * users).reshape(-1, 2), take("<i8", users + 1)
    digests, starts = take("<u8", 2 * words).reshape(-1, 2), take("<i8", words + 1)
    codes = take("<i4", tokens)
    return TokenStream(offsets, codes, ItemTable(starts, take("u1", data), digests), user_digests)


def stream_from(source: Iterable[pa.RecordBatch]) -> TokenStream:
    """Put the parts of one partition's stream together."""
    parts: dict[int, bytes] = {}
    for batch in source:
        for part, payload in zip(batch.column("part").to_pylist(), batch.column("payload"), strict=True):
            if part in parts:
                raise InternalError("two token streams in one partition")
            parts[part] = payload.as_py()
    return unpacked_stream(b"".join(parts[part] for part in sorted(parts)))


@dataclass(frozen=True)
class TokenReader:
    """Reads the stream of one partition into the tokens that its users keep at length 1."""

    bounding: Bounding

    def __call__(self, source: pa.RecordBatchReader, key: RunKey) -> Contributions:
        """Read the stream.

        Guarantees: those of kept_tokens.
        """
        return kept_tokens(self.bounding, stream_from(source), key)


@dataclass(frozen=True)
class PairReader:
    """Reads the stream of one partition into the n-grams, as pairs of the last level, that its users keep."""

    plan: LengthPlan
    levels: tuple[Level, ...]

    def __call__(self, source: pa.RecordBatchReader, key: RunKey) -> Contributions:
        """Read the stream.

        Guarantees: those of kept_ngrams.
        """
        stream = stream_from(source)
        *_, last = positions_in(stream, self.levels, key)
        positions, pairs = longer(last, key)
        return kept_ngrams(self.plan, stream, positions, pairs, self.levels, key)


@dataclass(frozen=True)
class FindNgrams:
    """Reads the stream of one partition; levels: the public n-grams that are counted."""

    levels: tuple[Level, ...]

    def __call__(self, batches: Batches, key: RunKey) -> Iterator[Holdings]:
        """Read the stream, if there is one.

        Guarantees: those of ngram_holdings.
        """
        first = next(batches, None)
        if first is not None:
            yield ngram_holdings(stream_from(itertools.chain([first], batches)), self.levels, key)


@dataclass(frozen=True)
class EmitMarks:
    """Whatever -> the marked candidates (payload: digest, name: pair); they travel like the key, in the closure."""

    marks: Uint64s
    levels: tuple[Level, ...]
    secret: Secret

    def __call__(self, batches: Batches) -> Batches:
        """Run the task.

        Guarantees: nothing of the batches is looked at; marks are drawn from public candidates by the run key.
        """
        for _ in batches:
            digests = pair_digests(self.marks, self.levels[0], self.levels[-1], self.secret.key)
            names = names_of(pair_table(self.marks, digests))
            yield pa.record_batch({"payload": digests_to_arrow(digests), "name": names})


@dataclass(frozen=True)
class PairNames:
    """Reads sums of partitions, which know n-grams by the eight bytes of their pairs."""

    levels: tuple[Level, ...]

    def __call__(self, batch: pa.RecordBatch, key: RunKey) -> tuple[pa.Array, Uint64s]:
        """Return the pairs' bytes, and their digests: uint64[rows, 2].

        Guarantees: those of pair_digests.
        """
        names = batch.column("item").cast(pa.binary())
        return names, pair_digests(pairs_of(names.to_pylist()), self.levels[0], self.levels[-1], key)


@dataclass(frozen=True)
class SpellPairs:
    """(item: pair) of released n-grams of a length -> (item, length); all that it is given is public.

    texts, words: the n-grams one shorter, and the tokens; last: int32[texts], their last tokens.
    """

    texts: tuple[str, ...]
    words: tuple[str, ...]
    last: Int32s
    length: int

    def __call__(self, batches: Batches) -> Batches:
        """Run the task.

        Guarantees: n-grams are put together from released ones, and nothing else comes out.
        """
        for batch in batches:
            prefixes, suffixes = halves(pairs_of(batch.column("item").to_pylist()))
            items = pa.array(longer_texts(self.texts, self.words, prefixes, self.last[suffixes]), pa.string())
            lengths = pa.array(np.full(batch.num_rows, self.length, np.int32))
            yield pa.record_batch({"item": items, "length": lengths})
