"""Schedules: the weeks in which a dataset's releases are made, and the part of its caps that each of them gets.

Each release reads all rows so far, sets aside what was released before, and gets its part of what is left. So a week
without a release costs nothing, and one that died costs the later ones a part (docs/ledger.md, "A schedule").
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from dpunion.budget import LARGEST_EPSILON, budget_for_release
from dpunion.checks import check_real, check_whole
from dpunion.errors import BadParameter, ForeignErrors, InternalError, LedgerError, NotDue
from dpunion.ledger.amounts import DELTA_UNITS, EPSILON_UNITS, MU_SQUARED_UNITS, Amounts
from dpunion.ledger.fingerprints import is_intact

if TYPE_CHECKING:
    from dpunion.ledger.events import Account, Entry
    from dpunion.plans import Plan
    from dpunion.plans.counts import Counts
    from dpunion.plans.look import LookPlan
    from dpunion.reading.known import KnownItems

NOVELTY_SHARE = 0.3
"""A schedule has few releases of known size: with this part of delta for novel items, thresholds are lowest."""
MOST_WEEKS = 1_040
UNREADABLE = frozenset({"", ".txt"})
"""Suffixes of outputs that the next release cannot read: a list of lines does not say since when."""
BELOW = 1.0 - 1e-11
"""The ledger rounds computed numbers up by a relative 1e-12."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When releases are made: in weeks 1, 2, 4, 8, ... and the last.

    weeks: how many weeks there are. grow: the part of each release over that of the one before. start: the first day of
    week 1, as a date or as text like 2027-01-04; by default the day when the account is opened, in UTC.
    """

    weeks: int
    grow: float = 1.5
    start: str | dt.date = ""

    def __post_init__(self) -> None:
        check_whole("a schedule", "weeks", self.weeks, 1, MOST_WEEKS, "Choose for how many weeks the budget lasts.")
        check_real("a schedule", "grow", self.grow, 0.1, 10.0, "Leave it out: 1.5 is right for most.")
        object.__setattr__(self, "start", as_day(self.start or dt.datetime.now(dt.UTC).date(), "start").isoformat())

    @property
    def releases(self) -> tuple[int, ...]:
        return (*(2**power for power in range(self.weeks.bit_length()) if 2**power < self.weeks), self.weeks)

    def first_day(self, week: int) -> dt.date:
        return as_day(self.start, "start") + dt.timedelta(weeks=week - 1)

    def week_on(self, day: dt.date) -> int:
        """Return the number of the week of a day; below 1 before the start."""
        return (day - self.first_day(1)).days // 7 + 1

    def due_in(self, week: int) -> int | None:
        """Return which release is due in a week: each is, until the next one is; None before the first."""
        return max((one for one in self.releases if one <= week), default=None)

    def share(self, left: Amounts, release: int) -> Amounts:
        """Return what a release may spend of what is left: its weight over that of all releases from it on.

        Guarantees: rounded down; the last release gets all that is left, so that all together reach the caps exactly.
        """
        count = len(self.releases) - self.releases.index(release)
        part = 1 / sum((Fraction(str(self.grow)) ** power for power in range(count)), Fraction(0))
        return Amounts(mu_squared=math.floor(left.mu_squared * part), novelty=math.floor(left.novelty * part))

    def shares(self, caps: Amounts) -> list[Amounts]:
        """Return what each release may spend, if every release is made and nothing else is charged."""
        found: list[Amounts] = []
        for release in self.releases:
            found.append(self.share(caps - sum(found, Amounts()), release))
        return found

    def check_for(self, caps: Amounts) -> None:
        """Refuse an account in which the releases would not fit, or whose budget no release may have."""
        from dpunion.calibration.rounding import EPSILON_SLACK
        from dpunion.ledger.accounts import ROUNDING_PART
        from dpunion.plans import STEPS

        worst = math.ceil(EPSILON_SLACK * (2 + STEPS) * EPSILON_UNITS) * len(self.releases)
        if worst > caps.rounding or caps.epsilon > LARGEST_EPSILON * EPSILON_UNITS:
            raise BadParameter(
                f"A schedule of {self.weeks} weeks needs an epsilon from {worst * ROUNDING_PART / EPSILON_UNITS:.3g} "
                f"to {LARGEST_EPSILON:g}.",
                "Choose another 'epsilon', or fewer weeks.",
            )
        for one in self.shares(caps):
            share_of(one)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Schedule:
        return cls(values["weeks"], values["grow"], str(values["start"]))


def as_day(day: object, name: str) -> dt.date:
    """Return a date, or a text like 2027-01-04, as a date."""
    wrong = BadParameter(f"The {name!r} parameter must be a day such as 2027-01-04.", "Write year, month and day.")
    if isinstance(day, dt.date) and not isinstance(day, dt.datetime):
        day = day.isoformat()
    with ForeignErrors(lambda _: wrong, TypeError, ValueError):
        if isinstance(day, str) and len(day) == len("2027-01-04") and day < "3000":  # later, a week may have no date
            return dt.date.fromisoformat(day)
    raise wrong


@dataclass(frozen=True, slots=True)
class Earlier:
    """What a schedule has released so far: a file and its SHA-256, None before the first release. week: of the next."""

    include: ClassVar[bool] = True

    source: Path | None
    sha256: str
    week: int

    def read(self, columns: Any, kind: Any, normalization: Any) -> KnownItems:
        """Return the items with the week in which each was released first; refuse a file that has changed."""
        from dpunion.reading.known import read_vocabulary

        return read_vocabulary(self.source, self.sha256, self.week, columns, kind, normalization)


@dataclass(frozen=True, slots=True)
class Due:
    """A release that is due. release: the week it was planned for. week: the week it is made in. share: its charge.

    account: before the charge. earlier: what was released before.
    """

    account: Account
    release: int
    week: int
    share: Amounts
    earlier: Earlier

    def plan(
        self, algorithm: object, counts: Counts | None, settings: dict[str, Any], *, weak_budget: bool
    ) -> Plan | LookPlan:
        """Fix every number of the release, from its share of the account."""
        from dpunion.plans.look import plan_share

        caps = self.account.caps
        whole = budget_for_release(caps.epsilon / EPSILON_UNITS, caps.delta / DELTA_UNITS, weak_budget=weak_budget)
        return plan_share(share_of(self.share), whole, algorithm, counts, **settings)

    def charge(self, computed: Amounts) -> Amounts:
        """Return the charge of the planned release: its share exactly, and for people its own (epsilon, delta).

        Guarantees: refuses a plan that costs more than the share.
        """
        share = self.share
        if computed.mu_squared > share.mu_squared or computed.novelty > share.novelty:
            raise InternalError("a scheduled release costs more than its share")
        epsilon = epsilon_alone(share, computed.rounding, self.account.caps)
        return dataclasses.replace(computed, epsilon=epsilon, mu_squared=share.mu_squared, novelty=share.novelty)


def share_of(share: Amounts) -> tuple[float, float]:
    """Return mu_squared and novelty to plan from: lower than the units by more than what rounding up a charge adds."""
    if is_too_small(share):
        raise BadParameter(
            "A release of this schedule would get too small a part of the budget.",
            "Choose a larger 'epsilon' and 'delta', fewer weeks, or a 'grow' nearer to 1.",
        )
    return share.mu_squared / MU_SQUARED_UNITS * BELOW, share.novelty / DELTA_UNITS * BELOW


def is_too_small(share: Amounts) -> bool:
    """Say whether a release with this share has no plan: rounding would take too much of it."""
    return share.mu_squared < 2 * 10**9 or share.novelty < 1_000


def epsilon_alone(share: Amounts, rounding: int, caps: Amounts) -> int:
    """Return the epsilon, in units, that a release has by itself at the account's delta; rounded up to 1e-4."""
    from dpunion.calibration.gaussian import GUARD, bisect
    from dpunion.kernels.normal import gaussian_delta

    mu, loss = math.sqrt(share.mu_squared / MU_SQUARED_UNITS), rounding / EPSILON_UNITS
    allowed = caps.delta / DELTA_UNITS * math.exp(-loss / 2.0) * (1.0 - GUARD) - share.novelty / DELTA_UNITS

    def holds(epsilon: float) -> bool:
        return bool(gaussian_delta(epsilon - loss, mu) <= allowed)

    epsilon = bisect(holds, loss, caps.epsilon / EPSILON_UNITS, 1e-9)
    return min(caps.epsilon, math.ceil(epsilon * 10**4) * (EPSILON_UNITS // 10**4))


def find_release(account: Account, entries: Iterable[Entry], day: dt.date, folder: Path | None) -> Due:
    """Return the release of a schedule that is due on a day; refuse a day without one, and lost or changed files.

    folder: where the files of earlier releases are, if not where they were written.

    Guarantees: which release is due, and its share, follow from the ledger and the day alone.
    """
    schedule, name = account.schedule, account.name
    if schedule is None:
        raise LedgerError(
            f"The dataset {name!r} has no schedule.", "Give 'epsilon' and 'delta', or open a dataset with --schedule."
        )
    week = schedule.week_on(day)
    made = [one for one in entries if one.dataset == name and one.release is not None and not one.is_cancelled]
    release = schedule.due_in(week)
    settled = sorted((one for one in made if one.is_settled), key=lambda one: one.release or 0)
    own = [one for one in settled if one.release == release]
    last = max((one.release or 0 for one in made), default=0)
    if release is None or last > release or (own and own[-1].details["schedule"]["week"] != week):
        refuse_day(account, schedule, week, last)
    if own:
        return Due(account, release, week, own[-1].charge, Earlier(None, "", week))  # the ledger will refuse it
    share = schedule.share(account.remaining, release)
    if is_too_small(share):
        # Other releases, or a run of the last one that has not settled, took it: the ledger refuses the usual share.
        share = schedule.shares(account.caps)[schedule.releases.index(release)]
    before = [one for one in settled if one.release == settled[-1].release]
    return Due(account, release, week, share, find_earlier(before, week, folder))


def refuse_day(account: Account, schedule: Schedule, week: int, last: int) -> NoReturn:
    """Say why a week has no release, and when the next one is due."""
    following = next((one for one in schedule.releases if one > max(week, last)), None)
    state = f"has no release due in week {week} once that of week {last} has begun" if last else "has not begun"
    when, remedy = "It is complete.", "Open a dataset with a new schedule; for people in both, the budgets add up."
    if following is not None:
        when = f"The next is that of week {following}, from {schedule.first_day(following)}."
        remedy = "Run it for that day or a later one, with another output."
    raise NotDue(f"The schedule of {account.name!r} {state}. {when} Nothing was charged.", remedy)


def find_earlier(entries: Sequence[Entry], week: int, folder: Path | None) -> Earlier:
    """Return a file of these entries that is as it was written, in `folder` under any name; refuse if there is none."""
    if not entries:
        return Earlier(None, "", week)
    if folder is not None and not folder.is_dir():
        raise BadParameter("There is no such folder with earlier releases.", "Check 'earlier' (--earlier).")
    kept = [one for entry in entries for one in entry.outputs if Path(one[0]).suffix.lower() not in UNREADABLE]
    for path, digest in kept:
        there = [] if folder is None else [one for one in sorted(folder.iterdir()) if one.suffix == Path(path).suffix]
        for candidate in (*there, Path(path)):
            if is_intact((str(candidate), digest)):
                return Earlier(candidate, digest, week)
    raise LedgerError(
        f"The list of the release before, entry {entries[-1].number}, is not where it was written, or it was changed: "
        f"{', '.join(path for path, _ in kept)}. Nothing was charged.",
        "Restore one of its files from a backup, or name the folder it is in: 'earlier' (--earlier).",
    )
