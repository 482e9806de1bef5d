"""`weft profile`: how fast a script trains here, and on which batch sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli import options as o
from weft.cli.show import user_errors

if TYPE_CHECKING:
    from rich.console import RenderableType

    from weft.app.profile import Measured


def profile(
    command: Annotated[
        list[str],
        typer.Argument(help="A script that uses weft.train, after `--`.", metavar="COMMAND..."),
    ],
    gpus: Annotated[int, typer.Option("--gpus", "-g", help="On so many GPUs.", min=1)] = 1,
    each_s: Annotated[
        float, typer.Option("--each", help="Seconds for each batch size.", min=0.1)
    ] = 4.0,
    sizes: Annotated[int, typer.Option(help="At most so many batch sizes.", min=1, max=20)] = 8,
    cpu: Annotated[bool, typer.Option("--cpu", help="On CPU slots, GPUs or not.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the JSON here too.", rich_help_panel=o.OUT)
    ] = None,
    as_json: o.AsJson = False,
) -> None:
    """Measure a training script on this machine.

    Stage times, throughput over batch sizes, memory and gradient noise, from a short run of the
    script alone; no service is needed. The batch size is doubled from the script's own to the
    largest it allows. Checkpoints of the script are neither read nor written.
    """
    import os

    from weft.app.profile import Wanted
    from weft.app.profile import profile as measure
    from weft.cli.jobspec import SHELL
    from weft.cli.screen import console, interactive, notes, print_json

    env = {name: os.environ[name] for name in SHELL if os.environ.get(name)}
    slots = f",slots={gpus}" if cpu else ""
    engine = f"local:warm=false,cpu={'true' if cpu else 'false'}{slots}"
    wanted = Wanted(gpus, each_s, sizes, engine, env)
    with user_errors():
        if interactive() and not as_json:
            with notes().status("starting") as status:
                measured = measure(command, Path.cwd(), wanted, status.update)
        else:
            measured = measure(command, Path.cwd(), wanted)
        if out is not None:
            write(out, measured)
    if as_json:
        print_json(measured.as_dict())
    else:
        screen = console()
        screen.print(shown(measured, screen.width))


def write(path: Path, measured: Measured) -> None:
    """The profile as a JSON file."""
    from weft.core.errors import InvalidConfig

    try:
        path.write_text(json.dumps(measured.as_dict(), indent=1) + "\n")
    except OSError as error:
        raise InvalidConfig(f"cannot write {path}: {error.strerror}") from error


def shown(measured: Measured, width: int) -> RenderableType:
    """What a person reads of a profile."""
    from dataclasses import asdict

    from rich.console import Group
    from rich.text import Text

    from weft.cli.tables import Column, fitted
    from weft.report.units import number, percent

    columns = [
        Column("batch", lambda row: f"{row['batch']:,}", right=True),
        Column("per GPU", lambda row: f"{row['per_gpu']:,}", drop=3, right=True),
        Column("accum.", lambda row: str(row["accumulate"] or ""), drop=6, right=True),
        Column("step", lambda row: ms(row["step_s"]), right=True),
        Column("data", lambda row: ms(row["data_s"]), drop=1, right=True),
        Column("compute", lambda row: ms(row["compute_s"]), drop=1, right=True),
        Column("sync", lambda row: ms(row["sync_s"]), drop=2, right=True),
        Column("samples/s", lambda row: number(row["throughput"]), right=True),
        Column("worth", lambda row: percent(row["efficiency"]), drop=4, right=True),
        Column("goodput", lambda row: number(row["goodput"]), right=True),
        Column("memory", lambda row: f"{row['mem_gb']:.2f} GB", drop=5, right=True),
    ]
    points = [asdict(point) for point in measured.points]
    title = f"{' '.join(measured.command)} on {measured.gpus} {measured.kind}"
    parts: list[RenderableType] = [
        Text(f"{title}, {measured.seconds:.0f} s", style="bold", overflow="ellipsis", no_wrap=True),
        fitted(columns, points, width),
        Text(noise_text(measured)),
    ]
    if measured.trouble:
        parts.append(Text(f"ended early: {measured.trouble}", style="yellow"))
    return Group(*parts)


def noise_text(measured: Measured) -> str:
    """The gradient's noise in words."""
    from weft.report.units import number

    if measured.noise is None:
        return "gradient noise: not enough steps to tell"
    noise = measured.noise
    return (
        f"gradient noise scale {number(noise['noise'])} samples "
        f"(variance {number(noise['grad_var'])}, squared norm {number(noise['grad_sqr'])})"
    )


def ms(seconds: float) -> str:
    """Milliseconds; nothing for none."""
    value = seconds * 1000.0
    if value < 0.005:
        return ""
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"
