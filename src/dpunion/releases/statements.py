"""What a release guarantees and what it does not, in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from dpunion.budget import guarantee
from dpunion.ngrams.plans import LengthResult, NgramPlan
from dpunion.plans import Plan
from dpunion.plans.counts import LEVEL, PLANNED_RATIOS, PLANNED_SIZES, CountsPlan, Totals
from dpunion.plans.looks import LookPlan

NOT_PRIVATE = "NOT PRIVATE: made with a fixed test key, so nothing is guaranteed. Never publish this."
ASSUMPTIONS = (
    "It assumes that one user id stands for one person, that the operator is trusted, and that the budget of all "
    "releases from the same data is added up. It does not cover running time or memory use."
)


LIMITS = (
    "People are protected as those whose data it is. A name or a secret that many of them wrote may be in the list; "
    "whom it is about is not protected by this.",
    "One user id is taken for one person. Somebody with several ids is protected for each id by itself.",
    "Budgets add up. What all releases from the same data tell about one person together is bounded by the sum of "
    "their budgets, and only a ledger keeps that sum.",
    "Whoever runs the release sees the data and is trusted. How long it took and how much memory it needed is not "
    "covered.",
)
"""The assumptions, and what follows from them, for people who do not know the field."""


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
    lines = [*guarantee(plan.budget, covers=covered(plan)), *how_it_was_made(plan, results, totals)]
    return "\n".join([*lines, ASSUMPTIONS, *notes])


def covered(plan: Plan | NgramPlan) -> str:
    """Return what of one person is protected."""
    return "texts" if isinstance(plan, NgramPlan) else "rows"


def how_it_was_made(plan: Plan | NgramPlan, results: Sequence[LengthResult], totals: Totals | None) -> list[str]:
    """Say by what items were released, and what the numbers beside them are."""
    if isinstance(plan, NgramPlan):
        lines = _how_ngrams_were_made(plan, results)
    else:
        limit = plan.algorithm.max_items_per_user
        lines = [
            f"It was made by {plan.algorithm.name}, with at most {limit} items of each person taken into account, by "
            "secret random decisions that were made once and not kept."
        ]
        if plan.look is not None:
            lines.append(how_the_bound_was_chosen(plan.look))
    return lines if plan.counts is None else [*lines, *how_people_were_counted(plan.counts, totals)]


def how_the_bound_was_chosen(look: LookPlan) -> str:
    """Say in plain words where the number of items of each person comes from."""
    menu = f"{', '.join(map(str, look.menu[:-1]))} or {look.menu[-1]}"
    return (
        f"That number was chosen from {menu} by a noisy look at how many items people hold, which the guarantee above "
        "covers too."
    )


def how_people_were_counted(plan: CountsPlan, totals: Totals | None) -> list[str]:
    """Say in plain words what the numbers of people are."""
    lines = [
        f"Each item has an estimate of how many people have it. The estimates are noisy: {100 * plan.share:.3g} % of "
        f"the budget paid for them, and at least {round(100 * LEVEL)} of 100 intervals (low to high) contain the true "
        "number. The guarantee above covers list and numbers together."
    ]
    if totals is not None:
        lines.append(
            f"About {totals.everybody} people have at least one item; about {totals.others} of them have an item that "
            "is not on the list."
        )
        lines += who_was_cut(totals)
    return lines


def who_was_cut(totals: Totals) -> list[str]:
    """Say in plain words whether people were counted with less than full weight, and what that did to the numbers."""
    if not totals.cut > 0.0:
        return []
    return [
        f"About {100 * totals.cut:.2g} % of people have so many listed items that they were counted with less than "
        f"full weight. Counts were scaled up to make up for part of it (at most {totals.corrected:.2f} times), and the "
        "upper ends of the intervals allow for more: items that mostly such people have may still be too low."
    ]


def _how_ngrams_were_made(plan: NgramPlan, results: Sequence[LengthResult]) -> list[str]:
    """Say by what n-grams were released, and which of them may be spurious."""
    lines = [f"Single tokens were released by {plan.first.algorithm.name}; all of them were written by somebody."]
    if len(plan.lengths) > 1:
        expected = (f"at most {r.spurious:.3g} of {r.released:,} at length {r.length}" for r in results if r.length > 1)
        lines.append(
            "Longer n-grams were released from those whose two parts one token shorter were released. Any of them may "
            "be spurious, that is written by nobody; which ones, nobody can know. To be expected: "
            f"{', '.join(expected)}."
        )
    return [*lines, "Every part of a listed n-gram is listed too."]


def expected_precision(plan: CountsPlan) -> list[str]:
    """Say how precise counts are to be expected, from the plan alone: lines of which the last is a paragraph."""
    rows = [(f"{n:,}", *(f"± {plan.half_width(n, ratio):,.0f}" for ratio in PLANNED_RATIOS)) for n in PLANNED_SIZES]
    head = ("the item", *(f"{ratio:,}" for ratio in PLANNED_RATIOS))
    return [
        f"Counts take {100 * plan.share:.3g} % of the budget. Expect these intervals around numbers of people:",
        "  people who have      people in all, for each listed item",
        *(f"  {first:>15}" + "".join(f"{text:>13}" for text in more) for first, *more in (head, *rows)),
        how_precise(plan),
    ]


def how_precise(plan: CountsPlan) -> str:
    """Say what the expected intervals mean, and how well the number of all people will be known."""
    return (
        f"At least {round(100 * LEVEL)} of 100 intervals contain the true number. They are wider upward where people "
        f"have very many items. The number of all people will be right to ± {plan.total_width:,.0f}."
    )
