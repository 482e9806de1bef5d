"""`weft simulate`, `weft compare`: workloads replayed, and what came of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from weft.app.policy_file import choose_sensible, expand_sets, read_policy
from weft.app.simulate.finished_runs import KeptRuns
from weft.app.simulate.run import run_all
from weft.cli.options import shared as o
from weft.cli.options.shared import options_from_fields
from weft.cli.options.simulation import OutputOptions, SimulationOptions, read_loads
from weft.cli.view.errors import user_errors
from weft.cli.view.results import check_output, show_loads, show_result
from weft.cli.view.screen import progress_bars
from weft.core.errors import InvalidConfig


@options_from_fields
def simulate(
    *,
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            "-p",
            help="A name from `weft list policy`, as NAME or NAME:KEY=VALUE,..., or a .yaml file. "
            "The default is a published baseline; `weft serve` uses `weft`.",
        ),
    ] = "las",
    options: SimulationOptions,
    events: Annotated[Path | None, o.OUT(help="Write every event as a line of JSON here.")] = None,
    output: OutputOptions,
) -> None:
    """Replay WORKLOAD in virtual time and report completion times."""
    with user_errors():
        check_output(output)
        setup = options.setup(read_policy(policy), events=events)
        with progress_bars([policy], quiet=output.no_bar) as progress:
            result = run_all([setup], processes=1, progress=progress, bound=output.bounded)
    show_result(result, output)


DEFAULT = ("fifo", "fifo:backfill=true", "srtf", "las")


@options_from_fields
def compare(
    *,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            help="A policy, or a set: 'las:by={time,gpu-time}'; give it several times. "
            f"By default {', '.join(DEFAULT)}.",
        ),
    ] = None,
    options: SimulationOptions,
    seeds: Annotated[
        int, typer.Option(help="How many seeds, from --seed on.", min=1, max=1000)
    ] = 1,
    loads: Annotated[
        str,
        typer.Option(
            help="Compare at each of these offered loads: 0.7,1.0,1.3 (built-in workloads). "
            "JSON and CSV have all of them, a --report is written for each.",
            metavar="LOAD,...",
        ),
    ] = "",
    processes: Annotated[
        int | None, typer.Option(help="Parallel processes; default: one per core.", min=1)
    ] = None,
    on: Annotated[
        str,
        typer.Option(
            help="Spread the runs over a Ray cluster: ray://HOST:10001, or HOST:PORT of its head.",
            metavar="ADDRESS",
        ),
    ] = "",
    keep: Annotated[
        Path | None,
        typer.Option(
            help="Keep finished runs in this folder. A run found there is not repeated, so an "
            "interrupted comparison continues.",
            metavar="FOLDER",
        ),
    ] = None,
    output: OutputOptions,
) -> None:
    """Replay WORKLOAD under several policies, side by side."""
    with user_errors():
        check_output(output)
        offered = read_loads(loads, options.load)
        base = options.setup(DEFAULT[0])
        if keep is not None and on:
            raise InvalidConfig("--keep and --on: runs are kept on this machine alone")
        run = None if keep is None else KeptRuns(keep)
        sets = [choose_sensible(expand_sets(text)) for text in policy or DEFAULT]
        chosen = dict.fromkeys(text for kept, _ in sets for text in kept)
        left_out = {text: why for _, others in sets for text, why in others.items()}
        setups = [
            replace(base, policy=read_policy(name), seed=s)
            for name in chosen
            for s in range(base.seed, base.seed + seeds)
        ]
        labels = [f"{s.policy_name}" + (f" seed {s.seed}" if seeds > 1 else "") for s in setups]
        results = {}
        for load in offered:
            at = [replace(setup, load=load) for setup in setups]
            with progress_bars(labels, quiet=output.no_bar) as progress:
                results[load] = run_all(
                    at, processes=processes, progress=progress, on=on, run=run, bound=output.bounded
                )
    for text, why in left_out.items():
        typer.echo(f"left out {text}: {why}", err=True)
    if loads:
        show_loads(results, output)
    else:
        show_result(results[options.load], output)
