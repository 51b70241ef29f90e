"""The page one signs: title, owner, note and charge of a release, from the options to the ledger and the pages."""

import datetime as dt
import json
import re

import pytest
from test_report import Reader, counted_release, made

import dpunion
from dpunion.budget import sureness
from dpunion.errors import BadParameter, LedgerError
from dpunion.ledger import Ledger
from dpunion.ledger.events import APPEND, NO_HASH, Event, EventKind
from dpunion.releases.about import About, Charged
from dpunion.releases.release import Release
from dpunion.releases.statements import LIMITS, NOT_PRIVATE
from dpunion.report import Gauge, ledger_page, release_page
from dpunion.report.sections import UNCHARGED

PAIRS = [(f"user{at}", f"item{at % 3}") for at in range(600)]
TOLD = About("Words of the week", "Search team <b>", "For the help pages.")
PLAN = dpunion.plan("weighted-laplace", epsilon=1.0, delta=1e-6)
BUDGET = {"user": None, "epsilon": 1.0, "delta": 1e-6, "algorithm": "weighted-gaussian"}


@pytest.fixture
def ledger(tmp_path):
    """A ledger with two datasets."""
    found = Ledger.open(tmp_path / "budget.db", create=True)
    found.create_dataset("posts", 3.0, 1e-5)
    found.create_dataset("visits", 10.0, 1e-5, "tight")
    return found


def released(tmp_path, dataset="posts", about=TOLD, **options):
    charge = dpunion.Charge(tmp_path / "budget.db", dataset, again=True)
    return dpunion.release(PAIRS, **BUDGET | options, charge=charge, run=dpunion.Run(about=about))


# --- what is told -------------------------------------------------------------------------------------------
def test_what_is_told_is_in_the_release_and_comes_back(tmp_path, ledger):
    release = released(tmp_path)
    today = dt.datetime.now(dt.UTC).date()
    assert (release.about.title, release.about.owner, release.about.note) == (TOLD.title, TOLD.owner, TOLD.note)
    assert abs((dt.date.fromisoformat(release.about.made) - today).days) <= 1
    assert release.about.charged.receipt in release.statement
    assert Release.from_json(release.to_json()) == release


def test_what_is_told_changes_neither_the_items_nor_the_fingerprint(tmp_path, ledger):
    one = dpunion.release(PAIRS, **BUDGET, unsafe_test_key=1, run=dpunion.Run(about=TOLD))
    other = dpunion.release(PAIRS, **BUDGET, unsafe_test_key=1)
    assert one.items == other.items
    released(tmp_path)
    with pytest.raises(dpunion.AlreadyReleased):
        dpunion.release(PAIRS, **BUDGET, charge=dpunion.Charge(tmp_path / "budget.db", "posts"))


@pytest.mark.parametrize(
    "wrong", [{"title": "x" * 201}, {"note": "x" * 2001}, {"owner": "\x1b[31m"}, {"title": 7}, {"note": "a\u202eb"}]
)
def test_what_is_no_short_text_is_refused(wrong):
    with pytest.raises(BadParameter, match=next(iter(wrong))):
        About(**wrong)


def test_white_space_is_tidied():
    assert About(note=" two\n lines ").note == "two lines"


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("about", {"made": "yesterday"}), ("about", {"title": 3}), ("about", 3), ("ledger", {}),
        ("ledger", {"after": 2.0}), ("ledger", {"after": "1"}), ("ledger", {"more": -1}),
    ],
)  # fmt: skip
def test_a_file_that_tells_nonsense_is_no_release(tmp_path, ledger, part, value):
    values = json.loads(released(tmp_path).to_json())
    values[part] = values[part] | value if value and isinstance(value, dict) else value
    with pytest.raises(BadParameter, match="not a release"):
        Release.from_json(json.dumps(values))


# --- the ledger ---------------------------------------------------------------------------------------------
def test_the_ledger_says_who_what_and_what_for(tmp_path, ledger):
    path = tmp_path / "people.csv"
    path.write_text("\n".join(["who,word", *(f"{user},{item}" for user, item in PAIRS)]))
    charge = dpunion.Charge(tmp_path / "budget.db", "posts")
    options = BUDGET | {"user": "who", "item": "word"}
    dpunion.release(str(path), **options, charge=charge, run=dpunion.Run(about=TOLD))
    (entry,) = ledger.overview().entries
    told = entry.to_dict()
    assert (told["title"], told["owner"], told["note"]) == (TOLD.title, TOLD.owner, TOLD.note)
    assert (told["sources"], told["columns"], told["version"]) == ([str(path)], ["word"], dpunion.__version__)
    assert ledger.verify().good


