"""Nothing but the released items gets out: not by files, not by what is printed, not by what objects say of themselves.

The data holds canaries: user ids and items that cannot be released (each of one person only, far below the threshold),
in every place that careless writers copy along: dictionaries, statistics, pandas metadata, row order. Everything that
comes out is then searched for them, as raw bytes and decompressed.
"""

import contextlib
import csv
import gc
import gzip
import io
import json
import logging
import os
import pickle
import re
import subprocess
import sys
import traceback
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpunion
from dpunion.algorithms import ALGORITHMS, Funnel, UserOrder
from dpunion.randomness import Purpose, RunKey
from dpunion.releases.formats import WRITERS
from dpunion.releases.release import FORMAT
from dpunion.sets.strings import StringTable
from making import encode_items, publish
from running import CLI, PATIENCE, read_terminal, run_cli, run_python
from weighing import weigh

PEOPLE, POPULAR, RARE = 400, 30, 500
POPULAR_ITEMS = [f"popular-{i:02}" for i in range(POPULAR)]
CANARY_ITEMS = [f"RareCanary{i:03}Secret" for i in range(RARE)]
CANARY_USERS = [f"UserCanary{i:03}Secret" for i in range(PEOPLE)]
CANARY_COLUMN, CANARY_FILE, CANARY_META = "ColumnCanarySecret", "FileCanarySecret", "MetaCanarySecret"
CANARY = re.compile(rb"canary", re.IGNORECASE)
# A lone item's weight is at most 1 and the threshold far above: Pr[any canary is released] < 1e-9.
BUDGET = {"epsilon": 1.0, "delta": 1e-12}


def rows():
    """Return user and item columns: everybody has all popular items, canaries stand first and between."""
    pairs = [(CANARY_USERS[i % PEOPLE], canary) for i, canary in enumerate(CANARY_ITEMS)]
    for user in CANARY_USERS:
        pairs.extend((user, item) for item in POPULAR_ITEMS)
        pairs.append((user, CANARY_ITEMS[0] + user))
    return [user for user, _ in pairs], [item for _, item in pairs]


@pytest.fixture(scope="module")
def table():
    users, items = rows()
    frame = pd.DataFrame({"who": users, "what": pd.Categorical(items), CANARY_COLUMN: 1})
    made = pa.Table.from_pandas(frame)
    return made.replace_schema_metadata({**(made.schema.metadata or {}), b"note": CANARY_META.encode()})


