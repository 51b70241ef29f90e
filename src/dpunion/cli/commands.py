"""All commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

import dpunion
from dpunion.cli.auditing import audit_app
from dpunion.cli.lab import lab_app
from dpunion.cli.ledger import ledger_app
from dpunion.cli.ngrams import NGRAMS_HELP, ngrams_command
from dpunion.cli.releasing import PLAN_HELP, RELEASE_HELP, demo_command, plan_command, release_command
from dpunion.cli.reporting import REPORT_HELP, report_command

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"dpunion {dpunion.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Differentially private set union: release vocabularies, n-grams and keys without betraying anyone.

    Try [cyan]dpunion demo[/cyan], then [cyan]dpunion release --help[/cyan].
    """


app.command("release", help=RELEASE_HELP)(release_command)
app.command("ngrams", help=NGRAMS_HELP)(ngrams_command)
app.command("plan", help=PLAN_HELP)(plan_command)
app.command("report", help=REPORT_HELP)(report_command)
app.add_typer(ledger_app, name="ledger")
app.add_typer(audit_app, name="audit")
app.add_typer(lab_app, name="lab")
app.command("demo")(demo_command)
