"""Every source gives the same rows: formats, frames, objects; types, nulls, lists, lengths."""

import datetime as dt
import gzip
import json

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpunion.errors import BadParameter, BadSource, NullUsers, SourceNotFound, UnknownColumn, UnsupportedType
from dpunion.reading import ValueKind, cleaning
from dpunion.reading.cleaning import MAX_ITEM_BYTES, MAX_USER_BYTES, RowBatch
from dpunion.reading.parts import NullUserPolicy
from dpunion.reading.spelling import Column, Role, is_missing_possible
from opening import check_source, open_rows

IDS = ["001", "1", "1.0", " 1", "1e0", "1 ", "Ünï", "NULL", "NaN", "null", "a,b", 'q"q', "x\ty"]
TEXT_SUFFIXES = [".csv", ".tsv", ".jsonl", ".ndjson"]
COLUMNAR_SUFFIXES = [".parquet", ".pq", ".arrow", ".ipc", ".feather", ".arrows"]
SUFFIXES = [*COLUMNAR_SUFFIXES, *(t + z for t in TEXT_SUFFIXES for z in ("", ".gz", ".zst"))]


def read(source, user="u", value="v", kind=ValueKind.ITEM, **more):
    check_source(source, user=user, value=value, kind=kind)
    found = []
    with open_rows(source, user=user, value=value, kind=kind, **more) as batches:
        for users, values in batches:
            for array in (users, values):
                assert array.null_count == 0
                plain = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
                assert pa.types.is_string(plain) or pa.types.is_large_string(plain)
                if pa.types.is_dictionary(array.type):
                    assert array.type.index_type == pa.int32()
            assert len(users) == len(values) > 0
            found += zip(users.to_pylist(), values.to_pylist(), strict=True)
    return found


def quoted(text):
    return '"' + str("" if text is None else text).replace('"', '""') + '"'


def write(table, path):
    """Write a table in the format of the path's suffix."""
    inner = "".join(s for s in path.suffixes if s not in {".gz", ".zst"})
    if inner in {".parquet", ".pq"}:
        pq.write_table(table, path, row_group_size=4)
    elif inner in {".arrow", ".ipc", ".feather"}:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=3)
    elif inner == ".arrows":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=3)
    else:
        lines = table.to_pylist()
        if inner in {".csv", ".tsv"}:
            mark = "," if inner == ".csv" else "\t"
            head = mark.join(table.column_names)
            text = "\r\n".join([head, *(mark.join(quoted(v) for v in row.values()) for row in lines), ""])
        else:
            text = "\n".join(json.dumps(row, ensure_ascii=False) for row in lines)
        data = text.encode()
        if path.suffix == ".gz":
            data = gzip.compress(data)
        if path.suffix == ".zst":
            data = pa.compress(data, codec="zstd").to_pybytes()
        path.write_bytes(data)
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_ids_and_items_are_byte_exact_in_every_format(tmp_path, suffix):
    table = pa.table({"w": list(range(len(IDS))), "v": IDS[::-1], "u": IDS})
    path = write(table, tmp_path / f"data{suffix}")
    assert read(path) == list(zip(IDS, IDS[::-1], strict=True))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_empty_and_null_items_are_dropped_in_every_format(tmp_path, suffix):
    path = write(pa.table({"u": ["a", "b", "c"], "v": ["", None, "x"]}), tmp_path / f"d{suffix}")
    assert read(str(path)) == [("c", "x")]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("missing", [None, ""])
def test_missing_users_follow_the_policy_in_every_format(tmp_path, suffix, missing):
    path = write(pa.table({"u": ["a", missing, "c"], "v": ["x", "y", "z"]}), tmp_path / f"d{suffix}")
    with pytest.raises(NullUsers, match="--null-users drop"):
        read(path)
    assert read(path, null_users=NullUserPolicy.DROP) == [("a", "x"), ("c", "z")]


