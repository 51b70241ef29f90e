"""The tokeniser's words, pinned: a change here changes releases, on every engine at once."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest

from dpunion.text.words import word_buffers, words
from twins.words import reference_words

GOLDEN = [
    # lower case
    ("İstanbul IŞIK ısı", ["i\u0307stanbul", "işik", "ısı"]),
    ("ΑΣ", ["ας"]),
    ("Σ ΣΑΣ ΑΣΑ ασ", ["σ", "σας", "ασα", "ασ"]),
    ("ΑΣ'Β ΑΣ’ ΑΣ5 ΑΣ_Α 5Σ", ["ασ'β", "ας", "ας5", "ας_α", "5σ"]),
    ("ΟΔΟΣ.Α ΟΔΟΣ\u00adΑ", ["οδος", "α", "οδος", "α"]),
    ("Α\u0301Σ\u0301 ΑΣ\u0301Α", ["ά" + "ς\u0301", "ασ\u0301α"]),
    ("STRASSE Straße STRAẞE", ["strasse", "straße", "straße"]),
    ("Ǆ ǅ ǆ ﬁ Ⅷ \u212a \u212b \u2126", ["ǆ", "ǆ", "ǆ", "ﬁ", "ⅷ", "k", "å", "ω"]),
    ("Ⱥ Ⱦ ẞ", ["ⱥ", "ⱦ", "ß"]),
    ("J\u030cA H\u0331", ["ǰa", "ẖ"]),
    ("Ϊ\u0301 Ι\u0308\u0301", ["ΐ", "ΐ"]),
    ("\U0001e900 \U00010400 Ꭰ", ["\U0001e922", "\U00010428", "ꭰ"]),
    # normal form
    ("naïve café", ["naïve", "café"]),
    ("nai\u0308ve cafe\u0301", ["naïve", "café"]),
    ("NAI\u0308VE CAFE\u0301", ["naïve", "café"]),
    ("q\u0307\u0323 q\u0323\u0307", ["q\u0323\u0307", "q\u0323\u0307"]),
    ("a =\u0338 b", ["a", "b"]),
    ("\u1112\u1161\u11ab글 한글", ["한글", "한글"]),
    ("\u0958", ["\u0915\u093c"]),
    # scripts
    ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
    ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
    ("漢字かな交じり文。中文", ["漢字かな交じり文", "中文"]),
    ("עִבְרִית, العَرَبِيَّة!", ["עִבְרִית", "العَرَبِيَّة"]),
    ("ไทย ภาษา", ["ไทย", "ภาษา"]),
    # apostrophes
    ("don't don’t DON'T", ["don't", "don’t", "don't"]),
    ("'tis dogs' ''quoted'' rock'n'roll", ["tis", "dogs", "quoted", "rock'n'roll"]),
    ("don''t don'’t ' ’ '' a'", ["don", "t", "don", "t", "a"]),
    ("l’été qu'\u0301a", ["l’été", "qu'\u0301a"]),
    ("it‘s it`s it´s itʼs", ["it", "s", "it", "s", "it", "s", "itʼs"]),
    # everything else
    (
        "https://example.org/a_b?q=1&r=%20#x",
        ["https", "example", "org", "a_b", "q", "1", "r", "20", "x"],
    ),
    ("mail me@x.com", ["mail", "me", "x", "com"]),
    ("🙂 ok👍🏽 👩\u200d👩\u200d👧 ❤\ufe0f 1\ufe0f\u20e3", ["ok", "\ufe0f", "1\ufe0f\u20e3"]),
    ("\u0301 \u0301a x\u0301\u0302", ["\u0301", "\u0301a", "x\u0301\u0302"]),
    ("a\u200bb a\u200db a\ufeffb a\u00adb a\u2060b", ["a", "b"] * 5),
    ("snake_case __init__ _ 1_000", ["snake_case", "__init__", "_", "1_000"]),
    ("3.14 1,5 x² ½ ٣", ["3", "14", "1", "5", "x²", "½", "٣"]),
    ("a\0b \0", ["a", "b"]),
    ("tab\tline\nnbsp\u00a0ideographic\u3000end", ["tab", "line", "nbsp", "ideographic", "end"]),
    # not in Unicode 14.0 (a letter and a mark of 16.0, an emoji of 15.0, non-characters), private use
    ("a\ua7cbb x\U0001fae8y p\uffffq r\ue000s", ["a", "b", "x", "y", "p", "q", "r", "s"]),
    ("a\u0897\u0323b e\U00010ec3\u0301", ["a", "\u0323b", "e", "\u0301"]),
    ("", []),
    (" .,;- ", []),
]


@pytest.mark.parametrize(("text", "expected"), GOLDEN)
def test_golden_words_of_kernel_and_twin(text: str, expected: list[str]) -> None:
    assert words(pa.array([text])).to_pylist() == [expected]
    assert reference_words(text) == expected


def test_golden_texts_together_give_the_same_words_as_alone() -> None:
    assert words(pa.array([text for text, _ in GOLDEN])).to_pylist() == [expected for _, expected in GOLDEN]


def test_every_code_point_is_pinned() -> None:
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    buffers = word_buffers(pa.array([f"Α{chr(code)}Σ b{chr(code)}" for code in codes]))
    digest = hashlib.sha256(buffers.counts.tobytes())
    digest.update(buffers.offsets.tobytes())
    digest.update(buffers.data.tobytes())
    assert digest.hexdigest() == "c5fe327c8c87ac69ca9b505a5ef6e44393efd95b063ef3657498771c04b7525c"
