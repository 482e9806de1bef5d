"""What every command shares: errors, progress, and how results are shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.text import Text

from weft.core.errors import EngineError, InvalidConfig, PlanError, WeftError

if TYPE_CHECKING:
    from weft.app.simulate.run import Result


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn an error raised on purpose into one line, a hint, and an exit code."""
    try:
        yield
    except WeftError as error:
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        console.print("[bold red]error:[/] ", end="")
        console.print(error.what, markup=False)
        if error.hint:
            console.print(f"  hint: {error.hint}", markup=False)
        ours = isinstance(error, (PlanError, EngineError))
        raise typer.Exit(1 if ours else 2) from error


@contextmanager
def progress_bars(labels: Sequence[str], *, quiet: bool) -> Iterator[Callable[..., None] | None]:
    """One bar a run on stderr; the callback takes the fraction done of each."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), Remaining())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks = [bars.add_task(label, total=1.0) for label in labels]

        def update(done: Sequence[float]) -> None:
            for task, fraction in zip(tasks, done, strict=True):
                bars.update(task, completed=fraction)

        yield update


def check_output(*, as_json: bool, per_job: bool, timing: bool) -> None:
    """Refuse options that would change nothing."""
    if (per_job or timing) and not as_json:
        what = "--per-job" if per_job else "--timing"
        raise InvalidConfig(f"{what} is about JSON", hint=f"add --json, or leave {what} out")


def show_result(
    result: Result, *, as_json: bool, per_job: bool, timing: bool, report: Path | None
) -> None:
    """A table, or one JSON object; and a report if one was asked for."""
    if report is not None:
        from weft.report.html import write_report

        with user_errors():
            write_report(result, report)
    if as_json:
        typer.echo(json.dumps(result.as_dict(per_job=per_job, timing=timing), indent=1))
        return
    from weft.report.tables import results_table

    console = Console(highlight=False)
    console.print(_headline(result))
    console.print(results_table(result.outcomes, console.width))
    if report is not None:
        console.print(f"report: {report}", markup=False, soft_wrap=True)


def _headline(result: Result) -> Text:
    first = next(iter(result.outcomes.values()))[0]
    seeds = result.seeds
    which = f"seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"
    gpus, jobs = result.facts["gpus"], first.metrics["jobs"]
    name = Path(result.workload).name
    return Text.assemble(
        (name, "bold"),
        " on ",
        (result.cluster, "bold"),
        f": {jobs:,} job{'s' * (jobs != 1)}, {gpus:,} GPU{'s' * (gpus != 1)}, "
        f"offered load {result.facts['offered_load']:.2f}, {which}",
    )
