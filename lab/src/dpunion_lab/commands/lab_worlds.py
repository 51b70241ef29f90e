"""The command lab worlds: judge what dpunion estimates and chooses on random worlds. Study, never a release."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpunion.cli.answers import answering, print_result, say
from dpunion.cli.options import OUTPUT, TUNING, AsJson, Force
from dpunion_lab.commands.lab import Ledger, as_text, listed, refuse_ledger, study

WORLDS_HELP = """Compare dpunion's estimates and choices with the best in hindsight, on randomly generated worlds.

A world is generated data with random size, shape and budget. [cyan]counts[/cyan] compares the numbers of
people with the best weights in hindsight, and checks intervals and sums; [cyan]bound[/cyan] compares the items per
person that dpunion chooses privately with all its other choices; [cyan]funnel[/cyan] compares Funnel with the other
algorithms. The same seed gives the same worlds and figures.

[bold]Examples[/bold]

  [cyan]dpunion lab worlds --seed 1 --count 100 --out worlds.json[/cyan]

  [cyan]dpunion lab worlds --seed 1 --only 17 --of counts[/cyan]

The lab never releases: its results are [bold]NOT PRIVATE[/bold], and it keeps no ledger."""


@answering
def worlds_command(
    seed: Annotated[int, typer.Option(help="The same seed gives the same worlds.", rich_help_panel=TUNING)] = 0,
    count: Annotated[int, typer.Option(help="Number of worlds.", rich_help_panel=TUNING)] = 100,
    only: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", help="Only this world.", rich_help_panel=TUNING, show_default=False),
    ] = None,
    of: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIST", help="What to compare.", rich_help_panel=TUNING, show_default="counts,bound,funnel"
        ),
    ] = None,
    threads: Annotated[int, typer.Option(help="Number of worlds in parallel.", rich_help_panel=TUNING)] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Output file (.json) with all figures.", rich_help_panel=OUTPUT, show_default=False
        ),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
    ledger: Ledger = None,
) -> None:
    """Judge dpunion on random worlds."""
    refuse_ledger(ledger)
    from dpunion_lab.hindsight import JUDGED, judge_worlds, tables_of
    from dpunion_lab.results import check_results_file, write_results

    judged = tuple(map(str, listed("of", of))) if of else JUDGED
    if out is not None:
        check_results_file(out, "results", (".json",), overwrite=force)
    with study(None, "use fewer worlds with --count, or one with --only.") as tell:
        found = judge_worlds(seed=seed, count=count, only=only, judged=judged, threads=threads, progress=tell)
    tables = "\n\n".join(table.text() for table in tables_of(found))
    print_result(as_text(found) if as_json else f"{found['warning']}\n\n{tables}\n")
    if out is not None:
        write_results(out, found, overwrite=force)
        say(f"Results, NOT PRIVATE, are in {out}.")
