"""Policies that differ in two or three settings, as a heat map: which combination is best.

A table with shaded cells: it prints, it can be read without colour, and it needs no script.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from statistics import fmean

from weft.core.errors import InvalidConfig
from weft.core.spec.part_spec import parse
from weft.formulas.metrics import METRICS, Metric
from weft.frozen import frozen
from weft.report.units import fix_digits, human
from weft.sim.result import Outcome, Outcomes

MOST_AXES = 3
SHOWN = 3  # metrics, the first of those that policies are compared by
DEEPEST = 3.0  # times the best: from there on no shade is deeper


@frozen
class Grid:
    """Settings that vary, each with its values in order; and the policy of every combination."""

    axes: tuple[tuple[str, tuple[str, ...]], ...]
    policies: Mapping[tuple[str, ...], str]


def read_grid(policies: Sequence[str]) -> Grid | None:
    """The largest set of policies that differ in two or three settings alone; None if none do."""
    groups: dict[tuple[str, ...], dict[str, dict[str, str]]] = {}
    for policy in policies:
        try:
            *around, part = parse(policy)
        except InvalidConfig:
            continue  # the name of a class, not a short form
        params = {key.text: value.text for key, value in part.params}
        shape = (*(written.name.text for written in around), part.name.text, *sorted(params))
        groups.setdefault(shape, {})[policy] = params
    grids = [grid for group in groups.values() if (grid := _grid(group)) is not None]
    return max(grids, key=lambda grid: len(grid.policies), default=None)


def heat_maps(outcomes: Outcomes) -> str:
    """A row of tables a metric, deeper where it is further from the best; empty without a grid."""
    grid = read_grid(list(outcomes))
    if grid is None:
        return ""
    shown = [metric for metric in METRICS if metric.relative][:SHOWN]
    return "".join(_metric(metric, grid, outcomes) for metric in shown)


def _grid(group: Mapping[str, Mapping[str, str]]) -> Grid | None:
    keys = list(next(iter(group.values())))
    values = {
        key: tuple(dict.fromkeys(settings[key] for settings in group.values())) for key in keys
    }
    varying = [key for key in keys if len(values[key]) > 1]
    if not 2 <= len(varying) <= MOST_AXES:
        return None
    # The setting with fewest values has a table each; the one with most values is down the side.
    if len(varying) == MOST_AXES:
        least = min(varying, key=lambda key: len(values[key]))
        varying = [*(key for key in varying if key != least), least]
    policies = {
        tuple(settings[key] for key in varying): policy for policy, settings in group.items()
    }
    return Grid(tuple((key, values[key]) for key in varying), policies)


def _metric(metric: Metric, grid: Grid, outcomes: Outcomes) -> str:
    numbers = {
        cell: number
        for cell, policy in grid.policies.items()
        if (number := _mean(outcomes[policy], metric)) is not None
    }
    if not numbers:
        return ""
    best = min(numbers.values())
    (rows, down), (columns, across), *rest = grid.axes
    panels = rest[0][1] if rest else ("",)
    tables = []
    for panel in panels:
        caption = f"<caption>{escape(rest[0][0])}={escape(panel)}</caption>" if rest else ""
        head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in across)
        lines = "".join(
            f'<tr><th scope="row">{escape(row)}</th>'
            + "".join(
                _cell(numbers.get((row, other, panel) if rest else (row, other)), best, metric)
                for other in across
            )
            + "</tr>"
            for row in down
        )
        corner = f'<th scope="col" class="corner">{escape(rows)} \\ {escape(columns)}</th>'
        tables.append(
            f'<table class="heat">{caption}<thead><tr>{corner}{head}</tr></thead>'
            f"<tbody>{lines}</tbody></table>"
        )
    name = escape(metric.heading or metric.name)
    return f'<h3>{name}</h3><div class="heats">{"".join(tables)}</div>'


def _cell(number: float | None, best: float, metric: Metric) -> str:
    if number is None:
        return '<td class="none">makes no sense</td>'
    times = number / best if best > 0.0 else 1.0
    heat = min(math.log(max(times, 1.0)) / math.log(DEEPEST), 1.0)
    text = human(3600.0 * number) if metric.unit == "hours" else fix_digits(number)
    star = "★ " * (number <= best)
    more = f"{times:.2f} &times;" if number > best else "best"
    return f'<td style="--heat:{heat:.2f}">{star}{escape(text)}<small>{more}</small></td>'


def _mean(each: Sequence[Outcome], metric: Metric) -> float | None:
    values = [outcome.metrics[metric.name] for outcome in each if metric.name in outcome.metrics]
    known = [value for value in values if value is not None and math.isfinite(value)]
    return fmean(known) if known else None
