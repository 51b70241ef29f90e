"""The same people with the same items give the same release, however the rows are laid out.

All with a fixed test key: the items must be equal one by one, whatever the order of rows, duplicates, files, batches
or formats, and whichever kind of source they come from.
"""

import functools
import itertools
import json
import tempfile
import unicodedata
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import ITEMS, USERS, databases

import dpunion
from dpunion.algorithms import ALGORITHMS, algorithm_named
from dpunion.requests import Run, Words

POLICIES = ("policy-laplace", "policy-gaussian")
VARIANTS = [
    *(pytest.param(name, (), id=name) for name in ALGORITHMS),
    *(pytest.param(name, (("passes", 3),), id=f"{name}-3-passes") for name in POLICIES),
    *(pytest.param(name, (("reserve", 0.2),), id=f"{name}-reserve") for name in POLICIES),
    *(pytest.param(name, (("user_order", "smallest-first"),), id=f"{name}-smallest-first") for name in POLICIES),
]
# At this budget an item of one person passes about as often as not, so that every coin and every kept item matters.
LIMIT, EPSILON, DELTA = 3, 3.0, 0.3

keys = st.integers(0, 2**20)


@functools.cache
def small(name, parameters=()):
    """Return the algorithm with few items per user, where it lets one choose."""
    limit = {} if name == "optimal-single-item" else {"max_items_per_user": LIMIT}
    return algorithm_named(name, **limit, **dict(parameters))


def released(source, key, name="policy-gaussian", parameters=(), **options):
    algorithm = small(name, parameters)
    options |= {"epsilon": EPSILON, "delta": DELTA, "weak_budget": True}
    return dpunion.release(source, algorithm=algorithm, unsafe_test_key=key, **options)


def pairs_of(database):
    return [(user, item) for user, items in database.items() for item in sorted(items)]


def table_of(pairs):
    users, items = [user for user, _ in pairs], [item for _, item in pairs]
    return pa.table({"who": pa.array(users, pa.string()), "what": pa.array(items, pa.string())})


@st.composite
def layouts(draw):
    """Draw a database, its rows in order, and the same rows repeated, shuffled and cut into parts."""
    pairs = pairs_of(draw(databases))
    repeated = pairs + draw(st.lists(st.sampled_from(pairs), max_size=20))
    rows = draw(st.permutations(repeated))
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    bounds = [0, *cuts, len(rows)]
    return pairs, [rows[a:b] for a, b in itertools.pairwise(bounds)]


@settings(max_examples=20)
@pytest.mark.parametrize(("name", "parameters"), VARIANTS)
@given(layout=layouts(), key=keys)
def test_order_duplicates_and_batches_change_nothing(name, parameters, layout, key):
    pairs, parts = layout
    expected = released(pairs, key, name, parameters)
    rows = [row for part in parts for row in part]
    assert released(rows, key, name, parameters) == expected
    chunked = pa.concat_tables([table_of(part) for part in parts])
    assert released(chunked, key, name, parameters, user="who", item="what") == expected


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_comparisons_mean_something(name):
    """At the budget of these tests some items pass and some do not, and the key and the data decide which."""
    database = {user: ITEMS[i : i + 6] for i, user in enumerate(USERS)}
    outcomes = [released(database, key, name).items for key in range(40)]
    sizes = [len(items) for items in outcomes]
    assert len(set(outcomes)) > 20
    assert 0 < sum(sizes) / len(sizes) < len(ITEMS) - 1
    smaller = {user: items for user, items in database.items() if user != USERS[5]}
    assert [released(smaller, key, name).items for key in range(40)] != outcomes


def write_part(rows, folder, number, suffix):
    path = folder / f"part{number}{suffix}"
    table = table_of(rows)
    match suffix:
        case ".parquet":
            pq.write_table(table, path, row_group_size=2)
        case ".csv":
            pyarrow.csv.write_csv(table, path)
        case ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    return path


@settings(max_examples=6)
@pytest.mark.parametrize("name", ALGORITHMS)
@given(layout=layouts(), key=keys, data=st.data())
def test_files_change_nothing(name, layout, key, data):
    pairs, parts = layout
    expected = released(pairs, key, name)
    suffixes = [data.draw(st.sampled_from([".parquet", ".csv", ".jsonl"])) for _ in parts]
    with tempfile.TemporaryDirectory() as folder:
        # subtle: an empty JSONL file has no columns to name, so empty parts are written with a header.
        chosen = [suffix if part else ".csv" for suffix, part in zip(suffixes, parts, strict=True)]
        paths = [
            write_part(part, Path(folder), i, suffix)
            for i, (part, suffix) in enumerate(zip(parts, chosen, strict=True))
        ]
        assert released(paths, key, name, user="who", item="what") == expected
        backwards = [str(path) for path in reversed(paths)]
        assert released(backwards, key, name, user="who", item="what") == expected
        pattern = f"{folder}/part*"
        assert released(pattern, key, name, user="who", item="what") == expected


