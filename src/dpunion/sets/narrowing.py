"""Everybody's sets as rounds visit them: in order, in parts, narrowed between rounds."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, ParamSpec, TypeVar

import numpy as np

from dpunion.contributions import Bools, Contributions, Int32s, Int64s, Uint64s, offsets_of
from dpunion.kernels.bounding import count_items, gather_users, narrow_users
from dpunion.randomness import RunKey
from dpunion.sets.grouping import bound_sets
from dpunion.threads import Task, Threads

P = ParamSpec("P")
T = TypeVar("T")

PAIRS_PER_PART = 1 << 21
PARTS_AHEAD = 3
# Narrowing takes about as long as a visit, so little is gained while more pairs than this part of them stay.
MOST_STAYING = 0.75


class Part(NamedTuple):
    """Some users' sets: user u holds items[offsets[u]:offsets[u+1]]; user_digests are theirs."""

    offsets: Int64s
    items: Int32s
    user_digests: Uint64s


class Sets:
    """Everybody's sets in visiting order (sensitive).

    digests: uint64[items, 2], the run key's digest of each item. With another thread, parts are narrowed there while
    earlier ones are visited here.

    Guarantees:
    - users stay in their order, and a user's set after narrowing is a function of the user's own set and of the public
      `alive`;
    - nothing about the values shows in the repr.
    """

    def __init__(self, contributions: Contributions, other_thread: Threads | None = None) -> None:
        self.digests = contributions.table.digests
        self._other_thread = other_thread
        self._parts = parts_of(contributions)
        self._waiting: list[Part] | None = None
        self._alive: Bools = np.empty(0, np.bool_)
        self._ours = False
        self._keepers: Task[Int64s] = Task(lambda: count_keepers(contributions))
        if other_thread is None:
            self._keepers.run()
        else:
            self._keepers = other_thread.submit(count_keepers, contributions)

    def __repr__(self) -> str:
        return "Sets(<sensitive>)"

    def __len__(self) -> int:
        return len(self.digests)

    @property
    def held(self) -> Bools:
        """Say for each item whether any user kept it, before anything was narrowed: bool[items]."""
        return self._keepers.result() > 0

    def __iter__(self) -> Iterator[Part]:
        if self._waiting is None:
            yield from self._parts
            return
        waiting, self._parts = self._waiting, []
        for part in self._narrowed(waiting):
            self._parts.append(part)
            yield part
        self._waiting, self._ours = None, True

    def beside(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Task[T] | None:
        """Have the other thread do something while sets are visited; None if there is none, or it is to narrow them."""
        if self._other_thread is None or self._waiting is not None:
            return None
        return self._other_thread.submit(work, *args, **kwargs)

    def narrow(self, alive: Bools, *, may_wait: bool = False) -> None:
        """Drop what is not alive from every set, before the next visit: bool[items].

        may_wait: it may stay there until much is gone, as who weighs gives it nothing.
        """
        parts = list(self)
        if may_wait:
            staying = int(self._keepers.result()[alive].sum())
            if staying > MOST_STAYING * sum(int(part.offsets[-1] - part.offsets[0]) for part in parts):
                return
        self._waiting, self._alive = parts, alive

    def _narrowed(self, parts: list[Part]) -> Iterator[Part]:
        """Yield the parts narrowed, in order; with another thread, while that is at the next ones."""
        if self._other_thread is None:
            yield from (narrow(part, self._alive, in_place=self._ours) for part in parts)
            return
        parts.reverse()
        coming: deque[Task[Part]] = deque()
        while parts or coming:
            while parts and len(coming) < PARTS_AHEAD:
                coming.append(self._other_thread.submit(narrow, parts.pop(), self._alive, in_place=self._ours))
            yield coming.popleft().result()


def count_keepers(contributions: Contributions) -> Int64s:
    """Count for each item the users who keep it: int64[items].

    Guarantees: an item that was in the data but kept by nobody has none.
    """
    keepers = np.zeros(len(contributions.table), np.int64)
    count_items(contributions.items, keepers)
    return keepers


def parts_of(contributions: Contributions) -> list[Part]:
    """Cut the users into parts of about PAIRS_PER_PART pairs; nothing is copied.

    Guarantees: every user is in one part, with the whole set, and users stay in their order.
    """
    offsets, items = contributions.offsets, contributions.items
    count = min(len(items) // PAIRS_PER_PART + 1, max(len(offsets) - 1, 1))
    ends = np.searchsorted(offsets, np.arange(1, count) * len(items) // count)
    places = [0, *ends.tolist(), len(offsets) - 1]
    return [
        Part(offsets[first : last + 1], items, contributions.user_digests[first:last])
        for first, last in itertools.pairwise(places)
    ]


def narrow(part: Part, alive: Bools, *, in_place: bool = False) -> Part:
    """Drop what is no longer alive from every set; the users stay in their order.

    in_place: the items are written over. Visiting the smallest remaining sets first again was measured and gains
    nothing.

    Guarantees: a user's new set is a function of the user's old one and the public `alive`.
    """
    offsets, items, user_digests = part
    kept = items if in_place else np.empty(int(offsets[-1] - offsets[0]), np.int32)
    sizes = np.empty(len(offsets) - 1, np.int64)
    total = narrow_users(offsets, items, alive, kept, sizes)
    return Part(offsets_of(sizes), kept[:total], user_digests)


def draw_items(part: Part, digests: Uint64s, limit: int, number: int, key: RunKey) -> Part:
    """Draw at most `limit` items of each user for round `number`.

    Guarantees: what one user draws depends on that user's own items and the key alone.
    """
    offsets = part.offsets - part.offsets[0]
    drawn, starts, sizes = part.items[part.offsets[0] : part.offsets[-1]].copy(), offsets[:-1], np.diff(offsets)
    bound_sets(starts, drawn, sizes, part.user_digests, digests, key, limit, bound_round=number)
    new_offsets = offsets_of(sizes)
    kept = np.empty(int(new_offsets[-1]), np.int32)
    gather_users(starts, drawn, np.arange(len(sizes)), new_offsets, kept)
    return Part(new_offsets, kept, part.user_digests)
