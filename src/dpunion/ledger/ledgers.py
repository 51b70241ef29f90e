"""Ledger and Reservation: reserve before reading, settle after writing; a crash counts as spent."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dpunion import errors
from dpunion.addresses import POSTGRESQL, Address
from dpunion.checks import as_choice
from dpunion.errors import BadParameter, ForeignErrors, InternalError, LedgerError, ReplacedLedger
from dpunion.ledger import events
from dpunion.ledger.amounts import DELTA_UNITS, EPSILON_UNITS, Amounts, Composition
from dpunion.ledger.events import Account, Event, EventKind, Overview, Store, append, pair
from dpunion.ledger.fingerprints import sha256_of
from dpunion.ledger.postgres import PostgresStore
from dpunion.ledger.schedules import Due, Schedule, find_release
from dpunion.ledger.sqlite import SqliteStore
from dpunion.releases.about import Charged

if TYPE_CHECKING:
    from dpunion.plans import Planned

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
RECEIPT = re.compile(r"(?:.*#)?([0-9]{1,18}):([0-9a-f]{8,64})")
RECEIPT_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of checking a ledger; problem: None if there is none."""

    problem: str | None
    rows: int
    head: str

    @property
    def good(self) -> bool:
        return self.problem is None


class Ledger:
    """The budgets of datasets, in a database that many processes may use at once.

    Guarantees:
    - the releases granted on a dataset never add up to more than its total;
    - a granted charge stays spent, whatever happens to the process that reserved it;
    - a release that was made or begun before is granted again only with `charge_again`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reader = events.ChainReader(store.name)
        self.name = store.name
        """The name of this ledger in public texts."""

    def __repr__(self) -> str:
        return f"Ledger({self.name!r})"

    @classmethod
    def open(cls, where: str | os.PathLike[str], *, create: bool = False) -> Ledger:
        """Open the ledger at a path or a postgresql:// address; create: make one if there is none."""
        store = store_at(where)
        store.prepare(create=create)
        return cls(store)

    def close(self) -> None:
        """Close the connection to the database; using the ledger again opens a new one."""
        self._store.close()

    def create_dataset(
        self,
        name: str,
        epsilon: float,
        delta: float,
        composition: str | Composition | None = None,
        *,
        novelty_share: float | None = None,
        schedule: Schedule | None = None,
    ) -> Account:
        """Open a dataset with a budget for all its releases together, which cannot be changed later.

        composition: additive by default, and tight with a schedule. novelty_share: for tight composition, the part of
        delta that is set aside for items that only one person has. schedule: when releases are made, and their parts.
        """
        account = new_account(name, epsilon, delta, composition, novelty_share, schedule)
        details = {"composition": account.composition.value, "epsilon": float(epsilon), "delta": float(delta)}
        planned = {} if schedule is None else {"schedule": schedule.to_dict()}
        with self._store.transaction(write=True) as session:
            book = self._reader.book(session)
            if name in book.accounts:
                raise LedgerError(
                    f"The dataset {name!r} is open already in {self.name}, and a budget cannot be changed.",
                    "Use it unchanged, or choose another name for other data.",
                )
            append(session, book, EventKind.OPENED, name, account.caps, details=details | planned)
        return account

    def reserve(
        self,
        dataset: str,
        charge: Planned | Amounts,
        release_fingerprint: str,
        *,
        note: dict[str, Any] | None = None,
        about: dict[str, Any] | None = None,
        sources: list[dict[str, Any]] | None = None,
        charge_again: bool = False,
        test_key: bool = False,
        due: Due | None = None,
    ) -> Reservation:
        """Charge a release to the dataset's budget, before any data is read.

        charge: the release's plan, or amounts from `ledger.accounts` with a public note that says what they are for.
        about: for people: title, owner, note; names of sources, columns, version.
        sources: sizes and times of the sources (`reading.locate`), by which a change is noticed later.
        charge_again: charge the release even if it was made or begun before.
        due: for a release of a schedule; it is charged its share exactly.

        Guarantees:
        - the transaction that grants reads the whole chain, and grants nothing if it is broken;
        - when this returns, the charge is on disk and counts as spent unless `cancel` is called before reading;
        - of several callers with one fingerprint, all but the first are refused unless they use `charge_again`.
        """
        if test_key:
            raise errors.NotPrivate(
                "A release with a fixed test key is not private, so a ledger cannot record it.",
                "Leave out the test key or the ledger.",
            )
        amounts, plan = _priced(charge)
        details = {"plan": note or plan, "charge_again": charge_again, "sources": sources, "about": about or {}}
        if due is not None:
            amounts = due.charge(amounts)
            details["schedule"] = {"release": due.release, "week": due.week}
        # A refusal needs no lock: it was right at the moment of this check.
        with self._store.transaction(write=False) as session:
            book = self._reader.book(session)
            self._check(book, dataset, amounts, release_fingerprint, details, due)
        with self._store.transaction(write=True) as session:
            book = self._reader.book(session)
            account = self._check(book, dataset, amounts, release_fingerprint, details, due)
            amounts, which = amounts.stored(account.composition), release_fingerprint
            event = append(session, book, EventKind.RESERVED, dataset, amounts, fingerprint=which, details=details)
        return Reservation(self, account, event)

    def find_due(self, dataset: str, day: dt.date, earlier: Path | None = None) -> Due:
        """Return the release of a dataset's schedule that is due on a day, and the list that it continues."""
        found = self.overview()
        account = next((one for one in found.accounts if one.name == dataset), None)
        if account is None:
            events.refuse_dataset(self.name, dataset, [one.name for one in found.accounts])
        return find_release(account, found.entries, day, earlier)

    def overview(self) -> Overview:
        """Return every dataset and entry; raise DamagedLedger if a row is wrong."""
        with self._store.transaction(write=False) as session:
            book = self._reader.book(session)
        return Overview(tuple(book.accounts.values()), tuple(book.entries.values()), book.receipt)

    def verify(self, receipts: Iterable[str] = ()) -> Verification:
        """Check the storage, the hash chain, every total, and that the entries of the given receipts still exist.

        receipts: `number:hash` as printed with releases and by `show`; they reveal rows that were cut off at the end.
        """
        from dpunion.ledger.accounts import caps_hold

        wanted = [_receipt(text) for text in receipts]
        found: dict[int, str] = {}
        problem = self._store.check_storage()
        with self._store.transaction(write=False) as session:
            book, broken = self._reader.replay(session, found)
        problem = problem or broken
        for account in book.accounts.values():
            if not caps_hold(account.caps, account.composition):
                problem = problem or f"The dataset {account.name!r} was opened with caps beyond its budget."
        for number, digits in wanted:
            if not found.get(number, "").startswith(digits):
                problem = problem or f"Entry {number} is not the one of the receipt: rows were cut off or replaced."
        return Verification(problem, book.sequence, book.receipt)

    def _check(
        self, book: events.Book, dataset: str, charge: Amounts, which: str, details: dict[str, Any], due: Due | None
    ) -> Account:
        """Return the dataset's account; refuse a release that cannot be granted."""
        account = book.accounts.get(dataset)
        if account is None:
            events.refuse_dataset(self.name, dataset, list(book.accounts))
        made = [entry for entry in book.entries.values() if entry.dataset == dataset]
        if due is not None:
            events.refuse_second(self.name, due.release, made, which, details)
        elif not details["charge_again"]:
            same = [entry for entry in made if entry.fingerprint == which]
            events.refuse_repeat(self.name, same, details["sources"])
        if not account.covers(charge):
            events.refuse_charge(account, charge, due)
        return account

    def _close(self, kind: EventKind, own: Event, amounts: Amounts, details: dict[str, Any]) -> None:
        """Settle or cancel the entry of the row `own`, if it still exists."""
        with self._store.transaction(write=True) as session:
            book = self._reader.book(session)
            entry = book.entries.get(own.sequence)
            if entry is None or entry.hash != own.hash:
                raise ReplacedLedger(
                    f"The ledger {self.name} was replaced: an entry that was made in it is missing.",
                    "Restore the ledger that contains the entry.",
                )
            if entry.state is not events.EntryState.UNSETTLED:
                raise LedgerError(f"Entry {self.name}#{own.sequence} is closed already.", "Settle a release once.")
            append(session, book, kind, own.dataset, amounts, entry=own.sequence, details=details)


