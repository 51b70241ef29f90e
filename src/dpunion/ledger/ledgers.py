"""Ledger and Reservation: reserve before reading, settle after writing, a crash counts as spent."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from dpunion.errors import (
    AlreadyReleased,
    BadParameter,
    BudgetExhausted,
    DamagedLedger,
    InternalError,
    LedgerError,
    NotPrivate,
    UnfinishedRelease,
    refuse_choice,
)
from dpunion.ledger import store as tables
from dpunion.ledger.amounts import COUNTED, DELTA_UNITS, EPSILON_UNITS, Amounts, Composition, decimal
from dpunion.ledger.chain import append
from dpunion.ledger.events import Account, Book, BrokenChain, Entry, Event, Kind, outputs_in
from dpunion.ledger.fingerprints import sha256_of
from dpunion.ledger.postgres import PREFIXES, PostgresStore
from dpunion.ledger.sqlite import SqliteStore
from dpunion.ledger.store import Session, Store

if TYPE_CHECKING:
    from dpunion.plans import Plan

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
RECEIPT = re.compile(r"(?:.*#)?([0-9]{1,18}):([0-9a-f]{8,64})")
RECEIPT_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Overview:
    """All datasets and entries; head is the last row's `number:hash`, worth keeping elsewhere."""

    accounts: tuple[Account, ...]
    entries: tuple[Entry, ...]
    head: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What checking the ledger found: problem is None when all is well."""

    problem: str | None
    rows: int
    head: str

    @property
    def good(self) -> bool:
        """Say whether nothing was found."""
        return self.problem is None


class Ledger:
    """The budgets of datasets, in a database that many processes may use at once.

    Guarantees:
    - the releases granted on a dataset never add up to more than its total;
    - what was granted stays spent, whatever happens to the process that asked;
    - a release that was made or begun before is never granted again without being asked to charge again.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"Ledger({self.name!r})"

    @property
    def name(self) -> str:
        """Return what public texts call this ledger."""
        return self._store.name

    @classmethod
    def open(cls, where: str | os.PathLike[str], *, create: bool = False) -> Ledger:
        """Open the ledger at a path or a postgresql:// address; `create` makes one where there is none."""
        text = os.fspath(where)
        store: Store = PostgresStore(text) if text.startswith(PREFIXES) else SqliteStore(Path(text))
        store.prepare(create=create)
        return cls(store)

    def close(self) -> None:
        """Let go of the database; the ledger may still be used, which opens it again."""
        self._store.close()

    def create_dataset(
        self,
        name: str,
        epsilon: float,
        delta: float,
        composition: str | Composition = Composition.ADDITIVE,
        *,
        novelty_share: float | None = None,
    ) -> Account:
        """Open a dataset: what all releases from it may use together. It cannot be changed later.

        novelty_share: tight composition only, the part of delta set aside for items that only one person holds.
        """
        from dpunion.ledger.accounts import NOVELTY_SHARE, account_caps

        if NAME.fullmatch(name) is None:
            raise BadParameter(
                "A dataset's name must be of letters, digits, dots, dashes and underscores, at most 100.",
                "Choose a plain name such as posts-2024.",
            )
        chosen = _composition(composition)
        share = NOVELTY_SHARE if novelty_share is None else novelty_share
        caps = account_caps(epsilon, delta, chosen, share)
        details = {"composition": chosen.value, "epsilon": float(epsilon), "delta": float(delta)}
        with self._store.transaction(write=True) as session:
            if session.run(tables.OPENING, name):
                raise LedgerError(
                    f"The dataset {name!r} is open already in {self.name}, and a budget cannot be changed.",
                    "Use it as it is, or choose another name for other data.",
                )
            append(session, Kind.OPENED, name, caps, details=details)
        return Account(name, chosen, caps)

    def reserve(
        self,
        dataset: str,
        charge: Plan | Amounts,
        release_fingerprint: str,
        *,
        note: dict[str, Any] | None = None,
        charge_again: bool = False,
        test_key: bool = False,
    ) -> Reservation:
        """Take what a release costs out of the dataset's budget, before any data is read.

        charge: the release's plan, or amounts from `ledger.accounts` with a public note that says what they are for.
        charge_again: grant it, and charge it, even if the same release was made or begun before.

        Guarantees:
        - when this returns, the charge is on disk and counts as spent unless `cancel` is called before reading;
        - of several callers with one fingerprint, all but the first are refused unless they ask to charge again.
        """
        if test_key:
            raise NotPrivate(
                "A release with a fixed test key is not private, so it cannot be entered in a ledger.",
                "Leave out the test key, or the ledger.",
            )
        amounts, plan = _priced(charge)
        details = {"plan": note or plan, "charge_again": charge_again}
        # Refusing needs no lock: the answer was true at the moment of this look.
        with self._store.transaction(write=False) as session:
            self._check(session, dataset, amounts, release_fingerprint, charge_again=charge_again)
        with self._store.transaction(write=True) as session:
            account = self._check(session, dataset, amounts, release_fingerprint, charge_again=charge_again)
            event = append(
                session,
                Kind.RESERVED,
                dataset,
                amounts.stored(account.composition),
                release_fingerprint=release_fingerprint,
                details=details,
            )
        return Reservation(self, account, event)

    def overview(self) -> Overview:
        """Return every dataset and entry; raise DamagedLedger when the rows do not fit together."""
        book, problem = self._replay()
        if problem is not None:
            raise DamagedLedger(problem, "Run `dpunion ledger verify`, and restore the ledger from a backup.")
        return Overview(tuple(book.accounts.values()), tuple(book.entries.values()), _head(book.sequence, book.head))

    def verify(self, receipts: Iterable[str] = ()) -> Verification:
        """Check the storage, the hash chain, every total, and that the given receipts' entries are still there.

        receipts: `number:hash` as printed with releases and by `show`; they reveal rows cut off at the end.
        """
        from dpunion.ledger.accounts import caps_hold

        wanted = [_receipt(text) for text in receipts]
        found: dict[int, str] = {}
        problem = self._store.check_storage()
        book, broken = self._replay(found)
        problem = problem or broken
        for account in book.accounts.values():
            if not caps_hold(account.caps, account.composition):
                problem = problem or f"The dataset {account.name!r} was opened with caps beyond its budget."
        for number, digits in wanted:
            if not found.get(number, "").startswith(digits):
                problem = problem or f"Entry {number} is not the one of the receipt: rows were cut off or replaced."
        return Verification(problem, book.sequence, _head(book.sequence, book.head))

    def _replay(self, found: dict[int, str] | None = None) -> tuple[Book, str | None]:
        book = Book()
        with self._store.transaction(write=False) as session:
            rows = session.run(tables.ALL_ROWS)
        for number, row in enumerate(rows, 1):
            try:
                book.read(Event.from_row(row))
            except BrokenChain as broken:
                return book, f"Row {number} of {self.name} is wrong: {broken}."
            if found is not None:
                found[book.sequence] = book.head
        return book, None

    def _check(
        self, session: Session, dataset: str, charge: Amounts, release_fingerprint: str, *, charge_again: bool
    ) -> Account:
        """Return the dataset's account if the release may be granted; raise the reason if not."""
        opening = session.run(tables.OPENING, dataset)
        if len(opening) != 1:
            raise LedgerError(
                f"The ledger {self.name} has no dataset of that name.",
                "Open it with `dpunion ledger open`, or look with `dpunion ledger show`.",
            )
        broken: str | None = None
        try:
            opened = Account.opened_by(Event.from_row(opening[0]))
            if not charge_again:
                self._refuse_repeat(session.run(tables.SAME_RELEASE, dataset, release_fingerprint))
        except BrokenChain as found:
            broken = str(found)
        if broken is not None:
            raise DamagedLedger(f"A row of {self.name} is wrong: {broken}.", "Run `dpunion ledger verify`.")
        spent = Amounts(*(int(value) for value in session.run(tables.SPENT, dataset)[0]))
        account = Account(opened.name, opened.composition, opened.caps, spent)
        if not account.covers(charge):
            _refuse_charge(account, charge)
        return account

    def _refuse_repeat(self, same: list[tuple[Any, ...]]) -> None:
        for number, kind, details in same:
            if kind == Kind.SETTLED.value:
                problem = AlreadyReleased(
                    f"This very release was made before: entry {self.name}#{number}. Nothing was charged.",
                    "Use what was written then; to make and pay for another, ask to charge again (--charge-again).",
                )
                problem.entry, problem.outputs = f"{self.name}#{number}", outputs_in(details)
                raise problem
        for number, kind, _ in same:
            if kind is None:
                raise UnfinishedRelease(
                    f"An earlier run of this very release, entry {self.name}#{number}, has not settled: it is still "
                    "running, or it died. Its budget counts as spent, and nothing more was charged.",
                    "Wait for it; if it died, ask to charge again (--charge-again).",
                )

    def _close(self, kind: Kind, dataset: str, entry: int, amounts: Amounts, details: dict[str, Any]) -> None:
        with self._store.transaction(write=True) as session:
            if session.run(tables.CLOSING, entry):
                raise LedgerError(f"Entry {self.name}#{entry} is closed already.", "Settle a release once.")
            append(session, kind, dataset, amounts, entry=entry, details=details)


