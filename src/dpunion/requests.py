"""The request of a release: which rows to read and how, checked without data. All but the source is public.

`refuse_misplaced` handles keywords that belong to one of the classes here, and not to `release` itself.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NoReturn

import pyarrow as pa

from dpunion.algorithms import ALGORITHMS, Funnel
from dpunion.buffers import string_buffers, text_array
from dpunion.checks import NormalizationName, NullUsersName, TokenizerName, as_choice, check_real, check_whole, nearest
from dpunion.errors import BadParameter
from dpunion.ledger.schedules import Earlier
from dpunion.plans import Planned
from dpunion.plans.candidates import refuse_candidates
from dpunion.plans.counts import Counts
from dpunion.plans.ngrams import NgramPlan, Ngrams
from dpunion.reading.known import KnownItems, join_lists, read_known
from dpunion.reading.parts import NullUserPolicy, SourceRequest, ValueKind
from dpunion.reading.spelling import Granularity
from dpunion.reading.stdin import NAME as STANDARD_INPUT
from dpunion.releases.about import UNTOLD, About
from dpunion.releases.formats import COLUMN, LISTED, SINCE, is_utf8
from dpunion.releases.release import COUNTED
from dpunion.samples import named_list
from dpunion.text import splitting as texts
from dpunion.text.splitting import DEFAULT_LOCALE, PLAIN, SplitFunction, Splitting, Tokenizer
from dpunion.text.words import Normalization, normalize_texts

LONGEST_NGRAM = 10
LONGEST_WORD = 1000
MOST_THREADS = 1024

PathLike = str | os.PathLike[str]
Progress = Callable[[str, float | None], None]
"""Called with the stage and, while reading, the part of the input's bytes that was read; never with values."""


@dataclass(frozen=True, slots=True)
class Words:
    """A column of texts that are split into words, or into n-grams of these lengths, as one set.

    column: None for pairs and mappings. tokenizer: "words", "whitespace", "treebank", "icu" (with locale) or a function
    from a text to its tokens. lengths: like "1-3" or (1, 3). drop_urls: leave out web addresses. sentences: n-grams do
    not cross the end of a sentence. stop_words: a public list (a file, texts) of words to drop before n-grams are made.
    min_length: shorter words are dropped too.
    """

    column: str | None = None
    tokenizer: TokenizerName | Tokenizer | SplitFunction = Tokenizer.WORDS
    lengths: str | tuple[int, int] = (1, 1)
    drop_urls: bool = False
    sentences: bool = False
    locale: str = DEFAULT_LOCALE
    stop_words: Any = None
    min_length: int = 1

    def splitting(self, normalization: Normalization) -> Splitting:
        """Return the settings that split texts into tokens; refuse a tokenizer that is unknown or not installed."""
        named = isinstance(self.tokenizer, str)
        chosen: Any = as_choice("tokenizer", self.tokenizer, Tokenizer) if named else self.tokenizer
        check_whole("", "min_length", self.min_length, 1, LONGEST_WORD, "Leave it out to keep words of every length.")
        splitting = Splitting(chosen, self.drop_urls, self.sentences, self.locale, min_length=self.min_length)
        texts.check_splitting(splitting)
        if self.stop_words is None:
            return splitting
        kind = ValueKind.TEXT if chosen is Tokenizer.WORDS else ValueKind.ITEM
        listed = read_known(self.stop_words, kind=kind, normalization=normalization, what="list of stop words")
        return replace(splitting, stop_words=listed.items)


@dataclass(frozen=True, slots=True)
class Dated:
    """A column of dates or timestamps, or the columns of a key that has such columns, and how finely to read them.

    granularity: "hour", "day", "week" (ISO 8601), "month" or "year"; timestamps with a time zone are read in UTC.
    """

    columns: str | Sequence[str]
    granularity: str = "day"


@dataclass(frozen=True, slots=True)
class Known:
    """A public list to leave out of every set: a file, an earlier Release, texts. include: add it to the result."""

    source: Any
    include: bool = False

    def read(self, columns: Sequence[str], kind: ValueKind, normalization: Normalization) -> KnownItems:
        """Read the list as the release spells its items."""
        return read_known(self.source, columns, kind, normalization)


