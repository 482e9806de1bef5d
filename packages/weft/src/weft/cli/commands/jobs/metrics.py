"""`weft metrics`: what the programs of a job or of a sweep measured of themselves."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any

import typer

from weft.cli.connect.client import RequestRefused, ServiceClient
from weft.cli.options import shared as o
from weft.cli.view.errors import user_errors
from weft.cli.view.screen import console, print_json
from weft.cli.view.tables import TableColumn, fit_columns
from weft.service.responses.job_row import JobCurves, MetricCurve, SweepCurves
from weft_client.connection import at

LEVELS = " ▁▂▃▄▅▆▇█"
HEIGHT, WIDEST = 8, 72  # lines and columns of a picture
LABEL = 10
MOST_POINTS = 240  # of a curve


def metrics(
    name: Annotated[str, typer.Argument(help="A job's or a sweep's id or name.", metavar="NAME")],
    only: Annotated[
        list[str] | None, typer.Option("--metric", "-m", help="This metric alone; repeatable.")
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw each metric over its steps.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print every point as CSV.")] = False,
    as_json: o.AsJson = False,
) -> None:
    """Show metrics of a job or a sweep: the last, the least and the most value of each."""
    with user_errors():
        jobs = fetch(name, only or [], points=MOST_POINTS if as_csv or as_json else WIDEST)
    if as_csv:
        typer.echo(as_rows(jobs), nl=False)
        return
    if as_json:
        print_json({"jobs": jobs})
        return
    screen = console()
    if not any(job.metrics for job in jobs):
        screen.print(f"{name} has no metrics", style="dim")
        return
    screen.print(table_of(jobs, screen.width))
    if plot:
        for line in plot_lines(jobs, min(screen.width, WIDEST + LABEL)):
            screen.print(line, highlight=False, markup=False, soft_wrap=True)


def fetch(name: str, only: Sequence[str], *, points: int) -> list[JobCurves]:
    """The metrics of a sweep's jobs, else of the job of that name."""
    client = ServiceClient()
    query = {"name": list(only) or None, "points": points}
    try:
        return _every_job(client, at("sweeps", name, "metrics"), query)
    except RequestRefused as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
    return [client.get(JobCurves, at("jobs", name, "metrics"), **query)]


def as_rows(jobs: Sequence[JobCurves]) -> str:
    """Every point as CSV. What a spreadsheet would take for a formula begins with a quote."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(("job", "metric", "step", "value", "at"))
    for job in jobs:
        for curve in job.metrics:
            name = f"'{curve.name}" if curve.name.startswith(("=", "+", "-", "@")) else curve.name
            for point in zip(curve.steps, curve.values, curve.at, strict=True):
                rows.writerow((job.id, name, *point))
    return out.getvalue()


def _every_job(client: ServiceClient, path: str, query: dict[str, Any]) -> list[JobCurves]:
    jobs: list[JobCurves] = []
    after = None
    while True:
        page = client.get(SweepCurves, path, **query, after=after)
        jobs += page.jobs
        after = page.next
        if after is None:
            return jobs


def table_of(jobs: Sequence[JobCurves], width: int) -> Any:
    """A row for each metric of each job."""
    rows = [(job, curve) for job in jobs for curve in job.metrics]
    columns: list[TableColumn[tuple[JobCurves, MetricCurve]]] = [
        TableColumn("job", lambda row: row[0].id if len(jobs) > 1 else ""),
        TableColumn("parameters", lambda row: _parameters(row[0]) if len(jobs) > 1 else "", drop=2),
        TableColumn("metric", lambda row: row[1].name),
        TableColumn("last", lambda row: number(row[1].value), right=True),
        TableColumn("step", lambda row: f"{row[1].step:g}", right=True),
        TableColumn("least", lambda row: number(row[1].least), right=True),
        TableColumn("most", lambda row: number(row[1].most), right=True),
        TableColumn("values", lambda row: str(row[1].count), drop=3, right=True),
    ]
    shown = [each for each in columns if len(jobs) > 1 or each.heading not in ("job", "parameters")]
    return fit_columns(shown, rows, width)


def _parameters(job: JobCurves) -> str:
    return " ".join(f"{name}={value}" for name, value in job.parameters.items())


def number(value: float | None) -> str:
    """A value of a metric; `nan` where it was no finite number."""
    return "nan" if value is None else f"{value:.5g}"


def plot_lines(jobs: Sequence[JobCurves], width: int) -> list[str]:
    """Each metric of a job as a picture; of several jobs a line each, on the same scale."""
    names = dict.fromkeys(curve.name for job in jobs for curve in job.metrics)
    lines: list[str] = []
    for name in names:
        both = [(job, curve) for job in jobs for curve in job.metrics if curve.name == name]
        values = [value for _, curve in both for value in curve.values if value is not None]
        if not values:
            continue
        low, high = min(values), max(values)
        lines += ["", f"{name}: {number(low)} to {number(high)}"]
        if len(jobs) == 1:
            lines += draw(both[0][1], low, high, width, HEIGHT)
            continue
        room = max(len(job.id) for job, _ in both) + 1
        for job, curve in both:
            line = draw(curve, low, high, max(width - room, LABEL), 1)[0]
            lines.append(f"{job.id:<{room}}{line}")
    return lines


def draw(curve: MetricCurve, low: float, high: float, width: int, height: int) -> list[str]:
    """A curve over its steps in lines of blocks, the highest first; a column is a mean."""
    first, last = min(curve.steps), max(curve.steps)
    held: list[list[float]] = [[] for _ in range(width)]
    for step, value in zip(curve.steps, curve.values, strict=True):
        if value is not None:
            part = (step - first) / (last - first) if last > first else 0.0
            held[round(part * (width - 1))].append(value)
    heights: list[int] = []
    for column in held:
        if column:
            part = (sum(column) / len(column) - low) / (high - low) if high > low else 0.5
            heights.append(1 + round(part * (8 * height - 1)))
        else:
            heights.append(heights[-1] if heights else 0)
    return [
        "".join(LEVELS[min(max(tall - 8 * row, 0), 8)] for tall in heights).rstrip()
        for row in reversed(range(height))
    ]
