"""Options that several commands share, in groups: each is written once, and a command names the groups it takes."""

from __future__ import annotations

import contextlib
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpunion.addresses import SECRET
from dpunion.cli.groups import Group, option_group
from dpunion.errors import BadParameter

if TYPE_CHECKING:
    from dpunion.plans.counts import Counts
    from dpunion.requests import Charge, Run


MODEL = "The privacy"
DATA = "The data"
OUTPUT = "The output"
TUNING = "The algorithm"
SPARK = "Spark"

Epsilon = Annotated[
    float,
    typer.Option(
        "--epsilon",
        "-e",
        help="How much one person may change the odds of a result; smaller is more private.",
        rich_help_panel=MODEL,
    ),
]
Delta = Annotated[
    float,
    typer.Option(
        "--delta",
        "-d",
        help="Small probability on top of that; choose it well below 1 / number of people.",
        rich_help_panel=MODEL,
    ),
]
WeakBudget = Annotated[
    bool,
    typer.Option(
        "--weak-budget",
        help="Allow epsilon above 10 or delta above 0.001, which protect almost nothing.",
        rich_help_panel=MODEL,
    ),
]
AlgorithmName = Annotated[
    str, typer.Option("--algorithm", "-a", help="See 'Algorithms' above.", rich_help_panel=TUNING)
]


class WholeOrAuto:
    """The type of an option that is a whole number, or the word auto."""


def whole_or_auto(value: Any) -> Any:
    """Return a whole number, or the word as it is, which whoever takes it may refuse."""
    with contextlib.suppress(ValueError):
        return int(value)
    return value


