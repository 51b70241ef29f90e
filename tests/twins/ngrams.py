"""The readable twin of `ngrams`: documents are lists of tokens, n-grams are tuples.

Property tests hold the kernels and the counting of candidates equal to it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

Gram = tuple[Hashable, ...]


def ngrams_of(document: Sequence[Hashable], length: int) -> list[Gram]:
    """Return the n-grams of one document, in order, repeats included."""
    return [tuple(document[i : i + length]) for i in range(len(document) - length + 1)]


def candidates(released: Iterable[Gram], length: int) -> set[Gram]:
    """Return V_k by looking at every pair of released n-grams of length k-1 (Kim et al. 2021, section 3)."""
    shorter = set(released)
    return {left + right[-1:] for left in shorter for right in shorter if left[1:] == right[: length - 2]}


def held_candidates(
    documents: Mapping[Hashable, Iterable[Sequence[Hashable]]], released: Iterable[Gram], length: int
) -> dict[Hashable, set[Gram]]:
    """Return each user's n-grams whose prefix and suffix of length k-1 are released."""
    shorter = set(released)
    return {
        user: {
            gram
            for document in texts
            for gram in ngrams_of(document, length)
            if gram[:-1] in shorter and gram[1:] in shorter
        }
        for user, texts in documents.items()
    }
