"""`weft simulate`: replay a workload under one policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weft.cli.options import shared as o
from weft.cli.options.from_fields import options_from_fields
from weft.cli.options.simulation import OutputOptions, SimulationOptions
from weft.cli.view.errors import user_errors
from weft.cli.view.progress import progress_bars
from weft.cli.view.results import check_output, show_result


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
    ] = "tiresias",
    options: SimulationOptions,
    events: Annotated[Path | None, o.OUT(help="Write every event as a line of JSON here.")] = None,
    output: OutputOptions,
) -> None:
    """Replay WORKLOAD in virtual time and report completion times."""
    from weft.app.policy_file import read_policy
    from weft.app.simulate.run import run_all

    with user_errors():
        check_output(output)
        setup = options.setup(read_policy(policy), events=events)
        with progress_bars([policy], quiet=output.quiet or output.as_json) as progress:
            result = run_all([setup], processes=1, progress=progress)
    show_result(result, output)
