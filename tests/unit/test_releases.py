"""Release: what it says of itself, and files that read back as exactly its items."""

import csv
import io
import json
import os
import pickle
import stat

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpunion
from dpunion import buffers, files
from dpunion.algorithms import ALGORITHMS, algorithm_named
from dpunion.files import atomic_file
from dpunion.plans.ngrams import Ngrams, plan_ngrams
from dpunion.reading.known import read_known
from dpunion.releases import formats
from dpunion.releases.release import Release
from dpunion.releases.statements import NOT_PRIVATE, statement
from dpunion.sets.strings import StringTable
from making import ngram_release

# What breaks naive writers: formulas, quotes, separators, line ends, escapes, NUL, other planes, line separators.
NASTY = (
    '"', "'quoted", "+1", ",", "-1", "=cmd|' /C calc'!A0", "@sum", "x;=cmd|' /C calc'!A0", "x\t=1+1", "x;'=1", "＝1+1",
    "\u200b =1", "\x00", "\x1b[31mred", "\\n", "a\nb", "a\r\nb", "a\rb", "a\u2028b", "a\x85b",
    " leading and trailing ", "<script>alert(1)</script>", "e\u0301", "\ufeffbom", "中文", "😀",
)  # fmt: skip

PLAN = dpunion.plan("weighted-laplace", epsilon=1.0, delta=1e-6)


def made(items, *, guaranteed=True):
    return Release(tuple(sorted(items)), PLAN, guaranteed)


def unescaped(line):
    return line.encode("latin-1", "backslashreplace").decode("unicode_escape")


def csv_rows(raw, separator=","):
    return list(csv.reader(io.StringIO(raw.decode(), newline=""), delimiter=separator))


READERS = {
    ".parquet": lambda raw: pq.read_table(io.BytesIO(raw))["item"].to_pylist(),
    ".arrow": lambda raw: pa.ipc.open_file(io.BytesIO(raw)).read_all()["item"].to_pylist(),
    ".csv": lambda raw: [formats.text_of_csv(row[0]) for row in csv_rows(raw)[1:]],
    ".jsonl": lambda raw: [json.loads(line)["item"] for line in raw.decode().split("\n")[:-1]],
    ".txt": lambda raw: [unescaped(line) for line in raw.decode().split("\n")[:-1]],
    ".json": lambda raw: json.loads(raw)["items"],
}


def test_every_format_has_a_reader_here():
    assert set(READERS) == set(formats.WRITERS)


@pytest.mark.parametrize("suffix", formats.WRITERS)
@pytest.mark.parametrize("items", [(), ("one",), NASTY], ids=["none", "one", "nasty"])
def test_written_files_read_back_as_the_items(tmp_path, suffix, items):
    release = made(items)
    path = release.write(tmp_path / f"out{suffix}")
    assert READERS[suffix](path.read_bytes()) == list(release.items)


@pytest.mark.parametrize("suffix", formats.WRITERS)
@given(items=st.sets(st.text(min_size=1, alphabet=st.characters(exclude_categories=["Cs"])), max_size=6))
def test_any_items_survive_every_format(suffix, items):
    release = made(items)
    raw = io.BytesIO()
    formats.WRITERS[suffix](release, raw)
    assert READERS[suffix](raw.getvalue()) == list(release.items)


@pytest.mark.parametrize("suffix", formats.WRITERS)
def test_the_same_items_give_the_same_bytes(tmp_path, suffix):
    first = made(NASTY).write(tmp_path / f"a{suffix}").read_bytes()
    assert made(reversed(NASTY)).write(tmp_path / f"b{suffix}").read_bytes() == first


def test_csv_is_read_alike_by_another_reader(tmp_path):
    path = made(NASTY).write(tmp_path / "out.csv")
    options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    strings = pyarrow.csv.ConvertOptions(column_types={"item": pa.string()}, strings_can_be_null=False)
    table = pyarrow.csv.read_csv(path, parse_options=options, convert_options=strings)
    assert [formats.text_of_csv(cell) for cell in table["item"].to_pylist()] == sorted(NASTY)


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", "'=1", "＝1", "＋1", "－1", "＠x", " =1", "\u200b=1", "'"])
def test_no_csv_cell_starts_like_a_formula(text):
    assert formats.defuse_formula(text) == "'" + text


@pytest.mark.parametrize("separator", ";\t\r\n")
def test_what_follows_a_separator_is_a_cell_too(separator):
    assert formats.defuse_formula(f"x{separator}=1{separator}y") == f"x{separator}'=1{separator}y"
    assert formats.defuse_formula(f"{separator}=1") == f"{separator}'=1"


@pytest.mark.parametrize("text", ["", "word", "1+1", "a=b", "word'", "x;y", "a, =b", "\t"])
def test_harmless_cells_are_left_alone(text):
    assert formats.defuse_formula(text) == text


@pytest.mark.parametrize("text", ["'tis", "'", "o'clock", "x;'tis"])
def test_apostrophes_of_other_writers_stay(text):
    assert formats.restore_formula(text) == text


