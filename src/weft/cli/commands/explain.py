"""`weft explain`: why a job waits, or holds what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from weft.cli import options as o
from weft.cli.view.errors import user_errors

JobId = Annotated[str, typer.Argument(help="A job's id (`weft jobs`).", metavar="ID")]


def explain(job: JobId, as_json: o.AsJson = False) -> None:
    """Say why a job waits, or holds what it holds.

    With the numbers behind it, who is in front, the cheapest change that would start it, and an
    estimate of its start.
    """
    from weft.cli.client import Client, at
    from weft.cli.view.screen import console, print_json

    with user_errors():
        answer = Client().get(at("jobs", job, "explain"))
    if as_json:
        print_json(answer)
        return
    console().print(explained(job, answer))


def explained(job: str, answer: Mapping[str, Any]) -> Any:
    """The answer as a person reads it."""
    from rich.console import Group
    from rich.text import Text

    from weft.cli.view import words
    from weft.cli.view.tables import details

    title = Text(f"{job} is ", style="bold")
    title.append_text(words.state({"state": answer["state"]}))
    ahead = answer.get("ahead") or ()
    change = answer.get("cheapest_change")
    told = details(
        [
            ("why", answer.get("reason")),
            ("holds", held(answer.get("holds"))),
            *((name.replace("_", " "), value(one)) for name, one in numbers(answer)),
            ("in front", ", ".join(in_front(one) for one in ahead) if ahead else ""),
            ("starts", interval(answer.get("start"))),
            ("would start", change_text(change)),
        ]
    )
    return Group(title, told)


def numbers(answer: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The figures behind the reason."""
    found = answer.get("numbers") or {}
    return list(found.items()) if isinstance(found, Mapping) else []


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


def held(holds: Any) -> str:
    """An allocation as text."""
    from weft.cli.view import words

    if isinstance(holds, (list, tuple)) and holds and isinstance(holds[0], Mapping):
        job = {"state": "", "allocation": holds}
        return f"{words.gpus(job)} ({words.where(job)})"
    return value(holds)


def in_front(one: Any) -> str:
    """A job that is ahead: its name and what it wants or holds."""
    if not isinstance(one, Mapping):
        return str(one)
    more = [f"{one['gpus']:g} GPU{'s' * (one['gpus'] != 1)}"] if one.get("gpus") else []
    more += [str(one["state"])] if one.get("state") else []
    name = one.get("name") or one.get("id")
    return f"{name} ({', '.join(more)})" if more else str(name)


def change_text(change: Any) -> str:
    """The cheapest change that would start the job."""
    if not isinstance(change, Mapping):
        return value(change)
    said = change.get("text") or change.get("change") or change.get("what")
    return str(said) if said else value(change)


def interval(start: Any) -> str:
    """`in about 5 min (10 %: 2 min, 90 %: 20 min)` from seconds from now."""
    from weft.cli.view import words

    if not isinstance(start, Mapping) or start.get("p50") is None:
        return ""
    text = f"in about {words.seconds(start['p50'])}"
    if start.get("p10") is not None and start.get("p90") is not None:
        text += f", 8 of 10 times {words.seconds(start['p10'])} to {words.seconds(start['p90'])}"
    return text
