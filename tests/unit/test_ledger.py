"""The ledger: amounts, composition against independent accountants, and the life of a reservation."""

import contextlib
import copy
import dataclasses
import datetime as dt
import json
import math
import os
import sqlite3
import stat
import subprocess
import threading
import types

import dp_accounting
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, optimize
from scipy.stats import norm

from dpunion.algorithms import ALGORITHMS, algorithm_named
from dpunion.budget import LARGEST_EPSILON, Budget
from dpunion.calibration.rounding import EPSILON_SLACK
from dpunion.errors import (
    AlreadyReleased,
    BadParameter,
    BudgetExhausted,
    DamagedLedger,
    InternalError,
    LedgerError,
    NotPrivate,
    UnfinishedRelease,
    ledger_note,
)
from dpunion.kernels.normal import gaussian_delta
from dpunion.ledger import Amounts, Composition, EntryState, Ledger, fingerprint, is_intact
from dpunion.ledger.accounts import account_caps, caps_hold, charge_for_budget, charge_for_gaussian, charge_for_plan
from dpunion.ledger.amounts import DELTA_UNITS, EPSILON_UNITS, MU_SQUARED_UNITS, units_of_decimal
from dpunion.ledger.ledgers import store_at
from dpunion.ledger.sqlite import NETWORK_FILE_SYSTEMS, file_system
from dpunion.plans import plan_release
from dpunion.plans.counts import Counts
from running import run_python

UNIT = Amounts(epsilon=10**9, delta=10**9)
TIGHT = Composition.TIGHT


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.db"


@pytest.fixture
def ledger(path):
    opened = Ledger.open(path, create=True)
    opened.create_dataset("posts", 3, 1e-6)
    return opened


# Amounts
@given(st.floats(1e-15, 1e6))
def test_charges_round_up_and_totals_down(value):
    up, down = units_of_decimal("epsilon", value, 10**9, up=True), units_of_decimal("epsilon", value, 10**9, up=False)
    assert 0 <= up - down <= 1
    assert down <= value * 10**9 * (1 + 1e-15)
    assert up >= value * 10**9 * (1 - 1e-15)


@pytest.mark.parametrize(("part", "whole", "times"), [(0.1, 1.0, 10), (0.1, 0.3, 3), (0.7, 2.1, 3), (1e-7, 1e-6, 10)])
def test_decimal_parts_make_decimal_wholes(part, whole, times):
    parts = units_of_decimal("epsilon", part, 10**18, up=True) * times
    assert parts == units_of_decimal("epsilon", whole, 10**18, up=False)


