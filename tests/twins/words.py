"""The readable twin of `words`: the tokeniser's definition, character by character, on the same table."""

from __future__ import annotations

import functools
import itertools
import json
import unicodedata

from dpunion.kernels.words import (
    CASED,
    DOTTED_I,
    DOTTED_I_LOWER,
    FINAL_SIGMA,
    IGNORABLE,
    SIGMA,
    SMALL_SIGMA,
    TABLE,
    UNASSIGNED,
    WORD,
)

MOST_MARKS = 30


def reference_words(text: str, normalize: str = "nfc-lower") -> list[str]:
    """Return the words of one text."""
    if normalize == "exact":
        return matches(text)
    known = "".join(" " if class_of(char) & UNASSIGNED else char for char in text)
    found = matches(unicodedata.normalize("NFC", stream_safe(known)))
    return [unicodedata.normalize("NFC", lower(word)) for word in found] if normalize == "nfc-lower" else found


def stream_safe(text: str) -> str:
    """Return the text, decomposed, with a space for each run of more than 30 combining marks (UAX 15)."""
    decomposed = "".join(unicodedata.normalize("NFD", char) for char in text)
    runs = itertools.groupby(decomposed, key=lambda char: unicodedata.combining(char) != 0)
    joined = [(is_marks, "".join(run)) for is_marks, run in runs]
    return "".join(" " if is_marks and len(run) > MOST_MARKS else run for is_marks, run in joined)


def matches(text: str) -> list[str]:
    """Return the leftmost greedy matches of [LMN_]+(?:['’][LMN_]+)*."""
    found: list[str] = []
    word = ""
    for at, char in enumerate(text):
        joins = word and char in "'’" and at + 1 < len(text) and class_of(text[at + 1]) & WORD
        if joins or class_of(char) & WORD:
            word += char
        elif word:
            found.append(word)
            word = ""
    return [*found, word] if word else found


def lower(word: str) -> str:
    """Return the lower case of one word."""
    return "".join(lower_at(word, at) for at in range(len(word)))


def lower_at(word: str, at: int) -> str:
    """Return the lower case of one character of a word."""
    code = ord(word[at])
    if code == DOTTED_I:
        return DOTTED_I_LOWER
    if code == SIGMA:
        ends = nearest_is_letter(word[:at][::-1]) and not nearest_is_letter(word[at + 1 :])
        return chr(FINAL_SIGMA if ends else SMALL_SIGMA)
    return chr(lower_codes().get(code, code))


def nearest_is_letter(chars: str) -> bool:
    """Say whether the first character that counts is a cased letter."""
    for char in chars:
        if not class_of(char) & IGNORABLE:
            return bool(class_of(char) & CASED)
    return False


def class_of(char: str) -> int:
    """Return the class bits of one character."""
    return class_bytes()[ord(char)]


@functools.cache
def class_bytes() -> bytes:
    """Unfold the runs of classes."""
    runs = json.loads(TABLE.read_text())["class_runs"]
    pairs = zip(runs[::2], runs[1::2], strict=True)
    return b"".join(bytes([bits]) * length for length, bits in pairs)


@functools.cache
def lower_codes() -> dict[int, int]:
    """Unfold the runs of lower-casing."""
    flat = json.loads(TABLE.read_text())["lower_runs"]
    runs = [flat[at : at + 4] for at in range(0, len(flat), 4)]
    return {code: code + shift for first, last, step, shift in runs for code in range(first, last + 1, step)}
