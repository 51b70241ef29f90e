"""The commands ledger open, ledger show, ledger report and ledger verify."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import click

from dpunion.cli import options
from dpunion.cli.answers import print_json
from dpunion.cli.help import Commands, command
from dpunion.cli.options import FILE, OUTPUT, Argument, Option
from dpunion.errors import BadSource, DamagedLedger, ForeignErrors, LedgerError

WIDEST = 10_000
ABOUT = ("title", "owner", "note")

where = Argument("where", "A file, or postgresql://user@host/database.", metavar="LEDGER")

OPEN_HELP = """Open a budget for a dataset, in a new or existing ledger. It cannot be changed later.

[bold]Examples[/bold]
  dpunion ledger open budget.db --dataset queries -e 10 -d 1e-5
  dpunion ledger open budget.db --dataset visits -e 10 -d 1e-5 --composition tight"""

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
            "additive, or tight, which usually allows more releases.",
            Literal["additive", "tight"],
            default="additive",
        ),
    ],
)
def ledger_open(where: str, dataset: str, epsilon: float, delta: float, composition: str) -> None:
    """Open the budget of a dataset."""
    from dpunion.ledger import Ledger
    from dpunion.ledger.ledgers import new_account

    new_account(dataset, epsilon, delta, composition)  # refuses bad values before it makes a file
    ledger = Ledger.open(where, create=True)
    ledger.create_dataset(dataset, epsilon, delta, composition)
    click.echo(
        f"Opened {dataset} in {ledger.name}: ({epsilon:g}, {delta:g}) in all, by {composition} composition.", err=True
    )


@command("show", SHOW_HELP, [where, options.as_json])
def ledger_show(where: str, as_json: bool) -> None:
    """Show a ledger."""
    from dpunion.ledger import Ledger

    with _reading():
        found = Ledger.open(where).overview()
    if as_json:
        print_json(found.to_dict())
        return
    from rich.console import Console
    from rich.table import Table

    from dpunion.ledger.events import reach_in_words

    # In a pipe or a file nothing is cut.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDEST)
    budgets = Table("dataset", "composition", "epsilon", "delta", "spent", "left", box=None, pad_edge=False)
    for values in found.datasets():
        numbers = (f"{values['epsilon']:g}", f"{values['delta']:g}", f"{values['spent_share']:.1%}")
        left = reach_in_words(values["more_like_the_last"])
        budgets.add_row(_escape(values["dataset"]), values["composition"], *numbers, left)
    console.print(budgets)
    entries = [entry.to_dict() for entry in found.entries]
    if entries:
        # Title, owner and note have a column only if an entry has one.
        about = [name for name in ABOUT if any(values[name] for values in entries)]
        names = ["entry", "dataset", "state", "epsilon", "delta", "algorithm", "written", *about]
        table = Table(*names, "output", box=None, pad_edge=False)
        for values in entries:
            outputs = "\n".join(_escape(each["path"] or each["sha256"][:16]) for each in values["outputs"])
            cells = (f"{values[k]:g}" if isinstance(values[k], float) else _escape(str(values[k])) for k in names)
            table.add_row(*cells, outputs)
        console.print()
        console.print(table)
    console.print(f"\nhead {found.head}", style="dim")


def _reading() -> ForeignErrors:
    """Return a context in which an unreadable ledger is bad data; an altered ledger stays an error of the ledger."""

    def explain(error: LedgerError) -> BadSource | None:
        return None if isinstance(error, DamagedLedger) else BadSource(error.what, error.remedy)

    return ForeignErrors(explain, LedgerError, ours_too=True)


def _escape(text: str) -> str:
    """Return text of other people so that it is shown as text, not as markup or commands to the terminal."""
    from rich.markup import escape

    from dpunion.releases.formats import escape_controls

    return str(escape(escape_controls(text)))


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