# Composition
def rare_draws(epsilon, rounding):
    """What extreme normals of 127 bits and the floors of coins can add to delta, in every step that rounding allows."""
    return (1 + math.exp(epsilon)) * (2**-68 + 2**-96) * rounding * 2**17


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1, 3, 10, 20])
@pytest.mark.parametrize("delta", [1e-7, 1e-6, 1e-2])
def test_tight_caps_are_the_largest_that_keep_the_promise(epsilon, delta):
    caps = account_caps(epsilon, delta, TIGHT)
    rounding = caps.rounding / EPSILON_UNITS
    usable = delta - rare_draws(epsilon, rounding)
    assert caps.novelty == pytest.approx(0.9 * usable * DELTA_UNITS, rel=1e-6)
    left = usable * math.exp(-rounding / 2) - caps.novelty / DELTA_UNITS
    mu = math.sqrt(caps.mu_squared / MU_SQUARED_UNITS)
    assert dp_accounting.get_epsilon_gaussian(1 / mu, left) <= epsilon - rounding
    assert dp_accounting.get_epsilon_gaussian(1 / (mu * (1 + 1e-6)), left) > epsilon - rounding
    assert caps_hold(caps, TIGHT)
    assert not caps_hold(caps + Amounts(mu_squared=caps.mu_squared // 5), TIGHT)
    assert not caps_hold(caps + Amounts(novelty=caps.novelty // 2), TIGHT)


def test_caps_that_leave_nothing_for_extreme_draws_do_not_hold():
    caps = account_caps(20, 1e-8, TIGHT)
    rare = math.ceil(rare_draws(20, caps.rounding / EPSILON_UNITS) * DELTA_UNITS)
    assert rare > caps.delta // 4
    assert not caps_hold(caps + Amounts(novelty=rare), TIGHT)
    assert not caps_hold(dataclasses.replace(caps, delta=caps.delta - rare), TIGHT)
    assert not caps_hold(dataclasses.replace(caps, epsilon=10**12), TIGHT)  # forged


@pytest.mark.parametrize(("epsilon", "delta"), [(20, 1e-12), (20, 1e-9), (30, 1e-9), (50, 1e-2), (100, 1e-2)])
def test_tight_accounts_whose_draws_would_be_too_coarse_are_refused(epsilon, delta):
    assert rare_draws(epsilon, 1 / 64) > 0.5 * delta
    with pytest.raises(BadParameter, match="too coarse for such a small delta"):
        account_caps(epsilon, delta, TIGHT)
    assert account_caps(epsilon, delta, Composition.ADDITIVE).mu_squared == 0


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-8), (2.0, 1e-7)])
def test_an_offline_accountant_grants_as_many_releases(ledger, epsilon, delta):
    """dp-accounting composes k Gaussians; the ledger grants k of them and not k + 1."""
    plan = plan_release("weighted-gaussian", Budget(epsilon, delta))
    sigma = plan.scale / (1 + plan.rounding_slack)
    caps = ledger.create_dataset("tight", 8.0, 1e-5, "tight").caps
    charge = charge_for_plan(plan)
    granted = granted_in_all(ledger, "tight", charge)
    total = 8.0 - caps.rounding / EPSILON_UNITS
    left = 1e-5 * math.exp(-caps.rounding / EPSILON_UNITS / 2) - caps.novelty / DELTA_UNITS
    assert dp_accounting.get_epsilon_gaussian(sigma / math.sqrt(granted), left) <= total
    assert dp_accounting.get_epsilon_gaussian(sigma / math.sqrt(granted + 1), left) > total
    assert granted > 3 * 8 / epsilon
    # What was granted really is within the account's promise, by another accountant.
    composed = privacy_loss_distribution.from_gaussian_mechanism(sigma, value_discretization_interval=1e-2)
    loss = composed.self_compose(granted).get_delta_for_epsilon(8.0 - granted * EPSILON_SLACK)
    assert loss + granted * plan.delta_used <= 1e-5


def granted_in_all(ledger, dataset, charge):
    """Spend until the budget is exhausted."""
    for granted in range(1000):
        try:
            ledger.reserve(dataset, charge, f"release-{granted}")
        except BudgetExhausted:
            return granted
    raise AssertionError


@pytest.mark.parametrize("name", list(ALGORITHMS))
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-9), (3.0, 1e-5)])
def test_a_charge_says_no_less_than_the_plan_claims(name, epsilon, delta):
    """One release alone, recomputed from its charge, is at most as private as the algorithm claims to be."""
    charge = charge_for_plan(plan_release(algorithm_named(name), Budget(epsilon, delta)))
    assert charge.epsilon == round(epsilon * 1e9)
    assert charge.delta == round(delta * 1e18)
    mu = math.sqrt(charge.mu_squared / MU_SQUARED_UNITS)
    novelty = charge.novelty / DELTA_UNITS
    assert novelty <= delta * (1 + 1e-6)
    assert novelty >= delta / 2 * (1 - 1e-3)
    if charge.rounding:
        least = {"dp-sips": 0.49}.get(name, 0.45)
        assert least * delta <= gaussian_delta(epsilon - EPSILON_SLACK, mu) <= delta * (1 + 1e-6)
    else:
        assert gaussian_delta(epsilon, mu) >= 0


