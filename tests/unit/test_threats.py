"""The threat table: docs/sharp-edges.md has 42 rows, and each has a test of its name here.

Each test makes a small check of its own; the thorough ones that the table names are looked up, not repeated.
"""

import ast
import errno
import inspect
import json
import os
import pickle
import re
import signal
import socket
import stat
import sys
import tempfile
import threading
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats
from typer.testing import CliRunner

import dpunion
import spark_in_process
from dpunion.algorithms import UserOrder
from dpunion.calibration.rounding import MAX_USERS
from dpunion.cli import app
from dpunion.engines.spark.tasks import Secret, Weigh
from dpunion.errors import AlreadyReleased, BadSource, BudgetExhausted, DamagedSource, NullUsers, UnsupportedType
from dpunion.ledger import Amounts, EntryState, Ledger
from dpunion.mechanisms import ShareRule, mechanism_for
from dpunion.randomness import Purpose, RunKey
from dpunion.reading import ValueKind, open_rows
from dpunion.reading.cleaning import MAX_ITEM_BYTES
from dpunion.releases import WRITERS, Release, defuse_formula, escape_controls, statement
from dpunion.requests import Charge
from dpunion.sets.encoding import Normalization, encode
from weighing import weigh

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "sharp-edges.md"
PACKAGE = Path(dpunion.__file__).parent
THREATS = 42
CANARY = "CanarySecret"
# Loose enough that some items pass and some do not: equal results then mean something.
LOOSE = {"epsilon": 1.0, "delta": 0.05, "weak_budget": True, "algorithm": "weighted-gaussian"}
SURE = {"epsilon": 20.0, "delta": 1e-9, "weak_budget": True, "algorithm": "weighted-gaussian"}
SMALL = Amounts(epsilon=10**9, delta=10**9)


# --- the table ----------------------------------------------------------------------------------------------


def threats():
    """Return {number: (severity, pitfall, handling, [(file, name)])} of the document's table."""
    rows = {}
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[0].isdigit():
            tests = [tuple(name.split("::")) for name in re.findall(r"`([^`]+)`", cells[4])]
            assert int(cells[0]) not in rows
            rows[int(cells[0])] = (*cells[1:4], tests)
    return rows


TABLE = threats()
OUT_OF_SCOPE = {number for number, row in TABLE.items() if row[2].startswith("**Out of scope**")}


def defined(path):
    """Return the names of the tests in a file, and of the state machines that are run as tests."""
    parsed = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    machines = {ast.unparse(node.value.value) for node in parsed.body if is_test_case(node)}
    return {node.name for node in parsed.body if isinstance(node, ast.FunctionDef)} | machines


def is_test_case(node):
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute) and node.value.attr == "TestCase"


def own_tests():
    """Return {number: function} of the tests here that are named after a row."""
    found = inspect.getmembers(sys.modules[__name__], inspect.isfunction)
    named = [(re.match(r"test_threat_(\d\d)_\w+", name), function) for name, function in found]
    assert len({match[1] for match, _ in named if match}) == sum(match is not None for match, _ in named)
    return {int(match[1]): function for match, function in named if match}


def test_every_row_is_covered_or_explained(record_property):
    """Must show: how many rows a test covers, how many are out of scope with a reason, and none unexplained."""
    covered = {number for number, row in TABLE.items() if row[3] and number in own_tests()}
    unexplained = set(range(1, THREATS + 1)) - covered - OUT_OF_SCOPE
    counts = {"covered": len(covered), "out of scope": len(OUT_OF_SCOPE), "unexplained": len(unexplained)}
    for name, count in counts.items():
        record_property(name, count)
    assert counts == {"covered": 41, "out of scope": 1, "unexplained": 0}, unexplained
    assert not covered & OUT_OF_SCOPE


def test_rows_and_tests_have_the_same_numbers():
    assert sorted(TABLE) == sorted(own_tests()) == list(range(1, THREATS + 1))


@pytest.mark.parametrize("number", sorted(TABLE))
def test_the_row_is_complete(number):
    severity, pitfall, handling, tests = TABLE[number]
    assert severity in {"Critical", "Theoretical", "Negligible"}
    assert pitfall.endswith(".")
    assert len(handling) > 20
    if number in OUT_OF_SCOPE:
        assert len(handling) > 100, "a reason"
        assert tests == []
    else:
        assert len(tests) >= 2
    for path, name in tests:
        assert name in defined(path), f"{path} has no {name}"


