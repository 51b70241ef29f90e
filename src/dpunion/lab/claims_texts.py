"""Claims about bigrams, trigrams and unions of lengths."""

from __future__ import annotations

from collections.abc import Sequence

from dpunion.lab.claims import (
    NO_TEXTS,
    NOTHING_PRINTED,
    Claim,
    Finding,
    MakeClaim,
    Study,
    divide,
    is_ahead,
    judge,
    span,
)
from dpunion.lab.rows import L1, ROWS
from dpunion.lab.texts import LENGTHS, OVER_EPSILON, PAPER_NAMES, MeasuredTexts

KINDS = ("count", "weighted", "policy")
GAUSSIANS = ("policy-gaussian", L1)
UNIONS = ("1-2", "1-3")
FIRST_EPSILON = 2.0

Cases = list[tuple[float, float]]
"""Pairs of sizes: what should be ahead, and what should be behind."""


def _tested(sentence: str, where: str, finding: Finding) -> Claim:
    return Claim(sentence, where, NOTHING_PRINTED, finding)


def _ahead(cases: Cases, what: str) -> Finding:
    known = [(first, second) for first, second in cases if first or second]
    ratios = divide(*zip(*known, strict=True)) if known else []
    figures = f"{what} {span(ratios)}" if ratios else "nothing was released"
    return judge([is_ahead(first, second) for first, second in known], figures)


def _by_noise(texts: MeasuredTexts, lengths: str) -> Cases:
    cases: Cases = []
    for kind in KINDS:
        names = f"{kind}-gaussian", f"{kind}-laplace"
        cases += zip(*(texts.over_limits(lengths, name) for name in names), strict=True)
        if lengths in OVER_EPSILON:
            cases += zip(*(texts.over_epsilons(lengths, name) for name in names), strict=True)
    return cases


def _claim_noise(lengths: Sequence[str], where: str) -> MakeClaim:
    def claim(study: Study) -> Claim:
        texts = study.texts
        cases = [] if texts is None else [case for one in lengths for case in _by_noise(texts, one)]
        sentence = f"{_called(lengths)}: Gaussian noise is ahead of Laplace noise at every Δ0 and ε"
        return _tested(sentence, where, NO_TEXTS if texts is None else _ahead(cases, "Gaussian / Laplace"))

    return claim


def _claim_descent(lengths: Sequence[str], where: str) -> MakeClaim:
    def claim(study: Study) -> Claim:
        texts = study.texts
        cases: Cases = []
        if texts is not None:
            for one in lengths:
                cases += zip(texts.over_limits(one, L1), texts.over_limits(one, "policy-gaussian"), strict=True)
        sentence = f"{_called(lengths)}: ℓ1-descent (NOT PRIVATE) is ahead of ℓ2-descent"
        return _tested(sentence, where, NO_TEXTS if texts is None else _ahead(cases, "ℓ1 / ℓ2"))

    return claim


def _claim_epsilon(lengths: str) -> MakeClaim:
    def claim(study: Study) -> Claim:
        texts = study.texts
        sentence = (
            f"{_called([lengths])}: from ε = 2 on both Gaussian policies release more than Count and Weighted Gaussian"
        )
        if texts is None:
            return _tested(sentence, "JPC 6.2.4", NO_TEXTS)
        cases: Cases = []
        for at, epsilon in enumerate(texts.epsilons):
            if epsilon >= FIRST_EPSILON:
                best = max(texts.over_epsilons(lengths, name)[at] for name in ("count-gaussian", "weighted-gaussian"))
                cases += [(texts.over_epsilons(lengths, name)[at], best) for name in GAUSSIANS]
        return _tested(sentence, "JPC 6.2.4", _ahead(cases, "policy / best of the two"))

    return claim


def claim_fewer(study: Study) -> Claim:
    """Return whether fewer trigrams than bigrams are released, by every algorithm and with every limit."""
    sentence, texts = "Fewer trigrams than bigrams are released", study.texts
    if texts is None:
        return _tested(sentence, "JPC 6.2.1", NO_TEXTS)
    cases: Cases = []
    for name in PAPER_NAMES:
        cases += zip(texts.over_limits("2", name), texts.over_limits("3", name), strict=True)
    return _tested(sentence, "JPC 6.2.1", _ahead(cases, "bigrams / trigrams"))


def claim_trigrams(study: Study) -> Claim:
    """Return whether l1-descent and Weighted Gaussian are the two best for trigrams."""
    sentence = "Trigrams: ℓ1-descent (NOT PRIVATE) and Weighted Gaussian are the two best"
    texts = study.texts
    if texts is None:
        return _tested(sentence, "JPC 6.2.1", NO_TEXTS)
    pair = (L1, "weighted-gaussian")
    cases: Cases = []
    for at in range(len(texts.limits)):
        sizes = {name: texts.over_limits("3", name)[at] for name in PAPER_NAMES}
        rest = max(size for name, size in sizes.items() if name not in pair)
        cases += [(sizes[name], rest) for name in pair]
    return _tested(sentence, "JPC 6.2.1", _ahead(cases, "each of them / best of the others"))


def _claim_winner(lengths: Sequence[str], sentence: str, where: str, *, words: bool) -> MakeClaim:
    def claim(study: Study) -> Claim:
        texts = study.texts
        if texts is None:
            return _tested(sentence, where, NO_TEXTS)
        tables = [{name: texts.over_limits(one, name) for name in PAPER_NAMES} for one in lengths]
        tables += [
            {name: texts.over_epsilons(one, name) for name in PAPER_NAMES} for one in lengths if one in OVER_EPSILON
        ]
        if words:
            chosen = [row for row in ROWS if row.name in PAPER_NAMES]
            tables += [{row.name: study.over_limits(row) for row in chosen}]
            tables += [{row.name: study.over_epsilons(row) for row in chosen}]
        cases: Cases = []
        for sizes in tables:
            for at, size in enumerate(sizes[L1]):
                cases.append((size, max(values[at] for name, values in sizes.items() if name != L1)))
        return _tested(sentence, where, _ahead(cases, "ℓ1 / best of the other six"))

    return claim


def _called(lengths: Sequence[str]) -> str:
    names = {"1-2": "unions N = 2", "1-3": "N = 3"}
    text = " and ".join(names.get(one, LENGTHS[one]) for one in lengths)
    return text[0].upper() + text[1:]


TEXT_CLAIMS: tuple[MakeClaim, ...] = (
    _claim_noise(("2",), "JPC 6.2.1"),
    _claim_descent(("2",), "JPC 6.2.1"),
    _claim_epsilon("2"),
    claim_fewer,
    _claim_epsilon("3"),
    claim_trigrams,
    _claim_noise(UNIONS, "JPC 6.2.1"),
    _claim_winner(UNIONS, "Unions N = 2 and 3: ℓ1-descent (NOT PRIVATE) is ahead of all", "JPC 6.2.1", words=False),
    _claim_winner(
        ("2", "3", *UNIONS), "ℓ1-descent (NOT PRIVATE) is the winner of all experiments", "JPC 7", words=True
    ),
)
