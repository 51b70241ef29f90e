"""Run the papers' evaluation again and compare every table, figure and claim with what they print."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpunion.errors import CannotWrite, ForeignErrors, system_reason
from dpunion.report.tables import Table
from dpunion.requests import Progress
from dpunion_lab import paper_tables
from dpunion_lab.agreement import agreement_table, compare_all, deviations_table, tail_settings, tail_table
from dpunion_lab.claims import WORD_CLAIMS, Claim, Study, claims_table, claims_text
from dpunion_lab.claims_texts import TEXT_CLAIMS
from dpunion_lab.data import NOT_PRIVATE, load
from dpunion_lab.generators import FITTED, SHAPES, AskRedditFitted, Shape
from dpunion_lab.measuring import Figure, Measured, sort_by_setting
from dpunion_lab.published import contradictions, not_printed
from dpunion_lab.published import papers as citations
from dpunion_lab.results import Journal, open_journal, refuse_replacing, write_results
from dpunion_lab.rows import all_settings
from dpunion_lab.texts import TEXTS, MeasuredTexts, find_texts, measure_texts, text_figures, texts_table
from dpunion_lab.trials import Setting, Trial, check_counts, plan_all, run_all

FORMAT = "dpunion-lab-reproduction/2"
RESULTS, TRIALS, JOURNAL = "results.json", "trials.parquet", "trials.journal"


@dataclass(frozen=True, slots=True)
class Scale:
    """How much to run. text_trials: the trials on n-grams; the papers do not say how many they ran."""

    users: int
    trials: int
    limits: tuple[int, ...]
    epsilons: tuple[float, ...]
    margins: tuple[float, ...]
    text_trials: int


FULL = Scale(
    AskRedditFitted().users,
    5,
    (1, 10, 50, 100, 200, 300),
    (0.5, 1.0, 2.0, 3.0, 4.0, 5.0),
    (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0),
    2,
)
QUICK = Scale(3_000, 1, (1, 10, 100), (1.0, 3.0), (0.0, 3.0), 1)


@dataclass(frozen=True, slots=True)
class Reproduction:
    """Tables and figures in the order of the papers, claims, trials, and which parts were skipped. NOT PRIVATE."""

    data: dict[str, Any]
    trials_each: int
    parts: tuple[Table | Figure, ...]
    claims: tuple[Claim, ...]
    trials: tuple[Trial, ...]
    skipped: tuple[str, ...]

    @property
    def tables(self) -> list[Table]:
        """Return all tables, and the figures as tables."""
        return [part if isinstance(part, Table) else part.table() for part in self.parts]

    def text(self) -> str:
        """Return all results as text for a terminal."""
        shown = [part for part in self.parts if isinstance(part, Table) or not part.repeats]
        tables = [part if isinstance(part, Table) else part.table() for part in shown]
        facts = self.data
        head = (
            f"{facts['name']}: {facts['pairs']:,} pairs, {facts['items']:,} items. Means of {self.trials_each} trials."
        )
        sources = [f"[{name}] {citation}." for name, citation in citations().items()]
        odd = ["What is odd about the printed numbers:", *[f"- {what}" for what in contradictions().values()]]
        unknown = ["Not printed in the papers:", *[f"- {what}" for what in not_printed()]]
        blocks = [NOT_PRIVATE, "\n".join([head, *sources]), *[table.text() for table in tables]]
        lists = [claims_text(self.claims), *self.skipped, "\n".join(odd), "\n".join(unknown)]
        return "\n\n".join([*blocks, *lists]) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Return all results as plain values, with the warning first."""
        tables = [*self.tables, claims_table(self.claims)]
        return {
            "format": FORMAT,
            "warning": NOT_PRIVATE,
            "data": self.data,
            "trials_each": self.trials_each,
            "papers": citations(),
            "odd": contradictions(),
            "not_printed": list(not_printed()),
            "skipped": list(self.skipped),
            "tables": [
                {"title": one.title, "columns": one.columns, "rows": one.rows, "note": one.note} for one in tables
            ],
            "trials": [trial.to_dict() for trial in self.trials],
        }


