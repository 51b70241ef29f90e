"""Keys of several columns: the same from every source, unambiguous, and released as columns."""

import csv
import dataclasses
import datetime as dt
import io
import json
import sys
import unicodedata

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dpunion
from dpunion.errors import AlreadyReleased, BadParameter, BadSource, UnknownColumn, UnsupportedType
from dpunion.ledger import Ledger, fingerprint
from dpunion.reading import ValueKind
from dpunion.reading.cleaning import MAX_ITEM_BYTES
from dpunion.reading.known import read_known
from dpunion.reading.spelling import join_columns
from dpunion.releases.formats import SEPARATOR, WRITERS, join_key, split_key
from dpunion.releases.release import Release
from dpunion.requests import Charge, Known
from opening import check_source, make_request, read_pairs, write_sqlite
from running import run_cli as run

KEY = 1
COLUMNS = ("country", "device")
BUDGET = {"epsilon": 4.0, "delta": 1e-3, "algorithm": "weighted-gaussian", "unsafe_test_key": KEY}
HOLDERS = 60
COMMON = [
    ("FR", "phone"), ("FR", "tab,let"), ("DE", "phone"), ("DE", "=1+1"), ("Österreich", 'q"q'), ("a\x1f", "b"),
    ("a", "\x1fb"), ("a\\", "_b"), ("a", "\\_b"), ("x\ty", "NULL"), ("001", "1"),
]  # fmt: skip
ROWS = [
    *((f"user {i:03}", country, device) for i in range(HOLDERS) for country, device in COMMON),
    *((f"user {i:03}", f"rare {i}", f"only {i}") for i in range(HOLDERS)),
]

texts = st.text(st.sampled_from("aé_\\\x1f\u0301\u0338ΣSİ<=1") | st.characters(exclude_categories=["Cs"]), max_size=6)


# --- one text for each key ----------------------------------------------------------------------------------
@given(st.lists(texts, min_size=1, max_size=4))
@example(["\\", "\x1f"])
@example(["\\\x1f", "\\\\_"])
@example(["", "", ""])
def test_splitting_undoes_joining(parts):
    """So different keys have different texts."""
    assert split_key(join_key(parts)) == tuple(parts)


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=8))
def test_columns_are_joined_as_texts_are(keys):
    expected = [join_key(key) if all(key) else None for key in keys]
    columns = [pa.array(column, pa.string()) for column in zip(*keys, strict=True)]
    coded = [column.dictionary_encode() for column in columns]
    assert join_columns(columns).to_pylist() == expected
    assert join_columns([columns[0].cast(pa.large_string()), coded[1]]).to_pylist() == expected
    assert join_columns([column.slice(1) for column in columns]).to_pylist() == expected[1:]


@given(st.lists(texts, min_size=2, max_size=3))
@example(["\x1f\u0301", "\\\u0338"])
@example(["ΑΣ", "Σ"])
def test_normalising_a_key_is_normalising_its_parts(parts):
    def lowered(text):
        return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower())

    def composed(text):
        return unicodedata.normalize("NFC", text)

    for normal in (composed, lowered):
        assert split_key(normal(join_key(parts))) == tuple(map(normal, parts))


# --- every source -------------------------------------------------------------------------------------------
def table():
    users, countries, devices = zip(*ROWS, strict=True)
    return pa.table({"country": countries, "other": [1.5] * len(ROWS), "who": users, "device": devices})


def text_file(path, mark):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=mark)
        writer.writerows([("device", "who", "country"), *((device, who, country) for who, country, device in ROWS)])
    return path


def json_file(path):
    lines = (json.dumps({"country": c, "who": w, "device": d, "more": [1]}) for w, c, d in ROWS)
    path.write_text("\n".join(lines))
    return path


def arrow_bytes(new):
    out = io.BytesIO()
    with new(out, table().schema) as writer:
        writer.write_table(table(), max_chunksize=100)
    return out.getvalue()


def sqlite_file(path):
    return write_sqlite(path, "t (who text, country text, device text)", ROWS)


def duckdb_file(path):
    connection = duckdb.connect(str(path))
    rows = table()  # found by its name in the query
    connection.execute("create table t as select * from rows")
    connection.close()
    assert rows.num_rows
    return path


def written_to(path, data):
    path.write_bytes(data)
    return path


def parquet_file(path, **options):
    pq.write_table(table(), path, row_group_size=200, **options)
    return path


def folder(path, by):
    kinds = pa.schema([(name, pa.string()) for name in by])
    ds.write_dataset(table(), path, format="parquet", partitioning=ds.partitioning(kinds, flavor="hive"))
    return path


