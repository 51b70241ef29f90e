"""Contributions on their way between tasks: cut by shard, packed into bytes, and joined again.

A piece has users of one shard: their keyed digests, their sets as numbers, and the digests of the items; no user id
and no item's text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpunion.algorithms import Norm, Sensitivity, UserOrder
from dpunion.buffers import array_of, string_buffers
from dpunion.calibration.rounding import MAX_USERS
from dpunion.contributions import Contributions, Int32s, Int64s, ItemTable, Uint64s, offsets_of
from dpunion.errors import BadSource, InternalError, SensitivityMismatch
from dpunion.kernels.bounding import gather_users
from dpunion.randomness import Purpose, RunKey
from dpunion.sets.grouping import digest_order, group_rows, visiting_order
from dpunion.sets.spill import RowStore
from dpunion.sets.strings import select_strings

PAIRS_PER_PIECE = 1 << 18  # Java allocates one block for each; in a session of 1 GB, it failed at four times as many
ROWS_PER_BATCH = 1 << 17
# The noise pays for the rounding of MAX_USERS: half for the users of a shard, half for flooring to whole units.
MAX_USERS_PER_SHARD = MAX_USERS // 2
MAX_ITEMS_PER_SHARD = 2**28
PIECE = ("<u8", "<i4", "<u8", "<i4")


def pack_arrays(kinds: Sequence[str], *arrays: Any) -> bytes:
    """Pack arrays of these kinds: how many values each has, then their values."""
    lengths = np.array([array.size for array in arrays], "<i8")
    packed = (np.ascontiguousarray(array, kind).tobytes() for kind, array in zip(kinds, arrays, strict=True))
    return b"".join([lengths.tobytes(), *packed])


def unpack_arrays(kinds: Sequence[str], packed: Any) -> list[Any]:
    """Read back what `pack_arrays` wrote, without a copy; the arrays have one dimension."""
    lengths = np.frombuffer(packed, "<i8", len(kinds))
    ends = lengths.nbytes + np.cumsum(lengths * [np.dtype(kind).itemsize for kind in kinds])
    if len(packed) != ends[-1]:
        raise InternalError("packed arrays that are cut short")
    starts = [lengths.nbytes, *ends[:-1].tolist()]
    return [np.frombuffer(packed, *one) for one in zip(kinds, lengths.tolist(), starts, strict=True)]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Piece:
    """Some users of one shard: user u has the items of the next sizes[u] codes.

    user_digests: uint64[users, 2]; sizes: int32[users]; digests: uint64[items, 2], in the table's order; codes:
    int32[pairs], numbers of the digests, rising within a user.
    """

    user_digests: Uint64s
    sizes: Int32s
    digests: Uint64s
    codes: Int32s

    def __repr__(self) -> str:
        return "Piece(<sensitive>)"

    def to_bytes(self) -> bytes:
        return pack_arrays(PIECE, self.user_digests, self.sizes, self.digests, self.codes)

    @classmethod
    def from_bytes(cls, packed: bytes | memoryview) -> Piece:
        user_digests, sizes, digests, codes = unpack_arrays(PIECE, packed)
        return cls(user_digests.reshape(-1, 2), sizes, digests.reshape(-1, 2), codes)

    def sets(self, max_items: int) -> Contributions:
        """Return the users' sets, of at most max_items. Guarantees: they are those of the piece, without texts."""
        offsets, table = offsets_of(self.sizes.astype(np.int64)), _nameless_table(self.digests)
        return Contributions(offsets, self.codes, table, self.user_digests, max_items)


def pieces_in(batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]:
    """Yield the pieces of some rows (payload)."""
    for batch in batches:
        for payload in batch.column("payload"):
            yield Piece.from_bytes(payload.as_py())


def shard_of(user_digests: Uint64s, shards: int, key: RunKey) -> Int64s:
    """Return each user's shard: int64[users]. Guarantees: it is a function of the user's id and the run key alone."""
    words = key.words(Purpose.SHARD, 0, user_digests)[:, 0]
    return (words % np.uint64(shards)).astype(np.int64)


def cut_by_shard(contributions: Contributions, shards: int, key: RunKey) -> Iterator[tuple[int, Piece]]:
    """Yield pieces of PAIRS_PER_PIECE pairs, by shard. Guarantees: every user is in just one, with all kept items."""
    shard = shard_of(contributions.user_digests, shards, key)
    order = np.argsort(shard, kind="stable")
    ends = np.searchsorted(shard[order], np.arange(shards + 1))
    sizes, digests = np.diff(contributions.offsets), contributions.table.digests
    for number in range(shards):
        users = order[ends[number] : ends[number + 1]]
        total = np.cumsum(sizes[users])
        first = 0
        while first < len(users):
            begin = int(total[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(total, begin + PAIRS_PER_PIECE, side="right")))
            some = users[first:last]
            offsets = offsets_of(sizes[some])
            items = np.empty(int(offsets[-1]), np.int32)
            gather_users(contributions.offsets[:-1], contributions.items, some, offsets, items)
            held, codes = _number_used(items, len(digests))
            yield number, Piece(contributions.user_digests[some], sizes[some].astype(np.int32), digests[held], codes)
            first = last


