"""The papers' numbers as data with citations: tables, facts, figures, and the contradictions between them."""

from __future__ import annotations

import functools
import importlib.resources
import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """A printed row: values and standard deviations by column. unit: what the values count.

    unusable: columns with a misprint, and why we think so. alpha_said: the alpha in each place of a paper that
    contradicts itself. read_as: the policy and alpha that a row with a doubtful label most likely has. released: the
    size of the release behind the row. same_as: the earlier row that it repeats digit for digit. bold: the columns that
    the paper marks as best.
    """

    label: str
    values: dict[str, float]
    sd: dict[str, float] = field(default_factory=dict)
    unit: str = ""
    policy: str = ""
    alpha: float | None = None
    alpha_said: dict[str, float] = field(default_factory=dict)
    read_as: dict[str, Any] = field(default_factory=dict)
    released: int | None = None
    unusable: dict[str, str] = field(default_factory=dict)
    unsure_sd: list[str] = field(default_factory=list)
    bold: list[str] = field(default_factory=list)
    same_as: str = ""
    note: str = ""

    def value(self, column: object) -> float | None:
        """Return the printed number, or None if the column has none."""
        return self.values.get(str(column))

    def usable(self, column: object) -> float | None:
        """Return the printed number, or None if the column has none or a misprint."""
        return None if str(column) in self.unusable else self.value(column)


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table of a paper. column: the parameter of its columns. repeats: the earlier table with the same numbers."""

    name: str
    paper: str
    table: str
    what: str
    setting: dict[str, Any]
    column: str
    columns: list[int]
    rows: dict[str, PublishedRow]
    repeats: str = ""
    note: str = ""

    @property
    def citation(self) -> str:
        """Return the paper and the table."""
        return f"[{self.paper}] {self.table}"


@dataclass(frozen=True, slots=True)
class PublishedFact:
    """A number or statement in the text of a paper."""

    paper: str
    where: str
    what: str
    value: Any
    unit: str = ""

    @property
    def citation(self) -> str:
        """Return the paper and the place in it."""
        return f"[{self.paper}] {self.where}"


@dataclass(frozen=True, slots=True)
class PublishedFigure:
    """A figure in words: axes, curves, the fixed parameters, and what the paper says about it."""

    paper: str
    figure: str
    what: str
    x: str | None
    y: str | None
    curves: list[str] | str
    fixed: dict[str, Any]
    stated: list[str]

    @property
    def has_data(self) -> bool:
        """Say whether the figure shows measurements, or is a sketch for a proof."""
        return self.x is not None


@functools.cache
def published_tables() -> dict[str, PublishedTable]:
    """Return the tables by name."""
    found = {}
    for name, values in _file()["tables"].items():
        rows = {row: PublishedRow(**what) for row, what in values["rows"].items()}
        found[name] = PublishedTable(**({"name": name} | values | {"rows": rows}))
    return found


@functools.cache
def published_facts() -> tuple[PublishedFact, ...]:
    """Return the facts in the text of the papers."""
    return tuple(PublishedFact(**values) for values in _file()["facts"])


@functools.cache
def published_figures() -> tuple[PublishedFigure, ...]:
    """Return all figures, also the sketches."""
    return tuple(PublishedFigure(**values) for values in _file()["figures"])


def published_fact(what: str) -> Any:
    """Return the value of the first fact with this name; a missing one is a bug."""
    return next(fact.value for fact in published_facts() if fact.what == what)


def contradictions() -> dict[str, str]:
    """Return the contradictions, misprints and doubts about the printed numbers, by a short name."""
    return {note["id"]: f"{note['what']} [{note['where']}]." for note in _file()["notes"]}


def papers() -> dict[str, str]:
    """Return the full citations."""
    return dict(_file()["papers"])


def not_printed() -> tuple[str, ...]:
    """Return what readers would look for in the papers and not find."""
    return tuple(_file()["not_printed"])


@functools.cache
def _file() -> dict[str, Any]:
    text = (importlib.resources.files("dpunion_lab") / "published.json").read_text(encoding="utf-8")
    values: dict[str, Any] = json.loads(text)
    return values
