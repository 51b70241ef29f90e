"""Releases from what was read already, for tests of what comes after."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dpunion.algorithms import UserOrder
from dpunion.contributions import Contributions
from dpunion.engines.local import run_rounds
from dpunion.engines.local.engine import texts_of
from dpunion.engines.local.texts import LocalTexts
from dpunion.mechanisms import mechanism_for
from dpunion.ngrams.lengths import select_ngrams
from dpunion.plans import Plan
from dpunion.plans.ngrams import LengthResult, NgramPlan
from dpunion.randomness import RunKey
from dpunion.releases.release import Release, with_items, with_ngrams
from dpunion.sets.encoding import Normalization, encode
from dpunion.sets.streams import TokenStream


def encode_items(batches: Iterable[Any], key: RunKey, limit: int, order: UserOrder, **more: Any) -> Contributions:
    """Return everybody's sets of ready items, in the usual normal form."""
    usual = {"normalization": Normalization.NFC, "split_words": False}
    return encode(batches, key, max_items_per_user=limit, user_order=order, **(usual | more))


def publish(plan: Plan, contributions: Contributions, key: RunKey) -> Release:
    """Select by the plan and return the release."""
    chosen = texts_of(contributions.table, run_rounds(mechanism_for(plan), contributions, key))
    return with_items(Release((), plan, not key.is_test), chosen)


def publish_ngrams(
    plan: NgramPlan, stream: TokenStream, key: RunKey, on_length: Callable[[int], None] = lambda _: None
) -> Release:
    """Select length by length and return the release."""
    _, found, results = select_ngrams(plan, LocalTexts(stream, key), key, on_length)
    return ngram_release(found, plan, results, guaranteed=not key.is_test)


def ngram_release(
    rows: Sequence[tuple[str, int]], plan: NgramPlan, results: tuple[LengthResult, ...], *, guaranteed: bool
) -> Release:
    """Return a release of these n-grams."""
    return with_ngrams(Release((), plan, guaranteed), rows, results)
