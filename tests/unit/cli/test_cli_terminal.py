"""What a person sees at a terminal: the plan's first answer, the first rows of a release, what few items mean."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest

import dpunion
from dpunion.chances import find_needed, needed_sentence
from dpunion.cli.answers import terminal_width
from dpunion.releases.formats import WIDEST_TEXT, table_lines
from dpunion.releases.release import Release, with_items
from running import assert_error, read_terminal, run_command
from running import run_cli as run

BUDGET = ("-e", "2", "-d", "1e-4")
SURE = ("--cutoff-margin", "10")
"""What many people have then practically always comes out."""


def watched(*arguments, columns=80):
    """Run a command as at a terminal of this width; return what it shows, without colours and movements."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    command = [sys.executable, "-m", "dpunion", *map(str, arguments)]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        shown = read_terminal(ours)
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
    asked = ("-i", "item", *BUDGET, *SURE)
    assert watched("release", source, "-u", "user", *asked, "-o", tmp_path / "a.csv", "--quiet") == (0, "")
    code, shown = watched("release", source, "-u", "nobody", *asked, "-o", tmp_path / "b.csv", "-q")
    assert code == 3
    assert "Error: There is no column 'nobody'" in shown


def test_few_items_are_explained_by_public_numbers_alone(tmp_path):
    said = set()
    for name, rows in (("none", "a,x\nb,y\n"), ("others", "c,z\n" * 40)):
        path = tmp_path / f"{name}.csv"
        path.write_text("user,item\n" + rows)
        done = run("release", path, "-u", "user", "-i", "item", *BUDGET, code=0)
        assert "Released 0 items" in done.stderr
        said.add(done.stderr)
    assert len(said) == 1
    needed = find_needed(dpunion.plan(epsilon=2.0, delta=1e-4))
    assert f"about {needed[0].even} people have it who have no other item, or {needed[1].even} who" in said.pop()


