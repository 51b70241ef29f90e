"""All commands, put together."""

from __future__ import annotations

from dpunion.cli.auditing import audit_app
from dpunion.cli.commands import as_ours, new_app
from dpunion.cli.helping import Commands
from dpunion.cli.lab import lab_app
from dpunion.cli.lab_reach import REACH_HELP, ROUNDS_HELP, reach_command, rounds_command
from dpunion.cli.lab_worlds import WORLDS_HELP, worlds_command
from dpunion.cli.ledger import ledger_app
from dpunion.cli.planning import PLAN_HELP, plan_command
from dpunion.cli.releasing import NGRAMS_HELP, RELEASE_HELP, demo_command, ngrams_command, release_command
from dpunion.cli.reporting import REPORT_HELP, report_command
from dpunion.cli.sampling import SAMPLE_HELP, sample_command
from dpunion.cli.warming import WARM_UP_HELP, warm_up_command

app = new_app()
app.command("release", help=RELEASE_HELP)(release_command)
app.command("ngrams", help=NGRAMS_HELP)(ngrams_command)
app.command("plan", help=PLAN_HELP)(plan_command)
app.command("report", help=REPORT_HELP)(report_command)
app.add_typer(ledger_app, name="ledger", cls=Commands)
app.add_typer(audit_app, name="audit", cls=Commands)
lab_app.command("reach", help=REACH_HELP)(reach_command)
lab_app.command("rounds", help=ROUNDS_HELP)(rounds_command)
lab_app.command("worlds", help=WORLDS_HELP)(worlds_command)
app.add_typer(lab_app, name="lab", cls=Commands)
app.command("demo")(demo_command)
app.command("sample", help=SAMPLE_HELP)(sample_command)
app.command("warm-up", help=WARM_UP_HELP)(warm_up_command)
for commands in (app, ledger_app, audit_app, lab_app):
    as_ours(commands)
