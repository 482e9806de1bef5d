"""Charts as plain plotly figures: dictionaries of traces and a layout, values in, values out.

Colours that depend on light or dark are left to the page; what carries meaning is set here.

Policies that differ in two or three settings are a heat map, which is a table with shaded cells: it
prints, it can be read without colour, and it needs no script.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from math import ceil
from statistics import fmean
from typing import Any

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.spec.part_spec import parse
from weft.core.state.cells import Floats
from weft.core.state.table import Rows
from weft.formulas.metrics import METRICS, Metric
from weft.frozen import frozen
from weft.report.units import axis_unit, fix_digits, human, log_ticks
from weft.sim.result import Outcome, Outcomes, UserShare

Figure = dict[str, Any]

# Okabe and Ito's palette without black, yellow last: it is faint on white.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C", "#D8C800"),
)
DASHES = ("solid", "dash", "dot", "dashdot")
CURVE_POINTS = 500
TAIL_POINTS = 100
LABELLED_BARS = 24
SIZES = ((1, "1"), (4, "2-4"), (8, "5-8"), (16, "9-16"), (np.inf, "> 16"))
SHORTEST_S = 0.1  # a logarithmic axis has no zero


def line_of(index: int) -> dict[str, Any]:
    """Return the style of a policy's line: by colour, by dashes once colours repeat."""
    dash = DASHES[index // len(COLOURS) % len(DASHES)]
    return {"color": COLOURS[index % len(COLOURS)], "dash": dash, "width": 2}


def cdf_line(index: int, policy: str, values: Floats, jobs: int, shown: str) -> Figure:
    """The share of `jobs` up to each of the sorted values, as steps."""
    rows = choose_telling(len(values))
    return {
        "type": "scatter",
        "mode": "lines",
        "name": escape(policy),
        "x": plain(values[rows]),
        "y": plain(100 * (rows + 1) / jobs, 4),
        "line": {**line_of(index), "shape": "hv"},
        "hovertemplate": shown,
    }


def jct_cdf(outcomes: Outcomes) -> Figure | None:
    """Share of jobs that finished within a time, a line per policy; None if none finished."""
    pooled = {policy: _completion_times(each) for policy, each in outcomes.items()}
    done = [jct for jct, _ in pooled.values() if len(jct)]
    if not done:
        return None
    low, high = min(j[0] for j in done), max(j[-1] for j in done)
    traces: list[Figure] = []
    for i, (policy, (jct, jobs)) in enumerate(pooled.items()):
        line = cdf_line(i, policy, jct, jobs, "%{customdata}")
        line["line"]["width"] = _width(i, len(pooled))
        line["customdata"] = [human(t) for t in jct[choose_telling(len(jct))].tolist()]
        traces.append(line)
    layout = {
        "xaxis": {"title": {"text": "completion time"}, **_log_axis(float(low), float(high))},
        "yaxis": {"title": {"text": "share of jobs"}, "range": [0, 101], "ticksuffix": " %"}
        | {"unifiedhovertitle": {"text": "%{y:.1f} % of jobs within"}},
        "hovermode": "y unified",
    }
    return {"data": traces, "layout": layout}


def over_time(outcomes: Outcomes, gpus: float | None) -> Figure | None:
    """Jobs waiting above GPUs in use, on one axis of time, for the first seed of each policy."""
    firsts = [(i, p, each[0]) for i, (p, each) in enumerate(outcomes.items()) if _ran(each)]
    if not firsts:
        return None
    span = max(float(np.ptp(outcome.series.time_s)) for _, _, outcome in firsts)
    unit = axis_unit(span)
    traces: list[Figure] = []
    for i, policy, outcome in firsts:
        series = outcome.series
        time = plain((series.time_s - series.time_s[0]) / unit.seconds, 4)
        for values, axis, what in ((series.waiting, "y", "waiting"), (series.used, "y2", "GPUs")):
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": escape(policy),
                    "legendgroup": str(i),
                    "showlegend": axis == "y",
                    "x": time,
                    "y": plain(values, 2),
                    "yaxis": axis,
                    "line": {**line_of(i), "shape": "hv", "width": 1.5},
                    "hovertemplate": "%{y:,.4~g} " + what,
                }
            )
    shown = {"rangemode": "tozero", "tickformat": ",~r"}
    layout: Figure = {
        "xaxis": {
            "title": {"text": f"time since the first submission ({unit.name})"},
            "range": [0, span / unit.seconds],
            "anchor": "y2",
            "unifiedhovertitle": {"text": f"after %{{x:.2~f}} {unit.name}"},
        },
        "yaxis": {"title": {"text": "jobs waiting"}, "domain": [0.54, 1], **shown},
        "yaxis2": {"title": {"text": "GPUs in use"}, "domain": [0, 0.46], **shown},
        "hovermode": "x unified",
        "hoversubplots": "axis",
    }
    last = (float(firsts[0][2].per_job.submit_s.max()) - _begin(firsts[0][2])) / unit.seconds
    layout["shapes"] = [
        {"type": "line", "x0": last, "x1": last, "yref": "paper", "y0": 0, "y1": 1}
        | {"line": {"width": 1, "dash": "dot"}}
    ]
    layout["annotations"] = [
        {"text": "last arrival", "x": last, "yref": "paper", "y": 1, "showarrow": False}
        | {"xanchor": "right", "yanchor": "top", "font": {"size": 11}}
    ]
    if gpus:
        layout["shapes"] += [
            {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y2", "y0": gpus}
            | {"y1": gpus, "line": {"width": 1, "dash": "dot"}}
        ]
        layout["yaxis2"]["range"] = [0, 1.08 * gpus]
    return {"data": traces, "layout": layout}


def jct_by_size(outcomes: Outcomes) -> Figure | None:
    """Mean completion time by GPUs asked for, a dot a policy; None if no job finished.

    Dots, since a bar on a logarithmic axis has no honest length.
    """
    means = {policy: _by_size(each) for policy, each in outcomes.items()}
    shown = [k for k in range(len(SIZES)) if any(m[k][1] for m in means.values())]
    if not shown:
        return None
    known = [m[k][0] for m in means.values() for k in shown if m[k][1]]
    counts = np.bincount(_size_class(next(iter(outcomes.values()))), minlength=len(SIZES))
    labelled = len(means) * len(shown) <= LABELLED_BARS
    names = [f"{_count(SIZES[k][1], 'GPU')}<br>{_count(f'{counts[k]:,}', 'job')}" for k in shown]
    traces: list[Figure] = []
    for i, (policy, sizes) in enumerate(means.items()):
        text = [human(sizes[k][0]) if sizes[k][1] else "" for k in shown]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers+text" if labelled else "markers",
                "name": escape(policy),
                "x": names,
                "y": [round(sizes[k][0], 3) if sizes[k][1] else None for k in shown],
                "marker": {"color": line_of(i)["color"], "size": 11, "opacity": 0.85},
                "text": text,
                "textposition": "top center",
                "textfont": {"size": 10},
                "cliponaxis": False,
                "hovertemplate": "%{text}",
            }
        )
    layout = {
        "xaxis": {
            "title": {"text": "GPUs the job asked for"},
            "type": "category",
            "showgrid": False,
        },
        "yaxis": {"title": {"text": "mean completion time"}}
        | _log_axis(0.5 * min(known), 1.5 * max(known)),
        "scattermode": "group",
        "scattergap": 0.25,
        "hovermode": "x unified",
    }
    return {"data": traces, "layout": layout}