@pytest.mark.parametrize("suffix", [*COLUMNAR_SUFFIXES, ".jsonl"])
def test_lists_are_flattened_and_users_repeated(tmp_path, suffix):
    table = pa.table({"u": ["a", "b", "c", "d"], "v": [["x", "y"], None, [], ["z", None, ""]]})
    assert read(write(table, tmp_path / f"d{suffix}")) == [("a", "x"), ("a", "y"), ("d", "z")]


@pytest.mark.parametrize("suffix", [*COLUMNAR_SUFFIXES, ".jsonl"])
def test_integers_are_decimal(tmp_path, suffix):
    table = pa.table({"u": [1, -(2**63), 2**63 - 1], "v": [[1, 2], [0], [-7]]})
    expected = [("1", "1"), ("1", "2"), (str(-(2**63)), "0"), (str(2**63 - 1), "-7")]
    assert read(write(table, tmp_path / f"d{suffix}")) == expected


FRAMES = {
    "pyarrow": lambda t: t,
    "reader": lambda t: t.to_reader(max_chunksize=2),
    "polars": pl.from_arrow,
    "pandas": lambda t: t.to_pandas(),
    "duckdb": lambda t: duckdb.connect().from_arrow(t),
}


@pytest.mark.parametrize("frame", FRAMES)
def test_every_frame_gives_the_same_rows(frame):
    table = pa.table({"u": IDS, "z": [1.5] * len(IDS), "v": IDS[::-1]})
    assert read(FRAMES[frame](table)) == list(zip(IDS, IDS[::-1], strict=True))


@pytest.mark.parametrize("frame", ["pyarrow", "polars", "duckdb"])
def test_lists_and_missing_users_in_frames(frame):
    table = pa.table({"u": ["a", None, "c", "d"], "v": [["x", "y"], ["lost"], None, ["z"]]})
    with pytest.raises(NullUsers):
        read(FRAMES[frame](table))
    assert read(FRAMES[frame](table), null_users=NullUserPolicy.DROP) == [("a", "x"), ("a", "y"), ("d", "z")]


def test_categories_stay_dictionaries():
    frame = pl.DataFrame({"u": ["a", "b"], "v": ["x", "y"]}, schema={"u": pl.Categorical, "v": pl.Enum(["y", "x"])})
    assert read(frame) == [("a", "x"), ("b", "y")]
    table = pd.DataFrame({"u": ["a", "b", "a"], "v": ["x", "y", "y"]}, dtype="category")
    [(users, values)] = open_rows(table)
    assert pa.types.is_dictionary(users.type)
    assert values.to_pylist() == ["x", "y", "y"]


@pytest.mark.parametrize(
    ("texts", "limit", "expected"),
    [
        ([], 3, False), (["a", "abc"], 3, False), (["a", "abcd"], 3, True), (["a", "abcd"], None, False),
        (["a", ""], 3, True), (["a", None], 3, True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_possibly_missing_values_are_noticed(texts, limit, expected, kind):
    plain = pa.array(["", *texts, ""], kind).slice(1, len(texts))
    assert is_missing_possible(plain, limit) is expected
    indices = pa.array(range(len(texts)), pa.int32())
    assert is_missing_possible(pa.DictionaryArray.from_arrays(indices, plain), limit) is expected


def test_an_entry_without_a_value_is_noticed_whatever_bytes_it_hides():
    hiding = pa.StringArray.from_buffers(
        2, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"ab"), pa.py_buffer(b"\x01")
    )
    assert hiding.to_pylist() == ["a", None]
    assert is_missing_possible(pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), hiding), None)


def test_dictionaries_with_nulls_empties_and_unused_entries():
    entries = pa.array(["", "x", None, "y" * (MAX_ITEM_BYTES + 1), "unused"])
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3, None], pa.int8()), entries)
    table = pa.table({"u": ["a", "b", "c", "d", "e"], "v": values})
    assert read(table) == [("b", "x")]


