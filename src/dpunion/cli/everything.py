"""All commands, put together: those of dpunion, and those of dpunion-lab where it is installed."""

from __future__ import annotations

from importlib.metadata import entry_points

import typer

from dpunion.cli.answers import answering
from dpunion.cli.commands import as_ours, new_app
from dpunion.cli.helping import Commands
from dpunion.cli.ledger import ledger_app
from dpunion.cli.planning import PLAN_HELP, plan_command
from dpunion.cli.releasing import NGRAMS_HELP, RELEASE_HELP, demo_command, ngrams_command, release_command
from dpunion.cli.reporting import REPORT_HELP, report_command
from dpunion.cli.sampling import SAMPLE_HELP, sample_command
from dpunion.cli.warming import WARM_UP_HELP, warm_up_command
from dpunion.errors import BadParameter

ENTRY_POINTS = "dpunion.commands"
"""dpunion-lab adds its commands by entry points of this group: each is the app of one command."""
SISTERS = {
    "audit": "Search policies and releases for privacy flaws.",
    "lab": "Study algorithms: reproduce the papers' tables, compare, generate data. Never a release; NOT PRIVATE.",
}
"""The commands of dpunion-lab, which say how to install it where it is missing."""


def add_missing(app: typer.Typer, name: str) -> None:
    """Add a command that says which package it is in."""

    @answering
    def missing(rest: list[str] | None = typer.Argument(None, hidden=True)) -> None:  # noqa: B008 - typer's interface
        del rest
        raise BadParameter(
            f"'dpunion {name}' is in the package dpunion-lab, which is not installed, or not in this version.",
            "Install it: pip install dpunion-lab; from a clone of the repository: pip install ./lab.",
        )

    anything = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(name, help=SISTERS[name], context_settings=anything)(missing)


app = new_app()
app.command("release", help=RELEASE_HELP)(release_command)
app.command("ngrams", help=NGRAMS_HELP)(ngrams_command)
app.command("plan", help=PLAN_HELP)(plan_command)
app.command("report", help=REPORT_HELP)(report_command)
app.add_typer(ledger_app, name="ledger", cls=Commands)
as_ours(ledger_app)
added = {one.name: one for one in entry_points(group=ENTRY_POINTS)}
for name in SISTERS:
    try:
        commands = added[name].load()
    except (KeyError, ImportError):
        add_missing(app, name)
    else:
        app.add_typer(commands, name=name, cls=Commands)
        as_ours(commands)
app.command("demo")(demo_command)
app.command("sample", help=SAMPLE_HELP)(sample_command)
app.command("warm-up", help=WARM_UP_HELP)(warm_up_command)
as_ours(app)