TRICKY = st.text(alphabet="=+-@＝＋－＠;,\t\r\n\"' a\u200b\ufeff", min_size=1, max_size=8)


def formulas(raw):
    """Return the cells that a spreadsheet would run, whichever separator it takes."""
    cells = [cell for separator in ",;\t" for row in csv_rows(raw, separator) for cell in row]
    visible = ["".join(character for character in cell if character.isprintable()).lstrip() for cell in cells]
    return [cell for cell in visible if cell and cell[0] in formats.SIGNS]


@given(st.sets(st.tuples(TRICKY, TRICKY), min_size=1, max_size=4))
def test_no_spreadsheet_finds_a_formula_whatever_separates_its_cells(rows):
    """Behind a line's first comma, quotes do not stop a reader that separates at semicolons."""
    raw = io.BytesIO()
    formats.WRITERS[".csv"](Release(tuple(sorted(rows)), PLAN, guaranteed=True, columns=("=a", "b;=c")), raw)
    assert formulas(raw.getvalue()) == []
    restored = [tuple(map(formats.restore_formula, row)) for row in csv_rows(raw.getvalue())]
    assert restored == [("=a", "b;=c"), *sorted(rows)]


def test_formulas_behind_quotes_are_found():
    """Power of the test above: quoting alone does not do."""
    assert formulas(b'a,"x;=1;y"\n') == ["=1"]


@given(items=st.sets(TRICKY, max_size=6))
def test_our_own_csv_is_a_known_list_of_the_same_items(tmp_path_factory, items):
    path = made(items).write(tmp_path_factory.mktemp("known") / "known.csv")
    assert read_known(path).items == tuple(sorted(items))


@pytest.mark.parametrize("texts", [[], [""], ["ab", "c"], ["häh", "", "日本"]])
@pytest.mark.parametrize("limit", [2**31 - 1, 2])
def test_texts_become_arrow_arrays_whatever_they_take(texts, limit, monkeypatch):
    monkeypatch.setattr(buffers, "INT32_MAX", limit)
    made = buffers.text_array(texts)
    made.validate(full=True)
    assert made.to_pylist() == texts
    assert made.type == (pa.large_string() if sum(len(text.encode()) for text in texts) > limit else pa.string())
    numbers = StringTable(np.uint64(1)).number(made)
    assert numbers.tolist() == list(range(len(texts)))


@given(texts=st.sets(TRICKY, max_size=4))
def test_ngrams_are_defused_and_read_back(tmp_path_factory, texts):
    rows = tuple((text, 1) for text in sorted(texts))
    release = ngram_release(rows, plan_ngrams(Ngrams(), dpunion.Budget(1.0, 1e-6)), (), guaranteed=True)
    raw = release.write(tmp_path_factory.mktemp("ngrams") / "a.csv").read_bytes()
    assert formulas(raw) == []
    assert [(formats.text_of_csv(text), int(length)) for text, length in csv_rows(raw)[1:]] == list(rows)


@given(st.text())
def test_escaped_lines_are_printable_and_unambiguous(text):
    escaped = formats.escape_controls(text)
    assert escaped.isprintable()
    assert len(escaped.splitlines()) <= 1
    assert unescaped(escaped) == text or any(0xD800 <= ord(c) < 0xE000 for c in text)


def test_the_most_items_of_one_group_change_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("dpunion.releases.formats.ROWS_PER_GROUP", 4)
    release = made(f"item{i:03}" for i in range(11))
    parquet, arrow = (release.write(tmp_path / f"out{suffix}") for suffix in (".parquet", ".arrow"))
    assert pq.ParquetFile(parquet).num_row_groups == 3
    assert READERS[".parquet"](parquet.read_bytes()) == list(release.items)
    assert READERS[".arrow"](arrow.read_bytes()) == list(release.items)


@pytest.mark.parametrize("guaranteed", [True, False])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_json_gives_the_release_back(name, guaranteed):
    release = Release(tuple(sorted(NASTY)), dpunion.plan(algorithm_named(name), epsilon=1.0, delta=1e-6), guaranteed)
    again = Release.from_json(release.to_json())
    assert again == release
    assert again.statement == release.statement


def broken(**changes):
    values = made(["a"]).to_dict()
    for name, value in changes.items():
        if value is None:
            del values[name]
        else:
            values[name] = value
    return json.dumps(values)


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "null", "{}", broken(format="dpunion-release/0"), broken(items=None), broken(items="abc"),
        broken(items=[1]), broken(items={"a": 1}), broken(guaranteed=None), broken(guaranteed="yes"),
        broken(plan=None), broken(plan={}), broken(plan=[]), broken(plan={"algorithm": "greedy"}),
    ],
)  # fmt: skip
def test_what_is_no_release_is_refused(text):
    with pytest.raises(dpunion.BadParameter, match="This is not a"):
        Release.from_json(text)