def categories(column):
    made = table()
    place = made.column_names.index(column)
    return made.set_column(place, column, made[column].dictionary_encode())


SOURCES = {
    "parquet": lambda tmp: parquet_file(tmp / "d.parquet"),
    "parquet, plain": lambda tmp: parquet_file(tmp / "d.parquet", use_dictionary=False),
    "parquet folder": lambda tmp: folder(tmp / "d", ["country"]),
    "parquet folder of keys": lambda tmp: folder(tmp / "d", ["device", "country"]),
    "arrow file": lambda tmp: written_to(tmp / "d.arrow", arrow_bytes(pa.ipc.new_file)),
    "arrow stream": lambda tmp: written_to(tmp / "d.arrow", arrow_bytes(pa.ipc.new_stream)),
    "csv": lambda tmp: text_file(tmp / "d.csv", ","),
    "tsv": lambda tmp: text_file(tmp / "d.tsv", "\t"),
    "jsonl": lambda tmp: json_file(tmp / "d.jsonl"),
    "pyarrow": lambda _: table(),
    "categories": lambda _: categories("device"),
    "polars": lambda _: pl.from_arrow(table()),
    "pandas": lambda _: table().to_pandas(),
    "duckdb relation": lambda _: duckdb.arrow(table()),
}


@pytest.fixture(scope="module")
def expected():
    """The release from Python tuples, which no reader has touched."""
    pairs = [(user, (country, device)) for user, country, device in ROWS]
    released = dpunion.release(pairs, item=COLUMNS, **BUDGET)
    assert released.items == tuple(sorted(COMMON))
    assert released.columns == COLUMNS
    return released.items


def released_from(source, **more):
    return dpunion.release(source, user="who", item=["country", "device"], **BUDGET, **more)


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_gives_the_same_keys(name, tmp_path, expected):
    released = released_from(SOURCES[name](tmp_path))
    assert released.items == expected
    assert released.columns == COLUMNS


@pytest.mark.parametrize("made", [sqlite_file, duckdb_file])
def test_databases_give_the_same_keys(made, tmp_path, expected):
    path = made(tmp_path / "d.db")
    query = "select device, 1.5 as other, country, who from t"
    check_source(path, user="who", value=["country", "device"], query=query)
    assert released_from(path, query=query).items == expected


def test_postgres_gives_the_same_keys(postgres_url):
    query = "select 'u' || i as who, 'FR' as country, i % 2 = 0 as device, 1.5 as other from generate_series(1, 200) i"
    with pytest.warns(UserWarning, match="password"):
        released = released_from(postgres_url, query=query)
    assert released.items == (("FR", "false"), ("FR", "true"))
    with pytest.warns(UserWarning, match="password"), pytest.raises(UnsupportedType, match=r"'other'.*numeric"):
        dpunion.release(postgres_url, user="who", item=["country", "other"], query=query, **BUDGET)


@pytest.mark.parametrize("form", ["csv", "jsonl", "arrow"])
def test_standard_input_gives_the_same_keys(form, tmp_path, expected, monkeypatch):
    data = {
        "csv": lambda: text_file(tmp_path / "d.csv", ",").read_bytes(),
        "jsonl": lambda: json_file(tmp_path / "d.jsonl").read_bytes(),
        "arrow": lambda: arrow_bytes(pa.ipc.new_stream),
    }[form]()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert released_from("-").items == expected


def test_mappings_hold_tuples(expected):
    mapping = {}
    for user, *key in ROWS:
        mapping.setdefault(user, []).append(key)
    mapping["nobody"] = [None, ("FR", None)]
    assert dpunion.release(mapping, item=COLUMNS, **BUDGET).items == expected


# --- what is a key ------------------------------------------------------------------------------------------
def read(source, columns=("country", "device"), user="who"):
    check_source(source, user=user, value=columns)
    return [(who, *split_key(key)) for who, key in read_pairs(source, user=user, value=columns)]


def test_a_key_without_one_of_its_parts_is_left_out():
    countries = ["FR", None, "FR", "", "FR", None, "x" * MAX_ITEM_BYTES]
    devices = ["phone", "phone", None, "phone", "", None, "y"]
    source = pa.table({"who": [str(i) for i in range(7)], "country": countries, "device": devices})
    assert read(source) == [("0", "FR", "phone")]
    coded = source.set_column(1, "country", source["country"].dictionary_encode())
    assert read(coded) == [("0", "FR", "phone")]
    pairs = list(zip(*(source[name].to_pylist() for name in ("who", "country", "device")), strict=True))
    assert read([(who, (country, device)) for who, country, device in pairs], user=None) == [("0", "FR", "phone")]