MaxItems = Annotated[
    WholeOrAuto | None,
    typer.Option(
        parser=whole_or_auto,
        metavar="number or auto",
        help="Use at most this many items per person. auto (funnel's default) chooses the number privately.",
        rich_help_panel=TUNING,
        show_default=False,
    ),
]
CalibrationName = Annotated[
    str | None,
    typer.Option(
        "--calibration",
        help="exact (default) or published noise constants.",
        rich_help_panel=TUNING,
        show_default=False,
    ),
]
CutoffMargin = Annotated[
    float | None,
    typer.Option(
        help="Policies: distance of the cutoff above the threshold, in noise scales.",
        rich_help_panel=TUNING,
        show_default=False,
    ),
]
Passes = Annotated[
    int | None,
    typer.Option(help="Policies: number of passes over the users.", rich_help_panel=TUNING, show_default=False),
]
Order = Annotated[
    str | None,
    typer.Option(
        "--user-order",
        help="Policies: order of users, random or smallest-first.",
        rich_help_panel=TUNING,
        show_default=False,
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
Source = Annotated[list[str], typer.Argument(metavar="SOURCE...", help="Data to read, see above.", show_default=False)]
UserColumn = Annotated[str, typer.Option("--user", "-u", help="Column with the user ids.", rich_help_panel=DATA)]
Query = Annotated[
    str | None,
    typer.Option(
        "--query",
        help="SQL query for a database, or for Parquet files as the table 'source'. Each row that it returns may "
        "depend only on rows of the same person: no LIMIT, HAVING, sample, window or join over other "
        "people's rows.",
        rich_help_panel=DATA,
    ),
]
InputFormat = Annotated[
    str | None,
    typer.Option(
        "--input-format",
        help="Format of standard input: csv, tsv, jsonl, arrow. For Spark also parquet, orc, table.",
        rich_help_panel=DATA,
    ),
]
NullUsersChoice = Annotated[
    str, typer.Option("--null-users", help="refuse or drop rows without a user.", rich_help_panel=DATA)
]
Out = Annotated[
    list[Path] | None,
    typer.Option(
        "--out",
        "-o",
        help="Output file: .parquet .csv .jsonl .txt .arrow, or .json with the plan. May be repeated.",
        rich_help_panel=OUTPUT,
        show_default=False,
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.", rich_help_panel=OUTPUT)]
LedgerPlace = Annotated[
    str | None,
    typer.Option("--ledger", help="Ledger to charge: a file or postgresql://...", rich_help_panel=MODEL),
]
DatasetName = Annotated[
    str | None, typer.Option("--dataset", help="Name of the dataset in the ledger.", rich_help_panel=MODEL)
]
ChargeAgain = Annotated[
    bool,
    typer.Option("--charge-again", help="Make the same release again, and charge it again.", rich_help_panel=MODEL),
]
TestKey = Annotated[
    int | None,
    typer.Option(help="Fixed random key, for tests. The result is NOT PRIVATE.", rich_help_panel=TUNING),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="TOML file with any of these options. Options on the command line win.",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
Engine = Annotated[
    str, typer.Option("--engine", help="local or spark. With spark, Spark reads SOURCE.", rich_help_panel=SPARK)
]
Master = Annotated[
    str | None, typer.Option("--master", help="Where Spark runs: local[4], spark://..., yarn.", rich_help_panel=SPARK)
]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        "--memory-limit", help="For example 2GB. Data beyond this limit goes to temporary files.", rich_help_panel=DATA
    ),
]
ThreadCount = Annotated[int | None, typer.Option("--threads", help="Number of threads.", rich_help_panel=DATA)]
Shards = Annotated[
    int | None,
    typer.Option("--shards", help="Policies on Spark: number of shards of users.", rich_help_panel=SPARK),
]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="Spark setting. May be repeated.", rich_help_panel=SPARK),
]
OutFolder = Annotated[
    str | None,
    typer.Option(
        "--out-folder",
        help="Folder for Spark to write Parquet into, on any file system it knows.",
        rich_help_panel=SPARK,
        show_default=False,
    ),
]
WithCounts = Annotated[
    bool, typer.Option("--counts", help="Also estimate how many people have each item.", rich_help_panel=OUTPUT)
]
CountShare = Annotated[
    float | None,
    typer.Option(
        "--count-share",
        help="Part of the budget for counts (0.1). A larger part makes counts more precise and releases fewer items.",
        rich_help_panel=OUTPUT,
        show_default=False,
    ),
]
Sort = Annotated[
    str | None,
    typer.Option(
        "--sort",
        help="item, or people: most popular first (the default with counts).",
        rich_help_panel=OUTPUT,
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=OUTPUT)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.", rich_help_panel=OUTPUT)]

ALGORITHM_HELP = (
    "[bold]Algorithms[/bold]: funnel, policy-gaussian, policy-laplace, weighted-gaussian, weighted-laplace, "
    "count-gaussian, count-laplace, dp-sips, optimal-single-item."
)


ALGORITHM_OPTIONS = ("max_items_per_user", "calibration", "cutoff_margin", "passes", "user_order")
"""The parameters of algorithms that have options of their own."""


@option_group
class PrivacyOptions(Group):
    """How much one person may show."""

    epsilon: Epsilon
    delta: Delta
    weak_budget: WeakBudget = False


@option_group
class ReadingOptions(Group):
    """What is read, beside the columns of values."""

    source: Source
    user: UserColumn
    query: Query = None
    input_format: InputFormat = None
    null_users: NullUsersChoice = "refuse"


@option_group
class OutputOptions(Group):
    """Where the result goes."""

    out: Out = None
    sort: Sort = None
    force: Force = False
    as_json: AsJson = False
    quiet: Quiet = False


@option_group
class CountOptions(Group):
    """Whether people are counted."""

    counts: WithCounts = False
    count_share: CountShare = None

    def asked(self) -> Counts | bool:
        """Return what is counted, as `release` takes it."""
        from dpunion.plans.counts import Counts

        if self.count_share is None:
            return self.counts
        if not self.counts:
            raise BadParameter("--count-share was given without --counts.", "Add --counts, or leave it out.")
        return Counts(share=self.count_share)


@option_group
class LedgerOptions(Group):
    """Where the budget is kept."""

    ledger: LedgerPlace = None
    dataset: DatasetName = None
    charge_again: ChargeAgain = False

    def charge(self) -> Charge | None:
        """Return what is charged, None without a ledger."""
        from dpunion.requests import Charge

        if (self.ledger is None) != (self.dataset is None):
            raise BadParameter("--ledger and --dataset must be given together.", "Give both, or neither.")
        return None if self.ledger is None else Charge(self.ledger, str(self.dataset), again=self.charge_again)


@option_group
class AlgorithmOptions(Group):
    """Which algorithm, and its parameters."""

    algorithm: AlgorithmName = "funnel"
    max_items_per_user: MaxItems = None
    calibration: CalibrationName = None
    cutoff_margin: CutoffMargin = None
    passes: Passes = None
    user_order: Order = None
    settings: Settings = None

    def asked(self) -> dict[str, Any]:
        """Return the algorithm's name and its parameters, as `release` and `plan` take them."""
        given: dict[str, Any] = {
            name: value for name in ALGORITHM_OPTIONS if (value := getattr(self, name)) is not None
        }
        for setting in self.settings or []:
            key, _, value = setting.partition("=")
            parameter = key.strip().replace("-", "_")
            if parameter in given:
                raise BadParameter(f"The parameter {parameter!r} is given more than once.", "Give it once.")
            given[parameter] = plain_value(value.strip())
        return {"algorithm": self.algorithm, **given}


@option_group
class EngineOptions(Group):
    """Where the work is done."""

    engine: Engine = "local"
    master: Master = None
    shards: Shards = None
    spark_settings: SparkSettings = None
    threads: ThreadCount = None
    memory_limit: MemoryLimit = None

    def source(self, reading: ReadingOptions) -> Any:
        """Return what is read, as the engine takes it; what Spark reads is only named here."""
        from dpunion.requests import SparkSource

        if self.engine == "spark":
            pairs = [setting.partition("=") for setting in self.spark_settings or []]
            if not all(name and equals for name, equals, _ in pairs):
                raise BadParameter(
                    "A Spark setting is not of the form NAME=VALUE.",
                    "Write for example --conf spark.executor.memory=8g.",
                )
            settings = tuple((name, value) for name, _, value in pairs)
            return SparkSource(tuple(reading.source), self.master, settings, reading.input_format)
        return local_source(reading.source, reading.input_format)

    def check(self, out_folder: str | None = None) -> None:
        """Refuse an engine that there is not, and options of Spark without it."""
        if self.engine not in ("local", "spark"):
            raise BadParameter(f"There is no engine {self.engine!r}.", "Choose local or spark.")
        if self.engine == "local" and (self.master or self.shards is not None or self.spark_settings or out_folder):
            raise BadParameter(
                "--master, --shards, --conf and --out-folder are for Spark.", "Add --engine spark, or leave them out."
            )
        if self.engine == "spark" and self.threads is not None:
            raise BadParameter("--threads is not for Spark.", "Leave it out.")

    @contextlib.contextmanager
    def running(self, *, overwrite: bool) -> typing.Iterator[Run]:
        """Give how the release is run, with progress: Spark draws its own, and its stage is remembered."""
        from dpunion.cli.answers import keep_signals, progress_bar, step
        from dpunion.requests import Run

        keep_signals()
        if self.engine == "spark":
            yield Run(memory_limit=self.memory_limit, shards=self.shards, progress=step, overwrite=overwrite)
            return
        with progress_bar() as progress:
            yield Run(memory_limit=self.memory_limit, threads=self.threads, progress=progress, overwrite=overwrite)

    def values(self) -> dict[str, Any]:
        """Return what is recorded beside an output: threads and memory limit, or what was given of Spark.

        Guarantees: settings that hold a password, key or token are left out.
        """
        if self.engine == "local":
            given = {"threads": self.threads, "memory_limit": self.memory_limit}
            return {name: value for name, value in given.items() if value is not None}
        kept = [one for one in self.spark_settings or [] if not SECRET.search(one.partition("=")[0])]
        return {"engine": self.engine, "master": self.master, "shards": self.shards, "conf": kept or None}


def local_source(names: list[str], input_format: str | None) -> Any:
    """Return what is read on one machine: standard input, a single source, or a list of files."""
    from dpunion.requests import Stdin

    if names == ["-"]:
        return Stdin(input_format)
    if input_format is not None:
        raise BadParameter(
            "An input format was given, but the source is not standard input.",
            "Leave it out: the suffix of a file tells its format.",
        )
    # A single source that is no file is a database, which is not listed.
    return names[0] if len(names) == 1 else names


def plain_value(text: str) -> int | float | str:
    """Return the number the text spells, or the text."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text
