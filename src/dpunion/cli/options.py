"""Options that commands share: each is written once, in a group, and a command names the groups that it takes.

Commands with many options pass their values on as one `Given`; functions below turn them into what `release` and `plan`
take.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from dpunion import checks
from dpunion.addresses import SECRET
from dpunion.errors import BadParameter

if TYPE_CHECKING:
    from dpunion.plans.counts import Counts
    from dpunion.plans.ngrams import Ngrams
    from dpunion.requests import Candidates, Charge, Words

PRIVACY = "The privacy"
DATA = "The data"
OUTPUT = "The output"
TUNING = "The algorithm"
SPARK = "Spark"

FILE = click.Path(path_type=Path)
NgramAlgorithm = Literal["funnel", "policy-gaussian", "weighted-gaussian"]
ALGORITHM_HELP = f"[bold]Algorithms[/bold]: {', '.join(get_args(checks.AlgorithmName))}."
ALGORITHM_OPTIONS = ("max_items_per_user", "calibration", "cutoff_margin", "passes", "user_order")
"""The parameters of algorithms that have an option. All others are given with --set."""


class Given(SimpleNamespace):
    """The values of a command's options, by the names of the parameters."""


class Option(click.Option):
    """An option of a command, with names such as "--user -u" and a heading of the help.

    kind: the type of its value, a text by default; bool makes a flag, which is off by default. A shell completes the
    words of a Literal; other words are refused later, with a better message than click's.
    """

    def __init__(self, names: str, text: str, kind: Any = None, *, heading: str = "", **settings: Any) -> None:
        self.heading, self.choices = heading, get_args(kind)
        if kind is bool:
            settings = {"is_flag": True, "default": False, **settings}
        elif self.choices:
            settings |= {"shell_complete": lambda _, __, start: [one for one in self.choices if one.startswith(start)]}
        else:
            settings["type"] = kind
        super().__init__(names.split(), help=text, **settings)
        self.initial = settings.get("default", () if self.multiple else None)


class Argument(click.Argument):
    """An argument of a command, with a help text."""

    heading, initial, show_default = "Arguments", None, False

    def __init__(self, name: str, text: str, **settings: Any) -> None:
        super().__init__([name], **settings)
        self.help = text


class OptionGroup:
    """Options that belong together; the help shows them under one heading, unless an option has another."""

    def __init__(self, heading: str, *options: Option | Argument) -> None:
        self.options = options
        for one in options:
            one.heading = one.heading or heading

    def __iter__(self) -> Iterator[Option | Argument]:
        return iter(self.options)

    def values(self, given: Given) -> dict[str, Any]:
        """Return the value of each option by its name."""
        return {str(one.name): getattr(given, str(one.name)) for one in self.options}

    def names_given(self, given: Given) -> list[str]:
        """Return the names of the options that differ from their defaults."""
        return [one.opts[0] for one in self.options if getattr(given, str(one.name)) != one.initial]


def whole_or_auto(value: Any) -> Any:
    """Return a whole number, or the word as it is; the plan refuses any word but auto."""
    with contextlib.suppress(ValueError):
        return int(value)
    return value


# --- the groups ---------------------------------------------------------------------------------------------

force = Option("--force", "Overwrite existing files.", bool, heading=OUTPUT)
as_json = Option("--json as_json", "Print JSON.", bool, heading=OUTPUT)
quiet = Option("--quiet -q", "Print only errors.", bool, heading=OUTPUT)
normalize = Option(
    "--normalize",
    "Normal form: nfc-lower (for texts), nfc (for items) or exact.",
    checks.NormalizationName,
    heading=DATA,
)
text = Option("--text -t", "Column with the texts.", metavar="COLUMN", required=True, heading=DATA)
longest = Option("--longest", "Length of the longest n-grams.", int, default=3, heading=DATA)