@dataclass(frozen=True, slots=True)
class _Runner:
    """Runs the trials of a reproduction."""

    scale: Scale
    seed: int
    jobs: int
    journal: Journal | None
    progress: Progress | None

    def words(self, settings: list[Setting], shape: Shape) -> Measured:
        """Run settings on generated words."""
        tell = self.progress or (lambda _stage, _done: None)
        plans = plan_all(settings, tell)
        data = load(AskRedditFitted(self.scale.users, self.seed, shape), progress=self.progress)
        done = run_all(data, plans, trials=self.scale.trials, jobs=self.jobs, journal=self.journal, on_trial=tell)
        return Measured(data, sort_by_setting(done), comparable=self.scale.users == FULL.users)

    def texts(self, place: Path) -> MeasuredTexts:
        """Run n-grams on texts."""
        return measure_texts(
            place,
            self.scale.limits,
            self.scale.epsilons,
            trials=self.scale.text_trials,
            jobs=self.jobs,
            journal=self.journal,
            progress=self.progress,
        )


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
    """Run the evaluation of Gopi et al. on data fitted to theirs, and add Funnel, DP-SIPS and the ceiling.

    quick: few users and one trial, to see the shape; the printed numbers are then not comparable. users, trials:
    instead of the defaults. texts: a Parquet file with columns user and text, for n-grams; the default is
    imdb_reviews_50k.parquet in the folder DPUNION_DATA if it is there (and quick is off). out: a folder for
    results.json and trials.parquet; a journal in it keeps every finished trial, so that the same call after an
    interrupt runs only the missing ones. overwrite: start over.
    """
    usual = QUICK if quick else FULL
    each = usual.trials if trials is None else trials
    check_counts(each, jobs)
    scale = dataclasses.replace(
        usual, users=usual.users if users is None else users, trials=each, text_trials=min(each, usual.text_trials)
    )
    place = None if quick and texts is None else find_texts(texts)
    if out is not None:
        refuse_replacing([Path(out) / name for name in (RESULTS, TRIALS, JOURNAL)], place)
    with _journal_in(out, overwrite=overwrite) as journal:
        runner = _Runner(scale, seed, jobs, journal, progress)
        thin = runner.words(tail_settings(scale.limits), SHAPES["film reviews"])
        words = runner.words(all_settings(scale.limits, scale.epsilons, scale.margins), FITTED)
        measured_texts = None if place is None else runner.texts(place)
        study = Study(words, scale.limits, scale.epsilons, scale.margins, measured_texts)
        done = [trial for found in (words, thin) for of in found.trials.values() for trial in of]
        result = Reproduction(
            words.data.facts,
            each,
            tuple(_parts(study, thin)),
            tuple(claim(study) for claim in (*WORD_CLAIMS, *TEXT_CLAIMS)),
            (*done, *(measured_texts.trials if measured_texts else ())),
            _skipped(study, quick=quick),
        )
        if out is not None:
            for name in (RESULTS, TRIALS):
                write_results(Path(out) / name, result.to_dict(), overwrite=True)
    return result


def _parts(study: Study, thin: Measured) -> Iterator[Table | Figure]:
    words, limits = study.words, study.limits
    compared = compare_all(words, limits)
    if words.comparable:
        yield agreement_table(compared)
    yield paper_tables.statistics_table(words)
    yield paper_tables.zipf_figure(words.data)
    yield paper_tables.set_sizes_figure(words.data)
    yield paper_tables.sizes_table(words, limits)
    yield paper_tables.limits_figure(words, limits)
    yield paper_tables.printed_limits_figure(limits)
    yield paper_tables.journal_table(words, limits)
    yield paper_tables.journal_figure(words, limits)
    yield paper_tables.coverage_table(words)
    yield paper_tables.passes_table(words, limits)
    yield paper_tables.epsilons_figure(words, study.epsilons)
    yield paper_tables.margins_figure(words, study.margins)
    yield tail_table([("a chat, as above", words), ("film reviews", thin)], limits)
    if study.texts is not None:
        yield texts_table(study.texts)
        yield from text_figures(study.texts)
    if words.comparable:
        yield deviations_table(compared)


def _skipped(study: Study, *, quick: bool) -> tuple[str, ...]:
    found = []
    if not study.words.comparable:
        users = study.words.data.everything.users
        found.append(
            f"On {users:,} users nothing is compared with the papers, and the verdicts on claims are of that set."
        )
    if study.texts is None and quick:
        found.append("Left out by --quick: bigrams, trigrams and unions of lengths.")
    elif study.texts is None:
        found.append(
            "Left out: bigrams, trigrams and unions of lengths, as DPUNION_DATA names no folder with "
            f"{TEXTS} and no texts were given."
        )
    return tuple(found)


@contextlib.contextmanager
def _journal_in(out: str | os.PathLike[str] | None, *, overwrite: bool) -> Iterator[Journal | None]:
    """Create the folder of results and open the journal in it; results without a journal are not overwritten."""
    if out is None:
        yield None
        return
    folder = Path(out)

    def explain(error: OSError) -> CannotWrite:
        why = system_reason(error)
        return CannotWrite(f"The folder {folder} cannot be made: {why}.", "Choose another place for the results.")

    with ForeignErrors(explain, OSError):
        folder.mkdir(exist_ok=True)
    strangers = [name for name in (RESULTS, TRIALS) if (folder / name).exists()]
    if strangers and not (folder / JOURNAL).exists() and not overwrite:
        raise CannotWrite(f"{folder / strangers[0]} exists already.", "Choose another folder, or allow it (--force).")
    with open_journal(folder / JOURNAL, start_over=overwrite) as journal:
        yield journal
