"""`weft jobs`: what runs, what waits, and what happened to the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from weft.cli.connect.client import (
    RequestRefused,
    ServiceClient,
    active_jobs,
    complete_sweeps,
    every_job,
)
from weft.cli.options import shared as o
from weft.cli.view.errors import user_errors
from weft.cli.view.screen import console, print_json, repeat
from weft.cli.view.status import fold_sweeps, jobs_table, sort_by_metric, sweep_columns, trouble
from weft.cli.view.words import ENDED
from weft.core.errors import InvalidConfig
from weft.service.responses.answers import ClusterAnswer, JobAnswer
from weft_client.connection import at

LAST = 10
FEW = 500
OLDER = "older jobs that have ended are left out; `weft jobs --all` lists them"


def jobs(
    app: Annotated[
        str,
        typer.Argument(
            help="A job's name or id; or a sweep or app: its jobs one by one.", metavar="[NAME]"
        ),
    ] = "",
    state: Annotated[
        str, typer.Option("--state", "-s", help="Only jobs in these states: running,pending.")
    ] = "",
    tenant: Annotated[str, typer.Option(help="Only jobs of this tenant.")] = "",
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Every job, including those that have ended.")
    ] = False,
    sort: Annotated[
        str, typer.Option(help="Sort by this metric, least first; -NAME: most first.")
    ] = "",
    metric: Annotated[
        list[str] | None, typer.Option("--metric", "-m", help="Show this metric; repeatable.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Update every second.")] = False,
    as_json: o.AsJson = False,
) -> None:
    """List jobs: all that have not ended, and the most recent that have.

    A sweep is one line; `weft jobs SWEEP` and --all show each of its jobs. Those of a sweep have
    their parameters and metrics, as far as they were measured.
    """

    def select(client: ServiceClient) -> tuple[list[JobAnswer], bool]:
        answers, whole = select_jobs(client, state, tenant, everything, app)
        return sort_by_metric(answers, sort) if sort else answers, whole

    with user_errors():
        client = ServiceClient()
        if as_json:
            print_json({"jobs": select(client)[0]})
            return

        def render(width: int) -> Any:
            answers, whole = select(client)
            if not everything and not app and not sort:
                answers = fold_sweeps(complete_sweeps(client, answers))
            shown = [*(metric or []), *([sort.removeprefix("-")] if sort and not metric else [])]
            table = render_jobs(client, answers, width, state, shown if app or sort else None)
            return table if whole else Group(table, Text(OLDER, style="dim"))

        if watch:
            repeat(render)
        else:
            screen = console()
            screen.print(render(screen.width))


def select_jobs(
    client: ServiceClient, state: str, tenant: str, everything: bool, app: str = ""
) -> tuple[list[JobAnswer], bool]:
    """Jobs that were asked for, in order of submission, and whether these are all there are."""
    wanted = {"tenant": tenant or None}
    if app:
        return find_members(client, app, state=state or None, tenant=tenant or None), True
    if not (everything or state) and _count_ended(client) > FEW:
        return active_jobs(client, **wanted), False
    answers = list(every_job(client, state=state or None, **wanted))
    if everything or state:
        return answers, True
    late = sorted((job for job in answers if job.state in ENDED), key=lambda job: job.ended or 0.0)
    lines = [*dict.fromkeys((job.tenant, job.app or job.id) for job in reversed(late))]
    recent = {*lines[:LAST]}  # all jobs of a sweep are one line
    listed = [
        job
        for job in answers
        if job.state not in ENDED or (job.tenant, job.app or job.id) in recent
    ]
    return listed, len(listed) == len(answers)


def find_members(client: ServiceClient, app: str, **wanted: str | None) -> list[JobAnswer]:
    """The jobs of a sweep or app, or those of that name or id; InvalidConfig if there is none."""
    answers = list(every_job(client, app=app, **wanted))
    answers = answers or [answer for answer in every_job(client, **wanted) if answer.name == app]
    if answers:
        return answers
    try:
        return [client.get(JobAnswer, at("jobs", app))]
    except RequestRefused as error:
        raise InvalidConfig(
            f"there is no job, sweep or app {app!r}", hint="`weft jobs` lists them"
        ) from error


def _count_ended(client: ServiceClient) -> int:
    counts = client.get(ClusterAnswer, "/cluster").jobs
    return sum(counts.get(state, 0) for state in ENDED)


def render_jobs(
    client: ServiceClient,
    answers: list[JobAnswer],
    width: int,
    asked: str = "",
    metrics: Sequence[str] | None = None,
) -> Any:
    """A table, or a sentence where there is nothing; `asked` are the states asked for.

    With `metrics`, also none of them, parameters and metrics are shown.
    """
    cluster = client.get(ClusterAnswer, "/cluster")
    if not answers and asked and (count := sum(cluster.jobs.values())):
        whole = f"none of {count} jobs is" if count > 1 else "the only job is not"
        return Text(f"{whole} {asked.replace(',', ' or ')}", style="dim")
    if not answers:
        return Text("no jobs; `weft run -- python train.py` starts one", style="dim")
    more = [] if metrics is None else sweep_columns(answers, metrics)
    return Group(*trouble(cluster), jobs_table(answers, cluster.now, width, more))
