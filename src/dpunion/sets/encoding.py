"""Batches of Arrow columns -> Contributions: number the strings, normalise, then group, bound and order.

Only this module sees user ids, and nothing that it returns contains one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from dpunion.algorithms import UserOrder
from dpunion.buffers import has_ascii_only, string_buffers, text_array
from dpunion.calibration.rounding import MAX_USERS
from dpunion.checks import refuse_more_than
from dpunion.contributions import Bools, Contributions, Int32s, Int64s, ItemTable, Uint8s, Uint64s, offsets_of
from dpunion.randomness import Purpose, RunKey
from dpunion.sets.grouping import digest_order, even_ranges, group_rows
from dpunion.sets.spill import RowStore, TextStore
from dpunion.sets.strings import StringTable, select_strings
from dpunion.text.splitting import PLAIN, Splitting, Tokenizer, documents, left_to_spell, unwanted_tokens
from dpunion.text.words import Normalization, WordRoom, normalize_texts
from dpunion.threads import share_count, usable_cores, work_in_background, work_in_order, work_in_threads

R = TypeVar("R")

Batches = Iterable[tuple[pa.Array, pa.Array]]
"""Batches of (users, items or texts)."""


def work_off(batches: Batches, work: Callable[[Batches], R], threads: int) -> Iterator[R]:
    """Yield work(piece) for the pieces of these batches, in some threads; if they have no pieces, each batch is one.

    Batches that several threads can read in pieces have `work_off`, as `reading.Rows`.

    Guarantees: the results are in the order of the pieces, and the first error in that order is raised.
    """
    divided: Callable[..., Iterator[R]] | None = getattr(batches, "work_off", None)
    return work_in_order(lambda batch: work((batch,)), batches, threads) if divided is None else divided(work, threads)


def encode(
    batches: Batches,
    key: RunKey,
    *,
    max_items_per_user: int,
    user_order: UserOrder,
    normalization: Normalization,
    split_words: bool,
    splitting: Splitting = PLAIN,
    known: Sequence[str] = (),
    memory_limit: int | None = None,
    threads: int | None = None,
) -> Contributions:
    """Read all batches of (users, items or texts) into contributions.

    splitting: how texts are split, and which words are dropped. threads: by default one for each usable core.

    Guarantees:
    - the number of threads changes nothing;
    - normalise, drop duplicates, drop known items and stop words, bound: in this order, once;
    - the result does not depend on the order of rows, on duplicate rows or on how rows are split into batches;
    - what a user keeps, and the user's place in the order, depends on that user's own data and the key alone;
    - no user id is in the result;
    - rows beyond the memory limit go to nameless private files, as numbers.
    """
    count = threads or usable_cores()
    with RowStore(memory_limit) as rows:
        words = normalization if split_words else None
        user_table, item_table = number_rows(batches, rows, key, words, count, splitting)
        item_table.close()
        user_digests = digests_of_users(user_table, key, count)
        del user_table
        normal = left_to_spell(splitting, normalization) if split_words else normalization
        with work_in_background(lambda: digest_order(user_digests), count) as by_digest:
            table, renumbered = canonical_table(item_table, key, normal, count)
            del item_table
            unwanted = either(mark_known(table, known, key), unwanted_tokens(table.offsets, table.data, splitting))
            return group_rows(
                rows, renumbered, user_digests, table, key, max_items_per_user, user_order, unwanted, count, by_digest
            )


def number_rows(
    batches: Batches,
    store: RowStore | TextStore,
    key: RunKey,
    words: Normalization | None,
    threads: int,
    splitting: Splitting = PLAIN,
) -> tuple[StringTable, StringTable]:
    """Put all rows as numbers into the store, in some threads, and return the tables of users and of items.

    words: how to spell the words of texts, which are split as `splitting` says; None if the values are items.

    Guarantees: two users, or items, have the same number if and only if they have the same bytes.
    """
    seeds = np.frombuffer(key.subkey(Purpose.USER, 1)[:16], np.uint64)
    user_table, item_table = StringTable(seeds[0], threads=threads), StringTable(seeds[1], threads=threads)
    room = WordRoom()

    def number(piece: Batches) -> None:
        for users, values in piece:
            if words is not None:
                parents, (counts, offsets, data) = documents(values, splitting, words, room)
                numbered = item_table.number_buffers(offsets, data, store.make_place(len(offsets) - 1))
                writers = user_table.number(users)
                store.append(writers if parents is None else writers[parents], numbered, counts)
            else:
                store.append(user_table.number(users), item_table.number(values, store.make_place(len(values))))

    # The caller's thread calls the caller's own tokenizer, one text after the other.
    at_once = threads if isinstance(splitting.tokenizer, Tokenizer) else 1
    for _ in work_off(batches, number, at_once):
        pass
    return user_table, item_table


def digests_of_users(users: StringTable, key: RunKey, threads: int) -> Uint64s:
    """Return the digests of all users, uint64[users, 2]; close the table. Guarantees: too many users are refused."""
    if users.count > MAX_USERS:
        refuse_more_than(MAX_USERS, "users")
    users.close()
    return digests_in_threads(key, Purpose.USER, *users.buffers(), threads)


def digests_in_threads(key: RunKey, purpose: Purpose, offsets: Int64s, data: Uint8s, threads: int) -> Uint64s:
    """Return `RunKey.digests` of many names, computed in some threads: uint64[n, 2].

    Guarantees: without the key a digest says nothing about the name.
    """
    digests = np.empty((len(offsets) - 1, 2), np.uint64)

    def digest(some: range) -> None:
        digests[some.start : some.stop] = key.digests(purpose, offsets[some.start : some.stop + 1], data)

    work_in_threads(digest, even_ranges(len(digests), share_count(threads)), threads)
    return digests


def canonical_table(
    raw: StringTable, key: RunKey, normalization: Normalization, threads: int
) -> tuple[ItemTable, Int32s]:
    """Normalise the distinct items, number them by their digests; return the table and int32[raw items], new numbers.

    Guarantees: the numbers depend on the set of items and the key, not on the order of rows.
    """
    offsets, data = raw.buffers()
    merged: Int32s | None = None
    if normalization is not Normalization.EXACT and not (normalization is Normalization.NFC and has_ascii_only(data)):
        normal = StringTable(raw.seed)
        merged = normal.number(text_array(normalize_texts(offsets, data, normalization)))
        normal.close()
        offsets, data = normal.buffers()
    table, rank = table_of(offsets, data, key, threads)
    return table, rank if merged is None else rank[merged]


def table_of(offsets: Int64s, data: Uint8s, key: RunKey, threads: int) -> tuple[ItemTable, Int32s]:
    """Number distinct items by their digests: return the table and, for each old number, the new one, int32[items].

    Guarantees: the numbers depend on the set of items and the key, not on the order of rows.
    """
    digests = digests_in_threads(key, Purpose.ITEM, offsets, data, threads)
    order = digest_order(digests)
    digests = digests.take(order, axis=0)
    new_offsets, new_data = select_strings(offsets, data, order)
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return ItemTable(new_offsets, new_data, digests), rank


def mark_known(table: ItemTable, known: Sequence[str], key: RunKey) -> Bools | None:
    """Return which items of the table are on the known list: bool[items], or None without a list.

    Guarantees: the comparison is by bytes, as 128-bit keyed digests.
    """
    return is_known(table.digests, digests_of(known, key)) if known else None


def digests_of_list(texts: pa.Array, key: RunKey, threads: int = 1) -> Uint64s:
    """Return the digests of a public list, an Arrow array of texts, computed in some threads: uint64[texts, 2].

    Guarantees: as RunKey.digests; the texts are public.
    """
    offsets, data = string_buffers(texts)
    return digests_in_threads(key, Purpose.ITEM, offsets.astype(np.int64), data, threads)


def digests_of(texts: Sequence[str], key: RunKey) -> Uint64s:
    """Return the digests of public texts: uint64[texts, 2]. Guarantees: as RunKey.digests; the texts are public."""
    encoded = [text.encode() for text in texts]
    offsets = offsets_of(np.fromiter(map(len, encoded), np.int64, len(encoded)))
    return key.digests(Purpose.ITEM, offsets, np.frombuffer(b"".join(encoded) or b"\0", np.uint8))


def is_known(digests: Uint64s, known: Uint64s) -> Bools | None:
    """Return which digests are among the known ones: bool[n], or None if there are none; both uint64[n, 2]."""
    if len(known) == 0:
        return None
    some, listed = (np.ascontiguousarray(one).view("u8,u8").ravel() for one in (digests, known))
    return np.isin(some, listed)


def either(one: Bools | None, other: Bools | None) -> Bools | None:
    """Return one | other, where None is False for all."""
    return other if one is None else one if other is None else one | other
