"""One body, every engine: with the same test key the released set is the same on one machine and on Spark."""

import datetime as dt
import decimal
import functools
import math
import traceback
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpunion
from dpunion.errors import AlreadyReleased, NullUsers
from dpunion.ledger import Ledger
from dpunion.randomness import RunKey
from dpunion.requests import Charge, Folder, Known, Run
from dpunion.samples import debian_depends
from dpunion_lab.generators import AskRedditLike
from spark_in_process import by_rounds, database_of, in_many_tasks

KEY = 11
BUDGET = {"epsilon": 3.0, "delta": math.exp(-10)}
QUICK = {"epsilon": 2.0, "delta": 1e-3, "algorithm": "weighted-gaussian"}
ORDER_FREE = ["count-laplace", "count-gaussian", "weighted-laplace", "weighted-gaussian", "optimal-single-item"]
# With several shards these are other policies; with one they are those of one machine.
IN_ONE_SHARD = ["policy-laplace", "policy-gaussian", "funnel"]
CANARY = "CanarySecret"


class OnOneMachine:
    """Releases from Arrow tables here."""

    name = "local"

    def release(self, table, *, shards=None, parts=None, **options):
        return dpunion.release(table, unsafe_test_key=KEY, **options)


class OnSpark:
    """Releases from the same tables as DataFrames of Spark, in this many parts."""

    name = "spark"

    def __init__(self, session):
        self.session = session

    def frame(self, table, parts=None):
        if isinstance(table, pa.Table):
            table = self.session.createDataFrame(table)
        elif isinstance(table, Path):
            table = self.session.read.parquet(str(table))
        return table if parts is None else table.repartition(parts)

    def release(self, table, *, shards=None, parts=None, overwrite=False, **options):
        run = Run(shards=shards, overwrite=overwrite)
        return dpunion.release(self.frame(table, parts), unsafe_test_key=KEY, run=run, **options)


@pytest.fixture(params=["local", *(pytest.param(name, marks=pytest.mark.full) for name in ("spark", "many tasks"))])
def engine(request, monkeypatch):
    if request.param == "local":
        return OnOneMachine()
    if request.param == "many tasks":
        in_many_tasks(monkeypatch)
    return OnSpark(request.getfixturevalue("spark"))


@pytest.fixture
def on_spark(spark, tasks_of_spark):
    return OnSpark(spark)


# --- data ---------------------------------------------------------------------------------------------------
@functools.cache
def askreddit_like():
    return AskRedditLike(users=3_000).reader().read_all()


@functools.cache
def small(seed=3, users=400):
    """Rows of some hundred users, with duplicates, in no order."""
    draw = np.random.default_rng(seed)
    owners, items = draw.integers(0, users, 5_000), np.minimum(draw.zipf(1.4, 5_000), 400)
    return pa.table({"user": [f"u{owner}" for owner in owners], "item": [f"word{item}" for item in items]})


@functools.cache
def expected(name, algorithm):
    """The release by pairs of Python texts, which neither engine's reader has touched."""
    table = {"sample": lambda: pq.read_table(debian_depends()), "askreddit-like": askreddit_like}[name]()
    pairs = zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True)
    return dpunion.release(pairs, algorithm=algorithm, unsafe_test_key=KEY, **BUDGET).items


def pairs_released(pairs, **options):
    return dpunion.release(pairs, unsafe_test_key=KEY, **options).items


def rows_of(table):
    return list(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))


# --- every algorithm ----------------------------------------------------------------------------------------
def check_release(engine, data, source, algorithm, fewest, **options):
    found = engine.release(source, user="user", item="item", algorithm=algorithm, **BUDGET, **options)
    assert found.items == expected(data, algorithm)
    assert len(found.items) > fewest
    assert not found.guaranteed


@pytest.mark.parametrize("algorithm", ORDER_FREE)
def test_the_sample_by_algorithms_that_add_shares(engine, algorithm):
    check_release(engine, "sample", Path(debian_depends()), algorithm, 50)


@pytest.mark.parametrize("shards", [1, 5])
def test_the_sample_by_dp_sips_in_any_number_of_shards(engine, shards):
    options = {"user": "user", "item": "item", "algorithm": "dp-sips", **BUDGET}
    assert engine.release(Path(debian_depends()), shards=shards, **options).items == expected("sample", "dp-sips")


