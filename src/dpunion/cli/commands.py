"""All commands: those of dpunion, each imported when it is called, and those of dpunion-lab if it is installed."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
from pathlib import Path
from typing import Any

import click

import dpunion
from dpunion.cli import ended
from dpunion.cli.answers import answering, explain_late_interrupt
from dpunion.cli.help import Command, Commands
from dpunion.cli.options import Option
from dpunion.errors import BadParameter

COMMANDS = {
    "release": "release:release_command",
    "ngrams": "release:ngrams_command",
    "plan": "plan:plan_command",
    "report": "release:report_command",
    "demo": "release:demo_command",
    "sample": "release:sample_command",
    "lists": "release:lists_command",
    "warm-up": "release:warm_up_command",
    "ledger": "ledger:ledger_commands",
}
"""The modules and names of the commands of dpunion, in the order of the help."""
SISTERS = {
    "audit": "Search policies and releases for privacy flaws.",
    "lab": "Study algorithms: reproduce the papers' tables, compare, generate data. Results are NOT PRIVATE.",
}
"""The commands of dpunion-lab, which it adds by entry points, each with its help when dpunion-lab is missing."""

NUMBA_THREADS = "NUMBA_NUM_THREADS"
NUMBA_KEPT = (NUMBA_THREADS, "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")
"""Settings of numba that describe the machine; all others are for developers."""
SHELLS = {
    "bash": (".bash_completions/dpunion.sh", ".bashrc", "source '{home}/.bash_completions/dpunion.sh'"),
    "zsh": (".zfunc/_dpunion", ".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
    "fish": (".config/fish/completions/dpunion.fish", "", ""),
}
"""Where each shell finds a completion script below the home folder, and the line that its settings need for that."""


class App(Commands):
    """The root of all commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's interface
        return [*COMMANDS, *SISTERS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name in SISTERS:
            return _load_sister(cmd_name)
        module, _, name = COMMANDS.get(cmd_name, "").partition(":")
        return getattr(importlib.import_module(f"dpunion.cli.{module}"), name) if name else None

    def main(self, args: Any = None, *, standalone_mode: bool = True, **extra: Any) -> Any:  # type: ignore[override]
        """Run a command; a mistake in its options is explained like any other error, with --json as JSON."""
        try:
            code = super().main(args, standalone_mode=False, **extra)
        except click.exceptions.NoArgsIsHelpError as asked:
            click.echo(asked.format_message())
            code = BadParameter.exit_code
        except click.exceptions.Abort as abort:
            code = explain_late_interrupt(abort.__cause__ or abort)
        except click.ClickException as mistake:
            code = BadParameter.exit_code
            as_json = "--json" in (sys.argv[1:] if args is None else args)
            context = getattr(mistake, "ctx", None)
            message = mistake.format_message().replace("valid float", "number").replace("valid integer", "whole number")
            with contextlib.suppress(click.exceptions.Exit), answering({"as_json": as_json}):
                remedy = f"See '{context.command_path if context else 'dpunion'} --help'."
                raise BadParameter(message, remedy) from None
        if standalone_mode:
            sys.exit(code)
        return code


def _load_sister(name: str) -> click.Command:
    """Return a command of dpunion-lab, or one that says how to install it."""
    from importlib.metadata import entry_points

    def refuse() -> None:
        raise BadParameter(
            f"'dpunion {name}' is in the package dpunion-lab, which is not installed, or not in this version.",
            "Install it: pip install dpunion-lab; from a clone of the repository: pip install ./lab.",
        )

    try:
        found, *_ = entry_points(group="dpunion.commands", name=name)
        loaded: click.Command = found.load()
    except (ValueError, ImportError):
        anything = {"allow_extra_args": True, "ignore_unknown_options": True}
        return Command(name, callback=refuse, help=SISTERS[name], context_settings=anything)
    return loaded


def _show_version(context: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"dpunion {dpunion.__version__}")
        context.exit()


def _complete(context: click.Context, option: click.Parameter, value: bool) -> None:
    """Show the completion script of the current shell, or install it."""
    if not value:
        return
    from click.shell_completion import get_completion_class

    with answering({}):
        # The shell that started this process, or else the user's login shell.
        parent = Path(f"/proc/{os.getppid()}/comm")
        names = [parent.read_text().strip() if parent.exists() else "", Path(os.environ.get("SHELL", "")).name]
        shell = next((name for name in names if name in SHELLS), "")
        kind = get_completion_class(shell)
        if kind is None:
            raise BadParameter("The current shell is none of bash, zsh and fish.", "Call this from one of them.")
        text = kind(app, {}, "dpunion", "_DPUNION_COMPLETE").source().strip() + "\n"
        if option.name == "show_completion":
            click.echo(text, nl=False)
            context.exit()
        place, settings, line = SHELLS[shell]
        script, needed = Path.home() / place, line.format(home=Path.home())
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(text)
        if settings:
            with (Path.home() / settings).open("a+") as file:
                file.seek(0)
                if needed not in file.read().splitlines():
                    file.write(f"\n{needed}\n")
        click.echo(f"{shell} completion installed in {script}")
        click.echo("Completion will take effect once you restart the terminal")
        context.exit()


SHOW = "Show completion for the current shell, to copy it or customize the installation."
ROOT_OPTIONS = (
    ("--version", "Show the version.", _show_version),
    ("--install-completion", "Install completion for the current shell.", _complete),
    ("--show-completion", SHOW, _complete),
)

app = App(
    "dpunion",
    params=[
        Option(name, text, bool, is_eager=True, expose_value=False, callback=action)
        for name, text, action in ROOT_OPTIONS
    ],
    help="""Publish the words, queries or keys that many users share, without revealing any single user.

Try [cyan]dpunion demo[/cyan], then [cyan]dpunion release --help[/cyan].""",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run() -> object:
    """Run the command that the arguments of the process name; return its exit code."""
    try:
        # Keep the environment and the current folder from making numba print into a release or work differently.
        with answering({"as_json": "--json" in sys.argv[1:]}):
            from dpunion.kernels import HIDDEN_FROM_NUMBA

            if not re.fullmatch(r"0*[1-9]\d{0,3}", os.environ.get(NUMBA_THREADS, "1")):
                raise BadParameter(f"{NUMBA_THREADS} must be a whole number of at least 1.", "Correct it, or unset it.")
            for name in [name for name in os.environ if name.startswith("NUMBA_") and name not in NUMBA_KEPT]:
                del os.environ[name]
            HIDDEN_FROM_NUMBA.extend(("yaml", "scipy"))
        ended.clear()
        return app.main(standalone_mode=False)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except KeyboardInterrupt as error:
        return explain_late_interrupt(error)
