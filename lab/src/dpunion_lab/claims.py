"""The main claims of the papers, each tested twice: by the papers' own tables and by the runs here."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dpunion.report.tables import Cell, Table
from dpunion_lab.data import COVERAGE
from dpunion_lab.measuring import Measured
from dpunion_lab.published import published_tables
from dpunion_lab.rows import (
    COUNTS,
    GAUSSIAN,
    ITEMS,
    LAPLACE,
    PASSES,
    POLICY_L1,
    READINGS,
    ROWS,
    WEIGHTED,
    Row,
    passes_setting,
)
from dpunion_lab.texts import MeasuredTexts

TIE = 0.01
"""Sizes that differ by less than this part count as equal."""


class Verdict(enum.Enum):
    """The result of testing a claim."""

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
    """A claim in our words, where the papers make it, and what their tables and our runs say about it."""

    sentence: str
    where: str
    by_papers: Finding
    by_runs: Finding


@dataclass(frozen=True, slots=True)
class Study:
    """Everything that was measured. texts: None when the study has no n-grams."""

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
ONE_TRIAL = Finding(Verdict.UNTESTED, "one trial does not tell")

MakeClaim = Callable[[Study], Claim]


def judge(cases: Iterable[bool], figures: str) -> Finding:
    """Judge a claim by its cases: it holds in all, some or none of them. figures: the numbers behind that."""
    found = list(cases)
    if not found:
        return Finding(Verdict.UNTESTED, "no case was run")
    right = sum(found)
    verdict = Verdict.HOLDS if right == len(found) else Verdict.IN_PART if right else Verdict.FAILS
    return Finding(verdict, f"{right} of {len(found)} cases; {figures}")


def is_ahead(first: float, second: float) -> bool:
    """Say whether the first size is larger than the second one, or about equal to it."""
    return first >= second * (1.0 - TIE)


def divide(firsts: Iterable[float], seconds: Iterable[float]) -> list[float]:
    """Return the quotients, without those that divide by 0."""
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
    columns = ("claim", "stated in", "by the papers' own tables", "figures printed", "by our runs", "figures here")
    return Table("Claims", columns, rows, claims_note(claims))


def claims_note(claims: Sequence[Claim]) -> str:
    """Return how many claims got each verdict, and how claims are judged."""
    found = [claim.by_runs.verdict for claim in claims]
    counts = ", ".join(f"{verdict.value}: {found.count(verdict)}" for verdict in Verdict if verdict in found)
    return (
        f"By our runs, of {len(claims)} claims, {counts}. A claim holds when it is true in every case that was "
        f"run, and in part when in some; sizes within {100 * TIE:.0f} % of each other count as "
        "equal, so neither is behind."
    )


def claims_lines(claims: Sequence[Claim]) -> list[tuple[str, str, str]]:
    """Return three lines for each claim: the sentence, the verdict of the papers' tables, the verdict of our runs."""
    return [
        (
            f"{number}. {claim.sentence} [{claim.where}].",
            f"By the papers' own tables: {_write_finding(claim.by_papers)}.",
            f"By our runs: {_write_finding(claim.by_runs)}.",
        )
        for number, claim in enumerate(claims, 1)
    ]


def claims_text(claims: Sequence[Claim]) -> str:
    """Return the claims for a terminal, one paragraph each."""
    lines = ["\n   ".join(each) for each in claims_lines(claims)]
    return "\n".join(["Claims", "------", *lines, claims_note(claims)])


def _write_finding(finding: Finding) -> str:
    return f"{finding.verdict.value} ({finding.figures})" if finding.figures else finding.verdict.value


# --- claims about words -----------------------------------------------------------------------------------------

POLICIES = (LAPLACE, GAUSSIAN, POLICY_L1)
PRINTED_ROWS = tuple(row for row in ROWS if row.printed)
FLAT = 0.99
"""The rise over alpha has ended where a size reaches this part of the largest one."""

Findings = tuple[Finding, Finding]
"""What the papers' own tables show, and what the runs here show."""


def states(sentence: str, where: str) -> Callable[[Callable[[Study], Findings]], MakeClaim]:
    """Turn a function that judges a study into a claim with this sentence, which the papers make at `where`."""

    def make(find: Callable[[Study], Findings]) -> MakeClaim:
        @functools.wraps(find)
        def claim(study: Study) -> Claim:
            return Claim(sentence, where, *find(study))

        return claim

    return make


def _printed(row: Row) -> list[float]:
    return list(published_tables()["icml-main-1"].rows[row.printed].values.values())


def _best(places: Sequence[float], sizes: Sequence[float]) -> tuple[dict[float, float], float]:
    """Return the sizes by place, and the place of the largest one."""
    found = dict(zip(places, sizes, strict=True))
    return found, max(found, key=lambda at: found[at])


