"""Schedules: plans from shares of an account, the calendar, and the releases that it has due."""

import contextlib
import datetime as dt
import json
import math

import dp_accounting
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpunion
from dpunion.algorithms import Funnel
from dpunion.budget import Budget
from dpunion.calibration.funnel import threshold_for_novelty
from dpunion.calibration.rounding import EPSILON_SLACK
from dpunion.errors import (
    AlreadyReleased,
    BadParameter,
    BudgetExhausted,
    DamagedLedger,
    DamagedSource,
    InternalError,
    LedgerError,
    NotDue,
    NotPrivate,
    UnfinishedRelease,
    UnknownColumn,
)
from dpunion.ledger import Amounts, Composition, EntryState, Ledger, Schedule, events, schedules
from dpunion.ledger.accounts import account_caps, charge_for, charge_for_plan
from dpunion.ledger.amounts import DELTA_UNITS, EPSILON_UNITS, MU_SQUARED_UNITS
from dpunion.ledger.schedules import NOVELTY_SHARE, ScheduleNote, epsilon_alone, share_of
from dpunion.plans import Plan, plan_release
from dpunion.plans.counts import Counts
from dpunion.plans.look import RARE, LookPlan, plan_share
from dpunion.releases.release import Release
from weighing import novelty_bounds

START = dt.date(2026, 1, 5)
UNFINISHED = pytest.mark.filterwarnings("ignore:The release of week")
WHOLE = Budget(3.0, math.exp(-10))


def day(week):
    return START + dt.timedelta(weeks=week - 1)


# Plans from shares


@pytest.mark.parametrize(("epsilon", "delta"), [(3.0, math.exp(-10)), (1.0, 1e-5), (0.3, 1e-8)])
@pytest.mark.parametrize("items", [3, 300])
def test_a_certified_plans_own_share_gives_no_higher_threshold(epsilon, delta, items):
    certified = plan_release(Funnel(max_items_per_user=items), Budget(epsilon, delta))
    charge = charge_for_plan(certified)
    plan = plan_share(share_of(charge), Budget(epsilon, delta), max_items_per_user=items)
    assert plan.scale == pytest.approx(certified.scale, rel=1e-6)
    assert plan.threshold <= certified.threshold * (1 + 1e-6)
    assert charge_for(plan).fits(charge, Composition.TIGHT)


@pytest.mark.parametrize("counts", [None, Counts(share=0.2)])
def test_every_plan_of_the_menu_keeps_the_share(counts):
    mu_squared, novelty = 0.05, 1e-6
    planned = plan_share((mu_squared, novelty), WHOLE, counts=counts)
    assert isinstance(planned, LookPlan)
    assert len(planned.alternatives) == 7
    for plan in planned.alternatives:
        slack = 1.0 + plan.rounding_slack
        passing = novelty_bounds(plan.scale / slack, plan.threshold / slack, plan.algorithm)
        assert passing.max() <= (novelty - RARE) * (1 + 1e-9)
        assert passing.max() >= 0.998 * novelty, "the threshold is the smallest"
        spent = plan.selecting + sum(stddev**-2 for stddev in plan.extra_stddevs)
        assert mu_squared * (1 - 1e-6) <= spent <= mu_squared
        assert len(plan.extra_stddevs) == (1 if counts is None else 4)
        assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


@pytest.mark.parametrize("items", [1, 40])
def test_the_threshold_is_the_smallest_for_its_chance(items):
    shape = Funnel(max_items_per_user=items)
    line = threshold_for_novelty(5.0, 1e-6, shape)
    assert novelty_bounds(5.0, line, shape).max() <= 1e-6
    assert novelty_bounds(5.0, line * (1 - 1e-3), shape).max() > 1e-6


@pytest.mark.parametrize("algorithm", ["policy-gaussian", dpunion.Ngrams(), dpunion.CountLaplace()])
def test_only_funnel_is_planned_from_a_share(algorithm):
    with pytest.raises(BadParameter, match="Only funnel"):
        plan_share((0.05, 1e-6), WHOLE, algorithm)


# The calendar and the shares


@pytest.mark.parametrize(
    ("weeks", "releases"),
    [
        (1, (1,)),
        (2, (1, 2)),
        (3, (1, 2, 3)),
        (12, (1, 2, 4, 8, 12)),
        (16, (1, 2, 4, 8, 16)),
        (52, (1, 2, 4, 8, 16, 32, 52)),
    ],
)
def test_the_weeks_of_releases(weeks, releases):
    assert Schedule(weeks).releases == releases


def test_weeks_begin_with_the_start():
    schedule = Schedule(12, start="2026-01-07")
    assert [schedule.week_on(dt.date(2026, 1, one)) for one in (6, 7, 13, 14)] == [0, 1, 1, 2]
    assert [schedule.due_in(week) for week in (0, 1, 3, 4, 11, 12, 90)] == [None, 1, 2, 4, 8, 12, 12]
    assert Schedule.from_dict(schedule.to_dict()) == schedule


SCHEDULES = st.builds(Schedule, st.integers(1, 300), st.floats(0.5, 3.0), st.just("2026-01-05"))
BUDGETS = st.tuples(st.floats(0.5, 10.0), st.floats(1e-9, 1e-3))