def _number_used(items: Int32s, count: int) -> tuple[Int64s, Int32s]:
    """Return which of `count` items occur, rising, and for each of `items` its place among these."""
    occurs = np.zeros(count, np.bool_)
    occurs[items] = True
    numbers = (np.cumsum(occurs) - 1).astype(np.int32)
    return np.flatnonzero(occurs), numbers[items]


def drop_unused_items(contributions: Contributions) -> Contributions:
    """Drop the items that nobody keeps from the table. Guarantees: no user's set changes."""
    whole = contributions.table
    held, codes = _number_used(contributions.items, len(whole))
    table = ItemTable(*select_strings(whole.offsets, whole.data, held), whole.digests[held])
    return dataclasses.replace(contributions, items=codes, table=table)


def arrow_names(table: ItemTable, some: slice = slice(None)) -> pa.Array:
    """Return texts of items as Arrow binary, below two gigabytes. Guarantees: buffers have no byte of other items."""
    first, last, _ = some.indices(len(table))
    offsets = table.offsets[first : last + 1]
    data = np.ascontiguousarray(table.data[offsets[0] : offsets[-1]])
    return array_of(offsets - offsets[0], data, pa.large_binary()).cast(pa.binary())


def digests_to_arrow(digests: Uint64s) -> pa.Array:
    """Return 128-bit digests as Arrow binary of 16 bytes each: uint64[n, 2] -> n values."""
    offsets = np.arange(0, 16 * len(digests) + 1, 16, dtype=np.int32)
    return array_of(offsets, np.ascontiguousarray(digests, "<u8"), pa.binary())


def digests_from_arrow(column: pa.Array) -> Uint64s:
    """Read back what digests_to_arrow wrote: uint64[n, 2]."""
    if not len(column):
        return np.zeros((0, 2), np.uint64)
    offsets, data = string_buffers(column.cast(pa.binary()))
    if int(offsets[-1] - offsets[0]) != 16 * len(column):
        raise InternalError("digests of another length")
    words = np.frombuffer(data, "<u8", 2 * len(column), int(offsets[0]))
    return words.reshape(-1, 2).astype(np.uint64)


def unite_pieces(pieces: Sequence[Piece], user_order: UserOrder, max_items: int) -> Contributions:
    """Join the pieces of one shard: users in visiting order, items numbered by their digests, without texts.

    Guarantees:
    - the result does not depend on the order or the number of the pieces;
    - the order of users, and of the items within a user, is that of the whole data on one machine.
    """
    digests, numbers = number_digests([piece.digests for piece in pieces])
    user_digests = np.concatenate([np.zeros((0, 2), np.uint64), *(piece.user_digests for piece in pieces)])
    if len(user_digests) > MAX_USERS_PER_SHARD:
        raise BadSource(f"A shard has more than {MAX_USERS_PER_SHARD} users.", "Use more 'shards' (--shards).")
    sizes = np.concatenate([np.zeros(0, np.int64), *(piece.sizes.astype(np.int64) for piece in pieces)])
    codes = [number[piece.codes] for number, piece in zip(numbers, pieces, strict=True)]
    items = np.concatenate([np.zeros(0, np.int32), *codes])
    del codes
    order = visiting_order(sizes, user_digests, user_order)
    offsets = offsets_of(sizes[order])
    laid_out = np.empty(len(items), np.int32)
    gather_users(offsets_of(sizes)[:-1], items, order, offsets, laid_out)
    return Contributions(offsets, laid_out, _nameless_table(digests), user_digests[order], max_items)


def _nameless_table(digests: Uint64s) -> ItemTable:
    """Return the table of items of which only the digests are known."""
    return ItemTable(np.zeros(len(digests) + 1, np.int64), np.zeros(0, np.uint8), digests)


