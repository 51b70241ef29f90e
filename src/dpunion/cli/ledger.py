"""The commands ledger open, ledger show, ledger report and ledger verify."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from dpunion.cli import options
from dpunion.cli.answers import print_json, print_result, say, wrap
from dpunion.cli.help import Commands, command
from dpunion.cli.options import FILE, OUTPUT, Argument, Option
from dpunion.errors import BadParameter, BadSource, DamagedLedger, ForeignErrors, LedgerError

if TYPE_CHECKING:
    from dpunion.ledger import Amounts, Schedule

ALONE = "By tight composition, charges do not add up; each is that of its entry alone."
ITEMS_EACH = 10
"""The calendar shows how many people must have an item if each of them has this many items."""

where = Argument("where", "A file, or postgresql://user@host/database.", metavar="LEDGER")

OPEN_HELP = """Open a budget for a dataset, in a new or existing ledger. It cannot be changed later.

[bold]Examples[/bold]
  dpunion ledger open budget.db --dataset queries -e 10 -d 1e-5
  dpunion ledger open budget.db --dataset visits -e 10 -d 1e-5 --composition tight
  dpunion ledger open budget.db --dataset words -e 3 -d 1e-6 --schedule 52

A schedule divides the budget among a few releases, in weeks 1, 2, 4, 8, ... and the last. Each is made by
[cyan]dpunion release ... --scheduled[/cyan] from all rows so far."""

SHOW_HELP = """Show what each dataset has spent and has left, and every entry with its owner, title and purpose.

[bold]Examples[/bold]
  dpunion ledger show budget.db
  dpunion ledger show budget.db --json"""

REPORT_HELP = """Turn a ledger into a web page: the budget of each dataset, and the releases that spent it.

[bold]Examples[/bold]
  dpunion ledger report budget.db --out ledger.html"""

VERIFY_HELP = """Check the hash chain, all totals and the given receipts.

The exit code is 5 when rows were altered, and 3 when the ledger cannot be read.

