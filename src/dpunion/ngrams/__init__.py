"""Private n-grams: from a source of (user, text) rows to a release of n-grams. Read this file first.

plan     every length's noise, from public parameters only
read     texts -> one stream of token numbers, user after user
first    single tokens: a set union like any other, with its part of the budget
then     length by length: n-grams whose two parts were released, on that public set of candidates
publish  the chosen n-grams, sorted, as plain strings

The algorithm is DPNE (Kim et al., "Differentially Private n-gram Extraction", NeurIPS 2021), corrected and improved as
docs/ngrams.md says.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dpunion.budget import budget_for_release
from dpunion.charging import reserved
from dpunion.checks import as_choice
from dpunion.engines.spark.frames import check_spark_source, checked_shards, is_on_spark
from dpunion.errors import BadParameter
from dpunion.ledger.accounts import charge_for_budget
from dpunion.ngrams.candidates import Level
from dpunion.ngrams.lengths import LocalTexts, Texts, next_level
from dpunion.ngrams.plans import LengthPlan, LengthResult, NgramPlan, Ngrams, plan_ngrams, published_dpne
from dpunion.ngrams.releases import NgramRelease, closed_under_parts
from dpunion.pipeline import PathLike, Progress, Reading, checked_targets, opened, read_from, splitting_of
from dpunion.randomness import RunKey
from dpunion.reading import NullUserPolicy, ValueKind
from dpunion.reading.overlaps import refuse_overwriting
from dpunion.sets.encoding import Normalization
from dpunion.sets.streams import TokenStream, read_tokens
from dpunion.tokens import SplitFunction, Tokenizer

if TYPE_CHECKING:
    from dpunion.ledger import Reservation

__all__ = [
    "LengthPlan",
    "LengthResult",
    "NgramPlan",
    "NgramRelease",
    "Ngrams",
    "closed_under_parts",
    "plan_ngrams",
    "publish_ngrams",
    "published_dpne",
    "release_ngrams",
    "splitting_of",
]


def release_ngrams(
    source: Any,
    *,
    user: str | None = None,
    text: str | None = None,
    longest: int | None = None,
    epsilon: float,
    delta: float,
    weak_budget: bool = False,
    settings: Ngrams | None = None,
    tokenizer: str | Tokenizer | SplitFunction = Tokenizer.WORDS,
    drop_urls: bool = False,
    sentences: bool = False,
    locale: str = "en",
    null_users: str | NullUserPolicy = NullUserPolicy.REFUSE,
    normalize: str | Normalization = Normalization.NFC_LOWER,
    query: str | None = None,
    input_format: str | None = None,
    out: PathLike | Sequence[PathLike] = (),
    overwrite: bool = False,
    ledger: PathLike | None = None,
    dataset: str | None = None,
    charge_again: bool = False,
    shards: int | None = None,
    unsafe_test_key: int | None = None,
    progress: Progress | None = None,
) -> NgramRelease:
    """Release as many n-grams of length 1 to `longest` (3 when left out) of the users' texts as possible.

    source, user, weak_budget, null_users, query, input_format, out, ledger, dataset, shards: as in dpunion.release.
    With a DataFrame of Spark, the texts stay there and the released n-grams come here.
    text: the column of texts; each row is a document.
    settings: instead of longest, all parameters of the algorithm.
    tokenizer: "words", "whitespace", "treebank", "icu" (with locale) or a function from a text to its tokens.
    drop_urls: leave out web addresses. sentences: n-grams do not cross the end of a sentence either.
    normalize: "nfc-lower", "nfc" or "exact", applied to tokens (those of "words" are lower-cased NFC anyway).
    unsafe_test_key: fixes the randomness, for tests; the result is stamped NOT PRIVATE.

    Guarantees:
    - (epsilon, delta)-differential privacy for adding or removing one user and all of that user's texts;
    - every part of a released n-gram is released too;
    - a bad budget, tokenizer or option is refused before any data is read.
    """
    budget = budget_for_release(epsilon, delta, weak_budget=weak_budget)
    planned = plan_ngrams(_settings(settings, longest), budget)
    reading = Reading(
        source=source,
        user=user,
        kind=ValueKind.TEXT,
        value=text,
        query=query,
        input_format=input_format,
        null_users=as_choice("null_users", null_users, NullUserPolicy),
        normalization=as_choice("normalize", normalize, Normalization),
        known=None,
        memory_limit=None,
        splitting=splitting_of(tokenizer, drop_urls=drop_urls, sentences=sentences, locale=locale),
    )
    on_shards = _checked_spark_options(planned, shards, source)
    check_spark_source(reading)
    refuse_overwriting(out, {"source": read_from(source), "ledger": ledger})
    targets = [] if ledger is not None else checked_targets(out, overwrite=overwrite)
    key = RunKey.fresh() if unsafe_test_key is None else RunKey.for_tests(unsafe_test_key)
    tell = progress or _silent

    facts = {"plan": planned.to_dict(), "shards": on_shards}
    charge, note = charge_for_budget(planned.budget), {"algorithm": _named(planned)} | planned.to_dict()
    with reserved(
        ledger, dataset, charge, reading, facts, note=note, charge_again=charge_again, test_key=key.is_test
    ) as reservation:
        targets = targets or checked_targets(out, overwrite=overwrite)
        with _opened_texts(reading, key, on_shards, tell, reservation) as texts:
            released = select_ngrams(planned, texts, key, lambda length: tell(f"selecting length {length}", None))
        released = dataclasses.replace(released, notes=_notes(on_shards, reservation))
        tell("writing", None)
        written = [released.write(target, overwrite=overwrite) for target in targets]
        if reservation is not None:
            listed = "\0".join(f"{ngram} {length}" for ngram, length in released.ngrams)
            reservation.settle(written, digest=None if written else hashlib.sha256(listed.encode()).hexdigest())
    return released


def _settings(settings: Ngrams | None, longest: int | None) -> Ngrams:
    if settings is not None and longest is not None:
        raise BadParameter(
            "Both 'longest' and 'settings' were given.", "Say it in the settings alone: Ngrams(longest=5, ...)."
        )
    return settings or (Ngrams() if longest is None else Ngrams(longest=longest))


@contextlib.contextmanager
def _opened_texts(
    reading: Reading, key: RunKey, shards: int | None, tell: Progress, reservation: Reservation | None
) -> Iterator[Texts]:
    """Read the texts into token streams, here or, with shards, on Spark."""
    if shards is None:
        with opened(reading, tell, reservation) as rows:
            stream = read_tokens(rows, key, reading.splitting, reading.normalization)
        yield LocalTexts(stream, key)
        return
    from dpunion.engines.spark.texts import spark_texts

    def start_reading() -> None:
        tell("reading on Spark", None)
        if reservation is not None:
            reservation.start_reading()

    with spark_texts(reading, key, shards, start_reading) as texts:
        yield texts


def _named(plan: NgramPlan) -> str:
    """Name the algorithm in one line: n-grams, and what selects each length."""
    return f"ngrams ({', '.join(one.algorithm.name for one in plan.lengths)})"


def _notes(shards: int | None, reservation: Reservation | None) -> tuple[str, ...]:
    notes = []
    if shards is not None:
        notes.append(f"It was computed on Apache Spark, the users spread over {shards} shards.")
    if reservation is not None:
        notes.append(reservation.sentence)
    return tuple(notes)


def _checked_spark_options(plan: NgramPlan, shards: int | None, source: Any) -> int | None:
    """Return the number of shards on Spark, None elsewhere; refuse the option for other sources."""
    if is_on_spark(source):
        from dpunion.engines.spark.texts import check_lengths

        chosen = checked_shards(shards)
        check_lengths(plan, chosen)
        return chosen
    if shards is not None:
        raise BadParameter("'shards' is for Spark.", "Pass a DataFrame of Spark, or leave it out.")
    return None


def publish_ngrams(
    plan: NgramPlan, stream: TokenStream, key: RunKey, on_length: Callable[[int], None] | None = None
) -> NgramRelease:
    """Select length by length and turn the chosen n-grams into a release.

    Guarantees:
    - each length sees the users' texts and, of the lengths before, what was released;
    - texts are put together from released tokens; nothing else of the input reaches the release.
    """
    return select_ngrams(plan, LocalTexts(stream, key), key, on_length or (lambda _: None))


def select_ngrams(plan: NgramPlan, texts: Texts, key: RunKey, on_length: Callable[[int], None]) -> NgramRelease:
    """Select length by length from texts wherever they are.

    Guarantees: those of publish_ngrams.
    """
    on_length(1)
    level, words = texts.first(plan.first)
    levels: tuple[Level, ...] = (level,)
    results = [LengthResult(1, len(words), None, plan.first.threshold, 0.0)]
    here, found = words, [(word, 1) for word in words]
    for one in plan.lengths[1:]:
        on_length(one.length)
        level, result = next_level(one, plan.settings.spurious_rate, texts, levels, key)
        here = _longer(here, words, level)
        found.extend((ngram, one.length) for ngram in here)
        levels = (*levels, level)
        results.append(result)
    return NgramRelease(tuple(sorted(found)), plan, tuple(results), guaranteed=not key.is_test)


def _longer(texts: tuple[str, ...], words: tuple[str, ...], level: Level) -> tuple[str, ...]:
    """Return the texts of a level, from those of the level below and of the tokens."""
    pairs = zip(level.prefixes.tolist(), level.last.tolist(), strict=True)
    return tuple(f"{texts[prefix]} {words[last]}" for prefix, last in pairs)


def _silent(_stage: str, _done: float | None) -> None:
    return None
