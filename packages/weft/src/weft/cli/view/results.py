"""Tables of simulations, what-ifs, measurements and lists of parts."""

from __future__ import annotations

import csv
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from weft.app.measure.pairs import PairTable
from weft.app.measure.script import ScriptProfile
from weft.cli.view import words
from weft.cli.view.errors import user_errors
from weft.cli.view.tables import TableColumn, fit_columns
from weft.core.errors import InvalidConfig
from weft.plural import say_gpus
from weft.report.tables import COLUMNS, result_tables, write_metric
from weft.report.units import duration, number, percent
from weft.service.responses.answers import Comparison, NeverStarts, Outlook, Start

if TYPE_CHECKING:
    from weft.cli.options.shared import Columns
    from weft.cli.options.simulation import OutputOptions
    from weft.sim.result import Result

BOUNDS = {
    "alone_jct_h": "every job alone",
    "srpt_jct_h": "one machine as fast as the cluster",
    "busy_jct_h": "mean busy times",
    "market_jct_h": "prices of GPUs over time",
}
CSV_COLUMNS = ("policy", "metric", "mean", "half_interval95", "seeds")


def check_output(output: OutputOptions) -> None:
    """Refuse options that would change nothing."""
    if (output.per_job or output.timing) and not output.as_json:
        what = "--per-job" if output.per_job else "--timing"
        raise InvalidConfig(f"{what} is about JSON", hint=f"add --json, or leave {what} out")
    if output.csv and output.as_json:
        raise InvalidConfig("--csv and --json are both given", hint="give one of them")


def show_result(result: Result, output: OutputOptions) -> None:
    """A table, or one JSON object; and a report if one was asked for."""
    _write_report(result, output.report)
    if output.as_json:
        values = result.as_dict(per_job=output.per_job, timing=output.timing)
        typer.echo(json.dumps(values, indent=1))
    elif output.csv:
        rows = csv.writer(sys.stdout, lineterminator="\n")
        rows.writerow(CSV_COLUMNS)
        rows.writerows(_csv_rows(result))
    else:
        _print_tables(result, output.report, output.columns)


def show_loads(results: Mapping[float | None, Result], output: OutputOptions) -> None:
    """Show each load: in one JSON object, CSV with one more column or tables; a report each."""
    report = output.report
    paths = {
        load: None if report is None else report.with_name(f"{report.stem}-{load}{report.suffix}")
        for load in results
    }
    for load, result in results.items():
        _write_report(result, paths[load])
    if output.as_json:
        each = [
            {"load": load, **result.as_dict(per_job=output.per_job, timing=output.timing)}
            for load, result in results.items()
        ]
        typer.echo(json.dumps({"loads": each}, indent=1))
    elif output.csv:
        rows = csv.writer(sys.stdout, lineterminator="\n")
        rows.writerow(("load", *CSV_COLUMNS))
        for load, result in results.items():
            rows.writerows((load, *row) for row in _csv_rows(result))
    else:
        for load, result in results.items():
            _print_tables(result, paths[load], output.columns)


def _write_report(result: Result, path: Path | None) -> None:
    if path is not None:
        from weft.report.html import write_report

        with user_errors():
            write_report(result, path, command=shlex.join(["weft", *sys.argv[1:]]))


def _csv_rows(result: Result) -> Iterator[tuple[str | float, ...]]:
    for name in result.bounds[0] if result.bounds else ():
        yield "bound", name, *result.bound_interval(name), len(result.bounds)
    for policy, outcomes in result.outcomes.items():
        for metric in outcomes[0].metrics:
            yield policy, metric, *result.interval(policy, metric), len(outcomes)


def _print_tables(result: Result, report: Path | None, columns: Columns) -> None:
    console = Console(highlight=False)
    console.print(_headline(result))
    tables = result_tables(result.outcomes, console.width, columns, result.least)
    console.print(*tables, sep="\n")
    if result.bounds:
        least, by = duration(result.bound()), max(BOUNDS, key=lambda name: result.bound(name))
        line = f"bound: no schedule without shared GPUs averages below {least} ({BOUNDS[by]})"
        console.print(line, markup=False)
    for remark in _remarks(result):
        console.print(remark, style="yellow", markup=False)
    if report is not None:
        console.print(f"report: {report}", markup=False, soft_wrap=True)


