"""Release n-grams length by length from their public candidates; find where released n-grams occur.

Given the released shorter n-grams, a length is a plain Gaussian mechanism on the public set V_k: each candidate has its
noise and its decision. Candidates that somebody keeps are decided one by one; all others are alike, so that the ones
that pass are drawn at random (docs/ngrams.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpunion.algorithms import Bounding, Funnel, UserOrder
from dpunion.buffers import as_texts
from dpunion.calibration.composition import candidate_threshold, spurious_tail, walk_tail, walk_threshold
from dpunion.contributions import Contributions, Int32s, Int64s, ItemTable, Uint64s
from dpunion.counting.holdings import UNLISTED, Holdings, find_listed, holdings_of
from dpunion.kernels.ngrams import compact, renumber
from dpunion.kernels.normal import upper_tail
from dpunion.ngrams.candidates import CandidateGrams, Level, halves, mark_candidates, places_in
from dpunion.plans import Plan
from dpunion.plans.counts import MOST_COUNTED
from dpunion.plans.ngrams import LengthPlan, LengthResult, NgramPlan
from dpunion.randomness import Purpose, RunKey
from dpunion.sets.grouping import group_rows, heavy_ranges
from dpunion.sets.spill import RowStore
from dpunion.sets.streams import TokenStream, bound_stream, pair_grams
from dpunion.sets.strings import select_strings

PAIRS_AT_ONCE = 1 << 18
PLACES_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Positions:
    """Where the released n-grams of one length start (sensitive).

    offsets: int64[users+1]; codes: int32[n], numbers of the level, or -1, in memory that nothing shares; user u wrote
    codes[offsets[u]:offsets[u+1]].
    """

    offsets: Int64s
    codes: Int32s

    def __repr__(self) -> str:
        return "Positions(<sensitive>)"


def first_level(
    stream: TokenStream, chosen: Int64s, *, used_up: bool = False
) -> tuple[Level, Positions, tuple[str, ...]]:
    """Return the released tokens as a level, numbered in the order of their bytes, their positions and their texts.

    chosen: int64[n], the released tokens' numbers in the stream. used_up: allow to overwrite its tokens with positions.

    Guarantees: the level contains the chosen tokens and nothing else of the stream.
    """
    table = stream.table
    # subtle: in UTF-8 the order of texts is that of their bytes.
    names = tuple(as_texts(*select_strings(table.offsets, table.data, chosen)))
    order = sorted(range(len(names)), key=names.__getitem__)
    ranked = chosen[np.array(order, np.int64)]
    numbers = np.full(len(table), -1, np.int32)
    numbers[ranked] = np.arange(len(ranked), dtype=np.int32)
    codes = stream.tokens if used_up else stream.tokens.copy()
    renumber(codes, numbers)
    nothing = np.zeros(len(ranked), np.int32)
    level = Level(1, nothing, nothing, np.arange(len(ranked), dtype=np.int32), table.digests[ranked])
    return level, Positions(stream.offsets, codes), tuple(names[i] for i in order)


class Texts(Protocol):
    """The texts of all users, on one machine or on Spark, which release the n-grams of each length."""

    def first(self, plan: Plan) -> tuple[Level, tuple[str, ...]]:
        """Release single tokens: a level, in the order of the tokens' bytes, and their texts."""

    def later(self, plan: LengthPlan, threshold: float, marks: Uint64s, levels: tuple[Level, ...]) -> Uint64s:
        """Release n-grams one longer than the last of the levels, which are all levels so far: rising pairs.

        Guarantees: somebody keeps an n-gram that comes out, and it passed; or nobody keeps it, and it is marked.
        """


def select_ngrams(
    plan: NgramPlan, texts: Texts, key: RunKey, on_length: Callable[[int], None]
) -> tuple[tuple[Level, ...], tuple[tuple[str, int], ...], tuple[LengthResult, ...]]:
    """Select length by length: return the levels, the n-grams with their lengths, level by level, and the results.

    Guarantees:
    - each length sees the users' texts and what shorter lengths have released;
    - n-grams consist of released tokens; nothing else of the input comes out.
    """
    on_length(1)
    first, words = texts.first(plan.first)
    levels: tuple[Level, ...] = (first,)
    results = [LengthResult(1, len(words), None, plan.first.threshold, 0.0)]
    here, found = words, [(word, 1) for word in words]
    for one in plan.lengths[1:]:
        on_length(one.length)
        level, result = next_level(one, plan.settings.spurious_rate, texts, levels, key)
        results.append(result)
        pairs = zip(level.prefixes.tolist(), level.last.tolist(), strict=True)
        here = tuple(f"{here[prefix]} {words[last]}" for prefix, last in pairs)
        found.extend((ngram, one.length) for ngram in here)
        levels = (*levels, level)
    return levels, tuple(found), tuple(results)


