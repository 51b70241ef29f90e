"""The command line: release | plan | demo.

Exit codes: 0 done; 1 a bug in dpunion; 2 a bad option or parameter; 3 the data cannot be read as asked;
4 the output cannot be written; 130 interrupted (nothing is left behind).

Everything heavy is imported inside the commands, so that --help answers at once.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec

import typer

import dpunion
from dpunion.errors import CannotWrite, DpunionError, InternalError

if TYPE_CHECKING:
    from dpunion.plans import Plan
    from dpunion.releases import Release

P = ParamSpec("P")

INTERRUPTED = 130
FIRST_LINES = 12

_interrupts: list[int] = []

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

MODEL = "The privacy"
DATA = "The data"
OUTPUT = "The output"
TUNING = "The algorithm"

Epsilon = Annotated[
    float, typer.Option("--epsilon", "-e", help="How much one person may change the odds.", rich_help_panel=MODEL)
]
Delta = Annotated[
    float,
    typer.Option(
        "--delta", "-d", help="Chance of exceeding that; well below 1 / number of people.", rich_help_panel=MODEL
    ),
]
AlgorithmName = Annotated[
    str, typer.Option("--algorithm", "-a", help="See 'Algorithms' below.", rich_help_panel=TUNING)
]
MaxItems = Annotated[
    int | None,
    typer.Option(help="At most this many items of each person count.", rich_help_panel=TUNING, show_default=False),
]
CalibrationName = Annotated[
    str | None,
    typer.Option("--calibration", help="exact (default) or published.", rich_help_panel=TUNING, show_default=False),
]
CutoffMargin = Annotated[
    float | None,
    typer.Option(
        help="Policies: the cutoff lies so many noise scales above the threshold.",
        rich_help_panel=TUNING,
        show_default=False,
    ),
]
Passes = Annotated[
    int | None,
    typer.Option(help="Policies: how often each person is visited.", rich_help_panel=TUNING, show_default=False),
]
Order = Annotated[
    str | None,
    typer.Option(
        "--user-order", help="Policies: random or smallest-first.", rich_help_panel=TUNING, show_default=False
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any other parameter of the algorithm, for example rounds=3.",
        rich_help_panel=TUNING,
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.", rich_help_panel=OUTPUT)]

ALGORITHM_HELP = (
    "[bold]Algorithms[/bold]: funnel, policy-gaussian, policy-laplace, weighted-gaussian, weighted-laplace, "
    "count-gaussian, count-laplace, dp-sips, optimal-single-item."
)

RELEASE_HELP = f"""Release as many items as possible of the union of people's sets, privately.

SOURCE is one or more files or quoted patterns: Parquet, Arrow IPC, CSV, TSV or JSONL (also .gz, .zst).

[bold]Examples[/bold]

  [cyan]dpunion release posts.parquet --user author --item word -e 1 -d 1e-6 --out vocabulary.parquet[/cyan]

  [cyan]dpunion release 'logs/*.csv.gz' --user uid --item query -e 2 -d 1e-7 > queries.txt[/cyan]

  [cyan]dpunion release reviews.jsonl --user id --text body -e 1 -d 1e-6 --out words.csv --out words.json[/cyan]

{ALGORITHM_HELP}

[bold]Exit codes[/bold]: 0 done, 1 a bug in dpunion, 2 a bad option, 3 bad data, 4 cannot write, 130 interrupted."""

PLAN_HELP = f"""Show every number of a release before any data is read.

[bold]Examples[/bold]

  [cyan]dpunion plan -e 1 -d 1e-6[/cyan]

  [cyan]dpunion plan -e 3 -d 1e-5 --algorithm weighted-gaussian --calibration published --json[/cyan]

{ALGORITHM_HELP}"""


def answering(command: Callable[P, None]) -> Callable[P, None]:
    """Turn what a command raises into one clear message and its exit code; private values never show."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        _interrupts.clear()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _interrupt)
        try:
            command(*args, **kwargs)
        except DpunionError as error:
            _fail(error.what, error.remedy, error.exit_code)
        except InternalError as error:
            _fail(str(error), "", error.exit_code)
        except KeyboardInterrupt:
            _fail("Interrupted.", "Nothing was released and nothing is left behind.", INTERRUPTED)
        except MemoryError:
            _fail("There is not enough memory for this input.", "Use a machine with more memory or fewer rows.", 3)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except Exception as error:  # noqa: BLE001 - the text of an unknown error may hold private values
            if _interrupts:
                _fail("Interrupted.", "Nothing was released and nothing is left behind.", INTERRUPTED)
            place = traceback.extract_tb(error.__traceback__)[-1]
            _fail(
                f"Unexpected {type(error).__name__} at {Path(place.filename).name}:{place.lineno}. "
                "Its text is withheld, as it may hold private values.",
                "This is a bug in dpunion: please report this line. No release was made.",
                InternalError.exit_code,
            )

    return wrapped