class Reservation:
    """Budget taken for one release; a context that gives it back only if nothing was read.

    Guarantees:
    - leaving the context before `start_reading` gives the budget back; after it, never;
    - a process that dies at any moment leaves the budget spent.
    """

    def __init__(self, ledger: Ledger, account: Account, event: Event) -> None:
        self._ledger = ledger
        self._event = event
        self._process = os.getpid()
        self._reading = False
        self._closed = False
        self.account = account
        self.number = event.sequence
        self.entry = f"{ledger.name}#{event.sequence}"
        self.receipt = f"{self.entry}:{event.hash[:RECEIPT_DIGITS]}"

    def __repr__(self) -> str:
        return f"Reservation({self.receipt!r})"

    @property
    def sentence(self) -> str:
        """Return the sentence that a release's statement says about the ledger."""
        caps = self.account.caps
        return (
            f"It is entry {self.receipt} of the dataset {self.account.name!r}, whose releases together are held to "
            f"({decimal(caps.epsilon, EPSILON_UNITS)}, {decimal(caps.delta, DELTA_UNITS)}) by "
            f"{self.account.composition.value} composition."
        )

    def start_reading(self) -> None:
        """Say that data will be read from now on: the budget can no longer be given back."""
        self._reading = True

    def cancel(self) -> None:
        """Give the budget back, which is right only while no data was read, in the process that reserved it."""
        if self._reading or self._closed or os.getpid() != self._process:
            raise LedgerError(f"Entry {self.entry} can no longer be cancelled.", "Its budget is spent.")
        self._closed = True
        self._ledger._close(Kind.CANCELLED, self.account.name, self.number, -self._event.amounts, {})  # noqa: SLF001

    def settle(self, outputs: Iterable[str | os.PathLike[str]] = (), *, digest: str | None = None) -> None:
        """Record that the release was made: the files it was written to, or the SHA-256 of one kept in memory."""
        if self._closed:
            raise InternalError("a reservation was settled twice")
        self._reading = self._closed = True
        files = [(str(Path(path).absolute()), sha256_of(Path(path))) for path in outputs]
        if digest is not None:
            files.append(("", digest))
        problem: str | None = None
        try:
            self._ledger._close(Kind.SETTLED, self.account.name, self.number, Amounts(), {"outputs": files})  # noqa: SLF001
        except LedgerError as error:
            problem = error.what
        if problem is not None:
            raise LedgerError(
                f"The release was made and its budget is spent, but entry {self.entry} could not be settled: {problem}",
                "Keep the output. The entry stays open, which counts as spent.",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if not (self._reading or self._closed) and os.getpid() == self._process:
            # A failure to give back leaves it spent, which is safe, and must not hide what went wrong before.
            with contextlib.suppress(LedgerError):
                self.cancel()


def _priced(charge: Plan | Amounts) -> tuple[Amounts, dict[str, Any]]:
    if isinstance(charge, Amounts):
        if min(charge.values()) < 0:
            raise InternalError("a negative charge")
        return charge, {}
    from dpunion.ledger.accounts import charge_for_plan

    return charge_for_plan(charge), charge.to_dict()


def _refuse_charge(account: Account, charge: Amounts) -> NoReturn:
    remedy = (
        "Ask for less (a smaller epsilon or delta), or do without: more would break the promise made for this data."
    )
    left = account.remaining
    if account.composition is Composition.ADDITIVE:
        pairs = [
            f"({decimal(each.epsilon, EPSILON_UNITS)}, {decimal(each.delta, DELTA_UNITS)})" for each in (charge, left)
        ]
        raise BudgetExhausted(
            f"The budget of dataset {account.name!r} does not cover this release: it asks for (epsilon, delta) = "
            f"{pairs[0]}, and {pairs[1]} is left.",
            remedy,
        )
    parts = [
        f"{getattr(charge, name) / max(1, getattr(account.caps, name)):.3%} of the {WORDS[name]} budget "
        f"({getattr(left, name) / max(1, getattr(account.caps, name)):.3%} is left)"
        for name in COUNTED[Composition.TIGHT]
        if getattr(charge, name) > getattr(left, name)
    ]
    raise BudgetExhausted(
        f"The budget of dataset {account.name!r} does not cover this release: it asks for {' and '.join(parts)}.",
        remedy,
    )


WORDS = {"mu_squared": "Gaussian", "novelty": "novel-item", "rounding": "rounding"}


def _composition(value: str | Composition) -> Composition:
    for each in Composition:
        if value in (each, each.value):
            return each
    refuse_choice("composition", value, [each.value for each in Composition])


def _head(sequence: int, digest: str) -> str:
    return f"{sequence}:{digest}"


def _receipt(text: str) -> tuple[int, str]:
    match = RECEIPT.fullmatch(text.strip())
    if match is None:
        raise BadParameter(
            "A receipt must look like budget.db#17:0123456789abcdef.",
            "Copy it from a release's statement or from `show`.",
        )
    return int(match[1]), match[2]
