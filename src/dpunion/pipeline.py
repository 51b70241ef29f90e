"""The main path: from a source of (user, item) rows to a private release. Read this file first.

plan     every number is fixed, from public parameters only
reserve  the budget is charged in the ledger, when there is one, before any data is read
read     rows -> contributions: normalised, without duplicates, at most so many items of each user
select   weigh the items, flip one coin for each
publish  the chosen items, sorted, as plain strings; written whole or not at all; the charge is settled
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpunion import keys
from dpunion.algorithms import Bounding, Funnel
from dpunion.budget import budget_for_release
from dpunion.charging import reserved
from dpunion.checks import as_choice
from dpunion.contributions import Contributions, Int64s, ItemTable
from dpunion.engines.local.rounds import run_rounds
from dpunion.engines.spark.frames import SparkSource, check_spark_source, checked_options, is_on_spark, is_spark_frame
from dpunion.errors import BadParameter
from dpunion.mechanisms import mechanism_for
from dpunion.plans import Plan, plan_release
from dpunion.randomness import RunKey
from dpunion.reading import NullUserPolicy, Rows, ValueKind, open_rows
from dpunion.reading.databases import public_name
from dpunion.reading.known import Known, known_items
from dpunion.reading.overlaps import refuse_overwriting
from dpunion.releases import COLUMN, Release, check_target
from dpunion.sets.encoding import Normalization, encode
from dpunion.sets.spill import as_bytes
from dpunion.sets.streams import encode_ngrams
from dpunion.tokens import SplitFunction, Splitting, Tokenizer, check_splitting

if TYPE_CHECKING:
    from dpunion.ledger import Reservation

LONGEST_NGRAM = 10
PLAIN = Splitting()
SAME_RESULT = frozenset({"memory_limit"})
"""Fields of a Reading that change how it is read, but not what comes of it."""

PathLike = str | os.PathLike[str]
Progress = Callable[[str, float | None], None]
"""Told the stage, and while reading the part of the input's bytes that was read; never anything about values."""


def plan(algorithm: object = None, *, epsilon: float, delta: float, weak_budget: bool = False) -> Plan:
    """Fix every number of a release, without data; weak_budget as in `release`."""
    budget = budget_for_release(epsilon, delta, weak_budget=weak_budget)
    return plan_release(Funnel() if algorithm is None else algorithm, budget)


