"""What a release's page says: the plan and the guarantee, in words, symbols and tables."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpunion.algorithms import DpSips
from dpunion.budget import Budget
from dpunion.chances import SET_SIZES, Company, holders_between, release_curve, saturation
from dpunion.errors import BadParameter
from dpunion.plans import Noise, Plan
from dpunion.plans.counts import CountsPlan
from dpunion.plans.ngrams import LengthResult, NgramPlan
from dpunion.releases.formats import escape_controls
from dpunion.releases.release import Release
from dpunion.report.charts import Axis, AxisScale, Chart, ChartKind, Series
from dpunion.report.meaning import about_facts, first_sections, making_section, strength, warning
from dpunion.report.popularity import count_facts, counting_table, number_columns, popular_first, popularity_section
from dpunion.report.tables import Cell, Fact, Section, Table, number, percent

STUDY = "A study, not a release: these numbers are not differentially private. Study public or generated data only."
PROMISE = ", with differential privacy for each person as a whole"
TESTED = ", for a test"
HOLDERS = Axis("people who have the item", AxisScale.LOG)
CHANCE = Axis("chance of release", AxisScale.PERCENT)
NAMES = {
    "max_items_per_user": "items per person that are used, at most",
    "cutoff_margin": "cutoff margin, in noise scales",
    "user_order": "order of people",
    "keep_fraction": "part of the expected pace that an item must keep",
    "keep_margin": "leeway, in standard deviations",
    "haste": "haste: multiple of an even share of the weight that items need",
    "first_share": "first round's part of the budget",
    "share_ratio": "each round's part over the next one's",
}


@dataclass(frozen=True, slots=True)
class PageText:
    """Everything a release's page says.

    about: who answers for it, what for, when. before: what stands before the list. symbols: None when nothing is
    guaranteed. items: texts, (text, number of tokens), or keys, one text for each of the columns; with counts always
    texts of the columns, and numbers of theirs.
    """

    title: str
    lead: str
    noun: str
    about: tuple[Fact, ...]
    facts: tuple[Fact, ...]
    before: tuple[Section, ...]
    symbols: dict[str, str] | None
    items: list[Any]
    sections: tuple[Section, ...]
    warning: str | None
    columns: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()


def describe_release(release: Release) -> PageText:
    """Say everything about a release: first what it means, then the list, then how it was made."""
    count, plan, counted = len(release), release.plan, release.totals is not None
    if isinstance(plan, NgramPlan):
        noun, how = "n-grams", f"Of up to {plan.settings.longest} tokens"
        listed: list[Any] = [list(row) for row in release.rows()]
        sections: tuple[Section, ...] = (
            ngram_lengths(plan, release.results),
            plan_section(plan.first, plan.counts, title="The plan for single tokens"),
        )
    else:
        noun, how = "items", f"By {plan.algorithm.name}"
        listed = [item if isinstance(item, str) else list(item) for item in release.items]
        sections = (*chances(plan), spending(plan), plan_section(plan, plan.counts))
    named = f"{count:,} {noun.removesuffix('s') if count == 1 else noun} released"
    about = release.about
    promise = PROMISE if release.guaranteed else TESTED
    return PageText(
        title=escape_controls(about.title) or named,
        lead=f"{named}. {how}{promise}." if about.title else f"{how}{promise}.",
        noun=noun,
        about=about_facts(release),
        facts=(
            Fact(noun, f"{count:,}"),
            *count_facts(release.totals),
            *budget_facts(plan.budget, guaranteed=release.guaranteed),
        ),
        before=first_sections(release),
        symbols=symbols(plan.budget) if release.guaranteed else None,
        items=popular_first(release) if counted else listed,
        sections=(
            *popularity_section(release),
            *((making_section(release),) if release.guaranteed else ()),
            *sections,
            *((word_for_word(release),) if release.guaranteed else ()),
        ),
        warning=warning(plan.budget, guaranteed=release.guaranteed),
        columns=release.columns if counted or len(release.columns) > 1 else (),
        numbers=number_columns(release),
    )


def word_for_word(release: Release) -> Section:
    """Return the statement as it stands in the release itself."""
    return Section(
        "The statement, word for word", tuple(map(escape_controls, release.statement.splitlines())), folded=True
    )


def budget_facts(budget: Budget, *, guaranteed: bool) -> tuple[Fact, ...]:
    """Return the budget and in one word how much it guarantees."""
    return (
        Fact("epsilon, ε", number(budget.epsilon)),
        Fact("delta, δ", number(budget.delta)),
        Fact("guarantee", strength(budget, guaranteed=guaranteed)),
    )


def plan_facts(plan: Plan) -> tuple[Fact, ...]:
    """Return the few numbers of a plan that come first."""
    return (
        *budget_facts(plan.budget, guaranteed=True),
        Fact("algorithm", plan.algorithm.name),
        Fact("items per person, at most", number(plan.algorithm.max_items_per_user)),
    )


def symbols(budget: Budget) -> dict[str, str]:
    """Return the numbers of the definition (Dwork & Roth 2014, Def. 2.4)."""
    return {
        "epsilon": number(budget.epsilon),
        "delta": number(budget.delta),
        "factor": number(math.exp(min(budget.epsilon, 700.0))),
    }


def spending(plan: Plan) -> Section:
    """Say where epsilon and delta went."""
    rows: list[tuple[Cell, ...]] = [
        ("ε granted", number(plan.budget.epsilon)),
        ("δ granted", number(plan.budget.delta)),
        ("δ used, as certified", f"{number(plan.delta_used)} ({percent(plan.delta_used / plan.budget.delta)} of it)"),
        ("noise and threshold raised for rounding, by", percent(plan.rounding_slack) if plan.rounding_slack else "0 %"),
    ]
    parts: list[Chart | Table] = [Table("The budget", ("what", "value"), tuple(rows))]
    shares = budget_shares(plan)
    text = "The whole budget went into one round: each item's weight was compared with the threshold once."
    if len(shares) > 1:
        title = "How the rounds share the budget" if plan.counts is None else "How rounds and counts share the budget"
        table = tuple((name, percent(share)) for name, share in shares.items())
        parts.append(Table(title, ("what", "part of the (squared) budget"), table))
        rounds = len(shares) - (plan.counts is not None)
        text = (
            f"The budget was shared by {rounds} "
            f"{'round' if rounds == 1 else 'rounds'}{'' if plan.counts is None else ' and the counts'}. Each "
            "round adds fresh noise to the weights that people give to the remaining items."
        )
    return Section("How the budget was shared", (text,), tuple(parts), folded=True)


def budget_shares(plan: Plan) -> dict[str, float]:
    """Return the part of the budget that each round and the counts take, by name; they sum to 1."""
    rounds = plan.algorithm.shares if isinstance(plan.algorithm, DpSips) else [one.budget**2 for one in plan.rounds]
    counts = 0.0 if plan.counts is None else plan.counts.share
    shares = {f"round {at}": (1.0 - counts) * share for at, share in enumerate(rounds or [1.0], 1)}
    return shares | ({"counts": counts} if counts else {})


def chances(plan: Plan) -> tuple[Section, ...]:
    """Draw how likely an item is to come out; nothing where the model does not reach."""
    try:
        most = max(saturation(plan, set_size=size, company=Company.RARE) for size in SET_SIZES)
        grid = holders_between(1, max(10, most))
        curves = [release_curve(plan, set_size=size, company=Company.RARE, holders=grid) for size in SET_SIZES]
    except BadParameter:
        return ()
    series = tuple(
        Series(
            f"people with {curve.set_size} {'item' if curve.set_size == 1 else 'items'}",
            tuple(curve.holders.tolist()),
            tuple(curve.chances.tolist()),
        )
        for curve in curves
    )
    text = (
        "Whether an item is in the list is partly chance, and items of few people are left out by design. These "
        "lines follow from the plan alone, not from the data: the chance that an item is released, by the number "
        "of people who have it, if nobody else has their other items."
    )
    chart = Chart("Chance of release by number of people", HOLDERS, CHANCE, series, smooth=True)
    return (Section("What could be released", (text,), (chart,)),)


def plan_section(plan: Plan, counts: CountsPlan | None, *, title: str = "The plan") -> Section:
    """List every number of the plan, and of counting."""
    noise = {
        Noise.GAUSSIAN: "Gaussian, standard deviation",
        Noise.LAPLACE: "Laplace, scale",
        Noise.TRUNCATED_GEOMETRIC: "truncated geometric, scale",
    }
    rows: list[tuple[str, Cell]] = [
        ("algorithm", plan.algorithm.name),
        *[(NAMES.get(name, name.replace("_", " ")), value) for name, value in plan.algorithm.parameters().items()],
        (f"noise: {noise[plan.noise]}", plan.scale),
        ("threshold a noisy weight must exceed", plan.threshold),
    ]
    if plan.cutoff is not None:
        rows.append(("cutoff, up to which items are filled", plan.cutoff))
    norm = {"l1": "ℓ₁", "l2": "ℓ₂"}[plan.sensitivity.norm.value]
    rows.append((f"largest change of the weights by one person ({norm} norm)", plan.sensitivity.bound))
    written = tuple((name, number(value)) for name, value in rows)
    parts: list[Chart | Table] = [Table("Every number of the release", ("what", "value"), written)]
    if plan.rounds:
        numbers = [dataclasses.asdict(one) for one in plan.rounds]
        table = tuple((at, one["budget"], one["stddev"], one["threshold"]) for at, one in enumerate(numbers, 1))
        columns = ("round", "weight budget of a person", "standard deviation", "score to exceed")
        parts.append(Table("The rounds", columns, table))
    if counts is not None:
        parts.append(counting_table(counts))
    text = "All of these numbers were fixed before any data was read, and are public."
    return Section(title, (text,), tuple(parts), folded=True)


def ngram_lengths(plan: NgramPlan, results: Sequence[LengthResult]) -> Section:
    """Say for each length what it got of the budget and what came of it."""
    found = {one.length: one for one in results}
    rows: list[tuple[Cell, ...]] = []
    for one in plan.lengths:
        result = found.get(one.length)
        numbers: tuple[Cell, ...] = (None, None, None)
        if result is not None:
            numbers = (result.released, result.candidates, result.spurious if one.length > 1 else 0)
        rows.append((one.length, percent(one.share), one.algorithm.name, one.stddev, *numbers))
    found_columns = ("released", "candidates", "expected spurious, at most")
    columns = ("tokens", "part of the budget", "algorithm", "standard deviation", *found_columns)
    text = (
        f"The lengths{'' if plan.counts is None else ' and the counts'} share the budget; the certificate says "
        f"that δ is {number(plan.delta_used)} of the {number(plan.budget.delta)} granted. Spurious n-grams are "
        "n-grams that nobody wrote; they are part of what protects the real ones."
    )
    parts: list[Chart | Table] = [Table("By length", columns, tuple(rows))]
    if results:
        names = tuple("1 token" if one.length == 1 else f"{one.length} tokens" for one in results)
        counts = tuple(float(one.released) for one in results)
        bars = (Series("released", names, counts),)
        parts.append(
            Chart("Released, by length", Axis("length", AxisScale.NAMES), Axis("n-grams"), bars, kind=ChartKind.BAR)
        )
    return Section("How the budget was spent", (text,), tuple(parts))
