"""The commands ledger open, ledger show and ledger verify."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from dpunion.cli.answers import answering, print_json
from dpunion.cli.options import AsJson

ledger_app = typer.Typer(no_args_is_help=True, help="The privacy budget of each dataset: open | show | verify.")

WIDEST = 10_000

Where = Annotated[str, typer.Argument(metavar="LEDGER", help="A file, or postgresql://user@host/database.")]


@ledger_app.command("open")
@answering
def ledger_open(
    where: Where,
    dataset: Annotated[str, typer.Option("--dataset", help="The name of the dataset.")],
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="What all its releases may use together.")],
    delta: Annotated[float, typer.Option("--delta", "-d", help="What all its releases may use together.")],
    composition: Annotated[str, typer.Option("--composition", help="additive or tight.")] = "additive",
) -> None:
    """Open a dataset's budget, in a new ledger or one that exists. It cannot be changed later."""
    from dpunion.ledger import Ledger

    ledger = Ledger.open(where, create=True)
    ledger.create_dataset(dataset, epsilon, delta, composition)
    typer.echo(
        f"Opened {dataset} in {ledger.name}: ({epsilon:g}, {delta:g}) in all, by {composition} composition.", err=True
    )


@ledger_app.command("show")
@answering
def ledger_show(where: Where, as_json: AsJson = False) -> None:
    """Show what is spent and left of each dataset, and every entry."""
    from dpunion.ledger import Ledger

    found = Ledger.open(where).overview()
    accounts = [account.to_dict() for account in found.accounts]
    entries = [entry.to_dict() for entry in found.entries]
    if as_json:
        print_json({"datasets": accounts, "entries": entries, "head": found.head})
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from dpunion.formats import escape_controls

    def shown(text: str) -> str:
        """Show what others wrote as text: neither as markup nor as commands to the terminal."""
        return escape(escape_controls(text))

    # Into a pipe or a file nothing is cut.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDEST)
    budgets = Table("dataset", "composition", "epsilon", "delta", "left", box=None, pad_edge=False)
    for values in accounts:
        left = ", ".join(
            f"{name.removesuffix('_share').removesuffix('_left').replace('_', ' ')} "
            + (f"{value:.1%}" if name.endswith("_share") else f"{value:g}")
            for name, value in values.items()
            if "_left" in name
        )
        budgets.add_row(
            shown(values["dataset"]), values["composition"], f"{values['epsilon']:g}", f"{values['delta']:g}", left
        )
    console.print(budgets)
    rows = Table(
        "entry", "dataset", "state", "epsilon", "delta", "algorithm", "written", "output", box=None, pad_edge=False
    )
    for values in entries:
        outputs = "\n".join(shown(each["path"] or each["sha256"][:16]) for each in values["outputs"])
        rows.add_row(
            *(
                f"{values[k]:g}" if isinstance(values[k], float) else shown(str(values[k]))
                for k in ("entry", "dataset", "state", "epsilon", "delta", "algorithm", "written")
            ),
            outputs,
        )
    if entries:
        console.print()
        console.print(rows)
    console.print(f"\nhead {found.head}", style="dim")


@ledger_app.command("verify")
@answering
def ledger_verify(
    where: Where,
    receipt: Annotated[
        list[str] | None, typer.Option("--receipt", help="An entry that must be there, as in a statement.")
    ] = None,
) -> None:
    """Check the hash chain, every total and the given receipts; exit code 5 when something is wrong."""
    from dpunion.errors import DamagedLedger
    from dpunion.ledger import Ledger

    found = Ledger.open(where).verify(receipt or [])
    if found.problem is not None:
        raise DamagedLedger(
            found.problem, "Restore the ledger from a backup, and charge again what was released since."
        )
    typer.echo(f"All {found.rows} rows are in order. Head: {found.head}")
