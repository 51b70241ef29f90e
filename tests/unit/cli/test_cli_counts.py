"""Counts on the command line: rows, JSON and files, what is refused, and that one charge pays for all."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.cells import cell_len

import dpunion
from dpunion.engines.local import engine
from dpunion.ledger import Ledger
from dpunion.plans.counts import Counted, Estimate, Totals
from dpunion.releases.formats import WIDEST_TEXT, WRITERS, table_lines
from dpunion.releases.release import Release, with_items
from running import CLI, PATIENCE, assert_error, read_terminal
from running import run_cli as run

HOLDERS = {"apple": 900, "pear": 500, "=plum": 300}
BUDGET = ("-e", "2", "-d", "1e-4")
COLUMNS = ("-u", "user", "-i", "item")
KEY = ("--unsafe-test-key", "7")
LENGTHS = ("ngrams", "-u", "user", "-t", "item", "--longest", "2")


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A file in which this many people have each item, and nothing else; the tests run in its folder."""
    monkeypatch.chdir(tmp_path)
    pairs = [(f"{item}{user}", item) for item, count in HOLDERS.items() for user in range(count)]
    pq.write_table(pa.table({"user": [user for user, _ in pairs], "item": [item for _, item in pairs]}), "s.parquet")
    return "s.parquet"


def counted(*arguments, source="s.parquet"):
    """Return the rows of a release with counts: {item: (people, low, high)}, in their order."""
    done = run("release", source, *COLUMNS, *BUDGET, "--counts", *arguments, code=0)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return {item: tuple(map(int, numbers)) for item, *numbers in rows}


# --- what is shown ------------------------------------------------------------------------------------------
def test_rows_are_item_people_low_high_the_most_popular_first(source):
    rows = counted()
    assert list(rows) == list(HOLDERS)
    for item, (people, low, high) in rows.items():
        assert low <= people <= high
        assert abs(people - HOLDERS[item]) < 60
    assert list(counted("--sort", "item")) == sorted(HOLDERS)


def test_the_statement_says_how_many_people_there_are(source):
    whole = run("release", source, *COLUMNS, *BUDGET, "--counts", "--statement").stderr
    assert "Each item has a noisy estimate of how many people have it" in whole
    said = run("release", source, *COLUMNS, *BUDGET, "--counts").stderr
    assert "noisy estimate" not in said
    found = re.search(r"About ([\d,]+) \([\d,]+ to [\d,]+\) people have at least one item", said)
    assert abs(int(found[1].replace(",", "")) - sum(HOLDERS.values())) < 500


def test_json_has_numbers_beside_items_and_totals(source):
    values = json.loads(run("release", source, *COLUMNS, *BUDGET, "--counts", *KEY, "--json").stdout)
    assert values["items"] == list(HOLDERS)
    columns = zip(*(values["numbers"][name] for name in ("people", "low", "high")), strict=True)
    assert dict(zip(values["items"], columns, strict=True)) == counted(*KEY)
    assert set(values["totals"]) == {"everybody", "others", "cut", "corrected"}
    assert set(values["totals"]["everybody"]) == {"people", "low", "high"}
    assert values["plan"]["counts"]["share"] == 0.1


def test_json_beside_a_file_leaves_the_numbers_to_it(source):
    arguments = ("release", source, *COLUMNS, *BUDGET, "--counts", *KEY, "--json", "--out", "a.json")
    values = json.loads(run(*arguments).stdout)
    assert values["released"] == len(HOLDERS)
    assert not {"numbers", "items"} & set(values)
    written = json.loads(Path("a.json").read_text())
    assert values["totals"] == written["totals"]
    assert list(written["numbers"]) == ["people", "low", "high"]


def test_ngrams_have_their_length_before_the_counts(source):
    command, *columns = LENGTHS
    done = run(command, source, *columns, *BUDGET, "--counts", *KEY, code=0)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert {(row[0], row[1]) for row in rows} >= {("apple", "1"), ("pear", "1")}
    values = json.loads(run(command, source, *columns, *BUDGET, "--counts", *KEY, "--json").stdout)
    assert values["ngrams"] == [[row[0], int(row[1])] for row in rows]
    assert values["numbers"]["people"] == [int(row[2]) for row in rows]