@pytest.mark.parametrize("name", ["funnel", "policy-gaussian", "weighted-gaussian", "count-gaussian", "dp-sips"])
def test_counts_are_charged_too(name):
    """However the budget is divided between list and counts, all of it is charged: half of it would show."""
    budget = Budget(1.0, 1e-6)
    alone = charge_for_plan(plan_release(algorithm_named(name), budget))
    both = charge_for_plan(plan_release(algorithm_named(name), budget, Counts(share=0.5)))
    assert both.mu_squared == pytest.approx(alone.mu_squared, rel=0.05)
    assert both.rounding == pytest.approx(4 * alone.rounding, abs=4)


@given(st.floats(1e-3, LARGEST_EPSILON), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_randomised_response_is_no_worse_than_its_gaussian(epsilon, part, level):
    """Lemma 2: at every false positive rate the Gaussian's best false negative rate is the lower one."""
    mu = math.sqrt(charge_for_budget(Budget(epsilon, 1e-9)).mu_squared / MU_SQUARED_UNITS)
    rate = level * 1 / (1 + math.exp(epsilon)) if part < 0.5 else level
    response = max(0.0, 1 - math.exp(epsilon) * rate, math.exp(-epsilon) * (1 - rate))
    assert norm.cdf(norm.isf(rate) - mu) <= response * (1 + 1e-9) + 1e-15


def test_why_the_caps_are_fixed_beforehand():
    """Were any mixture with delta_G + novelty <= delta granted, budgets chosen after seeing releases would break it."""
    epsilon, delta = 1.0, 1e-6
    whole = optimize.brentq(lambda m: gaussian_delta(epsilon, math.sqrt(m)) - delta, 1e-4, 1.0)
    first = whole / 2
    novelty = delta - gaussian_delta(epsilon, math.sqrt(first))

    def gain(z):
        """The adversary's best of spending the rest on a Gaussian or on a novel item, given the first release."""
        ratio = math.exp(math.sqrt(first) * z - first / 2)
        rest = ratio * gaussian_delta(epsilon - math.log(ratio), math.sqrt(whole - first))
        item = ratio * novelty + (1 - novelty) * max(0.0, ratio - math.exp(epsilon))
        return max(rest, item) * norm.pdf(z)

    reached = integrate.quad(gain, -9, 12, limit=500, points=[2, 4, 5, 6, 7])[0]
    assert reached > 1.5 * delta
    caps = account_caps(epsilon, delta, TIGHT)
    fixed = gaussian_delta(epsilon, math.sqrt(caps.mu_squared / MU_SQUARED_UNITS)) + caps.novelty / DELTA_UNITS
    assert fixed <= delta


@pytest.mark.parametrize(
    "arguments",
    [
        {"epsilon": 0}, {"epsilon": math.nan}, {"epsilon": 1e7}, {"epsilon": 101, "composition": "tight"}, {"delta": 0},
        {"delta": 1}, {"delta": True}, {"composition": "optimistic"}, {"name": "two words"}, {"name": ""},
        {"novelty_share": 1.0},
    ],
)  # fmt: skip
def test_bad_datasets_are_refused(ledger, arguments):
    with pytest.raises(BadParameter):
        ledger.create_dataset(**({"name": "other", "epsilon": 1.0, "delta": 1e-6} | arguments))
    assert [account.name for account in ledger.overview().accounts] == ["posts"]


def test_a_budget_cannot_be_opened_twice(ledger):
    with pytest.raises(LedgerError, match="open already"):
        ledger.create_dataset("posts", 100, 1e-3)


# Reservations
def test_the_file_is_its_owners_only(path, ledger):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_life_of_a_release(ledger, tmp_path):
    output = tmp_path / "vocabulary.txt"
    plan = plan_release("weighted-gaussian", Budget(1.0, 1e-7))
    with ledger.reserve("posts", plan, "request") as reservation:
        assert ledger.overview().entries[0].state is EntryState.UNSETTLED
        reservation.start_reading()
        output.write_text("word\n")
        reservation.settle([output])
    assert reservation.entry == "budget.db#2"
    assert reservation.sentence == (
        f"It is entry {reservation.receipt} of the dataset 'posts'. The ledger limits all releases "
        "from this dataset together to (3, 1e-06), by additive composition."
    )
    entry = ledger.overview().entries[0]
    assert entry.state is EntryState.SETTLED
    assert entry.details["plan"] == plan.to_dict()
    assert entry.outputs[0][0] == str(output)
    assert is_intact(entry.outputs[0])
    output.write_text("another\n")
    assert not is_intact(entry.outputs[0])
    account = ledger.overview().accounts[0].to_dict()
    assert (account["epsilon_left"], account["delta_left"]) == (2.0, 9e-7)
    assert entry.to_dict()["algorithm"] == "weighted-gaussian"
    json.dumps([entry.to_dict(), account])


def test_the_same_release_is_not_granted_twice_in_silence(ledger):
    ledger.reserve("posts", UNIT, "request").settle(digest="ab" * 32)
    with pytest.raises(AlreadyReleased) as caught:
        ledger.reserve("posts", UNIT, "request")
    assert caught.value.entry == "budget.db#2"
    assert caught.value.outputs == (("", "ab" * 32),)
    assert caught.value.exit_code == 5
    ledger.reserve("posts", UNIT, "request", charge_again=True)
    with pytest.raises(AlreadyReleased):
        ledger.reserve("posts", UNIT, "request")
    assert ledger.overview().accounts[0].spent.epsilon == 2 * 10**9


def test_a_release_that_never_settled_stays_spent_and_is_named(ledger):
    reservation = ledger.reserve("posts", UNIT, "request")
    reservation.start_reading()
    del reservation
    with pytest.raises(UnfinishedRelease, match=r"budget\.db#2"):
        ledger.reserve("posts", UNIT, "request")
    ledger.reserve("posts", UNIT, "request", charge_again=True)


@pytest.mark.parametrize("reading", [False, True])
def test_a_failure_gives_back_only_what_was_not_read_for(ledger, reading):
    def fail():
        with ledger.reserve("posts", UNIT, "request") as reservation:
            if reading:
                reservation.start_reading()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert ledger.overview().accounts[0].spent.epsilon == reading * 10**9
    assert ledger.overview().entries[0].state is (EntryState.UNSETTLED if reading else EntryState.CANCELLED)
    assert ledger.verify().good


def test_what_was_read_for_cannot_be_cancelled(ledger):
    reservation = ledger.reserve("posts", UNIT, "request")
    reservation.start_reading()
    with pytest.raises(LedgerError, match="no longer"):
        reservation.cancel()
    reservation.settle(digest="00" * 32)
    with pytest.raises(InternalError):
        reservation.settle(digest="00" * 32)
    with pytest.raises(LedgerError):
        reservation.cancel()


def test_another_process_cannot_cancel(ledger, monkeypatch):
    reservation = ledger.reserve("posts", UNIT, "request")
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with pytest.raises(LedgerError):
        reservation.cancel()
    with reservation:
        pass
    assert ledger.overview().accounts[0].spent.epsilon == 10**9


def test_an_exhausted_budget_says_what_is_left_and_what_to_do(ledger):
    ledger.reserve("posts", UNIT, "first", note={"algorithm": "my own"})
    assert ledger.overview().entries[0].to_dict()["algorithm"] == "my own"
    with pytest.raises(BudgetExhausted) as caught:
        ledger.reserve("posts", Amounts(epsilon=25 * 10**8, delta=10**11), "second")
    assert caught.value.what == (
        "The budget of dataset 'posts' does not cover this release: it asks for (epsilon, delta) = (2.5, 1e-07), and "
        "(2, 9.99e-07) is left."
    )
    assert caught.value.exit_code == 5
    with pytest.raises(BudgetExhausted):
        ledger.reserve("posts", Amounts(epsilon=1, delta=10**12), "too much delta")
    ledger.reserve("posts", Amounts(epsilon=2 * 10**9, delta=10**12 - 10**9), "to the last unit")
    with pytest.raises(BudgetExhausted):
        ledger.reserve("posts", Amounts(epsilon=1), "one unit more")


def test_an_unknown_dataset_or_ledger_is_refused(ledger, tmp_path):
    with pytest.raises(LedgerError, match="no dataset"):
        ledger.reserve("pots", UNIT, "request")
    with pytest.raises(LedgerError, match="no ledger"):
        Ledger.open(tmp_path / "nowhere.db")
    assert not (tmp_path / "nowhere.db").exists()
    with pytest.raises(LedgerError, match="created"):
        Ledger.open(tmp_path / "no" / "folder.db", create=True)
    with pytest.raises(LedgerError, match="not a file"):
        Ledger.open(tmp_path)


@pytest.mark.parametrize(
    "address",
    [
        "host=h password=hunter2 dbname=people", "postgresql:/u:hunter2@h/db", "postgresql:u:hunter2",
        "postgresql+psycopg://u:hunter2@h/db", "mysql://u:hunter2@h/db", "u:hunter2@h/db", "Postgres:hunter2",
    ],
)  # fmt: skip
def test_an_address_of_no_known_form_is_refused_and_not_repeated(tmp_path, monkeypatch, address):
    monkeypatch.chdir(tmp_path)
    for create in (False, True):
        with pytest.raises(BadParameter, match="neither a path") as caught:
            Ledger.open(address, create=create)
        assert "hunter2" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["PostgreSQL://u:hunter2@h/db", " postgresql://u:hunter2@h/db", "POSTGRES://h/db"])
