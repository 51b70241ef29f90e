"""The lab: trials are those of a release, journals survive, grids are complete, published numbers are cited."""

import json
import math
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpunion
import dpunion_lab as lab
from dpunion.algorithms import (
    MAX_ITEMS,
    Bounding,
    DpSips,
    Funnel,
    PolicyGaussian,
    PolicyLaplace,
    UserOrder,
    WeightedGaussian,
)
from dpunion.budget import Budget
from dpunion.errors import BadParameter, CannotWrite
from dpunion.report.tables import Table, write_cell
from dpunion.requests import Words
from dpunion_lab.comparison import grid, journal_of
from dpunion_lab.data import NOT_PRIVATE, load
from dpunion_lab.measuring import Figure, Line, ceiling, deviation
from dpunion_lab.results import open_journal
from dpunion_lab.study import Greedy, GreedyByOwnCounts, L1DescentL2Budget
from dpunion_lab.trials import Setting, bound_again, identity, plan_setting, run_trial, trial_key

E10 = math.exp(-10)
USERS = 4_000
RUNS = 6


@pytest.fixture(scope="module")
def data():
    return load(lab.AskRedditLike(users=USERS))


@pytest.fixture(scope="module")
def written_data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data.parquet"
    lab.AskRedditLike(users=USERS).write_parquet(path)
    return path


def small(out=None, **options):
    chosen = {"algorithms": ["policy-gaussian", "greedy"], "epsilon": 3.0, "delta": E10, "trials": 2} | options
    return lab.compare(lab.AskRedditLike(users=500), out=out, **chosen)


# --- data and trials ----------------------------------------------------------------------------------------
def test_data_is_whole_and_its_fingerprint_is_its_content(data):
    pairs = list(lab.AskRedditLike(users=USERS).chunks())
    owner, item = (np.concatenate(column) for column in zip(*pairs, strict=True))
    assert data.facts["users"] == USERS
    assert data.facts["pairs"] == len(owner)
    assert sorted(data.holders.tolist()) == sorted(np.unique(item, return_counts=True)[1].tolist())
    backwards = {"user": owner[::-1].tolist(), "item": item[::-1].tolist()}
    rows = zip(map("user{}".format, backwards["user"]), map("word{}".format, backwards["item"]), strict=True)
    assert load(rows).fingerprint == data.fingerprint
    assert load(lab.AskRedditLike(users=USERS, seed=1)).fingerprint != data.fingerprint
    assert "sensitive" in repr(data)


@pytest.mark.parametrize("order", UserOrder)
def test_bounding_keeps_random_items_of_everybody_in_the_order_asked_for(data, order):
    whole = bound_again(data.everything, Bounding(MAX_ITEMS, order), trial_key(0))
    assert len(whole.items) == len(data.everything.items)
    first, second = (bound_again(data.everything, Bounding(10, order), trial_key(number)) for number in range(2))
    sizes = np.diff(first.offsets)
    assert sizes.max() == 10
    assert sorted(sizes) == sorted(np.minimum(np.diff(data.everything.offsets), 10))
    assert (np.diff(sizes) >= 0).all() == (order is UserOrder.SMALLEST_FIRST)
    assert not np.array_equal(first.items, second.items)


@pytest.mark.parametrize("algorithm", [WeightedGaussian(), PolicyLaplace(), PolicyGaussian(), DpSips(), Funnel()])
def test_a_trial_releases_what_a_release_releases(data, written_data, algorithm):
    """Means of trials and of releases, all with fixed keys, agree to within what their spread allows."""
    setting = Setting(algorithm, Budget(3.0, E10))
    plan = plan_setting(setting)
    bounded = [bound_again(data.everything, setting.algorithm.bounding, trial_key(number)) for number in range(RUNS)]
    trials = [run_trial(data, setting, plan, sets, number) for number, sets in enumerate(bounded)]
    asked = {"user": "user", "item": "item", "epsilon": 3.0, "delta": E10, "algorithm": algorithm}
    releases = [len(dpunion.release(written_data, **asked, unsafe_test_key=key)) for key in range(RUNS)]
    sizes = [trial.size for trial in trials]
    spread = math.sqrt((np.var(sizes, ddof=1) + np.var(releases, ddof=1)) / RUNS)
    assert abs(np.mean(sizes) - np.mean(releases)) < 4 * spread
    assert all(trial.covered == tuple(sorted(trial.covered, reverse=True)) for trial in trials)
    assert all(trial.covered[0] <= trial.size for trial in trials)