@pytest.mark.parametrize("algorithm", IN_ONE_SHARD)
def test_the_sample_by_policies_in_one_shard(engine, algorithm):
    check_release(engine, "sample", Path(debian_depends()), algorithm, 100, shards=1)


@pytest.mark.parametrize("algorithm", ["weighted-gaussian", "funnel"])
def test_words_like_those_of_the_papers(engine, algorithm):
    check_release(engine, "askreddit-like", askreddit_like(), algorithm, 50, shards=1)


@pytest.mark.parametrize("algorithm", ["weighted-gaussian", "policy-gaussian"])
def test_texts_of_reviews(engine, shared_data, algorithm):
    """A slice of real reviews, split into words by the tokeniser of both engines."""
    table = pq.read_table(shared_data / "imdb_reviews_50k.parquet", columns=["user", "text"]).slice(0, 3_000)
    options = {"user": "user", "text": "text", "algorithm": algorithm, "shards": 1, **BUDGET}
    found = engine.release(table, **options)
    assert found.items == OnOneMachine().release(pa.Table.from_pylist(table.to_pylist()), **options).items
    assert len(found.items) > 500


def test_shards_of_policies_agree_with_themselves(on_spark):
    """In several shards the set is another one, but it depends neither on how the rows lie nor on Spark."""
    options = {"user": "user", "item": "item", "shards": 3, **BUDGET}
    first = on_spark.release(small(), **options)
    again = on_spark.release(small().take(np.argsort(small()["item"])), parts=7, **options)
    plan = dpunion.plan(dpunion.Funnel(), **BUDGET)
    assert first.items == again.items
    assert set(first.items) == by_rounds(plan, database_of(small()), RunKey.for_tests(KEY), 3), "task by task, here"
    assert len(first.items) > 5
    assert "3 shards" in first.notes[0]


# --- rows ---------------------------------------------------------------------------------------------------
def test_order_duplicates_and_partitions_change_nothing(engine):
    wanted = pairs_released(rows_of(small()), **QUICK)
    assert 20 < len(wanted) < 400
    backwards = small().take(np.arange(small().num_rows)[::-1])
    for table, parts in ((pa.concat_tables([small(), backwards]), 1), (backwards, 9)):
        assert engine.release(table, user="user", item="item", parts=parts, **QUICK).items == wanted


