"""Text to words: the one tokeniser, the same on every engine and every Python.

**Definition.** Put the text in NFC; its words are the matches, leftmost and greedy, of
`[\\p{L}\\p{M}\\p{N}_]+(?:['’][\\p{L}\\p{M}\\p{N}_]+)*`; lower-case each word; put it in NFC again
(lower-casing can undo NFC: J with caron is two characters, ǰ is one). That is normalization `nfc-lower`, the default
for texts. With `nfc` words are not lower-cased; with `exact` the text is not put in NFC either.

**Unicode is frozen at 14.0**, the version of the oldest Python supported: categories and lower case come from
our own table, and NFC of these characters can never change (Unicode's stability policy). A code point that
14.0 does not know separates words, whatever the running Python thinks of it.

**Lower case** is Unicode's full, language-neutral one, decided within the word:
- Σ becomes ς at the end of a word after a letter, else σ: ΑΣ → ας, Σ → σ, ΑΣ'Β → ασ'β. A σ stays as written.
- İ becomes two characters, i and a combining dot above, and I becomes i: Turkish gets no rule of its own.
- ẞ becomes ß, which stays (no folding to ss); Ǆ and ǅ become ǆ; K (kelvin) becomes k; Ⅷ becomes ⅷ.
Apostrophes stay as written: don't and don’t are two words. Zero-width characters separate words.
"""

from __future__ import annotations

import itertools
import threading
import unicodedata
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dpunion.contributions import Int64s, Uint8s, offsets_of
from dpunion.errors import BadParameter, DamagedSource, ForeignErrors, UnsupportedType
from dpunion.kernels.words import (
    DOTTED_I,
    DOTTED_I_LOWER,
    LONG,
    NONSTARTER,
    UNASSIGNED,
    UNSTABLE,
    cased_tables,
    split_words,
    survey,
    tables,
)
from dpunion.text.normal_forms import Normalization, from_codes, nfc, to_codes

MENDED_AT_ONCE = 1 << 22  # bytes: bounds what is held as Python text, changes no result
WINDOW_BYTES = 1 << 12  # looked at together for a place to cut
MOST_KEPT = 1 << 24  # bytes: memory for longer texts is not kept for the next ones
NOT_TEXT = "The text column is not valid UTF-8 text."


class WordBuffers(NamedTuple):
    """The words of n texts, one after the other. Sensitive: prints shapes only."""

    counts: Int64s  # int64[n_texts]: how many words each text has
    offsets: Int64s  # int64[n_words + 1]: word w is data[offsets[w]:offsets[w + 1]]
    data: Uint8s  # uint8[offsets[-1]]: UTF-8

    def __repr__(self) -> str:
        """Show shapes, never values."""
        return f"WordBuffers({self.counts.size} texts)"


class WordRoom(threading.local):
    """Memory for the words of some texts, used again: the next words of the same thread overwrite those before.

    subtle: memory that is freed and asked for again the system clears each time, and threads wait for each other there.
    Guarantees: threads do not see each other's; nothing shows in the repr.
    """

    def __init__(self) -> None:
        self.offsets: Int64s = np.empty(0, np.int64)
        self.data: Uint8s = np.empty(0, np.uint8)

    def __repr__(self) -> str:
        return "WordRoom(<sensitive>)"


class TextSpans(NamedTuple):
    """Some texts as bytes; text t is data[starts[t]:ends[t]]."""

    data: Uint8s
    starts: Int64s
    ends: Int64s


def words(
    texts: pa.Array | pa.ChunkedArray, normalization: Normalization = Normalization.NFC_LOWER
) -> pa.LargeListArray:
    """Return the words of each text, as large_list<large_string>.

    >>> words(pa.array(["Don't panic, NAÏVE café!", None, ""])).to_pylist()
    [["don't", 'panic', 'naïve', 'café'], [], []]

    Guarantees:
    - a null text and an empty text have no words;
    - the words of a text depend on that text alone, not on its neighbours, its chunk or its Arrow type;
    - words of the words joined by spaces are the same words;
    - canonically equivalent texts (NFC, NFD) have the same words, unless `exact` words are asked for;
    - text that is not UTF-8 raises DamagedSource, whose message holds nothing of it.
    """
    counts, offsets, data = word_buffers(texts, normalization)
    bounds = offsets_of(counts)
    values = pa.LargeStringArray.from_buffers(offsets.size - 1, pa.py_buffer(offsets), pa.py_buffer(data))
    return pa.LargeListArray.from_arrays(pa.array(bounds), values)


