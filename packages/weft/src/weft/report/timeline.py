"""Jobs on each GPU over time, as one horizontal bar trace per policy."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from weft.report.figures import Figure, plain
from weft.report.units import Unit, axis_unit, human
from weft.sim.result import Outcome, Outcomes, TimelineBar

# What the simulator keeps; a larger run has no timeline, and the page mentions it.
MOST_GPUS = 128
MOST_BARS = 4000
# Paul Tol's light and muted schemes without grey: apart for every kind of sight, and on both
# a white and a black page. Jobs take them in turn, so neighbours in time differ.
PALETTE = (
    *("#77AADD", "#EE8866", "#44BB99", "#EEDD88", "#FFAABB", "#AAAA00", "#99DDFF", "#BBCC33"),
    *("#CC6677", "#117733", "#AA4499", "#997700"),
)
ROW_PX = (7, 18)  # thinnest and thickest row
FRAME_PX = 84  # axis and tools around the rows
CHART_PX = 560
QUEUE_PX = 70  # of jobs that wait, above the rows
STOPPED, WAITING = "#555555", "#D55E00"
Gpu = tuple[str, int]


def timelines(outcomes: Outcomes) -> dict[str, Figure]:
    """A figure for each policy whose first seed has bars; rows and axes are the same in all."""
    drawn = {p: each[0] for p, each in outcomes.items() if each[0].timeline}
    rows = _rows(bar for outcome in drawn.values() for bar in outcome.timeline)
    spans = [max(b.end_s for b in o.timeline) - _origin(o) for o in drawn.values()]
    unit = axis_unit(max(spans, default=0.0))
    layout = _layout(rows, max(spans, default=0.0), unit)
    return {
        p: {"data": [_trace(o, rows, unit), *_stops(o, rows, unit), _queue(o, unit)]}
        | {"layout": layout}
        for p, o in drawn.items()
    }


def _stops(outcome: Outcome, rows: dict[Gpu, int], unit: Unit) -> list[dict[str, Any]]:
    """A cross where a job goes on after it was stopped."""
    zero, begun = _origin(outcome), dict[str, float]()
    again: dict[tuple[str, float], TimelineBar] = {}
    for bar in sorted(outcome.timeline, key=lambda b: (b.start_s, b.node, b.gpu)):
        if bar.start_s > begun.setdefault(bar.job, bar.start_s):
            again.setdefault((bar.job, bar.start_s), bar)
    if not again:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "showlegend": False,
            "x": [round((b.start_s - zero) / unit.seconds, 5) for b in again.values()],
            "y": [rows[b.node, b.gpu] for b in again.values()],
            "marker": {"symbol": "x", "size": 6, "color": STOPPED},
            "text": [escape(b.job) for b in again.values()],
            "hovertemplate": "<b>%{text}</b> continues after a stop<extra></extra>",
        }
    ]


def _queue(outcome: Outcome, unit: Unit) -> dict[str, Any]:
    """Jobs that wait, above the devices."""
    series, zero = outcome.series, _origin(outcome)
    return {
        "type": "scatter",
        "mode": "lines",
        "fill": "tozeroy",
        "showlegend": False,
        "yaxis": "y2",
        "x": plain((series.time_s - zero) / unit.seconds, 4),
        "y": plain(series.waiting, 1),
        "line": {"width": 1, "shape": "hv", "color": WAITING},
        "hovertemplate": "%{y:.3~g} jobs wait<extra></extra>",
    }


def _origin(outcome: Outcome) -> float:
    """Time zero: the first submission."""
    return float(outcome.per_job.submit_s.min())


def _rows(bars: Iterable[TimelineBar]) -> dict[Gpu, int]:
    """Every GPU's row, node by node, idle ones below a used one included."""
    most: dict[str, int] = defaultdict(int)
    for bar in bars:
        most[bar.node] = max(most[bar.node], bar.gpu)
    gpus = [(node, gpu) for node in sorted(most, key=_natural) for gpu in range(most[node] + 1)]
    return {gpu: row for row, gpu in enumerate(gpus)}


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def _trace(outcome: Outcome, rows: dict[Gpu, int], unit: Unit) -> dict[str, Any]:
    """One trace of all bars: thousands of them draw at once, where shapes would not."""
    zero = _origin(outcome)
    number = {job: i for i, job in enumerate(outcome.per_job.id)}
    bars = [(bar, *lane) for bar, lane in _with_lanes(outcome.timeline)]
    return {
        "type": "bar",
        "orientation": "h",
        "showlegend": False,
        "base": [round((b.start_s - zero) / unit.seconds, 5) for b, _, _ in bars],
        "x": [round((b.end_s - b.start_s) / unit.seconds, 5) for b, _, _ in bars],
        "y": [_middle(rows[b.node, b.gpu], lane, of) for b, lane, of in bars],
        "width": [round(0.92 / of, 3) for _, _, of in bars],
        "marker": {"color": [PALETTE[number.get(b.job, 0) % len(PALETTE)] for b, _, _ in bars]},
        "customdata": [_describe_bar(b, zero) for b, _, _ in bars],
        "hovertemplate": "<b>%{customdata[0]}</b> on %{customdata[1]}<br>"
        "%{customdata[2]} to %{customdata[3]}, for %{customdata[4]}<extra></extra>",
    }


