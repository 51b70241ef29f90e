"""Schedules: the weeks in which a dataset's releases are made, and the part of its caps that each of them gets.

Each release reads all rows so far, sets aside what was released before, and gets its part of what is left. So a week
without a release costs nothing, and one that died costs the later ones a part (docs/ledger.md, "A schedule").
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from dpunion.budget import LARGEST_EPSILON, Budget, budget_for_release
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
NO_LIST = "none"
"""This as `earlier` stands for an empty list."""
UNREADABLE = frozenset({"", ".txt"})
"""Suffixes of outputs that the next release cannot read: a list of lines does not say since when."""
BELOW = 1.0 - 1e-11
"""The ledger rounds computed numbers up by a relative 1e-12."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When releases are made: in weeks 1, 2, 4, 8, ... and the last.

    weeks: how many weeks there are. grow: the part of each release over the previous one's. start: the first day of
    week 1, as a date or as text like 2027-01-04; by default the day when the account is opened, in UTC.
    """

    weeks: int
    grow: float = 1.5
    start: str | dt.date = ""

    def __post_init__(self) -> None:
        check_whole("a schedule", "weeks", self.weeks, 1, MOST_WEEKS, "Choose for how many weeks the budget lasts.")
        check_real("a schedule", "grow", self.grow, 0.1, 10.0, "Leave it out: 1.5 is right for most.")
        object.__setattr__(self, "start", as_day(self.start or today(), "start").isoformat())

    @property
    def releases(self) -> tuple[int, ...]:
        return (*(2**power for power in range(self.weeks.bit_length()) if 2**power < self.weeks), self.weeks)

    def first_day(self, week: int) -> dt.date:
        return as_day(self.start, "start") + dt.timedelta(weeks=week - 1)

    def week_on(self, day: dt.date) -> int:
        """Return the number of the week of a day; below 1 before the start."""
        return (day - self.first_day(1)).days // 7 + 1

    def due_in(self, week: int) -> int | None:
        """Return the release that is due in a week, the last one planned by then; None before the first."""
        return max((one for one in self.releases if one <= week), default=None)

    def share(self, left: Amounts, release: int) -> Amounts:
        """Return a release's part of what is left: its weight divided by that of it and all later releases.

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
        Budget(caps.epsilon / EPSILON_UNITS, caps.delta / DELTA_UNITS)
        for one in self.shares(caps):
            share_of(one)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Schedule:
        return cls(values["weeks"], values["grow"], str(values["start"]))


class ScheduleNote(UserWarning):
    """The operator should look at an earlier release: a file of it was changed, or it has not finished."""


def today() -> dt.date:
    """Return the day of the clock, in UTC."""
    return dt.datetime.now(dt.UTC).date()


def as_day(day: object, name: str) -> dt.date:
    """Return a date, or a text like 2027-01-04, as a date."""
    wrong = BadParameter(
        f"The {name!r} parameter must be a day such as 2027-01-04.", "Write a day before the year 3000."
    )
    if isinstance(day, dt.date) and not isinstance(day, dt.datetime):
        day = day.isoformat()
    with ForeignErrors(lambda _: wrong, TypeError, ValueError):
        if isinstance(day, str) and len(day) == len("2027-01-04") and day < "3000":  # later, a week may have no date
            return dt.date.fromisoformat(day)
    raise wrong


