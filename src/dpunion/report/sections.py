"""The text of pages: what a release means for one person, the plan, numbers of people; in words and tables."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dpunion.algorithms import DpSips
from dpunion.budget import Budget, Strength, guarantee, sureness
from dpunion.chances import SET_SIZES, Company, holders_between, release_curve, saturation
from dpunion.errors import BadParameter
from dpunion.plans import CandidatesPlan, Noise, Plan
from dpunion.plans.counts import LEVEL, PLANNED_RATIOS, PLANNED_SIZES, CountsPlan, Estimate, Totals
from dpunion.plans.ngrams import LengthResult, NgramPlan
from dpunion.releases.about import Charged
from dpunion.releases.formats import LISTED, SINCE, escape_controls, show_number
from dpunion.releases.release import COUNTED, LENGTH, PEOPLE, Release
from dpunion.releases.statements import LIMITS, NOT_PRIVATE, about, how_it_was_made, how_precise, who_was_cut
from dpunion.report.charts import Axis, AxisScale, Chart, ChartKind, Series
from dpunion.report.tables import Cell, Fact, Gauge, Section, Table, number, percent

STUDY = "A study, not a release: these numbers are not differentially private. Study public or generated data only."
PROMISE = ", with differential privacy for each person as a whole"
TESTED = ", for a test"
WORD_FOR_WORD = "The statement, word for word"
UNCHARGED = (
    "This release was not charged to a ledger. If there are other releases from the same data, their budgets add "
    "up, and no ledger has recorded the sum."
)
RANKS_PER_DECADE = 12
MOST_GONE = 1_000
TOKENS = "tokens"
MEANING = (
    "Each number is an estimate of how many people have the item: the true number plus random noise that protects "
    "everybody in the data. It is never shown below the number of people from which items begin to be released. "
    f"At least {round(100 * LEVEL)} of 100 intervals, from low to high, contain the true number; the upper part "
    "of an interval is the wider one."
)
ORDER = (
    "Each point shows the items around its rank: the median of their estimates, and for the band the medians of "
    "their intervals. Both axes are logarithmic. Where the band is wide, the order of neighbouring items is "
    "mostly chance."
)
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


def describe_release(release: Release) -> dict[str, Any]:
    """Return the text of a release's page: first what it means, then the list, then how it was made.

    symbols: None if nothing is guaranteed. items: texts, (text, number of tokens), or keys, one text for each of the
    columns; with counts always the texts of the columns and then the numbers. In a schedule, and with candidates, the
    last of the columns say since when the item is on the list, and whether it is listed.
    """
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
    if counted:  # the most popular first; ties stay in the order of the release
        at = release.header.index(PEOPLE, len(release.columns))
        listed = [list(row) for row in sorted(release.rows(), key=lambda row: -row[at])]
    columns = release.columns if counted or len(release.columns) > 1 else ()
    if marks := [one.name for one in release.numbers if one.name in (SINCE, LISTED)]:
        columns = (*release.columns, *marks)
        listed = mark_rows(release, marks, listed if counted else list(release.rows()))
    named = f"{count:,} {noun.removesuffix('s') if count == 1 else noun} released"
    promise = PROMISE if release.guaranteed else TESTED
    if release.guaranteed:
        statement = tuple(map(escape_controls, release.statement.splitlines()))
        sections = (making_section(release), *sections, Section(WORD_FOR_WORD, statement, folded=True))
    named_numbers = [TOKENS if one.name == LENGTH else one.name for one in release.numbers if one.name not in marks]
    return {
        "title": escape_controls(release.about.title) or named,
        "lead": f"{named}. {how}{promise}." if release.about.title else f"{how}{promise}.",
        "noun": noun,
        "about": about_facts(release),
        "facts": (
            Fact(noun, f"{count:,}"),
            *count_facts(release.totals),
            *candidate_facts(plan.candidates),
            *budget_facts(plan.budget, guaranteed=release.guaranteed),
        ),
        "before": first_sections(release),
        # The numbers of the definition (Dwork & Roth 2014, Def. 2.4).
        "symbols": {
            "epsilon": number(plan.budget.epsilon),
            "delta": number(plan.budget.delta),
            "factor": number(math.exp(min(plan.budget.epsilon, 700.0))),
        }
        if release.guaranteed
        else None,
        "signed": release.guaranteed,
        "items": listed,
        "count": count,
        "sections": (*gone_sections(release), *popularity_section(release), *sections),
        "warning": warning(plan.budget, guaranteed=release.guaranteed),
        "columns": columns,
        "numbers": tuple(named_numbers) if counted else (),
    }


def mark_rows(release: Release, marks: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[Any]:
    """Return rows with these marks, as texts, behind the texts; without counts, with no other numbers."""
    width = len(release.columns)
    at = [release.header.index(name, width) for name in marks]
    rest = [] if release.totals is None else [place for place in range(width, len(release.header)) if place not in at]
    return [[*row[:width], *(show_number(row[i]) for i in at), *(row[i] for i in rest)] for row in rows]


def gone_sections(release: Release) -> Iterator[Section]:
    """Name the items of the previous release that are not in a current list."""
    if release.gone:
        names = [item if isinstance(item, str) else "  ".join(item) for item in release.gone[:MOST_GONE]]
        more = f" Here are the first {MOST_GONE:,}; the .json output has all." if len(release.gone) > MOST_GONE else ""
        text = f"{len(release.gone):,} items of the list that this release continues are not in its list.{more}"
        yield Section("Items that are gone", (text,), points=tuple(map(escape_controls, names)), folded=True)


def budget_facts(budget: Budget, *, guaranteed: bool) -> tuple[Fact, ...]:
    """Return the budget, and its strength in one word."""
    return (
        Fact("epsilon, ε", number(budget.epsilon)),
        Fact("delta, δ", number(budget.delta)),
        Fact("guarantee", budget.strength.value if guaranteed else "none"),
    )


def plan_facts(plan: Plan) -> tuple[Fact, ...]:
    """Return the numbers of a plan that a page shows first."""
    return (
        *budget_facts(plan.budget, guaranteed=True),
        Fact("algorithm", plan.algorithm.name),
        Fact("items per person, at most", number(plan.algorithm.max_items_per_user)),
        *candidate_facts(plan.candidates),
    )


def candidate_facts(listed: CandidatesPlan | None) -> tuple[Fact, ...]:
    """Return how many candidates there are, and how many of them may come out by mistake."""
    if listed is None:
        return ()
    return (Fact("candidates", number(listed.listed), f"at most about {about(listed.expected)} out by mistake"),)


def spending(plan: Plan) -> Section:
    """Say how epsilon and delta were spent."""
    rows: list[tuple[Cell, ...]] = [
        ("ε granted", number(plan.budget.epsilon)),
        ("δ granted", number(plan.budget.delta)),
        ("δ used, as certified", f"{number(plan.delta_used)} ({percent(plan.delta_used / plan.budget.delta)} of it)"),
        ("noise and threshold raised for rounding, by", percent(plan.rounding_slack) if plan.rounding_slack else "0 %"),
    ]
    parts: list[Chart | Table] = [Table("The budget", ("what", "value"), tuple(rows))]
    counts = 0.0 if plan.counts is None else plan.counts.share
    spent = plan.algorithm.shares if isinstance(plan.algorithm, DpSips) else [one.budget**2 for one in plan.rounds]
    shares = {f"round {at}": (1.0 - counts) * share for at, share in enumerate(spent or [1.0], 1)}
    shares |= {"counts": counts} if counts else {}
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


def chances(plan: Plan) -> tuple[Section, ...]:
    """Draw how likely an item is released; nothing if the model does not cover the plan."""
    if not is_sound(plan):
        return ()
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


def is_sound(plan: Plan) -> bool:
    """Say whether a planner could have made these numbers: a plan that was read from a file may have others."""
    positive = [plan.scale, *[one.stddev for one in plan.rounds], *[one.budget for one in plan.rounds]]
    fills = hasattr(plan.algorithm, "cutoff_margin")
    rounds = getattr(plan.algorithm, "rounds", 0)
    return min(positive) > 0.0 and len(plan.rounds) == rounds and (plan.cutoff is not None or not fills)


def plan_section(plan: Plan, counts: CountsPlan | None, *, title: str = "The plan") -> Section:
    """List every number of the plan and of counting."""
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
    if plan.candidates is not None:
        rows += [
            ("threshold of candidates", plan.candidates.threshold),
            ("chance that a candidate comes out which nobody has", plan.candidates.chance),
            ("SHA-256 of the list of candidates", plan.candidates.sha256),
        ]
    written = tuple((name, number(value)) for name, value in rows)
    parts: list[Chart | Table] = [Table("Every number of the release", ("what", "value"), written)]
    if plan.rounds:
        table = tuple((at, one.budget, one.stddev, one.threshold) for at, one in enumerate(plan.rounds, 1))
        columns = ("round", "weight budget of a person", "standard deviation", "score to exceed")
        parts.append(Table("The rounds", columns, table))
    if counts is not None:
        counting = (
            ("part of the budget", percent(counts.share)),
            ("noise of the rough estimate of every item: standard deviation", number(counts.rough)),
            ("noise of how many items people have: standard deviation", number(counts.marks)),
            ("noise of the counts: standard deviation", number(counts.fine)),
        )
        parts.append(Table("Counting", ("what", "value"), counting))
    text = "All of these numbers were fixed before any data was read, and are public."
    return Section(title, (text,), tuple(parts), folded=True)


def ngram_lengths(plan: NgramPlan, results: Sequence[LengthResult]) -> Section:
    """Tabulate each length's part of the budget and its results."""
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


