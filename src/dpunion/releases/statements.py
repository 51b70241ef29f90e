"""The statement of a release: what it guarantees and what it does not, in plain words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpunion.budget import guarantee
from dpunion.plans import CandidatesPlan, Plan
from dpunion.plans.counts import LEVEL, PLANNED_RATIOS, PLANNED_SIZES, CountsPlan, Totals
from dpunion.plans.ngrams import LengthResult, NgramPlan

NOT_PRIVATE = "NOT PRIVATE: made with a fixed test key, so nothing is guaranteed. Never publish this."
ASSUMPTIONS = (
    "It assumes that each user id is one person, that the operator is trusted, and that the budgets of all "
    "releases from the same data are added up. It does not cover running time or memory use."
)


LIMITS = (
    "The guarantee protects the people who contributed the data. A name or a secret that many of them wrote may "
    "be in the list, and the person it is about is not protected.",
    "Each user id counts as one person. A person with several ids is protected for each id separately.",
    "Budgets add up. The sum of their budgets bounds what all releases from the same data together reveal about "
    "one person, and only a ledger keeps that sum.",
    "The operator who runs the release sees the data and is trusted. Running time and memory use are not covered.",
)
"""The assumptions and their consequences, for people who do not know the field."""


def statement(
    plan: Plan | NgramPlan,
    *,
    guaranteed: bool,
    notes: Sequence[str] = (),
    results: Sequence[LengthResult] = (),
    totals: Totals | None = None,
) -> str:
    """Say in plain words what a release with this plan guarantees, and what it does not."""
    if not guaranteed:
        return NOT_PRIVATE
    formal, meaning, worst = guarantee(plan.budget, covers=plan.nouns.covers)
    made = how_it_was_made(plan, results, totals)
    return "\n".join([formal, f"{meaning} {worst}", *made, ASSUMPTIONS, *notes])


def how_it_was_made(plan: Plan | NgramPlan, results: Sequence[LengthResult], totals: Totals | None) -> list[str]:
    """Say how the items were released, and what the counts mean."""
    lines = _how_ngrams_were_made(plan, results) if isinstance(plan, NgramPlan) else [_how_items_were_made(plan)]
    if plan.candidates is not None and plan.candidates.listed:
        lines.append(how_candidates_come_out(plan.candidates))
    if plan.counts is None:
        return lines
    counting = (
        f"Each item has a noisy estimate of how many people have it; at least {round(100 * LEVEL)} of 100 "
        f"intervals (low to high) contain the true number. The estimates used {100 * plan.counts.share:.3g} % of the "
        "budget, and the guarantee covers list and estimates together."
    )
    if totals is None:
        return [*lines, counting]
    return [*lines, f"{counting} {count_everybody(totals)}", *who_was_cut(totals)]


def count_everybody(totals: Totals) -> str:
    """Say how many people have an item, and how many have one that is not listed."""
    people, others = totals.everybody, totals.others
    return f"About {people} people have at least one item; about {others} of them have an item that is not on the list."


def _how_items_were_made(plan: Plan) -> str:
    """Name the algorithm and the limit of items per person, and say how the limit was chosen."""
    limit = plan.algorithm.max_items_per_user
    text = (
        f"It was made by {plan.algorithm.name} from at most {limit} items per person, with fresh random noise that was "
        "not stored."
    )
    if plan.look is None:
        return text
    *limits, last = map(str, plan.look.limits)
    return (
        f"{text} This limit was chosen from {', '.join(limits)} or {last}, using a noisy histogram of how many items "
        "people have; the guarantee covers this choice too."
    )


def how_candidates_come_out(listed: CandidatesPlan) -> str:
    """Say what a public list changes, and how many of its items may be in the result by mistake."""
    return (
        f"A public list of candidates was used (SHA-256 {listed.sha256}). A candidate needs fewer people than other "
        f"items. {expected_mistakes(listed)} An item that is not a candidate practically never comes out if only one "
        "person has it; a candidate may, and it may also come out if nobody has it, so it says little about any one "
        "person."
    )


def expected_mistakes(listed: CandidatesPlan) -> str:
    """Say how many candidates come out that nobody has, from public numbers alone."""
    return (
        f"On average at most {about(listed.expected)} of the {listed.listed:,} candidates come out although nobody has "
        f"them; in at most one release of a hundred it is more than {listed.seldom_more:,}. Nobody can tell which."
    )


def about(mean: float) -> str:
    """Write a bound on a mean number of items for people, rounded up."""
    unit = 1.0 if mean >= 10.0 else 10.0 ** (math.floor(math.log10(mean or 1.0)) - 1)
    up = math.ceil(mean / unit - 1e-9) * unit
    return f"{up:,.0f}" if mean >= 10.0 else f"{up:.2g}"


def who_was_cut(totals: Totals) -> list[str]:
    """Say whether some people were counted with less than full weight, and how that changes the numbers."""
    if not totals.cut > 0.0:
        return []
    return [
        f"About {100 * totals.cut:.2g} % of people have too many listed items to be counted with full weight. Counts "
        f"were scaled up to make up for part of it (at most {totals.corrected:.2f} times), and the upper ends of the "
        "intervals allow for more; counts of items that mostly such people have may still be too low."
    ]


def _how_ngrams_were_made(plan: NgramPlan, results: Sequence[LengthResult]) -> list[str]:
    """Say how n-grams were released, and which of them may be spurious."""
    lines = [
        f"Single tokens were released by {plan.first.algorithm.name}; somebody wrote each of them. Every part of "
        "a listed n-gram is listed too."
    ]
    if len(plan.lengths) > 1:
        expected = (f"at most {r.spurious:.3g} of {r.released:,} at length {r.length}" for r in results if r.length > 1)
        lines.append(
            "Longer n-grams were released only if their two parts, one token shorter, were released. Any of them "
            "may be spurious, that is, written by nobody, and it is impossible to tell which. Expected spurious "
            f"n-grams: {', '.join(expected)}."
        )
    return lines


def expected_precision(plan: CountsPlan) -> list[str]:
    """Say how precise counts will be, from the plan alone: lines of a table, then a paragraph."""
    rows = [(f"{n:,}", *(f"± {plan.half_width(n, ratio):,.0f}" for ratio in PLANNED_RATIOS)) for n in PLANNED_SIZES]
    head = ("the item", *(f"{ratio:,}" for ratio in PLANNED_RATIOS))
    return [
        f"Counts take {100 * plan.share:.3g} % of the budget. Expect these intervals around numbers of people:",
        "  people who have      total people per listed item",
        *(f"  {first:>15}" + "".join(f"{text:>13}" for text in more) for first, *more in (head, *rows)),
        how_precise(plan),
    ]


def how_precise(plan: CountsPlan) -> str:
    """Explain the expected intervals, and say how precise the number of all people will be."""
    return (
        f"At least {round(100 * LEVEL)} of 100 intervals contain the true number. They are wider upward where "
        f"people have very many items. The number of all people will be accurate to ± {plan.total_width:,.0f}."
    )