@given(SCHEDULES, BUDGETS)
def test_the_shares_reach_the_caps_exactly(schedule, budget):
    caps = account_caps(*budget, Composition.TIGHT, NOVELTY_SHARE)
    shares = schedule.shares(caps)
    total = sum(shares, Amounts())
    assert (total.mu_squared, total.novelty) == (caps.mu_squared, caps.novelty)
    weights = [schedule.grow**power for power in range(len(shares))]
    for share, weight in zip(shares, weights, strict=True):
        assert share.mu_squared == pytest.approx(caps.mu_squared * weight / sum(weights), rel=1e-9, abs=20)


@given(SCHEDULES, BUDGETS, st.data())
def test_whatever_is_left_out_or_dies_the_caps_hold(schedule, budget, data):
    """Weeks may be left out, and a release that died takes its share twice: nothing ever exceeds the caps."""
    caps = account_caps(*budget, Composition.TIGHT, NOVELTY_SHARE)
    spent = Amounts()
    for week in schedule.releases:
        for _ in range(data.draw(st.integers(0, 2))):
            share = schedule.share(caps - spent, week)
            assert min(share.values()) >= 0
            spent += share
    assert spent.mu_squared <= caps.mu_squared
    assert spent.novelty <= caps.novelty


@settings(max_examples=8, deadline=None)
@given(st.builds(Schedule, st.integers(1, 60), st.floats(0.8, 2.0)), st.floats(0.5, 8.0), st.floats(1e-8, 1e-4))
def test_an_independent_accountant_confirms_the_total(schedule, epsilon, delta):
    """dp-accounting composes the noise of all plans; with their chances of novel items, the total is kept."""
    caps = account_caps(epsilon, delta, Composition.TIGHT, NOVELTY_SHARE)
    losses, novelty, rounding = [], 0.0, 0.0
    for share in schedule.shares(caps):
        plan = plan_share(share_of(share), Budget(epsilon, delta), counts=Counts(), max_items_per_user=3)
        sigma = plan.scale / (1.0 + plan.rounding_slack)
        losses += [sigma, *plan.extra_stddevs]
        novelty += float(novelty_bounds(sigma, plan.threshold / (1.0 + plan.rounding_slack), plan.algorithm).max())
        rounding += EPSILON_SLACK * (1 + len(plan.extra_stddevs))
        charge = charge_for(plan)
        assert charge.mu_squared <= share.mu_squared
        assert charge.novelty <= share.novelty
    combined = 1.0 / math.sqrt(sum(sigma**-2 for sigma in losses))
    left = delta * math.exp(-rounding / 2) - novelty
    assert dp_accounting.get_epsilon_gaussian(combined, left) <= epsilon - rounding
    assert novelty >= 0.29 * delta, "what was set aside for novel items is used"


class Interrupted(Exception):
    pass


FATES = st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["settles", "dies", "fails before reading"])), max_size=9)


@UNFINISHED
@settings(max_examples=30, deadline=None)
@given(st.builds(Schedule, st.integers(1, 60), st.floats(0.8, 2.0), st.just(START)), BUDGETS, FATES)
def test_a_ledger_grants_the_caps_exactly_whatever_happens(tmp_path_factory, schedule, budget, fates):
    """Releases settle, die, fail or are left out, on any days; dp-accounting adds up what the ledger granted."""
    folder = tmp_path_factory.mktemp("fates")
    output = folder / "list.csv"
    output.write_text("item,since\n")
    book = Ledger.open(folder / "budget.db", create=True)
    caps = book.create_dataset("posts", *budget, schedule=schedule).caps
    week = 1
    for number, (ahead, fate) in enumerate([*fates, (schedule.weeks, "settles")]):
        week = min(week + ahead, schedule.weeks)
        with contextlib.suppress(LedgerError, Interrupted):  # nothing is due, it was made, or nothing is left
            due = book.find_due("posts", schedule.first_day(week))
            steps = Amounts(rounding=10_000)
            with book.reserve("posts", steps, str(number), charge_again=True, due=due) as reservation:
                if fate == "fails before reading":
                    raise Interrupted
                reservation.start_reading()
                if fate == "settles":
                    reservation.settle([output])
        (account,) = book.overview().accounts
        assert account.spent.fits(caps, Composition.TIGHT)
    assert (account.remaining.mu_squared, account.remaining.novelty) == (0, 0), "the last one spends all that is left"
    entries = [one for one in book.overview().entries if not one.is_cancelled]
    settled = [one.release for one in entries if one.is_settled]
    assert settled == sorted(set(settled)), "one release for each week, in order"
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
    for one in entries:
        accountant.compose(dp_accounting.GaussianDpEvent(math.sqrt(MU_SQUARED_UNITS / one.charge.mu_squared)))
    novelty, rounding = sum(one.charge.novelty for one in entries) / DELTA_UNITS, caps.rounding / EPSILON_UNITS
    left = budget[1] * math.exp(-rounding / 2) - novelty
    assert accountant.get_epsilon(left) == pytest.approx(budget[0] - rounding, rel=1e-4)


def test_a_plan_that_costs_more_than_its_share_is_not_charged(ledger):
    due = ledger.find_due("posts", START)
    for more in (Amounts(mu_squared=due.share.mu_squared + 1), Amounts(novelty=due.share.novelty + 1)):
        with pytest.raises(InternalError, match="more than its share"):
            ledger.reserve("posts", more, "0" * 64, due=due)
    assert ledger.overview().entries == ()