def _remarks(result: Result) -> list[str]:
    """Return remarks that a reader of the table should know before believing it."""
    remarks = []
    if len(result.seeds) > 1 and Path(result.workload).exists():
        remarks.append(
            "the jobs of a file are the same for every seed: seeds change only what is drawn, such "
            "as failures, noisy predictions and --sample"
        )
    if result.no_bound:
        remarks.append(result.no_bound)
    return [*remarks, *([result.note] if result.note and len(result.outcomes) > 1 else ())]


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
        f": {jobs:,} job{'s' * (jobs != 1)}, {say_gpus(gpus)}, "
        f"offered load {result.facts['offered_load']:.2f}, {which}",
    )


AHEAD = {"avg_start_h": "mean start in", "avg_end_h": "mean end in"}


def comparison_table(answer: Comparison, width: int) -> RenderableType:
    """A column each, a row per metric; then a row per job where it looks ahead."""
    policies = answer.policies
    table = Table(header_style="bold")
    table.add_column("", no_wrap=True)
    for name in policies:
        table.add_column(name, justify="right", overflow="fold")
    for column in COLUMNS:
        values = [metrics.get(column.name) for metrics in policies.values()]
        if any(value is not None for value in values):
            shown = ("" if value is None else write_metric(column, value) for value in values)
            table.add_row(column.heading, *shown)
    for name, heading in AHEAD.items():
        values = [metrics.get(name) for metrics in policies.values()]
        if any(value is not None for value in values):
            table.add_row(heading, *("" if value is None else duration(value) for value in values))
    if answer.never:
        counts = (sum(starts.count for starts in answer.never.get(name, ())) for name in policies)
        table.add_row("never starts", *(str(count or "") for count in counts))
    parts: list[RenderableType] = [table]
    for name, some in answer.never.items():
        parts += [Text(f"{name}: {_say_never(starts)}") for starts in some]
    if answer.outlook:
        parts += [Text(), outlook_table(answer.outlook, width)]
    if answer.note:
        parts.append(Text(answer.note, style="dim"))
    return Group(*parts)


def _say_never(starts: NeverStarts) -> str:
    """`never starts (3), because over quota: ...: a, b, c`."""
    more = ", ..." if starts.count > len(starts.jobs) else ""
    return (
        f"never starts ({starts.count}), because {starts.because}: {', '.join(starts.jobs)}{more}"
    )


def outlook_table(looks: list[Outlook], width: int) -> Table:
    """Return a table of each job's start and end, as things are and with the change."""
    columns: list[TableColumn[Outlook]] = [
        TableColumn("job", lambda outlook: outlook.name or outlook.id),
        TableColumn("starts in", lambda outlook: _middle(outlook.start), right=True),
        TableColumn("then in", lambda outlook: _middle(outlook.start_then), right=True),
        TableColumn("ends in", lambda outlook: _middle(outlook.end), drop=1, right=True),
        TableColumn("then in ", lambda outlook: _middle(outlook.end_then), drop=1, right=True),
    ]
    return fit_columns(columns, looks, width)


def _middle(start: Start | None) -> str:
    if start is None or start.p50 is None:
        return "?"
    return "runs" if start.p50 == 0.0 else words.seconds(start.p50)