database = OptionGroup(
    DATA,
    Option(
        "--query",
        "SQL query for a database, or for Parquet files as the table 'source'. Each row that it returns may depend "
        "only on rows of the same person: no LIMIT, HAVING, sample, window or join over other people's rows.",
        metavar="SQL",
    ),
    Option("--input-format", "Format of standard input: csv, tsv, jsonl, arrow. For Spark also parquet, orc, table."),
    Option("--null-users", "refuse or drop rows without a user.", checks.NullUsersName, default="refuse"),
)
reading = OptionGroup(
    DATA,
    Argument("source", "Files, a folder, a database, or - for stdin.", metavar="SOURCE...", nargs=-1, required=True),
    Option("--user -u", "Column with the user ids.", metavar="COLUMN", required=True),
    *database,
)
candidates = OptionGroup(
    DATA,
    Option(
        "--candidates",
        "Public list of likely items, which then need fewer people to be released: a file, or a name from "
        "'dpunion lists' such as english. May be repeated.",
        metavar="LIST",
        multiple=True,
    ),
    Option("--candidates-error", "Probability that a candidate that nobody has is released (0.001).", float),
)
items = OptionGroup(
    DATA,
    Option(
        "--item -i", "Column with the items. Repeat it for keys of several columns.", metavar="COLUMN", multiple=True
    ),
    Option("--text -t", "Instead of --item: column with texts, which are split into words.", metavar="COLUMN"),
    Option("--ngrams", "Texts: release n-grams of these lengths, like 1-3, as one set."),
    Option("--granularity", "Precision of dates and timestamps: hour, day, week, month or year."),
    normalize,
    Option("--known", "Public list of known items to leave out, to find new ones.", FILE),
    Option("--include-known", "Add the known items to the result.", bool),
    *candidates,
)
texts = OptionGroup(
    DATA,
    Option("--tokenizer", "Texts: words, whitespace, treebank or icu.", checks.TokenizerName, default="words"),
    Option("--locale", "Texts: language for the tokenizer icu, like th or ja.", default="en"),
    Option("--drop-urls", "Texts: leave out web addresses.", bool),
    Option("--stop-words", "Texts: file with a public list of words to leave out, one per line.", FILE),
    Option("--min-length", "Texts: leave out words with fewer characters.", int, default=1),
    Option("--sentences", "Keep n-grams within sentences.", bool),
)
privacy = OptionGroup(
    PRIVACY,
    Option("--epsilon -e", "How much one person may change the odds; smaller is more private.", float, required=True),
    Option("--delta -d", "Probability on top of that; choose it well below 1 / people.", float, required=True),
    Option("--weak-budget", "Allow epsilon above 10 or delta above 0.001, which protect almost nothing.", bool),
)
privacy_or_schedule = OptionGroup(PRIVACY, *map(copy.copy, privacy))
for one in privacy_or_schedule.options[:2]:
    one.required, one.help = False, f"{one.help} Required without --scheduled."
ledger = OptionGroup(
    PRIVACY,
    Option("--ledger", "Ledger to charge: a file or postgresql://..."),
    Option("--dataset", "Name of the dataset in the ledger.", metavar="NAME"),
    Option("--charge-again", "Make the same release again, and charge it again.", bool),
)
schedule = OptionGroup(
    PRIVACY,
    Option("--scheduled", "Make the release that is due by the dataset's schedule, without epsilon and delta.", bool),
    Option("--on", "Schedule: the day for which the release is made. Default: today, in UTC.", metavar="DAY"),
    Option("--current", "Schedule, for rows of a window: the items of the previous release become candidates.", bool),
    Option("--earlier", "Schedule: folder with earlier releases; or an older file, or none.", FILE, metavar="FOLDER"),
)
output = OptionGroup(
    OUTPUT,
    Option(
        "--out -o",
        "Output file: .parquet .csv .jsonl .txt .arrow, or .json with the plan. May be repeated. Default: print items.",
        FILE,
        multiple=True,
    ),
    Option("--sort", "item, or people: most popular first (the default with counts).", checks.OrderName),
    Option("--statement", "Explain the guarantee in full, as the .json output and the page do.", bool),
    force,
    as_json,
    quiet,
)
about = OptionGroup(
    OUTPUT,
    Option("--title", "Title of the release, for its page and the ledger."),
    Option("--owner", "Person or team responsible for the release. dpunion looks up no names."),
    Option("--note", "Purpose of the release, and its audience."),
)
shared = [*texts, *output, *ledger, *about]
counts = OptionGroup(
    OUTPUT,
    Option("--counts", "Also estimate how many people have each item.", bool),
    Option("--count-share", "Part of the budget for counts (0.1). More means better counts and fewer items.", float),
)
drop_doubtful = Option("--drop-doubtful", "With counts: drop candidates that perhaps nobody has.", bool, heading=OUTPUT)
algorithm = OptionGroup(
    TUNING,
    Option("--algorithm -a", "See 'Algorithms' above.", checks.AlgorithmName, default="funnel"),
    Option(
        "--max-items-per-user",
        "Use at most this many items per person. auto (funnel's default) chooses the number privately.",
        whole_or_auto,
    ),
    Option("--calibration", "exact (default) or published noise constants.", checks.CalibrationName),
    Option("--cutoff-margin", "Policies: distance of the cutoff above the threshold, in noise scales.", float),
    Option("--passes", "Policies: number of passes over the users.", int),
    Option("--user-order", "Policies: order of users, random or smallest-first.", checks.UserOrderName),
    Option("--set settings", "Any other parameter, for example rounds=3.", multiple=True, metavar="NAME=VALUE"),
)
ngrams = OptionGroup(
    TUNING,
    Option(
        "--first", "For single tokens: funnel, policy-gaussian or weighted-gaussian.", NgramAlgorithm, default="funnel"
    ),
    Option("--later", "For longer n-grams: one of the same three.", NgramAlgorithm, default="funnel"),
    Option("--spurious-rate", "Expected spurious n-grams per released n-gram one token shorter.", float, default=0.01),
    Option("--share-ratio", "Budget of each length divided by that of the length before.", float, default=1.0),
)
engine = OptionGroup(
    SPARK,
    Option("--engine", "local or spark. With spark, Spark reads SOURCE.", Literal["local", "spark"], default="local"),
    Option("--master", "Where Spark runs: local[4], spark://..., yarn."),
    Option("--shards", "Policies on Spark: number of shards of users.", int),
    Option("--conf spark_settings", "Spark setting. May be repeated.", multiple=True, metavar="NAME=VALUE"),
    Option("--threads", "Number of threads.", int, heading=DATA),
    Option("--memory-limit", "For example 2GB. Data beyond this limit goes to temporary files.", heading=DATA),
)
running = OptionGroup(
    SPARK,
    Option("--out-folder", "Folder for Spark to write Parquet into, on any file system it knows."),
    Option("--unsafe-test-key", "Fixed random key, for tests. The result is NOT PRIVATE.", int, heading=TUNING),
    Option("--config", "TOML file with any of these options. Options on the command line win.", FILE, heading=DATA),
)


