"""Pages: one HTML file each, with a policy that forbids it to load or to run anything else."""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.resources
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpunion.checks import check_suffix
from dpunion.files import OWNER_ONLY, atomic_file, check_place
from dpunion.releases.formats import escape_controls
from dpunion.releases.release import Release
from dpunion.report.charts import AxisScale, Chart, drawings, load_library
from dpunion.report.sections import STUDY, describe_release
from dpunion.report.tables import Cell, Gauge, Section, Table, number, percent

SUFFIXES = (".html", ".htm")
FIRST_ROWS = 500  # for readers without scripts, the page itself has this many rows with counts
# Not allowed in a script block: characters that could end it or open a comment, that are invisible, or that change the
# direction of text.
UNSAFE = re.compile("[<>&\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\ufff9-\ufffb]")


NO_RELEASE: dict[str, Any] = dict.fromkeys(("about", "before", "columns", "numbers"), ())
NO_RELEASE |= {"symbols": None, "signed": False, "items": None, "data": ""}
"""What the template gets for a page that is not about a release."""


def release_page(release: Release) -> str:
    """Return the page of a release, to be signed: what it means for one person, the list, and how it was made.

    Guarantees:
    - the page has the released items, the plan and what follows from it, and nothing else;
    - items are data: no browser parses them as HTML or runs them.
    """
    text = describe_release(release)
    width, rows = len(text["columns"]), text["items"][:FIRST_ROWS] if text["numbers"] else ()
    first = [([escape_controls(str(one)) for one in row[:width]], list(map(number, row[width:]))) for row in rows]
    return render_page(**text, width=width + len(text["numbers"]), first=first, data=embedded(text["items"]))


def lab_page(title: str, sections: Sequence[Section], *, lead: str = "") -> str:
    """Return a page of a study: charts and tables, with the warning that it is not a release."""
    return render_page(title=title, lead=lead, facts=(), warning=STUDY, sections=sections)


def check_page(path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Return the path; refuse early a path to which no page can be written."""
    target = Path(path)
    check_suffix("A page's suffix", target, SUFFIXES, "Name the page for example report.html.")
    check_place(target, overwrite=overwrite)
    return target


def write_page(path: str | os.PathLike[str], html: str, *, overwrite: bool = False, owner_only: bool = False) -> Path:
    """Write a page, whole or not at all; return its path. owner_only: nobody else may read it."""
    target = check_page(path, overwrite=overwrite)
    with atomic_file(target, overwrite=overwrite, mode=OWNER_ONLY if owner_only else None) as file:
        file.write(html.encode("utf-8", "replace"))
    return target


def embedded(value: object) -> str:
    """Return a value as JSON that is safe inside a script block of an HTML page.

    Guarantees: it has no '<', no '&', no line separator, no invisible character and no lone surrogate; parsed, it gives
    the value.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


@functools.cache
def _resource(name: str) -> str:
    return (importlib.resources.files("dpunion.report") / "templates" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return the name of this text in a content security policy."""
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
    environment.filters |= {"number": number, "draw": _draw_part}
    return environment


def render_page(**context: Any) -> str:
    """Return a page: title, lead, facts that come first, a warning, sections, and what only a release has."""
    from dpunion import __version__

    style, script = _resource("page.css"), _resource("page.js")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    page = _environment().get_template("page.html")
    return str(page.render(style=style, script=script, policy=policy, version=__version__, **(NO_RELEASE | context)))


def _draw_part(part: Chart | Table | Gauge) -> dict[str, Any]:
    """Return a part of a section for the template: a chart drawn, with the table behind it."""
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
    known: list[dict[float | str, str]] = []
    for one in chart.series:
        bands = [f" ({write(low)} to {write(high)})" for low, high in zip(one.lows, one.highs, strict=True)]
        values = zip(one.xs, one.ys, bands or [""] * len(one.xs), strict=True)
        known.append({x: write(y) + band for x, y, band in values})
    for place in chart.places:
        label = place if isinstance(place, str) else number(int(place) if float(place).is_integer() else place)
        rows.append((label, *[one.get(place) for one in known]))
    return Table(chart.title, (chart.x.title, *[one.name for one in chart.series]), tuple(rows))