def test_research_policies_run_with_the_numbers_of_their_private_relatives(data):
    budget = Budget(3.0, E10)
    greedy, descent = Setting(Greedy(), budget), Setting(L1DescentL2Budget(max_items_per_user=50), budget)
    assert plan_setting(greedy).threshold == dpunion.plan(PolicyLaplace(), epsilon=3.0, delta=E10).threshold
    published = PolicyGaussian(max_items_per_user=50, calibration="published")
    assert plan_setting(descent).scale == dpunion.plan(published, epsilon=3.0, delta=E10).scale
    for setting in (greedy, descent):
        assert not setting.has_proof
        assert setting.name.endswith("(NOT PRIVATE)")
        contributions = bound_again(data.everything, setting.algorithm.bounding, trial_key(0))
        assert run_trial(data, setting, plan_setting(setting), contributions, 0).size > 100
    with pytest.raises(BadParameter, match="sets do not show"):
        plan_setting(Setting(GreedyByOwnCounts(), budget))


def test_the_identity_tells_trials_apart(data):
    budget = Budget(3.0, E10)
    other = load(lab.AskRedditLike(users=USERS, seed=1))
    found = {
        identity(data, Setting(Funnel(), budget), 0),
        identity(data, Setting(Funnel(), budget), 1),
        identity(data, Setting(Funnel(rounds=3), budget), 0),
        identity(data, Setting(Funnel(), Budget(3.0, 1e-5)), 0),
        identity(data, Setting(Funnel(), Budget(2.0, E10)), 0),
        identity(data, Setting(DpSips(), budget), 0),
        identity(other, Setting(Funnel(), budget), 0),
    }
    assert len(found) == 7
    assert identity(data, Setting(Funnel(), budget), 0) in found


# --- grids --------------------------------------------------------------------------------------------------
def test_a_grid_has_every_combination_each_algorithm_can_take():
    asked = {"max_items_per_user": [10, 20], "passes": [1, 2], "rounds": [1, 3]}
    settings = grid(["policy-gaussian", "dp-sips", "funnel", "optimal-single-item"], [1.0, 3.0], [1e-5], asked)
    counts = {}
    for setting in settings:
        counts[setting.algorithm.name] = counts.get(setting.algorithm.name, 0) + 1
    assert counts == {"policy-gaussian": 8, "dp-sips": 8, "funnel": 8, "optimal-single-item": 2}
    assert {
        s.algorithm.first_share for s in settings if s.parameters.get("rounds") == 1 and s.algorithm.name == "funnel"
    } == {1.0}
    # By its name, Funnel chooses the number of items per person; an object has a number.
    fixed, chosen = grid([Funnel(), Funnel(), "funnel"], [1.0], [1e-5], {})
    assert (fixed.looks, chosen.looks) == (False, True)


@pytest.mark.parametrize(
    ("algorithms", "asked", "words"),
    [
        (["funel"], {}, "Did you mean 'funnel'"),
        (["dp-sips"], {"passes": [1]}, "has a parameter 'passes'"),
        ([object()], {}, "not an algorithm"),
        ([], {}, "0 settings"),
        (["dp-sips"], {"rounds": [99]}, "'rounds' parameter"),
    ],
)
def test_a_grid_refuses_what_has_no_meaning(algorithms, asked, words):
    with pytest.raises(BadParameter, match=words):
        grid(algorithms, [1.0], [1e-5], asked)


# --- comparisons --------------------------------------------------------------------------------------------
def test_a_comparison_is_repeatable_and_stamped(tmp_path):
    result = small(tmp_path / "results.json")
    again = small()
    assert [trial.size for trial in again.trials] == [trial.size for trial in result.trials]
    values = json.loads((tmp_path / "results.json").read_text())
    assert values["warning"].startswith("NOT PRIVATE")
    assert [row["released"] for row in values["trials"]] == [trial.size for trial in result.trials]
    assert [row["private_algorithm"] for row in values["summary"]] == [True, False]
    data = load(lab.AskRedditLike(users=500))
    assert values["summary"][0]["ceiling"] == ceiling(3.0, E10, data.holders.astype(float))
    assert "greedy (NOT PRIVATE)" in result.table().text()
    assert NOT_PRIVATE in journal_of(tmp_path / "results.json").read_text()