def test_nothing_is_looked_up_about_who_runs_it(tmp_path, ledger, monkeypatch):
    for name in ("USER", "LOGNAME", "HOSTNAME"):
        monkeypatch.setenv(name, "somebody-known")
    release = released(tmp_path, about=About())
    (entry,) = ledger.overview().entries
    assert set(entry.details["about"]) == {"sources", "columns", "version"}
    assert "somebody-known" not in json.dumps(entry.details) + release.to_json()


def test_the_rest_reaches_as_far_as_it_says(tmp_path, ledger):
    """As many further releases as are said fit, and no other one."""
    for dataset in ("posts", "visits"):
        assert ledger.overview().more_like_last(ledger.overview().accounts[0 if dataset == "posts" else 1]) is None
        release = released(tmp_path, dataset, epsilon=1.0)
        (account,) = [one for one in ledger.overview().accounts if one.name == dataset]
        said = ledger.overview().more_like_last(account)
        assert said == release.about.charged.more > 0
        last = ledger.overview().last_of(dataset)
        for number in range(said):
            with ledger.reserve(dataset, last.charge, f"{number:064x}") as reservation:
                reservation.start_reading()
                reservation.settle(digest="0" * 64)
        with pytest.raises(dpunion.BudgetExhausted):
            ledger.reserve(dataset, last.charge, "f" * 64)


def test_what_was_spent_before_and_after_is_what_the_ledger_adds_up(tmp_path, ledger):
    first, second = released(tmp_path).about.charged, released(tmp_path).about.charged
    assert (first.before, first.after) == (0.0, pytest.approx(1 / 3))
    assert (second.before, second.after) == (first.after, pytest.approx(2 / 3))
    assert (first.more, second.more) == (2, 1)
    assert ledger.overview().accounts[0].spent_share == second.after
    assert (second.total_epsilon, second.total_delta, second.composition) == (3.0, 1e-5, "additive")


def test_a_misspelt_dataset_is_guessed(tmp_path, ledger):
    with pytest.raises(LedgerError, match="no dataset 'post'") as refused:
        released(tmp_path, "post")
    assert "It has: 'posts', 'visits'." in refused.value.what
    assert refused.value.remedy.startswith("Did you mean 'posts'? ")
    with pytest.raises(LedgerError) as refused:
        released(tmp_path, "nothing-like-it")
    assert "Did you mean" not in refused.value.remedy


def test_rows_written_before_anything_was_told_go_on_working(tmp_path, ledger):
    """A row whose details say no more than they did at first: read, shown and charged after as ever."""
    released(tmp_path)
    with ledger._store.transaction(write=True) as session:
        book = ledger._reader.book(session)
        entry = book.entries[book.sequence - 1]
        details = json.dumps({"plan": {"algorithm": "funnel"}, "charge_again": True})
        row = Event(book.sequence + 1, EventKind.RESERVED, "posts", 0, entry.charge, "a" * 64, details, "2024-05-01")
        session.run(APPEND, *Event.from_row((*row.row()[:-1], row.hash_after(book.head))).row())
    assert ledger.verify().good
    last = ledger.overview().entries[-1].to_dict()
    assert (last["title"], last["sources"], last["version"]) == ("", [], "")
    assert "items, by funnel" in Reader(ledger_page(ledger.overview(), ledger.verify(), "b.db")).words()
    assert released(tmp_path).about.charged.more == 0
    assert book.head != NO_HASH


# --- pages --------------------------------------------------------------------------------------------------
def test_what_it_means_comes_before_the_list(tmp_path, ledger):
    page = Reader(release_page(released(tmp_path)))
    words = page.words()
    titles = ("What this means for one person", "What it does not cover", "The budget of the")
    places = [words.rindex(title) for title in (*titles, "Approved by")]
    assert places == sorted(places)
    assert places[-1] < words.index("Search Sort")
    assert words.startswith("Words of the week")
    for sentence in LIMITS:
        assert sentence in words
    assert "owner Search team <b> what it is for For the help pages." in words
    assert "With it 33.3 % of the budget was spent; the rest would cover about 2 more like it." in words
    assert "spent before 0 % this release 33.3 % left 66.7 %" in words
    assert "before 50 % what the list may add 23.2 % doubt that remains at least 26.8 %" in words


