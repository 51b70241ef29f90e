"""Bad input is refused, with a remedy, and without a single byte of the data in the error."""

import gzip
import io
import json
import traceback

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpunion.errors import BadSource, DamagedSource, DpunionError, NullUsers, UnknownColumn, UnsupportedType
from dpunion.reading import ValueKind
from opening import read_pairs
from running import run_python

CANARY = "CANARYvalue"
USER, ITEM = f"{CANARY}-user", f"{CANARY}-item"


def refused(source, user="u", value="v", kind=ValueKind.ITEM):
    """Read a source to its end and return the error, after checking that nothing of the data is in it."""
    with pytest.raises(DpunionError) as caught:
        read_pairs(source, user=user, value=value, kind=kind)
    error = caught.value
    assert_silent(error)
    return error


def assert_silent(error):
    assert error.remedy
    assert str(error).endswith(error.remedy)
    seen = []
    queue = [error]
    while queue:
        one = queue.pop()
        if one is not None and one not in seen:
            seen.append(one)
            queue += [one.__cause__, one.__context__]
    texts = [f"{e} {e!r} {e.args}" for e in seen] + traceback.format_exception(error)
    assert not [text for text in texts if CANARY in text]


ROW = f"{USER},{ITEM}\n"
BAD_CSV = {
    "ragged short": (f"u,v\n{ROW}{USER}\n", "line 3"),
    "ragged long": (f"u,v\n{ROW}{USER},{ITEM},{ITEM}\n", "line 3"),
    "ragged first": (f"u,v\n{USER}\n{ROW}", "line 2"),
    "unterminated": (f'u,v\n{ROW}{USER},"{ITEM}\n' + ROW * 9, "line 3: a quote is never closed"),
    "unterminated twice": (f'u,v\n{USER},"{ITEM}\n{USER},"{ITEM}\n{ROW}', "line 3: a quote is misplaced"),
    "stray quote": (f'u,v\n{USER},{ITEM}"{ITEM}\n', "line 2: a quote is misplaced"),
    "text after quote": (f'u,v\n{USER},"{ITEM}"{ITEM}\n', "line 2: a quote is misplaced"),
    "space before quote": (f'u,v\n{USER}, "{ITEM}"\n', "line 2: a quote is misplaced"),
    "nul": (f"u,v\n{ROW}{USER},{ITEM}\0\n", "line 3: there is a NUL byte"),
    "bad utf-8": (f"u,v\n{ROW}{USER},{ITEM}".encode() + b"\xff\n", "line 3: the text is not UTF-8"),
    "bad utf-8 elsewhere": (f"w,u,v\nx,{ROW}".encode() + b"\xc3," + ROW.encode(), "line 3: the text is not UTF-8"),
    "utf-16": (f"u,v\n{ROW}".encode("utf-16"), "NUL|UTF-8"),
    "no byte": ("", "no header line"),
    "blank lines": ("\n\r\n", "no header line"),
    "duplicate column": (f"u,v,v\n{USER},{ITEM},{ITEM}\n", "2 columns named 'v'"),
    "quote in header": (f'u,v"\n{ROW}', "line 1: a quote"),
    "unclosed header": (f'u,"v\n{ROW}', "line 1: a quote is never closed"),
    "no header": (ROW * 3, "Neither of the columns .* begins with a header line"),
}


@pytest.mark.parametrize("case", BAD_CSV)
@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
def test_bad_csv_is_refused_without_its_text(tmp_path, case, packing):
    text, words = BAD_CSV[case]
    data = text.encode() if isinstance(text, str) else text
    if packing:
        data = gzip.compress(data) if packing == ".gz" else pa.compress(data, codec="zstd").to_pybytes()
    path = tmp_path / f"d.csv{packing}"
    path.write_bytes(data)
    error = refused(path)
    assert isinstance(error, BadSource)
    assert "d.csv" in str(error)
    with pytest.raises(type(error), match=words):
        raise error


def test_a_first_row_is_not_shown_as_names(tmp_path):
    (tmp_path / "d.csv").write_text(ROW)
    assert "Neither" in str(refused(tmp_path / "d.csv", 0, 2))
    assert "Neither" in str(refused(tmp_path / "d.csv", 0, "v"))
    assert "are the same" in str(refused(tmp_path / "d.csv", 1, 1))


