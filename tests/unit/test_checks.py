"""Checks of parameters: what passes comes back plain, what does not gets one sentence and one remedy."""

import enum
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpunion
from dpunion.checks import as_choice, check_real, check_suffix, check_whole, refuse_choice
from dpunion.errors import BadParameter

PACKAGE = Path(dpunion.__file__).parent
NOT_NUMBERS = [True, False, None, "1", "", [1], (), {}, 1j, math.nan]


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


@given(st.integers(), st.integers(0, 100), st.integers(0, 100))
def test_whole_numbers_pass_exactly_in_their_range(value, low, width):
    if low <= value <= low + width:
        assert check_whole("x", "n", value, low, low + width) == value
    else:
        with pytest.raises(BadParameter):
            check_whole("x", "n", value, low, low + width)


@given(st.one_of(st.floats(), st.integers()))
def test_numbers_pass_exactly_in_their_range_and_become_floats(value):
    if 0 <= value <= 10:
        passed = check_real("x", "n", value, 0.0, 10.0)
        assert passed == value
        assert type(passed) is float
    else:
        with pytest.raises(BadParameter):
            check_real("x", "n", value, 0.0, 10.0)


@pytest.mark.parametrize("value", [*NOT_NUMBERS, 0.5, math.inf], ids=repr)
def test_what_is_no_whole_number_is_refused(value):
    with pytest.raises(BadParameter, match="whole number from 0 to 9"):
        check_whole("x", "n", value, 0, 9)


@pytest.mark.parametrize("value", [*NOT_NUMBERS, math.inf, -math.inf], ids=repr)
def test_what_is_no_finite_number_is_refused(value):
    with pytest.raises(BadParameter, match="a number from 0 to 1"):
        check_real("x", "n", value, 0.0, 1.0)


def test_refusals_say_what_is_wanted_and_what_to_do():
    with pytest.raises(BadParameter) as caught:
        check_whole("funnel", "rounds", 9, 1, 8)
    assert caught.value.what == "The 'rounds' parameter of funnel must be a whole number from 1 to 8. Got 9 instead."
    assert caught.value.remedy == "Choose 'rounds' from public knowledge, not from the data."
    with pytest.raises(BadParameter) as caught:
        check_real("", "epsilon", -1, 0.5, 2.0, "Smaller is more private.")
    assert caught.value.what == "The 'epsilon' parameter must be a number from 0.5 to 2. Got -1 instead."
    assert caught.value.remedy == "Smaller is more private."


@pytest.mark.parametrize("check", [check_whole, check_real])
def test_numbers_of_many_digits_are_not_spelled_out(check):
    with pytest.raises(BadParameter, match="Got a number of many digits instead"):
        check("x", "n", 10**9000, 0, 1)


def test_a_choice_is_taken_by_its_word_or_as_it_is():
    assert as_choice("colour", "red", Colour) is Colour.RED
    assert as_choice("colour", Colour.GREEN, Colour) is Colour.GREEN


@pytest.mark.parametrize("value", ["Red", "", None, 1, ["red"]], ids=repr)
def test_a_bad_choice_names_the_choices(value):
    with pytest.raises(BadParameter) as caught:
        as_choice("colour", value, Colour)
    assert caught.value.what == f"The 'colour' parameter must be one of red, green. Got {value!r} instead."
    assert "'colour'" in caught.value.remedy
    with pytest.raises(BadParameter, match=re.escape(caught.value.what)):
        refuse_choice("colour", value, ["red", "green"])


def test_suffixes_are_compared_in_small_letters():
    assert check_suffix("The suffix", Path("a.HTML"), (".html",), "Rename it.") == ".html"
    with pytest.raises(BadParameter, match=r"The suffix must be one of \.html\. Got '\.txt' instead\. Rename it\."):
        check_suffix("The suffix", Path("a.txt"), (".html",), "Rename it.")


@pytest.mark.parametrize("words", [r"whole number from \{", r"a number from \{", r"parameter.* must be \{wanted"])
def test_the_sentences_have_one_home(words):
    """Nobody else spells them out: who has a range or choices to check asks here."""
    assert [path.name for path in PACKAGE.rglob("*.py") if re.search(words, path.read_text())] == ["checks.py"]