def test_a_null_list_may_hide_elements():
    hidden = pa.ListArray.from_arrays([0, 1, 3, 4], ["x", "hidden", "hidden", "y"], mask=pa.array([False, True, False]))
    assert read(pa.table({"u": ["a", "b", "c"], "v": hidden})) == [("a", "x"), ("c", "y")]


@pytest.mark.parametrize(
    "type_",
    [pa.list_(pa.string()), pa.large_list(pa.large_string()), pa.list_(pa.string(), 2), pa.list_view(pa.string()),
     pa.list_(pa.string_view()), pa.list_(pa.dictionary(pa.int32(), pa.string()))],
    ids=str,
)  # fmt: skip
def test_every_kind_of_list(type_):
    values = pa.array([["x", "y"], None, ["z", "x"]], type_)
    table = pa.table({"u": ["a", "b", "c"], "v": values}).slice(0)
    assert read(table) == [("a", "x"), ("a", "y"), ("c", "z"), ("c", "x")]
    assert read(table.slice(2)) == [("c", "z"), ("c", "x")]


def test_long_lists_make_bounded_batches(monkeypatch):
    monkeypatch.setattr(cleaning, "ROWS_PER_BATCH", 7)
    lists = [[str(j) for j in range(i)] for i in range(20)]
    table = pa.table({"u": [str(i) for i in range(20)], "v": lists})
    batches = list(open_rows(table))
    assert max(len(users) for users, _ in batches) <= 7
    pairs = [p for us, vs in batches for p in zip(us.to_pylist(), vs.to_pylist(), strict=True)]
    assert pairs == [(str(i), x) for i, some in enumerate(lists) for x in some]


ITEM_TYPES = [
    (pa.array(["b"], pa.string()), "b"), (pa.array(["b"], pa.large_string()), "b"),
    (pa.array(["b"], pa.string_view()), "b"), (pa.array(["b"], pa.string()).dictionary_encode(), "b"),
    (pa.array([7], pa.int8()), "7"), (pa.array([2**64 - 1], pa.uint64()), "18446744073709551615"),
    (pa.array([7], pa.int64()).dictionary_encode(), "7"), (pa.array([True]), "true"), (pa.array([False]), "false"),
    (pa.array([dt.date(2024, 2, 29)], pa.date32()), "2024-02-29"),
    (pa.array([dt.date(2024, 2, 29)], pa.date64()), "2024-02-29"), (pa.compute.run_end_encode(pa.array(["b"])), "b"),
]  # fmt: skip
REFUSED_TYPES = [
    pa.array([1.0]), pa.array([1.0], pa.float16()), pa.array([dt.datetime(2024, 1, 1)]),  # noqa: DTZ001
    pa.array([1], pa.time32("s")), pa.array([1], pa.decimal128(5, 0)), pa.array([b"x"]), pa.array([{"a": 1}]),
    pa.array([b"x"], pa.binary(1)), pa.array([1], pa.duration("s")), pa.array([[[1]]]), pa.array([[1.0]]),
    pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
]  # fmt: skip


@pytest.mark.parametrize(("array", "text"), ITEM_TYPES, ids=lambda x: str(getattr(x, "type", x)))
def test_canonical_text_of_items(array, text):
    assert read(pa.table({"u": ["a"], "v": array})) == [("a", text)]
    assert Column("v", Role.ITEM).text(array, "the data").to_pylist() == [text]


@pytest.mark.parametrize("array", REFUSED_TYPES, ids=lambda a: str(a.type))
@pytest.mark.parametrize("role", ["user", "item", "text"])
def test_types_without_canonical_text_are_refused_before_reading(array, role):
    plain = pa.array(["x"])
    table = pa.table({"u": array if role == "user" else plain, "v": plain if role == "user" else array})
    kind = ValueKind.TEXT if role == "text" else ValueKind.ITEM
    with pytest.raises(UnsupportedType, match=r"Column '[uv]' of the Table has type \w+.* (Cast|cast|Name|Set)"):
        check_source(table, kind=kind)


