"""How a run tells where it is: the stage's public name, and which part of it is done (None when nobody knows)."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, float | None], None]


def stay_silent(_stage: str, _done: float | None) -> None:
    """Tell nobody."""
    return
