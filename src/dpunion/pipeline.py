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

from dpunion.algorithms import Bounding, Funnel, as_choice
from dpunion.budget import Budget
from dpunion.contributions import Contributions, Int64s, ItemTable
from dpunion.engines import local
from dpunion.errors import BadParameter
from dpunion.mechanisms import mechanism_for
from dpunion.plans import Plan, plan_release
from dpunion.randomness import RunKey
from dpunion.releases import COLUMN, Release, check_target
from dpunion.sources import NullUserPolicy, Rows, ValueKind, check_source, composite, open_rows
from dpunion.sources.databases import public_name
from dpunion.sources.encoding import Normalization, encode
from dpunion.sources.known import Known, known_items
from dpunion.sources.rowstore import as_bytes
from dpunion.sources.token_streams import encode_ngrams
from dpunion.spark.frames import checked_options, is_spark_frame
from dpunion.tokens import SplitFunction, Splitting, Tokenizer, check_splitting

if TYPE_CHECKING:
    from dpunion.ledger import Amounts, Reservation

LONGEST_NGRAM = 10
PLAIN = Splitting()

PathLike = str | os.PathLike[str]
Progress = Callable[[str, float | None], None]
"""Told the stage, and while reading the part of the input's bytes that was read; never anything about values."""


def plan(algorithm: object = None, *, epsilon: float, delta: float) -> Plan:
    """Fix every number of a release, without data."""
    return plan_release(Funnel() if algorithm is None else algorithm, Budget(epsilon, delta))


def release(
    source: Any,
    *,
    user: str | None = None,
    item: str | Sequence[str] | None = None,
    text: str | None = None,
    epsilon: float,
    delta: float,
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
    which then does the work.
    user, item: the columns. text: instead of item, a column of texts that are split into words.
    item may be a list of columns: their combinations are then released, as tuples; a row without a value in one of them
    is left out. In pairs and mappings such an item is a tuple, and the list names its parts.
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

    Guarantees:
    - (epsilon, delta)-differential privacy for adding or removing one user and all of that user's rows;
    - a bad budget, algorithm, option or output is refused before any data is read;
    - with a ledger, the budget is charged before any data is read, and a crash counts as spent.
    """
    planned = plan(algorithm, epsilon=epsilon, delta=delta)
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
    )
    _check_text_options(reading)
    if include_known and reading.known is None:
        raise BadParameter("There is no known list to include.", "Name it with 'known' (--known), or leave this out.")
    if include_known and not collect:
        raise BadParameter(
            "A known list is included in collected items only.", "Leave out 'include_known', or collect."
        )
    on_spark = is_spark_frame(source)
    on_shards = checked_options(shards, collect, out, on_spark=on_spark)
    if not collect:
        out, stored = (), str(out)
    # With a ledger, a release that was made before is found first; a bad output then gives the charge back.
    targets = [] if ledger is not None else checked_targets(out, overwrite=overwrite)
    key = RunKey.fresh() if unsafe_test_key is None else RunKey.for_tests(unsafe_test_key)
    tell = progress or _silent

    facts = reading.to_dict() | {"plan": planned.to_dict()}
    with reserved(ledger, dataset, planned, facts, charge_again=charge_again, test_key=key.is_test) as reservation:
        targets = targets or checked_targets(out, overwrite=overwrite)
        extra = reading.known if include_known else None
        if on_spark:
            place = None if collect else Stored(stored, overwrite)
            released = publish_from_spark(planned, reading, key, on_shards, extra, columns, place, tell, reservation)
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

    @property
    def plain_words(self) -> bool:
        """Say whether texts are split into single words in the plain way, straight into numbers."""
        return self.lengths == (1, 1) and self.splitting == PLAIN

    def to_dict(self) -> dict[str, Any]:
        """Return the public facts that tell one release from another; objects in memory have no name."""
        return {
            "sources": _source_names(self.source),
            "user": self.user,
            self.kind.value: list(self.value) if isinstance(self.value, tuple) else self.value,
            "query": self.query,
            "null_users": self.null_users.value,
            "normalize": self.normalization.value,
            "known": None if self.known is None else self.known.sha256,
            "lengths": list(self.lengths),
            "splitting": [self.splitting.name, self.splitting.drop_urls, self.splitting.sentences],
        }


@contextlib.contextmanager
def opened(reading: Reading, tell: Progress, reservation: Reservation | None) -> Iterator[Rows]:
    """Open the source for reading.

    Guarantees: columns and types are checked before the reservation says that reading begins.
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
    ) as rows:
        if reservation is not None:
            reservation.start_reading()
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
    chosen = _texts(contributions.table, local.select(mechanism_for(planned), contributions, key))
    texts = chosen if known is None else {*chosen, *known.items}
    items = sorted(texts) if len(columns) == 1 else sorted(map(composite.split, texts))
    return Release(tuple(items), planned, private=not key.is_test, columns=columns)


