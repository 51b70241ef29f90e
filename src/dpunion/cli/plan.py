"""The command plan."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from dpunion.cli import options
from dpunion.cli.answers import print_json, print_result, wrap
from dpunion.cli.help import command
from dpunion.cli.options import FILE, OUTPUT, PRIVACY, TUNING, Given, Option, OptionGroup
from dpunion.errors import BadParameter

if TYPE_CHECKING:
    from dpunion.plans import Planned

PLAN_HELP = f"""Show what a budget can do, and all numbers of a release, before reading any data.

[bold]Examples[/bold]
  dpunion plan -e 1 -d 1e-6
  dpunion plan -e 0.5,1,2 -d 1e-6
  dpunion plan --people 100 -d 1e-6
  dpunion plan -e 1 -d 1e-6 --counts --html budget.html
  dpunion plan -e 1 -d 1e-6 --candidates catalogue.csv
  dpunion plan -e 3 -d 1e-5 --longest 3
  dpunion plan -e 3 -d 1e-5 -a weighted-gaussian --json

{options.ALGORITHM_HELP}"""

privacy = OptionGroup(
    PRIVACY,
    Option("--epsilon -e", f"{options.privacy.options[0].help} A list, like 0.5,1,2, compares several."),
    *options.privacy.options[1:],
    Option("--people", "Instead of --epsilon: find the smallest epsilon that releases items of this many people.", int),
)
ngrams = OptionGroup(
    TUNING, Option("--longest", "Plan a release by dpunion ngrams, up to this length.", int), *options.ngrams
)
page = Option(
    "--html", "Write a page with charts: the chance of release by the number of people.", FILE, heading=OUTPUT
)


@command(
    "plan",
    PLAN_HELP,
    privacy,
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
    if named := (options.algorithm if is_ngrams else ngrams).names_given(given):
        kind = "--longest plans n-grams" if is_ngrams else "the plan is for items"
        way = (
            "leave out --longest; --first and --later are for n-grams" if is_ngrams else "add --longest to plan n-grams"
        )
        raise BadParameter(f"{' and '.join(named)} was given, but {kind}.", f"Leave it out, or {way}.")
    epsilons = [] if given.epsilon is None else list(map(options.plain_value, given.epsilon.split(",")))
    if bool(epsilons) == (given.people is not None):
        raise BadParameter("A plan needs either --epsilon or --people.", "Give a budget, or a number of people.")
    if given.html is not None:
        from dpunion.report import check_page, plan_page, write_page
        from dpunion.report.charts import load_library

        check_page(given.html, overwrite=given.force)
        if is_ngrams or len(epsilons) != 1:
            raise BadParameter(
                "There is no page for a plan of n-grams, for --people or for several epsilons.", "Leave out --html."
            )
        load_library("vl_convert")
    chosen = {"algorithm": options.build_ngrams(given)} if is_ngrams else options.build_algorithm(given)
    chosen |= {"counts": options.build_counts(given), "candidates": options.build_candidates(given)}
    plan_at = functools.cache(
        lambda epsilon: plan(**chosen, epsilon=epsilon, delta=given.delta, weak_budget=given.weak_budget)
    )
    plans = [plan_at(epsilon) for epsilon in epsilons]
    if given.html is not None:
        write_page(given.html, plan_page(plans[0]), overwrite=given.force)
        click.echo(f"Written to {given.html}.", err=True)
    if given.people is not None:
        _answer_people(given, plan_at)
    elif given.as_json:
        found = [_describe(planned) for planned in plans]
        print_result(json.dumps(found[0] if len(found) == 1 else {"plans": found}, indent=1) + "\n")
    elif len(plans) == 1:
        _print_plan(plans[0])
    else:
        _print_comparison(plans)


def _describe(planned: Planned) -> dict[str, Any]:
    """Return a plan, and how many people an item needs, as plain values."""
    from dpunion.chances import find_needed

    needed = {"holders_needed": [one.to_dict() for one in find_needed(planned)]}
    if planned.candidates is not None:
        needed["holders_needed_by_candidates"] = [one.to_dict() for one in find_needed(planned, listed=True)]
    return planned.to_dict() | needed


def _answer_people(given: Given, plan_at: Callable[[Any], Planned]) -> None:
    """Print the smallest epsilons with which an item of this many people comes out."""
    from dpunion.chances import EPSILONS, EVEN, HEAD, LIKELY, SET_SIZES, find_epsilon

    largest, most = plan_at(EPSILONS[-1]), f"{EPSILONS[-1]:g}"  # refuses options that are wrong with every epsilon
    if find_epsilon(plan_at, given.people, SET_SIZES[0], EVEN) is None:
        what = f"No epsilon up to {most} releases an item that only {given.people} people have."
        raise BadParameter(
            what, f"Use a larger --people: dpunion plan -e {most} -d {given.delta:g} says how many an item needs."
        )
    found = [(n, *(find_epsilon(plan_at, given.people, n, chance) for chance in (EVEN, LIKELY))) for n in SET_SIZES]
    if given.as_json:
        needed = [dict(zip(("items_each", "chance_50", "chance_90"), row, strict=True)) for row in found]
        print_json({"people": given.people, "delta": given.delta, "epsilon_needed": needed})
        return
    title = f"Epsilon at which {{}} that {given.people:,} people have is released:"
    rows = [(str(n), *(f"more than {most}" if one is None else f"{one:g}" for one in each)) for n, *each in found]
    _print_table(largest, title, [HEAD, *rows])


def _print_comparison(plans: Sequence[Planned]) -> None:
    """Print one row for each budget."""
    from dpunion.chances import SET_SIZES, find_needed

    rows = [("epsilon", "guarantee", *(f"{size} item{'s' * (size > 1)} each" for size in SET_SIZES))]
    for one in plans:
        needed = find_needed(one, listed=one.candidates is not None)
        # Two numbers that are both "more than 100,000" are shown once.
        people = (" to ".join(dict.fromkeys(each.texts()[1:])) for each in needed)
        rows.append((f"{one.budget.epsilon:g}", one.budget.strength.value, *people))
    title = "People who must have {} for a chance of 50 % to 90 % that it is released:"
    _print_table(plans[0], title, rows)


def _print_table(planned: Planned, title: str, rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table of numbers, and what they assume."""
    from dpunion.report.tables import lay_out

    title = title.format(planned.nouns.first if planned.candidates is None else "a candidate")
    lines = [title, "", *lay_out(rows, [False] * len(rows[0])), "", *_assumptions(planned)]
    print_result(wrap("\n".join(lines), sys.stdout) + "\n")


