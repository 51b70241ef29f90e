"""The words that the edge takes, as types: editors complete them, and a type checker finds a misspelt one."""

from __future__ import annotations

from typing import Literal, TypedDict

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
    """Parameters of algorithms, as `release` and `plan` take them beside an algorithm's name.

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
