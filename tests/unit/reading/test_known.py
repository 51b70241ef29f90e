"""Known lists: read strictly and before the charge, and spelled as the items are."""

import csv
import functools
import gzip
import io
from types import SimpleNamespace

import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpunion
from dpunion.errors import BadSource, SourceNotFound, UnknownColumn
from dpunion.ledger import Ledger
from dpunion.plans.counts import Counted, Estimate, Totals
from dpunion.reading import ValueKind, known
from dpunion.reading.blocks import read_blocks
from dpunion.reading.known import read_known
from dpunion.releases.formats import WRITERS
from dpunion.releases.release import Release, with_items
from dpunion.requests import Charge, Known, Words
from dpunion.sets.encoding import Normalization

ODD = [
    "'tis", "''twas", "=1+1", "'=1", "-x", "@y", "+z", "\ttab", "a\tb", "line\nbreak", "cr\r", "\\n", "C:\\new", "\\",
]  # fmt: skip
ODD += ['"', 'say "x", y', "é", "e\u0301", "\ufeffbom", "\x1f", "\u2028", "😀", " ", "\\ud800", "\\U00110000", "null"]


def released(items):
    plan = dpunion.plan(dpunion.Funnel(), epsilon=1.0, delta=1e-6)
    return Release(tuple(sorted(items)), plan, guaranteed=False)


def foreign_csv(items, column="item"):
    out = io.StringIO(newline="")
    csv.writer(out).writerows([[column], *([item] for item in items)])
    return out.getvalue()


# --- what dpunion wrote reads back exactly ------------------------------------------------------------------
def with_counts(items):
    """Return a release with numbers beside its items: none of them is an item."""
    numbers = tuple(range(len(items)))
    totals = Totals(Estimate(9, 1, 20), Estimate(0, 0, 5), 0.0, 1.0)
    return with_items(released([]), items, Counted(numbers, numbers, numbers, totals))


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("made", [released, with_counts])
def test_our_own_files_read_back_exactly(suffix, made, tmp_path):
    path = made(ODD).write(tmp_path / f"known{suffix}")
    assert set(read_known(path).items) == set(ODD) == set(read_known(made(ODD)).items)


@settings(max_examples=150, deadline=None)
@given(
    st.sets(st.text(st.sampled_from("'=-\\nxtu0 é\n\r\t\"\0") | st.characters(exclude_categories=["Cs"]), min_size=1))
)
def test_our_own_text_and_csv_read_back_exactly(tmp_path_factory, items):
    folder = tmp_path_factory.mktemp("known")
    for suffix in (".txt", ".csv"):
        assert set(read_known(released(list(items)).write(folder / f"k{suffix}")).items) == items


def test_a_csv_holds_no_nul_and_every_spelling_of_one_reads_back(tmp_path):
    items = ["\0", "a\0b", "x00", "\\x00", "\\\\x00", "\\\0", "\\\\\0x00", "\0=1", "=\\x00", "\\x000", "\\\\"]
    path = released(items).write(tmp_path / "known.csv")
    assert b"\0" not in path.read_bytes()
    assert sorted(read_known(path).items) == sorted(items)


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("counts", [False, True])
def test_released_ngrams_are_a_known_list(suffix, counts, tmp_path):
    pairs = [(f"user{user}", text) for user in range(900) for text in ("-x", "new york", "york")]
    ngrams = dpunion.release_ngrams(
        pairs, epsilon=9.0, delta=1e-3, longest=2, unsafe_test_key=1, item=Words(tokenizer="whitespace"), counts=counts
    )
    wanted = {row[0] for row in ngrams.rows()}
    assert "-x" in wanted
    assert set(read_known(ngrams.write(tmp_path / f"ngrams{suffix}")).items) == wanted == set(read_known(ngrams).items)


# --- lists of other programs --------------------------------------------------------------------------------
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_apostrophes_and_backslashes_of_others_stay(tmp_path, mark):
    others = ["'tis", "'n'", "=formula", "-dash", "plain", "'", "C:\\dir", "\\d+", "\\x4", "a\\"]
    (tmp_path / "k.csv").write_text(mark + foreign_csv(others))
    (tmp_path / "k.txt").write_text(mark + "\r\n".join(others))
    (tmp_path / "k.tsv").write_text(mark + "\n".join(["item", *others]))
    for name in ("k.csv", "k.txt", "k.tsv"):
        assert set(read_known(tmp_path / name).items) == set(others)


LINES = ["b\na\n", "b\na", "b\r\na\r", "\n\nb\n\na\n\n", "b\na\nb\n\r\na", "b\na\n\\x\nb"]


@pytest.mark.parametrize("text", LINES)
def test_lines_that_are_empty_or_repeated_do_not_count(tmp_path, text):
    (tmp_path / "k.txt").write_bytes(text.encode())
    assert read_known(tmp_path / "k.txt").texts.to_pylist() == ["b", "a"] + ["\\x"] * ("x" in text)


def test_lines_of_several_blocks_are_one_list(tmp_path, monkeypatch):
    lines = [f"é{number}" for number in range(1000)]
    (tmp_path / "k.txt").write_text("\n".join(lines))
    monkeypatch.setattr(known, "read_blocks", functools.partial(read_blocks, size=100))
    assert read_known(tmp_path / "k.txt").texts.to_pylist() == lines


def test_columns_are_found_by_name(tmp_path):
    table = pa.table({"length": [1, 2], "item": ["a", "b"]})
    pq.write_table(table, tmp_path / "k.parquet")
    pyarrow.feather.write_feather(table, tmp_path / "k.feather")
    (tmp_path / "k.csv").write_text("length,item\n1,a\n2,b\n")
    (tmp_path / "k.jsonl.gz").write_bytes(gzip.compress(b'{"length":1,"item":"a"}\n{"item":"b"}\n'))
    for name in ("k.parquet", "k.feather", "k.csv", "k.jsonl.gz"):
        assert read_known(tmp_path / name).items == ("a", "b")


