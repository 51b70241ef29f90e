"""The command ngrams."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpunion.cli.answers import answering, check_standard_output, print_json, print_result, say
from dpunion.cli.delivering import answer_again, delivering, entry_of
from dpunion.cli.options import (
    DATA,
    TUNING,
    AsJson,
    ChargeAgain,
    Config,
    DatasetName,
    Delta,
    DropUrls,
    Engine,
    Epsilon,
    Force,
    InputFormat,
    LedgerPlace,
    Master,
    NullUsersChoice,
    Out,
    Query,
    Sentences,
    Shards,
    SparkSettings,
    TestKey,
    TokenizerName,
    UserColumn,
    WeakBudget,
)
from dpunion.cli.records import check_outputs, record_configuration, record_place

if TYPE_CHECKING:
    from dpunion.ngrams import NgramRelease

NGRAMS_HELP = """Release n-grams of people's texts, length by length, privately (DPNE and beyond).

Single tokens first; then, length by length, n-grams whose two parts were released. Longer ones may be spurious, that is
written by nobody; the statement says how many to expect.

[bold]Examples[/bold]

  [cyan]dpunion ngrams posts.jsonl --user author --text body --longest 3 -e 1 -d 1e-6 --out ngrams.parquet[/cyan]

  [cyan]dpunion ngrams posts.parquet -u author -t body --longest 2 --first weighted-gaussian -e 3 -d 1e-5[/cyan]

  [cyan]dpunion ngrams hdfs://posts --engine spark --master yarn -u author -t body -e 1 -d 1e-9 -o grams.csv[/cyan]

For all lengths as one set, without spurious ones: [cyan]dpunion release --text body --ngrams 1-3[/cyan]."""


@answering
def ngrams_command(
    source: Annotated[list[str], typer.Argument(metavar="SOURCE...", help="What to read.", show_default=False)],
    epsilon: Epsilon,
    delta: Delta,
    user: UserColumn,
    text: Annotated[str, typer.Option("--text", "-t", help="The column of texts.", rich_help_panel=DATA)],
    longest: Annotated[int, typer.Option(help="The longest n-grams.", rich_help_panel=DATA)] = 3,
    tokenizer: TokenizerName = "words",
    drop_urls: DropUrls = False,
    sentences: Sentences = False,
    query: Query = None,
    input_format: InputFormat = None,
    null_users: NullUsersChoice = "refuse",
    normalize: Annotated[
        str, typer.Option(help="nfc-lower, nfc or exact: what is done to tokens first.", rich_help_panel=DATA)
    ] = "nfc-lower",
    weak_budget: WeakBudget = False,
    out: Out = None,
    force: Force = False,
    as_json: AsJson = False,
    ledger: LedgerPlace = None,
    dataset: DatasetName = None,
    charge_again: ChargeAgain = False,
    first: Annotated[
        str,
        typer.Option(help="Single tokens: funnel, policy-gaussian or weighted-gaussian.", rich_help_panel=TUNING),
    ] = "funnel",
    later: Annotated[
        str, typer.Option(help="Longer n-grams: one of the same three.", rich_help_panel=TUNING)
    ] = "funnel",
    spurious_rate: Annotated[
        float, typer.Option(help="Spurious n-grams, as a part of what was released before.", rich_help_panel=TUNING)
    ] = 0.01,
    share_ratio: Annotated[
        float, typer.Option(help="Each length's share of the budget over the one before.", rich_help_panel=TUNING)
    ] = 1.0,
    engine: Engine = "local",
    master: Master = None,
    shards: Shards = None,
    spark_settings: SparkSettings = None,
    unsafe_test_key: TestKey = None,
    config: Config = None,
) -> None:
    """Release n-grams of people's texts, length by length."""
    from dpunion.cli.spark import opened_source, spark_options
    from dpunion.errors import AlreadyReleased
    from dpunion.ngrams import Ngrams, release_ngrams

    settings = Ngrams(longest=longest, **_chosen(first, later), spurious_rate=spurious_rate, share_ratio=share_ratio)
    targets = out or []
    if as_json or not targets:
        check_standard_output()
    options: dict[str, Any] = {
        "user": user,
        "text": text,
        "epsilon": epsilon,
        "delta": delta,
        "weak_budget": weak_budget,
        "tokenizer": tokenizer,
        "drop_urls": drop_urls,
        "sentences": sentences,
        "query": query,
        "input_format": input_format,
        "null_users": null_users,
        "normalize": normalize,
        "ledger": ledger,
        "dataset": dataset,
        "charge_again": charge_again,
        "unsafe_test_key": unsafe_test_key,
    }
    place = record_place(targets)
    check_outputs(targets, place, {"source": source, "ledger": ledger, "configuration": config})
    try:
        with opened_source(
            engine, source, master=master, shards=shards, settings=spark_settings, out_folder=None, options=options
        ) as (where, progress, left):
            released = release_ngrams(where, settings=settings, out=targets, overwrite=force, progress=progress, **left)
    except AlreadyReleased as already:
        answer_again(already, targets, overwrite=force, as_json=as_json)
    chosen = {"longest": longest, "first": first, "later": later}
    chosen |= {"spurious_rate": spurious_rate, "share_ratio": share_ratio}
    chosen |= spark_options(engine, master, shards, spark_settings)
    with delivering(released, targets):
        record_configuration(place, {"source": source, "out": out} | options | chosen)
        _answer(released, targets, as_json=as_json)


def _chosen(first: str, later: str) -> dict[str, Any]:
    """Leave the defaults of Ngrams alone, which are tuned for n-grams."""
    return {name: value for name, value in (("first", first), ("later", later)) if value != "funnel"}


def _answer(released: NgramRelease, targets: list[Path], *, as_json: bool) -> None:
    from dpunion.releases import escape_controls

    if as_json:
        values = released.to_dict() | {"ledger": entry_of(released)}
        if targets:
            values["released"] = len(values.pop("ngrams"))
            values["written"] = [str(target) for target in targets]
        print_json(values)
        return
    if not targets:
        print_result("".join(f"{escape_controls(ngram)}\t{length}\n" for ngram, length in released.ngrams))
    places = " and ".join(str(target) for target in targets) or "standard output"
    sizes = ", ".join(f"{one.released:,} of length {one.length}" for one in released.results)
    say(f"Released {len(released):,} n-grams ({sizes}) to {places}.\n{released.statement}")