def test_the_scheme_of_an_address_is_known_in_any_case(address):
    pytest.importorskip("psycopg")
    assert store_at(address).name == "postgresql/db"


def test_a_database_name_that_may_be_a_password_is_not_told():
    pytest.importorskip("psycopg")
    assert store_at("postgresql://h/u:hunter2@db").name == "postgresql/database"


def test_a_run_that_ends_early_says_what_became_of_its_charge(ledger):
    def run(reading):
        with ledger.reserve("posts", UNIT, f"request {reading}") as reservation:
            if reading:
                reservation.start_reading()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        run(reading=False)
    assert ledger_note(caught.value) == "Nothing was charged: entry budget.db#2 is cancelled."
    with pytest.raises(KeyboardInterrupt) as caught:
        run(reading=True)
    note = ledger_note(caught.value)
    assert note == "The charge of (1, 1e-09) on 'posts' stays: entry budget.db#4."
    assert note.facts == {
        "entry": "budget.db#4",
        "receipt": note.facts["receipt"],
        "dataset": "posts",
        "epsilon": 1.0,
        "delta": 1e-9,
        "charged": True,
    }
    assert copy.deepcopy(note).facts == note.facts


def test_a_charge_that_cannot_be_given_back_is_told(ledger, monkeypatch):
    def run():
        with ledger.reserve("posts", UNIT, "request"):
            monkeypatch.setattr(ledger, "_close", refuse)
            raise RuntimeError

    def refuse(*_arguments):
        raise LedgerError("The disk is full.", "Free some space.")

    with pytest.raises(RuntimeError) as caught:
        run()
    said = (
        "The charge of (1, 1e-09) on 'posts' stays: entry budget.db#2. The charge could not be cancelled: The disk is "
        "full."
    )
    assert ledger_note(caught.value) == said


