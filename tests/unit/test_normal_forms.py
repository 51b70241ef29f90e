"""Long runs of combining marks: they end words, items that have one are left out, and nothing hangs on them."""

import tracemalloc
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpunion
from dpunion.buffers import string_buffers, text_array
from dpunion.kernels.words import LONG, MOST_MARKS, survey, tables
from dpunion.text import words
from dpunion.text.words import Normalization, find_long_runs, normalize_texts
from running import run_python
from twins.words import reference_words, stream_safe

# Marks of many classes, what consists of two of them or of a letter and marks, letters that join, and none of these.
MARKS = "\u0301\u0323\u0327\u0345\u0344\u0338\u3099\u05b0\u0f71\u0f73\u0f81\u1dce\U0001d165\U0001e8d0"
OTHERS = "aAe ι\u1f82\u1e69é\u0f40ガカ가각漢\U0001d15e\u0378\ufb1d🙂"
runs = st.lists(st.text(st.sampled_from(MARKS), max_size=2 * MOST_MARKS) | st.text(st.sampled_from(OTHERS), max_size=3))
texts = runs.map("".join)

HOSTILE = {
    "two classes": "\u0301\u0323" * 250_000,
    "behind a letter": "e" + "\u0327\u0301\u0323" * 150_000,
    "pairs of marks": "\u0f73" * 250_000,
    "pairs in one": "\u0344\u0323" * 200_000,
    "beyond the first plane": "\U0001d165\U0001d16d\U0001d17b" * 80_000,
}


def spelled(items, how=Normalization.NFC):
    return normalize_texts(*string_buffers(text_array(items)), how)


@settings(max_examples=300, deadline=None)
@given(st.lists(texts, max_size=4))
def test_items_with_a_long_run_are_left_out_and_the_others_are_in_nfc(items):
    safe = [" " not in stream_safe(item.replace(" ", "_")) for item in items]
    assert spelled(items) == [
        unicodedata.normalize("NFC", item) if is_safe else "" for item, is_safe in zip(items, safe, strict=True)
    ]
    assert spelled(items, Normalization.EXACT) == items


@settings(max_examples=100, deadline=None)
@given(texts)
def test_words_with_long_runs_of_marks_are_those_of_the_twin(text):
    for how in Normalization:
        assert words.words(pa.array([text], pa.string()), how).to_pylist() == [reference_words(text, how.value)]


@settings(max_examples=100, deadline=None)
@given(texts)
def test_equivalent_spellings_have_the_same_words(text):
    known = words.blank_unassigned(text)
    spellings = pa.array([known, *(unicodedata.normalize(form, known) for form in ("NFC", "NFD"))])
    first, *others = words.words(spellings).to_pylist()
    assert others == [first, first]