def test_the_plan_and_the_statement_are_folded(tmp_path, ledger):
    html = release_page(made(["apple"]))
    fold = html[html.index('<details class="fold">') :]
    for folded in ("Every number of the release", "The statement, word for word", "In symbols", "How the budget was"):
        assert folded in fold
        assert folded not in html[: html.index('<details class="fold">')]


def test_without_a_ledger_the_page_says_that_nobody_added_up():
    words = Reader(release_page(made(["apple"]))).words()
    assert UNCHARGED in words
    assert "ledger entry" not in words


def test_a_test_release_is_not_for_signing():
    words = Reader(release_page(made(["apple"], guaranteed=False))).words()
    assert NOT_PRIVATE in words
    for absent in ("Approved by", "What it does not cover", "The budget of the dataset", "How it was made"):
        assert absent not in words


def test_a_page_with_counts_says_what_they_are():
    words = Reader(release_page(counted_release(("apple", "pear"), (50, 2_000)))).words()
    assert words.index("What this means for one person", 300) < words.index("How many people", 900)


@pytest.mark.parametrize("epsilon", [0.001, 0.5, 1.0, 5.0, 10.0, 30.0])
def test_the_bar_of_doubt_never_promises_more_than_there_is(epsilon):
    plan = dpunion.plan("weighted-laplace", epsilon=epsilon, delta=1e-6, weak_budget=True)
    words = Reader(release_page(made(["apple"], plan=plan))).words()
    doubt = re.search(r"doubt that remains at least (< )?([\d.]+) %", words)
    assert float(doubt[2]) / 100 <= 1.0 - sureness(epsilon) or doubt[1]


def test_a_bar_holds_no_more_than_the_whole():
    with pytest.raises(BadParameter):
        Gauge("too much", (("one", 0.7), ("other", 0.6)), "rest")
    assert [row[1] for row in Gauge("all", (("one", 0.7), ("other", 0.3)), "rest").filled()] == ["70 %", "30 %", "0 %"]


def test_the_page_of_a_ledger_says_everything(tmp_path, ledger):
    released(tmp_path)
    release = released(tmp_path, "visits")
    told = {"title": "<script>alert(1)</script>", "owner": "\u202eowner", "note": "{{7*7}}"}
    ledger.reserve("visits", ledger.overview().entries[-1].charge, "e" * 64, about=told)
    page = Reader(ledger_page(ledger.overview(), ledger.verify(), "budget.db"))
    words = page.words()
    assert "datasets 2 releases charged 3" in words
    assert "33.3 % is spent; what is left: about 2 more like the last one." in words
    assert f"what is left: about {release.about.charged.more - 1} more like the last one." in words
    assert (
        "Words of the week, by weighted-gaussian (items) Search team <b> For the help pages. 1, 10⁻⁶ a release: SHA"
        in words
    )
    assert r"<script>alert(1)</script> (items) \u202eowner {{7*7}} 1, 10⁻⁶ started, not settled" in words
    assert "\u202e" not in words
    assert "chain of entries in order" in words
    assert "at most 95.3 % sure" in words
    assert f"head {ledger.overview().head}" in words


def test_the_page_of_an_empty_ledger(tmp_path):
    empty = Ledger.open(tmp_path / "new.db", create=True)
    assert "datasets 0 releases charged 0" in Reader(ledger_page(empty.overview(), empty.verify(), "new.db")).words()
    empty.create_dataset("posts", 1e6, 0.9)
    words = Reader(ledger_page(empty.overview(), empty.verify(), "new.db")).words()
    assert "0 % is spent; what is left: all of it." in words
    assert "more than 99.999 % sure" in words


def test_a_broken_ledger_says_so_on_top(tmp_path, ledger):
    released(tmp_path)
    found = ledger.verify(["budget.db#2:0123456789abcdef"])
    assert not found.good
    words = Reader(ledger_page(ledger.overview(), found, "budget.db")).words()
    assert "chain of entries BROKEN" in words
    assert words.index("rows were cut off") < words.index("datasets")


def test_charged_refuses_a_truth_value():
    values = dict.fromkeys(("entry", "receipt", "dataset", "composition", "written"), "x") | {"more": True}
    values |= dict.fromkeys(("epsilon", "delta", "total_epsilon", "total_delta", "before", "after"), 0.0)
    with pytest.raises(TypeError):
        Charged.from_dict(values)
    assert Charged.from_dict(values | {"more": 1}).more == 1