class Reservation:
    """The budget of one release; as a context, it gives the budget back only if nothing was read.

    Guarantees:
    - leaving the context before `start_reading` gives the budget back; after it, never;
    - if the process dies, at any moment, the budget counts as spent.
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
    def facts(self) -> dict[str, Any]:
        """Return the entry for machines."""
        return {
            "entry": self.entry,
            "receipt": self.receipt,
            "dataset": self.account.name,
            "epsilon": self._event.amounts.epsilon / EPSILON_UNITS,
            "delta": self._event.amounts.delta / DELTA_UNITS,
        }

    @property
    def charged(self) -> Charged:
        """Return the entry for the release: its charge, and how much of the budget was spent before and after."""
        account, charge, due = self.account, self._event.amounts, json.loads(self._event.details).get("schedule")
        after, later = dataclasses.replace(account, spent=account.spent + charge), account.schedule
        more = sum(one > due["release"] for one in later.releases) if due and later else after.more_like(charge)
        return Charged(
            **self.facts,
            composition=account.composition.value,
            total_epsilon=account.caps.epsilon / EPSILON_UNITS,
            total_delta=account.caps.delta / DELTA_UNITS,
            before=account.spent_share,
            after=after.spent_share,
            more=more,
            written=self._event.written,
        )

    @property
    def sentence(self) -> str:
        """Return the sentence about the ledger in a release's statement."""
        due, plan = json.loads(self._event.details).get("schedule"), self.account.schedule
        when = f" It was made in week {due['week']} of {plan.weeks} since {plan.start}." if due and plan else ""
        return (
            f"It is entry {self.receipt} of the dataset {self.account.name!r}. The ledger limits all releases "
            f"from this dataset together to {pair(self.account.caps)}, by {self.account.composition.value} "
            f"composition.{when}"
        )

    def start_reading(self) -> None:
        """Mark that reading begins: from now on the budget cannot be given back."""
        self._reading = True

    def cancel(self) -> None:
        """Give the budget back; only before data is read, and in the process that reserved it."""
        if self._reading or self._closed or os.getpid() != self._process:
            raise LedgerError(f"Entry {self.entry} can no longer be cancelled.", "Its budget is spent.")
        self._closed = True
        self._ledger._close(EventKind.CANCELLED, self._event, -self._event.amounts, {})  # noqa: SLF001

    def settle(self, outputs: Iterable[str | os.PathLike[str]] = (), *, digest: str | None = None) -> None:
        """Record that the release was made; digest: the SHA-256 of a release that is not in a file."""
        if self._closed:
            raise InternalError("a reservation was settled twice")
        self._reading = self._closed = True
        files = [(str(Path(path).absolute()), sha256_of(Path(path))) for path in outputs]
        if digest is not None:
            files.append(("", digest))
        with ForeignErrors(self._explain_unsettled, LedgerError, ours_too=True):
            self._ledger._close(EventKind.SETTLED, self._event, Amounts(), {"outputs": files})  # noqa: SLF001

    def _explain_unsettled(self, problem: LedgerError) -> LedgerError:
        if isinstance(problem, ReplacedLedger):
            return ReplacedLedger(
                f"The release was made, but {self._uncharged}",
                "Keep the output. Restore the ledger that contains this entry. If it is lost, charge this amount "
                "in the new one (Ledger.reserve) before you release anything else.",
            )
        return LedgerError(
            f"The release was made and its budget is spent, but entry {self.entry} could not be settled: "
            f"{problem.what}",
            "Keep the output. The entry stays open, which counts as spent.",
        )

    @property
    def _uncharged(self) -> str:
        return (
            f"the ledger {self._ledger.name} was replaced in the meantime: entry {self.receipt}, "
            f"{pair(self._event.amounts)} on {self.account.name!r}, is not in it and counts in no sum there."
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if os.getpid() != self._process:
            return
        note = f"The charge of {pair(self._event.amounts)} on {self.account.name!r} stays: entry {self.entry}."
        charged = True
        if isinstance(error, ReplacedLedger):
            note, charged = "", False
        elif not (self._reading or self._closed):
            # If it cannot be given back it counts as spent, which is safe; the first error must stay visible.
            try:
                self.cancel()
                note, charged = f"Nothing was charged: entry {self.entry} is cancelled.", False
            except ReplacedLedger:
                note, charged = f"No data was read, but {self._uncharged}", False
            except errors.DpunionError as problem:
                note = f"{note} The charge could not be cancelled: {problem.what}"
        if error is not None:
            error.add_note(errors.LedgerNote(note, self.facts | {"charged": charged}))


def new_account(
    name: str,
    epsilon: float,
    delta: float,
    composition: str | Composition | None = None,
    novelty_share: float | None = None,
    schedule: Schedule | None = None,
) -> Account:
    """Return the account of a new dataset; refuse a bad name, budget or schedule, before a ledger is opened."""
    from dpunion.ledger import schedules
    from dpunion.ledger.accounts import NOVELTY_SHARE, account_caps

    if NAME.fullmatch(name) is None:
        raise BadParameter(
            "A dataset's name must be at most 100 letters, digits, dots, dashes and underscores.",
            "Choose a plain name such as posts-2024.",
        )
    usual = Composition.ADDITIVE if schedule is None else Composition.TIGHT
    chosen = usual if composition is None else as_choice("composition", composition, Composition)
    share = (NOVELTY_SHARE if schedule is None else schedules.NOVELTY_SHARE) if novelty_share is None else novelty_share
    account = Account(name, chosen, account_caps(epsilon, delta, chosen, share), schedule=schedule)
    if schedule is not None and chosen is Composition.ADDITIVE:
        raise BadParameter("A schedule needs tight composition.", "Leave 'composition' (--composition) out.")
    if schedule is not None:
        schedule.check_for(account.caps)
    return account


def _priced(charge: Planned | Amounts) -> tuple[Amounts, dict[str, Any]]:
    if isinstance(charge, Amounts):
        if min(charge.values()) < 0:
            raise InternalError("a negative charge")
        return charge, {}
    from dpunion.ledger.accounts import charge_for

    return charge_for(charge), {"algorithm": charge.name} | charge.to_dict()


def _receipt(text: str) -> tuple[int, str]:
    match = RECEIPT.fullmatch(text.strip())
    if match is None:
        raise BadParameter(
            "A receipt must look like budget.db#17:0123456789abcdef.",
            "Copy it from a release's statement or from `show`.",
        )
    return int(match[1]), match[2]


def store_at(where: str | os.PathLike[str]) -> Store:
    """Return the database of an address.

    Guarantees: a text that looks like an address, but is of no known form, is refused, and not shown: it may have a
    password, and a file of that name would be another budget.
    """
    text = os.fspath(where).strip()
    address = Address.of(text)
    rest = text.partition(":")[2]
    if address.scheme in POSTGRESQL and rest.startswith("//"):
        return PostgresStore(f"postgresql:{rest}")
    if address.scheme or not address.is_known or set("=@").intersection(text):
        raise BadParameter(
            "The ledger's address is neither a path nor of the form postgresql://user@host/database. It is not "
            "shown here, as it may contain a password.",
            "Correct the address, or choose a path without '://', '=' and '@'.",
        )
    return SqliteStore(Path(where))
