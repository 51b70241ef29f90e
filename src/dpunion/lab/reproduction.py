"""The papers' evaluation, run again: every table and figure beside the printed numbers, as far as we have them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpunion.calibration.optimal import ceiling
from dpunion.errors import BadParameter, CannotWrite
from dpunion.lab import evaluation as papers
from dpunion.lab.data import load
from dpunion.lab.figures import NOT_PRIVATE, Figure
from dpunion.lab.generators import AskRedditLike
from dpunion.lab.journals import Journal, open_journal
from dpunion.lab.published import missing
from dpunion.lab.published import papers as citations
from dpunion.lab.results import refuse_replacing, write_results
from dpunion.lab.trials import Setting, Trial, check_counts, plan_all, run_all
from dpunion.report.tables import Cell, Table
from dpunion.requests import Progress, Words

FORMAT = "dpunion-lab-reproduction/1"
RESULTS, TRIALS, JOURNAL = "results.json", "trials.parquet", "trials.journal"
TEXTS = "imdb_reviews_50k.parquet"
LENGTHS = {"1": "words", "2": "bigrams", "3": "trigrams", "1-3": "words, bigrams and trigrams as one set"}
TEXT_ROWS = (
    "weighted-gaussian",
    "policy-laplace",
    "policy-gaussian",
    "policy-gaussian, exact",
    "dp-sips",
    "funnel",
    "l1-descent-l2-budget (NOT PRIVATE)",
)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is run."""

    users: int
    trials: int
    limits: tuple[int, ...]
    epsilons: tuple[float, ...]
    margins: tuple[float, ...]


FULL = Scale(
    AskRedditLike().users,
    3,
    (1, 10, 50, 100, 200, 300),
    (0.5, 1.0, 2.0, 3.0, 4.0, 5.0),
    (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0),
)
QUICK = Scale(3_000, 1, (1, 10, 100), (1.0, 3.0), (0.0, 3.0))


