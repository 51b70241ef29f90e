"""Texts to documents of tokens, by dpunion's own words or another tokenizer, without stop words and short tokens.

`Splitting` says how. The release's normalization spells the tokens of every tokenizer before anything is compared or
counted. Then stop words and short tokens are dropped, as if nobody had written them. No token contains white space.
"""

from __future__ import annotations

import enum
import functools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dpunion.buffers import array_of, pc, string_buffers
from dpunion.contributions import Bools, Int64s, Uint8s, offsets_of
from dpunion.errors import BadParameter, ForeignErrors, import_library
from dpunion.text.words import NOT_TEXT, Normalization, WordBuffers, WordRoom, damaged_text, word_buffers

# What str.isspace says, fixed here: these characters have not changed since Unicode 6.3.
WHITE_SPACE = r"[\x09-\x0d\x1c-\x20\x{85}\p{Z}]+"
URL = r"(?i)\b(?:(?:https?|ftp)://|www\.)[^\x09-\x0d\x1c-\x20\x{85}\p{Z}]*"
# A sentence ends at a line break, after . ! ? … with white space behind, or after 。！？ (closing marks included).
SENTENCE_END = r"""([.!?…]+["'”’)\]]*)[\x09-\x0d\x1c-\x20\x{85}\p{Z}]+|([。！？]+[」』”’）]*)"""
LINE_BREAKS = r"[\n-\r\x{85}\x{2028}\x{2029}]+"
# Letters of scripts that put no spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, kana and Chinese characters.
UNSPACED = re.compile(
    r"[\u0e00-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]"
)
DEFAULT_LOCALE = "en"


class Tokenizer(enum.Enum):
    """The tokenizers that have a name."""

    WORDS = "words"
    """dpunion's own, see dpunion.text.words: words without punctuation, as fast as reading."""
    WHITESPACE = "whitespace"
    """Everything between white space, punctuation included."""
    TREEBANK = "treebank"
    """Penn Treebank rules by NLTK (needs the extra `text`): can't is ca and n't, punctuation marks are tokens."""
    ICU = "icu"
    """Segmentation by ICU (needs the extra `icu`): for Chinese, Japanese, Thai and the like."""


