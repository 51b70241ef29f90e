"""The planning page, for choosing a budget and an algorithm before there is any data."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from dpunion.algorithms import ALGORITHMS
from dpunion.budget import Budget
from dpunion.chances import SET_SIZES, Company, find_needed, holders_between, release_curve, saturation
from dpunion.errors import BadParameter
from dpunion.plans import Plan, Planned, plan_release
from dpunion.plans.counts import Counts
from dpunion.releases.statements import expected_mistakes
from dpunion.report import sections
from dpunion.report.charts import Chart, Series
from dpunion.report.pages import render_page
from dpunion.report.sections import CHANCE, HOLDERS, warning
from dpunion.report.tables import Cell, Section, Table, number

EPSILONS = (0.5, 1.0, 2.0, 4.0)
COMPARED = ("funnel", "policy-gaussian", "weighted-gaussian", "dp-sips", "policy-laplace", "count-gaussian")
TYPICAL = 10
COMPANIES = {
    Company.RARE: ("rare", "nobody else has the other items: the usual long tail"),
    Company.EQUAL: ("equally popular", "the same people have all of the items"),
    Company.POPULAR: ("very popular", "enough people have the other items that these need no help"),
}
MODEL = Section(
    "How to read this",
    (
        "Each line shows the chance that one item is released if this many people have it and each of them "
        "has the stated number of items in total. Real sets differ in size and share items in every way, so a "
        "real release lies between these cases.",
        "The chances follow from the plan: exactly for algorithms of one round; for Funnel from a seeded "
        "simulation, to about one percentage point. If people have more items than the limit, the model keeps "
        "each item independently.",
    ),
)
"""What the lines of the charts assume."""


def plan_page(
    plan: Planned,
    *,
    epsilons: Sequence[float] = EPSILONS,
    set_sizes: Sequence[int] = SET_SIZES,
    algorithms: Iterable[str] = COMPARED,
) -> str:
    """Return the page of a plan: the chance of release by number of people, for several budgets and algorithms.

    If a look chooses among several plans, the page draws the usual one and lists the others.
    """
    planned = plan.opening
    budgets = sorted({*epsilons, planned.budget.epsilon})
    by_budget = [plan for plan in (_replan(planned, epsilon=one) for one in budgets) if plan is not None]
    names = [planned.algorithm.name, *[name for name in algorithms if name != planned.algorithm.name]]
    by_algorithm = [plan for plan in (_replan(planned, name=name) for name in names) if plan is not None]
    return render_page(
        title="Planning a release",
        lead="What this budget can do. No data was read: everything here follows from public numbers.",
        facts=sections.plan_facts(planned),
        warning=warning(planned.budget, guaranteed=True),
        sections=(
            needed_section(by_algorithm, set_sizes),
            sections.meaning_section(
                planned.budget, "rows", subject="A list made by this plan", title="What it would mean for one person"
            ),
            budget_section(by_budget, set_sizes),
            algorithm_section(by_algorithm),
            *(() if planned.counts is None else (sections.precision_section(planned.counts),)),
            MODEL,
            *((look_section(plan),) if len(plan.alternatives) > 1 else ()),
            sections.plan_section(planned, planned.counts),
        ),
    )


def look_section(plan: Planned) -> Section:
    """Tabulate the plans among which a look chooses."""
    rows = tuple((f"{one.algorithm.max_items_per_user}", one.scale, one.threshold) for one in plan.alternatives)
    bound = plan.opening.algorithm.max_items_per_user
    return Section(
        "How many items per person are used",
        (
            "A release picks its limit privately from this list, using a noisy histogram of how many items people "
            "have. The guarantee covers this choice too.",
            f"Everything else on this page is computed for a limit of {bound}.",
        ),
        (Table("The limits to choose from", ("items per person, at most", "noise", "threshold"), rows),),
        folded=True,
    )


def _replan(planned: Plan, *, epsilon: float | None = None, name: str | None = None) -> Plan | None:
    """Return a plan with another epsilon or algorithm, and the same share for counts; None if there is none."""
    if epsilon in (None, planned.budget.epsilon) and name in (None, planned.algorithm.name):
        return planned
    algorithm = planned.algorithm if name is None else ALGORITHMS[name]()
    budget = planned.budget if epsilon is None else Budget(epsilon, planned.budget.delta)
    with contextlib.suppress(BadParameter):
        counts = None if planned.counts is None else Counts(share=planned.counts.share)
        return plan_release(algorithm, budget, counts)
    return None


def _chart(
    title: str, names: Iterable[str], plans: Sequence[Plan], set_size: int, company: Company, short: str, note: str = ""
) -> Chart:
    """Draw the plans' curves over one range of numbers of people, which covers the slowest of them."""
    most = max((saturation(plan, set_size=set_size, company=company) for plan in plans), default=10)
    grid = holders_between(1, max(10, most))
    curves = (release_curve(plan, set_size=set_size, company=company, holders=grid) for plan in plans)
    pairs = zip(names, curves, strict=True)
    series = tuple(Series(name, tuple(one.holders.tolist()), tuple(one.chances.tolist())) for name, one in pairs)
    return Chart(title, HOLDERS, CHANCE, series, note=note, short=short, smooth=True)