@dataclass(frozen=True, slots=True)
class Earlier:
    """What a schedule has released so far: a file (None at first) and its SHA-256. week: that of the next release."""

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
    """Return mu_squared and novelty to plan from: slightly less than the share, as the charge is rounded up."""
    if is_too_small(share):
        raise BadParameter(
            "A release of this schedule would get too small a part of the budget.",
            "Open a dataset with a larger 'epsilon' and 'delta', fewer weeks, or a 'grow' nearer to 1.",
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


def find_release(account: Account, entries: Iterable[Entry], day: dt.date, named: Path | None) -> Due:
    """Return the release of a schedule that is due on a day; refuse a day without one, and lost or changed files.

    named: as in `find_earlier`.

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
        refuse_day(account, schedule, week, last, made=settled[-1].release if settled else None)
    if own:
        return Due(account, release, week, own[-1].charge, Earlier(None, "", week))  # the ledger will refuse it
    if week > schedule.weeks and last < release:  # a wrong day would spend all that is left
        raise LedgerError(
            f"On {day}, the {schedule.weeks} weeks of {name!r} since {schedule.start} are over. Its last release, "
            "which takes all that is left of the budget, is not made. Nothing was charged.",
            f"Check the day. To make this release now, give its day: 'on' (--on {schedule.first_day(release)}).",
        )
    share = schedule.share(account.remaining, release)
    usual = schedule.shares(account.caps)[schedule.releases.index(release)]
    if is_too_small(share) and not account.covers(usual):
        share = usual  # other charges, or an unsettled run of the last release, used it up: the ledger will refuse this
    after = settled[-1].release or 0 if settled else 0
    if unfinished := [one for one in made if not one.is_settled and after < (one.release or 0) < release]:
        said = f"The release of week {unfinished[-1].release}, entry {unfinished[-1].number}, has not finished. If it "
        said += "still runs, stop this one and wait: the items that it finds would be missing in all later lists."
        warnings.warn(ScheduleNote(said), stacklevel=2)
    return Due(account, release, week, share, find_earlier(settled, week, named))


def refuse_day(account: Account, schedule: Schedule, week: int, last: int, *, made: int | None) -> NoReturn:
    """Say why a week has no release, and when the next is due. last, made: the last that began, and that settled."""
    following = next((str(schedule.first_day(one)) for one in schedule.releases if one > max(week, last)), None)
    what, remedy = f"Nothing is due in week {week}: the release of week {last} has begun already.", "Run it then."
    if not last:
        what = f"Nothing is due: the first of the {schedule.weeks} weeks has not begun."
    if following is None:
        remedy = "Open a dataset with a new schedule; for people in both, the budgets add up."
    if complete := made == schedule.weeks:
        what = f"The schedule is complete: its last release, that of week {made}, is made."
    when = f" The next release is due from {following}." if following else ""
    problem = NotDue(f"{what}{when} Nothing was charged to {account.name!r}.", remedy)
    problem.next_day, problem.complete = following, complete
    raise problem


def find_earlier(settled: Sequence[Entry], week: int, named: Path | None) -> Earlier:
    """Return the list to continue: of the last of these entries, from a file that is as it was written.

    named: a folder to search, in which files may have other names; a file, which may be the list of any of these
    entries; NO_LIST; or None.
    """
    if not settled or str(named) == NO_LIST:
        return Earlier(None, "", week)
    is_file = named is not None and named.is_file()
    if named is not None and not is_file and not named.is_dir():
        raise BadParameter("There is no such file or folder with earlier releases.", "Check 'earlier' (--earlier).")
    before = [one for one in settled if is_file or one.release == settled[-1].release]
    kept = [one for entry in before for one in entry.outputs if Path(one[0]).suffix.lower() not in UNREADABLE]
    places = [] if named is None else [named] if is_file else sorted(named.rglob("*"))
    there = ((str(one), digest) for path, digest in kept for one in places if one.suffix == Path(path).suffix)
    found = next(filter(is_intact, there), None)
    if found is None and not is_file:
        sound = dict(filter(is_intact, kept))
        found = next(iter(sound.items()), None)
        changed = sorted({path for path, _ in kept if Path(path).is_file()} - set(sound))
        if found is not None and changed:
            said = f"A file of the previous release was changed: {', '.join(changed)}. Restore it from {found[0]}."
            warnings.warn(ScheduleNote(said), stacklevel=2)
    if found is not None:
        return Earlier(Path(found[0]), found[1], week)
    what = f"The list of the previous release, entry {settled[-1].number}, is not where it was written, or has changed"
    what += f": {', '.join(path for path, _ in kept)}.{'' if named is None else f' Nor is it in {named}.'}"
    raise LedgerError(
        f"{f'{named} is no list that this schedule wrote.' if is_file else what} Nothing was charged.",
        "Restore one of its files, or name the folder it is in: 'earlier' (--earlier). If all are lost, continue an "
        f"older list (--earlier FILE) or an empty one (--earlier {NO_LIST}).",
    )
