"""Options that several commands share."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Any

import typer

MODEL = "The privacy"
DATA = "The data"
OUTPUT = "The output"
TUNING = "The algorithm"
SPARK = "Spark"

Epsilon = Annotated[
    float, typer.Option("--epsilon", "-e", help="How much one person may change the odds.", rich_help_panel=MODEL)
]
Delta = Annotated[
    float,
    typer.Option(
        "--delta", "-d", help="Chance of exceeding that; well below 1 / number of people.", rich_help_panel=MODEL
    ),
]
WeakBudget = Annotated[
    bool,
    typer.Option(
        "--weak-budget",
        help="Allow epsilon above 10 or delta above 0.001, which guarantee next to nothing.",
        rich_help_panel=MODEL,
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
TokenizerName = Annotated[
    str,
    typer.Option("--tokenizer", help="Texts: words, whitespace, treebank or icu.", rich_help_panel=DATA),
]
DropUrls = Annotated[bool, typer.Option("--drop-urls", help="Texts: leave out web addresses.", rich_help_panel=DATA)]
Sentences = Annotated[
    bool, typer.Option("--sentences", help="n-grams do not cross the end of a sentence.", rich_help_panel=DATA)
]
UserColumn = Annotated[
    str, typer.Option("--user", "-u", help="The column that says whose row it is.", rich_help_panel=DATA)
]
Query = Annotated[
    str | None,
    typer.Option(
        "--query",
        help="What to read of a database, in SQL. It may keep, drop or change a row by that row, or by the same "
        "person's rows, alone: no LIMIT, HAVING, sample, window or join over other people's rows.",
        rich_help_panel=DATA,
    ),
]
InputFormat = Annotated[
    str | None,
    typer.Option(
        "--input-format",
        help="What standard input holds: csv, tsv, jsonl, arrow; for Spark also parquet, orc, table.",
        rich_help_panel=DATA,
    ),
]
NullUsersChoice = Annotated[
    str, typer.Option("--null-users", help="refuse or drop rows that do not say whose they are.", rich_help_panel=DATA)
]
Out = Annotated[
    list[Path] | None,
    typer.Option(
        "--out",
        "-o",
        help="Where to write: .parquet .csv .jsonl .txt .arrow, or .json with the plan too. May be repeated.",
        rich_help_panel=OUTPUT,
        show_default=False,
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the output.", rich_help_panel=OUTPUT)]
LedgerPlace = Annotated[
    str | None,
    typer.Option("--ledger", help="Charge this ledger: a file or postgresql://...", rich_help_panel=MODEL),
]
DatasetName = Annotated[
    str | None, typer.Option("--dataset", help="The dataset's name in the ledger.", rich_help_panel=MODEL)
]
ChargeAgain = Annotated[
    bool,
    typer.Option("--charge-again", help="Make the same release once more, charging again.", rich_help_panel=MODEL),
]
TestKey = Annotated[
    int | None,
    typer.Option(help="Fix the randomness, for tests. The result is NOT PRIVATE.", rich_help_panel=TUNING),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="A TOML file with any of these options; what is said here wins.",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
Engine = Annotated[
    str, typer.Option("--engine", help="local, or spark: SOURCE is then read by Spark.", rich_help_panel=SPARK)
]
Master = Annotated[
    str | None,
    typer.Option("--master", help="Where Spark runs: local[4], spark://..., yarn.", rich_help_panel=SPARK),
]
Shards = Annotated[
    int | None,
    typer.Option("--shards", help="Policies on Spark: spread the users over so many (8).", rich_help_panel=SPARK),
]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark. May be repeated.", rich_help_panel=SPARK),
]
OutFolder = Annotated[
    str | None,
    typer.Option(
        "--out-folder",
        help="Spark writes Parquet into this folder, on any of its file systems; nothing comes to this machine.",
        rich_help_panel=SPARK,
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.", rich_help_panel=OUTPUT)]

ALGORITHM_HELP = (
    "[bold]Algorithms[/bold]: funnel, policy-gaussian, policy-laplace, weighted-gaussian, weighted-laplace, "
    "count-gaussian, count-laplace, dp-sips, optimal-single-item."
)


ALGORITHM_OPTIONS = ("max_items_per_user", "calibration", "cutoff_margin", "passes", "user_order")
"""The parameters of algorithms that have options of their own."""


def build_algorithm(
    name: str,
    max_items_per_user: int | None,
    calibration: str | None,
    cutoff_margin: float | None,
    passes: int | None,
    user_order: str | None,
    settings: list[str] | None,
) -> Any:
    """Build the algorithm from its options, refusing what it does not have."""
    from dpunion.algorithms import algorithm_named
    from dpunion.errors import BadParameter

    values = (max_items_per_user, calibration, cutoff_margin, passes, user_order)
    options = zip(ALGORITHM_OPTIONS, values, strict=True)
    given: dict[str, Any] = {key: value for key, value in options if value is not None}
    for setting in settings or []:
        key, _, value = setting.partition("=")
        parameter = key.strip().replace("-", "_")
        if parameter in given:
            raise BadParameter(f"The parameter {parameter!r} is given more than once.", "Give it once.")
        given[parameter] = _plain_value(value.strip())
    return algorithm_named(name, **given)


def _plain_value(text: str) -> int | float | str:
    """Return the number the text spells, or the text."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text
