"""The commands lab reach and lab rounds: how far Funnel goes, and how. Study, never a release."""

from __future__ import annotations

from typing import Annotated

import typer

from dpunion.cli.answers import answering, print_result
from dpunion.cli.groups import in_groups
from dpunion.cli.options import TUNING, AsJson
from dpunion.cli.texts import TextOptions
from dpunion_lab.commands.lab import Ledger, StudyData, as_text, refuse_ledger, study

REACH_HELP = """Measure how many of the items that an all-knowing allocation lifts to the threshold Funnel releases.

The all-knowing allocation sees all sets, spends all weight freely and has no noise. It is found by
search, so the true one may be larger still. Compare with the ceiling of [cyan]lab compare[/cyan], which no private
algorithm exceeds.

[bold]Examples[/bold]

  [cyan]dpunion lab reach --generate 20000 -e 3 -d 1e-5[/cyan]

  [cyan]dpunion lab reach public.parquet -u author -i word -e 1 -d 1e-6[/cyan]

The lab never releases: its results are [bold]NOT PRIVATE[/bold], and it keeps no ledger."""

ROUNDS_HELP = """Show one run of Funnel round by round: items that pass, drop out or go on, and where the weight went.

[bold]Examples[/bold]

  [cyan]dpunion lab rounds --generate 20000 -e 3 -d 1e-5[/cyan]

  [cyan]dpunion lab rounds public.parquet -u author -i word -e 1 -d 1e-6 --json[/cyan]

The lab never releases: its results are [bold]NOT PRIVATE[/bold], and it keeps no ledger."""

Epsilon = Annotated[float, typer.Option("--epsilon", "-e", help="The budget.", rich_help_panel=TUNING)]
Delta = Annotated[float, typer.Option("--delta", "-d", help="The budget.", rich_help_panel=TUNING)]


@answering
@in_groups
def reach_command(
    data: StudyData,
    texts: TextOptions,
    epsilon: Epsilon,
    delta: Delta,
    trials: Annotated[int, typer.Option(help="Number of runs to average.", rich_help_panel=TUNING)] = 3,
    as_json: AsJson = False,
    ledger: Ledger = None,
) -> None:
    """Measure how far Funnel goes."""
    refuse_ledger(ledger)
    from dpunion.algorithms import Funnel
    from dpunion.budget import Budget
    from dpunion_lab.funnel import measure_reach

    place, reading = data.what_to_read(texts)
    budget = Budget(epsilon, delta)
    with study(None) as tell:
        found = measure_reach(place, Funnel(), budget, trials=trials, progress=tell, **reading)
    print_result(as_text(found.to_dict()) if as_json else f"{found.to_dict()['warning']}\n\n{found.table().text()}\n")


@answering
@in_groups
def rounds_command(
    data: StudyData,
    texts: TextOptions,
    epsilon: Epsilon,
    delta: Delta,
    as_json: AsJson = False,
    ledger: Ledger = None,
) -> None:
    """Watch Funnel's rounds."""
    refuse_ledger(ledger)
    from dpunion.algorithms import Funnel
    from dpunion.budget import Budget
    from dpunion_lab.funnel import watch_rounds

    place, reading = data.what_to_read(texts)
    budget = Budget(epsilon, delta)
    with study(None) as tell:
        seen = watch_rounds(place, Funnel(), budget, progress=tell, **reading)
    print_result(as_text(seen.to_dict()) if as_json else f"{seen.to_dict()['warning']}\n\n{seen.table().text()}\n")
