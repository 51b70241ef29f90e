"""The command line: release | ngrams | plan | report | ledger | audit | demo.

Exit codes: 0 done; 1 a bug in dpunion; 2 a bad option or parameter; 3 the data cannot be read as asked;
4 the output cannot be written; 5 the ledger refused, or an
audit found a violation; 130 interrupted (nothing is left behind).

Everything heavy is imported inside the commands, so that --help answers at once.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import dpunion
from dpunion.cli.auditing import audit_app
from dpunion.cli.ledger import ledger_app
from dpunion.cli.ngrams import NGRAMS_HELP, ngrams_command
from dpunion.cli.releasing import PLAN_HELP, RELEASE_HELP, demo_command, plan_command, release_command
from dpunion.cli.reporting import REPORT_HELP, report_command

__all__ = ["RELEASE_HELP", "app", "main"]

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
app.command("demo")(demo_command)


def main() -> None:
    """Run the command line."""
    # numba imports an installed scipy for linear algebra that no kernel of ours uses: a quarter of a second.
    for unused in ("scipy", "scipy.linalg"):
        sys.modules.setdefault(unused, None)  # type: ignore[arg-type]
    app()
