"""Standard input as a source: every format that can be streamed, and the same strictness as for files."""

import gzip
import io
import json
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpunion.errors import BadParameter, BadSource, DamagedSource, NullUsers, UnknownColumn, UnsupportedType
from dpunion.reading import stdin
from opening import check_source, read_pairs
from running import run_python

CANARY = "CANARYvalue"
ROWS = [("001", "a,b"), ("1", "x\ty"), ("Ünï", 'q"q'), ("z" * 40, "line\nbreak")] * 50


@pytest.fixture
def pipe(monkeypatch):
    """Put bytes on standard input."""
    return lambda data: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def read(**more):
    return read_pairs("-", **more)


def check(**more):
    check_source("-", **more)


def csv(mark=","):
    def quoted(text):
        return '"' + text.replace('"', '""') + '"'

    return "".join(f"{mark.join(map(quoted, row))}\n" for row in [("u", "v"), *ROWS]).encode()


def jsonl():
    return b"\n \n" + "\n".join(json.dumps({"u": u, "v": v}) for u, v in ROWS).encode()


def arrow(new=pa.ipc.new_stream):
    table = pa.table({"w": [1.5] * len(ROWS), "v": [v for _, v in ROWS], "u": [u for u, _ in ROWS]})
    out = io.BytesIO()
    with new(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=30)
    return out.getvalue()


def parquet():
    out = io.BytesIO()
    pq.write_table(pa.table({"u": ["a"], "v": ["x"]}), out)
    return out.getvalue()


def zstd(data):
    return bytes(pa.compress(data, codec="zstd").to_pybytes())


INPUTS = {
    "csv": (csv(), None), "csv said": (csv(), "csv"), "csv with mark": (b"\xef\xbb\xbf" + csv(), None),
    "csv.gz": (gzip.compress(csv()), None), "tsv": (csv("\t"), "tsv"), "tsv.zst": (zstd(csv("\t")), "tsv"),
    "jsonl": (jsonl(), None), "jsonl said": (jsonl(), "jsonl"), "jsonl.zst": (zstd(jsonl()), None),
    "arrow": (arrow(), None), "arrow said": (arrow(), "arrow"),
}  # fmt: skip


@pytest.mark.parametrize("case", INPUTS)
@pytest.mark.parametrize("size", [64, 1 << 20])
def test_every_format_is_read_once_after_any_number_of_checks(pipe, case, size, monkeypatch):
    monkeypatch.setattr("dpunion.reading.delimited.BLOCK_BYTES", size)
    monkeypatch.setattr("dpunion.reading.delimited.HEADER_BYTES", size)
    data, said = INPUTS[case]
    pipe(data)
    for _ in range(3):
        check(input_format=said)
    assert read(input_format=said) == ROWS
    with pytest.raises(BadSource, match="was read already"):
        read(input_format=said)


@pytest.mark.parametrize("case", INPUTS)
def test_unknown_columns_are_refused_and_nothing_is_lost(pipe, case):
    data, said = INPUTS[case]
    pipe(data)
    with pytest.raises(UnknownColumn):
        check(value="q", input_format=said)
    with pytest.raises(UnknownColumn):
        read(value="q", input_format=said)
    assert read(input_format=said) == ROWS


def test_inputs_larger_than_what_is_kept(pipe):
    rows = [(str(i), "x" * 100) for i in range(200_000)]
    data = ("u,v\n" + "".join(f"{u},{v}\n" for u, v in rows)).encode()
    pipe(data)
    check()
    tape = stdin.current_tape()
    assert 0 < len(tape.kept) < 1 << 20
    assert read() == rows
    assert not tape.kept


def test_tabs_need_an_input_format(pipe):
    pipe(b"u\tv\na\tx\n")
    with pytest.raises(UnknownColumn, match=r"standard input \(read as csv\)"):
        check()
    assert read(input_format="tsv") == [("a", "x")]