def word_buffers(
    texts: pa.Array | pa.ChunkedArray,
    normalization: Normalization = Normalization.NFC_LOWER,
    room: WordRoom | None = None,
) -> WordBuffers:
    """Return the words of each text as bare arrays: `words` says what they are, `WordBuffers` how they lie.

    room: where they are to lie, if not in memory of their own.

    Guarantees:
    - the same words as `words`, in the same order;
    - text that is not UTF-8 raises DamagedSource, whose message holds nothing of it.
    """
    if not isinstance(texts, pa.Array | pa.ChunkedArray):
        raise BadParameter(
            f"Texts must be an Arrow array. Got {type(texts).__name__} instead.",
            "Convert them with pyarrow.array.",
        )
    if isinstance(texts, pa.Array):
        return split_texts(plain_texts(texts), 0, normalization, room or WordRoom())
    parts: list[WordBuffers] = []
    done = 0
    for chunk in texts.chunks:
        parts.append(split_texts(plain_texts(chunk), done, normalization, WordRoom()))
        done += len(chunk)
    return join_buffers(parts)


def plain_texts(chunk: pa.Array) -> TextSpans:
    """Return the bytes and bounds of an Arrow text array without copying the text where its layout allows."""
    if pa.types.is_null(chunk.type):
        nothing = np.zeros(len(chunk), np.int64)
        return TextSpans(bytes_of(None), nothing, nothing)
    kind = chunk.type.value_type if pa.types.is_dictionary(chunk.type) else chunk.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise UnsupportedType(
            f"A text column must contain text. This one contains {chunk.type}.",
            "Choose another column, or cast it to text.",
        )
    if kind != chunk.type or pa.types.is_string_view(kind):
        chunk = flat_text(chunk)
    _, bounds_buffer, data_buffer = chunk.buffers()
    data = bytes_of(data_buffer)
    if not len(chunk):
        return TextSpans(data, np.zeros(0, np.int64), np.zeros(0, np.int64))
    width = np.int64 if pa.types.is_large_string(chunk.type) else np.int32
    bounds = np.frombuffer(bounds_buffer, width, chunk.offset + len(chunk) + 1)[chunk.offset :].astype(np.int64)
    starts, ends = bounds[:-1], bounds[1:].copy()
    # subtle: the kernels read memory by these numbers, so a damaged array must stop here.
    if starts[0] < 0 or (starts > ends).any() or ends[-1] > data.size:
        raise damaged_text("The text column's offsets do not fit its data.")
    if chunk.null_count:
        absent = chunk.is_null().to_numpy(zero_copy_only=False)
        ends[absent] = starts[absent]
    return TextSpans(data, starts, ends)


def flat_text(chunk: pa.Array) -> pa.Array:
    """Return dictionary-encoded or string-view text as large_string."""
    with ForeignErrors(lambda _: damaged_text(NOT_TEXT), pa.ArrowInvalid, IndexError):
        chunk.validate(full=True)  # indices and views point into memory: check before following them
        if pa.types.is_dictionary(chunk.type):
            return chunk.dictionary.cast(pa.large_string()).take(chunk.indices)
        return chunk.cast(pa.large_string())


def bytes_of(buffer: Any) -> Uint8s:
    """Look at a buffer as bytes, read-only: so the kernels are compiled once, for that."""
    data = np.frombuffer(b"" if buffer is None else buffer, np.uint8)
    data.flags.writeable = False
    return data


def split_texts(texts: TextSpans, first: int, normalization: Normalization, room: WordRoom) -> WordBuffers:
    """Return the words of `texts`, the first of which is number `first` for the user."""
    lowers = normalization is Normalization.NFC_LOWER
    known = tables() if lowers else cased_tables()
    data, starts, ends = texts
    flags = np.empty(starts.size, np.uint8)
    bad = survey(data, starts, ends, known.classes, flags)
    if bad >= 0:
        raise damaged_text(f"Text {first + bad} (counting from 0) is not valid UTF-8.")
    if normalization is Normalization.EXACT:
        flags[:] = 0  # nothing is mended
    unstable = np.flatnonzero(flags & UNSTABLE)
    pieces = [piece for t in unstable.tolist() for piece in cut_up(data, t, int(starts[t]), int(ends[t]))]
    mended = [done for some in groups(pieces) for done in mend(data, flags, some, lowers=lowers)]
    sizes = np.zeros(starts.size, np.int64)
    np.add.at(sizes, [piece.text for piece in pieces], [len(done) for done in mended])
    starts, ends = starts.copy(), ends.copy()
    ends[unstable] = np.cumsum(sizes[unstable])
    starts[unstable] = ends[unstable] - sizes[unstable]
    other = np.frombuffer(b"".join(mended), np.uint8)
    counts, total, offsets, out = split_words(data, other, starts, ends, flags, *known, room.offsets, room.data)
    if out.size <= MOST_KEPT:
        room.offsets, room.data = offsets, out
    return WordBuffers(counts, offsets[: total + 1], out[: offsets[total]])