def release(
    source: Any,
    *,
    user: str | None = None,
    item: str | Sequence[str] | None = None,
    text: str | None = None,
    epsilon: float,
    delta: float,
    weak_budget: bool = False,
    algorithm: object = None,
    query: str | None = None,
    input_format: str | None = None,
    null_users: str | NullUserPolicy = NullUserPolicy.REFUSE,
    normalize: str | Normalization = Normalization.NFC,
    ngrams: str | tuple[int, int] | None = None,
    tokenizer: str | Tokenizer | SplitFunction = Tokenizer.WORDS,
    drop_urls: bool = False,
    sentences: bool = False,
    locale: str = "en",
    known: Any = None,
    include_known: bool = False,
    out: PathLike | Sequence[PathLike] = (),
    overwrite: bool = False,
    ledger: PathLike | None = None,
    dataset: str | None = None,
    charge_again: bool = False,
    memory_limit: int | str | None = None,
    shards: int | None = None,
    collect: bool = True,
    unsafe_test_key: int | None = None,
    progress: Progress | None = None,
) -> Release:
    """Release as many items as possible of the union of the users' sets.

    source: a path, a list of paths or a pattern (Parquet, Arrow IPC, CSV, TSV, JSONL; .gz, .zst), a folder of Parquet
    files, "-" for standard input (with input_format), a database (with query); any object with `__arrow_c_stream__`
    (pandas, polars, pyarrow, DuckDB); an iterable of (user, item) pairs; a mapping user -> items; a DataFrame of Spark,
    or a SparkSource that names what Spark is to read: Spark then does the work.
    user, item: the columns. text: instead of item, a column of texts that are split into words.
    item may be a list of columns: their combinations are then released, as tuples; a row without a value in one of them
    is left out. In pairs and mappings such an item is a tuple, and the list names its parts.
    weak_budget: leave for an epsilon above 10 or a delta above 0.001, which guarantee next to nothing.
    algorithm: an algorithm or its name; Funnel() when left out.
    null_users: "refuse" or "drop" rows that do not say whose they are.
    normalize: "nfc", "nfc-lower" or "exact", applied to items before duplicates are dropped.
    ngrams: with text, lengths like "1-3": all n-grams of these lengths are items, as one set.
    tokenizer: "words", "whitespace", "treebank", "icu" (with locale) or a function from a text to its tokens; drop_urls
    leaves out web addresses; with sentences, n-grams do not cross the end of a sentence.
    known: a public list (a file, an earlier Release, texts) to leave out of every set, so that the budget finds new
    items; include_known adds it to the result.
    out: files to write, by suffix; overwrite allows replacing them.
    ledger, dataset: where the budget is kept; charged before reading. charge_again allows the same release once more.
    memory_limit: bytes, or text like "2GB" (a share of the machine when left out); beyond it rows wait in nameless
    private files.
    shards, collect: on Spark, among how many shards a policy's users are spread, and whether the items come to the
    driver; if not, Spark writes them as Parquet into the folder `out`, and the Release only says where they are.
    unsafe_test_key: fixes the randomness, for tests; the result is stamped NOT PRIVATE.
    Yours to mind: a query, view or frame may keep, drop or change a row by that row, or by the same person's rows,
    alone (no LIMIT, no join); and types must be public: read with explicit types, never inferred ones.

    Guarantees:
    - (epsilon, delta)-differential privacy for adding or removing one user and all of that user's rows;
    - a bad budget, algorithm, option or output is refused before any data is read;
    - with a ledger, the budget is charged before any data is read, and a crash counts as spent.
    """
    planned = plan(algorithm, epsilon=epsilon, delta=delta, weak_budget=weak_budget)
    key_columns = _key_columns(item)
    columns = key_columns if isinstance(key_columns, tuple) else (COLUMN,)
    reading = Reading(
        source=source,
        user=user,
        kind=_kind(item, text),
        value=key_columns if text is None else text,
        query=query,
        input_format=input_format,
        null_users=as_choice("null_users", null_users, NullUserPolicy),
        normalization=as_choice("normalize", normalize, Normalization),
        known=None
        if known is None
        else known_items(known, columns, _kind(item, text), as_choice("normalize", normalize, Normalization)),
        memory_limit=as_bytes(memory_limit),
        lengths=lengths_of(ngrams),
        splitting=splitting_of(tokenizer, drop_urls=drop_urls, sentences=sentences, locale=locale),
        include_known=include_known,
    )
    _check_text_options(reading)
    if include_known and reading.known is None:
        raise BadParameter("There is no known list to include.", "Name it with 'known' (--known), or leave this out.")
    if include_known and not collect:
        raise BadParameter(
            "A known list is included in collected items only.", "Leave out 'include_known', or collect."
        )
    on_spark = is_on_spark(source)
    on_shards = checked_options(shards, collect, out, on_spark=on_spark)
    check_spark_source(reading)
    refuse_overwriting(out, {"source": read_from(source), "known list": [known], "ledger": ledger})
    folder, out = (None, out) if collect else (str(out), ())
    # With a ledger, a release that was made before is found first; a bad output then gives the charge back.
    targets = [] if ledger is not None else checked_targets(out, overwrite=overwrite)
    key = RunKey.fresh() if unsafe_test_key is None else RunKey.for_tests(unsafe_test_key)
    tell = progress or _silent

    facts = {"plan": planned.to_dict(), "shards": on_shards if on_spark else None}
    with reserved(
        ledger, dataset, planned, reading, facts, charge_again=charge_again, test_key=key.is_test
    ) as reservation:
        targets = targets or checked_targets(out, overwrite=overwrite)
        extra = reading.known if include_known else None
        if on_spark:
            released = publish_from_spark(
                planned, reading, key, on_shards, extra, columns, folder, tell, reservation, overwrite=overwrite
            )
        else:
            contributions = read(reading, planned.algorithm.bounding, key, tell, reservation)
            tell("selecting", None)
            released = publish(planned, contributions, key, extra, columns)
        notes = (*released.notes, *_notes(reservation, reading.known, include_known, columns))
        released = dataclasses.replace(released, notes=notes)
        tell("writing", None)
        written = [released.write(target, overwrite=overwrite) for target in targets]
        if reservation is not None:
            reservation.settle(written, digest=None if written or not collect else _digest(released))
    return released


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read and how: public, except for what `source` holds."""

    source: Any
    user: str | None
    kind: ValueKind
    value: str | tuple[str, ...] | None
    query: str | None
    input_format: str | None
    null_users: NullUserPolicy
    normalization: Normalization
    known: Known | None
    memory_limit: int | None
    lengths: tuple[int, int] = (1, 1)
    splitting: Splitting = PLAIN
    include_known: bool = False

    @property
    def plain_words(self) -> bool:
        """Say whether texts are split into single words in the plain way, straight into numbers."""
        return self.lengths == (1, 1) and self.splitting == PLAIN

    def of_rows(self, source: Any) -> Reading:
        """Return how rows are read that were asked for already: in a worker of Spark."""
        return dataclasses.replace(self, source=source, query=None, input_format=None)

    def to_dict(self) -> dict[str, Any]:
        """Return what tells one release from another: every field but those that change no result.

        Objects in memory have no name; a tokenizer that is a function is told by its code.
        """
        from dpunion.ledger.fingerprints import told

        facts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        facts |= {"source": _source_names(self.source), "known": self.known and self.known.sha256}
        return {name: told(value) for name, value in facts.items() if name not in SAME_RESULT}


@contextlib.contextmanager
def opened(reading: Reading, tell: Progress, reservation: Reservation | None) -> Iterator[Rows]:
    """Open the source for reading.

    Guarantees: before the reservation says that reading begins, no row is looked at; what is refused by then depends on
    names, header lines and schemas alone.
    """
    tell("reading", 0.0)
    with open_rows(
        reading.source,
        user=reading.user,
        value=reading.value,
        kind=reading.kind,
        query=reading.query,
        input_format=reading.input_format,
        null_users=reading.null_users,
        on_progress=lambda done: tell("reading", done),
        on_reading=None if reservation is None else reservation.start_reading,
    ) as rows:
        yield rows


def read(
    reading: Reading, bounding: Bounding, key: RunKey, tell: Progress, reservation: Reservation | None
) -> Contributions:
    """Read the source into bounded contributions.

    Guarantees: those of `opened` and of `encode`.
    """
    with opened(reading, tell, reservation) as rows:
        if not reading.plain_words:
            return encode_ngrams(
                rows,
                key,
                shortest=reading.lengths[0],
                longest=reading.lengths[1],
                max_items_per_user=bounding.limit,
                user_order=bounding.order,
                splitting=reading.splitting,
                normalization=reading.normalization,
            )
        return encode(
            rows,
            key,
            max_items_per_user=bounding.limit,
            user_order=bounding.order,
            normalization=reading.normalization,
            split_words=reading.kind is ValueKind.TEXT,
            known=() if reading.known is None else reading.known.items,
            memory_limit=reading.memory_limit,
            read_ahead=_is_named(reading.source) and reading.query is None,
        )


def publish(
    planned: Plan,
    contributions: Contributions,
    key: RunKey,
    known: Known | None = None,
    columns: tuple[str, ...] = (COLUMN,),
) -> Release:
    """Select by the plan and turn the chosen items, and the known list when given, into a release.

    Guarantees:
    - the items are copied out one by one and sorted by bytes; nothing else of the input reaches the release.
    """
    chosen = _texts(contributions.table, run_rounds(mechanism_for(planned), contributions, key))
    return _release_of(chosen, planned, key, known, columns)


def _release_of(
    texts: list[str], planned: Plan, key: RunKey, known: Known | None, columns: tuple[str, ...], *notes: str
) -> Release:
    everything = texts if known is None else {*texts, *known.items}
    items = sorted(everything) if len(columns) == 1 else sorted(map(keys.split, everything))
    return Release(tuple(items), planned, not key.is_test, notes, columns)


@dataclass(frozen=True, slots=True)
class PartitionReader:
    """Reads one partition's rows in a worker of Spark, as `read` does on one machine."""

    reading: Reading
    bounding: Bounding

    def __call__(self, source: Any, key: RunKey) -> Contributions:
        """Read all rows. Guarantees: those of `read`."""
        return read(self.reading.of_rows(source), self.bounding, key, _silent, None)


