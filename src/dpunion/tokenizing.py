"""New text, split as a release splits texts: for whoever applies a released vocabulary."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from dpunion.checks import NormalizationName, TokenizerName
from dpunion.errors import BadParameter
from dpunion.releases.formats import is_utf8
from dpunion.requests import Words, normalization_for
from dpunion.sets.encoding import normalized
from dpunion.sets.strings import string_buffers
from dpunion.text.normal_forms import Normalization
from dpunion.text.splitting import DEFAULT_LOCALE, SplitFunction, Splitting, documents, left_to_spell, unwanted_tokens


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

    The options are those of `Words` and of `release`. A list of stop words that is a file is read each time.

    Guarantees: it is the code of `release`, with one text.
    """
    if not isinstance(text, str) or not is_utf8(text):
        raise BadParameter("Only text can be split into words.", "Pass a string without lone surrogates.")
    if isinstance(stop_words, Iterable) and not isinstance(stop_words, str | os.PathLike | tuple):
        stop_words = tuple(stop_words)
    asked = Words(None, tokenizer, drop_urls=drop_urls, locale=locale, stop_words=stop_words, min_length=min_length)
    prepare = _remembered if stop_words is None or isinstance(stop_words, tuple) else _prepared
    splitting, normalization = prepare(asked, normalize)
    _, (_, offsets, data) = documents(pa.array([text], pa.large_string()), splitting, normalization)
    found = normalized(offsets, data, left_to_spell(splitting, normalization))
    offsets, data = string_buffers(found)
    unwanted = unwanted_tokens(offsets.astype(np.int64), data, splitting)
    words: list[str] = found.to_pylist()
    return words if unwanted is None else [word for word, left_out in zip(words, unwanted, strict=True) if not left_out]


def _prepared(asked: Words, normalize: NormalizationName | None) -> tuple[Splitting, Normalization]:
    normalization = normalization_for(normalize, asked)
    return asked.splitting(normalization), normalization


_remembered = functools.lru_cache(maxsize=64)(_prepared)
"""The same for lists in memory, which do not change: scikit-learn and the like ask for each text anew."""