def _completion_times(each: Sequence[Outcome]) -> tuple[Floats, int]:
    """Sorted completion times over all seeds, and how many jobs there were."""
    jct = np.concatenate([o.per_job.end_s - o.per_job.submit_s for o in each])
    return np.sort(np.maximum(jct[~np.isnan(jct)], SHORTEST_S)), len(jct)


def _width(index: int, count: int) -> float:
    """Later lines are thinner, so that one below another still shows at its sides."""
    return round(1.5 + 1.8 * (1 - (index + 1) / count), 2)


def choose_telling(count: int) -> Rows:
    """Rows that draw a sorted curve well: spread evenly, and more of them in the last 2 %."""
    even = np.linspace(0, count - 1, min(count, CURVE_POINTS))
    tail = np.linspace(0.98 * count, count - 1, min(count, TAIL_POINTS))
    return np.unique(np.concatenate([even, tail]).astype(np.intp).clip(0, max(count - 1, 0)))


def _by_size(each: Sequence[Outcome]) -> list[tuple[float, int]]:
    """Mean completion time and number of finished jobs in each class of sizes."""
    jct = np.concatenate([o.per_job.end_s - o.per_job.submit_s for o in each])
    of = np.where(np.isnan(jct), -1, _size_class(each))
    classes = [np.maximum(jct[of == k], SHORTEST_S) for k in range(len(SIZES))]
    return [(float(c.mean()) if len(c) else 0.0, len(c)) for c in classes]


