"""The lab on the command line: what it prints and writes, that it refuses ledgers, and that it goes on after a kill."""

import json
import os
import shlex
import signal
import subprocess
import sys

import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest

from dpunion.errors import BadParameter
from dpunion_lab.commands.lab import COMPARE_HELP, GENERATE_HELP, REPRODUCE_HELP, listed
from running import CLI, PATIENCE, assert_error, wait_until
from running import run_cli as run

COMPARE = ("lab", "compare", "--generate", "300", "-e", "3", "-d", "1e-4")
COMMAND = [sys.executable, "-c", CLI]


# --- help and refusals --------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["reproduce", "compare", "generate"])
def test_every_command_has_help_that_says_it_is_no_release(name):
    result = run("lab", name, "--help", code=0, env={"COLUMNS": "200"})
    assert "Usage" in result.stdout
    assert "--ledger" not in result.stdout
    if name != "generate":
        assert "NOT PRIVATE" in result.stdout
        assert "keeps no ledger" in result.stdout


def test_funnel_is_compared_as_it_is_released():
    auto = json.loads(run(*COMPARE, "-a", "funnel", "--trials", 1, "--json").stdout)["summary"]
    fixed = json.loads(run(*COMPARE, "-a", "funnel", "--trials", 1, "--max-items-per-user", 300, "--json").stdout)
    assert [row["parameters"]["max_items_per_user"] for row in auto] == ["auto"]
    assert [row["parameters"]["max_items_per_user"] for row in fixed["summary"]] == [300]
    assert "exact, without noise" in fixed["warning"]


def test_the_first_help_names_the_lab():
    assert "NOT PRIVATE" in run("--help", env={"COLUMNS": "200"}).stdout


@pytest.mark.parametrize("text", [COMPARE_HELP, REPRODUCE_HELP, GENERATE_HELP])
def test_the_examples_of_the_help_parse(text, tmp_path, monkeypatch):
    """Each is run with a ledger, which is refused after the options were understood."""
    monkeypatch.chdir(tmp_path)
    examples = [line.strip() for line in text.splitlines() if line.startswith("  dpunion")]
    assert examples
    for example in examples:
        words = shlex.split(example)
        assert_error(run(*words[1:], "--ledger", "budget.db"), 2, "keeps no ledger")