def next_level(
    plan: LengthPlan, rate: float, texts: Texts, levels: tuple[Level, ...], key: RunKey
) -> tuple[Level, LengthResult]:
    """Release the n-grams that are one longer than the last level.

    rate: the expected number of spurious n-grams, divided by that of the n-grams one shorter; levels: all so far.

    Guarantees:
    - every n-gram that comes out has its prefix and its suffix in the last level;
    - given that level, it is a Gaussian mechanism on its candidates: one user moves weights by at most 1 in l2 norm;
    - sizes and thresholds in the LengthResult follow from the released n-grams alone.
    """
    level = levels[-1]
    candidates = CandidateGrams(level)
    if not candidates.count:
        nothing = np.zeros(0, np.int32)
        level = Level(plan.length, nothing, nothing, nothing, np.zeros((0, 2), np.uint64))
        return level, LengthResult(plan.length, 0, 0, None, 0.0)
    threshold, chance = threshold_for(plan, spurious_tail(rate, len(level), candidates.count))
    marks = mark_candidates(candidates, chance, key, plan.length)
    released = texts.later(plan, threshold, marks, levels)
    result = LengthResult(plan.length, len(released), candidates.count, threshold, chance * candidates.count)
    return _level_of(released, levels[0], level, key), result


def kept_tokens(bounding: Bounding, stream: TokenStream, key: RunKey, threads: int | None = None) -> Contributions:
    """Return the tokens that each user keeps at length 1; threads: as in `bound_stream`."""
    return bound_stream(
        stream.user_digests, stream.offsets, stream.tokens, stream.table, key, bounding, threads=threads
    )


def kept_ngrams(
    plan: LengthPlan,
    stream: TokenStream,
    positions: Positions,
    pairs: Uint64s,
    levels: tuple[Level, ...],
    key: RunKey,
    threads: int | None = None,
) -> Contributions:
    """Return the n-grams that each user keeps of those that `longer` found; their names are the pairs' eight bytes.

    Guarantees: what a user keeps depends on that user's own n-grams and the key alone.
    """
    table, bounding = pair_table(pairs, pair_digests(pairs, levels[0], levels[-1], key)), plan.algorithm.bounding
    places = stream.user_digests, positions.offsets, positions.codes
    return bound_stream(*places, table, key, bounding, bound_round=plan.length, threads=threads)


def longer(positions: Positions, key: RunKey, threads: int | None = None) -> tuple[Positions, Uint64s]:
    """Return where two n-grams follow each other, as numbers of pairs, and the pairs, rising: uint64[distinct].

    threads: as in `pair_grams`. The given positions are overwritten.

    Guarantees: every pair is a candidate, because its parts overlap in the text.
    """
    codes, offsets = positions.codes, np.empty_like(positions.offsets)
    codes.resize(compact(positions.offsets, codes, offsets), refcheck=False)
    pairs = pair_grams(codes, key, threads)
    return Positions(offsets, codes), pairs


def pair_table(pairs: Uint64s, digests: Uint64s) -> ItemTable:
    """Return a table of n-grams whose names are the eight bytes of their pairs, little-endian."""
    names = np.ascontiguousarray(pairs, "<u8").view(np.uint8)
    return ItemTable(np.arange(0, 8 * len(pairs) + 1, 8, dtype=np.int64), names, digests)


def pair_digests(pairs: Uint64s, tokens: Level, level: Level, key: RunKey) -> Uint64s:
    """Return the 128-bit keyed digest of n-grams given as pairs: uint64[n, 2].

    D(prefix, last) = G(F(D(prefix)) xor D(last)) with two independent pseudo-random functions of this length: the
    CBC-MAC of two blocks. Two of n n-grams share a digest with probability at most n^2/2^128.

    Guarantees: a digest is a function of the run key and of the n-gram's tokens alone.
    """
    length = level.length + 1
    inner = key.words(Purpose.ITEM, 2 * length, level.digests)
    digests = np.empty((len(pairs), 2), np.uint64)
    for start in range(0, len(pairs), PAIRS_AT_ONCE):
        some = slice(start, start + PAIRS_AT_ONCE)
        prefixes, suffixes = halves(pairs[some])
        both = inner[prefixes] ^ tokens.digests[level.last[suffixes]]
        digests[some] = key.words(Purpose.ITEM, 2 * length + 1, both)
    return digests