def parts_table(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Table:
    """One column a heading, or two where `width` has no room for that."""
    wide = _table(headings)
    for row in rows:
        wide.add_row(*row)
    if len(headings) <= 2 or Console(width=10_000).measure(wide).maximum <= width:
        return wide
    narrow = _table(headings[:2])
    for name, what, *rest in rows:
        below = [Text(cell, style="dim") for cell in rest if cell]
        narrow.add_row(name, Group(Text(what), *below))
    return narrow


def _table(headings: Sequence[str]) -> Table:
    table = Table(header_style="bold", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for i, heading in enumerate(headings):
        table.add_column(heading, no_wrap=i == 0)
    return table


def profile_tables(measured: ScriptProfile | PairTable, width: int) -> RenderableType:
    """Split a profile into tables that fit the width."""
    return (
        _script(measured, width) if isinstance(measured, ScriptProfile) else _pairs(measured, width)
    )


def _pairs(table: PairTable, width: int) -> RenderableType:
    names = [f"{script.model}:{script.batch}" for script in table.alone]
    alone: list[TableColumn[dict[str, Any]]] = [
        TableColumn("script", lambda row: row["name"]),
        TableColumn("step alone", lambda row: ms(row["step_s"]), right=True),
        TableColumn("memory", lambda row: f"{row['mem_gb']:.2f} GB", drop=1, right=True),
    ]
    together: list[TableColumn[dict[str, Any]]] = [
        TableColumn("one", lambda row: row["one"]),
        TableColumn("speed", lambda row: percent(row["speed_one"]), right=True),
        TableColumn("beside", lambda row: row["other"]),
        TableColumn("speed ", lambda row: percent(row["speed_other"]), right=True),
        TableColumn("work of both", lambda row: f"{row['both']:.2f}", right=True),
    ]
    pairs = [
        {
            "one": names[pair.one],
            "other": names[pair.other],
            "speed_one": pair.speed_one,
            "speed_other": pair.speed_other,
            "both": pair.speed_one + pair.speed_other,
        }
        for pair in table.together
    ]
    scripts = [
        asdict(script) | {"name": name} for script, name in zip(table.alone, names, strict=True)
    ]
    title = f"{table.gpus} {table.kind} shared by {table.sharing}, {table.seconds:.0f} s"
    return Group(
        Text(title, style="bold"),
        fit_columns(alone, scripts, width),
        Text(""),
        fit_columns(together, sorted(pairs, key=lambda row: -row["both"]), width),
        Text("Speeds are parts of the speed alone; 1.00 is the work of one script at a time."),
    )


def _script(measured: ScriptProfile, width: int) -> RenderableType:
    columns: list[TableColumn[dict[str, Any]]] = [
        TableColumn("batch", lambda row: f"{row['batch']:,}", right=True),
        TableColumn("per GPU", lambda row: f"{row['per_gpu']:,}", drop=3, right=True),
        TableColumn("accum.", lambda row: _micros(row["accumulate"]), drop=6, right=True),
        TableColumn("step", lambda row: ms(row["step_s"]), right=True),
        TableColumn("data", lambda row: ms(row["data_s"]), drop=1, right=True),
        TableColumn("compute", lambda row: ms(row["compute_s"]), drop=1, right=True),
        TableColumn("sync", lambda row: ms(row["sync_s"]), drop=2, right=True),
        TableColumn("samples/s", lambda row: number(row["throughput"]), right=True),
        TableColumn("worth", lambda row: _if_known(row["efficiency"], percent), drop=4, right=True),
        TableColumn("goodput", lambda row: _if_known(row["goodput"], number), right=True),
        TableColumn("memory", lambda row: f"{row['mem_gb']:.2f} GB", drop=5, right=True),
    ]
    points = [asdict(point) for point in measured.points]
    title = f"{' '.join(measured.command)} on {measured.gpus} {measured.kind}"
    parts: list[RenderableType] = [
        Text(f"{title}, {measured.seconds:.0f} s", style="bold", overflow="ellipsis", no_wrap=True),
        fit_columns(columns, points, width),
        Text(noise_text(measured)),
    ]
    if measured.trouble:
        parts.append(Text(f"ended early: {measured.trouble}", style="yellow"))
    return Group(*parts)


def noise_text(measured: ScriptProfile) -> str:
    """The gradient's noise in words."""
    if measured.noise is None:
        return "gradient noise: not enough steps to tell"
    noise = measured.noise
    return (
        f"gradient noise scale {number(noise['noise'])} samples "
        f"(variance {number(noise['grad_var'])}, squared norm {number(noise['grad_sqr'])})"
    )


def _if_known(value: float | None, write: Callable[[float], str]) -> str:
    return "" if value is None else write(value)


def ms(seconds: float) -> str:
    """Milliseconds; nothing for none."""
    value = seconds * 1000.0
    if value < 0.005:
        return ""
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"


def _micros(accumulate: int) -> str:
    """Steps of an update, where there are several."""
    return str(accumulate) if accumulate > 1 else ""