SplitFunction = Callable[[str], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Splitting:
    """How a text becomes documents of tokens; public.

    tokenizer: one of Tokenizer, or a function from a text to its tokens. drop_urls: first remove everything that looks
    like a web address. sentences: n-grams do not cross the end of a sentence either. locale: for ICU. stop_words:
    tokens to drop, spelled as the release spells them. min_length: drop tokens with fewer characters.
    """

    tokenizer: Tokenizer | SplitFunction = Tokenizer.WORDS
    drop_urls: bool = False
    sentences: bool = False
    locale: str = DEFAULT_LOCALE
    stop_words: tuple[str, ...] = ()
    min_length: int = 1

    @property
    def name(self) -> str:
        """The tokenizer's name in a plan."""
        return self.tokenizer.value if isinstance(self.tokenizer, Tokenizer) else "callable"

    @property
    def is_plain(self) -> bool:
        """Whether texts are split in the default way; tokens may still be dropped."""
        return replace(self, stop_words=(), min_length=1) == PLAIN

    def notes(self) -> tuple[str, ...]:
        """Return what a statement says about dropped words."""
        listed = [f"the words of a public list ({len(self.stop_words):,})"] if self.stop_words else []
        short = [f"words of fewer than {self.min_length} characters"] if self.min_length > 1 else []
        left_out = " and ".join(listed + short)
        return (f"Left out first, as if nobody had written them: {left_out}.",) if left_out else ()

    def notes_on(self, released: Sequence[str]) -> tuple[str, ...]:
        """Return what a statement says if the released list has texts that were hardly split.

        Guarantees: only the released list is read, so it costs no privacy.
        """
        if self.tokenizer not in (Tokenizer.WORDS, Tokenizer.WHITESPACE):
            return ()
        count = sum(UNSPACED.search(text) is not None for text in released)
        if count == 0:
            return ()
        return (
            "In scripts that put no spaces between words (Chinese, Japanese, Thai and the like), up to a whole "
            f"sentence counts as one word. {count:,} of the {len(released):,} listed have letters of such a "
            "script. The tokenizer icu can split them.",
        )


PLAIN = Splitting()


def documents(
    texts: pa.Array | pa.ChunkedArray,
    splitting: Splitting,
    normalization: Normalization = Normalization.NFC_LOWER,
    room: WordRoom | None = None,
) -> tuple[Int64s | None, WordBuffers]:
    """Return the number of each document's text, int64[documents], and the tokens of each document.

    The numbers are None if each text is one document. The normalization spells words only; `left_to_spell` says what
    remains for other tokens. room: memory for words, if not new memory.

    Guarantees:
    - the documents of a text depend on that text alone;
    - no token is empty or contains white space, so tokens joined by spaces can be split again.
    """
    parents: Int64s | None = None
    if splitting.drop_urls:
        texts = call_arrow(pc.replace_substring_regex, validate_texts(texts), pattern=URL, replacement=" ")
    if splitting.sentences:
        parents, texts = sentences(validate_texts(texts))
    if splitting.tokenizer is Tokenizer.WORDS:
        return parents, word_buffers(texts, normalization, room)
    texts = validate_texts(texts)
    if splitting.tokenizer is Tokenizer.WHITESPACE:
        return parents, list_buffers(call_arrow(pc.split_pattern_regex, texts, pattern=WHITE_SPACE))
    return parents, call_buffers(texts, split_function(splitting))


def unwanted_tokens(offsets: Int64s, data: Uint8s, splitting: Splitting) -> Bools | None:
    """Return which tokens are dropped, bool[tokens], or None if none is: stop words, short ones and empty ones.

    Token i is data[offsets[i]:offsets[i + 1]], spelled as the release spells it; `normalize_texts` makes some empty.

    Guarantees: whether a token is dropped depends on that token and public values alone.
    """
    if not splitting.stop_words and splitting.min_length == 1:
        is_empty = offsets[1:] == offsets[:-1]
        return is_empty if is_empty.any() else None
    tokens = array_of(offsets, data, pa.large_string())
    stopped = pc.is_in(tokens, value_set=pa.array(splitting.stop_words, pa.large_string()))
    return np.asarray(pc.or_(stopped, pc.less(pc.utf8_length(tokens), splitting.min_length)))


def left_to_spell(splitting: Splitting, normalization: Normalization) -> Normalization:
    """Return the normalization that the tokens of `documents` still need: dpunion's own words need none."""
    return Normalization.EXACT if splitting.tokenizer is Tokenizer.WORDS else normalization


def check_splitting(splitting: Splitting) -> None:
    """Refuse, before any data is read, an unknown tokenizer or one whose library is not installed."""
    if splitting.locale != DEFAULT_LOCALE and splitting.tokenizer is not Tokenizer.ICU:
        raise BadParameter(
            "Only the tokenizer 'icu' uses a locale; the others treat all languages alike.",
            "Add tokenizer='icu' (--tokenizer icu), or leave 'locale' (--locale) out.",
        )
    chosen = splitting.tokenizer
    if chosen not in (Tokenizer.WORDS, Tokenizer.WHITESPACE) and not callable(split_function(splitting)):
        raise BadParameter(
            f"The 'tokenizer' parameter must be a name or a function. Got a {type(chosen).__name__} instead.",
            f"Choose one of {', '.join(choice.value for choice in Tokenizer)}, or pass a function of a text.",
        )


def split_function(splitting: Splitting) -> Any:
    """Return the function that splits one text, for tokenizers other than words and white space."""
    match splitting.tokenizer:
        case Tokenizer.TREEBANK:
            return treebank()
        case Tokenizer.ICU:
            return icu(splitting.locale)
        case other:
            return other


def validate_texts(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the texts as one valid large_string array, with empty texts for null ones."""
    if isinstance(texts, pa.ChunkedArray):
        texts = pa.concat_arrays(texts.chunks) if texts.num_chunks else pa.array([], pa.large_string())
    plain = call_arrow(lambda array: array.cast(pa.large_string()), texts)
    call_arrow(lambda array: array.validate(full=True), plain)
    return pc.fill_null(plain, "")


def call_arrow(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call a function of Arrow; replace its errors, which could quote the text."""
    with ForeignErrors(lambda _: damaged_text(NOT_TEXT), pa.ArrowException):
        return function(*args, **options)


def sentences(texts: pa.Array) -> tuple[Int64s, pa.Array]:
    """Return the number of each sentence's text, int64[sentences], and the sentences of all texts."""
    broken = call_arrow(pc.replace_substring_regex, texts, pattern=SENTENCE_END, replacement="\\1\\2\n")
    split_up = call_arrow(pc.split_pattern_regex, broken, pattern=LINE_BREAKS)
    return np.asarray(pc.list_parent_indices(split_up), np.int64), pc.list_flatten(split_up)


def list_buffers(lists: pa.Array) -> WordBuffers:
    """Return a list<string> array without nulls as bare arrays, without empty strings."""
    bounds = np.asarray(lists.offsets, np.int64)
    tokens = lists.values
    full = np.asarray(pc.greater(pc.binary_length(tokens), 0))
    before = offsets_of(full)
    tokens = tokens.filter(pa.array(full)).cast(pa.large_string())
    return WordBuffers(np.diff(before[bounds]), *string_buffers(tokens))


def call_buffers(texts: pa.Array, split_one: SplitFunction) -> WordBuffers:
    """Return the tokens that a Python function finds in each text; one text at a time becomes a Python string.

    Guarantees: an error of the function is reported by its type alone.
    """
    counts = np.zeros(len(texts), np.int64)
    pieces: list[bytes] = []
    for number, text in enumerate(texts):
        before = len(pieces)
        for token in call_tokenizer(split_one, text.as_py()):
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


def call_tokenizer(split_one: SplitFunction, text: str) -> list[str]:
    """Call the tokenizer on one text; hide what its errors say."""

    def withhold(error: Exception) -> BadParameter:
        return BadParameter(
            f"The tokenizer failed with {type(error).__name__}; its message is not shown, as it may contain "
            "private text.",
            "Try the tokenizer on public text first.",
        )

    with ForeignErrors(withhold, ours_too=True):
        return list(split_one(text))


@functools.cache
def treebank() -> SplitFunction:
    """Return NLTK's Penn Treebank tokenizer, which needs no downloaded model."""
    module = import_library("nltk.tokenize", "The tokenizer 'treebank' needs nltk", "'dpunion[text]'")
    tokenize: SplitFunction = module.NLTKWordTokenizer().tokenize
    return tokenize


@functools.cache
def icu(locale: str) -> SplitFunction:
    """Return ICU's word segmentation: the segments that contain a letter, a mark or a number."""
    module = import_library("icu4py.breakers", "The tokenizer 'icu' needs icu4py", "'dpunion[icu]'")

    def segments(text: str) -> Iterator[str]:
        for segment in module.WordBreaker(text, locale):
            if any(unicodedata.category(character)[0] in "LMN" for character in segment):
                yield from segment.split()

    return segments