@pytest.mark.parametrize(
    "arguments",
    [
        {"weeks": 0},
        {"weeks": 2000},
        {"grow": math.nan},
        {"start": "soon"},
        {"start": "2026-1-5"},
        {"start": "9999-12-30"},
        {"start": dt.date(9999, 12, 30)},
    ],
)
def test_bad_schedules_are_refused(arguments):
    with pytest.raises(BadParameter):
        Schedule(**({"weeks": 12} | arguments))


# Accounts with a schedule


@pytest.fixture
def ledger(tmp_path):
    book = Ledger.open(tmp_path / "budget.db", create=True)
    book.create_dataset("posts", 3, 1e-5, schedule=Schedule(12, start=START))
    return book


def test_a_schedule_is_part_of_the_opening(ledger, tmp_path):
    (account,) = Ledger.open(tmp_path / "budget.db").overview().accounts
    assert account.schedule == Schedule(12, 1.5, "2026-01-05")
    assert account.composition is Composition.TIGHT
    assert account.caps == account_caps(3, 1e-5, Composition.TIGHT, 0.3)
    assert account.to_dict()["schedule"] == {"weeks": 12, "grow": 1.5, "start": "2026-01-05"}
    assert ledger.verify().good


def test_a_changed_schedule_breaks_the_chain(ledger, tmp_path):
    import sqlite3

    with sqlite3.connect(tmp_path / "budget.db") as connection:
        connection.execute("DROP TRIGGER dpunion_ledger_no_update")
        connection.execute("UPDATE dpunion_ledger SET details = replace(details, '2026-01-05', '2025-01-05')")
    with pytest.raises(DamagedLedger):
        Ledger.open(tmp_path / "budget.db").overview()


@pytest.mark.parametrize(
    ("epsilon", "delta", "composition"), [(3, 1e-5, "additive"), (0.01, 1e-5, None), (50, 1e-5, None), (5, 0.6, None)]
)
def test_accounts_that_cannot_keep_a_schedule_are_refused(ledger, epsilon, delta, composition):
    with pytest.raises(BadParameter):
        ledger.create_dataset("other", epsilon, delta, composition, schedule=Schedule(12))
    assert len(ledger.overview().accounts) == 1


# Releases


@pytest.fixture
def rows():
    """Return all rows of the weeks so far: each week adds words that many have."""

    def so_far(week):
        held = [(f"u{u}", f"w{(u + k) % (4 * week)}") for u in range(3_000) for k in range(2)]
        return pa.table({"user": [u for u, _ in held], "item": [w for _, w in held]})

    return so_far


@pytest.fixture
def make(ledger, rows, tmp_path):
    def release(week, *, out="list.parquet", data=None, charge=None, **options):
        asked = {"scheduled": True, "on": day(week)} | (charge or {})
        return dpunion.release(
            rows(week) if data is None else data,
            user="user",
            item="item",
            out=tmp_path / out.replace("list", f"list-{week}"),
            charge=dpunion.Charge(tmp_path / "budget.db", "posts", **asked),
            **options,
        )

    return release


def spent(ledger):
    return ledger.overview().accounts[0].spent


def test_a_schedule_from_the_first_week_to_the_last(ledger, make, tmp_path):
    caps = ledger.overview().accounts[0].caps
    sizes = []
    for week in range(1, 14):
        if week in (1, 2, 4, 8, 12):
            made = make(week)
            sizes.append(len(made))
            assert "(3, 1e-05)-differentially private" in made.statement
            assert f"It was made in week {week} of 12 since 2026-01-05." in made.statement
        else:
            before = spent(ledger)
            with pytest.raises(NotDue, match="Nothing was charged"):
                make(week)
            assert spent(ledger) == before
    assert (spent(ledger).mu_squared, spent(ledger).novelty) == (caps.mu_squared, caps.novelty), "exactly all of it"
    assert sizes == [4, 8, 16, 32, 48]
    table = pq.read_table(tmp_path / "list-12.parquet")
    since = dict(zip(*(column.to_pylist() for column in table.columns), strict=True))
    first = {f"w{number}": next(w for w in (1, 2, 4, 8, 12) if number < 4 * w) for number in range(48)}
    assert since == first
    assert [entry.release for entry in ledger.overview().entries] == [1, 2, 4, 8, 12]
    assert ledger.verify().good


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl", "arrow", "json"])
def test_every_format_is_read_back(make, suffix, tmp_path):
    make(1, out=f"list.{suffix}")
    made = make(2, out="list.json")
    assert made.numbers[0].values == tuple(1 if int(item[1:]) < 4 else 2 for item in made.items)
    assert made.header == ("item", "since")
    back = Release.from_json((tmp_path / "list-2.json").read_text())
    assert (back.items, back.numbers) == (made.items, made.numbers)


def test_keys_of_several_columns_and_counts(make, tmp_path):
    held = [(f"u{u}", "a\tb", f"=x{(u + k) % 5}") for u in range(3_000) for k in range(2)]
    table = pa.table(dict(zip(("user", "x", "y"), zip(*held, strict=True), strict=True)))

    def release(week):
        return dpunion.release(
            table,
            user="user",
            item=["x", "y"],
            counts=True,
            out=tmp_path / f"{week}.csv",
            charge=dpunion.Charge(tmp_path / "budget.db", "posts", scheduled=True, on=day(week)),
        )

    assert release(1).header == ("x", "y", "since", "people", "low", "high")
    made = release(2)
    assert len(made) == 5
    assert set(made.numbers[0].values) == {1}
    assert all(abs(people - 1_200) < 300 for people in made.people.values())


