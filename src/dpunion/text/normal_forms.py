"""NFC in time proportional to the text, however hostile it is.

Python sorts the combining marks behind a letter by swapping neighbours: a run of n marks of two classes takes n² steps,
in which nothing can interrupt it; one megabyte of them takes a quarter of an hour. Here long runs are sorted first, by
counting. The result is NFC to the letter, for every text.

`Normalization` says how the texts of a release are spelled.
"""

from __future__ import annotations

import enum
import functools
import re
import unicodedata
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from dpunion.kernels.words import LONG_RUN, NONSTARTER, UNASSIGNED, tables

PAIRS_OF_MARKS = (0x0F73, 0x0F75, 0x0F81)
"""What counts as a letter, but consists of two marks."""

Codes = NDArray[np.uint32]


class Normalization(enum.Enum):
    """What is done to an item's text before duplicates are dropped."""

    EXACT = "exact"
    NFC = "nfc"
    NFC_LOWER = "nfc-lower"


def normalize_text(text: str, normalization: Normalization) -> str:
    """Return one item's text as the normalization spells it."""
    match normalization:
        case Normalization.EXACT:
            return text
        case Normalization.NFC:
            return nfc(text)
        case Normalization.NFC_LOWER:
            return nfc(nfc(text).lower())
        case _:
            assert_never(normalization)


def nfc(text: str) -> str:
    """Return the text in NFC: `unicodedata.normalize("NFC", text)`, but in linear time."""
    if len(text) > LONG_RUN and long_runs().search(text):
        text = with_sorted_marks(text)
    return unicodedata.normalize("NFC", text)


@functools.cache
def long_runs() -> re.Pattern[str]:
    """Return a pattern that finds every run of more than LONG_RUN marks, and some that are none.

    subtle: what the frozen Unicode does not know may be a mark for the running Python, and looking for single
    characters beyond U+FFFF is slow: all of these count as marks here.
    """
    is_mark = (tables().classes[:0x10000] & (NONSTARTER | UNASSIGNED)) != 0
    is_mark[list(PAIRS_OF_MARKS)] = True
    bounds = np.flatnonzero(np.diff(is_mark, prepend=False, append=False)).reshape(-1, 2).tolist()
    ranges = "".join(f"\\u{first:04x}-\\u{behind - 1:04x}" for first, behind in bounds)
    return re.compile(f"[{ranges}\\U00010000-\\U0010ffff]{{{LONG_RUN + 1}}}")


class Decompositions(dict[int, str]):
    """What each character consists of, for `str.translate`; filled when first asked for."""

    def __missing__(self, code: int) -> str:
        self[code] = unicodedata.normalize("NFD", chr(code))
        return self[code]


@functools.cache
def decompositions() -> Decompositions:
    """Return the one table of the process."""
    return Decompositions()


@functools.cache
def combining_classes() -> NDArray[np.uint8]:
    """Return the canonical combining class of every code point: uint8[0x110000], 0 for what is no mark."""
    return np.fromiter((unicodedata.combining(chr(code)) for code in range(0x110000)), np.uint8, 0x110000)


def with_sorted_marks(text: str) -> str:
    """Return a text with the same NFC, taken apart, and in long runs of marks these in canonical order."""
    codes = to_codes(text.translate(decompositions())).copy()
    classes = combining_classes()[codes]
    edge = np.zeros(1, np.uint8)  # as if a letter stood before the text and one behind
    letters = np.flatnonzero(np.concatenate([edge, classes, edge]) == 0) - 1
    for run in np.flatnonzero(np.diff(letters) > LONG_RUN).tolist():
        marks = slice(letters[run] + 1, letters[run + 1])
        codes[marks] = codes[marks][np.argsort(classes[marks], kind="stable")]
    return from_codes(codes)


def to_codes(text: str) -> Codes:
    """Return the code points of a text."""
    return np.frombuffer(text.encode("utf-32-le"), "<u4")


def from_codes(codes: Codes) -> str:
    """Return the text of code points."""
    return codes.astype("<u4", copy=False).tobytes().decode("utf-32-le")
