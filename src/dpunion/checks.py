"""Checks of parameters: a number in a range, one of some choices, a file's suffix.

The words that `release` and the command line take are types: editors complete them, and a type checker finds a
misspelt one. Each check returns the value in its plain type, or raises an error that says what is wrong and what to do.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from pathlib import Path
from typing import Literal, NoReturn, TypedDict, TypeVar

from dpunion.errors import BadParameter, BadSource, NotPrivate

LARGEST_SHOWN = 10**30

E = TypeVar("E", bound=enum.Enum)


AlgorithmName = Literal[
    "funnel",
    "policy-gaussian",
    "policy-laplace",
    "weighted-gaussian",
    "weighted-laplace",
    "count-gaussian",
    "count-laplace",
    "dp-sips",
    "optimal-single-item",
]
CalibrationName = Literal["exact", "published"]
UserOrderName = Literal["random", "smallest-first"]
TokenizerName = Literal["words", "whitespace", "treebank", "icu"]
NormalizationName = Literal["exact", "nfc", "nfc-lower"]
NullUsersName = Literal["refuse", "drop"]
OrderName = Literal["item", "people"]


class Settings(TypedDict, total=False):
    """Parameters of algorithms, as `release` and `plan` take them together with an algorithm's name.

    Each algorithm has some of them and refuses the others; its class says what they mean.
    """

    max_items_per_user: int | Literal["auto"]
    calibration: CalibrationName
    cutoff_margin: float
    passes: int
    reserve: float
    user_order: UserOrderName
    rounds: int
    first_share: float
    keep_fraction: float
    keep_margin: float
    haste: float
    share_ratio: float


def check_whole(owner: str, name: str, value: object, low: int, high: int, remedy: str = "") -> int:
    """Return a whole number in [low, high]; refuse anything else. owner: the parameter's class, for errors."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        _refuse(owner, name, f"a whole number from {low} to {high}", value, remedy)
    return value


def check_real(owner: str, name: str, value: object, low: float, high: float, remedy: str = "") -> float:
    """Return a finite number in [low, high] as a float; refuse anything else. owner: as in check_whole."""
    # subtle: compared before it is converted, because an int may be too large for a float; nan is in no range.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        _refuse(owner, name, f"a number from {low:g} to {high:g}", value, remedy)
    return float(value)


def as_choice(name: str, value: object, choices: type[E]) -> E:
    """Return the member of an enum that a caller's word names."""
    if isinstance(value, choices):
        return value
    for choice in choices:
        if choice.value == value:
            return choice
    refuse_choice(name, value, [str(choice.value) for choice in choices])


def refuse_choice(name: str, got: object, choices: Collection[str]) -> NoReturn:
    """Refuse a value that is none of the choices, and guess which one was meant."""
    near = nearest(got, choices) if isinstance(got, str) else None
    remedy = f"Choose one of these for {name!r}." if near is None else f"Did you mean {near!r}? Choose it for {name!r}."
    _refuse("", name, f"one of {', '.join(choices)}", got, remedy)


def nearest(name: str, names: Collection[str]) -> str | None:
    """Return the name that was probably meant, or None if none is near."""
    import difflib

    near = difflib.get_close_matches(name, list(names), n=1)
    return near[0] if near else None


def check_suffix(what: str, target: Path, suffixes: Collection[str], remedy: str) -> str:
    """Return a file's suffix in small letters; refuse one that is no format. what: "The suffix of ..."."""
    suffix = target.suffix.lower()
    if suffix not in suffixes:
        raise BadParameter(f"{what} must be one of {', '.join(suffixes)}. Got {target.suffix!r} instead.", remedy)
    return suffix


def refuse_more_than(most: int, what: str) -> NoReturn:
    """Refuse more users, strings or n-grams than one run can number."""
    raise BadSource(
        f"There are more than {most} {what}, more than one run supports.",
        "Split the people into disjoint groups and release each group on its own.",
    )


def _refuse(owner: str, name: str, wanted: str, got: object, remedy: str) -> NoReturn:
    of_owner = f" of {owner}" if owner else ""
    # Python does not write whole numbers of thousands of digits.
    shown = "a number of many digits" if isinstance(got, int) and abs(got) > LARGEST_SHOWN else repr(got)
    raise BadParameter(
        f"The {name!r} parameter{of_owner} must be {wanted}. Got {shown} instead.",
        remedy or f"Choose {name!r} from public knowledge, not from the data.",
    )


REFUSED_POLICIES: dict[str, str] = {
    "greedy": (
        "its sensitivity is unbounded (Gopi et al., ICML 2020, supplement E): one user can redirect every later one"
    ),
    "gw": (
        "its threshold (Carvalho et al. 2022) covers one newly exposed item, but several items that the user does not "
        "own can become exposed through one user"
    ),
    "l1-descent-l2-budget": (
        "it is not a contraction: the proof of arXiv 2002.09745, Prop. 5.1 is wrong, and with 90 items of one user "
        "two neighbouring histograms end 1.697 apart where 1 is claimed"
    ),
}
"""Policies of the papers that are NOT private, and what is wrong with each. `dpunion_lab` has them, for study."""


def refuse_policy(name: str) -> None:
    """Refuse a policy that is known not to be private, with the reason."""
    if name in REFUSED_POLICIES:
        raise NotPrivate(
            f"{name} cannot be released: {REFUSED_POLICIES[name]}.",
            "Use it for study only, and choose one of dpunion's algorithms, for example PolicyGaussian().",
        )
