"""CSV, TSV and JSON Lines: what is accepted, and that small blocks read like large ones."""

import contextlib
import csv
import gzip
import io
import itertools
import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpunion
from dpunion.errors import DamagedSource, DpunionError, UnknownColumn, UnsupportedType
from dpunion.reading import ValueKind, blocks
from dpunion.reading.blocks import Block, read_blocks
from dpunion.reading.delimited import check_quotes, find_row_end, header_end, parse_block, ragged, ragged_row
from dpunion.reading.locate import data_file
from opening import read_pairs
from running import run_python


def read(path):
    return read_pairs(path, kind=ValueKind.TEXT)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("u,v\n1,a\n2,b", [("1", "a"), ("2", "b")]),
        ("\ufeffu,v\r\n1,a\r\n", [("1", "a")]),
        ("u,v\r1,a\r2,b\r", [("1", "a"), ("2", "b")]),
        ('"u","v"\n"1","a,b"\n2,"c\nd"\n3,"e""f"\n4,""""\n', [("1", "a,b"), ("2", "c\nd"), ("3", 'e"f'), ("4", '"')]),
        ('\n\nu,"v"\n\n1,a\n\n\r\n2,b\n', [("1", "a"), ("2", "b")]),
        ("u,v", []),
        ("u,v\n", []),
        ('u,v\n1,""\n2,\n', []),
        ("u,v\n 1 , a \n", [(" 1 ", " a ")]),
        ("u,v,w,w\n1,a,x,y\n", [("1", "a")]),
        ('"v\nw",u,v\nx,1,a\n', [("1", "a")]),
        ("u,v\n1,a\u2028b\x0bc\x85d\n", [("1", "a\u2028b\x0bc\x85d")]),
        ("u,v\n1,NULL\n2,NaN\n3,2024-01-01\n", [("1", "NULL"), ("2", "NaN"), ("3", "2024-01-01")]),
        ("u,v\n\ufeff1,a\n\ufeff2,\ufeff\n", [("\ufeff1", "a"), ("\ufeff2", "\ufeff")]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [4, 16, 1 << 20])
def test_valid_csv_is_read_in_blocks_of_any_size(tmp_path, text, rows, size, monkeypatch):
    monkeypatch.setattr("dpunion.reading.delimited.BLOCK_BYTES", size)
    monkeypatch.setattr("dpunion.reading.delimited.HEADER_BYTES", size)
    (tmp_path / "d.csv").write_bytes(text.encode())
    assert read(tmp_path / "d.csv") == rows


@pytest.mark.parametrize("size", [4, 16, 1 << 20])
def test_a_mark_in_the_middle_of_json_lines_is_refused_wherever_blocks_begin(tmp_path, size, monkeypatch):
    small_blocks(monkeypatch, size)
    (tmp_path / "d.jsonl").write_bytes('{"u":"1","v":"a"}\n\ufeff{"u":"2","v":"b"}\n'.encode())
    with pytest.raises(DamagedSource):
        read(tmp_path / "d.jsonl")