def _ratios_to(others: Sequence[Row], name: str, sizes: dict[str, list[float]]) -> tuple[list[bool], str]:
    """Compare both policies with other rows: whether each ratio is at least 2, and the ratios in words."""
    pairs = zip((LAPLACE, GAUSSIAN), others, strict=True)
    ratios = {policy.name: divide(sizes[policy.name], sizes[other.name]) for policy, other in pairs}
    figures = "; ".join(f"{policy} / {name} {span(values)}" for policy, values in ratios.items())
    return [value >= 2.0 for values in ratios.values() for value in values], figures


@states("The policies release 2 to 4 times as many items as the Weighted algorithms (2 or more)", "ICML 5.2, JPC 6.2")
def claim_ratio(study: Study) -> Findings:
    """Compare policies with the Weighted algorithms that use the same noise."""
    pairs = tuple(zip((LAPLACE, GAUSSIAN), WEIGHTED, strict=True))

    def find(sizes: dict[str, list[float]]) -> Finding:
        cases, figures = _ratios_to(WEIGHTED, "weighted", sizes)
        best = span([value for a, b in pairs for value in divide([max(sizes[a.name])], [max(sizes[b.name])])])
        return judge(cases, f"{figures} over Δ0; best Δ0 against best Δ0 {best}")

    rows = [row for pair in pairs for row in pair]
    return find({row.name: _printed(row) for row in rows}), find({row.name: study.over_limits(row) for row in rows})


@states("The policies release 2 to 4 times as many items as the Count algorithms (2 or more)", "ICML 5.2, JPC 6.2")
def claim_counts(study: Study) -> Findings:
    """Compare policies with the Count algorithms that use the same noise."""
    rows = (LAPLACE, GAUSSIAN, *COUNTS)
    printed = _ratios_to(COUNTS, "count", {row.name: _printed(row) for row in rows})
    here = _ratios_to(COUNTS, "count", {row.name: study.over_limits(row) for row in rows})
    return judge(*printed), judge(*here)


@states(
    "From ε = 1 on both policies release more than every Count and Weighted algorithm",
    "ICML 5.2, ICML supplement, JPC 6.2",
)
def claim_epsilon(study: Study) -> Findings:
    """Compare policies with the best other algorithm at each epsilon from 1 on."""
    others = (*COUNTS, *WEIGHTED)
    kept = [at for at, epsilon in enumerate(study.epsilons) if epsilon >= 1.0]
    ours = {row.name: study.over_epsilons(row) for row in (LAPLACE, GAUSSIAN, *others)}
    cases, leads = [], []
    for at in kept:
        best = max(ours[row.name][at] for row in others)
        leads += divide([ours[row.name][at] for row in (LAPLACE, GAUSSIAN)], [best, best])
        cases += [ours[row.name][at] > best for row in (LAPLACE, GAUSSIAN)]
    table = published_tables()["icml-main-1"].rows
    best = max(table[row.printed].values["100"] for row in others)
    ratios = [table[row.printed].values["100"] / best for row in (LAPLACE, GAUSSIAN)]
    return (
        judge([ratio > 1.0 for ratio in ratios], f"at ε = 3 alone: {span(ratios)} times the best other"),
        judge(cases, f"{span(leads)} times the best other"),
    )


@states("On words the two Gaussian policies release about the same (within 5 %)", "JPC 6.2.1")
def claim_equal(study: Study) -> Findings:
    """Compare both Gaussian policies, each with the alpha at which the journal version prints it."""
    table = published_tables()["jpc-2"].rows
    first, second = table["l1-descent-l2-budget"], table["policy-gaussian"]
    printed = [first.values[column] / second.values[column] for column in first.values]
    l1, l2 = READINGS[3], READINGS[1]
    sizes = [[study.words.size(reading.setting(limit)) for limit in study.limits] for reading in (l1, l2)]
    here = divide(*sizes)
    return (
        judge([abs(ratio - 1.0) <= 0.05 for ratio in printed], f'row "ℓ1" / row "ℓ2" {span(printed, "{:.3f}")}'),
        judge([abs(ratio - 1.0) <= 0.05 for ratio in here], f"ℓ1 with α = 3 / ℓ2 with α = 5 {span(here, '{:.3f}')}"),
    )


