"""Examples and audits as plain text: small tables and bars for terminals and bug reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpunion.contributions import Int32s
from dpunion.report.tables import lay_out
from dpunion_lab.audit.examples import PairExample, SequenceExample, StepExample, histograms
from dpunion_lab.audit.policies import Subject

if TYPE_CHECKING:
    from dpunion_lab.audit.search import SearchReport

BAR = 24
# Longer lists of users than this many items are summed up.
LISTED_ITEMS = 40


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write rows below a head, with the first column aligned left and the others right."""
    lines = [line.rstrip() for line in lay_out([head, *rows], [at == 0 for at in range(len(head))])]
    lines.insert(1, "-" * max(len(line) for line in lines))
    return "\n".join(lines)


def bar(value: float, largest: float) -> str:
    """Draw a number as a bar; the largest number has the full length."""
    length = round(BAR * abs(value) / largest) if largest > 0.0 else 0
    return ("+" if value > 0 else "-") * max(length, 1 if value != 0.0 else 0)


def item_name(item: int) -> str:
    """Return the name of an item: A..Z, then A1..Z1, and so on."""
    turn, letter = divmod(item, 26)
    return chr(ord("A") + letter) + (str(turn) if turn else "")


def user_name(items: Int32s) -> str:
    """Write a user's items as a set."""
    return "{" + ", ".join(item_name(int(item)) for item in items) + "}"


def users_text(users: Sequence[Int32s]) -> str:
    """List users in order, with runs of equal users together, or sum up their sets if the list is too long."""
    if not users:
        return "nobody"
    runs: list[tuple[int, Int32s]] = []
    for items in users:
        if runs and np.array_equal(runs[-1][1], items):
            runs[-1] = (runs[-1][0] + 1, items)
        else:
            runs.append((1, items))
    if sum(len(items) for _, items in runs) <= LISTED_ITEMS:
        return ", ".join(f"{count} x {user_name(items)}" if count > 1 else user_name(items) for count, items in runs)
    kinds = Counter((count, len(items)) for count, items in runs)
    return ", ".join(
        f"{sets} set{'s' * (sets > 1)} of {size} item{'s' * (size > 1)} with {count} user{'s' * (count > 1)} each"
        for (count, size), sets in kinds.items()
    )


def pair_text(subject: Subject, example: PairExample) -> str:
    """Write a pair of histograms before and after the update."""
    one, other = subject.policy(example.one, example.items), subject.policy(example.other, example.items)
    apart = np.abs(one - other)
    rows = [
        [
            item_name(i) + (" *" if i in example.items else ""),
            f"{example.one[i]:.4g}",
            f"{example.other[i]:.4g}",
            f"{one[i]:.4f}",
            f"{other[i]:.4f}",
            bar(float(other[i] - one[i]), float(apart.max())).ljust(BAR),
        ]
        for i in range(len(one))
    ]
    norm = subject.norm.value
    return (
        f"Two histograms whose distance grows: {example.before:.4f} before, {example.after:.4f} after ({norm}; "
        f"{example.score:.3f} times as far), found by {example.attack}; the user has the items marked *.\n"
        + table(["item", "H", "H'", "H after", "H' after", "H' - H after".ljust(BAR)], rows)
    )


def step_text(subject: Subject, example: StepExample) -> str:
    """Write one update that went too far."""
    moved = subject.policy(example.weights, example.items)
    rows = [
        [item_name(i) + (" *" if i in example.items else ""), f"{example.weights[i]:.4g}", f"{moved[i]:.4f}"]
        for i in range(len(moved))
    ]
    return (
        f"One user moves a histogram by {example.moved:.4f} ({subject.norm.value}) where {subject.budget:g} is "
        f"claimed, found by {example.attack}; the user has the items marked *.\n"
        + table(["item", "H", "H after"], rows)
    )


def sequence_text(subject: Subject, example: SequenceExample) -> str:
    """Write a sequence of users and both resulting histograms; items with equal weights share a row."""
    with_extra, without = histograms(subject, example.before, example.extra, example.after, example.size)
    held = np.unique(np.concatenate([*example.before, example.extra, *example.after]))
    weights = np.round(np.stack([with_extra[held], without[held]], axis=1), 9)
    kinds, members = np.unique(weights, axis=0, return_inverse=True)
    gaps = kinds[:, 0] - kinds[:, 1]
    rows = []
    for number, (one, other) in enumerate(kinds):
        items = held[members.reshape(-1) == number]
        name = ", ".join(map(item_name, items)) if len(items) <= 4 else f"{len(items)} items"
        rows.append(
            [name, f"{one:.4f}", f"{other:.4f}", bar(float(gaps[number]), float(np.abs(gaps).max())).ljust(BAR)]
        )
    extra = user_name(example.extra) if len(example.extra) <= 20 else f"one user with {len(example.extra)} items"
    return (
        f"One user changes the histogram by {example.distance:.4f} ({subject.norm.value}) where {subject.budget:g} is "
        f"claimed: {example.users} users, {len(held)} items, at most {example.largest} per user, found by "
        f"{example.attack}.\n"
        f"  first:          {users_text(example.before)}\n"
        f"  then, or not:   {extra}\n"
        f"  then:           {users_text(example.after)}\n"
        + table(["item", "with", "without", "difference".ljust(BAR)], rows)
    )


def search_text(report: SearchReport) -> str:
    """Write the result of a search: the verdict, the examples and the tries."""
    subject = report.subject
    claim = (
        f"one user moves a histogram by at most {subject.budget:g} ({subject.norm.value}), and the distance "
        "of two never grows"
    )
    lines = [f"Policy {subject.name} claims: {claim}."]
    if report.violations:
        at = "" if report.first_violation is None else f" The first was found after {report.first_violation:.1f} s."
        lines.append(f"VIOLATED.{at}")
    else:
        lines.append("No violation was found. That is evidence, not a proof.")
    if report.small_pair is not None:
        lines += ["", pair_text(subject, report.small_pair)]
    if report.small_step is not None:
        lines += ["", step_text(subject, report.small_step)]
    if report.sequence is not None and report.sequence.violates(subject):
        lines += ["", "The worst sequence from the empty histogram:", sequence_text(subject, report.sequence)]
    if report.small_sequence is not None:
        lines += ["", "A small one:", sequence_text(subject, report.small_sequence)]
    lines += ["", _tries_text(report)]
    return "\n".join(lines)


def _tries_text(report: SearchReport) -> str:
    subject = report.subject
    tried = ", ".join(f"{name} {turns}" for name, turns in report.turns.items())
    seen = []
    if report.pair is not None:
        seen.append(f"expansion {report.pair.score:.9f}")
    if report.step is not None:
        seen.append(f"step {report.step.moved / subject.budget:.9f}")
    if report.sequence is not None:
        seen.append(f"sequence {report.sequence.distance / subject.budget:.9f}")
    return (
        f"Searched {report.seconds:.1f} s with seed {report.seed} (cutoff {subject.cutoff:g}, at most "
        f"{subject.max_items} items per user).\n"
        f"Largest seen, relative to the claim: {', '.join(seen)}.\nTurns of each attack: {tried}."
    )
