"""dpunion: differentially private set union.

    import dpunion

    release = dpunion.release("posts.parquet", user="author", item="word", epsilon=1.0, delta=1e-6)
    release.items          # sorted; release.plan and release.statement say what was guaranteed and how
    release.write("vocabulary.parquet")

Names are loaded when they are first used, so that importing dpunion costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpunion.algorithms import (
        CountGaussian,
        CountLaplace,
        DpSips,
        Funnel,
        OptimalSingleItem,
        PolicyGaussian,
        PolicyLaplace,
        WeightedGaussian,
        WeightedLaplace,
    )
    from dpunion.budget import Budget
    from dpunion.errors import (
        AlreadyReleased,
        BadParameter,
        BadSource,
        BudgetExhausted,
        CannotWrite,
        DpunionError,
        NotPrivate,
    )
    from dpunion.pipeline import plan, release, release_ngrams
    from dpunion.plans import Plan
    from dpunion.plans.counts import Counts
    from dpunion.plans.look import LookPlan
    from dpunion.plans.ngrams import Ngrams
    from dpunion.releases.about import About
    from dpunion.releases.release import Release
    from dpunion.requests import Charge, Dated, Folder, Known, Run, SparkSource, Stdin, Words
    from dpunion.tokenizing import tokenize

__version__ = "0.1.0"

_HOMES = {
    name: home
    for home, names in {
        "releases.about": "About",
        "algorithms": "CountGaussian CountLaplace DpSips Funnel OptimalSingleItem PolicyGaussian PolicyLaplace "
        "WeightedGaussian WeightedLaplace",
        "budget": "Budget",
        "plans.counts": "Counts",
        "errors": "AlreadyReleased BadParameter BadSource BudgetExhausted CannotWrite DpunionError NotPrivate",
        "plans.look": "LookPlan",
        "plans.ngrams": "Ngrams",
        "pipeline": "plan release release_ngrams",
        "plans": "Plan",
        "releases.release": "Release",
        "requests": "Charge Dated Folder Known Run SparkSource Stdin Words",
        "tokenizing": "tokenize",
    }.items()
    for name in names.split()
}

__all__ = [
    "About",
    "AlreadyReleased",
    "BadParameter",
    "BadSource",
    "Budget",
    "BudgetExhausted",
    "CannotWrite",
    "Charge",
    "CountGaussian",
    "CountLaplace",
    "Counts",
    "Dated",
    "DpSips",
    "DpunionError",
    "Folder",
    "Funnel",
    "Known",
    "LookPlan",
    "Ngrams",
    "NotPrivate",
    "OptimalSingleItem",
    "Plan",
    "PolicyGaussian",
    "PolicyLaplace",
    "Release",
    "Run",
    "SparkSource",
    "Stdin",
    "WeightedGaussian",
    "WeightedLaplace",
    "Words",
    "__version__",
    "plan",
    "release",
    "release_ngrams",
    "tokenize",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'dpunion' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"dpunion.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
