"""One self-contained HTML page for a release, plan, ledger or study: no network, and nothing of the items is run."""

from __future__ import annotations

from dpunion.report.budgets import ledger_page
from dpunion.report.charts import Axis, AxisScale, Chart, ChartKind, Series
from dpunion.report.pages import check_page, lab_page, release_page, write_page
from dpunion.report.planning import plan_page
from dpunion.report.tables import Gauge, Section, Table

__all__ = ["Axis", "AxisScale", "Chart", "ChartKind", "Gauge", "Section", "Series", "Table"]
__all__ += ["check_page", "lab_page", "ledger_page", "plan_page", "release_page", "write_page"]
