"""Claims about bigrams, trigrams and unions of lengths."""

from __future__ import annotations

from collections.abc import Sequence

from dpunion_lab.claims import (
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
from dpunion_lab.rows import L1, ROWS
from dpunion_lab.texts import LENGTHS, OVER_EPSILON, PAPER_NAMES, MeasuredTexts

KINDS = ("count", "weighted", "policy")
GAUSSIANS = ("policy-gaussian", L1)
UNIONS = ("1-2", "1-3")
FIRST_EPSILON = 2.0

MOST_NAMED = 6

Cases = list[tuple[str, float, float]]
"""Where, and two sizes: what should be ahead, and what should be behind."""


def _tested(sentence: str, where: str, finding: Finding) -> Claim:
    return Claim(sentence, where, NOTHING_PRINTED, finding)


def _ahead(cases: Cases, what: str) -> Finding:
    known = [case for case in cases if case[1] or case[2]]
    ratios = divide([first for _, first, _ in known], [second for _, _, second in known])
    figures = f"{what} {span(ratios)}" if ratios else "nothing was released"
    behind = [place for place, first, second in known if not is_ahead(first, second)]
    if behind:
        more = f" and {len(behind) - MOST_NAMED} more" if len(behind) > MOST_NAMED else ""
        figures += f"; not so for {'; '.join(behind[:MOST_NAMED])}{more}"
    return judge([is_ahead(first, second) for _, first, second in known], figures)


def _over_limits(texts: MeasuredTexts, lengths: str, first: str, second: str, label: str = "") -> Cases:
    pairs = zip(texts.limits, texts.over_limits(lengths, first), texts.over_limits(lengths, second), strict=True)
    return [(f"{label}Δ0={limit}", one, two) for limit, one, two in pairs]


def _over_epsilons(texts: MeasuredTexts, lengths: str, first: str, second: str, label: str = "") -> Cases:
    pairs = zip(texts.epsilons, texts.over_epsilons(lengths, first), texts.over_epsilons(lengths, second), strict=True)
    return [(f"{label}ε={epsilon:g}", one, two) for epsilon, one, two in pairs]


def _by_noise(texts: MeasuredTexts, lengths: str) -> Cases:
    cases: Cases = []
    for kind in KINDS:
        names = f"{kind}-gaussian", f"{kind}-laplace"
        label = f"{kind}, N = {lengths[-1]}, " if lengths in UNIONS else f"{kind}, "
        cases += _over_limits(texts, lengths, *names, label)
        if lengths in OVER_EPSILON:
            cases += _over_epsilons(texts, lengths, *names, label)
    return cases


def _claim_noise(lengths: Sequence[str], where: str) -> MakeClaim:
    def claim(study: Study) -> Claim:
        texts = study.texts
        cases = [] if texts is None else [case for one in lengths for case in _by_noise(texts, one)]
        places = "Δ0 and ε" if set(lengths) <= set(OVER_EPSILON) else "Δ0"
        sentence = f"{_called(lengths)}: Gaussian noise is ahead of Laplace noise at every {places}"
        return _tested(sentence, where, NO_TEXTS if texts is None else _ahead(cases, "Gaussian / Laplace"))

    return claim


def _claim_descent(lengths: Sequence[str], where: str) -> MakeClaim:
    def claim(study: Study) -> Claim:
        texts = study.texts
        cases: Cases = []
        if texts is not None:
            for one in lengths:
                cases += _over_limits(texts, one, L1, "policy-gaussian")
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
                cases += [
                    (f"{_short(name)}, ε={epsilon:g}", texts.over_epsilons(lengths, name)[at], best)
                    for name in GAUSSIANS
                ]
        return _tested(sentence, "JPC 6.2.4", _ahead(cases, "policy / best of the two"))

    return claim


def claim_fewer(study: Study) -> Claim:
    """Return whether fewer trigrams than bigrams are released, by every algorithm and with every limit."""
    sentence, texts = "Fewer trigrams than bigrams are released", study.texts
    if texts is None:
        return _tested(sentence, "JPC 6.2.1", NO_TEXTS)
    cases: Cases = []
    for name in PAPER_NAMES:
        pairs = zip(texts.limits, texts.over_limits("2", name), texts.over_limits("3", name), strict=True)
        cases += [(f"{_short(name)}, Δ0={limit}", two, three) for limit, two, three in pairs]
    return _tested(sentence, "JPC 6.2.1", _ahead(cases, "bigrams / trigrams"))


def claim_trigrams(study: Study) -> Claim:
    """Return whether l1-descent and Weighted Gaussian are the two best for trigrams."""
    sentence = "Trigrams: ℓ1-descent (NOT PRIVATE) and Weighted Gaussian are the two best"
    texts = study.texts
    if texts is None:
        return _tested(sentence, "JPC 6.2.1", NO_TEXTS)
    pair = (L1, "weighted-gaussian")
    cases: Cases = []
    for at, limit in enumerate(texts.limits):
        sizes = {name: texts.over_limits("3", name)[at] for name in PAPER_NAMES}
        rest = max(size for name, size in sizes.items() if name not in pair)
        cases += [(f"{_short(name)}, Δ0={limit}", sizes[name], rest) for name in pair]
    return _tested(sentence, "JPC 6.2.1", _ahead(cases, "each of them / best of the others"))


def _claim_winner(lengths: Sequence[str], sentence: str, where: str, *, words: bool) -> MakeClaim:
    def claim(study: Study) -> Claim:
        texts = study.texts
        if texts is None:
            return _tested(sentence, where, NO_TEXTS)
        limits = [f"Δ0={limit}" for limit in texts.limits]
        epsilons = [f"ε={epsilon:g}" for epsilon in texts.epsilons]
        tables = [(one, limits, {name: texts.over_limits(one, name) for name in PAPER_NAMES}) for one in lengths]
        tables += [
            (one, epsilons, {name: texts.over_epsilons(one, name) for name in PAPER_NAMES})
            for one in lengths
            if one in OVER_EPSILON
        ]
        if words:
            chosen = [row for row in ROWS if row.name in PAPER_NAMES]
            tables.append(("1", limits, {row.name: study.over_limits(row) for row in chosen}))
            tables.append(("1", epsilons, {row.name: study.over_epsilons(row) for row in chosen}))
        cases: Cases = []
        for one, places, sizes in tables:
            for at, place in enumerate(places):
                best = max(values[at] for name, values in sizes.items() if name != L1)
                cases.append((f"{_named(one)}, {place}", sizes[L1][at], best))
        return _tested(sentence, where, _ahead(cases, "ℓ1 / best of the other six"))

    return claim


def _short(name: str) -> str:
    return "ℓ1" if name == L1 else name


def _named(lengths: str) -> str:
    return f"union N = {lengths[-1]}" if lengths in UNIONS else LENGTHS[lengths]


def _called(lengths: Sequence[str]) -> str:
    text = " and ".join(map(_named, lengths))
    return text[0].upper() + text[1:]


TEXT_CLAIMS: tuple[MakeClaim, ...] = (
    _claim_noise(("2",), "JPC 6.2.1"),
    _claim_descent(("2",), "JPC 6.2.1"),
    _claim_epsilon("2"),
    claim_fewer,
    _claim_epsilon("3"),
    claim_trigrams,
    _claim_noise(UNIONS, "JPC 6.2.1"),
    _claim_winner(UNIONS, "Unions N = 2 and N = 3: ℓ1-descent (NOT PRIVATE) is ahead of all", "JPC 6.2.1", words=False),
    _claim_winner(
        ("2", "3", *UNIONS), "ℓ1-descent (NOT PRIVATE) is the winner of all experiments", "JPC 7", words=True
    ),
)
