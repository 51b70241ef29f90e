"""The verdict of an audit of releases, in words that can be quoted and as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpunion_lab.audit.empirical import AlgorithmResult, AuditReport
from dpunion_lab.audit.exact import ExactReport
from dpunion_lab.audit.mutants import MutantResult
from dpunion_lab.audit.reach import ReachReport


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """All parts of an audit of releases; parts that did not run are None or empty."""

    odds: AuditReport
    reach: ReachReport | None = None
    exact: ExactReport | None = None
    mutants: tuple[MutantResult, ...] = ()

    @property
    def problems(self) -> list[str]:
        """Return a sentence for each claim that fails and each known mistake that was not caught."""
        wrong = [f"{one.label} does not keep its claim: outcomes are too telling" for one in self.odds.violations]
        if self.reach is not None:
            wrong += [f"one person moves the step {name} of counting too far" for name in self.reach.violations]
        if self.exact is not None:
            wrong += [f"{name} has an exact delta above the claim" for name in self.exact.violations]
        return wrong + [
            f"the known mistake '{one.mutant.name}' was not noticed" for one in self.mutants if not one.caught
        ]

    def text(self) -> str:
        """Return the verdict in words: what ran, what it found, and how much that says."""
        budget, trials = self.odds.results[0].budget, self.odds.trials
        found = [
            f"{len(self.odds.results)} {'algorithm' if len(self.odds.results) == 1 else 'algorithms'} made "
            f"{2 * trials * self.odds.pairs:,} releases from {self.odds.pairs} pairs of databases that differ by one "
            f"person, with a claim of epsilon {budget.epsilon:g} and delta {budget.delta:g}. " + self._odds_in_words()
        ]
        if self.reach is not None:
            found.append(f"{sum(self.reach.tried.values()):,} people were tried on the steps of counting.")
        if self.exact is not None:
            largest = max(max(parts) for parts in self.exact.parts.values())
            found.append(
                f"On {self.exact.tried:,} tiny databases, without sampling, the exact delta is at most {largest:.5f} "
                "of the claim."
            )
        if self.mutants:
            caught = sum(one.caught for one in self.mutants)
            found.append(f"{caught} of {len(self.mutants)} programs with a known mistake were caught.")
        problems = self.problems
        if problems:
            return "\n".join([f"Verdict: FLAWED: {'; '.join(problems)}.", *found])
        return "\n".join(["Verdict: nothing was found.", *found, "Finding nothing is evidence, and no proof."])

    def _odds_in_words(self) -> str:
        """Return what the frequencies show, and what they could have shown, in words."""
        worst = max(one.worst_epsilon.epsilon_bound for one in self.odds.results)
        could = min(one.worst_epsilon.detectable_epsilon for one in self.odds.results)
        delta = max(one.worst_delta.detectable_delta for one in self.odds.results)
        return (
            f"Their frequencies show an epsilon of at least {worst:.3f}; a release that used up its budget would have "
            f"shown {could:.3f}, and a delta from {delta:.5f} on would have been found. A false alarm has a chance of "
            f"at most {self.odds.error:g}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all results as plain values, for files and other programs."""
        values: dict[str, Any] = {
            "holds": not self.problems,
            "problems": self.problems,
            "verdict": self.text(),
            "trials": self.odds.trials,
            "pairs": self.odds.pairs,
            "error": self.odds.error,
            "algorithms": [_result(one) for one in self.odds.results],
        }
        if self.reach is not None:
            steps = {
                name: {"squared": one.squared, "too_far": one.is_too_far} for name, one in self.reach.furthest.items()
            }
            values["reach"] = {"steps": steps, "tried": self.reach.tried, "seed": self.reach.seed}
        if self.exact is not None:
            values["exact"] = {
                "epsilon": self.exact.epsilon,
                "databases": self.exact.tried,
                "parts_of_claim": {
                    name: {f"{delta:g}": part for delta, part in zip(self.exact.deltas, parts, strict=True)}
                    for name, parts in self.exact.parts.items()
                },
            }
        if self.mutants:
            values["mutants"] = [
                {"name": one.mutant.name, "caught": one.caught, "noticed_by": one.evidence} for one in self.mutants
            ]
        return values


def _result(one: AlgorithmResult) -> dict[str, Any]:
    return {
        "algorithm": one.label,
        "epsilon": {"claim": one.budget.epsilon, "at_least": one.worst_epsilon.epsilon_bound},
        "delta": {"claim": one.budget.delta, "at_least": one.worst_delta.delta_bound},
        "could_show": {"epsilon": one.worst_epsilon.detectable_epsilon, "delta": one.worst_delta.detectable_delta},
        "holds": not one.violated,
    }
