"""Who wrote what of the released n-grams: where they stand in a token stream, and the sets that are counted."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from dpunion.algorithms import UserOrder
from dpunion.contributions import Int32s, ItemTable
from dpunion.counting.holdings import UNLISTED, Holdings, find_digests, holdings_of
from dpunion.kernels.ngrams import renumber
from dpunion.ngrams.candidates import Level, places_in
from dpunion.ngrams.lengths import Positions, longer
from dpunion.plans.counts import MOST_COUNTED
from dpunion.randomness import RunKey
from dpunion.sets.grouping import group_rows, heavy_ranges
from dpunion.sets.spill import RowStore
from dpunion.sets.streams import TokenStream

PLACES_AT_ONCE = 1 << 20


def positions_in(stream: TokenStream, levels: Sequence[Level], key: RunKey) -> Iterator[Positions]:
    """Yield where the n-grams of each level start in the stream, length by length; one is used up by the next.

    Guarantees: the numbers are those of the public levels, the same in every partition.
    """
    numbers = np.full(len(stream.table), -1, np.int32)
    places, found = find_digests(stream.table.digests, levels[0].digests)
    numbers[places] = found
    codes = stream.tokens.astype(np.int32)
    renumber(codes, numbers)
    positions = Positions(stream.offsets, codes)
    yield positions
    for level in levels[1:]:
        positions, pairs = longer(positions, key)
        renumber(positions.codes, places_in(level.pairs, pairs))
        yield positions


def ngram_holdings(
    stream: TokenStream, levels: Sequence[Level], key: RunKey, memory_limit: int | None = None
) -> Holdings:
    """Return who wrote which of the n-grams of all levels, numbered level after level.

    Others are people who wrote a token that is not listed.

    Guarantees: those of Holdings and of RowStore.
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
                    # subtle: -1 ends a document in the stream, and is where a token that is not listed stood.
                    unlisted = owners[(stream.tokens[here] >= 0) & ~written]
                    rows.append(unlisted, np.full(len(unlisted), count, np.int32))
            first += len(level)
        everything = np.arange(count + 1, dtype=np.int32)
        table = ItemTable(np.zeros(count + 2, np.int64), np.zeros(0, np.uint8), digests)
        sets = group_rows(rows, everything, stream.user_digests, table, key, MOST_COUNTED, UserOrder.RANDOM)
    return holdings_of(sets, np.append(everything[:-1], np.int32(UNLISTED)), key)


def ngram_parts(levels: Sequence[Level]) -> Int32s:
    """Return for each n-gram of all levels, numbered level after level, where its prefix and suffix are: int32[n, 2].

    They are -1 for single tokens.
    """
    pieces, below = [np.full((len(levels[0]), 2), -1, np.int32)], 0
    for shorter, level in itertools.pairwise(levels):
        pieces.append(np.column_stack([level.prefixes, level.suffixes]).astype(np.int32) + np.int32(below))
        below += len(shorter)
    return np.concatenate(pieces)