def _describe_bar(bar: TimelineBar, zero: float) -> list[str]:
    times = (bar.start_s - zero, bar.end_s - zero, bar.end_s - bar.start_s)
    return [escape(bar.job), f"{escape(bar.node)} GPU {bar.gpu}", *map(human, times)]


def _middle(row: int, lane: int, of: int) -> float:
    return round(row - 0.46 + 0.92 * (lane + 0.5) / of, 3)


def _with_lanes(bars: Sequence[TimelineBar]) -> list[tuple[TimelineBar, tuple[int, int]]]:
    """Each bar with its lane and their number: jobs that share a GPU lie beside each other."""
    by_gpu: dict[Gpu, list[TimelineBar]] = defaultdict(list)
    for bar in bars:
        by_gpu[bar.node, bar.gpu].append(bar)
    placed: list[tuple[TimelineBar, tuple[int, int]]] = []
    for held in by_gpu.values():
        crowd: list[tuple[TimelineBar, int]] = []
        free_at: list[float] = []  # by lane of the present crowd
        for bar in sorted(held, key=lambda b: (b.start_s, b.end_s, b.job)):
            if bar.start_s >= max(free_at, default=bar.start_s):
                placed += [(b, (lane, len(free_at))) for b, lane in crowd]
                crowd, free_at = [], []
            lane = next((i for i, t in enumerate(free_at) if t <= bar.start_s), len(free_at))
            free_at[lane : lane + 1] = [bar.end_s]
            crowd.append((bar, lane))
        placed += [(b, (lane, len(free_at))) for b, lane in crowd]
    return placed


def _layout(rows: dict[Gpu, int], span_s: float, unit: Unit) -> Figure:
    by_node: dict[str, list[int]] = defaultdict(list)
    for (node, _), row in rows.items():
        by_node[node].append(row)
    thickness = min(max(CHART_PX / max(len(rows), 1), ROW_PX[0]), ROW_PX[1])
    below = round(1.0 - QUEUE_PX / (QUEUE_PX + thickness * max(len(rows), 1)), 3)
    edges = [held[-1] + 0.5 for held in by_node.values()][:-1]
    return {
        "height": round(FRAME_PX + QUEUE_PX + thickness * len(rows)),
        "xaxis": {
            "title": {"text": f"time since the first submission ({unit.name})"},
            "range": [0, round(span_s / unit.seconds, 4)],
        },
        "yaxis": {
            "tickvals": [sum(held) / len(held) for held in by_node.values()],
            "ticktext": [escape(node) for node in by_node],
            "range": [len(rows) - 0.5, -0.5],
            "showgrid": False,
            "domain": [0, below],
        },
        "yaxis2": {
            "domain": [min(below + 0.03, 1.0), 1],
            "rangemode": "tozero",
            "nticks": 3,
            "title": {"text": "waiting"},
        },
        "shapes": [
            {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": edge, "y1": edge}
            | {"line": {"width": 1}, "layer": "below"}
            for edge in edges
        ],
        "barmode": "overlay",
        "hovermode": "closest",
    }
