"""Charts of fairness: how jobs finished against equal division, what users got of their share."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil

import numpy as np

from weft.core.state.cells import Floats
from weft.report.figures import Figure, cdf_line, line_of, plain
from weft.report.units import axis_unit
from weft.sim.result import Outcomes, UserShare

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
