"""Release: what it says of itself, and files that read back as exactly its items."""

import csv
import io
import json
import os
import pickle
import stat

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpunion
from dpunion.algorithms import ALGORITHMS
from dpunion.releases import (
    NOT_PRIVATE,
    WRITERS,
    Release,
    atomic_file,
    check_target,
    defuse_formula,
    escape_controls,
)

# What breaks naive writers: formulas, quotes, separators, line ends, escapes, NUL, other planes, line separators.
NASTY = (
    '"',
    "'quoted",
    "+1",
    ",",
    "-1",
    "=cmd|' /C calc'!A0",
    "@sum",
    "\x00",
    "\x1b[31mred",
    "\\n",
    "a\nb",
    "a\r\nb",
    "a\rb",
    "a\u2028b",
    "a\x85b",
    " leading and trailing ",
    "<script>alert(1)</script>",
    "e\u0301",
    "\ufeffbom",
    "中文",
    "😀",
)

PLAN = dpunion.plan("weighted-laplace", epsilon=1.0, delta=1e-6)


def made(items, *, private=True):
    return Release(tuple(sorted(items)), PLAN, private)


def unescaped(line):
    return line.encode("latin-1", "backslashreplace").decode("unicode_escape")


def undefused(cell):
    return cell.removeprefix("'")


READERS = {
    ".parquet": lambda raw: pq.read_table(io.BytesIO(raw))["item"].to_pylist(),
    ".arrow": lambda raw: pa.ipc.open_file(io.BytesIO(raw)).read_all()["item"].to_pylist(),
    ".csv": lambda raw: [undefused(row[0]) for row in list(csv.reader(io.StringIO(raw.decode(), newline="")))[1:]],
    ".jsonl": lambda raw: [json.loads(line)["item"] for line in raw.decode().split("\n")[:-1]],
    ".txt": lambda raw: [unescaped(line) for line in raw.decode().split("\n")[:-1]],
    ".json": lambda raw: json.loads(raw)["items"],
}


def test_every_format_has_a_reader_here():
    assert set(READERS) == set(WRITERS)


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("items", [(), ("one",), NASTY], ids=["none", "one", "nasty"])
def test_written_files_read_back_as_the_items(tmp_path, suffix, items):
    release = made(items)
    path = release.write(tmp_path / f"out{suffix}")
    assert READERS[suffix](path.read_bytes()) == list(release.items)


@pytest.mark.parametrize("suffix", WRITERS)
@given(items=st.sets(st.text(min_size=1, alphabet=st.characters(exclude_categories=["Cs"])), max_size=6))
def test_any_items_survive_every_format(suffix, items):
    release = made(items)
    raw = io.BytesIO()
    WRITERS[suffix](release, raw)
    assert READERS[suffix](raw.getvalue()) == list(release.items)


@pytest.mark.parametrize("suffix", WRITERS)
def test_the_same_items_give_the_same_bytes(tmp_path, suffix):
    first = made(NASTY).write(tmp_path / f"a{suffix}").read_bytes()
    assert made(reversed(NASTY)).write(tmp_path / f"b{suffix}").read_bytes() == first


def test_csv_is_read_alike_by_another_reader(tmp_path):
    path = made(NASTY).write(tmp_path / "out.csv")
    options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    strings = pyarrow.csv.ConvertOptions(column_types={"item": pa.string()}, strings_can_be_null=False)
    table = pyarrow.csv.read_csv(path, parse_options=options, convert_options=strings)
    assert [undefused(cell) for cell in table["item"].to_pylist()] == sorted(NASTY)


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1", "'=1"])
def test_no_csv_cell_starts_like_a_formula(text):
    assert defuse_formula(text) == "'" + text


@pytest.mark.parametrize("text", ["", "word", "1+1", "a=b", "word'"])
def test_harmless_cells_are_left_alone(text):
    assert defuse_formula(text) == text