# --- from options to what `release` and `plan` take ---------------------------------------------------------


def check_items(given: Given) -> None:
    """Refuse options of items and texts that do not go together."""
    if bool(given.item) == (given.text is not None):
        raise BadParameter(
            "Give exactly one of --item and --text.",
            "Name the column of items, or the column of texts to split into words.",
        )
    if given.include_known and given.known is None:
        raise BadParameter(
            "--include-known was given without a known list.",
            "Name the list with 'known' (--known), or leave out --include-known.",
        )
    check_texts(given)
    if given.text is not None and given.granularity is not None:
        raise BadParameter("--granularity applies to items, not to texts.", "Leave out --granularity.")


def check_texts(given: Given) -> None:
    """Refuse options of texts when there is no column of texts."""
    named = texts.names_given(given) + ([] if given.ngrams is None else ["--ngrams"])
    if given.text is None and named:
        raise BadParameter(
            f"There is no column of texts for {' and '.join(named)}.",
            f"Name the column of texts with --text, or leave out {' and '.join(named)}.",
        )


def build_words(given: Given, lengths: str | None = None) -> Words:
    """Return the column of texts, and how texts become words."""
    from dpunion.requests import Words

    return Words(given.text, lengths=lengths or (1, 1), **texts.values(given))


def build_items(given: Given) -> dict[str, Any]:
    """Return the items and the known list."""
    from dpunion.requests import Dated, Known

    known = None if given.known is None else Known(given.known, include=given.include_known)
    lists = {"known": known, "candidates": build_candidates(given)}
    if given.text is not None:
        return {"item": build_words(given, given.ngrams), **lists}
    columns = list(given.item)
    return {"item": columns if given.granularity is None else Dated(columns, given.granularity), **lists}


def build_candidates(given: Given) -> Candidates | None:
    """Return the public lists of candidates, or None without one."""
    from dpunion.requests import Candidates

    settings = {} if given.candidates_error is None else {"error": given.candidates_error}
    drop = getattr(given, "drop_doubtful", False)
    if not given.candidates:
        if settings or drop:
            raise BadParameter(
                "--candidates-error or --drop-doubtful was given without a list of candidates.",
                "Name the list with --candidates, or leave it out; with --current, leave it out.",
            )
        return None
    return Candidates(*given.candidates, **settings, drop_doubtful=drop)


