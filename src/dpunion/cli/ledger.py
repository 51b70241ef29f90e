"""The commands ledger open, ledger show, ledger report and ledger verify."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dpunion.cli.answers import answering, print_json
from dpunion.cli.options import OUTPUT, AsJson, Force
from dpunion.errors import BadSource, DamagedLedger, ForeignErrors, LedgerError

ledger_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Manage the privacy budget of each dataset: open | show | report | verify.",
)

WIDEST = 10_000
SAID = ("title", "owner", "note")

Where = Annotated[str, typer.Argument(metavar="LEDGER", help="A file, or postgresql://user@host/database.")]

OPEN_HELP = """Open a budget for a dataset, in a new or existing ledger. It cannot be changed later.

[bold]Examples[/bold]

  [cyan]dpunion ledger open budget.db --dataset queries -e 10 -d 1e-5[/cyan]

  [cyan]dpunion ledger open budget.db --dataset visits -e 10 -d 1e-5 --composition tight[/cyan]"""

SHOW_HELP = """Show what each dataset has spent and has left, and every entry with its owner, title and purpose.

[bold]Examples[/bold]

  [cyan]dpunion ledger show budget.db[/cyan]

  [cyan]dpunion ledger show budget.db --json[/cyan]"""

REPORT_HELP = """Turn a ledger into a web page: the budget of each dataset, and the releases that spent it.

[bold]Examples[/bold]

  [cyan]dpunion ledger report budget.db --out ledger.html[/cyan]"""

VERIFY_HELP = """Check the hash chain, all totals and the given receipts.

The exit code is 5 when rows were altered, and 3 when the ledger cannot be read.

[bold]Examples[/bold]

  [cyan]dpunion ledger verify budget.db[/cyan]"""


@ledger_app.command("open", help=OPEN_HELP)
@answering
def ledger_open(
    where: Where,
    dataset: Annotated[str, typer.Option("--dataset", help="Name of the dataset.")],
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="Total epsilon of all releases.")],
    delta: Annotated[float, typer.Option("--delta", "-d", help="Total delta of all releases.")],
    composition: Annotated[
        str, typer.Option("--composition", help="additive, or tight, which usually allows more releases.")
    ] = "additive",
) -> None:
    """Open a dataset's budget."""
    from dpunion.ledger import Ledger
    from dpunion.ledger.ledgers import new_account

    new_account(dataset, epsilon, delta, composition)  # refuses bad values before a file is made
    ledger = Ledger.open(where, create=True)
    ledger.create_dataset(dataset, epsilon, delta, composition)
    typer.echo(
        f"Opened {dataset} in {ledger.name}: ({epsilon:g}, {delta:g}) in all, by {composition} composition.", err=True
    )


@ledger_app.command("show", help=SHOW_HELP)
@answering
def ledger_show(where: Where, as_json: AsJson = False) -> None:
    """Show a ledger."""
    from dpunion.ledger import Ledger

    with _reading():
        found = Ledger.open(where).overview()
    if as_json:
        print_json(found.to_dict())
        return
    from rich.console import Console

    # Into a pipe or a file nothing is cut.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDEST)
    console.print(_budgets(found.datasets()))
    entries = [entry.to_dict() for entry in found.entries]
    if entries:
        console.print()
        console.print(_entries(entries))
    console.print(f"\nhead {found.head}", style="dim")


def _budgets(datasets: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    from dpunion.ledger.events import reach_in_words

    table = Table("dataset", "composition", "epsilon", "delta", "spent", "left", box=None, pad_edge=False)
    for values in datasets:
        table.add_row(
            _shown(values["dataset"]),
            values["composition"],
            f"{values['epsilon']:g}",
            f"{values['delta']:g}",
            f"{values['spent_share']:.1%}",
            reach_in_words(values["more_like_the_last"]),
        )
    return table


def _entries(entries: list[dict[str, Any]]) -> Any:
    """Return the table of entries; what nobody said of any of them has no column."""
    from rich.table import Table

    said = [name for name in SAID if any(values[name] for values in entries)]
    names = ["entry", "dataset", "state", "epsilon", "delta", "algorithm", "written", *said]
    table = Table(*names, "output", box=None, pad_edge=False)
    for values in entries:
        outputs = "\n".join(_shown(each["path"] or each["sha256"][:16]) for each in values["outputs"])
        cells = (f"{values[k]:g}" if isinstance(values[k], float) else _shown(str(values[k])) for k in names)
        table.add_row(*cells, outputs)
    return table


def _reading() -> ForeignErrors:
    """Return a context in which a ledger that cannot be read is bad data, and only an altered one is the ledger's."""

    def explain(error: LedgerError) -> BadSource | None:
        return None if isinstance(error, DamagedLedger) else BadSource(error.what, error.remedy)

    return ForeignErrors(explain, LedgerError, ours_too=True)


def _shown(text: str) -> str:
    """Show what others wrote as text: neither as markup nor as commands to the terminal."""
    from rich.markup import escape

    from dpunion.releases.formats import escape_controls

    return str(escape(escape_controls(text)))


@ledger_app.command("report", help=REPORT_HELP)
@answering
def ledger_report(
    where: Where,
    out: Annotated[Path, typer.Option("--out", "-o", help="Output page.", rich_help_panel=OUTPUT)] = Path(
        "ledger.html"
    ),
    force: Force = False,
) -> None:
    """Turn a ledger into a page."""
    from dpunion.ledger import Ledger
    from dpunion.reading.overlaps import refuse_overwriting
    from dpunion.report import check_page, ledger_page, write_page

    check_page(out, overwrite=force)
    refuse_overwriting(out, {"ledger": where})
    with _reading():
        ledger = Ledger.open(where)
        page = ledger_page(ledger.overview(), ledger.verify(), ledger.name)
    # Outputs and owners are named: not for everybody to read.
    write_page(out, page, overwrite=force, owner_only=True)
    typer.echo(f"Written to {out}.", err=True)


@ledger_app.command("verify", help=VERIFY_HELP)
@answering
def ledger_verify(
    where: Where,
    receipt: Annotated[
        list[str] | None,
        typer.Option("--receipt", help="Receipt of a release, from its statement, that must be in the ledger."),
    ] = None,
) -> None:
    """Check a ledger."""
    from dpunion.ledger import Ledger

    with _reading():
        found = Ledger.open(where).verify(receipt or [])
    if found.problem is not None:
        raise DamagedLedger(
            found.problem, "Restore the ledger from a backup, and charge again all releases made since then."
        )
    there = {0: "", 1: " The receipt's entry is there."}.get(
        len(receipt or []), f" The entries of all {len(receipt or [])} receipts are there."
    )
    typer.echo(f"All {found.rows} rows are in order.{there} Head: {found.head}")
