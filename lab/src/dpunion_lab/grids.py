"""Which settings a study tries: every chosen algorithm with every combination of the chosen parameters it has."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpunion.algorithms import ALGORITHMS, Algorithm, Funnel, OptimalSingleItem
from dpunion.budget import Budget
from dpunion.checks import refuse_choice
from dpunion.errors import BadParameter
from dpunion_lab.study import RESEARCH_POLICIES, ResearchPolicy
from dpunion_lab.trials import Setting

DEFAULT = ("funnel", "dp-sips", "policy-gaussian", "policy-laplace", "weighted-gaussian")
MOST_SETTINGS = 10_000

Kinds = dict[str, type[Algorithm] | type[ResearchPolicy]]


def grid(
    algorithms: Sequence[Any],
    epsilons: Sequence[float],
    deltas: Sequence[float],
    parameters: Mapping[str, Sequence[Any]],
) -> list[Setting]:
    """Return the settings, each once; an algorithm (or its name) takes the parameters it has and ignores the others."""
    budgets = [Budget(epsilon, delta) for epsilon in epsilons for delta in deltas]
    asked = {name: tuple(values) for name, values in parameters.items() if len(values)}
    names = [name for name in algorithms if isinstance(name, str)]
    kinds: Kinds = ALGORITHMS | RESEARCH_POLICIES
    for name in names:
        if name not in kinds:
            refuse_choice("algorithm", name, list(kinds))
    _refuse_unknown(asked, [kinds[name] for name in names])
    found: dict[Setting, None] = {}
    for algorithm in algorithms:
        variants = (
            _variants(kinds[algorithm], asked) if isinstance(algorithm, str) else [_check_algorithm(algorithm, kinds)]
        )
        found |= {Setting(variant, budget): None for variant, budget in itertools.product(variants, budgets)}
    if not 1 <= len(found) <= MOST_SETTINGS:
        raise BadParameter(
            f"There are {len(found):,} settings to compare.", f"Choose at least one and at most {MOST_SETTINGS:,}."
        )
    return list(found)


def _variants(kind: Any, asked: Mapping[str, tuple[Any, ...]]) -> Iterable[Algorithm | ResearchPolicy]:
    has = _fields(kind)
    names = [name for name in asked if name in has]
    for values in itertools.product(*(asked[name] for name in names)):
        chosen = dict(zip(names, values, strict=True))
        if kind is Funnel and chosen.get("rounds") == 1:
            chosen.setdefault("first_share", 1.0)  # a single round is all there is
        yield kind(**chosen)


def _fields(kind: Any) -> set[str]:
    fixed = {"max_items_per_user"} if kind is OptimalSingleItem else set()
    return {field.name for field in dataclasses.fields(kind)} - fixed


def _refuse_unknown(asked: Mapping[str, object], kinds: Sequence[Any]) -> None:
    known = {name for kind in kinds for name in _fields(kind)}
    for name in asked:
        if name not in known:
            raise BadParameter(
                f"None of the chosen algorithms has a parameter {name!r}.",
                f"They have: {', '.join(sorted(known)) or 'none that vary'}. Leave {name!r} out.",
            )


def _check_algorithm(algorithm: Any, kinds: Kinds) -> Algorithm | ResearchPolicy:
    if isinstance(algorithm, tuple(kinds.values())):
        return algorithm  # type: ignore[return-value]
    raise BadParameter(
        f"A {type(algorithm).__name__} is not an algorithm of dpunion.", f"Pass one, or a name: {', '.join(kinds)}."
    )
