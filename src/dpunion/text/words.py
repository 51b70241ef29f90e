"""Text to words: the one tokenizer, the same on every engine and every Python; and how items are spelled.

**Definition.** Put the text in NFC; its words are the matches, leftmost and greedy, of
`[\\p{L}\\p{M}\\p{N}_]+(?:['’][\\p{L}\\p{M}\\p{N}_]+)*`; lower-case each word; put it in NFC again
(lower-casing can undo NFC: J with caron is two characters, ǰ is one). This is normalization `nfc-lower`, the default
for texts. With `nfc` words are not lower-cased; with `exact` the text is not put in NFC either.

**Stream-safe text.** A run of more than 30 combining marks separates words, as a space does, and an item that contains
one is left out. Marks are counted in the decomposed text (NFD), so that equivalent spellings have the same words. No
language comes near (UAX 15, Stream-Safe Text Format), and NFC of a run of n marks takes Python n² steps: a quarter of
an hour for a megabyte. With `exact`, which needs no NFC, nothing is cut or left out.

**Unicode is frozen at 14.0**, the version of the oldest supported Python: categories and lower case come from
our own table, and NFC of these characters can never change (Unicode's stability policy). A code point that
14.0 does not know separates words, even if the running Python knows it.

**Lower case** is Unicode's full, language-neutral one, decided within the word:
- Σ becomes ς at the end of a word after a letter, else σ: ΑΣ → ας, Σ → σ, ΑΣ'Β → ασ'β. A σ stays as written.
- İ becomes two characters, i and a combining dot above, and I becomes i: Turkish has no special rule.
- ẞ becomes ß, which stays (no folding to ss); Ǆ and ǅ become ǆ; K (kelvin) becomes k; Ⅷ becomes ⅷ.
Apostrophes stay as written: don't and don’t are two words. Zero-width characters separate words.
"""

from __future__ import annotations

import enum
import functools
import itertools
import threading
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpunion import buffers
from dpunion.contributions import Int64s, Uint8s, offsets_of
from dpunion.errors import BadParameter, DamagedSource, ForeignErrors, UnsupportedType
from dpunion.kernels.words import (
    DOTTED_I,
    DOTTED_I_LOWER,
    LONG,
    MOST_MARKS,
    UNASSIGNED,
    UNSTABLE,
    cased_tables,
    split_words,
    survey,
    tables,
)

NORMALIZED_AT_ONCE = 1 << 22  # bytes: limits how much is Python text at a time, changes no result
MOST_KEPT = 1 << 24  # bytes: memory for longer texts is not kept for the next ones
NOT_TEXT = "The text column is not valid UTF-8 text."
SPACE = np.uint32(ord(" "))

Codes = NDArray[np.uint32]


class Normalization(enum.Enum):
    """How an item's text is spelled before duplicates are dropped."""

    EXACT = "exact"
    NFC = "nfc"
    NFC_LOWER = "nfc-lower"


class WordBuffers(NamedTuple):
    """The words of n texts, one after the other (sensitive)."""

    counts: Int64s  # int64[n_texts]: how many words each text has
    offsets: Int64s  # int64[n_words + 1]: word w is data[offsets[w]:offsets[w + 1]]
    data: Uint8s  # uint8[offsets[-1]]: UTF-8

    def __repr__(self) -> str:
        return f"WordBuffers({self.counts.size} texts)"