def _interrupt(number: int, _frame: object) -> NoReturn:
    """Raise KeyboardInterrupt, and remember it: pyarrow swallows one that comes while it looks for pandas."""
    _interrupts.append(number)
    raise KeyboardInterrupt


def _stop_if_interrupted() -> None:
    if _interrupts:
        raise KeyboardInterrupt


def _fail(what: str, remedy: str, code: int) -> NoReturn:
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, soft_wrap=True)
    console.print(Text("Error: ", style="bold red") + Text(what, style="default"))
    if remedy:
        console.print(Text("  " + remedy))
    raise typer.Exit(code) from None


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"dpunion {dpunion.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Differentially private set union: release vocabularies, n-grams and keys without betraying anyone.

    Try [cyan]dpunion demo[/cyan], then [cyan]dpunion release --help[/cyan].
    """


@app.command("release", help=RELEASE_HELP)
@answering
def release_command(
    source: Annotated[list[str], typer.Argument(metavar="SOURCE...", help="Files or patterns.", show_default=False)],
    epsilon: Epsilon,
    delta: Delta,
    user: Annotated[
        str, typer.Option("--user", "-u", help="The column that says whose row it is.", rich_help_panel=DATA)
    ],
    item: Annotated[str | None, typer.Option("--item", "-i", help="The column of items.", rich_help_panel=DATA)] = None,
    text: Annotated[
        str | None,
        typer.Option("--text", "-t", help="Instead: a column of texts, split into words.", rich_help_panel=DATA),
    ] = None,
    null_users: Annotated[
        str, typer.Option(help="refuse or drop rows that do not say whose they are.", rich_help_panel=DATA)
    ] = "refuse",
    normalize: Annotated[
        str, typer.Option(help="nfc, nfc-lower or exact: what is done to items first.", rich_help_panel=DATA)
    ] = "nfc",
    memory_limit: Annotated[
        str | None,
        typer.Option(
            "--memory-limit",
            help="For example 2GB; beyond it rows wait on disk, privately.",
            rich_help_panel=DATA,
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(
            "--out",
            "-o",
            help="Where to write: .parquet .csv .jsonl .txt .arrow, or .json with the plan too. May be repeated.",
            rich_help_panel=OUTPUT,
            show_default=False,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output.", rich_help_panel=OUTPUT)] = False,
    as_json: AsJson = False,
    algorithm: AlgorithmName = "funnel",
    max_items_per_user: MaxItems = None,
    calibration: CalibrationName = None,
    cutoff_margin: CutoffMargin = None,
    passes: Passes = None,
    user_order: Order = None,
    settings: Settings = None,
    unsafe_test_key: Annotated[
        int | None,
        typer.Option(help="Fix the randomness, for tests. The result is NOT PRIVATE.", rich_help_panel=TUNING),
    ] = None,
) -> None:
    from dpunion.errors import BadParameter
    from dpunion.pipeline import release
    from dpunion.releases import check_target

    if (item is None) == (text is None):
        raise BadParameter(
            "Give exactly one of --item and --text.",
            "Name the column of items, or the column of texts to split into words.",
        )
    chosen = _algorithm(algorithm, max_items_per_user, calibration, cutoff_margin, passes, user_order, settings or [])
    targets = out or []
    for target in targets:
        check_target(target, overwrite=force)
    if len({target.resolve() for target in targets}) < len(targets):
        raise BadParameter("Two --out options name the same file.", "Name each output file once.")
    with _progress() as progress:
        released = release(
            source,
            user=user,
            item=item,
            text=text,
            epsilon=epsilon,
            delta=delta,
            algorithm=chosen,
            null_users=null_users,
            normalize=normalize,
            memory_limit=memory_limit,
            unsafe_test_key=unsafe_test_key,
            progress=progress,
        )
        progress("writing", None)
        for target in targets:
            released.write(target, overwrite=force)
    _answer(released, targets, as_json=as_json)


@app.command("plan", help=PLAN_HELP)
@answering
def plan_command(
    epsilon: Epsilon,
    delta: Delta,
    as_json: AsJson = False,
    algorithm: AlgorithmName = "funnel",
    max_items_per_user: MaxItems = None,
    calibration: CalibrationName = None,
    cutoff_margin: CutoffMargin = None,
    passes: Passes = None,
    user_order: Order = None,
    settings: Settings = None,
) -> None:
    from dpunion.pipeline import plan

    chosen = _algorithm(algorithm, max_items_per_user, calibration, cutoff_margin, passes, user_order, settings or [])
    planned = plan(chosen, epsilon=epsilon, delta=delta)
    if as_json:
        typer.echo(json.dumps(planned.to_dict(), indent=1))
    else:
        _print_plan(planned)


@app.command("demo")
@answering
def demo_command(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the release.")] = Path(
        "demo-release.parquet"
    ),
) -> None:
    """Make a private release from the bundled sample and show what it looks like.

    The sample says which Debian package depends on which; a package plays the part of a person.
    """
    from rich.console import Console

    from dpunion.pipeline import release
    from dpunion.releases import check_target, escape_controls
    from dpunion.samples import debian_depends

    check_target(out, overwrite=True)
    console = Console(highlight=False, soft_wrap=True)
    command = f"dpunion release debian_depends.parquet --user user --item item --epsilon 1 --delta 1e-6 --out {out}"
    console.print(f"[bold]$ {command}[/bold]\n")
    with _progress() as progress:
        released = release(debian_depends(), user="user", item="item", epsilon=1.0, delta=1e-6, progress=progress)
        released.write(out, overwrite=True)
    for name in released.items[:FIRST_LINES]:
        console.print("  " + escape_controls(name), markup=False)
    console.print(f"  ... {len(released):,} items in all\n", markup=False)
    console.print(f"Written to {out}\n", markup=False, style="bold")
    console.print(released.statement, markup=False)


def _algorithm(
    name: str,
    max_items_per_user: int | None,
    calibration: str | None,
    cutoff_margin: float | None,
    passes: int | None,
    user_order: str | None,
    settings: list[str],
) -> Any:
    from dpunion.algorithms import algorithm_named
    from dpunion.research import RESEARCH_POLICIES, refuse_research

    if name in RESEARCH_POLICIES:
        refuse_research(RESEARCH_POLICIES[name])
    given: dict[str, Any] = {
        "max_items_per_user": max_items_per_user,
        "calibration": calibration,
        "cutoff_margin": cutoff_margin,
        "passes": passes,
        "user_order": user_order,
    }
    for setting in settings:
        key, _, value = setting.partition("=")
        given[key.strip().replace("-", "_")] = _plain_value(value.strip())
    return algorithm_named(name, **{key: value for key, value in given.items() if value is not None})


def _plain_value(text: str) -> int | float | str:
    """Return the number the text spells, or the text."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, float | None], None]]:
    """Show a bar on a terminal's stderr, nothing elsewhere; each step is also where a lost interrupt is noticed."""
    if not sys.stderr.isatty():
        yield lambda _stage, _done: _stop_if_interrupted()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("planning", total=None)

        def show(stage: str, done: float | None) -> None:
            _stop_if_interrupted()
            bar.update(task, description=stage, completed=done or 0.0, total=None if done is None else 1.0)

        yield show


