"""`weft plan`: what would happen to a job now."""

from __future__ import annotations

from typing import Any

from weft.cli import options as o
from weft.cli.commands.submit import What, bodies, send
from weft.cli.job_file import Flags
from weft.cli.job_options import takes_flags
from weft.cli.view.errors import user_errors
from weft.service.responses import Planned


@takes_flags
def plan(what: What, flags: Flags, as_json: o.AsJson = False) -> None:
    """Say what would happen to a job now.

    Nothing is queued. Takes what `weft submit` takes.
    """
    from weft.cli.client import Client
    from weft.cli.view.screen import console, print_json

    with user_errors():
        client = Client()
        jobs = bodies(what, flags)
        answers = [send(Planned, client, path, body, "/plan") for path, body in jobs]
    if as_json:
        print_json(answers[0] if len(answers) == 1 else answers)
        return
    for (path, body), answer in zip(jobs, answers, strict=True):
        console().print(render_plan(path or str(body.get("name", "")), answer))


def render_plan(name: str, answer: Planned) -> Any:
    """The answer as a person reads it."""
    from rich.console import Group
    from rich.text import Text

    from weft.cli.commands.explain import interval
    from weft.cli.view import words
    from weft.cli.view.tables import details

    now = answer.starts_now
    title = Text(f"{name}: ", style="bold")
    title.append("would start now" if now else "would wait", style="green" if now else "yellow")
    told = details(
        [
            ("holds", words.gpus(answer.allocation)),
            ("on", words.where(answer.allocation)),
            ("displaces", ", ".join(one.id or one.name for one in answer.displaces)),
            ("reason", answer.reason),
            ("start", "" if now else interval(answer.start)),
        ]
    )
    return Group(title, told)
