"""Which user has which items, as integers: the most sensitive object of dpunion."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Uint8s = npt.NDArray[np.uint8]
Uint32s = npt.NDArray[np.uint32]
Uint64s = npt.NDArray[np.uint64]
Float64s = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ItemTable:
    """The distinct items: item number i is the UTF-8 bytes data[offsets[i]:offsets[i+1]].

    offsets: int64[items+1]; data: uint8[bytes]; digests: uint64[items, 2], the run key's digest of each item.
    Items are numbered in the order of their digests, so a number does not show where the item came from.
    """

    offsets: Int64s
    data: Uint8s
    digests: Uint64s

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return "ItemTable(<sensitive>)"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Contributions:
    """Each user's kept items: user u has items[offsets[u]:offsets[u+1]], distinct and in rising order.

    offsets: int64[users+1]; items: int32[pairs], item numbers of `table`; user_digests: uint64[users, 2], the run key's
    digest of each user id. A user has at most `max_items_per_user` items; users are in the order in which a policy
    visits them.

    Guarantees:
    - the repr shows no value;
    - there are no user ids: users are positions and keyed digests only.
    """

    offsets: Int64s
    items: Int32s
    table: ItemTable
    user_digests: Uint64s
    max_items_per_user: int

    @property
    def users(self) -> int:
        """Return the number of users (sensitive)."""
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return "Contributions(<sensitive>)"


def offsets_of(sizes: Int64s | Bools) -> Int64s:
    """Return where segments of these sizes start and the last one ends: int64[segments+1]."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets
