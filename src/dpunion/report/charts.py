"""Charts: a Vega-Lite description, drawn once into SVG by the Vega project's own converter.

The drawing is static, so a page needs no chart library, no network and no right to evaluate text, prints sharply, and
takes its colours from the page's style sheet (dark mode). The page reads the values that the pointer shows from the
table behind the chart. Each chart is drawn twice, for wide and for narrow screens.
"""

from __future__ import annotations

import enum
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import Any

from dpunion.errors import BadParameter, import_library

SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
SIZES = {"wide": (800, 340), "narrow": (350, 270)}
BAR_HEIGHT = {"wide": 22, "narrow": 18}
COLOURS = 8
LINE, BAR, BAND = "line", "bar", "band"
MARKS = {LINE: "00", BAR: "01", BAND: "02"}
"""Marks in a series' colour: the class that each gets, and two digits of the colour that stands for it until then."""


class ChartKind(enum.Enum):
    """How the values are drawn."""

    LINE = "line"
    BAR = "bar"


class AxisScale(enum.Enum):
    """The scale of an axis."""

    LINEAR = "linear"
    LOG = "log"
    PERCENT = "percent"
    NAMES = "names"


@dataclass(frozen=True, slots=True)
class Axis:
    """The title and the scale of an axis."""

    title: str
    scale: AxisScale = AxisScale.LINEAR