def test_parquet_is_stamped_and_whole(tmp_path):
    result = small(tmp_path / "results.parquet")
    table = pq.read_table(tmp_path / "results.parquet")
    assert table.schema.metadata[b"dpunion"] == b"NOT PRIVATE"
    assert table.schema.metadata[b"warning"].decode() == NOT_PRIVATE
    assert table["released"].to_pylist() == [trial.size for trial in result.trials]
    assert json.loads(table["parameters"][0].as_py())["max_items_per_user"] == 100


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_number_of_jobs_changes_nothing(jobs):
    assert [t.size for t in small(jobs=jobs).trials] == [t.size for t in small(jobs=2, trials=2).trials]


def test_finished_trials_are_not_run_again(tmp_path, trials_run):
    out = tmp_path / "results.parquet"
    first = small(out)
    assert len(trials_run) == 4
    assert small(out).trials == first.trials
    assert len(trials_run) == 4
    more = small(out, trials=3)
    assert len(trials_run) == 6
    assert more.trials[:2] == first.trials[:2]
    small(out, epsilon=2.0)
    assert len(trials_run) == 10
    small(out, overwrite=True)
    assert len(trials_run) == 14


def test_an_interrupted_comparison_goes_on(tmp_path, trials_run):
    out = tmp_path / "results.json"

    def interrupt(stage, done):
        if len(trials_run) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small(out, trials=6, jobs=1, progress=interrupt)
    assert not out.exists()
    finished = len(trials_run)
    assert finished < 12
    result = small(out, trials=6)
    assert len(trials_run) == 12
    assert len(set(trials_run)) == 12
    assert [trial.size for trial in result.trials] == [trial.size for trial in small(trials=6).trials]


def test_somebody_elses_file_is_not_replaced(tmp_path):
    out = tmp_path / "results.json"
    out.write_text("mine")
    with pytest.raises(CannotWrite, match="exists already"):
        small(out)
    assert out.read_text() == "mine"
    assert len(small(out, overwrite=True).trials) == 4


@pytest.mark.parametrize("name", ["results.txt", "nowhere/results.json"])
def test_a_bad_place_is_refused_before_anything_runs(tmp_path, trials_run, name):
    with pytest.raises((BadParameter, CannotWrite)):
        small(tmp_path / name)
    assert trials_run == []


@pytest.mark.parametrize("options", [{"trials": 0}, {"jobs": 0}, {"epsilon": -1.0}, {"delta": 2.0}])
def test_bad_numbers_are_refused(options):
    with pytest.raises(BadParameter):
        small(**options)


def test_texts_and_ngrams_are_read_as_by_a_release(tmp_path):
    rows = [(f"user{i}", "the cat sat") for i in range(300)]
    table = {"user": [user for user, _ in rows], "text": [text for _, text in rows]}
    pq.write_table(pa.table(table), tmp_path / "texts.parquet")
    options = {"epsilon": 3.0, "delta": 1e-4, "algorithms": ["weighted-gaussian"], "trials": 1}
    for lengths, items in ((1, 1), 3), ("2", 2), ("1-3", 6):
        words = Words("text", lengths=lengths)
        found = lab.compare(tmp_path / "texts.parquet", user="user", item=words, **options)
        assert found.data["items"] == items
        assert found.trials[0].size == items
    with pytest.raises(BadParameter, match="Both 'item' and 'text'"):
        load(tmp_path / "texts.parquet", user="user", item="text", text="text")


# --- journals -----------------------------------------------------------------------------------------------
def test_a_line_that_was_cut_short_is_dropped(tmp_path):
    place = tmp_path / "j.journal"
    with open_journal(place) as journal:
        journal.add("a", {"released": 1})
        journal.add("b", {"released": 2})
    whole = place.read_bytes()
    for cut in range(len(whole.splitlines(keepends=True)[0]), len(whole)):
        place.write_bytes(whole[:cut])
        with open_journal(place) as journal:
            assert len(journal.entries) == whole[:cut].count(b"\n") - 1
            journal.add("c", {"released": 3})
        with open_journal(place) as journal:
            assert journal.entries["c"] == {"released": 3}


def refuse_journal(place, words, **options):
    with pytest.raises(CannotWrite, match=words), open_journal(place, **options):
        pass


def test_one_run_at_a_time_writes_a_journal(tmp_path):
    place = tmp_path / "j.journal"
    with open_journal(place):
        refuse_journal(place, "Another run")
    with open_journal(place) as journal:
        assert journal.entries == {}