@dataclass(frozen=True, slots=True)
class Reproduction:
    """Tables and figures in the order of the papers, the trials behind them, and what was left out. NOT PRIVATE."""

    data: dict[str, Any]
    trials_each: int
    parts: tuple[Table | Figure, ...]
    trials: tuple[Trial, ...]
    skipped: tuple[str, ...]

    def text(self) -> str:
        """Return everything for a terminal."""
        shown = [part for part in self.parts if isinstance(part, Table) or not part.repeats]
        tables = [part if isinstance(part, Table) else part.table() for part in shown]
        facts = self.data
        head = (
            f"{facts['name']}: {facts['pairs']:,} pairs, {facts['items']:,} items. Means of {self.trials_each} trials."
        )
        sources = [f"[{name}] {citation}." for name, citation in citations().items()]
        unknown = ["Not available to us:", *[f"- {what}" for what in missing()]]
        blocks = [NOT_PRIVATE, "\n".join([head, *sources]), *[table.text() for table in tables]]
        return "\n\n".join([*blocks, *self.skipped, "\n".join(unknown)]) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, with the warning first."""
        tables = [part if isinstance(part, Table) else part.table() for part in self.parts]
        return {
            "format": FORMAT,
            "warning": NOT_PRIVATE,
            "data": self.data,
            "trials_each": self.trials_each,
            "papers": citations(),
            "not_available": list(missing()),
            "skipped": list(self.skipped),
            "tables": [
                {"title": one.title, "columns": one.columns, "rows": one.rows, "note": one.note} for one in tables
            ],
            "trials": [trial.to_dict() for trial in self.trials],
        }


def reproduce(
    *,
    quick: bool = False,
    users: int | None = None,
    trials: int | None = None,
    seed: int = 0,
    jobs: int = 2,
    texts: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Reproduction:
    """Run the evaluation of Gopi et al. on the AskReddit-like set, Funnel, DP-SIPS and the ceiling added.

    quick: few users and one trial, to see the shape; printed numbers are then not comparable. users, trials: other than
    the defaults. texts: a Parquet file with columns user and text, for n-grams; else imdb_reviews_50k.parquet in the
    folder that DPUNION_DATA names, or left out. out: a folder for results.json and trials.parquet; a journal in it
    keeps every finished trial, so that the same call after an interruption runs only what is missing. overwrite: start
    over.
    """
    scale = QUICK if quick else FULL
    each = scale.trials if trials is None else trials
    check_counts(each, jobs)
    generator = AskRedditLike(users=scale.users if users is None else users, seed=seed)
    tell = progress or (lambda _stage, _done: None)
    if out is not None:
        refuse_replacing([Path(out) / name for name in (RESULTS, TRIALS, JOURNAL)], _texts(texts))
    with _journal_in(out, overwrite=overwrite) as journal:
        plans = plan_all(papers.all_settings(scale.limits, scale.epsilons, scale.margins), tell)
        data = load(generator, progress=progress)
        done = run_all(data, plans, trials=each, jobs=jobs, journal=journal, on_trial=tell)
        measured = papers.Measured(data, _by_setting(done), comparable=generator.users == FULL.users)
        parts = [*_parts(measured, scale)]
        skipped: list[str] = []
        place = _texts(texts)
        if quick:
            skipped.append("Left out by --quick: bigrams, trigrams and unions of lengths.")
        elif place is None:
            skipped.append(
                "Left out: bigrams, trigrams and unions of lengths, as DPUNION_DATA names no folder with "
                f"{TEXTS} and no texts were given."
            )
        else:
            table, more = _ngrams(place, each, jobs, journal, progress)
            parts.append(table)
            done += more
        result = Reproduction(data.facts, each, tuple(parts), tuple(done), tuple(skipped))
        if out is not None:
            for name in (RESULTS, TRIALS):
                write_results(Path(out) / name, result.to_dict(), result.trials, overwrite=True)
    return result


def _parts(measured: papers.Measured, scale: Scale) -> Iterator[Table | Figure]:
    yield papers.statistics_table(measured)
    yield papers.zipf_figure(measured.data)
    yield papers.set_sizes_figure(measured.data)
    yield papers.sizes_table(measured, scale.limits)
    yield papers.limits_figure(measured, scale.limits)
    yield papers.coverage_table(measured)
    yield papers.passes_table(measured, scale.limits)
    yield papers.epsilons_figure(measured, scale.epsilons)
    yield papers.margins_figure(measured, scale.margins)
    if measured.comparable:
        yield papers.deviations_table(measured, scale.limits)


def _by_setting(trials: Sequence[Trial]) -> dict[Setting, list[Trial]]:
    found: dict[Setting, list[Trial]] = {}
    for trial in trials:
        found.setdefault(trial.setting, []).append(trial)
    return found


def _ngrams(
    place: Path, trials: int, jobs: int, journal: Journal | None, progress: Progress | None
) -> tuple[Table, list[Trial]]:
    """Return what is released of words, bigrams, trigrams and their union."""
    rows = [papers.BY_NAME[name] for name in TEXT_ROWS]
    settings = {row.name: row.setting(papers.FUNNEL_ITEMS if row is papers.FUNNEL else papers.ITEMS) for row in rows}
    plans = plan_all(list(settings.values()))
    columns: dict[str, dict[str, float]] = {}
    everything: list[Trial] = []
    for lengths in LENGTHS:
        data = load(place, user="user", item=Words("text", lengths=lengths), progress=progress)
        done = run_all(data, plans, trials=trials, jobs=jobs, journal=journal, on_trial=progress)
        measured = papers.Measured(data, _by_setting(done), comparable=False)
        columns[lengths] = {name: measured.size(setting) for name, setting in settings.items()}
        columns[lengths]["ceiling"] = ceiling(papers.EPSILON, papers.DELTA, data.holders.astype(float))
        everything += done
        del data, measured
    names = [*settings, "ceiling"]
    cells: tuple[tuple[Cell, ...], ...] = tuple(
        (name, *[columns[length][name] for length in LENGTHS]) for name in names
    )
    title = f"n-grams of texts, each column a release of its own [{place.name}]"
    note = (
        "ε = 3, δ = e⁻¹⁰, Δ0 = 100 (funnel 300), α = 3. Not the papers' texts: nothing to compare with. "
        "Releasing lengths one after the other (dpunion ngrams) is another algorithm: docs/ngrams.md."
    )
    return Table(title, ("algorithm", *LENGTHS.values()), cells, note), everything


def _texts(texts: str | os.PathLike[str] | None) -> Path | None:
    if texts is not None:
        if not Path(texts).is_file():
            raise BadParameter(f"There is no file {texts}.", "Name a Parquet file with columns user and text.")
        return Path(texts)
    folder = os.environ.get("DPUNION_DATA")
    place = Path(folder) / TEXTS if folder else None
    return place if place is not None and place.is_file() else None


@contextlib.contextmanager
def _journal_in(out: str | os.PathLike[str] | None, *, overwrite: bool) -> Iterator[Journal | None]:
    """Open the journal in the folder of results, making the folder; other people's files are not replaced."""
    if out is None:
        yield None
        return
    folder = Path(out)
    problem: str | None = None
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else type(error).__name__
    if problem is not None:
        raise CannotWrite(f"The folder {folder} cannot be made: {problem}.", "Choose another place for the results.")
    strangers = [name for name in (RESULTS, TRIALS) if (folder / name).exists()]
    if strangers and not (folder / JOURNAL).exists() and not overwrite:
        raise CannotWrite(f"{folder / strangers[0]} exists already.", "Choose another folder, or allow it (--force).")
    with open_journal(folder / JOURNAL, start_over=overwrite) as journal:
        yield journal
