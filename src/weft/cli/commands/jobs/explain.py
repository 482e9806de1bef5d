"""`weft explain`: why a job waits, or holds what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from weft.cli.options import shared as o
from weft.cli.view.errors import user_errors
from weft.service.responses.answers import Ahead, Explanation, Start

JobId = Annotated[
    str,
    typer.Argument(
        help="A job's id (`weft jobs`), name or unique beginning; @last: your last.", metavar="ID"
    ),
]


def explain(job: JobId, as_json: o.AsJson = False) -> None:
    """Show why a job waits, or why it holds what it holds.

    With the numbers behind it, who is in front, the cheapest change that would start it, and an
    estimate of its start.
    """
    from weft.cli.connect.client import Client, at
    from weft.cli.view.screen import console, print_json

    with user_errors():
        answer = Client().get(Explanation, at("jobs", job, "explain"))
    if as_json:
        print_json(answer)
        return
    console().print(render_explanation(answer))


def render_explanation(answer: Explanation) -> Any:
    """The answer as a person reads it."""
    from rich.console import Group
    from rich.text import Text

    from weft.cli.view import words
    from weft.cli.view.tables import details

    title = Text(f"{answer.id} is ", style="bold")
    title.append_text(words.state(answer.state))
    held = f"{words.gpus(answer.holds)} ({words.where(answer.holds)})" if answer.holds else ""
    change = answer.cheapest_change
    told = details(
        [
            ("why", answer.reason),
            ("decided by", answer.decided_by),
            ("holds", held),
            *((name.replace("_", " "), value(one)) for name, one in answer.numbers.items()),
            ("in front", ", ".join(in_front(one) for one in answer.ahead)),
            ("starts", interval(answer.start)),
            ("would start", change.text if change else ""),
        ]
    )
    return Group(title, told)


def value(one: Any) -> str:
    """A figure, a list of them, or words."""
    from weft.report.units import number

    if isinstance(one, bool):
        return "yes" if one else "no"
    if isinstance(one, (int, float)):
        return number(one)
    if isinstance(one, Mapping):
        return ", ".join(f"{name} {value(part)}" for name, part in one.items())
    if isinstance(one, (list, tuple)):
        return ", ".join(value(part) for part in one)
    return "" if one is None else str(one)


def in_front(one: Ahead) -> str:
    """A job that is ahead: its name and what it wants or holds."""
    more = [f"{one.gpus:g} GPU{'s' * (one.gpus != 1)}"] if one.gpus else []
    more += [one.state] if one.state else []
    name = one.name or one.id
    return f"{name} ({', '.join(more)})" if more else name


def interval(start: Start | None) -> str:
    """`in about 5 min (10 %: 2 min, 90 %: 20 min)` from seconds from now."""
    from weft.cli.view import words

    if start is None or start.p50 is None:
        return ""
    text = f"in about {words.seconds(start.p50)}"
    if start.p10 is not None and start.p90 is not None:
        text += f", 8 of 10 times {words.seconds(start.p10)} to {words.seconds(start.p90)}"
    return text
