"""Bigrams, trigrams and unions of lengths (JPC Figures 6 to 11), on other texts than the papers used."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpunion.errors import BadParameter
from dpunion.report.tables import Cell, Table
from dpunion.requests import Progress, Words
from dpunion_lab.data import load
from dpunion_lab.measuring import Figure, Line, ceiling, sort_by_setting
from dpunion_lab.results import Journal
from dpunion_lab.rows import BY_NAME, DELTA, EPSILON, FUNNEL, FUNNEL_ITEMS, ICML_MARGIN, ITEMS, JPC_MARGIN, L1, Row
from dpunion_lab.trials import Setting, Trial, plan_all, run_all

TEXTS = "imdb_reviews_50k.parquet"
LENGTHS = {
    "1": "words",
    "2": "bigrams",
    "3": "trigrams",
    "1-2": "words and bigrams as one set",
    "1-3": "words, bigrams and trigrams as one set",
}
OVER_EPSILON = ("2", "3")
FIGURES = {("2", "Δ0"): 6, ("2", "ε"): 7, ("3", "Δ0"): 8, ("3", "ε"): 9, ("1-2", "Δ0"): 10, ("1-3", "Δ0"): 11}
"""The figures of the journal version, by lengths and the parameter that varies."""
PAPER_NAMES = (
    "count-laplace",
    "count-gaussian",
    "weighted-laplace",
    "weighted-gaussian",
    "policy-laplace",
    "policy-gaussian",
    L1,
)
TEXT_ROWS = tuple(BY_NAME[name] for name in (*PAPER_NAMES, "funnel"))
TABLE_ROWS = (*TEXT_ROWS, BY_NAME["dp-sips"])
"""DP-SIPS draws everybody's items anew in each round, which is slow on n-grams: only the table has it."""
TEXT_MARGINS = {"policy-gaussian": ICML_MARGIN}
TEXT_NOTE = (
    "δ = e⁻¹⁰; α = 3, l2-descent 5 (the caption of JPC Figure 5). Not the papers' texts, and the papers print no "
    "points of these figures: nothing to compare with but what they say about them."
)


def text_setting(row: Row, items: int, epsilon: float = EPSILON) -> Setting:
    """Return a setting of the figures over texts."""
    return row.setting(items, TEXT_MARGINS.get(row.name, JPC_MARGIN), epsilon)


def text_epsilon_setting(row: Row, epsilon: float) -> Setting:
    """Return a setting of the figures over epsilon, with 100 items per user; Funnel keeps its own number."""
    return text_setting(row, FUNNEL_ITEMS if row is FUNNEL else ITEMS, epsilon)


@dataclass(frozen=True, slots=True)
class MeasuredTexts:
    """Mean sizes by lengths and setting, and ceilings by lengths and epsilon. place: the file's name."""

    place: str
    limits: tuple[int, ...]
    epsilons: tuple[float, ...]
    sizes: Mapping[str, Mapping[Setting, float]]
    ceilings: Mapping[str, Mapping[float, float]]
    trials: tuple[Trial, ...]
    trials_each: int

    def over_limits(self, lengths: str, name: str) -> list[float]:
        """Return the sizes of an algorithm by items per user."""
        return [self.sizes[lengths][text_setting(BY_NAME[name], limit)] for limit in self.limits]

    def over_epsilons(self, lengths: str, name: str) -> list[float]:
        """Return the sizes of an algorithm by epsilon."""
        return [self.sizes[lengths][text_epsilon_setting(BY_NAME[name], epsilon)] for epsilon in self.epsilons]


def measure_texts(
    place: Path,
    limits: tuple[int, ...],
    epsilons: tuple[float, ...],
    *,
    trials: int,
    jobs: int,
    journal: Journal | None,
    progress: Progress | None,
) -> MeasuredTexts:
    """Run all algorithms on every union of lengths, with one of them in memory at a time."""
    sizes: dict[str, dict[Setting, float]] = {}
    ceilings: dict[str, dict[float, float]] = {}
    everything: list[Trial] = []
    for lengths in LENGTHS:
        plans = plan_all(_settings(lengths, limits, epsilons))
        data = load(place, user="user", item=Words("text", lengths=lengths), progress=progress)
        done = run_all(data, plans, trials=trials, jobs=jobs, journal=journal, on_trial=progress)
        found = sort_by_setting(done)
        sizes[lengths] = {setting: sum(trial.size for trial in of) / len(of) for setting, of in found.items()}
        holders = data.holders.astype(float)
        ceilings[lengths] = {epsilon: ceiling(epsilon, DELTA, holders) for epsilon in {*epsilons, EPSILON}}
        everything += done
        del data
    return MeasuredTexts(place.name, limits, epsilons, sizes, ceilings, tuple(everything), trials)


def _settings(lengths: str, limits: Sequence[int], epsilons: Sequence[float]) -> list[Setting]:
    chosen = limits if lengths != "1" else (ITEMS,)
    found = [text_setting(row, limit) for row in TEXT_ROWS for limit in {*chosen, ITEMS}]
    found += [text_epsilon_setting(row, EPSILON) for row in TABLE_ROWS]
    if lengths in OVER_EPSILON:
        found += [text_epsilon_setting(row, epsilon) for row in TEXT_ROWS for epsilon in epsilons]
    return list(dict.fromkeys(found))


def texts_table(texts: MeasuredTexts) -> Table:
    """Return the sizes with 100 items per user, for every union of lengths."""
    rows: list[tuple[Cell, ...]] = [
        (row.name, *[texts.sizes[lengths][text_epsilon_setting(row, EPSILON)] for lengths in LENGTHS])
        for row in TABLE_ROWS
    ]
    rows.append(("ceiling", *[texts.ceilings[lengths][EPSILON] for lengths in LENGTHS]))
    note = (
        f"ε = 3, Δ0 = 100 (funnel 300), means of {texts.trials_each}. {TEXT_NOTE} Releasing lengths one after the "
        "other (dpunion ngrams) is another algorithm: docs/ngrams.md."
    )
    title = f"n-grams of texts, each column a release of its own [{texts.place}]"
    return Table(title, ("algorithm", *LENGTHS.values()), tuple(rows), note)


def text_figures(texts: MeasuredTexts) -> Iterator[Figure]:
    """Yield JPC Figures 6 to 11."""
    for (lengths, varies), number in FIGURES.items():
        over_limits = varies == "Δ0"
        places = tuple(map(float, texts.limits if over_limits else texts.epsilons))
        values = texts.over_limits if over_limits else texts.over_epsilons
        lines = [Line(row.name, places, tuple(values(lengths, row.name))) for row in TEXT_ROWS]
        what = LENGTHS[lengths]
        title = f"{what[0].upper()}{what[1:]} released by {varies} [JPC Figure {number}]"
        fixed = "ε = 3" if over_limits else "Δ0 = 100 (funnel 300)"
        x = "items per user Δ0" if over_limits else "ε"
        yield Figure(title, x, f"{what} released", tuple(lines), f"{fixed}, {TEXT_NOTE}", log_x=over_limits)


def find_texts(texts: str | os.PathLike[str] | None) -> Path | None:
    """Return this file of texts, else the reviews in the folder DPUNION_DATA, else None."""
    if texts is not None:
        if not Path(texts).is_file():
            raise BadParameter(f"There is no file {texts}.", "Name a Parquet file with columns user and text.")
        return Path(texts)
    folder = os.environ.get("DPUNION_DATA")
    place = Path(folder) / TEXTS if folder else None
    return place if place is not None and place.is_file() else None