def needed_section(plans: Sequence[Plan], set_sizes: Sequence[int]) -> Section:
    """Tabulate how many people must have an item for it to be released."""
    columns = ("algorithm", *(f"{_things(size)}, {chance}" for size in set_sizes for chance in ("50 %", "90 %")))
    rows: list[tuple[Cell, ...]] = []
    text = "An item of a single person is practically never released, by design."
    for plan in plans:
        kinds = {plan.algorithm.name: False}
        if plan.candidates is not None:
            kinds[f"{plan.algorithm.name}, a candidate"] = True
            text = (
                "An item of a single person that is not a candidate is practically never released, by design. "
                f"{expected_mistakes(plan.candidates)}"
            )
        for name, listed in kinds.items():
            needed = find_needed(plan, set_sizes, listed=listed)
            rows.append((name, *(people for one in needed for people in (one.even, one.likely))))
    return Section(
        "How many people must have an item",
        (
            "About this many people must have an item for it to be released with a chance of 50 % or 90 %, if "
            "each of them has the stated number of items in total and the other items are rare. Fewer is better. "
            f"{text}",
        ),
        (Table("People needed at this budget", columns, tuple(rows)),),
    )


def budget_section(plans: Sequence[Plan], set_sizes: Sequence[int]) -> Section:
    """Draw the chosen algorithm under several budgets."""
    names = [f"ε = {number(plan.budget.epsilon)}" for plan in plans]
    charts = tuple(
        _chart(f"Chance of release, people with {_things(size)}", names, plans, size, Company.RARE, short=_things(size))
        for size in set_sizes
        if plans
    )
    name = plans[0].algorithm.name if plans else "this algorithm"
    text = (
        f"All lines use {name} and the same δ. Doubling ε about halves the number of people that an item needs. "
        "Choose the smallest ε that still shows what you need; the budgets of all releases from the same data add "
        "up."
    )
    return Section("Which budget?", (text,), charts, choice="items per person", first=len(charts) // 2)


def algorithm_section(plans: Sequence[Plan]) -> Section:
    """Draw several algorithms under the chosen budget, in each company."""
    names = [plan.algorithm.name for plan in plans]
    title = f"Chance of release, {TYPICAL} items per person, the others"
    charts = tuple(
        _chart(f"{title} {short}", names, plans, TYPICAL, company, note=f"Here {note}.", short=short)
        for company, (short, note) in COMPANIES.items()
        if plans
    )
    text = (
        "All lines use the same ε and δ. People's other items decide which algorithm does well: policies stop "
        "adding weight to items that are popular already, and Funnel also to items without a chance. Real data is "
        "a mixture, mostly of the long tail."
    )
    return Section("Which algorithm?", (text,), charts, choice="the other items are")


def _things(size: int) -> str:
    return "1 item" if size == 1 else f"{size:,} items"
