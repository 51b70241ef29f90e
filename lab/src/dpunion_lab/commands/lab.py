"""The commands lab reproduce, lab compare and lab generate: study, never a release."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from dpunion.cli import INTERRUPTED
from dpunion.cli.answers import answering, fail, print_result, progress_bar, say
from dpunion.cli.groups import Group, in_groups, option_group
from dpunion.cli.options import (
    DATA,
    OUTPUT,
    TUNING,
    AsJson,
    Force,
    InputFormat,
    NullUsersChoice,
    Query,
    local_source,
    plain_value,
)
from dpunion.cli.texts import Normalize, TextOptions
from dpunion.errors import BadParameter

SECONDS_BETWEEN_LINES = 5.0

lab_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Study algorithms: reproduce the papers' tables, compare, generate data. Never a release; NOT PRIVATE.",
)

REPRODUCE_HELP = """Repeat the evaluation of Gopi et al. on generated data, next to their published numbers.

Adds Funnel, DP-SIPS and the ceiling that no private algorithm can exceed. Published policies that are not private are
run for study and say so. With [cyan]--out[/cyan], an interrupted run continues where it stopped.

[bold]Examples[/bold]

  [cyan]dpunion lab reproduce --quick[/cyan]

  [cyan]dpunion lab reproduce --out reproduction --html reproduction.html[/cyan]

The lab never releases: its results are [bold]NOT PRIVATE[/bold], and it keeps no ledger."""

COMPARE_HELP = """Compare algorithms on your own or generated data: how many items each setting of a grid releases.

Lists are written with commas; all combinations are tried, each algorithm taking the parameters it has. With
[cyan]--out[/cyan], finished trials are kept as they come: the same command after an interruption runs only the missing
ones.

[bold]Examples[/bold]

  [cyan]dpunion lab compare --generate 20000 -a funnel -a greedy -e 1,3 -d 1e-5 --max-items-per-user 100,300[/cyan]

  [cyan]dpunion lab compare public.parquet -u author -i word -e 1 -d 1e-6 --trials 5 --out results.parquet[/cyan]

  [cyan]dpunion lab compare public.jsonl -u author -t body --ngrams 1-2 -e 1 -d 1e-6 --passes 1,2[/cyan]

[bold]Algorithms[/bold]: those of dpunion release, and for study the published policies that are not private: greedy,
l1-descent-l2-budget.

The lab never releases: sizes measured on people's data are [bold]NOT PRIVATE[/bold], and it keeps no ledger."""

GENERATE_HELP = """Generate data like that of the papers (users of r/AskReddit and their words), as Parquet or CSV.

[bold]Examples[/bold]

  [cyan]dpunion lab generate words.parquet --users 50000 --seed 1[/cyan]

  [cyan]dpunion lab generate papers.parquet --fitted[/cyan]"""

Ledger = Annotated[str | None, typer.Option("--ledger", hidden=True)]
Html = Annotated[
    Path | None,
    typer.Option("--html", help="Also write a page with charts.", rich_help_panel=OUTPUT, show_default=False),
]
Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Number of trials to run in parallel.", rich_help_panel=TUNING)]
Numbers = list[str] | None


def _numbers(option: str, panel: str, help_text: str, *short: str) -> Any:
    return typer.Option(option, *short, help=help_text, rich_help_panel=panel, show_default=False, metavar="LIST")


@lab_app.command("reproduce", help=REPRODUCE_HELP)
@answering
def reproduce_command(
    quick: Annotated[bool, typer.Option("--quick", help="Use few users and one trial: takes seconds.")] = False,
    users: Annotated[int | None, typer.Option(help="Number of users to generate.", show_default="223388")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the generated data.")] = 0,
    trials: Annotated[int | None, typer.Option(help="Number of runs to average.", show_default="5")] = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            help="Parquet file with columns user and text, for n-grams.", show_default="DPUNION_DATA's reviews"
        ),
    ] = None,
    jobs: Jobs = 2,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A folder for results.json and trials.parquet.", rich_help_panel=OUTPUT),
    ] = None,
    html: Html = None,
    force: Annotated[bool, typer.Option("--force", help="Start over.", rich_help_panel=OUTPUT)] = False,
    as_json: AsJson = False,
    ledger: Ledger = None,
) -> None:
    """Run the papers' evaluation again."""
    refuse_ledger(ledger)
    from dpunion_lab.reproduction import JOURNAL, reproduce

    journal = None if out is None else out / JOURNAL
    check_html(html, texts, overwrite=force or (journal is not None and journal.exists()))
    with study(journal) as tell:
        result = reproduce(
            quick=quick,
            users=users,
            trials=trials,
            seed=seed,
            jobs=jobs,
            texts=texts,
            out=out,
            overwrite=force,
            progress=tell,
        )
    print_result(as_text(result.to_dict()) if as_json else result.text())
    if html is not None:
        from dpunion_lab.commands.lab_pages import reproduction_page

        write_html(html, reproduction_page(result))
    if out is not None:
        say(f"Results, NOT PRIVATE, are in {out}.")


