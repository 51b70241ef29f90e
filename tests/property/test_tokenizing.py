"""New text has the words that a release finds in it, whatever the text and the options."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tokens_property import texts

import dpunion
from dpunion import Words
from dpunion.algorithms import UserOrder
from dpunion.engines.local.engine import texts_of
from dpunion.randomness import RunKey
from dpunion.requests import Request
from dpunion.sets.encoding import encode
from dpunion.sets.streams import read_tokens
from twins.words import reference_words

KEY = RunKey.for_tests(4)
PIECES = st.sampled_from(
    ["The", "the", "THE", "and", "漢字", "née", "nee\u0301", "x", "ß", "İ", "don't", "http://a.b/c", "."]
)
written = texts | st.lists(PIECES, max_size=8).map(" ".join)
options = st.fixed_dictionaries(
    {
        "tokenizer": st.sampled_from(["words", "whitespace", "icu", str.split]),
        "drop_urls": st.booleans(),
        "stop_words": st.none() | st.lists(PIECES | texts, max_size=4),
        "min_length": st.integers(1, 4),
    }
)
spellings = st.sampled_from([None, "nfc", "nfc-lower", "exact"])


def rows(*many):
    return [(pa.array([f"u{number}" for number in range(len(many))]), pa.array(many, pa.large_string()))]


@settings(max_examples=400, deadline=None)
@given(written, written, options, spellings)
def test_new_text_has_the_words_of_a_release(text, other, asked, normalize):
    request = Request.of([], item=Words(**asked), normalize=normalize)
    stream = read_tokens(rows(text, other), KEY, request.splitting, request.normalization)
    names = texts_of(stream.table, np.arange(len(stream.table)))
    found = [
        [names[code] for code in stream.tokens[first:last] if code >= 0] for first, last in pairwise(stream.offsets)
    ]
    wanted = [dpunion.tokenize(one, normalize=normalize, **asked) for one in (text, other)]
    assert sorted(found) == sorted(wanted)
    if request.lengths == (1, 1) and request.splitting.is_plain:
        spelled = {"normalization": request.normalization, "split_words": True, "splitting": request.splitting}
        held = encode(rows(text, other), KEY, max_items_per_user=100, user_order=UserOrder.RANDOM, **spelled)
        sets = [texts_of(held.table, held.items[a:b]) for a, b in pairwise(held.offsets)]
        assert sorted(map(sorted, sets)) == sorted(sorted(set(words)) for words in wanted)


@settings(max_examples=300, deadline=None)
@given(written, st.lists(PIECES | texts, max_size=4), st.integers(1, 4), spellings)
def test_words_that_are_left_out_are_those_of_the_definition(text, stop, least, how):
    spelled = how or "nfc-lower"
    single = [found[0] for word in stop if len(found := reference_words(word, spelled)) == 1]
    wanted = [word for word in reference_words(text, spelled) if len(word) >= least and word not in single]
    assert dpunion.tokenize(text, normalize=how, stop_words=stop, min_length=least) == wanted