@pytest.mark.parametrize(
    "arguments", [COMPARE, ("lab", "reproduce", "--quick"), ("lab", "generate", "out.parquet", "--users", "10")]
)
def test_a_ledger_is_refused_with_the_reason(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_error(run(*arguments, "--ledger", "budget.db"), 2, "NOT PRIVATE at any budget", "dpunion release")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("lab", "compare", "-e", "1", "-d", "1e-5"), "exactly one of SOURCE and --generate"),
        ((*COMPARE, "data.parquet"), "exactly one of SOURCE and --generate"),
        ((*COMPARE, "--item", "word"), "its own columns"),
        (("lab", "compare", "data.parquet", "-e", "1", "-d", "1e-5"), "needs --user"),
        ((*COMPARE, "-a", "funel"), "must be one of"),
        ((*COMPARE, "-a", "gw"), "sets do not show"),
        ((*COMPARE, "-e", "one"), "Got 'one'"),
        ((*COMPARE, "--passes", "1.5"), "whole numbers"),
        ((*COMPARE, "-a", "dp-sips", "--passes", "2"), "has a parameter 'passes'"),
        ((*COMPARE, "--set", "rounds"), "has no value"),
        ((*COMPARE, "--out", "results.txt"), "suffix"),
        ((*COMPARE, "--html", "page.txt"), "suffix"),
        ((*COMPARE, "--trials", "0"), "'trials'"),
        (("lab", "generate", "out.txt"), "suffix"),
        (("lab", "generate", "out.csv", "--users", "0"), "'users'"),
        (("lab", "reproduce", "--quick", "--trials", "0"), "'trials'"),
    ],
)
def test_options_without_meaning_are_refused(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_error(run(*arguments), 2, words)


def test_a_source_that_is_not_there(tmp_path):
    result = run("lab", "compare", tmp_path / "none.parquet", "-u", "user", "-i", "item", "-e", "1", "-d", "1e-5")
    assert_error(result, 3, "no file")


def test_lists_are_numbers_with_commas():
    assert listed("epsilon", ["1,3", "0.5"], float) == (1.0, 3.0, 0.5)
    assert listed("passes", (), int) == ()
    assert listed("anything", ["exact,2"]) == ("exact", 2)
    with pytest.raises(BadParameter):
        listed("passes", ["1,,2"], int)


# --- generate -----------------------------------------------------------------------------------------------
def test_generated_data_is_the_same_for_the_same_seed(tmp_path):
    for name, seed in (("a.parquet", 1), ("b.parquet", 1), ("c.parquet", 2), ("a.csv", 1)):
        result = run("lab", "generate", tmp_path / name, "--users", 50, "--seed", seed, code=0)
        assert "not a release" in result.stderr
    a, b, c = (pq.read_table(tmp_path / f"{name}.parquet") for name in "abc")
    assert a.equals(b)
    assert not a.equals(c)
    assert pcsv.read_csv(tmp_path / "a.csv").equals(a.replace_schema_metadata())
    assert b"nobody" in a.schema.metadata[b"dpunion"]
    assert len(set(a["user"].to_pylist())) == 50
    assert_error(run("lab", "generate", tmp_path / "a.csv", "--users", 50), 4, "exists already")


def test_fitted_data_is_generated_too(tmp_path):
    run("lab", "generate", tmp_path / "a.parquet", "--users", 60, "--fitted", code=0)
    fitted = pq.read_table(tmp_path / "a.parquet")
    run("lab", "generate", tmp_path / "b.parquet", "--users", 60)
    assert len(set(fitted["user"].to_pylist())) == 60
    assert not fitted.equals(pq.read_table(tmp_path / "b.parquet"))


# --- compare ------------------------------------------------------------------------------------------------
def test_a_comparison_is_stamped_everywhere(tmp_path):
    out, page = tmp_path / "results.json", tmp_path / "page.html"
    grid = ("-a", "weighted-gaussian", "-a", "greedy", "--max-items-per-user", "10,20", "--trials", "2")
    result = run(*COMPARE, "-e", "1", *grid, "--out", out, "--html", page, code=0)
    assert result.stdout.startswith("NOT PRIVATE")
    assert "greedy (NOT PRIVATE)" in result.stdout
    assert "of ceiling" in result.stdout
    values = json.loads(out.read_text())
    assert values["warning"].startswith("NOT PRIVATE")
    assert len(values["trials"]) == 2 * 2 * 2 * 2
    html = page.read_text()
    assert "NOT PRIVATE" in html
    assert "A study, not a release" in html
    assert html.count("<svg") >= 2
    assert "greedy (NOT PRIVATE)" in html


def test_the_same_command_may_be_run_again(tmp_path):
    command = (*COMPARE, "-a", "dp-sips", "--out", tmp_path / "r.parquet", "--html", tmp_path / "p.html", "--json")
    first, second = run(*command), run(*command)
    assert first.exit_code == second.exit_code == 0
    assert json.loads(first.stdout) == json.loads(second.stdout)
    assert json.loads(first.stdout)["warning"].startswith("NOT PRIVATE")


def test_a_page_of_somebody_else_is_not_replaced(tmp_path):
    (tmp_path / "p.html").write_text("mine")
    assert_error(run(*COMPARE, "--html", tmp_path / "p.html"), 4, "exists already")


def test_a_source_of_ones_own(tmp_path):
    run("lab", "generate", tmp_path / "data.parquet", "--users", 300)
    options = ("-a", "weighted-gaussian", "--json")
    own = run(
        *("lab", "compare", tmp_path / "data.parquet", "-u", "user", "-i", "item", "-e", "3", "-d", "1e-4"), *options
    )
    generated = run(*COMPARE, *options)
    assert own.exit_code == 0
    own, generated = json.loads(own.stdout), json.loads(generated.stdout)
    assert own["data"]["name"] == "data.parquet"
    assert own["data"]["fingerprint"] == generated["data"]["fingerprint"]
    sizes = [[trial["released"] for trial in values["trials"]] for values in (own, generated)]
    assert sizes[0] == sizes[1]


# --- interruption -------------------------------------------------------------------------------------------
def lines_of(journal):
    return journal.read_bytes().splitlines()[1:] if journal.exists() else []


@pytest.mark.full
@pytest.mark.parametrize("kill", [signal.SIGINT, signal.SIGKILL])
def test_a_study_that_was_stopped_goes_on_where_it_stopped(tmp_path, kill):
    """A real process, really stopped while trials run; the second one runs the missing trials only."""
    out = tmp_path / "results.json"
    journal = tmp_path / "results.json.journal"
    trials = 100
    command = [*COMMAND, *COMPARE, "-a", "dp-sips", "-a", "greedy", "--trials", str(trials), "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len(lines_of(journal)) >= 5 or process.poll() is not None, "five trials")
    os.kill(process.pid, kill)
    printed, errors = process.communicate(timeout=PATIENCE)
    before = lines_of(journal)
    assert 5 <= len(before) < 2 * trials
    assert not out.exists()
    assert printed == ""
    if kill is signal.SIGINT:
        assert process.returncode == 130
        assert "Interrupted." in errors
        assert "the same command runs the others" in errors
    else:
        assert process.returncode == -signal.SIGKILL
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    after = lines_of(journal)
    assert after[: len(before) - 1] == before[:-1]  # the last one may have been cut short by the kill
    identities = [json.loads(line)["identity"] for line in after]
    assert len(identities) == len(set(identities)) == 2 * trials
    assert len(json.loads(out.read_text())["trials"]) == 2 * trials


def test_an_interrupted_study_without_a_place_keeps_nothing(monkeypatch):
    from dpunion_lab import trials

    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(trials, "run_trial", interrupt)
    assert_error(run(*COMPARE, "-a", "dp-sips"), 130, "Interrupted.", "Nothing was kept")


# --- reproduce ----------------------------------------------------------------------------------------------
def test_reproduce_prints_and_writes_the_tables(tmp_path):
    out, page = tmp_path / "out", tmp_path / "page.html"
    result = run("lab", "reproduce", "--quick", "--users", 500, "--out", out, "--html", page, code=0)
    assert result.stdout.startswith("NOT PRIVATE")
    for words in ("ICML Table 1", "JPC Table 2", "JPC Table 4", "Claims", "What is odd about the printed numbers"):
        assert words in result.stdout
    assert "Left out by --quick" in result.stdout
    assert sorted(path.name for path in out.iterdir()) == ["results.json", "trials.journal", "trials.parquet"]
    html = page.read_text()
    assert "NOT PRIVATE" in html
    assert "A study, not a release" in html
    figures = sum("Figure" in line and "[" in line for line in html.splitlines() if line.startswith("<figcaption>"))
    assert html.count("<svg") == 2 * html.count("<figcaption>")  # for wide and for narrow screens
    assert figures >= 6
    assert "By the papers&#39; own tables: holds in part" in html
    again = run("lab", "reproduce", "--quick", "--users", 500, "--out", out, "--html", page, "--json")
    assert json.loads(again.stdout)["warning"].startswith("NOT PRIVATE")
