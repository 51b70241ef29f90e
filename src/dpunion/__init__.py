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
    from dpunion.errors import BadParameter, BadSource, CannotWrite, DpunionError, NotPrivate
    from dpunion.ngrams import NgramRelease, Ngrams, plan_ngrams, release_ngrams
    from dpunion.pipeline import plan, release
    from dpunion.plans import Plan
    from dpunion.releases import Release

__version__ = "0.1.0"

_HOMES = {
    "BadParameter": "errors",
    "BadSource": "errors",
    "Budget": "budget",
    "CannotWrite": "errors",
    "CountGaussian": "algorithms",
    "CountLaplace": "algorithms",
    "DpSips": "algorithms",
    "DpunionError": "errors",
    "Funnel": "algorithms",
    "NgramRelease": "ngrams",
    "Ngrams": "ngrams",
    "NotPrivate": "errors",
    "OptimalSingleItem": "algorithms",
    "Plan": "plans",
    "PolicyGaussian": "algorithms",
    "PolicyLaplace": "algorithms",
    "Release": "releases",
    "WeightedGaussian": "algorithms",
    "WeightedLaplace": "algorithms",
    "plan": "pipeline",
    "plan_ngrams": "ngrams",
    "release": "pipeline",
    "release_ngrams": "ngrams",
}

__all__ = [
    "BadParameter",
    "BadSource",
    "Budget",
    "CannotWrite",
    "CountGaussian",
    "CountLaplace",
    "DpSips",
    "DpunionError",
    "Funnel",
    "NgramRelease",
    "Ngrams",
    "NotPrivate",
    "OptimalSingleItem",
    "Plan",
    "PolicyGaussian",
    "PolicyLaplace",
    "Release",
    "WeightedGaussian",
    "WeightedLaplace",
    "__version__",
    "plan",
    "plan_ngrams",
    "release",
    "release_ngrams",
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
