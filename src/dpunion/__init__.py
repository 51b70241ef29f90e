"""dpunion: differentially private set union.

    import dpunion

    release = dpunion.release("posts.parquet", user="author", item="word", epsilon=1.0, delta=1e-6)
    release.items          # sorted; release.plan and release.statement say what was guaranteed and how
    release.write("vocabulary.parquet")

Names are loaded when they are first used, so that importing dpunion costs next to nothing.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpunion.algorithms import CountGaussian as CountGaussian
    from dpunion.algorithms import CountLaplace as CountLaplace
    from dpunion.algorithms import DpSips as DpSips
    from dpunion.algorithms import Funnel as Funnel
    from dpunion.algorithms import OptimalSingleItem as OptimalSingleItem
    from dpunion.algorithms import PolicyGaussian as PolicyGaussian
    from dpunion.algorithms import PolicyLaplace as PolicyLaplace
    from dpunion.algorithms import WeightedGaussian as WeightedGaussian
    from dpunion.algorithms import WeightedLaplace as WeightedLaplace
    from dpunion.budget import Budget as Budget
    from dpunion.errors import AlreadyReleased as AlreadyReleased
    from dpunion.errors import BadParameter as BadParameter
    from dpunion.errors import BadSource as BadSource
    from dpunion.errors import BudgetExhausted as BudgetExhausted
    from dpunion.errors import CannotWrite as CannotWrite
    from dpunion.errors import DpunionError as DpunionError
    from dpunion.errors import NotDue as NotDue
    from dpunion.errors import NotPrivate as NotPrivate
    from dpunion.ledger.schedules import Schedule as Schedule
    from dpunion.pipeline import plan as plan
    from dpunion.pipeline import release as release
    from dpunion.pipeline import release_ngrams as release_ngrams
    from dpunion.plans import Plan as Plan
    from dpunion.plans.counts import Counts as Counts
    from dpunion.plans.look import LookPlan as LookPlan
    from dpunion.plans.ngrams import Ngrams as Ngrams
    from dpunion.releases.about import About as About
    from dpunion.releases.release import Release as Release
    from dpunion.requests import Candidates as Candidates
    from dpunion.requests import Charge as Charge
    from dpunion.requests import Dated as Dated
    from dpunion.requests import Folder as Folder
    from dpunion.requests import Known as Known
    from dpunion.requests import Run as Run
    from dpunion.requests import SparkSource as SparkSource
    from dpunion.requests import Stdin as Stdin
    from dpunion.requests import Words as Words
    from dpunion.requests import tokenize as tokenize

__version__ = "0.1.0"

_HOMES = {
    name: home
    for home, names in {
        "releases.about": "About",
        "algorithms": "CountGaussian CountLaplace DpSips Funnel OptimalSingleItem PolicyGaussian PolicyLaplace "
        "WeightedGaussian WeightedLaplace",
        "budget": "Budget",
        "plans.counts": "Counts",
        "errors": "AlreadyReleased BadParameter BadSource BudgetExhausted CannotWrite DpunionError NotDue NotPrivate",
        "ledger.schedules": "Schedule",
        "plans.look": "LookPlan",
        "plans.ngrams": "Ngrams",
        "pipeline": "plan release release_ngrams",
        "plans": "Plan",
        "releases.release": "Release",
        "requests": "Candidates Charge Dated Folder Known Run SparkSource Stdin Words tokenize",
    }.items()
    for name in names.split()
}

__all__ = sorted([*_HOMES, "__version__"])  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'dpunion' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    value = getattr(importlib.import_module(f"dpunion.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
