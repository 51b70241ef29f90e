"""Title, owner and note on the command line, and the ledger's commands that show them."""

import json
import stat
import tomllib

import pytest

from running import run_cli

POSTS = "author,word\n" + "\n".join(f"user{at},word{at % 3}" for at in range(600)) + "\n"
WORDS = ("--title", "Words of the week", "--owner", "Search team", "--note", "For the help pages.")
RELEASE = ("release", "posts.csv", "-u", "author", "-i", "word", "-e", "1", "-d", "1e-6", "-a", "weighted-gaussian")
CHARGED = ("--ledger", "budget.db", "--dataset", "posts")


def run(*words, code=0):
    return run_cli(*words, code=code, env={"COLUMNS": "120", "TERM": "dumb"})


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with posts and a ledger."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "posts.csv").write_text(POSTS)
    run("ledger", "open", "budget.db", "--dataset", "posts", "-e", 3, "-d", 1e-5)
    return tmp_path


def test_title_owner_and_note_are_in_every_output(folder):
    run(*RELEASE, *WORDS, *CHARGED, "--out", "words.json")
    values = json.loads((folder / "words.json").read_text())
    assert [values["about"][name] for name in ("title", "owner", "note")] == list(WORDS[1::2])
    assert values["ledger"]["entry"] == "budget.db#2"
    record = tomllib.loads((folder / "words.json.private.toml").read_text())
    assert (record["title"], record["owner"], record["note"]) == WORDS[1::2]
    (entry,) = json.loads(run("ledger", "show", "budget.db", "--json").stdout)["entries"]
    assert (entry["title"], entry["owner"], entry["note"]) == WORDS[1::2]
    assert (entry["sources"], entry["columns"]) == (["posts.csv"], ["word"])
    shown = run("ledger", "show", "budget.db").stdout
    assert "33.3%  about 2 more like the last one" in shown
    for text in WORDS[1::2]:
        assert text in shown
    run("report", "words.json")
    assert "<h1>Words of the week</h1>" in (folder / "words.html").read_text()


def test_a_record_repeats_title_and_owner(folder):
    run(*RELEASE, *WORDS, "--out", "words.json")
    run("release", "posts.csv", "--config", "words.json.private.toml", "--out", "again.json", "--note", "Another.")
    values = json.loads((folder / "again.json").read_text())["about"]
    assert (values["title"], values["note"]) == ("Words of the week", "Another.")


def test_missing_owners_and_titles_have_no_column(folder):
    run(*RELEASE, *CHARGED)
    heads = run("ledger", "show", "budget.db").stdout
    assert "algorithm" in heads
    assert "owner" not in heads
    assert "title" not in heads


def test_a_ledger_becomes_a_page_for_its_owner_alone(folder):
    run(*RELEASE, *WORDS, *CHARGED)
    run("ledger", "report", "budget.db", "--out", "page.html")
    assert "Words of the week" in (folder / "page.html").read_text()
    assert stat.S_IMODE((folder / "page.html").stat().st_mode) == 0o600
    run("ledger", "report", "budget.db", "--out", "page.html", code=4)
    run("ledger", "report", "budget.db", "--out", "page.html", "--force")
    run("ledger", "report", "nothing.db", "--out", "other.html", code=3)
    run("ledger", "report", "budget.db", "--out", "page.txt", code=2)


def test_a_misspelt_dataset_is_named_and_guessed():
    result = run(*RELEASE, "--ledger", "budget.db", "--dataset", "pots", code=5)
    assert "has no dataset 'pots'. It has: 'posts'." in result.stderr
    assert "Did you mean 'posts'?" in result.stderr


def test_verify_says_that_it_looked_at_the_receipts(folder):
    run(*RELEASE, *CHARGED, "--out", "words.json")
    receipt = json.loads((folder / "words.json").read_text())["ledger"]["receipt"]
    assert "in order. Head:" in run("ledger", "verify", "budget.db").stdout
    assert "The receipt's entry is there." in run("ledger", "verify", "budget.db", "--receipt", receipt).stdout
    twice = run("ledger", "verify", "budget.db", "--receipt", receipt, "--receipt", receipt).stdout
    assert "The entries of all 2 receipts are there." in twice
    run("ledger", "verify", "budget.db", "--receipt", "budget.db#2:0123456789abcdef", code=5)


def test_a_title_that_is_too_long_is_refused_before_anything_is_charged():
    run(*RELEASE, *CHARGED, "--title", "x" * 201, code=2)
    assert json.loads(run("ledger", "show", "budget.db", "--json").stdout)["entries"] == []


@pytest.mark.parametrize("command", ["verify", "show", "report"])
def test_unreadable_and_altered_ledgers_have_different_errors(folder, command):
    (folder / "folder").mkdir()
    for missing in ("none.db", "folder"):
        assert "ledger" in run("ledger", command, missing, code=3).stderr
    (folder / "text.db").write_text("This is no database, and never was one." * 100)
    assert "is not an SQLite file" in run("ledger", command, "text.db", code=5).stderr


@pytest.mark.parametrize(
    "bad", [("--dataset", "a b"), ("--epsilon", "-1"), ("--delta", "2"), ("--composition", "loose")], ids=str
)
def test_a_refused_dataset_leaves_no_ledger_behind(folder, bad):
    words = {"--dataset": "posts", "--epsilon": "1", "--delta": "1e-6"} | dict([bad])
    run("ledger", "open", "new.db", *(word for pair in words.items() for word in pair), code=2)
    assert not (folder / "new.db").exists()