def test_a_wrong_reference_would_be_found():
    assert "test_bad_csv" in defined("tests/faults/test_bad_input.py")
    assert "test_good_csv" not in defined("tests/faults/test_bad_input.py")
    assert "LedgerMachine" in defined("tests/property/test_ledger_stateful.py")


# --- help ---------------------------------------------------------------------------------------------------


def people(count=40, items=25):
    """Return rows of many people with overlapping sets, in no order."""
    drawn = np.random.default_rng(5)
    return [(f"u{u}", f"i{i}") for u in range(count) for i in drawn.choice(items, 1 + u % 6, replace=False)]


def released(source, **options):
    return dpunion.release(source, unsafe_test_key=3, **(LOOSE | options)).items


def contributions(rows, limit=100, key=None):
    columns = pa.array([user for user, _ in rows]), pa.array([item for _, item in rows])
    return encode(
        [columns],
        key or RunKey.for_tests(1),
        max_items_per_user=limit,
        user_order=UserOrder.RANDOM,
        normalization=Normalization.NFC,
        split_words=False,
    )


def weights(rows, name="weighted-gaussian"):
    data = contributions(rows)
    texts = data.table.data.tobytes()
    spans = zip(data.table.offsets[:-1].tolist(), data.table.offsets[1:].tolist(), strict=True)
    values = weigh(dpunion.plan(name, epsilon=1.0, delta=1e-3), data).values
    return dict(zip([texts[start:stop].decode() for start, stop in spans], values.tolist(), strict=True))


def read(source, user="u", value="v", **options):
    with open_rows(source, user=user, value=value, kind=ValueKind.ITEM, **options) as batches:
        return [row for batch in batches for row in zip(batch.users.to_pylist(), batch.values.to_pylist(), strict=True)]


