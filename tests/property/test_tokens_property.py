"""The tokeniser against its readable twin, against an independent regex engine, and its own promises."""

import unicodedata
from itertools import pairwise

import numpy as np
import pyarrow as pa
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from dpunion.kernels.words import UNASSIGNED, survey, tables
from dpunion.text.words import Normalization, word_buffers, words
from twins.words import class_of, reference_words

# Any character at all, and often the ones that make trouble together.
TROUBLE = "aAzZ09_ '’.İIıiΣσςΑαΆßẞǄǅJHΙ=<"
MARKS = "\u0300\u0301\u0307\u0308\u030c\u0316\u0323\u0327\u0331\u0338\u0345\u093c\u094d\u0bbe\u1161\u11ab"
MORE = "\u0915\u0bc6\u1112\u0958한\u212a\u2126ȺⱥⒶʰªⅧ\u00ad\u200d\u200b🙂漢\0\ufe0f\u0378\U0001e900"
texts = st.text(st.sampled_from(TROUBLE + MARKS + MORE) | st.characters(exclude_categories=["Cs"]), max_size=30)
PATTERN = regex.compile(r"[\p{L}\p{M}\p{N}_]+(?:['’][\p{L}\p{M}\p{N}_]+)*")


def split(*many, how=Normalization.NFC_LOWER):
    return words(pa.array(many, pa.string()), how).to_pylist()


@settings(max_examples=600, deadline=None)
@given(st.lists(texts, max_size=5), st.sampled_from(Normalization))
def test_kernel_equals_reference(many, how):
    assert split(*many, how=how) == [reference_words(text, how.value) for text in many]


@settings(max_examples=600, deadline=None)
@given(texts)
def test_equals_an_independent_regex_engine(text):
    known = "".join(" " if class_of(char) & UNASSIGNED else char for char in text)
    found = PATTERN.findall(unicodedata.normalize("NFC", known))
    assert split(text) == [[unicodedata.normalize("NFC", word.lower()) for word in found]]


@settings(max_examples=300, deadline=None)
@given(texts)
def test_words_of_words_are_the_same_words(text):
    for how in Normalization:
        (once,) = split(text, how=how)
        assert split(" ".join(once), how=how) == [once]
        assert split(*once, how=how) == [[word] for word in once]


@settings(max_examples=300, deadline=None)
@given(texts)
def test_canonically_equivalent_texts_have_the_same_words(text):
    # Characters newer than the table are left out: the running Python may know how to decompose them.
    known = "".join(char for char in text if not class_of(char) & UNASSIGNED)
    for how in (Normalization.NFC, Normalization.NFC_LOWER):
        apart, together = unicodedata.normalize("NFD", known), unicodedata.normalize("NFC", known)
        assert split(apart, how=how) == split(known, how=how) == split(together, how=how)


@settings(max_examples=200, deadline=None)
@given(texts)
def test_words_are_in_nfc(text):
    for how in (Normalization.NFC, Normalization.NFC_LOWER):
        assert all(unicodedata.is_normalized("NFC", word) for word in split(text, how=how)[0])


@settings(max_examples=300, deadline=None)
@given(texts)
def test_exact_words_stand_in_the_text_as_they_are(text):
    rest = text
    for word in split(text, how=Normalization.EXACT)[0]:
        assert word in rest
        rest = rest[rest.index(word) + len(word) :]


@settings(max_examples=200, deadline=None)
@given(st.lists(texts | st.none(), max_size=8), st.lists(st.integers(0, 8), max_size=4))
def test_words_do_not_depend_on_batching(many, cuts):
    bounds = sorted({0, len(many), *(min(cut, len(many)) for cut in cuts)})
    whole = pa.array(many, pa.string())
    chunks = [whole[a:b] for a, b in pairwise(bounds)]
    together = word_buffers(whole)
    for one, other in zip(together, word_buffers(pa.chunked_array(chunks, pa.string())), strict=True):
        assert np.array_equal(one, other)
    assert words(whole).to_pylist() == [split(text)[0] for text in many]


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=40) | texts.map(str.encode), st.integers(0, 40), st.integers(0, 255))
def test_survey_accepts_just_what_python_decodes(data, at, byte):
    for candidate in (data, data[:at] + bytes([byte]) + data[at + 1 :]):
        try:
            candidate.decode()
            valid = True
        except UnicodeDecodeError:
            valid = False
        bounds = np.array([0, len(candidate)], np.int64)
        flags = np.empty(1, np.uint8)
        buffer = np.frombuffer(candidate, np.uint8)
        assert survey(buffer, bounds[:1], bounds[1:].copy(), tables().classes, flags) == (-1 if valid else 0)