def number_digests(lists: Sequence[Uint64s]) -> tuple[Uint64s, list[Int32s]]:
    """Return the distinct digests of all lists, rising, and for each list the numbers of its digests: int32[n]."""
    everything = np.concatenate([np.zeros((0, 2), np.uint64), *lists])
    order = digest_order(everything)
    ordered = everything[order]
    new = np.ones(len(ordered), np.bool_)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    if np.count_nonzero(new) > MAX_ITEMS_PER_SHARD:
        raise BadSource(f"A shard has more than {MAX_ITEMS_PER_SHARD} distinct items.", "Use more 'shards' (--shards).")
    number = np.empty(len(ordered), np.int32)
    number[order] = (np.cumsum(new) - 1).astype(np.int32)
    ends = np.cumsum([len(one) for one in lists], dtype=np.int64)
    return ordered[new], [number[end - len(one) : end] for end, one in zip(ends.tolist(), lists, strict=True)]


def match_digests(digests: Uint64s, wanted: Uint64s) -> tuple[Int64s, Int64s]:
    """Return the first places of the wanted digests in `digests`, and which of the wanted these are: int64[found] each.

    digests: uint64[n, 2]; wanted: uint64[m, 2].

    Guarantees: a wanted digest that `digests` does not have has no place.
    """
    _, (numbers, asked) = number_digests([digests, wanted])
    place = np.full(len(numbers) + len(asked), -1, np.int64)
    place[numbers[::-1]] = np.arange(len(numbers))[::-1]
    found = np.flatnonzero(place[asked] >= 0)
    return place[asked][found], found


def join_parts(
    parts: Sequence[Contributions], key: RunKey, max_items: int, user_order: UserOrder = UserOrder.RANDOM
) -> Contributions:
    """Return the contributions that one reading of all the parts' rows gives; a user may be in several parts.

    Guarantees:
    - duplicates between parts are dropped before bounding;
    - a user keeps the same items as if all were read at once: bounding keeps the items with the smallest keyed hashes,
      and these are among the smallest of their part.
    """
    _, numbers = number_digests([part.table.digests for part in parts])
    owners_digests, owners = number_digests([part.user_digests for part in parts])
    items = 1 + max((int(number.max(initial=-1)) for number in numbers), default=-1)
    tables = [part.table for part in parts]
    shifts = np.cumsum([0, *(len(table.data) for table in tables)])
    starts = np.concatenate([table.offsets[:-1] + shift for table, shift in zip(tables, shifts, strict=False)])
    lengths = np.concatenate([np.diff(table.offsets) for table in tables])
    data, digests = (np.concatenate(some) for some in zip(*((one.data, one.digests) for one in tables), strict=True))
    # Each item comes from the first table that has it.
    place = np.empty(items, np.int64)
    everything = np.concatenate(numbers).astype(np.int64)
    place[everything[::-1]] = np.arange(len(everything))[::-1]
    offsets = offsets_of(lengths[place])
    # Byte i of the new data comes from the start of its item, plus the distance of i from the item's new start.
    sources = np.repeat(starts[place] - offsets[:-1], lengths[place]) + np.arange(int(offsets[-1]))
    table = ItemTable(offsets, data[sources], digests[place])
    with RowStore() as rows:
        for part, number, owner in zip(parts, numbers, owners, strict=True):
            rows.append(owner, number[part.items], np.diff(part.offsets))
        same = np.arange(items, dtype=np.int32)
        return drop_unused_items(group_rows(rows, same, owners_digests, table, key, max_items, user_order))


# --- sums of what partitions or shards report -------------------------------------------------------------------


def read_units(batch: pa.RecordBatch) -> Int64s:
    """Return the sums: int64[rows]. Guarantees: they are exact; one beyond 63 bits, of 2^31 people, ends the run."""
    column = batch.column("units")
    if column.null_count:
        raise BadSource(
            "More than 2^31 people have the same item, more than one run supports.",
            "Split the people into disjoint groups and release each group on its own.",
        )
    return np.asarray(column, np.int64)


def sensitivity_number(sensitivity: Sensitivity) -> float:
    """Return a sensitivity as one number, which travels with the weights: that of l1 is negative."""
    return -sensitivity.bound if sensitivity.norm is Norm.L1 else sensitivity.bound


def read_sensitivity(batch: pa.RecordBatch) -> Sensitivity:
    """Return the common sensitivity of all sums; marks have none. Guarantees: different sensitivities are refused."""
    low = pc.min(batch.column("least_sensitivity")).as_py()
    high = pc.max(batch.column("most_sensitivity")).as_py()
    if low is None or low != high:
        raise SensitivityMismatch("weights of different sensitivities were added up")
    return Sensitivity(Norm.L1 if low < 0.0 else Norm.L2, abs(low))


def slice_rows(rows: int) -> Iterator[slice]:
    """Yield slices that are small enough for batches below Arrow's two gigabytes, however long the items are."""
    for first in range(0, rows, ROWS_PER_BATCH):
        yield slice(first, min(first + ROWS_PER_BATCH, rows))
