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
    events: Annotated[bool, typer.Option("--events", help="What happened to it, too.")] = False,
    as_json: o.AsJson = False,
) -> None:
    """Show one job: its state, what it holds, how far it is."""
    from weft.cli.connect.client import Client, at
    from weft.cli.view.screen import console, print_json
    from weft.cli.view.status import job_details

    with user_errors():
        client = Client()
        found = client.get(JobAnswer, at("jobs", job))
        job = found.id
        history = client.get(Events, at("jobs", job, "events")).events if events else []
        now = 0.0 if as_json else client.get(ClusterAnswer, "/cluster").now
    if as_json:
        print_json({**plain(found), "events": history} if events else found)
        return
    screen = console()
    screen.print(job_details(found, now))
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
    rest: Any = {field: one for field, one in event.items() if field not in KNOWN}
    if name == "Decided":
        rest = describe_decision(event, job)
    return words.plain(f"{words.moment(event.get('at'))}  {name}  {value(rest)}")


def describe_decision(event: dict[str, Any], job: str) -> str:
    """What a decision was for one job."""
    from weft.cli.view import words

    said = str((event.get("reasons") or {}).get(job, ""))
    changes = event.get("changes") or {}
    if job not in changes:
        return said
    on = changes[job]
    where = "nothing" if on is None else words.where([slice_part(one) for one in on["slices"]])
    return f"it holds {where}" + (f" ({said})" if said else "")


def slice_part(one: dict[str, Any]) -> Part:
    """Devices of an event as an answer has them."""
    return Part(node=one["node"], gpus=one["gpus"], kind="", share=1.0)
