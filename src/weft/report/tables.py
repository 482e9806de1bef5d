"""Results in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from weft.formulas.metrics import METRICS, Columns, Metric, Unit
from weft.report.units import duration, number, percent


class Scored(Protocol):
    """As much of an outcome as a table shows."""

    @property
    def predictor(self) -> str: ...  # noqa: D102
    @property
    def metrics(self) -> Mapping[str, float]: ...  # noqa: D102
    @property
    def decide_ms(self) -> Mapping[str, float | None]: ...  # noqa: D102


def choose_columns(which: Columns) -> tuple[Metric, ...]:
    """The metrics that a table in the terminal shows."""
    return tuple(m for m in METRICS if m.heading and m.brief and which in m.tables)


COLUMNS = choose_columns("main")
_WRITE: Mapping[Unit, Callable[[float], str]] = {
    "hours": duration,
    "percent": percent,
    "plain": number,
}


def write_metric(metric: Metric, value: float) -> str:
    """A value as a table has it."""
    return _WRITE[metric.unit](value)


def results_table(
    outcomes: Mapping[str, Sequence[Scored]], width: int, which: Columns = "main"
) -> Table:
    """One row a policy, or one column a policy where `width` is too small for that.

    The best of each metric is in bold green with a star.
    """
    columns = choose_columns(which)
    means = {
        policy: {c.name: _mean([o.metrics[c.name] for o in done]) for c in columns}
        for policy, done in outcomes.items()
    }
    headings = [*(column.heading for column in columns), "decision", "predictor"]
    rows = {}
    for policy, done in outcomes.items():
        took = _mean([o.decide_ms["p50"] or 0.0 for o in done])
        cells = [_cell(column, means, policy) for column in columns]
        rows[policy] = [*cells, Text(f"{took:.2f} ms  "), Text(done[0].predictor)]
    wide = _table("policy", headings, rows)
    if Console(width=1000).measure(wide).maximum <= width:
        return wide
    turned = {h: [cells[i] for cells in rows.values()] for i, h in enumerate(headings)}
    return _table("", list(rows), turned)


def _table(corner: str, headings: Sequence[str], rows: Mapping[str, Sequence[Text]]) -> Table:
    table = Table(header_style="bold")
    table.add_column(corner, no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", overflow="fold")
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return table


def _cell(column: Metric, means: Mapping[str, Mapping[str, float]], policy: str) -> Text:
    text = write_metric(column, means[policy][column.name])
    everyone = [row[column.name] for row in means.values()]
    if len({write_metric(column, value) for value in everyone}) == 1:
        return Text(f"{text}  ")
    best = min(everyone) if column.better == "less" else max(everyone)
    if write_metric(column, best) == text:
        return Text(f"{text} *", style="bold green")
    return Text(f"{text}  ")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