def _answer(released: Release, targets: list[Path], *, as_json: bool) -> None:
    from dpunion.releases import escape_controls

    if as_json:
        values = released.to_dict()
        if targets:
            values["released"] = len(values.pop("items"))
            values["written"] = [str(target) for target in targets]
        _print_result(json.dumps(values, ensure_ascii=False, indent=1) + "\n")
        return
    if not targets:
        _print_result("".join(escape_controls(name) + "\n" for name in released.items))
    places = " and ".join(str(target) for target in targets) or "standard output"
    typer.echo(f"Released {len(released):,} items to {places}.\n{released.statement}", err=True)


def _print_result(text: str) -> None:
    """Write to standard output as UTF-8, whatever the locale; a full disk behind it is the user's to mend."""
    problem: str | None = None
    try:
        typer.echo(text.encode("utf-8", "surrogateescape"), nl=False)
    except BrokenPipeError:
        raise
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else type(error).__name__
    if problem is not None:
        raise CannotWrite(f"Writing to standard output failed: {problem}.", "Free some space, or use --out.")


def _print_plan(planned: Plan) -> None:
    from rich.console import Console
    from rich.table import Table

    values = planned.to_dict()
    parameters = values.pop("parameters")
    sensitivity = values.pop("sensitivity")
    table = Table(show_header=False, box=None, pad_edge=False)
    rounds = values.pop("rounds", [])
    for name, value in (values | {f"  {key}": value for key, value in parameters.items()}).items():
        table.add_row(name.replace("_", " "), f"{value:.6g}" if isinstance(value, float) else str(value))
    for number, one in enumerate(rounds, 1):
        numbers = ", ".join(f"{key} {value:.4g}" for key, value in one.items())
        table.add_row(f"round {number}", numbers)
    table.add_row("sensitivity", f"{sensitivity['norm']} norm at most {sensitivity['bound']:.6g}")
    console = Console(highlight=False)
    console.print(table)
    console.print("\nNo data was read. These numbers are public.", style="dim")


def main() -> None:
    """Run the command line."""
    # pyarrow imports an installed pandas at its first conversion, which costs half a second and is never needed here.
    sys.modules.setdefault("pandas", None)  # type: ignore[arg-type]
    app()