GOOD_LINE = json.dumps({"u": USER, "v": ITEM})
BAD_JSON = {
    "truncated": (f"{GOOD_LINE}\n{GOOD_LINE[:-9]}", DamagedSource, "line 2"),
    "truncated deep": (f'{GOOD_LINE}\n{{"u":"{USER}","v":"{ITEM}","w":{{}}', DamagedSource, "line 2"),
    "garbage": (f"{GOOD_LINE}\n{{{ITEM}}}\n", DamagedSource, "line 2"),
    "null line": (f"null\n{GOOD_LINE}\n", DamagedSource, "line 1"),
    "null line later": (f"{GOOD_LINE}\nnull\n", DamagedSource, "line 2"),
    "null beside": (f"{GOOD_LINE} null\n", DamagedSource, "line 1"),
    "null between": (f"{GOOD_LINE}\n{GOOD_LINE} null {GOOD_LINE}\n", DamagedSource, "line 2"),
    "two on a line": (f"{GOOD_LINE}{GOOD_LINE}\n", DamagedSource, "line 1"),
    "one on two lines": (f'{GOOD_LINE}\n{{"u":"{USER}",\n"v":"{ITEM}"}}\n', DamagedSource, "line 2"),
    "array": (f'["{USER}","{ITEM}"]\n', DamagedSource, "line 1"),
    "text": (f'"{ITEM}"\n', DamagedSource, "line 1"),
    "nul": (f"{GOOD_LINE}\n\0\n", DamagedSource, "NUL"),
    "bad utf-8": (GOOD_LINE.encode() + b'\n{"u":"a","v":"\xff"}', DamagedSource, "line 2.*UTF-8"),
    "bad utf-8 elsewhere": (GOOD_LINE.encode() + b'\n{"u":"a","v":"b","w":"\xff"}', DamagedSource, "line 2.*UTF-8"),
    "lone surrogate": (f'{GOOD_LINE}\n{{"u":"{USER}","v":"\\ud800"}}\n', DamagedSource, "."),
    "control character": (f'{GOOD_LINE}\n{{"u":"{USER}","v":"{ITEM}\x01"}}\n', DamagedSource, "line 2"),
    "same key twice": (f'{GOOD_LINE}\n{{"u":"{USER}","u":"x","v":"{ITEM}"}}\n', DamagedSource, "same key twice"),
    "user changes type": (f'{GOOD_LINE}\n{{"u":7,"v":"{ITEM}"}}\n', UnsupportedType, "line 2, column 'u'"),
    "item becomes list": (f'{GOOD_LINE}\n{{"u":"{USER}","v":["{ITEM}"]}}\n', UnsupportedType, "line 2, column 'v'"),
    "item becomes empty list": (f'{GOOD_LINE}\n{{"u":"{USER}","v":[]}}\n', UnsupportedType, "line 2, column 'v'"),
    "mixed list": (f'{{"u":"{USER}","v":["{ITEM}",7]}}\n', UnsupportedType, "line 1, column 'v'"),
    "float user": (f'{{"u":1.0,"v":"{ITEM}"}}\n', UnsupportedType, "a float"),
    "float user later": (f'{{"u":1,"v":"{ITEM}"}}\n{{"u":1e3,"v":"{ITEM}"}}\n', UnsupportedType, "line 2.*a float"),
    "boolean user": (f'{{"u":true,"v":"{ITEM}"}}\n', UnsupportedType, "bool"),
    "long integer": (f'{{"u":1,"v":"{ITEM}"}}\n{{"u":9223372036854775808,"v":"x"}}\n', UnsupportedType, "64 bits"),
    "object": (f'{{"u":"{USER}","v":{{"{ITEM}":1}}}}\n', UnsupportedType, "an object"),
    "list of lists": (f'{{"u":"{USER}","v":[["{ITEM}"]]}}\n', UnsupportedType, "list of lists"),
    "list of users": (f'{{"u":["{USER}"],"v":"{ITEM}"}}\n', UnsupportedType, "one user per row"),
    "missing user": (f'{GOOD_LINE}\n{{"v":"{ITEM}"}}\n', NullUsers, "null_users"),
    "keys are data": (f'{{"{USER}":["{ITEM}"]}}\n', UnknownColumn, "No row .* has the keys 'u' or 'v'"),
    "nested deeply": ('{"u":' * 100_000 + "1" + "}" * 100_000, DamagedSource, "line 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_JSON)
@pytest.mark.parametrize("packing", ["", ".gz"])
def test_bad_json_lines_are_refused_without_their_text(tmp_path, case, packing):
    text, kind, words = BAD_JSON[case]
    data = text.encode() if isinstance(text, str) else text
    path = tmp_path / f"d.jsonl{packing}"
    path.write_bytes(gzip.compress(data) if packing else data)
    error = refused(path)
    assert isinstance(error, kind)
    with pytest.raises(kind, match=words):
        raise error


READ_ALL = """
import sys
from dpunion.reading import SourceRequest, ValueKind, open_source
for batch in open_source(SourceRequest(sys.argv[1], "u", ValueKind.ITEM, "v")):
    pass
"""


def test_a_null_line_does_not_crash_the_process(tmp_path):
    """Arrow's JSON parser dies of a segmentation fault on such a line; it must never see one."""
    for i, text in enumerate(["null", " null\n", f"{GOOD_LINE}\n\tnull\n", "null null\n"]):
        path = tmp_path / f"{i}.jsonl"
        path.write_text(text)
        done = run_python(READ_ALL, path)
        assert done.returncode == 1
        assert "DamagedSource" in done.stderr
        assert CANARY not in done.stderr


def table(rows=3000):
    return pa.table({"u": [f"{USER}{i % 97}" for i in range(rows)], "v": [f"{ITEM}{i}" for i in range(rows)]})


def as_parquet(**options):
    out = io.BytesIO()
    pq.write_table(table(), out, row_group_size=1000, **options)
    return out.getvalue()


def as_ipc(new):
    out = io.BytesIO()
    with new(out, table().schema) as writer:
        writer.write_table(table(), max_chunksize=1000)
    return out.getvalue()


def as_text(name):
    if name.startswith("csv"):
        return ("u,v\n" + "".join(f"{r['u']},{r['v']}\n" for r in table().to_pylist())).encode()
    return "\n".join(json.dumps(row) for row in table().to_pylist()).encode()


WHOLE = {
    "d.parquet": as_parquet,
    "d.arrow": lambda: as_ipc(pa.ipc.new_file),
    "d.arrows": lambda: as_ipc(pa.ipc.new_stream),
    "d.csv.gz": lambda: gzip.compress(as_text("csv")),
    "d.csv.zst": lambda: pa.compress(as_text("csv"), codec="zstd").to_pybytes(),
    "d.jsonl.gz": lambda: gzip.compress(as_text("jsonl")),
}


@pytest.mark.parametrize("name", WHOLE)
def test_truncated_files_are_refused_wherever_they_end(tmp_path, name):
    whole = WHOLE[name]()
    path = tmp_path / name
    last = len(whole) - 1
    ends = {1, 7, 8, 12, *np.linspace(1, last, 40).astype(int).tolist(), last, last - 3, last - 7}
    for end in ends:
        path.write_bytes(whole[:end])
        assert isinstance(refused(path), DamagedSource)
    path.write_bytes(whole)
    assert len(read_pairs(path)) == 3000


@pytest.mark.parametrize("name", [*WHOLE, "d.parquet+checksums"])
def test_flipped_bytes_never_crash_or_leak(tmp_path, name):
    """A flip that a format cannot detect may change values, but never crashes or leaks or adds rows."""
    options = {"write_page_checksum": True, "compression": "none"}
    whole = as_parquet(**options) if "+" in name else WHOLE[name]()
    path = tmp_path / name.split("+", maxsplit=1)[0]
    silent = 0
    for position in np.linspace(0, len(whole) - 1, 120).astype(int).tolist():
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        try:
            assert len(read_pairs(path)) <= 3000
            silent += 1
        except DpunionError as error:
            assert_silent(error)
    if name.endswith((".gz", "+checksums")):
        assert silent <= 6


FLIP_FOOTER = """
import sys
from pathlib import Path
from dpunion.errors import DpunionError
from dpunion.reading import SourceRequest, ValueKind, open_source
path = Path(sys.argv[1])
whole = path.read_bytes()
start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
for i in range(start, len(whole) - 8):
    path.write_bytes(whole[:i] + bytes([whole[i] ^ int(sys.argv[2])]) + whole[i + 1:])
    try:
        for batch in open_source(SourceRequest(path, "u", ValueKind.ITEM, "v")):
            pass
    except DpunionError:
        pass
"""


@pytest.mark.parametrize("bit", [1, 64])
@pytest.mark.parametrize("rows_in_a_group", [10, 2])
def test_a_damaged_footer_does_not_crash_the_process(tmp_path, rows_in_a_group, bit):
    """pyarrow's accessors of column metadata abort on some footers; Arrow must have refused these before."""
    out = tmp_path / "d.parquet"
    pq.write_table(table(10), out, row_group_size=rows_in_a_group)
    done = run_python(FLIP_FOOTER, out, bit)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".arrows", ".feather", ".csv.gz", ".jsonl.zst"])