def publish_from_spark(
    planned: Plan,
    reading: Reading,
    key: RunKey,
    shards: int,
    known: Known | None,
    columns: tuple[str, ...],
    folder: str | None,
    tell: Progress,
    reservation: Reservation | None,
    *,
    overwrite: bool,
) -> Release:
    """Select by the plan on Spark; bring the chosen items here, or have Spark write them.

    Guarantees:
    - columns, types, shards and the folder are checked before the reservation says that reading begins;
    - one action makes the released items, so that they are never computed a second time from other data;
    - nothing but released items comes to the driver, and these only without a folder to store them in.
    """
    from dpunion.engines.spark import engine as spark
    from dpunion.engines.spark.sources import open_frame

    spark.check_run(planned, shards)
    frame, check_rows = open_frame(reading)
    if folder is not None and not overwrite:
        spark.check_folder(frame, folder)
    tell("reading and selecting on Spark", None)
    if reservation is not None:
        reservation.start_reading()
    check_rows()
    read_rows = PartitionReader(dataclasses.replace(reading, source=None), planned.algorithm.bounding)
    note = f"It was computed on Apache Spark, the users spread over {shards} shards."
    with spark.selected(frame, mechanism_for(planned), read_rows, key, shards) as chosen:
        if folder is not None:
            spark.written(spark.as_columns(chosen, columns), folder, overwrite=overwrite)
            return Release((), planned, not key.is_test, (note,), columns, stored=folder)
        texts = [name.decode() for name in spark.collected(chosen)]
    return _release_of(texts, planned, key, known, columns, note)