def test_a_test_key_is_refused(ledger):
    with pytest.raises(NotPrivate):
        ledger.reserve("posts", UNIT, "request", test_key=True)
    assert ledger.overview().entries == ()


def test_laplace_and_gaussian_releases_share_a_tight_budget(ledger):
    caps = ledger.create_dataset("mixed", 10, 1e-5, "tight").caps
    plans = [plan_release(name, Budget(1.0, 1e-7)) for name in ("weighted-laplace", "weighted-gaussian", "dp-sips")]
    charges = [charge_for_plan(plan) for plan in plans]
    for number, charge in enumerate(charges):
        ledger.reserve("mixed", charge, f"request-{number}")
    account = next(account for account in ledger.overview().accounts if account.name == "mixed")
    assert account.spent == charges[0] + charges[1] + charges[2]
    assert account.remaining.mu_squared == caps.mu_squared - sum(charge.mu_squared for charge in charges)
    assert set(account.to_dict()) >= {"mu_squared_left_share", "novelty_left_share", "rounding_left_share"}
    assert ledger.verify().good


def test_a_forged_cap_is_found(ledger, monkeypatch):
    forged = Amounts(10**10, 10**13, 10**17, 9 * 10**12, 0)
    monkeypatch.setattr("dpunion.ledger.accounts.account_caps", lambda *_: forged)
    ledger.create_dataset("forged", 10, 1e-5, "tight")
    assert "beyond its budget" in ledger.verify().problem


