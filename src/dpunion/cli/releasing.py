"""The commands release, plan and demo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpunion.cli.answers import answering, check_standard_output, print_json, print_result, progress_bar, say
from dpunion.cli.delivering import answer_again, delivering, entry_of
from dpunion.cli.options import (
    ALGORITHM_HELP,
    DATA,
    OUTPUT,
    AlgorithmName,
    AsJson,
    CalibrationName,
    ChargeAgain,
    Config,
    CutoffMargin,
    DatasetName,
    Delta,
    DropUrls,
    Engine,
    Epsilon,
    Force,
    InputFormat,
    LedgerPlace,
    Master,
    MaxItems,
    NullUsersChoice,
    Order,
    Out,
    OutFolder,
    Passes,
    Query,
    Sentences,
    Settings,
    Shards,
    SparkSettings,
    TestKey,
    TokenizerName,
    UserColumn,
    WeakBudget,
    build_algorithm,
)
from dpunion.cli.records import check_outputs, record_configuration, record_place

if TYPE_CHECKING:
    from dpunion.plans import Plan
    from dpunion.releases import Release

FIRST_LINES = 12

RELEASE_HELP = f"""Release as many items as possible of the union of people's sets, privately.

SOURCE is one or more files or quoted patterns: Parquet, Arrow IPC, CSV, TSV or JSONL (also .gz, .zst); a folder of
Parquet files; a database (postgresql://..., SQLite or DuckDB file) with --query; or - for standard input.

[bold]Examples[/bold]

  [cyan]dpunion release posts.parquet --user author --item word -e 1 -d 1e-6 --out vocabulary.parquet[/cyan]

  [cyan]dpunion release 'logs/*.csv.gz' --user uid --item query -e 2 -d 1e-7 > queries.txt[/cyan]

  [cyan]dpunion release reviews.jsonl --user id --text body -e 1 -d 1e-6 --out words.csv --out words.json[/cyan]

  [cyan]dpunion release visits.csv -u id --item country --item device -e 1 -d 1e-6 --out keys.csv[/cyan]

  [cyan]dpunion release hdfs:///logs --engine spark --master yarn -u uid -i query -e 1 -d 1e-9 --out-folder hdfs:///q[/cyan]

  [cyan]dpunion release new.csv -u id -i word -e 1 -d 1e-6 --known old.parquet --ledger budget.db --dataset posts[/cyan]

{ALGORITHM_HELP}

[bold]Exit codes[/bold]: 0 done, 1 a bug in dpunion, 2 a bad option, 3 bad data, 4 cannot write, 5 the ledger refused,
6 made before: it is where it was asked for, and nothing was charged, 130 interrupted."""

PLAN_HELP = f"""Show every number of a release before any data is read.

[bold]Examples[/bold]

  [cyan]dpunion plan -e 1 -d 1e-6[/cyan]

  [cyan]dpunion plan -e 1 -d 1e-6 --html budget.html[/cyan]

  [cyan]dpunion plan -e 3 -d 1e-5 --algorithm weighted-gaussian --calibration published --json[/cyan]

{ALGORITHM_HELP}"""


@answering
def release_command(
    source: Annotated[list[str], typer.Argument(metavar="SOURCE...", help="What to read.", show_default=False)],
    epsilon: Epsilon,
    delta: Delta,
    user: UserColumn,
    item: Annotated[
        list[str] | None,
        typer.Option(
            "--item",
            "-i",
            help="The column of items; repeat it for keys of several columns.",
            rich_help_panel=DATA,
            show_default=False,
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option("--text", "-t", help="Instead: a column of texts, split into words.", rich_help_panel=DATA),
    ] = None,
    ngrams: Annotated[
        str | None,
        typer.Option("--ngrams", help="Texts: n-grams of these lengths, like 1-3, as one set.", rich_help_panel=DATA),
    ] = None,
    tokenizer: TokenizerName = "words",
    drop_urls: DropUrls = False,
    sentences: Sentences = False,
    query: Query = None,
    input_format: InputFormat = None,
    null_users: NullUsersChoice = "refuse",
    normalize: Annotated[
        str, typer.Option(help="nfc, nfc-lower or exact: what is done to items first.", rich_help_panel=DATA)
    ] = "nfc",
    known: Annotated[
        Path | None,
        typer.Option("--known", help="A public list to leave out, so that new items are found.", rich_help_panel=DATA),
    ] = None,
    include_known: Annotated[
        bool, typer.Option("--include-known", help="Add the known list to the result.", rich_help_panel=DATA)
    ] = False,
    memory_limit: Annotated[
        str | None,
        typer.Option(
            "--memory-limit",
            help="For example 2GB; beyond it rows wait on disk, privately.",
            rich_help_panel=DATA,
            show_default=False,
        ),
    ] = None,
    weak_budget: WeakBudget = False,
    out: Out = None,
    force: Force = False,
    as_json: AsJson = False,
    ledger: LedgerPlace = None,
    dataset: DatasetName = None,
    charge_again: ChargeAgain = False,
    algorithm: AlgorithmName = "funnel",
    max_items_per_user: MaxItems = None,
    calibration: CalibrationName = None,
    cutoff_margin: CutoffMargin = None,
    passes: Passes = None,
    user_order: Order = None,
    settings: Settings = None,
    engine: Engine = "local",
    master: Master = None,
    shards: Shards = None,
    spark_settings: SparkSettings = None,
    out_folder: OutFolder = None,
    unsafe_test_key: TestKey = None,
    config: Config = None,
) -> None:
    """Release as many items as possible of the union of people's sets, privately."""
    from dpunion.cli.spark import opened_source, spark_options
    from dpunion.errors import AlreadyReleased, BadParameter
    from dpunion.pipeline import release

    if bool(item) == (text is not None):
        raise BadParameter(
            "Give exactly one of --item and --text.",
            "Name the column of items, or the column of texts to split into words.",
        )
    if out_folder is not None and (out or as_json):
        raise BadParameter(
            "--out-folder leaves the items on the cluster.", "Leave out --out and --json, or use only them."
        )
    chosen = build_algorithm(algorithm, max_items_per_user, calibration, cutoff_margin, passes, user_order, settings)
    targets = out or []
    place = record_place(targets, out_folder)
    if out_folder is None and (as_json or not targets):
        check_standard_output()
    options: dict[str, Any] = {
        "user": user,
        "item": item[0] if item and len(item) == 1 else item or None,
        "text": text,
        "epsilon": epsilon,
        "delta": delta,
        "weak_budget": weak_budget,
        "ngrams": ngrams,
        "tokenizer": tokenizer,
        "drop_urls": drop_urls,
        "sentences": sentences,
        "query": query,
        "input_format": input_format,
        "null_users": null_users,
        "normalize": normalize,
        "known": known,
        "include_known": include_known,
        "memory_limit": memory_limit,
        "ledger": ledger,
        "dataset": dataset,
        "charge_again": charge_again,
        "unsafe_test_key": unsafe_test_key,
    }
    check_outputs(targets, place, {"source": source, "known list": known, "ledger": ledger, "configuration": config})
    try:
        with opened_source(
            engine,
            source,
            master=master,
            shards=shards,
            settings=spark_settings,
            out_folder=out_folder,
            options=options,
        ) as (where, progress, left):
            output: Any = {"out": targets} if out_folder is None else {"out": out_folder, "collect": False}
            released = release(where, algorithm=chosen, overwrite=force, progress=progress, **output, **left)
    except AlreadyReleased as already:
        answer_again(already, targets, overwrite=force, as_json=as_json)
    with delivering(released, [released.stored] if released.stored else targets):
        spark = spark_options(engine, master, shards, spark_settings)
        record_configuration(place, {"source": source, "out": out, "out_folder": out_folder} | options | spark, chosen)
        if released.stored is not None:
            say(f"Released to {released.stored}.\n{released.statement}")
            return
        _answer(released, targets, as_json=as_json)


@answering
def plan_command(
    epsilon: Epsilon,
    delta: Delta,
    weak_budget: WeakBudget = False,
    as_json: AsJson = False,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            help="Draw how likely an item is released, by the number of people who hold it, into this page.",
            rich_help_panel=OUTPUT,
            show_default=False,
        ),
    ] = None,
    force: Force = False,
    algorithm: AlgorithmName = "funnel",
    max_items_per_user: MaxItems = None,
    calibration: CalibrationName = None,
    cutoff_margin: CutoffMargin = None,
    passes: Passes = None,
    user_order: Order = None,
    settings: Settings = None,
) -> None:
    """Show every number of a release before any data is read."""
    from dpunion.pipeline import plan

    chosen = build_algorithm(
        algorithm, max_items_per_user, calibration, cutoff_margin, passes, user_order, settings or []
    )
    planned = plan(chosen, epsilon=epsilon, delta=delta, weak_budget=weak_budget)
    if html is not None:
        from dpunion.report import check_page, plan_page, write_page

        check_page(html, overwrite=force)
        write_page(html, plan_page(planned), overwrite=force)
        typer.echo(f"Written to {html}.", err=True)
    if as_json:
        typer.echo(json.dumps(planned.to_dict(), indent=1))
    else:
        _print_plan(planned)


