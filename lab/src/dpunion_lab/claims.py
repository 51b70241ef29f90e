"""The sentences that the papers rest on, each tested: by the papers' own tables, and by the runs here."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dpunion.report.tables import Cell, Table
from dpunion_lab.measuring import Measured
from dpunion_lab.rows import Row
from dpunion_lab.texts import MeasuredTexts

TIE = 0.01
"""Two sizes that lie closer together than this are not told apart."""


class Verdict(enum.Enum):
    """What became of a claim."""

    HOLDS = "holds"
    IN_PART = "holds in part"
    FAILS = "does not hold"
    UNTESTED = "not tested"


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict and the figures behind it."""

    verdict: Verdict
    figures: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence in our words, where the papers say it, and what their tables and our runs say about it."""

    sentence: str
    where: str
    by_papers: Finding
    by_runs: Finding


@dataclass(frozen=True, slots=True)
class Study:
    """Everything that was measured. texts: None where n-grams were left out."""

    words: Measured
    limits: tuple[int, ...]
    epsilons: tuple[float, ...]
    margins: tuple[float, ...]
    texts: MeasuredTexts | None

    def over_limits(self, row: Row) -> list[float]:
        """Return the sizes of an algorithm by items per user."""
        return [self.words.size(row.setting(limit)) for limit in self.limits]

    def over_epsilons(self, row: Row) -> list[float]:
        """Return the sizes of an algorithm by epsilon."""
        return [self.words.size(row.with_epsilon(epsilon)) for epsilon in self.epsilons]

    def over_margins(self, row: Row) -> list[float]:
        """Return the sizes of a policy by cutoff margin."""
        return [self.words.size(row.with_margin(margin)) for margin in self.margins]


NOTHING_PRINTED = Finding(Verdict.UNTESTED, "no number printed")
NO_TEXTS = Finding(Verdict.UNTESTED, "texts were left out")

MakeClaim = Callable[[Study], Claim]


def judge(cases: Iterable[bool], figures: str) -> Finding:
    """Return whether a claim holds in all, some or none of the cases, with how many and the figures."""
    found = list(cases)
    if not found:
        return Finding(Verdict.UNTESTED, "no case was run")
    right = sum(found)
    verdict = Verdict.HOLDS if right == len(found) else Verdict.IN_PART if right else Verdict.FAILS
    return Finding(verdict, f"{right} of {len(found)} cases; {figures}")


def is_ahead(first: float, second: float) -> bool:
    """Say whether one size is above another, or so close that they are not told apart."""
    return first >= second * (1.0 - TIE)


def divide(firsts: Iterable[float], seconds: Iterable[float]) -> list[float]:
    """Return quotients, without those by nothing."""
    return [first / second for first, second in zip(firsts, seconds, strict=True) if second]


def span(values: Sequence[float], form: str = "{:.2f}") -> str:
    """Write the smallest and the largest of some values."""
    if not values:
        return "none"
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def claims_table(claims: Sequence[Claim]) -> Table:
    """Return all claims with both verdicts."""
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            f"{number}. {claim.sentence}",
            claim.where,
            claim.by_papers.verdict.value,
            claim.by_papers.figures,
            claim.by_runs.verdict.value,
            claim.by_runs.figures,
        )
        for number, claim in enumerate(claims, 1)
    )
    columns = ("claim", "said in", "by the papers' own tables", "figures printed", "by our runs", "figures here")
    return Table("Claims", columns, rows, claims_note(claims))


def claims_note(claims: Sequence[Claim]) -> str:
    """Return how many claims came to which verdict, and how they are judged."""
    found = [claim.by_runs.verdict for claim in claims]
    counts = ", ".join(f"{verdict.value}: {found.count(verdict)}" for verdict in Verdict if verdict in found)
    return (
        f"By our runs, of {len(claims)} claims, {counts}. A claim holds when it is true in every case that was "
        f"run, and in part when in some; sizes within {100 * TIE:.0f} % of each other count as "
        "equal, so neither is behind."
    )


def claims_lines(claims: Sequence[Claim]) -> list[tuple[str, str, str]]:
    """Return each claim in three lines: the sentence, the verdict of the papers' own tables, and that of our runs."""
    return [
        (
            f"{number}. {claim.sentence} [{claim.where}].",
            f"By the papers' own tables: {_told(claim.by_papers)}.",
            f"By our runs: {_told(claim.by_runs)}.",
        )
        for number, claim in enumerate(claims, 1)
    ]


def claims_text(claims: Sequence[Claim]) -> str:
    """Return the claims for a terminal, one paragraph each."""
    lines = ["\n   ".join(each) for each in claims_lines(claims)]
    return "\n".join(["Claims", "------", *lines, claims_note(claims)])


def _told(finding: Finding) -> str:
    return f"{finding.verdict.value} ({finding.figures})" if finding.figures else finding.verdict.value
