"""Checks of parameters: a number in a range, a whole number in a range, one of some choices, one of some suffixes.

Each returns the value in its plain type, or raises the one sentence that says what was wrong and what to do.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from pathlib import Path
from typing import NoReturn, TypeVar

from dpunion.errors import BadParameter

LARGEST_SHOWN = 10**30

E = TypeVar("E", bound=enum.Enum)


def check_whole(owner: str, name: str, value: object, low: int, high: int, remedy: str = "") -> int:
    """Return a whole number in [low, high]; refuse anything else. owner: whose parameter it is, if that is said."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        _refuse(owner, name, f"a whole number from {low} to {high}", value, remedy)
    return value


def check_real(owner: str, name: str, value: object, low: float, high: float, remedy: str = "") -> float:
    """Return a finite number in [low, high] as a float; refuse anything else. owner: as in check_whole."""
    # subtle: compared as it is, for a whole number may be too large for a float; nan is in no range.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        _refuse(owner, name, f"a number from {low:g} to {high:g}", value, remedy)
    return float(value)


def as_choice(name: str, value: object, choices: type[E]) -> E:
    """Turn a plain word of the edge into the enum used inside."""
    if isinstance(value, choices):
        return value
    for choice in choices:
        if choice.value == value:
            return choice
    refuse_choice(name, value, [str(choice.value) for choice in choices])


def refuse_choice(name: str, got: object, choices: Collection[str]) -> NoReturn:
    """Raise the one sentence every bad choice gets."""
    _refuse("", name, f"one of {', '.join(choices)}", got, f"Choose one of these for {name!r}.")


def check_suffix(what: str, target: Path, suffixes: Collection[str], remedy: str) -> str:
    """Return a file's suffix in small letters; refuse one that stands for no format. what: "The suffix of ..."."""
    suffix = target.suffix.lower()
    if suffix not in suffixes:
        raise BadParameter(f"{what} must be one of {', '.join(suffixes)}. Got {target.suffix!r} instead.", remedy)
    return suffix


def _refuse(owner: str, name: str, wanted: str, got: object, remedy: str) -> NoReturn:
    of_owner = f" of {owner}" if owner else ""
    raise BadParameter(
        f"The {name!r} parameter{of_owner} must be {wanted}. Got {_shown(got)} instead.",
        remedy or f"Choose {name!r} from public knowledge, not from the data.",
    )


def _shown(value: object) -> str:
    """Return a refused value for an error; Python does not write whole numbers of thousands of digits."""
    return "a number of many digits" if isinstance(value, int) and abs(value) > LARGEST_SHOWN else repr(value)
