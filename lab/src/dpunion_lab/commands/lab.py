"""The commands of `dpunion lab`: reproduce, compare, generate, reach, rounds and worlds. Study, never a release."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dpunion.checks import AlgorithmName, CalibrationName
from dpunion.cli import INTERRUPTED, options
from dpunion.cli.answers import fail, print_result, progress_bar, say
from dpunion.cli.help import Commands, command
from dpunion.cli.options import DATA, FILE, OUTPUT, TUNING, Argument, Given, Option, OptionGroup, plain_value
from dpunion.errors import BadParameter

SECONDS_BETWEEN_LINES = 5.0

REPRODUCE_HELP = """Repeat the evaluation of Gopi et al. on generated data, next to their published numbers.

Adds Funnel, DP-SIPS and the ceiling that no private algorithm can exceed. Published policies that are not private are
run for study and say so. With [cyan]--out[/cyan], an interrupted run continues where it stopped.

[bold]Examples[/bold]
  dpunion lab reproduce --quick
  dpunion lab reproduce --out reproduction --html reproduction.html

The lab never releases: its results are [bold]NOT PRIVATE[/bold], and it keeps no ledger."""

COMPARE_HELP = """Compare algorithms on your own or generated data: how many items each setting of a grid releases.

Lists are written with commas; all combinations are tried, each algorithm taking the parameters it has. With
[cyan]--out[/cyan], finished trials are kept as they come: the same command after an interruption runs only the missing
ones.

[bold]Examples[/bold]
  dpunion lab compare --generate 20000 -a funnel -a greedy -e 1,3 -d 1e-5 --max-items-per-user 100,300
  dpunion lab compare public.parquet -u author -i word -e 1 -d 1e-6 --trials 5 --out results.parquet
  dpunion lab compare public.jsonl -u author -t body --ngrams 1-2 -e 1 -d 1e-6 --passes 1,2

[bold]Algorithms[/bold]: those of dpunion release, and for study the published policies that are not private: greedy,
l1-descent-l2-budget.

The lab never releases: sizes measured on people's data are [bold]NOT PRIVATE[/bold], and it keeps no ledger."""

GENERATE_HELP = """Generate data like that of the papers (users of r/AskReddit and their words), as Parquet or CSV.

[bold]Examples[/bold]
  dpunion lab generate words.parquet --users 50000 --seed 1
  dpunion lab generate papers.parquet --fitted"""

REACH_HELP = """Measure how many of the items that an all-knowing allocation lifts to the threshold Funnel releases.

The all-knowing allocation sees all sets, spends all weight freely and has no noise. It is found by
search, so the true one may be larger still. Compare with the ceiling of [cyan]lab compare[/cyan], which no private
algorithm exceeds.

[bold]Examples[/bold]
  dpunion lab reach --generate 20000 -e 3 -d 1e-5
  dpunion lab reach public.parquet -u author -i word -e 1 -d 1e-6

The lab never releases: its results are [bold]NOT PRIVATE[/bold], and it keeps no ledger."""

ROUNDS_HELP = """Show one run of Funnel round by round: items that pass, drop out or go on, and where the weight went.

[bold]Examples[/bold]
  dpunion lab rounds --generate 20000 -e 3 -d 1e-5
  dpunion lab rounds public.parquet -u author -i word -e 1 -d 1e-6 --json

The lab never releases: its results are [bold]NOT PRIVATE[/bold], and it keeps no ledger."""

WORLDS_HELP = """Compare dpunion's estimates and choices with the best in hindsight, on randomly generated worlds.

A world is generated data with random size, shape and budget. [cyan]counts[/cyan] compares the numbers of
people with the best weights in hindsight, and checks intervals and sums; [cyan]bound[/cyan] compares the items per
person that dpunion chooses privately with all its other choices; [cyan]funnel[/cyan] compares Funnel with the other
algorithms; [cyan]candidates[/cyan] compares a release with a random list of candidates with one without. The same seed
gives the same worlds and figures.

[bold]Examples[/bold]
  dpunion lab worlds --seed 1 --count 100 --out worlds.json
  dpunion lab worlds --seed 1 --only 17 --of counts

The lab never releases: its results are [bold]NOT PRIVATE[/bold], and it keeps no ledger."""

# --- options ------------------------------------------------------------------------------------------------

ledger = Option("--ledger", "", hidden=True)
html = Option("--html", "Also write a page with charts.", FILE, heading=OUTPUT)
start_over = Option("--force", "Start over.", bool, heading=OUTPUT)
jobs = Option("--jobs -j", "Number of trials to run in parallel.", int, default=2, heading=TUNING)

