"""Compare algorithms on one's own or generated data: how much each releases, setting by setting. Never a release."""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpunion.calibration.bounds import ceiling
from dpunion.errors import BadParameter, CannotWrite
from dpunion.report.tables import Table
from dpunion.requests import Progress
from dpunion_lab.data import LabData, load
from dpunion_lab.figures import NOT_PRIVATE, share
from dpunion_lab.grids import DEFAULT, grid
from dpunion_lab.journals import Journal, open_journal
from dpunion_lab.results import check_results, refuse_replacing, write_results
from dpunion_lab.trials import Setting, Trial, check_counts, plan_all, run_all

FORMAT = "dpunion-lab-comparison/1"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison found. data: exact facts about the data; ceilings: the most any private algorithm can release.

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
        """Return the settings in the order in which they were asked for."""
        return list(dict.fromkeys(trial.setting for trial in self.trials))

    def rows(self) -> list[dict[str, Any]]:
        """Return one summary for each setting, as plain values."""
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
        """Return the summary for people; parameters that do not vary are left out."""
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
        """Return the parameters with which no algorithm appears twice, the number of items aside."""
        values: dict[tuple[str, str], set[str]] = {}
        for setting in self.settings:
            for name, value in setting.parameters.items():
                values.setdefault((setting.algorithm.name, name), set()).add(str(value))
        varied = {name for (_, name), found in values.items() if len(found) > 1}
        return {name for _, name in values} - varied - {"max_items_per_user"}

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, with the warning first."""
        return {
            "format": FORMAT,
            "warning": NOT_PRIVATE,
            "data": self.data,
            "summary": self.rows(),
            "trials": [trial.to_dict() for trial in self.trials],
        }

    def write(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write .json (everything) or .parquet (the trials), whole or not at all; both are stamped NOT PRIVATE."""
        return write_results(path, self.to_dict(), self.trials, overwrite=overwrite)


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
    algorithms: names, research policies included, or algorithm objects. epsilon, delta and the parameters may be lists:
    all combinations are tried, each algorithm taking the parameters it has. parameters: any others, by name.
    trials: runs of each setting; trial n has the same randomness for all, and the same in every comparison.
    jobs: trials at a time. out: a .json or .parquet file; beside it a journal keeps every finished trial, so that the
    same call after an interruption runs only what is missing. overwrite: start over.
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
    """Open the journal of a results file; results without a journal are somebody else's and are not replaced."""
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
    """Return where the finished trials of a results file are kept."""
    return target.with_name(target.name + ".journal")


def ceilings_of(data: LabData, settings: Sequence[Setting]) -> dict[tuple[float, float], float]:
    """Return Pi(D) for each budget (Desfontaines et al. 2022, Thm 1)."""
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
