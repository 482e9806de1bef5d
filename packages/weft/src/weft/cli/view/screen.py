"""Progress of several runs at once."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

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
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), Remaining())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, auto_refresh=by_thread) as bars:
        yield bars