@pytest.mark.parametrize("start_over", [False, True])
@pytest.mark.parametrize(
    "content", ['{"diary": 1}\n', "precious notes", "precious\nnotes", '{"format": "other"}\n{"a', "{"]
)
def test_what_is_no_journal_is_never_changed(tmp_path, content, start_over):
    """Not even without a line's end, which a journal that was cut short lacks too."""
    place = tmp_path / "j.journal"
    place.write_text(content)
    place.chmod(0o644)
    if content == "{":  # the beginning of a first line that was cut short
        with open_journal(place, start_over=start_over) as journal:
            assert journal.entries == {}
        return
    refuse_journal(place, "not a journal", start_over=start_over)
    assert (place.read_text(), place.stat().st_mode & 0o777) == (content, 0o644)


def test_a_damaged_journal_can_be_started_over(tmp_path):
    place = tmp_path / "j.journal"
    with open_journal(place) as journal:
        journal.add("a", {"released": 1})
    damaged = place.read_text() + "not JSON\n{"
    place.write_text(damaged)
    refuse_journal(place, "is damaged")
    assert place.read_text() == damaged
    with open_journal(place, start_over=True) as journal:
        assert journal.entries == {}
    assert place.read_text().count("\n") == 1


def test_a_journal_and_results_are_for_their_owner_alone(tmp_path):
    """They hold exact counts of the data."""
    out = tmp_path / "results.json"
    small(out)
    assert [path.stat().st_mode & 0o777 for path in (out, journal_of(out))] == [0o600, 0o600]
    journal_of(out).chmod(0o644)
    small(out)
    assert journal_of(out).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("leads", ["to a journal", "nowhere"])
def test_a_journal_behind_a_link_is_refused(tmp_path, leads):
    if leads == "to a journal":
        with open_journal(tmp_path / "real") as journal:
            journal.add("a", {"released": 1})
    (tmp_path / "j.journal").symlink_to(tmp_path / "real")
    refuse_journal(tmp_path / "j.journal", "it is a link")
    assert (tmp_path / "real").exists() == (leads == "to a journal")


def test_a_pipe_is_no_journal(tmp_path):
    os.mkfifo(tmp_path / "j.journal")
    refuse_journal(tmp_path / "j.journal", "not a file of this user")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_journal_of_somebody_else_is_refused(tmp_path):
    """Its owner could read what is added to it."""
    place = tmp_path / "j.journal"
    with open_journal(place):
        pass
    os.chown(place, 54321, 54321)
    refuse_journal(place, "not a file of this user")


def test_an_entry_that_does_not_read_as_a_trial_is_run_again(tmp_path, trials_run):
    out = tmp_path / "results.json"
    small(out)
    place = journal_of(out)
    place.write_text(place.read_text().replace('"released":', '"relaesed":'))
    small(out)
    assert len(trials_run) == 8


# --- tables -------------------------------------------------------------------------------------------------
def test_a_table_lines_up():
    table = Table("T", ("name", "n", "part"), (("a", 1, "50.0 %"), ("long", 12_345.6, None)), "Note.")
    assert table.text().splitlines() == [
        "T", "--------------------", "name       n    part", "--------------------", "a          1  50.0 %",
        "long  12,346       –", "--------------------", "Note.",
    ]  # fmt: skip


def test_figures_have_tables_behind_them():
    line = Line("a", (1.0, 10.0), (0.5, 0.25))
    figure = Figure("F", "x", "y", (line,), percent=True)
    assert figure.table().rows == (("1", "50.0 %"), ("10", "25.0 %"))
    many = Figure("F", "x", "y", tuple(Line(str(i), (1.0, 2.5), (1.0, 2.0)) for i in range(5)))
    assert many.table().columns == ("x", "1", "2.5")
    assert len(many.table().rows) == 5


def test_deviations_are_written_with_their_sign():
    assert deviation(106.0, 100.0) == "+6.0 %"
    assert deviation(94.0, 100.0) == "-6.0 %"
    assert deviation(94.0, None) is None
    assert write_cell(None) == "–"


def test_the_names_of_the_lab():
    assert set(lab.__all__) == set(lab._HOMES)
    assert all(getattr(lab, name).__doc__ for name in lab.__all__)
    with pytest.raises(AttributeError, match="no attribute"):
        _ = lab.relaese
