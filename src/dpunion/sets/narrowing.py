"""The sets of all users, as rounds visit them: in order, in parts, narrowed between rounds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple, ParamSpec, TypeVar

import numpy as np

from dpunion.contributions import Bools, Contributions, Int32s, Int64s, Uint64s
from dpunion.errors import InternalError
from dpunion.kernels.bounding import count_items, narrow_users
from dpunion.randomness import RunKey
from dpunion.sets.grouping import bound_sets, compact_items
from dpunion.threads import Task, Threads

P = ParamSpec("P")
T = TypeVar("T")

FEWEST_PAIRS, MOST_PAIRS, GROWTH = 1 << 16, 1 << 20, 8
ITEMS_PER_PAIR = 4  # checking this many items for what they want takes as long as visiting one pair
MOST_STAYING = 0.75  # while more of the pairs than this stay, dropping the others takes longer than it saves
PAIRS_PER_USER = 4  # a user's offset and digest take as much memory as this many items


class Part(NamedTuple):
    """Some users' sets: user u has items[offsets[u]:offsets[u+1]]; user_digests: uint64[users, 2], or empty."""

    offsets: Int64s
    items: Int32s
    user_digests: Uint64s


class Sets:
    """The sets of all users in visiting order (sensitive).

    digests: uint64[items, 2], the run key's digest of each item. Threads narrow parts before the caller visits them.

    Guarantees:
    - users stay in their order, and what narrowing leaves of a user's set depends on that set and the public `alive`;
    - neither what `wanting` leaves out nor the number of threads changes a result;
    - the repr shows no value.
    """

    def __init__(self, contributions: Contributions, threads: Threads | None = None) -> None:
        self.digests = contributions.table.digests
        self._threads = threads
        self._all_parts: list[Part] | None = parts_of(contributions)
        self._alive: Bools | None = None
        self._ours = False
        self._keepers = self.start(count_keepers, contributions) or Task.done(count_keepers(contributions))

    def __repr__(self) -> str:
        return "Sets(<sensitive>)"

    def __len__(self) -> int:
        return len(self.digests)

    @property
    def held(self) -> Bools:
        """For each item, whether any user kept it, before anything was narrowed: bool[items]."""
        return self._keepers.result() > 0

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts) if self._alive is None else self.wanting(lambda: None)

    def start(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Task[T] | None:
        """Let a thread call `work` while sets are visited; return its task, or None without threads."""
        return None if self._threads is None else self._threads.submit(work, *args, **kwargs)

    def narrow(self, alive: Bools, *, may_wait: bool = False) -> None:
        """Drop items that are not alive from every set, before the next visit; alive: bool[items].

        may_wait: the caller gives them nothing, so they may stay until dropping them pays.
        """
        parts = list(self)
        if may_wait:
            staying = int(self._keepers.result()[alive].sum())
            if staying > MOST_STAYING * sum(int(part.offsets[-1] - part.offsets[0]) for part in parts):
                return
        self._alive = alive

    @property
    def _parts(self) -> list[Part]:
        if self._all_parts is None:
            raise InternalError("sets were narrowed in part, by a visit that was left early")
        return self._all_parts

    def wanting(self, wants: Callable[[], Bools | None]) -> Iterator[Part]:
        """Yield the sets, narrowed if `narrow` was called, without most of the items that want no more weight.

        wants: returns which items still want weight, bool[items], or None for all; called now and then, before visits.
        So the caller must give exactly nothing to an item that wants nothing, and such an item must never want again.
        """
        parts, alive, in_place = self._parts, self._alive, self._ours
        narrowed, visited = list[Part](), 0
        if alive is not None:
            self._all_parts = None

        def asked() -> Iterator[tuple[Part, Bools | None]]:
            wanted, last = wants(), visited
            for part in parts:
                if visited - last >= max(len(self) // ITEMS_PER_PAIR, 1):
                    wanted, last = wants(), visited
                yield part, wanted

        def prepare(given: tuple[Part, Bools | None]) -> tuple[Part, Part]:
            part, wanted = given
            stays = part if alive is None else narrow(part, alive, in_place=in_place)
            return stays, stays if wanted is None else narrow(stays, wanted, named=False)

        made = map(prepare, asked()) if self._threads is None else self._threads.work_in_order(prepare, asked())
        for (stays, shown), part in zip(made, parts, strict=True):
            narrowed.append(stays)
            yield shown
            visited += int(part.offsets[-1] - part.offsets[0])
        if alive is not None:
            self._all_parts, self._alive, self._ours = narrowed, None, True


def count_keepers(contributions: Contributions) -> Int64s:
    """Count for each item the users who keep it: int64[items]. Guarantees: an item that nobody keeps has none."""
    keepers = np.zeros(len(contributions.table), np.int64)
    count_items(contributions.items, keepers)
    return keepers


def parts_of(contributions: Contributions) -> list[Part]:
    """Cut the users into parts of at most about MOST_PAIRS pairs; nothing is copied.

    subtle: the first visits change most of what items want, so the first parts are the smallest.

    Guarantees: every user is in one part, with all of the user's items, and users stay in their order.
    """
    offsets, items = contributions.offsets, contributions.items
    weights = offsets + PAIRS_PER_USER * np.arange(len(offsets))
    wanted = [0]
    while wanted[-1] < weights[-1]:
        wanted.append(wanted[-1] + min(max(wanted[-1] // GROWTH, FEWEST_PAIRS), MOST_PAIRS))
    places = np.unique([*np.searchsorted(weights[:-1], wanted[:-1]), len(offsets) - 1]).tolist()
    return [
        Part(offsets[first : last + 1], items, contributions.user_digests[first:last])
        for first, last in itertools.pairwise(places)
    ]


def narrow(part: Part, alive: Bools, *, in_place: bool = False, named: bool = True) -> Part:
    """Drop dead items from every set, and users who then have none; the others stay in their order.

    in_place: overwrite the items. named: keep the users' digests, for callers that draw by them. Sorting the remaining
    sets smallest first again was measured and gains nothing.

    Guarantees: a user's new set is a function of the user's old one and of `alive`.
    """
    offsets, items, user_digests = part
    kept = items if in_place else np.empty(int(offsets[-1] - offsets[0]), np.int32)
    ends, stayed = np.zeros(len(offsets), np.int64), np.empty(len(offsets) - 1, np.int64)
    users = narrow_users(offsets, items, alive, kept, ends[1:], stayed)
    # A copy frees the memory that is not used.
    ends = ends[: users + 1].copy()
    kept = kept[: ends[-1]] if in_place else kept[: ends[-1]].copy()
    return Part(ends, kept, user_digests.take(stayed[: users if named else 0], axis=0))


def draw_items(part: Part, digests: Uint64s, limit: int, number: int, key: RunKey) -> Part:
    """Draw at most `limit` items of each user for round `number`.

    Guarantees: what one user draws depends on that user's own items and the key alone.
    """
    offsets = part.offsets - part.offsets[0]
    drawn, starts, sizes = part.items[part.offsets[0] : part.offsets[-1]].copy(), offsets[:-1], np.diff(offsets)
    bound_sets(starts, drawn, sizes, part.user_digests, digests, key, limit, bound_round=number)
    return Part(*compact_items(starts, sizes, drawn), part.user_digests)
