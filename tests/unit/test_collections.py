"""A release as a collection, as a table of Arrow and as a card; settings and words that its edge takes."""

import dataclasses
import enum
import pickle
import sys
import typing

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.feature_extraction.text import CountVectorizer

import dpunion
from dpunion import checks
from dpunion.algorithms import ALGORITHMS, Calibration, UserOrder
from dpunion.errors import BadParameter
from dpunion.ledger import Ledger
from dpunion.reading.known import read_known
from dpunion.reading.parts import NullUserPolicy
from dpunion.releases.release import SHOWN, Order
from dpunion.sets.encoding import Normalization
from dpunion.text.splitting import Tokenizer

WORDS = ("alpha", "beta", "gamma")


def released(**options):
    rows = [(f"u{n}", word) for n in range(400) for word in WORDS]
    return dpunion.release(rows, epsilon=2.0, delta=1e-4, unsafe_test_key=1, **options)


@pytest.fixture(scope="module")
def plain():
    return released()


@pytest.fixture(scope="module")
def counted():
    return released(counts=True)


@pytest.fixture(scope="module")
def keys():
    table = pa.table({"u": [f"u{n}" for n in range(400)], "a": ["x"] * 400, "b": ["y"] * 400})
    return dpunion.release(table, user="u", item=["a", "b"], epsilon=2.0, delta=1e-4, unsafe_test_key=1)


@pytest.fixture(scope="module")
def grams():
    rows = [(f"u{n}", "alpha beta gamma") for n in range(400)]
    return dpunion.release_ngrams(rows, longest=2, epsilon=4.0, delta=1e-4, unsafe_test_key=1)


# --- a collection ------------------------------------------------------------------------------------------------
def test_a_release_is_a_collection(plain):
    assert list(plain) == list(WORDS) == list(plain.items)
    assert "alpha" in plain
    assert "delta" not in plain
    assert plain[0] == "alpha"
    assert plain[-1] == "gamma"
    assert plain[1:] == ("beta", "gamma")
    assert len(plain) == 3
    with pytest.raises(IndexError):
        plain[3]


def test_looking_for_an_item_does_not_change_what_equals_or_pickles(plain):
    again = released()
    assert "alpha" in again
    assert again == plain
    assert pickle.loads(pickle.dumps(again)) == plain
    changed = dataclasses.replace(again, items=("delta",))
    assert "delta" in changed
    assert "alpha" not in changed


def test_keys_are_tuples_in_a_release(keys):
    assert ("x", "y") in keys
    assert list(keys) == [("x", "y")]


def test_a_release_that_spark_stored_is_no_collection(plain):
    stored = dataclasses.replace(plain, items=(), stored="hdfs:///there")
    for use in (
        lambda: list(stored),
        lambda: "alpha" in stored,
        lambda: stored[0],
        lambda: pa.table(stored),
        stored.to_pandas,
        stored.to_polars,
    ):
        with pytest.raises(BadParameter, match="folder that Spark wrote"):
            use()
    assert "hdfs:///there" in stored._repr_html_()


def test_a_vectorizer_takes_a_release_as_its_vocabulary(plain):
    vectorizer = CountVectorizer(vocabulary=plain)
    assert vectorizer.transform(["alpha alpha gamma other"]).toarray().tolist() == [[2, 0, 1]]


# --- a table -----------------------------------------------------------------------------------------------------
def columns_of(release):
    return {name: list(column) for name, column in zip(release.header, zip(*release.rows(), strict=True), strict=True)}


@pytest.fixture(scope="module")
def listed():
    return released(counts=True, candidates=["alpha", "delta"])


@pytest.fixture(scope="module")
def since(tmp_path_factory):
    """A release of a schedule, whose column says since when an item is on the list."""
    place = tmp_path_factory.mktemp("schedule")
    schedule = dpunion.Schedule(4, start="2026-01-05")
    Ledger.open(place / "budget.db", create=True).create_dataset("posts", 2.0, 1e-4, "tight", schedule=schedule)
    charge = dpunion.Charge(place / "budget.db", "posts", scheduled=True, on="2026-01-05")
    rows = [(f"u{n}", word) for n in range(400) for word in WORDS]
    return dpunion.release(rows, charge=charge, out=place / "words.parquet")


@pytest.fixture(scope="module")
def empty():
    return dpunion.release([("u", "a")], epsilon=2.0, delta=1e-4, counts=True, unsafe_test_key=1)


HEADERS = {
    "plain": ("item",), "counted": ("item", "people", "low", "high"), "keys": ("a", "b"), "grams": ("item", "length"),
    "listed": ("item", "listed", "people", "low", "high"), "since": ("item", "since"),
    "empty": ("item", "people", "low", "high"),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADERS)
def test_every_library_gets_the_same_table(name, request):
    release = request.getfixturevalue(name)
    assert len(release) == 0 if name == "empty" else len(release) > 0
    tables = [release.to_pandas(), release.to_polars(), pl.DataFrame(release), pa.table(release).to_pandas()]
    for table in tables:
        assert tuple(table.columns) == release.header == HEADERS[name]
        assert len(table) == len(release)
        assert [tuple(row) for row in table.to_numpy().tolist()] == list(release.rows())