@dataclass(frozen=True, slots=True, init=False)
class Candidates:
    """Public lists of items that people may well have: a dictionary, a catalogue, an earlier Release, texts.

    A listed item needs fewer people to come out, at no cost for the others. It may come out although nobody has it:
    with probability `error`. So about error times the number of listed items come out by mistake, and nobody can tell
    which. drop_doubtful: with counts, drop the listed items whose interval reaches 0.

    Everything on a list must be public, and may not come from these people's rows: a dictionary may, "all queries ever
    seen" may not. docs/candidates.md has examples.

    >>> Candidates("catalogue.csv", "catalogue-2025.csv", error=0.01)
    Candidates(sources=('catalogue.csv', 'catalogue-2025.csv'), error=0.01, drop_doubtful=False)
    """

    sources: tuple[Any, ...]
    error: float
    drop_doubtful: bool

    def __init__(self, *sources: Any, error: float = 1e-3, drop_doubtful: bool = False) -> None:
        if not sources:
            raise BadParameter("A list of candidates is missing.", 'Write for example Candidates("catalogue.csv").')
        remedy = "0.001 is usual; 0.01 for a short list that people mostly have."
        object.__setattr__(self, "sources", sources)
        object.__setattr__(self, "error", check_real("candidates", "error", error, 1e-9, 0.1, remedy))
        object.__setattr__(self, "drop_doubtful", drop_doubtful)

    @classmethod
    def of(cls, asked: Any) -> Candidates | None:
        """Accept what `release` and `plan` take: None, Candidates(...) or one list."""
        return asked if asked is None or isinstance(asked, Candidates) else cls(asked)

    def read(
        self,
        columns: Sequence[str] = (COLUMN,),
        kind: ValueKind = ValueKind.ITEM,
        normalization: Normalization = Normalization.EXACT,
    ) -> KnownItems:
        """Read the lists as one, in the spelling of the release's items."""
        what, spelling = "list of candidates", (columns, kind, normalization)
        return join_lists(
            [
                one.read(*spelling)
                if isinstance(one, Earlier)
                else read_known(named_list(one), *spelling, what, words_only=True)
                for one in self.sources
            ]
        )