def _size_class(each: Sequence[Outcome]) -> Rows:
    """Return the index in SIZES of each job of all seeds."""
    need = np.concatenate([outcome.per_job.gpus for outcome in each])
    return np.searchsorted([float(most) for most, _ in SIZES], need)


def _count(number: str, noun: str) -> str:
    return f"{number} {noun}" if number == "1" else f"{number} {noun}s"


def _begin(outcome: Outcome) -> float:
    return float(outcome.series.time_s[0])


def _ran(each: Sequence[Outcome]) -> bool:
    return bool(len(each) and len(each[0].series.time_s))


def _log_axis(low_s: float, high_s: float) -> dict[str, Any]:
    low_s, high_s = 0.93 * low_s, 1.07 * high_s
    ticks, names = log_ticks(low_s, high_s)
    ends = [round(float(np.log10(end)), 4) for end in (low_s, high_s)]
    return {"type": "log", "range": ends, "tickvals": ticks, "ticktext": names}


def plain(values: Floats, digits: int = 3) -> list[float]:
    """For JSON: numbers no longer than a screen can show."""
    rounded: list[float] = np.round(np.asarray(values, dtype=float), digits).tolist()
    return rounded


MOST_USERS = 8
COLUMNS = 2
LEAST = 0.05  # a logarithmic axis has no zero
SHADE = "rgba(128,128,128,0.25)"


