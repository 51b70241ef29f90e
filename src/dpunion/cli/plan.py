"""The command plan."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from dpunion.cli import options
from dpunion.cli.answers import print_result
from dpunion.cli.help import command
from dpunion.cli.options import FILE, OUTPUT, TUNING, Given, Option, OptionGroup
from dpunion.errors import BadParameter

if TYPE_CHECKING:
    from dpunion.plans import Planned

PLAN_HELP = f"""Show what a budget can do, and all numbers of a release, before reading any data.

[bold]Examples[/bold]
  dpunion plan -e 1 -d 1e-6
  dpunion plan -e 1 -d 1e-6 --counts --html budget.html
  dpunion plan -e 1 -d 1e-6 --candidates catalogue.csv
  dpunion plan -e 3 -d 1e-5 --longest 3
  dpunion plan -e 3 -d 1e-5 -a weighted-gaussian --json

{options.ALGORITHM_HELP}"""


ngrams = OptionGroup(
    TUNING, Option("--longest", "Plan a release by dpunion ngrams, up to this length.", int), *options.ngrams
)
page = Option(
    "--html",
    "Write a page with charts: the chance of release by the number of people who have an item.",
    FILE,
    heading=OUTPUT,
)


@command(
    "plan",
    PLAN_HELP,
    options.privacy,
    options.algorithm,
    ngrams,
    options.counts,
    options.candidates,
    [options.as_json, page, options.force],
)
def plan_command(**values: Any) -> None:
    """Say what a budget can do."""
    from dpunion.pipeline import plan

    given = Given(**values)
    is_ngrams = given.longest is not None
    if is_ngrams and options.algorithm.is_given(given):
        raise BadParameter(
            "An algorithm for items was given, but --longest plans n-grams.",
            "Choose the algorithms of n-grams with --first and --later, or leave out --longest.",
        )
    if not is_ngrams and ngrams.is_given(given):
        raise BadParameter(
            "An option for n-grams was given, but the plan is for items.",
            "Add --longest to plan n-grams, or leave out the option.",
        )
    chosen = {"algorithm": options.build_ngrams(given)} if is_ngrams else options.build_algorithm(given)
    candidates = options.build_candidates(given)
    privacy = options.privacy.values(given)
    planned = plan(**chosen, **privacy, counts=options.build_counts(given), candidates=candidates)
    if given.html is not None:
        from dpunion.report import check_page, plan_page, write_page

        check_page(given.html, overwrite=given.force)
        if not planned.alternatives:
            raise BadParameter("Plans for n-grams have no page.", "Leave out --html to print the numbers.")
        write_page(given.html, plan_page(planned), overwrite=given.force)
        click.echo(f"Written to {given.html}.", err=True)
    if given.as_json:
        from dpunion.chances import find_needed

        needed = {"holders_needed": [one.to_dict() for one in find_needed(planned)]}
        if planned.candidates is not None:
            needed["holders_needed_by_candidates"] = [one.to_dict() for one in find_needed(planned, listed=True)]
        print_result(json.dumps(planned.to_dict() | needed, indent=1) + "\n")
    else:
        _print_plan(planned)


def _print_plan(planned: Planned) -> None:
    """Print what the budget can do, then what it guarantees, then every number."""
    from rich.console import Console

    from dpunion.budget import guarantee
    from dpunion.chances import HEAD, find_needed
    from dpunion.releases.statements import expected_mistakes, expected_precision

    console = Console(highlight=False)
    console.print(f"About this many people must have {planned.nouns.first} for it to be released:\n", style="bold")
    console.print(_table([HEAD, *(one.texts() for one in find_needed(planned))], head=True))
    if planned.candidates is not None:
        console.print("\nAnd this many must have a candidate:\n", style="bold")
        console.print(_table([HEAD, *(one.texts() for one in find_needed(planned, listed=True))], head=True))
        console.print("\n" + expected_mistakes(planned.candidates), markup=False)
    console.print(
        "\nItems each: how many items each of these people has. Their other items are assumed to be rare.", style="dim"
    )
    if planned.look is not None:
        bound = planned.opening.algorithm.max_items_per_user
        console.print(
            f"Computed for a limit of {bound} items per person. A release picks its limit privately from the list "
            "below.",
            style="dim",
        )
    if planned.counts is not None:
        console.print("\n" + "\n".join(expected_precision(planned.counts)), markup=False)
    promise = guarantee(planned.budget, subject="A list made by this plan", covers=planned.nouns.covers)
    console.print("\n" + "\n".join(promise), markup=False)
    console.print("\nThe numbers of the plan", style="bold")
    values = planned.to_dict()
    rows = (
        _length_rows(values) if "lengths" in values else _rows(values) if planned.look is None else _look_rows(planned)
    )
    console.print(_table(list(rows)))
    console.print("\nNo data was read. These numbers are public.", style="dim")


def _table(rows: Sequence[tuple[str, ...]], *, head: bool = False) -> Any:
    """Return a table of the rows; with a head, it has numbers, which are aligned to the right."""
    from rich.table import Table

    table = Table(show_header=head, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in rows[0]:
        table.add_column(name if head else "", justify="right" if head else "left")
    for row in rows[head:]:
        table.add_row(*row)
    return table


def _rows(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the numbers of a plan with their names."""
    parameters, sensitivity, rounds = values.pop("parameters"), values.pop("sensitivity"), values.pop("rounds", [])
    values.pop("counts", None)
    values |= {f"candidates {key}": value for key, value in values.pop("candidates", {}).items()}
    for name, value in (values | {f"  {key}": value for key, value in parameters.items()}).items():
        yield name.replace("_", " "), f"{value:.6g}" if isinstance(value, float) else str(value)
    for number, one in enumerate(rounds, 1):
        yield f"round {number}", ", ".join(f"{key} {value:.4g}" for key, value in one.items())
    yield "sensitivity", f"{sensitivity['norm']} norm at most {sensitivity['bound']:.6g}"


def _look_rows(planned: Planned) -> Iterator[tuple[str, str]]:
    """Yield the numbers of the look, and of the plans to choose from, with their names."""
    yield "epsilon, delta", f"{planned.budget.epsilon:g}, {planned.budget.delta:g}"
    yield "algorithm", planned.name
    if planned.look is not None:
        yield "noise of the size histogram", f"{planned.look.stddev:.4g} people in each size class"
    for plan in planned.alternatives:
        yield (
            f"{plan.algorithm.max_items_per_user} items per person",
            f"noise {plan.scale:.4g}, threshold {plan.threshold:.4g}, delta used {plan.delta_used:.4g}",
        )
    if planned.candidates is not None:
        yield "candidates", f"threshold {planned.candidates.threshold:.4g}, SHA-256 {planned.candidates.sha256}"
    parameters = planned.opening.algorithm.parameters()
    yield "parameters", ", ".join(f"{key} {value}" for key, value in parameters.items() if key != "max_items_per_user")


def _length_rows(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the numbers of each length of n-grams with their names."""
    yield "epsilon, delta", f"{values['epsilon']:g}, {values['delta']:g}"
    for one in values["lengths"]:
        threshold = one["threshold"]
        yield (
            f"length {one['length']}",
            f"{one['algorithm']}, at most {one['max_items_per_user']} per person, {one['share']:.3g} of the "
            f"budget, noise {one['stddev']:.4g}, "
            + (f"threshold {threshold:.4g}" if isinstance(threshold, float) else str(threshold)),
        )
    yield "delta used", f"{values['delta_used']:.6g}"
