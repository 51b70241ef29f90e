"""What a release means for one person, what it does not cover, and how much of the dataset's budget it took."""

from __future__ import annotations

import math

from dpunion.budget import Budget, Strength, guarantee, sureness
from dpunion.releases.about import Charged
from dpunion.releases.formats import escape_controls
from dpunion.releases.release import Release
from dpunion.releases.statements import LIMITS, NOT_PRIVATE, how_it_was_made
from dpunion.report.tables import Fact, Gauge, Section, number, percent

UNCHARGED = (
    "This release was not charged to a ledger. If there are other releases from the same data, their budgets add "
    "up, and no ledger has recorded the sum."
)


def meaning_section(budget: Budget, covers: str, *, subject: str = "This list", title: str) -> Section:
    """Say what a budget means for one person: in plain words, in numbers, and in the words of the field."""
    formal, meaning, allowed = guarantee(budget, subject=subject, covers=covers, write=number)
    before, after = 0.5, sureness(budget.epsilon)
    rounded = math.ceil(1000.0 * after) / 1000.0  # as in words: never less than it is
    after = rounded if rounded < 1.0 else after
    gauge = Gauge(
        "How sure someone can become that a given person's data was used",
        (("50 % before", before), ("what the list may add", after - before)),
        "doubt that remains at least",
    )
    return Section(title, (meaning, allowed, formal), (gauge,))


def first_sections(release: Release) -> tuple[Section, ...]:
    """Return what stands before the list: what it means for one person, what is not covered, what was charged."""
    if not release.guaranteed:
        return (Section("What is guaranteed", (NOT_PRIVATE,)),)
    plan = release.plan
    return (
        meaning_section(plan.budget, plan.nouns.covers, title="What this means for one person"),
        Section("What it does not cover", points=LIMITS),
        charge_section(release.about.charged),
    )


def charge_section(charged: Charged | None) -> Section:
    """Say how much of the dataset's budget was spent when the release was charged."""
    title = "The budget of the dataset"
    if charged is None:
        return Section(title, (UNCHARGED,))
    name = escape_controls(charged.dataset)
    own, whole = (
        f"({number(epsilon)}, {number(delta)})"
        for epsilon, delta in ((charged.epsilon, charged.delta), (charged.total_epsilon, charged.total_delta))
    )
    text = (
        f"The ledger limits all releases from '{name}' together to {whole}, by {charged.composition} composition. "
        f"This release was charged {own}. With it {percent(charged.after)} of the budget was spent; the rest "
        f"would cover {_more(charged.more)}. This was the state at {_minute(charged.written)}; see the ledger for "
        "later releases."
    )
    gauge = Gauge(
        f"The budget of {name}",
        (("spent before", charged.before), ("this release", charged.after - charged.before)),
        "left",
    )
    return Section(title, (text,), (gauge,))


def _more(count: int) -> str:
    return f"about {count:,} more like it" if count else "no other like it"


def _minute(written: str) -> str:
    """Write a ledger's time for people, or as it is where it is none."""
    date, _, time = escape_controls(written).partition("T")
    return f"{date} {time[:5]} UTC" if time else date


def about_facts(release: Release) -> tuple[Fact, ...]:
    """Return what is known of the release as such: who answers for it, what it is for, when and where it is entered."""
    about, charged = release.about, release.about.charged
    known = {"owner": about.owner, "what it is for": about.note, "made": about.made}
    if charged is not None:
        known |= {"dataset": charged.dataset, "ledger entry": charged.receipt}
    return tuple(Fact(name, escape_controls(value)) for name, value in known.items() if value)


def making_section(release: Release) -> Section:
    """Say how the release was made, and what else its statement notes."""
    lines = how_it_was_made(release.plan, release.results, release.totals)
    charged = release.about.charged
    # What was charged stands before the list.
    notes = (note for note in release.notes if charged is None or charged.receipt not in note)
    return Section("How it was made", (*lines, *map(escape_controls, notes)))


def warning(budget: Budget, *, guaranteed: bool) -> str | None:
    """Return what must be read before anything else: that nothing is guaranteed, or that little is."""
    if not guaranteed:
        return NOT_PRIVATE
    return guarantee(budget)[1] if budget.strength is Strength.WEAK else None


def strength(budget: Budget, *, guaranteed: bool) -> str:
    """Return in one word how much is guaranteed."""
    return budget.strength.value if guaranteed else "none"
