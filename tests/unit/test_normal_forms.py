"""NFC in linear time: the same as Python's, for hostile texts too."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
import unicodedata
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpunion.kernels.words import LONG, LONG_RUN, survey, tables
from dpunion.text import tokens
from dpunion.text.normal_forms import combining_classes, long_runs, nfc, with_sorted_marks
from running import PATIENCE
from twins.words import reference_words

# Marks of many classes, what consists of two of them or of a letter and marks, letters that join, and none of these.
MARKS = "\u0301\u0323\u0327\u0345\u0344\u0338\u3099\u05b0\u0f71\u0f73\u0f81\u1dce\U0001d165\U0001e8d0"
OTHERS = "aAe ι\u1f82\u1e69é\u0f40ガカ가각漢\U0001d15e\u0378\ufb1d🙂"
runs = st.lists(st.text(st.sampled_from(MARKS), max_size=3 * LONG_RUN) | st.text(st.sampled_from(OTHERS), max_size=3))
texts = runs.map("".join)

HOSTILE = {
    "two classes": "\u0301\u0323" * 250_000,
    "behind a letter": "e" + "\u0327\u0301\u0323" * 150_000,
    "pairs of marks": "\u0f73" * 250_000,
    "pairs in one": "\u0344\u0323" * 200_000,
    "beyond the first plane": "\U0001d165\U0001d16d\U0001d17b" * 80_000,
}


@settings(max_examples=300, deadline=None)
@given(texts)
def test_it_is_nfc(text: str) -> None:
    wanted = unicodedata.normalize("NFC", text)
    assert nfc(text) == wanted
    assert unicodedata.normalize("NFC", with_sorted_marks(text)) == wanted


@settings(max_examples=100, deadline=None)
@given(texts)
def test_words_with_long_runs_of_marks_are_those_of_the_twin(text: str) -> None:
    assert tokens.words(pa.array([text], pa.string())).to_pylist() == [reference_words(text)]


@pytest.mark.parametrize("mark", ["\u0301", "\u0f73", "\u0344", "\U0001d165"])
def test_long_runs_are_flagged(mark: str) -> None:
    for count, is_long in ((LONG_RUN, False), (LONG_RUN + 1, True)):
        data = f"é{mark * count}漢e{mark * LONG_RUN}".encode()
        flags = np.zeros(1, np.uint8)
        survey(np.frombuffer(data, np.uint8), np.zeros(1, np.int64), np.array([len(data)]), tables().classes, flags)
        assert bool(flags[0] & LONG) == is_long


def test_every_run_of_marks_is_found() -> None:
    """Every character of which two in a row could have to change places is looked for."""
    alone = (chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    for char in alone:
        if any(map(unicodedata.combining, unicodedata.normalize("NFD", char)[:1])):
            assert long_runs().search(char * (LONG_RUN + 1)), hex(ord(char))
    assert np.count_nonzero(combining_classes()) > 800
    for ordinary in ("a" * 99, "漢字" * 99, "한국어 " * 99, "e\u0301" * 99, "क्षि" * 99, "שָׁלוֹם " * 99):
        assert not long_runs().search(ordinary)


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
def test_no_tokenizer_hangs_on_a_hostile_text(case: str) -> None:
    """Sorting these runs by swapping neighbours takes a quarter of an hour each."""
    ran = subprocess.run(
        [sys.executable, "-c", SPLIT, "words", "whitespace", "treebank", "icu"],
        input=HOSTILE[case].encode(),
        capture_output=True,
        check=False,
        timeout=PATIENCE,
    )
    assert ran.stdout == b"done\n", ran.stderr


@settings(max_examples=150, deadline=None)
@given(
    st.lists(texts | st.text(st.sampled_from(MARKS[:4] + OTHERS + "İΣσ'"), max_size=60), max_size=4), st.integers(1, 40)
)
def test_texts_that_are_mended_in_pieces_have_the_same_words(many: list[str], size: int) -> None:
    array = pa.array(many, pa.string())
    whole = tokens.words(array)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "MENDED_AT_ONCE", size)
        patch.setattr(tokens, "WINDOW_BYTES", 4 + size % 7)
        assert tokens.words(array).equals(whole)


@pytest.mark.parametrize("text", ["plain words, one e\u0301 ", "漢字かな交じり文か\u3099"])
def test_mending_a_long_text_takes_a_few_times_its_size(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    array = pa.array([text * 100_000])
    peaks: list[int] = []
    kernel = tokens.split_words

    def split(*arguments: Any) -> Any:
        peaks.append(tracemalloc.get_traced_memory()[1])
        return kernel(*arguments)

    monkeypatch.setattr(tokens, "MENDED_AT_ONCE", 1 << 16)
    monkeypatch.setattr(tokens, "split_words", split)
    tokens.words(pa.array([text * 100]))  # loads what is loaded when first used
    tracemalloc.start()
    try:
        tokens.words(array)
    finally:
        tracemalloc.stop()
    assert peaks[-1] < 3 * array.nbytes