def _assumptions(planned: Planned, source: str = "") -> Iterator[str]:
    """Say what numbers of people assume."""
    yield "Items each: how many items each of these people has. Their other items are assumed to be rare."
    if planned.look is not None:
        bound = planned.opening.algorithm.max_items_per_user
        yield f"Computed for a limit of {bound} items per person. A release picks its limit privately{source}."


def _print_plan(planned: Planned) -> None:
    """Print what the budget can do, then what it guarantees, then every number."""
    from rich.console import Console

    from dpunion.budget import guarantee
    from dpunion.chances import HEAD, find_needed
    from dpunion.releases.statements import expected_mistakes, expected_precision

    console = Console(highlight=False)
    console.begin_capture()
    console.print(f"About this many people must have {planned.nouns.first} for it to be released:\n", style="bold")
    console.print(_table([HEAD, *(one.texts() for one in find_needed(planned))], head=True))
    if planned.candidates is not None:
        console.print("\nAnd this many must have a candidate:\n", style="bold")
        console.print(_table([HEAD, *(one.texts() for one in find_needed(planned, listed=True))], head=True))
        console.print("\n" + expected_mistakes(planned.candidates), markup=False)
    console.print("\n" + "\n".join(_assumptions(planned, " from the list below")), style="dim")
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
    print_result(console.end_capture())


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
