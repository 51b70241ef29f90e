"""Lists that stay current: a schedule's releases from the rows of a window, and lists of candidates in a schedule."""

import datetime as dt
import json
import math
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpunion
from dpunion.budget import Budget
from dpunion.calibration import rounding
from dpunion.cli.release import summarize
from dpunion.errors import AlreadyReleased, BadParameter, LedgerError
from dpunion.ledger import Ledger, Schedule
from dpunion.ledger.accounts import charge_for
from dpunion.plans.candidates import add_candidates
from dpunion.plans.counts import Counts
from dpunion.plans.look import LookPlan, plan_share
from dpunion.reading.known import read_known
from dpunion.releases.formats import LISTED
from dpunion.releases.release import Release
from dpunion.report.sections import describe_release

START = dt.date(2026, 1, 5)
OLD = [f"old{number}" for number in range(40)]
STAYED, LEFT, NEW = OLD[6:], OLD[:6], [f"new{number}" for number in range(5)]


def rows(words, people=3_000):
    """Return a window in which each person has two of the words."""
    held = [(f"u{u}", words[(u + k) % len(words)]) for u in range(people) for k in range(2)]
    return pa.table({"user": [u for u, _ in held], "item": [w for _, w in held]})


@pytest.fixture
def ledger(tmp_path):
    book = Ledger.open(tmp_path / "budget.db", create=True)
    for name in ("posts", "twin"):
        book.create_dataset(name, 3, 1e-5, schedule=Schedule(12, start=START))
    return book


@pytest.fixture
def make(ledger, tmp_path):
    def release(week, words, *, dataset="posts", out=None, data=None, **options):
        current = options.pop("current", True)
        day = START + dt.timedelta(weeks=week - 1)
        return dpunion.release(
            rows(words) if data is None else data,
            user="user",
            item=options.pop("item", "item"),
            out=[tmp_path / (out or f"{dataset}-{week}.json")],
            charge=dpunion.Charge(tmp_path / "budget.db", dataset, scheduled=True, on=day, current=current),
            **options,
        )

    return release


def weeks(made):
    """Return since when each item is on the list."""
    (since,) = (one.values for one in made.numbers if one.name == "since")
    return dict(zip(made.items, since, strict=True))


def listed(made):
    """Return the items that came out as candidates."""
    (flags,) = (one.values for one in made.numbers if one.name == LISTED)
    return {item for item, flag in zip(made.items, flags, strict=True) if flag}


def spent(ledger):
    return [account.spent for account in ledger.overview().accounts]


def entries(ledger, name):
    return [entry for entry in ledger.overview().entries if entry.dataset == name]


def test_a_window_confirms_items_finds_new_ones_and_names_those_that_left(make, tmp_path):
    first = make(1, OLD)
    assert (set(first.items), set(weeks(first).values()), listed(first), first.gone) == (set(OLD), {1}, set(), ())
    assert "candidate needs fewer people" not in first.statement
    made = make(2, STAYED + NEW)
    # An item that nobody has any more comes out again with a chance of 0.01.
    again = set(made.items) & set(LEFT)
    assert len(again) <= 3
    assert set(made.items) == {*STAYED, *NEW, *again}
    assert weeks(made) == dict.fromkeys([*STAYED, *again], 1) | dict.fromkeys(NEW, 2)
    assert listed(made) == {*STAYED, *again}
    assert made.gone == tuple(sorted(set(LEFT) - again))
    assert made.header == ("item", "since", "listed")
    assert made.plan.candidates.listed == len(OLD)
    assert made.plan.candidates.error == 0.01
    assert (
        f"the 40 items of the list that this release continues; {6 - len(again)} of them are not in this one"
        in made.statement
    )
    assert f"Items of the previous release that are not in this list: {6 - len(again)}." in summarize(made, "")
    assert not any("previous release" in line for line in summarize(first, ""))
    written = json.loads((tmp_path / "posts-2.json").read_text())
    assert written["gone"] == sorted(set(LEFT) - again)
    assert Release.from_json(json.dumps(written)).gone == made.gone


@pytest.mark.parametrize("counts", [False, True])
def test_the_page_of_a_current_list_has_its_columns_and_names_what_is_gone(make, counts):
    make(1, OLD, counts=counts)
    made = make(2, STAYED + NEW, counts=counts)
    page = describe_release(made)
    assert page["columns"] == ("item", "since", "listed")
    rows = {row[0]: row[1:] for row in page["items"]}
    assert rows["old39"][:2] == ["1", "yes"]
    assert rows["new1"][:2] == ["2", "no"]
    assert len(rows["new1"]) == (5 if counts else 2)
    assert page["numbers"] == (("people", "low", "high") if counts else ())
    (gone,) = [one for one in page["sections"] if one.title == "Items that are gone"]
    assert gone.points == made.gone


