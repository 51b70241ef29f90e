"""The rows of a ledger, a chain of hashes; the state of every dataset and entry after reading them; the database.

`Store` says what a database must offer; `ChainReader` reads the rows, and `append` adds one, inside a transaction.
`Overview` says how far each budget reaches; the `refuse_` functions say why a release is not granted.
"""

from __future__ import annotations

import abc
import dataclasses
import datetime as dt
import enum
import hashlib
import json
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from dpunion import errors
from dpunion.checks import nearest
from dpunion.errors import ForeignErrors, LedgerError
from dpunion.ledger.amounts import COUNTED, DELTA_UNITS, EPSILON_UNITS, FIELDS, Amounts, Composition
from dpunion.ledger.schedules import Due, Schedule, today

CHAIN = "dpunion-ledger/1"
NO_HASH = "0" * 64
COLUMNS = ("sequence", "kind", "dataset", "entry", *FIELDS, "fingerprint", "details", "written", "hash")
_TEXTS = frozenset({"kind", "dataset", "fingerprint", "details", "written", "hash"})
UNREADABLE = "its details cannot be read"
MOST_NAMES = 20
WORDS = {"mu_squared": "Gaussian", "novelty": "novel-item", "rounding": "rounding"}

TABLE = "dpunion_ledger"
VERSION = 1
LONGEST_WAIT = 60  # seconds that a writer waits for the others
COLUMN_LIST = ", ".join(COLUMNS)
ALL_ROWS = f"SELECT {COLUMN_LIST} FROM {TABLE} ORDER BY sequence"  # noqa: S608 - constants only
APPEND = f"INSERT INTO {TABLE} ({COLUMN_LIST}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608
# subtle: no index, so there is no second copy of the rows that could disagree with the first.


class EventKind(enum.Enum):
    """What a row reports."""

    OPENED = "opened"
    RESERVED = "reserved"
    SETTLED = "settled"
    CANCELLED = "cancelled"


class EntryState(enum.Enum):
    """How far a release has come; the budget of all but cancelled ones is spent."""

    UNSETTLED = "unsettled"
    SETTLED = "settled"
    CANCELLED = "cancelled"


class BrokenChain(Exception):
    """A row is wrong; the text says why."""


@dataclass(frozen=True, slots=True)
class Event:
    """One row.

    entry: the sequence of the reservation that a settled or cancelled row closes, else 0. amounts: the caps of an
    opened dataset, the charge of a reservation, or minus that charge if it is cancelled. details: JSON, for people.
    written: the time on the writer's clock, for people; nothing depends on it.
    """

    sequence: int
    kind: EventKind
    dataset: str
    entry: int
    amounts: Amounts
    fingerprint: str
    details: str
    written: str
    hash: str = ""

    @classmethod
    def from_row(cls, row: tuple[Any, ...]) -> Event:
        """Read a row of the table; raise BrokenChain if a value is not of its column's type."""
        values = dict(zip(COLUMNS, row, strict=True))
        for name, value in values.items():
            # subtle: SQLite accepts text in an integer column.
            if type(value) is not (str if name in _TEXTS else int):
                raise BrokenChain(f"its {name} is of the wrong type")
        with ForeignErrors(lambda _: BrokenChain("its kind is unknown"), ValueError):
            kind = EventKind(values["kind"])
        amounts = Amounts(*(values[name] for name in FIELDS))
        rest = {name: values[name] for name in COLUMNS if name not in FIELDS and name != "kind"}
        return cls(kind=kind, amounts=amounts, **rest)

    def row(self) -> tuple[Any, ...]:
        """Return the values in the order of the table's columns."""
        head = (self.sequence, self.kind.value, self.dataset, self.entry)
        return (*head, *self.amounts.values(), self.fingerprint, self.details, self.written, self.hash)

    def hash_after(self, previous: str) -> str:
        """Return SHA-256 of the previous row's hash and this row, written as a JSON list of lists."""
        text = json.dumps([CHAIN, previous, self.row()[:-1]], separators=(",", ":"))
        return hashlib.sha256(text.encode("ascii")).hexdigest()


