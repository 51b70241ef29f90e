"""The numbers of docs/privacy-officers.md are those that the program computes."""

import math
import re
from fractions import Fraction
from pathlib import Path

import pytest

import dpunion
from dpunion.budget import Budget, chance_in_words, permitted, sureness_in_words
from dpunion.chances import MOST_HOLDERS, Company, holders_between, release_curve
from dpunion.ledger import Amounts, Composition
from dpunion.ledger.accounts import account_caps, charge_for_plan

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "privacy-officers.md").read_text("utf-8")
FLAT = " ".join(TEXT.replace("\n> ", " ").split())


def rows(heading):
    """Return the cells of the first table below a heading, without its head."""
    lines = TEXT[TEXT.index(f"\n## {heading}\n") :].splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("|"))
    table = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    return table


@pytest.mark.parametrize("row", rows("What ε means"), ids=lambda row: row[0])
def test_what_epsilon_means(row):
    epsilon, factor, sure, strength = row
    assert factor == f"{math.exp(float(epsilon)):,.3g}" or factor == f"{math.exp(float(epsilon)):,.0f}"
    assert sure == sureness_in_words(float(epsilon))
    assert strength == Budget(float(epsilon), 1e-6).strength.value


@pytest.mark.parametrize("row", rows("What δ means"), ids=lambda row: row[0])
def test_what_delta_means(row):
    delta, chance, *given_away = row
    assert chance == chance_in_words(float(delta))
    for people, number in zip((10**4, 10**6, 10**8), given_away, strict=True):
        assert Fraction(delta) * people == Fraction(number.replace(",", ""))


def test_the_paragraph_for_a_board_has_the_numbers_of_its_budget():
    assert "can be at most 73.2 % sure" in FLAT
    assert "at most 1 in 1,000,000" in FLAT
    assert "at most 73.2 % sure, and with a probability of at most 1 in 1,000,000" in permitted(1.0, 1e-6)
    assert "The two numbers are those of ε = 1 and δ = 10⁻⁶" in FLAT


def test_how_many_people_an_item_needs():
    plan = dpunion.plan(epsilon=1.0, delta=1e-6).opening
    grid = holders_between(1, MOST_HOLDERS)
    one, ten = (release_curve(plan, set_size=size, company=Company.RARE, holders=grid) for size in (1, 10))
    said = re.search(r"about (\d+) people with one item each, or (\d+) with ten each", FLAT)
    assert int(said[1]) == pytest.approx(one.holders_for(0.5), rel=0.03)
    assert int(said[2]) == pytest.approx(ten.holders_for(0.5), rel=0.05)


def test_how_many_releases_a_ledger_grants():
    charge = charge_for_plan(dpunion.plan("policy-gaussian", epsilon=1.0, delta=1e-7))
    granted = {}
    for kind in Composition:
        caps, spent = account_caps(10.0, 1e-5, kind), Amounts()
        granted[kind] = 0
        while (spent + charge).fits(caps, kind):
            spent, granted[kind] = spent + charge, granted[kind] + 1
    assert f"grants {granted[Composition.TIGHT]} releases" in FLAT
    assert f"and {granted[Composition.ADDITIVE]} by adding up" in FLAT
    assert f"{sureness_in_words(10.0)} sure: the total" in FLAT


def test_two_releases_permit_what_the_statement_says():
    """Two of epsilon 1 are one of 2: the row of 2 in the table is what somebody can become sure of then."""
    assert "two of ε = 1 permit what one of ε = 2 permits" in FLAT
    caps = account_caps(2.0, 2e-6, Composition.ADDITIVE)
    charge = charge_for_plan(dpunion.plan("weighted-laplace", epsilon=1.0, delta=1e-6))
    assert (charge + charge).fits(caps, Composition.ADDITIVE)
    assert not (charge + charge + charge).fits(caps, Composition.ADDITIVE)


def test_every_word_of_the_glossary_is_there_once_and_in_order():
    text = (DOCS / "glossary.md").read_text("utf-8")
    words = re.findall(r"^(\S.*)\n: ", text, re.MULTILINE)
    plain = [word.replace("δ, ", "").replace("ε, ", "").lower() for word in words]
    assert len(words) > 30
    assert len(set(plain)) == len(plain)
    assert plain == sorted(plain)
