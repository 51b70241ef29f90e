"""Batches of (users, texts) -> one stream of token numbers, user after user; and from it sets of n-grams.

The texts are split once. What stays in memory is four bytes for each token and the distinct tokens' strings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dpunion.algorithms import MAX_ITEMS, UserOrder
from dpunion.calibration.rounding import MAX_USERS
from dpunion.contributions import Bools, Contributions, Int32s, Int64s, ItemTable, Uint8s, Uint64s, offsets_of
from dpunion.errors import BadSource
from dpunion.kernels.ngrams import (
    FREE,
    collect,
    count_documents,
    join_texts,
    lay_beside,
    number_pairs,
    refill_pairs,
    renumber,
    scatter_documents,
    sort_unique,
)
from dpunion.normal_forms import Normalization
from dpunion.randomness import Purpose, RunKey
from dpunion.sets.encoding import canonical_table, digests_in_threads
from dpunion.sets.grouping import bound_sets, even_ranges, heavy_ranges, lay_out_users
from dpunion.sets.pieces import Batches, work_off
from dpunion.sets.strings import StringTable
from dpunion.splitting import Splitting, Tokenizer, documents, left_to_spell, unwanted_tokens
from dpunion.threads import usable_cores, work_in_threads

SMALLEST_TABLE = 1 << 12


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TokenStream:
    """Everybody's texts: user u wrote tokens[offsets[u]:offsets[u+1]], in which -1 ends a document.

    offsets: int64[users+1]; tokens: int32[], numbers of `table` or -1; user_digests: uint64[users, 2].

    Guarantees:
    - nothing about the values shows in the repr;
    - no user id is held: users are positions and keyed digests only.
    """

    offsets: Int64s
    tokens: Int32s
    table: ItemTable
    user_digests: Uint64s

    def __repr__(self) -> str:
        return "TokenStream(<sensitive>)"


def read_tokens(
    batches: Batches,
    key: RunKey,
    splitting: Splitting,
    normalization: Normalization,
    *,
    threads: int | None = None,
) -> TokenStream:
    """Split all batches of (users, texts) into tokens and lay them out user after user.

    threads: how many split and number; one for each usable core when left out. A tokenizer that is a function is called
    by one at a time.

    Guarantees:
    - tokens are normalised before anything is compared or counted; what is left out leaves no trace in the stream;
    - every document (or sentence, when asked) ends with -1, so that no n-gram crosses it;
    - tokens are numbered by their keyed digests, not by where they stood; no user id is in the result.
    """
    seeds = np.frombuffer(key.subkey(Purpose.USER, 1)[:16], np.uint64)
    count = threads or usable_cores()
    user_table, token_table = StringTable(seeds[0], threads=count), StringTable(seeds[1], threads=count)

    def number(piece: Batches) -> list[tuple[Int64s, Int32s, Int32s]]:
        numbered: list[tuple[Int64s, Int32s, Int32s]] = []
        for users, texts in piece:
            parents, (counts, offsets, data) = documents(texts, splitting, normalization)
            writers = user_table.number(users)
            codes = token_table.number_buffers(offsets, data)
            numbered.append((counts, writers if parents is None else writers[parents], codes))
        return numbered

    # A tokenizer of the caller's is called by the caller's thread, one text after the other.
    at_once = count if isinstance(splitting.tokenizer, Tokenizer) else 1
    chunks = [chunk for some in work_off(batches, number, at_once) for chunk in some]
    if user_table.count > MAX_USERS:
        raise BadSource(
            f"There are more than {MAX_USERS} users, more than one run supports.",
            "Split the people into disjoint groups and release each group on its own.",
        )
    user_digests = digests_in_threads(key, Purpose.USER, *user_table.buffers(), count)
    table, renumbered = canonical_table(token_table, key, left_to_spell(splitting, normalization), count)
    unwanted = unwanted_tokens(table.offsets, table.data, splitting)
    if unwanted is not None:
        chunks = [leave_out(*chunk, unwanted[renumbered]) for chunk in chunks]
    sizes = np.zeros(len(user_digests), np.int64)
    for counts, writers, _ in chunks:
        count_documents(counts, writers, sizes)
    offsets = offsets_of(sizes)
    stream = np.empty(int(offsets[-1]), np.int32)
    heads = offsets[:-1].copy()
    while chunks:
        counts, writers, codes = chunks.pop()
        scatter_documents(counts, writers, codes, renumbered, heads, stream)
    return TokenStream(offsets, stream, table, user_digests)


def leave_out(counts: Int64s, writers: Int32s, codes: Int32s, unwanted: Bools) -> tuple[Int64s, Int32s, Int32s]:
    """Return documents without the unwanted tokens.

    counts, writers: int64[documents], int32[documents]; codes: int32[tokens]; unwanted: bool, for each code.

    Guarantees: what is left of a document depends on that document alone.
    """
    kept = ~unwanted[codes]
    return np.diff(offsets_of(kept)[offsets_of(counts)]), writers, codes[kept]


def pair_grams(grams: Int32s, key: RunKey, threads: int | None = None) -> tuple[Int32s, Uint64s]:
    """Return for each position the number of the n-gram made of the two that start there and one later, or -1.

    grams: int32[n], ending with -1; threads: how many, one for each usable core when left out. Returns codes: int32[n]
    and pairs: uint64[distinct], prefix << 32 | suffix, in rising order: number i is pairs[i].

    Guarantees: the numbers depend on which pairs there are, not on where they stood, nor on the threads.
    """
    seed = np.frombuffer(key.subkey(Purpose.ITEM, 1)[:8], np.uint64)[0]
    codes = np.empty(len(grams), np.int32)
    shares = even_ranges(len(grams), threads or usable_cores())
    ends = [share.start for share in shares]
    slots, count = np.full(SMALLEST_TABLE, FREE), np.zeros(1, np.uint64)

    def number(share: int) -> None:
        ends[share] = number_pairs(grams, ends[share], shares[share].stop, codes, slots, count, seed)

    def rename(share: int) -> None:
        renumber(codes[shares[share].start : ends[share]], names)

    while True:
        work_in_threads(number, range(len(shares)))
        if ends == [share.stop for share in shares]:
            break
        if int(count[0]) >= MAX_ITEMS - 1:
            raise BadSource(
                f"There are more than {MAX_ITEMS} distinct n-grams of one length, more than one run supports.",
                "Split the people into disjoint groups and release each group on its own.",
            )
        old, slots, names = slots, np.full(2 * len(slots), FREE), np.empty(len(slots), np.int32)
        refill_pairs(old, slots, names, seed)
        work_in_threads(rename, range(len(shares)))
    places = np.flatnonzero(slots != FREE)
    pairs = slots[places]
    order = np.argsort(pairs)
    names = np.empty(len(slots), np.int32)
    names[places[order]] = np.arange(len(order), dtype=np.int32)
    work_in_threads(rename, range(len(shares)))
    return codes, pairs[order]


def bound_stream(
    stream: TokenStream,
    offsets: Int64s,
    codes: Int32s,
    table: ItemTable,
    key: RunKey,
    *,
    bound_round: int,
    max_items_per_user: int,
    user_order: UserOrder,
    threads: int | None = None,
) -> Contributions:
    """Return each user's distinct codes, at most a given number of them, users in visiting order.

    offsets: int64[users+1]; codes: int32[n], numbers of `table` or -1, which is no item. threads: how many; one for
    each usable core when left out.

    Guarantees:
    - the number of threads changes nothing;
    - duplicates are dropped before anything is bounded;
    - what a user keeps, and where the user stands, depends on that user's own codes and the key alone.
    """
    users = len(offsets) - 1
    grouped = np.empty(int(np.count_nonzero(codes >= 0)), np.int32)
    starts = np.empty(users + 1, np.int64)
    collect(offsets, codes, starts, grouped)
    sizes = np.zeros(users, np.int64)
    count = threads or usable_cores()
    work_in_threads(
        lambda some: sort_unique(starts, grouped, sizes, some.start, some.stop), heavy_ranges(starts[1:], count)
    )
    bound_sets(
        starts[:-1], grouped, sizes, stream.user_digests, table.digests, key, max_items_per_user, count, bound_round
    )
    order, new_offsets, items = lay_out_users(starts, sizes, grouped, stream.user_digests, user_order, count)
    return Contributions(new_offsets, items, table, stream.user_digests[order], max_items_per_user)


def encode_ngrams(
    batches: Batches,
    key: RunKey,
    *,
    shortest: int,
    longest: int,
    max_items_per_user: int,
    user_order: UserOrder,
    splitting: Splitting,
    normalization: Normalization = Normalization.NFC_LOWER,
    threads: int | None = None,
) -> Contributions:
    """Read all batches of (users, texts) into contributions whose items are the n-grams of all these lengths.

    All lengths are one set (arXiv 2002.09745, section 6.2.1), so any algorithm can release from it. An item is the
    n-gram's tokens joined by one space.

    Guarantees: as `encoding.encode`; the result is the same as if the n-grams had been given as items.
    """
    stream = read_tokens(batches, key, splitting, normalization, threads=threads)
    offsets, data = stream.table.offsets, stream.table.data
    grams, last = stream.tokens, np.arange(len(stream.table), dtype=np.int32)
    levels: list[tuple[Int32s, Int64s, Uint8s]] = []
    for length in range(1, longest + 1):
        if length > 1:
            grams, pairs = pair_grams(grams, key, threads)
            suffixes = (pairs & np.uint64(0xFFFFFFFF)).astype(np.int32)
            prefixes = (pairs >> np.uint64(32)).astype(np.int32)
            last = last[suffixes]
            offsets, data = join_ngrams(offsets, data, stream.table, prefixes, last)
        if length >= shortest:
            levels.append((grams, offsets, data))
    table, ranks = _one_table(levels, key)
    codes, spread = _side_by_side(stream.offsets, [grams for grams, _, _ in levels], ranks)
    return bound_stream(
        stream,
        spread,
        codes,
        table,
        key,
        bound_round=0,
        max_items_per_user=max_items_per_user,
        user_order=user_order,
        threads=threads,
    )


def join_ngrams(
    offsets: Int64s, data: Uint8s, tokens: ItemTable, prefixes: Int32s, last: Int32s
) -> tuple[Int64s, Uint8s]:
    """Return the texts of n-grams, prefix, space, last token, as int64 offsets and bytes.

    Guarantees: a text holds the bytes of its own tokens only.
    """
    lengths = np.diff(offsets)[prefixes] + 1 + np.diff(tokens.offsets)[last]
    new_offsets = offsets_of(lengths)
    new_data = np.empty(int(new_offsets[-1]), np.uint8)
    join_texts(offsets, data, tokens.offsets, tokens.data, prefixes, last, new_offsets, new_data)
    return new_offsets, new_data


def _one_table(levels: list[tuple[Int32s, Int64s, Uint8s]], key: RunKey) -> tuple[ItemTable, list[Int32s]]:
    """Number the items of all lengths together by their digests; return for each length old number -> new."""
    shifts = np.cumsum([0, *(len(data) for _, _, data in levels)])
    offsets = np.concatenate(
        [np.zeros(1, np.int64), *(o[1:] + shift for (_, o, _), shift in zip(levels, shifts, strict=False))]
    )
    data = np.concatenate([np.zeros(0, np.uint8), *(part for _, _, part in levels)])
    digests = key.digests(Purpose.ITEM, offsets, data)
    order = np.lexsort((digests[:, 1], digests[:, 0]))
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    strings = pa.LargeStringArray.from_buffers(len(order), pa.py_buffer(offsets), pa.py_buffer(data))
    _, new_offsets, new_data = strings.take(pa.array(order)).buffers()
    table = ItemTable(
        np.frombuffer(new_offsets, np.int64)[: len(order) + 1] if len(order) else np.zeros(1, np.int64),
        np.frombuffer(new_data, np.uint8) if new_data is not None else np.empty(0, np.uint8),
        digests[order],
    )
    cuts = np.cumsum([len(o) - 1 for _, o, _ in levels])[:-1]
    return table, list(np.split(rank, cuts))


def _side_by_side(offsets: Int64s, codes: list[Int32s], ranks: list[Int32s]) -> tuple[Int32s, Int64s]:
    """Lay each user's codes of all lengths side by side, renumbered; returns them and the users' offsets."""
    out = np.empty(int(offsets[-1]) * len(codes), np.int32)
    for number, (grams, rank) in enumerate(zip(codes, ranks, strict=True)):
        lay_beside(offsets, grams, rank, number, len(codes), out)
    return out, offsets * len(codes)