def test_a_charge_for_several_lengths_adds_up():
    one = charge_for_gaussian(Budget(1.0, 1e-6), 0.2, 1e-7, rounding=6 * EPSILON_SLACK)
    assert one.rounding == math.ceil(6 * EPSILON_SLACK * EPSILON_UNITS)
    assert one.mu_squared == pytest.approx(0.04 * MU_SQUARED_UNITS, rel=1e-9)
    assert one.mu_squared >= 0.04 * MU_SQUARED_UNITS
    assert one.novelty >= 10**11


def test_the_clock_does_not_matter(ledger, monkeypatch):
    class Backwards:
        UTC = dt.UTC
        moment = dt.datetime(1970, 1, 2, tzinfo=dt.UTC)

        class datetime:
            @staticmethod
            def now(_zone):
                Backwards.moment -= dt.timedelta(days=400)
                return Backwards.moment

    monkeypatch.setattr("dpunion.ledger.events.dt", Backwards)
    for number in range(3):
        ledger.reserve("posts", UNIT, f"request-{number}")
    with pytest.raises(BudgetExhausted):
        ledger.reserve("posts", UNIT, "one more")
    assert ledger.verify().good


# Fingerprints, receipts, places
def test_fingerprints_are_of_the_whole_configuration():
    one = fingerprint(sources=["a.csv"], user="u", plan={"epsilon": 1.0})
    assert one == fingerprint(plan={"epsilon": 1.0}, user="u", sources=["a.csv"])
    assert one != fingerprint(sources=["b.csv"], user="u", plan={"epsilon": 1.0})
    assert one != fingerprint(sources=["a.csv"], user="u", plan={"epsilon": 1.5})
    assert len(one) == 64


def test_bad_receipts_are_refused(ledger):
    for receipt in ("17", "budget.db#17", "17:zz", "17:0123"):
        with pytest.raises(BadParameter):
            ledger.verify([receipt])


def test_a_hard_linked_ledger_is_refused(path, ledger, tmp_path):
    os.link(path, tmp_path / "other.db")
    with pytest.raises(LedgerError, match="more than one name"):
        Ledger.open(tmp_path / "other.db")


