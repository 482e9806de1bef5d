"""Results in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isnan, nan
from typing import Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from weft.formulas.metrics import Columns, Metric, Unit, columns_of
from weft.formulas.statistics import differs, mean_interval
from weft.report.units import duration, number, percent

MOST_POLICY = 34
NO_BOUNDS: Mapping[str, float] = {}


class Scored(Protocol):
    """As much of an outcome as a table shows."""

    @property
    def predictor(self) -> str: ...
    @property
    def metrics(self) -> Mapping[str, float]: ...
    @property
    def decide_ms(self) -> Mapping[str, float | None]: ...


COLUMNS = tuple(metric for metric in columns_of("main", ()) if metric.brief)
_WRITE: Mapping[Unit, Callable[[float, float], str]] = {
    "hours": duration,
    "percent": percent,
    "plain": number,
}


def write_metric(metric: Metric, value: float, half: float = 0.0) -> str:
    """A value as a table has it, with half its interval if that is not 0."""
    return _WRITE[metric.unit](value, half)


def result_tables(
    outcomes: Mapping[str, Sequence[Scored]],
    width: int,
    which: Columns = "main",
    bounds: Mapping[str, float] = NO_BOUNDS,
) -> list[Table]:
    """One row per policy; what `width` has no room for follows below in tables of the same rows.

    A first row has `bounds`, by metric. The best of each metric is in bold green with a star, if it
    holds over the seeds. Of several seeds there is half the 95 % interval of each mean.
    """
    every = [scored.metrics for done in outcomes.values() for scored in done]
    columns = [metric for metric in columns_of(which, every) if metric.brief]
    means = {
        policy: {c.name: _mean([o.metrics.get(c.name, nan) for o in done]) for c in columns}
        for policy, done in outcomes.items()
    }
    headings = [*(column.heading for column in columns), "decision", "predictor"]
    rows = {}
    if bounds:
        known = ((c, bounds.get(c.name)) for c in columns)
        least = [Text("" if value is None else f"{write_metric(c, value)}  ") for c, value in known]
        rows["bound"] = [*least, Text(), Text()]
    for policy, done in outcomes.items():
        took = _mean([o.decide_ms["p50"] or 0.0 for o in done])
        cells = [_cell(column, means, policy, outcomes) for column in columns]
        rows[policy] = [*cells, Text(f"{took:.2f} ms  "), Text(done[0].predictor)]
    tables = [*_stack(headings, rows, width)]
    return [_turned(headings, rows)] if len(tables) > 1 and len(outcomes) == 1 else tables


def _turned(headings: Sequence[str], rows: Mapping[str, Sequence[Text]]) -> Table:
    """A single policy has no rows to compare: its numbers below each other."""
    table = Table(header_style="bold")
    table.add_column("", no_wrap=True)
    for name in rows:
        table.add_column(name, justify="right", overflow="fold")
    for heading, *cells in zip(headings, *rows.values(), strict=True):
        table.add_row(heading, *cells)
    return table


def _stack(
    headings: Sequence[str], rows: Mapping[str, Sequence[Text]], width: int
) -> Iterator[Table]:
    """As many columns as fit, then the next ones."""
    first, count = 0, len(headings)
    while first < count:
        last = first + 1
        while last < count and _width(_table(headings, rows, first, last + 1)) <= width:
            last += 1
        yield _table(headings, rows, first, last)
        first = last


def _width(table: Table) -> int:
    return Console(width=1000).measure(table).maximum


def _table(
    headings: Sequence[str], rows: Mapping[str, Sequence[Text]], first: int, last: int
) -> Table:
    table = Table(header_style="bold")
    table.add_column("policy", overflow="fold", max_width=MOST_POLICY)
    for heading in headings[first:last]:
        table.add_column(heading, justify="right", no_wrap=True)
    for name, cells in rows.items():
        table.add_row(name, *cells[first:last])
    return table


def _cell(
    column: Metric,
    means: Mapping[str, Mapping[str, float]],
    policy: str,
    outcomes: Mapping[str, Sequence[Scored]],
) -> Text:
    mean = means[policy][column.name]
    if isnan(mean):
        return Text("—  ")
    text = write_metric(column, mean)
    half = mean_interval([scored.metrics[column.name] for scored in outcomes[policy]])[1]
    shown = write_metric(column, mean, half)
    everyone = [row[column.name] for row in means.values() if not isnan(row[column.name])]
    if len({write_metric(column, value) for value in everyone}) == 1:
        return Text(f"{shown}  ")
    best = min(everyone) if column.better == "less" else max(everyone)
    if write_metric(column, best) == text and _beats_all(column, policy, outcomes):
        return Text(f"{shown} *", style="bold green")
    return Text(f"{shown}  ")


def _beats_all(column: Metric, policy: str, outcomes: Mapping[str, Sequence[Scored]]) -> bool:
    """Return true if a policy is better than each other one by more than chance."""
    values = {
        name: [o.metrics.get(column.name, nan) for o in each] for name, each in outcomes.items()
    }
    own = values.pop(policy)
    others = (v for v in values.values() if not isnan(_mean(v)) and _mean(v) != _mean(own))
    return all(differs(own, other) for other in others)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