data = OptionGroup(
    DATA,
    Option("--generate", "Instead of a source: generate this many users.", int),
    Option("--seed", "Seed of the generated data.", int, default=0),
    Option("--user -u", "Column with the user ids.", metavar="COLUMN"),
    Option("--item -i", "Column or columns with the items.", metavar="COLUMN", multiple=True),
    Option("--text -t", "Instead: texts.", metavar="COLUMN"),
    Option("--ngrams", "Texts: lengths of n-grams, like 1-3."),
    *options.database,
    options.normalize,
)
source = Argument("source", "Public data.", metavar="SOURCE...", nargs=-1, required=False)
study_options = [source, *data, *options.texts]

grid = OptionGroup(
    TUNING,
    Option("--epsilon -e", "Values to try, with commas.", metavar="LIST", multiple=True, required=True),
    Option("--delta -d", "Values to try, with commas.", metavar="LIST", multiple=True, required=True),
    Option("--algorithm -a", "May be repeated.", AlgorithmName, multiple=True, show_default="five"),
    Option("--max-items-per-user", "Limits of items per user to try.", metavar="LIST", multiple=True),
    Option("--cutoff-margin", "Policies and Funnel.", metavar="LIST", multiple=True),
    Option("--passes", "Policies.", metavar="LIST", multiple=True),
    Option("--rounds", "Funnel and DP-SIPS.", metavar="LIST", multiple=True),
    Option("--calibration", "exact, published.", CalibrationName, metavar="LIST", multiple=True),
    Option("--set settings", "Any other parameter.", metavar="NAME=LIST", multiple=True),
    Option("--trials", "Number of runs of each setting.", int, default=3),
    jobs,
)
budget = OptionGroup(
    TUNING,
    Option("--epsilon -e", "The budget.", float, required=True),
    Option("--delta -d", "The budget.", float, required=True),
)


# --- commands -----------------------------------------------------------------------------------------------


@command(
    "reproduce",
    REPRODUCE_HELP,
    [
        Option("--quick", "Use few users and one trial: takes seconds.", bool),
        Option("--users", "Number of users to generate.", int, show_default="223388"),
        Option("--seed", "Seed of the generated data.", int, default=0),
        Option("--trials", "Number of runs to average.", int, show_default="5"),
        Option(
            "--texts",
            "Parquet file with columns user and text, for n-grams.",
            FILE,
            show_default="DPUNION_DATA's reviews",
        ),
        jobs,
        Option("--out -o", "A folder for results.json and trials.parquet.", FILE, heading=OUTPUT),
        html,
        start_over,
        options.as_json,
        ledger,
    ],
)
def reproduce_command(*, out: Path | None, html: Path | None, force: bool, as_json: bool, **values: Any) -> None:
    """Run the papers' evaluation again."""
    refuse_ledger(values.pop("ledger"))
    from dpunion_lab.reproduction import JOURNAL, reproduce

    journal = None if out is None else out / JOURNAL
    check_html(html, values["texts"], overwrite=force or (journal is not None and journal.exists()))
    with study(journal) as show:
        result = reproduce(**values, out=out, overwrite=force, progress=show)
    print_result(as_text(result.to_dict()) if as_json else result.text())
    if html is not None:
        from dpunion_lab.commands.pages import reproduction_page

        write_html(html, reproduction_page(result))
    if out is not None:
        say(f"Results, NOT PRIVATE, are in {out}.")


@command(
    "compare",
    COMPARE_HELP,
    study_options,
    grid,
    [
        Option("--out -o", "Results: .parquet or .json.", FILE, heading=OUTPUT),
        html,
        start_over,
        options.as_json,
        ledger,
    ],
)
def compare_command(**values: Any) -> None:
    """Compare algorithms on data for study."""
    given = Given(**values)
    refuse_ledger(given.ledger)
    from dpunion_lab.comparison import compare, journal_of

    place, reading = build_study_source(given)
    journal = None if given.out is None else journal_of(given.out)
    check_html(given.html, list(given.source), overwrite=given.force or (journal is not None and journal.exists()))
    with study(journal) as show:
        result = compare(place, out=given.out, overwrite=given.force, progress=show, **build_grid(given), **reading)
    print_study(result, as_json=given.as_json)
    if given.html is not None:
        from dpunion_lab.commands.pages import comparison_page

        write_html(given.html, comparison_page(result))
    if journal is not None:
        say(f"Results, NOT PRIVATE, are in {given.out}; {journal.name} next to it keeps the finished trials.")


