"""Text to words: the one tokeniser, the same on every engine and every Python.

**Definition.** Put the text in NFC; its words are the matches, leftmost and greedy, of
`[\\p{L}\\p{M}\\p{N}_]+(?:['’][\\p{L}\\p{M}\\p{N}_]+)*`; lower-case each word; put it in NFC again
(lower-casing can undo NFC: J with caron is two characters, ǰ is one).

**Unicode is frozen at 14.0**, the version of the oldest Python supported: categories and lower case come from
our own table, and NFC of these characters can never change (Unicode's stability policy). A code point that
14.0 does not know separates words, whatever the running Python thinks of it.

**Lower case** is Unicode's full, language-neutral one, decided within the word:
- Σ becomes ς at the end of a word after a letter, else σ: ΑΣ → ας, Σ → σ, ΑΣ'Β → ασ'β. A σ stays as written.
- İ becomes two characters, i and a combining dot above, and I becomes i: Turkish gets no rule of its own.
- ẞ becomes ß, which stays (no folding to ss); Ǆ and ǅ become ǆ; K (kelvin) becomes k; Ⅷ becomes ⅷ.
Apostrophes stay as written: don't and don’t are two words. Zero-width characters separate words.

**Other tokenisers** (`Splitting`): whitespace; treebank, the Penn Treebank rules as in NLTK, which the papers used;
icu, dictionary-based segmentation for languages without spaces; or any Python callable. Their tokens are put in NFC
and lower-cased, or left alone, as the `normalize` option of the release says. No token contains white space.
"""

from __future__ import annotations

import enum
import functools
import importlib
import itertools
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpunion.contributions import Int64s, Uint8s, offsets_of
from dpunion.errors import BadParameter, DamagedSource, UnsupportedType
from dpunion.foreign import ForeignErrors
from dpunion.kernels.unicode_words import DOTTED_I, DOTTED_I_LOWER, NONSTARTER, UNASSIGNED, UNSTABLE
from dpunion.kernels.words import LONG, split, survey, tables
from dpunion.normal_forms import from_codes, nfc, to_codes

MENDED_AT_ONCE = 1 << 22  # bytes: bounds what is held as Python text, changes no result
WINDOW_BYTES = 1 << 12  # looked at together for a place to cut


# What str.isspace says, fixed here: these characters have not changed since Unicode 6.3.
WHITE_SPACE = r"[\x09-\x0d\x1c-\x20\x{85}\p{Z}]+"
NOT_TEXT = "The text column is not valid UTF-8 text."
URL = r"(?i)\b(?:(?:https?|ftp)://|www\.)[^\x09-\x0d\x1c-\x20\x{85}\p{Z}]*"
# A sentence ends at a line break, after . ! ? … with white space behind, or after 。！？ (closing marks included).
SENTENCE_END = r"""([.!?…]+["'”’)\]]*)[\x09-\x0d\x1c-\x20\x{85}\p{Z}]+|([。！？]+[」』”’）]*)"""
LINE_BREAKS = r"[\n-\r\x{85}\x{2028}\x{2029}]+"


class Tokenizer(enum.Enum):
    """The tokenisers that have a name."""

    WORDS = "words"
    """The house's own, see above: lower-cased words without punctuation, as fast as reading."""
    WHITESPACE = "whitespace"
    """What stands between white space, punctuation included."""
    TREEBANK = "treebank"
    """Penn Treebank rules by NLTK (needs the extra `text`): can't is ca and n't, punctuation are tokens."""
    ICU = "icu"
    """Segmentation by ICU (needs the extra `icu`): for Chinese, Japanese, Thai and the like."""