@pytest.mark.parametrize("content", [b"", b"PAR1", b"ARROW1\0\0", b"FEA1", ROW.encode() * 9, b"\0" * 99])
def test_files_that_are_not_what_their_name_says(tmp_path, suffix, content):
    if not content and suffix == ".jsonl.zst":
        pytest.skip("no byte is valid empty JSON Lines")
    path = tmp_path / f"d{suffix}"
    path.write_bytes(content)
    assert isinstance(refused(path), DamagedSource)


def bad_utf8():
    texts = ["ok", f"{ITEM}"]
    good = pa.array(texts)
    data = good.buffers()[2].to_pybytes()[:-1] + b"\xff"
    return pa.Array.from_buffers(pa.string(), 2, [None, good.buffers()[1], pa.py_buffer(data)])


@pytest.mark.parametrize("layout", ["plain", "dictionary", "list", "view"])
@pytest.mark.parametrize("column", ["u", "v"])
def test_bad_utf8_in_arrow_columns(tmp_path, layout, column):
    bad = bad_utf8()
    match layout:
        case "dictionary":
            bad = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), bad)
        case "list":
            bad = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), bad)
        case "view":
            bad = bad.cast(pa.string_view())
    if layout == "list" and column == "u":
        return
    other = pa.array([USER, USER])
    source = pa.table({"u": bad if column == "u" else other, "v": bad if column == "v" else other})
    assert isinstance(refused(source), DamagedSource)
    with pa.OSFile(str(tmp_path / "d.arrow"), "wb") as file, pa.ipc.new_file(file, source.schema) as writer:
        writer.write_table(source)
    assert isinstance(refused(tmp_path / "d.arrow"), DamagedSource)