@command(
    "generate",
    GENERATE_HELP,
    [
        Argument("out", "A .parquet or .csv file.", metavar="OUT", type=FILE),
        Option("--users", "Number of users.", int, default=223_388),
        Option("--seed", "The same seed gives the same data.", int, default=0),
        Option("--fitted", "Use the data that reproduce uses, fitted to the papers' figures.", bool),
        options.force,
        ledger,
    ],
)
def generate_command(out: Path, users: int, seed: int, *, fitted: bool, force: bool, ledger: str | None) -> None:
    """Generate data."""
    refuse_ledger(ledger)
    from dpunion_lab.generators import AskRedditFitted, AskRedditLike
    from dpunion_lab.results import write_generated

    kind = AskRedditFitted if fitted else AskRedditLike
    with progress_bar() as show:
        show("generating", None)
        write_generated(out, kind(users=users, seed=seed), overwrite=force)
    say(
        f"Generated {users:,} users into {out}, with columns user and item. The data is artificial, and this is "
        "not a release."
    )


@command(
    "reach",
    REACH_HELP,
    study_options,
    budget,
    [Option("--trials", "Number of runs to average.", int, default=3, heading=TUNING), options.as_json, ledger],
)
def reach_command(**values: Any) -> None:
    """Measure how far Funnel goes."""
    given = Given(**values)
    refuse_ledger(given.ledger)
    from dpunion.algorithms import Funnel
    from dpunion.budget import Budget
    from dpunion_lab.funnel import measure_reach

    place, reading = build_study_source(given)
    allowed = Budget(given.epsilon, given.delta)
    with study(None) as show:
        found = measure_reach(place, Funnel(), allowed, trials=given.trials, progress=show, **reading)
    print_study(found, as_json=given.as_json)


@command("rounds", ROUNDS_HELP, study_options, budget, [options.as_json, ledger])
def rounds_command(**values: Any) -> None:
    """Watch Funnel's rounds."""
    given = Given(**values)
    refuse_ledger(given.ledger)
    from dpunion.algorithms import Funnel
    from dpunion.budget import Budget
    from dpunion_lab.funnel import watch_rounds

    place, reading = build_study_source(given)
    with study(None) as show:
        seen = watch_rounds(place, Funnel(), Budget(given.epsilon, given.delta), progress=show, **reading)
    print_study(seen, as_json=given.as_json)


@command(
    "worlds",
    WORLDS_HELP,
    OptionGroup(
        TUNING,
        Option("--seed", "The same seed gives the same worlds.", int, default=0),
        Option("--count", "Number of worlds.", int, default=100),
        Option("--only", "Only this world.", int),
        Option("--of", "What to compare.", metavar="LIST", multiple=True, show_default="all four"),
        Option("--threads", "Number of worlds in parallel.", int, default=1),
    ),
    [Option("--out -o", "Output file (.json) with all figures.", FILE, heading=OUTPUT)],
    [options.force, options.as_json, ledger],
)
def worlds_command(**values: Any) -> None:
    """Judge dpunion on random worlds."""
    given = Given(**values)
    refuse_ledger(given.ledger)
    from dpunion_lab.hindsight import JUDGED, judge_worlds, tables_of
    from dpunion_lab.results import check_results_file, write_results

    judged = tuple(map(str, listed("of", given.of))) if given.of else JUDGED
    if given.out is not None:
        check_results_file(given.out, "results", (".json",), overwrite=given.force)
    with study(None, "use fewer worlds with --count, or one with --only.") as show:
        found = judge_worlds(
            seed=given.seed, count=given.count, only=given.only, judged=judged, threads=given.threads, progress=show
        )
    tables = "\n\n".join(table.text() for table in tables_of(found))
    print_result(as_text(found) if given.as_json else f"{found['warning']}\n\n{tables}\n")
    if given.out is not None:
        write_results(given.out, found, overwrite=given.force)
        say(f"Results, NOT PRIVATE, are in {given.out}.")


lab_app = Commands(
    "lab",
    [reproduce_command, compare_command, generate_command, reach_command, rounds_command, worlds_command],
    help="Study algorithms: reproduce the papers' tables, compare, generate data. Never a release; NOT PRIVATE.",
    no_args_is_help=True,
)


# --- what the commands share --------------------------------------------------------------------------------


def build_study_source(given: Given) -> tuple[Any, dict[str, Any]]:
    """Return the source, or its generator, and how it is read."""
    from dpunion_lab.generators import AskRedditLike

    options.check_texts(given)
    if bool(given.source) == (given.generate is not None):
        raise BadParameter(
            "Give exactly one of SOURCE and --generate.", "Name public data, or give the number of users to generate."
        )
    if given.generate is not None:
        if given.user is not None or given.item or given.text is not None:
            raise BadParameter("Generated data has its own columns.", "Leave out --user, --item and --text.")
        return AskRedditLike(users=given.generate, seed=given.seed), {}
    if given.user is None or bool(given.item) == (given.text is not None):
        raise BadParameter("A source needs --user and exactly one of --item and --text.", "Name its columns.")
    item = list(given.item) if given.text is None else options.build_words(given, given.ngrams)
    reading = {"query": given.query, "null_users": given.null_users, "normalize": given.normalize}
    return options.local_source(given.source, given.input_format), {"user": given.user, "item": item} | reading