@answering
def demo_command(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the release.")] = Path(
        "demo-release.parquet"
    ),
    force: Force = False,
) -> None:
    """Make a private release from the bundled sample and show what it looks like.

    The sample says which Debian package depends on which; a package plays the part of a person.
    """
    from rich.console import Console

    from dpunion.pipeline import release
    from dpunion.releases import check_target, escape_controls
    from dpunion.samples import debian_depends

    check_target(out, overwrite=force)
    check_outputs([out], None, {"source": debian_depends()})
    console = Console(highlight=False, soft_wrap=True)
    command = f"dpunion release debian_depends.parquet --user user --item item --epsilon 1 --delta 1e-6 --out {out}"
    console.print(f"[bold]$ {command}[/bold]\n")
    with progress_bar() as progress:
        released = release(debian_depends(), user="user", item="item", epsilon=1.0, delta=1e-6, progress=progress)
        released.write(out, overwrite=force)
    for name in released.items[:FIRST_LINES]:
        console.print("  " + escape_controls(name), markup=False)
    console.print(f"  ... {len(released):,} items in all\n", markup=False)
    console.print(f"Written to {out}\n", markup=False, style="bold")
    console.print(released.statement, markup=False)


def _answer(released: Release, targets: list[Path], *, as_json: bool) -> None:
    from dpunion.releases import text_line

    if as_json:
        values = released.to_dict() | {"ledger": entry_of(released)}
        if targets:
            values["released"] = len(values.pop("items"))
            values["written"] = [str(target) for target in targets]
        print_json(values)
        return
    if not targets:
        print_result("".join(text_line(row) + "\n" for row in released.rows()))
    places = " and ".join(str(target) for target in targets) or "standard output"
    say(f"Released {len(released):,} items to {places}.\n{released.statement}")


def _print_plan(planned: Plan) -> None:
    from rich.console import Console
    from rich.table import Table

    from dpunion.budget import guarantee

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
    console.print("\n" + "\n".join(guarantee(planned.budget, subject="A list made by this plan")), markup=False)
    console.print("\nNo data was read. These numbers are public.", style="dim")
