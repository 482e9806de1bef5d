"""What a person reads of a profile: batch sizes of one script, or scripts beside each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from weft.app.measure.pairs import PairTable
from weft.app.measure.script import Measured
from weft.cli.view.tables import Column, fit_columns
from weft.report.units import number, percent


def profile_tables(measured: Measured | PairTable, width: int) -> RenderableType:
    """As tables that fit the width."""
    return _script(measured, width) if isinstance(measured, Measured) else _pairs(measured, width)


def _pairs(table: PairTable, width: int) -> RenderableType:
    names = [f"{script.model}:{script.batch}" for script in table.alone]
    alone: list[Column[dict[str, Any]]] = [
        Column("script", lambda row: row["name"]),
        Column("step alone", lambda row: ms(row["step_s"]), right=True),
        Column("memory", lambda row: f"{row['mem_gb']:.2f} GB", drop=1, right=True),
    ]
    together: list[Column[dict[str, Any]]] = [
        Column("one", lambda row: row["one"]),
        Column("speed", lambda row: percent(row["speed_one"]), right=True),
        Column("beside", lambda row: row["other"]),
        Column("speed ", lambda row: percent(row["speed_other"]), right=True),
        Column("work of both", lambda row: f"{row['both']:.2f}", right=True),
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


def _script(measured: Measured, width: int) -> RenderableType:
    columns: list[Column[dict[str, Any]]] = [
        Column("batch", lambda row: f"{row['batch']:,}", right=True),
        Column("per GPU", lambda row: f"{row['per_gpu']:,}", drop=3, right=True),
        Column("accum.", lambda row: _micros(row["accumulate"]), drop=6, right=True),
        Column("step", lambda row: ms(row["step_s"]), right=True),
        Column("data", lambda row: ms(row["data_s"]), drop=1, right=True),
        Column("compute", lambda row: ms(row["compute_s"]), drop=1, right=True),
        Column("sync", lambda row: ms(row["sync_s"]), drop=2, right=True),
        Column("samples/s", lambda row: number(row["throughput"]), right=True),
        Column("worth", lambda row: _if_known(row["efficiency"], percent), drop=4, right=True),
        Column("goodput", lambda row: _if_known(row["goodput"], number), right=True),
        Column("memory", lambda row: f"{row['mem_gb']:.2f} GB", drop=5, right=True),
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


def noise_text(measured: Measured) -> str:
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