def test_the_length_limit_is_that_of_the_whole_key():
    fits = MAX_ITEM_BYTES - len(SEPARATOR) - 10
    source = pa.table({"who": ["a", "b"], "country": ["x" * fits, "x" * (fits + 1)], "device": ["y" * 10] * 2})
    assert [who for who, *_ in read(source)] == ["a"]


def test_each_part_is_spelled_by_its_own_type():
    columns = {"who": [1, 2], "day": [dt.date(2024, 2, 29), dt.date(1, 1, 1)], "new": [True, False]}
    typed = {"year": pa.array([2024, -5], pa.int16()), "word": pa.array(["a", "b"], pa.string_view())}
    source = pa.table(columns | typed)
    expected = [("1", "2024-02-29", "2024", "true", "a"), ("2", "0001-01-01", "-5", "false", "b")]
    assert read(source, ["day", "year", "new", "word"]) == expected
    rows = source.to_pylist()
    pairs = [(row["who"], (row["day"], row["year"], row["new"], row["word"])) for row in rows]
    assert read(pairs, ["day", "year", "new", "word"], None) == expected


def test_keys_beyond_one_batch(monkeypatch):
    monkeypatch.setattr("dpunion.reading.cleaning.ROWS_PER_BATCH", 7)
    users, countries, devices = zip(*ROWS, strict=True)
    assert read(table()) == list(zip(users, countries, devices, strict=True))


def test_kinds_do_not_mix_within_a_column(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text('{"who": "a", "country": 1, "device": "x"}\n{"who": "b", "country": "1", "device": "x"}\n')
    with pytest.raises(UnsupportedType, match=r"Mixed types.*'country'"):
        read(path)
    with pytest.raises(UnsupportedType, match=r"Mixed types.*'country'"):
        read([("a", (1, "x")), ("b", ("1", "x"))], user=None)


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        (["country", "country"], BadParameter, "twice"),
        (["country", "who"], BadParameter, "'who' and the value column 'who' are the same"),
        (["country", "devise"], UnknownColumn, "Did you mean 'device'"),
        (["country,device"], UnknownColumn, "one by one: --item a --item b"),
        (["country", "lists"], UnsupportedType, "'lists'.*list.*part of a key.*Unnest"),
        (["country", "float"], UnsupportedType, "'float'.*double.*Cast it"),
        ([], BadParameter, "Name one"),
    ],
)
def test_columns_that_make_no_key(columns, error, words, tmp_path):
    source = pa.table({"who": ["a"], "country": ["b"], "device": ["c"], "lists": [["d"]], "float": [1.5]})
    with pytest.raises(error, match=words):
        check_source(source, user="who", value=columns)
    path = tmp_path / "d.jsonl"
    path.write_text(json.dumps(source.to_pylist()[0]))
    with pytest.raises(error):
        check_source(path, user="who", value=columns)


def test_files_without_any_of_the_columns(tmp_path):
    (tmp_path / "d.csv").write_text("secret,hidden,more\n1,2,3\n")
    with pytest.raises(UnknownColumn, match="None of the columns 'who', 'country' and 'device' is in") as caught:
        read(tmp_path / "d.csv")
    assert "secret" not in str(caught.value)
    (tmp_path / "d.jsonl").write_text('{"secret": 1}')
    with pytest.raises(UnknownColumn, match="'who' or 'country' or 'device'") as caught:
        read(tmp_path / "d.jsonl")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("item", [[], ["a", "a"], ["a", 1], {"a", "b"}, 1.5])
def test_items_that_name_no_columns(item):
    with pytest.raises(BadParameter, match="'item'"):
        dpunion.release("nowhere.csv", user="u", item=item, **BUDGET)


def test_tuples_need_names():
    with pytest.raises(UnsupportedType, match=r'tuple.*item=\["country", "device"\]'):
        dpunion.release([("u", ("a", "b"))], **BUDGET)
    for wrong in ("ab", ("a",), ("a", "b", "c")):
        with pytest.raises(BadParameter, match=r"number 1 .*not a tuple of 2 parts"):
            dpunion.release([("u", ("a", "b")), ("u", wrong)], item=COLUMNS, **BUDGET)
    with pytest.raises(BadParameter, match="no columns to name"):
        dpunion.release([("u", ("a", "b"))], item="country", **BUDGET)
    with pytest.raises(BadParameter, match="columns of texts"):
        check_source(table(), user="who", value=COLUMNS, kind=ValueKind.TEXT)