def _level_of(released: Uint64s, tokens: Level, level: Level, key: RunKey) -> Level:
    prefixes, suffixes = halves(released)
    digests = pair_digests(released, tokens, level, key)
    return Level(level.length + 1, prefixes.astype(np.int32), suffixes.astype(np.int32), level.last[suffixes], digests)


def threshold_for(plan: LengthPlan, tail: float) -> tuple[float, float]:
    """Return the threshold at which pure noise passes with at most `tail`, and the exact chance that it passes."""
    if isinstance(plan.algorithm, Funnel):
        threshold = walk_threshold(plan.stddev, tail, plan.algorithm)
        return threshold, walk_tail(plan.stddev, threshold, plan.algorithm)
    threshold = candidate_threshold(plan.stddev, tail)
    return threshold, upper_tail(threshold / plan.stddev)


def positions_in(stream: TokenStream, levels: Sequence[Level], key: RunKey) -> Iterator[Positions]:
    """Yield where the n-grams of each level start in the stream, length by length; each overwrites the one before.

    Guarantees: the numbers are those of the public levels, the same in every partition.
    """
    codes = stream.tokens.astype(np.int32)
    renumber(codes, find_listed(stream.table.digests, levels[0].digests).astype(np.int32))
    positions = Positions(stream.offsets, codes)
    yield positions
    for level in levels[1:]:
        positions, pairs = longer(positions, key)
        renumber(positions.codes, places_in(level.pairs, pairs))
        yield positions


def ngram_holdings(
    stream: TokenStream, levels: Sequence[Level], key: RunKey, memory_limit: int | None = None
) -> Holdings:
    """Return which n-grams of all levels each user wrote, numbered level after level.

    `others` are the users who wrote a token that is not listed.

    Guarantees: a user's row depends on that user's texts, the public levels and the key alone.
    """
    if not levels or not len(stream.table):
        nothing = np.zeros(len(stream.user_digests), np.bool_)
        return Holdings(np.zeros(len(nothing) + 1, np.int64), np.zeros(0, np.int32), nothing, nothing)
    first, count = 0, sum(map(len, levels))
    digests = np.concatenate([*(level.digests for level in levels), np.zeros((1, 2), np.uint64)])
    with RowStore(memory_limit) as rows:
        for level, positions in zip(levels, positions_in(stream, levels, key), strict=True):
            for users in heavy_ranges(positions.offsets[1:], 1 + len(positions.codes) // PLACES_AT_ONCE):
                offsets = positions.offsets[users.start : users.stop + 1]
                owners = np.repeat(np.arange(users.start, users.stop, dtype=np.int32), np.diff(offsets))
                here = slice(offsets[0], offsets[-1])
                codes = positions.codes[here]
                written = codes >= 0
                rows.append(owners[written], (codes[written] + first).astype(np.int32))
                if level.length == 1:
                    # subtle: in the stream -1 ends a document; in the codes it can also be a token that is not listed.
                    unlisted = owners[(stream.tokens[here] >= 0) & ~written]
                    rows.append(unlisted, np.full(len(unlisted), count, np.int32))
            first += len(level)
        everything = np.arange(count + 1, dtype=np.int32)
        table = ItemTable(np.zeros(count + 2, np.int64), np.zeros(0, np.uint8), digests)
        sets = group_rows(rows, everything, stream.user_digests, table, key, MOST_COUNTED, UserOrder.RANDOM)
    return holdings_of(sets, np.append(everything[:-1], np.int32(UNLISTED)), key)


def ngram_parts(levels: Sequence[Level]) -> Int32s:
    """Return the numbers of each n-gram's prefix and suffix, level after level: int32[n, 2], -1 for single tokens."""
    pieces, below = [np.full((len(levels[0]), 2), -1, np.int32)], 0
    for shorter, level in itertools.pairwise(levels):
        pieces.append(np.column_stack([level.prefixes, level.suffixes]).astype(np.int32) + np.int32(below))
        below += len(shorter)
    return np.concatenate(pieces)
