"""All commands, put together."""

from __future__ import annotations

import contextlib
import copy
import os
import re
import sys
from typing import Annotated

import typer

import dpunion
from dpunion.cli import ended
from dpunion.cli.answers import answering, print_json, say
from dpunion.cli.auditing import audit_app
from dpunion.cli.configuration import Command
from dpunion.cli.helping import Commands, complete_choices
from dpunion.cli.lab import lab_app
from dpunion.cli.lab_reach import REACH_HELP, ROUNDS_HELP, reach_command, rounds_command
from dpunion.cli.ledger import ledger_app
from dpunion.cli.planning import PLAN_HELP, plan_command
from dpunion.cli.releasing import NGRAMS_HELP, RELEASE_HELP, demo_command, ngrams_command, release_command
from dpunion.cli.reporting import REPORT_HELP, report_command
from dpunion.cli.sampling import SAMPLE_HELP, sample_command
from dpunion.cli.warming import WARM_UP_HELP, warm_up_command
from dpunion.errors import BadParameter, CannotWrite

NUMBA_THREADS = "NUMBA_NUM_THREADS"
NUMBA_KEPT = (NUMBA_THREADS, "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")
"""Settings of numba that say what the machine is; all others are for developers."""

app = typer.Typer(
    cls=Commands,
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
    """Differentially private set union: release vocabularies, n-grams and keys that give nobody away.

    Try [cyan]dpunion demo[/cyan], then [cyan]dpunion release --help[/cyan].
    """


app.command("release", help=RELEASE_HELP)(release_command)
app.command("ngrams", help=NGRAMS_HELP)(ngrams_command)
app.command("plan", help=PLAN_HELP)(plan_command)
app.command("report", help=REPORT_HELP)(report_command)
app.add_typer(ledger_app, name="ledger", cls=Commands)
app.add_typer(audit_app, name="audit", cls=Commands)
lab_app.command("reach", help=REACH_HELP)(reach_command)
lab_app.command("rounds", help=ROUNDS_HELP)(rounds_command)
app.add_typer(lab_app, name="lab", cls=Commands)
app.command("demo")(demo_command)
app.command("sample", help=SAMPLE_HELP)(sample_command)
app.command("warm-up", help=WARM_UP_HELP)(warm_up_command)
for commands in (app, ledger_app, audit_app, lab_app):
    for command in commands.registered_commands:
        command.cls = Command
        if command.callback is not None:
            complete_choices(command.callback)


def with_command(name: list[str]) -> typer.Typer:
    """Return all commands, or the one with this name: putting the options of all of them together takes a while."""
    found = [command for command in app.registered_commands if [command.name] == name]
    if not found:
        return app
    alone = copy.copy(app)
    alone.registered_commands, alone.registered_groups = found, []
    return alone


def run() -> object:
    """Run the command that the arguments name; return its exit code."""
    try:
        _keep_numba_quiet(as_json="--json" in sys.argv[1:])
        ended.clear()
        return _run()
    except typer.Exit as leaving:
        return leaving.exit_code


def _run() -> object:
    """Run the command; with --json a mistake in the options themselves is JSON too."""
    named = with_command(sys.argv[1:2])
    if "--json" not in sys.argv[1:]:
        return named()
    try:
        return named(standalone_mode=False)
    except Exception as mistake:
        told = getattr(mistake, "format_message", None)  # typer's mistakes of usage, whose class has no public name
        if told is None:
            raise
        values = {"error": "BadParameter", "code": BadParameter.exit_code, "message": told()}
        values |= {"remedy": "See --help.", "charge": "", "ledger": None}
        with contextlib.suppress(OSError, CannotWrite):
            say(f"Error: {told()}\n  See --help.")
            print_json(values)
        return BadParameter.exit_code


@answering
def _keep_numba_quiet(*, as_json: bool) -> None:
    """Let nothing in the environment or the current folder make numba print into a release or work otherwise."""
    from dpunion.kernels import HIDDEN_FROM_NUMBA

    del as_json  # for `answering`
    if not re.fullmatch(r"0*[1-9]\d{0,3}", os.environ.get(NUMBA_THREADS, "1")):
        raise BadParameter(f"{NUMBA_THREADS} must be a whole number from 1 on.", "Correct it, or unset it.")
    for name in [name for name in os.environ if name.startswith("NUMBA_") and name not in NUMBA_KEPT]:
        del os.environ[name]
    HIDDEN_FROM_NUMBA.append("yaml")