def test_a_list_of_one_column_is_that_column():
    one, other = (dpunion.release(table(), user="who", item=item, **BUDGET) for item in ("country", ["country"]))
    assert one == other
    assert one.columns == ("item",)
    assert isinstance(one.items[0], str)


# --- the release --------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def release():
    return released_from(table())


def fields(path):
    """Return the columns and the rows of a written file."""
    match path.suffix:
        case ".parquet" | ".arrow":
            read = pq.read_table(path) if path.suffix == ".parquet" else pa.ipc.open_file(path).read_all()
            assert read.schema.metadata is None
            assert set(read.schema.types) == {pa.string()}
            return read.column_names, [tuple(row.values()) for row in read.to_pylist()]
        case ".csv":
            header, *rows = csv.reader(io.StringIO(path.read_bytes().decode(), newline=""))
            return header, [tuple(field.removeprefix("'") for field in row) for row in rows]
        case ".jsonl":
            objects = [json.loads(line) for line in path.read_text().splitlines()]
            return list(objects[0]), [tuple(one.values()) for one in objects]
        case ".json":
            values = json.loads(path.read_text())
            return values["columns"], [tuple(item) for item in values["items"]]
        case _:
            lines = path.read_text().splitlines()
            parts = [[part.encode().decode("unicode_escape") for part in line.split("\t")] for line in lines]
            return list(COLUMNS), [tuple(part.encode("latin-1").decode() for part in line) for line in parts]


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_written_release_has_the_columns_and_nothing_else(suffix, release, tmp_path):
    path = release.write(tmp_path / f"keys{suffix}")
    names, rows = fields(path)
    assert names == list(COLUMNS)
    assert rows == sorted(COMMON) == list(release.items)
    assert not [word for word in (b"rare", b"only", b"user 0") if word in path.read_bytes()]


@pytest.mark.parametrize("suffix", WRITERS)
def test_an_empty_release_still_has_its_columns(suffix, release, tmp_path):
    empty = Release((), release.plan, guaranteed=True, columns=COLUMNS)
    path = empty.write(tmp_path / f"keys{suffix}")
    if suffix in (".parquet", ".arrow", ".csv", ".json"):
        assert fields(path) == (list(COLUMNS), [])


def test_spreadsheets_run_no_part_of_a_key(release, tmp_path):
    odd = Release((("=a", "+b"),), release.plan, guaranteed=True, columns=("@sum", "device"))
    assert odd.write(tmp_path / "keys.csv").read_text() == "'@sum,device\n'=a,'+b\n"


def test_json_gives_the_release_back(release):
    assert Release.from_json(release.to_json()) == release
    old = dpunion.release({"u": ["a"]}, **BUDGET)
    values = old.to_dict()
    del values["columns"]
    assert Release.from_json(json.dumps(values)) == old
    for spoiled in ({"columns": ["a", "a"]}, {"columns": ["a", "b", "c"]}, {"columns": []}, {"columns": "ab"},
                    {"items": ["ab"]}, {"items": [["a", 1]]}):  # fmt: skip
        with pytest.raises(BadParameter, match="not a release"):
            Release.from_json(json.dumps(release.to_dict() | spoiled))


def test_the_statement_names_the_columns(release):
    assert "combination of values of 'country', 'device'" in dataclasses.replace(release, guaranteed=True).statement


# --- known lists --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("suffix", WRITERS)
def test_known_keys_from_files(suffix, release, tmp_path):
    path = release.write(tmp_path / f"known{suffix}")
    known = read_known(path, COLUMNS)
    assert sorted(map(split_key, known.items)) == sorted(COMMON)
    with pytest.raises(BadSource, match="needs columns 'country', 'year' of texts"):
        read_known(path if suffix != ".txt" else release.write(tmp_path / "other.csv"), ("country", "year"))


def test_known_keys_are_left_out_or_added(release):
    some = COMMON[:4]
    assert released_from(table(), known=some).items == tuple(sorted(COMMON[4:]))
    added = released_from(table(), known=Known([*some, ("IT", "watch")], include=True))
    assert added.items == tuple(sorted([*COMMON, ("IT", "watch")]))
    assert released_from(table(), known=release).items == ()


