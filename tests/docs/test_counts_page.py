"""What the pages say about counts in numbers and names is what the code does."""

import re

import pytest
from doc_examples import ROOT

import dpunion
from dpunion.chances import least_holders
from dpunion.counting import estimates
from dpunion.plans.counts import LEVEL, MOST_COUNTED, PARTS, USED

PAGE = (ROOT / "docs" / "counts.md").read_text("utf-8")
ALGORITHMS = [
    dpunion.Funnel, dpunion.PolicyGaussian, dpunion.PolicyLaplace, dpunion.WeightedGaussian, dpunion.WeightedLaplace,
    dpunion.CountGaussian, dpunion.CountLaplace, dpunion.DpSips, dpunion.OptimalSingleItem,
]  # fmt: skip
# Of the table of shares: (share, threshold, and what is right to how many people).
SHARES = re.findall(r"^\| ([\d.]+) \| ([\d.]+) \| ± ([\d,]+) \| ± ([\d,]+) \| ± ([\d,]+) \|$", PAGE, re.MULTILINE)


def paragraph(page, start):
    """Return the paragraph of a page that begins so."""
    return next(part for part in (ROOT / "docs" / page).read_text("utf-8").split("\n\n") if part.startswith(start))


def has_counts(algorithm):
    try:
        dpunion.plan(algorithm(), epsilon=1.0, delta=1e-6, counts=True)
    except dpunion.BadParameter:
        return False
    return True


@pytest.mark.parametrize(
    ("page", "start"), [("counts.md", "Counts need Gaussian noise"), ("choosing-an-algorithm.md", "**Counts**")]
)
def test_the_algorithms_with_counts_are_named(page, start):
    named = set(re.findall(r"`([a-z-]+)`", paragraph(page, start)))
    assert named & {one().name for one in ALGORITHMS} == {one().name for one in ALGORITHMS if has_counts(one)}


def test_the_table_of_shares_is_what_plans_say():
    assert len(SHARES) == 4
    for share, *shown in SHARES:
        plan = dpunion.plan(epsilon=1.0, delta=1e-6, counts=dpunion.Counts(share=float(share))).opening
        widths = (plan.counts.half_width(100, 10), plan.counts.half_width(1_000, 10), plan.counts.total_width)
        assert shown == [f"{plan.threshold:.2f}", *(f"{width:,.0f}" for width in widths)]
    without = dpunion.plan(epsilon=1.0, delta=1e-6).opening
    assert f"| none | {without.threshold:.2f} |" in PAGE


def test_constants_are_those_of_the_code():
    assert f"{MOST_COUNTED:,} items of each person" in PAGE
    assert "({}, {} and {} %)".format(*(round(100 * part) for part in PARTS)) in PAGE
    assert f"at least {round(100 * LEVEL)} of 100 such intervals" in PAGE
    assert ("use two fifths of their influence" in PAGE) == (USED == 0.4)
    assert f"| {dpunion.Counts().share} |" in PAGE
    assert f"by a factor of at most {estimates.MOST_RAISED}" in PAGE
    assert f"by at most {estimates.MOVED} of their" in PAGE
    assert f"puts {100 * estimates.PUT_BACK:.0f} % of the expected loss back" in PAGE
    assert ("two and a half times the expected loss in `high`" in PAGE) == (estimates.DOUBT == 2.5)
    assert f"up to {100 * estimates.MOST_LOST:.0f} % of the item's people" in PAGE
    assert ("each doubling of the items leaves a quarter of" in PAGE) == (estimates.TAIL == 2.0)


def test_the_least_numbers_are_those_of_the_plan():
    least = least_holders(dpunion.plan(epsilon=1.0, delta=1e-6, counts=True).opening)
    assert f"(about {least} people at (1, 1e-6))" in " ".join(PAGE.split())