FIELDS = st.text(st.sampled_from('a,"\n\r\t é☃'), max_size=6)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(FIELDS, FIELDS), max_size=8), st.sampled_from([3, 7, 64, 1 << 16]))
def test_csv_round_trip_in_blocks_of_any_size(tmp_path_factory, pairs, size):
    """What Python's csv module writes is read back, wherever the blocks are cut."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(["u", "v"])
    writer.writerows([["id" + u, v] for u, v in pairs])
    path = tmp_path_factory.mktemp("csv") / "d.csv"
    path.write_bytes(out.getvalue().encode())
    found = list(read_blocks(data_file(path), find_row_end, lambda _: None, size))
    assert b"".join(block.data for block in found) == path.read_bytes()
    rows = []
    for i, block in enumerate(found):
        start = header_end(block) if i == 0 else 0
        users, values = parse_block(Block(block.data[start:], 1, ""), ",", 2, 0, 1)
        rows += zip(users.to_pylist(), values.to_pylist(), strict=True)
    assert rows == [("id" + u, v) for u, v in pairs]


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from('a,"\n'), max_size=14))
def test_the_quote_rule_is_the_strict_grammar(text):
    """check_quotes accepts a text exactly if every field is quoted as RFC 4180 says."""
    try:
        check_quotes(Block(text.encode(), 1, "f"), ",")
        accepted = True
    except DamagedSource:
        accepted = False
    assert accepted == is_rfc4180(text)


def is_rfc4180(text):
    """Walk the grammar letter by letter."""
    state = "start"
    for letter in text:
        match state, letter:
            case (("start" | "plain" | "closed"), ("," | "\n")):
                state = "start"
            case "start", '"':
                state = "inside"
            case (("plain" | "closed"), '"') if state == "plain":
                return False
            case "inside", '"':
                state = "closed"
            case "closed", '"':
                state = "inside"
            case "closed", _:
                return False
            case "inside", _:
                pass
            case _:
                state = "plain"
    return state != "inside"


def test_ragged_rows_are_found_past_quoted_line_ends():
    block = Block(b'1,"a\nb,c"\n\n2,b\n3\n4,5,6\n', 10, "file 'f'")
    assert "line 14:" in str(ragged(block, ",", 2))


def test_rows_longer_than_a_block(tmp_path, monkeypatch):
    long = "x" * 3_000_000
    rows = [("1", long), ("2", long + "\n" + long), ("3", "c")]
    for name, text in {
        "d.csv": f'u,v\n1,{long}\n2,"{long}\n{long}"\n3,c\n',
        "d.jsonl": "\n".join(json.dumps({"u": u, "v": v}) for u, v in rows),
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
        monkeypatch.setattr("dpunion.reading.delimited.BLOCK_BYTES", 1 << 16)
        assert read(tmp_path / name) == rows
    monkeypatch.setattr(blocks, "LONGEST_ROW", 1 << 20)
    with pytest.raises(DamagedSource, match="line 2: a row is longer than 1 MiB"):
        read(tmp_path / "d.csv")


@pytest.mark.parametrize("before", [0, 1, 5_000, 40_000])
def test_the_longest_row_is_the_same_wherever_it_stands(tmp_path, before, monkeypatch):
    monkeypatch.setattr("dpunion.reading.delimited.BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr(blocks, "LONGEST_ROW", 1 << 15)
    for size, fits in (((1 << 15), True), ((1 << 15) + 1, False)):
        long = f'a,"{"x" * (size - 4)}"\n'
        (tmp_path / "d.csv").write_text("u,v\n" + "b,y\n" * before + long + "c,z\n")
        if fits:
            assert len(read(tmp_path / "d.csv")) == before + 2
        else:
            with pytest.raises(DamagedSource, match=f"line {before + 2}: a row is longer.*quote that is never closed"):
                read(tmp_path / "d.csv")


LOST_QUOTES = {
    "header": 'u,"v\n' + "1,x\n" * 600_000 + '1,"y"\n',
    "unclosed header": 'u,"v\n' + "1,x\n" * 600_000,
    "body": 'u,v\n1,"a\n' + "1,x\n" * 600_000 + '1,"y"\n',
    "unclosed body": 'u,v\n1,"a\n' + "1,x\n" * 600_000,
    "quotes only": 'u,v\n1,"' + '""' * 1_200_000 + "\n",
    "ragged": "u,v\n1,x\n" + "," * 2_400_000 + "\n",
}


@pytest.mark.parametrize("case", LOST_QUOTES)
def test_a_lost_quote_takes_memory_for_a_row_and_no_more(tmp_path, case, monkeypatch):
    """Sixteen times the size of the longest row is read; what is held stays a small multiple of that row."""
    longest = 150_000
    monkeypatch.setattr("dpunion.reading.delimited.BLOCK_BYTES", longest // 4)
    monkeypatch.setattr("dpunion.reading.delimited.PIECE_BYTES", longest // 16)
    monkeypatch.setattr(blocks, "LONGEST_ROW", longest)
    path = tmp_path / "d.csv.gz"
    path.write_bytes(gzip.compress(LOST_QUOTES[case].encode()))
    with contextlib.suppress(DpunionError):
        read(tmp_path / "d.csv.gz")  # loads what is loaded when first used
    tracemalloc.start()
    try:
        with pytest.raises(DamagedSource, match=r"longer than|misplaced|fields"):
            read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 * longest


@pytest.mark.parametrize("case", LOST_QUOTES)
def test_a_lost_quote_does_not_hang(tmp_path, case):
    (tmp_path / "d.csv").write_text(LOST_QUOTES[case])
    reading = "list(open_source(SourceRequest(sys.argv[1], 'u', ValueKind.ITEM, 'v')))"
    code = f"import sys; from dpunion.reading import SourceRequest, ValueKind, open_source; {reading}"
    assert "DamagedSource" in run_python(code, tmp_path / "d.csv").stderr


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from('a,"\n\r'), max_size=24), st.integers(1, 9))
def test_rows_end_where_quotes_are_even(text, piece):
    """The ends of the first and the last whole row, and the first ragged one, against counting from the start."""
    data = text.encode()
    block = Block(data, 1, "f")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpunion.reading.delimited.PIECE_BYTES", piece)
        first, last = header_end(block), find_row_end(block, False)
        wrong = ragged_row(data, ord(","), 2)
    ends = [i + 1 for i, octet in enumerate(data) if octet in b"\r\n" and data.count(b'"', 0, i) % 2 == 0]
    start = len(data) - len(data.lstrip(b"\r\n"))
    assert first == next((end for end in ends if end > start), len(data))
    assert last == (ends[-1] if ends else 0)
    bounds = list(itertools.pairwise([0, *ends, len(data)]))
    rows = [(begin, data[begin:end].rstrip(b"\r\n") if end in ends else data[begin:end]) for begin, end in bounds]
    counts = [(begin, sum(octet == ord(",") and row.count(b'"', 0, i) % 2 == 0 for i, octet in enumerate(row)), row)
              for begin, row in rows]  # fmt: skip
    assert wrong == next((begin for begin, commas, row in counts if row and commas != 1), None)


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        ("", []),
        ("\n  \n", []),
        ('{"u":"1","v":"a"}\r\n\n  {"v":"b","u":"2","w":[{"x":null}]}  \n', [("1", "a"), ("2", "b")]),
        ('{"u":"1"}\n{"u":"2","v":"b"}\n', [("2", "b")]),
        ('{"u":"1","v":null}\n', []),
        ('{"u":"2024-01-01","v":"2024-01-01 00:00:00"}\n', [("2024-01-01", "2024-01-01 00:00:00")]),
        ('{"u":"1","v":"a","w":1}\n{"u":"2","v":"b","w":"x"}\n', [("1", "a"), ("2", "b")]),
        ('{"u":"1","v":[]}\n{"u":"2","v":null}\n{"u":"3","v":["a","b"]}\n', [("3", "a"), ("3", "b")]),
        ('{"u":"1","v":"} null {"}\n', [("1", "} null {")]),
        ('{"u":"1","v":"\\u00e9\\ud83d\\ude00\\n\\u0000"}\n', [("1", "é😀\n\0")]),
        ('\ufeff{"u":"1","v":"a"}\n', [("1", "a")]),
        ('{"u":1,"v":"a"}\n{"u":-0,"v":"b"}\n', [("1", "a"), ("0", "b")]),
    ],
)
def test_valid_json_lines_are_read(tmp_path, lines, rows):
    (tmp_path / "d.jsonl").write_bytes(lines.encode())
    assert read(tmp_path / "d.jsonl") == rows


def small_blocks(monkeypatch, size):
    function = blocks.read_blocks
    monkeypatch.setattr("dpunion.reading.jsonlines.read_blocks", lambda f, e, p: function(f, e, p, size))


def test_json_types_are_learned_late_and_kept(tmp_path, monkeypatch):
    small_blocks(monkeypatch, 64)
    lines = ['{"u":"1","v":null}'] * 50 + ['{"u":"1"}'] * 50 + ['{"u":"2","v":["a"]}'] * 50
    (tmp_path / "d.jsonl").write_text("\n".join(lines))
    assert read(tmp_path / "d.jsonl") == [("2", "a")] * 50
    (tmp_path / "d.jsonl").write_text("\n".join([*lines, '{"u":"2","v":"a"}']))
    with pytest.raises(UnsupportedType, match=r"Mixed types: in .*, line 151, column 'v'"):
        read(tmp_path / "d.jsonl")


def test_a_key_that_no_row_has_is_found_missing_at_the_end(tmp_path, monkeypatch):
    small_blocks(monkeypatch, 64)
    (tmp_path / "d.jsonl").write_text("\n".join(['{"u":"1","w":{"v":"v"},"x":"v"}'] * 50))
    with pytest.raises(UnknownColumn, match=r"no column 'v'.*not listed") as caught:
        read(tmp_path / "d.jsonl")
    assert not any(f"'{key}'" in str(caught.value) for key in "uwx")  # keys are data


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.text(min_size=1, max_size=4), st.text(max_size=5)), max_size=6), st.booleans())
def test_json_round_trip(tmp_path_factory, pairs, ascii_only):
    path = tmp_path_factory.mktemp("json") / "d.jsonl"
    text = "\n".join(json.dumps({"u": u, "v": v}, ensure_ascii=ascii_only) for u, v in pairs)
    try:
        path.write_bytes(text.encode())
    except UnicodeEncodeError:
        return
    if any("\ud800" <= letter <= "\udfff" for pair in pairs for text in pair for letter in text):
        with pytest.raises(DpunionError):
            read(path)
    else:
        assert read(path) == [(u, v) for u, v in pairs if v]


@pytest.mark.parametrize("end", ["\x02", "\x08", "x", " "], ids=["control", "backspace", "letter", "space"])
def test_a_header_without_its_line_end_is_not_listed(tmp_path, end):
    """The rows after it are in the same line then, and an error that lists the columns would print them."""
    path = tmp_path / "people.csv"
    path.write_text(f"who,what{end}CanaryUser,CanaryItem\nann,apple\nbob,berry\n")
    with pytest.raises(UnknownColumn) as caught:
        dpunion.release(path, user="who", item="what", epsilon=1.0, delta=1e-6)
    assert "Canary" not in str(caught.value)
    path.write_text("who,thing\nann,apple\n")
    with pytest.raises(UnknownColumn, match="'who', 'thing'"):
        dpunion.release(path, user="who", item="what", epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize(
    "rows",
    [
        b"user,textalice,my secret\n",
        b"user,textalice,my secret\nbob,hello, world\ncarol,hi\n",
        b"user,textalice,my secret\nbob,hello\n",
        b"user,textalice,my secret\n" + b"bob," + b"x" * 70_000 + b"\n",
    ],
)
def test_a_header_that_lost_its_line_end_is_not_shown(rows, tmp_path):
    """Its last field goes on with somebody's row. Names are shown only if the next line has exactly as many fields."""
    path = tmp_path / "posts.csv"
    path.write_bytes(rows)
    with pytest.raises(UnknownColumn) as caught:
        dpunion.release(path, user="user", item="text", epsilon=1.0, delta=1e-6)
    assert "secret" not in str(caught.value)
    assert "alice" not in str(caught.value)