# --- what a release means, and its charge -----------------------------------------------------------------------


def meaning_section(budget: Budget, covers: str, *, subject: str = "This list", title: str) -> Section:
    """Say what a budget means for one person: in plain words, in numbers, and in technical terms."""
    formal, meaning, allowed = guarantee(budget, subject=subject, covers=covers, write=number)
    before, after = 0.5, sureness(budget.epsilon)
    rounded = math.ceil(1000.0 * after) / 1000.0  # rounded up, as in the words
    after = rounded if rounded < 1.0 else after
    gauge = Gauge(
        "How sure someone can become that a given person's data was used",
        (("before", before), ("what the list may add", after - before)),
        "doubt that remains at least",
    )
    return Section(title, (meaning, allowed, formal), (gauge,))


def first_sections(release: Release) -> tuple[Section, ...]:
    """Return the sections before the list: what it means for one person, what it does not cover, the charge."""
    if not release.guaranteed:
        return (Section("What is guaranteed", (NOT_PRIVATE,)),)
    plan = release.plan
    return (
        meaning_section(plan.budget, plan.nouns.covers, title="What this means for one person"),
        Section("What it does not cover", points=LIMITS),
        charge_section(release.about.charged, scheduled=SINCE in release.header[len(release.columns) :]),
    )


