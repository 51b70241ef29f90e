"""Claims about words: sizes, epsilon, the cutoff margin, passes, k-anonymity and the data."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpunion_lab.claims import NOTHING_PRINTED, Claim, Finding, MakeClaim, Study, Verdict, divide, is_ahead, judge, span
from dpunion_lab.data import COVERAGE
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

POLICIES = (LAPLACE, GAUSSIAN, POLICY_L1)
PAIRS = ((LAPLACE, WEIGHTED[0]), (GAUSSIAN, WEIGHTED[1]))
PRINTED_ROWS = tuple(row for row in ROWS if row.printed)
FLAT = 0.99
"""The rise over alpha has ended where this part of the largest size is reached."""


def _printed(row: Row) -> list[float]:
    return list(published_tables()["icml-main-1"].rows[row.printed].values.values())


def claim_ratio(study: Study) -> Claim:
    """Return whether policies release at least twice as much as Weighted algorithms with the same noise."""

    def find(sizes: dict[str, list[float]]) -> Finding:
        ratios = {policy.name: divide(sizes[policy.name], sizes[other.name]) for policy, other in PAIRS}
        best = span([value for a, b in PAIRS for value in divide([max(sizes[a.name])], [max(sizes[b.name])])])
        figures = "; ".join(f"{name} / weighted {span(values)}" for name, values in ratios.items())
        cases = [value >= 2.0 for values in ratios.values() for value in values]
        return judge(cases, f"{figures} over Δ0; best Δ0 against best Δ0 {best}")

    rows = [row for pair in PAIRS for row in pair]
    return Claim(
        "The policies release 2 to 4 times as many items as the Weighted algorithms (2 or more)",
        "ICML 5.2, JPC 6.2",
        find({row.name: _printed(row) for row in rows}),
        find({row.name: study.over_limits(row) for row in rows}),
    )


def claim_counts(study: Study) -> Claim:
    """Return whether policies release at least twice as much as Count algorithms with the same noise."""

    def find(sizes: dict[str, list[float]]) -> Finding:
        pairs = zip((LAPLACE, GAUSSIAN), COUNTS, strict=True)
        ratios = {a.name: divide(sizes[a.name], sizes[b.name]) for a, b in pairs}
        figures = "; ".join(f"{name} / count {span(values)}" for name, values in ratios.items())
        return judge([value >= 2.0 for values in ratios.values() for value in values], figures)

    rows = (LAPLACE, GAUSSIAN, *COUNTS)
    return Claim(
        "The policies release 2 to 4 times as many items as the Count algorithms (2 or more)",
        "ICML 5.2, JPC 6.2",
        find({row.name: _printed(row) for row in rows}),
        find({row.name: study.over_limits(row) for row in rows}),
    )


def claim_epsilon(study: Study) -> Claim:
    """Return whether policies are ahead from epsilon 1 on."""
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
    return Claim(
        "From ε = 1 on both policies release more than every Count and Weighted algorithm",
        "ICML 5.2, ICML supplement, JPC 6.2",
        judge([ratio > 1.0 for ratio in ratios], f"at ε = 3 alone: {span(ratios)} times the best other"),
        judge(cases, f"{span(leads)} times the best other"),
    )


def claim_equal(study: Study) -> Claim:
    """Return whether both Gaussian policies release about the same."""
    table = published_tables()["jpc-2"].rows
    first, second = table["l1-descent-l2-budget"], table["policy-gaussian"]
    printed = [first.values[column] / second.values[column] for column in first.values]
    l1, l2 = READINGS[3], READINGS[1]
    sizes = [[study.words.size(reading.setting(limit)) for limit in study.limits] for reading in (l1, l2)]
    here = divide(*sizes)
    return Claim(
        "On words the two Gaussian policies release about the same (within 5 %)",
        "JPC 6.2.1",
        judge([abs(ratio - 1.0) <= 0.05 for ratio in printed], f'row "ℓ1" / row "ℓ2" {span(printed, "{:.3f}")}'),
        judge([abs(ratio - 1.0) <= 0.05 for ratio in here], f"ℓ1 with α = 3 / ℓ2 with α = 5 {span(here, '{:.3f}')}"),
    )


def claim_passes(study: Study) -> Claim:
    """Return whether a second pass enlarges a release nowhere."""
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
                here += [
                    (ratio - 1.0, chance) for ratio in divide([study.words.size(after)], [study.words.size(before)])
                ]

    def find(found: Sequence[tuple[float, float]]) -> Finding:
        if not found:
            return Finding(Verdict.UNTESTED, "one trial does not tell")
        clear = sum(chance < 0.05 for _, chance in found)
        figures = f"gain {span([100.0 * gain for gain, _ in found], '{:+.2f} %')}; {clear} p-values below 0.05"
        return judge([gain <= 0.0 or chance >= 0.05 for gain, chance in found], figures)

    return Claim(
        "A second pass does not enlarge the release (not significantly, 5 %)",
        "ICML supplement G.1, JPC 6.2.2",
        find(printed),
        find(here),
    )


def _claim_rise(end: float, where: str) -> MakeClaim:
    def claim(study: Study) -> Claim:
        ends = {}
        for row in POLICIES:
            sizes = study.over_margins(row)
            reached = [margin for margin, size in zip(study.margins, sizes, strict=True) if size >= FLAT * max(sizes)]
            ends[row.name] = reached[0]
        figures = ", ".join(f"{name} {at:g}" for name, at in ends.items())
        return Claim(
            f"The sharp rise over α ends at {end:g} (99 % of the largest size)",
            where,
            NOTHING_PRINTED,
            judge([at == end for at in ends.values()], f"reached first at α: {figures}"),
        )

    return claim


def claim_peak(study: Study) -> Claim:
    """Return whether each policy is largest at the alpha that the journal version names."""
    said = {LAPLACE: 3.0, GAUSSIAN: 3.0, POLICY_L1: 5.0}
    cases, told = [], []
    for row, margin in said.items():
        sizes = dict(zip(study.margins, study.over_margins(row), strict=True))
        best = max(sizes, key=lambda at: sizes[at])
        if margin in sizes:
            cases.append(is_ahead(sizes[margin], sizes[best]))
            told.append(f"{row.name} {best:g} ({sizes[best]:,.0f}; {sizes[margin]:,.0f} at {margin:g})")
    icml, jpc = published_tables()["icml-main-1"].rows["policy-laplace"], published_tables()["jpc-2"].rows
    ratios = [value / icml.values[limit] for limit, value in jpc["policy-laplace"].values.items()]
    return Claim(
        "Policy Laplace and ℓ2-descent are largest at α = 3, ℓ1-descent at α = 5",
        "JPC 6.2.3",
        judge([ratio >= 1.0 for ratio in ratios], f"Policy Laplace at α = 3 / at 5: {span(ratios, '{:.3f}')}"),
        judge(cases, f"largest at α: {', '.join(told)}"),
    )


def claim_range(study: Study) -> Claim:
    """Return whether the best alpha lies between 2 and 6."""
    cases, told = [], []
    for row in POLICIES:
        sizes = dict(zip(study.margins, study.over_margins(row), strict=True))
        best = max(sizes, key=lambda at: sizes[at])
        inside = max((size for margin, size in sizes.items() if 2.0 <= margin <= 6.0), default=0.0)
        cases.append(is_ahead(inside, sizes[best]))
        told.append(f"{row.name} {best:g} ({sizes[best]:,.0f}; {inside:,.0f} between 2 and 6)")
    return Claim(
        "The best α lies between 2 and 6",
        "ICML 3.2 and 4.2, JPC 4 and 5",
        NOTHING_PRINTED,
        judge(cases, f"best α: {', '.join(told)}"),
    )


def claim_limit(study: Study) -> Claim:
    """Return whether every algorithm is largest below 300 items per user."""
    table = published_tables()["icml-main-1"]
    printed = {row.name: table.columns[_printed(row).index(max(_printed(row)))] for row in PRINTED_ROWS}
    here = {}
    for row in PRINTED_ROWS:
        sizes = study.over_limits(row)
        here[row.name] = study.limits[sizes.index(max(sizes))]

    def find(best: dict[str, int]) -> Finding:
        return judge([at < 300 for at in best.values()], ", ".join(f"{name} {at}" for name, at in best.items()))

    return Claim("The largest releases need Δ0 below 300", "ICML 5.2.1, JPC 6.2.5", find(printed), find(here))


def claim_best_limit(study: Study) -> Claim:
    """Return whether each algorithm is largest at the number of items that ICML Table 1 marks."""
    table = published_tables()["icml-main-1"]
    printed, here, told = [], [], []
    for row in PRINTED_ROWS:
        bold = int(table.rows[row.printed].bold[0])
        printed.append(table.rows[row.printed].values[str(bold)] == max(_printed(row)))
        if bold in study.limits:
            sizes = dict(zip(study.limits, study.over_limits(row), strict=True))
            best = max(sizes, key=lambda at: sizes[at])
            here.append(is_ahead(sizes[bold], sizes[best]))
            told.append(f"{row.name} {best} (marked {bold})")
    return Claim(
        "Each algorithm is largest at the Δ0 that is marked in the table",
        "ICML Table 1",
        judge(printed, "the marks are those of the largest numbers"),
        judge(here, f"largest at Δ0: {', '.join(told)}"),
    )


def claim_anonymity(study: Study) -> Claim:
    """Return whether policies release about as many items as 20-anonymity would."""
    table = published_tables()["icml-main-2"].rows
    at = COVERAGE.index(20)
    printed = [table[row.printed].values["20"] for row in (LAPLACE, GAUSSIAN)]
    settings = [row.setting(ITEMS) for row in (LAPLACE, GAUSSIAN)]
    here = [100.0 * study.words.quotients(setting)[at] for setting in settings]
    inside = [100.0 * study.words.coverage(setting)[at] for setting in settings]
    form = "{:.1f} %"
    return Claim(
        "The policies match k-anonymity with k about 20 (90 % of its size or more)",
        "ICML 5.2, JPC 6.2",
        judge([value >= 90.0 for value in printed], f"|S| / |S_20| {span(printed, form)}"),
        judge(
            [value >= 90.0 for value in here],
            f"|S| / |S_20| {span(here, form)}; but only {span(inside, form)} of S_20 is released",
        ),
    )


def claim_outgrown(study: Study) -> Claim:
    """Return whether policies outgrow the items with at least k holders at the k that the papers name."""
    said = {LAPLACE: 25, GAUSSIAN: 18}
    table = published_tables()["icml-main-2"].rows
    printed, here = {}, {}
    for row in said:
        quotients = study.words.quotients(row.setting(ITEMS))
        values = [table[row.printed].values[str(k)] for k in COVERAGE]
        printed[row.name] = next((k for k, value in zip(COVERAGE, values, strict=True) if value > 100.0), 0)
        here[row.name] = next((k for k, value in zip(COVERAGE, quotients, strict=True) if value > 1.0), 0)

    def find(first: dict[str, int]) -> Finding:
        told = ", ".join(f"{name} {k or 'none tried'}" for name, k in first.items())
        return judge([first[row.name] == k for row, k in said.items()], f"smallest k that is outgrown: {told}")

    return Claim(
        "Policy Laplace outgrows the items of at least 25 users, Policy Gaussian those of 18",
        "ICML 5.2, JPC 6.2",
        find(printed),
        find(here),
    )


def claim_spread(study: Study) -> Claim:
    """Return whether deviations over trials are below 1 % of the size."""
    table = published_tables()["icml-main-1"].rows
    printed = [100.0 * row.sd[column] / row.values[column] for row in table.values() for column in row.values]
    settings = [row.setting(limit) for row in PRINTED_ROWS for limit in study.limits]
    here = [100.0 * study.words.spread(one) / max(1.0, study.words.size(one)) for one in settings]
    single = len(study.words.trials[settings[0]]) < 2
    form = "{:.2f} %"
    return Claim(
        "Error bars are negligible (below 1 % of the size)",
        "ICML Figure 1",
        judge([value < 1.0 for value in printed], f"deviations {span(printed, form)} of the size"),
        Finding(Verdict.UNTESTED, "one trial does not tell")
        if single
        else judge([value < 1.0 for value in here], f"deviations {span(here, form)} of the size"),
    )


def claim_zipf(study: Study) -> Claim:
    """Return whether holders over ranks are a straight line with an exponent of about 1."""
    held = published_tables()["icml-main-2"].rows["held"].values
    tail = math.log(25 / 5) / math.log(held["5"] / held["25"])
    holders = np.sort(study.words.data.holders)[::-1]
    parts = [(low, 10 * low) for low in (10, 100, 1_000) if 10 * low <= len(holders)]
    here = [math.log(holders[low - 1] / holders[high - 1]) / math.log(10.0) for low, high in parts]
    told = ", ".join(f"{value:.2f}" for value in here)
    return Claim(
        "Holders over ranks are a straight line with exponent about 1 (0.75 to 1.25 in every part)",
        "ICML supplement Figure 4, JPC Figure 4",
        judge(
            [0.75 <= tail <= 1.25],
            f"{tail:.2f} from rank {held['25']:,} to rank {held['5']:,}, by the counts of ICML Table 2",
        ),
        judge(
            [0.75 <= value <= 1.25 for value in here], f"{told} from rank to ten times the rank, from 10 on (fitted)"
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
