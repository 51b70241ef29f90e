"""The papers' numbers, as data with citations: only what was found in a source; what was not is listed too."""

from __future__ import annotations

import functools
import importlib.resources
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """One table of a paper, as far as it is known: rows[row][column] is a printed number.

    source: how the numbers came here. note: what is odd about them.
    """

    name: str
    paper: str
    table: str
    what: str
    setting: str
    source: str
    note: str
    rows: dict[str, dict[str, float]]

    def value(self, row: str, column: object) -> float | None:
        """Return the printed number, or None when it is not available to us."""
        return self.rows.get(row, {}).get(str(column))

    @property
    def citation(self) -> str:
        """Return where the numbers stand."""
        return f"[{self.paper}] {self.table}"


@functools.cache
def published_tables() -> dict[str, PublishedTable]:
    """Return the tables by name."""
    tables = _file()["tables"]
    return {name: PublishedTable(**({"name": name, "note": ""} | values)) for name, values in tables.items()}


def papers() -> dict[str, str]:
    """Return the full citations."""
    return dict(_file()["papers"])


def missing() -> tuple[str, ...]:
    """Return what the papers print and we have not seen."""
    return tuple(_file()["missing"])


@functools.cache
def _file() -> dict[str, Any]:
    text = (importlib.resources.files("dpunion.lab") / "published.json").read_text(encoding="utf-8")
    values: dict[str, Any] = json.loads(text)
    return values