def test_the_page_names_the_first_of_very_many_items_that_are_gone(make):
    make(1, OLD)
    made = replace(make(2, STAYED), gone=tuple(f"gone\x1b{number:05}" for number in range(1_200)))
    (gone,) = [one for one in describe_release(made)["sections"] if one.title == "Items that are gone"]
    assert (len(gone.points), gone.points[0]) == (1_000, "gone\\x1b00000")
    assert gone.text == (
        "1,200 items of the list that this release continues are not in its list. Here are the first 1,000; the .json "
        "output has all.",
    )


def test_an_item_that_comes_back_is_on_the_list_since_then(make):
    make(1, OLD)
    gone = set(make(2, STAYED).gone)
    made = make(4, OLD)
    assert gone
    assert weeks(made) == {item: 4 if item in gone else 1 for item in OLD}
    assert made.gone == ()


def test_a_charge_is_the_same_with_and_without_windows(ledger, make):
    for week, words in ((1, OLD), (2, STAYED + NEW), (4, NEW + OLD), (8, NEW), (12, OLD)):
        make(week, words)
        make(week, words, dataset="twin", current=False)
    current, aside = (entries(ledger, name) for name in ("posts", "twin"))
    assert [one.charge for one in current] == [one.charge for one in aside]
    for account in ledger.overview().accounts:
        assert account.spent.mu_squared == account.caps.mu_squared
        assert account.spent.novelty == account.caps.novelty
    assert ledger.verify().good


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl", "arrow", "json"])
def test_every_format_is_read_back(make, suffix, tmp_path):
    make(1, OLD)
    make(2, STAYED + NEW, out=f"second.{suffix}")
    made = make(4, STAYED + NEW)
    assert {weeks(made)[item] for item in STAYED} == {1}
    assert {weeks(made)[item] for item in NEW} == {2}
    assert set(made.gone) <= set(LEFT)
    after = make(8, STAYED, current=False)
    assert "since' says in which week of the schedule an item came onto the list" in after.statement
    assert "first released" not in after.statement
    assert listed(after) == listed(made)
    assert "An item that is 'listed' may have no people" in after.statement
    if suffix == "parquet":
        assert pq.read_table(tmp_path / "second.parquet").column_names == ["item", "since", "listed"]


def test_keys_of_several_columns_and_counts(make, tmp_path):
    def table(words):
        held = rows(words)
        return held.append_column("device", pa.array(["a\tb"] * len(held)))

    make(1, OLD, item=["item", "device"], data=table(OLD), counts=True)
    made = make(2, STAYED, item=["item", "device"], data=table(STAYED), counts=True)
    assert made.header == ("item", "device", "since", "listed", "people", "low", "high")
    assert set(made.gone) <= {(item, "a\tb") for item in LEFT}
    assert len(made.gone) >= 3
    assert Release.from_json((tmp_path / "posts-2.json").read_text()).gone == made.gone
    assert all(made.people[item, "a\tb"] > 50 for item in STAYED)


def test_stop_words_leave_the_list(make, tmp_path):
    texts = {f"u{u}": ["Hello, the World!"] for u in range(2_000)}
    for week, stopped in ((1, None), (2, ("the",))):
        made = dpunion.release(
            texts,
            item=dpunion.Words(stop_words=stopped),
            out=tmp_path / f"{week}.parquet",
            charge=dpunion.Charge(
                tmp_path / "budget.db", "posts", scheduled=True, on=START + dt.timedelta(weeks=week - 1), current=True
            ),
        )
    assert weeks(made) == {"hello": 1, "world": 1}
    assert made.gone == ("the",)
    assert made.plan.candidates.listed == 2


def test_a_changed_list_is_refused_before_any_charge(ledger, make, tmp_path):
    make(1, OLD)
    before, path = spent(ledger), tmp_path / "posts-1.json"
    path.write_text(path.read_text().replace("old39", "old40"))
    with pytest.raises(LedgerError, match="has changed"):
        make(2, OLD)
    assert spent(ledger) == before


def test_the_list_of_the_release_before_is_not_overwritten(ledger, make, tmp_path):
    make(1, OLD)
    before, content = spent(ledger), (tmp_path / "posts-1.json").read_bytes()
    with pytest.raises(dpunion.DpunionError, match="is the earlier list of this run"):
        make(2, OLD, out="posts-1.json", run=dpunion.Run(overwrite=True))
    assert (spent(ledger), (tmp_path / "posts-1.json").read_bytes()) == (before, content)


def test_the_same_week_again_is_answered_from_the_ledger(ledger, make):
    make(1, OLD)
    make(2, STAYED)
    before = spent(ledger)
    with pytest.raises(AlreadyReleased):
        make(2, STAYED, out="again.json")
    with pytest.raises(LedgerError, match="made with other options"):
        make(2, STAYED, out="again.json", current=False)
    assert spent(ledger) == before