@pytest.mark.parametrize("letter", ["e", "é", "\u1f82", "漢"])
@pytest.mark.parametrize("mark", ["\u0323", "\u0344", "\u0f73"])
def test_thirty_marks_are_enough(letter, mark):
    marks = len(unicodedata.normalize("NFD", mark))
    room = MOST_MARKS - (len(unicodedata.normalize("NFD", letter)) - 1)
    fits, too_long = letter + mark * (room // marks), letter + mark * (room // marks + 1)
    assert spelled([fits, too_long]) == [unicodedata.normalize("NFC", fits), ""]
    base = unicodedata.normalize("NFD", letter)[0].lower()
    both = pa.array([f"x{fits}x", f"x{too_long}x"])
    one, two = words.words(both).to_pylist()
    assert (len(one), two) == (1, [f"x{base}", "x"])


@pytest.mark.parametrize("mark", ["\u0301", "\u0f73", "\u0344", "\U0001d165", "\u0378"])
def test_long_runs_are_flagged(mark):
    for count, is_long in ((13, False), (14, True)):
        data = f"é{mark * count}漢e{mark * 13}".encode()
        flags = np.zeros(1, np.uint8)
        survey(np.frombuffer(data, np.uint8), np.zeros(1, np.int64), np.array([len(data)]), tables().classes, flags)
        assert bool(flags[0] & LONG) == is_long


def test_every_run_of_marks_is_found():
    """Every character that decomposes to marks is counted, and ordinary text is never cut."""
    for char in map(chr, (*range(0xD800), *range(0xE000, 0x110000))):
        decomposed = unicodedata.normalize("NFD", char)
        marks = [unicodedata.combining(one) > 0 for one in decomposed]
        behind = marks[::-1].index(False) if False in marks else 0
        assert behind <= 3, hex(ord(char))
        if marks[0]:
            assert len(marks) <= 2, hex(ord(char))
            assert tables().classes[ord(char)] & 0b1110, hex(ord(char))  # NONSTARTER, UNSTABLE or UNASSIGNED
    for ordinary in ("a" * 99, "漢字" * 99, "한국어 " * 99, "e\u0301" * 99, "क्षि" * 99, "שָׁלוֹם " * 99):
        assert find_long_runs(ordinary)[1] == []


@pytest.mark.parametrize("what", [{"item": None}, {"item": dpunion.Words(tokenizer="whitespace")}])
def test_nobody_releases_an_item_with_a_long_run(what):
    hostile = "e" + "\u0301\u0323" * 20
    people = {f"u{number}": ["plain", hostile] for number in range(200)}
    pairs = [(who, item) for who, items in people.items() for item in items]
    made = dpunion.release(pairs, epsilon=5.0, delta=1e-3, unsafe_test_key=1, **what)
    assert list(made.items) == ["plain"]
    assert dpunion.tokenize(f"plain {hostile}", tokenizer="whitespace") == ["plain"]
    exact = dpunion.release(pairs, epsilon=5.0, delta=1e-3, unsafe_test_key=1, normalize="exact", **what)
    assert list(exact.items) == [hostile, "plain"]


SPLIT = """
import sys
import pyarrow as pa
from dpunion.randomness import RunKey
from dpunion.sets.encoding import Normalization
from dpunion.sets.streams import read_tokens
from dpunion.text.splitting import Splitting, Tokenizer
text = pa.array([sys.stdin.buffer.read().decode()])
for name in sys.argv[1:]:
    read_tokens([(pa.array(["u"]), text)], RunKey.for_tests(1), Splitting(Tokenizer(name)), Normalization.NFC_LOWER)
print("done")
"""


@pytest.mark.full
@pytest.mark.parametrize("case", HOSTILE)
def test_no_tokenizer_hangs_on_a_hostile_text(case):
    """Sorting these runs by swapping neighbours takes a quarter of an hour each."""
    ran = run_python(SPLIT, "words", "whitespace", "treebank", "icu", input=HOSTILE[case].encode(), text=False)
    assert ran.stdout == b"done\n", ran.stderr


@settings(max_examples=150, deadline=None)
@given(
    st.lists(texts | st.text(st.sampled_from(MARKS[:4] + OTHERS + "İΣσ'"), max_size=60), max_size=4), st.integers(1, 40)
)
def test_texts_that_are_normalized_in_pieces_have_the_same_words(many, size):
    array = pa.array(many, pa.string())
    whole = words.words(array)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "NORMALIZED_AT_ONCE", size)
        assert words.words(array).equals(whole)


@pytest.mark.parametrize("text", ["plain words, one e\u0301 ", "漢字かな交じり文か\u3099\n"])
def test_mending_a_long_text_takes_a_few_times_its_size(text, monkeypatch):
    array = pa.array([text * 100_000])
    peaks = []
    kernel = words.split_words

    def split(*arguments):
        peaks.append(tracemalloc.get_traced_memory()[1])
        return kernel(*arguments)

    monkeypatch.setattr(words, "NORMALIZED_AT_ONCE", 1 << 16)
    monkeypatch.setattr(words, "split_words", split)
    words.words(pa.array([text * 100]))  # loads what is loaded when first used
    tracemalloc.start()
    try:
        words.words(array)
    finally:
        tracemalloc.stop()
    assert peaks[-1] < 3 * array.nbytes