@dataclass(frozen=True, slots=True)
class Charge:
    """The ledger and dataset to charge, before reading. again: allow the same release once more, and charge it.

    scheduled: make the release that the dataset's schedule has due; it takes no epsilon and delta. on: the day for
    which it is made, by default today, in UTC. earlier: the folder with the files of earlier releases, if they moved;
    or, if the previous list is lost, the file of an older one, or "none", to continue it or an empty list. current: for
    rows of a window, release the items that are still in use: those of the previous release are candidates, and are not
    set aside.

    Guarantees: the repr does not show the address, which may have a password.
    """

    ledger: PathLike = field(repr=False)
    dataset: str
    again: bool = False
    scheduled: bool = False
    on: str | dt.date | None = None
    earlier: PathLike | None = None
    current: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """How to run a release. Nothing here changes what is guaranteed.

    memory_limit: bytes, or text like "2GB" (by default a share of the machine's memory); beyond it, rows and texts go
    to nameless private files. threads: at most this many (by default one for each usable core); they do not change the
    result. shards: on Spark, the number of groups into which a policy's users are split. progress: called with each
    stage. overwrite: replace existing outputs. about: title, owner and note, for the release, its page and the ledger.
    """

    memory_limit: int | str | None = None
    threads: int | None = None
    shards: int | None = None
    progress: Progress | None = None
    overwrite: bool = False
    about: About = UNTOLD

    def __post_init__(self) -> None:
        if self.threads is not None:
            check_whole("", "threads", self.threads, 1, MOST_THREADS, "Leave it out to use every core.")

    def tell(self, stage: str, done: float | None = None) -> None:
        """Report the stage as progress."""
        if self.progress is not None:
            self.progress(stage, done)


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder into which Spark writes the release, as Parquet; the Release then has no items.

    Items do not even come to the driver, unless there are counts, candidates or a known list to add; n-grams do.
    """

    path: PathLike


@dataclass(frozen=True, slots=True)
class Stdin:
    """Standard input; format: "csv", "tsv", "jsonl" or "arrow", if its first bytes do not show it."""

    format: str | None = None


@dataclass(frozen=True, slots=True)
class SparkSource:
    """Files, folders or tables for Spark to read, named but not opened (public).

    names: paths, folders and patterns for Spark, or tables of its catalog (with format "table").
    master, settings: where Spark runs, and its settings; by default the active session, or one machine.

    Guarantees: the repr does not show the settings, which may have passwords and keys.
    """

    names: str | Sequence[str]
    master: str | None = None
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    format: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", (self.names,) if isinstance(self.names, str) else tuple(self.names))


@dataclass(frozen=True, slots=True)
class Request(SourceRequest):
    """What to read and how. All fields together make the release's fingerprint."""

    user: str | None
    value: str | tuple[str, ...] | None
    normalization: Normalization = Normalization.NFC
    known: KnownItems | None = None
    lengths: tuple[int, int] = (1, 1)
    splitting: Splitting = PLAIN
    include_known: bool = False
    candidates: KnownItems | None = None
    drop_doubtful: bool = False

    @classmethod
    def of(
        cls,
        source: Any,
        *,
        user: str | None = None,
        item: str | Sequence[str] | Words | Dated | None = None,
        text: str | None = None,
        query: str | None = None,
        known: Any = None,
        candidates: Candidates | None = None,
        null_users: NullUsersName | NullUserPolicy = NullUserPolicy.REFUSE,
        normalize: NormalizationName | Normalization | None = None,
    ) -> Request:
        """Check the options of a release. Guarantees: this reads public lists, but nothing of the data."""
        if item is not None and text is not None:
            raise BadParameter(
                "Both 'item' and 'text' were given.",
                "Use 'item' for ready items or 'text' for texts to split into words.",
            )
        granularity = as_choice("granularity", item.granularity, Granularity) if isinstance(item, Dated) else None
        item = item.columns if isinstance(item, Dated) else item
        words = item if isinstance(item, Words) else None if text is None else Words(text)
        request = cls(
            STANDARD_INPUT if isinstance(source, Stdin) else source,
            user,
            ValueKind.ITEM if words is None else ValueKind.TEXT,
            _key_columns(item) if words is None else words.column,
            query,
            source.format if isinstance(source, (Stdin, SparkSource)) else None,
            as_choice("null_users", null_users, NullUserPolicy),
            granularity,
            normalization_for(normalize, words),
        )
        if words is not None:
            request = replace(
                request, lengths=_lengths(words.lengths), splitting=words.splitting(request.normalization)
            )
        is_plain = request.lengths == (1, 1) and request.splitting.is_plain
        spelling = request.columns, request.kind, request.normalization
        if known is not None:
            asked = known if isinstance(known, Known | Earlier) else Known(known)
            read = asked.read(*spelling) if is_plain else refuse_known()
            request = replace(request, known=read, include_known=asked.include)
        if candidates is not None:
            listed = candidates.read(*spelling) if is_plain else refuse_candidates("N-grams or another tokenizer")
            request = replace(request, candidates=listed, drop_doubtful=candidates.drop_doubtful)
            request = replace(request, candidates=request.without_unwanted(listed))
        return request

    def without_unwanted(self, listed: KnownItems) -> KnownItems:
        """Return a list without the items that this request leaves out: known ones, stop words, and short words."""
        if self.known is not None:
            listed = listed.without(self.known.texts)
        unwanted = texts.unwanted_tokens(*string_buffers(listed.texts), self.splitting)
        return listed if unwanted is None else replace(listed, texts=listed.texts.filter(pa.array(~unwanted)))

    def check_for(self, plan: Planned) -> None:
        """Refuse options that do not fit the algorithm."""
        if isinstance(plan, NgramPlan):
            if self.kind is not ValueKind.TEXT or self.lengths != (1, 1):
                raise BadParameter(
                    "Ngrams(...) needs a column of texts, and takes no lengths of its own.",
                    "Name the column of texts with 'text' (--text), and the longest length with Ngrams(longest=...).",
                )
            if self.known is not None:
                refuse_known()
        added = [*(COUNTED if plan.counts is not None else ()), *([LISTED] if self.candidates is not None else [])]
        taken = set(added).intersection(self.columns)
        if taken:
            raise BadParameter(
                f"A column of the key has the name of a column of the result: {', '.join(sorted(taken))}.",
                "Rename the column in the source, or leave out 'counts' (--counts) or 'candidates' (--candidates).",
            )
        if self.drop_doubtful and plan.counts is None:
            raise BadParameter(
                "Doubtful candidates can only be dropped when people are counted.",
                "Ask for counts (counts=True, --counts), or leave out 'drop_doubtful' (--drop-doubtful).",
            )
        if self.vocabulary is not None and SINCE in self.columns:
            raise BadParameter(
                f"A column of the key is called {SINCE!r}, as the column of weeks is.",
                "Rename the column in the source.",
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the column names of the items' texts."""
        return self.value if isinstance(self.value, tuple) else (COLUMN,)

    @property
    def vocabulary(self) -> KnownItems | None:
        """Return what a schedule released before, as the known list or as candidates; None without a schedule."""
        return next((one for one in (self.known, self.candidates) if one is not None and one.week is not None), None)

    @property
    def is_named(self) -> bool:
        """Say whether the source is named (paths, patterns, a database) and not an object in memory."""
        names = self.source if isinstance(self.source, (list, tuple)) else [self.source]
        return all(isinstance(name, (str, os.PathLike)) for name in names)

    def of_rows(self, source: Any) -> Request:
        """Return the request for rows that are already open, as in a worker of Spark, which needs no candidates."""
        return replace(self, source=source, query=None, input_format=None, candidates=None)

    def facts(self) -> dict[str, Any]:
        """Return the fields by which releases differ, for the fingerprint, without the source, which the engine names.

        A function as tokenizer counts by its code.
        """
        from dpunion.ledger.fingerprints import json_value

        facts = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "source"}
        facts["known"] = self.known and self.known.sha256
        # Without a list, facts are those of versions that had no lists, so that ledgers find their releases.
        listed = {"candidates": self.candidates and self.candidates.sha256, "drop_doubtful": self.drop_doubtful}
        facts = {name: value for name, value in facts.items() if name not in listed}
        if self.candidates is not None:
            facts |= listed
        return {name: json_value(value) for name, value in facts.items()}

    def notes(self) -> tuple[str, ...]:
        """Return the statement's notes on the request: the columns of keys, granularity, dropped words."""
        notes = list(self.splitting.notes())
        if len(self.columns) > 1:
            named = ", ".join(map(repr, self.columns))
            notes.append(f"Each item is a combination of values of {named}. Rows that lack one of them are left out.")
        if self.drop_doubtful:
            notes.append("Candidates whose interval of people begins at 0 were dropped.")
        if self.granularity is not None:
            notes.append(f"Dates and timestamps are rounded down to the {self.granularity.value}, in UTC.")
        return tuple(notes)

    def notes_on(self, released: Sequence[Any]) -> tuple[str, ...]:
        """Return the statement's notes on the released list. Guarantees: as for `Splitting.notes_on`."""
        return self.splitting.notes_on(released) if self.kind is ValueKind.TEXT else ()

    def known_notes(self) -> tuple[str, ...]:
        """Return the statement's notes on the known list."""
        if self.known is None:
            return ()
        if self.known.week is not None:
            more = f"The list also has the {len(self.known.texts):,} items of the list that it continues. "
            found = f"{more}{SINCE!r} says in which week of the schedule an item came onto the list."
            return (f"{found} An item that is {LISTED!r} may have no people.",) if self.known.listed else (found,)
        how = "are added to the list" if self.include_known else "are not in the list"
        return (
            f"Items of a known public list (SHA-256 {self.known.sha256}) were left out of the data first and {how}.",
        )


