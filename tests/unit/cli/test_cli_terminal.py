"""What a person sees at a terminal: the plan's first answer, the first rows of a release, what few items mean."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

import dpunion
from dpunion.chances import find_needed, needed_sentence
from dpunion.cli import app
from dpunion.cli.answers import terminal_width
from dpunion.releases.formats import WIDEST_TEXT, table_lines
from dpunion.releases.release import Release, with_items
from running import PATIENCE

BUDGET = ("-e", "2", "-d", "1e-4")
SURE = ("--cutoff-margin", "10")
"""What many people hold then practically always comes out."""


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def watched(*arguments, columns=80):
    """Run a command as at a terminal of this width; return what it shows, without colours and movements."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    command = [sys.executable, "-m", "dpunion", *map(str, arguments)]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                chunk = os.read(ours, 1 << 16)
            except OSError:
                break
            if not chunk:
                break
            shown += chunk
    os.close(ours)
    return process.returncode, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()).replace("\r\n", "\n")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    rows = [f"u{n},word{m:02}" for n in range(500) for m in range(15)]
    path.write_text("\n".join(["user,item", *rows, *(f"u{n},{'long' * 20}" for n in range(500))]) + "\n")
    return path


# --- after a release ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_shows_the_first_rows_and_what_is_done(source, tmp_path, columns):
    out = tmp_path / "out.csv"
    code, shown = watched("release", source, "-u", "user", "-i", "item", *BUDGET, *SURE, "-o", out, columns=columns)
    assert code == 0
    said = shown[shown.index("item\n") if "item\n" in shown else 0 :]
    lines = [line.rstrip() for line in re.split(r"[\n\r]", shown)]
    rows = out.read_text().splitlines()[1:]
    assert len(rows) == 16
    assert "word00" in lines
    assert "… and 6 more" in lines
    assert ("long" * 12)[: WIDEST_TEXT - 1] + "…" in lines
    assert "grouping" in shown
    assert "At this budget" not in said
    assert "This release was not charged to a ledger" in said
    sentences = said[said.index("Released 16 items") :]
    assert max(len(line) for line in sentences.splitlines() if "/" not in line) <= columns


def test_quiet_shows_nothing_at_all(source, tmp_path):
    code, shown = watched(
        "release", source, "-u", "user", "-i", "item", *BUDGET, *SURE, "-o", tmp_path / "a.csv", "--quiet"
    )
    assert (code, shown) == (0, "")
    code, shown = watched(
        "release", source, "-u", "nobody", "-i", "item", *BUDGET, *SURE, "-o", tmp_path / "b.csv", "-q"
    )
    assert code == 3
    assert "Error: There is no column 'nobody'" in shown


def test_few_items_are_explained_by_public_numbers_alone(tmp_path):
    said = set()
    for name, rows in (("none", "a,x\nb,y\n"), ("others", "c,z\n" * 40)):
        path = tmp_path / f"{name}.csv"
        path.write_text("user,item\n" + rows)
        done = run("release", path, "-u", "user", "-i", "item", *BUDGET)
        assert done.exit_code == 0
        assert "Released 0 items" in done.stderr
        said.add(done.stderr)
    assert len(said) == 1
    needed = find_needed(dpunion.plan(epsilon=2.0, delta=1e-4))
    assert f"about {needed[0].even} people have it who have no other item, or {needed[1].even} who" in said.pop()


