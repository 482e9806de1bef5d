"""Charts as plain plotly figures: dictionaries of traces and a layout, values in, values out.

Colours that depend on light or dark are left to the page; what carries meaning is set here.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from weft.core.state.cells import Floats
from weft.core.state.table import Rows
from weft.report.units import axis_unit, human, log_ticks
from weft.sim.result import Outcome, Outcomes

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
    """How the policy at this position is drawn: by colour, by dashes once colours repeat."""
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
        for values, axis, what in (
            (series.waiting, "y", "waiting"),
            (series.used, "y2", "GPUs"),
        ):
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
    """Which of SIZES each job of all seeds is in."""
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
