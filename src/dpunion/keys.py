"""Keys of several columns: inside, one text for each combination; outside, its parts again.

The parts stand one after the other with U+001F between them. Inside a part, a backslash is doubled and U+001F is
written as a backslash and an underscore, so different keys are different texts.

subtle: neither U+001F nor the backslash nor the underscore composes with a combining mark, has another case, or counts
as part of a word; so normalising or lower-casing the one text is the same as doing it to each part.
"""

from __future__ import annotations

from collections.abc import Sequence

SEPARATOR, ESCAPE = "\x1f", "\\"
ESCAPES = ((ESCAPE, ESCAPE + ESCAPE), (SEPARATOR, ESCAPE + "_"))
"""What is written for what; the backslash comes first, for the other escape adds one."""


def join_key(parts: Sequence[str]) -> str:
    """Return the one text of a key."""
    return SEPARATOR.join(escaped(part) for part in parts)


def split_key(text: str) -> tuple[str, ...]:
    """Return the parts of a key's text: split(join(parts)) == parts, for one part or more."""
    return tuple(unescaped(part) for part in text.split(SEPARATOR))


def escaped(part: str) -> str:
    """Return a part without U+001F and without a single backslash."""
    for plain, written in ESCAPES:
        part = part.replace(plain, written)
    return part


def unescaped(part: str) -> str:
    """Undo `escaped`; between doubled backslashes, every other one stands before an underscore."""
    if ESCAPE not in part:
        return part
    return ESCAPE.join(piece.replace(ESCAPE + "_", SEPARATOR) for piece in part.split(ESCAPE + ESCAPE))