@option_group
class StudyData(Group):
    """What is studied: public data, or generated."""

    source: Annotated[list[str] | None, typer.Argument(metavar="SOURCE...", help="Public data.")] = None
    generate: Annotated[
        int | None, typer.Option(help="Instead of a source: generate this many users.", rich_help_panel=DATA)
    ] = None
    seed: Annotated[int, typer.Option(help="Seed of the generated data.", rich_help_panel=DATA)] = 0
    user: Annotated[
        str | None, typer.Option("--user", "-u", help="Column with the user ids.", rich_help_panel=DATA)
    ] = None
    item: Annotated[
        list[str] | None,
        typer.Option(
            "--item", "-i", help="Column or columns with the items.", rich_help_panel=DATA, show_default=False
        ),
    ] = None
    text: Annotated[str | None, typer.Option("--text", "-t", help="Instead: texts.", rich_help_panel=DATA)] = None
    ngrams: Annotated[str | None, typer.Option(help="Texts: lengths of n-grams, like 1-3.", rich_help_panel=DATA)] = (
        None
    )
    query: Query = None
    input_format: InputFormat = None
    null_users: NullUsersChoice = "refuse"
    normalize: Normalize = None

    def what_to_read(self, texts: TextOptions) -> tuple[Any, dict[str, Any]]:
        """Return the source, or what generates it, and how it is read."""
        from dpunion_lab.generators import AskRedditLike

        texts.check_texts(self.text, self.ngrams)
        if bool(self.source) == (self.generate is not None):
            raise BadParameter(
                "Give exactly one of SOURCE and --generate.",
                "Name public data, or give the number of users to generate.",
            )
        if self.generate is not None:
            if self.user is not None or self.item or self.text is not None:
                raise BadParameter("Generated data has its own columns.", "Leave out --user, --item and --text.")
            return AskRedditLike(users=self.generate, seed=self.seed), {}
        if self.user is None or bool(self.item) == (self.text is not None):
            raise BadParameter("A source needs --user and exactly one of --item and --text.", "Name its columns.")
        item = self.item if self.text is None else texts.words(self.text, self.ngrams)
        reading = {"query": self.query, "null_users": self.null_users, "normalize": self.normalize}
        return local_source(self.source or [], self.input_format), {"user": self.user, "item": item} | reading


@option_group
class GridOptions(Group):
    """Which settings are tried."""

    epsilon: Annotated[list[str], _numbers("--epsilon", TUNING, "Values to try, with commas.", "-e")]
    delta: Annotated[list[str], _numbers("--delta", TUNING, "Values to try, with commas.", "-d")]
    algorithm: Annotated[
        list[str] | None,
        typer.Option("--algorithm", "-a", help="May be repeated.", rich_help_panel=TUNING, show_default="five"),
    ] = None
    max_items_per_user: Annotated[
        Numbers, _numbers("--max-items-per-user", TUNING, "Limits of items per user to try.")
    ] = None
    cutoff_margin: Annotated[Numbers, _numbers("--cutoff-margin", TUNING, "Policies and Funnel.")] = None
    passes: Annotated[Numbers, _numbers("--passes", TUNING, "Policies.")] = None
    rounds: Annotated[Numbers, _numbers("--rounds", TUNING, "Funnel and DP-SIPS.")] = None
    calibration: Annotated[Numbers, _numbers("--calibration", TUNING, "exact, published.")] = None
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=LIST", help="Any other parameter.", rich_help_panel=TUNING),
    ] = None
    trials: Annotated[int, typer.Option(help="Number of runs of each setting.", rich_help_panel=TUNING)] = 3
    jobs: Jobs = 2

    def grid(self) -> dict[str, Any]:
        """Return the lists of numbers to try, as `compare` takes them."""
        from dpunion_lab.comparison import DEFAULT

        parameters = {name: listed(name, values.split(",")) for name, values in map(_named, self.settings or [])}
        if self.calibration:
            parameters["calibration"] = listed("calibration", self.calibration)
        return {
            "algorithms": self.algorithm or DEFAULT,
            "epsilon": listed("epsilon", self.epsilon, float),
            "delta": listed("delta", self.delta, float),
            "max_items_per_user": listed("max-items-per-user", self.max_items_per_user, int),
            "cutoff_margin": listed("cutoff-margin", self.cutoff_margin, float),
            "passes": listed("passes", self.passes, int),
            "rounds": listed("rounds", self.rounds, int),
            "parameters": parameters,
            "trials": self.trials,
            "jobs": self.jobs,
        }


