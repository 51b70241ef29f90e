"""Small databases for property tests."""

import numpy as np
from hypothesis import strategies as st

from dpunion.algorithms import UserOrder
from dpunion.randomness import RunKey
from making import encode_items

ITEMS = [f"item{i}" for i in range(12)]
USERS = [f"user{i}" for i in range(10)]

databases = st.dictionaries(
    st.sampled_from(USERS), st.sets(st.sampled_from(ITEMS), min_size=1, max_size=12), min_size=1, max_size=10
)


def contributions(database, key=None, limit=100, order=UserOrder.RANDOM):
    """Encode a mapping user -> items."""
    import pyarrow as pa

    pairs = [(user, item) for user, items in database.items() for item in items]
    users = pa.array([user for user, _ in pairs], pa.string())
    items = pa.array([item for _, item in pairs], pa.string())
    return encode_items([(users, items)], key or RunKey.for_tests(1), limit, order)


def names(table):
    """Return the item names of a table."""
    return [
        table.data[start:stop].tobytes().decode()
        for start, stop in zip(table.offsets[:-1], table.offsets[1:], strict=True)
    ]


def by_name(table, values):
    """Return a histogram as a dictionary."""
    return dict(zip(names(table), np.asarray(values).tolist(), strict=True))


def csr(users):
    """Return offsets and items of a list of lists."""
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(items) for items in users], dtype=np.int64)])
    flat = np.array([item for items in users for item in items], np.int32)
    return offsets, flat