def test_a_texts_words(make, tmp_path):
    texts = {f"u{u}": [f"Hello, World! {u % 3}"] for u in range(2_000)}
    for week in (1, 2):
        made = dpunion.release(
            texts,
            item=dpunion.Words(),
            out=tmp_path / f"{week}.parquet",
            charge=dpunion.Charge(tmp_path / "budget.db", "posts", scheduled=True, on=day(week)),
        )
    assert set(made.items) == {"hello", "world", "0", "1", "2"}
    assert set(made.numbers[0].values) == {1}


def test_the_same_week_again_is_answered_from_the_ledger(ledger, make):
    make(1)
    before = spent(ledger)
    with pytest.raises(AlreadyReleased) as caught:
        make(1, charge={"on": day(1) + dt.timedelta(days=3)}, out="another-list.parquet")
    assert caught.value.entry == "budget.db#2"
    with pytest.raises(AlreadyReleased):
        make(1, charge={"again": True}, out="third-list.parquet")
    with pytest.raises(LedgerError, match="made with other options"):
        make(1, max_items_per_user=10, out="fourth-list.parquet")
    with pytest.raises(LedgerError, match="made with other options"):
        make(1, counts=True, charge={"again": True}, out="fifth-list.parquet")
    assert spent(ledger) == before


def test_a_left_out_release_costs_nothing_and_its_share_goes_to_later_ones(ledger, make):
    caps = ledger.overview().accounts[0].caps
    schedule = Schedule(12, start=START)
    make(1)
    make(8)  # neither 2 nor 4
    first, second = ledger.overview().entries
    assert first.charge.mu_squared == schedule.shares(caps)[0].mu_squared
    assert second.charge.mu_squared == schedule.share(caps - first.charge, 8).mu_squared
    assert second.charge.mu_squared > schedule.shares(caps)[3].mu_squared
    with pytest.raises(NotDue):
        make(4)
    assert set(make(12).numbers[0].values) == {1, 8, 12}
    assert spent(ledger).mu_squared == caps.mu_squared


def test_a_late_release_is_made_until_the_next_is_due(ledger, make):
    make(1)
    make(3)
    entry = ledger.overview().entries[-1]
    assert entry.details["schedule"] == {"release": 2, "week": 3}
    with pytest.raises(AlreadyReleased):
        make(3, out="again-list.parquet")
    with pytest.raises(NotDue, match=r"due in week 2: the release of week 2 has begun already\. .*due from 2026-01-26"):
        make(2, out="again-list.parquet")