KINDS = {
    "integers": pa.array([*range(-3, 5), 2**40, None], pa.int64()),
    "dates": pa.array([dt.date(2024, 1, day) for day in range(1, 10)] + [None]),
    "booleans": pa.array([True, False, None, True, False, True, False, True, False, True]),
    "decimals": pa.array([decimal.Decimal(number) / 4 for number in range(9)] + [None], pa.decimal128(9, 2)),
    "texts": pa.array(["naïve", "nai\u0308ve", "a,b", "x\ty", "", " padded ", "☃", "001", "NULL", None]),
    "bytes": pa.array([b"a", b"bc", b"", None, b"naive", b"x", b"y", b"z", b"1", b"2"]),
    "lists": pa.array([["a", "b"], ["b", None, "c"], [], None, ["a"], ["d"], ["a"], ["e"], ["b", "a"], ["c"]]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_items_of_every_kind(engine, kind):
    values = KINDS[kind].take(np.arange(400) % 10)
    table = pa.table({"user": pa.array([f"u{row % 150}" for row in range(400)]), "item": values})
    try:
        wanted = OnOneMachine().release(table, user="user", item="item", **QUICK).items
    except dpunion.BadSource as refusal:
        with pytest.raises(type(refusal)):
            engine.release(table, user="user", item="item", **QUICK)
        return
    assert engine.release(table, user="user", item="item", **QUICK).items == wanted
    assert wanted


def test_users_are_integers_or_texts(engine):
    rows = [(number % 90, f"i{number % 7}") for number in range(500)]
    numbers = pa.table({"user": pa.array([user for user, _ in rows]), "item": [item for _, item in rows]})
    wanted = pairs_released([(str(user), item) for user, item in rows], **QUICK)
    assert engine.release(numbers, user="user", item="item", **QUICK).items == wanted
    with pytest.raises(dpunion.BadSource):
        floats = numbers.set_column(0, "user", numbers["user"].cast(pa.float64()))
        engine.release(floats, user="user", item="item", **QUICK)


def test_spellings_are_one_item_and_case_when_asked_for(engine):
    spellings = ["Straße", "STRASSE", "é", "e\u0301", "É", "x"]
    rows = [(f"u{number % 70}", spellings[number * 7 % 6]) for number in range(300)]
    table = pa.table({"user": [user for user, _ in rows], "item": [item for _, item in rows]})
    for how in ("exact", "nfc-lower"):
        wanted = pairs_released(rows, normalize=how, **QUICK)
        assert engine.release(table, user="user", item="item", normalize=how, **QUICK).items == wanted


def test_columns_may_have_any_name(engine):
    table = small().rename_columns(["a.b `c`", "the item, its name"])
    found = engine.release(table, user="a.b `c`", item="the item, its name", **QUICK)
    assert found.items == pairs_released(rows_of(small()), **QUICK)


def test_one_huge_user_counts_as_one(engine):
    items = [f"own{number}" for number in range(200_000)]
    users = ["huge"] * len(items) + [f"u{number % 60}" for number in range(300)]
    table = pa.table({"user": users, "item": items + [f"i{number % 5}" for number in range(300)]})
    found = engine.release(table, user="user", item="item", parts=3, **QUICK)
    assert found.items == tuple(f"i{number}" for number in range(5))


def test_no_rows_give_an_empty_release(engine):
    for algorithm in ("weighted-gaussian", "funnel"):
        empty = engine.release(small().slice(0, 0), user="user", item="item", algorithm=algorithm, **BUDGET)
        assert empty.items == ()


def test_known_items_are_left_out_before_bounding(engine):
    known = ["word1", "word2", "word3"]
    wanted = pairs_released(rows_of(small()), known=known, **QUICK)
    assert wanted
    assert not set(wanted) & set(known)
    assert engine.release(small(), user="user", item="item", known=known, **QUICK).items == wanted
    both = engine.release(small(), user="user", item="item", known=Known(known, include=True), **QUICK).items
    assert set(both) == {*wanted, *known}


# --- keys of several columns --------------------------------------------------------------------------------
@functools.cache
def keyed():
    draw = np.random.default_rng(8)
    places = [["north", "so/uth", None, "a=b", "x\\y"][place] for place in draw.integers(0, 5, 2_000)]
    years = pa.array(draw.integers(2020, 2024, 2_000))
    return pa.table({"who": [f"u{user}" for user in draw.integers(0, 300, 2_000)], "a.place": places, "year": years})


def test_keys_of_several_columns(engine):
    found = engine.release(keyed(), user="who", item=["a.place", "year"], **QUICK)
    rows = [(who, (place, str(year))) for who, place, year in rows_of(keyed()) if place is not None]
    assert found.items == pairs_released(rows, item=["a.place", "year"], **QUICK)
    assert found.columns == ("a.place", "year")
    assert len(found.items) > 10


# --- refusals -----------------------------------------------------------------------------------------------
def test_missing_users_are_refused_or_dropped(engine):
    users = pa.array([None if row % 50 == 0 else f"u{row % 80}" for row in range(400)], pa.string())
    table = pa.table({"user": users, "item": [f"{CANARY}{row % 6}" for row in range(400)]})
    with pytest.raises(NullUsers) as caught:
        engine.release(table, user="user", item="item", **QUICK)
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is caught.value.__cause__ is None
    found = engine.release(table, user="user", item="item", null_users="drop", **QUICK)
    assert found.items == pairs_released([row for row in rows_of(table) if row[0] is not None], **QUICK)


@pytest.mark.parametrize("names", [{"user": "usr", "item": "item"}, {"user": "user", "item": "itme"}])
def test_a_wrong_column_is_refused_by_name(engine, names):
    with pytest.raises(dpunion.BadSource, match=r"usr|itme"):
        engine.release(small(), **names, **QUICK)


def test_types_that_have_no_one_text_are_refused_before_reading(engine):
    nested = pa.array([{"a": 1}] * 3)
    for values in (pa.array([0.5, 1.5, -0.0]), nested, pa.array([dt.datetime(2024, 1, 1, tzinfo=dt.UTC)] * 3)):
        with pytest.raises(dpunion.BadSource):
            engine.release(pa.table({"user": ["a", "b", "c"], "item": values}), user="user", item="item", **QUICK)


# --- what Spark writes --------------------------------------------------------------------------------------
def parts_of(folder):
    """Return the data files that Spark wrote, by name without the job's own number."""
    return sorted(path for path in Path(folder).iterdir() if path.name.startswith("part-"))


def with_canaries():
    """The small rows, and rare items and users that must not be seen again."""
    rare = pa.table({"user": [f"{CANARY}User{i}" for i in range(40)], "item": [f"{CANARY}{i}" for i in range(40)]})
    return pa.concat_tables([small(), rare])


def test_the_folder_is_the_same_whatever_the_partitions(on_spark, tmp_path):
    found, contents = {}, {}
    options = {"user": "user", "item": "item", **QUICK}
    for name, parts in (("one", 1), ("many", 11)):
        found[name] = on_spark.release(with_canaries(), parts=parts, out=Folder(tmp_path / name), **options)
        files = parts_of(tmp_path / name)
        contents[name] = [path.read_bytes() for path in files]
        assert {path.name.split("-")[0] for path in files} == {"part"}
        assert {path.name for path in (tmp_path / name).iterdir() if path not in files} <= {
            "_SUCCESS",
            "._SUCCESS.crc",
            *(f".{path.name}.crc" for path in files),
        }
    assert contents["one"] == contents["many"]
    assert len(contents["one"]) == 1
    table = pq.read_table(tmp_path / "one")
    wanted = pairs_released(rows_of(with_canaries()), **QUICK)
    assert table.column_names == ["item"]
    assert tuple(table["item"].to_pylist()) == wanted == tuple(sorted(wanted, key=str.encode))
    assert found["one"].stored == str(tmp_path / "one")
    with pytest.raises(dpunion.BadParameter, match="folder"):
        len(found["one"])


def test_no_unreleased_item_is_in_the_folder(on_spark, tmp_path):
    on_spark.release(with_canaries(), user="user", item="item", shards=2, out=Folder(tmp_path / "a"), **BUDGET)
    files = parts_of(tmp_path / "a")
    assert files
    for path in (tmp_path / "a").rglob("*"):
        assert CANARY.encode() not in path.read_bytes()
    # Pages are compressed: what the file's own dictionaries hold is looked at too.
    for path in files:
        column = pq.read_table(path, read_dictionary=["item"])["item"]
        held = {item for chunk in column.chunks for item in chunk.dictionary.to_pylist()}
        assert held == set(column.to_pylist())
        assert not any(CANARY in item for item in held)
        assert set(pq.read_schema(path).metadata) <= {
            b"org.apache.spark.version",
            b"org.apache.spark.sql.parquet.row.metadata",
        }


def test_many_items_are_cut_into_files_of_a_fixed_number(on_spark, tmp_path, monkeypatch):
    monkeypatch.setattr("dpunion.engines.spark.rounds.ROWS_PER_FILE", 10)
    options = {"user": "user", "item": "item", **QUICK}
    on_spark.release(small(), parts=6, out=Folder(tmp_path / "a"), **options)
    wanted = pairs_released(rows_of(small()), **QUICK)
    sizes = [pq.read_metadata(path).num_rows for path in parts_of(tmp_path / "a")]
    assert sizes == [10] * (len(wanted) // 10) + ([len(wanted) % 10] if len(wanted) % 10 else [])
    found = [item for path in parts_of(tmp_path / "a") for item in pq.read_table(path)["item"].to_pylist()]
    assert tuple(found) == wanted


def test_keys_are_written_as_their_columns(on_spark, tmp_path):
    options = {"user": "who", "item": ["a.place", "year"], **QUICK}
    on_spark.release(keyed(), out=Folder(tmp_path / "a"), **options)
    table = pq.read_table(tmp_path / "a")
    assert table.column_names == ["a.place", "year"]
    assert tuple(rows_of(table)) == OnOneMachine().release(keyed(), **options).items


def test_an_included_list_is_written_too(on_spark, tmp_path):
    options = {"user": "user", "item": "item", "known": Known(["word1", "zzz", "a"], include=True), **QUICK}
    on_spark.release(small(), out=Folder(tmp_path / "a"), **options)
    assert tuple(pq.read_table(tmp_path / "a")["item"].to_pylist()) == OnOneMachine().release(small(), **options).items


def test_an_empty_release_is_written_with_its_column(on_spark, tmp_path):
    on_spark.release(small().slice(0, 0), user="user", item="item", out=Folder(tmp_path / "a"), **QUICK)
    table = pq.read_table(tmp_path / "a")
    assert table.schema.names == ["item"]
    assert table.num_rows == 0
    assert len(parts_of(tmp_path / "a")) == 1


def test_a_folder_that_exists_is_kept_unless_overwriting_is_allowed(on_spark, tmp_path):
    options = {"user": "user", "item": "item", "out": Folder(tmp_path / "a"), **QUICK}
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "old").write_text("old")
    with pytest.raises(dpunion.CannotWrite, match="exists"):
        on_spark.release(small(), **options)
    assert (tmp_path / "a" / "old").read_text() == "old"
    on_spark.release(small(), overwrite=True, **options)
    assert len(parts_of(tmp_path / "a")) == 1
    assert not (tmp_path / "a" / "old").exists()


def test_what_can_be_refused_is_refused_before_reading(on_spark, tmp_path, monkeypatch):
    (tmp_path / "taken").mkdir()
    frame = on_spark.frame(pa.table({"user": ["a"], "item": ["b"]}))
    monkeypatch.setattr("dpunion.engines.spark.rounds.select_items", lambda *_, **__: pytest.fail("the data was read"))
    columns = {"user": "user", "item": "item", "epsilon": 3.0, "delta": 1e-5}
    with pytest.raises(dpunion.CannotWrite, match="exists"):
        dpunion.release(frame, out=Folder(tmp_path / "taken"), **columns)
    with pytest.raises(dpunion.BadParameter, match="shards"):
        dpunion.release(frame, run=Run(shards=1_000), **columns)


def test_a_ledger_tells_frames_of_other_files_apart(on_spark, tmp_path):
    ledger = tmp_path / "budget.db"
    book = Ledger.open(ledger, create=True)
    book.create_dataset("people", 10.0, 0.1)
    book.close()
    options = {"user": "user", "item": "item", "charge": Charge(ledger, "people"), **QUICK}
    for name in ("a", "b"):
        pq.write_table(small(), tmp_path / f"{name}.parquet")
    frames = [on_spark.frame(tmp_path / f"{name}.parquet") for name in ("a", "b")]
    dpunion.release(frames[0], **options)
    dpunion.release(frames[1], out=Folder(tmp_path / "out"), **options)
    for frame in frames:
        with pytest.raises(AlreadyReleased):
            dpunion.release(frame, **options)


def test_a_place_is_needed_for_what_is_not_collected(on_spark, tmp_path):
    options = {"user": "user", "item": "item", **QUICK}
    for nowhere in (None, "", [tmp_path / "a"]):
        with pytest.raises(dpunion.BadParameter, match="needs a path"):
            on_spark.release(small(), out=Folder(nowhere), **options)


def test_what_spark_says_of_a_value_is_not_repeated(on_spark):
    frame = on_spark.frame(with_canaries()).selectExpr("cast(user as int) as user", "item")
    with pytest.raises(dpunion.BadSource, match="CAST_INVALID_INPUT") as caught:
        on_spark.release(frame, user="user", item="item", **QUICK)
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is caught.value.__cause__ is None


# --- settings of a session that is not ours -----------------------------------------------------------------
def test_large_arrow_types_and_other_batches_change_nothing(on_spark):
    settings = {
        "spark.sql.execution.arrow.useLargeVarTypes": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.ansi.enabled": "false",
    }
    before = {name: on_spark.session.conf.get(name) for name in settings}
    wanted = pairs_released(rows_of(small()), **BUDGET)
    try:
        for name, value in settings.items():
            on_spark.session.conf.set(name, value)
        assert on_spark.release(small(), user="user", item="item", shards=1, **BUDGET).items == wanted
    finally:
        for name, value in before.items():
            on_spark.session.conf.set(name, value)
