"""n-grams on Apache Spark: the same as on one machine under one key, and nothing but released ones at the driver."""

import json
import os
import tomllib
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpunion
from dpunion.algorithms import Funnel, PolicyGaussian, WeightedGaussian
from dpunion.budget import Budget
from dpunion.engines.local.texts import LocalTexts
from dpunion.engines.spark import rounds
from dpunion.engines.spark import texts as tasks
from dpunion.engines.spark.tasks import Secret
from dpunion.errors import AlreadyReleased, BadParameter, CannotWrite, InternalError, UnknownColumn
from dpunion.ledger import Ledger
from dpunion.ngrams.lengths import next_level, positions_in
from dpunion.plans.ngrams import Ngrams, plan_ngrams
from dpunion.randomness import RunKey
from dpunion.reading import ValueKind
from dpunion.requests import Charge, Folder, Run, Words
from dpunion.samples import debian_depends
from dpunion.sets.encoding import Normalization
from dpunion.sets.streams import read_tokens
from dpunion.text.splitting import Splitting
from opening import make_request
from running import run_cli
from spark_in_process import about_people, read_folder, watch_driver

KEY = RunKey.for_tests(11)
ROWS = 90_000
WORDS = Words("body", "whitespace")
WEIGHTED, POLICY = WeightedGaussian(max_items_per_user=20), PolicyGaussian(max_items_per_user=20)
FUNNEL = Funnel(max_items_per_user=20, rounds=3, first_share=0.3)
# A quarter of what comes out may be spurious, so that marks matter.
ORDER_FREE = Ngrams(longest=3, first=WEIGHTED, later=WEIGHTED, spurious_rate=0.25)
EACH_ITS_OWN = Ngrams(longest=4, first=POLICY, later=(FUNNEL, POLICY, WEIGHTED), spurious_rate=0.25)


@pytest.fixture(scope="module")
def corpus():
    """The bundled sample as texts: of each package, the names it depends on, in two documents when there are many."""
    rows = pq.read_table(debian_depends()).slice(0, ROWS)
    held = {}
    for user, item in zip(rows["user"].to_pylist(), rows["item"].to_pylist(), strict=True):
        held.setdefault(user, []).append(item)
    pairs = [(user, " ".join(half)) for user, items in held.items() for half in (items[:8], items[8:]) if half]
    users, texts = zip(*pairs, strict=True)
    return pa.table({"who": users, "body": texts})


@pytest.fixture(scope="module")
def frame(spark, corpus):
    return spark.createDataFrame(corpus)


def released(source, settings, *, words=WORDS, shards=None, overwrite=False, **options):
    common = {"user": "who", "epsilon": 3.0, "delta": 1e-4, "normalize": "nfc-lower", "unsafe_test_key": 7}
    run = Run(shards=shards, overwrite=overwrite)
    return dpunion.release(source, item=words, algorithm=settings, run=run, **common | options)


def same(there, here):
    return tuple(there.rows()) == tuple(here.rows()) and there.results == here.results and there.plan == here.plan


# --- the same on both engines ------------------------------------------------------------------------------------
@pytest.mark.usefixtures("tasks_of_spark")
@pytest.mark.parametrize("settings", [Ngrams(longest=2), EACH_ITS_OWN], ids=["default", "each its own"])
def test_one_shard_gives_what_one_machine_gives(frame, corpus, settings):
    here, there = released(corpus, settings), released(frame, settings, shards=1)
    assert all(one.released > 20 for one in here.results)
    assert same(there, here)
    assert there.notes == ("It was computed on Apache Spark, with the users split into 1 shards.",)


def test_order_free_algorithms_give_it_with_any_number_of_shards(frame, corpus):
    here = released(corpus, ORDER_FREE)
    assert here.results[2].released > 20
    assert same(released(frame.repartition(7), ORDER_FREE, shards=5), here)


