"""`weft job`: everything about one job."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from weft.cli.commands.jobs.explain import JobId
from weft.cli.options import shared as o
from weft.cli.view.errors import user_errors
from weft.service.responses.answers import ClusterAnswer, Events, JobAnswer, Part
from weft.service.responses.json_values import plain

KNOWN = ("at", "event", "seq", "job")


def job(
    job: JobId,
    events: Annotated[
        bool, typer.Option("--events", help="Also show what happened to it.")
    ] = False,
    as_json: o.AsJson = False,
) -> None:
    """Show one job: its state, GPUs and progress."""
    from weft.cli.connect.client import Client, at
    from weft.cli.view.screen import console, print_json
    from weft.cli.view.status import job_details

    with user_errors():
        client = Client()
        answer = client.get(JobAnswer, at("jobs", job))
        job = answer.id
        history = client.get(Events, at("jobs", job, "events")).events if events else []
        now = 0.0 if as_json else client.get(ClusterAnswer, "/cluster").now
    if as_json:
        print_json({**plain(answer), "events": history} if events else answer)
        return
    screen = console()
    screen.print(job_details(answer, now))
    shown = [event for event in history if event.get("event") != "Reported"]
    for event in shown:
        screen.print(describe_event(event, job), soft_wrap=True)
    if len(shown) < len(history):
        left = len(history) - len(shown)
        screen.print(f"{left} reports of the job are left out; --json has them", style="dim")


def describe_event(event: dict[str, Any], job: str) -> str:
    """One event of a job in one line."""
    from weft.cli.commands.jobs.explain import value
    from weft.cli.view import words

    name = str(event.get("event", ""))
    rest: Any = {field: value for field, value in event.items() if field not in KNOWN}
    if name == "Decided":
        rest = describe_decision(event, job)
    return words.plain(f"{words.moment(event.get('at'))}  {name}  {value(rest)}")


def describe_decision(event: dict[str, Any], job: str) -> str:
    """What a decision was for one job."""
    from weft.cli.view import words

    reason = str((event.get("reasons") or {}).get(job, ""))
    changes = event.get("changes") or {}
    if job not in changes:
        return reason
    on = changes[job]
    where = "nothing" if on is None else words.where([slice_part(part) for part in on["slices"]])
    where += f" by plan {on['plan']}" if on and on.get("plan") else ""
    return f"it holds {where}" + (f" ({reason})" if reason else "")


def slice_part(held: dict[str, Any]) -> Part:
    """Devices of an event as an answer has them."""
    return Part(node=held["node"], gpus=held["gpus"], kind="", share=1.0)