def build_grid(given: Given) -> dict[str, Any]:
    """Return the lists of values to try, as `compare` takes them."""
    from dpunion_lab.comparison import DEFAULT

    parameters = {name: listed(name, values.split(",")) for name, values in map(_split_setting, given.settings)}
    if given.calibration:
        parameters["calibration"] = listed("calibration", given.calibration)
    return {
        "algorithms": list(given.algorithm) or DEFAULT,
        "epsilon": listed("epsilon", given.epsilon, float),
        "delta": listed("delta", given.delta, float),
        "max_items_per_user": listed("max-items-per-user", given.max_items_per_user, int),
        "cutoff_margin": listed("cutoff-margin", given.cutoff_margin, float),
        "passes": listed("passes", given.passes, int),
        "rounds": listed("rounds", given.rounds, int),
        "parameters": parameters,
        "trials": given.trials,
        "jobs": given.jobs,
    }


def refuse_ledger(ledger: str | None) -> None:
    """Refuse --ledger, with the reason."""
    if ledger is not None:
        raise BadParameter(
            "The lab keeps no ledger: it makes no release, and what it measures on data is NOT PRIVATE at any budget.",
            "Leave --ledger out and study public or generated data; dpunion release charges a ledger.",
        )


@contextlib.contextmanager
def study(
    journal: Path | None, remedy: str = "use --out to continue later."
) -> Iterator[Callable[[str, float | None], None]]:
    """Show progress on stderr, as lines if that is no terminal; after an interruption, say which trials are kept.

    remedy: what to do after an interruption if there is no journal.
    """
    last = [time.monotonic()]
    try:
        with progress_bar() as show:

            def show_or_say(stage: str, done: float | None) -> None:
                show(stage, done)
                now = time.monotonic()
                if not sys.stderr.isatty() and now - last[0] >= SECONDS_BETWEEN_LINES:
                    last[0] = now
                    say(stage if done is None else f"{stage}: {100.0 * done:.0f} %")

            yield show_or_say
    except KeyboardInterrupt:
        kept = f"Nothing was kept: {remedy}"
        if journal is not None:
            kept = f"Finished trials are in {journal}; the same command runs the others."
        fail("Interrupted.", kept, INTERRUPTED)


def listed(name: str, texts: Sequence[str], kind: type = str) -> tuple[Any, ...]:
    """Return the values of options that are lists with commas; without a kind, numbers and texts are mixed."""
    words = [word.strip() for text in texts for word in text.split(",")]
    if kind is str:
        return tuple(map(plain_value, words))
    values = []
    for word in words:
        value = plain_value(word)
        if isinstance(value, str) or (kind is int and not isinstance(value, int)):
            raise BadParameter(
                f"--{name} must be {'whole ' if kind is int else ''}numbers with commas between them. Got {word!r}.",
                "Write for example 1,3.",
            )
        values.append(kind(value))
    return tuple(values)


def check_html(html: Path | None, source: object, *, overwrite: bool) -> None:
    """Refuse a page that cannot be written, before the study begins."""
    if html is not None:
        from dpunion.reading.locate import refuse_overwriting
        from dpunion.report import check_page
        from dpunion.report.charts import load_library

        for library in ("jinja2", "vl_convert"):
            load_library(library)  # before anything is computed
        check_page(html, overwrite=overwrite)
        refuse_overwriting(html, {"source": source})


def write_html(html: Path, page: str) -> None:
    """Write the page to a place that was checked before."""
    from dpunion.report import write_page

    write_page(html, page, overwrite=True, owner_only=True)
    say(f"The page is {html}.")


def print_study(result: Any, *, as_json: bool) -> None:
    """Print the values of a study as JSON, or its warning and its table."""
    values = result.to_dict()
    print_result(as_text(values) if as_json else f"{values['warning']}\n\n{result.table().text()}\n")


def as_text(values: dict[str, Any]) -> str:
    """Return values as JSON."""
    return json.dumps(values, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _split_setting(setting: str) -> tuple[str, str]:
    name, equals, values = setting.partition("=")
    if not equals:
        raise BadParameter(f"--set {setting} has no value.", "Write NAME=VALUE, for example keep_margin=0.5,1.")
    return name.strip().replace("-", "_"), values