@dataclass(frozen=True, slots=True)
class Series:
    """One line, or the bars of one colour: ys[i] at xs[i]; a line may lie in a band, from lows[i] to highs[i]."""

    name: str
    xs: tuple[float | str, ...]
    ys: tuple[float, ...]
    lows: tuple[float, ...] = ()
    highs: tuple[float, ...] = ()

    @property
    def heights(self) -> tuple[float, ...]:
        """Return all values that are drawn."""
        return (*self.ys, *self.lows, *self.highs)


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing with its texts. Bars are horizontal, and their x is their name.

    short: its name among the charts of a section. smooth: join the points by a monotone curve instead of lines.
    """

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    kind: ChartKind = ChartKind.LINE
    note: str = ""
    short: str = ""
    smooth: bool = False

    def __post_init__(self) -> None:
        for one in self.series:
            if len(one.xs) != len(one.ys):
                raise BadParameter(
                    f"A series has {len(one.xs)} places for {len(one.ys)} values.", "Give one place for each value."
                )
            if not len(one.lows) == len(one.highs) in (0, len(one.xs)):
                raise BadParameter("A series has a band for some of its values.", "Give it for all, or for none.")
            if not all(math.isfinite(y) for y in one.heights):
                raise BadParameter("A series has a value that is not a finite number.", "Leave such values out.")
        if len({one.name for one in self.series}) < len(self.series):
            raise BadParameter("Two series of a chart have the same name.", "Name each series differently.")

    @property
    def places(self) -> tuple[float | str, ...]:
        """Return all x values: numbers in rising order, names in the order given."""
        found = dict.fromkeys(x for one in self.series for x in one.xs)
        if self.x.scale is AxisScale.NAMES:
            return tuple(found)
        return tuple(sorted(found, key=float))


def drawings(chart: Chart) -> dict[str, str]:
    """Return the chart as SVG elements for HTML, by the kind of screen."""
    converter = load_library("vl_convert")
    return {
        screen: clean_drawing(converter.vegalite_to_svg(specification(chart, screen)), chart, screen)
        for screen in SIZES
    }


def load_library(module: str) -> Any:
    """Import a library that only pages need, or say how to install it."""
    return import_library(module, f"Pages need {module}", "'dpunion[report]'")


def specification(chart: Chart, screen: str) -> dict[str, Any]:
    """Return the chart in Vega-Lite; series have numbers, so that Vega never interprets their names."""
    width, height = SIZES[screen]
    places = {place: at for at, place in enumerate(chart.places)}
    values = [
        {
            "place": str(x) if chart.x.scale is AxisScale.NAMES else float(x),
            "order": places[x],
            "value": float(y),
            "low": float(low),
            "high": float(high),
            "series": at,
        }
        for at, one in enumerate(chart.series)
        for x, y, low, high in zip(one.xs, one.ys, one.lows or one.ys, one.highs or one.ys, strict=True)
    ]
    shape = _lines(chart, height) if chart.kind is ChartKind.LINE else _bars(chart, screen)
    return {
        "$schema": SCHEMA,
        "width": width,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "background": None,
        "data": {"values": values},
        "config": {
            "view": {"stroke": None},
            "axis": {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": 400, "titlePadding": 10},
            "axisX": {"labelFlush": False, "labelOverlap": "greedy", "labelSeparation": 8},
        },
        **shape,
    }


def _colours(chart: Chart, mark: str) -> dict[str, Any]:
    numbers = list(range(len(chart.series)))
    scale = {"domain": numbers, "range": [_marker(at, mark) for at in numbers]}
    return {"field": "series", "type": "nominal", "legend": None, "scale": scale}


def _lines(chart: Chart, height: int) -> dict[str, Any]:
    places = [float(place) for place in chart.places]
    heights = [y for one in chart.series for y in one.heights]
    along = {"field": "place", "type": "quantitative", **_axis(chart.x, places, grid=False)}
    upward = {"type": "quantitative", **_axis(chart.y, heights, grid=True)}
    interpolate = "monotone" if chart.smooth else "linear"
    lines = {
        "mark": {"type": "line", "interpolate": interpolate},
        "encoding": {"x": along, "y": {"field": "value", **upward}, "color": _colours(chart, LINE)},
    }
    if not any(one.lows for one in chart.series):
        return {"height": height, **lines}
    bands = {
        "mark": {"type": "area", "interpolate": interpolate},
        "encoding": {
            "x": along,
            "y": {"field": "low", **upward},
            "y2": {"field": "high"},
            "color": _colours(chart, BAND),
        },
    }
    return {"height": height, "layer": [bands, lines], "resolve": {"scale": {"color": "independent"}}}


def _bars(chart: Chart, screen: str) -> dict[str, Any]:
    place = {"field": "place", "type": "nominal", "sort": {"field": "order", "op": "min"}}
    encoding: dict[str, Any] = {
        "color": _colours(chart, BAR),
        "y": {**place, "title": None, "axis": {"labelLimit": 130, "ticks": False, "domain": False, "labelPadding": 8}},
        "x": {
            "field": "value",
            "type": "quantitative",
            **_axis(chart.y, [y for one in chart.series for y in one.ys], grid=True),
        },
    }
    if len(chart.series) > 1:
        encoding["yOffset"] = {"field": "series", "type": "nominal"}
    step = BAR_HEIGHT[screen]
    return {
        "height": {"step": step, "for": "offset"} if len(chart.series) > 1 else {"step": step * 1.6},
        "mark": {"type": "bar", "height": {"band": 0.7}},
        "encoding": encoding,
    }


def _axis(axis: Axis, values: list[float], *, grid: bool) -> dict[str, Any]:
    scale: dict[str, Any] = {"zero": grid}
    drawn: dict[str, Any] = {"grid": grid, "tickCount": 6, "format": ",.6~r"}
    if axis.scale is AxisScale.LOG:
        scale = {"type": "log", "nice": False}
        drawn = {"grid": grid, "format": ",.6~r", "values": _round_numbers(values)}
    elif axis.scale is AxisScale.PERCENT:
        drawn |= {"format": ".0%", "tickCount": 5}
        if max(values, default=0.0) > 0.6:
            scale["domain"] = [0.0, 1.0]
    return {"title": axis.title, "scale": scale, "axis": drawn}


def _round_numbers(values: list[float]) -> list[float]:
    """Return 1, 2, 5, 10, ... as far as the values go; over more than three powers of ten, the powers alone."""
    low, high = min(values, default=1.0), max(values, default=1.0)
    if not low > 0.0:
        raise BadParameter("A logarithmic axis has values that are not above 0.", "Choose a linear axis.")
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high / low <= 1e3 else (1,)  # on a phone more labels would overlap
    return [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]


def _marker(at: int, mark: str) -> str:
    """Return a colour that stands for a mark of series `at` until a class of the page replaces it."""
    return f"#00{MARKS[mark]}{at:02x}"


def clean_drawing(svg: str, chart: Chart, screen: str) -> str:
    """Return the drawing with classes instead of colours, short numbers and one label, without unused attributes.

    Guarantees: it has only drawing elements and their geometry; text stays text.
    """
    root = ET.fromstring(svg)  # noqa: S314 - our own converter's output
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    colours = {_marker(at, mark): (at, mark) for at in range(len(chart.series)) for mark in MARKS}
    for parent, element in [(one, child) for one in root.iter() for child in one]:
        # The drawing also has labels that would overlap others, invisibly.
        unseen = element.get("display") == "none" or element.get("opacity") == "0"
        if unseen or element.get("class") == "background":
            parent.remove(element)
            continue
        _strip(element, colours)
    width, height = root.get("width", "0"), root.get("height", "0")
    root.attrib.clear()
    root.attrib.update(
        {
            "class": f"drawing {screen}",
            "viewBox": f"0 0 {width} {height}",
            "role": "img",
            "tabindex": "0",
            "data-kind": chart.kind.value,
            "aria-label": f"{chart.title}. The numbers are in the table below.",
        }
    )
    return ET.tostring(root, encoding="unicode")


GEOMETRY = {"d", "transform", "x", "y", "x1", "x2", "y1", "y2", "width", "height", "text-anchor"}


def _strip(element: ET.Element, colours: dict[str, tuple[int, str]]) -> None:
    """Keep an element's geometry and role, and replace its colour by a class."""
    roles = [word for word in element.get("class", "").split() if word.startswith("role-")]
    kept = {name: value for name, value in element.attrib.items() if name in GEOMETRY}
    for name in ("fill", "stroke"):
        if (found := colours.get(element.get(name, ""))) is not None:
            at, mark = found
            roles += [mark, f"s{at % COLOURS}"] + ["dashed"] * (at >= COLOURS)
            kept["data-series"] = str(at)
    element.attrib.clear()
    for name, value in kept.items():
        element.set(name, re.sub(r"-?\d+\.\d+", lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), value))
    if roles:
        element.set("class", " ".join(dict.fromkeys(roles)))