def test_a_release_that_died_is_paid_once_more(ledger, make, monkeypatch):
    from dpunion.engines.local import engine

    make(1)
    with monkeypatch.context() as patched:
        patched.setattr(engine, "encode", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            make(2)
    assert ledger.overview().entries[-1].state is EntryState.UNSETTLED
    with pytest.raises(UnfinishedRelease):
        make(2)
    with pytest.raises(UnfinishedRelease):
        make(2, max_items_per_user=10)
    make(2, charge={"again": True})
    for week in (4, 8, 12):
        make(week)
    account = ledger.overview().accounts[0]
    assert account.spent.mu_squared == account.caps.mu_squared
    assert account.spent.novelty == account.caps.novelty


def test_the_last_release_that_died_leaves_nothing_to_pay_with(ledger, make, monkeypatch):
    from dpunion.engines.local import engine

    with monkeypatch.context() as patched:
        patched.setattr(engine, "encode", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            make(12)
    before = spent(ledger)
    assert before.mu_squared == ledger.overview().accounts[0].caps.mu_squared
    with pytest.raises(UnfinishedRelease, match="nothing more was charged"):
        make(12)
    with pytest.raises(
        BudgetExhausted, match=r"0\.000% is left.*Instead, open another dataset, with a budget of its own"
    ):
        make(12, charge={"again": True})
    with pytest.raises(UnfinishedRelease):
        make(13)
    assert spent(ledger) == before
    assert ledger.overview().reach(ledger.overview().accounts[0]) == "nothing: week 12 did not settle"


@UNFINISHED
def test_a_run_that_another_one_overtook_is_to_be_run_again(ledger):
    """Both were planned with the same rest of the budget, which covers only one of them."""
    plans = [ledger.find_due("posts", day(week)) for week in (8, 12)]
    ledger.reserve("posts", Amounts(), "8", due=plans[0])
    with pytest.raises(LedgerError, match=r"began while this one was planned.*Run it again"):
        ledger.reserve("posts", Amounts(), "12", due=plans[1])
    ledger.reserve("posts", Amounts(), "12", due=ledger.find_due("posts", day(12)))
    assert spent(ledger).mu_squared == ledger.overview().accounts[0].caps.mu_squared


def test_a_day_after_the_last_week_does_not_spend_the_rest(ledger, make):
    """A wrong year of the start or of the day would: a day of the calendar has to be named."""
    make(1)
    before = spent(ledger)
    for week in (13, 60, 1886):
        with pytest.raises(
            LedgerError, match=r"12 weeks of 'posts' since 2026-01-05 are over.*--on 2026-03-23"
        ) as caught:
            make(week)
        assert not isinstance(caught.value, NotDue), "a person has to decide"
    assert spent(ledger) == before
    make(12)
    assert spent(ledger).mu_squared == ledger.overview().accounts[0].caps.mu_squared
    with pytest.raises(NotDue, match="The schedule is complete") as caught:
        make(13)
    assert (caught.value.next_day, caught.value.complete) == (None, True)


def test_other_columns_than_those_of_the_previous_release_are_refused(ledger, make, tmp_path):
    table = pa.table({name: [f"{name}{n % 3}{n}" if name == "user" else f"w{n % 5}" for n in range(4_000)] for name in
                      ("user", "other", "item")})  # fmt: skip

    def release(week, user="user", item="item", **options):
        asked = {"scheduled": True, "on": day(week), "again": options.pop("again", False)}
        charge = dpunion.Charge(tmp_path / "budget.db", "posts", **asked)
        return dpunion.release(
            table, user=user, item=item, out=tmp_path / f"{week}.json", charge=charge, **options
        )  # fmt: skip

    release(1)
    before = spent(ledger)
    with pytest.raises(
        LedgerError, match=r"entry budget\.db#2, read other columns.*user 'user', now 'other'\. Nothing"
    ):
        release(2, user="other")
    with pytest.raises(LedgerError, match="value 'item', now 'other'"):
        release(2, item="other")
    with pytest.raises(LedgerError, match="normalization 'nfc', now 'nfc-lower'"):
        release(2, normalize="nfc-lower")
    assert spent(ledger) == before
    release(2)
    release(4, normalize="nfc-lower", again=True)
    release(8, normalize="nfc-lower")
    assert [one.release for one in ledger.overview().entries] == [1, 2, 4, 8]


def test_a_budget_that_other_releases_used_up_is_said_to_be(ledger, make, rows, tmp_path):
    caps = ledger.overview().accounts[0].caps
    with ledger.reserve("posts", caps, "0" * 64, note={"algorithm": "other"}) as reservation:
        reservation.settle(digest="0" * 64)
    with pytest.raises(BudgetExhausted, match="does not cover this release"):
        make(1)


def test_a_small_rest_is_shared_and_never_replaced_by_a_larger_part(tmp_path):
    """Other releases have used most of a small account: a release gets its part of the rest, or is refused."""
    book = Ledger.open(tmp_path / "small.db", create=True)
    caps = book.create_dataset("posts", 0.08, 1e-6, schedule=Schedule(52, start=START)).caps
    book.reserve("posts", Amounts(mu_squared=caps.mu_squared * 88 // 100, novelty=caps.novelty * 88 // 100), "other")
    due = book.find_due("posts", day(1))
    assert due.share == due.account.schedule.share(due.account.remaining, 1)
    with pytest.raises(BadParameter, match="too small a part"):
        due.plan("funnel", None, {}, weak_budget=False)


def test_a_release_outside_a_complete_schedule_is_told_to_open_another_dataset(ledger):
    ledger.reserve("posts", Amounts(), "12", due=ledger.find_due("posts", day(12)))
    with pytest.raises(BudgetExhausted) as refused:
        ledger.reserve("posts", Amounts(mu_squared=1, novelty=1), "another")
    assert "open another dataset" in refused.value.remedy


def test_an_earlier_release_that_has_not_finished_is_named(ledger, tmp_path):
    """What it finds would be on no later list."""
    running = ledger.reserve("posts", Amounts(), "1", due=ledger.find_due("posts", day(1)))
    with pytest.warns(ScheduleNote, match=r"release of week 1, entry 2, has not finished. If it still runs, stop this"):
        ledger.find_due("posts", day(2))
    (path := tmp_path / "1.csv").write_text("item,since\nw,1\n")
    running.settle([path])
    assert ledger.find_due("posts", day(2)).earlier.source == path


def test_releases_that_begin_at_once_are_made_in_order(ledger):
    """Of two runs that were planned at once, for different weeks, the earlier one is refused after the later one."""
    early, late = (ledger.find_due("posts", day(week)) for week in (1, 2))
    ledger.reserve("posts", Amounts(), "late", due=late)
    with pytest.raises(NotDue, match=r"later release of the schedule has begun: entry budget\.db#2"):
        ledger.reserve("posts", Amounts(), "early", due=early, charge_again=True)
    assert [one.release for one in ledger.overview().entries] == [2]


@UNFINISHED
def test_a_slow_run_does_not_take_the_place_of_a_later_list(ledger, tmp_path):
    """The next release continues the latest one of the schedule, in whatever order their runs ended."""
    lists, running = {}, {}
    for week in (1, 2, 4):
        lists[week] = tmp_path / f"{week}.csv"
        lists[week].write_text(f"item,since\nw,{week}\n")
        running[week] = ledger.reserve("posts", Amounts(), str(week), due=ledger.find_due("posts", day(week)))
    for week in (4, 1, 2):
        running[week].settle([lists[week]])
    assert ledger.find_due("posts", day(8)).earlier.source == lists[4]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_runs_of_one_week_that_wrote_one_file_the_list_that_is_there_counts(ledger, tmp_path, order):
    """A run that was thought dead settles before or after the run that replaced it."""
    path, due = tmp_path / "list.csv", ledger.find_due("posts", day(1))
    runs = [ledger.reserve("posts", Amounts(), "same", due=due, charge_again=again) for again in (False, True)]
    for number in order:
        path.write_text(f"item,since\nw{number},1\n")
        runs[number].settle([path])
    assert ledger.find_due("posts", day(2)).earlier.source == path


def test_a_lost_or_changed_list_is_refused_before_any_charge(ledger, make, tmp_path):
    make(1)
    before, path = spent(ledger), tmp_path / "list-1.parquet"
    content = path.read_bytes()
    path.write_bytes(content + b"\0")
    with pytest.raises(LedgerError, match="has changed"):
        make(2)
    folder = tmp_path / "moved"
    folder.mkdir()
    (folder / "renamed.parquet").write_bytes(content)
    (folder / "other.parquet").write_bytes(b"nothing")
    path.unlink()
    with pytest.raises(LedgerError, match=r"not where it was written.*: .*/list-1\.parquet\. Nothing was charged"):
        make(2)
    with pytest.raises(BadParameter, match="no such file or folder"):
        make(2, charge={"earlier": tmp_path / "nowhere"})
    (tmp_path / "empty").mkdir()
    with pytest.raises(LedgerError, match=r"Nor is it in .*empty\. Nothing was charged"):
        make(2, charge={"earlier": tmp_path / "empty"})
    assert spent(ledger) == before
    assert set(make(2, charge={"earlier": tmp_path}).numbers[0].values) == {1, 2}, "folders in it are searched too"


def test_a_schedule_goes_on_without_a_list_that_is_lost(ledger, make, tmp_path):
    """Any list that the schedule wrote, or none, is an earlier output: the guarantee and the charge are the same."""
    for week in (1, 2):
        make(week)
    first, second = (tmp_path / f"list-{week}.parquet" for week in (1, 2))
    second.unlink()
    with pytest.raises(LedgerError, match=r"If all are lost, continue an older list .--earlier FILE. or an empty one"):
        make(4)
    changed = tmp_path / "changed.parquet"
    changed.write_bytes(first.read_bytes() + b"\0")
    with pytest.raises(LedgerError, match=r"changed\.parquet is no list that this schedule wrote"):
        make(4, charge={"earlier": changed})
    made = make(4, charge={"earlier": first})
    assert dict(zip(made.items, made.numbers[0].values, strict=True)) == {f"w{n}": 1 if n < 4 else 4 for n in range(16)}
    made = make(8, charge={"earlier": "none"})
    assert set(made.numbers[0].values) == {8}
    assert set(make(12).numbers[0].values) == {8, 12}
    caps = ledger.overview().accounts[0].caps
    assert [one.charge.mu_squared for one in ledger.overview().entries] == [
        share.mu_squared for share in Schedule(12).shares(caps)
    ]


def test_a_changed_file_is_named_while_another_one_is_intact(make, tmp_path):
    make(1)
    dpunion.release(
        {f"u{n}": ["a"] for n in range(2_000)},
        out=[tmp_path / "a.json", tmp_path / "a.csv"],
        charge=dpunion.Charge(tmp_path / "budget.db", "posts", again=True, scheduled=True, on=day(2)),
    )
    (tmp_path / "a.csv").write_text("item,since\nb,1\n")
    with pytest.warns(ScheduleNote, match=r"changed: .*a\.csv\. Restore it from .*a\.json"):
        make(4, charge={"again": True})


def test_a_list_that_is_not_one_is_refused(make, tmp_path):
    from dpunion.ledger.fingerprints import sha256_of
    from dpunion.reading.known import read_vocabulary

    for text in ("item,since\na,0\n", "item,since\na,9\n", "item,since\na,b\n", "item,since\na,1\na,2\n"):
        path = tmp_path / "list.csv"
        path.write_text(text)
        with pytest.raises(DamagedSource):
            read_vocabulary(path, sha256_of(path), 4)
    path.write_text("item,since\na,1\n")
    assert read_vocabulary(path, sha256_of(path), 4).weeks_of(["a", "b"]) == (1, 4)
    with pytest.raises(DamagedSource, match="not as dpunion wrote it"):
        read_vocabulary(path, "0" * 64, 4)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl", ".arrow", ".json"])
def test_a_list_of_other_columns_is_refused_in_every_format(ledger, tmp_path, suffix):
    """It is not read as an empty list, with which what was released before would be paid for again."""
    keys = pa.table({"user": [f"u{n}" for n in range(3_000)], "a": ["x"] * 3_000, "b": ["y"] * 3_000})

    def make(week, item):
        charge = dpunion.Charge(tmp_path / "budget.db", "posts", scheduled=True, on=day(week))
        return dpunion.release(keys, user="user", item=item, out=tmp_path / f"list-{week}{suffix}", charge=charge)

    assert make(1, ["a", "b"]).items == (("x", "y"),)
    before = spent(ledger)
    with pytest.raises(UnknownColumn):
        make(2, "a")
    assert spent(ledger) == before


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"epsilon": 1.0, "delta": 1e-6}, "from the account"),
        ({"known": ["a"]}, "from the account"),
        ({"out": "list.txt"}, "needs an output file"),
        ({"algorithm": "policy-gaussian"}, "Only funnel"),
        ({"charge": {"on": "monday"}}, "must be a day"),
        ({"charge": {"scheduled": False, "on": None}}, "needs an 'epsilon'"),
        ({"charge": {"scheduled": False}, "epsilon": 1.0, "delta": 1e-6}, "'on' .--on. needs a schedule"),
        ({"charge": {"scheduled": False, "on": None, "earlier": "."}, "epsilon": 1.0, "delta": 1e-6}, "'earlier'"),
    ],
)
def test_options_that_do_not_go_with_a_schedule_are_refused(ledger, make, options, match):
    with pytest.raises(BadParameter, match=match):
        make(1, **options)
    assert ledger.overview().entries == ()