@pytest.mark.parametrize(
    ("data", "said", "words"),
    [
        (parquet(), None, "Parquet file.*Name the file itself"), (parquet(), "csv", "Parquet file"),
        (gzip.compress(parquet()), None, "Parquet file"), (arrow(pa.ipc.new_file), None, "Arrow file.*Arrow stream"),
        (gzip.compress(arrow()), None, "compressed with gzip"), (csv(), "parquet", "Parquet cannot be read"),
        (csv(), "xlsx", "must be one of csv, tsv, jsonl, arrow"), (csv(), "arrow", "damaged"),
        (jsonl(), "csv", "Neither|quote"), (b"", None, "no header line"),
    ],
)  # fmt: skip
def test_inputs_that_are_refused(pipe, data, said, words):
    pipe(data)
    with pytest.raises((BadSource, BadParameter), match=words):
        check(input_format=said)


BAD = {
    "ragged": (f"u,v\n{CANARY},x\n{CANARY}\n".encode(), DamagedSource, r"standard input \(read as csv\), line 3"),
    "quote": (f'u,v\n{CANARY},"x\n'.encode(), DamagedSource, "line 2: a quote is never closed"),
    "not utf-8": (f"u,v\n{CANARY},".encode() + b"\xff\n", DamagedSource, "line 2: the text is not UTF-8"),
    "nul": (f"u,v\n{CANARY},\0\n".encode(), DamagedSource, "NUL"),
    "json": (f'{{"u":"{CANARY}","v":"x"}}\n{{"u":\n'.encode(), DamagedSource, "line 2"),
    "json type": (f'{{"u":"a","v":"{CANARY}"}}\n{{"u":1,"v":"x"}}\n'.encode(), UnsupportedType, "line 2"),
    "no user": (f"u,v\n,{CANARY}\n".encode(), NullUsers, "null_users"),
    "cut gzip": (gzip.compress(csv())[:-9], DamagedSource, "damaged"),
    "cut zstd": (zstd(csv())[:-9], DamagedSource, "damaged"),
    "cut arrow": (arrow()[:-8], DamagedSource, "does not end"),
    "cut arrow body": (arrow()[:-200], DamagedSource, "damaged"),
    "arrow and more": (arrow() + b"x", DamagedSource, "does not end"),
}


@pytest.mark.parametrize("case", BAD)
def test_the_strict_checks_hold(pipe, case):
    data, kind, words = BAD[case]
    pipe(data)
    with pytest.raises(kind, match=words) as caught:
        read()
    assert CANARY not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_terminal_or_no_input_is_refused(monkeypatch):
    terminal = io.TextIOWrapper(io.BytesIO())
    terminal.buffer.isatty = lambda: True
    for piped in (None, terminal):
        monkeypatch.setattr(sys, "stdin", piped)
        with pytest.raises(BadSource, match="nothing is piped"):
            check()


def test_the_format_is_said_of_standard_input_only(tmp_path):
    (tmp_path / "d.csv").write_text("u,v\n")
    for source in (tmp_path / "d.csv", pa.table({"u": ["a"], "v": ["x"]})):
        with pytest.raises(BadParameter, match="suffix of a file tells its format"):
            check_source(source, input_format="csv")


REAL = """
from dpunion.reading import SourceRequest, ValueKind, open_source
request = SourceRequest("-", "u", ValueKind.ITEM, "v")
seen = []
open_source(request)
rows = sum(len(batch.users) for batch in open_source(request, on_progress=seen.append))
print(rows, seen == sorted(seen), seen[-1], len(seen) > 2)
"""


@pytest.mark.parametrize("how", ["pipe", "file"])
def test_a_real_standard_input(tmp_path, how):
    path = tmp_path / "d"
    path.write_bytes(b"u,v\n" + b"somebody,something\n" * 1_000_000)
    with path.open("rb") as file:
        given = {"stdin": file} if how == "file" else {"input": path.read_bytes()}
        done = run_python(REAL, check=True, text=False, **given)
    assert done.stdout.decode().split() == ["1000000", "True", "1.0", str(how == "file")]