def test_policies_on_many_shards_release_about_as_much(frame, corpus):
    settings = Ngrams(longest=2, first=WEIGHTED, later=FUNNEL)
    here, there = released(corpus, settings), released(frame, settings, shards=3)
    for one, other in zip(here.results, there.results, strict=True):
        assert 0.8 * one.released < other.released < 1.25 * one.released
    words = set(there.of_length(1))
    assert all(set(bigram.split(" ")) <= words for bigram in there.of_length(2))


@pytest.mark.parametrize("settings", [ORDER_FREE, EACH_ITS_OWN], ids=["order-free", "each its own"])
def test_spurious_ngrams_are_among_what_is_compared(corpus, settings):
    """The equalities above are about marks too: some of what comes out was written by nobody."""
    texts = [f" {text} " for text in corpus["body"].to_pylist()]
    release = released(corpus, settings)
    for length in range(2, settings.longest + 1):
        assert any(not any(f" {gram} " in text for text in texts) for gram in release.of_length(length))


def test_a_set_union_of_all_lengths_gives_what_one_machine_gives(frame, corpus):
    options = {"user": "who", "item": replace(WORDS, lengths="1-3"), "epsilon": 3.0}
    options |= {"delta": 1e-4, "algorithm": "policy-gaussian", "unsafe_test_key": 7}
    here = dpunion.release(corpus, **options)
    assert any(" " in item for item in here.items)
    assert dpunion.release(frame, run=Run(shards=1), **options).items == here.items


@pytest.mark.parametrize("settings", [Ngrams(longest=2), POLICY], ids=["length by length", "one set"])
def test_the_same_words_are_left_out(frame, corpus, settings):
    lengths = (1, 2) if settings is POLICY else (1, 1)
    words = Words("body", "whitespace", lengths, stop_words=["LIBC6", "perl"], min_length=8)
    here, there = released(corpus, settings, words=words), released(frame, settings, words=words, shards=1)
    assert len(here) > 20
    assert min(len(part) for item in here.items for part in item.split()) == 8
    assert same(there, here)
    assert there.notes[1:] == here.notes


def test_reviews_give_what_one_machine_gives(spark):
    folder = os.environ.get("DPUNION_DATA")
    if not folder:
        pytest.skip("DPUNION_DATA is not set: the larger data sets are not here")
    reviews = pq.read_table(f"{folder}/imdb_reviews_50k.parquet").slice(0, 2000).rename_columns(["who", "body"])
    words = Words("body", drop_urls=True, sentences=True)
    here = released(reviews, Ngrams(longest=2, first=POLICY), words=words)
    assert all(one.released > 50 for one in here.results)
    there = released(spark.createDataFrame(reviews), Ngrams(longest=2, first=POLICY), shards=1, words=words)
    assert same(there, here)


# --- what comes to the driver, and what does not ------------------------------------------------------------------
@pytest.mark.usefixtures("tasks_of_spark")
@pytest.mark.parametrize("later", [WEIGHTED, POLICY], ids=["sums", "shards"])
def test_only_released_ngrams_come_to_the_driver_and_no_cache_stays(spark, frame, monkeypatch, later):
    brought = watch_driver(frame, monkeypatch)
    release = released(frame, Ngrams(longest=2, first=WEIGHTED, later=later, spurious_rate=0.25), shards=2)
    empty, first, second = about_people(brought)
    assert empty.num_rows == 0
    assert sorted(word.decode() for word in first.column(0).to_pylist()) == list(release.of_length(1))
    words = release.of_length(1)
    pairs = [np.frombuffer(name, "<u4")[::-1].tolist() for name in second.column(0).to_pylist()]
    assert sorted(" ".join(words[i] for i in pair) for pair in pairs) == sorted(release.of_length(2))
    assert not spark.sparkContext._jsc.getPersistentRDDs()


# --- what Spark writes --------------------------------------------------------------------------------------------
ONE_LENGTH = Ngrams(longest=1, first=POLICY)
SHARDED = Ngrams(longest=2, first=WEIGHTED, later=FUNNEL, spurious_rate=0.25)


