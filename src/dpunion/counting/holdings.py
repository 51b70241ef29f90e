"""Which listed items each user has: the sets that are counted."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from dpunion.buffers import read_only
from dpunion.contributions import Bools, Contributions, Int32s, Int64s, Uint64s, offsets_of
from dpunion.kernels.counting import copy_listed, find_in_buckets
from dpunion.plans.counts import MOST_COUNTED
from dpunion.randomness import RunKey
from dpunion.sets.grouping import bound_sets, compact_items, gathering_ranges
from dpunion.threads import share_count, work_in_order

UNLISTED, KNOWN = -1, -2


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Holdings:
    """Each user's listed items: user u has items[offsets[u]:offsets[u+1]], places on the list (sensitive).

    offsets: int64[users+1]; items: int32[pairs]; anything, others: bool[users], whether the user has anything at all,
    and anything that is neither listed nor known.

    Guarantees:
    - what is stored for a user depends only on the user's own items, the key and public lists;
    - at most MOST_COUNTED of a user's items count;
    - the repr shows no values.
    """

    offsets: Int64s
    items: Int32s
    anything: Bools
    others: Bools

    def __repr__(self) -> str:
        return "Holdings(<sensitive>)"

    def divide(self, threads: int) -> list[Holdings]:
        """Return the same users in shares for threads to work on, without copying."""
        shares = [(some.start, some.stop) for some in gathering_ranges(self.offsets, share_count(threads))]
        return [Holdings(self.offsets[a : b + 1], self.items, self.anything[a:b], self.others[a:b]) for a, b in shares]


def number_items(digests: Uint64s, listed: Uint64s, known: Uint64s) -> Int32s:
    """Return the place of each item on the list, UNLISTED or KNOWN: int32[items].

    digests: uint64[items, 2], rising by their first words; listed, known: uint64[n, 2], of public lists.

    Guarantees: two items are the same when their 128-bit keyed digests are.
    """
    numbers = find_listed(digests, listed).astype(np.int32)
    numbers[(numbers < 0) & (find_listed(digests, known) >= 0)] = KNOWN
    return numbers


def find_listed(digests: Uint64s, listed: Uint64s) -> Int64s:
    """Return each digest's place on a list, or UNLISTED: int64[n].

    digests: uint64[n, 2], distinct, rising by their first words; listed: uint64[m, 2].
    """
    bits = max(1, len(digests).bit_length())  # so that a bucket has one digest or none, mostly
    starts = offsets_of(np.bincount((digests[:, 0] >> np.uint64(64 - bits)).astype(np.int64), minlength=1 << bits))
    some, others = (read_only(np.ascontiguousarray(one)) for one in (digests, listed))
    return find_in_buckets(some, starts, 64 - bits, others)


def holdings_of(contributions: Contributions, numbers: Int32s, key: RunKey, *, in_place: bool = False) -> Holdings:
    """Return each user's listed items; numbers: as number_items returns them. in_place: allow to overwrite the sets.

    Guarantees: as for Holdings.
    """
    sets = bound_to_counted(contributions, key)
    listed = sets.items if in_place else np.empty(len(sets.items), np.int32)
    sizes = np.empty(sets.users, np.int64)
    anything, others = np.empty(sets.users, np.bool_), np.empty(sets.users, np.bool_)
    total = copy_listed(sets.offsets, sets.items, numbers, listed, sizes, anything, others)
    return Holdings(offsets_of(sizes), listed[:total], anything, others)


def holdings_in_shares(contributions: Contributions, numbers: Int32s, key: RunKey, threads: int) -> list[Holdings]:
    """Return what `holdings_of` returns, in shares of the users for threads to work on. The sets are used up.

    Guarantees: as for Holdings; every user is in one share.
    """

    def take(some: range) -> Holdings:
        first, last = contributions.offsets[some.start], contributions.offsets[some.stop]
        share = dataclasses.replace(
            contributions,
            offsets=contributions.offsets[some.start : some.stop + 1] - first,
            items=contributions.items[first:last],
            user_digests=contributions.user_digests[some.start : some.stop],
        )
        return holdings_of(share, numbers, key, in_place=True)

    return list(work_in_order(take, gathering_ranges(contributions.offsets, share_count(threads)), threads))


def bound_to_counted(contributions: Contributions, key: RunKey) -> Contributions:
    """Keep at most MOST_COUNTED random items of each user, the same as any other bounding with this key would keep.

    Guarantees: what a user keeps depends on that user's own items and the key alone.
    """
    if contributions.max_items_per_user <= MOST_COUNTED:
        return contributions
    offsets, sizes, items = contributions.offsets, np.diff(contributions.offsets), contributions.items
    if int(sizes.max(initial=0)) <= MOST_COUNTED:
        return contributions
    items = items.copy()
    bound_sets(offsets[:-1], items, sizes, contributions.user_digests, contributions.table.digests, key, MOST_COUNTED)
    kept = compact_items(offsets[:-1], sizes, items)
    return Contributions(*kept, contributions.table, contributions.user_digests, MOST_COUNTED)