def test_a_key_that_could_be_used_twice_is_refused(ledger, make):
    with pytest.raises(NotPrivate):
        make(1, unsafe_test_key=1)
    assert ledger.overview().entries == ()


def test_every_release_has_a_key_of_its_own(ledger, make, monkeypatch):
    """Also the run that pays once more after a crash, with the same options on the same day."""
    from dpunion.engines.local import engine
    from dpunion.randomness import RunKey

    secrets, keep = [], RunKey.__init__

    def note(key, secret, **kind):
        secrets.append(secret)
        keep(key, secret, **kind)

    monkeypatch.setattr(RunKey, "__init__", note)
    make(1)
    with monkeypatch.context() as patched:
        patched.setattr(engine, "encode", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            make(2)
    make(2, charge={"again": True})
    assert len(secrets) == len(set(secrets)) == len(ledger.overview().entries) == 3


def test_the_list_of_the_release_before_is_not_overwritten(make, tmp_path):
    make(1)
    with pytest.raises(dpunion.DpunionError):
        dpunion.release(
            {"u": ["a"]},
            out=tmp_path / "list-1.parquet",
            run=dpunion.Run(overwrite=True),
            charge=dpunion.Charge(tmp_path / "budget.db", "posts", scheduled=True, on=day(2)),
        )


def test_an_account_without_a_schedule_has_nothing_due(ledger, make):
    ledger.create_dataset("plain", 3, 1e-5)
    with pytest.raises(LedgerError, match="no schedule"):
        ledger.find_due("plain", START)
    with pytest.raises(LedgerError, match="no dataset"):
        ledger.find_due("plian", START)
    with pytest.raises(NotDue, match="has not begun") as caught:
        ledger.find_due("posts", START - dt.timedelta(days=1))
    assert (caught.value.next_day, caught.value.complete) == ("2026-01-05", False)


def test_what_a_release_costs_alone(ledger):
    """The (epsilon, delta) of an entry is what its charge proves by itself."""
    caps = ledger.overview().accounts[0].caps
    for share in Schedule(12).shares(caps):
        epsilon = epsilon_alone(share, 7_630, caps) / EPSILON_UNITS
        left = 1e-5 * math.exp(-7.63e-6 / 2) - share.novelty / DELTA_UNITS
        exact = dp_accounting.get_epsilon_gaussian(math.sqrt(MU_SQUARED_UNITS / share.mu_squared), left) + 7.63e-6
        assert exact <= epsilon <= exact + 2e-4
    assert np.isclose(epsilon_alone(caps, caps.rounding, caps), caps.epsilon, rtol=1e-6)


# Other ledgers and engines


def test_a_schedule_in_postgresql(postgres_url, rows, tmp_path):
    book = Ledger.open(postgres_url, create=True)
    book.create_dataset("years", 3, 1e-5, schedule=Schedule(12, start=START))
    book.close()
    for week in (1, 2):
        made = dpunion.release(
            rows(week),
            user="user",
            item="item",
            out=tmp_path / f"{week}.parquet",
            charge=dpunion.Charge(postgres_url, "years", scheduled=True, on=day(week)),
        )
    assert set(made.numbers[0].values) == {1, 2}
    book = Ledger.open(postgres_url)
    assert [one.release for one in book.overview().entries if one.dataset == "years"] == [1, 2]
    assert book.verify().good
    book.close()


def test_a_schedule_on_spark(spark, ledger, rows, make, tmp_path):
    make(1)
    frame = spark.createDataFrame(rows(2).to_pandas())
    made = make(2, data=frame)
    assert set(zip(made.items, made.numbers[0].values, strict=True)) == {(f"w{n}", 1 if n < 4 else 2) for n in range(8)}
    with pytest.raises(BadParameter, match="needs an output file"):
        dpunion.release(
            frame,
            user="user",
            item="item",
            out=dpunion.Folder(str(tmp_path / "folder")),
            charge=dpunion.Charge(tmp_path / "budget.db", "posts", scheduled=True, on=day(4)),
        )
    assert len(ledger.overview().entries) == 2


# The command line and the page of the ledger


def call(*words):
    from click.testing import CliRunner

    from dpunion.cli import app

    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_calendar_is_printed_and_compared_with_an_even_split(tmp_path):
    asked = ("ledger", "open", tmp_path / "new.db", "--dataset", "logs", "-e", 3, "-d", 1e-6, "--schedule", 52)
    said = call(*asked, "--start", "2026-01-05").stderr
    lines = [line.split() for line in said.splitlines() if line.strip()[:1].isdigit()]
    assert [int(line[0]) for line in lines] == list(Schedule(52).releases)
    assert lines[0][1:4] == ["2026-01-05", "3.1", "%"]
    needed = [int(line[-1]) for line in lines]
    assert needed == sorted(needed, reverse=True)
    even = int(said.replace("\n", " ").split("would need about ")[1].split()[0])
    assert even > needed[0] > 2 * needed[-1]


@pytest.mark.parametrize("budget", [("-e", 0.07, "--schedule", 52), ("-e", 3, "--schedule", 12, "--grow", 10)])
def test_a_small_budget_has_a_calendar_too(tmp_path, budget):
    made = call("ledger", "open", tmp_path / "new.db", "--dataset", "logs", "-d", 1e-6, *budget)
    assert made.exit_code == 0, made.output
    assert "people needed" in made.stderr


@pytest.mark.parametrize(("epsilon", "ending"), [(10, "--scheduled"), (12, "--scheduled --weak-budget")])
def test_the_weekly_command_says_what_a_weak_budget_needs(tmp_path, epsilon, ending):
    asked = ("ledger", "open", tmp_path / "new.db", "--dataset", "logs", "-e", epsilon, "-d", 1e-6)
    assert call(*asked, "--schedule", 5).stderr.strip().endswith(f"run: dpunion release ... {ending}")


def test_a_schedule_without_a_plan_is_refused_before_anything_is_opened(tmp_path):
    asked = ("ledger", "open", tmp_path / "new.db", "--dataset", "logs", "-e", 3, "-d", 1e-6)
    made = call(*asked, "--schedule", 52, "--grow", 10)
    assert made.exit_code == 2
    assert "too small a part" in made.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (day(13), "Nothing is due until 2026-03-30."),
        (START, "among all rows so far. Each week, run"),
        (day(-8), "Today is in week 10: the first run makes the release of week 8, with 40 % of the budget."),
        (day(-80), "All 12 weeks since 2024-06-17 are over already: check --start."),
    ],
)
def test_opening_says_which_weeks_are_over(tmp_path, monkeypatch, start, said):
    monkeypatch.setattr(schedules, "today", lambda: START)
    asked = ("ledger", "open", tmp_path / "new.db", "--dataset", "logs", "-e", 3, "-d", 1e-6, "--schedule", 12)
    assert said in call(*asked, "--start", start).stderr


