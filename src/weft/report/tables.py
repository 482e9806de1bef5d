"""Results in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from weft.report.units import duration, number, percent


class Scored(Protocol):
    """As much of an outcome as a table shows."""

    @property
    def predictor(self) -> str: ...  # noqa: D102
    @property
    def metrics(self) -> Mapping[str, float]: ...  # noqa: D102
    @property
    def decide_ms(self) -> Mapping[str, float | None]: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Column:
    """A metric, its heading, how it is written, and which way is better."""

    metric: str
    heading: str
    write: Callable[[float], str]
    best: Callable[[Sequence[float]], float] = min


COLUMNS = (
    Column("avg_jct_h", "avg JCT", duration),
    Column("p50_jct_h", "p50", duration),
    Column("p99_jct_h", "p99", duration),
    Column("avg_queue_h", "avg wait", duration),
    Column("makespan_h", "makespan", duration),
    Column("utilization", "GPUs used", percent, max),
    Column("restarts_per_job", "restarts/job", number),
    Column("worst_ftf", "worst FTF", number),
    Column("unfair_fraction", "unfair", percent),
)


def results_table(outcomes: Mapping[str, Sequence[Scored]], width: int) -> Table:
    """One row a policy, or one column a policy where `width` is too small for that.

    The best of each metric is in bold green with a star.
    """
    means = {
        policy: {c.metric: _mean([o.metrics[c.metric] for o in done]) for c in COLUMNS}
        for policy, done in outcomes.items()
    }
    headings = [*(column.heading for column in COLUMNS), "decision", "predictor"]
    rows = {}
    for policy, done in outcomes.items():
        took = _mean([o.decide_ms["p50"] or 0.0 for o in done])
        cells = [_cell(column, means, policy) for column in COLUMNS]
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


def _cell(column: Column, means: Mapping[str, Mapping[str, float]], policy: str) -> Text:
    text = column.write(means[policy][column.metric])
    everyone = [row[column.metric] for row in means.values()]
    if len({column.write(value) for value in everyone}) == 1:
        return Text(f"{text}  ")
    if column.write(column.best(everyone)) == text:
        return Text(f"{text} *", style="bold green")
    return Text(f"{text}  ")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