def test_the_statement_names_the_promise_and_its_limits():
    plan = dpunion.plan(dpunion.WeightedGaussian(max_items_per_user=7), epsilon=0.5, delta=1e-7)
    text = Release((), plan, guaranteed=True).statement
    for part in ("(0.5, 1e-07)", "62.3 % sure", "1 in 10,000,000", "one user", "weighted-gaussian", "at most 7 items"):
        assert part in text
    for part in ("trusted", "time"):
        assert part in text
    assert NOT_PRIVATE not in text


def test_a_test_key_is_stamped_everywhere(tmp_path):
    released = dpunion.release([("u", "i")], epsilon=1.0, delta=1e-6, unsafe_test_key=0)
    assert released.guaranteed is False
    assert released.statement == NOT_PRIVATE
    assert "guaranteed=False" in repr(released)
    written = json.loads(released.write(tmp_path / "out.json").read_text())
    assert written["guaranteed"] is False
    assert written["statement"] == NOT_PRIVATE
    assert "nothing is guaranteed" in NOT_PRIVATE


def test_a_test_release_with_notes_promises_nothing():
    noted = Release(("a",), PLAN, guaranteed=False, notes=("It was charged.",))
    assert noted.statement == NOT_PRIVATE


def test_the_first_format_is_still_read():
    """It said "private", beside files called private that are none of the release."""
    for guaranteed in (True, False):
        release = made(["a", "b"], guaranteed=guaranteed)
        values = release.to_dict() | {"format": "dpunion-release/1", "private": guaranteed}
        del values["guaranteed"]
        assert Release.from_json(json.dumps(values)) == release
        del values["private"]
        with pytest.raises(dpunion.BadParameter, match="not a release"):
            Release.from_json(json.dumps(values))


def test_a_fresh_key_is_not_stamped():
    released = dpunion.release([("u", "i")], epsilon=1.0, delta=1e-6)
    assert released.guaranteed is True
    assert "NOT PRIVATE" not in released.statement


def test_a_release_is_a_value():
    release = made(["b", "a"])
    assert len(release) == 2
    assert pickle.loads(pickle.dumps(release)) == release
    with pytest.raises(AttributeError):
        release.items = ()


def test_a_large_release_has_a_short_repr():
    assert len(repr(made(str(i) for i in range(10_000)))) < 100


def test_the_file_gets_the_usual_mode_and_no_other_file_is_left(tmp_path):
    before = os.umask(0o027)
    try:
        path = made(["a"]).write(tmp_path / "out.txt")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("has_nameless", [True, False])
def test_while_written_the_file_is_private_and_not_yet_there(tmp_path, monkeypatch, has_nameless):
    if not has_nameless:
        monkeypatch.setattr(files, "_nameless", lambda _folder: None)
    target = tmp_path / "out.txt"
    with atomic_file(target) as file:
        file.write(b"x")
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
        assert [path.suffix for path in tmp_path.iterdir()] == [] if has_nameless else [".tmp"]
        assert not target.exists()
    assert target.read_bytes() == b"x"
    assert list(tmp_path.iterdir()) == [target]


def test_suffixes_are_read_without_regard_to_case(tmp_path):
    assert made(["a"]).write(tmp_path / "out.CSV").read_text() == "item\na\n"


def test_write_overwrites_only_on_request(tmp_path):
    path = made(["a"]).write(tmp_path / "out.txt")
    with pytest.raises(dpunion.CannotWrite, match="exists already"):
        made(["b"]).write(path)
    assert path.read_text() == "a\n"
    assert made(["b"]).write(path, overwrite=True).read_text() == "b\n"


def test_a_folder_is_never_overwritten(tmp_path):
    (tmp_path / "out.txt").mkdir()
    with pytest.raises(dpunion.CannotWrite, match="is a folder"):
        formats.check_target(tmp_path / "out.txt", overwrite=True)


def test_a_name_that_is_too_long_is_refused_early(tmp_path):
    with pytest.raises(dpunion.CannotWrite, match="too long"):
        formats.check_target(tmp_path / ("x" * 300 + ".csv"), overwrite=False)


def test_the_longest_name_can_be_written(tmp_path):
    longest = os.pathconf(tmp_path, "PC_NAME_MAX")
    path = made(["a"]).write(tmp_path / ("x" * (longest - 4) + ".txt"))
    assert path.read_text() == "a\n"


def test_a_failing_writer_leaves_the_old_file(tmp_path):
    target = tmp_path / "out.txt"
    target.write_text("old")

    def fail():
        with atomic_file(target) as file:
            file.write(b"new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_items_are_sorted_by_their_bytes():
    items = ["Z", "a", "é", "中", "😀", "\uffff"]
    released = dpunion.release({f"user{i}": items for i in range(100)}, epsilon=5.0, delta=1e-3, unsafe_test_key=1)
    assert list(released.items) == sorted(items, key=lambda item: item.encode())


def test_the_statement_says_who_is_protected_and_what_is_not_covered():
    text = statement(PLAN, guaranteed=True)
    assert "all rows of one person" in text
    assert "does not cover running time or memory use" in text