def charge_section(charged: Charged | None, *, scheduled: bool) -> Section:
    """Say how much of the dataset's budget was spent when the release was charged."""
    title = "The budget of the dataset"
    if charged is None:
        return Section(title, (UNCHARGED,))
    name = escape_controls(charged.dataset)
    own, whole = (
        f"({number(epsilon)}, {number(delta)})"
        for epsilon, delta in ((charged.epsilon, charged.delta), (charged.total_epsilon, charged.total_delta))
    )
    date, _, time = escape_controls(charged.written).partition("T")
    moment = f"{date} {time[:5]} UTC" if time else date
    rest = f"would cover {f'about {charged.more:,} more' if charged.more else 'no other'} like it"
    if scheduled and charged.more:
        rest = f"is for later releases of its schedule ({charged.more})"
    text = (
        f"The ledger limits all releases from '{name}' together to {whole}, by {charged.composition} composition. "
        f"This release was charged {own}. With it {percent(charged.after)} of the budget was spent; the rest {rest}. "
        f"This was the state at {moment}; see the ledger for later releases."
    )
    gauge = Gauge(
        f"The budget of {name}",
        (("spent before", charged.before), ("this release", charged.after - charged.before)),
        "left",
    )
    return Section(title, (text,), (gauge,))


def about_facts(release: Release) -> tuple[Fact, ...]:
    """Return the facts about the release itself: its owner, its purpose, its day, and its entry in a ledger."""
    given, charged = release.about, release.about.charged
    known = {"owner": given.owner, "what it is for": given.note, "made": given.made}
    if charged is not None:
        known |= {"dataset": charged.dataset, "ledger entry": charged.receipt}
    return tuple(Fact(name, escape_controls(value)) for name, value in known.items() if value)


