"""The audit's own randomness: where attacks look. Nothing private is drawn from it, so a seed is welcome here."""

from __future__ import annotations

import os

import numpy as np

Generator = np.random.Generator


def generator(seed: int) -> Generator:
    """Return the attacks' generator: the same seed tries the same attacks in the same order."""
    return np.random.default_rng(seed)


def new_seed() -> int:
    """Return a seed nobody chose, to be printed with the report so that the search can be repeated."""
    return int.from_bytes(os.urandom(4), "little")