def test_users_are_text_or_integers_and_texts_are_texts():
    for array, _ in ITEM_TYPES:
        values = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
        if pa.types.is_date(values) or pa.types.is_boolean(values):
            with pytest.raises(UnsupportedType):
                read(pa.table({"u": array, "v": ["x"]}))
        if pa.types.is_integer(values):
            with pytest.raises(UnsupportedType):
                read(pa.table({"u": ["a"], "v": array}), kind=ValueKind.TEXT)
    with pytest.raises(UnsupportedType, match=r"1 and 1\.0 would merge"):
        read(pd.DataFrame({"u": [1, None], "v": ["x", "y"]}))
    with pytest.raises(UnsupportedType, match="one user per row"):
        read(pa.table({"u": [["a"]], "v": ["x"]}))


def test_items_and_users_beyond_the_length_limits_are_dropped_or_refused():
    longest = "é" * (MAX_ITEM_BYTES // 2)
    table = pa.table({"u": ["a", "b"], "v": [longest, longest + "x"]})
    assert read(table) == [("a", longest)]
    assert read(table, kind=ValueKind.TEXT) == [("a", longest), ("b", longest + "x")]
    assert read(pa.table({"u": ["a" * MAX_USER_BYTES], "v": ["x"]})) == [("a" * MAX_USER_BYTES, "x")]
    with pytest.raises(BadSource, match="longer than 4096 bytes"):
        read(pa.table({"u": ["a" * (MAX_USER_BYTES + 1)], "v": ["x"]}))


def test_texts_are_never_dictionaries(tmp_path):
    table = pa.table({"u": ["a", "b"] * 9, "v": ["same text"] * 18})
    for source in (write(table, tmp_path / "t.parquet"), table.to_pandas().astype("category")):
        for users, texts in open_rows(source, kind=ValueKind.TEXT):
            assert not pa.types.is_dictionary(texts.type)
            assert texts.to_pylist() == ["same text"] * len(users)


def test_pairs_and_mappings_give_their_rows():
    pairs = [("a", 1), ("b", 2**70), ("c", None), ["d", np.int64(3)]]
    assert read(pairs, None, None) == [("a", "1"), ("b", str(2**70)), ("d", "3")]
    assert read(iter([(7, dt.date(2024, 2, 29))]), None, None) == [("7", "2024-02-29")]
    assert read({"a": ["x", "y"], "b": {"z"}, "c": [], "d": None}, None, None) == [("a", "x"), ("a", "y"), ("b", "z")]
    assert read({1: (True, False)}, None, None) == [("1", "true"), ("1", "false")]
    assert read([], None, None) == []
    assert read({}, None, None) == []


@pytest.mark.parametrize("source", [[(None, "x")], [("", "x")], {None: ["x"]}, {"": ["x"]}, {None: []}], ids=str)
def test_missing_users_in_objects(source):
    with pytest.raises(NullUsers):
        read(source, None, None)
    assert read(source, None, None, null_users=NullUserPolicy.DROP) == []


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ({"a": "xyz"}, UnsupportedType), ({"a": b"xyz"}, UnsupportedType), ({"a": 7}, UnsupportedType),
        ({"a": {"x": 1}}, UnsupportedType), ([("a", 1), ("b", "2")], UnsupportedType),
        ([("a", 1), ("b", True)], UnsupportedType), ([("a", 1.0)], UnsupportedType), ([(1.0, "x")], UnsupportedType),
        ([(True, "x")], UnsupportedType), ([("a", b"x")], UnsupportedType), ([(1, "x"), ("1", "x")], UnsupportedType),
        ([("a", dt.datetime(2024, 1, 1))], UnsupportedType), ([("a", ["x"])], UnsupportedType),  # noqa: DTZ001
        (iter(["ab", "cd"]), BadParameter), ([("a", "b", "c")], BadParameter), ([7], BadParameter), (7, BadParameter),
        ({"ab", "cd"}, BadParameter), ([("a", "\ud800")], BadSource),
    ],
)  # fmt: skip
def test_objects_that_are_no_pairs(source, error):
    with pytest.raises(error):
        read(source, None, None)


