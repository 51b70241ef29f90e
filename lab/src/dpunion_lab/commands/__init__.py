"""The commands `dpunion lab` and `dpunion audit`, which dpunion finds by their entry points."""

from __future__ import annotations

from dpunion_lab.commands.audit import audit_app
from dpunion_lab.commands.lab import lab_app
from dpunion_lab.commands.lab_reach import REACH_HELP, ROUNDS_HELP, reach_command, rounds_command
from dpunion_lab.commands.lab_worlds import WORLDS_HELP, worlds_command

__all__ = ["audit_app", "lab_app"]

lab_app.command("reach", help=REACH_HELP)(reach_command)
lab_app.command("rounds", help=ROUNDS_HELP)(rounds_command)
lab_app.command("worlds", help=WORLDS_HELP)(worlds_command)
