"""The command line: release | ngrams | plan | report | ledger | audit | lab | demo.

Exit codes: 0 done; 1 a bug in dpunion; 2 a bad option or parameter; 3 the data cannot be read as asked;
4 the output cannot be written; 5 the ledger refused, or an
audit found a violation; 130 interrupted (nothing is left behind).

Everything heavy is imported inside the commands, so that --help answers at once.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from typing import Annotated, NoReturn

import typer

import dpunion
from dpunion.cli.auditing import audit_app
from dpunion.cli.lab import lab_app
from dpunion.cli.ledger import ledger_app
from dpunion.cli.ngrams import NGRAMS_HELP, ngrams_command
from dpunion.cli.releasing import PLAN_HELP, RELEASE_HELP, demo_command, plan_command, release_command
from dpunion.cli.reporting import REPORT_HELP, report_command

__all__ = ["RELEASE_HELP", "app", "main"]

UNFLUSHED = 120
"""What Python itself says when its streams cannot be flushed at the end."""

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


def main() -> NoReturn:
    """Run the command line, and leave at once when it is done."""
    # Importing makes a hundred thousand objects that stay; looking through them for garbage finds none.
    gc.set_threshold(100_000)
    # numba imports an installed scipy for linear algebra that no kernel of ours uses: a quarter of a second.
    for unused in ("scipy", "scipy.linalg"):
        sys.modules.setdefault(unused, None)  # type: ignore[arg-type]
    code: object = 0
    try:
        app()
    except SystemExit as leaving:
        code = leaving.code
    _leave(code)


def _leave(code: object) -> NoReturn:
    """End the process without taking every library apart first, which takes a sixth of a second.

    What must be done is done before: outputs are closed by whoever opened them, exit handlers are run, streams flushed.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - the interpreter's own way, which os._exit leaves out
    status = code if isinstance(code, int) else int(code is not None)
    if isinstance(code, str):
        typer.echo(code, err=True)
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            status = status or UNFLUSHED
    os._exit(status & 0xFF)