@dataclass(frozen=True, slots=True)
class Stored:
    """The folder into which Spark writes the items."""

    path: str
    overwrite: bool


@dataclass(frozen=True, slots=True)
class PartitionReader:
    """Reads one partition's rows in a worker of Spark, as `read` does on one machine."""

    reading: Reading
    bounding: Bounding

    def __call__(self, source: Any, key: RunKey) -> Contributions:
        """Read all rows.

        Guarantees: those of `read`.
        """
        return read(dataclasses.replace(self.reading, source=source), self.bounding, key, _silent, None)


def publish_from_spark(
    planned: Plan,
    reading: Reading,
    key: RunKey,
    shards: int,
    known: Known | None,
    columns: tuple[str, ...],
    place: Stored | None,
    tell: Progress,
    reservation: Reservation | None,
) -> Release:
    """Select by the plan on Spark; bring the chosen items here, or have Spark write them.

    Guarantees:
    - columns, types, shards and the folder are checked before the reservation says that reading begins;
    - one action makes the released items, so that they are never computed a second time from other data;
    - nothing but released items comes to the driver, and these only without a place to store them.
    """
    from dpunion.spark import engine as spark

    frame = spark.columns_of(reading.source, reading.user, reading.value)
    check_source(spark.empty_table(frame), user=reading.user, value=reading.value, kind=reading.kind)
    spark.check_run(planned, shards)
    if place is not None and not place.overwrite:
        spark.check_folder(frame, place.path)
    tell("reading and selecting on Spark", None)
    if reservation is not None:
        reservation.start_reading()
    read_rows = PartitionReader(dataclasses.replace(reading, source=None), planned.algorithm.bounding)
    notes = (f"It was computed on Apache Spark, the users spread over {shards} shards.",)
    with spark.selected(frame, mechanism_for(planned), read_rows, key, shards) as chosen:
        if place is not None:
            spark.written(spark.as_columns(chosen, columns), place.path, overwrite=place.overwrite)
            return Release((), planned, not key.is_test, notes, columns, stored=place.path)
        chosen_texts = [name.decode() for name in spark.collected(chosen)]
    texts = chosen_texts if known is None else {*chosen_texts, *known.items}
    items = sorted(texts) if len(columns) == 1 else sorted(map(composite.split, texts))
    return Release(tuple(items), planned, not key.is_test, notes, columns)


@contextlib.contextmanager
def reserved(
    ledger: PathLike | None,
    dataset: str | None,
    charge: Plan | Amounts,
    facts: dict[str, Any],
    *,
    charge_again: bool,
    test_key: bool,
) -> Iterator[Reservation | None]:
    """Charge the ledger, when there is one, for as long as the release is made; `facts` tell it from others."""
    if (ledger is None) != (dataset is None):
        raise BadParameter("A ledger needs the name of a dataset, and the other way round.", "Give both, or neither.")
    if ledger is None or dataset is None:
        yield None
        return
    from dpunion.ledger import Ledger, fingerprint

    book = Ledger.open(ledger)
    try:
        with book.reserve(
            dataset, charge, fingerprint(**facts), charge_again=charge_again, test_key=test_key
        ) as reservation:
            yield reservation
    finally:
        book.close()


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
    texts = released.items if len(released.columns) == 1 else map(composite.join, released.items)
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
    if is_spark_frame(source):
        from dpunion.spark.engine import input_files

        return input_files(source) or ["in memory"]
    names = source if isinstance(source, (list, tuple)) else [source]
    return [_named(str(name)) for name in names] if _is_named(source) else ["in memory"]


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