@lab_app.command("compare", help=COMPARE_HELP)
@answering
@in_groups
def compare_command(
    data: StudyData,
    texts: TextOptions,
    tuning: GridOptions,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Results: .parquet or .json.", rich_help_panel=OUTPUT, show_default=False),
    ] = None,
    html: Html = None,
    force: Annotated[bool, typer.Option("--force", help="Start over.", rich_help_panel=OUTPUT)] = False,
    as_json: AsJson = False,
    ledger: Ledger = None,
) -> None:
    """Compare algorithms on data for study."""
    refuse_ledger(ledger)
    from dpunion_lab.comparison import compare, journal_of

    place, reading = data.what_to_read(texts)
    journal = None if out is None else journal_of(out)
    check_html(html, data.source, overwrite=force or (journal is not None and journal.exists()))
    with study(journal) as tell:
        result = compare(place, out=out, overwrite=force, progress=tell, **tuning.grid(), **reading)
    if as_json:
        print_result(as_text(result.to_dict()))
    else:
        print_result(f"{result.to_dict()['warning']}\n\n{result.table().text()}\n")
    if html is not None:
        from dpunion_lab.commands.lab_pages import comparison_page

        write_html(html, comparison_page(result))
    if out is not None:
        say(f"Results, NOT PRIVATE, are in {out}; {journal_of(out).name} next to it keeps the finished trials.")


@lab_app.command("generate", help=GENERATE_HELP)
@answering
def generate_command(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A .parquet or .csv file.", show_default=False)],
    users: Annotated[int, typer.Option(help="Number of users.")] = 223_388,
    seed: Annotated[int, typer.Option(help="The same seed gives the same data.")] = 0,
    fitted: Annotated[
        bool, typer.Option("--fitted", help="Use the data that reproduce uses, fitted to the papers' figures.")
    ] = False,
    force: Force = False,
    ledger: Ledger = None,
) -> None:
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


def refuse_ledger(ledger: str | None) -> None:
    """Refuse to touch a ledger, with the reason."""
    if ledger is not None:
        raise BadParameter(
            "The lab keeps no ledger: it makes no release, and what it measures on data is NOT PRIVATE at any budget.",
            "Leave --ledger out and study public or generated data; dpunion release charges a ledger.",
        )


@contextlib.contextmanager
def study(
    journal: Path | None, remedy: str = "use --out to continue later."
) -> Iterator[Callable[[str, float | None], None]]:
    """Show progress on stderr, as lines where there is no terminal; an interruption says what is kept.

    remedy: what to do after an interruption where there is no journal.
    """
    last = [time.monotonic()]
    try:
        with progress_bar() as show:

            def tell(stage: str, done: float | None) -> None:
                show(stage, done)
                now = time.monotonic()
                if not sys.stderr.isatty() and now - last[0] >= SECONDS_BETWEEN_LINES:
                    last[0] = now
                    say(stage if done is None else f"{stage}: {100.0 * done:.0f} %")

            yield tell
    except KeyboardInterrupt:
        kept = f"Nothing was kept: {remedy}"
        if journal is not None:
            kept = f"Finished trials are in {journal}; the same command runs the others."
        fail("Interrupted.", kept, INTERRUPTED)


def listed(name: str, texts: list[str] | None, kind: type = str) -> tuple[Any, ...]:
    """Return the values of options that may be lists with commas; without a kind, numbers are told from words."""
    words = [word.strip() for text in texts or [] for word in text.split(",")]
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
        from dpunion.reading.overlaps import refuse_overwriting
        from dpunion.report import check_page
        from dpunion.report.charts import load_library

        for library in ("jinja2", "vl_convert"):
            load_library(library)  # before anything is computed
        check_page(html, overwrite=overwrite)
        refuse_overwriting(html, {"source": source})


def write_html(html: Path, page: str) -> None:
    """Write the page; it was checked before."""
    from dpunion.report import write_page

    write_page(html, page, overwrite=True, owner_only=True)
    say(f"The page is {html}.")


def as_text(values: dict[str, Any]) -> str:
    """Return values as JSON."""
    return json.dumps(values, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _named(setting: str) -> tuple[str, str]:
    name, equals, values = setting.partition("=")
    if not equals:
        raise BadParameter(f"--set {setting} has no value.", "Write NAME=VALUE, for example keep_margin=0.5,1.")
    return name.strip().replace("-", "_"), values