@settings(max_examples=15)
@given(database=databases, key=keys)
def test_every_kind_of_source_gives_the_same(database, key):
    pairs = pairs_of(database)
    expected = released(pairs, key)
    table = table_of(pairs)
    columns = {"user": "who", "item": "what"}
    assert released(iter(pairs), key) == expected
    assert released(database, key) == expected
    assert released({user: iter(items) for user, items in database.items()}, key) == expected
    categorical = pa.table({name: table[name].dictionary_encode() for name in table.column_names})
    large = table.cast(pa.schema([("who", pa.large_string()), ("what", pa.large_string())]))
    for frame in (
        table,
        table.to_reader(max_chunksize=3),
        table.slice(0),
        large,
        categorical,
        table.to_pandas(),
        pd.DataFrame(table.to_pydict(), dtype="category"),
        pl.from_arrow(table),
        pl.from_arrow(table).cast(pl.Categorical),
    ):
        assert released(frame, key, **columns) == expected, type(frame)


@settings(max_examples=20)
@given(database=databases, key=keys, seed=st.integers(0, 2**16))
def test_composed_and_decomposed_forms_are_one_item(database, key, seed):
    """Accented names, each row spelled NFC or NFD at random: as if all were NFC, and released as NFC."""
    accented = {user: {f"caf\u00e9 \u1e69 {item}" for item in items} for user, items in database.items()}
    forms = ("NFC", "NFD")
    mixed = [
        (user, unicodedata.normalize(forms[(seed >> (i % 16)) & 1], item))
        for i, (user, item) in enumerate(pairs_of(accented))
    ]
    both = mixed + [(user, unicodedata.normalize("NFD", item)) for user, item in mixed]
    expected = released(accented, key)
    assert released(mixed, key) == expected
    assert released(both, key) == expected
    assert all(unicodedata.is_normalized("NFC", item) for item in expected.items)


@settings(max_examples=20)
@given(database=databases, key=keys)
def test_lower_casing_happens_before_duplicates_are_dropped(database, key):
    shouted = [(user, item.upper()) for user, item in pairs_of(database)] + pairs_of(database)
    assert released(shouted, key, normalize="nfc-lower") == released(database, key)


@settings(max_examples=20)
@given(database=databases, key=keys)
def test_exact_items_are_kept_apart(database, key):
    pairs = pairs_of(database)
    upper = [(user, item.upper()) for user, item in pairs]
    result = released(pairs + upper, key, normalize="exact")
    assert set(result.items) <= set(ITEMS) | {item.upper() for item in ITEMS}
    assert released(list(reversed(pairs + upper)), key, normalize="exact") == result


@settings(max_examples=20)
@given(database=databases, key=keys)
def test_texts_are_the_union_of_their_words(database, key):
    """One text with all words, or one text per word, give what the words as items give."""
    words = {user: " ".join(sorted(items)) for user, items in database.items()}
    table = pa.table({"who": list(words), "text": [text + "." for text in words.values()]})
    expected = released(database, key)
    assert released(table, key, user="who", text="text") == expected
    renamed = table_of(pairs_of(database)).rename_columns(["who", "text"])
    assert released(renamed, key, user="who", text="text") == expected


def test_names_of_users_do_not_choose_items():
    """Over many keys, renaming the users leaves the mean size of the release where it was."""
    database = dict.fromkeys(USERS, ITEMS)
    renamed = {user[::-1]: items for user, items in database.items()}
    keys = range(100)
    one = sum(len(released(database, key)) for key in keys) / len(keys)
    other = sum(len(released(renamed, key)) for key in keys) / len(keys)
    assert abs(one - other) < 0.9


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(
    "item", ["item", Words("item"), Words("item", lengths="1-2")], ids=["items", "words", "n-grams"]
)
def test_the_number_of_threads_changes_nothing(threads, item):
    rows = pa.table(
        {"user": [f"u{i % 700}" for i in range(9000)], "item": [f"w{i % 31} w{i % 7}" for i in range(9000)]}
    )
    options = {"user": "user", "item": item, "epsilon": 3.0, "delta": 1e-4, "unsafe_test_key": 5}
    plain = dpunion.release(rows, **options)
    assert len(plain) > 5
    assert dpunion.release(rows, run=Run(threads=threads), **options) == plain


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "two", 10**6])
def test_a_number_of_threads_that_makes_no_sense_is_refused(threads):
    with pytest.raises(dpunion.BadParameter, match="threads"):
        Run(threads=threads)
