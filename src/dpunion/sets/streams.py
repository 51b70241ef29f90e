"""Batches of (users, texts) -> one stream of token numbers, user after user; and sets of n-grams from it.

The texts are split once. In memory are four bytes for each token, and the distinct tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpunion.algorithms import MAX_ITEMS, Bounding, UserOrder
from dpunion.buffers import join_buffers
from dpunion.checks import refuse_more_than
from dpunion.contributions import Bools, Contributions, Int32s, Int64s, ItemTable, Uint8s, Uint64s, offsets_of
from dpunion.kernels import ngrams
from dpunion.kernels.bounding import gather_users
from dpunion.randomness import Purpose, RunKey
from dpunion.sets.encoding import Batches, canonical_table, digests_of_users, number_rows, table_of
from dpunion.sets.grouping import bound_sets, even_ranges, heavy_ranges, lay_out_users
from dpunion.sets.spill import TextStore
from dpunion.text.splitting import Splitting, left_to_spell, unwanted_tokens
from dpunion.text.words import Normalization
from dpunion.threads import share_count, usable_cores, work_in_threads

SMALLEST_TABLE = 1 << 12
MOST_PLACES = 1 << 31  # a place in the table of pairs is an int32 code
CODES_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TokenStream:
    """The texts of all users: user u wrote tokens[offsets[u]:offsets[u+1]], in which -1 ends a document.

    offsets: int64[users+1]; tokens: int32[], numbers of `table` or -1; user_digests: uint64[users, 2].

    Guarantees:
    - the repr shows no value;
    - there are no user ids: users are positions and keyed digests only.
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
    memory_limit: int | None = None,
    threads: int | None = None,
) -> TokenStream:
    """Split all batches of (users, texts) into tokens, user after user.

    threads: by default one for each usable core; one thread calls a tokenizer that is a Python function.

    Guarantees:
    - tokens are normalised before anything is compared or counted; dropped tokens leave no trace in the stream;
    - every document (or sentence, if the splitting says so) ends with -1, so that no n-gram crosses its end;
    - tokens are numbered by their keyed digests, not by their order; no user id is in the result;
    - documents beyond the memory limit go to nameless private files, as numbers.
    """
    count = threads or usable_cores()
    with TextStore(memory_limit) as texts:
        user_table, token_table = number_rows(batches, texts, key, normalization, count, splitting)
        token_table.close()
        user_digests = digests_of_users(user_table, key, count)
        del user_table
        table, renumbered = canonical_table(token_table, key, left_to_spell(splitting, normalization), count)
        del token_table
        unwanted = unwanted_tokens(table.offsets, table.data, splitting)
        left_out = None if unwanted is None else unwanted[renumbered]
        offsets, tokens, user_digests = lay_out_texts(texts, renumbered, left_out, user_digests)
    return TokenStream(offsets, tokens, table, user_digests)


def lay_out_texts(
    texts: TextStore, renumbered: Int32s, left_out: Bools | None, user_digests: Uint64s
) -> tuple[Int64s, Int32s, Uint64s]:
    """Return the stored documents user after user: (offsets, tokens, digests), as in a TokenStream.

    renumbered: int32[tokens], the final number of each raw one; left_out: bool[tokens], by the raw number. The store is
    empty afterwards; users are in the order of its parts.

    Guarantees: a user's part of the stream contains that user's documents only, each ended by -1.
    """
    # subtle: memory that is allocated but never written takes no room.
    stream = np.empty(texts.size, np.int32)
    sizes, digests = [np.zeros(0, np.int64)], []
    placed = 0
    for phase, stride, chunks in texts.give_back():
        digests.append(user_digests[phase::stride])
        if left_out is not None:
            for number, (counts, writers, tokens) in enumerate(chunks):
                kept = ~left_out[tokens]
                chunks[number] = np.diff(offsets_of(kept)[offsets_of(counts)]), writers, tokens[kept]
        sizes.append(np.zeros(len(digests[-1]), np.int64))
        for counts, writers, _ in chunks:
            ngrams.count_documents(counts, writers, sizes[-1])
        heads = placed + offsets_of(sizes[-1])
        placed = int(heads[-1])
        while chunks:
            counts, writers, tokens = chunks.pop()
            ngrams.scatter_documents(counts, writers, tokens, renumbered, heads, stream)
    stream.resize(placed, refcheck=False)
    return offsets_of(np.concatenate(sizes)), stream, digests[0] if len(digests) == 1 else np.concatenate(digests)


