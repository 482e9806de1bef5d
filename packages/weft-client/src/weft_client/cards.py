"""Jobs and sweeps as a notebook shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft_client.job import JobStatus

COLOURS = {"running": "#1a7f37", "succeeded": "#0969da", "failed": "#cf222e"}
OTHER = "#6e7781"
MOST_ROWS, MOST_METRICS = 50, 6
CARD = (
    "font-family:sans-serif;font-size:13px;border:1px solid #8884;border-radius:6px;"
    "padding:8px 12px;max-width:720px;overflow-x:auto"
)
CELL = "text-align:left;padding:2px 10px 2px 0;white-space:nowrap"


def job_card(status: JobStatus) -> str:
    """One job: its state, why it waits, how far it is and what was measured."""
    parts = [f"<b>{escape(status.name)}</b> <code>{escape(status.id)}</code> {_state(status)}"]
    if status.reason and status.state not in ("running", "succeeded"):
        parts.append(f"<div>{escape(status.reason)}</div>")
    if status.progress is not None:
        parts.append(_bar(status.progress))
    own = [f"{name} {value}" for name, value in [*_own(status).items()][:MOST_METRICS]]
    if shown := ", ".join(filter(None, (*own, _measured(status.metrics)))):
        parts.append(f"<div>{escape(shown)}</div>")
    return f'<div style="{CARD}">{"".join(parts)}</div>'


def sweep_card(sweep: str, jobs: Sequence[JobStatus]) -> str:
    """A sweep: a row for each job with its parameters and what it measured last."""
    names = list(dict.fromkeys(name for job in jobs for name in job.parameters))
    metrics = list(dict.fromkeys(name for job in jobs for name in _own(job)))[:MOST_METRICS]
    titles = ("job", *names, *metrics, "state")
    heads = "".join(f'<th style="{CELL}">{escape(text)}</th>' for text in titles)
    rows = "".join(_row(job, names, metrics) for job in jobs[:MOST_ROWS])
    left = len(jobs) - MOST_ROWS
    more = f"<div>and {left} more</div>" if left > 0 else ""
    ended = sum(job.ended for job in jobs)
    title = f"<b>{escape(sweep)}</b> {ended} of {len(jobs)} jobs have ended"
    table = f'<table style="font-size:inherit"><tr>{heads}</tr>{rows}</table>'
    return f'<div style="{CARD}">{title}{table}{more}</div>'


def _row(job: JobStatus, names: Sequence[str], metrics: Sequence[str]) -> str:
    own = _own(job)
    values = [escape(str(job.parameters.get(name, ""))) for name in names]
    values += [escape(own.get(name, "")) for name in metrics]
    cells = [f"<code>{escape(job.id)}</code>", *values, _state(job)]
    return "<tr>" + "".join(f'<td style="{CELL}">{cell}</td>' for cell in cells) + "</tr>"


def _state(status: JobStatus) -> str:
    colour = COLOURS.get(status.state, OTHER)
    return f'<span style="color:{colour}">●</span> {escape(status.state)}'


def _bar(part: float) -> str:
    percent = f"{100 * min(max(part, 0.0), 1.0):.0f}%"
    return (
        f'<div style="background:#8883;border-radius:3px;margin:4px 0"><div style="width:{percent};'
        f'background:#1a7f37;border-radius:3px;height:6px"></div></div><div>{percent}</div>'
    )


def _own(status: JobStatus) -> dict[str, str]:
    """The latest values of what its program measured."""
    held: Mapping[str, Any] = status.fields.get("metrics") or {}
    values = {name: each["value"] for name, each in held.items()}
    return {name: "nan" if v is None else f"{v:.4g}" for name, v in values.items()}


def _measured(metrics: Mapping[str, Any]) -> str:
    words = {
        "steps": "step {:g}",
        "total_steps": "of {:g}",
        "steps_per_s": "{:.3g} steps/s",
        "left_s": "{:.0f} s left",
        "gpu_mem_gb": "{:.3g} GB",
    }
    return ", ".join(
        text.format(metrics[name]) for name, text in words.items() if name in metrics
    ).replace(", of", " of")
