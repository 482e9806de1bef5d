"""One table of metrics for JSON, terminal, reports and documents."""

from __future__ import annotations

from html import escape
from pathlib import Path

import weft
from weft.formulas.metrics import METRICS
from weft.report.scores import table
from weft.report.tables import COLUMNS, result_tables

PAGE = Path(__file__).resolve().parents[4] / "docs" / "reference" / "result.md"


def test_a_result_has_the_metrics_of_the_table_in_its_order() -> None:
    metrics = weft.simulate("tiny-20", "fifo").outcomes["fifo"][0].metrics

    assert list(metrics) == [metric.name for metric in METRICS if metric.name in metrics]
    assert len(metrics) >= 18


def test_a_report_has_a_column_for_every_heading_with_its_meaning() -> None:
    outcomes = weft.simulate("tiny-20", "fifo", bound=True).outcomes

    page = table(outcomes) + table(outcomes, "waits") + table(outcomes, "fairness")

    shown = [metric for metric in METRICS if metric.heading]
    assert all(f">{escape(m.heading)}" in page and escape(m.help) in page for m in shown)


def test_the_terminal_has_the_brief_ones() -> None:
    (wide,) = result_tables(weft.simulate("tiny-20", "fifo").outcomes, 500)

    headings = [str(column.header) for column in wide.columns]
    assert headings[1 : 1 + len(COLUMNS)] == [metric.heading for metric in COLUMNS]
    assert {"avg JCT", "GPUs used"} <= set(headings)
    assert "max JCT" not in headings


def test_the_terminal_has_a_table_of_fairness() -> None:
    (wide,) = result_tables(weft.simulate("tiny-20", "fifo").outcomes, 500, "fairness")

    headings = [str(column.header) for column in wide.columns]
    assert {"avg JCT", "worst FTF", "FTF > 1.05", "Jain", "envy", "tenant LTGF"} <= set(headings)
    assert "makespan" not in headings


def test_the_document_defines_every_metric() -> None:
    text = PAGE.read_text()

    assert all(f"| `{metric.name}` | {metric.over} |" in text for metric in METRICS)