@states("A second pass does not enlarge the release (not significantly, 5 %)", "ICML supplement G.1, JPC 6.2.2")
def claim_passes(study: Study) -> Findings:
    """Compare two passes with one, by the gain and its p-value."""
    table = published_tables()["icml-supplement-2"].rows
    printed: list[tuple[float, float]] = []
    here: list[tuple[float, float]] = []
    for policy in ("policy-laplace", "policy-gaussian"):
        one, two = (name for name in PASSES if name.startswith(policy))
        chances = table[f"{policy}, p-value"]
        gains = {column: table[two].values[column] / value - 1.0 for column, value in table[one].values.items()}
        printed += [(gain, chances.values[column]) for column, gain in gains.items() if chances.usable(column)]
        for limit in study.limits:
            before, after = passes_setting(one, limit), passes_setting(two, limit)
            chance = study.words.p_value(before, after)
            if chance is not None:
                ratios = divide([study.words.size(after)], [study.words.size(before)])
                here += [(ratio - 1.0, chance) for ratio in ratios]

    def find(found: Sequence[tuple[float, float]]) -> Finding:
        if not found:
            return ONE_TRIAL
        clear = sum(chance < 0.05 for _, chance in found)
        figures = f"gain {span([100.0 * gain for gain, _ in found], '{:+.2f} %')}; {clear} p-values below 0.05"
        return judge([gain <= 0.0 or chance >= 0.05 for gain, chance in found], figures)

    return find(printed), find(here)


def _claim_rise(end: float, where: str) -> MakeClaim:
    @states(f"The sharp rise over α ends at {end:g} (99 % of the largest size)", where)
    def claim_rise(study: Study) -> Findings:
        ends = {}
        for row in POLICIES:
            sizes = study.over_margins(row)
            reached = [margin for margin, size in zip(study.margins, sizes, strict=True) if size >= FLAT * max(sizes)]
            ends[row.name] = reached[0]
        figures = ", ".join(f"{name} {at:g}" for name, at in ends.items())
        return NOTHING_PRINTED, judge([at == end for at in ends.values()], f"reached first at α: {figures}")

    return claim_rise


@states("Policy Laplace and ℓ2-descent are largest at α = 3, ℓ1-descent at α = 5", "JPC 6.2.3")
def claim_peak(study: Study) -> Findings:
    """Compare the size at the alpha that the journal version names with the largest size."""
    expected = {LAPLACE: 3.0, GAUSSIAN: 3.0, POLICY_L1: 5.0}
    cases, figures = [], []
    for row, margin in expected.items():
        sizes, best = _best(study.margins, study.over_margins(row))
        if margin in sizes:
            cases.append(is_ahead(sizes[margin], sizes[best]))
            figures.append(f"{row.name} {best:g} ({sizes[best]:,.0f}; {sizes[margin]:,.0f} at {margin:g})")
    icml, jpc = published_tables()["icml-main-1"].rows["policy-laplace"], published_tables()["jpc-2"].rows
    ratios = [value / icml.values[limit] for limit, value in jpc["policy-laplace"].values.items()]
    return (
        judge([ratio >= 1.0 for ratio in ratios], f"Policy Laplace at α = 3 / at 5: {span(ratios, '{:.3f}')}"),
        judge(cases, f"largest at α: {', '.join(figures)}"),
    )


@states("The best α lies between 2 and 6", "ICML 3.2 and 4.2, JPC 4 and 5")
def claim_range(study: Study) -> Findings:
    """Compare the largest size with alpha between 2 and 6 with the largest of all."""
    cases, figures = [], []
    for row in POLICIES:
        sizes, best = _best(study.margins, study.over_margins(row))
        inside = max((size for margin, size in sizes.items() if 2.0 <= margin <= 6.0), default=0.0)
        cases.append(is_ahead(inside, sizes[best]))
        figures.append(f"{row.name} {best:g} ({sizes[best]:,.0f}; {inside:,.0f} between 2 and 6)")
    return NOTHING_PRINTED, judge(cases, f"best α: {', '.join(figures)}")


@states("The largest releases need Δ0 below 300", "ICML 5.2.1, JPC 6.2.5")
def claim_limit(study: Study) -> Findings:
    """Find the number of items per user at which each algorithm releases most."""

    def find(limits: Sequence[int], sizes: Callable[[Row], list[float]]) -> Finding:
        best = {row.name: _best(limits, sizes(row))[1] for row in PRINTED_ROWS}
        return judge([at < 300 for at in best.values()], ", ".join(f"{name} {at}" for name, at in best.items()))

    return find(published_tables()["icml-main-1"].columns, _printed), find(study.limits, study.over_limits)


@states("Each algorithm is largest at the Δ0 that is marked in the table", "ICML Table 1")
def claim_best_limit(study: Study) -> Findings:
    """Compare the size at the marked number of items per user with the largest size."""
    table = published_tables()["icml-main-1"]
    printed, here, figures = [], [], []
    for row in PRINTED_ROWS:
        bold = int(table.rows[row.printed].bold[0])
        printed.append(table.rows[row.printed].values[str(bold)] == max(_printed(row)))
        if bold in study.limits:
            sizes, best = _best(study.limits, study.over_limits(row))
            here.append(is_ahead(sizes[bold], sizes[best]))
            figures.append(f"{row.name} {best} (marked {bold})")
    return (
        judge(printed, "the marks are those of the largest numbers"),
        judge(here, f"largest at Δ0: {', '.join(figures)}"),
    )