SplitFunction = Callable[[str], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Splitting:
    """How a text becomes documents of tokens; public.

    tokenizer: one of Tokenizer, or a function from a text to its tokens. drop_urls: leave out what looks like a web
    address, before anything else. sentences: n-grams do not cross the end of a sentence either. locale: for ICU.
    """

    tokenizer: Tokenizer | SplitFunction = Tokenizer.WORDS
    drop_urls: bool = False
    sentences: bool = False
    locale: str = "en"

    @property
    def name(self) -> str:
        """Name the tokeniser in a plan."""
        return self.tokenizer.value if isinstance(self.tokenizer, Tokenizer) else "callable"


class WordBuffers(NamedTuple):
    """The words of n texts, one after the other. Sensitive: prints shapes only."""

    counts: Int64s  # int64[n_texts]: how many words each text has
    offsets: Int64s  # int64[n_words + 1]: word w is data[offsets[w]:offsets[w + 1]]
    data: Uint8s  # uint8[offsets[-1]]: UTF-8

    def __repr__(self) -> str:
        """Show shapes, never values."""
        return f"WordBuffers({self.counts.size} texts)"


class Texts(NamedTuple):
    """Some texts as bytes; text t is data[starts[t]:ends[t]]."""

    data: Uint8s
    starts: Int64s
    ends: Int64s


def words(texts: pa.Array | pa.ChunkedArray) -> pa.LargeListArray:
    """Return the words of each text, as large_list<large_string>.

    >>> words(pa.array(["Don't panic, NAÏVE café!", None, ""])).to_pylist()
    [["don't", 'panic', 'naïve', 'café'], [], []]

    Guarantees:
    - a null text and an empty text have no words;
    - the words of a text depend on that text alone, not on its neighbours, its chunk or its Arrow type;
    - words of the words joined by spaces are the same words;
    - canonically equivalent texts (NFC, NFD) have the same words;
    - text that is not UTF-8 raises DamagedSource, whose message holds nothing of it.
    """
    counts, offsets, data = word_buffers(texts)
    bounds = offsets_of(counts)
    values = pa.LargeStringArray.from_buffers(offsets.size - 1, pa.py_buffer(offsets), pa.py_buffer(data))
    return pa.LargeListArray.from_arrays(pa.array(bounds), values)


def word_buffers(texts: pa.Array | pa.ChunkedArray) -> WordBuffers:
    """Return the words of each text as bare arrays: `words` says what they are, `WordBuffers` how they lie.

    Guarantees:
    - the same words as `words`, in the same order;
    - text that is not UTF-8 raises DamagedSource, whose message holds nothing of it.
    """
    if not isinstance(texts, pa.Array | pa.ChunkedArray):
        raise BadParameter(
            f"Texts must be an Arrow array. Got {type(texts).__name__} instead.",
            "Convert them with pyarrow.array.",
        )
    chunks = texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]
    parts: list[WordBuffers] = []
    done = 0
    for chunk in chunks:
        parts.append(split_texts(plain_texts(chunk), done))
        done += len(chunk)
    return parts[0] if len(parts) == 1 else joined(parts)


def plain_texts(chunk: pa.Array) -> Texts:
    """Return the bytes and bounds of an Arrow text array without copying the text where its layout allows."""
    if pa.types.is_null(chunk.type):
        nothing = np.zeros(len(chunk), np.int64)
        return Texts(bytes_of(None), nothing, nothing)
    kind = chunk.type.value_type if pa.types.is_dictionary(chunk.type) else chunk.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise UnsupportedType(
            f"A text column must hold text. This one holds {chunk.type}.",
            "Choose another column, or cast it to text.",
        )
    if kind != chunk.type or pa.types.is_string_view(kind):
        chunk = flat_text(chunk)
    _, bounds_buffer, data_buffer = chunk.buffers()
    data = bytes_of(data_buffer)
    if not len(chunk):
        return Texts(data, np.zeros(0, np.int64), np.zeros(0, np.int64))
    width = np.int64 if pa.types.is_large_string(chunk.type) else np.int32
    bounds = np.frombuffer(bounds_buffer, width, chunk.offset + len(chunk) + 1)[chunk.offset :].astype(np.int64)
    starts, ends = bounds[:-1], bounds[1:].copy()
    # subtle: the kernels read memory by these numbers, so a damaged array must stop here.
    if starts[0] < 0 or (starts > ends).any() or ends[-1] > data.size:
        raise damaged("The text column's offsets do not fit its data.")
    if chunk.null_count:
        absent = chunk.is_null().to_numpy(zero_copy_only=False)
        ends[absent] = starts[absent]
    return Texts(data, starts, ends)


def flat_text(chunk: pa.Array) -> pa.Array:
    """Return dictionary-encoded or string-view text as large_string."""
    with ForeignErrors(lambda _: damaged(NOT_TEXT), pa.ArrowInvalid, IndexError):
        chunk.validate(full=True)  # indices and views point into memory: check before following them
        if pa.types.is_dictionary(chunk.type):
            return chunk.dictionary.cast(pa.large_string()).take(chunk.indices)
        return chunk.cast(pa.large_string())


def bytes_of(buffer: Any) -> Uint8s:
    """Look at a buffer as bytes, read-only: so the kernels are compiled once, for that."""
    data = np.frombuffer(b"" if buffer is None else buffer, np.uint8)
    data.flags.writeable = False
    return data