def test_one_item_is_in_the_singular(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("user,item\n" + "".join(f"u{n},x\n" for n in range(300)))
    assert "Released 1 item to" in run("release", path, "-u", "user", "-i", "item", *BUDGET, *SURE).stderr


def test_with_a_ledger_nobody_is_reminded(source, tmp_path):
    ledger = tmp_path / "budget.db"
    assert run("ledger", "open", ledger, "--dataset", "logs", "-e", 3, "-d", 1e-3).exit_code == 0
    asked = (*BUDGET, *SURE, "--ledger", ledger, "--dataset", "logs", "-o", tmp_path / "a.csv")
    code, shown = watched("release", source, "-u", "user", "-i", "item", *asked)
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


def test_two_lines_after_a_release_and_the_rest_on_demand(source, tmp_path):
    command = ("release", source, "-u", "user", "-i", "item", *BUDGET, *SURE)
    out = tmp_path / "a.json"
    first, second = run(*command, "-o", out).stderr.splitlines()
    assert first == f"Released 16 items to {out}."
    statement = json.loads(out.read_text())["statement"].splitlines()
    assert len(statement) > 3
    assert second == f"{statement[0]} --statement explains it."
    said = run(*command, "-o", out, "--force", "--statement").stderr.splitlines()
    assert said[0] == first
    assert said[1:] == json.loads(out.read_text())["statement"].splitlines()


def test_warnings_are_printed_without_being_asked(source, tmp_path):
    command = ("release", source, "-u", "user", "-i", "item", "-d", "1e-4", *SURE, "-o", tmp_path / "a.txt", "--force")
    assert "THE GUARANTEE IS WEAK" in run(*command, "-e", 8).stderr
    assert "NOT PRIVATE" in run(*command, "-e", 1, "--unsafe-test-key", 1).stderr
    assert "people have at least one item" in run(*command[:-3], "-e", 1, "--counts").stderr
    listed = tmp_path / "list.txt"
    listed.write_text("word00\nother\n")
    said = run("release", source, "-u", "user", "-i", "item", *BUDGET, "--candidates", listed).stderr
    assert "of the 2 candidates come out although nobody has them" in said
    posts = tmp_path / "posts.csv"
    posts.write_text("user,body\n" + "".join(f"u{n},天地 玄黄 one two\n" for n in range(500)))
    command = ("-u", "user", "-t", "body", *BUDGET)
    assert "The tokenizer icu can split them" in run("release", posts, *command).stderr
    said = run("ngrams", posts, *command, "--longest", 2).stderr
    assert "expected to be spurious" in said
    assert "Longer n-grams were released only if" not in said


def test_a_terminal_without_an_output_gets_a_preview(source, tmp_path):
    command = ("release", source, "-u", "user", "-i", "item", *BUDGET, *SURE)
    code, shown = watched(*command)
    assert code == 0
    lines = [line.rstrip() for line in re.split(r"[\n\r]", shown)]
    assert "… and 6 more" in lines
    assert "word10" not in lines
    assert "Released 16 items; the terminal shows the first." in " ".join(shown.split())
    assert "a second release spends the budget again" in " ".join(shown.split())
    # A pipe gets everything.
    assert len(run(*command).stdout.splitlines()) == 16
    # A charged release cannot be had again without another charge.
    ledger = tmp_path / "budget.db"
    assert run("ledger", "open", ledger, "--dataset", "logs", "-e", 3, "-d", 1e-3).exit_code == 0
    code, shown = watched(*command, "--ledger", ledger, "--dataset", "logs")
    assert code == 0
    assert "word14" in shown
    assert "It is entry budget.db#2" in shown


def test_a_demo_says_two_lines_and_how_to_go_on():
    shown = run("demo").stdout
    after = shown[shown.index("… and") :].splitlines()
    assert re.fullmatch(r"… and \d{3} more", after[0])
    assert re.fullmatch(r"Released \d,?\d+ items\.", after[2])
    assert after[3].endswith("--statement explains it.")
    assert after[5].startswith("To make it yourself: dpunion sample")
    assert len(after) == 6


# --- plan --------------------------------------------------------------------------------------------------------
def test_plan_begins_with_how_many_people_an_item_needs():
    shown = run("plan", "-e", 1, "-d", 1e-6).stdout
    assert shown.startswith("About this many people must have an item for it to be released:")
    rows = [line.split() for line in shown.splitlines()[2:6]]
    assert " ".join(rows[0]) == "items each chance 50 % chance 90 %"
    needed = find_needed(dpunion.plan(epsilon=1.0, delta=1e-6))
    assert rows[1:] == [[str(one.items_each), str(one.even), str(one.likely)] for one in needed]
    assert needed[0].even < needed[0].likely
    assert needed[0].even < needed[1].even < needed[2].even


def test_more_budget_needs_fewer_people():
    less, more = (find_needed(dpunion.plan(epsilon=epsilon, delta=1e-6)) for epsilon in (0.5, 2.0))
    assert all(one.even > other.even and one.likely > other.likely for one, other in zip(less, more, strict=True))


def test_several_epsilons_have_a_row_each():
    shown = run("plan", "-e", "0.5,2", "-d", 1e-6, "-a", "weighted-gaussian").stdout.splitlines()
    assert " ".join(shown[2].split()) == "epsilon guarantee 1 item each 10 items each 100 items each"
    for line, epsilon, strength in zip(shown[3:5], (0.5, 2.0), ("strong", "moderate"), strict=True):
        needed = find_needed(dpunion.plan("weighted-gaussian", epsilon=epsilon, delta=1e-6))
        ranges = [f"{one.even:,} to {one.likely:,}" for one in needed]
        assert line.split() == [f"{epsilon:g}", strength, *" ".join(ranges).split()]
    values = json.loads(run("plan", "-e", "0.5,2", "-d", 1e-6, "-a", "weighted-gaussian", "--json").stdout)
    one = json.loads(run("plan", "-e", "2", "-d", 1e-6, "-a", "weighted-gaussian", "--json").stdout)
    assert len(values["plans"]) == 2
    assert values["plans"][1] == one


@pytest.mark.parametrize("algorithm", ["weighted-gaussian", "funnel"])
def test_the_smallest_epsilon_for_this_many_people(algorithm):
    asked = ("plan", "--people", 100, "-d", 1e-6, "-a", algorithm)
    values = json.loads(run(*asked, "--json").stdout)
    shown = [line.split() for line in run(*asked).stdout.splitlines()]
    for one in values["epsilon_needed"]:
        texts = [f"{one[name]:g}" if one[name] else "more than 10" for name in ("chance_50", "chance_90")]
        assert [str(one["items_each"]), *" ".join(texts).split()] in shown
    alone = values["epsilon_needed"][0]
    assert alone["items_each"] == 1
    assert alone["chance_50"] < alone["chance_90"]
    for name, chance in (("chance_50", "even"), ("chance_90", "likely")):
        enough = find_needed(dpunion.plan(algorithm, epsilon=alone[name], delta=1e-6), [1])[0]
        less = find_needed(dpunion.plan(algorithm, epsilon=0.9 * alone[name], delta=1e-6), [1])[0]
        assert getattr(enough, chance) <= 102  # between two points of its grid, find_needed is off by little
        assert getattr(less, chance) > 100


def test_candidates_need_a_smaller_epsilon(tmp_path):
    listed = tmp_path / "list.txt"
    listed.write_text("word00\nother\n")
    asked = ("plan", "--people", 100, "-d", 1e-6, "-a", "policy-gaussian")
    plain, shown = run(*asked, "--json"), run(*asked, "--candidates", listed)
    assert "a candidate that 100 people have" in shown.stdout
    smaller = json.loads(run(*asked, "--candidates", listed, "--json").stdout)["epsilon_needed"][0]
    assert smaller["chance_50"] < json.loads(plain.stdout)["epsilon_needed"][0]["chance_50"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "either --epsilon or --people"),
        (("--people", 2, "-a", "weighted-gaussian"), "No epsilon up to 10 releases an item that only 2 people have"),
        (("--people", 0, "-a", "weighted-gaussian"), "a whole number from 1 to 100000"),
        (("--people", 10, "--html", "page.html"), "or for several epsilons"),
        (("-e", "1,2", "--html", "page.html"), "or for several epsilons"),
        (("-e", "1,x"), "must be a number from 0.001 to 30. Got 'x'"),
        (("-e", "1,-2", "--json"), "must be a number from 0.001 to 30"),
    ],
)
def test_budgets_that_cannot_be_planned(options, problem):
    refused = run("plan", "-d", 1e-6, *options, code=2)
    assert refused.stderr.startswith("Error: ")
    assert problem in refused.stderr
    assert len(refused.stderr.splitlines()) == 2
    assert ("--json" in options) == (refused.stdout != "")


