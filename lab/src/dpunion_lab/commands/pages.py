"""Pages of the lab: what a study found, drawn by dpunion.report, which stamps it as no release."""

from __future__ import annotations

from dpunion.report import Axis, AxisScale, Chart, ChartKind, Section, Series, Table, lab_page
from dpunion.report.tables import Cell, write_cell
from dpunion_lab.claims import claims_lines, claims_note
from dpunion_lab.comparison import Comparison
from dpunion_lab.measuring import Figure
from dpunion_lab.paper_tables import HERE
from dpunion_lab.published import contradictions, not_printed
from dpunion_lab.published import papers as citations
from dpunion_lab.reproduction import Reproduction

MOST_BARS = 60


def reproduction_page(result: Reproduction) -> str:
    """Return the page of a reproduction."""
    facts = result.data
    lead = f"{facts['name']}: {facts['pairs']:,} pairs, {facts['items']:,} items. Means of {result.trials_each} trials."
    sections = [_section(part) for part in result.parts]
    sections.append(Section("Claims", _claims(result), (_verdicts(result),)))
    sections.append(Section("What is odd about the printed numbers", tuple(contradictions().values())))
    sections.append(Section("Left out", (*result.skipped, "Not printed in the papers:", *not_printed())))
    sections.append(Section("Papers", tuple(f"[{name}] {text}" for name, text in citations().items())))
    return lab_page("The papers' evaluation, run again", sections, lead=f"NOT PRIVATE. {lead}")


def _claims(result: Reproduction) -> tuple[str, ...]:
    """Return the claims as paragraphs, which a phone can show."""
    return claims_note(result.claims), *map(" ".join, claims_lines(result.claims))


def _verdicts(result: Reproduction) -> Table:
    rows = tuple(
        (str(number), claim.by_papers.verdict.value, claim.by_runs.verdict.value)
        for number, claim in enumerate(result.claims, 1)
    )
    return Table("Verdicts", ("claim", "by the papers' own tables", "by our runs"), rows)


def comparison_page(result: Comparison) -> str:
    """Return the page of a comparison: bars for each budget, lines over epsilon, and the table."""
    table = result.table()
    sections = [Section("Table", (), (_table(table),))]
    labels = _labels(result)
    rows = result.rows()
    budgets = dict.fromkeys((row["epsilon"], row["delta"]) for row in rows)
    for epsilon, delta in budgets:
        chosen = [(label, row) for label, row in zip(labels, rows, strict=True) if _is_of(row, epsilon, delta)]
        if len(chosen) <= MOST_BARS:
            bars = Series(
                "released", tuple(label for label, _ in chosen), tuple(float(row["mean"]) for _, row in chosen)
            )
            title = f"With ε = {epsilon:g}, δ = {delta:.4g}"
            note = f"No private algorithm releases more than {result.ceilings[epsilon, delta]:,.0f} in expectation."
            x, y = Axis("setting", AxisScale.NAMES), Axis("items released")
            sections.insert(-1, Section(title, (), (Chart("Items released", x, y, (bars,), ChartKind.BAR, note),)))
    deltas = dict.fromkeys(delta for _, delta in budgets)
    if len(budgets) // len(deltas) > 1:
        sections[:0] = [_over_epsilon(result, labels, delta) for delta in deltas]
    return lab_page("Comparison of algorithms", sections, lead=f"NOT PRIVATE. {table.title}. {table.note}")


def _over_epsilon(result: Comparison, labels: list[str], delta: float) -> Section:
    lines: dict[str, list[tuple[float, float]]] = {}
    for label, row in zip(labels, result.rows(), strict=True):
        if row["delta"] == delta:
            lines.setdefault(label, []).append((row["epsilon"], row["mean"]))
    lines["ceiling"] = [(epsilon, most) for (epsilon, other), most in result.ceilings.items() if other == delta]
    series = tuple(
        Series(label, tuple(x for x, _ in sorted(points)), tuple(y for _, y in sorted(points)))
        for label, points in lines.items()
    )
    positive = all(y > 0.0 for one in series for y in one.ys)
    sizes = Axis("items released", AxisScale.LOG if positive else AxisScale.LINEAR)
    return Section(f"By ε, with δ = {delta:.4g}", (), (Chart("Items released by ε", Axis("ε"), sizes, series),))


def _labels(result: Comparison) -> list[str]:
    """Return a short name for each setting without its budget: what varies comes first, as long names are cut."""
    varying = [
        name for name in result.table().columns[1:] if name in {n for s in result.settings for n in s.parameters}
    ]
    labels = []
    for setting in result.settings:
        parts = [f"{setting.parameters[name]}" for name in varying if name in setting.parameters]
        labels.append(" · ".join([*parts, setting.name]))
    return labels


def _is_of(row: dict[str, object], epsilon: float, delta: float) -> bool:
    return row["epsilon"] == epsilon and row["delta"] == delta


def _section(part: Table | Figure) -> Section:
    if isinstance(part, Table):
        return Section(_heading(part.title), (), (_table(part),))
    x = Axis(part.x, AxisScale.LOG if part.log_x else AxisScale.LINEAR)
    y = Axis(part.y, AxisScale.PERCENT if part.percent else AxisScale.LOG if part.log_y else AxisScale.LINEAR)
    series = tuple(Series(line.name, line.xs, line.ys) for line in part.lines)
    return Section(_heading(part.title), (), (Chart(part.title, x, y, series, note=part.note),))


def _heading(title: str) -> str:
    """Return a title without its citation."""
    return title.partition(" [")[0]


def _table(table: Table) -> Table:
    """Return a table for a page, narrow enough for a phone: its first column says what each row contains."""
    columns, rows = table.columns, table.rows
    if columns[1] == "":
        columns = (columns[0], *columns[2:])
        rows = tuple((_label(row[0], row[1]), *row[2:]) for row in rows)
    # Where percentages stand among numbers all is written as text, so that the cells stand below each other.
    if any(isinstance(cell, str) for row in rows for cell in row[1:]):
        rows = tuple(tuple(_kept_together(write_cell(cell)) for cell in row) for row in rows)
    return Table(table.title, columns, rows, table.note)


def _label(name: Cell, what: Cell) -> str:
    """Return one label for a row that two cells describe."""
    return f"· {what}" if not name else str(name) if what == HERE else f"{name}, {what}"


def _kept_together(text: str) -> str:
    return text.strip().replace(" %", "\u00a0%").replace(" ±", "\u00a0±").replace("±  ", "±").replace("± ", "±")
