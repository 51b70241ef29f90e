"""While rows are read, another thread loads the compiled kernels that are needed next: by a release of made-up rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dpunion.buffers import number_array, text_array
from dpunion.engines.local import run_rounds
from dpunion.mechanisms import mechanism_for
from dpunion.plans import Planned
from dpunion.randomness import RunKey
from dpunion.sets.encoding import encode
from dpunion.text.words import Normalization
from dpunion.threads import Threads, usable_cores

MOST_ITEMS = 1000
REHEARSED: set[tuple[str, bool]] = set()
"""What was rehearsed in this process: the algorithm, and whether with a look."""


@contextlib.contextmanager
def kernels_ahead(plan: Planned, threads: int | None) -> Iterator[None]:
    """Rehearse the plan in a thread beside what is done inside, once; with one core there is nothing to gain.

    Guarantees: the rows are made up, and what comes of them is thrown away.
    """
    kind = (plan.name, plan.look is not None)
    if (threads or usable_cores()) == 1 or kind in REHEARSED:
        yield
        return
    with Threads(1) as beside:
        beside.submit(rehearse, plan)
        yield
    REHEARSED.add(kind)


def rehearse(plan: Planned) -> None:
    """Release, for nobody, what one made-up person holds: one item more than is kept, so that bounding runs too.

    Guarantees: the rows are made up, and what comes of them is thrown away.
    """
    decided = plan.opening
    bounding = decided.bounding
    items = text_array([f"item {number}" for number in range(min(bounding.limit + 1, MOST_ITEMS))])
    made = encode(
        [(pa.DictionaryArray.from_arrays(number_array([0] * len(items), 32), items.slice(0, 1)), items)],
        key := RunKey.for_tests(0),
        max_items_per_user=bounding.limit,
        user_order=bounding.order,
        normalization=Normalization.EXACT,
        split_words=False,
        threads=1,
    )
    run_rounds(mechanism_for(decided), made, key, 1)
    if plan.look is not None:
        from dpunion.counting.steps import look_at_sizes

        look_at_sizes(np.diff(made.offsets), plan.look, key)
