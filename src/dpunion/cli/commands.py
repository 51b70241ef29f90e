"""Run the command that the arguments name."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import Annotated

import typer

import dpunion
from dpunion.cli import ended
from dpunion.cli.answers import answering, print_json, say
from dpunion.cli.configuration import Command
from dpunion.cli.helping import Commands, complete_choices
from dpunion.errors import BadParameter, CannotWrite

NUMBA_THREADS = "NUMBA_NUM_THREADS"
NUMBA_KEPT = (NUMBA_THREADS, "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")
"""Settings of numba that say what the machine is; all others are for developers."""


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"dpunion {dpunion.__version__}")
        raise typer.Exit


def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Differentially private set union: release vocabularies, n-grams and keys that give nobody away.

    Try [cyan]dpunion demo[/cyan], then [cyan]dpunion release --help[/cyan].
    """


def new_app() -> typer.Typer:
    """Return what commands are put into."""
    app = typer.Typer(
        cls=Commands,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_main)
    return app


def as_ours(commands: typer.Typer) -> None:
    """Let the commands read configuration files and complete words."""
    for command in commands.registered_commands:
        command.cls = Command
        if command.callback is not None:
            complete_choices(command.callback)


def with_command(name: list[str]) -> typer.Typer:
    """Return all commands, or the one with this name: putting the options of all of them together takes a while."""
    alone = new_app()
    if name == ["release"]:
        # subtle: the one that people wait for does without importing the others.
        from dpunion.cli.releasing import RELEASE_HELP, release_command

        alone.command("release", help=RELEASE_HELP)(release_command)
        as_ours(alone)
        return alone
    from dpunion.cli.everything import app

    alone.registered_commands = [command for command in app.registered_commands if [command.name] == name]
    return alone if alone.registered_commands else app


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
        raise BadParameter(f"{NUMBA_THREADS} must be a whole number of at least 1.", "Correct it, or unset it.")
    for name in [name for name in os.environ if name.startswith("NUMBA_") and name not in NUMBA_KEPT]:
        del os.environ[name]
    HIDDEN_FROM_NUMBA.extend(("yaml", "scipy"))
