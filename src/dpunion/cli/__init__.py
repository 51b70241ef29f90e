"""The command line: release | ngrams | plan | report | ledger | audit | lab | demo.

Exit codes: 0 done; 1 a bug in dpunion; 2 a bad option or parameter; 3 the data cannot be read as asked;
4 the output cannot be written; 5 the ledger refused, or an
audit found a violation; 6 the release was made before and is where it was asked for; 130 interrupted.

Everything heavy is imported inside the commands, so that --help answers at once.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import os
import re
import resource
import sys
from typing import Annotated, NoReturn

import typer

import dpunion
from dpunion.cli.answers import answering, print_json, say
from dpunion.cli.auditing import audit_app
from dpunion.cli.configuration import Command
from dpunion.cli.lab import lab_app
from dpunion.cli.ledger import ledger_app
from dpunion.cli.ngrams import NGRAMS_HELP, ngrams_command
from dpunion.cli.releasing import PLAN_HELP, RELEASE_HELP, demo_command, plan_command, release_command
from dpunion.cli.reporting import REPORT_HELP, report_command
from dpunion.errors import BadParameter, CannotWrite

__all__ = ["RELEASE_HELP", "app", "main"]

UNFLUSHED = 120
"""What Python itself says when its streams cannot be flushed at the end."""

PR_SET_DUMPABLE = 4
NUMBA_THREADS = "NUMBA_NUM_THREADS"
NUMBA_KEPT = (NUMBA_THREADS, "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")
"""Settings of numba that say what the machine is; all others are for developers."""

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
for commands in (app, ledger_app, audit_app, lab_app):
    for command in commands.registered_commands:
        command.cls = Command


def main() -> NoReturn:
    """Run the command line, and leave at once when it is done."""
    # Importing makes a hundred thousand objects that stay; looking through them for garbage finds none.
    gc.set_threshold(100_000)
    _dump_no_core()
    _fill_closed_streams()
    code: object = 0
    try:
        _keep_numba_quiet(as_json="--json" in sys.argv[1:])
        code = _run()
    except SystemExit as leaving:
        code = leaving.code
    except typer.Exit as leaving:
        code = leaving.exit_code
    _leave(code)


def _run() -> object:
    """Run the command; with --json a mistake in the options themselves is JSON too."""
    if "--json" not in sys.argv[1:]:
        return app()
    try:
        return app(standalone_mode=False)
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


def _fill_closed_streams() -> None:
    """Put nothing in the place of streams that were closed before we started.

    subtle: the next file that is opened would get the number of standard error, and what a library says there would be
    written into it. sys.stdout stays None where there was none, so that a release is not printed to nowhere.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - a stream of the process


def _dump_no_core() -> None:
    """Keep people's data in memory out of core dumps, and other processes of this user out of the memory."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


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
