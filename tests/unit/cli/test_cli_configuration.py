"""--config: mistakes are told in the words of the file; and the private record makes the same release again."""

import dataclasses
import errno
import json
import os
import stat
import tomllib
from pathlib import Path

import pytest

import dpunion
from dpunion.cli.records import record_configuration, without_credentials
from dpunion.errors import CannotWrite
from dpunion.ledger import Ledger
from running import assert_error
from running import run_cli as run

BUDGET = ("-e", "1", "-d", "1e-6")
COLUMNS = ("-u", "user", "-i", "item")


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A file in which 300 people have three items each; the tests run in its folder."""
    monkeypatch.chdir(tmp_path)
    rows = [f"person{i},{item}" for i in range(300) for item in ("apple", "plum", "pear")]
    Path("s.csv").write_text("\n".join(["user,item", *rows]) + "\n")
    return "s.csv"


# --- mistakes in the file -----------------------------------------------------------------------------------
MISTAKES = {
    "epsilonn = 3": ("'epsilonn'", "Did you mean 'epsilon'?"),
    'usr = "author"': ("'usr'", "Did you mean 'user'?"),
    "jsn = true": ("'jsn'", "Did you mean 'json'?"),
    "charge_agian = true": ("'charge_agian'", "Did you mean 'charge-again'?"),
    'konf = "a=b"': ("'konf'", "Did you mean 'conf'?"),
    "xyzzy = 1": ("'xyzzy'", "It may contain", " conf,", " json,", " set,", "source", "charge-again"),
    "as_json = true": ("'as_json'",),
    "epsilon = true": ("'epsilon' must be a number", "epsilon = 1.0"),
    'epsilon = "1"': ("'epsilon' must be a number",),
    "shards = 1.5": ("'shards' must be a whole number",),
    "shards = true": ("'shards' must be a whole number",),
    'force = "yes"': ("'force' must be true or false",),
    "force = 1": ("'force' must be true or false",),
    'user = ["a", "b"]': ("'user' must be a text",),
    "counts = 0.1": ("'counts' must be true or false",),
    "count-share = true": ("'count-share' must be a number",),
    'count_shares = "much"': ("'count_shares'", "Did you mean 'count-share'?"),
    "sort = true": ("'sort' must be a text",),
    "out = 3": ("'out' must be a text, or a list of such",),
    "out = [3]": ("'out' must be a text, or a list of such",),
    "known = 1979-05-27": ("'known' must be a text",),
    "[set]\nrounds = 3": ("'set' must be a text",),
    'source = "a\\u0000b"': ("'source' contains a null character",),
    "max-items-per-user = 3\nmax_items_per_user = 4": ("'max-items-per-user' in two spellings",),
    'config = "other.toml"': ("'config'", "on the command line"),
    "help = true": ("'help'",),
    "user = \n": ("not valid TOML (line 1)",),
    "user = 'a'\nuser = 'b'": ("not valid TOML",),
    "a = " + "[" * 100_000: ("not valid TOML",),
    "epsilon = " + "9" * 10_000: ("not valid TOML",),
}


@pytest.mark.parametrize("text", MISTAKES, ids=lambda text: text[:30])
def test_a_mistake_in_the_file_is_told_in_its_words(source, text):
    Path("c.toml").write_text(text)
    result = run("release", source, "--config", "c.toml", code=2)
    assert "c.toml" in result.stderr
    for word in MISTAKES[text]:
        assert word in result.stderr
    assert "as_json" not in result.stderr.replace("'as_json'", "")
    assert result.stdout == ""


def test_a_file_that_cannot_be_read(source, tmp_path):
    Path("latin.toml").write_bytes('user = "é"'.encode("latin-1"))
    problems = {"missing.toml": "There is no configuration file", str(tmp_path): "Is a directory"}
    for name, words in (problems | {"latin.toml": "not UTF-8"}).items():
        assert_error(run("release", source, "--config", name, *COLUMNS, *BUDGET), 2, words)


def test_an_integer_too_large_for_a_float_is_refused(source):
    Path("c.toml").write_text("delta = " + "9" * 400)
    result = run("release", source, "--config", "c.toml", *COLUMNS, "--epsilon", "1", code=2)
    assert result.stderr.startswith("Error: ")
    assert "delta" in result.stderr


def test_ngrams_has_options_of_its_own(source):
    Path("c.toml").write_text("longer = 3")
    assert "Did you mean 'longest'?" in run("ngrams", source, "--config", "c.toml").stderr
    Path("c.toml").write_text('known = "k.txt"')
    assert "unknown option 'known'" in run("ngrams", source, "--config", "c.toml").stderr


def test_help_does_not_look_into_the_file(source):
    result = run("release", source, "--config", "missing.toml", "--help", code=0)
    assert "--config" in result.stdout


def test_the_command_line_wins_over_the_file(source):
    Path("c.toml").write_text(
        'user = "nobody"\nitem = "item"\nepsilon = 1\ndelta = 1e-6\njson = true\nset = "rounds=3"\n'
    )
    values = json.loads(run("release", source, "--config", "c.toml", "-u", "user", code=0).stdout)
    assert values["items"] == ["apple", "pear", "plum"]
    assert values["plan"]["parameters"]["rounds"] == 3


def test_counts_are_asked_for_in_the_file(source):
    lines = 'user = "user"\nitem = "item"\nepsilon = 1\ndelta = 1e-6\njson = true\ncounts = true\n'
    Path("c.toml").write_text(lines + 'count-share = 0.3\nsort = "item"\n')
    values = json.loads(run("release", source, "--config", "c.toml").stdout)
    assert values["plan"]["counts"]["share"] == 0.3
    assert values["items"] == ["apple", "pear", "plum"]
    assert len(values["numbers"]["people"]) == 3
    Path("c.toml").write_text(lines.replace("counts = true", "count-share = 0.3"))
    assert "without --counts" in run("release", source, "--config", "c.toml", code=2).stderr


# --- options given twice ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "arguments",
    [
        ("release", "s.csv", "-u", "a", "--user", "b", "-i", "item", *BUDGET),
        ("release", "s.csv", *COLUMNS, *BUDGET, "-d", "0.1"),
        ("ngrams", "s.csv", "-u", "user", "-t", "item", "-t", "user", *BUDGET),
        ("plan", *BUDGET, "-e", "2"),
        ("plan", *BUDGET, "--max-items-per-user", "3", "--set", "max_items_per_user=4"),
        ("plan", *BUDGET, "--set", "rounds=3", "--set", "rounds=4"),
        ("ledger", "open", "a.db", "--dataset", "x", "--dataset", "y", *BUDGET),
    ],
)
def test_an_option_given_twice_is_refused(source, arguments):
    assert_error(run(*arguments), 2, "more than once")


def test_lists_may_be_repeated(source):
    run("release", source, *COLUMNS, *BUDGET, "--out", "a.txt", "--out", "b.txt", "--force", code=0)


# --- the record ---------------------------------------------------------------------------------------------
def test_there_is_one_record_beside_the_first_output(source):
    assert run("release", source, *COLUMNS, *BUDGET, "-o", "a.csv", "-o", "b.json").exit_code == 0
    assert sorted(path.name for path in Path().iterdir()) == ["a.csv", "a.csv.private.toml", "b.json", "s.csv"]
    assert stat.S_IMODE(Path("a.csv.private.toml").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "arguments",
    [
        ("release", "s.csv", *COLUMNS, *BUDGET, "-a", "policy-gaussian", "--passes", "2", "--max-items-per-user", "7"),
        ("release", "s.csv", *COLUMNS, *BUDGET, "--known", "k.txt", "--include-known", "--memory-limit", "200MB"),
        ("release", "s.csv", "-u", "user", "-t", "item", *BUDGET, "--ngrams", "1-2", "--sentences", "--drop-urls"),
        ("ngrams", "s.csv", "-u", "user", "-t", "item", *BUDGET, "--longest", "2", "--first", "weighted-gaussian"),
        ("release", "s.csv", *COLUMNS, *BUDGET, "--counts", "--count-share", "0.25", "--sort", "item"),
        ("release", "s.csv", *COLUMNS, *BUDGET, "--counts", "--known", "k.txt", "--include-known"),
        ("ngrams", "s.csv", "-u", "user", "-t", "item", *BUDGET, "--longest", "2", "--counts"),
        ("ngrams", "s.csv", "-u", "user", "-t", "item", *BUDGET, "--memory-limit", "200MB", "--threads", "2"),
    ],
)
def test_the_record_makes_the_same_release_again(source, arguments):
    Path("k.txt").write_text("plum\n")
    run(*arguments, "-o", "a.json", "-o", "a.txt", "--unsafe-test-key", "5", code=0)
    made, record = Path("a.json").read_bytes(), Path("a.json.private.toml").read_bytes()
    for name in ("a.json", "a.txt"):
        Path(name).unlink()
    run(arguments[0], "--config", "a.json.private.toml", code=0)
    assert Path("a.json").read_bytes() == made
    assert Path("a.txt").exists()
    assert Path("a.json.private.toml").read_bytes() == record


def test_an_option_of_the_algorithm_wins_over_the_record(source):
    assert run("release", source, *COLUMNS, *BUDGET, "-o", "a.json").exit_code == 0
    result = run("release", "--config", "a.json.private.toml", "--max-items-per-user", "9", "--force", "--json", code=0)
    assert json.loads(result.stdout)["plan"]["parameters"]["max_items_per_user"] == 9


def test_the_record_keeps_the_options_of_spark(source, monkeypatch):
    real = dpunion.release

    def here(spark, *, query, run, **options):
        return real(spark.names[0], run=dataclasses.replace(run, shards=None), **options)

    monkeypatch.setattr("dpunion.pipeline.release", here)
    spark = ("--engine", "spark", "--master", "local[2]", "--shards", "3", "--conf", "spark.a=b")
    spark += ("--conf", "spark.hadoop.fs.s3a.secret.key=hunter2", "--query", "select * from source")
    spark += ("--input-format", "csv")
    assert run("release", source, *COLUMNS, *BUDGET, *spark, "-o", "a.csv").exit_code == 0
    record = Path("a.csv.private.toml").read_text()
    values = tomllib.loads(record)
    kept = {"engine": "spark", "master": "local[2]", "shards": 3, "query": "select * from source"}
    assert {key: values[key] for key in (*kept, "input-format")} == kept | {"input-format": "csv"}
    assert "hunter2" not in record
    assert values["conf"] == ["spark.a=b"]


@pytest.mark.parametrize(
    ("command", "columns", "algorithm"),
    [
        ("release", COLUMNS, dpunion.Funnel()),
        ("ngrams", ("-u", "user", "-t", "item", "--longest", "2"), dpunion.Ngrams(longest=2)),
    ],
    ids=["items", "n-grams"],
)
def test_a_release_that_stays_on_the_cluster_has_its_record_beside_the_folder(
    source, monkeypatch, command, columns, algorithm
):
    seen = []

    def released(*_, **options):
        seen.append(options["out"].path)
        plan = dpunion.plan(algorithm, epsilon=1.0, delta=1e-6)
        return dpunion.Release((), plan, guaranteed=True, stored=options["out"].path)

    monkeypatch.setattr("dpunion.pipeline.release", released)
    spark = ("--engine", "spark", "--master", "local[1]", "--out-folder", "words")
    assert run(command, source, *columns, *BUDGET, *spark).exit_code == 0
    assert tomllib.loads(Path("words.private.toml").read_text())["out-folder"] == "words"
    assert run(command, "--config", "words.private.toml").exit_code == 0
    assert run(command, source, *columns, *BUDGET, *spark[:-1], "hdfs:///words").exit_code == 0
    for other in (("--out", "words.csv"), ("--json",)):
        refused = run(command, source, *columns, *BUDGET, *spark, *other)
        assert (refused.exit_code, "--out-folder" in refused.stderr) == (2, True)
    assert run(command, source, *columns, *BUDGET, *spark[-2:]).exit_code == 2, "a folder needs Spark"
    assert seen == ["words", "words", "hdfs:///words"]
    assert sorted(path.name for path in Path().iterdir()) == ["s.csv", "words.private.toml"]


def test_the_record_never_charges_again(source):
    with_ledger = ("--ledger", "l.db", "--dataset", "d")
    Ledger.open("l.db", create=True).create_dataset("d", 10.0, 1e-3)
    assert run("release", source, *COLUMNS, *BUDGET, *with_ledger, "-o", "a.csv", "--charge-again").exit_code == 0
    assert "charge-again" not in Path("a.csv.private.toml").read_text()
    run("release", "--config", "a.csv.private.toml", "--force")
    assert Ledger.open("l.db").overview().accounts[0].spent.epsilon / 10**9 == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("posts.csv", "posts.csv"),
        ("logs/week=46/*.csv", "logs/week=46/*.csv"),
        ("postgresql://me:secret@host:5433/db", "postgresql://host:5433/db"),
        ("postgresql://me@host/db", "postgresql://host/db"),
        ("PostgreSQL://me:secret@host/db", "postgresql://host/db"),
        ("postgresql:///db", "postgresql:///db"),
        ("postgresql://host/db?p%61ssword=secret", None),
        ("postgresql://host/db?options=-csearch_path%3Dother", None),
        ("postgresql://me:se@cret@host/db", None),
        ("postgresql://me:se/cret@host/db", None),
        ("postgresql+psycopg://me:secret@host/db", None),
        (" postgresql://me:secret@host/db", "postgresql://host/db"),
        ("host=h password=secret dbname=d", None),
        ("host=h password = secret dbname=d", None),
        ("s3a://KEY:secret@bucket/logs", None),
        ("https://bucket/logs?signature=secret", None),
        ("hdfs://name/logs/?.parquet", "hdfs://name/logs/?.parquet"),
        ("dbfs:/mnt/logs", "dbfs:/mnt/logs"),
        ("file:///srv/logs", "file:///srv/logs"),
        ("sqlite:///posts.db", "sqlite:///posts.db"),
        ("sqlite:///posts.db?key=secret", None),
        ("s3://bucket/k=1/rows.parquet", "s3://bucket/k=1/rows.parquet"),
        ("abfs://box@account.dfs.core.windows.net/a", "abfs://box@account.dfs.core.windows.net/a"),
        ("abfs://box:secret@account.dfs.core.windows.net/a", None),
    ],
)
def test_what_a_record_keeps_of_an_address(text, kept, tmp_path):
    assert without_credentials("source", text) == kept
    record_configuration(tmp_path / "r.toml", {"source": [text], "epsilon": 1.0})
    record = (tmp_path / "r.toml").read_text()
    assert tomllib.loads(record) == ({"epsilon": 1.0} if kept is None else {"source": [kept], "epsilon": 1.0})
    assert "secret@" not in record
    assert ("# source: left out" in record) == (kept is None)


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        ("k8s://https://host:443", True),
        ("spark://me:secret@host:7077", False),
        ("select u, v from t where a = 1 and b = 2 and secret_plan is null", True),
        ("select * from dblink('password=secret')", False),
        ("select * from dblink('host=h secret_key = x')", False),
    ],
)
def test_what_a_record_keeps_of_other_options(text, is_kept):
    assert without_credentials("query", text) == (text if is_kept else None)


@pytest.mark.parametrize("text", ['a"b\\c', "tab\tline\nend", "\x7f\x1b", "é😀", "it's"])
def test_odd_texts_are_read_back(tmp_path, text):
    record_configuration(tmp_path / "r.toml", {"user": text})
    assert tomllib.loads((tmp_path / "r.toml").read_text("utf-8")) == {"user": text}


def test_a_path_that_is_not_utf8_is_left_out(tmp_path):
    record_configuration(tmp_path / "r.toml", {"source": [os.fsdecode(b"\xff.csv")], "epsilon": 1.0})
    assert tomllib.loads((tmp_path / "r.toml").read_text("utf-8")) == {"epsilon": 1.0}


def test_a_full_disk_leaves_the_old_record(tmp_path, monkeypatch):
    place = tmp_path / "a.csv.private.toml"
    record_configuration(place, {"epsilon": 1.0})
    before = place.read_bytes()

    def full(_descriptor):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CannotWrite, match="not its private record"):
        record_configuration(place, {"epsilon": 2.0})
    assert place.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [place.name]


def test_a_file_in_the_place_of_the_record_is_kept(source):
    Path("a.csv.private.toml").write_text("precious = 1\n")
    run("release", source, *COLUMNS, *BUDGET, "-o", "a.csv", "--force", code=4)
    assert Path("a.csv.private.toml").read_text() == "precious = 1\n"
    assert not Path("a.csv").exists()
