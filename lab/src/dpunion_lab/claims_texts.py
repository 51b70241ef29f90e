"""The papers' claims about bigrams, trigrams and unions of lengths."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

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
UNIONS = ("1-2", "1-3")
FIRST_EPSILON = 2.0
MOST_NAMED = 6

Cases = list[tuple[str, float, float]]
"""A place and two sizes: the one that should be ahead, and the one that should be behind."""
FindCases = Callable[[Study, MeasuredTexts], Cases]


def _claim_texts(sentence: str, where: str, what: str, find: FindCases) -> MakeClaim:
    """Return a claim that says which of two sizes is ahead. what: the name of their ratio."""

    def claim(study: Study) -> Claim:
        texts = study.texts
        finding = NO_TEXTS if texts is None else _judge_ahead(find(study, texts), what)
        return Claim(sentence, where, NOTHING_PRINTED, finding)

    return claim


def _judge_ahead(cases: Cases, what: str) -> Finding:
    known = [case for case in cases if case[1] or case[2]]
    ratios = divide([first for _, first, _ in known], [second for _, _, second in known])
    figures = f"{what} {span(ratios)}" if ratios else "nothing was released"
    behind = [place for place, first, second in known if not is_ahead(first, second)]
    if behind:
        more = f" and {len(behind) - MOST_NAMED} more" if len(behind) > MOST_NAMED else ""
        figures += f"; not so for {'; '.join(behind[:MOST_NAMED])}{more}"
    return judge([is_ahead(first, second) for _, first, second in known], figures)


def _limits(texts: MeasuredTexts) -> list[str]:
    return [f"Δ0={limit}" for limit in texts.limits]


def _epsilons(texts: MeasuredTexts) -> list[str]:
    return [f"ε={epsilon:g}" for epsilon in texts.epsilons]


def _find_noise(*lengths: str) -> FindCases:
    """Return how to compare Gaussian with Laplace noise in every algorithm that has both."""

    def find(_study: Study, texts: MeasuredTexts) -> Cases:
        cases: Cases = []
        for one, kind in itertools.product(lengths, KINDS):
            label = f"{kind}, N = {one[-1]}, " if one in UNIONS else f"{kind}, "
            grids = [(_limits(texts), texts.over_limits)]
            if one in OVER_EPSILON:
                grids.append((_epsilons(texts), texts.over_epsilons))
            for places, sizes in grids:
                pairs = zip(places, sizes(one, f"{kind}-gaussian"), sizes(one, f"{kind}-laplace"), strict=True)
                cases += [(label + place, gaussian, laplace) for place, gaussian, laplace in pairs]
        return cases

    return find


def _find_descent(_study: Study, texts: MeasuredTexts) -> Cases:
    sizes = (texts.over_limits("2", name) for name in (L1, "policy-gaussian"))
    return list(zip(_limits(texts), *sizes, strict=True))


def _find_epsilon(lengths: str) -> FindCases:
    """Return how to compare the Gaussian policies with the better one of Count and Weighted Gaussian."""

    def find(_study: Study, texts: MeasuredTexts) -> Cases:
        cases: Cases = []
        for at, epsilon in enumerate(texts.epsilons):
            if epsilon >= FIRST_EPSILON:
                best = max(texts.over_epsilons(lengths, name)[at] for name in ("count-gaussian", "weighted-gaussian"))
                cases += [
                    (f"{_short(name)}, ε={epsilon:g}", texts.over_epsilons(lengths, name)[at], best)
                    for name in ("policy-gaussian", L1)
                ]
        return cases

    return find


def _find_fewer(_study: Study, texts: MeasuredTexts) -> Cases:
    cases: Cases = []
    for name in PAPER_NAMES:
        pairs = zip(_limits(texts), texts.over_limits("2", name), texts.over_limits("3", name), strict=True)
        cases += [(f"{_short(name)}, {place}", two, three) for place, two, three in pairs]
    return cases


def _find_trigrams(_study: Study, texts: MeasuredTexts) -> Cases:
    pair = (L1, "weighted-gaussian")
    cases: Cases = []
    for at, place in enumerate(_limits(texts)):
        sizes = {name: texts.over_limits("3", name)[at] for name in PAPER_NAMES}
        rest = max(size for name, size in sizes.items() if name not in pair)
        cases += [(f"{_short(name)}, {place}", sizes[name], rest) for name in pair]
    return cases


def _find_winner(lengths: Sequence[str], *, words: bool) -> FindCases:
    """Return how to compare l1-descent with the best of all others. words: on words too."""

    def find(study: Study, texts: MeasuredTexts) -> Cases:
        limits, epsilons = _limits(texts), _epsilons(texts)
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
            name = f"union N = {one[-1]}" if one in UNIONS else LENGTHS[one]
            for at, place in enumerate(places):
                best = max(values[at] for algorithm, values in sizes.items() if algorithm != L1)
                cases.append((f"{name}, {place}", sizes[L1][at], best))
        return cases

    return find


def _short(name: str) -> str:
    return "ℓ1" if name == L1 else name


NOISE = "Gaussian noise is ahead of Laplace noise at every"
FROM_TWO = "from ε = 2 on both Gaussian policies release more than Count and Weighted Gaussian"
WINNER = "ℓ1 / best of the other six"
TEXT_CLAIMS: tuple[MakeClaim, ...] = (
    _claim_texts(f"Bigrams: {NOISE} Δ0 and ε", "JPC 6.2.1", "Gaussian / Laplace", _find_noise("2")),
    _claim_texts("Bigrams: ℓ1-descent (NOT PRIVATE) is ahead of ℓ2-descent", "JPC 6.2.1", "ℓ1 / ℓ2", _find_descent),
    _claim_texts(f"Bigrams: {FROM_TWO}", "JPC 6.2.4", "policy / best of the two", _find_epsilon("2")),
    _claim_texts("Fewer trigrams than bigrams are released", "JPC 6.2.1", "bigrams / trigrams", _find_fewer),
    _claim_texts(f"Trigrams: {FROM_TWO}", "JPC 6.2.4", "policy / best of the two", _find_epsilon("3")),
    _claim_texts(
        "Trigrams: ℓ1-descent (NOT PRIVATE) and Weighted Gaussian are the two best",
        "JPC 6.2.1",
        "each of them / best of the others",
        _find_trigrams,
    ),
    _claim_texts(f"Union N = 2 and union N = 3: {NOISE} Δ0", "JPC 6.2.1", "Gaussian / Laplace", _find_noise(*UNIONS)),
    _claim_texts(
        "Unions N = 2 and N = 3: ℓ1-descent (NOT PRIVATE) is ahead of all",
        "JPC 6.2.1",
        WINNER,
        _find_winner(UNIONS, words=False),
    ),
    _claim_texts(
        "ℓ1-descent (NOT PRIVATE) is the winner of all experiments",
        "JPC 7",
        WINNER,
        _find_winner(("2", "3", *UNIONS), words=True),
    ),
)