def test_one_item_is_one_item(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("user,item\n" + "".join(f"u{n},x\n" for n in range(300)))
    assert "Released 1 item to" in run("release", path, "-u", "user", "-i", "item", *BUDGET, *SURE).stderr


def test_with_a_ledger_nobody_is_reminded(source, tmp_path):
    ledger = tmp_path / "budget.db"
    assert run("ledger", "open", ledger, "--dataset", "logs", "-e", 3, "-d", 1e-3).exit_code == 0
    charged = ("--ledger", ledger, "--dataset", "logs")
    code, shown = watched(
        "release", source, "-u", "user", "-i", "item", *BUDGET, *SURE, "-o", tmp_path / "a.csv", *charged
    )
    assert code == 0, shown
    assert "Released 16 items" in shown
    assert "This release was not charged to a ledger" not in shown


def test_several_outputs_have_one_record(source, tmp_path):
    outputs = [tmp_path / f"out{suffix}" for suffix in (".csv", ".parquet", ".json")]
    named = [part for output in outputs for part in ("--out", output)]
    assert run("release", source, "-u", "user", "-i", "item", *BUDGET, *named).exit_code == 0
    assert [path.name for path in tmp_path.glob("*.private.toml")] == ["out.csv.private.toml"]


def test_a_table_is_cut_only_where_it_is_short():
    made = with_items(Release((), dpunion.plan(dpunion.Funnel(), epsilon=1.0, delta=1e-6), True), ["a" * 60, "b"])
    assert list(table_lines(made))[1].rstrip() == "a" * 60
    assert list(table_lines(made, 1))[1] == "a" * (WIDEST_TEXT - 1) + "…"
    assert len(list(table_lines(made, 1))) == 2


def test_the_width_is_what_the_terminal_says(monkeypatch):
    ours, theirs = pty.openpty()
    monkeypatch.delenv("COLUMNS", raising=False)
    with open(theirs, "w") as stream:
        assert terminal_width(stream) == 80
        monkeypatch.setenv("COLUMNS", "100")
        assert terminal_width(stream) == 100
        monkeypatch.setenv("COLUMNS", "5")
        assert terminal_width(stream) == 40
    os.close(ours)


# --- plan --------------------------------------------------------------------------------------------------------


def test_plan_begins_with_how_many_people_an_item_needs():
    shown = run("plan", "-e", 1, "-d", 1e-6).stdout
    assert shown.startswith("About this many people must have an item for it to be released:")
    rows = [line.split() for line in shown.splitlines()[2:6]]
    assert rows[0] == ["items", "each", "chance", "50", "%", "chance", "90", "%"]
    needed = find_needed(dpunion.plan(epsilon=1.0, delta=1e-6))
    assert rows[1:] == [[str(one.items_each), str(one.even), str(one.likely)] for one in needed]
    assert needed[0].even < needed[0].likely
    assert needed[0].even < needed[1].even < needed[2].even


def test_more_budget_needs_fewer_people():
    less, more = (find_needed(dpunion.plan(epsilon=epsilon, delta=1e-6)) for epsilon in (0.5, 2.0))
    assert all(one.even > other.even and one.likely > other.likely for one, other in zip(less, more, strict=True))


def test_what_no_number_of_people_brings_out_is_said():
    planned = dpunion.plan("optimal-single-item", epsilon=0.01, delta=1e-9)
    assert find_needed(planned)[2].likely is None
    assert "more than 100,000" in needed_sentence(planned)


def test_plans_of_ngrams():
    shown = run("plan", "-e", 1, "-d", 1e-6, "--longest", 2)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith("About this many people must have a single word")
    assert "length 2" in shown.stdout
    values = json.loads(run("plan", "-e", 1, "-d", 1e-6, "--longest", 2, "--json").stdout)
    planned = dpunion.plan(dpunion.Ngrams(longest=2), epsilon=1.0, delta=1e-6)
    assert values.pop("holders_needed") == [one.to_dict() for one in find_needed(planned)]
    assert values == json.loads(json.dumps(planned.to_dict()))
    chosen = ("--first", "weighted-gaussian", "--later", "policy-gaussian", "--spurious-rate", 0.02)
    values = json.loads(run("plan", "-e", 1, "-d", 1e-6, "--longest", 3, *chosen, "--json").stdout)
    assert [one["algorithm"] for one in values["lengths"]] == ["weighted-gaussian", *["policy-gaussian"] * 2]
    assert values["settings"]["spurious_rate"] == 0.02


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--first", "weighted-gaussian"), "the plan is for items"),
        (("--longest", 2, "-a", "dp-sips"), "--longest plans n-grams"),
        (("--longest", 2, "--html", "page.html"), "Plans for n-grams have no page"),
    ],
)
def test_options_of_plans_that_do_not_go_together(options, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = run("plan", "-e", 1, "-d", 1e-6, *options)
    assert refused.exit_code == 2
    assert problem in refused.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("columns", ["0", "5", "19"])
def test_a_width_that_no_terminal_has_is_taken_for_none(columns):
    command = [sys.executable, "-c", "from dpunion.cli import main; main()", "plan", "-e", "1", "-d", "1e-6"]

    def shown(env):
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE, env=env).stdout

    without = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    assert shown(without | {"COLUMNS": columns}) == shown(without) != ""