@dataclass(frozen=True, slots=True)
class Account:
    """A dataset's budget: how its releases add up, the most they may add up to, and what they have spent.

    schedule: when its releases are made, if the account was opened with one.
    """

    name: str
    composition: Composition
    caps: Amounts
    spent: Amounts = field(default_factory=Amounts)
    schedule: Schedule | None = None

    @property
    def remaining(self) -> Amounts:
        return self.caps - self.spent

    def covers(self, charge: Amounts) -> bool:
        return (self.spent + charge).fits(self.caps, self.composition)

    @property
    def spent_share(self) -> float:
        """Return the spent part of the budget: the largest part of the numbers that the composition adds up."""
        return max(_part(getattr(self.spent, name), getattr(self.caps, name)) for name in COUNTED[self.composition])

    def more_like(self, charge: Amounts) -> int:
        """Return how many more releases with this charge fit into the rest of the budget."""
        priced = [name for name in COUNTED[self.composition] if getattr(charge, name) > 0]
        return min((getattr(self.remaining, name) // getattr(charge, name) for name in priced), default=0)

    @classmethod
    def opened_by(cls, event: Event) -> Account:
        broken = BrokenChain("it opens a dataset without saying how its releases add up")
        with ForeignErrors(lambda _: broken, AttributeError, KeyError, TypeError, ValueError, ours_too=True):
            details = json.loads(event.details)
            schedule = Schedule.from_dict(details["schedule"]) if "schedule" in details else None
            return cls(event.dataset, Composition(details["composition"]), event.amounts, schedule=schedule)

    def to_dict(self) -> dict[str, Any]:
        """Return the account for people: totals, and the rest of each number that the composition adds up."""
        values: dict[str, Any] = {
            "dataset": self.name,
            "composition": self.composition.value,
            "epsilon": self.caps.epsilon / EPSILON_UNITS,
            "delta": self.caps.delta / DELTA_UNITS,
            "spent_share": self.spent_share,
        } | ({} if self.schedule is None else {"schedule": self.schedule.to_dict()})
        if self.composition is Composition.ADDITIVE:
            left = self.remaining
            return values | {"epsilon_left": left.epsilon / EPSILON_UNITS, "delta_left": left.delta / DELTA_UNITS}
        for name in COUNTED[self.composition]:
            values[f"{name}_left_share"] = _part(getattr(self.remaining, name), getattr(self.caps, name))
        return values


@dataclass(frozen=True, slots=True)
class Entry:
    """A release in the ledger: number, dataset, charge, state, and the (path, sha256) of its files.

    hash: that of its reserved row, by which the process that made it recognises it.
    """

    number: int
    hash: str
    dataset: str
    charge: Amounts
    fingerprint: str
    state: EntryState
    written: str
    details: dict[str, Any]
    outputs: tuple[tuple[str, str], ...] = ()

    @property
    def about(self) -> dict[str, Any]:
        """Return the description of the release, with title, owner and note; empty in older entries."""
        found = self.details.get("about")
        return found if isinstance(found, dict) else {}

    @property
    def is_settled(self) -> bool:
        return self.state is EntryState.SETTLED

    @property
    def is_cancelled(self) -> bool:
        return self.state is EntryState.CANCELLED

    @property
    def release(self) -> int | None:
        """Return the week for which a schedule planned this release; None for other releases."""
        found = self.details.get("schedule")
        return int(found["release"]) if isinstance(found, dict) else None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry for people."""
        return {
            "entry": self.number,
            "dataset": self.dataset,
            "state": self.state.value,
            **({} if self.release is None else {"schedule": self.details["schedule"]}),
            "epsilon": self.charge.epsilon / EPSILON_UNITS,
            "delta": self.charge.delta / DELTA_UNITS,
            "algorithm": self.details.get("plan", {}).get("algorithm", ""),
            "written": self.written,
            **{name: str(self.about.get(name, "")) for name in ("title", "owner", "note", "version")},
            **{name: list(map(str, self.about.get(name, []))) for name in ("sources", "columns")},
            "outputs": [{"path": path, "sha256": digest} for path, digest in self.outputs],
        }


@dataclass(slots=True)
class Book:
    """The state of all datasets and entries after reading the rows from the first to the last."""

    accounts: dict[str, Account] = field(default_factory=dict)
    entries: dict[int, Entry] = field(default_factory=dict)
    sequence: int = 0
    head: str = NO_HASH

    @property
    def receipt(self) -> str:
        return f"{self.sequence}:{self.head}"

    def copy(self) -> Book:
        """Return a copy that can read more rows without changing this one."""
        return dataclasses.replace(self, accounts=dict(self.accounts), entries=dict(self.entries))

    def read(self, event: Event) -> None:
        """Apply the next row, or raise BrokenChain with the reason why it cannot be the next."""
        if event.sequence != self.sequence + 1:
            raise BrokenChain(f"row {self.sequence + 1} is missing or out of order")
        if event.hash != event.hash_after(self.head):
            raise BrokenChain("its hash does not follow from the row and the one before")
        match event.kind:
            case EventKind.OPENED:
                if event.dataset in self.accounts:
                    raise BrokenChain("it opens a dataset for the second time")
                self.accounts[event.dataset] = Account.opened_by(event)
            case EventKind.RESERVED:
                self._reserve(event)
            case EventKind.SETTLED | EventKind.CANCELLED:
                self._close(event)
        self.sequence, self.head = event.sequence, event.hash

    def _reserve(self, event: Event) -> None:
        account = self.accounts.get(event.dataset)
        if account is None:
            raise BrokenChain("it spends from a dataset that was never opened")
        if min(event.amounts.values()) < 0 or not account.covers(event.amounts):
            raise BrokenChain("it grants more than was left")
        details = _details(event)
        self._spend(account, event.amounts)
        head = event.sequence, event.hash, event.dataset, event.amounts, event.fingerprint
        self.entries[event.sequence] = Entry(*head, EntryState.UNSETTLED, event.written, details)

    def _close(self, event: Event) -> None:
        entry = self.entries.get(event.entry)
        if entry is None or entry.dataset != event.dataset or entry.state is not EntryState.UNSETTLED:
            raise BrokenChain("it closes an entry that is not open")
        cancels = event.kind is EventKind.CANCELLED
        if event.amounts != (-entry.charge if cancels else Amounts()):
            raise BrokenChain("it gives back another amount than was taken")
        self._spend(self.accounts[event.dataset], event.amounts)
        state = EntryState.CANCELLED if cancels else EntryState.SETTLED
        self.entries[event.entry] = dataclasses.replace(entry, state=state, outputs=outputs_in(event.details))

    def _spend(self, account: Account, amounts: Amounts) -> None:
        self.accounts[account.name] = dataclasses.replace(account, spent=account.spent + amounts)


def _part(some: int, whole: int) -> float:
    return some / whole if whole else 0.0


def _details(event: Event) -> dict[str, Any]:
    with ForeignErrors(lambda _: BrokenChain(UNREADABLE), ValueError):
        values = json.loads(event.details)
    if not isinstance(values, dict):
        raise BrokenChain(UNREADABLE)
    return values


def outputs_in(details: str) -> tuple[tuple[str, str], ...]:
    """Return the (path, sha256) pairs of a settled row; a cancelled row has none."""
    with ForeignErrors(lambda _: BrokenChain(UNREADABLE), AttributeError, TypeError, ValueError):
        return tuple((str(path), str(digest)) for path, digest in json.loads(details).get("outputs", []))


@dataclass(frozen=True, slots=True)
class Overview:
    """All datasets and entries; head: `number:hash` of the last row, to be kept elsewhere too."""

    accounts: tuple[Account, ...]
    entries: tuple[Entry, ...]
    head: str

    def last_of(self, dataset: str) -> Entry | None:
        """Return the last release of a dataset that counts as spent."""
        spent = [one for one in self.entries if one.dataset == dataset and one.state is not EntryState.CANCELLED]
        return spent[-1] if spent else None

    def more_like_last(self, account: Account) -> int | None:
        """Return how many more releases like its last one a dataset covers; None before it, and with a schedule."""
        last = self.last_of(account.name)
        return None if last is None or account.schedule is not None else account.more_like(last.charge)

    def to_come(self, account: Account) -> tuple[int, ...]:
        """Return the weeks of a schedule's releases after the last one that was charged, from the one due today."""
        if (plan := account.schedule) is None:
            return ()
        made = (one.release or 0 for one in self.entries if one.dataset == account.name and not one.is_cancelled)
        last, due = max(made, default=0), plan.due_in(plan.week_on(today())) or 0
        return tuple(week for week in plan.releases if week > last and week >= due)

    def reach(self, account: Account) -> str:
        """Say how far the rest of a budget reaches."""
        if (plan := account.schedule) is not None:
            if weeks := self.to_come(account):
                later = f", {len(weeks) - 1} later" if weeks[1:] else ""
                return f"week {weeks[0]} from {plan.first_day(weeks[0])}{later}"
            last = self.last_of(account.name)
            return (
                "nothing: it is complete" if last and last.is_settled else f"nothing: week {plan.weeks} did not settle"
            )
        more = self.more_like_last(account)
        if more is None:
            return "all of it"
        return f"about {more:,} more like the last one" if more else "not enough for another like the last one"

    def datasets(self) -> list[dict[str, Any]]:
        """Return the datasets as plain values, each with the rest of its budget and how far it reaches."""
        return [
            one.to_dict() | {"more_like_the_last": self.more_like_last(one), "weeks_to_come": list(self.to_come(one))}
            for one in self.accounts
        ]

    def to_dict(self) -> dict[str, Any]:
        entries = [entry.to_dict() for entry in self.entries]
        return {"datasets": self.datasets(), "entries": entries, "head": self.head}


def refuse_repeat(
    ledger: str,
    same: list[Entry],
    sources: list[dict[str, Any]] | None,
    remedy: str = "Use the files that were written then, or make and charge it again with --charge-again.",
) -> None:
    """Refuse a release if an entry in `same` is settled, or else if one is unsettled; name the last such entry."""
    last = {entry.state: entry for entry in same}
    if (entry := last.get(EntryState.SETTLED)) is not None:
        then = entry.details.get("sources")
        changed = None if not then or not sources else then != sources
        since = " The source has changed since." if changed else ""
        problem = errors.AlreadyReleased(
            f"The same release was made before: entry {ledger}#{entry.number}. Nothing was charged.{since}", remedy
        )
        problem.entry, problem.outputs = f"{ledger}#{entry.number}", entry.outputs
        problem.source_changed = changed
        raise problem
    if (entry := last.get(EntryState.UNSETTLED)) is not None:
        raise errors.UnfinishedRelease(
            f"An earlier run of the same release, entry {ledger}#{entry.number}, has not finished: it is "
            "still running, or it died. Its budget counts as spent, and nothing more was charged.",
            "Wait for it. If it died, charge again with --charge-again.",
        )


def refuse_second(ledger: str, week: int, entries: list[Entry], release_fingerprint: str, details: Any) -> None:
    """Refuse a release of a schedule that was made; --charge-again allows it only if no earlier run of it has settled.

    Guarantees: it also refuses if a later release has begun, so that each release continues the one before it; and,
    without --charge-again, if it reads other columns than the previous one.
    """
    again, reads = details["charge_again"], details["about"].get("reads")
    if later := [entry for entry in entries if (entry.release or 0) > week and not entry.is_cancelled]:
        raise errors.NotDue(
            f"A later release of the schedule has begun: entry {ledger}#{later[-1].number}. Nothing was charged.",
            "Make the releases of a schedule one after the other.",
        )
    same = [entry for entry in entries if entry.release == week]
    made = [entry for entry in same if entry.is_settled]
    for entry in made:
        if entry.fingerprint != release_fingerprint:
            raise LedgerError(
                f"The release of week {week} was made with other options: entry {ledger}#{entry.number}. Nothing was "
                "charged.",
                "A schedule has one release for each of its weeks: use the files of that entry.",
            )
    if made or not again:
        refuse_repeat(ledger, same, None, "Use the files that were written then; later rows are in the next release.")
    before = next((one for one in reversed(entries) if one.release and one.is_settled), None)
    then = before and before.about.get("reads")
    if before and then and reads and reads != then and not again:
        parts = [
            f"{name} {then.get(name)!r}, now {value!r}" for name, value in reads.items() if then.get(name) != value
        ]
        raise LedgerError(
            f"The previous release, entry {ledger}#{before.number}, read other columns, or spelled items otherwise: "
            f"{'; '.join(parts)}. Nothing was charged.",
            "One budget is for the same users and one kind of items: read what it read. To change it, --charge-again.",
        )


def refuse_dataset(ledger: str, name: str, known: list[str]) -> NoReturn:
    """Refuse a dataset that was never opened; name those that exist, which the operator chose, and a similar one."""
    near = nearest(name, known)
    guess = "" if near is None else f"Did you mean {near!r}? "
    names = ", ".join(map(repr, known[:MOST_NAMES])) + (" and more" if len(known) > MOST_NAMES else "")
    raise LedgerError(
        f"The ledger {ledger} has no dataset {name!r}. It has: {names or 'none'}.",
        f"{guess}Open a new one with `dpunion ledger open`, or list them with `dpunion ledger show`.",
    )


def refuse_charge(account: Account, charge: Amounts, due: Due | None = None) -> NoReturn:
    """Refuse a charge; say how much it asks for and how much is left. due: for a release of a schedule."""
    left = account.remaining
    if due is not None and due.account.spent != account.spent:
        raise LedgerError(
            f"Another release of {account.name!r} began while this one was planned. Nothing was charged for this one.",
            "Run it again: it is then planned with what is left.",
        )
    parts = [
        f"{getattr(charge, name) / max(1, getattr(account.caps, name)):.3%} of the {WORDS[name]} budget "
        f"({getattr(left, name) / max(1, getattr(account.caps, name)):.3%} is left)"
        for name in COUNTED[Composition.TIGHT]
        if getattr(charge, name) > getattr(left, name)
    ]
    if account.composition is Composition.ADDITIVE:
        parts = [f"(epsilon, delta) = {pair(charge)}, and {pair(left)} is left"]
    other = "use a smaller epsilon or delta" if account.schedule is None else "make those of the schedule (--scheduled)"
    if due is not None or not all(getattr(left, name) for name in COUNTED[account.composition]):
        other = "open another dataset, with a budget of its own, for a new period"
    raise errors.BudgetExhausted(
        f"The budget of dataset {account.name!r} does not cover this release: it asks for {' and '.join(parts)}.",
        f"Do not make this release: it would break the promise made for this data. Instead, {other}.",
    )


def pair(amounts: Amounts) -> str:
    """Write (epsilon, delta) for people."""
    return f"({amounts.epsilon / EPSILON_UNITS:.9g}, {amounts.delta / DELTA_UNITS:.9g})"


# --- the database -----------------------------------------------------------------------------------------------


def table_definition(integer: str) -> str:
    """Return the statement that creates the table; only cancelled rows have negative amounts."""
    amounts = ", ".join(f"{name} {integer} NOT NULL CHECK ({name} >= 0 OR kind = 'cancelled')" for name in FIELDS)
    return (
        f"CREATE TABLE {TABLE} (sequence {integer} PRIMARY KEY CHECK (sequence > 0), kind TEXT NOT NULL, "
        f"dataset TEXT NOT NULL, entry {integer} NOT NULL, {amounts}, fingerprint TEXT NOT NULL, "
        "details TEXT NOT NULL, written TEXT NOT NULL, hash TEXT NOT NULL)"
    )


class Session(Protocol):
    """An open transaction."""

    def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement, with ? for each value, and return its rows."""


class Store(abc.ABC):
    """A database with a ledger in it.

    Guarantees:
    - a write transaction sees every row committed before it began, and no other one runs at the same time;
    - when the block ends without an exception, its rows are on disk;
    - when anything fails, the caller gets an error, whether or not the rows were written.
    """

    name: str
    """Its name in public statements, without password or host."""

    @abc.abstractmethod
    def prepare(self, *, create: bool) -> None:
        """Check that there is a ledger of this version, or create one."""

    @abc.abstractmethod
    def transaction(self, *, write: bool) -> AbstractContextManager[Session]:
        """Open a transaction; commit it when the block ends without an exception."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close the connection, if one is kept between transactions."""

    def check_storage(self) -> str | None:
        """Return the problem that the database finds in its storage, or None; a server checks its own."""
        return None


class ChainReader:
    """Reads the chain, and caches the rows that it has checked, so that it checks only new ones.

    Guarantees:
    - every row is read and, unless it is byte for byte a row that was checked before, checked;
    - rows that the transaction itself wrote are not cached, as it may be rolled back.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._known: tuple[list[tuple[Any, ...]], Book] = ([], Book())

    def replay(self, session: Session, found: dict[int, str] | None = None) -> tuple[Book, str | None]:
        """Return the state after the last right row, and what is wrong with the next; `found` gets all hashes."""
        rows = session.run(ALL_ROWS)
        known, book = self._known
        if found is not None or rows[: len(known)] != known:
            known, book = [], Book()
        book = book.copy()
        for number, row in enumerate(rows[len(known) :], len(known) + 1):
            try:
                book.read(Event.from_row(row))
            except BrokenChain as broken:
                return book, f"Row {number} of {self._name} is wrong: {broken}."
            if found is not None:
                found[book.sequence] = book.head
        self._known = (rows, book.copy())
        return book, None

    def book(self, session: Session) -> Book:
        """Return the state after the last row; raise DamagedLedger if a row is wrong."""
        book, problem = self.replay(session)
        if problem is not None:
            raise errors.DamagedLedger(problem, "Run `dpunion ledger verify`, and restore the ledger from a backup.")
        return book


def append(
    session: Session,
    book: Book,
    kind: EventKind,
    dataset: str,
    amounts: Amounts,
    *,
    entry: int = 0,
    fingerprint: str = "",
    details: dict[str, Any],
) -> Event:
    """Append a row to the chain, which `book` has read in this transaction."""
    text, now = json.dumps(details, separators=(",", ":")), dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    event = Event(book.sequence + 1, kind, dataset, entry, amounts, fingerprint, text, now)
    chained = Event.from_row((*event.row()[:-1], event.hash_after(book.head)))
    session.run(APPEND, *chained.row())
    return chained
