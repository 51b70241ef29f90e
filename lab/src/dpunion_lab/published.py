"""The papers' numbers, as data with citations: every table, every fact, every figure, and what contradicts what."""

from __future__ import annotations

import functools
import importlib.resources
import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """A printed row: values and standard deviations by column. unit: what is counted. released: the size behind it.

    unusable: columns whose number cannot be meant, with the reason. alpha_said: what the paper says in which place,
    where it contradicts itself. read_as: the policy and alpha that the row has by all we know, where its label is
    doubtful. same_as: the earlier row that it repeats digit for digit. bold: columns that are marked as best.
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
        """Return the printed number, or None where there is none."""
        return self.values.get(str(column))

    def usable(self, column: object) -> float | None:
        """Return the printed number, or None where there is none or it cannot be meant."""
        return None if str(column) in self.unusable else self.value(column)


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table of a paper. column: what its columns count. repeats: the earlier table with the same numbers."""

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
        """Return where the numbers stand."""
        return f"[{self.paper}] {self.table}"


@dataclass(frozen=True, slots=True)
class PublishedFact:
    """A number or statement of the running text."""

    paper: str
    where: str
    what: str
    value: Any
    unit: str = ""

    @property
    def citation(self) -> str:
        """Return where it stands."""
        return f"[{self.paper}] {self.where}"


@dataclass(frozen=True, slots=True)
class PublishedFigure:
    """A figure as far as words tell: axes, curves, what was held fixed, and what the paper says about it."""

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
        """Say whether it shows measurements; sketches for proofs do not."""
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
    """Return the facts of the running text."""
    return tuple(PublishedFact(**values) for values in _file()["facts"])


@functools.cache
def published_figures() -> tuple[PublishedFigure, ...]:
    """Return the figures, sketches included."""
    return tuple(PublishedFigure(**values) for values in _file()["figures"])


def published_fact(what: str) -> Any:
    """Return the value of the first fact that is called so; a fact that is not there is a mistake of ours."""
    return next(fact.value for fact in published_facts() if fact.what == what)


def contradictions() -> dict[str, str]:
    """Return what is odd about the printed numbers, by a short name: contradictions, misprints and doubts."""
    return {note["id"]: f"{note['what']} [{note['where']}]." for note in _file()["notes"]}


def papers() -> dict[str, str]:
    """Return the full citations."""
    return dict(_file()["papers"])


def not_printed() -> tuple[str, ...]:
    """Return what one would look for and the papers do not print."""
    return tuple(_file()["not_printed"])


@functools.cache
def _file() -> dict[str, Any]:
    text = (importlib.resources.files("dpunion_lab") / "published.json").read_text(encoding="utf-8")
    values: dict[str, Any] = json.loads(text)
    return values