def checked_targets(out: PathLike | Sequence[PathLike], *, overwrite: bool) -> list[Path]:
    """Return the output files, after refusing what cannot be written."""
    targets = [Path(out)] if isinstance(out, (str, os.PathLike)) else [Path(one) for one in out]
    for target in targets:
        check_target(target, overwrite=overwrite)
    if len({target.resolve() for target in targets}) < len(targets):
        raise BadParameter("Two outputs name the same file.", "Name each output file once.")
    return targets


def _notes(
    reservation: Reservation | None,
    known: Known | None,
    include_known: bool,  # noqa: FBT001
    columns: tuple[str, ...],
) -> tuple[str, ...]:
    notes = [] if len(columns) == 1 else [f"Each item is a combination of values of {', '.join(map(repr, columns))}."]
    if reservation is not None:
        notes.append(reservation.sentence)
    if known is not None:
        how = "added to it" if include_known else "left out of it"
        notes.append(f"Items of a known public list (SHA-256 {known.sha256}) were set aside first and are {how}.")
    return tuple(notes)


def _texts(table: ItemTable, chosen: Int64s) -> list[str]:
    starts, stops = table.offsets[chosen].tolist(), table.offsets[chosen + 1].tolist()
    data = np.ascontiguousarray(table.data)
    return sorted(data[start:stop].tobytes().decode() for start, stop in zip(starts, stops, strict=True))


