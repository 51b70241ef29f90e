"""Counting bytes, for the numbers of lines in errors."""

from __future__ import annotations

import numpy as np

from dpunion.contributions import Uint8s
from dpunion.kernels.compiler import kernel


@kernel
def count_byte(data: Uint8s, byte: int) -> int:
    """Return how often a byte stands in data: uint8[n].

    Guarantees: nothing but the number leaves.
    """
    wanted = np.uint8(byte)
    found = 0
    for one in data:
        found += one == wanted
    return found
