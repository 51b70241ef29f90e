"""The tables of docs/choosing-epsilon.md have the numbers that the program computes."""

import math
from pathlib import Path

import pytest

import dpunion
from dpunion.budget import Budget, sureness_in_words
from dpunion.chances import find_needed

TEXT = (Path(__file__).parents[2] / "docs" / "choosing-epsilon.md").read_text("utf-8")


def rows(heading):
    """Return the cells of the first table below a heading, without its head."""
    _, _, part = TEXT.partition(f"\n## {heading}\n")
    lines = part[part.index("\n|") + 1 :].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("row", rows("What epsilon does to one person's odds"), ids=lambda row: row[0])
def test_the_odds_are_those_of_statements(row):
    epsilon, factor, sure, strength = row
    assert factor in {f"{math.exp(float(epsilon)):,.3g}", f"{math.exp(float(epsilon)):,.0f}"}
    assert sure == sureness_in_words(float(epsilon))
    assert strength == Budget(float(epsilon), 1e-6).strength.value


def needed(epsilon, delta, **options):
    """Return how many people an item needs, as the page writes it, for each number of items."""
    found = find_needed(dpunion.plan(epsilon=epsilon, delta=delta, **options))
    return [f"{one.even:,} ({one.likely:,})" for one in found]


def test_a_small_delta_and_counts_cost_what_the_page_says():
    text = " ".join(TEXT.split())
    ten = [needed(1.0, delta)[1].split()[0] for delta in (1e-6, 1e-8, 1e-10)]
    assert f"needs {ten[0]} people for an even chance with δ = 1e-6, {ten[1]} with 1e-8 and {ten[2]} with 1e-10" in text
    counted = needed(1.0, 1e-6, counts=True)[1].split()[0]
    assert f"an item of people with ten items each needs {counted} people instead of {ten[0]}" in text


def test_delta_is_a_hundredth_of_one_over_the_people():
    for people, delta in rows("What delta does"):
        assert float(delta) * int(people.replace(",", "")) == pytest.approx(0.01)
