"""Search a policy for flaws: pairs whose distance grows, users who move too far, sequences that differ too much.

A policy that a contraction theorem covers (docs/guarantees.md) has no such flaw. The search finds mistakes in a
theorem, in the code or in a new idea before there is a release.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dpunion.algorithms import Norm
from dpunion.checks import check_real, check_whole
from dpunion_lab.audit.attacks import (
    Generator,
    climb_groups,
    climb_pair,
    generator,
    grow_sequence,
    new_seed,
    random_ladders,
    random_pairs,
    random_steps,
)
from dpunion_lab.audit.examples import (
    Example,
    PairExample,
    SequenceExample,
    StepExample,
    pair_text,
    sequence_text,
    shrink_pair,
    shrink_sequence,
    shrink_step,
    step_text,
)
from dpunion_lab.audit.policies import DEFAULT_CUTOFF, Policy, Subject, as_subject

Attack = Callable[[Generator, Subject, int], "list[PairExample] | list[StepExample] | list[SequenceExample]"]

# The attacks, and how much each may try in one turn; they take turns until the time is up.
ATTACKS: dict[str, tuple[Attack, int]] = {
    "random steps": (random_steps, 50),
    "random pairs": (random_pairs, 100),
    "pattern search": (climb_pair, 300),
    "ladders": (random_ladders, 10),
    "growth": (grow_sequence, 160),
    "groups": (climb_groups, 45),
}


@dataclass(slots=True)
class SearchReport:
    """What was tried and what was found.

    pair, step, sequence: the worst example of each kind, violation or not. small_*: the violations, shrunk.
    turns: the number of turns of each attack.
    """

    subject: Subject
    seed: int
    seconds: float = 0.0
    turns: dict[str, int] = field(default_factory=dict)
    pair: PairExample | None = None
    step: StepExample | None = None
    sequence: SequenceExample | None = None
    small_pair: PairExample | None = None
    small_step: StepExample | None = None
    small_sequence: SequenceExample | None = None
    first_violation: float | None = None

    @property
    def violations(self) -> list[Example]:
        """Return the examples that contradict the claim."""
        worst = (self.pair, self.step, self.sequence)
        return [example for example in worst if example is not None and example.violates(self.subject)]

    def text(self) -> str:
        """Return the verdict, the examples and the tries as text."""
        subject = self.subject
        claim = (
            f"one user moves a histogram by at most {subject.budget:g} ({subject.norm.value}), and the distance "
            "of two never grows"
        )
        lines = [f"Policy {subject.name} claims: {claim}."]
        if self.violations:
            at = "" if self.first_violation is None else f" The first was found after {self.first_violation:.1f} s."
            lines.append(f"VIOLATED.{at}")
        else:
            lines.append("No violation was found. That is evidence, not a proof.")
        if self.small_pair is not None:
            lines += ["", pair_text(subject, self.small_pair)]
        if self.small_step is not None:
            lines += ["", step_text(subject, self.small_step)]
        if self.sequence is not None and self.sequence.violates(subject):
            lines += ["", "The worst sequence from the empty histogram:", sequence_text(subject, self.sequence)]
        if self.small_sequence is not None:
            lines += ["", "A small one:", sequence_text(subject, self.small_sequence)]
        lines += ["", self._tries_text()]
        return "\n".join(lines)

    def _tries_text(self) -> str:
        subject = self.subject
        tried = ", ".join(f"{name} {turns}" for name, turns in self.turns.items())
        seen = []
        if self.pair is not None:
            seen.append(f"expansion {self.pair.score:.9f}")
        if self.step is not None:
            seen.append(f"step {self.step.moved / subject.budget:.9f}")
        if self.sequence is not None:
            seen.append(f"sequence {self.sequence.distance / subject.budget:.9f}")
        return (
            f"Searched {self.seconds:.1f} s with seed {self.seed} (cutoff {subject.cutoff:g}, at most "
            f"{subject.max_items} items per user).\n"
            f"Largest seen, relative to the claim: {', '.join(seen)}.\nTurns of each attack: {tried}."
        )

    def note(self, example: Example) -> None:
        """Keep the example if it is the worst of its kind."""
        match example:
            case PairExample():
                if self.pair is None or example.score > self.pair.score:
                    self.pair = example
            case StepExample():
                if self.step is None or example.score > self.step.score:
                    self.step = example
            case SequenceExample():
                if self.sequence is None or example.score > self.sequence.score:
                    self.sequence = example


def search_policy(
    policy: str | Subject | Policy,
    *,
    norm: str | Norm | None = None,
    budget: float = 1.0,
    cutoff: float = DEFAULT_CUTOFF,
    max_items_per_user: int = 100,
    seconds: float = 60.0,
    goal: float = 1.5,
    seed: int | None = None,
) -> SearchReport:
    """Search `policy` for flaws for at most `seconds`, or until one user makes `goal` times the claimed difference.

    policy: a name (see SHIPPED and RESEARCH), "file.py:function", or a function (weights float64[n], items int32[k])
    -> new weights float64[n]. norm, budget: the claim; named policies have their own. cutoff: the highest weight to
    try. seed: repeats a search, as far as its time allows.
    """
    subject = as_subject(policy, norm=norm, budget=budget, cutoff=cutoff, max_items=max_items_per_user)
    check_real("search_policy", "seconds", seconds, 0.01, 1e6)
    check_real("search_policy", "goal", goal, 1.0, 1e6)
    chosen = new_seed() if seed is None else seed
    check_whole("search_policy", "seed", chosen, 0, 2**63)
    report = SearchReport(subject, chosen, turns=dict.fromkeys(ATTACKS, 0))
    rng = generator(chosen)
    # Compile the kernel before the clock starts.
    subject.policy(np.zeros(1), np.zeros(1, np.int32))
    start = time.monotonic()
    while not _finished(report, goal, time.monotonic() - start, seconds):
        for name, (attack, tries) in ATTACKS.items():
            for example in attack(rng, subject, tries):
                report.note(example)
            report.turns[name] += 1
            if report.first_violation is None and report.violations:
                report.first_violation = time.monotonic() - start
    report.seconds = time.monotonic() - start
    _shrink(report)
    return report


def _finished(report: SearchReport, goal: float, elapsed: float, seconds: float) -> bool:
    """Say whether the time is up, or the search has a sequence that reaches the goal and a pair that violates."""
    subject = report.subject
    if elapsed >= seconds:
        return True
    far = report.sequence is not None and report.sequence.distance >= goal * subject.budget
    return far and report.pair is not None and report.pair.violates(subject)


def _shrink(report: SearchReport) -> None:
    subject = report.subject
    if report.pair is not None and report.pair.violates(subject):
        report.small_pair = shrink_pair(subject, report.pair)
    if report.step is not None and report.step.violates(subject):
        report.small_step = shrink_step(subject, report.step)
    if report.sequence is not None and report.sequence.violates(subject):
        report.small_sequence = shrink_sequence(subject, report.sequence)
