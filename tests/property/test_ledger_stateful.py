"""The ledger against a model of a few lines: whatever is asked in whatever order, both give the same answers."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from dpunion.errors import AlreadyReleased, BudgetExhausted, UnfinishedRelease
from dpunion.ledger import Amounts, EntryState, Ledger

# The model has no use for a real disk: memory makes each step a hundred times faster.
MEMORY = Path("/dev/shm")


class LedgerMachine(RuleBasedStateMachine):
    """Reserve, read, settle, cancel and die, on an additive and a tight account."""

    reservations = Bundle("reservations")

    @initialize()
    def open(self):
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.path = self.folder / "budget.db"
        self.ledger = Ledger.open(self.path, create=True)
        self.caps = {
            "additive": self.ledger.create_dataset("additive", 10, 0.5).caps,
            "tight": self.ledger.create_dataset("tight", 4, 1e-6, "tight").caps,
        }
        self.rows = 2
        self.entries = {}  # number -> [dataset, charge, fingerprint, state]

    def teardown(self):
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    def spent(self, dataset):
        live = [charge for name, charge, _, state in self.entries.values() if name == dataset and state != "cancelled"]
        return sum(live, Amounts())

    def expected(self, dataset, charge, fingerprint, charge_again):
        """Say what the model would do."""
        states = {state for name, _, known, state in self.entries.values() if name == dataset and known == fingerprint}
        if not charge_again and "settled" in states:
            return AlreadyReleased
        if not charge_again and states & {"open", "read"}:
            return UnfinishedRelease
        total, cap = self.spent(dataset) + charge, self.caps[dataset]
        counted = (0, 1) if dataset == "additive" else (2, 3, 4)
        if any(total.values()[i] > cap.values()[i] for i in counted):
            return BudgetExhausted
        return None

    @rule(
        target=reservations,
        dataset=st.sampled_from(["additive", "tight"]),
        tenths=st.integers(1, 60),
        fingerprint=st.sampled_from("abcdefgh"),
        charge_again=st.booleans(),
    )
    def reserve(self, dataset, tenths, fingerprint, charge_again):
        if dataset == "additive":
            charge = Amounts(tenths * 10**8, tenths * 10**15)
        else:
            part = self.caps["tight"]
            charge = Amounts(1, 1, *(value * tenths // 150 for value in part.values()[2:]))
        error = self.expected(dataset, charge, fingerprint, charge_again)
        try:
            reservation = self.ledger.reserve(dataset, charge, fingerprint, charge_again=charge_again)
        except (AlreadyReleased, UnfinishedRelease, BudgetExhausted) as raised:
            assert type(raised) is error
            return multiple()
        assert error is None
        self.rows += 1
        assert reservation.number == self.rows
        self.entries[self.rows] = [dataset, charge, fingerprint, "open"]
        return reservation

    @rule(reservation=reservations)
    def read(self, reservation):
        entry = self.entries[reservation.number]
        if entry[3] == "open":
            reservation.start_reading()
            entry[3] = "read"

    @rule(reservation=consumes(reservations))
    def settle(self, reservation):
        self.entries[reservation.number][3] = "settled"
        reservation.settle(digest="00" * 32)
        self.rows += 1

    @rule(reservation=consumes(reservations))
    def leave(self, reservation):
        entry = self.entries[reservation.number]
        with reservation:
            pass
        if entry[3] == "open":
            entry[3] = "cancelled"
            self.rows += 1

    @rule(reservation=consumes(reservations))
    def die(self, reservation):
        """Forget the reservation, as a killed process does."""

    @rule()
    def come_back(self):
        self.ledger = Ledger.open(self.path, create=True)

    @invariant()
    def agrees(self):
        if not hasattr(self, "ledger"):
            return
        found = self.ledger.overview()
        for account in found.accounts:
            assert account.spent == self.spent(account.name)
            assert account.spent.fits(account.caps, account.composition)
        words = {
            EntryState.SETTLED: {"settled"},
            EntryState.CANCELLED: {"cancelled"},
            EntryState.UNSETTLED: {"open", "read"},
        }
        assert [entry.number for entry in found.entries] == list(self.entries)
        assert all(self.entries[entry.number][3] in words[entry.state] for entry in found.entries)
        assert self.ledger.verify([found.head]).rows == self.rows
        assert self.ledger.verify([found.head]).good


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
