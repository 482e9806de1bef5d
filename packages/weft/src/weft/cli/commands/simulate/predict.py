"""`weft predict`: how well predictors do on a trace."""

from __future__ import annotations

import json
from dataclasses import asdict
from math import isnan
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from weft.cli.options import shared as o
from weft.cli.view.errors import user_errors

if TYPE_CHECKING:
    from weft.app.evaluate import Evaluation

MOST = 5_000


def predict(
    replay: Annotated[
        str, typer.Option(help="A workload (`weft list trace`) or a trace file: yours, any format.")
    ],
    jobs: Annotated[
        int, typer.Option(help="Use only the first jobs of the trace, at most this many.", min=50)
    ] = MOST,
    nodes: Annotated[
        int,
        typer.Option(help="Number of nodes with 8 GPUs each; 0: enough for a load of 0.85.", min=0),
    ] = 0,
    predictor: Annotated[
        list[str] | None,
        typer.Option(
            help="A predictor to compare; default: all that do not read the true lengths."
        ),
    ] = None,
    seed: o.Seed = 0,
    trace_option: o.TraceOption = None,
    as_json: o.AsJson = False,
) -> None:
    """Compare predictors on a trace: errors, ranges, completion times."""
    from weft.app.evaluate import PREDICTORS, evaluate, read_jobs

    with user_errors():
        options = o.trace_options(None, None, "", trace_option)
        done = evaluate(read_jobs(replay, jobs, seed, options), predictor or PREDICTORS, nodes)
    if as_json:
        typer.echo(json.dumps(asdict(done)))
        return
    _show(done)


def _show(done: Evaluation) -> None:
    learnt = f"the first {done.warm_up} are learnt from only"
    typer.echo(
        f"{done.jobs} jobs, {learnt}; {done.nodes} nodes of 8 GPUs, load {done.load:.2f}; "
        "shortest predicted service first, no job is stopped"
    )
    table = Table("predictor")
    for heading in (
        "mean JCT",
        "of oracle",
        "error p50",
        "p90",
        "within 2x",
        "pinball",
        "80 % range",
    ):
        table.add_column(heading, justify="right")
    truth = done.rows[-1].jct_s
    for row in done.rows:
        table.add_row(
            row.name,
            f"{row.jct_s:,.0f} s",
            f"{row.jct_s / truth:.3f}",
            *(_number(error, ".2f") for error in (row.error_p50, row.error_p90)),
            _number(row.within_2x, ".0%"),
            _number(row.pinball, ".3f"),
            _number(row.coverage, ".1%"),
        )
    Console().print(table)
    typer.echo("errors are in powers of ten, of the predicted median at submission")


def _number(value: float, shape: str) -> str:
    return "" if isnan(value) else format(value, shape)