def pair_grams(grams: Int32s, key: RunKey, threads: int | None = None) -> Uint64s:
    """Write at each position the number of the n-gram that joins those at this position and the next, or -1. In-place.

    grams: int32[n], ending with -1; threads: by default one for each usable core. Returns the pairs: uint64[distinct],
    prefix << 32 | suffix, rising: number i is pairs[i].

    Guarantees: the numbers depend on which pairs there are, not on their order, nor on the threads.
    """
    seed = np.frombuffer(key.subkey(Purpose.ITEM, 1)[:8], np.uint64)[0]
    shares = even_ranges(len(grams), threads or usable_cores())
    ends = [share.start for share in shares]
    # subtle: a share's first position may be overwritten before the previous share reads it.
    beyond = [ngrams.END if share.stop == len(grams) else int(grams[share.stop]) for share in shares]
    slots, count = np.full(SMALLEST_TABLE, ngrams.FREE), np.zeros(1, np.uint64)

    def number(share: int) -> None:
        ends[share] = ngrams.number_pairs(grams, ends[share], shares[share].stop, beyond[share], slots, count, seed)

    def rename(names: Int32s) -> None:
        done = [slice(share.start, end) for share, end in zip(shares, ends, strict=True)]
        work_in_threads(lambda part: ngrams.renumber(grams[part], names), done, len(done))

    while True:
        work_in_threads(number, range(len(shares)), len(shares))
        if ends == [share.stop for share in shares]:
            break
        if 2 * len(slots) > MOST_PLACES:
            refuse_more_than(len(slots) // 2, "distinct n-grams of one length")
        old, slots, moved = slots, np.full(2 * len(slots), ngrams.FREE), np.empty(len(slots), np.int32)
        ngrams.refill_pairs(old, slots, moved, seed)
        del old
        rename(moved)
        del moved
    # subtle: tables of all n-grams are the largest arrays of all; each is freed as soon as possible.
    places, size = np.flatnonzero(slots != ngrams.FREE), len(slots)
    pairs, slots = slots[places], np.empty(0, np.uint64)
    order = np.argsort(pairs)
    names = np.empty(size, np.int32)
    names[places[order]] = np.arange(len(order), dtype=np.int32)
    del places
    rename(names)
    return pairs[order]


def bound_stream(
    user_digests: Uint64s,
    offsets: Int64s,
    codes: Int32s,
    table: ItemTable,
    key: RunKey,
    bounding: Bounding,
    *,
    bound_round: int = 0,
    threads: int | None = None,
    used_up: bool = False,
) -> Contributions:
    """Return each user's distinct codes, at most bounding.limit of them, users in visiting order.

    user_digests: uint64[users, 2]; offsets: int64[users+1]; codes: int32[n], numbers of `table` or -1, which is no
    item. threads: by default one for each usable core. used_up: allow to overwrite the codes.

    Guarantees:
    - the number of threads changes nothing;
    - duplicates are dropped before anything is bounded;
    - what a user keeps, and the user's place in the order, depends on that user's own codes and the key alone.
    """
    count, users = threads or usable_cores(), len(offsets) - 1
    # subtle: some users at a time, behind what earlier users keep, so that little of `kept` is ever written.
    kept = codes if used_up else np.empty(int(np.count_nonzero(codes >= 0)), np.int32)
    starts, sizes, placed = np.empty(users, np.int64), np.empty(users, np.int64), 0
    for some in heavy_ranges(offsets[1:], 1 + len(codes) // CODES_AT_ONCE):
        mine, grouped = slice(some.start, some.stop), kept[placed:]
        ends, own = np.empty(len(some) + 1, np.int64), sizes[mine]
        ngrams.collect(offsets[some.start : some.stop + 1], codes, ends, grouped)
        _sort_sets(ends, grouped, own, count)
        digests = user_digests[mine]
        bound_sets(ends[:-1], grouped, own, digests, table.digests, key, bounding.limit, count, bound_round)
        squeezed = offsets_of(own)
        gather_users(ends, grouped, np.arange(len(some)), squeezed, grouped)
        starts[mine] = placed + squeezed[:-1]
        placed += int(squeezed[-1])
    new_offsets, items, digests = lay_out_users(starts, sizes, kept, user_digests, bounding.order, count)
    return Contributions(new_offsets, items, table, digests, bounding.limit)


def _sort_sets(ends: Int64s, grouped: Int32s, sizes: Int64s, threads: int) -> None:
    """Call `sort_unique` for all users, in some threads."""
    shares = heavy_ranges(ends[1:], share_count(threads))
    work_in_threads(lambda some: ngrams.sort_unique(ends, grouped, sizes, some.start, some.stop), shares, threads)


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
    memory_limit: int | None = None,
    threads: int | None = None,
) -> Contributions:
    """Read all batches of (users, texts) into contributions whose items are the n-grams of all these lengths.

    All lengths are one set (arXiv 2002.09745, section 6.2.1), for any algorithm. An item is tokens joined by one space.

    Guarantees: the result is that of `encode` with the n-grams as items.
    """
    stream = read_tokens(batches, key, splitting, normalization, memory_limit=memory_limit, threads=threads)
    user_digests, offsets = stream.user_digests, stream.offsets * (longest - shortest + 1)
    codes, texts = lay_out_lengths(stream, key, shortest, longest, threads)
    del stream
    table, ranks = table_of(*texts, key, threads or usable_cores())
    del texts
    ngrams.renumber(codes, ranks)
    bounding = Bounding(max_items_per_user, user_order)
    return bound_stream(user_digests, offsets, codes, table, key, bounding, threads=threads, used_up=True)


def lay_out_lengths(
    stream: TokenStream, key: RunKey, shortest: int, longest: int, threads: int | None
) -> tuple[Int32s, tuple[Int64s, Uint8s]]:
    """Put each user's n-grams of all these lengths side by side, numbered length after length; overwrite the stream.

    Returns codes: int32[lengths * n], -1 where there is no n-gram, and the n-grams' texts: int64 offsets and bytes.

    Guarantees: each user's part contains that user's own n-grams only.
    """
    tokens = stream.table
    offsets, data = tokens.offsets, tokens.data
    grams, last = stream.tokens, np.arange(len(tokens), dtype=np.int32)
    lengths = longest - shortest + 1
    codes = np.empty(len(grams) * lengths, np.int32)
    texts: list[tuple[Int64s, Uint8s]] = []
    for length in range(1, longest + 1):
        if length > 1:
            pairs = pair_grams(grams, key, threads)
            suffixes = (pairs & np.uint64(0xFFFFFFFF)).astype(np.int32)
            prefixes = (pairs >> np.uint64(32)).astype(np.int32)
            last = last[suffixes]
            ends = offsets_of(np.diff(offsets)[prefixes] + 1 + np.diff(tokens.offsets)[last])
            joined = np.empty(int(ends[-1]), np.uint8)
            ngrams.join_texts(offsets, data, tokens.offsets, tokens.data, prefixes, last, ends, joined)
            offsets, data = ends, joined
        if length >= shortest:
            before = sum(len(starts) - 1 for starts, _ in texts)
            if before + len(offsets) - 1 > MAX_ITEMS:
                refuse_more_than(MAX_ITEMS, "distinct n-grams")
            ngrams.lay_beside(stream.offsets, grams, before, length - shortest, lengths, codes)
            texts.append((offsets, data))
    return codes, join_buffers(texts)