def rho_cdf(outcomes: Outcomes) -> Figure | None:
    """Share of jobs up to a finish-time fairness, a line per policy; None if none finished."""
    pooled = {
        policy: np.sort(np.maximum(_finished(np.concatenate([o.per_job.ftf for o in each])), LEAST))
        for policy, each in outcomes.items()
    }
    known = [rho for rho in pooled.values() if len(rho)]
    if not known:
        return None
    low, high = min(float(r[0]) for r in known), max(float(r[-1]) for r in known)
    traces = [
        cdf_line(i, policy, rho, max(len(rho), 1), "%{x:.2f}")
        for i, (policy, rho) in enumerate(pooled.items())
    ]
    ends = [round(float(np.log10(0.93 * low)), 4), round(float(np.log10(1.07 * max(high, 1))), 4)]
    return {
        "data": traces,
        "layout": {
            "xaxis": {"title": {"text": "finish-time fairness"}, "type": "log", "range": ends}
            | _round_ticks(0.93 * low, 1.07 * max(high, 1.0)),
            "yaxis": {"title": {"text": "share of jobs"}, "range": [0, 101], "ticksuffix": " %"}
            | {"unifiedhovertitle": {"text": "%{y:.1f} % of jobs up to"}},
            "hovermode": "y unified",
            "shapes": [
                {"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1}
                | {"line": {"width": 1, "dash": "dot"}}
            ],
        },
    }


def user_shares(outcomes: Outcomes) -> Figure | None:
    """GPUs that users held against those they were entitled to: a small chart a user."""
    users = _users(outcomes)
    if not users:
        return None
    first = next(iter(outcomes.values()))[0]
    begin = float(min(u.time_s[0] for u in first.shares))
    spans = [float(o[0].shares[0].time_s[-1]) - begin for o in outcomes.values() if o[0].shares]
    unit = axis_unit(max(spans))
    traces: list[Figure] = []
    layout: Figure = {"hovermode": "x unified", "annotations": []}
    rows = share_rows(outcomes)
    for place, user in enumerate(users):
        axis = "" if place == 0 else str(place + 1)
        layout |= _axes(place, rows, axis, unit.name, max(spans) / unit.seconds)
        layout["annotations"].append(_title(place, rows, _name(first.shares, user)))
        for i, (policy, each) in enumerate(outcomes.items()):
            share = next((s for s in each[0].shares if s.user == user), None)
            if share is None:
                continue
            time = plain((share.time_s - begin) / unit.seconds, 4)
            drawn = {"type": "scatter", "mode": "lines", "x": time}
            drawn |= {"xaxis": f"x{axis}", "yaxis": f"y{axis}"}
            if i == 0:
                traces.append(
                    {**drawn, "y": plain(share.entitled, 2), "name": "entitled"}
                    | {"line": {"width": 0, "shape": "hvh"}, "fill": "tozeroy"}
                    | {"fillcolor": SHADE, "showlegend": place == 0}
                    | {"hovertemplate": "%{y:.3~g} GPUs entitled"}
                )
            traces.append(
                {**drawn, "y": plain(share.received, 2), "name": escape(policy)}
                | {"line": {**line_of(i), "shape": "hvh", "width": 1.5}}
                | {"legendgroup": str(i), "showlegend": place == 0}
                | {"hovertemplate": "%{y:.3~g} GPUs"}
            )
    return {"data": traces, "layout": layout}


def share_rows(outcomes: Outcomes) -> int:
    """Rows of small charts."""
    return max(ceil(len(_users(outcomes)) / COLUMNS), 1)


def _users(outcomes: Outcomes) -> list[str]:
    """The users to show: those that wanted most under the first policy."""
    for each in outcomes.values():
        return [share.user for share in each[0].shares[:MOST_USERS]] if each else []
    return []


def _name(shares: Sequence[UserShare], user: str) -> str:
    weight = next(share.weight for share in shares if share.user == user)
    name = escape(user) or "nobody named"
    return name if weight == 1.0 else f"{name}, weight {weight:g}"


def _axes(place: int, rows: int, axis: str, unit: str, span: float) -> Figure:
    row, column = divmod(place, COLUMNS)
    height = 1.0 / rows
    top = 1.0 - row * height
    width = 1.0 / COLUMNS
    left = column * width
    x: Figure = {"domain": [left + 0.03 * (column > 0), left + width - 0.03 * (column == 0)]}
    x |= {"range": [0, span], "anchor": f"y{axis}", "showticklabels": row == rows - 1}
    if row == rows - 1:
        x["title"] = {"text": f"time since the first submission ({unit})"}
        x["showticklabels"] = True
    y = {"domain": [top - 0.78 * height, top - 0.12 * height], "anchor": f"x{axis}"}
    return {f"xaxis{axis}": x, f"yaxis{axis}": {**y, "rangemode": "tozero", "nticks": 4}}


def _title(place: int, rows: int, text: str) -> Figure:
    row, column = divmod(place, COLUMNS)
    return {
        "text": text,
        "showarrow": False,
        "xref": "paper",
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "bottom",
        "x": column / COLUMNS + 0.03 * (column > 0),
        "y": 1.0 - row / rows - 0.12 / rows,
    }


def _round_ticks(low: float, high: float) -> Figure:
    """Ticks at 1, 2 and 5 of each decade within."""
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks = [m * 10.0**d for d in decades for m in (1, 2, 5) if low <= m * 10.0**d <= high]
    return {"tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


def _finished(values: Floats) -> Floats:
    return values[~np.isnan(values)]


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