def test_on_a_terminal_numbers_stand_below_each_other():
    long = "a" * (WIDEST_TEXT + 5)
    numbers = Counted((1_234_567, 20, 3), (1_200_000, 1, 1), (1_300_000, 40, 9), Totals(*[Estimate(1, 1, 1)] * 2, 0, 1))
    plan = dpunion.plan(dpunion.Funnel(), epsilon=1.0, delta=1e-6, counts=True)
    made = with_items(Release((), plan, True), ["日本語", "x\x1b[31m", long], numbers)
    head, first, second, last = table_lines(made)
    assert head.split() == ["item", "people", "low", "high"]
    assert first.split() == ["日本語", "1,234,567", "1,200,000", "1,300,000"]
    assert second.split() == ["x\\x1b[31m", "20", "1", "40"]
    assert cell_len(head) == cell_len(first) == cell_len(second) == cell_len(last) - 5
    assert last.startswith(f"{long}  ")


def test_a_terminal_gets_columns_and_a_pipe_gets_tabs(source):
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", CLI, "release", source, *COLUMNS, *BUDGET, "--counts", *KEY]
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL) as process:
        os.close(theirs)
        shown = read_terminal(ours)
        assert process.wait(PATIENCE) == 0
    head, *rows, blank = shown.decode().splitlines()
    assert blank == ""
    assert head.split() == ["item", "people", "low", "high"]
    assert {item: tuple(map(int, numbers)) for item, *numbers in map(str.split, rows)} == counted(*KEY)
    assert {len(row) for row in rows} == {len(head)}


def test_the_plan_says_the_precision_to_expect(source):
    shown = run("plan", *BUDGET, "--counts", "--count-share", "0.2").stdout
    plan = dpunion.plan(epsilon=2.0, delta=1e-4, counts=dpunion.Counts(share=0.2)).counts
    assert "Counts take 20 % of the budget." in shown
    for people in (20, 100, 1_000, 100_000):
        widths = (f"± {plan.half_width(people, ratio):,.0f}" for ratio in (3, 10, 30))
        assert f"{people:,} {' '.join(widths)}" in " ".join(shown.split())
    values = json.loads(run("plan", *BUDGET, "--counts", "--count-share", "0.2", "--json").stdout)
    assert values["counts"] == json.loads(json.dumps(plan.to_dict()))
    assert "counts" not in json.loads(run("plan", *BUDGET, "--json").stdout)


# --- what is refused, before anything is read ---------------------------------------------------------------
REFUSED = {
    ("--counts", "--count-share", "0"): ("'share'", "for example 0.1"),
    ("--counts", "--count-share", "-0.1"): ("'share'",),
    ("--counts", "--count-share", "0.95"): ("'share'",),
    ("--counts", "--count-share", "nan"): ("'share'",),
    ("--count-share", "0.1"): ("without --counts", "Add --counts"),
}
OF_RELEASES = {
    ("--sort", "people"): ("when people are counted", "--counts"),
    ("--counts", "--sort", "frequency"): ("'sort'", "people"),
}
COMMANDS = {
    "plan": ("plan",),
    "release": ("release", "none.csv", *COLUMNS),
    "ngrams": ("ngrams", "none.csv", *LENGTHS[1:]),
}


EVERYWHERE = [(command, options) for command in COMMANDS for options in REFUSED]
WITH_AN_ORDER = [(command, options) for command in ("release", "ngrams") for options in OF_RELEASES]


@pytest.mark.parametrize(("command", "options"), [*EVERYWHERE, *WITH_AN_ORDER])
def test_what_does_not_fit_is_refused_before_anything_is_read(command, options):
    assert_error(run(*COMMANDS[command], *BUDGET, *options), 2, *(REFUSED | OF_RELEASES)[options])