def test_mixed_kinds_over_batches_of_pairs():
    many = [("a", "x")] * 200_000
    with pytest.raises(UnsupportedType, match="Mixed types"):
        read(iter([*many, ("b", 7)]), None, None)


def test_column_names_belong_to_files_and_frames():
    with pytest.raises(BadParameter, match="no columns to name"):
        read([("a", "x")], "u", "v")
    with pytest.raises(BadParameter, match="need a user column"):
        read(pa.table({"u": ["a"], "v": ["x"]}), None, None)
    with pytest.raises(BadParameter, match="are the same"):
        read(pa.table({"u": ["a"], "v": ["x"]}), "u", "u")


def test_columns_are_found_by_position(tmp_path):
    table = pa.table({"v": ["x"], "u": ["a"]})
    for suffix in (".csv", ".parquet", ".arrow"):
        assert read(write(table, tmp_path / f"d{suffix}"), 1, 0) == [("a", "x")]
    assert read(table.to_pandas(), 1, 0) == [("a", "x")]
    with pytest.raises(BadParameter, match="no column positions"):
        read(write(table, tmp_path / "d.jsonl"), 1, 0)
    with pytest.raises(UnknownColumn, match="column number 2"):
        read(table, 1, 2)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_unknown_columns_are_named_with_the_nearest(tmp_path, suffix):
    path = write(pa.table({"author": ["a"], "word": ["x"]}), tmp_path / f"d{suffix}")
    listed = r"no column 'autor'.*'author', 'word'.*Did you mean 'author'\?"
    from_rows = r"no column 'autor' in [^,]* Check the spelling; names that may come from rows are not listed"
    with pytest.raises(UnknownColumn, match=from_rows if "json" in suffix else listed):
        check_source(path, user="autor", value="word")
    with pytest.raises(UnknownColumn, match="no column 'q'"):
        check_source(path, user="author", value="q")


def test_long_lists_of_columns_are_cut():
    table = pa.table({f"c{i}": ["x"] for i in range(50)})
    with pytest.raises(UnknownColumn, match="and 30 more") as caught:
        read(table)
    assert "'c19'" in str(caught.value)
    assert "'c20'" not in str(caught.value)


def test_files_of_a_list_and_of_a_pattern(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("b", "a", "c"):
        write(pa.table({"u": [name], "v": ["x"]}), tmp_path / f"{name}.csv")
    write(pa.table({"u": ["d"], "v": ["x"]}), tmp_path / "d.parquet")
    assert [u for u, _ in read("*.csv")] == ["a", "b", "c"]
    assert [u for u, _ in read(["c.csv", tmp_path / "d.parquet", "[a]*"])] == ["c", "d", "a"]
    write(pa.table({"u": ["e"], "v": ["x"]}), tmp_path / "odd[1].csv")
    assert read("odd[1].csv") == [("e", "x")]


def test_files_that_are_not_there(tmp_path):
    for source, words in [("nope.csv", "no file"), ("*.nope", "No file matches"), ("", "directory|no file")]:
        with pytest.raises(SourceNotFound, match=words):
            read(source and str(tmp_path / source))
    with pytest.raises(SourceNotFound, match="no Parquet file in directory"):
        read(tmp_path)
    for name in ("data.xlsx", "data", "data.gz", "data.parquet.gz", "data.json"):
        (tmp_path / name).write_bytes(b"u,v\n")
        with pytest.raises(BadSource, match=r"is not a known format.*\.parquet.*\.ndjson"):
            read(tmp_path / name)


def test_kinds_must_agree_between_files_before_any_row(tmp_path):
    paths = [
        write(pa.table({"u": ["a"], "v": ["x"]}), tmp_path / "1.csv"),
        write(pa.table({"u": [1], "v": ["x"]}), tmp_path / "2.parquet"),
    ]
    with pytest.raises(UnsupportedType, match=r"Mixed types: column 'u'.*'integer'.*2\.parquet.*'text'"):
        check_source(paths)
    with pytest.raises(UnsupportedType, match="Mixed types"):
        open_rows(paths[::-1])


def test_widths_of_one_kind_may_differ_between_files(tmp_path):
    write(pa.table({"u": pa.array([1], pa.int8()), "v": pa.array(["x"])}), tmp_path / "1.parquet")
    write(pa.table({"u": pa.array([1], pa.uint64()), "v": pa.array(["x"], pa.large_string())}), tmp_path / "2.arrow")
    write(pa.table({"u": [1], "v": pa.nulls(1)}), tmp_path / "3.arrow")
    assert read(str(tmp_path / "*")) == [("1", "x"), ("1", "x")]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".csv.gz", ".jsonl.zst", ".arrow", ".arrows"])
