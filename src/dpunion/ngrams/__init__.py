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

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from dpunion.algorithms import UserOrder, as_choice
from dpunion.budget import Budget
from dpunion.engines import local
from dpunion.ledger.accounts import charge_for_budget
from dpunion.ngrams.candidates import Level
from dpunion.ngrams.lengths import first_level, next_level
from dpunion.ngrams.plans import LengthPlan, LengthResult, NgramPlan, Ngrams, plan_ngrams, published_dpne
from dpunion.ngrams.releases import NgramRelease, closed_under_parts
from dpunion.pipeline import PathLike, Progress, Reading, checked_targets, opened, reserved, splitting_of
from dpunion.randomness import RunKey
from dpunion.sources import NullUserPolicy, ValueKind
from dpunion.sources.encoding import Normalization
from dpunion.sources.token_streams import TokenStream, bounded, read_tokens
from dpunion.tokens import SplitFunction, Tokenizer

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
    longest: int = 3,
    epsilon: float,
    delta: float,
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
    unsafe_test_key: int | None = None,
    progress: Progress | None = None,
) -> NgramRelease:
    """Release as many n-grams of length 1 to `longest` of the users' texts as possible.

    source, user, null_users, query, input_format, out, ledger, dataset: as in dpunion.release.
    text: the column of texts; each row is a document.
    settings: all other parameters of the algorithm; its `longest` is then the one that counts.
    tokenizer: "words", "whitespace", "treebank", "icu" (with locale) or a function from a text to its tokens.
    drop_urls: leave out web addresses. sentences: n-grams do not cross the end of a sentence either.
    normalize: "nfc-lower", "nfc" or "exact", applied to tokens (those of "words" are lower-cased NFC anyway).
    unsafe_test_key: fixes the randomness, for tests; the result is stamped NOT PRIVATE.

    Guarantees:
    - (epsilon, delta)-differential privacy for adding or removing one user and all of that user's texts;
    - every part of a released n-gram is released too;
    - a bad budget, tokenizer or option is refused before any data is read.
    """
    planned = plan_ngrams(settings or Ngrams(longest=longest), Budget(epsilon, delta))
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
    targets = [] if ledger is not None else checked_targets(out, overwrite=overwrite)
    key = RunKey.fresh() if unsafe_test_key is None else RunKey.for_tests(unsafe_test_key)
    tell = progress or _silent

    facts = reading.to_dict() | {"plan": planned.to_dict()}
    charge = charge_for_budget(planned.budget)
    with reserved(ledger, dataset, charge, facts, charge_again=charge_again, test_key=key.is_test) as reservation:
        targets = targets or checked_targets(out, overwrite=overwrite)
        with opened(reading, tell, reservation) as rows:
            stream = read_tokens(rows, key, reading.splitting, reading.normalization)
        released = publish_ngrams(planned, stream, key, lambda length: tell(f"selecting length {length}", None))
        if reservation is not None:
            released = dataclasses.replace(released, notes=(reservation.sentence,))
        tell("writing", None)
        written = [released.write(target, overwrite=overwrite) for target in targets]
        if reservation is not None:
            texts = "\0".join(f"{ngram} {length}" for ngram, length in released.ngrams)
            reservation.settle(written, digest=None if written else hashlib.sha256(texts.encode()).hexdigest())
    return released


def publish_ngrams(
    plan: NgramPlan, stream: TokenStream, key: RunKey, on_length: Callable[[int], None] | None = None
) -> NgramRelease:
    """Select length by length and turn the chosen n-grams into a release.

    Guarantees:
    - each length sees the users' texts and, of the lengths before, what was released;
    - texts are put together from released tokens; nothing else of the input reaches the release.
    """
    tell = on_length or (lambda _: None)
    tell(1)
    first = plan.first.algorithm
    contributions = bounded(
        stream,
        stream.offsets,
        stream.tokens,
        stream.table,
        key,
        bound_round=0,
        max_items_per_user=first.max_items_per_user,
        user_order=getattr(first, "user_order", UserOrder.RANDOM),
    )
    tokens, positions, words = first_level(stream, local.select(plan.first, contributions, key))
    del contributions
    results = [LengthResult(1, len(tokens), None, plan.first.threshold, 0.0)]
    texts, found = words, [(word, 1) for word in words]
    level = tokens
    for one in plan.lengths[1:]:
        tell(one.length)
        level, positions, result = next_level(one, plan.settings.spurious_rate, stream, tokens, level, positions, key)
        texts = _longer(texts, words, level)
        found.extend((ngram, one.length) for ngram in texts)
        results.append(result)
    return NgramRelease(tuple(sorted(found)), plan, tuple(results), private=not key.is_test)


def _longer(texts: tuple[str, ...], words: tuple[str, ...], level: Level) -> tuple[str, ...]:
    """Return the texts of a level, from those of the level below and of the tokens."""
    pairs = zip(level.prefixes.tolist(), level.last.tolist(), strict=True)
    return tuple(f"{texts[prefix]} {words[last]}" for prefix, last in pairs)


def _silent(_stage: str, _done: float | None) -> None:
    return None