def refuse_known() -> NoReturn:
    """Refuse a known list for texts that are not split in the plain way."""
    raise BadParameter(
        "A known list cannot be combined with n-grams or another tokenizer yet.", "Leave 'known' or 'scheduled' out."
    )


def normalization_for(asked: str | Normalization | None, words: Words | None) -> Normalization:
    """Return the normal form of items; by default, words become lower case and ready items keep their case."""
    if asked is None:
        return Normalization.NFC if words is None else Normalization.NFC_LOWER
    return as_choice("normalize", asked, Normalization)


def is_on_spark(source: object) -> bool:
    """Say whether Spark computes the release: from a SparkSource, or a DataFrame of Spark, classic or Connect."""
    is_frame = type(source).__module__.startswith("pyspark.sql.") and hasattr(source, "mapInArrow")
    return is_frame or isinstance(source, SparkSource)


def _key_columns(item: Any) -> Any:
    """Return one column as it is and several as a tuple; refuse anything else."""
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


def _lengths(lengths: str | tuple[int, int]) -> tuple[int, int]:
    """Parse the shortest and longest length of n-grams: "2", "1-3" or (1, 3)."""
    with contextlib.suppress(ValueError, TypeError):
        parts = lengths.split("-") if isinstance(lengths, str) else list(lengths)
        shortest, longest = int(parts[0]), int(parts[-1])
        if 1 <= shortest <= longest <= LONGEST_NGRAM and len(parts) <= 2:
            return shortest, longest
    raise BadParameter(
        f"The 'lengths' of n-grams (--ngrams) must be from 1 to {LONGEST_NGRAM}, like 1-3. Got {lengths!r} instead.",
        "Write the shortest and the longest length.",
    )