@pytest.mark.parametrize("name", HEADERS)
def test_the_constructor_of_pandas_sees_the_items_alone(name, request):
    """It iterates over a release, so the names and numbers are lost: to_pandas has them."""
    release = request.getfixturevalue(name)
    frame = pd.DataFrame(release)
    items = [row[0] if len(release.columns) == 1 else tuple(row) for row in frame.to_numpy().tolist()]
    assert items == list(release)
    assert "to_pandas" in dpunion.Release.__doc__


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_library_that_is_missing_is_named(library, plain, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(BadParameter) as caught:
        getattr(plain, f"to_{library}")()
    assert str(caught.value) == (
        f"to_{library} needs {library}, which is not installed. Install it with: pip install {library}."
    )


@pytest.mark.parametrize("name", ["plain", "counted", "keys", "grams"])
def test_frames_take_a_release_as_it_is(name, request):
    release = request.getfixturevalue(name)
    expected = columns_of(release)
    assert pa.table(release).to_pydict() == expected
    assert pl.DataFrame(release).to_dict(as_series=False) == expected
    assert duckdb.sql("select * from release").arrow().read_all().to_pydict() == expected
    assert release.to_pandas().to_dict("list") == expected
    assert pd.DataFrame(list(release.rows()), columns=release.header).to_dict("list") == expected


def test_the_stream_has_the_types_that_are_asked_for(plain):
    asked = pa.schema({"item": pa.large_string()})
    reader = pa.RecordBatchReader.from_stream(plain, schema=asked)
    assert reader.schema == asked
    assert reader.read_all().to_pydict() == {"item": list(WORDS)}


def test_ngrams_are_items_too(grams, tmp_path):
    assert grams.header == ("item", "length")
    for suffix in (".parquet", ".csv", ".jsonl", ".txt", ".json"):
        path = grams.write(tmp_path / f"grams{suffix}")
        assert set(read_known(path).items) == set(grams)


def test_ngrams_that_were_written_under_another_name_are_still_read(tmp_path):
    path = tmp_path / "old.csv"
    path.write_text("ngram,length\nof the,2\nthe,1\n")
    assert read_known(path).items == ("of the", "the")


# --- a card ------------------------------------------------------------------------------------------------------
def test_a_notebook_shows_a_card(counted):
    card = counted._repr_html_()
    assert "3 items released" in card
    assert "NOT PRIVATE" in card
    assert all(f">{word}<" in card for word in WORDS)
    assert all(f">{name}<" in card for name in ("item", "people", "low", "high"))
    assert "more" not in card.split("</table>")[1]


def test_the_card_of_a_private_release_says_what_is_guaranteed(plain):
    assert "(2, 0.0001)-differentially private" in dataclasses.replace(plain, guaranteed=True)._repr_html_()


def test_the_card_shows_texts_and_runs_nothing(plain):
    nasty = ("<script>alert(1)</script>", '"><img src=x onerror=y>', "a\nb", "\x1b[31m")
    card = dataclasses.replace(plain, items=nasty, columns=("<b>",))._repr_html_()
    assert "<script" not in card
    assert "<img" not in card
    assert "<b>" not in card
    assert "&lt;script&gt;" in card
    assert "\x1b" not in card


def test_the_card_of_many_items_is_small(plain):
    many = dataclasses.replace(plain, items=tuple(f"item {n:05}" for n in range(5_000)))
    card = many._repr_html_()
    assert card.count("<tr>") == SHOWN + 1
    assert "and 4,990 more" in card
    assert dataclasses.replace(plain, items=())._repr_html_().count("<table>") == 0


# --- settings and words ------------------------------------------------------------------------------------------
def test_settings_are_those_of_the_algorithm():
    assert released(max_items_per_user=2).plan.algorithm == dpunion.Funnel(max_items_per_user=2)
    planned = dpunion.plan("policy-gaussian", epsilon=1.0, delta=1e-6, calibration="published", passes=2)
    assert planned.algorithm == dpunion.PolicyGaussian(calibration="published", passes=2)


@pytest.mark.parametrize("algorithm", [dpunion.Funnel(), dpunion.Ngrams()])
def test_settings_stand_inside_an_algorithm_that_is_made(algorithm):
    with pytest.raises(BadParameter, match=r"cannot be given together with (Funnel|Ngrams)"):
        dpunion.plan(algorithm, epsilon=1.0, delta=1e-6, max_items_per_user=5)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"passes": 2}, "funnel has no parameter 'passes'"),
        ({"nonsense": 2}, "funnel has no parameter 'nonsense'"),
        ({"usr": "author"}, r"There is no parameter 'usr'\. Did you mean 'user'\?"),
        ({"max_item_per_user": 5}, r"There is no parameter .* Did you mean 'max_items_per_user'\?"),
    ],
)
def test_a_setting_that_the_algorithm_has_not_is_refused(given, problem):
    with pytest.raises(BadParameter, match=problem):
        released(**given)


def test_every_parameter_of_an_algorithm_is_a_setting():
    parameters = {field.name for kind in ALGORITHMS.values() for field in dataclasses.fields(kind)}
    assert set(checks.Settings.__annotations__) == parameters


@pytest.mark.parametrize(
    ("words", "choices"),
    [
        (checks.AlgorithmName, ALGORITHMS), (checks.CalibrationName, Calibration), (checks.UserOrderName, UserOrder),
        (checks.TokenizerName, Tokenizer), (checks.NormalizationName, Normalization),
        (checks.NullUsersName, NullUserPolicy), (checks.OrderName, Order),
    ],
)  # fmt: skip
def test_the_types_have_the_words_that_are_taken(words, choices):
    taken = [choice.value if isinstance(choice, enum.Enum) else choice for choice in choices]
    assert sorted(typing.get_args(words)) == sorted(taken)