@given(st.text())
def test_escaped_lines_are_printable_and_unambiguous(text):
    escaped = escape_controls(text)
    assert escaped.isprintable()
    assert len(escaped.splitlines()) <= 1
    assert unescaped(escaped) == text or any(0xD800 <= ord(c) < 0xE000 for c in text)


def test_the_most_items_of_one_group_change_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("dpunion.releases.ROWS_PER_GROUP", 4)
    release = made(f"item{i:03}" for i in range(11))
    parquet, arrow = (release.write(tmp_path / f"out{suffix}") for suffix in (".parquet", ".arrow"))
    assert pq.ParquetFile(parquet).num_row_groups == 3
    assert READERS[".parquet"](parquet.read_bytes()) == list(release.items)
    assert READERS[".arrow"](arrow.read_bytes()) == list(release.items)


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_json_gives_the_release_back(name, private):
    release = Release(tuple(sorted(NASTY)), dpunion.plan(name, epsilon=1.0, delta=1e-6), private)
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
        "",
        "[]",
        "null",
        "{}",
        broken(format="dpunion-release/0"),
        broken(items=None),
        broken(items="abc"),
        broken(items=[1]),
        broken(items={"a": 1}),
        broken(private=None),
        broken(private="yes"),
        broken(plan=None),
        broken(plan={}),
        broken(plan=[]),
        broken(plan={"algorithm": "greedy"}),
    ],
)
def test_what_is_no_release_is_refused(text):
    with pytest.raises(dpunion.BadParameter, match="This is not a"):
        Release.from_json(text)


def test_the_statement_names_the_promise_and_its_limits():
    plan = dpunion.plan(dpunion.WeightedGaussian(max_items_per_user=7), epsilon=0.5, delta=1e-7)
    text = Release((), plan, private=True).statement
    for part in ("(0.5, 1e-07)", "e^0.5", "one user", "weighted-gaussian", "at most 7 items", "trusted", "time"):
        assert part in text
    assert NOT_PRIVATE not in text


def test_a_test_key_is_stamped_everywhere(tmp_path):
    released = dpunion.release([("u", "i")], epsilon=1.0, delta=1e-6, unsafe_test_key=0)
    assert released.private is False
    assert released.statement.startswith(NOT_PRIVATE)
    assert "private=False" in repr(released)
    written = json.loads(released.write(tmp_path / "out.json").read_text())
    assert written["private"] is False
    assert written["statement"].startswith("NOT PRIVATE")


def test_a_fresh_key_is_not_stamped():
    released = dpunion.release([("u", "i")], epsilon=1.0, delta=1e-6)
    assert released.private is True
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


def test_while_written_the_file_is_private_and_not_yet_there(tmp_path):
    target = tmp_path / "out.txt"
    with atomic_file(target) as file:
        file.write(b"x")
        (temporary,) = tmp_path.iterdir()
        assert temporary != target
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
    assert target.read_bytes() == b"x"


def test_suffixes_are_read_without_regard_to_case(tmp_path):
    assert made(["a"]).write(tmp_path / "out.CSV").read_text() == "item\na\n"


def test_overwriting_needs_leave(tmp_path):
    path = made(["a"]).write(tmp_path / "out.txt")
    with pytest.raises(dpunion.CannotWrite, match="exists already"):
        made(["b"]).write(path)
    assert path.read_text() == "a\n"
    assert made(["b"]).write(path, overwrite=True).read_text() == "b\n"


def test_a_folder_is_never_overwritten(tmp_path):
    (tmp_path / "out.txt").mkdir()
    with pytest.raises(dpunion.CannotWrite, match="is a folder"):
        check_target(tmp_path / "out.txt", overwrite=True)


def test_a_name_that_is_too_long_is_refused_early(tmp_path):
    with pytest.raises(dpunion.CannotWrite, match="too long"):
        check_target(tmp_path / ("x" * 300 + ".csv"), overwrite=False)


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