[bold]Examples[/bold]
  dpunion ledger verify budget.db"""


@command(
    "open",
    OPEN_HELP,
    [
        where,
        Option("--dataset", "Name of the dataset.", metavar="NAME", required=True),
        Option("--epsilon -e", "Total epsilon of all releases.", float, required=True),
        Option("--delta -d", "Total delta of all releases.", float, required=True),
        Option(
            "--composition",
            "additive (the default without a schedule), or tight, which usually allows more releases.",
            Literal["additive", "tight"],
        ),
        Option("--schedule weeks", "Schedule releases over this many weeks.", int, metavar="WEEKS"),
        Option("--grow", "Schedule: ratio of each release's part to the previous one's. Default: 1.5.", float),
        Option("--start", "Schedule: first day of week 1, like 2027-01-04. Default: today, in UTC.", metavar="DAY"),
    ],
)
def ledger_open(where: str, dataset: str, epsilon: float, delta: float, composition: str | None, **given: Any) -> None:
    """Open the budget of a dataset."""
    from dpunion.ledger import Composition, Ledger, Schedule
    from dpunion.ledger.ledgers import new_account

    chosen = {name: value for name, value in given.items() if value is not None}
    if chosen and "weeks" not in chosen:
        raise BadParameter("--grow and --start are for a schedule.", "Add --schedule, or leave them out.")
    schedule = Schedule(**chosen) if chosen else None
    # Bad values are refused before a file is made.
    planned = new_account(dataset, epsilon, delta, composition, schedule=schedule)
    calendar = [] if schedule is None else _calendar(schedule, planned.caps, epsilon, delta)
    ledger = Ledger.open(where, create=True)
    account = ledger.create_dataset(dataset, epsilon, delta, composition, schedule=schedule)
    how = account.composition.value
    click.echo(f"Opened {dataset} in {ledger.name}: ({epsilon:g}, {delta:g}) in all, by {how} composition.", err=True)
    if calendar:
        say("\n".join(calendar))
    elif account.composition is Composition.ADDITIVE:
        _say_tight(epsilon, delta)


def _calendar(schedule: Schedule, caps: Amounts, epsilon: float, delta: float) -> list[str]:
    """Return the releases of a schedule, each with its part of the budget and how many people an item needs."""
    from dpunion.budget import WITHOUT_LEAVE, Budget
    from dpunion.chances import MOST_HOLDERS, find_needed
    from dpunion.ledger.schedules import is_too_small, share_of, today
    from dpunion.plans.look import USUAL, plan_share
    from dpunion.report.tables import lay_out, percent

    whole = Budget(epsilon, delta)
    leave = "" if whole.is_within(WITHOUT_LEAVE) else " --weak-budget"

    def needed(share: Amounts) -> str:
        try:
            plan = plan_share(share_of(share), whole, max_items_per_user=USUAL)
        except BadParameter:  # a small share, for which the look has fewer limits to choose from
            plan = plan_share(share_of(share), whole, max_items_per_user=ITEMS_EACH)
        return f"{find_needed(plan, [ITEMS_EACH])[0].even or MOST_HOLDERS:,}"

    rows = [("week", "from", "part of the budget", "people needed")]
    for week, share in zip(schedule.releases, schedule.shares(caps), strict=True):
        part = percent(share.mu_squared / caps.mu_squared)
        rows.append((str(week), str(schedule.first_day(week)), part, needed(share)))
    even = type(caps)(mu_squared=caps.mu_squared // schedule.weeks, novelty=caps.novelty // schedule.weeks)
    weekly = "no item would come out" if is_too_small(even) else f"an item would need about {needed(even)} people"
    week, begins = schedule.week_on(today()), schedule.first_day(1)
    past = f"Nothing is due until {begins}. " if week < 1 else ""
    if week > schedule.weeks:
        past = f"All {schedule.weeks} weeks since {begins} are over already: check --start. "
    elif week > 1:
        due = schedule.due_in(week) or 1
        part = percent(schedule.share(caps, due).mu_squared / caps.mu_squared)
        past = f"Today is in week {week}: the first run makes the release of week {due}, with {part} of the budget. "
    return [
        *("", *lay_out(rows, [False] * len(rows[0])), ""),
        f"People needed: if about this many people have an item, and {ITEMS_EACH} items each, it is released with a "
        "chance of one half. A release reads all rows so far.",
        f"If {schedule.weeks} weeks split the budget evenly, {weekly} in each week: among the rows of that week, or "
        f"among all rows so far. {past}Each week, run: dpunion release ... --scheduled{leave}",
    ]


def _say_tight(epsilon: float, delta: float) -> None:
    """Say how many releases of a tenth of epsilon tight composition would allow."""
    from dpunion.budget import Budget
    from dpunion.ledger.accounts import charge_for_plan
    from dpunion.ledger.ledgers import new_account
    from dpunion.plans import plan_release

    with contextlib.suppress(BadParameter):  # where a total is so small or large that there is no such release
        budget = Budget(epsilon / 10.0, delta / 100.0)
        charge = charge_for_plan(plan_release("weighted-gaussian", budget))
        more = new_account("any", epsilon, delta, "tight").more_like(charge)
        say(
            f"Tight composition (--composition tight) would allow about {more} releases of ({budget.epsilon:g}, "
            f"{budget.delta:g}) instead of 10, and --schedule shares a budget out over weeks. This dataset stays "
            "additive: open another one for that."
        )


@command("show", SHOW_HELP, [where, options.as_json])
def ledger_show(where: str, as_json: bool) -> None:
    """Show a ledger."""
    from dpunion.ledger import Composition, Ledger
    from dpunion.releases.formats import escape_controls
    from dpunion.report.tables import lay_out

    with _reading():
        found = Ledger.open(where).overview()
    if as_json:
        print_json(found.to_dict())
        return
    rows = [("dataset", "composition", "epsilon", "delta", "spent", "left")]
    for account in found.accounts:
        values = account.to_dict()
        numbers = (f"{values['epsilon']:g}", f"{values['delta']:g}", f"{values['spent_share']:.1%}")
        rows.append((escape_controls(values["dataset"]), values["composition"], *numbers, found.reach(account)))
    lines = lay_out(rows, [True] * len(rows[0]))
    if found.entries and any(one.composition is Composition.TIGHT for one in found.accounts):
        lines += ["", ALONE]
    # One block for each entry, so that 80 columns are enough.
    for entry in found.entries:
        lines += ["", *_entry_lines(entry.to_dict())]
    lines += ["", f"head {found.head}"]
    print_result(wrap("".join(f"{line.rstrip()}\n" for line in lines), sys.stdout))


def _entry_lines(values: dict[str, Any]) -> list[str]:
    """Return an entry as a block: its kind, and below it one line for each field."""
    from dpunion.releases.formats import escape_controls

    head = f"entry {values['entry']}  {escape_controls(values['dataset'])}  {values['state']}  {values['written']}"
    planned = values.get("schedule")
    fields = {
        "week": "" if planned is None else str(planned["week"]),
        "release": "" if not planned or planned["week"] == planned["release"] else f"of week {planned['release']}",
        "charge": f"({values['epsilon']:g}, {values['delta']:g})",
        **{name: values[name] for name in ("algorithm", "title", "owner", "note")},
    }
    lines = [f"  {name:<10}{escape_controls(text)}" for name, text in fields.items() if text]
    outputs = [each["path"] or f"SHA-256 {each['sha256'][:16]}" for each in values["outputs"]]
    return [head, *lines, *(f"  {'output':<10}{escape_controls(path)}" for path in outputs)]


def _reading() -> ForeignErrors:
    """Return a context in which an unreadable ledger is bad data; an altered ledger stays an error of the ledger."""

    def explain(error: LedgerError) -> BadSource | None:
        return None if isinstance(error, DamagedLedger) else BadSource(error.what, error.remedy)

    return ForeignErrors(explain, LedgerError, ours_too=True)


@command(
    "report",
    REPORT_HELP,
    [where, Option("--out -o", "Output page.", FILE, default=Path("ledger.html"), heading=OUTPUT), options.force],
)
def ledger_report(where: str, out: Path, force: bool) -> None:
    """Turn a ledger into a page."""
    from dpunion.ledger import Ledger
    from dpunion.reading.locate import refuse_overwriting
    from dpunion.report import check_page, ledger_page, write_page

    check_page(out, overwrite=force)
    refuse_overwriting(out, {"ledger": where})
    with _reading():
        ledger = Ledger.open(where)
        page = ledger_page(ledger.overview(), ledger.verify(), ledger.name)
    # The page names outputs and owners, so only the user who writes it may read it.
    write_page(out, page, overwrite=force, owner_only=True)
    click.echo(f"Written to {out}.", err=True)


@command(
    "verify",
    VERIFY_HELP,
    [
        where,
        Option("--receipt", "Receipt of a release, from its statement, that must be in the ledger.", multiple=True),
    ],
)
def ledger_verify(where: str, receipt: tuple[str, ...]) -> None:
    """Check a ledger."""
    from dpunion.ledger import Ledger

    with _reading():
        found = Ledger.open(where).verify(list(receipt))
    if found.problem is not None:
        raise DamagedLedger(
            found.problem, "Restore the ledger from a backup, and charge again all releases made since then."
        )
    there = {0: "", 1: " The receipt's entry is there."}.get(
        len(receipt), f" The entries of all {len(receipt)} receipts are there."
    )
    click.echo(f"All {found.rows} rows are in order.{there} Head: {found.head}")


ledger_commands = Commands(
    "ledger",
    [ledger_open, ledger_show, ledger_report, ledger_verify],
    help="Manage the privacy budget of each dataset: open | show | report | verify.",
    no_args_is_help=True,
)
