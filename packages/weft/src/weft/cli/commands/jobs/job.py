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
        help="A job's id (`weft jobs`), name or unique prefix; @last: your last job.", metavar="ID"
    ),
]


def explain(
    job: JobId,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also show the numbers behind the answer.")
    ] = False,
    as_json: o.AsJson = False,
) -> None:
    """Show why a job waits, or why it holds what it holds.

    Also shows which jobs are ahead of it, when it will probably start, and the cheapest change that
    would start it now.
    """
    from weft.cli.connect.client import Client, at
    from weft.cli.view.screen import console, print_json

    with user_errors():
        answer = Client().get(Explanation, at("jobs", job, "explain"))
    if as_json:
        print_json(answer)
        return
    console().print(render_explanation(answer, verbose=verbose))


SHOWN = 3
TOLD = ("runs for", "warning", "promised")  # of the numbers, what is in words


def render_explanation(answer: Explanation, *, verbose: bool = False) -> Any:
    """The answer as a person reads it."""
    from rich.console import Group
    from rich.text import Text

    from weft.cli.view import words
    from weft.cli.view.tables import details

    verb = "has" if answer.state in ("succeeded", "failed") else "is"
    title = Text(f"{answer.id} {verb} ", style="bold")
    title.append_text(words.state(answer.state))
    held = f"{words.gpus(answer.holds)} ({words.where(answer.holds)})" if answer.holds else ""
    change = answer.cheapest_change
    numbers = {k: v for k, v in answer.numbers.items() if verbose or k in TOLD}
    rows = details(
        [
            ("why", answer.reason),
            ("starts", interval(answer.start)),
            ("would start now", change.text if change else ""),
            ("goes on", f"`weft resume {answer.id}`" if answer.blocked_by == "suspended" else ""),
            ("holds", held),
            ("in front", _queue(answer, verbose=verbose)),
            ("decided by", answer.decided_by if verbose else ""),
            *((name.replace("_", " "), value(figure)) for name, figure in numbers.items()),
            ("left out", "; ".join(answer.left_out)),
        ]
    )
    return Group(title, rows)


def _queue(answer: Explanation, *, verbose: bool) -> str:
    """How many wait in front and for how much; their names too, if asked for."""
    waiting = int(answer.numbers.get("ahead_waiting", 0))
    if verbose or not waiting:
        return ", ".join(in_front(ahead, answer.device) for ahead in answer.ahead if verbose)
    gpus = answer.numbers.get("ahead_gpus", 0.0)
    names = [ahead.name or ahead.id for ahead in answer.ahead if ahead.state == "waiting"][:SHOWN]
    more = f" and {waiting - len(names)} more" if waiting > len(names) else ""
    return f"{', '.join(names)}{more}, for {gpus:g} {answer.device}{'s' * (gpus != 1)}"


def value(thing: Any) -> str:
    """A figure, a list of them, or words."""
    from weft.report.units import number

    if isinstance(thing, bool):
        return "yes" if thing else "no"
    if isinstance(thing, (int, float)):
        return number(thing)
    if isinstance(thing, Mapping):
        return ", ".join(f"{name} {value(part)}" for name, part in thing.items())
    if isinstance(thing, (list, tuple)):
        return ", ".join(value(part) for part in thing)
    return "" if thing is None else str(thing)


def in_front(ahead: Ahead, device: str = "GPU") -> str:
    """A job that is ahead: its name and what it wants or holds."""
    more = [f"{ahead.gpus:g} {device}{'s' * (ahead.gpus != 1)}"] if ahead.gpus else []
    more += [ahead.state] if ahead.state else []
    name = ahead.name or ahead.id
    return f"{name} ({', '.join(more)})" if more else name


def interval(start: Start | None) -> str:
    """`likely in 3 h (1 h to 6 h)` from seconds from now."""
    from weft.cli.view import words

    if start is None or start.p50 is None:
        return ""
    text = f"likely in {words.seconds(start.p50)}" if start.p50 >= 1.0 else "likely at once"
    if start.p10 is not None and start.p90 is not None:
        low, high = words.seconds(start.p10), words.seconds(start.p90)
        text += f" ({low} to {high})" if low != high else ""
    return text