class TextPiece(NamedTuple):
    """A part of text number `text`, data[start:end], that has the same NFC beside its neighbours as alone."""

    text: int
    start: int
    end: int


def cut_up(data: Uint8s, text: int, start: int, end: int) -> Iterator[TextPiece]:
    """Yield a text in pieces of about MENDED_AT_ONCE bytes."""
    while end - start > MENDED_AT_ONCE:
        cut = stable_after(data, start + MENDED_AT_ONCE, end)
        yield TextPiece(text, start, cut)
        start = cut
    if start < end:
        yield TextPiece(text, start, end)


def stable_after(data: Uint8s, at: int, end: int) -> int:
    """Return where the first character at or after `at` begins that NFC neither changes nor joins to the one before.

    Lower-casing it does not change that, see `survey`. Without such a character, `end`.
    """
    while at < end:
        stop = min(at + WINDOW_BYTES, end)
        text = data[at:stop].tobytes().decode(errors="ignore")  # subtle: ignores the characters cut by the window only
        stable = np.flatnonzero(tables().classes[to_codes(text)] & (UNSTABLE | NONSTARTER) == 0)
        if len(stable):
            skipped = next(i for i in range(4) if data[at + i] & 0xC0 != 0x80)
            return at + skipped + len(text[: stable[0]].encode())
        at = stop - 3 if stop < end else end
    return end


def groups(pieces: list[TextPiece]) -> Iterator[list[TextPiece]]:
    """Cut the pieces into lists of about MENDED_AT_ONCE bytes.

    Guarantees: every piece is in one list, in its order.
    """
    ends = itertools.accumulate(piece.end - piece.start for piece in pieces)
    for _, some in itertools.groupby(zip(pieces, ends, strict=True), lambda each: each[1] // MENDED_AT_ONCE):
        yield [piece for piece, _ in some]


def mend(data: Uint8s, flags: Uint8s, pieces: list[TextPiece], *, lowers: bool) -> list[bytes]:
    """Return the pieces as UTF-8 in NFC; when asked, lower-cased but for Σ, and in NFC again.

    Guarantees: what a piece becomes depends on that piece alone.
    """
    normal: list[str] = []
    for piece in pieces:
        text = data[piece.start : piece.end].tobytes().decode()
        if flags[piece.text] & UNASSIGNED:
            text = blanked(text)
        composed = nfc(text) if flags[piece.text] & LONG else unicodedata.normalize("NFC", text)
        normal.append(composed.replace(chr(DOTTED_I), DOTTED_I_LOWER) if lowers else composed)
    if not lowers:
        return [text.encode() for text in normal]
    lowered = from_codes(tables().lower[to_codes("".join(normal))])
    mended: list[bytes] = []
    at = 0
    for text in normal:
        # Python's own NFC: the marks are sorted but for the dot of an İ, so that it has little to swap.
        mended.append(unicodedata.normalize("NFC", lowered[at : at + len(text)]).encode())
        at += len(text)
    return mended


def blanked(text: str) -> str:
    """Put a space for each code point the frozen Unicode does not know: a later one's NFC might move it."""
    codes = to_codes(text)
    return from_codes(np.where(tables().classes[codes] & UNASSIGNED, np.uint32(0x20), codes))


def join_buffers(parts: list[WordBuffers]) -> WordBuffers:
    """Put the words of several chunks one after the other."""
    shifts = np.cumsum([0, *(part.data.size for part in parts)])
    offsets = [part.offsets[1:] + shift for part, shift in zip(parts, shifts, strict=False)]
    return WordBuffers(
        np.concatenate([np.zeros(0, np.int64), *(part.counts for part in parts)]),
        np.concatenate([np.zeros(1, np.int64), *offsets]),
        np.concatenate([np.zeros(0, np.uint8), *(part.data for part in parts)]),
    )


def damaged_text(what: str) -> DamagedSource:
    """Return the error for text that cannot be read."""
    return DamagedSource(what, "Convert the source to UTF-8, or repair it, and read it again.")
