"""Budgets in words: they follow from epsilon and delta, never flatter, and weak ones must be asked for by name."""

import json
import math
import re
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mp, mpf

import dpunion
from dpunion.budget import (
    LARGEST_DELTA,
    MODERATE,
    STRONG,
    WITHOUT_LEAVE,
    Budget,
    Strength,
    budget_for_release,
    chance_in_words,
    guarantee,
    sureness_in_words,
)
from dpunion.plans.ngrams import LengthResult, Ngrams, plan_ngrams
from dpunion.releases.release import Release
from dpunion.releases.statements import NOT_PRIVATE
from making import ngram_release

EPSILONS = st.floats(1e-3, 30.0)
DELTAS = st.floats(1e-15, LARGEST_DELTA)
PAIRS = [("u", "i")]


def posterior(epsilon):
    """Return in per cent how sure one can become from fifty-fifty, with 60 digits."""
    with mp.workdps(60):
        odds = mp.exp(mpf(epsilon))
        return 100 * odds / (1 + odds)


@pytest.mark.parametrize(
    ("epsilon", "text"),
    [
        (0.001, "at most 50.1 %"), (0.1, "at most 52.5 %"), (0.5, "at most 62.3 %"), (1.0, "at most 73.2 %"),
        (3.0, "at most 95.3 %"), (5.0, "at most 99.4 %"), (8.0, "at most 99.97 %"), (10.0, "at most 99.996 %"),
        (12.0, "more than 99.999 %"), (30.0, "more than 99.999 %"),
    ],
)  # fmt: skip
def test_how_sure_one_can_become(epsilon, text):
    assert sureness_in_words(epsilon) == text


@given(EPSILONS)
@example(math.log(9999))
@example(math.log(999999))
def test_sureness_is_rounded_up_and_never_certain(epsilon):
    words = sureness_in_words(epsilon)
    kind, value = re.fullmatch(r"(at most|more than) (\d+\.\d+) %", words).groups()
    assert mpf(value) < 100
    if kind == "at most":
        assert posterior(epsilon) <= mpf(value) <= posterior(epsilon) + mpf("0.1001")
    else:
        assert posterior(epsilon) > mpf(value)


@pytest.mark.parametrize(
    ("delta", "text"),
    [
        (1e-15, "1 in 1,000,000,000,000,000"), (1e-6, "1 in 1,000,000"), (3e-6, "1 in 333,000"),
        (math.exp(-10), "1 in 22,000"), (1e-3, "1 in 1,000"), (0.1, "1 in 10"), (0.3, "30 %"), (0.501, "51 %"),
    ],
)  # fmt: skip
def test_chances_in_words(delta, text):
    assert chance_in_words(delta) == text


@given(DELTAS)
def test_chances_are_rounded_up(delta):
    words = chance_in_words(delta)
    if words.startswith("1 in "):
        said = Fraction(1, int(words.removeprefix("1 in ").replace(",", "")))
    else:
        said = Fraction(words.removesuffix(" %")) / 100
    exact = Fraction(repr(delta))
    assert exact <= said <= exact * Fraction(12, 10)


@pytest.mark.parametrize(
    ("budget", "strength", "leave"),
    [
        ((0.1, 1e-9), "strong", False), (STRONG, "strong", False), ((1.01, 1e-6), "moderate", False),
        ((1.0, 2e-5), "moderate", False), (MODERATE, "moderate", False), ((5.1, 1e-9), "weak", False),
        ((1.0, 2e-4), "weak", False), (WITHOUT_LEAVE, "weak", False), ((10.1, 1e-9), "weak", True),
        ((0.1, 1.1e-3), "weak", True),
    ],
)  # fmt: skip
def test_the_worse_of_epsilon_and_delta_decides(budget, strength, leave):
    assert Budget(*budget).strength is Strength(strength)
    assert Budget(*budget).is_within(WITHOUT_LEAVE) is not leave


@given(EPSILONS, DELTAS)
def test_the_words_follow_from_the_numbers(epsilon, delta):
    budget = Budget(epsilon, delta)
    words = "\n".join(guarantee(budget))
    assert f"({epsilon:g}, {delta:g})-differentially private" in words
    assert f"becomes {sureness_in_words(epsilon)} sure" in words
    assert f"probability of at most {chance_in_words(delta)} the person is exposed" in words
    assert [one for one in Strength if f"guarantee is {one.value}" in words.lower()] == [budget.strength]
    assert ("practically certain" in words) == (epsilon > MODERATE[0])
    assert ("exposed outright" in words) == (delta > MODERATE[1])
    assert "guessing" not in words


def test_one_function_says_it_everywhere():
    budget = Budget(1.0, 1e-6)
    release = dpunion.release(PAIRS, epsilon=1.0, delta=1e-6)
    formal, meaning, worst = guarantee(budget)
    assert release.statement.splitlines()[:2] == [formal, f"{meaning} {worst}"]
    assert json.loads(release.to_json())["statement"] == release.statement
    plan = plan_ngrams(Ngrams(longest=1), budget)
    grams = ngram_release((("a", 1),), plan, (LengthResult(1, 1, None, 9.5, 0.0),), guaranteed=True)
    formal, meaning, worst = guarantee(budget, covers="texts")
    assert grams.statement.splitlines()[:2] == [formal, f"{meaning} {worst}"]
    assert json.loads(grams.to_json())["statement"] == grams.statement


def test_n_grams_of_a_test_key_promise_nothing_and_the_first_format_is_read():
    plan = plan_ngrams(Ngrams(longest=1), Budget(1.0, 1e-6))
    grams = ngram_release((("a", 1),), plan, (LengthResult(1, 1, None, 9.5, 0.0),), guaranteed=False)
    assert grams.statement == NOT_PRIVATE
    assert "guaranteed=False" in repr(grams)
    values = grams.to_dict() | {"format": "dpunion-ngrams/1", "private": False}
    del values["guaranteed"]
    assert Release.from_json(json.dumps(values)) == grams


@pytest.mark.parametrize("budget", [{"epsilon": 10.5, "delta": 1e-6}, {"epsilon": 1.0, "delta": 0.0011}])
def test_a_weak_budget_must_be_asked_for(budget):
    texts = {"u": ["a text"]}
    for call in (
        lambda **given: dpunion.plan("weighted-gaussian", **given),
        lambda **given: dpunion.release(PAIRS, algorithm="weighted-gaussian", **given),
        lambda **given: dpunion.release_ngrams(texts, longest=1, **given),
    ):
        with pytest.raises(dpunion.BadParameter, match=r"too weak .*--weak-budget") as refusal:
            call(**budget)
        assert sureness_in_words(budget["epsilon"]) in refusal.value.what
        assert chance_in_words(budget["delta"]) in refusal.value.what
        assert "weak_budget=True" in refusal.value.remedy
        made = call(**budget, weak_budget=True)
        if isinstance(made, Release):
            assert "THE GUARANTEE IS WEAK" in made.statement


def test_the_largest_budgets_without_leave():
    epsilon, delta = WITHOUT_LEAVE
    assert budget_for_release(epsilon, delta, weak_budget=False) == Budget(epsilon, delta)
    release = dpunion.release(PAIRS, epsilon=epsilon, delta=delta, algorithm="weighted-gaussian")
    assert "THE GUARANTEE IS WEAK" in release.statement


def test_weak_budget_does_not_permit_budgets_out_of_range():
    with pytest.raises(dpunion.BadParameter, match="'epsilon'"):
        budget_for_release(31.0, 1e-6, weak_budget=True)
