"""Split UTF-8 text into words, lower-cased or as written: one pass over the bytes checks them, one writes words.

What a character is comes from data/unicode14.json, frozen at one version of Unicode, not from the running Python.
tools/make_unicode_words.py writes that file; `tables` unfolds it.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpunion.contributions import Int64s, Uint8s
from dpunion.kernels.compiler import kernel

TABLE = Path(__file__).parents[1] / "data" / "unicode14.json"

# Compile-time constants. Kernels widen bytes by int(np.int64(byte)): in numba, unsigned and signed make a float.
WORD = 1  # general category L*, M* or N*, or the low line
UNSTABLE = 2  # NFC may change it or join it to the one before (NFC_Quick_Check is not Yes), or it is U+0130
NONSTARTER = 4  # canonical combining class is not 0: two in a row may have to change places
UNASSIGNED = 8  # general category Cn in this version: a separator, even if a later version assigns it
CASED = 16  # before or after a capital sigma, a letter (of those that are not IGNORABLE)
IGNORABLE = 32  # skipped when deciding whether a capital sigma ends its word
DOTTED_I, DOTTED_I_LOWER = 0x130, "i\u0307"
SIGMA, SMALL_SIGMA, FINAL_SIGMA = 0x3A3, 0x3C3, 0x3C2
LONG = 64  # in the flags of a text only: it may have more than MOST_MARKS marks in a row
MOST_MARKS = 30  # combining marks in a row, in NFD: the limit of the Stream-Safe Text Format (UAX 15)
# A letter decomposes to at most 3 marks behind it, and a mark to at most 2: 13 in a row never exceed MOST_MARKS.
SAFE_RUN = (MOST_MARKS - 3) // 2
APOSTROPHE, CURLY_APOSTROPHE, CAPITAL_A = 0x27, 0x2019, 0x41

# Values of `Tables.ascii` that are not themselves word characters.
GAP, QUOTE, BEYOND = 0, 1, 0x80


class Tables(NamedTuple):
    """The frozen character tables, one entry for each code point."""

    ascii: Uint8s  # [256] by byte: the lower-cased word character, or GAP, QUOTE, or BEYOND for a byte >= 0x80
    classes: Uint8s  # [0x110000] class bits, WORD to IGNORABLE
    lower: NDArray[np.uint32]  # [0x110000] lower case; İ and Σ stay


@functools.cache
def tables() -> Tables:
    """Load the frozen tables (once in a process, a few milliseconds).

    In the file, `class_runs` alternates a run length and the class of that many code points, from U+0000 to U+10FFFF.
    `lower_runs` is first, last, step, shift, first, ...: each code point of range(first, last + 1, step) lower-cases to
    itself plus shift. Two are missing on purpose: U+0130 (İ) becomes two characters, and U+03A3 (Σ) needs context.
    """
    frozen = json.loads(TABLE.read_bytes())
    runs = np.array(frozen["class_runs"], np.int64).reshape(-1, 2)
    classes = np.repeat(runs[:, 1].astype(np.uint8), runs[:, 0])
    lower = np.arange(classes.size, dtype=np.uint32)
    for first, last, step, shift in np.array(frozen["lower_runs"], np.int64).reshape(-1, 4).tolist():
        lower[first : last + 1 : step] += np.uint32(shift % 2**32)  # subtle: wraps, so it also subtracts
    by_byte = np.full(256, BEYOND, np.uint8)
    by_byte[:128] = np.where(classes[:128] & WORD, lower[:128], GAP)
    by_byte[APOSTROPHE] = QUOTE
    return Tables(by_byte, classes, lower)


@functools.cache
def cased_tables() -> Tables:
    """Return the tables with which words keep their capitals: each character is its own lower case."""
    known = tables()
    codes = np.arange(known.lower.size, dtype=np.uint32)
    by_byte = known.ascii.copy()
    by_byte[:128] = np.where(known.classes[:128] & WORD, codes[:128], known.ascii[:128])
    return Tables(by_byte, known.classes, codes)


@kernel
def decode(data: Uint8s, at: int) -> tuple[int, int]:
    """Return the code point that starts at `at` of text known to be UTF-8, and its width."""
    lead = int(np.int64(data[at]))
    if lead < 0x80:
        return lead, 1
    second = int(np.int64(data[at + 1])) & 0x3F
    if lead < 0xE0:
        return (lead & 0x1F) << 6 | second, 2
    third = int(np.int64(data[at + 2])) & 0x3F
    if lead < 0xF0:
        return (lead & 0x0F) << 12 | second << 6 | third, 3
    return (lead & 0x07) << 18 | second << 12 | third << 6 | int(np.int64(data[at + 3])) & 0x3F, 4


@kernel
def strict_decode(data: Uint8s, at: int, end: int) -> tuple[int, int]:
    """Return the code point that starts at `at` (a byte >= 0x80) and its width, or width 0 if not UTF-8.

    Well-formed is as in The Unicode Standard, table 3-7: no overlong form, no surrogate, none above U+10FFFF.
    """
    lead = data[at]
    width = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    if lead < 0xC2 or lead > 0xF4 or at + width > end or data[at + 1] & 0xC0 != 0x80:
        return 0, 0
    if width > 2 and (data[at + 2] & 0xC0 != 0x80 or data[at + width - 1] & 0xC0 != 0x80):
        return 0, 0
    code = decode(data, at)[0]
    if width > 2 and (code < (0x800 if width == 3 else 0x10000) or code >> 11 == 0x1B or code > 0x10FFFF):
        return 0, 0
    return code, width


@kernel
def put(code: int, out: Uint8s, at: int) -> int:
    """Write `code` as UTF-8 at `at` and return where the next character goes."""
    if code < 0x80:
        out[at] = code
        return at + 1
    if code < 0x800:
        out[at] = 0xC0 | code >> 6
        out[at + 1] = 0x80 | code & 0x3F
        return at + 2
    if code < 0x10000:
        out[at] = 0xE0 | code >> 12
        out[at + 1] = 0x80 | code >> 6 & 0x3F
        out[at + 2] = 0x80 | code & 0x3F
        return at + 3
    out[at] = 0xF0 | code >> 18
    out[at + 1] = 0x80 | code >> 12 & 0x3F
    out[at + 2] = 0x80 | code >> 6 & 0x3F
    out[at + 3] = 0x80 | code & 0x3F
    return at + 4


@kernel
def after_ascii(data: Uint8s, at: int, end: int) -> int:
    """Return where the first byte >= 0x80 at or after `at` is, or `end`."""
    while at + 32 <= end:
        joined = np.uint8(0)
        for j in range(at, at + 32):  # no exit inside: becomes one or two vector instructions
            joined |= data[j]
        if joined >= 0x80:
            break
        at += 32
    while at < end and data[at] < 0x80:
        at += 1
    return at


@kernel
def survey(data: Uint8s, starts: Int64s, ends: Int64s, classes: Uint8s, flags: Uint8s) -> int:
    """Check that each text is UTF-8 and mark those that need NFC; return the first that is not UTF-8, or -1.

    Text t is data[starts[t]:ends[t]]. flags uint8[n_texts] gets UNSTABLE where NFC may change it or it has İ,
    UNASSIGNED where the frozen version lacks a code point, LONG where over SAFE_RUN in a row are or may become marks.

    Guarantees:
    - a text without UNSTABLE is in NFC, and stays so when each character is lower-cased by itself;
    - no byte outside a text is read.
    """
    for t in range(starts.size):
        at, end = starts[t], ends[t]
        found, before, run = 0, 0, 0
        while at < end:
            if data[at] < 0x80:
                at = after_ascii(data, at, end)
                before, run = 0, 0
                continue
            code, width = strict_decode(data, at, end)
            if width == 0:
                return t
            bits = int(np.int64(classes[code]))
            found |= bits & (UNSTABLE | UNASSIGNED)
            if bits & before & NONSTARTER:
                found |= UNSTABLE
            before = bits
            run = run + 1 if bits & (NONSTARTER | UNSTABLE | UNASSIGNED) else 0
            if run > SAFE_RUN:
                found |= LONG
            at += width
        flags[t] = found
    return -1


@kernel
def is_word_at(data: Uint8s, at: int, end: int, classes: Uint8s) -> bool:
    """Say whether a word character starts at `at`."""
    return at < end and classes[decode(data, at)[0]] & WORD != 0


@kernel
def sigma_at(data: Uint8s, at: int, end: int, out: Uint8s, word: int, used: int, classes: Uint8s) -> int:
    """Return the lower case of a capital sigma before `at`: final if a letter precedes and none follows.

    This is Final_Sigma of The Unicode Standard, table 3-17, within the word: out[word:used] and what follows.
    """
    back, cased = used, False
    while back > word:
        back -= 1
        if out[back] & 0xC0 == 0x80:
            continue
        bits = classes[decode(out, back)[0]]
        if bits & IGNORABLE == 0:
            cased = bits & CASED != 0
            break
    if not cased:
        return SMALL_SIGMA
    while at < end:
        code, width = decode(data, at)
        joins = code in (APOSTROPHE, CURLY_APOSTROPHE) and is_word_at(data, at + width, end, classes)
        if not joins and classes[code] & WORD == 0:
            break
        if classes[code] & IGNORABLE == 0:
            if classes[code] & CASED != 0:
                return SMALL_SIGMA
            break
        at += width
    return FINAL_SIGMA


@kernel
def split_text(
    data: Uint8s,
    at: int,
    end: int,
    by_byte: Uint8s,
    classes: Uint8s,
    lower: Any,
    out: Uint8s,
    offsets: Int64s,
    count: int,
) -> int:
    """Append the words of data[at:end] to the `count` words that are there, and return their new number."""
    word = offsets[count]
    used = word
    while at < end:
        kind = by_byte[data[at]]
        if kind != QUOTE and kind < BEYOND:
            # Write first, count after, without a branch: the processor cannot predict where words end.
            out[used] = kind
            used += kind != GAP
            offsets[count + 1] = used
            count += (kind == GAP) & (used > word)
            word = used if kind == GAP else word
            at += 1
            continue
        code, width = decode(data, at)
        if kind == BEYOND and classes[code] & WORD:
            if code == SIGMA and lower[CAPITAL_A] != CAPITAL_A:
                small = sigma_at(data, at + width, end, out, word, used, classes)
            else:
                small = int(np.int64(lower[code]))
            used = put(small, out, used)
        elif used > word:
            if code in (APOSTROPHE, CURLY_APOSTROPHE) and is_word_at(data, at + width, end, classes):
                used = put(code, out, used)
            else:
                count += 1
                offsets[count] = used
                word = used
        at += width
    if used > word:
        count += 1
        offsets[count] = used
    return count


@kernel
def split_words(
    data: Uint8s,
    normalized: Uint8s,
    starts: Int64s,
    ends: Int64s,
    flags: Uint8s,
    by_byte: Uint8s,
    classes: Uint8s,
    lower: Any,
    offsets: Int64s,
    out: Uint8s,
) -> tuple[Int64s, int, Int64s, Uint8s]:
    """Return (counts int64[n_texts], words, offsets, out): word w is out[offsets[w]:offsets[w + 1]].

    Text t is [starts[t]:ends[t]] of `normalized` where flags[t] says UNSTABLE, of `data` elsewhere. offsets, out:
    memory to write to, of any size; returned, or larger ones where they were too small.

    Guarantees:
    - the words of a text depend on that text alone;
    - the texts must have passed `survey`; no byte outside a text is read then.
    """
    counts = np.empty(starts.size, np.int64)
    # Somewhat more than needed, so that it suffices for the next texts too.
    if offsets.size < data.size // 5 + 16:
        offsets = np.empty(data.size // 4 + 16, np.int64)
    if out.size < data.size + 16:
        out = np.empty(data.size + data.size // 4 + 16, np.uint8)
    offsets[0] = 0
    total = 0
    for t in range(starts.size):
        size = ends[t] - starts[t]
        # Room for the worst text: one-letter words; two bytes that lower-case to three (Ⱥ, Ⱦ).
        # One more of each, because `split_text` writes before it counts.
        if total + size // 2 + 3 > offsets.size:
            wider = np.empty(2 * offsets.size + size // 2 + 3, np.int64)
            wider[: total + 1] = offsets[: total + 1]
            offsets = wider
        if offsets[total] + size + size // 2 + 1 > out.size:
            longer = np.empty(out.size + out.size // 2 + size + size // 2 + 1, np.uint8)
            longer[: offsets[total]] = out[: offsets[total]]
            out = longer
        source = normalized if flags[t] & UNSTABLE else data
        before = total
        total = split_text(source, starts[t], ends[t], by_byte, classes, lower, out, offsets, total)
        counts[t] = total - before
    return counts, total, offsets, out


@kernel
def count_byte(data: Uint8s, byte: int) -> int:
    """Return how often a byte occurs in data: uint8[n]. Guarantees: only the number comes out."""
    wanted = np.uint8(byte)
    found = 0
    for one in data:
        found += one == wanted
    return found
