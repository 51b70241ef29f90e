"""The tokeniser's edges: Arrow types, bad input, layout, and the frozen table."""

import doctest
import json
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dpunion.errors import BadParameter, DamagedSource, UnsupportedType
from dpunion.kernels.words import DOTTED_I, SIGMA, TABLE, WORD, strict_decode, tables
from dpunion.text import words as module
from dpunion.text.words import Normalization, WordRoom, word_buffers, words
from dpunion.threads import Threads

TEXTS = ["Don't panic", None, "", "NAI\u0308VE café İ", "ΑΣ 漢字", "x" * 40 + " É", "🙂"]
EXPECTED = [["don't", "panic"], [], [], ["naïve", "café", "i\u0307"], ["ας", "漢字"], ["x" * 40, "é"], []]
TYPES = [
    pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.large_string()),
]  # fmt: skip


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_all_text_types_give_the_same_words(kind):
    array = pa.array(TEXTS, pa.string()).cast(kind)
    result = words(array)
    assert result.type == pa.large_list(pa.large_string())
    result.validate(full=True)
    assert result.to_pylist() == EXPECTED
    assert words(array[2:6]).to_pylist() == EXPECTED[2:6]
    assert words(pa.chunked_array([array[:3], array[3:3], array[3:]])).to_pylist() == EXPECTED


@pytest.mark.parametrize("kind", [*TYPES, pa.null()], ids=str)
def test_null_and_empty_arrays_have_no_words(kind):
    assert words(pa.nulls(3, kind)).to_pylist() == [[], [], []]
    assert words(pa.nulls(0, kind)).to_pylist() == []
    assert words(pa.chunked_array([], kind)).to_pylist() == []


def test_dictionary_of_string_views():
    array = pa.DictionaryArray.from_arrays(pa.array([1, None, 0]), pa.array(["A b", "C"], pa.string_view()))
    assert words(array).to_pylist() == [["c"], [], ["a", "b"]]


def test_null_slots_may_hold_anything():
    data = pa.py_buffer(b"ok\xff\xfe")
    offsets = pa.py_buffer(np.array([0, 2, 4], np.int32))
    array = pa.StringArray.from_buffers(2, offsets, data, pa.py_buffer(b"\x01"))
    assert words(array).to_pylist() == [["ok"], []]


def test_mutable_buffers_are_read_like_others():
    offsets = pa.py_buffer(np.array([0, 3, 5], np.int64))
    array = pa.LargeStringArray.from_buffers(2, offsets, pa.py_buffer(bytearray("E\u0301É".encode())))
    assert words(array).to_pylist() == [["é"], ["é"]]


def test_the_docstring_example_is_true():
    assert doctest.testmod(module) == doctest.TestResults(failed=0, attempted=1)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (Normalization.NFC_LOWER, ["straße", "strasse", "strasse", "işik", "i\u0307ş", "ας", "don't", "café"]),
        (Normalization.NFC, ["Straße", "STRASSE", "Strasse", "IŞIK", "İş", "ΑΣ", "Don't", "Café"]),
        (Normalization.EXACT, ["Straße", "STRASSE", "Strasse", "IŞIK", "İş", "ΑΣ", "Don't", "Cafe\u0301"]),
    ],
)
def test_capitals_are_kept_when_asked(how, expected):
    text = "Straße STRASSE, Strasse: IŞIK İş ΑΣ Don't Cafe\u0301!"
    assert words(pa.array([text]), how).to_pylist() == [expected]


def test_word_buffers_layout():
    counts, offsets, data = word_buffers(pa.array(["One two", None, "É"]))
    assert (counts.dtype, offsets.dtype, data.dtype) == (np.int64, np.int64, np.uint8)
    assert counts.tolist() == [2, 0, 1]
    assert offsets.tolist() == [0, 3, 6, 8]
    assert data.tobytes() == "onetwoé".encode()


def test_word_buffers_never_print_words():
    assert repr(word_buffers(pa.array(["canary", "bird"]))) == "WordBuffers(2 texts)"


def test_words_are_the_same_in_a_room_that_is_used_again():
    room = WordRoom()
    for texts in (["one two three"] * 50, ["É" * 3000, "four"], [], TEXTS, ["a " * 5000], ["one two three"] * 60):
        array = pa.array(texts, pa.string())
        for there, alone in zip(word_buffers(array, room=room), word_buffers(array), strict=True):
            assert there.tolist() == alone.tolist()
    assert np.shares_memory(word_buffers(pa.array(["short"]), room=room).data, room.data)
    assert repr(room) == "WordRoom(<sensitive>)"


def test_memory_for_long_texts_is_not_kept(monkeypatch):
    monkeypatch.setattr(module, "MOST_KEPT", 1000)
    room = WordRoom()
    found = word_buffers(pa.array(["word " * 1000]), room=room)
    assert found.counts.tolist() == [1000]
    assert room.data.size == 0
    word_buffers(pa.array(["word"]), room=room)
    assert 0 < room.data.size <= 1000


def test_each_thread_has_a_room_of_its_own():
    room = WordRoom()
    here = word_buffers(pa.array(["mine alone"]), room=room)
    with Threads(1) as threads:
        there = threads.submit(word_buffers, pa.array(["another's words"]), room=room).result()
    assert not np.shares_memory(here.data, there.data)
    assert here.data.tobytes() == b"minealone"