def test_known_lists_of_another_kind(release):
    for wrong in (["FR"], [("FR",)], [("FR", 1)], [("FR", "phone", "x")], 7):
        with pytest.raises(BadSource, match="tuples of 2 texts"):
            read_known(wrong, COLUMNS)
    with pytest.raises(BadSource, match="must contain texts"):
        read_known(release)
    with pytest.raises(BadSource, match="columns 'device', 'country'"):
        read_known(release, COLUMNS[::-1])


# --- the ledger and the command line ------------------------------------------------------------------------
def reading(value):
    return make_request("d.csv", "who", value)


def test_the_fingerprint_tells_keys_apart():
    values = ["country", "device", COLUMNS, COLUMNS[::-1], (*COLUMNS, "year"), "country, device", "country\x1fdevice"]
    prints = {fingerprint(**reading(value).facts()) for value in values}
    assert len(prints) == len(values)
    assert reading(COLUMNS).facts()["value"] == ["country", "device"]
    assert reading("country").facts()["value"] == "country"


def test_a_ledger_charges_each_key_once(tmp_path):
    book = Ledger.open(tmp_path / "budget.db", create=True)
    book.create_dataset("visits", 10, 1e-2)
    book.close()
    source = parquet_file(tmp_path / "d.parquet")
    options = {"charge": Charge(tmp_path / "budget.db", "visits"), **BUDGET, "unsafe_test_key": None}
    dpunion.release(source, user="who", item=["country", "device"], **options)
    dpunion.release(source, user="who", item=["device", "country"], **options)
    with pytest.raises(AlreadyReleased):
        dpunion.release(source, user="who", item=["country", "device"], **options)


SETTINGS = ("-e", "4", "-d", "1e-3", "-a", "weighted-gaussian", "--unsafe-test-key", KEY)


def test_the_command_line_takes_several_columns(tmp_path):
    source = text_file(tmp_path / "d.csv", ",")
    asked = ("release", source, "--user", "who", "--item", "country", "-i", "device", *SETTINGS)
    printed = run(*asked, code=0)
    assert "FR\tphone\n" in printed.stdout
    assert "x\\ty\tNULL\n" in printed.stdout
    assert len(printed.stdout.splitlines()) == len(COMMON)
    as_json = json.loads(run(*asked, "--json").stdout)
    assert as_json["columns"] == list(COLUMNS)
    assert sorted(map(tuple, as_json["items"])) == sorted(COMMON)
    assert run(*asked, "--out", tmp_path / "keys.parquet").exit_code == 0
    assert fields(tmp_path / "keys.parquet") == (list(COLUMNS), sorted(COMMON))
    again = run(*asked, "--known", tmp_path / "keys.parquet")
    assert (again.exit_code, again.stdout) == (0, "")
    run("release", source, "-u", "who", "-i", "country", "-i", "country", *SETTINGS, code=2)


def test_configuration_files_take_one_column_or_several(tmp_path):
    source = text_file(tmp_path / "d.csv", ",")
    for item, header in ((["country", "device"], "country,device"), ("country", "item"), (["country"], "item")):
        out = tmp_path / "keys.csv"
        (tmp_path / "run.toml").write_text(f'user = "who"\nitem = {json.dumps(item)}\n')
        run("release", source, "--config", tmp_path / "run.toml", *SETTINGS, "--out", out, "--force", code=0)
        assert out.read_text().splitlines()[0] == header
        first = out.read_bytes()
        record = tmp_path / "keys.csv.private.toml"
        assert f"item = {json.dumps(item if header != 'item' else 'country')}\n" in record.read_text()
        (tmp_path / "again.toml").write_text(record.read_text())
        run("release", "--config", tmp_path / "again.toml", "--out", out, "--force", code=0)
        assert out.read_bytes() == first


def test_a_frame_of_pandas_categories():
    users, countries, devices = zip(*ROWS, strict=True)
    frame = pd.DataFrame({"who": users, "country": pd.Categorical(countries), "device": devices})
    assert len(read(frame)) == len(ROWS)


def test_layouts_of_arrow_make_no_difference(monkeypatch):
    monkeypatch.setattr("dpunion.reading.cleaning.ROWS_PER_BATCH", 2)
    runs = pc.run_end_encode(pa.array(["x", "x", "x", "y", "y"]))
    odd = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3, 0], pa.int8()), pa.array(["k", None, "", "m\x1f"]))
    source = pa.table({"who": list("12345"), "country": runs, "device": odd})
    expected = [("1", "x", "k"), ("4", "y", "m\x1f"), ("5", "y", "k")]
    assert read(source) == expected
    assert read(source.slice(1)) == expected[1:]
    assert read(source.slice(5)) == []
    assert read(source.set_column(1, "country", pa.nulls(5))) == []