def test_a_week_without_a_release_is_no_error(ledger, make, tmp_path):
    make(1)
    make(2)
    (tmp_path / "rows.csv").write_text("user,item\n")
    asked = ("release", tmp_path / "rows.csv", "-u", "user", "-i", "item", "--ledger", tmp_path / "budget.db")
    done = call(*asked, "--dataset", "posts", "--scheduled", "--on", day(3), "--out", tmp_path / "new.csv", "--json")
    assert done.exit_code == 7
    assert done.stderr.startswith("Nothing is due in week 3")
    answer = json.loads(done.stdout)
    assert (answer["error"], answer["next_day"], answer["complete"]) == ("NotDue", "2026-01-26", False)


def test_show_fits_into_a_terminal(ledger, make, tmp_path, monkeypatch):
    monkeypatch.setattr(schedules, "today", lambda: START)
    monkeypatch.setattr(events, "today", lambda: START)
    ledger.create_dataset("more-posts", 10, 1e-5, schedule=Schedule(1_000, start=START))
    make(1)
    lines = call("ledger", "show", tmp_path / "budget.db").stdout.splitlines()
    assert lines[1].endswith("week 2 from 2026-01-12, 3 later")
    assert lines[2].startswith("more-posts  tight        10       1e-05  0.0%   week 1 from 2026-01-05, ")
    assert all(line == line.rstrip() for line in lines)
    assert max(len(line) for line in lines[:5]) <= 80
    assert "charges do not add up" in lines[4]