def test_the_only_column_of_a_columnar_file_is_meant(tmp_path):
    pq.write_table(pa.table({"word": [7, 8]}), tmp_path / "k.parquet")
    assert read_known(tmp_path / "k.parquet").items == ("7", "8")
    pq.write_table(pa.table({"word": ["a"], "weight": [0.5]}), tmp_path / "two.parquet")
    (tmp_path / "k.csv").write_text("first\nsecond\n")
    for name in ("two.parquet", "k.csv"):
        with pytest.raises(UnknownColumn, match=r"no 'item' among the columns of known list.*needs a column 'item'"):
            read_known(tmp_path / name)


# --- bad lists ----------------------------------------------------------------------------------------------
BAD = {
    "k.json": '{"items":["a","\\ud800"]}', "deep.json": '{"items":' + "[" * 100_000 + "]" * 100_000 + "}",
    "twice.json": '{"items":["a"],"items":["b"]}', "number.json": '{"items":["a",1]}', "list.json": '["a"]',
    "mapping.json": '{"items":{"a":1}}', "letters.json": '{"items":"abc"}', "pairs.json": '{"ngrams":{"ab":1}}',
    "k.jsonl": '{"item":"\\ud800"}\n', "deep.jsonl": '{"item":"a","x":' + "[" * 100_000 + "]" * 100_000 + "}\n",
    "null.jsonl": '{"item":"a"}\n{"item":null}\n', "other.jsonl": '{"word":"a"}\n', "k.csv": 'item\na\n"b\nc\n',
    "stray.csv": 'item\na\nb"c\n', "ragged.csv": "item\na,b\n", "latin.csv": "item\né\n".encode("latin-1"),
    "latin.txt": "é\n".encode("latin-1"), "nul.txt": "a\0b\n", "utf16.txt": "a\nb\n".encode("utf-16"),
    "k.txt.gz": b"", "k.parquet": b"PAR1", "k.arrow": b"ARROW1", "k.xlsx": b"x",
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_list_costs_nothing(tmp_path, name):
    data = BAD[name]
    (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    refused_for_free(tmp_path, tmp_path / name)


@pytest.mark.parametrize(
    "known",
    [["a", "\ud800"], [1], 7, {"a": 1}, SimpleNamespace(items=(), stored="folder"), pd.DataFrame({"item": ["a"]})],
    ids=repr,
)
def test_a_bad_list_in_memory_costs_nothing(tmp_path, known):
    refused_for_free(tmp_path, known)


def refused_for_free(tmp_path, known):
    ledger = Ledger.open(tmp_path / "l.db", create=True)
    ledger.create_dataset("d", 1.0, 1e-5)
    before = ledger.overview()
    with pytest.raises(BadSource) as caught:
        dpunion.release([("u", "a")], epsilon=0.5, delta=1e-6, known=known, charge=Charge(tmp_path / "l.db", "d"))
    assert caught.value.remedy
    assert ledger.overview() == before
    ledger.close()


def test_a_list_that_is_not_there(tmp_path):
    with pytest.raises(SourceNotFound):
        read_known(tmp_path / "k.csv")
    (tmp_path / "k.csv").mkdir()
    with pytest.raises(BadSource, match="There is a folder"):
        read_known(tmp_path / "k.csv")


# --- spelling -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("normalize", "expected"),
    [
        (Normalization.EXACT, {"Cafe\u0301", "New York", "ΑΣ"}),
        (Normalization.NFC, {"Café", "New York", "ΑΣ"}),
        (Normalization.NFC_LOWER, {"café", "new york", "ας"}),
    ],
)
def test_the_list_is_spelled_as_the_items_are(normalize, expected):
    assert set(read_known(["Cafe\u0301", "New York", "ΑΣ"], normalization=normalize).items) == expected


def test_words_of_the_list_are_spelled_as_the_words_of_texts():
    listed = ["Cafe\u0301", "New York", "ΑΣ", "(really)"]
    known = read_known(listed, kind=ValueKind.TEXT, normalization=Normalization.NFC_LOWER)
    assert set(known.items) == {"café", "New York", "ας", "really"}
    cased = read_known(listed, kind=ValueKind.TEXT, normalization=Normalization.NFC)
    assert set(cased.items) == {"Café", "New York", "ΑΣ", "really"}


@pytest.mark.parametrize("what", [{"item": None, "normalize": "nfc-lower"}, {"text": None}])
def test_lower_cased_items_are_left_out_and_added(what):
    table = pa.table({"u": [f"user{i}" for i in range(500)] * 2, "v": ["Hello"] * 500 + ["WORLD"] * 500})
    options = {name: value or "v" for name, value in what.items()}
    budget = {"epsilon": 9.0, "delta": 1e-3, "user": "u", "unsafe_test_key": 1}
    assert dpunion.release(table, known=["HELLO"], **options, **budget).items == ("world",)
    both = dpunion.release(table, known=Known(["HELLO"], include=True), **options, **budget)
    assert both.items == ("hello", "world")


def test_the_hash_is_that_of_what_was_given(tmp_path):
    (tmp_path / "k.txt").write_text("B\na\n")
    known = [read_known(tmp_path / "k.txt", normalization=one).sha256 for one in Normalization]
    assert len(set(known)) == 1
    assert read_known(["B", "a"]).sha256 == read_known(["a", "B"], normalization=Normalization.NFC_LOWER).sha256
