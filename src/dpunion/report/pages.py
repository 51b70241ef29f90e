"""Pages: everything in one HTML file, with a policy that forbids it to load or to run anything else."""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.resources
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dpunion.checks import check_suffix
from dpunion.files import OWNER_ONLY, atomic_file, check_place
from dpunion.releases.formats import escape_controls
from dpunion.releases.release import Release
from dpunion.report.charts import AxisScale, Chart, Series, drawings, load_library
from dpunion.report.sections import STUDY, describe_release
from dpunion.report.tables import Cell, Fact, Gauge, Section, Table, number, percent

SUFFIXES = (".html", ".htm")
FIRST_ROWS = 500
"""So many rows with counts are in the page for readers without scripts."""
# Inside a script block: what could end it or open a comment, and what is invisible or changes the direction of text.
UNSAFE = re.compile("[<>&\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\ufff9-\ufffb]")


def release_page(release: Release) -> str:
    """Return the page of a release, to be signed: what it means for one person, the list, and how it was made.

    Guarantees:
    - the page holds the released items, the plan and what follows from it, and nothing else;
    - items are data: none is ever parsed as HTML or run.
    """
    text = describe_release(release)
    return _render(
        title=text.title,
        lead=text.lead,
        facts=text.facts,
        warning=text.warning,
        about=text.about,
        before=[_shown(section) for section in text.before],
        symbols=text.symbols,
        signed=text.symbols is not None,
        items=text.items,
        count=len(release),
        noun=text.noun,
        columns=text.columns,
        numbers=text.numbers,
        width=len(text.columns) + len(text.numbers),
        first=[_first_cells(row, len(text.columns)) for row in text.items[:FIRST_ROWS]] if text.numbers else (),
        data=embedded(text.items),
        sections=[_shown(section) for section in text.sections],
    )


def _first_cells(row: Sequence[str | int], width: int) -> tuple[list[str], list[str]]:
    """Return a row's texts and numbers as they show where no script runs."""
    return [escape_controls(str(text)) for text in row[:width]], [number(value) for value in row[width:]]


def lab_page(title: str, sections: Sequence[Section], *, lead: str = "") -> str:
    """Return a page of a study: charts and tables, and the word that it is no release."""
    shown = [_shown(section) for section in sections]
    return _render(title=title, lead=lead, facts=(), warning=STUDY, sections=shown)


def public_page(
    *, title: str, lead: str, key_facts: Sequence[Fact], warning: str | None, sections: Sequence[Section]
) -> str:
    """Return a page of charts and tables about public numbers, with the most important ones first."""
    shown = [_shown(section) for section in sections]
    return _render(title=title, lead=lead, facts=key_facts, warning=warning, sections=shown)


def check_page(path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Refuse early a place where no page can be written; return it otherwise."""
    target = Path(path)
    check_suffix("A page's suffix", target, SUFFIXES, "Name the page for example report.html.")
    check_place(target, overwrite=overwrite)
    return target


def write_page(path: str | os.PathLike[str], html: str, *, overwrite: bool = False, owner_only: bool = False) -> Path:
    """Write a page, whole or not at all; return where. owner_only: nobody else may read it."""
    target = check_page(path, overwrite=overwrite)
    with atomic_file(target, overwrite=overwrite, mode=OWNER_ONLY if owner_only else None) as file:
        file.write(html.encode("utf-8", "replace"))
    return target


def embedded(value: object) -> str:
    """Return a value as JSON that may stand inside a script block of any HTML page.

    Guarantees: no '<', no '&', no line separator, no invisible and no half character is in it; parsed, it is the value.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


@functools.cache
def _resource(name: str) -> str:
    return (importlib.resources.files("dpunion.report") / "templates" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return what a content security policy calls this very text."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


@functools.cache
def _environment() -> Any:
    jinja2 = load_library("jinja2")
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.FunctionLoader(_resource),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = number
    return environment


def _render(**context: Any) -> str:
    from dpunion import __version__

    style, script = _resource("page.css"), _resource("page.js")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    empty: dict[str, Any] = {
        "about": (),
        "before": (),
        "symbols": None,
        "signed": False,
        "items": None,
        "columns": (),
        "numbers": (),
        "data": "",
    }
    page = _environment().get_template("page.html")
    return str(page.render(style=style, script=script, policy=policy, version=__version__, **(empty | context)))


def _shown(section: Section) -> dict[str, Any]:
    """Return a section as the template wants it: charts drawn, with the tables behind them."""
    return {
        "title": section.title,
        "text": section.text,
        "points": section.points,
        "folded": section.folded,
        "choice": section.choice,
        "first": section.first,
        "parts": [_drawn(part) for part in section.parts],
    }


def _drawn(part: Chart | Table | Gauge) -> dict[str, Any]:
    match part:
        case Chart():
            return {"kind": "chart", "chart": part, "drawings": drawings(part), "table": behind(part)}
        case Table():
            return {"kind": "table", "table": part}
        case Gauge():
            return {"kind": "gauge", "gauge": part}


def behind(chart: Chart) -> Table:
    """Return the table behind a chart: a row for each place on the x axis, a column for each series."""
    write = percent if chart.y.scale is AxisScale.PERCENT else number
    rows: list[tuple[Cell, ...]] = []
    known = [dict(zip(one.xs, _written(one, write), strict=True)) for one in chart.series]
    for place in chart.places:
        label = place if isinstance(place, str) else number(int(place) if float(place).is_integer() else place)
        rows.append((label, *[one.get(place) for one in known]))
    columns = (chart.x.title, *[one.name for one in chart.series])
    return Table(chart.title, columns, tuple(rows))


def _written(series: Series, write: Callable[[float], str]) -> list[str]:
    """Return the values of a series in words, each with its band."""
    values = list(map(write, series.ys))
    if not series.lows:
        return values
    bands = zip(map(write, series.lows), map(write, series.highs), strict=True)
    return [f"{value} ({low} to {high})" for value, (low, high) in zip(values, bands, strict=True)]
