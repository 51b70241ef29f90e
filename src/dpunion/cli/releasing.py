"""The commands release, ngrams and demo."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpunion.cli.answers import answering, check_standard_output, progress_bar, say
from dpunion.cli.delivering import answer_again, answer_release, delivering
from dpunion.cli.groups import Group, in_groups, option_group
from dpunion.cli.options import (
    ALGORITHM_HELP,
    DATA,
    TUNING,
    AlgorithmOptions,
    Config,
    CountOptions,
    EngineOptions,
    Force,
    LedgerOptions,
    OutFolder,
    OutputOptions,
    PrivacyOptions,
    ReadingOptions,
    TestKey,
)
from dpunion.cli.records import check_outputs, record_configuration, record_place
from dpunion.cli.telling import AboutOptions
from dpunion.cli.texts import Normalize, TextOptions
from dpunion.errors import AlreadyReleased, BadParameter

if TYPE_CHECKING:
    from dpunion.plans.ngrams import Ngrams

FIRST_LINES = 12

RELEASE_HELP = f"""Release as many items as possible of the union of the users' sets, privately.

SOURCE is one or more files or quoted patterns: Parquet, Arrow IPC, CSV, TSV or JSONL (also .gz, .zst); a folder of
Parquet files; either at s3://, gs:// or abfs:// too; a Delta or Iceberg table; a database
(postgresql://..., SQLite or DuckDB file) or Parquet files with --query; or - for standard input.

[bold]Examples[/bold]

  [cyan]dpunion release posts.parquet --user author --item word -e 1 -d 1e-6 --out vocabulary.parquet[/cyan]

  [cyan]dpunion release 'logs/*.csv.gz' --user uid --item query -e 2 -d 1e-7 > queries.txt[/cyan]

  [cyan]dpunion release reviews.jsonl --user id --text body -e 1 -d 1e-6 --out words.csv --out words.json[/cyan]

  [cyan]dpunion release visits.csv -u id --item country --item device -e 1 -d 1e-6 --out keys.csv[/cyan]

  [cyan]dpunion release posts.parquet -u author -i word -e 1 -d 1e-6 --counts --out popular.csv[/cyan]

  [cyan]dpunion release hdfs:///logs --engine spark --master yarn -u uid -i query -e 1 -d 1e-9 --out-folder hdfs:///q[/cyan]

  [cyan]dpunion release new.csv -u id -i word -e 1 -d 1e-6 --known old.parquet --ledger budget.db --dataset posts[/cyan]

{ALGORITHM_HELP}

[bold]Exit codes[/bold]: 0 done, 1 a bug in dpunion, 2 a bad option, 3 bad data, 4 cannot write, 5 the ledger refused,
6 made before (the output is in place, and nothing was charged), 130 interrupted."""

NGRAMS_HELP = """Release n-grams of the users' texts, length by length, privately (DPNE and improvements).

It releases single tokens first, then n-grams whose two parts were released. Longer ones may be spurious, that is
written by nobody; the statement says how many to expect at most.

[bold]Examples[/bold]

  [cyan]dpunion ngrams posts.jsonl --user author --text body --longest 3 -e 1 -d 1e-6 --out ngrams.parquet[/cyan]

  [cyan]dpunion ngrams posts.parquet -u author -t body --longest 2 --first weighted-gaussian -e 3 -d 1e-5[/cyan]

  [cyan]dpunion ngrams hdfs://posts --engine spark --master yarn -u author -t body -e 1 -d 1e-9 -o grams.csv[/cyan]

To release all lengths as one set without spurious n-grams: [cyan]dpunion release --text body --ngrams 1-3[/cyan]."""


@option_group
class ItemOptions(Group):
    """What the items are."""

    item: Annotated[
        list[str] | None,
        typer.Option(
            "--item",
            "-i",
            help="Column with the items. Repeat it for keys of several columns; rows with a missing part are left out.",
            rich_help_panel=DATA,
            show_default=False,
        ),
    ] = None
    text: Annotated[
        str | None,
        typer.Option(
            "--text",
            "-t",
            help="Instead of --item: column with texts, which are split into words.",
            rich_help_panel=DATA,
        ),
    ] = None
    ngrams: Annotated[
        str | None,
        typer.Option(
            "--ngrams", help="Texts: release n-grams of these lengths, like 1-3, as one set.", rich_help_panel=DATA
        ),
    ] = None
    granularity: Annotated[
        str | None,
        typer.Option(
            "--granularity",
            help="Precision of dates and timestamps: hour, day, week, month or year.",
            rich_help_panel=DATA,
            show_default=False,
        ),
    ] = None
    normalize: Normalize = None
    known: Annotated[
        Path | None,
        typer.Option(
            "--known", help="Public list of known items to leave out, to find new ones.", rich_help_panel=DATA
        ),
    ] = None
    include_known: Annotated[
        bool, typer.Option("--include-known", help="Add the known items to the result.", rich_help_panel=DATA)
    ] = False

    def check(self, texts: TextOptions) -> None:
        """Refuse options that do not go together."""
        if bool(self.item) == (self.text is not None):
            raise BadParameter(
                "Give exactly one of --item and --text.",
                "Name the column of items, or the column of texts to split into words.",
            )
        if self.include_known and self.known is None:
            raise BadParameter(
                "--include-known was given without a known list.",
                "Name the list with 'known' (--known), or leave out --include-known.",
            )
        texts.check_texts(self.text, self.ngrams)
        if self.text is not None and self.granularity is not None:
            raise BadParameter("--granularity applies to items, not to texts.", "Leave out --granularity.")

    def values(self) -> dict[str, Any]:
        """Return the options by their names, a single column as one text."""
        return Group.values(self) | {"item": self.item[0] if self.item and len(self.item) == 1 else self.item}

    def asked(self, texts: TextOptions) -> dict[str, Any]:
        """Return the items and the known list, as `release` takes them."""
        from dpunion.requests import Dated, Known

        known = None if self.known is None else Known(self.known, include=self.include_known)
        items = self.item if self.granularity is None else Dated(self.item or (), self.granularity)
        return {"item": items if self.text is None else texts.words(self.text, self.ngrams), "known": known}


Longest = Annotated[int, typer.Option(help="Length of the longest n-grams.", rich_help_panel=DATA)]


@option_group
class NgramOptions(Group):
    """How n-grams are released, length by length."""

    longest: Longest = 3
    first: Annotated[
        str,
        typer.Option(
            help="Algorithm for single tokens: funnel, policy-gaussian or weighted-gaussian.", rich_help_panel=TUNING
        ),
    ] = "funnel"
    later: Annotated[
        str, typer.Option(help="Algorithm for longer n-grams: one of the same three.", rich_help_panel=TUNING)
    ] = "funnel"
    spurious_rate: Annotated[
        float,
        typer.Option(
            help="Expected spurious n-grams, as a part of those released at the length before.", rich_help_panel=TUNING
        ),
    ] = 0.01
    share_ratio: Annotated[
        float, typer.Option(help="Budget of each length divided by that of the length before.", rich_help_panel=TUNING)
    ] = 1.0

    def build(self) -> Ngrams:
        """Return how n-grams are released. The defaults of Ngrams, which are tuned for n-grams, are left alone."""
        from dpunion.plans.ngrams import Ngrams

        chosen = (("first", self.first), ("later", self.later))
        given: Any = {name: value for name, value in chosen if value != "funnel"} | {"longest": self.longest}
        return Ngrams(**given, spurious_rate=self.spurious_rate, share_ratio=self.share_ratio)


@answering
@in_groups
def release_command(
    reading: ReadingOptions,
    items: ItemOptions,
    privacy: PrivacyOptions,
    texts: TextOptions,
    output: OutputOptions,
    ledger: LedgerOptions,
    about: AboutOptions,
    tuning: AlgorithmOptions,
    counting: CountOptions,
    engine: EngineOptions,
    out_folder: OutFolder = None,
    unsafe_test_key: TestKey = None,
    config: Config = None,
) -> None:
    """Release as many items as possible of the union of the users' sets, privately."""
    items.check(texts)
    own = {"unsafe_test_key": unsafe_test_key, "out_folder": out_folder}
    _make(
        (reading, privacy, texts, output, ledger, engine, counting, about),
        items.values() | own,
        config,
        **tuning.asked(),
        **items.asked(texts),
    )


@answering
@in_groups
def ngrams_command(
    reading: ReadingOptions,
    privacy: PrivacyOptions,
    text: Annotated[str, typer.Option("--text", "-t", help="Column with the texts.", rich_help_panel=DATA)],
    texts: TextOptions,
    output: OutputOptions,
    ledger: LedgerOptions,
    about: AboutOptions,
    counting: CountOptions,
    engine: EngineOptions,
    ngrams: NgramOptions,
    normalize: Normalize = None,
    out_folder: OutFolder = None,
    unsafe_test_key: TestKey = None,
    config: Config = None,
) -> None:
    """Release n-grams of people's texts, length by length."""
    own = {"text": text, "normalize": normalize, "unsafe_test_key": unsafe_test_key, "out_folder": out_folder}
    _make(
        (reading, privacy, texts, output, ledger, engine, counting, about),
        own | ngrams.values(),
        config,
        algorithm=ngrams.build(),
        item=texts.words(text),
    )


Groups = tuple[
    ReadingOptions,
    PrivacyOptions,
    TextOptions,
    OutputOptions,
    LedgerOptions,
    EngineOptions,
    CountOptions,
    AboutOptions,
]


def _make(groups: Groups, own: dict[str, Any], config: Path | None, *, algorithm: Any, **asked: Any) -> None:
    """Make the release that the options ask for, record how, and say where it is.

    own: the options that one command alone has.
    """
    from dpunion.pipeline import release
    from dpunion.requests import Folder

    reading, privacy, texts, output, ledger, engine, counting, about = groups
    out_folder = own["out_folder"]
    if out_folder is not None and (output.out or output.as_json):
        raise BadParameter(
            "--out-folder leaves the items on the cluster.", "Leave out --out and --json, or leave out --out-folder."
        )
    engine.check(out_folder)
    targets = output.out or []
    place = record_place(targets, out_folder)
    if out_folder is None and (output.as_json or not targets):
        check_standard_output()
    read = {"source": reading.source, "known list": own.get("known"), "list of stop words": texts.stop_words}
    read |= {"ledger": ledger.ledger, "configuration": config}
    check_outputs(targets, place, read)
    source, charge, told = engine.source(reading), ledger.charge(), about.about()
    asked |= {"null_users": reading.null_users, "normalize": own["normalize"], "sort": output.sort}
    try:
        with engine.running(overwrite=output.force) as run:
            made = release(
                source,
                user=reading.user,
                epsilon=privacy.epsilon,
                delta=privacy.delta,
                weak_budget=privacy.weak_budget,
                algorithm=algorithm,
                counts=counting.asked(),
                query=reading.query,
                out=targets if out_folder is None else Folder(out_folder),
                charge=charge,
                run=dataclasses.replace(run, about=told),
                unsafe_test_key=own["unsafe_test_key"],
                **asked,
            )
    except AlreadyReleased as already:
        answer_again(already, targets, overwrite=output.force, as_json=output.as_json)
    with delivering(made, [made.stored] if made.stored else targets):
        recorded = [group.values() for group in (reading, privacy, texts, ledger, engine, counting, about)]
        options = {name: value for group in recorded for name, value in group.items()}
        options |= {"out": output.out, "sort": output.sort} | own
        record_configuration(place, options, made.plan)
        if made.stored is not None:
            say(f"Released to {made.stored}.\n{made.statement}")
        else:
            answer_release(made, targets, as_json=output.as_json)


@answering
def demo_command(
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Output file of the release, if wanted.", show_default=False)
    ] = None,
    force: Force = False,
) -> None:
    """Make a private release from the bundled sample and show what it looks like.

    The sample says which Debian package depends on which; a package plays the part of a person.
    """
    from rich.console import Console

    from dpunion.cli.terminal import wrap
    from dpunion.pipeline import release
    from dpunion.releases.formats import check_target, escape_controls
    from dpunion.requests import Run
    from dpunion.samples import debian_depends

    if out is not None:
        check_target(out, overwrite=force)
        check_outputs([out], None, {"source": debian_depends()})
    console = Console(highlight=False, soft_wrap=True)
    command = "$ dpunion release debian_depends.parquet --user user --item item --epsilon 1 --delta 1e-6"
    console.print(f"{command} --out {out}\n" if out else f"{command}\n", markup=False, style="bold")
    with progress_bar() as progress:
        run = Run(progress=progress)
        released = release(debian_depends(), user="user", item="item", epsilon=1.0, delta=1e-6, run=run)
        if out is not None:
            released.write(out, overwrite=force)
    for name in released.items[:FIRST_LINES]:
        console.print("  " + escape_controls(name), markup=False)
    console.print(f"  ... {len(released):,} items in all\n", markup=False)
    if out is not None:
        console.print(f"Written to {out}\n", markup=False, style="bold")
    console.print(wrap(released.statement, sys.stdout), markup=False)
    console.print("\nThe command above does the same after: dpunion sample", markup=False)
