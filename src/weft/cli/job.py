"""`weft job`: everything about one job."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from weft.cli import options as o
from weft.cli.explain import JobId
from weft.cli.show import user_errors


def job(
    job: JobId,
    events: Annotated[bool, typer.Option("--events", help="What happened to it, too.")] = False,
    as_json: o.AsJson = False,
) -> None:
    """Show one job: its state, what it holds, how far it is."""
    from weft.cli.boards import job_details
    from weft.cli.client import Client, at
    from weft.cli.listing import cluster_now
    from weft.cli.screen import console, print_json, rows

    with user_errors():
        client = Client()
        found = client.get(at("jobs", job))
        story = rows(client.get(at("jobs", job, "events")), "events") if events else []
        now = 0.0 if as_json else cluster_now(client.get("/cluster"))
    if as_json:
        print_json({**found, "events": story} if events else found)
        return
    screen = console()
    screen.print(job_details(found, now))
    for event in story:
        screen.print(told(event), soft_wrap=True)


def told(event: dict[str, Any]) -> str:
    """One event in one line."""
    from weft.cli import words
    from weft.cli.explain import value

    known = ("at", "event", "seq", "job", "id", "type")
    rest = {name: one for name, one in event.items() if name not in known}
    name = event.get("event") or event.get("type") or ""
    return words.plain(f"{words.moment(event.get('at'))}  {name}  {value(rest)}")
