"""Write src/dpunion/data/unicode14.json: what the tokeniser knows of Unicode, frozen at version 14.0.

Run it with Python 3.11, whose `unicodedata` is Unicode 14.0: python3.11 tools/make_unicode_words.py
14.0 because it is the version of the oldest Python supported: every later Python's NFC agrees on its
characters (Unicode's normalisation stability policy), and nothing else is asked of the running Python.
"""

from __future__ import annotations

import json
import sys
import textwrap
import unicodedata
from itertools import groupby
from pathlib import Path

VERSION = "14.0.0"
TARGET = Path(__file__).parent.parent / "src" / "dpunion" / "data" / "unicode14.json"
WORD, UNSTABLE, NONSTARTER, UNASSIGNED, CASED, IGNORABLE = 1, 2, 4, 8, 16, 32
DOTTED_I = 0x130
SIGMA = 0x3A3


def second_characters() -> frozenset[int]:
    """Return what may join the character before it under NFC (NFC_Quick_Check=Maybe)."""
    found = {*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)}  # Hangul vowels and finals, composed by rule
    for code in range(sys.maxunicode + 1):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and parts[0][0] != "<" and unicodedata.is_normalized("NFC", chr(code)):
            found.add(int(parts[1], 16))
    return frozenset(found)


def class_of(code: int, joining: frozenset[int]) -> int:
    """Return the class bits of one code point."""
    char = chr(code)
    category = unicodedata.category(char)
    bits = 0
    if category[0] in "LMN" or char == "_":
        bits |= WORD
    if code in joining or code == DOTTED_I or not unicodedata.is_normalized("NFC", char):
        bits |= UNSTABLE
    if unicodedata.combining(char):
        bits |= NONSTARTER
    if category == "Cn":
        bits |= UNASSIGNED
    # Python has no names for Cased and Case_Ignorable, but its str.lower shows them.
    if (char + "Σ").lower().endswith("ς"):
        bits |= CASED
    elif ("α" + char + "Σ").lower().endswith("ς"):
        bits |= IGNORABLE
    return bits


def lower_pairs() -> list[tuple[int, int]]:
    """Return (code point, its lower case) wherever that is another single character and needs no context."""
    lowered = ((code, chr(code).lower()) for code in range(sys.maxunicode + 1))
    return [(c, ord(low)) for c, low in lowered if c not in (DOTTED_I, SIGMA) and low != chr(c)]


def lower_runs(pairs: list[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
    """Join neighbouring pairs of equal shift and equal step of 1 or 2."""
    runs: list[tuple[int, int, int, int]] = []
    for code, lower in pairs:
        if runs:
            first, last, step, shift = runs[-1]
            gap = code - last
            if shift == lower - code and (gap == step or (first == last and gap <= 2)):
                runs[-1] = (first, code, gap, shift)
                continue
        runs.append((code, code, 1, lower - code))
    return runs


def check(classes: list[int], pairs: list[tuple[int, int]]) -> None:
    """Stop if Unicode does not have the properties the kernel rests on."""
    capitals = {code for code, _ in pairs}
    kept = WORD | NONSTARTER | UNASSIGNED
    for code, lower in pairs:
        stable = classes[code] & UNSTABLE or not classes[lower] & UNSTABLE
        if lower in capitals or not stable or classes[code] & kept != classes[lower] & kept:
            raise SystemExit(f"U+{code:04X} breaks an assumption about lower-casing")
    for code in range(sys.maxunicode + 1):
        parts = unicodedata.normalize("NFD", chr(code))
        if len(parts) > 1 and parts[0] in "Σσς":
            raise SystemExit(f"U+{code:04X} is a composed sigma")


def main() -> None:
    """Write the table."""
    if unicodedata.unidata_version != VERSION:
        raise SystemExit(f"This Python has Unicode {unicodedata.unidata_version}: run with Python 3.11 ({VERSION}).")
    joining = second_characters()
    classes = [class_of(code, joining) for code in range(sys.maxunicode + 1)]
    pairs = lower_pairs()
    check(classes, pairs)
    runs = [number for bits, run in groupby(classes) for number in (len(list(run)), bits)]
    lowers = [number for run in lower_runs(pairs) for number in run]
    table = {"unicode": VERSION, "class_runs": runs, "lower_runs": lowers}
    text = textwrap.fill(json.dumps(table), 120, break_long_words=False, break_on_hyphens=False)
    TARGET.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