BAD_UTF8 = {
    "stray continuation": b"\x80", "stray lead": b"\xc3", "overlong slash": b"\xc0\xaf",
    "overlong three": b"\xe0\x80\xaf", "overlong four": b"\xf0\x80\x80\xaf", "surrogate": b"\xed\xa0\x80",
    "above the last": b"\xf4\x90\x80\x80", "no such lead": b"\xf5\x80\x80\x80", "cut short": b"\xe2\x82",
    "broken inside": b"\xe2\x28\xa1", "latin-1": b"caf\xe9 noir",
}  # fmt: skip


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("bad", BAD_UTF8.values(), ids=BAD_UTF8)
def test_invalid_utf8_is_refused_without_its_text(bad, kind):
    array = unchecked([b"fine", b"canary " + bad, b"fine"], kind)
    with pytest.raises(DamagedSource) as caught:
        words(array)
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def unchecked(values, kind):
    """Return text of which Arrow has not seen that it is not UTF-8."""
    if pa.types.is_dictionary(kind):
        indices = pa.array(range(len(values)), kind.index_type)
        return pa.DictionaryArray.from_arrays(indices, unchecked(values, kind.value_type))
    if pa.types.is_string_view(kind):
        binary = pa.array(values, pa.binary_view())
        return pa.Array.from_buffers(kind, len(binary), binary.buffers())
    binary = pa.array(values, pa.large_binary() if pa.types.is_large_string(kind) else pa.binary())
    return pa.Array.from_buffers(kind, len(binary), binary.buffers())


def test_a_character_cut_by_the_end_of_its_text_is_refused_although_the_next_text_completes_it():
    array = unchecked(["é".encode()[:1], "é".encode()[1:]], pa.string())
    with pytest.raises(DamagedSource, match="Text 0 "):
        words(array)


def test_the_damaged_text_is_numbered_over_all_chunks():
    with pytest.raises(DamagedSource, match="Text 3 "):
        words(pa.chunked_array([pa.array(["a", "b"]), unchecked([b"c", b"\xff"], pa.string())]))


@pytest.mark.parametrize("offsets", [[0, 9, 3], [0, -5, 3], [2, 1, 3]])
def test_offsets_outside_the_data_are_refused(offsets):
    bounds = pa.py_buffer(np.array(offsets, np.int32))
    with pytest.raises(DamagedSource, match="offsets"):
        words(pa.StringArray.from_buffers(2, bounds, pa.py_buffer(b"abc")))


def test_dictionary_indices_outside_the_dictionary_are_refused():
    array = pa.DictionaryArray.from_arrays(pa.array([5], pa.int32()), pa.array(["a"]), safe=False)
    with pytest.raises(DamagedSource):
        words(array)


@pytest.mark.parametrize("array", [pa.array([1]), pa.array([b"a"]), pa.array([["a"]]), pa.array([1.5])])
def test_other_types_are_refused(array):
    with pytest.raises(UnsupportedType, match="must contain text"):
        words(array)


def test_python_lists_are_refused():
    with pytest.raises(BadParameter, match="Got list"):
        words(["text"])  # type: ignore[arg-type]


def test_room_grows_for_one_letter_words_and_for_lower_case_that_is_longer():
    texts = ["a " * 5000, "Ⱥ" * 5000, "Ⱥ " * 5000, "", "z"]
    expected = [["a"] * 5000, ["ⱥ" * 5000], ["ⱥ"] * 5000, [], ["z"]]
    assert words(pa.array(texts)).to_pylist() == expected


def test_lower_case_grows_by_half_at_most():
    codes = np.arange(0x110000, dtype=np.uint32)
    widths = 1 + (codes >= 0x80) + (codes >= 0x800) + (codes >= 0x10000)
    assert (widths[tables().lower] <= 1.5 * widths).all()


def test_groups_of_normalized_texts_change_nothing(monkeypatch):
    array = pa.array([f"E\u0301{n} \u0378J\u030c" for n in range(50)])
    whole = words(array)
    monkeypatch.setattr(module, "NORMALIZED_AT_ONCE", 25)
    assert words(array).equals(whole)
    assert whole[7].as_py() == ["é7", "ǰ"]


def test_strict_decode_agrees_with_python_on_every_code_point():
    for code in [*range(0x80, 0x3000), *range(0xD700, 0xD800), *range(0xE000, 0x10400), 0x10FFFF]:
        data = np.frombuffer(chr(code).encode(), np.uint8)
        assert strict_decode(data, 0, data.size) == (code, data.size)
        assert strict_decode(data, 0, data.size - 1) == (0, 0)


def test_table_matches_the_running_python_where_both_know_the_character():
    if unicodedata.unidata_version != json.loads(TABLE.read_text())["unicode"]:
        pytest.skip("the running Python has a later Unicode than the table")
    known = tables()
    for code in range(0x110000):
        char = chr(code)
        assert bool(known.classes[code] & WORD) == (unicodedata.category(char)[0] in "LMN" or char == "_")
        if code not in (DOTTED_I, SIGMA):
            assert chr(known.lower[code]) == char.lower()


def test_table_is_what_its_script_writes(tmp_path):
    if unicodedata.unidata_version != json.loads(TABLE.read_text())["unicode"]:
        pytest.skip("the script needs the Python whose Unicode is frozen")
    root = Path(__file__).parents[2]
    script = (root / "tools" / "make_unicode_words.py").read_text(encoding="utf-8")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "make.py").write_text(script, encoding="utf-8")
    written = tmp_path / "src" / "dpunion" / "data" / TABLE.name
    written.parent.mkdir(parents=True)
    subprocess.run([sys.executable, str(tmp_path / "tools" / "make.py")], check=True)
    assert written.read_bytes() == TABLE.read_bytes()