def making_section(release: Release) -> Section:
    """Say how the release was made, with the other notes of its statement."""
    lines = how_it_was_made(release.plan, release.results, release.totals)
    charged = release.about.charged
    # The charge has its own section before the list.
    notes = (note for note in release.notes if charged is None or charged.receipt not in note)
    return Section("How it was made", (*lines, *map(escape_controls, notes)))


def warning(budget: Budget, *, guaranteed: bool) -> str | None:
    """Return the warning at the top of a page: that nothing, or little, is guaranteed."""
    if not guaranteed:
        return NOT_PRIVATE
    return guarantee(budget)[1] if budget.strength is Strength.WEAK else None


# --- numbers of people ------------------------------------------------------------------------------------------


def count_facts(totals: Totals | None) -> tuple[Fact, ...]:
    """Return the numbers of all people together, which a page shows first."""
    if totals is None:
        return ()
    named = {"people in all, about": totals.everybody, "with an item not listed": totals.others}
    return tuple(
        Fact(name, number(one.people), f"{number(one.low)} to {number(one.high)}") for name, one in named.items()
    )


def popularity_section(release: Release) -> tuple[Section, ...]:
    """Draw and explain the numbers of people by rank; nothing for a release without counts."""
    totals = release.totals
    if totals is None:
        return ()
    rows = {"any item": totals.everybody, "an item that is not listed": totals.others}
    table = tuple((what, one.people, one.low, one.high) for what, one in rows.items())
    together = Table("All people together", ("people who have", *COUNTED), table)
    parts: list[Chart | Table] = [together]
    if len(release) > 1:
        title = f"People by rank of the {release.plan.nouns.item}"
        lines = tuple(_ranked(name, rows) for name, rows in _groups(release))
        parts.append(Chart(title, Axis("rank", AxisScale.LOG), Axis("people", AxisScale.LOG), lines, note=ORDER))
    return (Section("How many people", (MEANING, *who_was_cut(totals)), tuple(parts)),)


def _groups(release: Release) -> Iterator[tuple[str, list[Estimate]]]:
    """Yield the estimates that are ranked together, the largest first: n-grams of one length, or all items."""
    numbers = {one.name: one.values for one in release.numbers}
    estimates = [Estimate(*one) for one in zip(*(numbers[name] for name in COUNTED), strict=True)]
    lengths = numbers.get(LENGTH, (0,) * len(estimates))
    for length in sorted(set(lengths)):
        mine = [one for one, size in zip(estimates, lengths, strict=True) if size == length]
        name = PEOPLE if length == 0 else "1 token" if length == 1 else f"{length} tokens"
        yield name, sorted(mine, key=lambda one: -one.people)


def _ranked(name: str, rows: Sequence[Estimate]) -> Series:
    """Return the line of sorted estimates, at ranks that grow by about the same ratio."""
    count = len(rows)
    steps = np.geomspace(1, count, max(2, round(RANKS_PER_DECADE * np.log10(max(count, 2)))))
    ranks = sorted({round(step) for step in steps.tolist()})
    ends = [round((one * other) ** 0.5) for one, other in itertools.pairwise(ranks)]
    around = [rows[first:last] for first, last in zip([0, *ends], [*ends, count], strict=True)]
    middles = [[statistics.median(getattr(one, part) for one in near) for part in COUNTED] for near in around]
    people, lows, highs = (tuple(max(1.0, one) for one in column) for column in zip(*middles, strict=True))
    return Series(name, tuple(map(float, ranks)), people, lows, highs)


def precision_section(plan: CountsPlan) -> Section:
    """Tabulate how precise the numbers of people will be, from the plan alone."""
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (people, *(f"± {number(round(plan.half_width(people, ratio)))}" for ratio in PLANNED_RATIOS))
        for people in PLANNED_SIZES
    )
    columns = ("people with the item", *(f"{ratio} people per item" for ratio in PLANNED_RATIOS))
    text = (
        f"Counts take {percent(plan.share)} of the budget. How precise they are depends on how many people there are "
        "for each listed item: a person's influence is bounded, and divided among all the items of the person."
    )
    parts = (Table("Intervals to expect", columns, rows),)
    return Section("How precise the counts will be", (text, how_precise(plan)), parts)