def test_progress_rises_to_one(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr("dpunion.reading.delimited.BLOCK_BYTES", 4096)
    table = pa.table({"u": [str(i) for i in range(5000)], "v": ["x"] * 5000})
    paths = [write(table, tmp_path / f"{i}{suffix}") for i in range(2)]
    seen = []
    assert len(read(paths, on_progress=seen.append)) == 10_000
    assert seen == sorted(seen)
    assert all(0 <= fraction <= 1 for fraction in seen)
    assert any(0 < fraction <= 0.5 for fraction in seen)
    assert seen[-1] == 1.0


def test_parquet_keeps_good_dictionaries_only(tmp_path):
    rows_ = 300_000
    table = pa.table({"u": [f"user number {i}" for i in range(rows_)], "v": ["x", "y", "z"] * (rows_ // 3)})
    pq.write_table(table, tmp_path / "d.parquet")
    [(users, values), *_] = open_rows(tmp_path / "d.parquet")
    assert users.type == pa.string()
    assert values.type == pa.dictionary(pa.int32(), pa.string())


def test_parquet_columns_with_awkward_names(tmp_path):
    inner = pa.array([{"b": "nested", "c": 1.0}] * 3)
    table = pa.table({"s": inner, "a": ["1", "2", "3"], "a.b": ["x", "y", "z"], "m": [[["q"]]] * 3})
    pq.write_table(table, tmp_path / "d.parquet")
    assert read(tmp_path / "d.parquet", "a", "a.b") == [("1", "x"), ("2", "y"), ("3", "z")]
    assert read(tmp_path / "d.parquet", "a.b", "a") == [("x", "1"), ("y", "2"), ("z", "3")]


def test_a_reader_is_not_consumed_by_the_check():
    reader = pa.table({"u": ["a"], "v": ["x"]}).to_reader()
    check_source(reader)
    pairs = iter([("a", "x")])
    check_source(pairs, user=None, value=None)
    assert next(pairs) == ("a", "x")
    assert read(reader) == [("a", "x")]


def test_other_columns_of_a_pandas_frame_do_not_matter():
    frame = pd.DataFrame({"u": ["a", "b"], "v": ["x", "y"], "z": [1, "text"], 0: [object(), None]})
    assert read(frame) == [("a", "x"), ("b", "y")]


def test_batches_do_not_show_their_rows():
    batch = RowBatch(pa.array(["secret"]), pa.array(["secret"]))
    assert "secret" not in repr(batch)


def test_rows_can_be_left_early(tmp_path, monkeypatch):
    monkeypatch.setattr("dpunion.reading.delimited.BLOCK_BYTES", 1024)
    path = write(pa.table({"u": [str(i) for i in range(9999)], "v": ["x"] * 9999}), tmp_path / "d.csv")
    with open_rows(path) as batches:
        next(iter(batches))
    with pytest.raises(StopIteration):
        next(iter(batches))
