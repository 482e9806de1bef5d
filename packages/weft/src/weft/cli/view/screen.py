"""Output of commands: JSON for machines, or text for people, once or drawn again and again."""

from __future__ import annotations

import codecs
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, ConsoleOptions
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.progress import TimeRemainingColumn as Remaining
from rich.segment import Segment
from rich.text import Text

from weft.cli.connect.client import ServiceUnreachable, active_jobs
from weft.cli.view import words
from weft.frozen import frozen
from weft.service.responses.answers import ClusterAnswer, JobAnswer, NodeAnswer, Nodes
from weft.service.responses.json_values import plain

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import TaskID

    from weft.cli.connect.client import ServiceClient


PIPED = 500  # columns: one line per job


class SafeConsole(Console):
    """A terminal for text of anyone: nothing in it is markup, or a control character."""

    def __init__(self, *, stderr: bool = False, width: int | None = None) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, stderr=stderr, width=width)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Its pieces of text; what Rich itself wants of the terminal stays."""
        for piece in super().render(renderable, options):
            text = piece.text if piece.control else words.readable(piece.text)
            yield piece if text == piece.text else Segment(text, piece.style)


def console() -> Console:
    """The terminal; for a program that reads it, lines are as long as they are."""
    return SafeConsole(width=PIPED if is_piped() else None)


def is_piped() -> bool:
    """Return true if a program reads the output, and no width was given."""
    return not sys.stdout.isatty() and "COLUMNS" not in os.environ


def notes() -> Console:
    """Return the console for remarks that are not the command's output."""
    return SafeConsole(stderr=True)


def echo(text: str) -> None:
    """Print a line that may hold text of others, as it is."""
    typer.echo(words.readable(text))


def print_json(body: Any) -> None:
    """One JSON document; answers of the service as it gave them."""
    typer.echo(json.dumps(body, default=plain, indent=1))


def write_bytes(chunk: bytes) -> None:
    """A job's output as it is."""
    out = typer.get_binary_stream("stdout")
    out.write(chunk)
    out.flush()


OBEYED = re.compile(  # by a terminal, besides colours, ends of lines and tabs
    r"\x1b\[(?![0-9;:]*m)[0-?]*[ -/]*[@-~]|\x1b(?!\[[0-9;:]*m)"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]"
)
UNFINISHED = re.compile(r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4})?\Z")


def log_printer() -> Callable[[bytes], None]:
    """A function that prints a job's output as it comes.

    Colours reach a terminal. What moves its cursor, sets its title or asks it something does not.
    """
    out, decoder = typer.get_binary_stream("stdout"), codecs.getincrementaldecoder("utf-8")
    decode, held = decoder("replace").decode, ""

    def write(chunk: bytes) -> None:
        nonlocal held
        if out.isatty():
            text = held + decode(chunk)
            begun = UNFINISHED.search(text)
            held = begun[0] if begun else ""
            chunk = OBEYED.sub("", text[: len(text) - len(held)]).encode()
        out.write(chunk)
        out.flush()

    return write


def interactive() -> bool:
    """Return true if a person sits in front."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


EVERY_S = 1.0


def repeat(
    render: Callable[[int], RenderableType],
    *,
    every_s: float = EVERY_S,
    done: Callable[[], bool] = lambda: False,
    full: bool = False,
    interrupts: bool = False,
) -> None:
    """Draw `render(width)` in place until Ctrl-C or until `done`; `full` takes the whole screen.

    With `interrupts` Ctrl-C goes on to the caller. A service that is away for a while is shown
    as such, and asked again.
    """
    screen = console()
    render(screen.width)  # a first mistake is an error, not a picture
    try:
        with Live(console=screen, auto_refresh=False, screen=full, transient=False) as live:
            while True:
                try:
                    live.update(render(screen.width), refresh=True)
                except ServiceUnreachable as error:
                    live.update(Text(f"{error.what}; waiting for it", style="yellow"), refresh=True)
                if done():
                    return
                time.sleep(every_s)
    except KeyboardInterrupt:
        if interrupts:
            raise


@frozen
class ClusterSnapshot:
    """The cluster, its nodes and the jobs that have not ended."""

    cluster: ClusterAnswer
    nodes: list[NodeAnswer]
    jobs: list[JobAnswer]


def read_snapshot(client: ServiceClient) -> ClusterSnapshot:
    """Read the cluster, its nodes and its active jobs from the service."""
    nodes = client.get(Nodes, "/nodes").nodes
    return ClusterSnapshot(client.get(ClusterAnswer, "/cluster"), nodes, active_jobs(client))


SHOW_S = 0.1


@contextmanager
def progress_bars(labels: Sequence[str], *, quiet: bool) -> Iterator[Callable[..., None] | None]:
    """One bar a run on stderr; the callback takes the fraction done of each."""
    with _bars(quiet=quiet, by_thread=False) as bars:
        if bars is None:
            yield None
            return
        tasks = [bars.add_task(label, total=1.0) for label in labels]
        whole = bars.add_task("all", total=len(labels)) if len(labels) > 1 else None

        shown = 0.0

        def update(done: Sequence[float]) -> None:
            nonlocal shown
            if time.monotonic() < shown + SHOW_S:
                return
            if whole is not None:
                bars.update(whole, completed=sum(done))
            for task, fraction in zip(tasks, done, strict=True):
                bars.update(task, completed=fraction)
            bars.refresh()
            shown = time.monotonic()

        yield update


@contextmanager
def named_bars(*, quiet: bool) -> Iterator[Callable[[str, float], None]]:
    """A progress bar per run; the callback takes a label and a fraction."""
    with _bars(quiet=quiet) as bars:
        tasks: dict[str, TaskID] = {}

        def update(label: str, done: float) -> None:
            if bars is None:
                return
            if label not in tasks:
                tasks[label] = bars.add_task(label, total=1.0)
            bars.update(tasks[label], completed=done)

        yield update


@contextmanager
def _bars(*, quiet: bool, by_thread: bool = True) -> Iterator[Progress | None]:
    """Progress bars, redrawn by a thread, or without one by calls of `refresh`."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), Remaining())
    with Progress(*columns, console=notes(), transient=True, auto_refresh=by_thread) as bars:
        yield bars