def test_what_is_left_of_a_schedule_is_its_releases(ledger, make, tmp_path, monkeypatch):
    """Releases of other sizes than the last are to come; those that were left out are not."""
    monkeypatch.setattr(events, "today", lambda: START)
    assert make(1).about.charged.more == 4
    assert make(2).about.charged.more == 3

    def posts():
        (found,) = ledger.overview().datasets()
        return found["weeks_to_come"], found["more_like_the_last"]

    assert posts() == ([4, 8, 12], None)
    monkeypatch.setattr(events, "today", lambda: day(9))
    assert posts() == ([8, 12], None)
    monkeypatch.setattr(events, "today", lambda: day(50))
    assert posts() == ([12], None)
    make(12)
    assert posts() == ([], None)


def test_the_page_of_a_release_says_since_when_and_what_the_rest_is_for(make, tmp_path):
    make(1)
    make(2, out="list.json")
    assert call("report", tmp_path / "list-2.json", "--out", tmp_path / "page.html").exit_code == 0
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "the rest is for later releases of its schedule (3)" in page
    assert '["w0", "1"]' in page.replace('["w0","1"]', '["w0", "1"]')


def test_the_page_and_show_name_what_was_charged_and_what_is_to_come(ledger, tmp_path, monkeypatch):
    """Week 1 died and was paid once more, week 2 was left out, week 4 was made."""
    monkeypatch.setattr(events, "today", lambda: day(5))
    output = tmp_path / "list.csv"
    output.write_text("item,since\n")
    for number, week in enumerate((1, 1, 4)):
        due = ledger.find_due("posts", day(week))
        made = ledger.reserve("posts", Amounts(), str(number), due=due, charge_again=True)
        if number:
            made.settle([output])
    page = tmp_path / "ledger.html"
    assert call("ledger", "report", tmp_path / "budget.db", "--out", page).exit_code == 0
    for said in (
        "made in week 1: entries #2 (not settled), #3",
        "left out: nothing was charged",
        "made in week 4: entry #5",
    ):
        assert said in page.read_text("utf-8")
    assert "By tight composition they do not" in page.read_text("utf-8")
    assert "week 8 from 2026-02-23, 1 later" in call("ledger", "show", tmp_path / "budget.db").stdout
    ledger.reserve("posts", Amounts(), "8", due=ledger.find_due("posts", day(8)))
    shown = call("ledger", "show", tmp_path / "budget.db").stdout
    assert shown.splitlines()[1].endswith("week 12 from 2026-03-23")