def build_counts(given: Given) -> Counts | bool:
    """Return whether people are counted, and for which part of the budget."""
    from dpunion.plans.counts import Counts

    if given.count_share is None:
        return bool(given.counts)
    if not given.counts:
        raise BadParameter("--count-share was given without --counts.", "Add --counts, or leave it out.")
    return Counts(share=given.count_share)


def build_charge(given: Given) -> Charge | None:
    """Return the ledger and the dataset to charge, or None without a ledger."""
    from dpunion.requests import Charge

    if (given.ledger is None) != (given.dataset is None):
        raise BadParameter("--ledger and --dataset must be given together.", "Give both, or neither.")
    planned: dict[str, Any] = {str(one.name): getattr(given, str(one.name), one.initial) for one in schedule}
    if given.ledger is None:
        if named := " and ".join(f"--{name}" for name, value in planned.items() if value):
            raise BadParameter(f"{named} is for a ledger's schedule.", "Give --ledger and --dataset, or leave it out.")
        return None
    return Charge(given.ledger, str(given.dataset), again=given.charge_again, **planned)


def build_algorithm(given: Given) -> dict[str, Any]:
    """Return the name of the algorithm and its parameters."""
    found: dict[str, Any] = {name: value for name in ALGORITHM_OPTIONS if (value := getattr(given, name)) is not None}
    for setting in given.settings:
        key, _, value = setting.partition("=")
        parameter = key.strip().replace("-", "_")
        if parameter in found:
            raise BadParameter(f"The parameter {parameter!r} is given more than once.", "Give it once.")
        found[parameter] = plain_value(value.strip())
    return {"algorithm": given.algorithm, **found}


def build_ngrams(given: Given) -> Ngrams:
    """Return how n-grams are released. "funnel" stands for the defaults of Ngrams, which are tuned for n-grams."""
    from dpunion.plans.ngrams import Ngrams

    chosen: Any = {name: getattr(given, name) for name in ("first", "later") if getattr(given, name) != "funnel"}
    return Ngrams(**chosen, longest=given.longest, spurious_rate=given.spurious_rate, share_ratio=given.share_ratio)


def build_source(given: Given) -> Any:
    """Return the source as the engine takes it; a source of Spark is only named here, not opened."""
    from dpunion.requests import SparkSource

    if given.engine != "spark":
        return local_source(given.source, given.input_format)
    pairs = [setting.partition("=") for setting in given.spark_settings]
    if not all(name and equals for name, equals, _ in pairs):
        raise BadParameter(
            "A Spark setting is not of the form NAME=VALUE.", "Write for example --conf spark.executor.memory=8g."
        )
    settings = tuple((name, value) for name, _, value in pairs)
    return SparkSource(tuple(given.source), given.master, settings, given.input_format)


def check_engine(given: Given) -> None:
    """Refuse an unknown engine, and options of Spark without Spark."""
    if given.engine not in ("local", "spark"):
        raise BadParameter(f"There is no engine {given.engine!r}.", "Choose local or spark.")
    of_spark = given.master or given.shards is not None or given.spark_settings or given.out_folder
    if given.engine == "local" and of_spark:
        raise BadParameter(
            "--master, --shards, --conf and --out-folder are for Spark.", "Add --engine spark, or leave them out."
        )
    if given.engine == "spark" and given.threads is not None:
        raise BadParameter("--threads is not for Spark.", "Leave it out.")


def engine_record(given: Given) -> dict[str, Any]:
    """Return the options of the engine that the private record keeps.

    Guarantees: a setting of Spark whose name looks like a password, key or token is not in it.
    """
    if given.engine == "local":
        limits = {"threads": given.threads, "memory_limit": given.memory_limit}
        return {name: value for name, value in limits.items() if value is not None}
    kept = [one for one in given.spark_settings if not SECRET.search(one.partition("=")[0])]
    return {"engine": given.engine, "master": given.master, "shards": given.shards, "conf": kept or None}


def local_source(names: tuple[str, ...], input_format: str | None) -> Any:
    """Return the source on one machine: standard input, a single source, or a list of files."""
    from dpunion.requests import Stdin

    if names == ("-",):
        return Stdin(input_format)
    if input_format is not None:
        raise BadParameter(
            "An input format was given, but the source is not standard input.",
            "Leave it out: the suffix of a file tells its format.",
        )
    # A database is a single name, and never part of a list.
    return names[0] if len(names) == 1 else list(names)


def plain_value(text: str) -> int | float | str:
    """Return the number that the text spells, or the text."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text