def _digest(released: Release) -> str:
    """Return the SHA-256 of a release that no file holds."""
    texts = released.items if len(released.columns) == 1 else map(keys.join, released.items)
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _key_columns(item: Any) -> Any:
    """Return one column as it is and several as a tuple; refuse what names no columns."""
    if item is None or isinstance(item, (str, int)):
        return item
    if not isinstance(item, (list, tuple)) or not item or not all(isinstance(name, str) for name in item):
        raise BadParameter(
            "The 'item' parameter must be the name of a column or a list of names.",
            "Name the column of items, or all columns that make a key together.",
        )
    if len(set(item)) < len(item):
        raise BadParameter("Two columns of 'item' have the same name.", "Name each column of the key once.")
    return item[0] if len(item) == 1 else tuple(item)


def _kind(item: object, text: str | None) -> ValueKind:
    if item is not None and text is not None:
        raise BadParameter(
            "Both 'item' and 'text' were given.", "Use 'item' for ready items or 'text' for texts to split into words."
        )
    return ValueKind.ITEM if text is None else ValueKind.TEXT


def _is_named(source: Any) -> bool:
    """Say whether the source is named (paths, patterns, a database) and not an object in memory."""
    names = source if isinstance(source, (list, tuple)) else [source]
    return all(isinstance(name, (str, os.PathLike)) for name in names)


def _source_names(source: Any) -> list[str]:
    """Return what a source is called: paths, a database, the files that a DataFrame of Spark reads."""
    if isinstance(source, SparkSource):
        return list(source.names)
    if is_spark_frame(source):
        from dpunion.engines.spark.engine import input_files

        return input_files(source) or ["in memory"]
    names = source if isinstance(source, (list, tuple)) else [source]
    return [_named(str(name)) for name in names] if _is_named(source) else ["in memory"]


def read_from(source: Any) -> Any:
    """Return the paths that a source names, whichever engine reads them."""
    return list(source.names) if isinstance(source, SparkSource) else source


def _named(source: str) -> str:
    """Return a source's name without anything secret."""
    return public_name(source) if source.startswith(("postgresql://", "postgres://")) else source


def lengths_of(ngrams: str | tuple[int, int] | None) -> tuple[int, int]:
    """Return the shortest and longest n-grams asked for: "2", "1-3", (1, 3), or nothing for single words."""
    if ngrams is None:
        return 1, 1
    parts = ngrams.split("-") if isinstance(ngrams, str) else list(ngrams)
    with contextlib.suppress(ValueError, TypeError):
        shortest, longest = int(parts[0]), int(parts[-1])
        if 1 <= shortest <= longest <= LONGEST_NGRAM and len(parts) <= 2:
            return shortest, longest
    raise BadParameter(
        f"The 'ngrams' parameter must be lengths from 1 to {LONGEST_NGRAM}, like 1-3. Got {ngrams!r} instead.",
        "Write the shortest and the longest length.",
    )


def splitting_of(
    tokenizer: str | Tokenizer | SplitFunction, *, drop_urls: bool, sentences: bool, locale: str
) -> Splitting:
    """Return how texts become documents of tokens; refuse a tokenizer that is unknown or not installed."""
    chosen = as_choice("tokenizer", tokenizer, Tokenizer) if isinstance(tokenizer, str) else tokenizer
    splitting = Splitting(chosen, drop_urls=drop_urls, sentences=sentences, locale=locale)
    check_splitting(splitting)
    return splitting


def _check_text_options(reading: Reading) -> None:
    if reading.memory_limit is not None and (is_on_spark(reading.source) or not reading.plain_words):
        raise BadParameter(
            "A memory limit cannot be kept on Spark, with n-grams or with another tokenizer yet.",
            "Leave 'memory_limit' (--memory-limit) out.",
        )
    if reading.plain_words:
        return
    if reading.kind is not ValueKind.TEXT:
        raise BadParameter(
            "n-grams and tokenizers are for texts.", "Name the column of texts with 'text' (--text), or leave them out."
        )
    if reading.known is not None:
        raise BadParameter(
            "A known list cannot be combined with n-grams or another tokenizer yet.", "Leave 'known' (--known) out."
        )


def _silent(_stage: str, _done: float | None) -> None:
    return None