def test_options_that_do_not_go_with_windows_are_refused(ledger, make, tmp_path):
    with pytest.raises(BadParameter, match="items of the previous release"):
        make(1, OLD, candidates=OLD)
    with pytest.raises(BadParameter, match="needs an output file"):
        make(1, OLD, out="list.txt")
    with pytest.raises(BadParameter, match="called 'since'"):
        make(1, OLD, item=["since", "user"])
    charge = dpunion.Charge(tmp_path / "budget.db", "posts", current=True)
    with pytest.raises(BadParameter, match="'current'"):
        dpunion.release({"u": ["a"]}, epsilon=1.0, delta=1e-6, charge=charge)
    assert ledger.overview().entries == ()


def test_a_window_on_spark(spark, make):
    make(1, OLD)
    made = make(2, [], data=spark.createDataFrame(rows(STAYED + NEW).to_pandas()))
    assert {*STAYED, *NEW} <= set(made.items)
    assert set(LEFT) == set(made.gone) | (set(LEFT) & set(made.items))
    assert {item for item, week in weeks(made).items() if week == 2} == set(NEW)


# Plans


@pytest.mark.parametrize("counts", [None, Counts(share=0.2)])
@pytest.mark.parametrize("slack", [None, 1e-3])
def test_a_share_with_candidates_costs_what_it_costs_without(counts, slack, monkeypatch):
    """slack: also if rounding needs more for candidates than for other items."""
    plain = plan_share((0.05, 1e-6), Budget(3.0, math.exp(-10)), counts=counts)
    if slack is not None:
        monkeypatch.setattr(rounding, "funnel_slack", lambda *_: slack)
    planned = add_candidates(plain, read_known(["a", "b"]), 0.01)
    assert isinstance(planned, LookPlan)
    for one, other in zip(planned.alternatives, plain.alternatives, strict=True):
        assert one.candidates.threshold < other.threshold
        assert (one.planned_novelty, one.counts) == (other.planned_novelty, other.counts)
        assert one.selecting == pytest.approx(other.selecting, rel=1e-12)
        assert one.cutoff == pytest.approx(other.cutoff, rel=1e-2)
        assert (one.scale == other.scale) == (slack is None)
    charges = [charge_for(one) for one in (planned, plain)]
    assert charges[0].novelty == charges[1].novelty
    assert charges[0].mu_squared == pytest.approx(charges[1].mu_squared, rel=1e-11)


# A list of candidates in a schedule


def test_candidates_of_ones_own_in_a_schedule(ledger, make):
    """What was released before is set aside, and is no candidate any more."""
    catalogue = [*STAYED, *NEW, *(f"unknown{number}" for number in range(20))]
    asked = dpunion.Candidates(catalogue, error=1e-6)
    first = make(1, OLD, current=False, candidates=asked)
    assert set(first.items) == set(OLD)
    assert listed(first) == set(STAYED)
    assert first.gone is None
    made = make(2, OLD + NEW, current=False, candidates=asked)
    assert weeks(made) == dict.fromkeys(OLD, 1) | dict.fromkeys(NEW, 2)
    assert listed(made) == {*STAYED, *NEW}, "that an item came out as a candidate is not forgotten"
    assert made.plan.candidates.listed == len(catalogue) - len(STAYED)
    with pytest.raises(LedgerError, match="made with other options"):
        make(2, OLD, current=False, candidates=dpunion.Candidates(catalogue, error=1e-3), out="other.json")
    make(1, OLD, dataset="twin", current=False)
    make(2, OLD, dataset="twin", current=False)
    with_list, without = ([one.charge for one in entries(ledger, name)] for name in ("posts", "twin"))
    assert with_list == without


# The command line


def test_a_window_on_the_command_line(ledger, tmp_path):
    from click.testing import CliRunner

    from dpunion.cli import app

    def run(week, words, *more):
        pq.write_table(rows(words), tmp_path / f"rows-{week}.parquet")
        asked = ["release", str(tmp_path / f"rows-{week}.parquet"), "-u", "user", "-i", "item", "--json", *more]
        return CliRunner().invoke(app, [*asked, "--out", str(tmp_path / f"list-{week}.csv")])

    for week, words in ((1, OLD), (2, STAYED)):
        day = START + dt.timedelta(weeks=week - 1)
        charge = ["--ledger", str(tmp_path / "budget.db"), "--dataset", "posts", "--on", str(day)]
        result = run(week, words, *charge, "--scheduled", "--current")
        assert result.exit_code == 0, result.output
    gone = json.loads(result.stdout)["gone"]
    assert gone
    assert set(gone) <= set(LEFT)
    assert (tmp_path / "list-2.csv").read_text().startswith("item,since,listed\n")
    assert "current = true" in (tmp_path / "list-2.csv.private.toml").read_text()
    assert 'on = "2026-01-12"' in (tmp_path / "list-2.csv.private.toml").read_text()
    assert run(3, OLD, "-e", "1", "-d", "1e-6", "--current").exit_code == 2
    refused = run(4, OLD, *charge, "--scheduled", "--current", "--counts", "--drop-doubtful")
    assert "with --current, leave it out" in refused.stderr
