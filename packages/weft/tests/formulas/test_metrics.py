"""One table of metrics for JSON, terminal, reports and documents."""

from __future__ import annotations

from html import escape
from itertools import product
from pathlib import Path

import numpy as np

import weft
from weft.formulas.fairness.shares import Stretches
from weft.formulas.metrics import METRICS, measure
from weft.formulas.run import RunOutcome
from weft.report.scores import table
from weft.report.tables import COLUMNS, result_tables

PAGE = Path(__file__).resolve().parents[4] / "docs" / "reference" / "result.md"


def test_a_result_has_the_metrics_of_the_table_in_its_order() -> None:
    metrics = weft.simulate("tiny-20", "fifo").outcomes["fifo"][0].metrics

    assert list(metrics) == [metric.name for metric in METRICS if metric.name in metrics]
    assert len(metrics) >= 18


WAITS, RUNS, ENDED = range(3)


def test_a_run_has_metrics_whatever_its_jobs_came_to() -> None:
    """Also of jobs with a deadline, spot jobs and those with losses, of which none may have run."""
    for states in product((WAITS, RUNS, ENDED), repeat=3):
        began, over = np.array(states) != WAITS, np.array(states) == ENDED
        rows = np.flatnonzero(began)
        submitted, end = np.array([0.0, 10.0, 20.0]), np.array([100.0, 200.0, 4000.0])
        run = RunOutcome(
            submitted=submitted,
            ended=np.where(over, end, np.nan),
            ran_s=np.where(began, end - submitted, 0.0),
            length=np.full(3, 90.0),
            need=np.ones(3),
            gpu_s=np.where(began, end - submitted, 0.0),
            starts=began.astype(int),
            gpus=2,
            owners=["a", "b", "b"],
            tenants=["x", "x", "y"],
            held=Stretches(rows, submitted[rows], end[rows], np.ones(len(rows))),
            utility=1.0,
            admitted=0.5,
            reached=dict.fromkeys((0.9, 0.95), end[over]),
            deadline=np.array([50.0, np.nan, 5000.0]),
            spot=np.array([True, False, True]),
        )

        metrics = measure(run)

        assert all(map(np.isfinite, metrics.values())), (states, metrics)
        assert ("spot_hours_kept" in metrics) == bool(began[[0, 2]].any())


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