def test_network_file_systems_are_told_apart(tmp_path, path, ledger, monkeypatch):
    table = (
        "20 1 0:1 / / rw - ext4 /dev/sda rw\n21 20 0:2 / /mnt/the\\040share rw,relatime shared:1 - nfs4 server:/ rw\n"
        "22 21 0:3 / /mnt/the\\040share/local rw - xfs /dev/sdb rw\n"
    )
    root = type(tmp_path)("/mnt")
    assert file_system(root / "the share" / "budget.db", table) == "nfs4"
    assert file_system(root / "the share" / "local" / "budget.db", table) == "xfs"
    assert file_system(root / "the shared.db", table) == "ext4"
    assert "nfs4" in NETWORK_FILE_SYSTEMS
    monkeypatch.setattr("dpunion.ledger.sqlite.file_system", lambda _path: "nfs4")
    with pytest.raises(LedgerError, match="network file system"):
        Ledger.open(path)


def test_the_ledger_loads_neither_numba_nor_psycopg(path, ledger):
    code = (
        "import sys; from dpunion.ledger import Ledger; Ledger.open(sys.argv[1]).overview(); "
        "print([name for name in ('numba', 'numpy', 'psycopg', 'pyarrow') if name in sys.modules])"
    )
    assert run_python(code, path, check=True).stdout.strip() == "[]"


@pytest.mark.parametrize("create", [True, False])
def test_a_path_that_is_not_utf8_is_refused(tmp_path, create):
    with pytest.raises(LedgerError, match="path is not UTF-8"):
        Ledger.open(os.fsdecode(os.fsencode(tmp_path) + b"/l\xff.db"), create=create)
    assert list(tmp_path.iterdir()) == []


def test_threads_of_one_process_get_the_budget_and_no_more(ledger):
    granted = []

    def ask(who):
        for number in range(3):
            with contextlib.suppress(BudgetExhausted):
                granted.append(ledger.reserve("posts", Amounts(epsilon=10**9), f"{who}-{number}").number)

    askers = [threading.Thread(target=ask, args=(who,)) for who in range(4)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert len(granted) == len(set(granted)) == 3
    assert ledger.overview().accounts[0].spent.epsilon == 3 * 10**9


# Read-only file systems
@pytest.fixture
def read_only(monkeypatch):
    """Every file system says that it is read-only."""
    monkeypatch.setattr(os, "statvfs", lambda _: types.SimpleNamespace(f_flag=os.ST_RDONLY))


def test_a_ledger_on_read_only_media_is_read_without_locks_or_journal(ledger, path, read_only, monkeypatch):
    opened, real = [], sqlite3.connect

    def connect(address, **options):
        opened.append(address.partition("?")[2])
        return real(address, **options)

    monkeypatch.setattr(sqlite3, "connect", connect)
    assert ledger.verify().good
    assert [account.name for account in ledger.overview().accounts] == ["posts"]
    assert set(opened) == {"mode=ro&immutable=1"}
    assert os.listdir(path.parent) == [path.name]


def test_a_journal_with_changes_is_not_ignored_on_read_only_media(ledger, path, read_only):
    (path.parent / "budget.db-wal").write_bytes(b"")
    assert ledger.verify().good
    (path.parent / "budget.db-wal").write_bytes(b"changes")
    with pytest.raises(LedgerError, match=r"in its journal \(budget.db-wal\).* Copy both files"):
        ledger.verify()


def test_a_ledger_that_changes_while_it_is_read_on_read_only_media_is_noticed(ledger, path, read_only):
    with pytest.raises(LedgerError, match="was written while it was read"), store_at(path).transaction(write=False):
        os.utime(path, (1, 1))
    with pytest.raises(LedgerError, match="was written while it was read"), store_at(path).transaction(write=False):
        os.utime(path, (2, 2))
        raise DamagedLedger("A row was torn.", "Restore it.")


def test_a_ledger_is_really_read_from_a_read_only_mount(ledger, path):
    if os.geteuid() or subprocess.run(["mount", "--bind", path.parent, path.parent], check=False).returncode:
        pytest.skip("mounting is not permitted here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", path.parent], check=True)
        assert ledger.verify().good
        with pytest.raises(LedgerError, match="cannot be opened"):
            ledger.create_dataset("more", 1, 1e-6)
    finally:
        subprocess.run(["umount", path.parent], check=True)