HOMES: tuple[tuple[type[Any], str, tuple[str, ...]], ...] = (
    (Words, "item={}", ('"body"',)),
    (Dated, "item={}", ('"at"',)),
    (Known, "known={}", ('"old.csv"',)),
    (Candidates, "candidates={}", ('"catalogue.csv"',)),
    (Charge, "charge={}", ('"budget.db"', '"posts"')),
    (Counts, "counts={}", ()),
    (Run, "run={}", ()),
    (About, "run=Run(about={})", ()),
    (Folder, "out={}", ('"hdfs:///out"',)),
    (Ngrams, "algorithm={}", ()),
    (Stdin, "release({}, ...)", ()),
    (SparkSource, "release({}, ...)", ('"logs/*.parquet"',)),
)
"""The classes, how `release` takes each, and examples of their first fields."""
OTHER_NAMES = {
    "charge_again": "again",
    "candidates_error": "error",
    "conf": "settings",
    "count_share": "share",
    "engine": "names",
    "force": "overwrite",
    "include_known": "include",
    "input_format": "format",
    "ngrams": "lengths",
    "out_folder": "path",
    "spark_settings": "settings",
}
"""Names of options of the command line, and the fields that they set."""
COMMAND_LINE_ONLY = frozenset({"as_json", "config", "json", "quiet", "statement"})


def refuse_misplaced(names: Iterable[str], algorithm: object, of_release: Collection[str] = ()) -> None:
    """Refuse keywords that belong to a class above or to `release`, not to the algorithm, and misspelt ones."""
    own = getattr(ALGORITHMS.get(str(algorithm or Funnel.name), algorithm), "__dataclass_fields__", ())
    for name in [one for one in names if one not in own]:
        if name in COMMAND_LINE_ONLY:
            raise BadParameter(f"{name!r} is an option of the command line, not of Python.", "Leave it out.")
        wanted = OTHER_NAMES.get(name, name)
        for kind, place, examples in HOMES:
            known = [field.name for field in fields(kind)]
            if wanted in known:
                given = examples if wanted in known[: len(examples)] else (*examples, f"{wanted}=...")
                call = place.format(f"{kind.__name__}({', '.join(given)})")
                raise BadParameter(f"{name!r} belongs to {kind.__name__}.", f"Write {call}.")
        if name in of_release:
            raise BadParameter(f"{name!r} belongs to release.", "Leave it out here: a plan reads no data.")
        everything = [*(field.name for kind in ALGORITHMS.values() for field in fields(kind)), *of_release]
        if name not in everything and (near := nearest(name, everything)) is not None:
            raise BadParameter(f"There is no parameter {name!r}.", f"Did you mean {near!r}?")


def tokenize(
    text: str,
    *,
    tokenizer: TokenizerName | SplitFunction = "words",
    normalize: NormalizationName | None = None,
    drop_urls: bool = False,
    locale: str = DEFAULT_LOCALE,
    stop_words: Any = None,
    min_length: int = 1,
) -> list[str]:
    """Return the words of one text, in order, as a release with the same options finds and spells them.

    >>> tokenize("Don't panic, NAÏVE café!")
    ["don't", 'panic', 'naïve', 'café']
    >>> tokenize("Don't panic, NAÏVE café!", normalize="nfc", min_length=5)
    ["Don't", 'panic', 'NAÏVE']

    The options are those of `Words` and of `release`. A file with stop words is read at each call.

    Guarantees: it is the code of `release`, with one text.
    """
    if not isinstance(text, str) or not is_utf8(text):
        raise BadParameter("Only text can be split into words.", "Pass a string without lone surrogates.")
    if isinstance(stop_words, Iterable) and not isinstance(stop_words, str | os.PathLike | tuple):
        stop_words = tuple(stop_words)
    asked = Words(None, tokenizer, drop_urls=drop_urls, locale=locale, stop_words=stop_words, min_length=min_length)
    find = _splitting if stop_words is None or isinstance(stop_words, tuple) else _splitting.__wrapped__
    splitting, normalization = find(asked, normalize)
    _, (_, offsets, data) = texts.documents(text_array([text]), splitting, normalization)
    words = normalize_texts(offsets, data, texts.left_to_spell(splitting, normalization))
    offsets, data = string_buffers(text_array(words))
    unwanted = texts.unwanted_tokens(offsets.astype("int64"), data, splitting)
    return words if unwanted is None else [word for word, left_out in zip(words, unwanted, strict=True) if not left_out]


@functools.lru_cache(maxsize=64)
def _splitting(asked: Words, normalize: NormalizationName | None) -> tuple[Splitting, Normalization]:
    """Cached for stop words in memory, which do not change: scikit-learn and others call `tokenize` once per text."""
    normalization = normalization_for(normalize, asked)
    return asked.splitting(normalization), normalization