@pytest.mark.parametrize(
    ("settings", "shards"),
    [(ORDER_FREE, 3), (EACH_ITS_OWN, 1), (SHARDED, 1), (ONE_LENGTH, 1)],
    ids=["sums", "each its own", "rounds", "one length"],
)
def test_the_folder_holds_what_one_machine_releases(spark, frame, corpus, tmp_path, settings, shards):
    here = released(corpus, settings)
    assert here.results[-1].released > 20
    there = released(frame.repartition(5), settings, shards=shards, out=Folder(tmp_path / "a"))
    assert read_folder(tmp_path / "a").schema.remove_metadata() == here.table().schema
    assert read_folder(tmp_path / "a").to_pylist() == here.table().to_pylist()
    assert (there.results, there.plan, there.stored) == (here.results, here.plan, str(tmp_path / "a"))
    assert (there.items, there.numbers) == ((), ())
    with pytest.raises(BadParameter, match="folder"):
        there.of_length(1)
    assert not spark.sparkContext._jsc.getPersistentRDDs()


def test_the_folder_is_the_same_whatever_the_partitions_and_is_cut_into_files(frame, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(rounds, "ROWS_PER_FILE", 100)
    for name, parts in (("one", 1), ("many", 7)):
        released(frame.repartition(parts), ORDER_FREE, out=Folder(tmp_path / name))
    one, many = ([path.read_bytes() for path in sorted((tmp_path / name).glob("part-*"))] for name in ("one", "many"))
    assert one == many
    assert len(one) == -(-len(released(corpus, ORDER_FREE)) // 100) > 1


@pytest.mark.parametrize(
    "settings",
    [ORDER_FREE, replace(ORDER_FREE, later=(WEIGHTED, POLICY)), SHARDED, ONE_LENGTH],
    ids=["sums", "a policy last", "rounds", "one length"],
)
def test_a_folder_brings_the_same_tables_to_the_driver(frame, tmp_path, monkeypatch, settings):
    brought = watch_driver(frame, monkeypatch)
    stored = released(frame, settings, shards=2, out=Folder(tmp_path / "a"))
    sizes = [one.released for one in stored.results]
    assert min(sizes) > 20
    assert [table.num_rows for table in about_people(brought)] == [0, *sizes]
    here = released(frame, settings, shards=2)
    assert [table.num_rows for table in about_people(brought)] == [0, *sizes] * 2
    assert read_folder(tmp_path / "a").to_pylist() == here.table().to_pylist()


def test_nothing_to_release_is_a_folder_without_rows(spark, tmp_path):
    nobody = spark.createDataFrame([], "who string, body string")
    for settings in (ORDER_FREE, ONE_LENGTH):
        place = tmp_path / str(settings.longest)
        stored = released(nobody, settings, out=Folder(place))
        assert [one.released for one in stored.results] == [0] * settings.longest
        assert (read_folder(place).column_names, read_folder(place).num_rows) == (["item", "length"], 0)


def test_a_folder_of_ngrams_is_charged_and_replaced_as_one_of_items(spark, corpus, tmp_path):
    ledger, out = tmp_path / "budget.db", tmp_path / "a"
    book = Ledger.open(ledger, create=True)
    book.create_dataset("people", 10.0, 0.1)
    book.close()
    pq.write_table(corpus, tmp_path / "texts.parquet")
    frame = spark.read.parquet(str(tmp_path / "texts.parquet"))
    options = {"out": Folder(out), "charge": Charge(ledger, "people"), "unsafe_test_key": None}
    out.mkdir()
    (out / "old").write_text("old")
    with pytest.raises(CannotWrite, match="exists"):
        released(frame, ORDER_FREE, **options)
    assert Ledger.open(ledger).overview().accounts[0].spent.epsilon == 0, "what is refused before reading costs nothing"
    stored = released(frame, ORDER_FREE, overwrite=True, **options)
    assert not (out / "old").exists()
    assert stored.about.charged.dataset == "people"
    assert stored.guaranteed
    lengths = read_folder(out)["length"].to_pylist()
    assert [lengths.count(one.length) for one in stored.results] == [one.released for one in stored.results]
    with pytest.raises(AlreadyReleased):
        released(frame, ORDER_FREE, overwrite=True, **options)


def test_the_statement_speaks_of_scripts_without_spaces_as_on_one_machine(spark, tmp_path):
    rows = pa.table({"who": [f"u{i}" for i in range(300)], "body": ["東京 tower"] * 300})
    settings, words = Ngrams(longest=2, first=WEIGHTED, later=WEIGHTED), Words("body")
    here = released(rows, settings, words=words)
    assert "東京 tower" in here.of_length(2)
    stored = released(spark.createDataFrame(rows), settings, words=words, out=Folder(tmp_path / "a"))
    for made in (here, stored):
        assert any(f"2 of the {len(here)} listed have letters" in note for note in made.notes)


# --- little data, bad data ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("rows", "settings"), [([], ORDER_FREE), ([("u", ""), ("v", "word word")], EACH_ITS_OWN)], ids=["nothing", "little"]
)
def test_nothing_to_release_is_an_empty_release(spark, rows, settings):
    release = released(spark.createDataFrame(rows, "who string, body string"), settings)
    assert len(release) == 0
    assert [one.candidates for one in release.results] == [None, *[0] * (settings.longest - 1)]


def test_a_function_splits_texts_on_the_executors_and_its_errors_tell_nothing(spark):
    rows = [(None, "of-nobody"), *((f"user{i}", "Alpha-Beta") for i in range(300))]
    frame = spark.createDataFrame(rows, "who string, `the.body` string")
    settings = Ngrams(longest=2, first=WEIGHTED, later=WEIGHTED)
    by_dash, failing = Words("the.body", lambda text: text.split("-")), Words("the.body", lambda text: {}[text])
    release = released(frame, settings, words=by_dash, null_users="drop")
    assert release.of_length(1) == ("alpha", "beta")
    assert "alpha beta" in release.of_length(2)
    with pytest.raises(BadParameter, match="KeyError") as caught:
        released(frame, settings, words=failing, null_users="drop")
    assert "Alpha" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_what_is_wrong_is_refused_before_any_data_is_read(spark, frame, monkeypatch):
    monkeypatch.setattr(tasks, "materialize", lambda _: pytest.fail("the data was read"))
    with pytest.raises(UnknownColumn):
        released(frame, Ngrams(), words=Words("bdy"))
    for shards in (0, 10**6):
        with pytest.raises(BadParameter, match="shards"):
            released(frame, Ngrams(), shards=shards)
    with pytest.raises(BadParameter, match="'shards' and Folder are for Spark"):
        released([("u", "a b")], Ngrams(), user=None, words=Words(), shards=2)


# --- the command line ---------------------------------------------------------------------------------------------
@pytest.fixture
def command(spark, corpus, tmp_path):
    """The command that releases the n-grams of the corpus."""
    pq.write_table(corpus, tmp_path / "texts.parquet")
    columns = ["-u", "who", "-t", "body", "--longest", "2", "-e", "3", "-d", "1e-4", "--tokenizer", "whitespace"]
    columns += ["--first", "weighted-gaussian", "--later", "weighted-gaussian", "--unsafe-test-key", "7"]
    return ["ngrams", tmp_path / "texts.parquet", *columns]


def test_the_command_runs_on_spark(command):
    here, there = (run_cli(*command, "--json", *more) for more in ((), ("--engine", "spark", "--shards", "2")))
    assert (here.exit_code, there.exit_code) == (0, 0), there.output
    assert json.loads(there.stdout)["ngrams"] == json.loads(here.stdout)["ngrams"]


def test_the_command_has_spark_write_a_folder_and_a_record_beside_it(command, tmp_path):
    here = run_cli(*command, "--out", tmp_path / "here.parquet")
    there = run_cli(*command, "--engine", "spark", "--out-folder", tmp_path / "there")
    assert (here.exit_code, there.exit_code) == (0, 0), there.output
    assert read_folder(tmp_path / "there").to_pylist() == pq.read_table(tmp_path / "here.parquet").to_pylist()
    assert f"Released to {tmp_path / 'there'}." in there.stderr
    record = tmp_path / "there.private.toml"
    assert tomllib.loads(record.read_text())["out-folder"] == str(tmp_path / "there")
    again = run_cli("ngrams", "--config", record)
    assert again.exit_code != 0
    assert "exists already" in again.stderr


def test_options_of_spark_need_spark(tmp_path):
    done = run_cli("ngrams", tmp_path / "t.csv", "-u", "a", "-t", "b", "-e", "1", "-d", "1e-5", "--shards", "2")
    assert done.exit_code == 2
    assert "--engine spark" in done.stderr


# --- the tasks by themselves --------------------------------------------------------------------------------------
TEXTS = pa.table({"who": ["u", "v", "u"], "body": ["é b a b", "a b", "b"]})


def test_streams_are_cut_into_parts_and_put_together_again(monkeypatch):
    monkeypatch.setattr(tasks, "BYTES_PER_PART", 50)
    numbered = TEXTS.rename_columns(["column0", "column1"])
    parts = list(tasks.read_streams(reading(), ("who", "body"), Secret.of(KEY), iter(numbered.to_batches())))
    assert len(parts) > 3
    stream = read_tokens([(TEXTS["who"].combine_chunks(), TEXTS["body"].combine_chunks())], KEY, *splitting())
    again = tasks.join_stream(reader(parts[::-1]))
    for one, other in zip(arrays(again), arrays(stream), strict=True):
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()
    with pytest.raises(InternalError, match="cut short"):
        tasks.join_stream(reader(parts[:-1]))
    with pytest.raises(InternalError, match="two token streams"):
        tasks.join_stream(reader([*parts, parts[0]]))


def reading():
    return make_request(None, "who", "body", kind=ValueKind.TEXT, normalization=splitting()[1])


def splitting():
    return Splitting(), Normalization.NFC_LOWER


def reader(batches):
    return pa.RecordBatchReader.from_batches(batches[0].schema, iter(batches))


def arrays(stream):
    table = stream.table
    return stream.offsets, stream.tokens, stream.user_digests, table.offsets, table.data, table.digests


def test_places_are_found_again_from_the_levels_alone():
    """In a stream of other people's texts, whose own numbers differ, the levels' n-grams have the levels' numbers."""
    users, texts = pa.array(["u"] * 3), pa.array(["a b c d", "c d a b", "b c"])
    stream = read_tokens([(users, texts)], KEY, *splitting())
    level = tasks.level_of_tokens(("a", "b", "c", "x"), KEY)
    bigrams = np.array([0 << 32 | 1, 1 << 32 | 2, 3 << 32 | 0], np.uint64)
    above = tasks.Level(
        2, (bigrams >> np.uint64(32)).astype(np.int32), bigrams.astype(np.int32), bigrams.astype(np.int32), bigrams
    )
    assert above.pairs.tolist() == bigrams.tolist()
    *_, found = positions_in(stream, (level, above), KEY)
    names = ["a b", "b c", "x a"]
    assert sorted(names[code] for code in found.codes if code >= 0) == ["a b", "a b", "b c", "b c"]


def test_longer_ngrams_before_tokens_are_our_mistake():
    plan = plan_ngrams(ORDER_FREE, Budget(3.0, 1e-4))
    stream = read_tokens([(pa.array(["u"]), pa.array(["a b"]))], KEY, *splitting())
    level = tasks.level_of_tokens(("a", "b"), KEY)
    with pytest.raises(InternalError):
        next_level(plan.lengths[1], 0.1, LocalTexts(stream, KEY), (level,), KEY)


def test_sensitive_objects_show_nothing():
    assert repr(tasks.SparkTexts(None, KEY, 2, None)) == "SparkTexts(<sensitive>)"
