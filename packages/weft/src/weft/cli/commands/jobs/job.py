"""`weft job`, `weft explain`, `weft logs`: one job, why it waits, what it prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from weft.cli.connect.client import ServiceClient
from weft.cli.connect.follow import Follower, exit_code
from weft.cli.options import shared as o
from weft.cli.view import words
from weft.cli.view.errors import user_errors
from weft.cli.view.screen import console, log_printer, notes, print_json
from weft.cli.view.status import job_details
from weft.cli.view.tables import details
from weft.report.units import number
from weft.service.responses.answers import (
    Ahead,
    ClusterAnswer,
    Events,
    Explanation,
    JobAnswer,
    Part,
    Start,
)
from weft.service.responses.json_values import plain
from weft_client.connection import at

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
    with user_errors():
        answer = ServiceClient().get(Explanation, at("jobs", job, "explain"))
    if as_json:
        print_json(answer)
        return
    console().print(render_explanation(answer, verbose=verbose))


SHOWN = 3
TOLD = ("runs for", "warning", "promised")  # of the numbers, what is in words


def render_explanation(answer: Explanation, *, verbose: bool = False) -> Any:
    """The answer as a person reads it."""
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
    """Return how many jobs wait in front and for how much; with `verbose`, their names too."""
    waiting = int(answer.numbers.get("ahead_waiting", 0))
    if verbose or not waiting:
        return ", ".join(in_front(ahead, answer.device) for ahead in answer.ahead if verbose)
    gpus = answer.numbers.get("ahead_gpus", 0.0)
    names = [ahead.name or ahead.id for ahead in answer.ahead if ahead.state == "waiting"][:SHOWN]
    more = f" and {waiting - len(names)} more" if waiting > len(names) else ""
    return f"{', '.join(names)}{more}, for {gpus:g} {answer.device}{'s' * (gpus != 1)}"


def value(thing: Any) -> str:
    """A figure, a list of them, or words."""
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
    if start is not None and start.unknown:
        return f"unknown: {start.unknown}"
    if start is None or start.p50 is None:
        return ""
    text = f"likely in {words.seconds(start.p50)}" if start.p50 >= 1.0 else "likely at once"
    if start.p10 is not None and start.p90 is not None:
        low, high = words.seconds(start.p10), words.seconds(start.p90)
        text += f" ({low} to {high})" if low != high else ""
    return text


KNOWN = ("at", "event", "seq", "job")


def job(
    job: JobId,
    events: Annotated[
        bool, typer.Option("--events", help="Also show what happened to it.")
    ] = False,
    as_json: o.AsJson = False,
) -> None:
    """Show one job: its state, GPUs and progress."""
    with user_errors():
        client = ServiceClient()
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
    """Describe one event of a job in one line."""
    name = str(event.get("event", ""))
    rest: Any = {field: value for field, value in event.items() if field not in KNOWN}
    if name == "Decided":
        rest = describe_decision(event, job)
    return words.plain(f"{words.moment(event.get('at'))}  {name}  {value(rest)}")


def describe_decision(event: dict[str, Any], job: str) -> str:
    """Describe a decision for one job."""
    reasons, changes = event.get("reasons") or {}, event.get("changes") or {}
    reason = str(reasons.get(job, ""))
    if rejected := (event.get("rejected") or {}).get(job):
        return f"rejected: {rejected}"
    if job not in changes:
        cleared = "the reason it was given before no longer holds"
        return reason or (cleared if job in reasons else "it keeps what it has")
    on = changes[job]
    where = "nothing" if on is None else words.where([slice_part(part) for part in on["slices"]])
    where += f" by plan {on['plan']}" if on and on.get("plan") else ""
    return f"it holds {where}" + (f" ({reason})" if reason else "")


def slice_part(held: dict[str, Any]) -> Part:
    """Devices of an event as an answer has them."""
    return Part(node=held["node"], gpus=held["gpus"], kind="", share=1.0)


def logs(
    job: JobId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the output until the job ends.")
    ] = False,
    rank: Annotated[int, typer.Option(help="Which process of the job.", min=0)] = 0,
    attempt: Annotated[
        int | None, typer.Option(help="Print only this attempt; with -f, start from it.", min=1)
    ] = None,
) -> None:
    """Print a job's output.

    Prints all attempts in order; if there are several, a line marks where each begins.

    A terminal gets its colours, and no other control characters; a pipe or a file gets all bytes.

    With -f, follows the output across restarts of the job and of the service until the job ends,
    and exits with the job's exit code.
    """
    remarks, write = notes(), log_printer()
    with user_errors():
        client = ServiceClient()
        answer = client.get(JobAnswer, at("jobs", job))
        job = answer.id
        follower = Follower(
            client,
            job,
            write,
            lambda text: remarks.print(f"{job}: {text}", style="dim", soft_wrap=True),
            rank,
            attempt or 1,
            mark=lambda number: write(f"--- attempt {number} ---\n".encode()),
        )
        if follow:
            try:
                raise typer.Exit(exit_code(follower.until_the_end()))
            except KeyboardInterrupt:
                raise typer.Exit(130) from None
        elif not follower.catch_up(attempt or answer.attempt):
            why = answer.reason or f"it is {answer.state}"
            remarks.print(f"{job} has printed nothing ({why})", style="dim")