@states("The policies match k-anonymity with k about 20 (90 % of its size or more)", "ICML 5.2, JPC 6.2")
def claim_anonymity(study: Study) -> Findings:
    """Compare the sizes of policies with the number of items that at least 20 users have."""
    table = published_tables()["icml-main-2"].rows
    at, form = COVERAGE.index(20), "{:.1f} %"
    printed = [table[row.printed].values["20"] for row in (LAPLACE, GAUSSIAN)]
    settings = [row.setting(ITEMS) for row in (LAPLACE, GAUSSIAN)]
    here = [100.0 * study.words.quotients(setting)[at] for setting in settings]
    inside = [100.0 * study.words.coverage(setting)[at] for setting in settings]
    shown = f"|S| / |S_20| {span(here, form)}; but only {span(inside, form)} of S_20 is released"
    return (
        judge([value >= 90.0 for value in printed], f"|S| / |S_20| {span(printed, form)}"),
        judge([value >= 90.0 for value in here], shown),
    )


@states(
    "Policy Laplace outgrows the items of at least 25 users, Policy Gaussian those of 18",
    "ICML 5.2, JPC 6.2",
)
def claim_outgrown(study: Study) -> Findings:
    """Find the smallest k for which a policy releases more items than at least k users have."""
    expected = {LAPLACE: 25, GAUSSIAN: 18}
    table = published_tables()["icml-main-2"].rows

    def find(quotients: Callable[[Row], Sequence[float]]) -> Finding:
        pairs = {row: zip(COVERAGE, quotients(row), strict=True) for row in expected}
        first = {row: next((k for k, value in some if value > 1.0), 0) for row, some in pairs.items()}
        figures = ", ".join(f"{row.name} {k or 'none tried'}" for row, k in first.items())
        return judge([first[row] == k for row, k in expected.items()], f"smallest k that is outgrown: {figures}")

    return (
        find(lambda row: [table[row.printed].values[str(k)] / 100.0 for k in COVERAGE]),
        find(lambda row: study.words.quotients(row.setting(ITEMS))),
    )


@states("Error bars are negligible (below 1 % of the size)", "ICML Figure 1")
def claim_spread(study: Study) -> Findings:
    """Compare standard deviations over trials with the sizes."""

    def find(parts: Sequence[float]) -> Finding:
        return judge([value < 1.0 for value in parts], f"deviations {span(parts, '{:.2f} %')} of the size")

    table = published_tables()["icml-main-1"].rows
    printed = [100.0 * row.sd[column] / row.values[column] for row in table.values() for column in row.values]
    settings = [row.setting(limit) for row in PRINTED_ROWS for limit in study.limits]
    here = [100.0 * study.words.spread(one) / max(1.0, study.words.size(one)) for one in settings]
    return find(printed), ONE_TRIAL if len(study.words.trials[settings[0]]) < 2 else find(here)


@states(
    "Holders over ranks are a straight line with exponent about 1 (0.75 to 1.25 in every part)",
    "ICML supplement Figure 4, JPC Figure 4",
)
def claim_zipf(study: Study) -> Findings:
    """Measure the slope of holders over ranks between each rank and ten times that rank."""
    held = published_tables()["icml-main-2"].rows["held"].values
    tail = math.log(25 / 5) / math.log(held["5"] / held["25"])
    holders = np.sort(study.words.data.holders)[::-1]
    parts = [(low, 10 * low) for low in (10, 100, 1_000) if 10 * low <= len(holders)]
    here = [math.log(holders[low - 1] / holders[high - 1]) / math.log(10.0) for low, high in parts]
    figures = ", ".join(f"{value:.2f}" for value in here)
    source = f"{tail:.2f} from rank {held['25']:,} to rank {held['5']:,}, by the counts of ICML Table 2"
    return (
        judge([0.75 <= tail <= 1.25], source),
        judge(
            [0.75 <= value <= 1.25 for value in here], f"{figures} from rank to ten times the rank, from 10 on (fitted)"
        ),
    )


WORD_CLAIMS: tuple[MakeClaim, ...] = (
    claim_ratio,
    claim_counts,
    claim_epsilon,
    claim_equal,
    claim_passes,
    _claim_rise(2.0, "ICML supplement Figure 5, caption"),
    _claim_rise(3.0, "JPC 6.2.3"),
    _claim_rise(4.0, "ICML supplement G.2"),
    claim_peak,
    claim_range,
    claim_limit,
    claim_best_limit,
    claim_anonymity,
    claim_outgrown,
    claim_spread,
    claim_zipf,
)