def split_texts(texts: Texts, first: int) -> WordBuffers:
    """Return the words of `texts`, the first of which is number `first` for the user."""
    known = tables()
    data, starts, ends = texts
    flags = np.empty(starts.size, np.uint8)
    bad = survey(data, starts, ends, known.classes, flags)
    if bad >= 0:
        raise damaged(f"Text {first + bad} (counting from 0) is not valid UTF-8.")
    unstable = np.flatnonzero(flags & UNSTABLE)
    pieces = [piece for t in unstable.tolist() for piece in cut_up(data, t, int(starts[t]), int(ends[t]))]
    mended = [done for some in groups(pieces) for done in mend(data, flags, some)]
    sizes = np.zeros(starts.size, np.int64)
    np.add.at(sizes, [piece.text for piece in pieces], [len(done) for done in mended])
    starts, ends = starts.copy(), ends.copy()
    ends[unstable] = np.cumsum(sizes[unstable])
    starts[unstable] = ends[unstable] - sizes[unstable]
    return WordBuffers(*split(data, np.frombuffer(b"".join(mended), np.uint8), starts, ends, flags, *known))


class Piece(NamedTuple):
    """A part of text number `text`, data[start:end], that has the same NFC beside its neighbours as alone."""

    text: int
    start: int
    end: int


def cut_up(data: Uint8s, text: int, start: int, end: int) -> Iterator[Piece]:
    """Yield a text in pieces of about MENDED_AT_ONCE bytes."""
    while end - start > MENDED_AT_ONCE:
        cut = stable_after(data, start + MENDED_AT_ONCE, end)
        yield Piece(text, start, cut)
        start = cut
    if start < end:
        yield Piece(text, start, end)


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