def test_a_page_without_its_library_is_refused_before_planning(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    monkeypatch.setattr("dpunion.pipeline.plan", None)
    assert_error(run("plan", "-e", 1, "-d", 1e-6, "--html", tmp_path / "page.html"), 2, "Pages need vl_convert")


def test_an_item_that_no_number_of_people_releases_is_named():
    planned = dpunion.plan("optimal-single-item", epsilon=0.01, delta=1e-9)
    assert find_needed(planned)[2].likely is None
    assert "more than 100,000" in needed_sentence(planned)


def test_plans_of_ngrams():
    shown = run("plan", "-e", 1, "-d", 1e-6, "--longest", 2, code=0)
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
        (("--longest", 2, "--html", "page.html"), "no page for a plan of n-grams"),
        (("--people", 10), "either --epsilon or --people"),
    ],
)
def test_options_of_plans_that_do_not_go_together(options, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_error(run("plan", "-e", 1, "-d", 1e-6, *options), 2, problem)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("columns", ["0", "5", "19"])
def test_a_width_that_no_terminal_has_is_taken_for_none(columns):
    def shown(env):
        return run_command("plan", "-e", "1", "-d", "1e-6", check=True, env=env).stdout

    without = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    assert shown(without | {"COLUMNS": columns}) == shown(without) != ""
