"""Compare algorithms on one's own or generated data: how much each setting releases. Never a release."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpunion.algorithms import ALGORITHMS, Algorithm, Funnel, OptimalSingleItem
from dpunion.budget import Budget
from dpunion.checks import refuse_choice
from dpunion.errors import BadParameter, CannotWrite
from dpunion.report.tables import Table
from dpunion.requests import Progress
from dpunion_lab.data import NOT_PRIVATE, LabData, load
from dpunion_lab.measuring import ceiling, share
from dpunion_lab.results import Journal, check_results, open_journal, refuse_replacing, write_results
from dpunion_lab.study import RESEARCH_POLICIES, ResearchPolicy
from dpunion_lab.trials import Setting, Trial, check_counts, plan_all, run_all

DEFAULT = ("funnel", "dp-sips", "policy-gaussian", "policy-laplace", "weighted-gaussian")
MOST_SETTINGS = 10_000

Kinds = dict[str, type[Algorithm] | type[ResearchPolicy]]


def grid(
    algorithms: Sequence[Any],
    epsilons: Sequence[float],
    deltas: Sequence[float],
    parameters: Mapping[str, Sequence[Any]],
) -> list[Setting]:
    """Return all combinations as settings, each once; an algorithm ignores the parameters that it does not have."""
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
        # Without a number of items per person, a release by Funnel chooses it privately.
        looks = algorithm == Funnel.name and "max_items_per_user" not in asked
        found |= {Setting(variant, budget, looks): None for variant, budget in itertools.product(variants, budgets)}
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
            chosen.setdefault("first_share", 1.0)  # the only round takes everything
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


FORMAT = "dpunion-lab-comparison/1"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison. data: its exact sizes. ceilings: the most that a private algorithm can release.

    All of it is NOT PRIVATE.
    """

    data: dict[str, Any]
    trials: tuple[Trial, ...]
    ceilings: dict[tuple[float, float], float]

    def of(self, setting: Setting) -> list[Trial]:
        """Return the trials of one setting."""
        return [trial for trial in self.trials if trial.setting == setting]

    @property
    def settings(self) -> list[Setting]:
        """Return the settings in the order of the request."""
        return list(dict.fromkeys(trial.setting for trial in self.trials))

    def rows(self) -> list[dict[str, Any]]:
        """Return a summary of each setting as plain values."""
        rows = []
        for setting in self.settings:
            sizes = [trial.size for trial in self.of(setting)]
            most = self.ceilings[setting.budget.epsilon, setting.budget.delta]
            rows.append(
                setting.to_dict()
                | {
                    "private_algorithm": setting.has_proof,
                    "trials": len(sizes),
                    "mean": statistics.fmean(sizes),
                    "stdev": statistics.stdev(sizes) if len(sizes) > 1 else 0.0,
                    "ceiling": most,
                    "share_of_ceiling": statistics.fmean(sizes) / most if most else 0.0,
                }
            )
        return rows

    def table(self) -> Table:
        """Return the summary as a table, without the parameters that do not vary."""
        rows = self.rows()
        varying = sorted({name for row in rows for name in row["parameters"]} - self._constant())
        columns = ("algorithm", *varying, "ε", "δ", "released", "± sd", "ceiling", "of ceiling")
        cells = tuple(
            (
                setting.name,
                *[_word(row["parameters"].get(name)) for name in varying],
                f"{row['epsilon']:g}",
                f"{row['delta']:.4g}",
                row["mean"],
                row["stdev"],
                row["ceiling"],
                share(row["share_of_ceiling"]),
            )
            for setting, row in zip(self.settings, rows, strict=True)
        )
        facts = self.data
        title = f"{facts['name']}: {facts['users']:,} users, {facts['pairs']:,} pairs, {facts['items']:,} items"
        mean = f"Mean of {rows[0]['trials']} trials" if rows[0]["trials"] > 1 else "One trial"
        note = f"{mean}. Ceiling: no private algorithm releases more in expectation."
        return Table(title, columns, cells, note)

    def _constant(self) -> set[str]:
        """Return the parameters that are the same in all settings of each algorithm, except the number of items."""
        values: dict[tuple[str, str], set[str]] = {}
        for setting in self.settings:
            for name, value in setting.parameters.items():
                values.setdefault((setting.algorithm.name, name), set()).add(str(value))
        varied = {name for (_, name), found in values.items() if len(found) > 1}
        return {name for _, name in values} - varied - {"max_items_per_user"}

    def to_dict(self) -> dict[str, Any]:
        """Return all results as plain values, with the warning first."""
        return {
            "format": FORMAT,
            "warning": NOT_PRIVATE,
            "data": self.data,
            "summary": self.rows(),
            "trials": [trial.to_dict() for trial in self.trials],
        }

    def write(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write .json (everything) or .parquet (the trials) atomically; both are stamped NOT PRIVATE."""
        return write_results(path, self.to_dict(), overwrite=overwrite)


def compare(
    source: Any,
    *,
    algorithms: Sequence[Any] = DEFAULT,
    epsilon: float | Sequence[float],
    delta: float | Sequence[float],
    max_items_per_user: int | Sequence[int] = (),
    cutoff_margin: float | Sequence[float] = (),
    passes: int | Sequence[int] = (),
    rounds: int | Sequence[int] = (),
    parameters: Mapping[str, Sequence[Any]] | None = None,
    trials: int = 3,
    jobs: int = 2,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    **reading: Any,
) -> Comparison:
    """Run every setting of a grid on data for study. The result is NOT PRIVATE.

    source: as in `dpunion.release`, with its reading options (user, item, text, query, ...); or AskRedditLike(...).
    algorithms: names, including those of research policies, or algorithm objects. epsilon, delta and the parameters
    may be lists: the grid has all combinations, and each algorithm takes the parameters it has. parameters: any others,
    by name. trials: runs of each setting; trial n uses the same randomness for every setting, in every comparison.
    jobs: how many trials run at the same time. out: a .json or .parquet file; a journal next to it keeps every finished
    trial, so that the same call after an interrupt runs only the missing ones. overwrite: start over.
    """
    check_counts(trials, jobs)
    asked: dict[str, Sequence[Any]] = {
        "max_items_per_user": _several(max_items_per_user),
        "cutoff_margin": _several(cutoff_margin),
        "passes": _several(passes),
        "rounds": _several(rounds),
    }
    asked |= {name: _several(values) for name, values in (parameters or {}).items()}
    settings = grid(algorithms, _several(epsilon), _several(delta), asked)
    tell = progress or (lambda _stage, _done: None)
    if out is not None:
        refuse_replacing([Path(out), journal_of(Path(out))], source)
    with journal_beside(out, overwrite=overwrite) as journal:
        plans = plan_all(settings, tell)
        data = load(source, progress=progress, **reading)
        done = run_all(data, plans, trials=trials, jobs=jobs, journal=journal, on_trial=tell)
        result = Comparison(data.facts, tuple(done), ceilings_of(data, settings))
        if out is not None:
            result.write(out, overwrite=True)
    return result


@contextlib.contextmanager
def journal_beside(out: str | os.PathLike[str] | None, *, overwrite: bool) -> Iterator[Journal | None]:
    """Open the journal of a results file; results without a journal are not ours and are not overwritten."""
    if out is None:
        yield None
        return
    target = Path(out)
    place = journal_of(target)
    check_results(target, overwrite=True)
    if target.exists() and not place.exists() and not overwrite:
        raise CannotWrite(f"{target} exists already.", "Choose another name, or allow overwriting (--force).")
    with open_journal(place, start_over=overwrite) as journal:
        yield journal


def journal_of(target: Path) -> Path:
    """Return the path of the journal of a results file."""
    return target.with_name(target.name + ".journal")


def ceilings_of(data: LabData, settings: Sequence[Setting]) -> dict[tuple[float, float], float]:
    """Return the ceiling Pi(D) for each budget (Desfontaines et al. 2022, Thm 1)."""
    budgets = {(setting.budget.epsilon, setting.budget.delta) for setting in settings}
    return {budget: ceiling(*budget, data.holders.astype(float)) for budget in sorted(budgets)}


def _several(values: Any) -> Sequence[Any]:
    if isinstance(values, (str, int, float)):
        return (values,)
    if not isinstance(values, Sequence):
        raise BadParameter(f"A {type(values).__name__} is not a list of values.", "Give one value or a list of them.")
    return values


def _word(value: Any) -> str | None:
    return None if value is None else f"{value:g}" if isinstance(value, (int, float)) else str(value)