def command(*arguments):
    """Run the command line here, and put back the handlers of signals that it sets."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return CliRunner().invoke(app, [str(argument) for argument in arguments])
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@pytest.fixture
def ledger(tmp_path):
    made = Ledger.open(tmp_path / "budget.db", create=True)
    made.create_dataset("people", 5, 0.5)
    return made


def spent(ledger):
    return ledger.overview().accounts[0].spent.epsilon / 10**9


# --- the rows -----------------------------------------------------------------------------------------------


def test_threat_01_row_level_by_mistake(tmp_path):
    rows = people()
    assert 0 < len(released(rows)) < 25
    assert released(rows * 3) == released(rows)
    assert "--user" in command("release", tmp_path / "a.csv", "--item", "v", "-e", "1", "-d", "1e-6").output
    assert "all rows of one person" in statement(dpunion.plan(epsilon=1, delta=1e-6), guaranteed=True)


def test_threat_02_same_user_in_several_files(tmp_path):
    rows = people()
    for number in range(3):
        lines = [f"{user},{item}\n" for user, item in rows[number::3]]
        (tmp_path / f"part{number}.csv").write_text("u,v\n" + "".join(lines))
    split = released(str(tmp_path / "*.csv"), user="u", item="v")
    assert split == released(rows)


def test_threat_03_user_id_coercion(tmp_path):
    ids = ["1", "1.0", "001", "1e0", "01", "+1"]
    (tmp_path / "a.csv").write_text("u,v\n" + "".join(f"{one},x\n" for one in ids))
    assert [user for user, _ in read(tmp_path / "a.csv")] == ids
    assert contributions([(one, "x") for one in ids]).users == len(ids)
    with pytest.raises(UnsupportedType):
        read(pa.table({"u": [1.0], "v": ["x"]}))


@pytest.mark.parametrize("missing", [None, ""])
def test_threat_04_null_users(missing):
    table = pa.table({"u": ["a", missing], "v": ["x", "y"]})
    with pytest.raises(NullUsers):
        dpunion.release(table, user="u", item="v", **LOOSE)
    assert dpunion.release(table, user="u", item="v", null_users="drop", **LOOSE) is not None
    with pytest.raises(UnsupportedType):
        read(pa.table({"u": [float("nan")], "v": ["x"]}))


def test_threat_05_null_items():
    assert read(pa.table({"u": ["a"] * 3, "v": ["x", None, ""]})) == [("a", "x")]
    for value in (-0.0, float("nan")):
        with pytest.raises(BadSource):
            read(pa.table({"u": ["a"], "v": [value]}))


def test_threat_06_spellings():
    composed, decomposed = "naïve", unicodedata.normalize("NFD", "naïve")
    assert composed != decomposed
    one = contributions([("a", composed), ("a", decomposed), ("b", decomposed)])
    assert one.table.data.tobytes().decode() == composed
    assert len(one.items) == 2
    assert weights([("a", composed), ("a", decomposed)]) == {composed: 1.0}


def test_threat_07_engine_divergence():
    from dpunion.tokens import words

    texts = ["İstanbul ΑΣ naïve", "don't 東京 x²", "e\u0301t\u0301e\u0301"]
    found = words(pa.array(texts)).to_pylist()
    assert found == [words(pa.array([text])).to_pylist()[0] for text in texts]
    assert all(unicodedata.is_normalized("NFC", word) for each in found for word in each)
    # Another splitter beside this one would be another answer.
    splitters = [path.name for path in PACKAGE.rglob("*.py") if re.search(r"\.lower\(\)\.split\(", path.read_text())]
    assert splitters == []


def test_threat_08_huge_user():
    rows = [("huge", f"item{i}") for i in range(100_000)] + [(f"small{u}", "item1") for u in range(10)]
    data = contributions(rows, limit=100)
    sizes = np.diff(data.offsets)
    assert sorted(sizes.tolist()) == [1] * 10 + [100]
    heaviest = weigh(dpunion.plan("weighted-gaussian", epsilon=1.0, delta=1e-3), data).values
    assert heaviest.max() <= 10.1
    assert np.count_nonzero(heaviest) <= 101


def test_threat_09_bounding_with_shared_items():
    rows = people()
    full = weights(rows)
    for left_out in {user for user, _ in rows}:
        rest = weights([row for row in rows if row[0] != left_out])
        shift = [full[item] - rest.get(item, 0.0) for item in full]
        assert sum(x * x for x in shift) <= 1.0 + 1e-12
        assert sum(x != 0.0 for x in shift) <= 6


def test_threat_10_novel_item_weight():
    for held in range(1, 101):
        assert int(ShareRule.L2.of_sizes(100)[held]) ** 2 * held <= 2**64
        assert int(ShareRule.L1.of_sizes(100)[held]) * held <= 2**32


def test_threat_11_float_order_and_overflow():
    assert ShareRule.L2.of_sizes(100).dtype == ShareRule.L1.of_sizes(100).dtype == np.int64
    assert MAX_USERS * 2**32 < 2**63
    rows = people()
    assert weights(rows) == weights(rows[::-1])


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
@pytest.mark.parametrize("delta", [1e-15, 1e-6, 1e-2])
def test_threat_12_miscalibration(epsilon, delta):
    plan = dpunion.plan("weighted-gaussian", epsilon=epsilon, delta=delta, weak_budget=True)
    for novel in (1, 2, 10, 100):
        tail = stats.norm.sf((plan.threshold - 1 / np.sqrt(novel)) / plan.scale)
        assert -np.expm1(novel * np.log1p(-tail)) <= delta


def test_threat_13_parameters_from_the_data():
    plans = [dpunion.release(rows, **LOOSE).plan for rows in ([("a", "x")], people(200, 90), [])]
    assert plans == [dpunion.plan(**LOOSE)] * 3


def test_threat_14_noise_distribution():
    draws = 40_000
    digests = np.arange(2 * draws, dtype=np.uint64).reshape(-1, 2)
    key = RunKey.for_tests(7)
    passed = int(key.decide_gaussian(1, digests, np.full(draws, 3.0), threshold=4.0, stddev=2.0).sum())
    assert stats.binomtest(passed, draws, stats.norm.sf(0.5)).pvalue > 1e-9
    for wrong in (0.8, 1.25):
        assert stats.binomtest(passed, draws, stats.norm.sf(0.5 / wrong)).pvalue < 1e-9


def test_threat_15_end_to_end():
    """Lone users, the worst case for delta: their items come out no more often than the claim allows."""
    delta, users = 0.02, 20_000
    options = {"epsilon": 1.0, "delta": delta, "weak_budget": True, "algorithm": "optimal-single-item"}
    out = len(dpunion.release({f"u{u}": [f"i{u}"] for u in range(users)}, **options).items)
    assert out > 0
    assert stats.binomtest(out, users, delta, alternative="greater").pvalue > 1e-9
    assert stats.binomtest(out, users, delta / 2, alternative="greater").pvalue < 1e-9, "the claim is used up"


def test_threat_16_numbers_released(tmp_path):
    written = dpunion.release({f"u{u}": ["x", "y"] for u in range(500)}, **SURE).write(tmp_path / "a.parquet")
    assert [str(field) for field in pq.read_schema(written)] == ["pyarrow.Field<item: string>"]
    assert set(Release.__slots__) <= {"items", "guaranteed", "plan", "notes", "columns", "stored"}


@pytest.mark.parametrize("rows", [[], [("only", "one")], [("a", "")]], ids=["nobody", "one person", "nothing held"])
def test_threat_17_empty_input(tmp_path, ledger, rows):
    released = dpunion.release(rows, out=tmp_path / "a.txt", charge=Charge(tmp_path / "budget.db", "people"), **TINY)
    assert released.items == ()
    assert (tmp_path / "a.txt").read_bytes() == b""
    assert spent(ledger) == 1.0


TINY = {"epsilon": 1.0, "delta": 1e-12, "algorithm": "weighted-gaussian"}


def test_threat_18_output_order(tmp_path):
    rows = [(f"u{u}", item) for u in range(500) for item in ("z", "é", "a", "Z", "\U0001f600")]
    one = dpunion.release(rows, **SURE).write(tmp_path / "one.parquet").read_bytes()
    two = dpunion.release(rows[::-1], **SURE).write(tmp_path / "two.parquet").read_bytes()
    assert one == two
    assert pq.read_table(tmp_path / "one.parquet")["item"].to_pylist() == ["Z", "a", "z", "é", "\U0001f600"]


@pytest.mark.parametrize("suffix", WRITERS)
def test_threat_19_unreleased_items_in_the_file(tmp_path, suffix):
    items = pa.array(["common"] * 500 + [f"{CANARY}{i}" for i in range(50)]).dictionary_encode()
    users = pa.array([f"{CANARY}User{i % 500}" for i in range(550)])
    release = dpunion.release(pa.table({"u": users, "v": items}), user="u", item="v", **SURE)
    raw = release.write(tmp_path / f"a{suffix}").read_bytes()
    assert release.items == ("common",)
    assert b"common" in raw
    assert CANARY.encode() not in raw
    assert CANARY.encode() not in pickle.dumps(release)


def test_threat_20_metadata(tmp_path):
    release = dpunion.release(people(), **LOOSE)
    permitted = {"format", "guaranteed", "statement", "notes", "plan", "columns", "items"}
    assert set(json.loads(release.to_json())) <= permitted
    (tmp_path / "a.csv").write_text("u,v\nx,y\n")
    options = ("--user", "u", "--item", "v", "-e", "1", "-d", "1e-6", "-a", "weighted-gaussian")
    done = command("release", tmp_path / "a.csv", *options, "--out", tmp_path / "b.json")
    assert done.exit_code == 0, done.output
    record = tmp_path / "b.json.private.toml"
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert "a.csv" in record.read_text()
    assert "a.csv" not in (tmp_path / "b.json").read_text()


def test_threat_21_errors_quote_rows(tmp_path):
    (tmp_path / "a.csv").write_text(f"u,v\nx,y\n{CANARY},{CANARY},{CANARY}\n")
    done = command("release", tmp_path / "a.csv", "--user", "u", "--item", "v", "-e", "1", "-d", "1e-6")
    assert done.exit_code == 3
    assert "line 3" in done.output
    assert CANARY not in done.output
    with pytest.raises(DamagedSource) as caught:
        read(tmp_path / "a.csv")
    assert caught.value.__context__ is caught.value.__cause__ is None


def test_threat_22_seed_in_production(tmp_path, ledger):
    release = dpunion.release(people(), unsafe_test_key=1, **LOOSE)
    assert not release.guaranteed
    assert release.statement.startswith("NOT PRIVATE")
    with pytest.raises(dpunion.NotPrivate):
        dpunion.release(people(), unsafe_test_key=1, charge=Charge(tmp_path / "budget.db", "people"), **LOOSE)
    assert spent(ledger) == 0.0


def test_threat_23_shared_streams():
    key, digests = RunKey.fresh(), np.arange(64, dtype=np.uint64).reshape(-1, 2)
    streams = [key.words(purpose, round_, digests).tobytes() for purpose in Purpose for round_ in range(3)]
    assert len(set(streams)) == len(streams)
    assert RunKey.fresh().words(Purpose.COIN, 0, digests).tobytes() not in streams


def test_threat_24_key_leak():
    key = RunKey.for_tests(1)
    assert not re.search(r"[0-9a-f]{8}", repr(key) + str(key))
    with pytest.raises(Exception, match=r"key|secret"):
        pickle.dumps(key)
    task = Weigh(None, Secret.of(key), 0, 1)
    assert not re.search(r"[0-9a-f]{8}|\\x", repr(task))
    assert key.subkey(Purpose.COIN, 0).hex() not in json.dumps(dpunion.release(people(), **LOOSE).to_dict())


def test_threat_25_lazy_re_evaluation(tmp_path):
    release = dpunion.release(people(), **LOOSE)
    assert type(release.items) is tuple
    assert all(type(item) is str for item in release.items)
    raw = [release.write(tmp_path / f"{number}.parquet").read_bytes() for number in range(2)]
    assert raw[0] == raw[1]


def test_threat_26_rerun_averaging(tmp_path, ledger):
    (tmp_path / "a.csv").write_text("u,v\nx,y\n")
    options = {"user": "u", "item": "v", "ledger": tmp_path / "budget.db", "dataset": "people", **LOOSE}
    dpunion.release(tmp_path / "a.csv", out=tmp_path / "b.txt", **options)
    with pytest.raises(AlreadyReleased) as caught:
        dpunion.release(tmp_path / "a.csv", **options)
    assert caught.value.outputs[0][0] == str(tmp_path / "b.txt")
    assert spent(ledger) == 1.0
    dpunion.release(tmp_path / "a.csv", charge_again=True, **options)
    assert spent(ledger) == 2.0


def test_threat_27_concurrent_ledger_writers(ledger):
    granted = []

    def ask(who):
        for number in range(3):
            try:
                granted.append(ledger.reserve("people", SMALL, f"{who}-{number}").number)
            except BudgetExhausted:
                continue

    askers = [threading.Thread(target=ask, args=(who,)) for who in range(4)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert len(granted) == len(set(granted)) == 5
    assert spent(ledger) == 5.0


class Untouchable:
    """A source that tells when it is looked at."""

    def __iter__(self):
        raise AssertionError("the data was read")

    def __getattr__(self, name):
        raise AssertionError(f"the data was asked for {name}")


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        *((bad, 1e-6) for bad in (0, -1, float("nan"), float("inf"), 1e308, 1e-9, True, "1", None)),
        *((1.0, bad) for bad in (0, -1e-6, 1.0, 2, float("nan"), float("inf"), 1e-300, False, "x")),
    ],
)
def test_threat_28_absurd_budgets(epsilon, delta):
    with pytest.raises(dpunion.BadParameter):
        dpunion.release(Untouchable(), epsilon=epsilon, delta=delta)


def test_threat_29_kill(ledger):
    """What a dead process leaves is a reservation that nobody settles: it stays spent."""
    with ledger.reserve("people", SMALL, "killed") as reservation:
        reservation.start_reading()
    found = Ledger.open(ledger._store.path).overview().entries
    assert [entry.state for entry in found] == [EntryState.UNSETTLED]
    assert spent(ledger) == 1.0


def test_threat_30_disk_full(tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    release = dpunion.release(people(), **LOOSE)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(dpunion.CannotWrite, match="No space left"):
        release.write(tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


def test_threat_31_spill_exposure(tmp_path, monkeypatch):
    from dpunion.sets.spill import nameless_file

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with nameless_file() as file:
        status = os.fstat(file.fileno())
        assert status.st_nlink == 0
        assert stat.S_IMODE(status.st_mode) & 0o077 == 0
        assert list(tmp_path.iterdir()) == []


def test_threat_32_damaged_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"u": [f"u{i}" for i in range(500)], "v": [f"item{i}" for i in range(500)]})
    pq.write_table(table, path, write_page_checksum=True, compression="none", use_dictionary=False)
    whole = path.read_bytes()
    assert len(read(path)) == 500
    at = whole.index(b"item250")
    for damaged in (whole[:-1], whole[: len(whole) // 2], whole[:at] + b"J" + whole[at + 1 :]):
        path.write_bytes(damaged)
        with pytest.raises(DamagedSource):
            read(path)


@pytest.mark.parametrize("rows", [b"x\n", b"x,y,z\n", b'x,"y\n', b"x,\xff\n", b"x,\0\n"])
def test_threat_33_ragged_rows(tmp_path, rows):
    (tmp_path / "a.csv").write_bytes(b"u,v\n" + rows + b"a,b\n")
    with pytest.raises(DamagedSource):
        read(tmp_path / "a.csv")


def test_threat_34_huge_strings():
    sizes = [1, MAX_ITEM_BYTES, MAX_ITEM_BYTES + 1, 5_000_000]
    table = pa.table({"u": ["a"] * 4, "v": ["x" * size for size in sizes]})
    assert [len(item) for _, item in read(table)] == sizes[:2]


def test_threat_35_hash_collisions():
    """Many names keep their own numbers, and what stands for an item is 128 bits long."""
    from dpunion.sets import strings

    texts = [f"name{i}" for i in range(300)]
    table = strings.StringTable(np.uint64(0))
    assert table.number(pa.array(texts * 2)).tolist() == [*range(300)] * 2
    assert contributions([(text, "x") for text in texts]).users == 300
    key = RunKey.fresh()
    assert key.digests(Purpose.ITEM, np.array([0, 1], np.int64), np.zeros(1, np.uint8)).nbytes == 16


def test_threat_36_cluster_retries():
    """A task that runs again, on rows that came in another order, gives the same; so does the whole release."""
    plan = dpunion.plan("funnel", epsilon=2.0, delta=0.05, weak_budget=True)
    key, database = RunKey.for_tests(3), {}
    for user, item in people():
        database.setdefault(user, set()).add(item)
    pieces, _ = spark_in_process.cut_up(plan, spark_in_process.partitions(database, 2), key, 3)
    task = Weigh(mechanism_for(plan), Secret.of(key), 0, 3)
    first, again = (spark_in_process.each(task, spark_in_process.to_shards(rows)) for rows in (pieces, pieces[::-1]))
    assert first == again
    assert len(first) > 10
    found = [spark_in_process.by_rounds(plan, database, key, 3, count) for count in (1, 2, 5)]
    assert found[0] == found[1] == found[2]


def test_threat_37_number_of_files(tmp_path):
    rows = [(f"u{u}", item) for u in range(500) for item in ("x", "y")]
    layouts = []
    for name, data in (("with", [*rows, ("one more", "z")]), ("without", rows)):
        (tmp_path / name).mkdir()
        path = dpunion.release(data, **SURE).write(tmp_path / name / "a.parquet")
        layouts.append(([file.name for file in path.parent.iterdir()], path.stat().st_size))
    assert layouts[0] == layouts[1]


def test_threat_38_item_injection():
    from dpunion.report import release_page

    hostile = ("<script>alert(1)</script>", "=cmd|'/C calc'!A0", "\x1b[31mred", "@SUM(A1)")
    assert [defuse_formula(item)[0] for item in hostile] == ["<", "'", "\x1b", "'"]
    assert "\x1b" not in escape_controls(hostile[2])
    page = release_page(Release(tuple(sorted(hostile)), dpunion.plan(epsilon=1, delta=1e-6), guaranteed=True))
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert "\x1b" not in page


def test_threat_39_cache_poisoning(tmp_path):
    from dpunion.kernels.compiler import is_kept, is_private

    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "ours").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "ours")
    assert [is_private(tmp_path / name) for name in ("open", "ours", "link")] == [False, True, False]
    assert [is_kept(tmp_path / name) for name in ("open", "ours", "link")] == [True, True, False]
    (tmp_path / "open").chmod(0o777)
    assert not is_kept(tmp_path / "open")
    (tmp_path / "open").chmod(0o1777)
    assert is_kept(tmp_path / "open")


def test_threat_40_network(monkeypatch):
    def refuse(*_given, **_options):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert dpunion.release(people(), **LOOSE).guaranteed


def test_threat_41_overlapping_releases(tmp_path, ledger):
    """Another month is another file and another release of the same people: it adds up."""
    for month in range(5):
        (tmp_path / f"{month}.csv").write_text("u,v\nx,y\n")
    options = {"user": "u", "item": "v", "ledger": tmp_path / "budget.db", "dataset": "people", **LOOSE}
    for month in range(5):
        dpunion.release(tmp_path / f"{month}.csv", **options)
        assert spent(ledger) == month + 1
    (tmp_path / "5.csv").write_text("u,v\nx,y\n")
    with pytest.raises(BudgetExhausted):
        dpunion.release(tmp_path / "5.csv", **options)


def test_threat_42_side_channels():
    assert 42 in OUT_OF_SCOPE
    assert "does not cover running time or memory use" in statement(
        dpunion.plan(epsilon=1, delta=1e-6), guaranteed=True
    )
    assert "running time, memory use" in (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    assert "running time or memory" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