class WordRoom(threading.local):
    """Reusable memory for words: the next words of the same thread overwrite it (sensitive).

    subtle: the system clears memory each time that it is freed and allocated again, and threads wait for each other
    there. Guarantees: a thread does not see the words of another; nothing shows in the repr.
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


# --- words --------------------------------------------------------------------------------------------------


def words(
    texts: pa.Array | pa.ChunkedArray, normalization: Normalization = Normalization.NFC_LOWER
) -> pa.LargeListArray:
    """Return the words of each text, as large_list<large_string>.

    >>> words(pa.array(["Don't panic, NAÏVE café!", None, ""])).to_pylist()
    [["don't", 'panic', 'naïve', 'café'], [], []]

    Guarantees:
    - a null text and an empty text have no words;
    - the words of a text depend on that text alone, not on its neighbours, its chunk or its Arrow type;
    - splitting the words, joined by spaces, returns the same words;
    - canonically equivalent texts (NFC, NFD) have the same words, except with `exact`;
    - text that is not UTF-8 raises DamagedSource, whose message quotes nothing of it.
    """
    counts, offsets, data = word_buffers(texts, normalization)
    return pa.LargeListArray.from_arrays(
        pa.array(offsets_of(counts)), buffers.array_of(offsets, data, pa.large_string())
    )


def word_buffers(
    texts: pa.Array | pa.ChunkedArray,
    normalization: Normalization = Normalization.NFC_LOWER,
    room: WordRoom | None = None,
) -> WordBuffers:
    """Return what `words` returns as bare arrays; room: memory to use, if not new memory."""
    if not isinstance(texts, pa.Array | pa.ChunkedArray):
        raise BadParameter(
            f"Texts must be an Arrow array. Got {type(texts).__name__} instead.", "Convert them with pyarrow.array."
        )
    if isinstance(texts, pa.Array):
        return split_texts(plain_texts(texts), 0, normalization, room or WordRoom())
    parts: list[WordBuffers] = []
    done = 0
    for chunk in texts.chunks:
        parts.append(split_texts(plain_texts(chunk), done, normalization, WordRoom()))
        done += len(chunk)
    counts = np.concatenate([np.zeros(0, np.int64), *(part.counts for part in parts)])
    return WordBuffers(counts, *buffers.join_buffers([(part.offsets, part.data) for part in parts]))


def plain_texts(chunk: pa.Array) -> TextSpans:
    """Return the bytes and bounds of an Arrow text array, without copying the text if its layout allows."""
    if pa.types.is_null(chunk.type):
        nothing = np.zeros(len(chunk), np.int64)
        return TextSpans(buffers.read_only(np.zeros(0, np.uint8)), nothing, nothing)
    kind = chunk.type.value_type if pa.types.is_dictionary(chunk.type) else chunk.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise UnsupportedType(
            f"A text column must contain text. This one contains {chunk.type}.",
            "Choose another column, or cast it to text.",
        )
    if kind != chunk.type or pa.types.is_string_view(kind):
        chunk = flat_text(chunk)
    offsets, data = buffers.string_buffers(chunk)
    bounds = offsets.astype(np.int64)
    starts, ends = bounds[:-1], bounds[1:].copy()
    # subtle: the kernels read memory by these numbers, so a damaged array must stop here.
    if len(chunk) and (starts[0] < 0 or (starts > ends).any() or ends[-1] > data.size):
        raise damaged_text("The text column's offsets do not fit its data.")
    if chunk.null_count:
        absent = chunk.is_null().to_numpy(zero_copy_only=False)
        ends[absent] = starts[absent]
    return TextSpans(buffers.read_only(data), starts, ends)


def flat_text(chunk: pa.Array) -> pa.Array:
    """Return dictionary-encoded or string-view text as large_string."""
    with ForeignErrors(lambda _: damaged_text(NOT_TEXT), pa.ArrowInvalid, IndexError):
        chunk.validate(full=True)  # indices and views point into memory: check before following them
        if pa.types.is_dictionary(chunk.type):
            return chunk.dictionary.cast(pa.large_string()).take(chunk.indices)
        return chunk.cast(pa.large_string())


def split_texts(texts: TextSpans, first: int, normalization: Normalization, room: WordRoom) -> WordBuffers:
    """Return the words of `texts`; first: the number of the first text, for errors."""
    lowers = normalization is Normalization.NFC_LOWER
    known = tables() if lowers else cased_tables()
    data, starts, ends = texts
    flags = np.empty(starts.size, np.uint8)
    bad = survey(data, starts, ends, known.classes, flags)
    if bad >= 0:
        raise damaged_text(f"Text {first + bad} (counting from 0) is not valid UTF-8.")
    if normalization is Normalization.EXACT:
        flags[:] = 0  # no text needs NFC
    unstable = np.flatnonzero(flags & UNSTABLE)
    pieces = [piece for t in unstable.tolist() for piece in cut_text(data, t, int(starts[t]), int(ends[t]))]
    normalized = [done for some in groups(pieces) for done in normalize_pieces(data, flags, some, lowers=lowers)]
    sizes = np.zeros(starts.size, np.int64)
    np.add.at(sizes, [piece.text for piece in pieces], [len(done) for done in normalized])
    starts, ends = starts.copy(), ends.copy()
    ends[unstable] = np.cumsum(sizes[unstable])
    starts[unstable] = ends[unstable] - sizes[unstable]
    other = np.frombuffer(b"".join(normalized), np.uint8)
    counts, total, offsets, out = split_words(data, other, starts, ends, flags, *known, room.offsets, room.data)
    if out.size <= MOST_KEPT:
        room.offsets, room.data = offsets, out
    return WordBuffers(counts, offsets[: total + 1], out[: offsets[total]])


class TextPiece(NamedTuple):
    """A part of text number `text`, data[start:end], which begins with ASCII or with the text itself."""

    text: int
    start: int
    end: int


def cut_text(data: Uint8s, text: int, start: int, end: int) -> list[TextPiece]:
    """Cut a text into pieces of a few times NORMALIZED_AT_ONCE bytes at most, if it has ASCII characters everywhere.

    NFC never changes an ASCII character, nor joins it to the one before: so a piece has the same NFC as in its text.
    """
    if end - start <= NORMALIZED_AT_ONCE:
        return [TextPiece(text, start, end)]
    cuts = [start]
    for at in range(start + NORMALIZED_AT_ONCE, end, NORMALIZED_AT_ONCE):
        is_ascii = data[at : min(at + NORMALIZED_AT_ONCE, end)] < buffers.FIRST_BEYOND_ASCII
        if is_ascii.any():
            cuts.append(at + int(is_ascii.argmax()))
    return [TextPiece(text, first, last) for first, last in itertools.pairwise([*cuts, end])]


def groups(pieces: list[TextPiece]) -> Iterator[list[TextPiece]]:
    """Yield the pieces in lists of about NORMALIZED_AT_ONCE bytes, in their order."""
    ends = itertools.accumulate(piece.end - piece.start for piece in pieces)
    for _, some in itertools.groupby(zip(pieces, ends, strict=True), lambda each: each[1] // NORMALIZED_AT_ONCE):
        yield [piece for piece, _ in some]


def normalize_pieces(data: Uint8s, flags: Uint8s, pieces: list[TextPiece], *, lowers: bool) -> list[bytes]:
    """Return the pieces as UTF-8 in NFC; lowers: also lower-case all but Σ, and put them in NFC again.

    Guarantees: what becomes of a piece depends on that piece alone.
    """
    normal: list[str] = []
    for piece in pieces:
        text = data[piece.start : piece.end].tobytes().decode()
        if flags[piece.text] & UNASSIGNED:
            text = blank_unassigned(text)
        if flags[piece.text] & LONG:
            codes, runs = find_long_runs(text)
            for first, last in runs:
                codes[first:last] = SPACE
            text = from_codes(codes)
        composed = unicodedata.normalize("NFC", text)
        normal.append(composed.replace(chr(DOTTED_I), DOTTED_I_LOWER) if lowers else composed)
    if not lowers:
        return [text.encode() for text in normal]
    lowered = from_codes(tables().lower[to_codes("".join(normal))])
    normalized: list[bytes] = []
    at = 0
    for text in normal:
        normalized.append(unicodedata.normalize("NFC", lowered[at : at + len(text)]).encode())
        at += len(text)
    return normalized


def blank_unassigned(text: str) -> str:
    """Replace each code point that the frozen Unicode does not know by a space: NFC of a later Unicode may move it."""
    codes = to_codes(text)
    return from_codes(np.where(tables().classes[codes] & UNASSIGNED, SPACE, codes))


def damaged_text(what: str) -> DamagedSource:
    """Return the error for text that cannot be read."""
    return DamagedSource(what, "Convert the source to UTF-8, or repair it, and read it again.")


# --- items --------------------------------------------------------------------------------------------------


def normalize_texts(offsets: Int64s, data: Uint8s, normalization: Normalization) -> list[str]:
    """Return the texts data[offsets[i]:offsets[i + 1]] as the normalization spells them.

    A text with more than MOST_MARKS marks in a row becomes empty, which no item is: so it is left out.
    """
    if normalization is Normalization.EXACT:
        return list(buffers.as_texts(offsets, data))
    lowers = normalization is Normalization.NFC_LOWER

    def spell(text: str) -> str:
        composed = unicodedata.normalize("NFC", text)
        return unicodedata.normalize("NFC", composed.lower()) if lowers else composed

    if buffers.has_ascii_only(data):
        return list(map(spell, buffers.as_texts(offsets, data)))
    bounds = offsets.astype(np.int64)
    flags = np.zeros(len(bounds) - 1, np.uint8)
    survey(buffers.read_only(data), bounds[:-1], bounds[1:], tables().classes, flags)
    checked = zip(buffers.as_texts(offsets, data), (flags & LONG).tolist(), strict=True)
    return ["" if may_be_long and find_long_runs(text)[1] else spell(text) for text, may_be_long in checked]


def normalize_array(texts: pa.Array, normalization: Normalization) -> pa.Array:
    """Return the texts as the normalization spells them: large_string[texts]; Arrow does those in ASCII."""
    is_nfc = normalization is Normalization.NFC and buffers.has_ascii_only(buffers.string_buffers(texts)[1])
    if is_nfc or normalization is Normalization.EXACT:
        return texts
    is_plain = buffers.pc.string_is_ascii(texts)
    spelled = buffers.pc.ascii_lower(texts) if normalization is Normalization.NFC_LOWER else texts
    others = texts.filter(buffers.pc.invert(is_plain))
    if not len(others):
        return spelled
    changed = buffers.large_texts(buffers.text_array(normalize_texts(*buffers.string_buffers(others), normalization)))
    return buffers.pc.replace_with_mask(spelled, buffers.pc.invert(is_plain), changed)


# --- long runs of marks -------------------------------------------------------------------------------------


def find_long_runs(text: str) -> tuple[Codes, list[list[int]]]:
    """Return the decomposed text, and where it has runs of more than MOST_MARKS marks: [first, last + 1] of each.

    subtle: each character is decomposed alone, because decomposing a text would sort its marks, in n² steps.
    """
    codes = to_codes(text.translate(decompositions())).copy()
    distinct, places = np.unique(codes, return_inverse=True)
    is_mark = np.array([unicodedata.combining(chr(code)) > 0 for code in distinct.tolist()], np.bool_)[places]
    runs = np.flatnonzero(np.diff(is_mark, prepend=False, append=False)).reshape(-1, 2)
    return codes, runs[runs[:, 1] - runs[:, 0] > MOST_MARKS].tolist()


class Decompositions(dict[int, str]):
    """The decomposition of each character, for `str.translate`; filled on demand."""

    def __missing__(self, code: int) -> str:
        self[code] = unicodedata.normalize("NFD", chr(code))
        return self[code]


decompositions = functools.cache(Decompositions)


def to_codes(text: str) -> Codes:
    """Return the code points of a text."""
    return np.frombuffer(text.encode("utf-32-le"), "<u4")


def from_codes(codes: Codes) -> str:
    """Return the text of code points."""
    return codes.astype("<u4", copy=False).tobytes().decode("utf-32-le")
