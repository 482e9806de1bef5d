"""How results of simulations are shown."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from weft.cli.view.errors import user_errors
from weft.core.errors import InvalidConfig
from weft.plural import say_gpus

if TYPE_CHECKING:
    from rich.text import Text

    from weft.cli.options.simulation import OutputOptions
    from weft.sim.result import Result


def check_output(output: OutputOptions) -> None:
    """Refuse options that would change nothing."""
    if (output.per_job or output.timing) and not output.as_json:
        what = "--per-job" if output.per_job else "--timing"
        raise InvalidConfig(f"{what} is about JSON", hint=f"add --json, or leave {what} out")


def show_result(result: Result, output: OutputOptions) -> None:
    """A table, or one JSON object; and a report if one was asked for."""
    report = output.report
    if report is not None:
        from weft.report.html import write_report

        with user_errors():
            write_report(result, report, command=shlex.join(["weft", *sys.argv[1:]]))
    if output.as_json:
        values = result.as_dict(per_job=output.per_job, timing=output.timing)
        typer.echo(json.dumps(values, indent=1))
        return
    from rich.console import Console

    from weft.report.tables import result_tables

    console = Console(highlight=False)
    console.print(_headline(result))
    console.print(*result_tables(result.outcomes, console.width, output.columns), sep="\n")
    for remark in _remarks(result):
        console.print(remark, style="yellow", markup=False)
    if report is not None:
        console.print(f"report: {report}", markup=False, soft_wrap=True)


def _remarks(result: Result) -> list[str]:
    """What a reader of the table should know before believing it."""
    remarks = []
    if len(result.seeds) > 1 and Path(result.workload).exists():
        remarks.append(
            "the jobs of a file are the same for every seed: seeds change only what is drawn, such "
            "as failures, noisy predictions and --sample"
        )
    return [*remarks, *([result.note] if result.note and len(result.outcomes) > 1 else ())]


def _headline(result: Result) -> Text:
    from rich.text import Text

    first = next(iter(result.outcomes.values()))[0]
    seeds = result.seeds
    which = f"seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"
    gpus, jobs = result.facts["gpus"], first.metrics["jobs"]
    name = Path(result.workload).name
    return Text.assemble(
        (name, "bold"),
        " on ",
        (result.cluster, "bold"),
        f": {jobs:,} job{'s' * (jobs != 1)}, {say_gpus(gpus)}, "
        f"offered load {result.facts['offered_load']:.2f}, {which}",
    )