def test_dictionary_indices_out_of_range():
    values = pa.array([USER, ITEM])
    for index in (2, -1):
        bad = pa.DictionaryArray.from_arrays(pa.array([0, index], pa.int32()), values, safe=False)
        assert isinstance(refused(pa.table({"u": bad, "v": values})), DamagedSource)
        assert isinstance(refused(pa.table({"u": values, "v": bad})), DamagedSource)


@pytest.mark.parametrize(
    "source",
    [
        pd.DataFrame({"u": [USER, 7], "v": [ITEM, ITEM]}),
        pd.DataFrame({"u": [USER, USER], "v": [ITEM, 7.5]}),
        pd.DataFrame({"u": [USER, USER], "v": [ITEM, object()]}),
        pa.table({"u": [USER, None], "v": [ITEM, ITEM]}),
        pa.table({"u": [USER * 999], "v": [ITEM]}),
        pa.table({"u": [USER], "v": [{CANARY: 1.0}]}).rename_columns(["u", "v"]),
    ],
)
def test_bad_frames_are_refused_without_their_values(source):
    refused(source)


@pytest.mark.parametrize(
    "source",
    [
        [(USER, ITEM), (USER, 7)], [(USER, ITEM), (None, ITEM)], [(USER, ITEM), (USER,)], [(USER, ITEM), USER],
        {USER: ITEM}, {USER: [ITEM, 1.5]}, [(USER, f"{ITEM}\ud800")], [(f"{USER}\ud800", ITEM)], [(USER * 999, ITEM)],
        [((USER, ITEM), ITEM)],
    ],
)  # fmt: skip
def test_bad_objects_are_refused_without_their_values(source):
    refused(source, None, None)


class BrokenStream:
    """A source whose stream fails half way with a message that quotes a row."""

    def __arrow_c_stream__(self, requested_schema=None):
        def batches():
            yield pa.record_batch({"u": [USER], "v": [ITEM]})
            raise ValueError(f"cannot convert {ITEM}")

        schema = pa.schema([("u", pa.string()), ("v", pa.string())])
        return pa.RecordBatchReader.from_batches(schema, batches()).__arrow_c_stream__(requested_schema)


def test_a_stream_that_fails_half_way():
    assert isinstance(refused(BrokenStream()), DamagedSource)


def test_a_file_without_permission(tmp_path, monkeypatch):
    def deny(*_, **__):
        raise PermissionError(f"denied {CANARY}")

    (tmp_path / "d.csv").write_text("u,v\n" + ROW)
    monkeypatch.setattr(pa, "OSFile", deny)
    assert "No permission" in str(refused(tmp_path / "d.csv"))