def groups(pieces: list[Piece]) -> Iterator[list[Piece]]:
    """Cut the pieces into lists of about MENDED_AT_ONCE bytes.

    Guarantees: every piece is in one list, in its order.
    """
    ends = itertools.accumulate(piece.end - piece.start for piece in pieces)
    for _, some in itertools.groupby(zip(pieces, ends, strict=True), lambda each: each[1] // MENDED_AT_ONCE):
        yield [piece for piece, _ in some]


def mend(data: Uint8s, flags: Uint8s, pieces: list[Piece]) -> list[bytes]:
    """Return the pieces as UTF-8 in NFC, lower-cased but for Σ, and in NFC again.

    Guarantees: what a piece becomes depends on that piece alone.
    """
    normal: list[str] = []
    for piece in pieces:
        text = data[piece.start : piece.end].tobytes().decode()
        if flags[piece.text] & UNASSIGNED:
            text = blanked(text)
        composed = nfc(text) if flags[piece.text] & LONG else unicodedata.normalize("NFC", text)
        normal.append(composed.replace(chr(DOTTED_I), DOTTED_I_LOWER))
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


def joined(parts: list[WordBuffers]) -> WordBuffers:
    """Put the words of several chunks one after the other."""
    shifts = np.cumsum([0, *(part.data.size for part in parts)])
    offsets = [part.offsets[1:] + shift for part, shift in zip(parts, shifts, strict=False)]
    return WordBuffers(
        np.concatenate([np.zeros(0, np.int64), *(part.counts for part in parts)]),
        np.concatenate([np.zeros(1, np.int64), *offsets]),
        np.concatenate([np.zeros(0, np.uint8), *(part.data for part in parts)]),
    )


def damaged(what: str) -> DamagedSource:
    """Return the error for text that cannot be read."""
    return DamagedSource(what, "Convert the source to UTF-8, or repair it, and read it again.")


def documents(texts: pa.Array | pa.ChunkedArray, splitting: Splitting) -> tuple[Int64s | None, WordBuffers]:
    """Return the tokens of each document, and which text each document is of: int64[documents], None for "its own".

    Guarantees:
    - the documents of a text depend on that text alone;
    - no token is empty or contains white space, so tokens joined by spaces can be told apart again.
    """
    parents: Int64s | None = None
    if splitting.drop_urls:
        texts = attempted(pc.replace_substring_regex, readable(texts), pattern=URL, replacement=" ")
    if splitting.sentences:
        parents, texts = sentences(readable(texts))
    match splitting.tokenizer:
        case Tokenizer.WORDS:
            return parents, word_buffers(texts)
        case Tokenizer.WHITESPACE:
            return parents, list_buffers(attempted(pc.split_pattern_regex, readable(texts), pattern=WHITE_SPACE))
        case Tokenizer.TREEBANK:
            return parents, call_buffers(readable(texts), treebank())
        case Tokenizer.ICU:
            return parents, call_buffers(readable(texts), icu(splitting.locale))
        case other:
            return parents, call_buffers(readable(texts), other)


def check_splitting(splitting: Splitting) -> None:
    """Refuse what cannot work before any data is read: no tokeniser, or a library that is not installed."""
    match splitting.tokenizer:
        case Tokenizer.WORDS | Tokenizer.WHITESPACE:
            return
        case Tokenizer.TREEBANK:
            treebank()
        case Tokenizer.ICU:
            icu(splitting.locale)
        case other if callable(other):
            return
        case other:
            raise BadParameter(
                f"The 'tokenizer' parameter must be a name or a function. Got a {type(other).__name__} instead.",
                f"Choose one of {', '.join(choice.value for choice in Tokenizer)}, or pass a function of a text.",
            )


def readable(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the texts as one valid large_string array, null texts as empty ones."""
    if isinstance(texts, pa.ChunkedArray):
        texts = pa.concat_arrays(texts.chunks) if texts.num_chunks else pa.array([], pa.large_string())
    plain = attempted(lambda array: array.cast(pa.large_string()), texts)
    attempted(lambda array: array.validate(full=True), plain)
    return pc.fill_null(plain, "")


def attempted(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call a function of Arrow; what it raises could quote the text, so it is not passed on."""
    with ForeignErrors(lambda _: damaged(NOT_TEXT), pa.ArrowException):
        return function(*args, **options)


def sentences(texts: pa.Array) -> tuple[Int64s, pa.Array]:
    """Return the sentences of all texts, and the number of the text each is of: int64[sentences]."""
    broken = attempted(pc.replace_substring_regex, texts, pattern=SENTENCE_END, replacement="\\1\\2\n")
    split_up = attempted(pc.split_pattern_regex, broken, pattern=LINE_BREAKS)
    return np.asarray(pc.list_parent_indices(split_up), np.int64), pc.list_flatten(split_up)


def list_buffers(lists: pa.Array) -> WordBuffers:
    """Return a list<string> array without nulls as bare arrays, leaving out empty strings."""
    bounds = np.asarray(lists.offsets, np.int64)
    tokens = lists.values
    full = np.asarray(pc.greater(pc.binary_length(tokens), 0))
    before = offsets_of(full)
    tokens = tokens.filter(pa.array(full)).cast(pa.large_string())
    if not len(tokens):
        return WordBuffers(np.zeros(len(lists), np.int64), np.zeros(1, np.int64), np.zeros(0, np.uint8))
    _, offsets, data = tokens.buffers()
    ends = np.frombuffer(offsets, np.int64)[tokens.offset : tokens.offset + len(tokens) + 1]
    return WordBuffers(np.diff(before[bounds]), ends, np.frombuffer(data, np.uint8))


def call_buffers(texts: pa.Array, split_one: SplitFunction) -> WordBuffers:
    """Return the tokens that a Python function finds in each text; one text at a time is Python text.

    Guarantees: an error of the function is reported by its type alone.
    """
    counts = np.zeros(len(texts), np.int64)
    pieces: list[bytes] = []
    for number, text in enumerate(texts):
        before = len(pieces)
        for token in called(split_one, text.as_py()):
            if not isinstance(token, str) or any(map(str.isspace, token)):
                raise BadParameter(
                    "The tokenizer returned something that is not text, or a token with white space in it.",
                    "Return plain strings without white space: tokens are joined by spaces.",
                )
            if token:
                pieces.append(token.encode())
        counts[number] = len(pieces) - before
    offsets = offsets_of(np.fromiter(map(len, pieces), np.int64, len(pieces)))
    return WordBuffers(counts, offsets, np.frombuffer(b"".join(pieces), np.uint8))


def called(split_one: SplitFunction, text: str) -> list[str]:
    """Call the tokeniser on one text, hiding what its errors say."""

    def withhold(error: Exception) -> BadParameter:
        return BadParameter(
            f"The tokenizer failed with {type(error).__name__}; its message is withheld, as it may hold private text.",
            "Try the tokenizer on public text first.",
        )

    with ForeignErrors(withhold, ours_too=True):
        return list(split_one(text))


@functools.cache
def treebank() -> SplitFunction:
    """Return NLTK's Penn Treebank tokeniser, which needs no downloaded model."""
    with ForeignErrors(lambda _: missing("treebank", "nltk", "text"), ImportError):
        module = importlib.import_module("nltk.tokenize")
    tokenize: SplitFunction = module.NLTKWordTokenizer().tokenize
    return tokenize


@functools.cache
def icu(locale: str) -> SplitFunction:
    """Return ICU's word segmentation: the segments that hold a letter, a mark or a number."""
    with ForeignErrors(lambda _: missing("icu", "icu4py", "icu"), ImportError):
        module = importlib.import_module("icu4py.breakers")

    def segments(text: str) -> Iterator[str]:
        for segment in module.WordBreaker(text, locale):
            if any(unicodedata.category(character)[0] in "LMN" for character in segment):
                yield from segment.split()

    return segments


def missing(tokenizer: str, library: str, extra: str) -> BadParameter:
    """Return the error for a tokeniser whose library is not installed."""
    return BadParameter(
        f"The tokenizer {tokenizer!r} needs {library}, which is not installed.",
        f"Install it with: pip install 'dpunion[{extra}]'.",
    )