@pytest.mark.parametrize("name", ["policy-laplace", "weighted-laplace", "count-laplace", "optimal-single-item"])
@pytest.mark.parametrize("command", ["plan", "release"])
def test_noise_that_is_not_gaussian_is_refused_with_the_remedy(command, name):
    result = run(*COMMANDS[command], *BUDGET, "--counts", "-a", name)
    assert_error(result, 2, f"{name} cannot estimate counts")
    assert "Choose funnel" in " ".join(result.stderr.split())


@pytest.mark.parametrize("name", ["people", "low", "high"])
def test_a_key_has_no_column_of_counts(name):
    keys = ("-u", "user", "-i", name, "-i", "item")
    refused = run("release", "none.csv", *keys, *BUDGET, "--counts")
    assert_error(refused, 2, f"name of a column of the result: {name}")
    run("release", "none.csv", *keys, *BUDGET, code=3)  # without counts it is a name like others


# --- files, known lists and memory --------------------------------------------------------------------------
def test_every_format_holds_the_same(source):
    paths = [f"out{suffix}" for suffix in WRITERS]
    rows = counted(*KEY)
    run(
        *("release", source, *COLUMNS, *BUDGET, "--counts", *KEY),
        *(part for path in paths for part in ("-o", path)),
        code=0,
    )
    read = Release.from_json(Path("out.json").read_text())
    assert {row[0]: row[1:] for row in read.rows()} == rows
    table = pq.read_table("out.parquet")
    assert table.equals(pa.ipc.open_file(Path("out.arrow").read_bytes()).read_all())
    assert [str(field.type) for field in table.schema] == ["string", "int64", "int64", "int64"]
    assert table.equals(read.table())
    lines = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert lines == table.to_pylist()
    assert Path("out.csv").read_text() == "item,people,low,high\n" + "".join(
        f"{item.replace('=', chr(39) + '=')},{','.join(map(str, numbers))}\n" for item, numbers in rows.items()
    )
    assert Path("out.txt").read_text().splitlines() == list(rows)  # the plain list, in the same order


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_release_with_counts_is_a_known_list_of_its_items(source, suffix):
    known = f"known{suffix}"
    assert run("release", source, *COLUMNS, *BUDGET, "--counts", "-o", known).exit_code == 0
    again = run("release", source, *COLUMNS, *BUDGET, "--known", known)
    assert (again.exit_code, again.stdout) == (0, "")
    assert list(counted("--known", known, "--include-known")) == list(HOLDERS)


def test_a_memory_limit_changes_no_number(source, monkeypatch):
    rows = counted(*KEY)
    seen = []

    def tiny(limit):
        seen.append(limit)
        return 64

    monkeypatch.setattr(engine, "as_bytes", tiny)
    assert counted(*KEY, "--memory-limit", "1GB") == rows
    assert seen == ["1GB"]


# --- the ledger ---------------------------------------------------------------------------------------------
def test_one_charge_pays_for_list_and_numbers(source):
    Ledger.open("l.db", create=True).create_dataset("d", 10.0, 1e-3)
    command = ("release", source, *COLUMNS, *BUDGET, "--counts", "--ledger", "l.db", "--dataset", "d")
    assert run(*command, "-o", "a.csv").exit_code == 0

    def spent():
        return Ledger.open("l.db").overview().accounts[0].spent.epsilon / 10**9

    assert spent() == pytest.approx(2.0)
    assert_error(run(*command, "-o", "a.csv"), 6, "made before")
    # A tenth is what counts get when nothing is said.
    assert run(*command, "-o", "a.csv", "--count-share", "0.1").exit_code == 6
    assert spent() == pytest.approx(2.0)
    assert run(*command, "-o", "b.csv", "--count-share", "0.2").exit_code == 0
    assert spent() == pytest.approx(4.0)
    without = [part for part in command if part != "--counts"]
    assert run(*without, "-o", "c.csv").exit_code == 0
    assert spent() == pytest.approx(6.0)