@pytest.fixture(scope="module")
def source(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / f"{CANARY_FILE}.parquet"
    pq.write_table(table, path)
    assert CANARY.search(path.read_bytes()), "the source holds no canaries: the search would prove nothing"
    return path


@pytest.fixture(scope="module")
def release(source):
    released = dpunion.release(str(source), user="who", item="what", algorithm=dpunion.WeightedGaussian(), **BUDGET)
    assert released.items == tuple(POPULAR_ITEMS)
    return released


@pytest.fixture(scope="module")
def counted(source):
    options = {"algorithm": dpunion.WeightedGaussian(), "counts": True, "sort": "item", **BUDGET}
    released = dpunion.release(str(source), user="who", item="what", **options)
    assert released.items == tuple(POPULAR_ITEMS)
    return released


@pytest.fixture(scope="module", params=list(WRITERS))
def suffix(request):
    return request.param


@pytest.fixture(scope="module", params=["release", "counted"])
def written(request, suffix, tmp_path_factory):
    made = request.getfixturevalue(request.param)
    return made.write(tmp_path_factory.mktemp("out") / f"{request.param}{suffix}")


def opened(raw):
    """Yield the bytes, and all they have in any compression that a reader would undo."""
    yield raw
    yield from zstd_frames(raw)
    if raw[:4] == b"PAR1":
        file = pq.ParquetFile(io.BytesIO(raw))
        plain = io.BytesIO()
        pq.write_table(file.read(), plain, compression="none", use_dictionary=False)
        yield plain.getvalue()
        yield repr(file.metadata.to_dict()).encode() + repr(file.metadata.metadata).encode()
        yield repr(file.schema).encode() + repr(file.schema_arrow.metadata).encode()
        yield from (column_bytes(column) for column in file.read().columns)
    if raw[:6] == b"ARROW1":
        read = pa.ipc.open_file(io.BytesIO(raw)).read_all()
        yield repr(read.schema.metadata).encode()
        yield from (column_bytes(column) for column in read.columns)
    if raw[:2] == b"\x1f\x8b":
        yield gzip.decompress(raw)


def column_bytes(column):
    """Return all buffers of a column whole, also what its values do not refer to."""
    chunks = [chunk.dictionary if isinstance(chunk, pa.DictionaryArray) else chunk for chunk in column.chunks]
    buffers = [buffer for chunk in chunks for buffer in chunk.buffers() if buffer is not None]
    return b"".join(buffer.to_pybytes() for buffer in buffers)


def zstd_frames(raw):
    """Yield each zstd frame decompressed, wherever it stands and whether an index speaks of it or not (RFC 8878)."""
    at = 0
    while (at := raw.find(b"\x28\xb5\x2f\xfd", at)) >= 0:
        with contextlib.suppress(OSError):  # the magic number by chance
            yield pa.input_stream(io.BytesIO(raw[at : frame_end(raw, at)]), compression="zstd").read()
        at += 4


def frame_end(raw, at):
    descriptor = raw[at + 4]
    single = descriptor >> 5 & 1
    sizes = (1 - single) + (0, 1, 2, 4)[descriptor & 3] + (single, 2, 4, 8)[descriptor >> 6]
    at += 5 + sizes
    last = 0
    while not last and at + 3 <= len(raw):
        block = int.from_bytes(raw[at : at + 3], "little")
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        at += 3 + (1 if kind == 1 else size)
    return at + 4 * (descriptor >> 2 & 1)


def assert_clean(raw):
    for content in opened(raw):
        assert not CANARY.search(content), "a canary got out"


def test_the_search_finds_what_careless_writers_leave(table):
    """Power: filtering a dictionary column and writing it keeps every unreleased item."""
    what = table["what"].combine_chunks()
    kept = table.filter(pa.compute.is_in(what.cast(pa.string()), pa.array(POPULAR_ITEMS)))
    careless = kept.select(["what"]).replace_schema_metadata(None)
    files = []
    for compression in ("zstd", None):
        files.extend([io.BytesIO(), io.BytesIO()])
        pq.write_table(careless, files[-2], compression=compression or "none")
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_file(files[-1], careless.schema, options=options) as writer:
            writer.write_table(careless)
    for file in files:
        with pytest.raises(AssertionError, match="canary"):
            assert_clean(file.getvalue())
    with pytest.raises(AssertionError, match="canary"):
        assert_clean(gzip.compress(CANARY_ITEMS[0].encode()))


def test_files_hold_no_canary(written):
    assert_clean(written.read_bytes())
    assert not CANARY.search(os.fsencode(written.name))


def test_files_hold_the_popular_items(written):
    """Otherwise the search above would also pass on encrypted or empty files."""
    found = b"".join(opened(written.read_bytes()))
    assert all(item.encode() in found for item in POPULAR_ITEMS)


def columns_of(path):
    raw = path.read_bytes()
    match path.suffix:
        case ".parquet":
            return [str(field) for field in pq.read_schema(path)]
        case ".arrow":
            return [str(field) for field in pa.ipc.open_file(raw).schema]
        case ".csv":
            return next(csv.reader(io.StringIO(raw.decode())))
        case ".jsonl":
            return sorted({name for line in raw.decode().splitlines() for name in json.loads(line)})
        case ".txt":
            return []
        case ".json":
            return sorted(json.loads(raw))


def test_files_have_the_permitted_columns_and_no_others(written):
    numbers = ["people", "low", "high"] if written.stem == "counted" else []
    fields = ["pyarrow.Field<item: string>", *(f"pyarrow.Field<{name}: int64>" for name in numbers)]
    more = ["numbers", "totals"] if numbers else []
    keys = ["about", "columns", "format", "guaranteed", "items", "notes", "plan", "statement", *more]
    columns = {".csv": ["item", *numbers], ".jsonl": sorted(["item", *numbers]), ".txt": [], ".json": sorted(keys)}
    assert columns_of(written) == columns.get(written.suffix, fields)
    assert written.suffix in {*columns, ".parquet", ".arrow"}


def test_text_files_hold_the_items_and_nothing_else(release, tmp_path):
    lines = "".join(item + "\n" for item in POPULAR_ITEMS)
    assert release.write(tmp_path / "a.txt").read_text() == lines
    assert release.write(tmp_path / "a.csv").read_text() == "item\n" + lines
    objects = "".join(json.dumps({"item": item}) + "\n" for item in POPULAR_ITEMS)
    assert release.write(tmp_path / "a.jsonl").read_text() == objects


PLAN_KEYS = {
    *("algorithm", "parameters", "epsilon", "delta", "noise", "stddev", "scale", "threshold", "cutoff"),
    *("sensitivity", "delta_used", "delta_used_share", "rounding_slack", "rounds"),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_json_says_nothing_that_was_not_known_before_the_data(name):
    """Of two unlike inputs everything but the items is equal: no count, no size, no time, no path."""
    budget = {"epsilon": 20.0, "delta": 1e-6, "weak_budget": True}
    if name == Funnel.name:
        budget["max_items_per_user"] = 300  # what a look chooses is told, and paid for
    one = dpunion.release({"u": ["a"]}, algorithm=name, **budget).to_dict()
    other_users = {f"v{i}": [f"x{j}" for j in range(i % 7)] for i in range(500)}
    other = dpunion.release(other_users, algorithm=name, **budget).to_dict()
    planned = dpunion.plan(name, **budget)
    assert one.pop("items") != other.pop("items")
    assert one == other
    assert one["plan"] == planned.to_dict()
    assert set(one["about"]) == {"made"}
    assert set(one) == {"about", "columns", "format", "notes", "guaranteed", "statement", "plan"}
    assert set(one["plan"]) <= PLAN_KEYS
    assert one["format"] == FORMAT


def test_parquet_metadata_is_bare(release, tmp_path):
    path = release.write(tmp_path / "a.parquet")
    file = pq.ParquetFile(path)
    metadata = file.metadata
    assert metadata.metadata is None or set(metadata.metadata) == {b"ARROW:schema"}
    assert file.schema_arrow.metadata is None
    assert file.schema_arrow.field("item").metadata in (None, {b"PARQUET:field_id": b"-1"})
    assert re.fullmatch(r"parquet-cpp-arrow version [\d.]+", metadata.created_by)
    assert metadata.num_rows == POPULAR
    statistics = metadata.row_group(0).column(0).statistics
    if statistics is not None:
        assert (statistics.min, statistics.max) == (POPULAR_ITEMS[0], POPULAR_ITEMS[-1])
        assert statistics.null_count == 0
    assert not metadata.row_group(0).column(0).has_dictionary_page


def test_files_do_not_depend_on_anything_but_the_items(source, tmp_path):
    """The bytes are those of a release of the same items from quite different data, with another key."""
    other = {f"someone{i}": list(reversed(POPULAR_ITEMS)) for i in range(1000)}
    options = {"algorithm": dpunion.WeightedGaussian(), **BUDGET}
    one = dpunion.release(str(source), user="who", item="what", **options)
    two = dpunion.release(other, **options)
    for suffix in WRITERS:
        first = one.write(tmp_path / f"one{suffix}").read_bytes()
        assert first == two.write(tmp_path / f"two{suffix}").read_bytes(), suffix


def test_the_command_line_prints_no_canary(source, tmp_path):
    base = ["release", str(source), "--user", "who", "--item", "what", "-e", "1", "-d", "1e-12"]
    out = [str(tmp_path / f"out{suffix}") for suffix in WRITERS]
    everything = [part for path in out for part in ("--out", path)]
    for arguments in ([*base, "--json"], [*base, *everything], [*base, "--counts", "--json"], [*base, "--counts"]):
        done = run(*arguments)
        assert done.returncode == 0, done.stderr
        assert_clean(done.stdout)
        # The name of the source is the user's own choice and may be repeated to them.
        assert_clean(done.stderr.replace(CANARY_FILE.encode(), b""))
        assert b"popular-" in done.stdout or "--out" in arguments
    for path in out:
        assert_clean(Path(path).read_bytes())


def run(*arguments, **options):
    return run_python(CLI, *arguments, text=False, **options)


def test_the_terminal_shows_no_canary_and_no_count(source):
    """With stderr a terminal the progress bar is drawn: it names stages and a fraction of bytes only."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    arguments = ["release", str(source), "--user", "who", "--item", "what", "-e", "1", "-d", "1e-12"]
    surroundings = {"stderr": theirs, "env": {**os.environ, "TERM": "xterm", "COLUMNS": "200"}}
    with subprocess.Popen([sys.executable, "-c", CLI, *arguments], stdout=subprocess.PIPE, **surroundings) as process:
        os.close(theirs)
        shown = read_terminal(ours)
        stdout = process.stdout.read()
        assert process.wait(PATIENCE) == 0
    assert b"reading" in shown or b"selecting" in shown
    assert_clean(shown)
    assert_clean(stdout)
    before_the_end = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", shown).split(b"Released")[0]
    assert str(PEOPLE).encode() not in before_the_end


def test_public_and_sensitive_objects_say_nothing(table, release):
    key = RunKey.fresh()
    users, items = rows()
    columns = pa.array(users), pa.array(items)
    contributions = encode_items([columns], key, 100, UserOrder.RANDOM)
    weights = weigh(release.plan, contributions)
    strings = StringTable(RunKey.fresh().digests(Purpose.USER, *no_strings()).sum(dtype="uint64"))
    strings.number(columns[0])
    published = publish(release.plan, contributions, key)
    for thing in (contributions, contributions.table, weights, strings, key, key.export_for_closure()):
        for text in (str(thing), repr(thing), f"{thing}", f"{[thing]}", f"{thing!a}"):
            assert_clean(text.encode())
            assert not re.search(r"\d{2,}|array|\[[0-9.]", text.replace(repr(weights.sensitivity), "")), text
    for thing in (published, published.plan, published.plan.budget, published.plan.algorithm, release):
        for text in (str(thing), repr(thing), f"{thing}"):
            assert_clean(text.encode())
            assert str(len(CANARY_USERS)) not in text


def no_strings():
    import numpy as np

    return np.zeros(1, np.int64), np.empty(0, np.uint8)


def test_a_release_holds_nothing_else(release):
    """Pickling walks everything reachable from the release; so does the garbage collector, here a few steps."""
    assert_clean(pickle.dumps(release))
    seen = reachable(release)
    assert not [thing for thing in seen if isinstance(thing, str) and "Canary" in thing]
    assert not [thing for thing in seen if type(thing).__module__.startswith(("pyarrow", "numpy"))]


def reachable(root):
    found, todo = {}, [root]
    while todo:
        thing = todo.pop()
        if id(thing) in found or isinstance(thing, type) or type(thing).__name__ in {"module", "function"}:
            continue
        found[id(thing)] = thing
        todo.extend(gc.get_referents(thing))
    return list(found.values())


def test_no_user_id_outlives_the_reading(table):
    users, items = rows()
    contributions = encode_items([(pa.array(users), pa.array(items))], RunKey.fresh(), 100, UserOrder.RANDOM)
    held = contributions.table.data.tobytes()
    assert CANARY_ITEMS[1].encode() in held
    # Items that quote a user id are items; ids that are only ids are gone.
    assert b"UserCanary" not in held.replace(CANARY_ITEMS[0].encode() + b"UserCanary", b"")


@pytest.mark.parametrize("level", [logging.DEBUG, logging.WARNING])
def test_nothing_is_logged(source, caplog, capfd, level):
    with caplog.at_level(level):
        dpunion.release(str(source), user="who", item="what", **BUDGET)
    assert not [record for record in caplog.records if record.name.split(".")[0] == "dpunion"]
    assert_clean(caplog.text.encode())
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


class Awkward(RuntimeError):
    """An error whose text quotes the data, as those of many readers do."""


def test_an_unexpected_error_does_not_quote_the_data(source, monkeypatch):
    from dpunion.engines.local import engine

    def fail(*_arguments):
        raise Awkward(CANARY_ITEMS[0])

    monkeypatch.setattr(engine, "run_rounds", fail)
    result = run_cli("release", source, "--user", "who", "--item", "what", "-e", "1", "-d", "1e-6")
    assert result.exit_code == 1
    assert "Unexpected Awkward at test_leaks.py:" in result.output
    assert "Its message is not shown" in result.output
    assert_clean(result.output.encode())


def test_tracebacks_of_refusals_hold_no_canary(tmp_path):
    """Also the causes and contexts behind an error are searched, as a debugger or a crash reporter shows them."""
    users, items = rows()
    bad = tmp_path / "bad.csv"
    lines = [f"{user},{item}" for user, item in zip(users, items, strict=True)]
    bad.write_text("\n".join(["who,what", *lines, "RaggedCanary,too,many,fields"]))
    nulls = pa.table({"who": [*users, None], "what": [*items, "NullCanary"]})
    floats = pa.table({"who": [1.5], "what": ["FloatCanary"]})
    for source in (str(bad), nulls, floats):
        with pytest.raises(dpunion.BadSource) as caught:
            dpunion.release(source, user="who", item="what", **BUDGET)
        error = caught.value
        while error is not None:
            assert_clean("".join(traceback.format_exception_only(error)).encode())
            error = error.__cause__ or error.__context__


def test_the_order_is_not_that_of_the_data(tmp_path):
    """The items stand in byte order, though first seen in the opposite one."""
    items = sorted(POPULAR_ITEMS, reverse=True)
    release = dpunion.release({f"user{i}": items for i in range(500)}, **BUDGET)
    assert list(release.items) == sorted(items)
